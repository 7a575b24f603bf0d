"""How soon a speech server learns of a barge-in, and whether a finished request's connection stays.

A server that isn't told goes on speaking to nobody, and a small one keeps the next turn waiting.
"""

from __future__ import annotations

import asyncio
import math

import numpy as np

from benchmarks.calls import at_once, cut_off
from benchmarks.clients import Client, RemoteCall, clients, missing
from benchmarks.speech_server import SpeechServer, serving
from benchmarks.tables import Row, at_most
from benchmarks.texts import SENTENCES

ROUNDS = 30
WARM_UP = 2

AFTER = 0.15
"""Seconds from the request to the interruption: its audio is on the way."""

SHORT = "Yes."


async def until_closed(server: SpeechServer, call: RemoteCall) -> float:
    """Milliseconds from an interruption to the closed connection; infinite if it stays open."""
    async with asyncio.timeout(10):
        cut = await cut_off(call.call, SENTENCES[0], AFTER)
        seen = await server.seen()
    return math.inf if seen.left is None else (seen.left - cut.at) * 1000


async def connection(server: SpeechServer, call: RemoteCall) -> int:
    """Number of the connection over which a short turn was spoken, to its end."""
    async with asyncio.timeout(10):
        await call.call.say(at_once(SHORT))
        return (await server.seen()).connection


async def rows(server: SpeechServer, client: Client) -> list[Row]:
    async with client.open(server.url) as call:
        try:
            times = [await until_closed(server, call) for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
            used = {await connection(server, call) for _ in range(ROUNDS)}
        except TimeoutError:
            if client.ours:
                raise
            # Another's request that never reaches the server is its own affair.
            return [Row(client.name, "not measured: a request that the server never saw")]
    median, late = np.percentile(times, [50, 95], method="higher")
    figure = f"{median:.1f} ms, p95 {late:.1f} ms, at most {max(times):.1f} ms"
    closed = f"{client.name}, until the connection is closed"
    reused = f"{client.name}, connections of {ROUNDS} finished requests"
    if not client.ours:
        return [Row(closed, figure), Row(reused, str(len(used)))]
    return [
        Row(closed, figure, "<= 10 ms", round(float(median), 1) <= 10),
        at_most(reused, len(used), 1, ""),
    ]


async def run() -> dict[str, list[Row]]:
    async with serving() as server:
        measured = clients(["openai pcm", "elevenlabs"])
        table = [row for client in measured for row in await rows(server, client)]
    table += [Row(what, "not measured") for what in missing()]
    return {"Remote engines: a barge-in, as the server sees it": table}
