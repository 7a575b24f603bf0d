"""tts_plugins.audio.pcm: samples in all ways of writing them down."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.audio.bodies import CUTS, cut, pieces, read
from tts_plugins.audio.g711 import from_alaw, from_ulaw
from tts_plugins.audio.pcm import WIDTHS, Encoding, PcmReader, from_s16, joined, to_s16

EVERY = np.arange(-32768, 32768).astype("<i2").tobytes()


def test_every_16_bit_value_survives_the_round_trip() -> None:
    assert to_s16(from_s16(EVERY)) == EVERY


def test_what_is_too_loud_clips_instead_of_wrapping() -> None:
    loud = np.array([1.0, 2.0, -1.0, -2.0, 1e9], np.float32)
    assert np.frombuffer(to_s16(loud), "<i2").tolist() == [32767, 32767, -32768, -32768, 32767]


def test_nan_is_silence() -> None:
    assert to_s16(np.array([np.nan, 0.5], np.float32)) == b"\x00\x00\x00\x40"


def test_runs_of_samples_are_joined_even_if_there_are_none() -> None:
    half = np.array([0.5], np.float32)
    assert joined([half, half[:0], -half]).tolist() == [0.5, -0.5]
    assert joined([]).tolist() == []
    assert joined([]).dtype == np.float32


LOWEST_MIDDLE_HIGHEST: list[tuple[Encoding, bytes, list[float]]] = [
    ("u8", bytes([0, 128, 192, 255]), [-1, 0, 0.5, 127 / 128]),
    ("s16", struct.pack("<4h", -(2**15), 0, 2**14, 2**15 - 1), [-1, 0, 0.5, 1 - 2**-15]),
    (
        "s24",
        bytes.fromhex("000080 000000 000040 ffff7f ffffff"),
        [-1, 0, 0.5, 1 - 2**-23, -(2**-23)],
    ),
    ("s32", struct.pack("<4i", -(2**31), 0, 2**30, 2**31 - 1), [-1, 0, 0.5, 1]),
    ("f32", struct.pack("<4f", -1, 0, 0.5, 1), [-1, 0, 0.5, 1]),
    ("f64", struct.pack("<4d", -1, 0, 0.5, 1), [-1, 0, 0.5, 1]),
    ("ulaw", b"\x00\xff\x80", [-32124 / 32768, 0, 32124 / 32768]),
    ("alaw", b"\x2a\xd5\xaa", [-32256 / 32768, 8 / 32768, 32256 / 32768]),
]


@pytest.mark.parametrize(("encoding", "data", "expected"), LOWEST_MIDDLE_HIGHEST)
def test_samples_are_read_in_every_encoding(
    encoding: Encoding, data: bytes, expected: list[float]
) -> None:
    assert read(PcmReader(24_000, encoding), [data]).tolist() == expected


def test_16_bits_and_codes_are_read_as_their_own_functions_do() -> None:
    assert np.array_equal(read(PcmReader(24_000), [EVERY]), from_s16(EVERY))
    codes = bytes(range(256))
    assert np.array_equal(read(PcmReader(8_000, "ulaw"), [codes]), from_ulaw(codes))
    assert np.array_equal(read(PcmReader(8_000, "alaw"), [codes]), from_alaw(codes))


@pytest.mark.parametrize(("encoding", "form"), [("f32", "<5f"), ("f64", "<5d")])
def test_floats_that_are_no_samples_are_silent_or_clip(encoding: Encoding, form: str) -> None:
    data = struct.pack(form, np.nan, np.inf, -np.inf, 1.5, -7.0)
    assert read(PcmReader(24_000, encoding), [data]).tolist() == [0, 1, -1, 1, -1]


def test_a_float_too_large_for_32_bits_clips() -> None:
    data = struct.pack("<2d", 1e300, -1e300)
    assert read(PcmReader(24_000, "f64"), [data]).tolist() == [1, -1]


def test_a_sample_comes_out_with_its_last_byte() -> None:
    reader = PcmReader(24_000)
    pushes: list[tuple[bytes, list[float]]] = [
        (b"\x00", []),
        (b"\x40\x00", [0.5]),
        (b"", []),
        (b"\xc0\x00\x20", [-0.5, 0.25]),
    ]
    for data, expected in pushes:
        assert reader.push(data).tolist() == expected


def test_channels_are_averaged_once_all_of_them_are_there() -> None:
    reader = PcmReader(24_000, "s16", 2)
    pushes: list[tuple[bytes, list[float]]] = [
        (b"\x00\x40\x00", []),
        (b"\x00", [0.25]),
        (b"\x00\x40\x00\xc0" + b"\x00\x80\x00\x80", [0.0, -1.0]),
    ]
    for data, expected in pushes:
        assert reader.push(data).tolist() == expected


def test_a_part_of_a_frame_at_the_end_is_dropped() -> None:
    reader = PcmReader(24_000, "s16", 2)
    assert reader.push(b"\x00\x40\x00\x40\x00\x40\x00").tolist() == [0.5]
    assert reader.flush().tolist() == []
    assert reader.push(b"\x00\x20\x00\x20").tolist() == [0.25]


@given(
    data=st.binary(max_size=100),
    places=st.lists(st.integers(0, 100)),
    encoding=st.sampled_from(sorted(WIDTHS)),
    channels=st.integers(1, 11),
)
def test_any_cutting_gives_the_same_samples(
    data: bytes, places: list[int], encoding: Encoding, channels: int
) -> None:
    whole = read(PcmReader(24_000, encoding, channels), [data])
    assert len(whole) == len(data) // (WIDTHS[encoding] * channels)
    assert np.array_equal(read(PcmReader(24_000, encoding, channels), cut(data, places)), whole)


@pytest.mark.parametrize("size", CUTS)
def test_any_size_of_pieces_gives_the_same_samples(size: int) -> None:
    assert np.array_equal(read(PcmReader(24_000), pieces(EVERY, size)), from_s16(EVERY))


@pytest.mark.parametrize(
    ("sample_rate", "channels"),
    [(0, 1), (-1, 1), (24_000, 0), (1, 1), (3_999, 1), (768_001, 1), (24_000, 65)],
)
def test_audio_of_a_rate_or_channels_that_nobody_plays_is_refused(
    sample_rate: int, channels: int
) -> None:
    with pytest.raises(ValueError, match=f"{channels} channels at {sample_rate} Hz"):
        PcmReader(sample_rate, channels=channels)


@pytest.mark.parametrize(("sample_rate", "channels"), [(4_000, 1), (768_000, 1), (24_000, 64)])
def test_the_lowest_and_the_highest_are_read(sample_rate: int, channels: int) -> None:
    reader = PcmReader(sample_rate, channels=channels)
    assert reader.push(b"\x00\x40" * channels).tolist() == [0.5]
