"""What goes through a house from its doors to its engines."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Sequence

import numpy as np
import pytest

from tests.hearing import decoded
from tests.server.live import live, tones
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

LONG = " ".join(["Sentences that go on and on until somebody stops them."] * 10)


class Numpy:
    """Counts with numpy's numbers, and gives a text at once."""

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        word = Word(request.text, np.int64(0), np.float32(0.25), np.float32(9.5))  # type: ignore[arg-type]
        tone = 0.2 * np.sin(np.arange(240_000) * 2 * np.pi * 440 / 24_000)
        yield AudioChunk(tone.astype(np.float32), 24_000, (word,))

    async def voices(self) -> Sequence[Voice]:
        return []

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/dev/captioned_speech", {"input": "Hello", "response_format": "pcm"}),
        ("/v1/text-to-speech/default/stream/with-timestamps?output_format=pcm_8000", {}),
        ("/v1/text-to-speech/default/with-timestamps?output_format=pcm_8000", {}),
        ("/api/speech", {}),
    ],
)
async def test_an_engine_may_count_with_numpy(path: str, body: dict[str, str]) -> None:
    async with live(Numpy()) as server:
        status, _, reply = await server.ask(path, {"text": "Hello", **body})
    assert status == 200
    assert all(json.loads(line) for line in reply.splitlines())


async def test_a_chunk_of_any_length_is_written_a_second_at_a_time() -> None:
    async with live(Numpy()) as server:
        _, _, mp3 = await server.ask("/v1/audio/speech", {"input": "Hello"})
        _, _, lines = await server.ask("/api/speech", {"text": "Hello"})
    samples, rate = decoded(mp3)
    assert len(samples) / rate == pytest.approx(10, abs=0.06)
    said = [json.loads(line) for line in lines.splitlines()]
    assert len(said) == 10
    assert [len(line.get("words", ())) for line in said] == [1, *[0] * 9]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/text-to-speech/default/with-timestamps?output_format=pcm_8000", {"text": LONG}),
        ("/dev/captioned_speech", {"input": LONG, "response_format": "pcm", "stream": False}),
    ],
)
async def test_what_comes_in_one_piece_doesnt_wait_for_a_listener(
    path: str, body: dict[str, object]
) -> None:
    # Paced, this would take half a minute.
    async with live(tones(max_ahead=0.5)) as server:
        async with asyncio.timeout(5):
            status, _, reply = await server.ask(path, body)
    assert status == 200
    said = json.loads(reply)
    assert len(said.get("audio_base64") or said["audio"]) > 500_000


async def test_draining_waits_for_what_begins_as_another_ends() -> None:
    async with live() as server:
        house = server.house
        first, second = house.enter("openai", {}), house.enter("openai", {})
        with first:
            draining = asyncio.create_task(house.drain())
            await asyncio.sleep(0)
        with second:
            for _ in range(5):
                await asyncio.sleep(0)
            assert not draining.done()
        await draining


async def test_a_name_is_cut_for_the_log_and_what_nobody_got_isnt_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tts_plugins.requests")
    engine = Scheduler(ToneEngine(), max_ahead=0.2)
    async with live(engine) as server:
        await server.ask("/v1/audio/speech", {"input": "Hi.", "voice": "v" * 50_000})
        assert len(caplog.messages[-1]) < 500
        asked = {"input": LONG, "stream": False}
        path = f"{server.url}/dev/captioned_speech"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await server.client.post(path, json=asked)
        await server.until(lambda: "outcome=cancelled" in caplog.messages[-1])
    assert "first_audio=- audio=0.000" in caplog.messages[-1]
