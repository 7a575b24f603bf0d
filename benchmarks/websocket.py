"""Whether a WebSocket that stays open would be sooner than a POST for each sentence.

Both speak the same turns to the same server, over a relay that holds back every byte as a network
would. A connection's first bytes are held back for two round trips more, which TCP and TLS 1.3
take to shake hands; the WebSocket's are over before it is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from typing import Protocol

import aiohttp
import numpy as np

from benchmarks.calls import at_once
from benchmarks.relay import relaying
from benchmarks.speech_server import RATE, SpeechServer, serving
from benchmarks.streamed_reply import WORD_EVERY, words
from benchmarks.tables import Row
from tts_plugins.dialects.framing import decode
from tts_plugins.phraser import Phraser
from tts_plugins.playhead import Playhead
from tts_plugins.registry import open_engine
from tts_plugins.remote import RemoteEngine
from tts_plugins.turn import Turn, _pieces

ROUNDS = 15
ROUND_TRIPS = (0.04, 0.08)
"""Seconds: a server on the same continent, and one across an ocean."""

LATENCY = 0.075
"""Seconds from a sentence to its first audio, without the way there and back."""

FACTOR = 0.3
"""Seconds that a second of audio takes after that."""

TEXT = "Sure. Your order has shipped today. It should arrive on Friday."
"""The first sentence leaves a listener little time until the next has to be there."""

ANSWERING = 0.5
"""Seconds from a barge-in to the next reply: the caller talks, and the model thinks."""

WORTH = 20
"""Milliseconds below which nobody hears a difference."""


@dataclass(frozen=True)
class Heard:
    """A turn, for someone who plays it as it comes. Seconds."""

    first: float
    """From the first text to the first audio."""
    silence: float
    """Waited for more audio in the middle."""
    total: float
    """From the first text to the last audio."""


class OverHttp:
    """A POST for each sentence, as every adapter does it."""

    def __init__(self, engine: RemoteEngine) -> None:
        self._engine = engine

    async def turn(self, text: AsyncIterator[str]) -> Heard:
        turn = Turn(self._engine, sample_rate=RATE)
        asked = time.monotonic()
        async with aclosing(turn.say_all(text)) as chunks:
            arrivals = [time.monotonic() async for chunk in chunks if len(chunk.samples)]
        return Heard(arrivals[0] - asked, turn.stalled, arrivals[-1] - asked)

    async def barge_in(self) -> None:
        """Break a turn off at its first audio."""
        turn = Turn(self._engine, sample_rate=RATE)
        async with aclosing(turn.say_all(at_once(TEXT))) as chunks:
            await anext(chunks)


class WithSpare(OverHttp):
    """The same, with a connection in reserve after a barge-in.

    RemoteEngine opens it by itself where a new one is dear, over https. Here it is told to.
    """

    async def barge_in(self) -> None:
        await super().barge_in()
        opening = asyncio.create_task(self._engine.prewarm())
        await asyncio.sleep(ANSWERING)
        opening.cancel()


class OverWebSocket:
    """A context for each turn on one socket: the least that a client of multi-stream-input does.

    A sentence is sent when it is there, without waiting for the audio of the one before.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._names = map(str, count())

    async def turn(self, text: AsyncIterator[str]) -> Heard:
        asked = time.monotonic()
        playhead = Playhead(asked)
        arrivals: list[float] = []
        silence = 0.0
        async with aclosing(self._speak(text, playhead)) as chunks:
            async for seconds in chunks:
                now = time.monotonic()
                waited = playhead.add(seconds, now)
                silence += waited if arrivals else 0.0
                arrivals.append(now)
        return Heard(arrivals[0] - asked, silence, arrivals[-1] - asked)

    async def barge_in(self) -> None:
        """Break a turn off at its first audio."""
        async with aclosing(self._speak(at_once(TEXT), Playhead(time.monotonic()))) as chunks:
            await anext(chunks)

    async def _speak(
        self, text: AsyncIterator[str], playhead: Playhead
    ) -> AsyncGenerator[float, None]:
        """The audio of a turn as it comes, in seconds of it."""
        name = next(self._names)
        sending = asyncio.create_task(self._send(name, text, playhead))
        over = False
        try:
            while not over:
                message = await self._socket.receive_json()
                if message["contextId"] == name:  # or else it is left of a turn that was broken off
                    over = message.get("isFinal", False)
                    if not over:
                        yield len(decode(message["audio"])) / 2 / RATE
        finally:
            sending.cancel()
            if not over:
                await self._close(name)

    async def _send(self, name: str, text: AsyncIterator[str], playhead: Playhead) -> None:
        await self._socket.send_json({"text": " ", "context_id": name})
        phraser = Phraser(ahead=lambda: playhead.ahead(time.monotonic()))
        async with aclosing(_pieces(text, phraser)) as pieces:
            async for piece in pieces:
                await self._socket.send_json({"text": piece, "context_id": name, "flush": True})
        await self._close(name)

    async def _close(self, name: str) -> None:
        """End a turn; the second time, stop what it still says."""
        await self._socket.send_json({"context_id": name, "close_context": True})


