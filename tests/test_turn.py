"""One turn: the listener's rate, one timeline of words, and no request without audio."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import aclosing

import numpy as np
import pytest

from tests.fakes import ScriptedEngine, WordlessEngine, silence, tone
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.errors import EngineError, EngineTimeoutError, UnspeakableTextError
from tts_plugins.scheduler import Scheduler
from tts_plugins.timing import TimedEngine
from tts_plugins.turn import Turn
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word


def spoken_by_tone() -> TimedEngine:
    return TimedEngine(Scheduler(ToneEngine(), max_ahead=math.inf))


async def all_of(chunks: AsyncGenerator[AudioChunk, None]) -> list[AudioChunk]:
    async with aclosing(chunks):
        return [chunk async for chunk in chunks]


def words(chunks: list[AudioChunk]) -> list[Word]:
    return [word for chunk in chunks for word in chunk.words]


async def fragments(*parts: str) -> AsyncIterator[str]:
    for part in parts:
        yield part


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 48000])
async def test_the_sample_count_is_exact_at_any_rate(rate: int) -> None:
    turn = Turn(spoken_by_tone(), sample_rate=rate)
    for text in ("Hello big world.", "And again."):
        before = turn.seconds
        chunks = await all_of(turn.say(text))
        letters = sum(len(word) for word in text.split())
        assert {chunk.sample_rate for chunk in chunks} == {rate}
        assert sum(len(chunk.samples) for chunk in chunks) == math.ceil(letters * 0.06 * rate)
        assert turn.seconds - before == pytest.approx(letters * 0.06, abs=1 / rate)


@pytest.mark.parametrize("first", [tone(0.5, 22050), silence(0, 22050)])
async def test_without_a_rate_a_turn_takes_that_of_the_engines_first_chunk(
    first: AudioChunk,
) -> None:
    engine = ScriptedEngine(first, tone(0.5, 22050))
    turn = Turn(engine, sample_rate=0)
    assert turn.seconds == 0.0
    own = await all_of(turn.say("One."))
    assert turn.sample_rate == 22050
    assert sum(len(chunk.samples) for chunk in own) == len(first.samples) + 11025
    before = turn.seconds
    engine.script = (tone(0.5, 24000),)
    later = await all_of(turn.say("Two."))
    assert sum(len(chunk.samples) for chunk in later) == 11025
    assert {chunk.sample_rate for chunk in own + later} == {22050}
    assert turn.seconds == before + 0.5


async def test_a_breath_before_the_first_word_is_at_24000_and_so_is_the_rest() -> None:
    turn = Turn(ScriptedEngine(tone(0.5, 22050)), sample_rate=0)
    chunks = [*await all_of(turn.say("...")), *await all_of(turn.say("One."))]
    assert {chunk.sample_rate for chunk in chunks} == {24000}
    assert sum(len(chunk.samples) for chunk in chunks) == 480 + 12000
    assert turn.seconds == 0.52


async def test_nothing_of_one_utterance_leaks_into_the_next() -> None:
    engine = ScriptedEngine(tone(0.5))
    turn = Turn(engine, sample_rate=8000)
    await all_of(turn.say("Loud."))
    engine.script = (silence(0.5),)
    quiet = np.concatenate([chunk.samples for chunk in await all_of(turn.say("Quiet."))])
    assert len(quiet) == 4000
    assert np.abs(quiet).max() == 0.0


async def test_words_stand_on_one_timeline_and_in_one_text() -> None:
    turn = Turn(spoken_by_tone(), sample_rate=8000)
    chunks = await all_of(turn.say_all(fragments("Hello the", "re. How a", "re you?")))
    found = words(chunks)
    assert turn.text == "Hello there. How are you?"
    assert [w.text for w in found] == ["Hello", "there.", "How", "are", "you?"]
    assert all(turn.text[w.offset : w.offset + len(w.text)] == w.text for w in found)
    for earlier, later in itertools.pairwise(found):
        assert later.start == pytest.approx(earlier.end, abs=2e-4)
    assert found[-1].end == pytest.approx(turn.seconds, abs=1e-3)


async def test_an_engine_without_words_gets_guessed_ones() -> None:
    turn = Turn(TimedEngine(Scheduler(WordlessEngine(), max_ahead=math.inf)), sample_rate=16000)
    found = words(await all_of(turn.say("Hello there. How are you?")))
    assert [w.text for w in found] == ["Hello", "there.", "How", "are", "you?"]
    assert not any(w.exact for w in found)


def said(chunk: AudioChunk, *spoken: Word) -> AudioChunk:
    return AudioChunk(chunk.samples, chunk.sample_rate, spoken)


def by_chunk(chunks: list[AudioChunk]) -> list[list[str]]:
    """The words that come with each chunk that isn't empty."""
    return [[w.text for w in c.words] for c in chunks if len(c.samples) or c.words]


