"""A phone call over a real WebSocket: when the caller hears the bot, and whether they hear it all.

    python -m benchmarks phone

Each bot is examples/agents/phone_twilio.py in a process of its own, called by a simulated carrier;
one speaks as it comes, the others as Pipecat's services do. Times are taken at the carrier's end
of the socket.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import soxr

from benchmarks.tables import Row, at_most
from benchmarks.texts import SENTENCES
from tests.agents.carriers import RATE, SILENCE, Twilio, Utterance
from tests.agents.running import free_port
from tts_plugins import AudioChunk, Engine, SynthesisRequest, Voice, open_engine
from tts_plugins.audio.g711 import from_ulaw, to_ulaw
from tts_plugins.audio.pcm import joined, to_s16
from tts_plugins.turn import Turn
from tts_plugins.types import Samples

PASSES, ROUNDS = 3, 4
"""Calls of each bot, in turn with the others; and answers in each, every other one interrupted."""

OURS = "ours, at 8 kHz"
STOCK = "Pipecat's own resampling, in a pipeline of 8 kHz"
DEFAULT = "Pipecat's defaults: a pipeline of 24 kHz, resampled for the line"
QUESTION = "Excuse me, I have a question."
QUIET = 32 / 32768
"""Amplitude up to which a sample is taken for silence: what soxr dithers stays below it."""


class Seeded:
    """An engine that says the same text the same way each time."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        async with aclosing(self.engine.stream(replace(request, options={"seed": 1}))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def voices(self) -> Sequence[Voice]:
        return await self.engine.voices()

    async def aclose(self) -> None:
        await self.engine.aclose()


@dataclass
class Told:
    """What a bot tells of itself: each name with when it was, and a text."""

    lines: list[tuple[str, float, str]] = field(default_factory=list)

    def since(self, name: str, moment: float) -> list[tuple[float, str]]:
        return [(at, text) for each, at, text in self.lines if each == name and at >= moment]


@dataclass
class Figures:
    first: list[float] = field(default_factory=list)
    """Seconds from the first text of a turn to its first packet."""
    gaps: list[float] = field(default_factory=list)
    silences: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    """Seconds of the end that the caller didn't hear."""
    changed: int = 0
    """Codes other than those of the turn in one piece."""
    late: int = 0
    """Packets behind a clear, before the next turn."""
    clears: list[float] = field(default_factory=list)
    """Seconds from the interruption to the clear."""
    noticed: list[float] = field(default_factory=list)
    """Seconds from the caller's first packet to the clear."""
    lags: list[float] = field(default_factory=list)
    """Seconds by which the carrier's own event loop was late."""


async def in_one_piece(engine: Engine, texts: list[str]) -> bytes:
    """What the caller should hear."""
    turn, parts = Turn(engine, sample_rate=RATE), []
    for text in texts:
        async with aclosing(turn.say(text)) as chunks:
            parts += [chunk.samples async for chunk in chunks]
    return to_ulaw(joined(parts))


def sounding(codes: bytes) -> int:
    """How many of them there are up to the last that isn't silence."""
    return int(np.flatnonzero(np.abs(from_ulaw(codes)) > QUIET)[-1]) + 1


@asynccontextmanager
async def bot(kind: str) -> AsyncIterator[tuple[str, Told]]:
    """A bot in a process of its own; where it answers, and what it tells."""
    port, told = free_port(), Told()
    command = (sys.executable, "-m", "benchmarks.phone", kind, str(port))
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env=os.environ | {"LOGURU_LEVEL": "WARNING"}
    )
    assert process.stdout
    assert await process.stdout.readline()  # it answers

    async def listen(lines: asyncio.StreamReader) -> None:
        async for line in lines:
            told.lines.append(tuple(json.loads(line)))

    listening = asyncio.create_task(listen(process.stdout))
    try:
        yield f"ws://127.0.0.1:{port}/ws", told
    finally:
        process.terminate()
        await process.wait()
        await listening


async def measure(kind: str, engine: Engine, question: Samples, figures: Figures) -> None:
    """One call."""
    whole = []
    async with bot(kind) as (url, told), Twilio(url) as call:
        watching = asyncio.create_task(watch(figures.lags))
        turn = 0.0
        for n in range(-1, ROUNDS):
            await call.until(lambda: told.since("text", turn) and call.line.ahead())  # noqa: B023
            asked, _ = told.since("text", turn)[0]
            utterance = call.line.utterances[-1]
            if n % 2:
                await call.until(lambda: not call.line.ahead() or len(utterance.packets) > 40)  # noqa: B023
            else:
                count = len(call.marks)
                await call.until(lambda: len(call.marks) > count)  # noqa: B023
            turn = time.monotonic()
            asking = asyncio.create_task(call.say(question))
            if n % 2:
                await call.until(lambda: call.times("clear")[-1:] > [turn])  # noqa: B023
            await asking
            if n < 0:
                continue  # the greeting was to warm up
            figures.first.append(utterance.arrivals[0] - asked)
            figures.gaps += utterance.gaps
            figures.silences += utterance.silences
            if n % 2:
                clear = call.times("clear")[-1]
                cut = told.since("cut", turn)[0][0]
                figures.clears.append(clear - cut)
                figures.noticed.append(clear - call.spoke)
                figures.late += sum(at > clear for at in call.times("media"))
            else:
                texts = [text for at, text in told.since("text", asked) if at < turn]
                whole.append((utterance, texts))
        watching.cancel()
    for utterance, texts in whole:
        compare(figures, utterance, await in_one_piece(engine, texts))


