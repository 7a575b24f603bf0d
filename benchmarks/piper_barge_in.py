"""What an interrupted reply still costs: our engines beside the services that Pipecat brings."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import NamedTuple

from benchmarks import cpu
from benchmarks.calls import Call, PipecatCall, at_once, cut_turn_off
from benchmarks.peers import (
    OUR_KOKORO,
    OURS_IN_PIPECAT,
    PIPECAT,
    PIPECAT_HTTP,
    PIPECAT_KOKORO,
    Contender,
    contenders,
)
from benchmarks.tables import Row, at_most
from benchmarks.texts import LONG, SENTENCES

TEXT = " ".join([SENTENCES[0], LONG, *SENTENCES[2:6]])
AFTER = 0.3
"""Seconds from the request to the interruption."""
AT_WORK = 0.01
"""Seconds of CPU time in the tenth of a second before, without which there is nothing to stop."""
ROUNDS = {
    OURS_IN_PIPECAT: 7,
    PIPECAT: 7,
    PIPECAT_HTTP: 7,
    OUR_KOKORO: 5,
    PIPECAT_KOKORO: 3,
}
OURS = (OURS_IN_PIPECAT, OUR_KOKORO)


class Cut(NamedTuple):
    """What an interruption left behind."""

    quiet: float
    """Milliseconds until the engine rested."""
    cpu: float
    """Seconds of CPU time that it used until then."""


async def interrupted(it: Contender, call: Call) -> Cut:
    assert isinstance(call, PipecatCall)
    with cpu.Watch(it.elsewhere) as watch:
        call.recording.next_turn()
        cut = await cut_turn_off(call, call.announce(TEXT), AFTER)
        await watch.rest()
    if watch.before(cut.at) < AT_WORK:
        raise RuntimeError(
            "an engine wasn't at work when it was interrupted; does it speak at all?"
        )
    quiet, used = watch.after(cut.at)
    return Cut(quiet * 1000, used)


async def measured(*names: str) -> list[Row]:
    cuts: dict[str, list[Cut]] = defaultdict(list)
    async with contenders(*names) as those, AsyncExitStack() as stack:
        calls = {name: await stack.enter_async_context(it.call()) for name, it in those.items()}
        for name, call in calls.items():
            await call.say(at_once(SENTENCES[0]))
            await cpu.rest(those[name].used)
        clocks = [it.elsewhere for it in those.values() if it.elsewhere]
        others = cpu.Others(time.process_time, *clocks)
        for n in range(max(ROUNDS[name] for name in names)):
            for name, it in those.items():
                if n < ROUNDS[name]:
                    cuts[name].append(await interrupted(it, calls[name]))
        busy = others.cores()
    rows = []
    for name in names:
        quiet = statistics.median(cut.quiet for cut in cuts[name])
        worst = max(cut.quiet for cut in cuts[name])
        burned = statistics.median(cut.cpu for cut in cuts[name])
        if name in OURS:
            rows.append(at_most(f"{name}, until the CPU is quiet", quiet, 40, "ms"))
            rows.append(at_most(f"{name}, CPU burned after it", burned, 0.15, "s", 3))
        else:
            rows.append(Row(f"{name}, until the CPU is quiet", f"{quiet:.0f} ms"))
            rows.append(Row(f"{name}, CPU burned after it", f"{burned:.3f} s"))
        rows.append(Row(f"{name}, the slowest to be quiet", f"{worst:.0f} ms"))
    rows.append(Row("CPUs that others kept busy meanwhile", f"{busy:.2f}"))
    return rows


async def run() -> dict[str, list[Row]]:
    what = f"{len(TEXT)} characters, interrupted after {AFTER * 1000:.0f} ms"
    return {
        f"Piper's joe: {what}": await measured(OURS_IN_PIPECAT, PIPECAT, PIPECAT_HTTP),
        f"Kokoro: {what}": await measured(OUR_KOKORO, PIPECAT_KOKORO),
    }
