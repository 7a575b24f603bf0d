"""Piper in the real frameworks: the same words, and all of the sound."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from pipecat.frames.frames import TTSSpeakFrame, TTSStoppedFrame, TTSTextFrame

from tests.adapters.pipecat_call import Call, logged
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService
from tts_plugins.engines.piper import PiperEngine
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import SynthesisRequest

TEXT = "Hello there, how are you?"
WORDS = ["Hello", "there,", "how", "are", "you?"]


@pytest.fixture
def scheduler(engine: PiperEngine) -> Scheduler:
    return Scheduler(engine, workers=engine.workers, max_ahead=math.inf)


@pytest.fixture(autouse=True)
def log() -> Iterator[list[str]]:
    with logged("WARNING") as messages:
        yield messages


@pytest.fixture(scope="module")
def seconds(engine: PiperEngine) -> float:
    return sum(chunk.seconds for chunk in engine.synthesize(SynthesisRequest(TEXT)))


async def test_pipecat_hears_it_with_its_words(scheduler: Scheduler, seconds: float) -> None:
    async with Call(EngineTTSService(scheduler)) as call:
        await call.send(TTSSpeakFrame(TEXT))
        await call.after(TTSStoppedFrame)
    assert [frame.text for frame in call.all(TTSTextFrame)] == WORDS
    assert call.errors == []
    assert len(call.audio) / 2 / 8000 == pytest.approx(seconds, rel=0.3)


async def test_livekit_hears_it_with_its_words(scheduler: Scheduler, seconds: float) -> None:
    speaker = EngineTTS(scheduler)
    stream = speaker.stream()
    stream.push_text(TEXT)
    stream.end_input()
    async with stream:
        events = [event async for event in stream]
    words = [word for event in events for word in event.frame.userdata["lk.timed_transcripts"]]
    assert "".join(words).split() == WORDS
    assert sum(event.frame.duration for event in events) == pytest.approx(seconds, rel=0.3)
