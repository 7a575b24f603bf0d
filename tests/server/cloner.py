"""An engine that learns voices, as a stranger would write it."""

from __future__ import annotations

import asyncio
import io
import wave
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.hearing import pitch
from tts_plugins.audio.pcm import to_s16
from tts_plugins.errors import VoiceNotFoundError
from tts_plugins.library import VoiceLibrary
from tts_plugins.types import AudioChunk, Reference, SynthesisRequest, Voice

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
        for chunk in beep(request.text, self.pitches[request.voice]):
            await asyncio.sleep(0)
            yield chunk

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

    async def rename(self, voice: str, new: str) -> Voice:
        self.pitches[new] = self.pitches.pop(voice)
        return Voice(new, "und")


class Parrot:
    """A Mimic as a BlockingEngine, which keeps what it has learnt.

    Args:
        folder: Where; ``None`` for that of the tests.
    """

    sample_rate = RATE

    def __init__(self, folder: Path | None = None) -> None:
        self.learnt: list[AudioChunk] = []
        """What it listened to."""
        self._library = VoiceLibrary[NDArray[np.float32]](
            "parrot", "one", save=_save, load=_load, suffix=".npy", folder=folder
        )

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        hertz = 440.0
        if request.voice not in (None, "own"):
            learnt = self._library.find(request.voice)
            if learnt is None:
                raise VoiceNotFoundError(request.voice, [voice.id for voice in self.voices()])
            hertz = float(learnt[0])
        yield from beep(request.text, hertz)

    def voices(self) -> Sequence[Voice]:
        return [Voice("own", "und"), *self._library.voices()]

    def clone(self, name: str, reference: Reference, *, transcript: str = "") -> Voice:
        return self._library.learn(
            name, reference, self._listen, transcript=transcript, taken=["own"]
        )

    def forget(self, voice: str) -> None:
        self._library.forget(voice)

    def rename(self, voice: str, new: str) -> Voice:
        return self._library.rename(voice, new, taken=["own"])

    def close(self) -> None:
        pass

    def _listen(self, clip: AudioChunk) -> NDArray[np.float32]:
        self.learnt.append(clip)
        return np.array([pitch(to_s16(clip.samples), clip.sample_rate)], np.float32)


def _save(what: NDArray[np.float32], path: Path) -> None:
    np.save(path, what, allow_pickle=False)


def _load(path: Path) -> NDArray[np.float32]:
    what: NDArray[np.float32] = np.load(path, allow_pickle=False)
    return what


def beep(text: str, hertz: float) -> Generator[AudioChunk, None, None]:
    t = np.arange(round(0.06 * len(text) * RATE)) / RATE
    samples = (0.3 * np.sin(2 * np.pi * hertz * t)).astype(np.float32)
    for start in range(0, len(samples), 2400):
        yield AudioChunk(samples[start : start + 2400], RATE)


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
