"""A beep per word instead of a voice: no model, exact times, the same audio every time."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence

import numpy as np

from tts_plugins.errors import UnspeakableTextError, VoiceNotFoundError
from tts_plugins.options import Options, check_speed
from tts_plugins.text.words import speakable
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

_WORD = re.compile(r"\S+")
_SECONDS_PER_CHARACTER = 0.06


class ToneEngine:
    """Beeps 60 ms a character, one chunk per word. For tests, demos and tutorials.

    Args:
        frequency: Pitch of the beep in hertz.
        sample_rate: Rate of the chunks in hertz.
    """

    def __init__(self, *, frequency: float = 440.0, sample_rate: int = 24_000) -> None:
        self._frequency = frequency
        self.sample_rate = sample_rate

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        if request.voice not in (None, "tone"):
            raise VoiceNotFoundError(request.voice, ["tone"])
        Options("tone", request.options, {})
        check_speed(request.speed, 0.25, 4.0)
        if not speakable(request.text):
            raise UnspeakableTextError("no letter or digit in the text")
        spoken = 0
        for match in _WORD.finditer(request.text):
            seconds = _SECONDS_PER_CHARACTER * len(match[0]) / request.speed
            n = round(seconds * self.sample_rate)
            # Phase counts from the start of the utterance, so that the beep has no seams.
            t = np.arange(spoken, spoken + n) / self.sample_rate
            samples = (0.2 * np.sin(2 * np.pi * self._frequency * t)).astype(np.float32)
            start, end = spoken / self.sample_rate, (spoken + n) / self.sample_rate
            yield AudioChunk(
                samples, self.sample_rate, (Word(match[0], match.start(), start, end),)
            )
            spoken += n

    def voices(self) -> Sequence[Voice]:
        return [Voice("tone", "und", "A beep per word")]

    def close(self) -> None:
        pass