async def watch(lags: list[float]) -> None:
    """How late this process itself is: what it takes for a gap may be its own."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.005)
        lags.append(time.monotonic() - began - 0.005)


def compare(figures: Figures, utterance: Utterance, whole: bytes) -> None:
    """What was heard beside the turn in one piece."""
    heard, packet = utterance.codes, len(utterance.packets[0])
    figures.lost.append((sounding(whole) - sounding(heard)) / RATE)
    expected = whole.ljust(-(-len(whole) // packet) * packet, SILENCE)
    figures.changed += abs(len(heard) - len(expected))
    figures.changed += sum(a != b for a, b in zip(heard, expected, strict=False))


async def second_call(engine: Engine, question: Samples) -> list[Row]:
    """What one caller hears of it that another calls."""
    async with bot(OURS) as (url, told), Twilio(url) as call:
        await call.until(lambda: told.lines and call.line.ahead())
        async with Twilio(url) as other:
            await other.until(lambda: other.line.ahead())
        gap = max(call.line.utterances[0].gaps) * 1000
    return [at_most("longest gap of a caller while another one is answered", gap, 60, "ms")]


async def run() -> dict[str, list[Row]]:
    engine = Seeded(open_engine("hibari"))
    speech = [c async for c in open_engine("hibari").stream(SynthesisRequest(QUESTION))]
    question = soxr.resample(joined([c.samples for c in speech]), speech[0].sample_rate, RATE)
    measured = {kind: Figures() for kind in (OURS, STOCK, DEFAULT)}
    for _ in range(PASSES):
        for kind, figures in measured.items():
            await measure(kind, engine, question, figures)
    tables = {f"A call, {kind}": rows(each, kind == OURS) for kind, each in measured.items()}
    tables["Two calls at once"] = await second_call(engine, question)
    await engine.aclose()
    return tables


def rows(figures: Figures, ours: bool) -> list[Row]:
    first, lost = statistics.median(figures.first), statistics.median(figures.lost)
    gap, silence = max(figures.gaps), sum(figures.silences)
    dry = f"{silence * 1000:.0f} ms in all"
    noticed = statistics.median(figures.noticed)
    table = [
        at_most("text to first packet, median", first * 1000, 90, "ms"),
        at_most("text to first packet, worst", max(figures.first) * 1000, 90, "ms"),
        at_most("end of a turn that isn't heard, median", lost * 1000, 0, "ms", 1),
        Row("codes other than in one piece", str(figures.changed), "0", figures.changed == 0),
        at_most("longest gap between packets", gap * 1000, 60, "ms"),
        at_most("99 of 100 gaps", float(np.percentile(figures.gaps, 99)) * 1000, 60, "ms"),
        Row("carrier itself late by, worst", f"{max(figures.lags) * 1000:.0f} ms"),
        Row("line dry in the middle", f"{len(figures.silences)} times, {dry}"),
        at_most("interruption to clear, worst", max(figures.clears) * 1000, 20, "ms", 1),
        Row("packets behind a clear", str(figures.late), "0", figures.late == 0),
        Row("caller's first packet to clear, median", f"{noticed * 1000:.0f} ms"),
    ]
    return table if ours else [replace(row, goal="", met=None) for row in table]


def host(kind: str, port: int) -> None:
    """Be a bot, and tell what happens when, as lines of JSON."""
    import uvicorn
    from loguru import logger
    from pipecat.frames.frames import Frame, InterruptionFrame
    from pipecat.pipeline.worker import PipelineParams
    from pipecat.services.settings import TTSSettings
    from pipecat.services.tts_service import TTSService

    from examples.agents import brains, phone_twilio
    from tts_plugins.adapters.pipecat import EngineTTSService

    logger.remove()

    def tell(name: str, text: str = "") -> None:
        print(json.dumps([name, time.monotonic(), text]), flush=True)

    class Stock(TTSService):
        """As Pipecat's own services for engines at a rate of their own are written."""

        def __init__(self, engine: Engine) -> None:
            settings = TTSSettings(model=None, voice=None, language=None)
            super().__init__(push_start_frame=True, push_stop_frames=True, settings=settings)
            self._engine = engine

        async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
            async def pcm() -> AsyncIterator[bytes]:
                async with aclosing(self._engine.stream(SynthesisRequest(text))) as chunks:
                    async for chunk in chunks:
                        yield to_s16(chunk.samples)

            async for frame in self._stream_audio_frames_from_iterator(
                pcm(), in_sample_rate=24000, context_id=context_id
            ):
                yield frame

    base: Any = EngineTTSService if kind == OURS else Stock

    class Watched(base):  # type: ignore[misc]  # of either kind
        def __init__(self, engine: Engine) -> None:
            super().__init__(Seeded(engine))

        async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
            tell("text", text)
            async with aclosing(super().run_tts(text, context_id)) as frames:
                async for frame in frames:
                    yield frame

        async def process_frame(self, frame: Frame, direction: Any) -> None:
            if isinstance(frame, InterruptionFrame):
                tell("cut")
            await super().process_frame(frame, direction)

    def params(**rates: Any) -> PipelineParams:
        if kind == DEFAULT:
            rates["audio_out_sample_rate"] = 24000
        return PipelineParams(**rates)

    script: Any = brains
    script.SCRIPT = tuple(SENTENCES)
    module: Any = phone_twilio
    module.EngineTTSService = Watched
    module.PipelineParams = params
    config = uvicorn.Config(phone_twilio.create_app("hibari"), port=port, log_level="error")

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            tell("answers")

    Server(config).run()


if __name__ == "__main__":
    host(sys.argv[1], int(sys.argv[2]))
