"""Write a WAV file while it is still being spoken, and read one that still is.

A header says how long the audio is, and stands before it. Until that is known, both sizes
are 0xFFFFFFFF, which readers take for "until the end": that is what ffmpeg writes into a
pipe, and ffmpeg, sox (with a warning), aplay, libsndfile and Python's ``wave`` read it.
Others write 0, 0x7FFFFFFF, 4294967040 or 2000000000, so a reader takes them for the same.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Mapping

from tts_plugins.audio.pcm import Encoding, PcmReader, joined, to_s16
from tts_plugins.types import AudioChunk, Samples

_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
_UNKNOWN = 0xFFFFFFFF

_PLACEHOLDER = 1_900_000_000
"""Size from which on a size stands for one that wasn't known: half a day of 24 kHz."""

_ENCODINGS: Mapping[tuple[int, int], Encoding] = {
    (1, 8): "u8",
    (1, 16): "s16",
    (1, 24): "s24",
    (1, 32): "s32",
    (3, 32): "f32",
    (3, 64): "f64",
    (6, 8): "alaw",
    (7, 8): "ulaw",
}
"""By format tag and bits of a sample."""

_FILE = re.compile(rb"RIFF.{4}WAVEfmt ", re.DOTALL)

_EXTENSIBLE = 0xFFFE
"""The format tag that says: the format tag stands further back, in a GUID."""


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


def wav_file(chunk: AudioChunk) -> bytes:
    """Samples as a whole WAV file, of 16 bits a sample."""
    pcm = to_s16(chunk.samples)
    return _header(chunk.sample_rate, len(pcm)) + pcm


def _header(sample_rate: int, size: int) -> bytes:
    #  0 "RIFF" size of the rest | 8 "WAVE" | 12 "fmt " 16 | 20 PCM=1, channels, hertz,
    #  28 bytes a second, bytes a frame, bits a sample | 36 "data" size of the samples | 44
    return _HEADER.pack(
        b"RIFF",
        min(size + _HEADER.size - 8, _UNKNOWN),
        *(b"WAVE", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16, b"data"),
        min(size, _UNKNOWN),
    )


