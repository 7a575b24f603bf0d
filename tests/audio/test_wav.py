"""tts_plugins.audio.wav: files and endless headers."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest

from tts_plugins.audio.pcm import to_s16
from tts_plugins.audio.wav import WavWriter
from tts_plugins.types import Samples

ENDLESS = bytes.fromhex(
    "52494646 ffffffff 57415645"  # RIFF, as long as there is, WAVE
    "666d7420 10000000 0100 0100 c05d0000 80bb0000 0200 1000"  # 24 kHz, mono, 16 bits
    "64617461 ffffffff"  # data, as long as there is
)


def noise(n: int) -> Samples:
    return np.random.default_rng(7).uniform(-1, 1, n).astype(np.float32)


def written(samples: Samples, size: int) -> bytes:
    writer = WavWriter(24_000)
    parts = [writer.push(samples[i : i + size]) for i in range(0, len(samples), size)]
    return b"".join([*parts, writer.flush()])


def test_the_header_comes_with_the_first_samples_and_once() -> None:
    writer = WavWriter(24_000)
    half = np.array([0.5], np.float32)
    pushes = [(half, ENDLESS + b"\x00\x40"), (half, b"\x00\x40"), (half[:0], b"")]
    for samples, expected in pushes:
        assert writer.push(samples) == expected
    assert writer.flush() == b""


def test_a_stream_without_samples_is_a_header() -> None:
    assert WavWriter(24_000).flush() == ENDLESS


@pytest.mark.parametrize("size", [1, 7, 480, 5_000])
def test_any_chunking_gives_the_same_bytes(size: int) -> None:
    samples = noise(5_000)
    assert written(samples, size) == ENDLESS + to_s16(samples)


def test_the_header_at_the_end_knows_the_sizes() -> None:
    writer = WavWriter(24_000)
    writer.push(noise(1_000))
    assert writer.header[:4] + writer.header[8:40] == ENDLESS[:4] + ENDLESS[8:40]
    assert int.from_bytes(writer.header[4:8], "little") == 2_000 + 36
    assert int.from_bytes(writer.header[40:44], "little") == 2_000


@pytest.mark.parametrize("patched", [True, False])
def test_the_standard_library_reads_it(patched: bool) -> None:
    samples = noise(3_000)
    writer = WavWriter(8_000)
    file = io.BytesIO()
    file.write(writer.push(samples))
    file.write(writer.flush())
    if patched:
        file.seek(0)
        file.write(writer.header)
    file.seek(0)
    with wave.open(file) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (
            8_000,
            1,
            2,
        )
        assert reader.getnframes() == (3_000 if patched else 0x7FFFFFFF)
        assert reader.readframes(3_000) == to_s16(samples)


def test_a_file_that_is_too_long_for_its_sizes_keeps_them_unknown() -> None:
    writer = WavWriter(24_000)
    writer._bytes = 2**32
    assert writer.header == ENDLESS
