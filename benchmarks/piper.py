"""A Piper voice, ours beside what others make of the same network, in one run."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple

from benchmarks import cpu
from benchmarks.calls import Call, at_once
from benchmarks.capacity import Tally, caller
from benchmarks.peers import (
    CPUS,
    ONE_THREAD,
    OURS,
    OURS_IN_PIPECAT,
    PIPECAT,
    PIPECAT_HTTP,
    PIPER,
    STREAMING_VITS,
    Contender,
    contenders,
    our_engine,
)
from benchmarks.tables import Row, at_most
from benchmarks.texts import LONG, SENTENCES

TEXTS = ["Hello there.", SENTENCES[0], LONG]
ALONE = [OURS, OURS_IN_PIPECAT, PIPER, ONE_THREAD, STREAMING_VITS, PIPECAT, PIPECAT_HTTP]
ROUNDS = 5

TOGETHER = [OURS, OURS_IN_PIPECAT, PIPER, STREAMING_VITS, PIPECAT]
CALLERS = 8
ROUNDS_TOGETHER = 2

CALLERS_PER_CPU = 6
SECONDS = 25.0


class Turn(NamedTuple):
    """How a text was spoken."""

    first: float
    """Milliseconds until it was heard."""
    cpu: float
    """Milliseconds of CPU time until it was complete."""


async def one_caller() -> list[Row]:
    """Alone on the machine: each in turn, text by text, so that a busy moment hits all."""
    turns: dict[tuple[str, str], list[Turn]] = defaultdict(list)
    async with contenders(*ALONE) as those, AsyncExitStack() as stack:
        calls = {name: await stack.enter_async_context(it.call()) for name, it in those.items()}
        clocks = [time.process_time, *(it.elsewhere for it in those.values() if it.elsewhere)]
        others = cpu.Others(*clocks)
        for n in range(ROUNDS + 1):
            for text in TEXTS:
                for name, it in those.items():
                    await cpu.rest(lambda: sum(clock() for clock in clocks))
                    turn = await _turn(it, calls[name], text)
                    if n:  # the first is to warm up
                        turns[name, text].append(turn)
        busy = others.cores()
    return _compared(
        {
            key: Turn(*(statistics.median(figures) for figures in zip(*measured, strict=True)))
            for key, measured in turns.items()
        },
        busy,
    )


async def _turn(it: Contender, call: Call, text: str) -> Turn:
    began = it.used()
    call.recording.next_turn()
    await call.say(at_once(text))
    return Turn(call.recording.first_audible * 1000, (it.used() - began) * 1000)


def _compared(turns: Mapping[tuple[str, str], Turn], busy: float) -> list[Row]:
    rows = [
        Row(
            f"{name}, {len(text)} characters",
            f"first audible {turn.first:.0f} ms, {turn.first / turns[PIPER, text].first:.2f} x; "
            f"CPU {turn.cpu:.0f} ms, {turn.cpu / turns[ONE_THREAD, text].cpu:.2f} x",
        )
        for text in TEXTS
        for name in ALONE
        if (turn := turns[name, text])
    ]

    short, _, long = TEXTS
    for ours, theirs, texts, goal in (
        (OURS, PIPECAT, [long], 0.2),
        (OURS_IN_PIPECAT, PIPECAT, [long], 0.2),
        (OURS, STREAMING_VITS, TEXTS, 1),
        (OURS, PIPER, [short], 1),
        (OURS_IN_PIPECAT, PIPECAT, [short], 1),
    ):
        for text in texts:
            ratio = turns[ours, text].first / turns[theirs, text].first
            rows.append(at_most(f"{ours} / {theirs}, {len(text)} characters", ratio, goal, "x", 2))
    for text in TEXTS:
        ratio = turns[OURS, text].cpu / turns[ONE_THREAD, text].cpu
        what = f"CPU, {OURS} / {ONE_THREAD}, {len(text)} characters"
        rows.append(at_most(what, ratio, 1.25, "x", 2))
    rows.append(Row("CPUs that others kept busy meanwhile", f"{busy:.2f}"))
    return rows


async def eight_callers() -> list[Row]:
    """All ask for the same at the same moment. Pipecat's service has a model for each."""
    median, worst = defaultdict(list), defaultdict(list)
    gaps: dict[str, int] = defaultdict(int)
    async with contenders(*TOGETHER) as those, AsyncExitStack() as stack:
        calls = {
            name: [await stack.enter_async_context(it.call()) for _ in range(CALLERS)]
            for name, it in those.items()
        }
        for each in (call for group in calls.values() for call in group):
            await each.say(at_once(SENTENCES[0]))
        others = cpu.Others()
        for _ in range(ROUNDS_TOGETHER):
            for name, group in calls.items():
                await cpu.rest(time.process_time)
                for call in group:
                    call.recording.next_turn()
                await asyncio.gather(*(call.say(at_once(LONG)) for call in group))
                first = [call.recording.first_audible * 1000 for call in group]
                median[name].append(statistics.median(first))
                worst[name].append(max(first))
                gaps[name] += sum(call.recording.underruns for call in group)
        busy = others.cores()
    rows = []
    for name in TOGETHER:
        typical, last = statistics.median(median[name]), statistics.median(worst[name])
        ours = name in (OURS, OURS_IN_PIPECAT)
        rows.append(
            Row(
                f"{name}, {CALLERS} callers, {len(LONG)} characters",
                f"first audible: median {typical:.0f} ms, worst {last:.0f} ms; "
                f"{gaps[name]} underruns",
                "median <= 500 ms, worst <= 900 ms, 0 underruns" if ours else "",
                typical <= 500 and last <= 900 and not gaps[name] if ours else None,
            )
        )
    rows.append(Row("CPUs that others kept busy meanwhile", f"{busy:.2f}"))
    return rows


async def closed_loop() -> list[Row]:
    """Callers who listen to the end, think, and go on, in real time."""
    engine = our_engine("piper", max_ahead=3.0)
    tally = Tally()
    others = cpu.Others()
    used, began = time.process_time(), time.monotonic()
    callers = CALLERS_PER_CPU * CPUS
    await asyncio.gather(*(caller(engine, n, began + SECONDS, tally) for n in range(callers)))
    load = (time.process_time() - used) / (time.monotonic() - began)
    busy = others.cores()
    await engine.aclose()
    return [
        Row(
            f"{callers} callers, {len(tally.first)} sentences",
            f"first audio p50 {tally.p(50):.0f} p99 {tally.p(99):.0f} ms, "
            f"underruns {tally.underruns}, {load:.1f} of {CPUS} CPUs",
            "0 underruns",
            tally.underruns == 0,
        ),
        Row("CPUs that others kept busy meanwhile", f"{busy:.2f}"),
    ]


async def run() -> dict[str, list[Row]]:
    return {
        f"Piper's joe: first audible by that of {PIPER}, CPU by {ONE_THREAD}": await one_caller(),
        "Piper's joe: eight callers at once": await eight_callers(),
        f"Piper's joe: {CALLERS_PER_CPU} callers per CPU, {SECONDS:.0f} s": await closed_loop(),
    }
