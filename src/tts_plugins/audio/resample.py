"""Change the sample rate of a stream, losing and leaking nothing.

soxr is fed float32: then the output doesn't depend on how the input was cut. With int16 it
dithers, and with "VHQ" it holds back 160 ms of 24 kHz audio before the first 8 kHz sample;
"HQ" holds back 80 ms, which a first chunk of 175 ms hides (soxr 1.0 and 1.1, measured).
"""

from __future__ import annotations

import numpy as np
import soxr

from tts_plugins.types import Samples


class StreamResampler:
    """One stream's way from one rate to another.

    However the input is cut into pushes, the output is the same, and in all it is
    ``ceil(n * to_rate / from_rate)`` samples for ``n`` samples in.
    """

    def __init__(self, from_rate: int, to_rate: int) -> None:
        self.from_rate = from_rate
        self.to_rate = to_rate
        self._taken = 0
        self._given = 0
        self._soxr = (
            None
            if from_rate == to_rate
            else soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32", quality="HQ")
        )

    def push(self, samples: Samples) -> Samples:
        """Take the next samples; return the ones that are now complete."""
        if self._soxr is None or not len(samples):
            return samples
        self._taken += len(samples)
        out: Samples = self._soxr.resample_chunk(np.ascontiguousarray(samples))
        self._given += len(out)
        return out

    def flush(self) -> Samples:
        """End the stream; return what was held back."""
        if self._soxr is None or not self._taken:
            return np.zeros(0, np.float32)
        tail: Samples = self._soxr.resample_chunk(np.zeros(0, np.float32), last=True)
        # soxr rounds the total to the nearest sample and may end one short or one over.
        missing = -(-self._taken * self.to_rate // self.from_rate) - self._given - len(tail)
        self._taken = self._given = 0
        if missing < 0:
            return tail[:missing]
        return np.concatenate([tail, np.zeros(missing, np.float32)]) if missing else tail
