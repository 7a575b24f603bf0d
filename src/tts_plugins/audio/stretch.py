"""Speak faster or slower at the same pitch, while the audio is still coming in.

For engines whose model has no pace of its own. It is overlap-add of similar waveforms (WSOLA:
Verhelst and Roelands, ICASSP 1993): blocks are taken from the input further apart, or closer
together, than they are put out, and each is moved by a few milliseconds to where it continues the
one before it best, a whole number of periods of the voice away::

    in      |--a--|.....|--b--|.....|--c--|        at speed 2, each moved by up to 9 ms
    out     |--a--|--b--|--c--|                    each faded into the next

What is put out depends on where a block stands in the stream, never on how the stream was cut.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tts_plugins.types import Samples

SLOWEST, FASTEST = 0.5, 2.0
"""Ratios to the pace of the input. Beyond them, sounds are doubled or lost."""

_BLOCK = 0.015
"""Seconds of a block: a period of the deepest voice, and less than any sound of speech."""

_REACH = 0.009
"""Seconds that a block may be moved, each way: a period of 55 Hz in all."""


class StreamStretcher:
    """One stream's way to another pace.

    In all, ``n`` samples become ``round(n / speed)``, what was heard at t seconds is heard at
    ``t / speed``, give or take 10 ms, and the pitch stays. At speed 1 the samples are untouched and
    nothing is held back; at any other, up to 45 ms of the input are. A second of it costs 2 to
    7 ms at 24 kHz, twice that at 48.

    Args:
        sample_rate: Hertz.
        speed: How much faster, ``SLOWEST`` to ``FASTEST``.

    Raises:
        ValueError: The speed is outside that.
    """

    def __init__(self, sample_rate: int, speed: float) -> None:
        if not SLOWEST <= speed <= FASTEST:
            raise ValueError(f"speed {speed} is outside {SLOWEST} to {FASTEST}")
        self.speed = speed
        self._block = round(_BLOCK * sample_rate)
        self._reach = round(_REACH * sample_rate)
        ramp = 0.5 - 0.5 * np.cos(np.pi * (np.arange(self._block) + 0.5) / self._block)
        self._rising = ramp.astype(np.float32)
        self._falling = self._rising[::-1]
        self._heard: Samples = np.zeros(0, np.float32)
        """The input, from sample ``_begin`` on."""
        self._begin = 0
        self._taken = 0
        self._made = 0
        """Blocks put out."""
        self._continued = 0
        """Where in the input the last block goes on."""

    def push(self, samples: Samples) -> Samples:
        """Take the next samples; return the ones that are now complete."""
        if self.speed == 1.0:
            return samples
        self._taken += len(samples)
        self._heard = np.concatenate([self._heard, samples])
        blocks = []
        while self._needed() <= self._taken:
            blocks.append(self._next_block())
        self._forget()
        return np.concatenate(blocks) if blocks else np.zeros(0, np.float32)

    def flush(self) -> Samples:
        """End the stream; return what was held back."""
        left = round(self._taken / self.speed) - self._made * self._block
        silence = np.zeros(self._reach + 2 * self._block, np.float32)
        self._heard = np.concatenate([self._heard, silence])
        blocks = [np.zeros(0, np.float32)]
        while sum(map(len, blocks)) < left:
            blocks.append(self._next_block())
        return np.concatenate(blocks)[: max(0, left)]

    @property
    def _due(self) -> int:
        """Where in the input the next block is to be taken from, roughly."""
        return self._place(self._made)

    def _place(self, block: int) -> int:
        return round(block * self._block * self.speed)

    def _needed(self) -> int:
        """Samples of the input that the next block needs."""
        looked_at = max(self._continued, self._due + self._reach) + self._block
        # If the stream ended here, there would have to be room for the whole block.
        return max(looked_at, self._place(self._made + 1) + 1)

    def _next_block(self) -> Samples:
        ending = self._input(self._continued, self._block)
        start = self._continued
        if self._made:
            first = max(0, self._due - self._reach)
            near = self._input(first, self._due + self._reach + self._block - first)
            start = first + _most_alike(near, ending)
        block = ending * self._falling + self._input(start, self._block) * self._rising
        self._made += 1
        self._continued = start + self._block
        return block

    def _input(self, start: int, length: int) -> Samples:
        start -= self._begin
        return self._heard[start : start + length]

    def _forget(self) -> None:
        """Let go of what no block will need any more."""
        unneeded = min(self._continued, self._due - self._reach) - self._begin
        if unneeded > 0:
            self._heard = self._heard[unneeded:]
            self._begin += unneeded


def _most_alike(near: Samples, wanted: Samples) -> int:
    """Where in ``near`` the samples have the shape of ``wanted``, whatever their loudness."""
    likeness = np.correlate(near, wanted, "valid").astype(np.float64)
    power: NDArray[np.float64] = np.cumsum(np.square(near, dtype=np.float64))
    power = power[len(wanted) - 1 :] - np.concatenate([[0.0], power[: -len(wanted)]])
    return int(np.argmax(likeness / np.sqrt(np.maximum(power, 1e-9))))
