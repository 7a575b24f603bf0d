"""One engine, many calls: what each further adapter and each interrupted turn leaves in memory."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.calls import CALLS, at_once, cut_off
from benchmarks.tables import Row, at_most
from benchmarks.texts import SENTENCES, SIX_SENTENCES
from tts_plugins.registry import open_engine

CALLS_AT_ONCE = 20
INTERRUPTIONS = 200


def resident() -> float:
    """Memory of this process, in MB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def adapters() -> list[Row]:
    engine = open_engine("hibari")
    rows = []
    for framework, open_call in CALLS.items():
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(open_call(engine))
            await first.say(at_once(SENTENCES[0]))
            before = resident()
            for _ in range(CALLS_AT_ONCE):
                call = await stack.enter_async_context(open_call(engine))
                await call.say(at_once(SENTENCES[0]))
            each = (resident() - before) / CALLS_AT_ONCE
        rows.append(at_most(f"{framework}, each further call on one engine", each, 2, "MB", 2))
    await engine.aclose()
    return rows


async def leftovers() -> list[Row]:
    engine = open_engine("hibari")
    rows = []
    for framework, open_call in CALLS.items():
        async with open_call(engine) as call:
            for n in range(INTERRUPTIONS + 20):
                if n == 20:  # what is allocated once is allocated by now
                    before, tasks = resident(), len(asyncio.all_tasks())
                await cut_off(call, SIX_SENTENCES, after=0.03)
            grown = resident() - before
            await asyncio.sleep(0.1)
            more = len(asyncio.all_tasks()) - tasks
        threads = [t for t in threading.enumerate() if t.name == "tts-engine"]
        what = f"{framework}, {INTERRUPTIONS} interrupted turns leave"
        rows += [
            at_most(what, grown, 5, "MB", 2),
            at_most(what, more, 0, "tasks"),
            at_most(what, len(threads), 0, "threads"),
        ]
    await engine.aclose()
    return rows


async def run() -> dict[str, list[Row]]:
    return {"One engine, many calls": [*await adapters(), *await leftovers()]}
