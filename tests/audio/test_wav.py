"""tts_plugins.audio.wav: files and endless headers."""

from __future__ import annotations

import io
import struct
import tracemalloc
import wave

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.audio.bodies import CUTS, chunk, cut, pieces, read, wav, wav_format
from tts_plugins.audio.g711 import from_alaw, from_ulaw, to_alaw, to_ulaw
from tts_plugins.audio.pcm import from_s16, to_s16
from tts_plugins.audio.wav import WavReader, WavWriter
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


HALF = b"\x00\x40"
"""A sample of 0.5 in 16 bits."""

PLACEHOLDERS = [0, 0x7FFFFFFF, 0x7FFFFFDB, 0xFFFFFFFF, 4_294_967_040, 2_000_000_000, 1_900_000_000]
"""What servers say about the size of what they haven't spoken yet."""


def heard(body: bytes, size: int = 10**9) -> list[float]:
    samples: list[float] = read(WavReader(), pieces(body, size)).tolist()
    return samples


def test_a_sample_comes_out_with_its_last_byte() -> None:
    reader = WavReader()
    pushes: list[tuple[bytes, int, list[float]]] = [
        (ENDLESS[:4], 0, []),
        (ENDLESS[4:43], 0, []),
        (ENDLESS[43:], 24_000, []),
        (b"\x00", 24_000, []),
        (b"\x40", 24_000, [0.5]),
        (b"", 24_000, []),
        (b"\x00\xc0\x00", 24_000, [-0.5]),
    ]
    for data, sample_rate, expected in pushes:
        assert reader.push(data).tolist() == expected
        assert reader.sample_rate == sample_rate
    assert reader.flush().tolist() == []


@pytest.mark.parametrize("size", CUTS)
def test_what_was_written_is_read(size: int) -> None:
    samples = from_s16(to_s16(noise(3_000)))
    writer = WavWriter(8_000)
    live = writer.push(samples)
    for body in (live, writer.header + live[44:]):
        reader = WavReader()
        assert np.array_equal(read(reader, pieces(body, size)), samples)
        assert reader.sample_rate == 8_000


def test_what_the_standard_library_writes_is_read() -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((2, 2, 22_050, 0, "NONE", ""))
        writer.writeframes((HALF + b"\x00\x00") * 3)
    reader = WavReader()
    assert read(reader, [file.getvalue()]).tolist() == [0.25] * 3
    assert reader.sample_rate == 22_050


FORMATS = [
    (1, 8, bytes([192, 0]), [0.5, -1]),
    (1, 16, struct.pack("<2h", 2**14, -(2**15)), [0.5, -1]),
    (1, 24, bytes.fromhex("000040 000080"), [0.5, -1]),
    (1, 32, struct.pack("<2i", 2**30, -(2**31)), [0.5, -1]),
    (3, 32, struct.pack("<2f", 0.5, -1), [0.5, -1]),
    (3, 64, struct.pack("<2d", 0.5, -1), [0.5, -1]),
    (6, 8, to_alaw(noise(9)), from_alaw(to_alaw(noise(9))).tolist()),
    (7, 8, to_ulaw(noise(9)), from_ulaw(to_ulaw(noise(9))).tolist()),
]


@pytest.mark.parametrize(("tag", "bits", "data", "expected"), FORMATS)
def test_samples_are_read_in_every_format(
    tag: int, bits: int, data: bytes, expected: list[float]
) -> None:
    assert heard(wav(data, form=wav_format(tag=tag, bits=bits))) == expected


@pytest.mark.parametrize(("tag", "bits", "data", "expected"), FORMATS)
def test_an_extensible_format_is_what_its_guid_says(
    tag: int, bits: int, data: bytes, expected: list[float]
) -> None:
    guid = struct.pack("<H", tag) + bytes.fromhex("0000 0000 1000 8000 00aa00389b71")
    plain = wav_format(tag=0xFFFE, bits=bits)
    form = chunk(b"fmt ", plain[8:] + struct.pack("<HHI", 22, bits, 4) + guid)
    assert heard(wav(data, form=form)) == expected


