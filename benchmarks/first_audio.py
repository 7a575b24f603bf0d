"""How long until the first sound, and what streaming costs."""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Never

import numpy as np
from hibari import Hibari
from livekit.agents import DEFAULT_API_CONNECT_OPTIONS, APIConnectOptions, tokenize, utils
from livekit.agents import tts as livekit_tts
from pipecat.frames.frames import Frame, TTSAudioRawFrame
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService

from benchmarks import calls
from benchmarks.calls import CALLS, Call, at_once
from benchmarks.tables import Row, at_most
from benchmarks.texts import LONG, SHORT
from tts_plugins.audio.pcm import to_s16
from tts_plugins.engine import Engine
from tts_plugins.engines.hibari import HibariEngine
from tts_plugins.registry import open_engine
from tts_plugins.types import SynthesisRequest

ROUNDS = 15


async def first_sounds(call: Call, text: str, rounds: int = ROUNDS) -> list[float]:
    """Milliseconds from the request to the first audible sample, warm."""
    times = []
    for _ in range(rounds + 2):
        call.recording.next_turn()
        await call.say(at_once(text))
        times.append(call.recording.first_audible * 1000)
    return times[2:]


async def first_audible() -> list[Row]:
    engine = open_engine("hibari", max_ahead=math.inf)
    rows = []
    for name, open_call in CALLS.items():
        async with open_call(engine) as call:
            for text, goal in ((SHORT, 50), (LONG, 80)):
                times = await first_sounds(call, text)
                what = f"{name}, first audible sample, {len(text)} characters"
                rows.append(at_most(what, statistics.median(times), goal, "ms"))
    await engine.aclose()
    return rows


async def overhead() -> list[Row]:
    """What adapter and Turn add to the thinnest service over the same engine.

    The engine is the tone, whose first chunk takes no time, so that nothing else is measured.
    """
    engine = open_engine("tone", max_ahead=math.inf)
    rows = []
    for name, thin in (("Pipecat", thin_pipecat_call), ("LiveKit", thin_livekit_call)):
        ours: list[float] = []
        theirs: list[float] = []
        async with CALLS[name](engine) as call, thin(engine) as bare:
            for _ in range(5):  # alternating, so that a busy moment hits both
                ours += await first_sounds(call, SHORT, 5)
                theirs += await first_sounds(bare, SHORT, 5)
        added = statistics.median(ours) - statistics.median(theirs)
        rows.append(at_most(f"{name}, added by adapter and Turn", added, 3, "ms", 2))
    await engine.aclose()
    return rows


def cpu_seconds(work: Callable[[], object], rounds: int = 9) -> float:
    work()
    times = []
    for _ in range(rounds):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return statistics.median(times)


def streaming_cost() -> list[Row]:
    """CPU of a sentence in chunks, by that of hibari's own one call."""
    one_shot, streamed = Hibari(), HibariEngine()
    rows = []
    for text in (SHORT, LONG):
        request = SynthesisRequest(text, options={"seed": 1})
        whole = cpu_seconds(lambda text=text: one_shot(text, seed=1))  # type: ignore[misc]
        parts = cpu_seconds(lambda request=request: list(streamed.synthesize(request)))  # type: ignore[misc]
        what = f"CPU streamed / one-shot, {len(text)} characters"
        rows.append(at_most(what, parts / whole, 1.3, "x", 2))
    streamed.close()
    return rows


class _ThinService(TTSService):
    """The least that Pipecat takes: the engine's chunks, renamed."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(
            push_start_frame=True,
            push_stop_frames=True,
            settings=TTSSettings(model=None, voice=None, language=None),
        )
        self._engine = engine

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        async with aclosing(self._engine.stream(SynthesisRequest(text))) as chunks:
            async for chunk in chunks:
                pcm = to_s16(chunk.samples)
                yield TTSAudioRawFrame(pcm, chunk.sample_rate, 1, context_id=context_id)


class _ThinTTS(livekit_tts.TTS[Never]):
    """The least that LiveKit takes."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(
            capabilities=livekit_tts.TTSCapabilities(streaming=True),
            sample_rate=24000,
            num_channels=1,
        )
        self.engine = engine

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> livekit_tts.ChunkedStream:
        raise NotImplementedError

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> livekit_tts.SynthesizeStream:
        return _ThinStream(tts=self, conn_options=conn_options)


class _ThinStream(livekit_tts.SynthesizeStream):
    _tts: _ThinTTS

    async def _run(self, output_emitter: livekit_tts.AudioEmitter) -> None:
        name = utils.shortuuid()
        output_emitter.initialize(
            request_id=name, sample_rate=24000, num_channels=1, mime_type="audio/pcm", stream=True
        )
        output_emitter.start_segment(segment_id=name)
        sentences = tokenize.blingfire.SentenceTokenizer().stream()

        async def read() -> None:
            async for item in self._input_ch:
                if isinstance(item, str):
                    sentences.push_text(item)
            sentences.end_input()

        reading = asyncio.create_task(read())
        async for sentence in sentences:
            self._mark_started()
            request = SynthesisRequest(sentence.token)
            async with aclosing(self._tts.engine.stream(request)) as chunks:
                async for chunk in chunks:
                    output_emitter.push(to_s16(chunk.samples))
        await reading
        output_emitter.end_segment()


@asynccontextmanager
async def thin_pipecat_call(engine: Engine) -> AsyncIterator[calls.PipecatCall]:
    async with calls.pipecat_call_of(_ThinService(engine)) as call:
        yield call


@asynccontextmanager
async def thin_livekit_call(engine: Engine) -> AsyncIterator[calls.LiveKitCall]:
    yield calls.LiveKitCall(_ThinTTS(engine))


def same_samples() -> list[Row]:
    """For one seed, a sentence in chunks of any size, sample by sample."""
    engine = HibariEngine()
    request = SynthesisRequest(LONG, options={"seed": 7})
    reference = np.concatenate([chunk.samples for chunk in engine.synthesize(request)])
    again = np.concatenate([chunk.samples for chunk in engine.synthesize(request)])
    engine.close()
    differing = int(np.sum(reference != again))
    return [at_most("samples that differ between two runs of one seed", differing, 0, "samples")]


async def run() -> dict[str, list[Row]]:
    return {
        "First audio": [*await first_audible(), *await overhead()],
        "The cost of streaming": [*streaming_cost(), *same_samples()],
    }
