"""Stock clients of OpenAI's speech API, unchanged, against the server."""

from __future__ import annotations

import base64
import io
import json
import re
import wave
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing
from typing import Any

import httpx2
import numpy as np
import openai
import pytest
from livekit.agents import APIConnectOptions, APIError
from livekit.plugins import openai as livekit_openai
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    InterruptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
)
from pipecat.services.openai.tts import OpenAITTSService

from tests.adapters.pipecat_call import Call
from tests.hearing import decoded, pitch
from tests.server.cloner import Mimic
from tests.server.live import Live, best_of_three, live, tones, within
from tts_plugins.dialects.openai import VOICES
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.errors import EngineError
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

TEXT = "Hello there, how are you today?"
SECONDS = 0.06 * 26
"""The tone engine beeps 60 ms a character, and not for spaces."""

LONG = " ".join(["Sentences that go on and on until somebody stops them."] * 20)


def client(server: Live, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="any", base_url=f"{server.url}/v1", **options)


@pytest.mark.parametrize("rate", [24_000, 44_100, 48_000])
async def test_pcm_is_at_24_khz_whatever_the_engine_has(rate: int) -> None:
    async with (
        live(tones(sample_rate=rate)) as server,
        client(server) as api,
        api.audio.speech.with_streaming_response.create(
            model="gpt-4o-mini-tts", voice="alloy", input=TEXT, response_format="pcm"
        ) as reply,
    ):
        body = b"".join([chunk async for chunk in reply.iter_bytes()])
    assert reply.headers["x-sample-rate"] == "24000"
    assert reply.headers["content-type"] == "audio/pcm"
    assert len(body) == 2 * round(SECONDS * 24_000)
    assert abs(pitch(body, 24_000) - 440) < 2


@pytest.mark.parametrize("response_format", [None, "mp3", "opus", "aac", "flac", "wav"])
async def test_every_format_is_a_file_of_the_right_pitch_and_length(
    response_format: str | None,
) -> None:
    given: dict[str, Any] = {"response_format": response_format} if response_format else {}
    async with live() as server, client(server) as api:
        reply = await api.audio.speech.create(model="tts-1", voice="nova", input=TEXT, **given)
        body = reply.content
    samples, rate = decoded(body)
    assert len(samples) / rate == pytest.approx(SECONDS, rel=0.05)
    assert abs(pitch(samples, rate) - 440) < 2


