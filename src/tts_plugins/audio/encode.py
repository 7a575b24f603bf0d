"""Write compressed audio while it is still being spoken.

FFmpeg makes the packets; what has to stand around them is little, and is written here. What a
listener waits for is the first packet, and the silence in front (measured, 24 kHz)::

            a packet    the first is there after    silence in front
    mp3      24 ms       48 ms                       46 ms
    aac      43 ms       85 ms                       43 ms
    flac     24 ms       24 ms                       none
    ogg      20 ms       20 ms                       none
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tts_plugins.audio.codec import Format, pyav
from tts_plugins.audio.pcm import from_s16, to_s16
from tts_plugins.types import Samples


class Encoder:
    """One stream's way into MP3, Ogg Opus, AAC in ADTS, or FLAC; mono, of 16 bits at most.

    However the samples are cut into pushes, the bytes are the same.

    Args:
        kind: What it writes.
        sample_rate: Rate of what is pushed, in hertz. Opus has 8000, 12000, 16000, 24000 and
            48000, and is played at 48000 whichever it is.
        bit_rate: Bits a second, or the nearest that there is; what is good for speech if ``None``.
            FLAC takes as many as it needs.

    Raises:
        MissingDependencyError: PyAV isn't installed.
        ValueError: The codec doesn't have that rate.
    """

    def __init__(self, kind: Format, sample_rate: int, bit_rate: int | None = None) -> None:
        self._av = pyav()
        codec = _CODECS[kind]
        self._context = self._av.CodecContext.create(codec.name, "w")
        self._context.sample_rate = sample_rate
        self._context.layout = "mono"
        self._context.format = codec.samples
        self._context.bit_rate = bit_rate or codec.bit_rate
        self._context.thread_count = 1  # With more, FFmpeg holds frames back.
        self._context.options = dict(codec.options)
        try:
            self._context.open()
        except self._av.FFmpegError as error:
            raise ValueError(f"{kind} can't have {sample_rate} Hz") from error
        self._framing = codec.framing(self._context)
        self._samples = 0
        self._started = False

    def push(self, samples: Samples) -> bytes:
        """Take the next samples; return the packets that are now complete."""
        start = self._start()
        if not len(samples):
            return start
        self._samples += len(samples)
        return start + self._framing.wrap(self._context.encode(self._frame(samples)))

    def flush(self) -> bytes:
        """End the stream; return what was held back."""
        packets = self._context.encode(None) if self._samples else []
        return self._start() + self._framing.wrap(packets, self._samples)

    def _start(self) -> bytes:
        start = b"" if self._started else self._framing.start
        self._started = True
        return start

    def _frame(self, samples: Samples) -> Any:
        # Of any length: PyAV cuts frames as the codec wants them.
        pcm = to_s16(samples)
        name = self._context.format.name
        plane = from_s16(pcm) if name == "fltp" else np.frombuffer(pcm, "<i2")
        frame = self._av.AudioFrame.from_ndarray(plane[np.newaxis], format=name, layout="mono")
        frame.sample_rate = self._context.sample_rate
        return frame


class _Framing:
    """Nothing but packets, as of MP3, whose frames have headers of their own."""

    start = b""

    def __init__(self, context: Any) -> None:
        pass

    def wrap(self, packets: Sequence[Any], end: int | None = None) -> bytes:
        """Packets with what stands around them.

        Args:
            packets: FFmpeg's.
            end: How many samples there were, if these are the last packets.
        """
        return b"".join(map(bytes, packets))


class _Flac(_Framing):
    def __init__(self, context: Any) -> None:
        # Its one block of metadata, of type 0 and 34 bytes, which doesn't know how long it will be.
        self.start = b"fLaC\x80\0\0\x22" + context.extradata


class _Adts(_Framing):
    def __init__(self, context: Any) -> None:
        #  0 type 5 bits, rate 4, channels 4, 3 more of no interest | 2
        (config,) = struct.unpack_from(">H", context.extradata)
        kind, rate, channels = config >> 11, config >> 7 & 0xF, config >> 3 & 0xF
        #  0 0xFFF, version 1, layer 2, no checksum 1 | 2 type - 1: 2, rate 4, 1, channels 3, 4,
        #  bytes with header 13, fullness 11: unknown, blocks - 1: 2 | 7
        self._header: int = 0xFFF1 << 40 | kind - 1 << 38 | rate << 34 | channels << 30 | 0x7FF << 2

    def wrap(self, packets: Sequence[Any], end: int | None = None) -> bytes:
        return b"".join(self._sized(bytes(packet)) for packet in packets)

    def _sized(self, packet: bytes) -> bytes:
        return (self._header | 7 + len(packet) << 13).to_bytes(7) + packet


class _OggOpus(_Framing):
    """A page for each packet, so that none waits for the next."""

    def __init__(self, context: Any) -> None:
        self._pages = 0
        self._ratio = _OPUS_RATE // context.sample_rate
        self._step = context.frame_size * self._ratio
        self._early = int.from_bytes(context.extradata[10:12], "little")
        """Samples at the beginning that aren't played."""
        self._place = 0
        """Samples so far; pages count them at 48 kHz."""
        maker = b"tts_plugins"
        tags = b"OpusTags" + struct.pack("<I", len(maker)) + maker + struct.pack("<I", 0)
        self.start = self._page(context.extradata, flags=_FIRST) + self._page(tags)

    def wrap(self, packets: Sequence[Any], end: int | None = None) -> bytes:
        pages = []
        for number, packet in enumerate(packets, 1):
            self._place += self._step
            flags = 0
            if end is not None and number == len(packets):
                self._place = self._early + end * self._ratio
                flags = _LAST
            pages.append(self._page(bytes(packet), flags=flags))
        return b"".join(pages)

    def _page(self, packet: bytes, *, flags: int = 0) -> bytes:
        #  0 "OggS", version, flags | 6 samples so far | 14 stream, page, checksum | 26 segments,
        #  the size of each: 255 goes on in the next | 27 + segments
        sizes = bytes([*[255] * (len(packet) // 255), len(packet) % 255])
        fields = (b"OggS", 0, flags, self._place, 1, self._pages, 0, len(sizes))
        page = _PAGE.pack(*fields) + sizes + packet
        self._pages += 1
        return page[:22] + struct.pack("<I", _checksum(page)) + page[26:]


_OPUS_RATE = 48_000
_PAGE = struct.Struct("<4sBBqIIIB")
_FIRST, _LAST = 2, 4

_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def _checksum(page: bytes) -> int:
    """Ogg's CRC is that of zip files with the bits of all bytes in reverse, and no inversion."""
    crc = zlib.crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{crc:032b}"[::-1], 2)


class _Codec(NamedTuple):
    name: str
    samples: str
    """How it takes samples."""
    bit_rate: int
    """What is good for speech. Bits a second."""
    framing: type[_Framing]
    options: Mapping[str, str] = {}


_CODECS: Mapping[Format, _Codec] = {
    # With the reservoir, a packet waits for another and can't be decoded without those before it.
    "mp3": _Codec("libmp3lame", "s16p", 96_000, _Framing, {"reservoir": "0"}),
    "aac": _Codec("aac", "fltp", 64_000, _Adts),
    # From level 3 on, packets are four times as long.
    "flac": _Codec("flac", "s16", 0, _Flac, {"compression_level": "2"}),
    "ogg": _Codec("libopus", "s16", 48_000, _OggOpus),
}
"""By FFmpeg's names."""
