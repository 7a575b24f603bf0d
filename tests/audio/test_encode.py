"""tts_plugins.audio.encode: what is written is heard, by FFmpeg and by the reader."""

from __future__ import annotations

import sys
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.audio.bodies import by_container, encoded, pieces, read, tone
from tests.hearing import pitch
from tts_plugins.audio.codec import CompressedReader, Format
from tts_plugins.audio.encode import Encoder, _checksum
from tts_plugins.audio.pcm import from_s16, to_s16
from tts_plugins.errors import MissingDependencyError
from tts_plugins.types import Samples

pytest.importorskip("av")

KINDS: list[Format] = ["mp3", "aac", "flac", "ogg"]

RATES: list[tuple[Format, int]] = [
    *[("mp3", rate) for rate in (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)],
    *[("aac", rate) for rate in (8_000, 16_000, 24_000, 44_100, 48_000)],
    *[("flac", rate) for rate in (8_000, 22_050, 24_000, 44_100, 48_000)],
    *[("ogg", rate) for rate in (8_000, 12_000, 16_000, 24_000, 48_000)],
]

DELAY: dict[Format, int] = {"mp3": 1105, "aac": 1024, "flac": 0, "ogg": 0}
"""Samples of silence in front."""

PACKET: dict[Format, int] = {"mp3": 576, "aac": 1024, "flac": 576, "ogg": 480}
"""Samples of one, at 24 kHz."""


OPUS_HEAD = "4f70757348656164 01 01 3801 c05d0000 0000 00".replace(" ", "")
"""Version 1, mono, 312 samples to skip, of 24 kHz, as loud as it is."""


def write(kind: Format, samples: Samples, *, by: int = 10**9, rate: int = 24_000) -> bytes:
    encoder = Encoder(kind, rate)
    parts = [encoder.push(samples[i : i + by]) for i in range(0, len(samples), by)]
    return b"".join([*parts, encoder.flush()])


def heard(kind: Format, body: bytes) -> Samples:
    return read(CompressedReader(kind), [body])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", [1, 7, 480])
def test_any_size_of_pieces_gives_the_same_bytes(kind: Format, by: int) -> None:
    speech = tone(0.3)
    assert write(kind, speech, by=by) == write(kind, speech)


@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(0, 5_000),
    places=st.lists(st.integers(0, 5_000), max_size=8),
)
def test_any_cutting_gives_the_same_bytes(kind: Format, count: int, places: list[int]) -> None:
    speech = tone(count / 24_000)
    encoder = Encoder(kind, 24_000)
    parts = [
        encoder.push(part) for part in np.split(speech, sorted(p % (count + 1) for p in places))
    ]
    assert b"".join([*parts, encoder.flush()]) == write(kind, speech)


@pytest.mark.parametrize(("kind", "rate"), RATES)
def test_a_tone_has_its_pitch_and_its_length(kind: Format, rate: int) -> None:
    body = write(kind, tone(1.0, rate), rate=rate)
    reader = CompressedReader(kind)
    samples = read(reader, pieces(body, 480))
    assert np.array_equal(samples, by_container(body))
    assert reader.sample_rate == (48_000 if kind == "ogg" else rate)
    assert pitch(samples, reader.sample_rate) == pytest.approx(440, abs=0.1)
    packet = 1152 if kind == "mp3" and rate >= 32_000 else PACKET[kind]
    padding = 0 if kind in ("flac", "ogg") else DELAY[kind] + packet
    assert reader.sample_rate <= len(samples) <= reader.sample_rate + padding


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [600, 1_200, 4_800, 24_000])
def test_a_tone_stands_where_it_was_and_its_end_is_there(kind: Format, count: int) -> None:
    speech = tone(count / 24_000)
    samples = heard(kind, write(kind, speech))
    if kind == "ogg":
        samples = samples[::2]
    came = samples[DELAY[kind] :][:count]
    assert np.abs(came - speech).max() < 0.12
    assert np.abs(np.diff(came)).max() < 0.12  # a click would be a step of twice the tone's 0.06
    end = np.sqrt(np.mean(came[-120:] ** 2) / np.mean(speech[-120:] ** 2))
    assert end == pytest.approx(1, abs=0.1)


@given(st.lists(st.integers(-32768, 32767), min_size=1, max_size=3_000))
def test_flac_is_what_pcm_is(values: list[int]) -> None:
    speech = np.array(values, np.float32) / np.float32(32768)
    assert heard("flac", write("flac", speech)).tolist() == speech.tolist()