def test_channels_are_averaged() -> None:
    form = wav_format(channels=2)
    assert heard(wav(HALF + b"\x00\x00" + HALF + HALF, form=form)) == [0.25, 0.5]


@pytest.mark.parametrize(
    "extra",
    [
        chunk(b"LIST", b"INFOISFT\x0e\0\0\0Lavf61.7.100\0\0"),  # as FFmpeg does: 70 bytes
        chunk(b"junk", b"odd"),
        chunk(b"fact", b"\0\0\0\0") + chunk(b"odd ", b"x") + chunk(b"none", b""),
    ],
)
@pytest.mark.parametrize("size", [None, 0xFFFFFFFF])
def test_chunks_before_the_data_are_passed_over(extra: bytes, size: int | None) -> None:
    assert heard(wav(HALF, size, extra=extra)) == [0.5]


def test_a_format_chunk_of_odd_size_is_padded_like_any_other() -> None:
    assert heard(wav(HALF, form=chunk(b"fmt ", wav_format()[8:] + b"x"))) == [0.5]


@pytest.mark.parametrize("size", PLACEHOLDERS)
def test_a_size_that_cant_be_means_until_the_end(size: int) -> None:
    assert heard(wav(HALF * 100, size)) == [0.5] * 100
    assert heard(wav(b"", size)) == []


@pytest.mark.parametrize(
    "after",
    [
        chunk(b"LIST", b"INFO"),
        chunk(b"C2PA", HALF * 1_001),
        chunk(b"odd ", b"x") + chunk(b"LIST", b"INFO"),
        b"\0\0\0",
        b"LIST",
        b"LIST\xff\xff\xff\xff and so on",
    ],
)
def test_what_comes_after_the_data_isnt_played(after: bytes) -> None:
    for size in CUTS:
        assert heard(wav(HALF) + after, size) == [0.5]


@pytest.mark.parametrize("between", [b"", chunk(b"LIST", b"INFO")])
def test_another_file_after_one_of_known_size_is_played(between: bytes) -> None:
    body = wav(HALF * 2) + between + wav(b"\x00\xc0", form=wav_format(channels=1)) + wav(HALF, 0)
    for size in CUTS:
        assert heard(body, size) == [0.5, 0.5, -0.5, 0.5]


@pytest.mark.parametrize("pad", [b"\0", b""])
def test_another_file_is_found_whether_or_not_the_one_before_was_padded(pad: bytes) -> None:
    form = wav_format(bits=8)
    first = wav(b"\xc0", form=form)[:-1]  # chunk() pads it
    assert heard(first + pad + wav(b"\xc0\xc0", form=form)) == [0.5] * 3


@pytest.mark.parametrize("size", PLACEHOLDERS)
def test_another_file_within_an_endless_one_is_played(size: int) -> None:
    body = wav(HALF * 3, size) + wav(HALF, size) + wav(b"", size) + wav(HALF, 2)
    for cuts in CUTS:
        assert heard(body, cuts) == [0.5] * 5


def test_another_file_begins_between_two_frames_only() -> None:
    odd = b"\x00" + wav(b"", 0)[:16] + b"\x00"
    assert heard(wav(odd, 0)) == from_s16(odd).tolist()


def test_only_what_could_begin_another_file_is_held_back() -> None:
    reader = WavReader()
    reader.push(ENDLESS)
    pushes: list[tuple[bytes, int]] = [
        (b"RI", 0),
        (b"FF" + HALF * 2, 0),  # those are its size
        (b"WAVEf", 0),  # 13 bytes; the last could be half a sample as well
        (b"mt", 0),
        (b"?", 8),  # 16 bytes that didn't
        (b"RI" + HALF, 2),
        (HALF + b"RIFF", 1),
        (HALF * 2 + b"WA", 0),
        (b"xx", 6),
    ]
    for data, samples in pushes:
        assert len(reader.push(data)) == samples
    assert len(reader.flush()) == 0


