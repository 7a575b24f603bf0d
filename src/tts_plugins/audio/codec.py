"""Read compressed audio while it is still being sent.

FFmpeg's containers block until they have read far ahead, and its FLAC parser waits for ten
frames. So bodies are cut into packets here, and only those go to FFmpeg, which makes the same
samples of them. A packet is heard with its last byte. What a listener waits for is the first
one, and the silence that an encoder puts in front (measured: FFmpeg's encoders, 24 kHz)::

            a packet                               silence in front
    mp3      24 ms                                 none, or 46 ms if sent while it is encoded
    aac      43 ms                                 43 ms, one packet
    flac     96 ms                                 none
    ogg      20 ms if each has its page, as        none
             page_duration says; else a page: 1 s

PyAV is imported when the first reader or writer is made, which takes 50 ms: here, for both.
"""

from __future__ import annotations

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tts_plugins.audio.pcm import Encoding, PcmReader, joined
from tts_plugins.errors import MissingDependencyError
from tts_plugins.types import Samples

if TYPE_CHECKING:
    import av

Format = Literal["mp3", "ogg", "flac", "aac"]

Mark = tuple[bytes, ...]
"""How something begins: at each place, all the bytes that may stand there."""

MP3_FRAME: Mark = (
    b"\xff",
    b"\xfa\xfb\xf2\xf3\xe2\xe3",  # Layer III of MPEG 1, 2, 2.5, with and without a checksum
    bytes(byte for byte in range(256) if 0x10 <= byte < 0xF0 and byte & 0x0C != 0x0C),  # rates
    bytes(byte for byte in range(256) if byte & 0x03 != 0x02),
)

ADTS_FRAME: Mark = (
    b"\xff",
    b"\xf0\xf1\xf8\xf9",  # MPEG 4, 2, with and without a checksum
    bytes(byte for byte in range(256) if byte >> 2 & 0xF < 13),  # rate
)


def literal(text: bytes) -> Mark:
    """The mark of what always begins alike."""
    return tuple(bytes([byte]) for byte in text)


class CompressedReader:
    """Reads MP3, Ogg Opus, FLAC, or AAC in ADTS, also several bodies one after the other.

    Args:
        kind: What it reads.

    Raises:
        MissingDependencyError: PyAV isn't installed.
    """

    def __init__(self, kind: Format) -> None:
        self._body = _BODIES[kind](pyav())

    @property
    def sample_rate(self) -> int:
        """Hertz. 0 until the first samples."""
        return self._body.sample_rate

    def push(self, data: bytes) -> Samples:
        """Take the next bytes; return the samples of all packets that are whole."""
        return self._body.push(data)

    def flush(self) -> Samples:
        """End the body. ValueError if it was cut short."""
        self._body.end()
        return joined([])


def pyav() -> ModuleType:
    """PyAV.

    Raises:
        MissingDependencyError: It isn't installed.
    """
    try:
        import av
    except ImportError:
        raise MissingDependencyError("codecs") from None
    return av


class _PacketError(ValueError):
    """FFmpeg refuses a packet."""


class _Body(ABC):
    """Cuts a body into packets and decodes them."""

    def __init__(self, av: ModuleType) -> None:
        self.sample_rate = 0
        self._av = av
        self._held = bytearray()
        self._skip = 0
        """Bytes to pass over before anything else."""

    def push(self, data: bytes) -> Samples:
        self._held += data
        return joined(self._read())

    @abstractmethod
    def end(self) -> None:
        """ValueError if this is not where a body ends."""

    @abstractmethod
    def _read(self) -> Iterator[Samples]:
        """Take whole packets off ``_held``; give what they sound like."""

    def _open(self, codec: str, header: bytes = b"") -> None:
        self._context = self._av.CodecContext.create(codec, "r")
        self._context.thread_count = 1  # With more, FFmpeg holds frames back.
        if header:
            self._context.extradata = header

    def _take(self, size: int) -> bytes:
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken

    def _passed_over(self) -> bool:
        """Pass over what is to be skipped. False if more of it has to come."""
        self._skip -= len(self._take(self._skip))
        return not self._skip

    def _decode(self, packet: bytes) -> Samples:
        try:
            frames = self._context.decode(self._av.Packet(packet))
        except self._av.FFmpegError as error:
            raise _PacketError(f"the audio can't be decoded: {error.strerror}") from error
        return joined(self._samples(frame) for frame in frames)

    def _samples(self, frame: av.AudioFrame) -> Samples:
        if self.sample_rate not in (0, frame.sample_rate):
            raise ValueError(
                f"the audio changes from {self.sample_rate} to {frame.sample_rate} Hz midway"
            )
        self.sample_rate = frame.sample_rate
        channels = frame.layout.nb_channels
        if channels > _MOST_CHANNELS:
            raise ValueError(f"the audio has {channels} channels; speech has no more than two")
        array = frame.to_ndarray()  # [channels, n] if planar, else [1, n * channels]
        encoding = _ENCODINGS[frame.format.packed.name]
        pcm = PcmReader(frame.sample_rate, encoding, channels=channels)
        return pcm.push((array.T if frame.format.is_planar else array).tobytes())


