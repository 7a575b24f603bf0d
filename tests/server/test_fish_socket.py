"""Fish's WebSocket: utterances, pauses, barge-ins, nonsense; the clients that others wrote."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgpack
import pytest
import websockets

from tests.fakes import ScriptedEngine, tone
from tests.hearing import decoded, pitch
from tests.server.live import Live, best_of_three, live, within
from tts_plugins.errors import EngineError
from tts_plugins.server import fish_socket
from tts_plugins.server.house import Limits

PCM = {"text": "", "format": "pcm", "sample_rate": 24_000}


class Client:
    """Sends events; hears what comes back."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, event: str, **fields: Any) -> None:
        await self.socket.send_bytes(msgpack.packb({"event": event, **fields}))

    async def start(self, **fields: Any) -> None:
        await self.send("start", request=PCM | fields)

    async def say(self, *texts: str) -> None:
        for text in texts:
            await self.send("text", text=text)

    async def hear(self) -> Any:
        """The next event."""
        async with asyncio.timeout(5):
            return msgpack.unpackb(await self.socket.receive_bytes())

    async def audio(self, size: int) -> bytes:
        """So many bytes of audio."""
        heard = b""
        while len(heard) < size:
            event = await self.hear()
            assert event["event"] == "audio", event
            heard += event["audio"]
        return heard

    async def finish(self) -> tuple[list[bytes], str]:
        """The audio up to the next finish, and its reason."""
        heard = []
        while (event := await self.hear())["event"] == "audio":
            heard.append(event["audio"])
        assert event["event"] == "finish"
        return heard, event["reason"]

    async def closed(self) -> int | None:
        """How the server closes; nothing comes before that."""
        async with asyncio.timeout(5):
            message = await self.socket.receive()
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED), message.type
        return self.socket.close_code


@asynccontextmanager
async def client(server: Live, **headers: str) -> AsyncGenerator[Client, None]:
    headers = {"model": "s2.1-pro", **headers}
    async with server.client.ws_connect(f"{server.url}/v1/tts/live", headers=headers) as socket:
        yield Client(socket)


async def test_two_utterances_on_one_socket_with_a_finish_each() -> None:
    async with live() as server, client(server) as fish:
        for _ in range(2):
            await fish.start()
            await fish.say("Hello there.")
            await fish.send("flush")
            await fish.send("flush")
            await fish.send("stop")
            audio, reason = await fish.finish()
            assert reason == "stop"
            heard = b"".join(audio)
            assert len(heard) == 2 * round(0.06 * 11 * 24_000)
            assert pitch(heard, 24_000) == pytest.approx(440, abs=1)


async def test_a_stop_without_text_and_unknown_events_are_nothing_bad() -> None:
    async with live() as server, client(server) as fish:
        await fish.send("stop")
        await fish.send("hello", to="you")
        await fish.start()
        await fish.send("flush")
        await fish.send("stop")
        await fish.send("stop")
        assert await fish.finish() == ([], "stop")
        await fish.start()
        await fish.send("stop")
        assert await fish.finish() == ([], "stop")
        assert _total(server, "tts_requests_total") == 0


async def test_a_start_ends_what_was_begun_before() -> None:
    async with live() as server, client(server) as fish:
        await fish.start()
        await fish.say("One")
        await fish.start(text="Two words")
        await fish.send("stop")
        first, reason = await fish.finish()
        assert (len(b"".join(first)), reason) == (2 * 3 * 1_440, "stop")
        second, reason = await fish.finish()
        assert (len(b"".join(second)), reason) == (2 * 8 * 1_440, "stop")


async def test_sentences_are_spoken_as_they_become_whole_and_the_rest_when_no_more_comes() -> None:
    async with live() as server, client(server) as fish:
        await fish.start()
        await fish.say("Hello th", "ere. And ", "this")
        # A sentence at once; what is begun waits for more, but not longer than a listener does.
        assert len(await fish.audio(2 * 11 * 1_440)) == 2 * 11 * 1_440
        assert len(await fish.audio(2 * 7 * 1_440)) == 2 * 7 * 1_440


async def test_a_wav_has_one_header_at_the_very_beginning() -> None:
    async with live() as server, client(server) as fish:
        for _ in range(2):
            await fish.start(format="wav")
            await fish.say("Hello there. ", "How are you? ", "Fine.")
            await fish.send("stop")
            audio, _ = await fish.finish()
            assert len(audio) > 1
            assert audio[0][:4] == b"RIFF"
            assert b"RIFF" not in b"".join(audio)[4:]
            assert len(b"".join(audio)) == 44 + 2 * (11 + 10 + 5) * 1_440


