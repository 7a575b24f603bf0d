"""The nouns of tts_plugins: what goes into an engine and what comes out.

Units, everywhere in the package: time is in seconds (``float``), rates are in hertz (``int``),
samples are mono ``float32`` in [-1, 1] of shape ``[n]``. Sample counts are the truth; seconds
are derived from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
"""Mono PCM, float32 in [-1, 1], shape [n]."""


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice that an engine can speak with."""

    id: str
    """What to pass as ``SynthesisRequest.voice``."""

    language: str
    """BCP 47 tag, such as ``en-US``; ``und`` when it has none."""

    description: str = ""

    ready: bool = True
    """False when the first request for it has to download something."""


@dataclass(frozen=True, slots=True)
class SynthesisRequest:
    """One utterance to speak: usually a sentence, at most a few hundred characters."""

    text: str

    voice: str | None = None
    """Voice id; ``None`` means the engine's own default."""

    language: str | None = None
    """BCP 47 tag; ``None`` means the voice's own language."""

    speed: float = 1.0
    """Ratio to the voice's natural pace: 2.0 is twice as fast."""

    previous_text: str = ""
    """What was spoken just before, for engines that carry prosody across sentences."""

    due: float = 0.0
    """Seconds until the listener needs the first sample; 0 when already waiting, and infinite for
    one who waits for the whole, as fast as that can be had without harm to others."""

    options: Mapping[str, object] = field(default_factory=dict)
    """Engine-specific knobs. An engine raises InvalidRequestError for one it doesn't know."""


@dataclass(frozen=True, slots=True)
class Word:
    """When one word of the request is heard."""

    text: str

    offset: int
    """Where it stands: ``request.text[offset : offset + len(text)] == text``."""

    start: float
    """Seconds from the first sample of the utterance."""

    end: float
    """Seconds from the first sample of the utterance."""

    exact: bool = True
    """False when the times were estimated rather than reported by the engine."""


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """A run of consecutive samples, and the words that start inside it."""

    samples: Samples
    sample_rate: int
    words: tuple[Word, ...] = ()

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate


Reference = str | PathLike[str] | bytes | AudioChunk
"""A recording to clone a voice from: a path to an audio file, the bytes of one, or samples."""
