from __future__ import annotations

from contextlib import aclosing

import pytest

from tests.fakes import ScriptedEngine, silence, tone
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.errors import EngineError, InvalidRequestError
from tts_plugins.scheduler import Scheduler
from tts_plugins.timing import TimedEngine
from tts_plugins.types import AudioChunk, SynthesisRequest, Word

TEXT = "one two three four"


async def speak(engine: TimedEngine, text: str = TEXT) -> list[AudioChunk]:
    async with aclosing(engine.stream(SynthesisRequest(text))) as chunks:
        return [chunk async for chunk in chunks]


def words(chunks: list[AudioChunk]) -> list[Word]:
    return [word for chunk in chunks for word in chunk.words]


async def test_reported_words_pass_through_untouched() -> None:
    word = Word("one", 0, 0.1, 0.2)
    chunk = AudioChunk(tone(0.5).samples, 24000, (word,))
    chunks = await speak(TimedEngine(ScriptedEngine(silence(0.2), chunk, tone(0.5))))
    assert words(chunks) == [word]
    assert len(chunks) == 3


async def test_words_that_are_reported_late_dont_come_twice() -> None:
    late = tuple(Word(word, at, 0.1, 0.2) for word, at in (("one", 0), ("three", 8), ("four", 14)))
    script = [*[tone(0.1)] * 3, AudioChunk(tone(0.1).samples, 24000, late)]
    found = words(await speak(TimedEngine(ScriptedEngine(*script))))
    assert [w.text for w in found] == ["one", "two", "three", "four"][: len(found)]
    assert found[-2:] == list(late[-2:])


async def test_words_are_guessed_where_none_are_reported() -> None:
    chunks = await speak(TimedEngine(ScriptedEngine(*[tone(0.1)] * 12)))
    found = words(chunks)
    assert [(w.text, w.offset) for w in found] == [
        ("one", 0),
        ("two", 4),
        ("three", 8),
        ("four", 14),
    ]
    assert not any(w.exact for w in found)
    assert found == sorted(found, key=lambda w: w.start)


async def test_what_is_not_said_is_no_word() -> None:
    class Cued(ScriptedEngine):
        def audible(self, text: str) -> str:
            return text.replace("[laughs]", " " * 8)

    text = "one [laughs] two"
    found = words(await speak(TimedEngine(Cued(*[tone(0.1)] * 12)), text))
    assert [(w.text, w.offset) for w in found] == [("one", 0), ("two", 13)]


async def test_a_guessed_word_comes_with_the_chunk_in_which_it_starts() -> None:
    made = 0.0
    for chunk in await speak(TimedEngine(ScriptedEngine(*[tone(0.1)] * 20))):
        for word in chunk.words:
            assert made - 1e-6 <= word.start <= made + 0.1
        made += chunk.seconds


async def test_speech_is_taken_to_begin_with_the_first_sound() -> None:
    chunks = await speak(TimedEngine(ScriptedEngine(silence(0.5), *[tone(0.1)] * 12)))
    assert not chunks[0].words
    assert words(chunks)[0].start == pytest.approx(0.5, abs=0.001)


async def test_words_that_come_sooner_than_guessed_are_still_all_there() -> None:
    chunks = await speak(TimedEngine(ScriptedEngine(tone(0.1))))  # four words in 100 ms
    assert [w.text for w in words(chunks)] == TEXT.split()
    assert words(chunks)[-1].start <= 0.1


async def test_the_pace_of_a_voice_is_learnt() -> None:
    # Three seconds for what was guessed to take one: the guesses approach the truth.
    engine = TimedEngine(ScriptedEngine(*[tone(0.1)] * 30))
    last = [words(await speak(engine))[-1].start for _ in range(12)]
    assert last[0] < 1.2
    assert last[-1] == pytest.approx(3.0 * 12 / 16, rel=0.1)
    assert last == sorted(last)


async def test_a_stream_that_fails_fails_and_teaches_nothing() -> None:
    engine = TimedEngine(ScriptedEngine(tone(0.1), EngineError("no luck")))
    with pytest.raises(EngineError, match="no luck"):
        await speak(engine)


async def test_a_stream_without_audio_has_no_words() -> None:
    assert await speak(TimedEngine(ScriptedEngine())) == []


async def test_silence_alone_still_tells_its_words_at_the_end() -> None:
    assert [w.text for w in words(await speak(TimedEngine(ScriptedEngine(silence(1.0)))))] == (
        TEXT.split()
    )


async def test_closing_closes_the_engine() -> None:
    inner = ScriptedEngine()
    await TimedEngine(inner).aclose()
    assert inner.closed
    assert [v.id for v in await TimedEngine(inner).voices()] == ["scripted"]


async def test_a_speed_of_zero_is_the_engines_to_refuse() -> None:
    engine = TimedEngine(Scheduler(ToneEngine()))
    with pytest.raises(InvalidRequestError, match="speed"):
        async with aclosing(engine.stream(SynthesisRequest(TEXT, speed=0))) as chunks:
            await anext(chunks)
    await engine.aclose()


async def test_the_pace_of_made_up_voices_is_not_remembered_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tts_plugins.timing._VOICES", 2)
    engine = TimedEngine(ScriptedEngine(tone(2.0)))

    async def guessed(voice: str) -> float:
        """Seconds until the last word, before anything is known about this text."""
        request = SynthesisRequest(TEXT, voice=voice)
        async with aclosing(engine.stream(request)) as chunks:
            return words([await anext(chunks)])[-1].start

    unknown = await guessed("a")
    async with aclosing(engine.stream(SynthesisRequest(TEXT, voice="a"))) as chunks:
        _ = [chunk async for chunk in chunks]
    assert await guessed("a") > unknown
    for voice in ("b", "c"):
        async with aclosing(engine.stream(SynthesisRequest(TEXT, voice=voice))) as chunks:
            _ = [chunk async for chunk in chunks]
    assert await guessed("a") == unknown
    assert await guessed("c") > unknown
