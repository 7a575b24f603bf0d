"""float32 samples to and from 16-bit PCM: the only place that scales and clips."""

from __future__ import annotations

import numpy as np

from tts_plugins.types import Samples

_SCALE = np.float32(32768.0)


def to_s16(samples: Samples) -> bytes:
    """Encode as signed 16-bit little-endian; what is outside [-1, 1) clips, NaN is silence."""
    scaled = np.nan_to_num(np.rint(samples * _SCALE), nan=0.0)
    pcm: bytes = np.clip(scaled, -32768, 32767).astype("<i2").tobytes()
    return pcm


def from_s16(pcm: bytes) -> Samples:
    """Decode signed 16-bit little-endian. Undoes to_s16 exactly, for all 65,536 values."""
    return np.frombuffer(pcm, "<i2").astype(np.float32) / _SCALE