async def test_words_that_are_reported_early_come_with_their_audio() -> None:
    spoken = Word("One", 0, 0.0, 0.2), Word("two", 4, 0.25, 0.5), Word("three.", 8, 0.55, 0.8)
    engine = ScriptedEngine(said(tone(0.2), *spoken), tone(0.2), tone(0.2), tone(0.2))
    chunks = await all_of(Turn(engine, sample_rate=24000).say("One two three."))
    assert by_chunk(chunks) == [["One"], ["two"], ["three."], []]
    assert words(chunks) == list(spoken)


async def test_a_word_waits_for_the_one_in_front_of_it() -> None:
    late, soon = Word("One", 0, 0.3, 0.4), Word("two.", 4, 0.1, 0.2)
    engine = ScriptedEngine(said(tone(0.2), late, soon), tone(0.2))
    chunks = await all_of(Turn(engine, sample_rate=24000).say("One two."))
    assert by_chunk(chunks) == [[], ["One", "two."]]


@pytest.mark.parametrize("beyond", [0.5, 9.0, math.inf, math.nan])
async def test_a_word_beyond_the_audio_is_guessed_to_end_with_it(beyond: float) -> None:
    spoken = Word("One", 0, 0.0, 0.2), Word("two.", 4, beyond, beyond + 0.3)
    engine = ScriptedEngine(said(tone(0.2), *spoken), tone(0.2))
    turn = Turn(engine, sample_rate=24000)
    chunks = await all_of(turn.say("One two."))
    assert by_chunk(chunks) == [["One"], [], ["two."]]
    assert words(chunks) == [Word("One", 0, 0.0, 0.2), Word("two.", 4, 0.4, 0.4, exact=False)]
    engine.script = (said(tone(0.5), Word("Three.", 0, 0.1, 0.5)),)
    assert words(await all_of(turn.say(" Three."))) == [Word("Three.", 9, 0.5, 0.9)]


@pytest.mark.parametrize("text", ["", " \n ", "...", "\N{GRINNING FACE}", "*** — !"])
async def test_nothing_to_say_is_a_breath_of_silence_and_no_request(text: str) -> None:
    engine = ScriptedEngine(tone(1))
    (chunk,) = await all_of(Turn(engine, sample_rate=8000).say(text))
    assert len(chunk.samples) == 160
    assert not chunk.samples.any()
    assert engine.requests == []


async def test_text_that_the_engine_finds_unspeakable_is_silence_too() -> None:
    turn = Turn(ScriptedEngine(UnspeakableTextError("no phonemes")), sample_rate=8000)
    (chunk,) = await all_of(turn.say("Hmm"))
    assert len(chunk.samples) == 160
    assert turn.text == "Hmm"


async def test_no_audio_for_a_speakable_text_is_an_error() -> None:
    with pytest.raises(EngineError, match="no audio for 5 characters"):
        await all_of(Turn(ScriptedEngine(), sample_rate=8000).say("Hello"))


async def test_an_engine_that_changes_its_rate_on_the_way_is_an_error() -> None:
    turn = Turn(ScriptedEngine(tone(0.1, 24000), tone(0.1, 22050)), sample_rate=8000)
    with pytest.raises(EngineError, match="from 24000 to 22050 Hz"):
        await all_of(turn.say("Hello"))


@pytest.mark.parametrize("good", [0, 1, 5])
async def test_after_an_error_anywhere_the_next_sentence_speaks(good: int) -> None:
    engine = ScriptedEngine(*[tone(0.1)] * good, EngineError("no luck"))
    turn = Turn(engine, sample_rate=8000)
    with pytest.raises(EngineError, match="no luck"):
        await all_of(turn.say("Hello"))
    engine.script = (tone(0.5),)
    assert sum(len(c.samples) for c in await all_of(turn.say("Again"))) == 4000


