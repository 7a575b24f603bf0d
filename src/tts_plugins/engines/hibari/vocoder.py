"""Turn the network's spectra into samples, a few frames at a time.

The result is bit for bit what ``hibari.dsp.synth`` makes of all frames at once, however they are
cut. One frame is 1200 samples long and starts 300 after the one before it, so a block of 300
samples is final when two more frames are known::

    frame b-1  [ 0 | 1 | 2 |(3)]
    frame b        [ 0 | 1 |(2)| 3 ]
    frame b+1          [ 0 |(1)| 2 | 3 ]
    frame b+2              [(0)| 1 | 2 | 3 ]
    block b                 ^^^
"""

from __future__ import annotations

from typing import cast

import numpy as np
from hibari import dsp
from numpy.typing import NDArray

from tts_plugins.types import Samples

Spectra = NDArray[np.float32]
"""Five parts of 601 bins side by side, one row per frame: shape [n, 3005]."""

Noise = NDArray[np.complex64]
"""Shape [n, 601]."""

SAMPLE_RATE: int = dsp.SR
HOP: int = dsp.HOP
BINS: int = dsp.N_FFT // 2 + 1
PARTS = 5
LOOKAHEAD = 2
"""Frames that must be known beyond a block before it is final."""

_OVERLAP: int = dsp.N_FFT // HOP
_HALF: int = dsp.N_FFT // 2
_VOICED_ABOVE = np.float32(40.0)
"""Hertz: below it hibari takes a frame for unvoiced."""
_HIGHEST_HARMONIC = 11_000.0

_AHEAD = (((np.arange(HOP) + 0.5) / HOP - 0.5) % 1.0).astype(np.float32)
_BEHIND = (1.0 - _AHEAD).astype(np.float32)
_POWER = (dsp.WIN * dsp.WIN).reshape(_OVERLAP, HOP)


def draw_noise(rng: np.random.Generator, n: int) -> Noise:
    """The next ``n`` frames of noise.

    Drawn frame by frame, where hibari draws bin by bin: so a seed gives the same noise however
    the frames are cut.
    """
    pairs = rng.standard_normal((n, BINS, 2), dtype=np.float32)
    return pairs.view(np.complex64)[..., 0]


class PulseTrain:
    """The buzz of the vocal cords: every harmonic of a pitch curve, in blocks of 300 samples.

    Args:
        pitch: Hertz, one value per frame, shape [frames].
    """

    def __init__(self, pitch: NDArray[np.float32]) -> None:
        self._pitch = np.pad(pitch, 1, mode="edge")
        self._block = 0
        self._cycles = np.zeros(1)

    def skip(self, n: int) -> None:
        """Leave out ``n`` blocks; the phase goes on as if they had been read."""
        if n > 0:
            self._advance(self._hertz(n))

    def read(self, n: int) -> Samples:
        """The next ``n`` blocks."""
        hertz = self._hertz(n)
        voiced = hertz > _VOICED_ABOVE
        phase = self._advance(hertz)
        np.maximum(hertz, _VOICED_ABOVE, out=hertz)
        # Sum of cosines in closed form; where its denominator vanishes, its limit.
        harmonics = np.floor(_HIGHEST_HARMONIC / hertz)
        harmonics += 0.5
        below = np.sin(phase * 0.5)
        below *= 2
        peak = np.abs(below) <= 2e-3
        pulses = np.sin(harmonics * phase)
        below[peak] = 1
        pulses /= below
        pulses[peak] = harmonics[peak]
        pulses -= 0.5
        pulses[~voiced] = 0
        return cast("Samples", pulses)

    def _hertz(self, n: int) -> NDArray[np.float32]:
        """Pitch of each sample: linear between the middles of frames, shape [n * 300]."""
        near = self._pitch[self._block : self._block + n + 2, None]
        half = HOP // 2
        hertz = np.empty((n, HOP), np.float32)
        hertz[:, :half] = near[:-2] * _BEHIND[:half]
        hertz[:, :half] += near[1:-1] * _AHEAD[:half]
        hertz[:, half:] = near[1:-1] * _BEHIND[half:]
        hertz[:, half:] += near[2:] * _AHEAD[half:]
        self._block += n
        return hertz.reshape(-1)

    def _advance(self, hertz: NDArray[np.float32]) -> NDArray[np.float32]:
        """Phase of each sample in radians. The sum is carried in float64, in hibari's order."""
        steps = np.concatenate([self._cycles, np.maximum(hertz, _VOICED_ABOVE)])
        cycles = np.cumsum(steps)[1:]
        self._cycles = cycles[-1:].copy()
        cycles *= 1.0 / SAMPLE_RATE
        np.modf(cycles, cycles)
        cycles *= 2 * np.pi
        return cycles.astype(np.float32)


