"""tts_plugins.audio.codec: what FFmpeg encodes is heard, however it arrives."""

from __future__ import annotations

import base64
import struct
import subprocess
import sys
import zlib
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.audio.bodies import CUTS, by_container, cut, encoded, frames_of, pieces, read, tone
from tests.hearing import pitch
from tts_plugins.audio import codec
from tts_plugins.audio.codec import CompressedReader, Format
from tts_plugins.errors import MissingDependencyError
from tts_plugins.types import Samples

av = pytest.importorskip("av")

KINDS: list[Format] = ["mp3", "aac", "flac", "ogg"]

RATES: list[tuple[Format, int]] = [
    (kind, rate)
    for kind in KINDS
    for rate in (8_000, 16_000, 24_000, 44_100, 48_000)
    if (kind, rate) != ("ogg", 44_100)
]

AAC_DELAY = 1024
"""Samples that an AAC encoder puts in front; ADTS has no place to say so."""


@cache
def heard(kind: Format, body: bytes) -> Samples:
    return read(CompressedReader(kind), [body])


def id3(body: bytes) -> bytes:
    """A tag, whose size stands in seven bits of each of four bytes."""
    size = bytes(len(body) >> shift & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3\x04\x00\x00" + size + body


def ogg_page(packets: list[bytes], *, flags: int = 0, until: int = -1, whole: bool = True) -> bytes:
    """A page, whose last packet goes on in the next one unless it is whole."""
    lacing = b""
    for packet in packets:
        lacing += b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255])
    if not whole:
        assert lacing.endswith(b"\xff\0")
        lacing = lacing[:-1]
    head = struct.pack("<4sBBqIIIB", b"OggS", 0, flags, until, 1, 0, 0, len(lacing))
    return head + lacing + b"".join(packets)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", CUTS[:-1])
def test_any_size_of_pieces_gives_the_same_samples(kind: Format, size: int, live: bool) -> None:
    body = encoded(kind, live=live)
    assert np.array_equal(read(CompressedReader(kind), pieces(body, size)), heard(kind, body))


@given(
    kind=st.sampled_from(KINDS),
    places=st.lists(st.integers(0, 30_000), max_size=20),
    live=st.booleans(),
)
def test_any_cutting_gives_the_same_samples(kind: Format, places: list[int], live: bool) -> None:
    body = encoded(kind, 0.5, live=live)
    assert np.array_equal(read(CompressedReader(kind), cut(body, places)), heard(kind, body))


