"""How many conversations one core carries: real engine, real time, one worker, one CPU."""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import aclosing
from dataclasses import dataclass, field

import numpy as np

from benchmarks.tables import Row
from benchmarks.texts import SENTENCES
from tts_plugins.engine import Engine
from tts_plugins.engines.hibari import HibariEngine
from tts_plugins.playhead import Playhead
from tts_plugins.scheduler import Scheduler, _Stream
from tts_plugins.types import SynthesisRequest

CALLERS = 60
SECONDS = 40.0
PAUSE = (1.0, 4.0)
LATE = 0.001


class FirstComeFirstServed(Scheduler):
    """For comparison: each sentence to its end, in the order of their coming."""

    def choose(self, now: float) -> _Stream | None:
        return min(self._ready, key=lambda stream: stream.opened_at, default=None)


@dataclass
class Tally:
    first: list[float] = field(default_factory=list)
    underruns: int = 0

    def p(self, percent: float) -> float:
        return float(np.percentile(self.first, percent)) * 1000


async def caller(engine: Engine, seed: int, until: float, tally: Tally) -> None:
    """Listens to a sentence in real time, pauses, asks for the next."""
    dice = random.Random(seed)
    await asyncio.sleep(dice.uniform(0, 6))
    while (now := time.monotonic()) < until:
        asked, playhead, heard = now, Playhead(now), False
        request = SynthesisRequest(dice.choice(SENTENCES))
        async with aclosing(engine.stream(request)) as chunks:
            async for chunk in chunks:
                now = time.monotonic()
                if not heard:
                    tally.first.append(now - asked)
                elif now > playhead.dry_at + LATE:
                    tally.underruns += 1
                heard = True
                playhead.add(chunk.seconds, now)
        await asyncio.sleep(playhead.ahead(time.monotonic()) + dice.uniform(*PAUSE))


async def load(policy: type[Scheduler], callers: int, voice: HibariEngine) -> tuple[Tally, float]:
    engine = policy(voice, workers=1)
    tally = Tally()
    cpu = time.process_time()
    until = time.monotonic() + SECONDS
    await asyncio.gather(*(caller(engine, n, until, tally) for n in range(callers)))
    return tally, (time.process_time() - cpu) / (SECONDS + 6)


async def run() -> dict[str, list[Row]]:
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    voice = HibariEngine()
    rows = []
    try:
        for policy, callers, goal in (
            (Scheduler, CALLERS, 150.0),
            (FirstComeFirstServed, CALLERS, None),
            (Scheduler, CALLERS * 3 // 2, None),
        ):
            tally, cpu = await load(policy, callers, voice)
            ours = policy is Scheduler
            met = tally.underruns == 0 and (goal is None or tally.p(99) <= goal)
            rows.append(
                Row(
                    f"{policy.__name__}, {callers} callers, {len(tally.first)} sentences",
                    f"first audio p50 {tally.p(50):.0f} p99 {tally.p(99):.0f} ms, "
                    f"underruns {tally.underruns}, CPU {cpu * 100:.0f} %",
                    "" if not ours else "0 underruns" + (", p99 <= 150 ms" if goal else ""),
                    met if ours else None,
                )
            )
    finally:
        os.sched_setaffinity(0, cpus)
        voice.close()
    return {f"Callers on one core, {SECONDS:.0f} s each": rows}
