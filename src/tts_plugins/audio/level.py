"""How loud samples are: where sound begins."""

from __future__ import annotations

import numpy as np

from tts_plugins.types import Samples

AUDIBLE = 0.01
"""Amplitude above which a sample is heard: -40 dBFS."""

FAINT = 0.0025
"""Amplitude below which there is only breath and the noise of a voice: -52 dBFS."""

ONSET = 0.008
"""Seconds before the first sample that isn't faint, in which a sound may begin softly."""


def first_above(samples: Samples, level: float = AUDIBLE) -> int | None:
    """Where the first sample louder than ``level`` is; None where all are as quiet or quieter."""
    loud = np.abs(samples) > level
    return int(np.argmax(loud)) if loud.any() else None


def quiet_front(samples: Samples, sample_rate: int) -> int:
    """Samples in front that can be left out: all faint ones but those in which a sound begins."""
    return max(0, (first_above(samples, FAINT) or 0) - round(ONSET * sample_rate))