@pytest.mark.parametrize(("kind", "magic"), [("mp3", b"\xff"), ("opus", b"OggS")])
async def test_compressed_audio_is_as_long_as_over_http(kind: str, magic: bytes) -> None:
    text = "Hello there. How are you?"
    async with live() as server, client(server) as fish:
        asked = {"text": text, "format": kind}
        _, _, body = await server.ask("/v1/tts", asked, model="s1")
        await fish.start(format=kind, sample_rate=None)
        await fish.say(text)
        await fish.send("stop")
        audio, reason = await fish.finish()
    assert reason == "stop"
    assert audio[0].startswith(magic)
    samples, rate = decoded(b"".join(audio))
    assert rate == {"mp3": 44_100, "opus": 48_000}[kind]
    assert len(samples) == len(decoded(body)[0])
    assert len(samples) / rate == pytest.approx(0.06 * 21, abs=0.06)
    assert pitch(samples, rate) == pytest.approx(440, abs=1)


async def test_text_with_nothing_to_say_is_a_breath_and_space_is_nothing() -> None:
    async with live() as server, client(server) as fish:
        await fish.start()
        await fish.say("... ")
        await fish.send("flush")
        assert await fish.audio(960) == bytes(960)
        await fish.say(" <|im_end|> ")
        await fish.send("stop")
        assert await fish.finish() == ([], "stop")


async def test_an_error_is_a_finish_and_a_line_and_the_next_text_is_spoken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = ScriptedEngine(tone(0.1), EngineError("out of breath"))
    async with live(engine) as server, client(server) as fish:
        await fish.start()
        await fish.say("Hello. ")
        await fish.send("flush")
        audio, reason = await fish.finish()
        assert (len(b"".join(audio)), reason) == (4_800, "error")
        assert "out of breath" in caplog.text
        engine.script = (tone(0.1),)
        await fish.say("Again. ")  # as Pipecat's service does, without another start
        await fish.send("stop")
        audio, reason = await fish.finish()
        assert (len(b"".join(audio)), reason) == (4_800, "stop")


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "flac"},
        {"reference_id": "nobody"},
        {"sample_rate": "high"},
        {"prosody": {"speed": 9}},
        {"references": [{"audio": b"RIFF", "text": "Hi."}]},
    ],
)
async def test_a_start_that_can_not_be_is_a_finish_with_an_error(wrong: dict[str, Any]) -> None:
    async with live() as server, client(server) as fish:
        await fish.start(**wrong)
        await fish.say("Hello there. ")
        await fish.send("flush")
        assert await fish.finish() == ([], "error")
        await fish.start()
        await fish.say("Hello there. ")
        await fish.send("stop")
        while (heard := await fish.finish()) == ([], "error"):
            pass
        assert len(b"".join(heard[0])) == 2 * 11 * 1_440


async def test_a_line_of_the_log_is_one_and_not_as_long_as_the_client_likes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with live() as server, client(server) as fish:
        for name in ("reference_id", "format"):
            await fish.start(**{name: "long " * 5_000})
            assert await fish.finish() == ([], "error")
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 2
    assert max(map(len, lines)) < 400


@pytest.mark.parametrize(
    "nonsense",
    ["hello", b"", b"\xc1", b"\x81" * 100_000, b"\xdd\xff\xff\xff\xff" + b"\x01" * 10_000],
)
async def test_nonsense_is_a_finish_with_an_error_and_then_the_end(nonsense: str | bytes) -> None:
    async with live() as server, client(server) as fish:
        await fish.start()
        if isinstance(nonsense, str):
            await fish.socket.send_str(nonsense)
        else:
            await fish.socket.send_bytes(nonsense)
        assert await fish.finish() == ([], "error")
        assert await fish.closed() == 1008


async def test_a_frame_that_is_too_large_ends_the_socket() -> None:
    async with live() as server, client(server) as fish:
        await fish.start()
        await fish.say("a" * 1_100_000)
        assert await fish.closed() == 1009


async def test_a_text_that_is_too_long_is_an_error() -> None:
    async with live(limits=Limits(characters=100)) as server, client(server) as fish:
        await fish.start()
        await fish.say("a" * 101)
        await fish.send("flush")
        assert await fish.finish() == ([], "error")


async def test_a_text_that_is_too_long_is_not_cut_into_sentences_first() -> None:
    async with live(limits=Limits(characters=100)) as server, client(server) as fish:
        for more in ({}, {"text": "Hello there. " + "a" * 90}):
            await fish.start(**more)
            await fish.say("Hello there. " + "a" * 90)
            assert await fish.finish() == ([], "error")


async def test_text_that_cannot_be_said_does_not_pile_up() -> None:
    async with live(limits=Limits(characters=1_000)) as server, client(server) as fish:
        await fish.start()
        await fish.say(*["." * 100] * 20)
        assert await fish.finish() == ([], "error")


async def test_text_for_hours_is_refused() -> None:
    engine = ScriptedEngine(*[tone(0.1)] * 100_000)
    async with live(engine, limits=Limits(body=10_000)) as server, client(server) as fish:
        await fish.start()
        for _ in range(200):
            await fish.say("Hello there. ")
        async with asyncio.timeout(5):
            while (await fish.socket.receive()).type is aiohttp.WSMsgType.BINARY:
                pass
        assert fish.socket.close_code == 1008