class Hanging(ScriptedEngine):
    """Gives its script and then nothing, for ever."""

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        async with aclosing(super().stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk
        await asyncio.Event().wait()


async def test_an_engine_that_hangs_meets_the_listeners_patience() -> None:
    turn = Turn(Hanging(), sample_rate=8000, patience=0.01)
    with pytest.raises(EngineTimeoutError, match=r"no audio for 0\.01 s"):
        await all_of(turn.say("Hello"))


async def test_chunks_without_samples_dont_renew_the_patience() -> None:
    class Empty(ScriptedEngine):
        async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
            while True:
                await asyncio.sleep(0.001)
                yield AudioChunk(np.zeros(0, np.float32), 24000)

    with pytest.raises(EngineTimeoutError):
        await all_of(Turn(Empty(), sample_rate=8000, patience=0.02).say("Hello"))


async def test_an_engines_own_timeout_is_not_the_listeners() -> None:
    turn = Turn(ScriptedEngine(TimeoutError("name lookup")), sample_rate=8000)
    with pytest.raises(TimeoutError, match="name lookup"):
        await all_of(turn.say("Hello"))


async def test_patience_begins_when_the_listener_runs_dry() -> None:
    began = asyncio.get_running_loop().time()
    turn = Turn(Hanging(tone(0.1)), sample_rate=24000, patience=0.01)
    with pytest.raises(EngineTimeoutError):
        await all_of(turn.say("Hello"))
    assert asyncio.get_running_loop().time() - began >= 0.1


async def test_a_later_sentence_is_due_when_the_listener_runs_dry() -> None:
    now = [100.0]
    engine = ScriptedEngine(tone(0.6))
    turn = Turn(engine, sample_rate=8000, clock=lambda: now[0])
    await all_of(turn.say("One."))
    await all_of(turn.say("Two."))
    now[0] += 0.8
    await all_of(turn.say("Three."))
    assert [r.due for r in engine.requests] == pytest.approx([0.0, 0.6, 0.4])
    assert turn.stalled == 0.0
    now[0] += 3.0  # 1.8 s of audio since 100.0, and now it is 103.8
    await all_of(turn.say("Four."))
    assert turn.stalled == pytest.approx(2.0)


async def test_the_engine_learns_what_was_said_before_and_the_settings() -> None:
    engine = ScriptedEngine(tone(0.1))
    template = SynthesisRequest("", voice="v", language="en-GB", speed=1.2)
    turn = Turn(engine, sample_rate=8000, template=template)
    await all_of(turn.say("  One. Two! "))
    one, two = engine.requests
    assert (one.text, one.previous_text) == ("One.", "")
    assert (two.text, two.previous_text) == ("Two!", "One.")
    assert (two.voice, two.language, two.speed) == ("v", "en-GB", 1.2)


async def test_what_was_said_before_the_turn_stands_in_front_of_its_own_text() -> None:
    engine = ScriptedEngine(tone(0.1))
    template = SynthesisRequest("", previous_text="Good evening. ")
    turn = Turn(engine, sample_rate=8000, template=template)
    await all_of(turn.say("One. Two!"))
    assert [r.previous_text for r in engine.requests] == ["Good evening.", "Good evening. One."]


async def test_an_engine_is_told_about_the_last_300_characters_in_all() -> None:
    engine = ScriptedEngine(tone(0.1))
    template = SynthesisRequest("", previous_text="x" * 1000)
    turn = Turn(engine, sample_rate=8000, template=template)
    await all_of(turn.say("One. Two!"))
    assert [r.previous_text for r in engine.requests] == ["x" * 300, "x" * 295 + " One."]


async def test_a_reply_begins_before_its_sentence_ends() -> None:
    engine = ScriptedEngine(tone(5.0))
    turn = Turn(engine, sample_rate=8000)
    written = asyncio.Event()

    async def slow() -> AsyncIterator[str]:
        yield "I would like to tell you a very long story about"
        await written.wait()
        yield " a lighthouse."

    async with aclosing(turn.say_all(slow())) as chunks:
        await anext(chunks)
        assert engine.requests[0].text == "I would like to tell you a very long story about"
        written.set()
        async for _ in chunks:
            pass
    assert turn.text == "I would like to tell you a very long story about a lighthouse."


async def test_which_can_be_switched_off() -> None:
    engine = ScriptedEngine(tone(0.1))
    turn = Turn(engine, sample_rate=8000, early=False)

    async def slow() -> AsyncIterator[str]:
        yield "I would like to tell you a very long story about"
        await asyncio.sleep(0.5)
        yield " a lighthouse."

    await all_of(turn.say_all(slow()))
    assert len(engine.requests) == 1


@pytest.mark.parametrize("turns_of_the_loop", range(25))
async def test_cancellation_at_every_await_leaves_no_task(turns_of_the_loop: int) -> None:
    engine = spoken_by_tone()
    turn = Turn(engine, sample_rate=8000)
    task = asyncio.create_task(all_of(turn.say_all(fragments("Hello the", "re. How a", "re"))))
    for _ in range(turns_of_the_loop):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await all_of(Turn(engine, sample_rate=8000).say("Next."))
    await engine.aclose()


async def test_closing_a_turn_closes_the_engines_stream() -> None:
    closed: list[str] = []

    class Noting(ToneEngine):
        def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
            try:
                yield from super().synthesize(request)
            finally:
                closed.append(request.text)

    engine = Scheduler(Noting(), max_ahead=0.1)
    async with aclosing(Turn(engine, sample_rate=8000).say("one two three four five")) as chunks:
        await anext(chunks)
    await engine.aclose()
    assert closed == ["one two three four five"]


async def test_a_hundred_kilobytes_are_spoken_piece_by_piece() -> None:
    lengths: list[int] = []

    class Measuring(ToneEngine):
        def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
            lengths.append(len(request.text))
            return super().synthesize(SynthesisRequest("x"))

    engine = Scheduler(Measuring(), max_ahead=math.inf)
    turn = Turn(engine, sample_rate=24000)
    text = "wordy " * 17_000
    assert await all_of(turn.say(text))
    assert max(lengths) <= 500
    assert turn.text == text
    await engine.aclose()


@pytest.mark.parametrize("text", ["nul \0 in it", "a lone \ud800 surrogate", "\ufffe\uffff x"])
async def test_strange_characters_pass(text: str) -> None:
    turn = Turn(spoken_by_tone(), sample_rate=8000)
    assert await all_of(turn.say(text))
    assert turn.text == text


def test_fakes_keep_to_the_protocols() -> None:
    check: Callable[[], Sequence[Voice]] = WordlessEngine().voices
    assert check()
