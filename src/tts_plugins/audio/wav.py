"""Write a WAV file while it is still being spoken.

A header says how long the audio is, and stands before it. Until that is known, both sizes
are 0xFFFFFFFF, which readers take for "until the end": that is what ffmpeg writes into a
pipe, and ffmpeg, sox (with a warning), aplay, libsndfile and Python's ``wave`` read it.
"""

from __future__ import annotations

import struct

from tts_plugins.audio.pcm import to_s16
from tts_plugins.types import Samples

_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
_UNKNOWN = 0xFFFFFFFF


class WavWriter:
    """One stream's way into a WAV file: mono, signed 16-bit.

    Into a pipe, push and flush are all. Into a file, write ``header`` over its first bytes
    at the end, for then it knows the sizes::

        file.write(writer.push(samples))
        file.write(writer.flush())
        file.seek(0)
        file.write(writer.header)

    Args:
        sample_rate: Rate of what is pushed, in hertz.
    """

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self._bytes = 0
        self._started = False

    def push(self, samples: Samples) -> bytes:
        """Encode the next samples; the first time, with the header in front."""
        start = self._start()
        pcm = to_s16(samples)
        self._bytes += len(pcm)
        return start + pcm

    def flush(self) -> bytes:
        """End the stream. Gives the header if nothing was pushed: an empty file is a file."""
        return self._start()

    @property
    def header(self) -> bytes:
        """The header of a file that ends here."""
        return _header(self.sample_rate, self._bytes)

    def _start(self) -> bytes:
        if self._started:
            return b""
        self._started = True
        return _header(self.sample_rate, _UNKNOWN)


def _header(sample_rate: int, size: int) -> bytes:
    #  0 "RIFF" size of the rest | 8 "WAVE" | 12 "fmt " 16 | 20 PCM=1, channels, hertz,
    #  28 bytes a second, bytes a frame, bits a sample | 36 "data" size of the samples | 44
    return _HEADER.pack(
        b"RIFF",
        min(size + _HEADER.size - 8, _UNKNOWN),
        *(b"WAVE", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16, b"data"),
        min(size, _UNKNOWN),
    )