_MOST_CHANNELS = 8
"""PyAV reads beyond its memory for more (18.1, on damaged AAC that claims 49)."""

_ENCODINGS: Mapping[str, Encoding] = {
    "u8": "u8",
    "s16": "s16",
    "s32": "s32",
    "flt": "f32",
    "dbl": "f64",
}
"""By FFmpeg's names."""


class _Frames(_Body):
    """Frames that each say how long they are, and tags that aren't heard.

    What is neither is passed over, for such bodies are made to be joined in the middle.
    """

    name: ClassVar[str]
    codec: ClassVar[str]
    start: ClassVar[re.Pattern[bytes]]

    def __init__(self, av: ModuleType) -> None:
        super().__init__(av)
        self._open(self.codec)
        self._pushed = self._found = False

    def push(self, data: bytes) -> Samples:
        self._pushed = self._pushed or bool(data)
        return super().push(data)

    def end(self) -> None:
        if self._seek():
            have, size = len(self._held), self._size(self._held)
            raise ValueError(f"the {self.name} was cut short: {have} of {size} bytes of a frame")
        if self._pushed and not self._found:
            raise ValueError(f"there is no {self.name} in the body")

    def _read(self) -> Iterator[Samples]:
        while self._seek() and len(self._held) >= (size := self._size(self._held)):
            self._found = True
            yield self._hear(self._take(size))

    def _seek(self) -> bool:
        """Pass over what isn't a frame. True where the header of one is."""
        while self._passed_over():
            match = self.start.search(self._held)
            self._take(match.start() if match else len(self._held))
            if self._held.startswith(b"TAG"):
                self._skip = 128
            elif not self._held.startswith(b"ID3"):
                return len(self._held) >= _FRAME_HEADER
            elif len(self._held) >= 10:
                self._skip = _id3_size(self._held)
            else:
                break
        return False

    @abstractmethod
    def _size(self, frame: bytearray) -> int:
        """Bytes of the frame that begins like this."""

    def _hear(self, frame: bytes) -> Samples:
        return self._decode(frame)


_FRAME_HEADER = 7
"""Bytes that say how long a frame is: 4 of MP3, 7 of ADTS."""


def _id3_size(tag: bytearray) -> int:
    a, b, c, d = tag[6:10]  # seven bits each, so that none is taken for the 0xFF of a frame
    return 10 + (a << 21 | b << 14 | c << 7 | d)


def _start(mark: Mark) -> re.Pattern[bytes]:
    """Finds where a frame or a tag begins, or could with the bytes to come."""
    marks = [mark, literal(b"ID3"), literal(b"TAG")]
    return re.compile(b"|".join(_so_far(*mark) for mark in marks))


def _so_far(here: bytes, *rest: bytes) -> bytes:
    pattern = b"[" + re.escape(here) + b"]"
    return pattern + rb"(?:\Z|" + _so_far(*rest) + b")" if rest else pattern


class _Adts(_Frames):
    name = "AAC"
    codec = "aac"
    start = _start(ADTS_FRAME)

    def _size(self, frame: bytearray) -> int:
        size = (frame[3] & 0x3) << 11 | frame[4] << 3 | frame[5] >> 5
        return max(size, _FRAME_HEADER)


class _Mp3(_Frames):
    """What an encoder put before and after the sound is cut off, where it says so.

    It does in a first frame that isn't heard::

        Info | flags | frames | bytes | index | quality | encoder ... | gaps before and after
          4  |   4   |    4   |   4   |  100  |    4    |      21     |   12 bits each
                      each only where its flag is set
    """

    name = "MP3"
    codec = "mp3float"
    start = _start(MP3_FRAME)

    def __init__(self, av: ModuleType) -> None:
        super().__init__(av)
        self._place = 0
        """Of the next sample, in what was decoded since the info frame."""
        self._heard = (0, 0, 0)
        """From which place on samples are heard, to which, and from which on again."""

    def _size(self, frame: bytearray) -> int:
        rate = _RATES[frame[1] >> 3 & 0x3][frame[2] >> 2 & 0x3]
        kbits = _KBITS[_samples(frame)][frame[2] >> 4]
        return _samples(frame) // 8 * kbits * 1000 // rate + (frame[2] >> 1 & 0x1)

    def _hear(self, frame: bytes) -> Samples:
        info = _INFO.search(frame, 4, 48)
        if info:
            self._context.flush_buffers()
            self._place = 0
            self._heard = _heard(frame, info.end())
            return joined([])
        samples = self._decode(frame)
        place = np.arange(self._place, self._place + len(samples))
        self._place += len(samples)
        begin, end, again = self._heard
        return samples[(begin <= place) & (place < end) | (again <= place)]


