"""A call in each framework, reduced to what a benchmark needs: say this, and who heard it when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Never, Protocol

from livekit.agents import tts as livekit_tts
from loguru import logger as pipecat_log
from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.tts_service import TTSService
from pipecat.workers.runner import WorkerRunner

from examples.listeners import Recording
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService
from tts_plugins.engine import Engine

pipecat_log.remove()


class Call(Protocol):
    """One call in one framework."""

    recording: Recording

    async def say(self, text: AsyncIterable[str]) -> None:
        """Speak a turn; return when its last frame has arrived."""
        ...

    async def interrupt(self) -> None:
        """Cut the turn that is being said; return when the framework is done with it."""
        ...


class Interruption(NamedTuple):
    """When a turn was cut off, by the clock and in CPU seconds, and how long that took."""

    at: float
    cpu: float
    seconds: float


async def cut_off(call: Call, text: str, after: float) -> Interruption:
    """Interrupt a turn some seconds after it was asked for."""
    return await cut_turn_off(call, call.say(at_once(text)), after)


async def cut_turn_off(
    call: Call, saying: Coroutine[object, object, None], after: float
) -> Interruption:
    """The same, for a turn that is said in some other way."""
    turn = asyncio.create_task(saying)
    await asyncio.sleep(after)
    cpu, at = time.process_time(), time.monotonic()
    await call.interrupt()
    seconds = time.monotonic() - at
    turn.cancel()
    await asyncio.wait([turn])
    return Interruption(at, cpu, seconds)


async def at_once(text: str) -> AsyncIterator[str]:
    """The whole text in one fragment."""
    yield text


class _Consumer(FrameProcessor):
    """Takes frames as they come, as a transport would."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording
        self.stopped = asyncio.Event()
        self.interrupted = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.recording.play(frame.audio, frame.sample_rate)
        elif isinstance(frame, TTSStoppedFrame):
            self.stopped.set()
        elif isinstance(frame, InterruptionFrame):
            self.interrupted.set()
        await self.push_frame(frame, direction)


class PipecatCall:
    """A pipeline of the service and a consumer."""

    def __init__(self, worker: PipelineWorker, consumer: _Consumer) -> None:
        self._worker = worker
        self._consumer = consumer
        self.recording = consumer.recording

    async def say(self, text: AsyncIterable[str]) -> None:
        self._consumer.stopped.clear()
        await self._worker.queue_frame(LLMFullResponseStartFrame())
        async for fragment in text:
            await self._worker.queue_frame(LLMTextFrame(fragment))
        await self._worker.queue_frame(LLMFullResponseEndFrame())
        await self._consumer.stopped.wait()

    async def announce(self, text: str) -> None:
        """Speak a turn that no LLM wrote, in one frame."""
        self._consumer.stopped.clear()
        await self._worker.queue_frame(TTSSpeakFrame(text))
        await self._consumer.stopped.wait()

    async def interrupt(self) -> None:
        self._consumer.interrupted.clear()
        await self._worker.queue_frame(InterruptionFrame())
        await self._consumer.interrupted.wait()


class LiveKitCall:
    """The streams of one TTS, read as a session's agent would."""

    def __init__(self, tts: livekit_tts.TTS[Never]) -> None:
        self._tts = tts
        self._stream: livekit_tts.SynthesizeStream | None = None
        self.recording = Recording()

    async def say(self, text: AsyncIterable[str]) -> None:
        async with self._tts.stream() as stream:
            self._stream = stream
            reading = asyncio.create_task(self._read(stream))
            async for fragment in text:
                stream.push_text(fragment)
            stream.end_input()
            await reading

    async def _read(self, stream: livekit_tts.SynthesizeStream) -> None:
        async for event in stream:
            self.recording.play(bytes(event.frame.data), event.frame.sample_rate)

    async def interrupt(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()


@asynccontextmanager
async def pipecat_call(engine: Engine, *, early: bool = True) -> AsyncIterator[PipecatCall]:
    async with pipecat_call_of(EngineTTSService(engine, early=early)) as call:
        yield call


@asynccontextmanager
async def pipecat_call_of(service: TTSService) -> AsyncIterator[PipecatCall]:
    consumer = _Consumer(Recording())
    worker = PipelineWorker(
        Pipeline([service, consumer]),
        params=PipelineParams(audio_out_sample_rate=24000),
        cancel_on_idle_timeout=False,
        enable_rtvi=False,
    )
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")  # type: ignore[untyped-decorator]
    async def note(*_: object) -> None:
        started.set()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await started.wait()
    yield PipecatCall(worker, consumer)
    await worker.queue_frame(EndFrame())
    await running


@asynccontextmanager
async def livekit_call(engine: Engine, *, early: bool = True) -> AsyncIterator[LiveKitCall]:
    tts = EngineTTS(engine, early=early)
    yield LiveKitCall(tts)
    await tts.aclose()


CALLS: dict[str, Callable[..., AbstractAsyncContextManager[Call]]] = {
    "Pipecat": pipecat_call,
    "LiveKit": livekit_call,
}