class Speaker(Protocol):
    async def turn(self, text: AsyncIterator[str]) -> Heard: ...

    async def barge_in(self) -> None: ...


@asynccontextmanager
async def over_http(
    url: str, kind: Callable[[RemoteEngine], OverHttp] = OverHttp
) -> AsyncIterator[Speaker]:
    engine = open_engine(f"openai+{url}")
    assert isinstance(engine, RemoteEngine)
    yield kind(engine)
    await engine.aclose()


@asynccontextmanager
async def over_websocket(url: str) -> AsyncIterator[Speaker]:
    address = f"{url}/v1/text-to-speech/voice/multi-stream-input"
    async with aiohttp.ClientSession() as session, session.ws_connect(address) as socket:
        yield OverWebSocket(socket)


@dataclass(frozen=True)
class Case:
    """One way to speak, in one situation."""

    name: str
    speak: Callable[[str], AbstractAsyncContextManager[Speaker]]
    """Given an address."""
    cut: bool = False
    """Whether a turn is broken off in front of each that is measured."""


POST = Case("HTTP", over_http)
SOCKET = Case("WebSocket", over_websocket)
POST_COLD = Case("HTTP, right after a barge-in", over_http, cut=True)
POST_SPARE = Case(
    "HTTP with a spare, after a barge-in", partial(over_http, kind=WithSpare), cut=True
)
SOCKET_CUT = Case("WebSocket, right after a barge-in", over_websocket, cut=True)
CASES = [POST, SOCKET, POST_COLD, POST_SPARE, SOCKET_CUT]

TEXTS: Mapping[str, Callable[[], AsyncIterator[str]]] = {
    "text at once": lambda: at_once(TEXT),
    f"a word each {WORD_EVERY * 1000:.0f} ms": lambda: words(TEXT),
}


async def turns(case: Case, url: str, text: Callable[[], AsyncIterator[str]]) -> list[Heard]:
    heard = []
    async with case.speak(url) as speaker:
        for _ in range(1 + ROUNDS):
            async with asyncio.timeout(15):
                if case.cut:
                    await speaker.barge_in()
                heard.append(await speaker.turn(text()))
    return heard[1:]


async def measure(server: SpeechServer, round_trip: float) -> dict[str, dict[Case, list[Heard]]]:
    """All cases at once, since they spend their time waiting."""
    async with relaying(server.port, round_trip) as url:
        cells = list(product(TEXTS, CASES))
        heard = await asyncio.gather(*(turns(case, url, TEXTS[text]) for text, case in cells))
    table: dict[str, dict[Case, list[Heard]]] = {text: {} for text in TEXTS}
    for (text, case), each in zip(cells, heard, strict=True):
        table[text][case] = each
    return table


def median(heard: list[Heard], part: str) -> float:
    return float(np.median([getattr(turn, part) for turn in heard]))


def row(case: Case, heard: list[Heard]) -> Row:
    late = np.percentile([turn.first for turn in heard], 95)
    return Row(
        case.name,
        f"{median(heard, 'first') * 1000:.0f} ms, p95 {late * 1000:.0f} ms;"
        f" {median(heard, 'silence') * 1000:.0f} ms of silence inside;"
        f" all there after {median(heard, 'total'):.2f} s",
    )


def gain(tables: list[dict[Case, list[Heard]]], post: Case, socket: Case, part: str) -> float:
    """Milliseconds that the socket saves where it saves most."""
    return max(median(table[post], part) - median(table[socket], part) for table in tables) * 1000


def conclusion(tables: list[dict[Case, list[Heard]]]) -> str:
    usual = {
        "on a warm connection": gain(tables, POST, SOCKET, "first"),
        "after a barge-in": gain(tables, POST_SPARE, SOCKET_CUT, "first"),
        "of silence inside": gain(tables, POST, SOCKET, "silence"),
    }
    # Without a spare connection a WebSocket would win, but RemoteEngine has one.
    unprepared = gain(tables, POST_COLD, SOCKET_CUT, "first")
    told = ", ".join(f"{max(0.0, ms):.0f} ms {where}" for where, ms in usual.items())
    verdict = "worth building" if max(usual.values()) >= WORTH else "not worth building"
    return f"{verdict}: it saves at most {told}; {unprepared:.0f} ms if there were no spare"


async def run() -> dict[str, list[Row]]:
    async with serving(latency=LATENCY, factor=FACTOR) as server:
        measured = await asyncio.gather(*(measure(server, each) for each in ROUND_TRIPS))
    tables = {
        f"First audio of three sentences, round trip {round_trip * 1000:.0f} ms, {text}": cells
        for round_trip, table in zip(ROUND_TRIPS, measured, strict=True)
        for text, cells in table.items()
    }
    shown = {
        title: [row(case, heard) for case, heard in cells.items()]
        for title, cells in tables.items()
    }
    return shown | {"Is a WebSocket worth it?": [Row("conclusion", conclusion([*tables.values()]))]}
