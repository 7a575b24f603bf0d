"""A reply that a language model is still writing: one long sentence, a word each 50 ms."""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import numpy as np

from benchmarks.calls import CALLS
from benchmarks.tables import Row, at_least, at_most
from benchmarks.texts import REPLY
from tts_plugins.audio.pcm import from_s16
from tts_plugins.engine import Engine
from tts_plugins.registry import open_engine
from tts_plugins.types import Samples, SynthesisRequest

WORD_EVERY = 0.05
ROUNDS = 3


async def words(text: str) -> AsyncIterator[str]:
    began = time.monotonic()
    for n, word in enumerate(text.split(" ")):
        await asyncio.sleep(began + n * WORD_EVERY - time.monotonic())
        yield word if n == 0 else " " + word


async def replies(
    engine: Engine, framework: str, *, early: bool
) -> tuple[list[float], int, Samples]:
    """Milliseconds to the first sound, underruns in all, and one reply's audio."""
    times, underruns = [], 0
    async with CALLS[framework](engine, early=early) as call:
        for _ in range(ROUNDS):
            call.recording.next_turn()
            call.recording.pcm.clear()
            await call.say(words(REPLY))
            times.append(call.recording.first_audible * 1000)
            await call.recording.heard()  # or else the next reply would have time to spare
            underruns += call.recording.underruns
        return times, underruns, from_s16(bytes(call.recording.pcm))


async def whole(engine: Engine) -> Samples:
    async with aclosing(engine.stream(SynthesisRequest(REPLY))) as chunks:
        return np.concatenate([chunk.samples async for chunk in chunks])


async def run() -> dict[str, list[Row]]:
    engine = open_engine("hibari")
    rows = []
    joined: Samples | None = None
    for framework in CALLS:
        times, underruns, joined = await replies(engine, framework, early=True)
        rows += [
            at_most(f"{framework}, first word to first sound", statistics.median(times), 500, "ms"),
            at_most(f"{framework}, underruns in {ROUNDS} replies", underruns, 0, ""),
        ]
        times, _, _ = await replies(engine, framework, early=False)
        late = f"{statistics.median(times):.0f} ms"
        rows.append(Row(f"{framework}, the same with early=False", late))
    unhurried = open_engine("hibari", max_ahead=math.inf)
    rows.append(_opinion(joined, await whole(unhurried)))
    await engine.aclose()
    await unhurried.aclose()
    return {"A reply of 35 words, one each 50 ms": rows}


def _opinion(joined: Samples | None, whole: Samples) -> Row:
    what = "predicted MOS, joined minus whole"
    try:
        from tests.voice.judges import predicted_mos
    except ImportError:
        return Row(what, "not measured: needs the voice group (scripts/test --voice)")
    assert joined is not None
    return at_least(what, predicted_mos(joined, 24000) - predicted_mos(whole, 24000), -0.2, "", 2)
