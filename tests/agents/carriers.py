"""Phone carriers without a phone: they ring a bot over its WebSocket, and play what it sends.

A carrier sends the caller's voice in packets of 20 ms by the clock, silence too. What it is sent
it queues and plays, likewise by the clock, and tells when a mark was reached. What each says, and
what it answers to a clear, is as Twilio's "Media Streams - WebSocket Messages" and Plivo's "Audio
Streaming Protocol Reference" have it.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import uvicorn
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tts_plugins.audio.g711 import to_ulaw
from tts_plugins.types import Samples

RATE = 8000
"""Codes a second, of one byte each."""

PACKET = 160
"""Codes of one packet of the caller's: 20 ms."""

SILENCE = b"\xff"

PAUSE = 0.5
"""Seconds of an empty line after which what comes next is another utterance."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # those are the test's


@asynccontextmanager
async def answering(app: Any) -> AsyncIterator[str]:
    """Have an app answer on loopback, in this event loop; its address without a scheme."""
    server = _Server(
        uvicorn.Config(app, port=0, ws="websockets-sansio", log_level="error", lifespan="on")
    )
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(30):
        while not server.started:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.01)
    try:
        yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


async def reachable(url: str) -> str:
    """Wait until somebody answers at a WebSocket's address; the address."""
    async with asyncio.timeout(30):
        while True:
            try:
                async with connect(url):
                    return url
            except OSError:
                await asyncio.sleep(0.05)


@dataclass
class Utterance:
    """What was played without a pause."""

    packets: list[bytes] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    """When each packet came."""
    silences: list[float] = field(default_factory=list)
    """Seconds for which the line had run dry in the middle of it, each time."""
    heard: bytes = b""
    """What the caller had heard of it when it was cleared; else all of it, in the end."""
    cleared: bool = False

    @property
    def codes(self) -> bytes:
        return b"".join(self.packets)

    @property
    def gaps(self) -> list[float]:
        """Seconds from each packet to the next."""
        return [b - a for a, b in itertools.pairwise(self.arrivals)]


class Line:
    """The way to the caller's ear: plays codes as they come, one after the other.

    Args:
        clock: Monotonic time in seconds. Tests pass their own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.utterances: list[Utterance] = []
        self._clock = clock
        self._dry_at = clock()
        self._over = True  # what comes next is another utterance
        self._marks: list[tuple[float, str]] = []  # when what was queued before it has been played

    def play(self, codes: bytes) -> None:
        """Queue a packet."""
        now = self._clock()
        silence = max(0.0, now - self._dry_at)
        if self._over or silence > PAUSE:
            self.utterances.append(Utterance())
            self._over = False
        elif silence:
            self.utterances[-1].silences.append(silence)
        utterance = self.utterances[-1]
        utterance.packets.append(codes)
        utterance.arrivals.append(now)
        utterance.heard += codes
        self._dry_at = max(now, self._dry_at) + len(codes) / RATE

    def mark(self, name: str) -> None:
        """Ask to be told when what was queued so far has been played."""
        self._marks.append((self._dry_at, name))

    def clear(self) -> list[str]:
        """Drop what hasn't been played; return the marks that will never be reached."""
        if left := round(self.ahead() * RATE):
            utterance = self.utterances[-1]
            utterance.heard, utterance.cleared = utterance.heard[:-left], True
        self._over = True
        now = self._clock()
        self._dry_at = min(self._dry_at, now)
        # A mark that was heard by now is reached, told or not.
        missed = [name for at, name in self._marks if at > now]
        self._marks = [(at, name) for at, name in self._marks if at <= now]
        return missed

    def reached(self) -> list[str]:
        """The marks that were reached since this was last asked."""
        now = self._clock()
        reached = [name for at, name in self._marks if at <= now]
        self._marks = [(at, name) for at, name in self._marks if at > now]
        return reached

    def until_mark(self) -> float | None:
        """Seconds until the next mark is reached, if there is one."""
        return max(0.0, self._marks[0][0] - self._clock()) if self._marks else None

    def ahead(self) -> float:
        """Seconds of audio that are still to be played."""
        return max(0.0, self._dry_at - self._clock())