async def test_the_header_of_a_wav_is_44_bytes_and_says_that_the_end_is_open() -> None:
    async with live(tones(sample_rate=48_000)) as server, client(server) as api:
        reply = await api.audio.speech.create(
            model="tts-1", voice="nova", input=TEXT, response_format="wav"
        )
    body = reply.content
    assert body[:4] == b"RIFF"
    assert body[4:8] == body[40:44] == b"\xff\xff\xff\xff"
    assert body[36:40] == b"data"
    with wave.open(io.BytesIO(body)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (48_000, 1, 2)
    assert len(body) == 44 + 2 * round(SECONDS * 48_000)


async def test_a_voice_may_be_any_of_openais_an_object_or_the_engines_own() -> None:
    async with live() as server, client(server) as api:
        voices: list[Any] = [*VOICES, {"id": "tone"}, "tone", "default"]
        for voice in voices:
            reply = await api.audio.speech.create(
                model="tts-1", voice=voice, input="Hi.", response_format="pcm"
            )
            assert len(reply.content) == 2 * 24 * 60 * 3


async def test_an_unknown_voice_is_400_and_names_those_there_are() -> None:
    async with live() as server, client(server) as api:
        with pytest.raises(openai.BadRequestError) as caught:
            await api.audio.speech.create(model="tts-1", voice="x", input="Hi.")
    assert (caught.value.code, caught.value.param) == ("voice_not_found", "voice")
    assert "no voice 'x'; available: tone" in str(caught.value)


async def test_an_alias_names_a_voice() -> None:
    async with (
        live(aliases={"Mai Anh": "tone", "alloy": "nobody"}) as server,
        client(server) as api,
    ):
        await api.audio.speech.create(model="tts-1", voice="Mai Anh", input="Hi.")
        with pytest.raises(openai.BadRequestError, match="no voice 'alloy'"):
            await api.audio.speech.create(model="tts-1", voice="alloy", input="Hi.")


async def test_events_hold_the_bytes_of_the_body() -> None:
    asked = {"model": "gpt-4o-mini-tts", "input": TEXT, "voice": "ash", "response_format": "wav"}
    async with live() as server:
        _, _, plain = await server.ask("/v1/audio/speech", asked)
        _, headers, body = await server.ask("/v1/audio/speech", asked | {"stream_format": "sse"})
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "content-encoding" not in headers
    events = []
    for block in body.decode().split("\n\n")[:-1]:
        assert re.match(r"data: \{[^\n]*\}\Z", block)
        events.append(json.loads(block.removeprefix("data: ")))
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == plain
    usage = events[-1]["usage"]
    assert events[-1]["type"] == "speech.audio.done"
    assert {type(usage[f"{which}_tokens"]) for which in ("input", "output", "total")} == {int}


async def test_the_sdk_reads_the_events() -> None:
    async with (
        live() as server,
        client(server) as api,
        api.audio.speech.with_streaming_response.create(
            model="gpt-4o-mini-tts",
            voice="alloy",
            input=TEXT,
            response_format="pcm",
            stream_format="sse",
        ) as reply,
    ):
        lines = [line async for line in reply.iter_lines() if line]
    audio = [json.loads(line[6:]).get("audio", "") for line in lines]
    assert sum(len(base64.b64decode(each)) for each in audio) == 2 * round(SECONDS * 24_000)


async def test_a_text_that_is_too_long_or_missing_is_refused() -> None:
    async with live() as server, client(server) as api:
        with pytest.raises(openai.BadRequestError) as caught:
            await api.audio.speech.create(model="tts-1", voice="alloy", input="a" * 4097)
        assert caught.value.code == "string_above_max_length"
        with pytest.raises(openai.BadRequestError):
            await api.audio.speech.create(model="tts-1", voice="alloy", input="")


@pytest.mark.parametrize("text", [" ", "\n", "...", "🙂🙂", "—"])
async def test_what_cant_be_said_is_a_breath_of_silence(text: str) -> None:
    async with live() as server, client(server) as api:
        reply = await api.audio.speech.create(
            model="tts-1", voice="alloy", input=text, response_format="pcm"
        )
    assert reply.content == bytes(2 * 480)


async def test_options_that_the_engine_doesnt_know_are_announced() -> None:
    async with live() as server, client(server) as api:
        reply = await api.audio.speech.with_raw_response.create(
            model="tts-1", voice="alloy", input="Hi.", instructions="cheerfully", speed=1.5
        )
    assert reply.headers["x-tts-ignored"] == "instructions"


async def test_what_only_kokoro_has_is_announced() -> None:
    asked = {
        "input": "Hi.",
        "response_format": "pcm",
        "lang_code": "a",
        "volume_multiplier": 0.5,
        "normalization_options": {"normalize": False},
    }
    async with live() as server:
        status, headers, _ = await server.ask("/v1/audio/speech", asked)
    assert status == 200
    assert headers["x-tts-ignored"] == "lang_code,normalization_options,volume_multiplier"


async def test_vieneus_clients_say_which_rate_they_want() -> None:
    asked = {"model": "vieneu-v3-turbo", "input": TEXT, "response_format": "pcm", "top_k": 25}
    async with live() as server:
        _, headers, body = await server.ask("/v1/audio/speech", asked | {"sample_rate": 48_000})
        status, _, _ = await server.ask("/v1/audio/speech", asked | {"sample_rate": 1})
    assert (headers["x-sample-rate"], headers["x-tts-ignored"]) == ("48000", "top_k")
    assert len(body) == 2 * round(SECONDS * 48_000)
    assert status == 400


async def test_speed_is_honoured() -> None:
    async with live() as server, client(server) as api:
        reply = await api.audio.speech.create(
            model="tts-1", voice="alloy", input=TEXT, response_format="pcm", speed=2.0
        )
    assert len(reply.content) == pytest.approx(SECONDS * 24_000, abs=10)


async def test_overload_is_429_before_any_audio_and_the_sdk_comes_again() -> None:
    async with live(tones(max_ahead=0.5), max_streams=1) as server:
        async with client(server, max_retries=0) as api:
            async with api.audio.speech.with_streaming_response.create(
                model="tts-1", voice="alloy", input=LONG, response_format="pcm"
            ) as first:
                await anext(first.iter_bytes())
                assert server.house.admission.active == 1
                with pytest.raises(openai.RateLimitError) as caught:
                    await api.audio.speech.create(model="tts-1", voice="alloy", input="Hi.")
            assert caught.value.code == "rate_limit_exceeded"
            assert int(caught.value.response.headers["retry-after"]) >= 1
        async with client(server, max_retries=2) as api:
            reply = await api.audio.speech.create(model="tts-1", voice="alloy", input="Hi.")
            assert reply.content
        await server.until(lambda: server.house.admission.active == 0)


async def test_a_model_that_names_an_engine_chooses_it_and_any_other_is_the_default() -> None:
    engines = {"high": tones(frequency=880), "low": tones(frequency=220)}
    async with live(engines) as server, client(server) as api:
        for model, frequency in (("low", 220), ("high", 880), ("gpt-4o-mini-tts", 880)):
            reply = await api.audio.speech.create(
                model=model, voice="alloy", input=TEXT, response_format="pcm"
            )
            assert abs(pitch(reply.content, 24_000) - frequency) < 2
        assert [each.id async for each in await api.models.list()] == ["high", "low"]
        assert (await api.models.retrieve("low")).owned_by == "tts_plugins"
        with pytest.raises(openai.NotFoundError):
            await api.models.retrieve("middle")
    for engine in engines.values():
        await engine.aclose()


async def test_a_key_is_asked_for_and_health_isnt_locked() -> None:
    async with live(keys=["a-long-secret"]) as server:
        async with client(server) as api:
            with pytest.raises(openai.AuthenticationError) as caught:
                await api.audio.speech.create(model="tts-1", voice="alloy", input="Hi.")
            assert caught.value.code == "invalid_api_key"
            assert "a-long-secret" not in str(caught.value)
        async with openai.AsyncOpenAI(api_key="a-long-secret", base_url=f"{server.url}/v1") as api:
            await api.audio.speech.create(model="tts-1", voice="alloy", input="Hi.")
        async with server.client.get(f"{server.url}/health") as reply:
            assert reply.status == 200
        async with server.client.get(f"{server.url}/metrics") as reply:
            assert reply.status == 401


class Failing:
    """Fails before or after its first chunk."""

    def __init__(self, after: int) -> None:
        self._after = after

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        for _ in range(self._after):
            yield AudioChunk(np.full(24_000, 0.1, np.float32), 24_000)
        raise EngineError("the model fell over")

    def voices(self) -> Sequence[Voice]:
        return []

    def close(self) -> None:
        pass


async def test_a_failure_before_audio_is_a_500_with_its_reason() -> None:
    async with live(Scheduler(Failing(0))) as server, client(server, max_retries=0) as api:
        with pytest.raises(openai.InternalServerError, match="the model fell over"):
            await api.audio.speech.create(model="tts-1", voice="alloy", input=TEXT)


@pytest.mark.parametrize("extra", [{}, {"stream_format": "sse"}])
async def test_a_failure_on_the_way_breaks_the_connection(extra: dict[str, Any]) -> None:
    got = bytearray()
    with pytest.raises(httpx2.RemoteProtocolError, match="incomplete chunked read"):  # noqa: PT012
        async with (
            live(Scheduler(Failing(2))) as server,
            client(server, max_retries=0) as api,
            api.audio.speech.with_streaming_response.create(
                model="tts-1", voice="alloy", input=TEXT, response_format="pcm", **extra
            ) as reply,
        ):
            async for chunk in reply.iter_bytes():
                got += chunk
    if extra:
        assert b'"type": "error"' in got or b'"type":"error"' in got
        assert b"the model fell over" in got
    else:
        assert len(got) == 2 * 2 * 24_000


class Watched(ToneEngine):
    """Knows how many of its streams are open."""

    open = 0

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        self.open += 1
        try:
            yield from super().synthesize(request)
        finally:
            self.open -= 1


@best_of_three
async def test_a_client_that_leaves_stops_the_engine_and_frees_its_place() -> None:
    engine = Watched()
    async with live(Scheduler(engine, max_ahead=0.5)) as server:
        for _ in range(50):
            asked = {"input": LONG, "voice": "alloy", "response_format": "pcm"}
            async with server.client.post(f"{server.url}/v1/audio/speech", json=asked) as reply:
                await reply.content.readany()
                assert engine.open == 1
                reply.close()
            with within(0.3):
                await server.until(lambda: not engine.open and not server.house.admission.active)


async def said(service: Any, text: str, rate: int = 24_000) -> bytes:
    """What Pipecat's own service says."""
    async with Call(service, rate=rate) as call:
        await call.worker.queue_frames([TTSSpeakFrame(text), EndFrame()])
        await call.until(lambda: any(isinstance(frame, EndFrame) for frame in call.down))
    await service._client.close()  # it never does itself
    assert not [frame for frame in call.up if isinstance(frame, ErrorFrame)]
    return b"".join(frame.audio for frame in call.down if isinstance(frame, TTSAudioRawFrame))


async def test_pipecats_own_service_speaks() -> None:
    async with live(tones(sample_rate=44_100)) as server:
        service = OpenAITTSService(api_key="any", base_url=f"{server.url}/v1")
        audio = await said(service, TEXT)
    assert len(audio) == pytest.approx(2 * SECONDS * 24_000, rel=0.01)
    assert abs(pitch(audio, 24_000) - 440) < 2


@best_of_three
async def test_pipecats_barge_in_frees_the_place_at_once() -> None:
    async with live(tones(max_ahead=0.8)) as server:
        service = OpenAITTSService(api_key="any", base_url=f"{server.url}/v1")
        async with Call(service, rate=24_000) as call:
            await call.worker.queue_frames([TTSSpeakFrame(LONG)])
            await call.until(lambda: any(isinstance(f, TTSAudioRawFrame) for f in call.down))
            assert server.house.admission.active == 1
            with within(0.1):
                await call.worker.queue_frames([InterruptionFrame()])
                await server.until(lambda: not server.house.admission.active)
        await service._client.close()


@pytest.mark.parametrize(
    "options", [{}, {"response_format": "pcm"}, {"response_format": "wav"}, {"model": "tts-1"}]
)
async def test_livekits_own_plugin_speaks_with_its_defaults(options: dict[str, Any]) -> None:
    async with live(tones(sample_rate=48_000)) as server:
        tts = livekit_openai.TTS(api_key="any", base_url=f"{server.url}/v1", **options)
        tts.prewarm()
        frame = await tts.synthesize(TEXT).collect()
        await tts.aclose()
    assert frame.sample_rate == 24_000
    assert frame.duration == pytest.approx(SECONDS, abs=0.06)
    assert abs(pitch(bytes(frame.data), 24_000) - 440) < 2


@best_of_three
async def test_livekit_is_told_which_errors_pass() -> None:
    once = APIConnectOptions(max_retry=0, timeout=5)
    async with live(tones(max_ahead=0.5), max_streams=1) as server:
        tts = livekit_openai.TTS(api_key="any", base_url=f"{server.url}/v1", voice="nobody")
        with pytest.raises(APIError) as refused:
            await tts.synthesize("Hi.", conn_options=once).collect()
        assert not refused.value.retryable
        tts.update_options(voice="alloy")
        stream = tts.synthesize(LONG)
        async with aclosing(_frames(stream)) as frames:
            await anext(frames)
            with pytest.raises(APIError) as full:
                await tts.synthesize("Hi.", conn_options=once).collect()
            assert full.value.retryable
        with within(0.1):
            await stream.aclose()
            await server.until(lambda: not server.house.admission.active)
        await tts.aclose()


async def _frames(stream: Any) -> AsyncGenerator[Any, None]:
    async for event in stream:
        yield event.frame


class Choir(Mimic):
    """Has voices that are called like OpenAI's, of which one would have to be downloaded."""

    def __init__(self) -> None:
        super().__init__()
        self.pitches |= {"nova": 550.0, "fable": 660.0}
        self.asked: list[str | None] = []

    async def voices(self) -> Sequence[Voice]:
        return [Voice("own", "und"), Voice("nova", "und"), Voice("fable", "und", ready=False)]

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        self.asked.append(request.voice)
        async with aclosing(super().stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk


async def test_each_of_openais_names_speaks_and_one_that_the_engine_has_as_itself() -> None:
    engine = Choir()
    assert len(VOICES) == 13
    async with live(engine) as server:
        for voice in VOICES:
            asked = {"input": TEXT, "voice": voice, "response_format": "pcm"}
            status, _, body = await server.ask("/v1/audio/speech", asked)
            assert status == 200
            assert pitch(body, 24_000) == pytest.approx(550 if voice == "nova" else 440, abs=2)
    assert engine.asked == ["nova" if voice == "nova" else None for voice in VOICES]
