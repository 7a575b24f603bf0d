"""Clients that leave, or stop to listen, by the hundred: nothing of them stays behind."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager

import msgpack
import pytest

from tests.server.live import Live, live
from tests.server.raw import BINARY, TEXT, Wire, exchange, frame, handshake, request, wire
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.scheduler import Scheduler
from tts_plugins.server.house import Limits
from tts_plugins.types import AudioChunk, SynthesisRequest

AT_ONCE = 125
SMALL = 4096
"""Bytes that a client takes who reads nothing; the kernel may make it a bit more."""

STAYS = 2.0
"""Seconds for which it does."""

HIGH_WATER = 65_536
"""Bytes that asyncio keeps before it lets a sender wait."""

WORD = 0.24
WORDS = " ".join(["Word"] * 50)
"""12 s as a tone, in steps of a word."""
LONG = " ".join(["word"] * 800)
"""192 s."""

SPEECH = "/v1/audio/speech"
FISH = "/v1/tts/live"
ELEVENLABS = "/v1/text-to-speech/tone/stream-input?output_format=pcm_48000"
CONTEXTS = "/v1/text-to-speech/tone/multi-stream-input?output_format=pcm_48000"

Client = Callable[[int], Awaitable[None]]


class Spy(ToneEngine):
    """Knows what it does."""

    def __init__(self) -> None:
        super().__init__()
        self.open = self.begun = self.steps = 0
        self.seconds = 0.0

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        self.open += 1
        self.begun += 1
        try:
            for chunk in super().synthesize(request):
                self.steps += 1
                self.seconds += chunk.seconds
                yield chunk
        finally:
            self.open -= 1


def speech(text: str, rate: int = 48_000) -> bytes:
    asked = {"input": text, "voice": "tone", "response_format": "pcm", "sample_rate": rate}
    body = json.dumps(asked).encode()
    return request("POST", SPEECH, "content-type: application/json", body=body)


def said(path: str, text: str) -> list[bytes]:
    """What a client of a WebSocket sends to have a text spoken."""
    if path == FISH:
        start = {"text": text + " ", "format": "pcm", "sample_rate": 48_000}
        events = [{"event": "start", "request": start}, {"event": "flush"}]
        return [frame(BINARY, msgpack.packb(event)) for event in events]
    messages = [{"text": " "}, {"text": text + " ", "flush": True}]
    return [frame(TEXT, json.dumps(message).encode()) for message in messages]


@asynccontextmanager
async def listening(
    path: str, port: int, *, receives: int | None = None
) -> AsyncGenerator[Wire, None]:
    """On a WebSocket."""
    async with wire(port, receives=receives) as line:
        await line.send(handshake(path))
        assert (reply := await line.reply())
        assert reply.status == 101
        yield line


async def leaves_after_the_first_chunk(port: int) -> None:
    async with wire(port) as line:
        await line.send(speech(WORDS))
        assert await line.some()


async def leaves_in_the_middle_of_its_request(port: int) -> None:
    async with wire(port) as line:
        await line.send(speech(WORDS)[:-30])
        await asyncio.sleep(0.005)


async def leaves_in_the_middle_of_a_handshake(port: int) -> None:
    async with wire(port) as line:
        await line.send(handshake(FISH)[:80])
        await asyncio.sleep(0.005)


async def leaves_at_once(port: int) -> None:
    async with wire(port) as line:
        await line.send(speech(WORDS))


async def leaves_with_a_request_waiting(port: int) -> None:
    async with wire(port) as line:
        await line.send(speech(WORDS) + request("GET", "/health"))
        assert await line.some()


async def never_reads(port: int) -> None:
    async with wire(port, receives=SMALL) as line:
        line.rest()
        await line.send(speech(WORDS))
        await asyncio.sleep(STAYS)


def leaves_a_socket(path: str) -> Client:
    async def client(port: int) -> None:
        async with listening(path, port) as line:
            for message in said(path, WORDS):
                await line.send(message)
            assert await line.frame()

    return client


def leaves_a_handshake(path: str) -> Client:
    async def client(port: int) -> None:
        async with wire(port) as line:
            await line.send(handshake(path))

    return client


def never_reads_a_socket(path: str) -> Client:
    async def client(port: int) -> None:
        async with listening(path, port, receives=SMALL) as line:
            line.rest()
            for message in said(path, WORDS):
                await line.send(message)
            await asyncio.sleep(STAYS)

    return client


async def hears_all(port: int) -> None:
    reply = await exchange(port, speech("Hello there."), seconds=15)
    assert reply
    assert reply.whole
    assert (reply.status, len(reply.body)) == (200, 2 * 48 * 60 * 11)


async def storm(clients: Iterable[Client], port: int) -> None:
    """All of them, so many at once."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(client: Client) -> None:
        async with places:
            await client(port)

    async with asyncio.timeout(30):
        await asyncio.gather(*(one(client) for client in clients))


