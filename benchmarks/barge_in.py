"""What a reply that nobody hears any more still costs, and whom it delays."""

from __future__ import annotations

import asyncio
import math
import statistics
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import aclosing

import numpy as np

from benchmarks.calls import CALLS, at_once, cut_off
from benchmarks.tables import Row, at_most
from benchmarks.texts import LONG, SENTENCES, SIX_SENTENCES
from tts_plugins.engines.hibari import HibariEngine
from tts_plugins.registry import open_engine
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

ROUNDS = 9
AFTER = 0.15
"""Seconds from the request to the interruption: the engine is in the middle of its work."""
QUIET = 0.5
"""Seconds after the interruption in which CPU time still counts as its own."""


class Watched:
    """hibari, with the time of each step written down."""

    def __init__(self) -> None:
        self._engine = HibariEngine()
        self.begun: list[float] = []
        self.ended: list[float] = []

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        chunks = self._engine.synthesize(request)
        while True:
            self.begun.append(time.monotonic())
            chunk = next(chunks, None)
            self.ended.append(time.monotonic())
            if chunk is None:
                return
            yield chunk

    def voices(self) -> Sequence[Voice]:
        return self._engine.voices()

    def close(self) -> None:
        self._engine.close()


async def interruptions(framework: str) -> list[Row]:
    voice = Watched()
    engine = Scheduler(voice, max_ahead=math.inf)  # the hard case: it never rests
    burned, after, closing, first, fresh = [], [], [], [], []
    async with CALLS[framework](engine) as call:
        for _ in range(ROUNDS + 1):
            call.recording.next_turn()
            await call.say(at_once(SENTENCES[0]))
            fresh.append(call.recording.first_audible)

            cut = await cut_off(call, SIX_SENTENCES, AFTER)
            closing.append(cut.seconds)
            await asyncio.sleep(QUIET)
            burned.append(time.process_time() - cut.cpu)
            after.append(sum(t > cut.at for t in voice.begun))

            await cut_off(call, SIX_SENTENCES, AFTER)
            call.recording.next_turn()
            await call.say(at_once(SENTENCES[0]))
            first.append(call.recording.first_audible)
    await engine.aclose()
    step = max(e - b for b, e in zip(voice.begun, voice.ended, strict=False)) * 1000
    done = statistics.median(closing[1:]) * 1000
    later = (statistics.median(first[1:]) - statistics.median(fresh[1:])) * 1000
    return [
        at_most(f"{framework}, CPU burned after it", statistics.median(burned[1:]), 0.15, "s", 3),
        at_most(f"{framework}, steps begun after it", max(after[1:]), 1, "steps"),
        at_most(f"{framework}, until the framework is done", done, 10, "ms", 1),
        at_most(f"{framework}, next reply later than a fresh one by", later, round(step), "ms", 1),
    ]


async def loop_lag() -> list[Row]:
    """How late the event loop is while two threads compute without a pause."""
    engine = open_engine("hibari", workers=2, max_ahead=math.inf)
    stop = threading.Event()

    async def keep_busy() -> None:
        while not stop.is_set():
            async with aclosing(engine.stream(SynthesisRequest(LONG))) as chunks:
                async for _ in chunks:
                    pass

    busy = [asyncio.create_task(keep_busy()) for _ in range(3)]
    await asyncio.sleep(0.5)
    lags = []
    for _ in range(1000):
        began = time.monotonic()
        await asyncio.sleep(0.005)
        lags.append((time.monotonic() - began - 0.005) * 1000)
    stop.set()
    await asyncio.gather(*busy)
    await engine.aclose()
    what = "event-loop lag p99, two engine threads busy"
    return [at_most(what, float(np.percentile(lags, 99)), 15, "ms", 1)]


async def run() -> dict[str, list[Row]]:
    rows = [row for name in CALLS for row in await interruptions(name)]
    return {"A six-sentence reply, interrupted": [*rows, *await loop_lag()]}
