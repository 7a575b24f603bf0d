"""An engine of your own, in one file: it has the voices of another engine whisper.

scripts/agent custom_engine                    # checks it, and writes out/whisper.wav
scripts/agent custom_engine "Come closer."     # with a text of yours
TTS=piper scripts/agent custom_engine          # with the voice of another engine

In a package of your own, as tts_whisper.py, it is found by its name everywhere once this stands in
the package's pyproject.toml:

    [project]
    name = "tts-whisper"
    version = "0.1.0"
    dependencies = ["tts-plugins"]

    [project.entry-points."tts_plugins.engines"]
    whisper = "tts_whisper:WhisperEngine"
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from tts_plugins import AudioChunk, BlockingEngine, Scheduler, SynthesisRequest, TTSError, Voice
from tts_plugins.audio.pcm import joined
from tts_plugins.audio.wav import wav_file
from tts_plugins.options import Bounds, Options
from tts_plugins.registry import find_engine
from tts_plugins.testing import checks
from tts_plugins.turn import Turn
from tts_plugins.types import Samples

TEXT = "Come closer. The lighthouse keeper has hidden the key under the third stone."
OUT = Path("out/whisper.wav")
_OPTIONS = {"breath": Bounds(0, 1)}


class WhisperEngine:
    """Whispers. ``options["breath"]: float`` is how much: 0 is the voice as it was, 1 only breath.

    Args:
        of: The engine that lends its voices, one that runs in this process.
    """

    def __init__(self, of: str = "hibari") -> None:
        self._engine: BlockingEngine = find_engine(of).load()()
        self.request_options = (*_OPTIONS, *getattr(self._engine, "request_options", ()))

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        mine = {name: request.options[name] for name in request.options if name in _OPTIONS}
        theirs = {name: request.options[name] for name in request.options if name not in mine}
        breath = Options("whisper", mine, _OPTIONS).number("breath", 1.0)
        whisper: Whisper | None = None
        # What can't be spoken the other engine refuses, and its words stay where they are.
        for chunk in self._engine.synthesize(replace(request, options=theirs)):
            whisper = whisper or Whisper(chunk.sample_rate, breath)
            yield replace(chunk, samples=whisper.push(chunk.samples))
        if whisper:
            yield AudioChunk(whisper.flush(), whisper.sample_rate)

    def voices(self) -> Sequence[Voice]:
        return self._engine.voices()

    def close(self) -> None:
        self._engine.close()


class Whisper:
    """From voice to whisper as it comes: noise takes on the spectrum's outline, 20 ms at a time.

    The outline is the shape of the mouth; what the voice sang through it is left out.
    """

    def __init__(self, sample_rate: int, breath: float) -> None:
        self.sample_rate, self._breath = sample_rate, breath
        self._hop = sample_rate // 100
        # Frames of two hops, half over each other, where the squares add up to 1.
        self._window = np.sin(np.pi * (np.arange(2 * self._hop) + 0.5) / (2 * self._hop))
        hertz = np.fft.rfftfreq(2 * self._hop, 1 / sample_rate)
        self._tilt = hertz / (hertz + 500)  # breath has little of what is low
        self._noise = np.random.default_rng(0)
        self._came, self._fading = np.zeros(0, np.float32), np.zeros(self._hop, np.float32)
        self._owed = 0

    def push(self, samples: Samples) -> Samples:
        """Take the next samples; return what is whispered, all but the last 10 to 20 ms."""
        self._came = joined([self._came, samples])
        done = []
        while len(self._came) >= 2 * self._hop:
            frame = self._frame(self._came[: 2 * self._hop])
            done.append(self._fading + frame[: self._hop])
            self._came, self._fading = self._came[self._hop :], frame[self._hop :]
        self._owed += len(samples) - self._hop * len(done)
        return joined(done)

    def flush(self) -> Samples:
        """End the voice; return the rest: in all as many samples as came."""
        owed = self._owed
        return self.push(np.zeros(2 * self._hop, np.float32))[:owed]

    def _frame(self, samples: Samples) -> Samples:
        voice = samples * self._window
        cepstrum = np.fft.irfft(np.log(np.abs(np.fft.rfft(voice)) + 1e-4), len(voice))
        mouth = self.sample_rate // 700  # what comes again later than that is the tone
        cepstrum[mouth:-mouth] = 0
        noise = np.fft.rfft(self._noise.standard_normal(len(voice)) * self._window)
        breath = np.fft.irfft(noise * np.exp(np.fft.rfft(cepstrum).real) * self._tilt, len(voice))
        breath *= np.sqrt(np.sum(voice**2) / (np.sum(breath**2) + 1e-12))  # as loud as the voice
        mixed = self._breath * breath + (1 - self._breath) * voice
        return (mixed * self._window).astype(np.float32)


async def speak(text: str, of: str) -> AudioChunk:
    """Check the engine, then have it say a text to somebody who listens at 24 kHz."""
    async with aclosing(Scheduler(WhisperEngine(of), max_ahead=math.inf)) as engine:
        async for check in checks(engine):
            print(check, flush=True)
        turn = Turn(engine, sample_rate=24_000)
        async with aclosing(turn.say(text)) as chunks:
            samples = joined([chunk.samples async for chunk in chunks])
    return AudioChunk(samples, turn.sample_rate)


def main() -> None:
    options = argparse.ArgumentParser(description="An engine of your own: it whispers.")
    options.add_argument("text", nargs="?", default=TEXT)
    text: str = options.parse_args().text
    try:
        with suppress(KeyboardInterrupt):
            said = asyncio.run(speak(text, of=os.environ.get("TTS", "hibari")))
            OUT.parent.mkdir(exist_ok=True)
            OUT.write_bytes(wav_file(said))
            print(f"{said.seconds:.1f} s in {OUT}")
    except TTSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
