"""Fish over HTTP: both shapes of it, voices that are learnt, and the clients that others wrote."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import tracemalloc
import wave
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgpack
import numpy as np
import pytest
from fish_audio_sdk import HttpCodeErr, Session, TTSRequest
from fishaudio import AsyncFishAudio
from fishaudio.exceptions import (
    APIError,
    AuthenticationError,
    NotFoundError,
    RateLimitError,
    ServerError,
    WebSocketError,
)
from fishaudio.types import FlushEvent, Prosody, ReferenceAudio, TTSConfig
from livekit.agents import APIConnectOptions, APIStatusError
from livekit.plugins import fishaudio as livekit_fish
from loguru import logger as pipecat_log
from pipecat.frames.frames import InterruptionFrame, LLMFullResponseEndFrame, TTSAudioRawFrame
from pipecat.services.fish.tts import FishAudioTTSService

from tests.adapters.pipecat_call import Call, turn
from tests.audio.bodies import read
from tests.fakes import ScriptedEngine, tone
from tests.hearing import pitch
from tests.server.live import Live, best_of_three, live, within
from tests.server.raw import exchange, request, wire
from tts_plugins.audio.sniff import AnyReader
from tts_plugins.errors import EngineError
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice

TEXT = "Hello there."
SECONDS = 0.66
"""Of that text, which has eleven characters to beep."""

KEY = "a-secret-key"

CLOUD = {"model": "s2-pro"}
"""A header that only clients of the service send."""


def samples(body: bytes, rate: int) -> tuple[Samples, int]:
    """What is heard in a body of any format, and its rate."""
    reader = AnyReader("", sample_rate=rate)
    heard = read(reader, [body])
    return heard, reader.sample_rate


def check(body: bytes, rate: int = 44_100, *, seconds: float = SECONDS, slack: float = 0.0) -> None:
    """A tone of the right pitch and length."""
    heard, given = samples(body, rate)
    assert given == rate
    assert len(heard) / rate == pytest.approx(seconds, abs=slack + 0.5 / rate)
    assert pitch(heard, rate) == pytest.approx(440, abs=2)


# Speech over HTTP


async def post(
    server: Live,
    body: dict[str, Any],
    headers: Mapping[str, str] | None = None,
    *,
    packed: bool = False,
) -> tuple[int, bytes]:
    data = msgpack.packb(body) if packed else None
    kind = {"content-type": "application/msgpack"} if packed else {}
    async with server.client.post(
        f"{server.url}/v1/tts",
        data=data,
        json=None if packed else body,
        headers={**kind, **(headers or {})},
    ) as reply:
        return reply.status, await reply.read()


async def test_json_and_msgpack_with_nils_and_fields_of_others_are_the_same() -> None:
    plain = {"text": TEXT, "format": "wav", "streaming": True}
    more = {
        **plain,
        "prosody": None,
        "sample_rate": None,
        "reference_id": None,
        "references": [],
        "features": ["quality-guard"],
        "chunk_length": 200,
        "latency": "low",
        "made_up": {"a": 1},
    }
    async with live() as server:
        bodies = [
            await post(server, body, packed=packed)
            for body in (plain, more)
            for packed in (False, True)
        ]
    assert [status for status, _ in bodies] == [200] * 4
    assert len({body for _, body in bodies}) == 1
    check(bodies[0][1], 24_000)


async def test_a_stream_is_raw_for_who_wants_it_as_from_fish_speech() -> None:
    stream = {"text": TEXT, "format": "wav", "streaming": True}
    async with live() as server:
        status, headers, body = await server.ask("/v1/tts?raw=true", stream)
    assert (status, headers["content-type"]) == (200, "audio/wav")
    assert len(body) == 2 * round(SECONDS * 44_100)
    assert pitch(body, 44_100) == pytest.approx(440, abs=2)


async def test_a_stream_of_wav_has_a_header_that_python_reads() -> None:
    async with live() as server:
        _, body = await post(server, {"text": TEXT, "format": "wav", "streaming": True})
    assert body[:4] == b"RIFF"
    with wave.open(io.BytesIO(body)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)


async def test_what_is_too_loud_is_clipped_and_never_wraps_around() -> None:
    t = np.arange(24_000) / 24_000
    loud = AudioChunk((1.5 * np.sin(2 * np.pi * 440 * t)).astype(np.float32), 24_000)
    async with live(ScriptedEngine(loud)) as server:
        _, body = await post(server, {"text": TEXT, "format": "wav", "streaming": True})
    heard = np.frombuffer(body[44:], "<i2").astype(int)
    assert heard.max() == 32_767
    assert np.abs(np.diff(heard)).max() < 6_000


async def test_without_a_format_the_service_gives_mp3_and_a_server_of_ones_own_wav() -> None:
    async with live() as server:
        _, own = await post(server, {"text": TEXT})
        _, cloud = await post(server, {"text": TEXT}, CLOUD)
    assert own[:4] == b"RIFF"
    assert cloud[0] == 0xFF


async def test_errors_have_the_shape_that_the_client_knows() -> None:
    async with live(keys=[KEY]) as server:
        key = {"authorization": f"Bearer {KEY}"}
        wrong: list[tuple[dict[str, str], dict[str, Any], int]] = [
            ({}, {"text": TEXT}, 401),
            (key, {"text": TEXT, "format": "flac"}, 400),
            (key, {"text": TEXT, "reference_id": "nobody"}, 400),
            (key, {"format": "wav"}, 400),
            (key, {"text": TEXT, "references": [{"audio": "UklGRg==", "text": ""}]}, 501),
        ]
        for headers, body, status in wrong:
            got, own = await post(server, body, headers)
            assert got == status
            said = json.loads(own)
            assert list(said) == ["statusCode", "message", "error"]
            assert said["statusCode"] == status
            got, cloud = await post(server, body, {**CLOUD, **headers})
            assert got == status
            said = json.loads(cloud)
            assert said.keys() == {"message", "status"}
            assert said["status"] == status


@pytest.mark.parametrize("voice", ["default", "", "933563129e564b19a115bedd57b7406a", "tone"])
async def test_the_usual_voice_has_many_names(voice: str) -> None:
    async with live() as server:
        status, body = await post(server, {"text": TEXT, "format": "pcm", "reference_id": voice})
    assert status == 200
    check(body)


async def test_the_health_is_told_to_get_and_post_without_a_key() -> None:
    async with live(keys=[KEY]) as server:
        for method in ("GET", "POST"):
            async with server.client.request(method, f"{server.url}/v1/health") as reply:
                assert reply.status == 200
                assert (await reply.json())["status"] == "ok"


# Voices that are learnt


class Parrot(ScriptedEngine):
    """Learns voices, and beeps higher with them."""

    def __init__(self) -> None:
        super().__init__(tone(0.5))
        self.learnt: dict[str, str] = {}
        self.lessons = 0

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        self.requests.append(request)
        yield tone(0.5 if request.voice not in self.learnt else 1.0)

    async def voices(self) -> list[Voice]:
        return [Voice("polly", "en"), *(Voice(name, "und") for name in self.learnt)]

    async def clone(self, name: str, reference: Path | bytes, *, transcript: str = "") -> Voice:
        self.lessons += 1
        self.learnt[name] = transcript
        return Voice(name, "und")

    async def forget(self, name: str) -> None:
        del self.learnt[name]

    async def rename(self, name: str, new: str) -> Voice:
        self.learnt[new] = self.learnt.pop(name)
        return Voice(new, "und")


def recording() -> bytes:
    """A second of a beep, as a WAV file."""
    with io.BytesIO() as buffer:
        with wave.open(buffer, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(24_000)
            file.writeframes((tone(1.0).samples * 32_767).astype("<i2").tobytes())
        return buffer.getvalue()


def form(**fields: str | bytes) -> aiohttp.FormData:
    data = aiohttp.FormData()
    for name, value in fields.items():
        data.add_field(name, value, filename="clip.wav" if isinstance(value, bytes) else None)
    return data


def msgpack_or_json(body: bytes) -> Any:
    return json.loads(body) if body[:1] in b"{[" else msgpack.unpackb(body)


@pytest.mark.parametrize("encoding", ["msgpack", "accept", "query"])
async def test_references_are_added_listed_renamed_and_deleted(encoding: str) -> None:
    headers = {"accept": "application/json"} if encoding == "accept" else {}
    query = "?format=json" if encoding == "query" else ""
    kind = "application/msgpack" if encoding == "msgpack" else "application/json"

    async def call(method: str, path: str, **sent: Any) -> tuple[int, Any]:
        if "body" in sent and encoding == "msgpack":
            sent |= {"data": msgpack.packb(sent.pop("body"))}
            sent["headers"] = {"content-type": "application/msgpack"}
        elif "body" in sent:
            sent["json"] = sent.pop("body")
        sent["headers"] = {**sent.get("headers", {}), **headers}
        address = f"{server.url}/v1/references/{path}{query}"
        async with server.client.request(method, address, **sent) as reply:
            assert reply.content_type == kind
            return reply.status, msgpack_or_json(await reply.read())

    engine = Parrot()
    async with live(engine) as server:
        filled: dict[str, str | bytes] = {"id": "mai", "text": "Xin chào.", "audio": recording()}
        assert await call("POST", "add", data=form(**filled)) == (
            200,
            {
                "success": True,
                "message": "Reference voice 'mai' added successfully",
                "reference_id": "mai",
            },
        )
        assert list(engine.learnt.values()) == ["Xin chào."]
        status, said = await call("POST", "add", data=form(**filled))
        assert (status, said["success"], said["reference_id"]) == (409, False, "mai")
        status, said = await call("POST", "add", data=form(**{**filled, "id": "../mai"}))
        assert (status, said["success"]) == (400, False)
        assert await call("GET", "list") == (
            200,
            {
                "success": True,
                "reference_ids": ["polly", "mai"],
                "message": "Found 2 reference voices",
            },
        )
        status, said = await call(
            "POST", "update", body={"old_reference_id": "mai", "new_reference_id": "lan"}
        )
        assert (status, said) == (
            200,
            {
                "success": True,
                "message": "Reference voice renamed from 'mai' to 'lan' successfully",
                "old_reference_id": "mai",
                "new_reference_id": "lan",
            },
        )
        status, body = await post(server, {"text": TEXT, "format": "pcm", "reference_id": "lan"})
        assert (status, len(body)) == (200, 2 * 44_100)
        assert (await call("DELETE", "delete", body={"reference_id": "lan"}))[0] == 200
        status, said = await call("DELETE", "delete", body={"reference_id": "lan"})
        assert (status, said["success"], said["reference_id"]) == (404, False, "lan")
        status, said = await call(
            "POST", "update", body={"old_reference_id": "mai", "new_reference_id": "lan"}
        )
        assert status == 404
        assert (await call("GET", "list"))[1]["reference_ids"] == ["polly"]


async def test_a_body_without_the_names_is_refused() -> None:
    async with live(Parrot()) as server:
        for body in (b"", b"[]", b'{"reference_id": 5}', b'"mai"', b"\xff"):
            async with server.client.delete(
                f"{server.url}/v1/references/delete",
                data=body,
                headers={"content-type": "application/json"},
            ) as reply:
                assert reply.status == 400
                assert (await reply.json())["statusCode"] == 400


async def test_a_recording_that_comes_along_is_learnt_once_and_for_this_caller_alone() -> None:
    engine = Parrot()
    along = [{"audio": recording(), "text": "Hello."}]
    async with live(engine, keys=[KEY, "another-key"]) as server:
        mine = {"authorization": f"Bearer {KEY}"}
        for packed in (True, False):
            sent = along if packed else [{**along[0], "audio": _base64(along[0]["audio"])}]
            body = {"text": TEXT, "format": "pcm", "references": sent}
            status, heard = await post(server, body, packed=packed, headers=mine)
            assert (status, len(heard)) == (200, 2 * 44_100)
        assert engine.lessons == 1
        theirs = {"authorization": "Bearer another-key"}
        async with server.client.get(
            f"{server.url}/v1/references/list?format=json", headers=theirs
        ) as reply:
            assert (await reply.json())["reference_ids"] == ["polly"]
        body = {"text": TEXT, "format": "pcm", "references": along * 2}
        assert (await post(server, body, packed=True, headers=mine))[0] == 400


async def test_few_requests_with_recordings_come_in_at_a_time() -> None:
    ask = request("POST", "/v1/tts", "content-type: application/msgpack")[:-2]
    by_length = ask + b"content-length: 1000001\r\n\r\n"
    by_chunk = ask + b"transfer-encoding: chunked\r\n\r\nf4241\r\n" + bytes(1_000_001)
    async with live(Parrot()) as server:
        async with AsyncExitStack() as stack:
            for large in (by_length, by_chunk, by_length, by_chunk):
                line = await stack.enter_async_context(wire(server.port))
                await line.send(large)
            await server.until(lambda: server.house.enrolling == 4)
            learn = request("POST", "/v1/references/add", "content-length: 1000")
            for more in (by_length, by_chunk, learn):
                reply = await exchange(server.port, more)
                assert reply
                assert (reply.status, reply.headers["retry-after"]) == (429, "1")
            for packed in (True, False):
                assert (await post(server, {"text": TEXT}, packed=packed))[0] == 200
            in_json = ask.replace(b"msgpack", b"json") + b"content-length: 1000001\r\n\r\n"
            reply = await exchange(server.port, in_json)
            assert reply
            assert reply.status == 413
        await server.until(lambda: server.house.enrolling == 0)


async def test_a_recording_is_not_kept_while_it_is_spoken() -> None:
    with io.BytesIO() as buffer:
        with wave.open(buffer, "wb") as file:
            file.setparams((1, 2, 24_000, 0, "NONE", ""))
            file.writeframes(bytes(np.tile((tone(1.0).samples * 9_000).astype("<i2"), 100)))
        along = [{"audio": buffer.getvalue(), "text": "Hello."}]
    asked = io.BytesIO(msgpack.packb({"text": TEXT, "format": "pcm", "references": along}))
    heard = asyncio.Event()

    class Slow(Parrot):
        async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
            await heard.wait()
            yield tone(0.5)

    async with live(Slow()) as server:
        tracemalloc.start()
        try:
            kind = {"content-type": "application/msgpack"}
            speaking = asyncio.create_task(
                server.client.post(f"{server.url}/v1/tts", data=asked, headers=kind)
            )
            await server.until(lambda: server.house.admission.active == 1)
            assert server.house.enrolling == 0
            # The frames that read it end with the next turns of the loop.
            await server.until(lambda: tracemalloc.get_traced_memory()[0] < 1_000_000)
        finally:
            tracemalloc.stop()
        heard.set()
        assert (await speaking).status == 200


def _base64(data: Any) -> str:
    return base64.b64encode(data).decode()


# Fish Audio's SDK


@asynccontextmanager
async def sdk(server: Live, key: str = KEY) -> AsyncGenerator[AsyncFishAudio, None]:
    client = AsyncFishAudio(api_key=key, base_url=server.url)
    try:
        yield client
    finally:
        await client.close()


async def test_the_sdk_converts_to_each_format() -> None:
    async with live() as server, sdk(server) as client:
        check(await client.tts.convert(text=TEXT, format="wav"), 24_000)
        check(await client.tts.convert(text=TEXT, format="pcm"))
        check(await client.tts.convert(text=TEXT), slack=0.06)  # mp3
        check(await client.tts.convert(text=TEXT, format="opus"), 48_000, slack=0.03)
        at_8_khz = TTSConfig(sample_rate=8_000, prosody=Prosody(speed=2.0, volume=3.0))
        check(
            await client.tts.convert(text=TEXT, format="wav", config=at_8_khz),
            8_000,
            seconds=SECONDS / 2,
        )


async def test_the_sdk_streams() -> None:
    async with live() as server, sdk(server) as client:
        stream = await client.tts.stream(text=TEXT, format="pcm")
        check(b"".join([chunk async for chunk in stream]))


async def test_the_sdk_streams_text_over_the_websocket() -> None:
    async def text() -> AsyncIterator[Any]:
        for piece in ("Hello ", "there. How ", FlushEvent(), "are ", "you?"):
            yield piece

    async with live() as server, sdk(server) as client:
        for kind, rate, slack in (
            ("pcm", 44_100, 0.0),
            ("wav", 24_000, 0.0),
            ("mp3", 44_100, 0.06),
        ):
            stream = client.tts.stream_websocket(text(), format=kind)
            body = b"".join([chunk async for chunk in stream])
            check(body, rate, seconds=0.06 * 21, slack=slack)


async def test_the_sdk_raises_what_it_should() -> None:
    async with live(keys=[KEY], max_streams=1) as server, sdk(server) as client:
        async with sdk(server, "wrong-key") as stranger:
            with pytest.raises(AuthenticationError, match="wrong API key"):
                await stranger.tts.convert(text=TEXT)
        with pytest.raises(APIError, match="no voice 'nobody'") as refused:
            await client.tts.convert(text=TEXT, reference_id="nobody")
        assert refused.value.status == 400
        with server.house.admission.place("-"), pytest.raises(RateLimitError):
            await client.tts.convert(text=TEXT)
        server.house.draining = True
        with pytest.raises(ServerError, match="shutting down"):
            await client.tts.convert(text=TEXT)


async def test_the_sdk_hears_of_an_error_on_the_websocket() -> None:
    async def text() -> AsyncIterator[str]:
        yield "Hello there. "

    async with live(ScriptedEngine(EngineError("hoarse"))) as server, sdk(server) as client:
        with pytest.raises(ExceptionGroup) as heard:
            await anext(client.tts.stream_websocket(text(), format="pcm"))
    assert isinstance(heard.value.exceptions[0], WebSocketError)


async def test_the_sdk_lists_makes_and_deletes_voices() -> None:
    async with live(Parrot()) as server, sdk(server) as client:
        made = await client.voices.create(title="Mai", voices=[recording()], texts=["Xin chào."])
        assert (made.id, made.title) == ("Mai", "Mai")
        listed = await client.voices.list(page_size=1, page_number=2)
        assert (listed.total, [voice.id for voice in listed.items]) == (2, ["Mai"])
        assert [voice.id for voice in (await client.voices.list(title="pol")).items] == ["polly"]
        assert (await client.voices.get("polly")).languages == ["en"]
        heard = await client.tts.convert(text=TEXT, format="pcm", reference_id="Mai")
        assert len(heard) == 2 * 44_100
        with pytest.raises(APIError, match="one recording"):
            await client.voices.create(title="Lan", voices=[recording()] * 2)
        await client.voices.delete("Mai")
        with pytest.raises(NotFoundError):
            await client.voices.get("Mai")
        with pytest.raises(NotFoundError):
            await client.voices.delete("Mai")


async def test_the_sdk_brings_recordings_along() -> None:
    engine = Parrot()
    references = [ReferenceAudio(audio=recording(), text="Hello.")]
    async with live(engine) as server, sdk(server) as client:
        for _ in range(2):
            heard = await client.tts.convert(text=TEXT, format="pcm", references=references)
            assert len(heard) == 2 * 44_100
    assert engine.lessons == 1


# Its older SDK


async def test_the_older_sdk_speaks_and_raises() -> None:
    def speak(session: Session, **request: Any) -> bytes:
        return b"".join(session.tts(TTSRequest(text=TEXT, **request)))

    async with live(keys=[KEY]) as server:
        with Session(KEY, base_url=server.url) as session:
            check(await asyncio.to_thread(speak, session, format="wav"), 24_000)
            check(await asyncio.to_thread(speak, session), slack=0.06)
            listed = await asyncio.to_thread(session.list_models)
            assert [model.id for model in listed.items] == ["tone"]
            with pytest.raises(HttpCodeErr) as missing:
                await asyncio.to_thread(session.get_model, "nobody")
            assert missing.value.status == 404
        with Session("wrong-key", base_url=server.url) as session:
            with pytest.raises(HttpCodeErr) as refused:
                await asyncio.to_thread(session.list_models)
            assert (refused.value.status, refused.value.message) == (401, "wrong API key")


# LiveKit's plugin


@asynccontextmanager
async def livekit(server: Live, **options: Any) -> AsyncGenerator[livekit_fish.TTS, None]:
    async with aclosing(
        livekit_fish.TTS(base_url=server.url, api_key=KEY, http_session=server.client, **options)
    ) as speaker:
        yield speaker


PADDING = {"wav": 1e-4, "pcm": 0.0101, "mp3": 0.07, "opus": 0.07}
"""Seconds that a codec adds at the end, or LiveKit does to bare samples."""


async def spoken(stream: Any) -> bytes:
    async with stream:
        return b"".join([event.frame.data.tobytes() async for event in stream])


def streamed(speaker: livekit_fish.TTS, *fragments: str, **options: Any) -> Any:
    stream = speaker.stream(**options)
    for fragment in fragments:
        stream.push_text(fragment)
    stream.end_input()
    return stream


@pytest.mark.parametrize("kind", ["wav", "pcm", "mp3", "opus"])
async def test_livekit_synthesizes(kind: Any) -> None:
    rate = {"mp3": 32_000, "opus": 48_000}.get(kind, 24_000)
    async with live() as server, livekit(server, output_format=kind) as speaker:
        heard = await spoken(speaker.synthesize(TEXT))
    assert len(heard) / 2 / rate == pytest.approx(SECONDS, abs=PADDING[kind])
    assert pitch(heard, rate) == pytest.approx(440, abs=2)


@pytest.mark.parametrize("kind", ["wav", "pcm", "opus"])
async def test_livekit_streams_twice_on_one_socket_without_a_complaint(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rate = 48_000 if kind == "opus" else 24_000
    sockets: list[Any] = []
    async with live() as server, livekit(server, output_format=kind) as speaker:
        for _ in range(2):
            heard = await spoken(streamed(speaker, "Hello the", "re. How a", "re you?"))
            assert len(heard) / 2 / rate == pytest.approx(0.06 * 21, abs=PADDING[kind])
            assert pitch(heard, rate) == pytest.approx(440, abs=2)
            sockets += speaker._pool._available
    assert len(set(sockets)) == 1
    assert [r for r in caplog.records if r.name == "livekit" and r.levelno >= logging.WARNING] == []


async def test_livekit_hears_of_errors() -> None:
    never = APIConnectOptions(max_retry=0)
    async with live(keys=["another-key"]) as server, livekit(server) as speaker:
        for stream in (
            speaker.synthesize(TEXT, conn_options=never),
            streamed(speaker, TEXT, conn_options=never),
        ):
            with pytest.raises(APIStatusError) as refused:
                await spoken(stream)
            assert refused.value.status_code == 401


# Pipecat's service


class HereFish(FishAudioTTSService):
    """Pipecat's service, which has no argument for the address."""

    def __init__(self, server: Live, **options: Any) -> None:
        # By itself it takes three seconds of silence to be sure that a turn is over.
        super().__init__(api_key=KEY, stop_frame_timeout_s=0.2, **options)
        self._base_url = f"ws://127.0.0.1:{server.port}/v1/tts/live"


