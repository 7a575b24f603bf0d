"""An engine that learns voices, as a stranger would write it."""

from __future__ import annotations

import asyncio
import io
import wave
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import numpy as np

from tests.hearing import pitch
from tts_plugins.errors import VoiceNotFoundError
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

RATE = 24_000


class Mimic:
    """Beeps 60 ms a character: at the pitch of the recording that the voice was learnt from.

    Args:
        gate: What learning waits for.
        error: What learning raises.
    """

    def __init__(
        self, *, gate: asyncio.Event | None = None, error: Exception | None = None
    ) -> None:
        self.pitches: dict[str | None, float] = {None: 440.0, "own": 440.0}
        self.clips: list[tuple[str, bytes, str]] = []
        """What it was given to learn: the name, the recording, what is said in it."""
        self.gate = gate
        self.error = error
        self.learning = self.most_learning = 0

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        if request.voice not in self.pitches:
            raise VoiceNotFoundError(request.voice or "", [name for name in self.pitches if name])
        hertz = self.pitches[request.voice]
        t = np.arange(round(0.06 * len(request.text) * RATE)) / RATE
        samples = (0.3 * np.sin(2 * np.pi * hertz * t)).astype(np.float32)
        for start in range(0, len(samples), 2400):
            await asyncio.sleep(0)
            yield AudioChunk(samples[start : start + 2400], RATE)

    async def voices(self) -> Sequence[Voice]:
        return [Voice(name, "und") for name in self.pitches if name]

    async def aclose(self) -> None:
        pass

    async def clone(self, name: str, reference: Path | bytes, *, transcript: str = "") -> Voice:
        assert isinstance(reference, bytes)
        self.clips.append((name, reference, transcript))
        self.learning += 1
        self.most_learning = max(self.learning, self.most_learning)
        try:
            if self.gate:
                await self.gate.wait()
            if self.error:
                raise self.error
            self.pitches[name] = heard(reference)
        finally:
            self.learning -= 1
        return Voice(name, "und")

    async def forget(self, voice: str) -> None:
        del self.pitches[voice]


def heard(wav: bytes) -> float:
    """The pitch of a WAV."""
    with wave.open(io.BytesIO(wav)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        return pitch(file.readframes(file.getnframes()), file.getframerate())


def recording(
    hertz: float = 330, *, seconds: float = 1.0, rate: int = 16_000, level: float = 0.3
) -> bytes:
    """A WAV of a tone."""
    t = np.arange(round(seconds * rate)) / rate
    pcm = (32767 * level * np.sin(2 * np.pi * hertz * t)).astype("<i2").tobytes()
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(rate)
        wav.writeframes(pcm)
    return file.getvalue()
