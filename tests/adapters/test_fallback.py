"""Another engine takes over in the middle of a turn: what is heard of it, in both frameworks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pytest
from livekit.agents import APIConnectOptions, APIError
from loguru import logger
from pipecat.frames.frames import (
    InterruptionFrame,
    LLMFullResponseEndFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)

from tests.adapters.pipecat_call import Call, turn
from tests.fakes import silence
from tests.hearing import pitch
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService
from tts_plugins.engine import Engine
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.fallback import FallbackEngine
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

TEXT = "One two. Bad three four. Five six."
SENTENCES = [0.42, 0.78, 0.48]
"""Seconds of each, at 60 ms a character."""
WORDS = [
    ("One", 0.0),
    ("two.", 0.18),
    ("Bad", 0.42),
    ("three", 0.6),
    ("four.", 0.9),
    ("Five", 1.2),
    ("six.", 1.44),
]


class Shaky:
    """Beeps at 24 kHz until a text says "Bad"; what it does then is in ``how``."""

    def __init__(self, how: str) -> None:
        self.engine = Scheduler(ToneEngine(), max_ahead=math.inf)
        self.how = how
        self.texts: list[str] = []
        self.open = 0

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        if request.text != "Hello.":  # said to warm up
            self.texts.append(request.text)
        self.open += 1
        try:
            async with aclosing(self._spoken(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self.open -= 1

    async def _spoken(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        async with aclosing(self.engine.stream(request)) as chunks:
            if "Bad" in request.text and self.how == "is silent":
                yield silence(0.1)
                yield silence(0.1)
            if "Bad" in request.text and self.how == "falters":
                for _ in range(50):
                    await asyncio.sleep(0)
                    yield silence(0.002)
            if "Bad" in request.text and self.how == "breaks off":
                yield await anext(chunks)
            if "Bad" in request.text and self.how in ("is silent", "hangs"):
                await asyncio.Event().wait()
            if "Bad" in request.text and self.how != "is well":
                raise RuntimeError("no memory")
            async for chunk in chunks:
                yield chunk

    async def voices(self) -> Sequence[Voice]:
        return await self.engine.voices()

    async def aclose(self) -> None:
        await self.engine.aclose()


class Spare(Shaky):
    """Beeps at 22.05 kHz, and doesn't fail."""

    def __init__(self) -> None:
        super().__init__("is well")
        self.engine = Scheduler(ToneEngine(sample_rate=22_050), max_ahead=math.inf)


@dataclass
class Spoken:
    """What came of one turn."""

    pcm: bytearray = field(default_factory=bytearray)
    rates: set[int] = field(default_factory=set)
    words: list[tuple[str, float]] = field(default_factory=list)
    """Each with its start, in seconds from the first, to the millisecond."""
    failed: bool = False


class Phone(Protocol):
    """A call in one of the frameworks."""

    async def say(self, text: str) -> Spoken: ...

    async def begin(self, text: str, turns_of_the_loop: int) -> None:
        """Say something, and cut it off."""
        ...


Session = Callable[[Engine, int], AbstractAsyncContextManager[Phone]]


class PipecatPhone:
    def __init__(self, call: Call) -> None:
        self._call = call

    async def say(self, text: str) -> Spoken:
        call = self._call
        call.down.clear()
        call.up.clear()
        await call.send(*turn(text))
        await call.after(LLMFullResponseEndFrame)
        spoken = Spoken(bytearray(call.audio), failed=bool(call.errors))
        spoken.rates = {frame.sample_rate for frame in call.all(TTSAudioRawFrame)}
        words = call.all(TTSTextFrame)
        times = [frame.pts or 0 for frame in words]
        spoken.words = [
            (word.text, round((time - times[0]) / 1e9, 3))
            for word, time in zip(words, times, strict=True)
        ]
        return spoken

    async def begin(self, text: str, turns_of_the_loop: int) -> None:
        self._call.down.clear()
        await self._call.send(*turn(text))
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        await self._call.send(InterruptionFrame())
        await self._call.after(InterruptionFrame)


@asynccontextmanager
async def pipecat(engine: Engine, rate: int) -> AsyncGenerator[Phone, None]:
    async with Call(EngineTTSService(engine), rate=rate) as call:
        yield PipecatPhone(call)


class LiveKitPhone:
    def __init__(self, speaker: EngineTTS) -> None:
        self._speaker = speaker

    async def say(self, text: str) -> Spoken:
        spoken = Spoken()
        async with self._speaker.stream(conn_options=APIConnectOptions(max_retry=0)) as stream:
            stream.push_text(text)
            stream.end_input()
            try:
                async for event in stream:
                    spoken.pcm += event.frame.data.tobytes()
                    spoken.rates.add(event.frame.sample_rate)
                    spoken.words += [
                        (str(word).strip(), round(float(word.start_time), 3))
                        for word in event.frame.userdata["lk.timed_transcripts"]
                    ]
            except APIError:
                spoken.failed = True
        return spoken

    async def begin(self, text: str, turns_of_the_loop: int) -> None:
        saying = asyncio.create_task(self.say(text))
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        saying.cancel()
        await asyncio.wait([saying])


