"""One engine object for all adapters of a process: what each further one adds to its memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from benchmarks.calls import CALLS, Call, at_once, pipecat_call_of
from benchmarks.peers import PIPECAT, our_engine, pipecat_piper
from benchmarks.sharing import resident
from benchmarks.tables import Row, at_most
from benchmarks.texts import LONG, SENTENCES

MORE = 4
"""Adapters of each framework, beside the first."""


async def growth(
    stack: AsyncExitStack, open_call: Callable[[], AbstractAsyncContextManager[Call]]
) -> float:
    """MB for each further call, once it has spoken; they stay open."""
    before = resident()
    for _ in range(MORE):
        call = await stack.enter_async_context(open_call())
        await call.say(at_once(SENTENCES[0]))
    return (resident() - before) / MORE


async def ours() -> list[Row]:
    before = resident()
    engine = our_engine("piper")
    rows = []
    async with AsyncExitStack() as stack:
        for open_call in CALLS.values():  # what a framework allocates once is not an adapter's
            first = await stack.enter_async_context(open_call(engine))
            for text in (LONG, LONG, *SENTENCES):
                await first.say(at_once(text))
        rows.append(Row("ours, the engine and the first of each", f"{resident() - before:.0f} MB"))
        for framework, open_call in CALLS.items():
            each = await growth(stack, lambda open_call=open_call: open_call(engine))  # type: ignore[misc]
            rows.append(at_most(f"ours, each further one in {framework}", each, 2, "MB", 1))
    await engine.aclose()
    return rows


async def theirs() -> list[Row]:
    @asynccontextmanager
    async def call() -> AsyncIterator[Call]:
        async with pipecat_call_of(pipecat_piper()) as each:
            yield each

    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(call())
        await first.say(at_once(SENTENCES[0]))
        each = await growth(stack, call)
    return [Row(f"{PIPECAT}, each further one", f"{each:.1f} MB")]


async def run() -> dict[str, list[Row]]:
    return {f"Piper's joe: {MORE} further adapters of each": [*await ours(), *await theirs()]}
