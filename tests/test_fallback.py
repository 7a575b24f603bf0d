"""The next engine when one fails: when, at which time of the utterance, and for how long."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from types import AsyncGeneratorType

import numpy as np
import pytest

from tests.fakes import ScriptedEngine, silence, tone
from tests.hearing import pitch
from tts_plugins import fallback
from tts_plugins.engine import Engine
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.errors import (
    EngineError,
    EngineTimeoutError,
    InvalidRequestError,
    OverloadedError,
    RemoteError,
    TTSError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.fallback import AllFailedError, FallbackEngine
from tts_plugins.scheduler import Scheduler
from tts_plugins.speaker import Speaker
from tts_plugins.testing import check_engine
from tts_plugins.timing import TimedEngine
from tts_plugins.turn import Turn
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice, Word

TEXT = "one two"
SOON = 0.01
"""Seconds after which an engine that hangs is given up, where a test has to wait for that."""

Script = Sequence[AudioChunk | Exception | float | str | None]

now = [0.0]
"""What the clock of a test shows."""


@pytest.fixture(autouse=True)
def clock() -> None:
    now[0] = 100.0


class Takes(ScriptedEngine):
    """Takes the next script with each request; the last one stays.

    None in it hangs for ever, a number lets so many seconds pass, "" lets the event loop run.
    """

    def __init__(self, *scripts: Script, name: str = "") -> None:
        super().__init__()
        self.scripts = list(scripts)
        self.name = name
        self.open = 0

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        self.requests.append(request)
        self.open += 1
        try:
            for item in self.scripts.pop(0) if self.scripts[1:] else self.scripts[0]:
                if item is None:
                    await asyncio.Event().wait()
                elif isinstance(item, float):
                    now[0] += item
                elif isinstance(item, str):
                    await asyncio.sleep(0)
                elif isinstance(item, Exception):
                    raise item
                else:
                    yield item
        finally:
            self.open -= 1


class Accented(Takes):
    """Has one voice."""

    def __init__(self, voice: str, *script: AudioChunk | Exception | str) -> None:
        super().__init__(script)
        self.voice = voice

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        async with aclosing(super().stream(request)) as chunks:
            if request.voice not in (None, self.voice):
                self.requests.append(request)
                raise VoiceNotFoundError(request.voice, [self.voice])
            async for chunk in chunks:
                yield chunk


def said(chunk: AudioChunk, *words: Word) -> AudioChunk:
    return AudioChunk(chunk.samples, chunk.sample_rate, words)


def nothing(rate: int = 24000) -> AudioChunk:
    return AudioChunk(np.zeros(0, np.float32), rate)


def fall_back(*engines: Engine, within: float = 3.0, rest: float = 30.0) -> FallbackEngine:
    return FallbackEngine(engines, first_audio_within=within, rest=rest, clock=lambda: now[0])


async def speak(
    engine: Engine, request: SynthesisRequest | str = TEXT, heard: list[AudioChunk] | None = None
) -> list[AudioChunk]:
    """All chunks; ``heard`` has them even if an error ends the stream."""
    heard = [] if heard is None else heard
    request = SynthesisRequest(request) if isinstance(request, str) else request
    async with aclosing(engine.stream(request)) as chunks:
        async for chunk in chunks:
            heard.append(chunk)
    return heard


def lengths(chunks: list[AudioChunk]) -> list[int]:
    return [len(chunk.samples) for chunk in chunks]


def samples(chunks: list[AudioChunk]) -> Samples:
    return np.concatenate([chunk.samples for chunk in chunks])


def words(chunks: list[AudioChunk]) -> list[tuple[str, float, float]]:
    return [(w.text, round(w.start, 6), round(w.end, 6)) for c in chunks for w in c.words]


ONE, TWO = Word("one", 0, 0.0, 0.3), Word("two", 4, 0.3, 0.6)


# Who speaks


async def test_the_first_engine_speaks_and_nobody_else_is_asked() -> None:
    first, spare = ScriptedEngine(silence(0.1), tone(0.2), silence(0.1)), ScriptedEngine(tone(1))
    request = SynthesisRequest(
        TEXT, "v", "en-GB", 1.2, previous_text="zero", due=0.5, options={"a": 1}
    )
    chunks = await speak(fall_back(first, spare), request)
    assert lengths(chunks) == [2400, 4800, 2400]
    assert first.requests == [request]
    assert spare.requests == []


@pytest.mark.parametrize(
    "script",
    [
        [EngineError("no luck")],
        [RuntimeError("no memory")],
        [TimeoutError("name lookup")],
        [RemoteError("text too long", status_code=400)],
        [InvalidRequestError("too slow")],
        [VoiceNotFoundError("bob", ["emma"])],
        [],
        [nothing()],
        [3.0, nothing()],
    ],
)
async def test_an_engine_that_fails_before_its_first_sound_gives_way(
    script: Script,
) -> None:
    spare = ScriptedEngine(tone(0.2))
    assert lengths(await speak(fall_back(Takes(script), spare))) == [4800]
    assert [request.text for request in spare.requests] == [TEXT]


async def test_an_engine_that_hangs_gives_way_and_is_closed_at_once() -> None:
    first, spare = Takes([None]), ScriptedEngine(tone(0.2))
    async with aclosing(fall_back(first, spare, within=SOON).stream(SynthesisRequest(TEXT))) as s:
        assert len((await anext(s)).samples) == 4800
        assert first.open == 0


async def test_a_sound_that_never_comes_is_waited_for_as_long_as_was_said() -> None:
    first = Takes([1.0, silence(0.1), 1.0, silence(0.1), 0.9, silence(0.1), 0.1, silence(0.1)])
    chunks = await speak(fall_back(first, ScriptedEngine(tone(0.2))))
    assert lengths(chunks) == [2400, 2400, 2400, 4800]


async def test_a_sound_just_in_time_is_in_time() -> None:
    spare = ScriptedEngine(tone(1))
    assert lengths(await speak(fall_back(Takes([2.9, tone(0.1), 9.0, tone(0.1)]), spare))) == [
        2400,
        2400,
    ]
    assert spare.requests == []


async def test_the_time_that_the_listener_takes_is_not_the_engines() -> None:
    spare = ScriptedEngine(tone(1))
    engine = fall_back(ScriptedEngine(silence(0.1), silence(0.1), tone(0.1)), spare)
    async with aclosing(engine.stream(SynthesisRequest(TEXT))) as chunks:
        async for _ in chunks:
            now[0] += 10.0
    assert spare.requests == []


async def test_an_engine_that_makes_silence_without_end_gives_way_however_fast_it_is() -> None:
    first = ScriptedEngine(*[silence(1.0)] * 1000)
    chunks = await speak(fall_back(first, ScriptedEngine(tone(0.2))))
    assert lengths(chunks) == [24000, 24000, 24000, 4800]


async def test_an_engine_that_ends_in_silence_gives_way() -> None:
    chunks = await speak(fall_back(ScriptedEngine(silence(0.3)), ScriptedEngine(tone(0.2))))
    assert lengths(chunks) == [7200, 4800]


async def test_where_there_is_nothing_to_say_silence_is_no_failure() -> None:
    first, spare = ScriptedEngine(silence(0.3)), ScriptedEngine(tone(0.2))
    engine = fall_back(first, spare)
    assert lengths(await speak(engine, "...")) == [7200]
    first.script = ()
    assert await speak(engine, "...") == []
    assert spare.requests == []


async def test_a_text_that_an_engine_finds_unspeakable_is_not_tried_elsewhere() -> None:
    first, spare = Takes([UnspeakableTextError("no phonemes")], [tone(0.1)]), ScriptedEngine()
    engine = fall_back(first, spare)
    with pytest.raises(UnspeakableTextError, match="no phonemes"):
        await speak(engine)
    assert lengths(await speak(engine)) == [2400]
    assert spare.requests == []


async def test_it_goes_down_the_row_until_one_speaks() -> None:
    dead = [ScriptedEngine(EngineError(str(n))) for n in range(5)]
    assert lengths(await speak(fall_back(*dead, ScriptedEngine(tone(0.2))))) == [4800]
    assert [len(engine.requests) for engine in dead] == [1, 1, 1, 1, 1]


async def test_an_engine_that_cancels_its_own_work_gives_way() -> None:
    class Cancels(ScriptedEngine):
        async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
            connection = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(connection.cancel)
            await connection
            yield tone(1)

    assert lengths(await speak(fall_back(Cancels(), ScriptedEngine(tone(0.2))))) == [4800]


# After the first sound


@pytest.mark.parametrize("error", [EngineError("broke"), RuntimeError("broke")])
async def test_after_the_first_sound_an_error_ends_the_stream_as_it_is(error: Exception) -> None:
    spare = ScriptedEngine(tone(1))
    heard: list[AudioChunk] = []
    with pytest.raises(type(error), match="broke") as raised:
        await speak(fall_back(ScriptedEngine(tone(0.1), error), spare), heard=heard)
    assert raised.value is error
    assert lengths(heard) == [2400]
    assert spare.requests == []


async def test_after_the_first_sound_even_a_voice_is_not_tried_again() -> None:
    odd = ScriptedEngine(tone(0.1), VoiceNotFoundError("bob", []))
    with pytest.raises(VoiceNotFoundError):
        await speak(
            fall_back(ScriptedEngine(RuntimeError()), odd), SynthesisRequest(TEXT, voice="bob")
        )
    assert len(odd.requests) == 1


async def test_after_the_first_sound_the_listener_decides_how_long_to_wait() -> None:
    engine = fall_back(Takes([tone(0.1), None]), ScriptedEngine(tone(1)), within=SOON)
    with pytest.raises(EngineTimeoutError, match=r"no audio for 0\.02 s"):
        await speak_turn(Turn(engine, sample_rate=8000, patience=0.02), TEXT)


async def test_an_engine_that_broke_off_rests_as_well() -> None:
    first, spare = Takes([tone(0.1), EngineError("broke")]), ScriptedEngine(tone(0.2))
    engine = fall_back(first, spare)
    with pytest.raises(EngineError, match="broke"):
        await speak(engine)
    assert lengths(await speak(engine)) == [4800]


async def speak_turn(turn: Turn, text: str) -> list[AudioChunk]:
    async with aclosing(turn.say(text)) as chunks:
        return [chunk async for chunk in chunks]


# One timeline


async def test_the_next_engine_goes_on_behind_the_silence_that_went_out() -> None:
    first = ScriptedEngine(silence(0.25), silence(0.5), EngineError("no luck"))
    second = ScriptedEngine(silence(0.1), EngineError("no luck"))
    third = ScriptedEngine(said(tone(0.3), ONE), said(tone(0.3), TWO))
    chunks = await speak(fall_back(first, second, third))
    assert lengths(chunks) == [6000, 12000, 2400, 7200, 7200]
    assert words(chunks) == [("one", 0.85, 1.15), ("two", 1.15, 1.45)]


async def test_words_of_an_engine_that_failed_are_never_told() -> None:
    first = ScriptedEngine(said(silence(0.1), ONE, TWO), said(nothing(), TWO), EngineError("no"))
    chunks = await speak(fall_back(first, ScriptedEngine(said(tone(0.6), ONE, TWO))))
    assert words(chunks) == [("one", 0.1, 0.4), ("two", 0.4, 0.7)]


async def test_words_wait_for_the_first_sound() -> None:
    script = (said(silence(0.1), ONE), silence(0.1), said(tone(0.1), TWO), tone(0.1))
    chunks = await speak(fall_back(ScriptedEngine(*script), ScriptedEngine()))
    assert [words([chunk]) for chunk in chunks] == [
        [],
        [],
        [("one", 0.0, 0.3), ("two", 0.3, 0.6)],
        [],
    ]


async def test_words_may_come_behind_all_audio() -> None:
    first = ScriptedEngine(silence(0.1, 16000), EngineError("no luck"))
    second = ScriptedEngine(tone(0.6, 24000), said(nothing(24000), ONE, TWO))
    chunks = await speak(fall_back(first, second))
    assert words(chunks) == [("one", 0.1, 0.4), ("two", 0.4, 0.7)]
    assert {chunk.sample_rate for chunk in chunks} == {16000}


@pytest.mark.parametrize(
    ("began", "native", "length"),
    [
        (24000, 22050, 24000),
        (8000, 24000, 8000),
        (48000, 22050, 48000),
        (22050, 8000, 22050),
        (16000, 16000, 16000),
    ],
)
async def test_a_stream_has_one_rate_whoever_speaks(began: int, native: int, length: int) -> None:
    first = ScriptedEngine(silence(0.5, began), EngineError("no luck"))
    second = ScriptedEngine(*[tone(1, native)] * 2)
    chunks = await speak(fall_back(first, second))
    assert {chunk.sample_rate for chunk in chunks} == {began}
    whole = samples(chunks)
    assert len(whole) == began // 2 + 2 * length
    assert not whole[: began // 2].any()
    assert pitch(whole[began // 2 :], began) == pytest.approx(440, abs=1)


async def test_the_samples_are_the_same_however_the_engine_cuts_them() -> None:
    wholes = []
    beep = tone(0.4, 22050).samples
    for size in (1, 7, 480, 8820):
        cut = [AudioChunk(beep[i : i + size], 22050) for i in range(0, len(beep), size)]
        first = ScriptedEngine(silence(0.1), EngineError("no luck"))
        wholes.append(samples(await speak(fall_back(first, ScriptedEngine(*cut)))))
    assert len(wholes[0]) == 2400 + 9600
    for whole in wholes[1:]:
        np.testing.assert_array_equal(whole, wholes[0])


async def test_an_engine_whose_audio_never_went_out_leaves_no_rate_behind() -> None:
    for first in (
        ScriptedEngine(nothing(8000), EngineError("no luck")),
        ScriptedEngine(silence(3.1, 8000), tone(0.1, 8000)),  # never begins to speak
        ScriptedEngine(EngineError("no luck")),
    ):
        chunks = await speak(fall_back(first, ScriptedEngine(tone(0.1, 22050))))
        assert [(len(chunk.samples), chunk.sample_rate) for chunk in chunks] == [(2205, 22050)]


async def test_an_engine_that_changes_its_rate_on_the_way_has_failed() -> None:
    first = ScriptedEngine(silence(0.1, 24000), tone(0.1, 22050))
    chunks = await speak(fall_back(first, ScriptedEngine(tone(0.1))))
    assert lengths(chunks) == [2400, 2400]
    with pytest.raises(EngineError, match="from 24000 to 22050 Hz"):
        await speak(fall_back(ScriptedEngine(tone(0.1, 24000), tone(0.1, 22050))))


async def test_the_next_engine_knows_when_the_listener_runs_dry() -> None:
    first = Takes([0.5, silence(0.2), 0.25, EngineError("no luck")])
    second, third = Takes([1.0, EngineError("no luck")]), ScriptedEngine(tone(0.1))
    await speak(fall_back(first, second, third), SynthesisRequest(TEXT, due=1.0))
    assert first.requests[0].due == 1.0
    assert second.requests[0].due == pytest.approx(1.0 - 0.75 + 0.2)
    assert third.requests[0].due == 0.0


async def test_guessed_words_begin_where_the_engine_that_speaks_is_heard() -> None:
    first = ScriptedEngine(silence(0.5, 16000), EngineError("no luck"))
    engine = TimedEngine(fall_back(first, ScriptedEngine(silence(0.1), *[tone(0.1)] * 6)))
    found = words(await speak(engine))
    assert [text for text, _, _ in found] == ["one", "two"]
    assert found[0][1] == pytest.approx(0.6, abs=0.01)


# Who rests, and for how long


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (EngineError("broke"), 30),
        (EngineTimeoutError("hangs"), 30),
        (RuntimeError("no memory"), 30),
        (VoiceNotFoundError("bob", []), 0),
        (InvalidRequestError("no such speed"), 0),
        (RemoteError("wrong key", status_code=401), 30),
        (RemoteError("bad gateway", status_code=502), 30),
        (OverloadedError("full", retry_after=2.5), 2.5),
        (OverloadedError("full", retry_after=90), 90),
        (OverloadedError("full", retry_after=300), 300),
        (OverloadedError("full", retry_after=86_400), 300),  # ten times what is usual
        (RemoteError("starting", status_code=503, retry_after=86_400), 300),
        (OverloadedError("full", retry_after=0), 30),
        (OverloadedError("full", retry_after=-1), 30),
        (RemoteError("text too long", status_code=400), 0),
        (RemoteError("text too long", status_code=422), 0),
    ],
)
async def test_what_says_something_about_the_engine_makes_it_rest(
    error: Exception, seconds: float
) -> None:
    first, spare = Takes([error], [tone(0.1)]), ScriptedEngine(tone(0.2))
    engine = fall_back(first, spare)
    assert lengths(await speak(engine)) == [4800]
    if seconds:
        now[0] += seconds - 0.1
        assert lengths(await speak(engine)) == [4800]
        now[0] += 0.1
    assert lengths(await speak(engine)) == [2400]
    assert len(first.requests) == 2


@pytest.mark.parametrize("script", [[None], [3.0, silence(0.1)], [], [silence(0.1)]])
async def test_silence_makes_an_engine_rest(script: Script) -> None:
    first, spare = Takes(script), ScriptedEngine(tone(0.2))
    engine = fall_back(first, spare, within=SOON)
    for _ in range(3):
        await speak(engine)
    assert len(first.requests) == 1
    assert len(spare.requests) == 3


async def test_an_engine_that_fails_again_rests_again() -> None:
    first = ScriptedEngine(EngineError("no luck"))
    engine = fall_back(first, ScriptedEngine(tone(0.2)))
    asked = []
    for _ in range(100):
        await speak(engine)
        asked.append(len(first.requests))
        now[0] += 1.0
    assert asked == [1] * 30 + [2] * 30 + [3] * 30 + [4] * 10


async def test_an_engine_is_tried_by_one_while_the_others_wait_what_comes_of_it() -> None:
    first, spare = Takes([EngineError("no luck")], [None], [tone(0.1)]), ScriptedEngine(tone(0.2))
    engine = fall_back(first, spare, within=SOON)
    await speak(engine)
    now[0] += 30.0
    trial = asyncio.create_task(speak(engine))
    await asyncio.sleep(0)
    assert first.open == 1
    assert lengths(await speak(engine)) == [4800]
    assert lengths(await trial) == [4800]  # it still hung
    assert len(first.requests) == 2
    now[0] += 30.0
    assert lengths(await speak(engine)) == [2400]
    assert lengths(await speak(engine)) == [2400]


async def test_an_engine_is_back_for_everybody_with_its_first_sound() -> None:
    first, spare = Takes([EngineError("no luck")], [tone(0.1)]), ScriptedEngine(tone(0.2))
    engine = fall_back(first, spare)
    await speak(engine)
    now[0] += 30.0
    async with aclosing(engine.stream(SynthesisRequest(TEXT))) as chunks:
        await anext(chunks)
        assert lengths(await speak(engine)) == [2400]


async def test_a_stream_from_before_a_failure_does_not_end_the_rest() -> None:
    full = OverloadedError("all streams are in use", retry_after=5.0)
    first, spare = Takes([tone(0.1), tone(0.1)], [full], [tone(0.1)]), ScriptedEngine(tone(0.2))
    engine = fall_back(first, spare)
    async with aclosing(engine.stream(SynthesisRequest(TEXT))) as chunks:
        await anext(chunks)
        assert lengths(await speak(engine)) == [4800]
        await anext(chunks)
    assert lengths(await speak(engine)) == [4800]
    now[0] += 5.0
    assert lengths(await speak(engine)) == [2400]


async def test_while_all_rest_the_one_that_is_back_first_is_asked_first() -> None:
    engines = [
        Takes([EngineError("no luck")], [tone(0.1)]),
        Takes([OverloadedError("full", retry_after=20)], [tone(0.2)]),
        Takes([OverloadedError("full", retry_after=10)], [EngineError("no")], [tone(0.3)]),
    ]
    engine = fall_back(*engines)
    with pytest.raises(AllFailedError):
        await speak(engine)
    # The third is back first, but fails; the second takes over, and so is well again.
    assert lengths(await speak(engine)) == [4800]
    assert lengths(await speak(engine)) == [4800]
    now[0] += 30.0
    assert lengths(await speak(engine)) == [2400]
    assert [len(engine.requests) for engine in engines] == [2, 3, 2]


async def test_being_asked_while_it_rests_does_not_end_its_rest() -> None:
    first = Takes([OverloadedError("full", retry_after=60)], [UnspeakableTextError("nothing")])
    spare = Takes([EngineError("no luck")], [EngineError("no luck")], [tone(0.2)])
    engine = fall_back(first, spare)
    with pytest.raises(AllFailedError):
        await speak(engine)
    with pytest.raises(UnspeakableTextError):  # the first, after the spare failed again
        await speak(engine)
    now[0] += 40.0
    assert lengths(await speak(engine)) == [4800]
    assert len(first.requests) == 2


async def test_one_that_rests_is_better_than_none() -> None:
    first = Takes([EngineError("no luck")], [tone(0.1)])
    spare = Takes([tone(0.2)], [EngineError("no luck")])
    engine = fall_back(first, spare)
    assert lengths(await speak(engine)) == [4800]
    assert lengths(await speak(engine)) == [2400]


# When all fail


@pytest.mark.parametrize(
    ("errors", "status", "retryable", "permanent"),
    [
        ([EngineError("a"), EngineError("b")], 500, True, False),
        ([RuntimeError("a")], 500, True, False),
        ([InvalidRequestError("a"), OverloadedError("b", retry_after=1)], 429, True, False),
        ([VoiceNotFoundError("bob", []), InvalidRequestError("b")], 404, False, True),
        ([RemoteError("a", status_code=401), InvalidRequestError("b")], 401, False, True),
        ([RemoteError("a", status_code=401), RemoteError("b", status_code=413)], 413, False, False),
        ([EngineTimeoutError("a"), RemoteError("b", status_code=401)], 504, True, False),
    ],
)
async def test_the_most_hopeful_failure_speaks_for_all(
    errors: list[Exception], status: int, retryable: bool, permanent: bool
) -> None:
    with pytest.raises(AllFailedError) as raised:
        await speak(fall_back(*[ScriptedEngine(error) for error in errors]))
    error = raised.value
    assert (error.status_code, error.retryable, error.permanent) == (status, retryable, permanent)
    assert isinstance(error, TTSError)
    assert isinstance(error.__cause__, ExceptionGroup)
    assert list(error.__cause__.exceptions) == errors


async def test_the_error_says_who_said_what() -> None:
    engines: list[Engine] = [
        Takes([OverloadedError("all 8 streams are in use", retry_after=1)], name="cloud"),
        Takes([None], name="lan"),
        Takes([RemoteError("http://x: 502: nothing", status_code=502)], name="http://x"),
        Takes([InvalidRequestError("no such thing")], name="picky"),
        Takes([RuntimeError("no memory")]),
        Takes([TimeoutError("name lookup")], name="dns"),
    ]
    request = SynthesisRequest(TEXT)
    with pytest.raises(AllFailedError) as raised:
        await speak(fall_back(*engines, within=SOON), request)
    assert str(raised.value) == (
        "no engine could speak: cloud: all 8 streams are in use; lan: no sound within 0.01 s;"
        " http://x: 502: nothing; picky: no such thing; Takes: RuntimeError;"
        " dns: TimeoutError"
    )


async def test_silence_that_went_out_is_no_speech() -> None:
    heard: list[AudioChunk] = []
    with pytest.raises(AllFailedError, match="it ended without a sound for 7 characters"):
        await speak(fall_back(*[ScriptedEngine(silence(0.1))] * 2), heard=heard)
    assert lengths(heard) == [2400, 2400]


# Voices and options


async def test_a_voice_is_the_first_engines_and_the_others_use_their_own() -> None:
    first = ScriptedEngine(EngineError("no luck"))
    emma, bob = Accented("emma", EngineError("no luck")), Accented("bob", tone(0.1))
    engine = fall_back(first, emma, bob)
    await speak(engine, SynthesisRequest(TEXT, voice="bob", language="en", speed=1.1))
    assert [request.voice for request in emma.requests] == ["bob", None]
    assert [request.voice for request in bob.requests] == ["bob"]
    assert {(request.language, request.speed) for request in emma.requests} == {("en", 1.1)}


async def test_an_engine_is_asked_for_a_voice_that_it_lacks_only_once() -> None:
    emma = Accented("emma", tone(0.1))
    engine = fall_back(ScriptedEngine(EngineError("no luck")), emma)
    for voice in ("bob", "bob", "emma", "bob", None, "carl"):
        assert await speak(engine, SynthesisRequest(TEXT, voice=voice))
    assert [request.voice for request in emma.requests] == [
        *["bob", None],
        *[None, "emma", None, None],
        *["carl", None],
    ]


async def test_a_voice_that_an_engine_lacks_is_no_failure_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = fall_back(
        ScriptedEngine(RuntimeError()), Accented("emma", tone(0.2)), ScriptedEngine(tone(0.3))
    )
    for _ in range(2):
        assert lengths(await speak(engine, SynthesisRequest(TEXT, voice="bob"))) == [4800]
    assert len(caplog.records) == 1


async def test_a_default_voice_that_is_not_there_is_a_failure() -> None:
    second = ScriptedEngine(VoiceNotFoundError("emma", []))
    engine = fall_back(ScriptedEngine(RuntimeError()), second, ScriptedEngine(tone(0.3)))
    assert lengths(await speak(engine)) == [7200]
    assert lengths(await speak(engine, SynthesisRequest(TEXT, voice="bob"))) == [7200]
    assert [request.voice for request in second.requests] == [None, "bob", None]


async def test_a_voice_that_the_first_engine_lacks_keeps_nobody_else_from_it() -> None:
    emma, spare = Accented("emma", tone(0.1)), ScriptedEngine(tone(0.2))
    engine = fall_back(emma, spare)
    assert lengths(await speak(engine, SynthesisRequest(TEXT, voice="bob"))) == [4800]
    assert lengths(await speak(engine, SynthesisRequest(TEXT, voice="emma"))) == [2400]
    assert [request.voice for request in emma.requests] == ["bob", "emma"]


async def test_a_speed_or_a_language_that_another_engine_lacks_does_not_silence_it() -> None:
    class Plain(ScriptedEngine):
        async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
            if request.speed != 1.0 or request.language:
                self.requests.append(request)
                raise InvalidRequestError("one speed, and one language")
            async with aclosing(super().stream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk

    plain = Plain(tone(0.2))
    engine = fall_back(ScriptedEngine(EngineError("no luck")), plain)
    asked = SynthesisRequest(TEXT, speed=1.1, language="vi")
    for _ in range(2):
        assert lengths(await speak(engine, asked)) == [4800]
    settings = [(request.speed, request.language) for request in plain.requests]
    assert settings == [(1.1, "vi"), (1.0, "vi"), (1.0, None), (1.0, None)]


async def test_the_options_known_are_the_first_engines() -> None:
    first = ScriptedEngine()
    first.request_options = ("pitch",)  # type: ignore[attr-defined]
    assert FallbackEngine([first, ScriptedEngine()]).request_options == {"pitch"}
    assert FallbackEngine([ScriptedEngine(), first]).request_options == frozenset()


async def test_options_are_the_first_engines_alone() -> None:
    first = ScriptedEngine(EngineError("no luck"))
    engine = fall_back(first, Scheduler(ToneEngine()))
    chunks = await speak(engine, SynthesisRequest(TEXT, voice="bob", options={"pitch": 2}))
    assert lengths(chunks) == [4320, 4320]
    assert first.requests[0].options == {"pitch": 2}


async def test_the_voices_are_those_of_the_first_engine_that_tells() -> None:
    class Mute(ScriptedEngine):
        async def voices(self) -> Sequence[Voice]:
            raise EngineError("can't tell")

    class Hangs(ScriptedEngine):
        async def voices(self) -> Sequence[Voice]:
            await asyncio.Event().wait()
            return []

    scripted = ScriptedEngine()
    assert await fall_back(scripted, Scheduler(ToneEngine())).voices() == [Voice("scripted", "und")]
    tone_ = Scheduler(ToneEngine())
    found = await fall_back(Mute(), Hangs(), tone_, scripted, within=SOON).voices()
    assert [voice.id for voice in found] == ["tone"]
    with pytest.raises(AllFailedError, match=r"Mute: can't tell; Hangs: TimeoutError$"):
        await fall_back(Mute(), Hangs(), within=SOON).voices()


# Closing and cutting off


@pytest.mark.parametrize("broken", range(3))
async def test_closing_closes_all_engines_even_if_one_fails_to(broken: int) -> None:
    class Breaks(ScriptedEngine):
        async def aclose(self) -> None:
            await super().aclose()
            raise RuntimeError("stuck")

    engines = [ScriptedEngine(), ScriptedEngine(), ScriptedEngine()]
    engines[broken] = Breaks()
    with pytest.raises(RuntimeError, match="stuck"):
        await fall_back(*engines).aclose()
    assert all(engine.closed for engine in engines)


async def test_a_closed_one_asks_nobody_any_more(caplog: pytest.LogCaptureFixture) -> None:
    spare = ScriptedEngine(tone(1))
    engine = fall_back(Scheduler(ToneEngine(), max_ahead=0.1), spare)
    async with aclosing(engine.stream(SynthesisRequest("one two three four"))) as spoken:
        await anext(spoken)
        await engine.aclose()
        with pytest.raises(EngineError, match="the engine was closed"):
            await anext(spoken)
    assert spare.requests == []
    assert caplog.records == []


async def test_a_closed_one_opens_nothing_again() -> None:
    reopens = ScriptedEngine(tone(0.1))  # it speaks even when it is closed
    engine = fall_back(reopens)
    await engine.aclose()
    with pytest.raises(EngineError, match="the engine was closed; open it again"):
        await speak(engine)
    assert reopens.requests == []


async def test_a_stream_that_waits_while_all_is_closed_does_not_move_on() -> None:
    class Ends(Takes):
        async def aclose(self) -> None:
            ended.set()

        async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
            await ended.wait()
            raise EngineError("the engine was closed")
            yield tone(1)

    ended = asyncio.Event()
    spare = ScriptedEngine(tone(1))
    engine = fall_back(Ends([]), spare)
    waiting = asyncio.create_task(speak(engine))
    await asyncio.sleep(0)
    await engine.aclose()
    with pytest.raises(EngineError, match="the engine was closed"):
        await waiting
    assert spare.requests == []


@pytest.mark.parametrize("chunks_heard", range(4))
async def test_closing_the_stream_closes_the_engines_at_once(chunks_heard: int) -> None:
    first = Takes([silence(0.1), EngineError("no luck")])
    second = Takes([silence(0.1), tone(0.1), tone(0.1), tone(0.1)])
    stream = fall_back(first, second).stream(SynthesisRequest(TEXT))
    for _ in range(chunks_heard):
        await anext(stream)
    assert first.open + second.open == (chunks_heard > 0)
    await stream.aclose()
    assert first.open + second.open == 0


async def test_whoever_is_cut_off_is_no_failure_of_the_engine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow: Script = ["", silence(0.1), "", silence(0.1), "", "", "", tone(0.1)]
    first, spare = Takes(slow), ScriptedEngine(tone(1))
    engine = fall_back(first, spare)
    for turns_of_the_loop in range(8):
        task = asyncio.create_task(speak(engine))
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() == (turns_of_the_loop < 6)
        assert first.open == 0
    assert lengths(await speak(engine)) == [2400] * 3
    assert spare.requests == []
    assert caplog.records == []


async def test_a_listener_who_gives_up_first_is_no_failure_of_the_engine() -> None:
    first, spare = Takes([None]), ScriptedEngine(tone(1))
    turn = Turn(fall_back(first, spare), sample_rate=8000, patience=SOON)
    for _ in range(2):
        with pytest.raises(EngineTimeoutError, match=r"the engine gave no audio for 0\.01 s"):
            await speak_turn(turn, TEXT)
    assert len(first.requests) == 2
    assert first.open == 0
    assert spare.requests == []


def generators() -> int:
    gc.collect()
    return sum(type(thing) is AsyncGeneratorType for thing in gc.get_objects())


async def test_two_hundred_rounds_cut_off_anywhere_leave_nothing() -> None:
    before = generators()
    asked, ended = await cut_off_two_hundred_times()
    # Ten rounds less for each await before it; the third is asked twice, for the voice.
    assert asked == [190, 170, 2 * 150, 130]
    assert ended == 100
    assert generators() == before


async def cut_off_two_hundred_times() -> tuple[list[int], int]:
    breaks: Script = ["", silence(0.1, 16000), "", EngineError("no luck")]
    late: Script = ["", silence(0.1), "", 3.0, silence(0.1), ""]
    lacks = Accented("emma", "", silence(0.1), "", RuntimeError())
    speaks: Script = ["", silence(0.1, 22050), "", said(tone(0.1, 22050), ONE, TWO), ""]
    engines = [Takes(breaks), Takes(late), lacks, Takes(speaks)]
    ended = 0
    for round_ in range(200):
        engine = fall_back(*engines)
        task = asyncio.create_task(speak_turn_of(engine, SynthesisRequest("", voice="bob")))
        for _ in range(round_ % 20):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        ended += not task.cancelled()
        assert [each.open for each in engines] == [0, 0, 0, 0]
        assert asyncio.all_tasks() == {asyncio.current_task()}
    return [len(each.requests) for each in engines], ended


@pytest.mark.parametrize("early", [0.001, 0.0, -0.001])
async def test_cut_off_just_when_the_engine_is_given_up_is_cut_off(early: float) -> None:
    first, spare = Takes([None]), Takes([None])
    task = asyncio.create_task(speak(fall_back(first, spare, within=SOON)))
    asyncio.get_running_loop().call_later(SOON - early, task.cancel)
    await asyncio.wait([task])
    assert task.cancelled()
    assert first.open + spare.open == 0


async def speak_turn_of(engine: Engine, template: SynthesisRequest) -> list[AudioChunk]:
    turn = Turn(TimedEngine(engine), sample_rate=8000, template=template)
    return await speak_turn(turn, TEXT)


async def test_many_may_speak_at_once() -> None:
    scripts: list[Script] = [[EngineError("no luck")], ["", tone(0.1)]]
    shaky = [Takes(*scripts * 50) for _ in range(2)]
    engine = fall_back(*shaky, ScriptedEngine(silence(0.1), tone(0.1)), rest=0.0)
    everybody = await asyncio.gather(*(speak(engine) for _ in range(50)))
    assert {len(samples(chunks)) for chunks in everybody} <= {2400, 4800}
    assert [each.open for each in shaky] == [0, 0]


# Warming up


async def test_all_engines_warm_up_at_the_same_time() -> None:
    class Warm(ScriptedEngine):
        async def prewarm(self) -> None:
            await everybody.wait()

    everybody = asyncio.Barrier(3)
    async with asyncio.timeout(5):
        await fall_back(Warm(), Warm(), Warm()).prewarm()


async def test_an_engine_without_a_way_of_its_own_speaks_to_warm_up() -> None:
    first, second = ScriptedEngine(tone(0.1)), ScriptedEngine(tone(0.1))
    await fall_back(first, second).prewarm()
    assert [request.text for request in first.requests + second.requests] == ["Hello.", "Hello."]


async def test_an_engine_that_can_not_say_hello_is_warm(caplog: pytest.LogCaptureFixture) -> None:
    await fall_back(ScriptedEngine(UnspeakableTextError("no Latin"))).prewarm()
    assert caplog.records == []


async def test_an_engine_that_fails_to_warm_up_rests(caplog: pytest.LogCaptureFixture) -> None:
    first, spare = Takes([EngineError("no such file")], [tone(0.1)]), ScriptedEngine(tone(0.2))
    engine = fall_back(first, spare)
    await engine.prewarm()
    assert caplog.messages == ["Takes failed: no such file"]
    assert lengths(await speak(engine)) == [4800]
    now[0] += 30.0
    assert lengths(await speak(engine)) == [2400]


async def test_an_engine_that_never_gets_warm_does_not_keep_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fallback, "_WARM_UP", SOON)
    first, spare = Takes([None]), ScriptedEngine(tone(0.2))
    engine = fall_back(first, spare)
    await engine.prewarm()
    assert first.open == 0
    assert lengths(await speak(engine)) == [4800]


async def test_an_engine_that_rests_is_not_warmed_up_unless_all_do() -> None:
    first = Takes([EngineError("no file")], [tone(0.1)])
    spare = Takes([tone(0.1)], [tone(0.1)], [EngineError("no file")])
    engine = fall_back(first, spare)
    for asked in ([1, 1], [1, 2]):
        await engine.prewarm()
        assert [len(first.requests), len(spare.requests)] == asked
    with pytest.raises(AllFailedError):
        await engine.prewarm()
    first.scripts, spare.scripts = [[tone(0.1)]], [[tone(0.1)]]
    await engine.prewarm()
    assert [len(first.requests), len(spare.requests)] == [2, 4]


async def test_if_none_gets_warm_that_is_an_error() -> None:
    engine = fall_back(ScriptedEngine(EngineError("no file")), ScriptedEngine(RuntimeError()))
    with pytest.raises(AllFailedError, match="ScriptedEngine: no file; ScriptedEngine: RuntimeErr"):
        await engine.prewarm()


async def test_a_warm_up_that_is_cut_off_leaves_nothing() -> None:
    slow: Script = ["", "", tone(0.1), "", None]
    engines = [Takes([None]), Takes(slow)]
    engine = fall_back(*engines)
    for turns_of_the_loop in range(8):
        task = asyncio.create_task(engine.prewarm())
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert [each.open for each in engines] == [0, 0]


async def test_a_speaker_warms_all_of_them_up() -> None:
    engines = [ScriptedEngine(tone(0.1)), ScriptedEngine(tone(0.1))]
    await Speaker(fall_back(*engines)).warm_up()
    assert [len(engine.requests) for engine in engines] == [1, 1]


# What is told


async def test_a_switch_is_one_line_that_says_who_and_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engines = [Takes([EngineError("no luck")], name="cloud"), Takes([None])]
    await speak(fall_back(*engines, ScriptedEngine(tone(0.1)), within=SOON))
    assert caplog.record_tuples == [
        ("tts_plugins.fallback", logging.WARNING, "cloud failed: no luck"),
        ("tts_plugins.fallback", logging.WARNING, "Takes failed: no sound within 0.01 s"),
    ]


SECRET = "My card number is 4929 1234 5678 9012, and it expires in May."


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EngineError(f"can't say {SECRET!r} here"), "can't say '..."),
        (RemoteError(f"413: '{SECRET[:40]}...'", status_code=413), "413: '..."),
        (EngineError(SECRET), "..."),
        (ValueError(f"can't say {SECRET.upper()}"), "ValueError"),
        (EngineError(), "EngineError"),
    ],
)
async def test_what_was_to_be_said_is_told_to_nobody(
    error: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AllFailedError) as raised:
        await speak(fall_back(ScriptedEngine(error)), SECRET)
    assert str(raised.value) == f"no engine could speak: ScriptedEngine: {reason}"
    assert caplog.messages == [f"ScriptedEngine failed: {reason}"]


async def test_an_engine_goes_by_its_name_or_that_of_its_kind() -> None:
    nameless: Engine = TimedEngine(Takes([], name="inside"))
    members = fall_back(Scheduler(ToneEngine()), nameless, Takes([], name="x"))._members
    assert [member.name for member in members] == ["ToneEngine", "Takes", "x"]


async def test_it_stands_for_none_of_its_engines() -> None:
    class Reads(ScriptedEngine):
        reads_pronunciations = True

    speaker = Speaker(fall_back(Reads(tone(0.1)), ScriptedEngine()))
    assert speaker.name == "FallbackEngine"
    assert not speaker.reads_pronunciations
    await speaker.aclose()


@pytest.mark.parametrize(
    "options",
    [
        {"engines": []},
        {"first_audio_within": 0.0},
        {"first_audio_within": math.nan},
        {"rest": -1.0},
        {"rest": math.nan},
    ],
)
def test_what_cant_be_meant_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        FallbackEngine(**{"engines": [ScriptedEngine()], **options})  # type: ignore[arg-type]


async def test_a_fallback_may_be_in_a_fallback() -> None:
    inner = fall_back(ScriptedEngine(silence(0.1), RuntimeError()), ScriptedEngine(RuntimeError()))
    chunks = await speak(fall_back(inner, ScriptedEngine(tone(0.1))))
    assert lengths(chunks) == [2400, 2400]


async def test_it_keeps_the_contract_except_that_others_speak_where_one_refuses() -> None:
    tones = [Scheduler(ToneEngine(), max_ahead=math.inf) for _ in range(2)]
    engine = FallbackEngine(tones)
    failed = [check.name for check in await check_engine(engine) if not check.passed]
    await engine.aclose()
    assert failed == [
        "an unknown voice is refused",
        "an unknown option is refused",
        "an absurd speed is refused",
    ]