class Carrier:
    """A call to a bot, from when it is put through until somebody hangs up.

    Args:
        url: Where the bot's WebSocket is.
        clock: Monotonic time in seconds, by which all is recorded.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.line = Line(clock)
        self.log: list[tuple[float, str]] = []
        """What the bot sent, by name, with when it came."""
        self.marks: list[str] = []
        """Those that the bot was told of, as they were reached or cleared."""
        self.spoke = 0.0
        """When the first packet of what the caller said last left."""
        self.ended: float | None = None
        """When the bot hung up."""
        self._url = url
        self._clock = clock
        self._mouth = b""
        self._said = asyncio.Event()
        self._came = asyncio.Event()
        self._marked = asyncio.Event()
        self._counted = itertools.count(1)

    async def __aenter__(self) -> Self:
        self._socket: ClientConnection = await connect(self._url, max_size=None)
        for message in self._hello():
            await self._send(message)
        works = (self._talk(), self._listen(), self._answer())
        self._tasks = [asyncio.create_task(work) for work in works]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._socket.close()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            # A bot that breaks the protocol fails the test.
            if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionClosed):
                raise outcome

    async def say(self, samples: Samples) -> None:
        """Speak into the phone, at 8 kHz, until all is said."""
        self.spoke = 0.0
        self._mouth += to_ulaw(samples)
        self._said.clear()
        await asyncio.wait_for(self._said.wait(), 10 + len(samples) / RATE)

    async def press(self, key: str) -> None:
        """Press a key of the phone."""
        await self._send(self._key(key))

    async def hang_up(self) -> None:
        """End the call, as far as the bot is told."""
        for message in self._goodbye():
            await self._send(message)

    async def drop(self) -> None:
        """Lose the connection."""
        await self._socket.close()

    async def until(self, condition: Callable[[], object], timeout: float = 15.0) -> None:
        """Wait for ``condition``, which is looked at with each message of the bot's."""
        async with asyncio.timeout(timeout):
            while not condition():
                self._came.clear()
                await self._came.wait()

    def times(self, name: str) -> list[float]:
        """When each message of one name came."""
        return [at for at, each in self.log if each == name]

    async def _talk(self) -> None:
        began = self._clock()
        try:
            for n in itertools.count():
                packet, self._mouth = self._mouth[:PACKET], self._mouth[PACKET:]
                if packet:
                    self.spoke = self.spoke or self._clock()
                else:
                    self._said.set()
                await self._send(self._voice(n, packet.ljust(PACKET, SILENCE)))
                await asyncio.sleep(began + (n + 1) * PACKET / RATE - self._clock())
        finally:
            self._said.set()  # whoever is hung up on says no more

    async def _listen(self) -> None:
        try:
            async for text in self._socket:
                message = json.loads(text)
                self.log.append((self._clock(), message["event"]))
                await self._take(message)
                self._marked.set()
                self._came.set()
        finally:
            self.ended = self._clock()
            self._came.set()

    async def _answer(self) -> None:
        while True:
            self._marked.clear()
            for name in self.line.reached():
                await self._tell(name)
            try:
                async with asyncio.timeout(self.line.until_mark()):
                    await self._marked.wait()
            except TimeoutError:
                continue

    async def _tell(self, name: str) -> None:
        await self._send(self._reached(name))
        self.marks.append(name)
        self._came.set()

    async def _send(self, message: dict[str, Any]) -> None:
        await self._socket.send(json.dumps(message))

    def _hello(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def _goodbye(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def _voice(self, n: int, codes: bytes) -> dict[str, Any]:
        raise NotImplementedError

    def _key(self, key: str) -> dict[str, Any]:
        raise NotImplementedError

    def _reached(self, name: str) -> dict[str, Any]:
        raise NotImplementedError

    async def _take(self, message: dict[str, Any]) -> None:
        raise NotImplementedError


class Twilio(Carrier):
    """Answers all marks that a clear cuts off, at once."""

    STREAM, CALL, ACCOUNT = "MZ" + 32 * "0", "CA" + 32 * "0", "AC" + 32 * "0"

    def _hello(self) -> list[dict[str, Any]]:
        start = {
            "accountSid": self.ACCOUNT,
            "streamSid": self.STREAM,
            "callSid": self.CALL,
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": RATE, "channels": 1},
            "customParameters": {},
        }
        connected = {"event": "connected", "protocol": "Call", "version": "1.0.0"}
        return [connected, self._event("start", start)]

    def _goodbye(self) -> list[dict[str, Any]]:
        return [self._event("stop", {"accountSid": self.ACCOUNT, "callSid": self.CALL})]

    def _voice(self, n: int, codes: bytes) -> dict[str, Any]:
        media = {
            "track": "inbound",
            "chunk": str(n + 1),
            "timestamp": str(20 * n),
            "payload": base64.b64encode(codes).decode(),
        }
        return self._event("media", media)

    def _key(self, key: str) -> dict[str, Any]:
        return self._event("dtmf", {"track": "inbound_track", "digit": key})

    def _reached(self, name: str) -> dict[str, Any]:
        return self._event("mark", {"name": name})

    def _event(self, event: str, its: dict[str, Any]) -> dict[str, Any]:
        numbered = {"event": event, "sequenceNumber": str(next(self._counted))}
        return numbered | {event: its, "streamSid": self.STREAM}

    async def _take(self, message: dict[str, Any]) -> None:
        assert message["streamSid"] == self.STREAM
        match message["event"]:
            case "media":
                self.line.play(base64.b64decode(message["media"]["payload"], validate=True))
            case "mark":
                self.line.mark(message["mark"]["name"])
            case "clear":
                for name in self.line.clear():
                    await self._tell(name)
            case unknown:
                raise AssertionError(f"Twilio knows no {unknown}")


class Plivo(Carrier):
    """Says that it has cleared, and nothing of the checkpoints that will never be reached."""

    STREAM, CALL = "87654321-4321-4321-4321-cba987654321", "12345678-1234-1234-1234-123456789abc"

    def _hello(self) -> list[dict[str, Any]]:
        start = {
            "callId": self.CALL,
            "streamId": self.STREAM,
            "accountId": "MA" + 18 * "0",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": RATE},
        }
        return [{"event": "start", "sequenceNumber": next(self._counted), "start": start}]

    def _goodbye(self) -> list[dict[str, Any]]:
        return []  # its streams end by the socket

    def _voice(self, n: int, codes: bytes) -> dict[str, Any]:
        media = {
            "track": "inbound",
            "timestamp": str(1_700_000_000_000 + 20 * n),
            "chunk": n + 1,
            "payload": base64.b64encode(codes).decode(),
        }
        return self._event("media", media=media)

    def _key(self, key: str) -> dict[str, Any]:
        return self._event("dtmf", dtmf={"track": "inbound", "digit": key})

    def _reached(self, name: str) -> dict[str, Any]:
        return self._event("playedStream", name=name)

    def _event(self, event: str, **its: Any) -> dict[str, Any]:
        numbered = {"event": event, "sequenceNumber": next(self._counted)}
        return numbered | its | {"streamId": self.STREAM}

    async def _take(self, message: dict[str, Any]) -> None:
        assert message["streamId"] == self.STREAM
        match message["event"]:
            case "playAudio":
                media = message["media"]
                assert (media["contentType"], media["sampleRate"]) == ("audio/x-mulaw", RATE)
                self.line.play(base64.b64decode(media["payload"], validate=True))
            case "checkpoint":
                self.line.mark(message["name"])
            case "clearAudio":
                self.line.clear()
                await self._send(self._event("clearedAudio"))
            case unknown:
                raise AssertionError(f"Plivo knows no {unknown}")
