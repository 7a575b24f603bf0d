"""tts_plugins.audio.sniff: whatever a server sends, by what arrives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.audio.bodies import CUTS, cut, encoded, frames_of, pieces, read, tone, wav, wav_format
from tts_plugins.audio.codec import CompressedReader, Format
from tts_plugins.audio.g711 import from_alaw, from_ulaw, to_alaw, to_ulaw
from tts_plugins.audio.pcm import Encoding, from_s16, to_s16
from tts_plugins.audio.sniff import AnyReader
from tts_plugins.errors import MissingDependencyError
from tts_plugins.types import Samples

HALF = b"\x00\x40"
"""A sample of 0.5 in 16 bits."""

BARE = ["", "audio/pcm", "audio/L16", "audio/wav", "application/octet-stream", "text/plain"]
"""Media types under which samples of 16 bits came."""

JSON = b'{"error": {"message": "no such voice", "code": 404}}'
HTML = b"<!DOCTYPE html>\n<html><title>502 Bad Gateway</title>"


def heard(
    body: bytes,
    media_type: str = "",
    size: int = 10**9,
    *,
    encoding: Encoding = "s16",
    channels: int = 1,
) -> tuple[int, Samples]:
    reader = AnyReader(media_type, sample_rate=22_050, encoding=encoding, channels=channels)
    samples = read(reader, pieces(body, size))
    return reader.sample_rate, samples


# By what arrives


@pytest.mark.parametrize("media_type", [*BARE, "audio/mpeg", "audio/basic"])
@pytest.mark.parametrize("size", CUTS)
def test_a_wav_is_read_whatever_it_is_called(media_type: str, size: int) -> None:
    rate, samples = heard(wav(HALF * 20, 0, form=wav_format(8_000)), media_type, size)
    assert (rate, samples.tolist()) == (8_000, [0.5] * 20)


@pytest.mark.parametrize(
    ("kind", "media_types"),
    [
        ("mp3", ["audio/mpeg", "audio/mp3; charset=x", "", "audio/wav", "text/plain", *BARE]),
        ("ogg", ["audio/ogg; codecs=opus", "audio/opus", "application/ogg", *BARE]),
        ("flac", ["audio/flac", "AUDIO/X-FLAC", *BARE]),
        ("aac", ["audio/aac", "audio/aacp"]),
    ],
)
def test_a_compressed_body_is_read_whatever_it_is_called(
    kind: Format, media_types: list[str]
) -> None:
    pytest.importorskip("av")
    body = encoded(kind)
    reader = CompressedReader(kind)
    expected = read(reader, [body])
    for media_type in media_types:
        for size in (7, 10**9):
            rate, samples = heard(body, media_type, size)
            assert rate == reader.sample_rate
            assert np.array_equal(samples, expected)


@pytest.mark.parametrize("media_type", ["", "audio/wav", "audio/x-anything", "audio/mpeg"])
@pytest.mark.parametrize("seekable", [False, True])
def test_an_mp3_without_a_tag_is_known_by_its_first_frame(media_type: str, seekable: bool) -> None:
    pytest.importorskip("av")
    body = frames_of("mp3", encoded("mp3", live=not seekable))
    assert body[0] == 0xFF
    expected = read(CompressedReader("mp3"), [body])
    assert np.array_equal(heard(body, media_type, 1)[1], expected)


@pytest.mark.parametrize(
    "media_type",
    ["audio/pcm", "audio/L16;rate=8000", "application/octet-stream", "binary/octet-stream"],
)
@given(rest=st.binary(min_size=8, max_size=50))
def test_what_is_called_pcm_is_never_taken_for_mp3(media_type: str, rest: bytes) -> None:
    body = b"\xff\xfb\x90\xc4\x00" + rest
    assert np.array_equal(heard(body, media_type)[1], from_s16(body[: len(body) // 2 * 2]))


@given(rest=st.binary(max_size=50), first=st.sampled_from([b"\xff\xfb", b"\xff\xf3", b"\xfb\xff"]))
def test_samples_that_begin_like_a_frame_are_taken_for_one_only_if_all_of_it_fits(
    first: bytes, rest: bytes
) -> None:
    # No bit rate has the number 15: these four bytes begin no frame.
    body = first + b"\xff\x00" + rest
    assert np.array_equal(heard(body)[1], from_s16(body[: len(body) // 2 * 2]))


# Bare samples


@pytest.mark.parametrize("media_type", BARE)
def test_a_sample_comes_out_with_its_last_byte(media_type: str) -> None:
    reader = AnyReader(media_type, sample_rate=22_050)
    pushes: list[tuple[bytes, list[float]]] = [
        (b"", []),
        (b"\x00", []),
        (b"\x40\x00", [0.5]),
        (b"\xc0", [-0.5]),
    ]
    for data, expected in pushes:
        assert reader.push(data).tolist() == expected
        assert reader.sample_rate == 22_050
    assert reader.flush().tolist() == []


@pytest.mark.parametrize("begin", [b"RIFF", b"RIFF\0\0\0\0WAV", b"OggX", b"fLaX", b"ID3\x09"])
@pytest.mark.parametrize("media_type", BARE[:-1])
def test_samples_that_begin_like_something_else_are_samples(begin: bytes, media_type: str) -> None:
    body = begin + b"\x01" * 20
    for size in CUTS:
        _, samples = heard(body, media_type, size)
        assert np.array_equal(samples, from_s16(body[: len(body) // 2 * 2]))


@pytest.mark.parametrize(
    "begin", [b"RIFF\0\0\0\0WAV", b" " * 20, b"{ ", b"<!doct", b"\xff\xfb\x90"]
)
@pytest.mark.parametrize("media_type", BARE[:-1])
def test_no_more_than_16_bytes_of_audio_are_held_back(begin: bytes, media_type: str) -> None:
    reader = AnyReader(media_type, sample_rate=22_050)
    body = (begin + b"\x01" * 16)[:16]
    assert sum(len(reader.push(body[i : i + 1])) for i in range(16)) == 8


@pytest.mark.parametrize(
    ("media_type", "given", "rate", "expected"),
    [
        ("audio/pcm;rate=16000", "s16", 16_000, [0.5] * 4),
        ("audio/pcm", "f32", 22_050, [1, 1]),
        ("audio/L16; rate=8000; channels=1", "s16", 8_000, [0.5] * 4),
        ('audio/l16;codec=pcm;rate="24000";channels=2', "f32", 24_000, [0.5] * 2),
        ("audio/pcm; rate=fast; channels=", "s16", 22_050, [0.5] * 4),
        ("application/octet-stream; rate=8000", "s16", 8_000, [0.5] * 4),
        ("", "u8", 22_050, [-1, -0.5] * 4),
        ("audio/basic", "s16", 8_000, from_ulaw(HALF * 4).tolist()),
        ("audio/x-mulaw;rate=16000", "s16", 16_000, from_ulaw(HALF * 4).tolist()),
        ("audio/PCMU", "ulaw", 8_000, from_ulaw(HALF * 4).tolist()),
        ("audio/basic", "alaw", 8_000, from_alaw(HALF * 4).tolist()),
        ("audio/x-alaw-basic", "s16", 8_000, from_alaw(HALF * 4).tolist()),
        ("audio/PCMA", "ulaw", 8_000, from_alaw(HALF * 4).tolist()),
        ("audio/pcm", "ulaw", 22_050, from_ulaw(HALF * 4).tolist()),
    ],
)
def test_the_media_type_may_say_more_about_bare_samples(
    media_type: str, given: Encoding, rate: int, expected: list[float]
) -> None:
    got, samples = heard(HALF * 4, media_type, encoding=given)
    assert (got, samples.tolist()) == (rate, expected)


def test_channels_are_averaged() -> None:
    assert heard(HALF + b"\0\0", channels=2)[1].tolist() == [0.25]


def test_l16_is_little_endian() -> None:
    assert heard(b"\x00\x40", "audio/L16;rate=24000")[1].tolist() == [0.5]


@pytest.mark.parametrize("media_type", ["audio/webm", "audio/mp4;codecs=mp4a.40.2"])
def test_a_container_that_would_be_noise_is_refused(media_type: str) -> None:
    name = media_type.partition(";")[0]
    with pytest.raises(ValueError, match=f"{name} can't be read; ask for wav, pcm"):
        heard(b"\x1aE\xdf\xa3" * 9, media_type)


# Text


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("media_type", ["", "audio/mpeg", "audio/pcm", "application/json"])
@pytest.mark.parametrize(
    ("body", "quoted"),
    [
        (JSON, JSON.decode()),
        (b'\r\n{ "a_key_longer_than_sixteen" : 1}', '{ "a_key_longer_than_sixteen" : 1}'),
        (HTML, "<!DOCTYPE html> <html><title>502 Bad Gateway</title>"),
        (b"<html>" + b"x" * 300, "<html>" + "x" * 194),
        (b"\n <?xml version='1.0'?>", "<?xml version='1.0'?>"),
        (b"<Html>\0\xff", "<Html>\0\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_an_error_is_quoted_whatever_it_is_called(
    body: bytes, quoted: str, media_type: str, size: int
) -> None:
    with pytest.raises(ValueError) as caught:
        heard(body, media_type, size)
    assert str(caught.value) == f"text instead of audio: {quoted}"


@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "text/html; charset=utf-8", "application/problem+json", "application/xhtml+xml"],
)
@pytest.mark.parametrize(
    ("body", "quoted"),
    [
        (b"Service\n\tUnavailable", "Service Unavailable"),
        ("không có giọng".encode(), "không có giọng"),
        (b"RIFF is a format", "RIFF is a format"),
        (b"[" + b"x" * 300, "[" + "x" * 199),
        (b"x" + "ö".encode() * 200, "x" + "ö" * 99),  # byte 200 is the half of a letter
        (b" ", ""),
    ],
)
def test_anything_that_is_called_text_and_is_text_is_quoted(
    body: bytes, quoted: str, media_type: str
) -> None:
    for size in CUTS:
        with pytest.raises(ValueError) as caught:
            heard(body, media_type, size)
        assert str(caught.value) == f"text instead of audio: {quoted}"


def test_an_error_is_raised_once_there_is_enough_of_it_to_quote() -> None:
    reader = AnyReader("audio/mpeg", sample_rate=24_000)
    assert len(reader.push(JSON)) == 0
    assert len(reader.push(b" " * (199 - len(JSON)))) == 0
    with pytest.raises(ValueError, match="no such voice"):
        reader.push(b" ")


@pytest.mark.parametrize("place", [0, 1, 50, 198])
@pytest.mark.parametrize("byte", [b"\x00", b"\x1b", b"\x7f", b"\xff"])
def test_audio_that_is_called_text_is_played(place: int, byte: bytes) -> None:
    body = b"a" * place + byte + b"a" * (299 - place)
    for size in CUTS:
        assert np.array_equal(heard(body, "text/plain", size)[1], from_s16(body))


# Ends


@pytest.mark.parametrize("media_type", [*BARE, "audio/mpeg", "audio/ogg", "application/json"])
def test_an_empty_body_is_silent(media_type: str) -> None:
    reader = AnyReader(media_type, sample_rate=22_050)
    assert len(read(reader, [b""])) == 0
    assert reader.sample_rate == 22_050


@pytest.mark.parametrize("body", [b"\xff", b"RI", b"Ogg", b"\xff\xfb\x90", b"\n", b"<h"])
def test_a_body_that_ends_too_soon_to_be_told_is_samples(body: bytes) -> None:
    assert np.array_equal(heard(body)[1], from_s16(body[: len(body) // 2 * 2]))


def test_a_body_that_ends_within_a_mark_is_cut_short() -> None:
    with pytest.raises(ValueError, match="ends before the WAV header does"):
        heard(b"RIFF\xff\xff\xff\xffWA", "audio/pcm", 1)


def test_a_body_that_is_cut_short_is_an_error() -> None:
    with pytest.raises(ValueError, match="cut short: 3 of 4 bytes"):
        heard(wav(HALF * 2)[:-1])


def test_the_rate_is_the_bodys_own_as_soon_as_it_says_it() -> None:
    reader = AnyReader(sample_rate=22_050)
    rates = []
    for piece in (b"RI", b"FF\xff\xff\xff\xffWAVE", wav_format(8_000), b"data\0\0\0\0"):
        reader.push(piece)
        rates.append(reader.sample_rate)
    assert rates == [22_050, 0, 0, 8_000]


BEGINNINGS = [
    *(b"", b"RIFF", b"RIFFxxxxWAVE", wav(HALF, 0), wav(HALF), JSON[:12], JSON, HTML, b"OggS"),
    *(b"fLaC", b"ID3\x03", b"\xff\xfb\x90\xc4", b"\xff\xfb\x90\xc4\0", b"  ", b"\xc3", b"a" * 199),
]


@given(
    head=st.sampled_from(BEGINNINGS),
    rest=st.binary(max_size=250),
    media_type=st.sampled_from(
        [*BARE, "audio/mpeg", "audio/aac", "audio/opus", "audio/basic", "application/json"]
    ),
    places=st.lists(st.integers(0, 300)),
)
@example(b"a" * 199, b"\0", "text/plain", [])
def test_any_cutting_gives_the_same_outcome(
    head: bytes, rest: bytes, media_type: str, places: list[int]
) -> None:
    pytest.importorskip("av")

    def outcome(parts: list[bytes]) -> tuple[int, list[float]] | str:
        reader = AnyReader(media_type, sample_rate=24_000)
        try:
            samples = read(reader, parts).tolist()
        except ValueError as error:
            return str(error)
        return reader.sample_rate, samples

    whole = outcome([head + rest])
    assert outcome(cut(head + rest, places)) == whole
    assert outcome(pieces(head + rest, 1)) == whole


@pytest.mark.parametrize(
    ("media_type", "encode"), [("audio/basic", to_ulaw), ("audio/pcma", to_alaw)]
)
def test_a_telephones_tone_is_heard_again(
    media_type: str, encode: Callable[[Samples], bytes]
) -> None:
    samples = tone(0.1, 8_000)
    assert np.abs(heard(encode(samples), media_type)[1] - samples).max() < 0.02


# PyAV


def test_only_compressed_bodies_need_pyav(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    assert heard(to_s16(tone(0.1)), "audio/pcm")[0] == 22_050
    assert heard(wav(HALF))[0] == 24_000
    with pytest.raises(MissingDependencyError, match=r"tts-plugins\[codecs\]"):
        heard(b"OggS")


def test_pyav_isnt_imported_for_bare_samples() -> None:
    code = (
        "import sys; from tts_plugins.audio.sniff import AnyReader;"
        "AnyReader('audio/pcm', sample_rate=8000).push(bytes(9)); assert 'av' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