_INFO = re.compile(rb"\0{9}(?:Xing|Info)")
"""After the zeros of a frame that has nothing to play."""

_RATES = {
    3: (44_100, 48_000, 32_000),
    2: (22_050, 24_000, 16_000),
    0: (11_025, 12_000, 8_000),
}
"""By version: MPEG 1, 2, 2.5."""

_KBITS = {
    1152: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    576: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""By samples of a frame."""

_MP3_DELAY = 529
"""Samples by which a decoder lags behind, which the gaps don't count."""


def _samples(frame: bytes | bytearray) -> int:
    return 1152 if frame[1] >> 3 & 0x3 == 3 else 576


def _heard(frame: bytes, flags_at: int) -> tuple[int, int, int]:
    flags = int.from_bytes(frame[flags_at : flags_at + 4])
    frames = int.from_bytes(frame[flags_at + 4 : flags_at + 8]) if flags & 1 else 0
    sizes = {1: 4, 2: 4, 4: 100, 8: 4}
    encoder = flags_at + 4 + sum(size for flag, size in sizes.items() if flags & flag)
    gaps = int.from_bytes(frame[encoder + 21 : encoder + 24])
    if not gaps:
        return 0, 0, 0
    before, after = gaps >> 12, gaps & 0xFFF
    begin, whole = before + _MP3_DELAY, frames * _samples(frame)
    return begin, whole + _MP3_DELAY - after, max(whole, begin)


class _Flac(_Body):
    """FLAC, whose frames don't say how long they are.

    One ends where the checksum over all of it comes out even and it decodes: where only one
    of the two holds, FFmpeg finds bits missing. To look for the next frame's header instead
    would keep each frame back until the next is there.
    """

    def __init__(self, av: ModuleType) -> None:
        super().__init__(av)
        self._blocks = False
        """Whether there are blocks of metadata to come before the frames."""
        self._longest = 0
        """Bytes of the longest frame that there can be; 0 before the header."""
        self._left = 0
        """Samples that are to come according to the header, if it knows."""
        self._checked = self._checksum = self._attempts = 0

    def end(self) -> None:
        if self._held or self._skip or self._blocks:
            raise ValueError("the FLAC was cut short, in the middle of a frame or its header")
        if self._left > 0:
            raise ValueError(f"the FLAC was cut short: {self._left} samples are missing")

    def _read(self) -> Iterator[Samples]:
        while self._seek() and (samples := self._frame()) is not None:
            self._left -= len(samples)
            yield samples

    def _seek(self) -> bool:
        """Pass over metadata. True where a frame begins or goes on."""
        while self._passed_over() and len(self._held) >= 4:
            if self._blocks:
                self._blocks, _, self._skip = _block(self._take(4))
            elif not self._held.startswith(b"fLaC"):
                return True
            elif len(self._held) >= 42:
                self._begin(self._take(42))
            else:
                break
        return False

    def _begin(self, header: bytes) -> None:
        #  0 "fLaC" | 4 block: 34 bytes of type 0 | 8 samples of the shortest, the longest frame,
        # 12 bytes of these | 18 hertz 20 bits, channels - 1: 3, bits - 1: 5, samples: 36 | 26 MD5
        self._blocks, kind, size = _block(header[4:8])
        if (kind, size) != (0, 34):
            raise ValueError("this isn't FLAC: its header is another")
        block = int.from_bytes(header[10:12])
        fields = int.from_bytes(header[18:26])
        channels, bits = (fields >> 41 & 0x7) + 1, (fields >> 36 & 0x1F) + 1
        self._longest = block * channels * (bits // 8 + 2) + 1024
        self._left = fields & (1 << 36) - 1
        self._open("flac", header[8:])

    def _frame(self) -> Samples | None:
        if not self._longest or self._held[0] != 0xFF or self._held[1] & 0xFE != 0xF8:
            raise ValueError(f"this isn't FLAC: a frame begins with {bytes(self._held[:4])!r}")
        checksum = self._checksum
        for end, byte in enumerate(self._held[self._checked : self._longest], self._checked + 1):
            checksum = (checksum << 8 & 0xFFFF) ^ _CRC16[checksum >> 8 ^ byte]
            if not checksum:
                samples = self._attempt(bytes(self._held[:end]))
                if len(samples):
                    self._take(end)
                    self._checked = self._checksum = self._attempts = 0
                    return samples
        if len(self._held) > self._longest:
            raise ValueError(_BROKEN)
        self._checked, self._checksum = len(self._held), checksum
        return None

    def _attempt(self, frame: bytes) -> Samples:
        self._attempts += 1
        if self._attempts > _MOST_ATTEMPTS:
            raise ValueError(_BROKEN)
        try:
            return self._decode(frame)
        except _PacketError:
            return joined([])


_BROKEN = "the FLAC can't be decoded: a frame is broken"

_MOST_ATTEMPTS = 100
"""To decode a frame. By chance a checksum comes out even at one byte in 65,536; one can be made to
at all of them."""


def _block(header: bytes) -> tuple[bool, int, int]:
    """Whether another block comes after this one, its type and its size."""
    return not header[0] & 0x80, header[0] & 0x7F, int.from_bytes(header[1:])


def _crc16(byte: int) -> int:
    checksum = byte << 8
    for _ in range(8):
        checksum = checksum << 1 ^ (0x8005 if checksum & 0x8000 else 0)
    return checksum & 0xFFFF


_CRC16 = [_crc16(byte) for byte in range(256)]


class _OggOpus(_Body):
    """Opus in Ogg, played as far as its pages say.

    Bodies that are sent live end without a last page, so that isn't taken for a cut.
    """

    def __init__(self, av: ModuleType) -> None:
        super().__init__(av)
        self._opened = False
        self._part = bytearray()
        """Of a packet that goes on in the next page."""
        self._place = 0
        """Samples decoded up to here, as pages count them."""
        self._early = 0
        """Samples still to drop: the encoder's first ones."""

    def end(self) -> None:
        if self._held or self._part:
            raise ValueError("the Ogg was cut short, in the middle of a page")

    def _read(self) -> Iterator[Samples]:
        while (page := self._page()) is not None:
            yield self._hear(page)

    def _page(self) -> bytes | None:
        if len(self._held) >= 4 and not self._held.startswith(b"OggS"):
            raise ValueError(f"this isn't Ogg: a page begins with {bytes(self._held[:4])!r}")
        if len(self._held) < _PAGE.size:
            return None
        segments = _PAGE.size + self._held[_PAGE.size - 1]
        size = segments + sum(self._held[_PAGE.size : segments])
        if len(self._held) < size:
            return None
        return self._take(size)

    def _hear(self, page: bytes) -> Samples:
        _, _, flags, until, *_ = _PAGE.unpack_from(page)
        samples = joined(self._packet(packet) for packet in self._packets(page))
        if flags & _LAST and until >= 0:
            samples = samples[: max(until - self._place, 0)]
        self._place = until if until >= 0 else self._place + len(samples)
        early = min(self._early, len(samples))
        self._early -= early
        return samples[early:]

    def _packets(self, page: bytes) -> Iterator[bytes]:
        segments = _PAGE.size + page[_PAGE.size - 1]
        start = segments
        for length in page[_PAGE.size : segments]:
            self._part += page[start : start + length]
            start += length
            if length < 255:  # A segment of 255 goes on in the next.
                packet = bytes(self._part)
                self._part.clear()
                yield packet

    def _packet(self, packet: bytes) -> Samples:
        if packet.startswith(b"OpusHead"):
            self._begin(packet)
        elif not self._opened:
            raise ValueError(f"Ogg of {packet[:7]!r} can't be read, only of Opus; ask for that")
        elif not packet.startswith(b"OpusTags"):
            return self._decode(packet)
        return joined([])

    def _begin(self, header: bytes) -> None:
        # Some versions of FFmpeg drop the first samples by themselves. None does so where
        # the header says 0.
        self._early = int.from_bytes(header[10:12], "little")
        self._open("opus", header[:10] + b"\0\0" + header[12:])
        self._opened = True
        self._place = 0


_PAGE = struct.Struct("<4sBBqIIIB")
"""OggS, version, flags, place of the page's last sample, stream, number, checksum, segments."""

_LAST = 0x04
"""The flag of a stream's last page."""

_BODIES: Mapping[Format, type[_Body]] = {
    "mp3": _Mp3,
    "ogg": _OggOpus,
    "flac": _Flac,
    "aac": _Adts,
}