class Vocoder:
    """Push spectra and noise of consecutive frames, get the samples that are final.

    Only blocks ``start`` to ``stop`` come out, equal to that slice of the whole; they need the
    frames from ``first`` up to ``end``.

    Args:
        pitch: Hertz of every frame of the utterance, shape [frames].
        start: First block wanted.
        stop: Block after the last one wanted.
    """

    def __init__(self, pitch: NDArray[np.float32], start: int, stop: int) -> None:
        self._frames = len(pitch)
        self.first = max(0, start - 1)
        self.end = min(self._frames, stop + LOOKAHEAD)
        self._start, self._stop = start, stop
        self._next = self.first
        self._pulses = PulseTrain(pitch)
        self._heard = max(0, self.first - 2)
        self._pulses.skip(self._heard)
        # Samples of the pulse train from two blocks before the next frame; filled by _source.
        self._buzz: Samples | None = None
        self._recent = np.zeros((_OVERLAP - 1, _OVERLAP, HOP), np.float32)

    def push(self, spectra: Spectra, noise: Noise) -> Samples:
        """Samples that ``spectra`` [n, 3005] and ``noise`` [n, 601] make final; may be none."""
        a, b = self._next, self._next + len(spectra)
        frames = dsp.irfft(_spectrum(self._source(a, b), spectra, noise), dsp.N_FFT, 1)
        frames *= dsp.WIN
        known = np.concatenate([self._recent, frames.reshape(-1, _OVERLAP, HOP)])
        self._recent = known[-(_OVERLAP - 1) :]
        self._next = b
        # Block numbers from here on count from where frame 0 starts: two before sample 0.
        low = max(a, self._start + 2)
        high = self._stop + 2 if b == self.end else min(b, self._stop + 2)
        if high <= low:
            return np.zeros(0, np.float32)
        missing = max(0, high - b)
        known = np.concatenate([known, np.zeros((missing, _OVERLAP, HOP), np.float32)])
        blocks = np.zeros((high - low, HOP), np.float32)
        for part in range(_OVERLAP):
            row = low - part - a + _OVERLAP - 1
            blocks += known[row : row + high - low, part]
        blocks *= self._gain(low, high)
        return blocks.reshape(-1)

    def _source(self, a: int, b: int) -> NDArray[np.complex64]:
        """Spectra of the pulse train in frames ``a`` to ``b``, shape [b - a, 601]."""
        # The signal is mirrored at both ends; the left mirror reaches one sample into block 2.
        reach = min(max(b + 1, 3), self._frames)
        fresh = self._pulses.read(reach - self._heard) if reach > self._heard else None
        self._heard = max(reach, self._heard)
        if self._buzz is None:
            if fresh is None:
                fresh = np.zeros(0, np.float32)
            mirrored = (2 - a) * HOP
            self._buzz = np.concatenate([fresh[1 : mirrored + 1][::-1], fresh]) if a < 2 else fresh
        elif fresh is not None:
            self._buzz = np.concatenate([self._buzz, fresh])
        buzz = self._buzz
        if b + 1 > self._frames:
            beyond = (b + 1 - self._frames) * HOP
            buzz = np.concatenate([buzz, buzz[-beyond - 1 : -1][::-1]])
        windows = np.lib.stride_tricks.sliding_window_view(buzz, dsp.N_FFT)[::HOP][: b - a]
        self._buzz = self._buzz[(b - a) * HOP :]
        return cast("NDArray[np.complex64]", dsp.rfft(windows * dsp.WIN_SRC, 1))

    def _gain(self, low: int, high: int) -> NDArray[np.float32]:
        """What undoes the windows: less of them overlap at the ends of the utterance."""
        total = np.zeros((high - low, HOP), np.float32)
        blocks = np.arange(low, high)
        for part in range(_OVERLAP):
            inside = (blocks - part >= 0) & (blocks - part < self._frames)
            total[inside] += _POWER[part]
        return cast("NDArray[np.float32]", 1.0 / np.maximum(total, 1e-11))


def _spectrum(
    source: NDArray[np.complex64], spectra: Spectra, noise: Noise
) -> NDArray[np.complex64]:
    """The buzz through its filter, plus shaped noise, plus a part of free phase."""
    loud, turn, hiss, free, phase = np.split(spectra, PARTS, axis=1)
    rotation = np.empty(loud.shape, np.complex64)
    angle = np.tanh(turn)
    angle *= np.pi
    np.cos(angle, out=rotation.real)
    np.sin(angle, out=rotation.imag)
    rotation *= dsp.ex(loud)
    source *= rotation
    source += noise * dsp.ex(hiss)
    np.cos(phase, out=rotation.real)
    np.sin(phase, out=rotation.imag)
    rotation *= dsp.ex(free)
    source += rotation
    return source
