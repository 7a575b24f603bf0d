"""What a tone sounds like, by numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def pitch(heard: bytes | NDArray[Any], rate: int) -> float:
    """The loudest frequency of samples, or of 16-bit PCM, in hertz, to a sixteenth of one."""
    samples = np.frombuffer(heard, "<i2") if isinstance(heard, bytes) else heard
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), 16 * rate))
    return float(spectrum.argmax()) / 16
