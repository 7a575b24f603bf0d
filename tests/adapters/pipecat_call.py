"""A Pipecat pipeline around one service, without a network: what goes in, what comes out, when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    OutputAudioRawFrame,
    StartFrame,
    TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

F = TypeVar("F", bound=Frame)

RATE = 8000


@contextmanager
def logged(level: str = "DEBUG") -> Iterator[list[str]]:
    """What Pipecat logs meanwhile. Nothing of it is printed."""
    messages: list[str] = []
    logger.remove()
    sink = logger.add(lambda message: messages.append(str(message)), level=level)
    yield messages
    logger.remove(sink)


def turn(*tokens: str) -> list[Frame]:
    """What an LLM service sends for one answer."""
    texts = [LLMTextFrame(token) for token in tokens]
    return [LLMFullResponseStartFrame(), *texts, LLMFullResponseEndFrame()]


class Call:
    """A call that runs: send frames, wait for what comes of them, look at all that came.

    Args:
        tts: The service, or whatever stands in its place.
        sink: Where the audio goes. Without one it is as if everything were played at once.
        context: Where the conversation is kept.
        rate: Of the pipeline, in hertz.
    """

    def __init__(
        self,
        tts: FrameProcessor,
        *,
        sink: FrameProcessor | None = None,
        context: LLMContext | None = None,
        rate: int = RATE,
        **params: Any,
    ) -> None:
        self.down: list[Frame] = []
        self.up: list[Frame] = []
        self._came = asyncio.Event()
        processors = [_Recorder(self.up, self._came), tts, _Recorder(self.down, self._came)]
        if sink is not None:
            processors.insert(2, sink)
        if context is not None:
            processors.append(LLMContextAggregatorPair(context).assistant())
        self.worker = PipelineWorker(
            Pipeline(processors),
            params=PipelineParams(audio_out_sample_rate=rate, **params),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )

    async def __aenter__(self) -> Self:
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self.worker)
        self._running = asyncio.create_task(runner.run())
        await self.until(lambda: any(isinstance(frame, StartFrame) for frame in self.down))
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._running.done():
            await self.send(EndFrame())
        await asyncio.wait_for(self._running, 10)

    async def send(self, *frames: Frame) -> None:
        await self.worker.queue_frames(frames)

    async def cancel(self) -> None:
        await self.worker.cancel()
        await asyncio.wait_for(self._running, 10)

    async def until(self, condition: Callable[[], bool], timeout: float = 10.0) -> None:
        """Wait for ``condition``, which is looked at with every frame."""
        async with asyncio.timeout(timeout):
            while not condition():
                self._came.clear()
                await self._came.wait()

    async def after(self, kind: type[Frame], count: int = 1) -> None:
        """Wait until ``count`` frames of a kind have come."""
        await self.until(lambda: len(self.all(kind)) >= count)

    def all(self, kind: type[F]) -> list[F]:
        """What came downstream of one kind."""
        return [frame for frame in self.down if isinstance(frame, kind)]

    @property
    def names(self) -> list[str]:
        """The kinds of all that came downstream, a run of one kind as one."""
        names: list[str] = []
        for frame in self.down:
            name = type(frame).__name__.removesuffix("Frame")
            if name not in ("Start", "End", "AggregatedTextProgress") and names[-1:] != [name]:
                names.append(name)
        return names

    @property
    def errors(self) -> list[ErrorFrame]:
        return [frame for frame in self.up if isinstance(frame, ErrorFrame)]

    @property
    def audio(self) -> bytes:
        return b"".join(frame.audio for frame in self.all(TTSAudioRawFrame))


class _Recorder(FrameProcessor):
    """Keeps what passes in one direction: upstream in front of a service, downstream behind it."""

    def __init__(self, frames: list[Frame], came: asyncio.Event) -> None:
        super().__init__(enable_direct_mode=True)
        self._frames = frames
        self._came = came

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if direction is FrameDirection.DOWNSTREAM or isinstance(frame, ErrorFrame):
            self._frames.append(frame)
            self._came.set()
        await self.push_frame(frame, direction)


class RealtimeSink(BaseOutputTransport):
    """A transport's output that plays by the clock, to nobody."""

    def __init__(self) -> None:
        super().__init__(TransportParams(audio_out_enabled=True, audio_out_end_silence_secs=0))
        self.heard = bytearray()
        self.began: float | None = None
        self._free_at = 0.0

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        now = time.monotonic()
        self.began = self.began or now
        self.heard += frame.audio
        self._free_at = max(self._free_at, now) + frame.num_frames / frame.sample_rate
        await asyncio.sleep(self._free_at - now)
        return True