@asynccontextmanager
async def calm(*, max_ahead: float = 3.0) -> AsyncGenerator[tuple[Live, Spy], None]:
    """A server that soon gives up on who doesn't listen; at the end all is as it was."""
    engine = Spy()
    scheduler = Scheduler(engine, max_ahead=max_ahead)
    limits = Limits(body_seconds=1.0, send_seconds=0.5)
    async with live(scheduler, limits=limits, max_waiting=256) as server:
        tasks = len(asyncio.all_tasks())
        yield server, engine
        await settled(server, engine)
        assert len(asyncio.all_tasks()) == tasks
        steps = engine.steps
        began = time.monotonic()
        reply = await exchange(server.port, speech("Hi."), seconds=2)
        assert reply
        assert len(reply.body) == 2 * 48 * 60 * 3
        assert time.monotonic() - began < 1
        assert engine.steps == steps + 1
    await scheduler.aclose()


async def settled(server: Live, engine: Spy) -> None:
    admission, state = server.house.admission, server.server.server_state
    await server.until(lambda: not (admission.active or admission.waiting or engine.open))
    await server.until(lambda: not (state.connections or state.tasks))


def blocks() -> int:
    """Of memory that are in use."""
    gc.collect()
    return sys.getallocatedblocks()


LEAVE = [
    leaves_after_the_first_chunk,
    leaves_in_the_middle_of_its_request,
    leaves_in_the_middle_of_a_handshake,
    leaves_at_once,
    leaves_with_a_request_waiting,
    *(leaves_a_socket(path) for path in (FISH, ELEVENLABS, CONTEXTS)),
    *(leaves_a_handshake(path) for path in (FISH, ELEVENLABS, CONTEXTS)),
]


@pytest.mark.parametrize("client", LEAVE)
async def test_five_hundred_clients_leave(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)  # what is captured stays in memory
    async with calm() as (server, engine):
        in_use = []
        for times in (100, 200, 200):
            await storm([client] * times, server.port)
            await settled(server, engine)
            in_use.append(blocks())
        # A leak is there each time; what a busy machine makes grow once, is not.
        assert min(after - before for before, after in itertools.pairwise(in_use)) < 5 * 200


STAY = [never_reads, *(never_reads_a_socket(path) for path in (FISH, ELEVENLABS, CONTEXTS))]


@pytest.mark.parametrize("client", STAY)
async def test_clients_that_never_read_are_given_up(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "STAYS", 25.0)  # longer than a busy server takes
    async with calm(max_ahead=10.0) as (server, engine):
        staying = asyncio.create_task(storm([client] * AT_ONCE, server.port))
        await server.until(lambda: engine.begun == AT_ONCE)
        await server.until(lambda: not engine.open and not server.house.admission.active)
        assert not staying.done()
        staying.cancel()
        await asyncio.wait({staying})
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_who_listens_hears_all_in_any_storm() -> None:
    async with calm(max_ahead=10.0) as (server, _):
        bad = itertools.cycle([*LEAVE, *STAY])
        mix = itertools.chain.from_iterable((next(bad), next(bad), hears_all) for _ in range(170))
        await storm(mix, server.port)


@pytest.mark.parametrize(
    "path", [SPEECH, FISH, ELEVENLABS, CONTEXTS], ids=["http", "fish", "elevenlabs", "contexts"]
)
async def test_who_never_reads_has_no_more_made_than_the_buffers_hold(path: str) -> None:
    async with calm(max_ahead=1.0) as (server, engine):
        opening = (
            wire(server.port, receives=SMALL)
            if path == SPEECH
            else listening(path, server.port, receives=SMALL)
        )
        async with opening as line:
            line.rest()
            for message in [speech(LONG)] if path == SPEECH else said(path, LONG):
                await line.send(message)
            await server.until(lambda: engine.open)
            await server.until(lambda: not engine.open and not server.house.admission.active, 15)
            (listener,) = (each for each in server.server.servers[0].sockets)
            sends = listener.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            held = sends + line.receives + HIGH_WATER
        made = engine.seconds
        # What waits to be taken, a step, and what is on its way between the two.
        assert made <= held / (2 * 48_000) + 1.0 + 2 * WORD
