"""Servers of OpenAI's dialect and of Kokoro's behind the real frameworks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import aclosing

import numpy as np
import pytest
from livekit.agents import APIConnectOptions
from livekit.agents.types import TimedString
from loguru import logger
from pipecat.frames.frames import TTSAudioRawFrame, TTSStoppedFrame, TTSTextFrame

from tests.adapters.pipecat_call import Call as Pipeline
from tests.adapters.pipecat_call import turn
from tests.dialects.openai_server import Reply, audio, caption, captions, s16, speaking
from tests.hearing import pitch
from tests.servers import Call
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService
from tts_plugins.dialects.kokoro import KokoroDialect
from tts_plugins.dialects.openai import OpenAIDialect
from tts_plugins.remote import RemoteEngine

TEXT = "Hello there. How are you?"
WORDS = ["Hello", "there.", "How", "are", "you?"]
RATES = [8_000, 16_000, 24_000]
DIALECTS = {"openai": OpenAIDialect(), "kokoro": KokoroDialect()}

STARTS = [0.1, 0.5, 1.2, 1.4, 1.75]
"""Seconds into the turn; each sentence is a second of tone."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger.remove()
    yield
    logger.remove()


def reply(call: Call) -> Reply:
    """A second of tone; from Kokoro with the times of its words, in two lines."""
    if call.path == "/v1/audio/speech":
        return audio(s16(48_000), "audio/pcm", X_Sample_Rate="48000")
    pcm = s16()
    if call.json["input"] == "Hello there.":
        first, last = [("Hello", 0.1, 0.4)], [("there", 0.5, 0.9), (".", 0.9, 1.0)]
    else:
        first, last = [("How", 0.2, 0.4)], [("are", 0.4, 0.7), ("you", 0.75, 0.95), ("?", 0.95, 1)]
    return captions(caption(pcm[:20_000], *first), caption(pcm[20_000:], *last))


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", DIALECTS)
async def test_pipecat_plays_the_tone_and_shows_the_words(name: str, rate: int) -> None:
    async with speaking(reply) as server:
        engine = RemoteEngine(DIALECTS[name], server.url)
        async with Pipeline(EngineTTSService(engine), rate=rate) as pipeline:
            await pipeline.send(*turn("Hello the", "re. How a", "re you?"))
            await pipeline.after(TTSStoppedFrame)
        await engine.aclose()
    frames = pipeline.all(TTSAudioRawFrame)
    assert {frame.sample_rate for frame in frames} == {rate}
    judge(pipeline.audio, rate)
    shown = pipeline.all(TTSTextFrame)
    assert [frame.text for frame in shown] == WORDS
    starts = [(frame.pts or 0) / 1e9 for frame in shown]
    if name == "kokoro":
        # Pipecat counts from when it got the first audio.
        assert np.diff(starts) == pytest.approx(np.diff(STARTS), abs=0.002)
    assert starts == sorted(starts)
    assert pipeline.errors == []
    check_calls(server.calls)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", DIALECTS)
async def test_livekit_plays_the_tone_and_times_the_words(name: str, rate: int) -> None:
    pcm, words = b"", list[TimedString]()
    async with speaking(reply) as server:
        engine = RemoteEngine(DIALECTS[name], server.url)
        speaker = EngineTTS(engine, sample_rate=rate)
        stream = speaker.stream(conn_options=APIConnectOptions(max_retry=0))
        async with aclosing(stream):
            for token in ("Hello the", "re. How a", "re you?"):
                stream.push_text(token)
            stream.end_input()
            async for event in stream:
                assert event.frame.sample_rate == rate
                pcm += event.frame.data.tobytes()
                words += event.frame.userdata["lk.timed_transcripts"]
        await speaker.aclose()
        await engine.aclose()
    judge(pcm, rate)
    assert "".join(words) == TEXT
    assert [word.strip() for word in words] == WORDS
    starts = [word.start_time for word in words]
    if name == "kokoro":
        assert starts == pytest.approx(STARTS, abs=0.001)
    assert starts == sorted(starts)  # type: ignore[type-var]  # each has one
    check_calls(server.calls)


def judge(pcm: bytes, rate: int) -> None:
    """Two seconds of the tone, to the sample."""
    samples = np.frombuffer(pcm, np.int16)
    assert len(samples) == 2 * rate
    assert pitch(samples, rate) == pytest.approx(440, abs=1)
    assert np.abs(samples).max() == pytest.approx(16_384, rel=0.05)


def check_calls(calls: list[Call]) -> None:
    """One for each sentence."""
    spoken = [json.loads(call.body)["input"] for call in calls if call.method == "POST"]
    assert spoken == ["Hello there.", "How are you?"]
