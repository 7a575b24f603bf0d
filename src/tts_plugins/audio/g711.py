"""float32 samples to and from the telephone's mu-law and A-law, by table.

A code is eight bits, inverted on the line (mu-law: all of them, A-law: every other)::

    sign | segment | step       a segment is twice as wide as the one before it
      7    6  5  4   3 2 1 0    and has 16 steps

The tables are those of ITU-T G.711, for samples of 16 bits. They are worked out when first
asked for, which takes about a millisecond.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tts_plugins.audio.pcm import from_s16, to_s16
from tts_plugins.types import Samples

_BIAS = 0x21
"""What mu-law adds to a magnitude of 14 bits, so that each segment begins at a power of 2."""


def to_ulaw(samples: Samples) -> bytes:
    """Encode as mu-law, one byte a sample."""
    codes: bytes = _ulaw_codes()[np.frombuffer(to_s16(samples), "<u2")].tobytes()
    return codes


def from_ulaw(codes: bytes) -> Samples:
    """Decode mu-law."""
    return _ulaw_samples()[np.frombuffer(codes, np.uint8)]


def to_alaw(samples: Samples) -> bytes:
    """Encode as A-law, one byte a sample."""
    codes: bytes = _alaw_codes()[np.frombuffer(to_s16(samples), "<u2")].tobytes()
    return codes


def from_alaw(codes: bytes) -> Samples:
    """Decode A-law."""
    return _alaw_samples()[np.frombuffer(codes, np.uint8)]


@cache
def _ulaw_samples() -> Samples:
    sign, segment, step = _fields(0xFF)
    magnitude = ((2 * step + _BIAS << segment) - _BIAS) << 2
    return _table(np.where(sign, -magnitude, magnitude))


@cache
def _alaw_samples() -> Samples:
    sign, segment, step = _fields(0x55)
    # The lowest two segments are of one width: the second has its leading one, the first not.
    magnitude = (2 * step + 1 + 32 * (segment > 0) << np.maximum(segment - 1, 0)) << 3
    return _table(np.where(sign, magnitude, -magnitude))


@cache
def _ulaw_codes() -> NDArray[np.uint8]:
    sample = _every_sample() >> 2
    magnitude = np.minimum(np.abs(sample), 0x1FFF - _BIAS) + _BIAS
    segment = _bits(magnitude) - 6
    code = segment << 4 | (magnitude >> segment + 1) & 0xF
    inverted: NDArray[np.uint8] = (code ^ np.where(sample < 0, 0x7F, 0xFF)).astype(np.uint8)
    return inverted


@cache
def _alaw_codes() -> NDArray[np.uint8]:
    sample = _every_sample() >> 3
    magnitude = np.where(sample < 0, ~sample, sample)
    segment = np.maximum(_bits(magnitude) - 5, 0)
    code = segment << 4 | (magnitude >> np.maximum(segment, 1)) & 0xF
    inverted: NDArray[np.uint8] = (code ^ np.where(sample < 0, 0x55, 0xD5)).astype(np.uint8)
    return inverted


def _fields(inverted: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Sign, segment and step of all 256 codes."""
    codes = np.arange(256) ^ inverted
    return codes & 0x80, codes >> 4 & 0x7, codes & 0xF


def _every_sample() -> NDArray[np.int64]:
    """All samples, where their bits read as an unsigned number stand."""
    return np.arange(65_536, dtype=np.uint16).astype(np.int16).astype(np.int64)


def _bits(magnitude: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many bits a number takes: 0 for 0, 1 for 1, 2 for 3."""
    return np.frexp(magnitude)[1].astype(np.int64)


def _table(samples: NDArray[np.int64]) -> Samples:
    return from_s16(samples.astype("<i2").tobytes())
