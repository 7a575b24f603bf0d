"""What a tone sounds like, by numbers."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray


def pitch(heard: bytes | NDArray[Any], rate: int) -> float:
    """The loudest frequency of samples, or of 16-bit PCM, in hertz, to a sixteenth of one."""
    samples = np.frombuffer(heard, "<i2") if isinstance(heard, bytes) else heard
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), 16 * rate))
    return float(spectrum.argmax()) / 16


def decoded(body: bytes) -> tuple[NDArray[Any], int]:
    """What FFmpeg makes of a file: mono 16-bit samples, and their rate."""
    with av.open(io.BytesIO(body), "r") as container:
        frames = list(container.decode(audio=0))
    resampler = av.AudioResampler("s16", "mono", frames[0].sample_rate)
    parts = [out.to_ndarray()[0] for frame in frames for out in resampler.resample(frame)]
    return np.concatenate(parts), frames[0].sample_rate