@best_of_three
async def test_a_client_who_leaves_stops_the_engine_at_once() -> None:
    async with live() as server, client(server) as fish:
        await fish.start()
        await fish.say("word " * 1_000)
        await fish.send("flush")
        await fish.audio(4_800)
        assert server.house.admission.active == 1
        with within(0.1):
            await fish.socket.close()
            await server.until(lambda: server.house.admission.active == 0)


@best_of_three
async def test_a_connection_that_is_cut_stops_the_engine_at_once() -> None:
    async with live() as server, client(server) as fish:
        await fish.start()
        await fish.say("word " * 1_000)
        await fish.send("flush")
        await fish.audio(4_800)
        with within(0.1):
            fish.socket._writer.transport.abort()
            await server.until(lambda: server.house.admission.active == 0)


async def test_who_says_nothing_yet_has_no_place() -> None:
    async with live(max_streams=1) as server, client(server) as quiet, client(server) as other:
        await quiet.start()
        await other.start()
        await other.say("Hello there. ")
        await other.send("stop")
        assert (await other.finish())[1] == "stop"
        assert server.house.admission.active == 0
        await quiet.say("Hello there. ")
        await quiet.send("stop")
        assert (await quiet.finish())[1] == "stop"


async def test_without_a_place_it_is_an_error_and_the_next_time_may_do() -> None:
    async with live(max_streams=1) as server, client(server) as fish:
        await fish.start()
        with server.house.admission.place("-"):
            await fish.say("Hello there. ")
            await fish.send("flush")
            assert await fish.finish() == ([], "error")
        await fish.say("Hello there. ")
        await fish.send("stop")
        assert (await fish.finish())[1] == "stop"


async def test_a_client_who_does_not_read_holds_the_engine_back_and_is_left_in_the_end() -> None:
    engine = ScriptedEngine(*[tone(1.0)] * 5_000)
    async with live(engine, limits=Limits(send_seconds=0.2)) as server:
        headers = {"model": "s1"}
        address = f"ws://127.0.0.1:{server.port}/v1/tts/live"
        async with websockets.connect(
            address, additional_headers=headers, max_queue=1, compression=None, close_timeout=0
        ) as socket:
            await socket.send(msgpack.packb({"event": "start", "request": PCM}))
            await socket.send(msgpack.packb({"event": "text", "text": "Hello there. "}))
            await socket.send(msgpack.packb({"event": "flush"}))
            await server.until(lambda: server.house.admission.active == 1)
            await server.until(lambda: server.house.admission.active == 0)
            assert _total(server, "tts_cancellations_total") == 1
            assert _total(server, "tts_audio_seconds_total") < 1_000
            socket.transport.abort()


async def test_a_socket_that_lies_idle_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fish_socket, "IDLE", 0.05)
    async with live() as server, client(server) as fish:
        await fish.start()
        await fish.say("Hello there. ")
        await fish.send("stop")
        assert (await fish.finish())[1] == "stop"
        assert await fish.closed() == 1000


async def test_the_handshake_is_refused_over_http() -> None:
    async with live(keys=["secret-key"]) as server:
        for key, status in (("", 401), ("Bearer wrong-key", 401), ("Bearer secret-key", 503)):
            server.house.draining = status == 503
            with pytest.raises(websockets.InvalidStatus) as refused:
                await websockets.connect(
                    f"ws://127.0.0.1:{server.port}/v1/tts/live",
                    additional_headers={"authorization": key} if key else {},
                )
            reply = refused.value.response
            assert reply.status_code == status
            said = json.loads(reply.body or b"")
            assert said.keys() == {"message", "status"}
            assert said["status"] == status
            assert reply.headers["x-request-id"]
        server.house.draining = False
        async with client(server, authorization="Bearer secret-key") as fish:
            await fish.start()
            await fish.send("stop")
            assert await fish.finish() == ([], "stop")


async def test_nothing_new_is_begun_while_the_server_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with live() as server, client(server) as fish:
        await fish.start()
        await fish.send("stop")
        await fish.finish()
        server.house.draining = True
        await fish.start()
        assert await fish.finish() == ([], "error")
        assert "shutting down" in caplog.text


async def test_each_piece_has_a_line_and_pauses_of_the_client_are_no_stalls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    caplog.set_level(logging.INFO, "tts_plugins.requests")
    async with live(clock=lambda: now[0]) as server, client(server, model="tone") as fish:
        await fish.start()
        for text in ("Hello there. ", "How are you? "):
            await fish.say(text)
            await fish.send("flush")
            await fish.audio(2 * 1_440 * len(text.replace(" ", "")))
            await server.until(lambda: server.house.admission.active == 0)
            now[0] += 60.0
        lines = [r.getMessage() for r in caplog.records if r.name == "tts_plugins.requests"]
        assert len(lines) == 2
        assert all("dialect=fish engine=tone" in line for line in lines)
        assert all("status=101 outcome=finished" in line for line in lines)
        assert all("stalled=0.000" in line for line in lines)
        assert "audio=0.660" in lines[0]


def _total(server: Live, name: str) -> float:
    samples = [
        sample
        for metric in server.house.ledger._registry.collect()
        for sample in metric.samples
        if sample.name == name
    ]
    return sum(sample.value for sample in samples)