def test_what_could_have_begun_another_file_is_played_where_the_body_ends() -> None:
    reader = WavReader()
    assert reader.push(ENDLESS + HALF + b"RIFF").tolist() == [0.5]
    assert np.array_equal(reader.flush(), from_s16(b"RIFF"))


def test_a_change_of_rate_says_both_rates() -> None:
    for size in (2, 0):
        body = wav(HALF, size) + wav(HALF, form=wav_format(48_000))
        with pytest.raises(ValueError, match="from 24000 to 48000 Hz"):
            heard(body)


@pytest.mark.parametrize("missing", [1, 2, 3, 100])
def test_a_known_size_that_didnt_arrive_is_a_cut(missing: int) -> None:
    body = wav(HALF * 50)[:-missing]
    with pytest.raises(ValueError, match=f"cut short: {100 - missing} of 100 bytes"):
        heard(body)


@pytest.mark.parametrize("length", [0, 3, 4, 11, 20, 43])
def test_half_a_header_is_a_cut(length: int) -> None:
    for body in (ENDLESS[:length], wav(HALF) + ENDLESS[: max(length, 8)]):
        with pytest.raises(ValueError, match="ends before the WAV header does"):
            heard(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"OggSxxxx", "begins with b'OggS'"),
        (chunk(b"RIFF", b"AVI LIST"), "RIFF of b'AVI '"),
        (wav(HALF, form=wav_format(tag=0x55)), "format 0x0055 with 16 bits"),
        (wav(HALF, form=wav_format(bits=12)), "format 0x0001 with 12 bits"),
        (wav(HALF, form=wav_format(tag=0xFFFE)), "format 0xfffe with 16 bits"),
        (wav(HALF, form=wav_format(channels=0)), "0 channels at 24000 Hz"),
        (wav(HALF, form=wav_format(0)), "1 channels at 0 Hz"),
        (wav(HALF, form=wav_format(768_001)), "1 channels at 768001 Hz"),
        (wav(HALF, form=chunk(b"fmt ", b"", 15)), "fmt chunk of 15 bytes"),
        (wav(HALF, form=chunk(b"fmt ", b"", 4097)), "fmt chunk of 4097 bytes"),
        (wav(HALF, form=chunk(b"fake", b"")), "no fmt chunk before its data"),
    ],
)
def test_what_cant_be_says_why(body: bytes, message: str) -> None:
    for size in CUTS:
        with pytest.raises(ValueError, match=message):
            heard(body, size)


def test_a_chunk_that_is_passed_over_isnt_kept() -> None:
    reader = WavReader()
    reader.push(wav(b"", 0)[:36] + b"junk" + struct.pack("<I", 10**9))
    megabyte = bytes(10**6)
    tracemalloc.start()
    for _ in range(1_000):
        reader.push(megabyte)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10 * 10**6
    assert reader.push(chunk(b"data", HALF)).tolist() == [0.5]


@given(
    runs=st.lists(
        st.tuples(st.binary(max_size=40), st.sampled_from([None, 0, 0xFFFFFFFF])),
        min_size=1,
        max_size=4,
    ),
    form=st.sampled_from([wav_format(), wav_format(bits=8), wav_format(channels=3, bits=24)]),
    after=st.binary(max_size=20),
    places=st.lists(st.integers(0, 500)),
)
@example([(b"RIFF", 0), (HALF * 9, 0)], wav_format(), b"RIFF....WAVEfmt", [44, 45, 47, 49])
def test_any_cutting_gives_the_same_samples(
    runs: list[tuple[bytes, int | None]], form: bytes, after: bytes, places: list[int]
) -> None:
    body = b"".join(wav(data, size, form=form) for data, size in runs) + after

    def outcome(parts: list[bytes]) -> list[float] | str:
        try:
            samples: list[float] = read(WavReader(), parts).tolist()
        except ValueError as error:
            return str(error)
        return samples

    whole = outcome([body])
    assert outcome(cut(body, places)) == whole
    assert outcome(pieces(body, 1)) == whole
