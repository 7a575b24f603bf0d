"""Bodies as servers send them, and ways in which they arrive."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Literal

import numpy as np

from tts_plugins.audio.codec import Format
from tts_plugins.audio.pcm import AudioReader
from tts_plugins.types import Samples

CUTS = [1, 7, 480, 10**9]
"""Sizes of the pieces that a body is cut into."""


def pieces(body: bytes, size: int) -> list[bytes]:
    return [body[i : i + size] for i in range(0, len(body), size)]


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:end] for start, end in pairwise(edges)]


def read(reader: AudioReader, parts: Iterable[bytes]) -> Samples:
    """All of a body. Every array that comes back has to be one that can be played."""
    heard = [*(reader.push(part) for part in parts), reader.flush()]
    for samples in heard:
        assert samples.dtype == np.float32
        assert samples.ndim == 1
        assert not len(samples) or reader.sample_rate > 0
    return np.concatenate(heard)


def tone(seconds: float, sample_rate: int = 24_000) -> Samples:
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    return (0.5 * np.sin(2 * np.pi * 440 * time)).astype(np.float32)


def chunk(name: bytes, body: bytes, size: int | None = None) -> bytes:
    """A chunk of a RIFF file; ``size`` is what it says instead of the truth."""
    said = len(body) if size is None else size
    return name + struct.pack("<I", said) + body + b"\0" * (len(body) % 2)


def wav_format(
    sample_rate: int = 24_000, *, tag: int = 1, bits: int = 16, channels: int = 1
) -> bytes:
    frame = channels * bits // 8
    fields = (tag, channels, sample_rate, sample_rate * frame, frame, bits)
    return chunk(b"fmt ", struct.pack("<HHIIHH", *fields))


def wav(data: bytes, size: int | None = None, *, form: bytes = b"", extra: bytes = b"") -> bytes:
    """A WAV file of 24 kHz, mono, 16 bits, unless ``form`` says otherwise."""
    chunks = (form or wav_format()) + extra + chunk(b"data", data, size)
    return chunk(b"RIFF", b"WAVE" + chunks, 0xFFFFFFFF)


class _Pipe:
    """A file that can't go back, so that FFmpeg writes what a live server sends."""

    def __init__(self) -> None:
        self.body = b""

    def write(self, data: bytes) -> int:
        self.body += data
        return len(data)


class _File(io.BytesIO):
    @property
    def body(self) -> bytes:
        return self.getvalue()


@cache
def encoded(
    kind: Format,
    seconds: float = 1.0,
    *,
    sample_rate: int = 24_000,
    stereo: bool = False,
    live: bool = False,
    options: tuple[tuple[str, str], ...] = (),
) -> bytes:
    """A tone. In stereo its right channel is silent."""
    import av

    container, codec = _FFMPEG[kind]
    layout = "stereo" if stereo else "mono"
    left = tone(seconds, sample_rate)
    planes = np.stack([left, np.zeros_like(left)] if stereo else [left])
    whole = av.AudioFrame.from_ndarray(planes, format="fltp", layout=layout)
    whole.sample_rate = sample_rate
    file = _Pipe() if live else _File()
    with av.open(file, "w", format=container, options=dict(options)) as output:
        stream = output.add_stream(codec, rate=sample_rate, layout=layout)
        context = stream.codec_context
        cutter = av.AudioResampler(context.format, layout, sample_rate, context.frame_size)
        for frame in [*cutter.resample(whole), *cutter.resample(None), None]:
            output.mux(stream.encode(frame))
    return file.body


def by_container(body: bytes) -> Samples:
    """What FFmpeg makes of a body that is all there."""
    import av

    floats = av.AudioResampler("fltp")
    with av.open(io.BytesIO(body), "r") as container:
        frames = [frame for any_ in container.decode(audio=0) for frame in floats.resample(any_)]
    channels = np.concatenate([frame.to_ndarray() for frame in frames], axis=1).clip(-1, 1)
    samples: Samples = channels.mean(axis=0, dtype=np.float64).astype(np.float32)
    return samples


def frames_of(kind: Literal["mp3", "flac"], body: bytes) -> bytes:
    """What follows an MP3's tag or a FLAC's header."""
    sync = b"\xff\xf8" if kind == "flac" else b"\xff\xf3"  # of 24 kHz
    return body[body.index(sync, 42) :]


_FFMPEG: dict[Format, tuple[str, Literal["libmp3lame", "aac", "flac", "libopus"]]] = {
    "mp3": ("mp3", "libmp3lame"),
    "aac": ("adts", "aac"),
    "flac": ("flac", "flac"),
    "ogg": ("ogg", "libopus"),
}
