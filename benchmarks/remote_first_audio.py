"""What each client of a speech server adds between the first byte of audio and the first frame.

The server writes down when the first audio went out, the client when its framework delivers the
first frame. All speak to one process, in turn.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import numpy as np

from benchmarks.calls import at_once
from benchmarks.clients import FORMATS, Client, RemoteCall, bare, clients, missing
from benchmarks.speech_server import SpeechServer, serving
from benchmarks.tables import Row

ROUNDS = 30
WARM_UP = 2

LATENCY = 0.02
"""Seconds until the first audio: a client has done all that belongs to asking by then."""

SHORT = "Sure."
COLLECTED = "One moment."
"""For clients that wait for more than the first bytes: 0.7 s of audio, of which they want 0.5."""


async def added(server: SpeechServer, call: RemoteCall, text: str) -> float:
    """Milliseconds from the first byte of audio to the first frame."""
    call.frames.clear()
    async with asyncio.timeout(10):
        await call.call.say(at_once(text))
        seen = await server.seen()
    return (call.frames[0] - seen.first_audio) * 1000


def row(client: Client, times: list[float]) -> Row:
    median, late = np.percentile(times, [50, 95])
    figure = f"{median:.1f} ms, p95 {late:.1f} ms"
    if not client.ours:
        return Row(client.name, figure)
    return Row(client.name, figure, "<= 3 ms", round(float(median), 1) <= 3)


async def run() -> dict[str, list[Row]]:
    measured = [Client("no framework, ours, openai pcm", bare), *clients(FORMATS)]
    times: dict[str, list[float]] = {client.name: [] for client in measured}
    async with serving(latency=LATENCY) as server, AsyncExitStack() as stack:
        calls = [await stack.enter_async_context(client.open(server.url)) for client in measured]
        for _ in range(WARM_UP + ROUNDS):
            for client, call in zip(measured, calls, strict=True):
                text = COLLECTED if client.collects else SHORT
                times[client.name].append(await added(server, call, text))
    rows = [row(client, times[client.name][WARM_UP:]) for client in measured]
    rows += [Row(what, "not measured") for what in missing()]
    return {"Remote engines: first byte of audio to first frame": rows}
