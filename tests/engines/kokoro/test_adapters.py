"""Both frameworks hear all of what Kokoro says, with its words on time."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from pipecat.frames.frames import LLMFullResponseEndFrame, TTSAudioRawFrame, TTSTextFrame

from tests.adapters.pipecat_call import Call, logged, turn
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService
from tts_plugins.engines.kokoro import KokoroEngine
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import SynthesisRequest

TEXT = "Let me see what I can do, and then call you back."


@pytest.fixture
def expected(engine: KokoroEngine) -> float:
    """Seconds of audio."""
    return sum(chunk.seconds for chunk in engine.synthesize(SynthesisRequest(TEXT)))


async def test_pipecat_hears_it(folder: Path, expected: float) -> None:
    scheduler = Scheduler(KokoroEngine(folder, threads=1), max_ahead=math.inf)
    with logged("ERROR") as errors:
        async with Call(EngineTTSService(scheduler), rate=24_000) as call:
            await call.send(*turn(TEXT))
            await call.after(LLMFullResponseEndFrame)
    await scheduler.aclose()
    assert errors == []
    assert [frame.text for frame in call.all(TTSTextFrame)] == TEXT.split()
    assert sum(f.num_frames for f in call.all(TTSAudioRawFrame)) >= round(expected * 24_000)


async def test_livekit_hears_it(folder: Path, expected: float) -> None:
    scheduler = Scheduler(KokoroEngine(folder, threads=1), max_ahead=math.inf)
    plugin = EngineTTS(scheduler, sample_rate=24_000)
    heard, words = [], []
    async with plugin.synthesize(TEXT) as stream:
        async for event in stream:
            heard.append(np.frombuffer(event.frame.data, np.int16))
            words += event.frame.userdata.get("lk.timed_transcripts", [])
    await plugin.aclose()
    await scheduler.aclose()
    assert len(np.concatenate(heard)) == round(expected * 24_000)
    assert [str(word).strip() for word in words] == TEXT.split()