class WavReader:
    """Reads a WAV file, or several one after the other, as they come.

    A size that can't be is taken for "until the end of the body"; then another file begins
    where ``RIFF....WAVEfmt `` stands between two frames. Any other size is believed: what
    comes after the audio isn't played, unless it is another file, and a body that ends
    before it is a ValueError.
    """

    def __init__(self) -> None:
        self.sample_rate = 0
        self._held = b""
        self._heard: list[Samples] = []
        self._cut_short = "the body ends before the WAV header does"
        self._endless: PcmReader | None = None
        self._reading = self._body()
        next(self._reading)

    def push(self, data: bytes) -> Samples:
        """Take the next bytes; return the samples of all frames that are whole."""
        self._held += data
        next(self._reading, None)
        heard, self._heard = self._heard, []
        return joined(heard)

    def flush(self) -> Samples:
        """End the body. ValueError if it was cut short."""
        if self._cut_short:
            raise ValueError(self._cut_short)
        return self._endless.push(self._held) if self._endless else joined([])

    # What follows reads the body from its beginning to its end, and yields wherever it has
    # to wait for more of it.

    def _body(self) -> Generator[None, None, None]:
        name, size = yield from self._chunk()
        if name != b"RIFF":
            raise ValueError(f"this isn't a WAV file: it begins with {name!r}")
        while True:
            if name == b"RIFF":
                yield from self._file()
            else:
                yield from self._skip(size)
            name, size = yield from self._chunk()

    def _file(self) -> Generator[None, None, None]:
        self._cut_short = "the body ends before the WAV header does"
        form = yield from self._take(4)
        if form != b"WAVE":
            raise ValueError(f"this isn't a WAV file: it is RIFF of {form!r}")
        pcm, size = yield from self._header()
        if self.sample_rate not in (0, pcm.sample_rate):
            raise ValueError(
                f"the audio changes from {self.sample_rate} to {pcm.sample_rate} Hz midway"
            )
        self.sample_rate = pcm.sample_rate
        if 0 < size < _PLACEHOLDER:
            yield from self._play(pcm, size)
        else:
            yield from self._play_on(pcm)

    def _header(self) -> Generator[None, None, tuple[PcmReader, int]]:
        """Go to where the samples begin: how to read them, and how many bytes they say to be."""
        pcm = None
        while True:
            name, size = yield from self._chunk()
            if name == b"data":
                if pcm is None:
                    raise ValueError("the WAV header has no fmt chunk before its data")
                return pcm, size
            if name == b"fmt ":
                pcm = _reader((yield from self._format(size)))
            else:
                yield from self._skip(size)

    def _format(self, size: int) -> Generator[None, None, bytes]:
        if not 16 <= size <= 4096:
            raise ValueError(f"the WAV header has a fmt chunk of {size} bytes")
        body = yield from self._take(size)
        yield from self._pad(size)
        return body

    def _play(self, pcm: PcmReader, size: int) -> Generator[None, None, None]:
        left = size
        while True:
            data, self._held = self._held[:left], self._held[left:]
            left -= len(data)
            self._heard.append(pcm.push(data))
            if not left:
                break
            self._cut_short = f"the WAV data was cut short: {size - left} of {size} bytes"
            yield
        self._cut_short = ""
        yield from self._pad(size)

    def _play_on(self, pcm: PcmReader) -> Generator[None, None, None]:
        self._cut_short = ""
        self._endless = pcm
        while True:
            end = _next_file(self._held, pcm.frame)
            data, self._held = self._held[:end], self._held[end:]
            self._heard.append(pcm.push(data))
            if _FILE.match(self._held):
                break
            yield
        self._endless = None

    def _chunk(self) -> Generator[None, None, tuple[bytes, int]]:
        head = yield from self._take(8)
        return head[:4], int.from_bytes(head[4:], "little")

    def _take(self, size: int) -> Generator[None, None, bytes]:
        while len(self._held) < size:
            yield
        taken, self._held = self._held[:size], self._held[size:]
        return taken

    def _skip(self, size: int) -> Generator[None, None, None]:
        left = size
        while len(self._held) < left:
            left -= len(self._held)
            self._held = b""
            yield
        self._held = self._held[left:]
        yield from self._pad(size)

    def _pad(self, size: int) -> Generator[None, None, None]:
        # A chunk of odd size is followed by a NUL, though Python's ``wave`` leaves it out.
        # No chunk's name begins with one.
        if size % 2:
            while not self._held:
                yield
            if self._held[0] == 0:
                self._held = self._held[1:]


def _reader(fmt: bytes) -> PcmReader:
    #  0 tag, channels, hertz, bytes a second, bytes a frame, bits a sample | 16 size of the
    #  rest, bits that count, loudspeakers | 24 GUID, which begins with the tag | 40
    tag, channels, sample_rate, _, _, bits = struct.unpack_from("<HHIIHH", fmt)
    if tag == _EXTENSIBLE and len(fmt) >= 40:
        (tag,) = struct.unpack_from("<H", fmt, 24)
    if (tag, bits) not in _ENCODINGS:
        raise ValueError(f"WAV of format {tag:#06x} with {bits} bits a sample can't be read")
    return PcmReader(sample_rate, _ENCODINGS[tag, bits], channels=channels)


def _next_file(data: bytes, frame: int) -> int:
    """Where another file begins, or could with the bytes to come; else the end of the frames."""
    for match in _FILE.finditer(data):
        if match.start() % frame == 0:
            return match.start()
    first = -(-max(len(data) - 15, 0) // frame) * frame
    for start in range(first, len(data), frame):
        if _could_begin_file(data[start:]):
            return start
    return len(data) - len(data) % frame


def _could_begin_file(data: bytes) -> bool:
    return b"RIFF".startswith(data[:4]) and b"WAVEfmt ".startswith(data[8:])
