"""What the server costs beside uvicorn alone, and how many callers hibari carries behind it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import numpy as np

from benchmarks import capacity
from benchmarks.capacity import Tally, caller
from benchmarks.serving_host import TEXT, pieces
from benchmarks.speech_server import child
from benchmarks.tables import Row, at_most
from tts_plugins.engines.hibari import HibariEngine
from tts_plugins.registry import open_engine
from tts_plugins.scheduler import Scheduler

STREAMS = 50
ROUNDS = 4
"""Of all streams at once, one after the other."""
SECONDS = sum(map(len, pieces(None))) / 48_000
"""Audio of one stream."""

SHARE = 0.85
"""Of the callers that the scheduler carries, how many the server has to."""


@dataclass(frozen=True)
class Usage:
    cpu: float
    """Seconds so far."""
    engine: float
    """Those of them that the engine has used."""
    memory: float
    """MB resident."""


class Host:
    """A server that runs in another process."""

    def __init__(
        self, port: int, lines: asyncio.StreamReader, asking: asyncio.StreamWriter
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._lines = lines
        self._asking = asking

    async def usage(self) -> Usage:
        self._asking.write(b"\n")
        return Usage(*map(float, (await self._lines.readline()).split()))


@asynccontextmanager
async def host(kind: str) -> AsyncIterator[Host]:
    async with child("benchmarks.serving_host", kind) as (lines, asking):
        yield Host(int(await lines.readline()), lines, asking)


@dataclass
class Streamed:
    first: list[float]
    """Seconds from each request to its first bytes."""
    gaps: int
    """How often a listener ran out of audio."""
    cpu: float
    """Of the server, as a share of a core, without that of the engine."""
    engine: float
    memory: float

    def p(self, percent: float) -> float:
        return float(np.percentile(self.first, percent)) * 1000


async def listen(session: aiohttp.ClientSession, url: str, streamed: Streamed) -> None:
    """Read a stream as it comes; count when a listener would have run out."""
    asked = time.monotonic()
    body = {"model": "tts-1", "input": TEXT, "voice": "alloy", "response_format": "pcm"}
    async with session.post(f"{url}/v1/audio/speech", json=body) as reply:
        dry = None
        async for data in reply.content.iter_any():
            now = time.monotonic()
            if dry is None:
                streamed.first.append(now - asked)
                dry = now
            streamed.gaps += now > dry + 0.001
            dry = max(dry, now) + len(data) / 48_000


async def stream(kind: str) -> Streamed:
    async with (
        host(kind) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        streamed = Streamed([], 0, 0.0, 0.0, 0.0)
        await listen(session, server.url, Streamed([], 0, 0.0, 0.0, 0.0))
        before, began = await server.usage(), time.monotonic()
        for _ in range(ROUNDS):
            await asyncio.gather(*(listen(session, server.url, streamed) for _ in range(STREAMS)))
        after = await server.usage()
        seconds = time.monotonic() - began
        streamed.engine = (after.engine - before.engine) / seconds
        streamed.cpu = (after.cpu - before.cpu) / seconds - streamed.engine
        streamed.memory = after.memory
    return streamed


async def run() -> dict[str, list[Row]]:
    return {
        f"{STREAMS} streams of {SECONDS:.0f} s at once, in real time": await _streams(),
        f"hibari on one core, {capacity.SECONDS:.0f} s": await _callers(),
    }


async def _streams() -> list[Row]:
    kinds = {
        "frames": "uvicorn alone, 20 ms at a time",
        "words": "uvicorn alone, a word at a time",
        "ours": "the server, with the tone engine",
    }
    found = {kind: await stream(kind) for kind in kinds}
    rows = [
        Row(
            name,
            f"first bytes p50 {found[kind].p(50):.1f} p95 {found[kind].p(95):.1f} ms, CPU"
            f" {found[kind].cpu * 100:.1f} %{_beside(found[kind])}, gaps {found[kind].gaps},"
            f" {found[kind].memory:.0f} MB",
        )
        for kind, name in kinds.items()
    ]
    ratio = found["ours"].cpu / found["frames"].cpu
    return [*rows, at_most("CPU by that of uvicorn alone, 20 ms at a time", ratio, 1.3, "x", 2)]


def _beside(streamed: Streamed) -> str:
    return f" and the engine's {streamed.engine * 100:.1f} %" if streamed.engine else ""


async def _callers() -> list[Row]:
    rows = []
    cpus = os.sched_getaffinity(0)
    callers = capacity.CALLERS
    os.sched_setaffinity(0, {min(cpus)})
    voice = HibariEngine()
    try:
        tally, _ = await capacity.load(Scheduler, callers, voice)
        rows.append(_row(f"in this process, {callers} callers", tally))
    finally:
        voice.close()
        # The server has the first core for itself; those who listen take the other.
        os.sched_setaffinity(0, {max(cpus)})
    try:
        async with host("hibari") as server:
            engine = open_engine(server.url)
            for share in (SHARE, 1.0):
                tally, n = Tally(), round(callers * share)
                until = time.monotonic() + capacity.SECONDS
                await asyncio.gather(*(caller(engine, i, until, tally) for i in range(n)))
                row = _row(f"behind the server, {n} callers", tally)
                rows.append(row)
            await engine.aclose()
    finally:
        os.sched_setaffinity(0, cpus)
    return rows


def _row(what: str, tally: Tally) -> Row:
    return Row(
        f"{what}, {len(tally.first)} sentences",
        f"first audio p50 {tally.p(50):.0f} p99 {tally.p(99):.0f} ms, underruns {tally.underruns}",
        "0 underruns",
        tally.underruns == 0,
    )