@pytest.mark.parametrize(("rate", "ratio"), [(8_000, 6), (24_000, 2), (48_000, 1)])
@given(count=st.integers(1, 3_000))
def test_opus_is_as_long_as_it_was(rate: int, ratio: int, count: int) -> None:
    body = write("ogg", tone(count / rate, rate), rate=rate)
    assert len(heard("ogg", body)) == len(by_container(body)) == count * ratio


@pytest.mark.parametrize(("kind", "packets"), [("mp3", 2), ("aac", 2), ("flac", 1), ("ogg", 1)])
def test_the_first_packet_comes_as_early_as_the_codec_has_it(kind: Format, packets: int) -> None:
    speech = tone(1.0)
    encoder = Encoder(kind, 24_000)
    start = encoder.push(speech[:0])
    count = packets * PACKET[kind]
    assert encoder.push(speech[: count - 1]) == b""
    first = encoder.push(speech[count - 1 : count])
    assert len(heard(kind, start + first)) >= PACKET[kind] - 312
    assert encoder.push(speech[count : count + PACKET[kind]])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_too_loud_clips_and_does_not_wrap(kind: Format) -> None:
    loud = 3 * tone(0.2)
    assert loud.max() == pytest.approx(1.5, abs=1e-3)
    body = write(kind, loud)
    assert body == write(kind, from_s16(to_s16(loud)))
    samples = heard(kind, body)
    assert pitch(samples, 48_000 if kind == "ogg" else 24_000) == pytest.approx(440, abs=2)
    assert write(kind, loud * np.nan) == write(kind, loud * 0)


@pytest.mark.parametrize("kind", KINDS)
def test_streams_do_not_disturb_each_other(kind: Format) -> None:
    one, other = tone(0.2), tone(0.2)[::-1].copy()
    encoders = [Encoder(kind, 24_000), Encoder(kind, 24_000)]
    bodies = [b"", b""]
    for i in range(0, len(one), 240):
        bodies[0] += encoders[0].push(one[i : i + 240])
        bodies[1] += encoders[1].push(other[i : i + 240])
    assert bodies[0] + encoders[0].flush() == write(kind, one)
    assert bodies[1] + encoders[1].flush() == write(kind, other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_of_nothing_is_a_body_of_nothing(kind: Format) -> None:
    assert len(read(CompressedReader(kind), [write(kind, tone(0.0))])) == 0


@pytest.mark.parametrize(
    ("kind", "rate", "start"),
    [
        ("mp3", 24_000, "fff3a4c4"),
        ("mp3", 44_100, "fffb70c4"),
        ("aac", 24_000, "fff15840"),
        ("aac", 44_100, "fff15040"),
        ("flac", 24_000, "664c6143800000220240024000"),
        ("ogg", 24_000, "4f6767530002000000000000000001000000000000005de9810a0113" + OPUS_HEAD),
    ],
)
def test_a_body_begins_as_players_want_it(kind: Format, rate: int, start: str) -> None:
    assert write(kind, tone(0.1, rate), rate=rate).hex().startswith(start)


def test_pages_have_the_checksums_of_ffmpeg() -> None:
    pages = [b"OggS" + page for page in encoded("ogg").split(b"OggS")[1:]]
    assert len(pages) > 3
    for page in pages:
        stated = int.from_bytes(page[22:26], "little")
        assert _checksum(page[:22] + bytes(4) + page[26:]) == stated


def test_a_bit_rate_is_kept_or_the_nearest_to_it() -> None:
    def size(rate: int, bit_rate: int) -> int:
        encoder = Encoder("mp3", rate, bit_rate)
        return len(encoder.push(tone(2.0, rate)) + encoder.flush())

    assert size(44_100, 128_000) == pytest.approx(2 * 16_000, rel=0.05)
    assert size(44_100, 32_000) == pytest.approx(2 * 4_000, rel=0.05)
    assert size(24_000, 192_000) == pytest.approx(2 * 20_000, rel=0.05)


@pytest.mark.parametrize(
    ("kind", "rate"), [("mp3", 20_000), ("ogg", 44_100), ("aac", 20_000), ("flac", 0)]
)
def test_a_rate_that_the_codec_lacks_is_a_value_error(kind: Format, rate: int) -> None:
    with pytest.raises(ValueError, match=f"{kind} can't have {rate} Hz"):
        Encoder(kind, rate)


def test_an_encoder_is_gone_with_its_last_user() -> None:
    encoder = Encoder("mp3", 24_000)
    encoder.push(tone(0.1))
    gone = weakref.ref(encoder)
    del encoder
    assert gone() is None


def test_without_pyav_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingDependencyError, match=r"tts-plugins\[codecs\]"):
        Encoder("mp3", 24_000)