@asynccontextmanager
async def livekit(engine: Engine, rate: int) -> AsyncGenerator[Phone, None]:
    speaker = EngineTTS(engine, sample_rate=rate)
    yield LiveKitPhone(speaker)
    await speaker.aclose()


@pytest.fixture(params=[pipecat, livekit], ids=["pipecat", "livekit"])
def session(request: pytest.FixtureRequest) -> Session:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nothing of what Pipecat logs is printed."""
    logger.remove()
    sink = logger.add(lambda _: None)
    yield
    logger.remove(sink)


@pytest.mark.parametrize("rate", [8000, 16000, 24000])
@pytest.mark.parametrize(("how", "lost"), [("fails", 0.0), ("hangs", 0.0), ("is silent", 0.2)])
async def test_a_turn_goes_on_with_another_engine(
    session: Session, how: str, lost: float, rate: int
) -> None:
    first, spare = Shaky(how), Spare()
    async with session(FallbackEngine([first, spare], first_audio_within=0.05), rate) as phone:
        spoken = await phone.say(TEXT)
    assert not spoken.failed
    assert spoken.rates == {rate}
    pcm = np.frombuffer(spoken.pcm, np.int16)
    assert len(pcm) == round((1.68 + lost) * rate)
    # The silence stands before the second sentence, where it went out.
    begins = [0.0, 0.42 + lost, 1.2 + lost]
    for begin, seconds in zip(begins, SENTENCES, strict=True):
        beep = pcm[round(begin * rate) : round((begin + seconds) * rate)]
        assert pitch(beep, rate) == pytest.approx(440, abs=1)
        assert np.abs(beep).max() == pytest.approx(0.2 * 32768, rel=0.1)
    assert np.abs(pcm[round(0.43 * rate) : round((0.41 + lost) * rate)]).max(initial=0) < 100
    assert spoken.words == [
        (word, round(start + (lost if start >= 0.42 else 0.0), 3)) for word, start in WORDS
    ]
    assert first.texts == ["One two.", "Bad three four."]
    assert spare.texts == ["Bad three four.", "Five six."]


async def test_what_was_heard_is_never_repeated(session: Session) -> None:
    first, spare = Shaky("breaks off"), Spare()
    async with session(FallbackEngine([first, spare]), 16000) as phone:
        spoken = await phone.say("One two. Bad three four.")
        assert spoken.failed
        # Pipecat tells the rest of a sentence that failed, as one word.
        words = [word for word, _ in spoken.words]
        assert words[:3] == ["One", "two.", "Bad"]
        assert words[3:] in ([], ["three four."])
        assert len(spoken.pcm) <= 2 * round(0.6 * 16000)
        assert spare.texts == []
        # The next turn is the spare's.
        spoken = await phone.say("Bad three four.")
        assert not spoken.failed
        assert len(spoken.pcm) == 2 * round(0.78 * 16000)
        assert spoken.words == [("Bad", 0.0), ("three", 0.18), ("four.", 0.48)]
    assert first.texts == ["One two.", "Bad three four."]


async def test_the_better_engine_is_back_after_its_rest(session: Session) -> None:
    now = [0.0]
    first, spare = Shaky("fails"), Spare()
    engine = FallbackEngine([first, spare], rest=30.0, clock=lambda: now[0])
    async with session(engine, 8000) as phone:
        assert not (await phone.say("Bad one.")).failed
        first.how = "is well"
        now[0] = 29.9
        assert not (await phone.say("Two.")).failed
        now[0] = 30.0
        assert not (await phone.say("Three. Bad four.")).failed
    assert first.texts == ["Bad one.", "Three.", "Bad four."]
    assert spare.texts == ["Bad one.", "Two."]


async def test_if_no_engine_speaks_the_framework_is_told_and_the_next_turn_is_tried(
    session: Session,
) -> None:
    engines = [Shaky("fails"), Shaky("fails")]
    async with session(FallbackEngine(engines), 8000) as phone:
        assert (await phone.say("Bad.")).failed
        spoken = await phone.say("Good.")
        assert not spoken.failed
        assert len(spoken.pcm) == 2 * round(0.3 * 8000)
    assert [engine.texts for engine in engines] == [["Bad.", "Good."], ["Bad."]]


async def test_a_turn_cut_off_anywhere_leaves_nothing(session: Session) -> None:
    first, spare = Shaky("falters"), Spare()
    engine = FallbackEngine([first, spare], rest=0.0)
    tasks = asyncio.all_tasks()
    async with session(engine, 8000) as phone:
        for turns_of_the_loop in range(0, 200, 4):
            await phone.begin("Bad three four.", turns_of_the_loop)
        assert len(first.texts) > len(spare.texts) > 5
        assert not (await phone.say("Bad three four.")).failed
        assert first.open == spare.open == 0
    assert asyncio.all_tasks() <= tasks
