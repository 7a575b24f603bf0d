"""Engines for timing and faults. Never the only proof of anything."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence

import numpy as np

from tts_plugins.engines.tone import ToneEngine
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice


class ScriptedEngine:
    """An async engine that gives what it was told to: chunks, or errors to raise in their place."""

    def __init__(self, *script: AudioChunk | Exception) -> None:
        self.script = script
        self.requests: list[SynthesisRequest] = []
        self.closed = False

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        self.requests.append(request)
        for item in self.script:
            if isinstance(item, Exception):
                raise item
            yield item

    async def voices(self) -> Sequence[Voice]:
        return [Voice("scripted", "und")]

    async def aclose(self) -> None:
        self.closed = True


def tone(seconds: float, rate: int = 24000) -> AudioChunk:
    """A chunk of a beep without words."""
    t = np.arange(round(seconds * rate)) / rate
    return AudioChunk((0.2 * np.sin(2 * np.pi * 440 * t)).astype(np.float32), rate)


def silence(seconds: float, rate: int = 24000) -> AudioChunk:
    return AudioChunk(np.zeros(round(seconds * rate), np.float32), rate)


class PausingEngine(ToneEngine):
    """The tone, and 100 ms of silence behind each text."""

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        yield from super().synthesize(request)
        yield silence(0.1)


class WordlessEngine:
    """Beeps 60 ms a character in chunks of 100 ms, and reports no words."""

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        samples = tone(0.06 * len(request.text) / request.speed).samples
        for start in range(0, len(samples), 2400):
            yield AudioChunk(samples[start : start + 2400], 24000)

    def voices(self) -> Sequence[Voice]:
        return [Voice("wordless", "und")]

    def close(self) -> None:
        pass
