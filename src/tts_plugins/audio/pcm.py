"""float32 samples to and from PCM: the only place that scales and clips."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol

import numpy as np

from tts_plugins.types import Samples

_SCALE = np.float32(32768.0)

Encoding = Literal["u8", "s16", "s24", "s32", "f32", "f64", "ulaw", "alaw"]
"""How a sample is written down. Everything of more than one byte is little-endian."""

WIDTHS: Mapping[Encoding, int] = {
    "u8": 1,
    "s16": 2,
    "s24": 3,
    "s32": 4,
    "f32": 4,
    "f64": 8,
    "ulaw": 1,
    "alaw": 1,
}
"""Bytes of one sample."""


def to_s16(samples: Samples) -> bytes:
    """Encode as signed 16-bit little-endian; what is outside [-1, 1) clips, NaN is silence."""
    scaled = samples * _SCALE
    np.rint(scaled, out=scaled)
    np.clip(scaled, -32768, 32767, out=scaled)
    if np.isnan(scaled.sum()):  # to look at each sample takes four times as long
        scaled[np.isnan(scaled)] = 0
    pcm: bytes = scaled.astype("<i2").tobytes()
    return pcm


def from_s16(pcm: bytes) -> Samples:
    """Decode signed 16-bit little-endian. Undoes to_s16 exactly, for all 65,536 values."""
    return np.frombuffer(pcm, "<i2").astype(np.float32) / _SCALE


def joined(parts: Iterable[Samples]) -> Samples:
    """One run of samples from several, or from none."""
    return np.concatenate([np.zeros(0, np.float32), *parts])


LOWEST_RATE, HIGHEST_RATE = 4_000, 768_000
"""Hertz of audio that can be meant. At 1 Hz a kilobyte would become minutes, and then gigabytes."""

_MOST_CHANNELS = 64


class AudioReader(Protocol):
    """Bytes of a body in, as they come; mono samples out.

    However the bytes are cut into pushes, the samples are the same. Bytes that can't be what
    they should be are a ValueError, in push or in flush.
    """

    @property
    def sample_rate(self) -> int:
        """Hertz. 0 until it is known, which it is when samples come back."""
        ...

    def push(self, data: bytes) -> Samples:
        """Take the next bytes; return the samples that are now complete."""
        ...

    def flush(self) -> Samples:
        """End the body; return what was held back. ValueError if the body was cut short."""
        ...


class PcmReader:
    """Reads samples that stand bare, one after the other.

    Args:
        sample_rate: Rate of what is pushed, in hertz.
        encoding: How a sample is written down.
        channels: Samples of a frame; they are averaged.
    """

    def __init__(self, sample_rate: int, encoding: Encoding = "s16", channels: int = 1) -> None:
        if not LOWEST_RATE <= sample_rate <= HIGHEST_RATE or not 1 <= channels <= _MOST_CHANNELS:
            raise ValueError(f"audio of {channels} channels at {sample_rate} Hz can't be played")
        self.sample_rate = sample_rate
        self.frame = WIDTHS[encoding] * channels
        """Bytes of one frame: a sample of each channel."""
        self._channels = channels
        self._decode = _decoder(encoding)
        self._rest = b""

    def push(self, data: bytes) -> Samples:
        """Take the next bytes; return the samples of all frames that are whole."""
        data = self._rest + data
        whole = len(data) - len(data) % self.frame
        self._rest = data[whole:]
        samples = self._decode(data[:whole])
        if self._channels == 1:
            return samples
        # In float64 a sum doesn't depend on the order in which numpy adds it up.
        frames = samples.reshape(-1, self._channels)
        mono: Samples = frames.mean(axis=1, dtype=np.float64).astype(np.float32)
        return mono

    def flush(self) -> Samples:
        """End the body. A part of a frame is dropped.

        Bare PCM doesn't say how long it is, so a part of a frame doesn't prove a cut; and no
        listener misses a fraction of one sample as much as the words before it.
        """
        self._rest = b""
        return joined([])


def _decoder(encoding: Encoding) -> Callable[[bytes], Samples]:
    # Imported here because G.711 is written in terms of to_s16 and from_s16.
    from tts_plugins.audio.g711 import from_alaw, from_ulaw

    decoders: dict[Encoding, Callable[[bytes], Samples]] = {
        "u8": _from_u8,
        "s16": from_s16,
        "s24": _from_s24,
        "s32": _from_s32,
        "f32": lambda data: _from_float(data, "<f4"),
        "f64": lambda data: _from_float(data, "<f8"),
        "ulaw": from_ulaw,
        "alaw": from_alaw,
    }
    return decoders[encoding]


def _from_u8(data: bytes) -> Samples:
    return (np.frombuffer(data, "u1").astype(np.float32) - np.float32(128)) / np.float32(128)


def _from_s24(data: bytes) -> Samples:
    # Moved to the upper three bytes of 32 bits, where the sign stands right.
    wide = np.zeros((len(data) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
    return _from_s32(wide.tobytes())


def _from_s32(data: bytes) -> Samples:
    return np.frombuffer(data, "<i4").astype(np.float32) / np.float32(2**31)


def _from_float(data: bytes, dtype: str) -> Samples:
    samples = np.clip(np.nan_to_num(np.frombuffer(data, dtype), nan=0.0), -1.0, 1.0)
    narrow: Samples = samples.astype(np.float32)
    return narrow