@pytest.mark.parametrize(("kind", "sample_rate"), RATES)
def test_a_tone_keeps_its_pitch_its_level_and_its_length(kind: Format, sample_rate: int) -> None:
    reader = CompressedReader(kind)
    samples = read(reader, [encoded(kind, 2.0, sample_rate=sample_rate)])
    assert reader.sample_rate == (48_000 if kind == "ogg" else sample_rate)
    assert pitch(samples, reader.sample_rate) == pytest.approx(440, abs=1)
    middle = samples[len(samples) // 4 : -len(samples) // 4]
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.06)  # LAME: 0.95
    extra = len(samples) - 2 * reader.sample_rate
    assert AAC_DELAY <= extra < AAC_DELAY * 2 if kind == "aac" else extra == 0


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("stereo", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_ffmpeg_makes_of_the_whole_body(kind: Format, stereo: bool, live: bool) -> None:
    body = encoded(kind, 1.234, stereo=stereo, live=live)
    assert np.array_equal(heard(kind, body), by_container(body))


@pytest.mark.parametrize(
    ("kind", "delay"), [("mp3", 0), ("aac", AAC_DELAY), ("flac", 0), ("ogg", 0)]
)
def test_a_tone_stands_where_it_was(kind: Format, delay: int) -> None:
    reader = CompressedReader(kind)
    samples = read(reader, [encoded(kind)])
    expected = tone(1.0, reader.sample_rate)
    difference = np.abs(samples[delay : delay + len(expected)] - expected)
    assert difference[len(expected) // 4 : -len(expected) // 4].max() < 0.03


@pytest.mark.parametrize("kind", KINDS)
def test_channels_are_averaged(kind: Format) -> None:
    # The tone is on the left, silence on the right.
    samples = heard(kind, encoded(kind, stereo=True))
    assert np.sqrt(np.mean(samples**2)) == pytest.approx(0.25 / np.sqrt(2), rel=0.06)


def test_flac_is_lossless() -> None:
    assert np.abs(heard("flac", encoded("flac")) - tone(1.0)).max() <= 1 / 32768


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [("mp3", 0.024), ("aac", 1024 / 24_000), ("flac", 0.096), ("ogg", 0.02)],
)
def test_a_packet_is_heard_with_its_last_byte(kind: Format, seconds: float) -> None:
    body = encoded(kind, live=True, options=(("page_duration", "20000"),) if kind == "ogg" else ())
    reader = CompressedReader(kind)
    counts = [len(reader.push(body[i : i + 1])) for i in range(len(body))]
    # Opus leaves out its first 6.5 ms, which nobody is meant to hear.
    usual = [count for count in counts if count][1:-1]
    assert set(usual) == {round(seconds * reader.sample_rate)}


@pytest.mark.parametrize("kind", KINDS)
def test_several_bodies_one_after_the_other_are_all_heard(kind: Format) -> None:
    one, other = encoded(kind), encoded(kind, 0.5)
    first, second = heard(kind, one), heard(kind, other)
    samples = read(CompressedReader(kind), pieces(one + other, 480))
    assert len(samples) == len(first) + len(second)
    assert np.array_equal(samples[: len(first)], first)
    if kind == "aac":
        # Nothing in ADTS says that another begins: the first rings on into it, and the noise
        # that the decoder makes up goes on from there.
        difference = samples[len(first) + AAC_DELAY :] - second[AAC_DELAY:]
        assert np.abs(difference).max() < 0.005
    else:
        assert np.array_equal(samples[len(first) :], second)


@pytest.mark.parametrize("kind", ["mp3", "aac", "flac"])
def test_a_change_of_rate_says_both_rates(kind: Format) -> None:
    reader = CompressedReader(kind)
    reader.push(encoded(kind))
    with pytest.raises(ValueError, match="from 24000 to 48000 Hz"):
        reader.push(encoded(kind, sample_rate=48_000))


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_is_cut_short_is_an_error(kind: Format) -> None:
    reader = CompressedReader(kind)
    reader.push(encoded(kind)[:-1])
    with pytest.raises(ValueError, match=r"was cut short"):
        reader.flush()


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_body_is_silent(kind: Format) -> None:
    reader = CompressedReader(kind)
    assert len(read(reader, [b""])) == 0
    assert reader.sample_rate == 0


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("mp3", "there is no MP3 in the body"),
        ("aac", "there is no AAC in the body"),
        ("flac", "this isn't FLAC: a frame begins with b'some'"),
        ("ogg", "this isn't Ogg: a page begins with b'some'"),
    ],
)
def test_a_body_of_something_else_says_so(kind: Format, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(CompressedReader(kind), pieces(b"something else entirely" * 20, 7))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_damage_is_heard_or_a_value_error(kind: Format, data: st.DataObject) -> None:
    body = bytearray(encoded(kind, 0.2))
    for _ in range(data.draw(st.integers(1, 5))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    def outcome(size: int) -> list[float] | str:
        try:
            samples: list[float] = read(CompressedReader(kind), pieces(bytes(body), size)).tolist()
        except ValueError as error:
            return str(error)
        return samples

    assert outcome(7) == outcome(10**9)


# MP3


def test_a_live_mp3_has_nothing_cut_off() -> None:
    # Nothing says what its encoder put in front, so it is played: 46 ms of silence.
    live, whole = heard("mp3", encoded("mp3", live=True)), heard("mp3", encoded("mp3"))
    assert len(live) % 576 == 0
    assert np.abs(live[1105 : 1105 + len(whole)] - whole).max() < 1e-4


def test_tags_of_an_mp3_arent_heard_whatever_is_in_them() -> None:
    live = encoded("mp3", live=True)
    picture = id3(frames_of("mp3", live) + b"\xff" * 70_000)
    last = b"TAG" + bytes(124) + b"\xff"
    for size in (7, 10**9):
        samples = read(CompressedReader("mp3"), pieces(picture + live + last, size))
        assert np.array_equal(samples, heard("mp3", live))


def test_what_is_no_mp3_frame_is_passed_over() -> None:
    live = encoded("mp3", live=True)
    samples = read(CompressedReader("mp3"), pieces(b"\xff\xffII\xff" + live + b"\xff\0", 1))
    assert np.array_equal(samples, heard("mp3", live))


# FLAC


def test_a_checksum_that_comes_out_even_by_chance_ends_no_flac_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = encoded("flac", 0.2)
    expected = heard("flac", body)
    monkeypatch.setattr(codec, "_CRC16", [0] * 256)
    monkeypatch.setattr(codec, "_MOST_ATTEMPTS", len(body))
    assert np.array_equal(read(CompressedReader("flac"), [body]), expected)


def test_a_checksum_that_was_made_to_come_out_even_everywhere_is_soon_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    header = encoded("flac", 0.2)[:42]
    monkeypatch.setattr(codec, "_CRC16", [0] * 256)
    reader = CompressedReader("flac")
    reader.push(header[:4] + b"\x80" + header[5:] + b"\xff\xf8" + bytes(90))
    with pytest.raises(ValueError, match="a frame is broken"):
        reader.push(bytes(20))


def test_a_flac_that_ends_between_two_frames_is_cut_short_if_it_knows_its_length() -> None:
    for live in (False, True):
        body = encoded("flac", live=live)
        reader = CompressedReader("flac")
        lengths = [len(reader.push(body[i : i + 1])) for i in range(len(body))]
        last_but_one = [i for i, length in enumerate(lengths) if length][-2]
        missing = [length for length in lengths if length][-1]
        shorter = [body[: last_but_one + 1]]
        if live:
            assert len(read(CompressedReader("flac"), shorter)) == 24_000 - missing
        else:
            with pytest.raises(ValueError, match=f"cut short: {missing} samples are missing"):
                read(CompressedReader("flac"), shorter)


def test_a_broken_flac_frame_is_an_error_before_the_body_ends() -> None:
    body = bytearray(encoded("flac", 2.0))
    body[-len(frames_of("flac", bytes(body))) + 100] ^= 0xFF
    with pytest.raises(ValueError, match="a frame is broken"):
        CompressedReader("flac").push(bytes(body))


def test_a_flac_without_its_header_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a frame begins with b'\\xff\\xf8"):
        CompressedReader("flac").push(frames_of("flac", encoded("flac")))
    with pytest.raises(ValueError, match="its header is another"):
        CompressedReader("flac").push(b"fLaC\x04\x00\x00\x22" + bytes(34))


# Ogg


def test_ogg_of_anything_but_opus_is_refused_by_name() -> None:
    for packet, name in [(b"\x01vorbis" + bytes(23), "vorbis"), (b"\x7fFLAC\x01\x00", "FLAC")]:
        with pytest.raises(ValueError, match=f"{name}.* can't be read, only of Opus"):
            CompressedReader("ogg").push(ogg_page([packet], flags=2, until=0))


def test_opus_that_is_joined_late_is_heard_as_far_as_its_pages_say() -> None:
    body = encoded("ogg")
    late = bytearray(body)
    start = late.find(b"OggS")
    while start >= 0:
        (until,) = struct.unpack_from("<q", late, start + 6)
        struct.pack_into("<q", late, start + 6, until + 10**6 if until else 0)
        start = late.find(b"OggS", start + 1)
    assert np.array_equal(heard("ogg", bytes(late)), heard("ogg", body))


def test_opus_without_a_last_page_is_heard_to_its_end() -> None:
    body = encoded("ogg", 1.01)
    samples = read(CompressedReader("ogg"), [body[: body.rfind(b"OggS")]])
    assert 0 < len(samples) < 48_480
    assert np.array_equal(samples, heard("ogg", body)[: len(samples)])


def test_an_opus_packet_may_go_on_in_the_next_page() -> None:
    body = encoded("ogg")
    head, _, *sound = [b"OggS" + page for page in body.split(b"OggS")[1:]]
    tags = [b"OpusTags".ljust(510, b"x"), b"y" * 90]
    pages = [head, ogg_page(tags[:1], whole=False), ogg_page(tags[1:], flags=1, until=0), *sound]
    samples = read(CompressedReader("ogg"), pieces(b"".join(pages), 7))
    assert np.array_equal(samples, heard("ogg", body))


# PyAV


def test_without_pyav_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingDependencyError, match=r"tts-plugins\[codecs\]"):
        CompressedReader("mp3")


def test_pyav_is_imported_with_the_first_reader() -> None:
    code = (
        "import sys; from tts_plugins.audio.codec import CompressedReader as reader;"
        "assert 'av' not in sys.modules; reader('mp3'); assert 'av' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


MANY_CHANNELS = zlib.decompress(
    base64.b64decode(
        "eNr7/zHCwX7+n3tMDKiAiWF93MKoFtHW61axa7UdL2cs0ORnyL6w88Y0kGwqiHB/8oRh54Oz29IPCjJ4pteu/pKyLr"
        "BHwYPpvlv+qdbyyQyvGAz/M6xxOL+KKfOiPwODEUO2GsM1BkVeXgZpBnsGFgYVhoAPj9ZwMjD8fh77atZtV59JDNct"
        "GZ45FNszAOUEgTY0uHF3MixhUGJocmPwZFgSyzCZwWVCZ5AkwwPVbFMGs+a11i8Z3ppEmDFsPAxUXcbgGcYwkcFmqs"
        "eRWI4pDAzGDBYqyd4MVgwMGzxdGhn6rZkYxL9sfHmSh+HLDIb/mxkYvu5n+NN/uuY8QyTD/1MM/B93Le/euT09524u"
        "Q+n2db8ZKr6JM3xmCPkcrvLmXe612+bRDHdDZ5WGCbdGWoRO9k2eo3Vy04bZWjMZtu56m7c7et21x9mlDHfLtjOsZb"
        "j2GijGsNs8dva6rdvQIQNOkMpAD3DI/RuUBQDINZRV"
    )
)
"""A damaged frame of AAC that claims dozens of channels. PyAV, asked for its samples, crashes."""


def test_more_channels_than_can_be_read_are_refused() -> None:
    with pytest.raises(ValueError, match=r"has \d\d channels"):
        CompressedReader("aac").push(MANY_CHANNELS)