@pytest.fixture
def quiet() -> None:
    """Nothing of Pipecat's log is printed."""
    pipecat_log.remove()


@pytest.mark.usefixtures("quiet")
async def test_pipecat_speaks_turn_after_turn() -> None:
    rate = 8_000
    async with live() as server, Call(HereFish(server), rate=rate) as call:
        for times in (1, 2):
            await call.send(*turn("Hello the", "re. How a", "re you?"))
            await call.until(lambda: len(call.audio) >= times * 2 * round(1.26 * rate))  # noqa: B023
            await call.after(LLMFullResponseEndFrame, times)
    assert call.errors == []
    assert len(call.audio) == 2 * 2 * round(1.26 * rate)
    assert {frame.sample_rate for frame in call.all(TTSAudioRawFrame)} == {rate}
    assert pitch(call.audio, rate) == pytest.approx(440, abs=2)


@pytest.mark.usefixtures("quiet")
@best_of_three
async def test_pipecat_is_interrupted_and_goes_on() -> None:
    async with live() as server, Call(HereFish(server)) as call:
        await call.send(*turn("word " * 500 + "end."))
        await call.after(TTSAudioRawFrame)
        with within(0.1):
            await call.send(InterruptionFrame())
            await server.until(lambda: server.house.admission.active == 0)
        await call.after(InterruptionFrame)
        before = len(call.audio)
        await call.send(*turn(TEXT))
        await call.until(lambda: len(call.audio) - before >= 2 * round(SECONDS * 8_000))
    assert call.errors == []


@pytest.mark.usefixtures("quiet")
async def test_pipecat_speaks_again_after_an_error() -> None:
    engine = ScriptedEngine(EngineError("hoarse"))
    async with live(engine) as server, Call(HereFish(server)) as call:
        await call.send(*turn(TEXT))
        await call.until(lambda: len(call.errors) == 1)
        engine.script = (tone(0.5),)
        await call.send(*turn(TEXT))
        await call.until(lambda: len(call.audio) >= 8_000)


# Barge-ins


@best_of_three
async def test_livekit_is_interrupted_and_the_place_is_free() -> None:
    async with live() as server, livekit(server) as speaker:
        stream = speaker.synthesize("word " * 500)
        await anext(stream)
        assert server.house.admission.active == 1
        with within(0.1):
            await stream.aclose()
            await server.until(lambda: server.house.admission.active == 0)
        assert len(await spoken(speaker.synthesize(TEXT))) > 0
