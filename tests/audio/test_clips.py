"""tts_plugins.audio.clips: whatever a client sends, an engine gets a plain WAV or nothing."""

from __future__ import annotations

import io
import os
import struct
import sys
import threading
import tracemalloc
import wave
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.hearing import pitch
from tests.server.cloner import heard, recording
from tts_plugins.audio.clips import hear, listen
from tts_plugins.audio.pcm import to_s16
from tts_plugins.errors import InvalidRequestError, MissingDependencyError
from tts_plugins.types import AudioChunk


def encoded(container: str, codec: str, pcm: NDArray[np.int16], rate: int = 48_000) -> bytes:
    """Mono 16-bit samples as FFmpeg writes them."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=rate)
        stream.layout = "mono"
        for start in range(0, len(pcm), 48_000):
            part = pcm[None, start : start + 48_000]
            frame = av.AudioFrame.from_ndarray(part, format="s16", layout="mono")
            frame.sample_rate = rate
            frame.pts = start
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


FORMATS = [("flac", "flac"), ("mp3", "libmp3lame"), ("ogg", "libopus"), ("adts", "aac")]


def beep(seconds: float) -> NDArray[np.int16]:
    t = np.arange(round(seconds * 48_000)) / 48_000
    return (10_000 * np.sin(2 * np.pi * 330 * t)).astype(np.int16)


def header(wav: bytes) -> tuple[int, int, int, int]:
    """Channels, bytes of a sample, hertz, samples."""
    with wave.open(io.BytesIO(wav)) as file:
        return (
            file.getnchannels(),
            file.getsampwidth(),
            file.getframerate(),
            file.getnframes(),
        )


def refused(clip: bytes, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        hear(clip)


def riff(
    *, channels: int = 1, rate: int = 24_000, bits: int = 16, size: int, data: bytes, tag: int = 1
) -> bytes:
    """A WAV whose header says what it is told to."""
    frame = channels * bits // 8
    fmt = struct.pack("<HHIIHH", tag, channels, rate, rate * frame % 2**32, frame % 2**16, bits)
    return (
        b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0" + fmt + b"data" + struct.pack("<I", size) + data
    )


def test_a_recording_comes_out_as_it_is_if_it_is_a_plain_wav() -> None:
    clip = recording(330, rate=16_000)
    assert hear(clip) == clip


@pytest.mark.parametrize(("container", "codec"), FORMATS)
def test_every_format_becomes_a_wav_at_its_own_rate(container: str, codec: str) -> None:
    wav = hear(encoded(container, codec, beep(1.0)))
    channels, width, rate, samples = header(wav)
    assert (channels, width, rate) == (1, 2, 48_000)
    assert 48_000 <= samples <= 51_000  # what an encoder put around it
    assert abs(heard(wav) - 330) < 1


def test_channels_are_averaged() -> None:
    left = np.frombuffer(recording(330)[44:], "<i2")
    stereo = np.stack([left, np.zeros_like(left)], axis=1).tobytes()
    wav = hear(riff(channels=2, rate=16_000, size=len(stereo), data=stereo))
    assert header(wav) == (1, 2, 16_000, 16_000)
    assert abs(int(np.frombuffer(wav[44:], "<i2").max()) - int(left.max()) // 2) <= 1


def test_samples_of_other_widths_become_16_bit() -> None:
    samples = (0.3 * np.sin(2 * np.pi * 330 * np.arange(24_000) / 24_000)).astype("<f4")
    samples[:4] = [np.nan, np.inf, -np.inf, 1e30]
    wav = hear(riff(tag=3, bits=32, size=4 * 24_000, data=samples.tobytes()))
    assert header(wav) == (1, 2, 24_000, 24_000)
    assert abs(pitch(wav[44:], 24_000) - 330) < 1


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF])
def test_a_wav_that_was_written_without_knowing_its_length_is_read_to_its_end(size: int) -> None:
    wav = hear(riff(size=size, rate=16_000, data=recording(330)[44:]))
    assert header(wav) == (1, 2, 16_000, 16_000)


def test_what_is_said_of_a_recording_that_cannot_be_used_says_what_to_do() -> None:
    refused(b"", "shorter than 0.5 s: say more")
    refused(recording(seconds=0.4), "shorter than 0.5 s")
    refused(recording(seconds=121.0, rate=8_000), "longer than 120 s: cut it")
    refused(recording(level=0.0), "silent")
    refused(recording(level=0.005), "silent: nothing in it is above -40 dB")
    refused(recording(rate=4_000), "4000 Hz: send one of 8000 to 96000")
    refused(recording(rate=192_000), "192000 Hz: send one of 8000 to 96000")
    refused(b"\0\0\0\x20ftypM4A " + bytes(900), "m4a, mp4 and webm can't be read; send wav, mp3")
    refused(b"\x1aE\xdf\xa3" + bytes(900), "webm can't be read")
    refused(b"<!doctype html><title>404</title>", "text instead of audio: <!doctype html>")
    refused(b'{"error": "no"}', "text instead of audio")
    refused(bytes(100_000), "there is no MP3")
    refused(b"MZ" + bytes(range(256)) * 100, "can't be read")


@pytest.mark.parametrize("channels", [0, 65, 65_535])
def test_a_wav_cannot_have_any_number_of_channels(channels: int) -> None:
    refused(riff(channels=channels, size=96_000, data=bytes(96_000)), "can't be played")


@pytest.mark.parametrize("rate", [0, 1, 2**31, 2**32 - 1])
def test_a_wav_cannot_have_any_rate(rate: int) -> None:
    refused(riff(rate=rate, size=96_000, data=bytes(96_000)), "can't be played")


def test_a_wav_that_says_to_be_longer_than_it_is_was_cut_short() -> None:
    refused(riff(size=1_500_000_000, data=recording()[44:]), "cut short")
    refused(recording()[:-1000], "cut short")
    refused(recording()[:30], "ends before the WAV header does")
    refused(b"RIFF\xff\xff\xff\xffWAVEjunk\xff\xff\xff\xff" + bytes(1000), "can't be read|header")


@pytest.mark.parametrize(("container", "codec"), FORMATS)
def test_compressed_audio_that_was_cut_short_is_refused(container: str, codec: str) -> None:
    whole = encoded(container, codec, beep(1.0))
    refused(whole[:-100], "cut short")


@pytest.mark.parametrize(("container", "codec"), FORMATS)
def test_minutes_of_nothing_in_a_few_kilobytes_are_given_up_in_time(
    container: str, codec: str
) -> None:
    bomb = encoded(container, codec, np.zeros(48_000 * 200, np.int16))
    tracemalloc.start()
    try:
        refused(bomb, "longer than 120 s")
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_a_flac_of_frames_that_could_not_be_longer_is_decoded_a_few_at_a_time() -> None:
    # 30 bytes become 2.7 s: 65,535 samples of one value, 700 times as many as they were sent as.
    file = io.BytesIO()
    with av.open(file, "w", format="flac") as container:
        stream: Any = container.add_stream("flac", rate=24_000, options={"frame_size": "65535"})
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(
            np.full((1, 65_535), 9000, np.int16), format="s16", layout="mono"
        )
        frame.sample_rate = 24_000
        for place in range(200):
            frame.pts = 65_535 * place
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    bomb = file.getvalue()
    assert len(bomb) < 20_000
    tracemalloc.start()
    try:
        refused(bomb, "longer than 120 s")
        assert tracemalloc.get_traced_memory()[1] < 80_000_000
    finally:
        tracemalloc.stop()


def page(segments: bytes, body: bytes) -> bytes:
    return b"OggS\0\0" + bytes(20) + bytes([len(segments)]) + segments + body


OPUS = page(b"\x13", b"OpusHead\x01\x01\0\0\x80\xbb\0\0\0\0\0")


def test_an_opus_packet_without_end_is_no_packet() -> None:
    refused(OPUS + page(b"\xff" * 255, bytes(255 * 255)) * 100, "cut short")


def test_ogg_of_something_else_than_opus_is_refused() -> None:
    refused(page(b"\x10", b"\x01vorbis" + bytes(9)) + page(b"\x01", b"x"), "only of Opus")


def test_what_takes_too_long_is_given_up() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 3.0
        return now

    with pytest.raises(InvalidRequestError, match="takes too long"):
        hear(recording(), clock=clock)


@pytest.mark.parametrize(("seconds", "patient"), [(9.9, True), (10.1, False)])
def test_a_recording_may_take_ten_seconds_to_decode(seconds: float, patient: bool) -> None:
    times = chain([100.0], repeat(100.0 + seconds))
    if patient:
        assert header(hear(recording(), clock=lambda: next(times))) == (1, 2, 16_000, 16_000)
        return
    with pytest.raises(InvalidRequestError, match="takes too long to decode: send it as wav"):
        hear(recording(), clock=lambda: next(times))


@given(
    st.sampled_from(
        [b"", b"RIFF\0\0\0\0WAVE", b"OggS", b"fLaC", b"ID3\x04", b"\xff\xfb\x90\0", OPUS]
    ),
    st.binary(max_size=3000),
)
def test_random_bytes_are_refused(start: bytes, rest: bytes) -> None:
    try:
        wav = hear(start + rest)
    except InvalidRequestError:
        return
    assert header(wav)[:2] == (1, 2)  # or by chance they are audio


@pytest.mark.parametrize(("container", "codec"), [*FORMATS, ("wav", "pcm_s16le")])
def test_damaged_audio_is_audio_or_refused(container: str, codec: str) -> None:
    whole = bytearray(encoded(container, codec, beep(0.6)))
    random = np.random.default_rng(0)
    for _ in range(60):
        damaged = whole.copy()
        for place in random.integers(0, len(damaged), random.integers(1, 30)):
            damaged[place] = random.integers(256)
        with suppress(InvalidRequestError):
            assert header(hear(bytes(damaged)))[:2] == (1, 2)


# What an engine in this process is given


def test_a_path_the_bytes_and_the_samples_are_one_recording(tmp_path: Path) -> None:
    clip = recording(330, rate=16_000)
    (tmp_path / "mai.wav").write_bytes(clip)
    chunks = [
        listen(tmp_path / "mai.wav"),
        listen(str(tmp_path / "mai.wav")),
        listen(clip),
        listen(listen(clip)),
    ]
    for chunk in chunks:
        assert chunk.sample_rate == 16_000
        assert chunk.samples.dtype == np.float32
        assert chunk.samples.shape == (16_000,)
        assert chunk.samples.tobytes() == chunks[0].samples.tobytes()
    assert hear(clip) == clip


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no.wav", "can't read the recording .*no.wav: No such file or directory"),
        (".", "can't read the recording .*: Is a directory"),
        ("mai.wav/x", "can't read the recording .*: Not a directory"),
        ("a\0b", "can't read the recording .*: embedded null byte"),
        ("x" * 300, "can't read the recording .*: File name too long"),
        ("page.wav", "text instead of audio"),
        ("empty.wav", r"shorter than 0\.5 s"),
    ],
)
def test_what_is_no_recording_is_one_line_that_names_it(
    tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "mai.wav").write_bytes(recording())
    (tmp_path / "page.wav").write_text("<html>")
    (tmp_path / "empty.wav").touch()
    with pytest.raises(InvalidRequestError, match=why) as refusal:
        listen(f"{tmp_path}/{name}")
    assert "\n" not in str(refusal.value)


def test_no_more_is_read_than_any_recording_has(tmp_path: Path) -> None:
    with (tmp_path / "large.wav").open("wb") as file:
        file.write(recording())
        file.truncate(100_000_001)
    for path in (tmp_path / "large.wav", "/dev/zero"):
        with pytest.raises(InvalidRequestError, match=f"{path} is too large: at most 100000000"):
            listen(path)


def test_a_pipe_is_heard_to_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(recording(),))
    writer.start()
    assert len(listen(tmp_path / "pipe").samples) == 16_000
    writer.join(5)


def tone(seconds: float, rate: int, level: float = 0.3) -> AudioChunk:
    t = np.arange(round(seconds * rate)) / rate
    return AudioChunk((level * np.sin(2 * np.pi * 330 * t)).astype(np.float32), rate)


@pytest.mark.parametrize(
    ("chunk", "why"),
    [
        (tone(0.5, 8_000), None),
        (tone(120.0, 8_000), None),
        (tone(1.0, 96_000), None),
        (tone(1.0, 24_000, level=0.999), None),
        (tone(0.499, 8_000), "shorter than 0.5 s"),
        (tone(120.01, 8_000), "longer than 120 s"),
        (tone(1.0, 7_999), "7999 Hz: send one of 8000 to 96000"),
        (tone(1.0, 96_001), "96001 Hz"),
        (tone(1.0, 24_000, level=0.0), "silent"),
        (tone(1.0, 24_000, level=0.009), "silent"),
        (AudioChunk(np.clip(tone(1.0, 24_000, level=1.1).samples, -1, 1), 24_000), "clipped: "),
        (AudioChunk(np.zeros(0, np.float32), 24_000), "shorter than 0.5 s"),
        (AudioChunk(np.full(24_000, np.nan, np.float32), 24_000), "all of them numbers"),
        (AudioChunk(np.full(24_000, np.inf, np.float32), 24_000), "all of them numbers"),
        (AudioChunk(np.zeros((24_000, 2), np.float32), 24_000), r"float32 of shape \[24000, 2\]"),
        (AudioChunk(np.zeros(24_000, "f8"), 24_000), "these are float64"),
        (AudioChunk(np.zeros(24_000, np.int16), 24_000), "these are int16"),
    ],
)
def test_samples_have_the_limits_of_any_recording(chunk: AudioChunk, why: str | None) -> None:
    if why is None:
        assert listen(chunk) is chunk
        return
    with pytest.raises(InvalidRequestError, match=why):
        listen(chunk)


@pytest.mark.parametrize("part", [0.005, 0.02])
def test_a_few_clipped_samples_are_no_harm(part: float) -> None:
    samples = tone(1.0, 24_000).samples.copy()
    samples[: round(24_000 * part)] = 1.0
    clip = riff(size=48_000, data=(samples * 32767).astype("<i2").tobytes())
    if part < 0.01:
        assert len(listen(clip).samples) == 24_000
    else:
        with pytest.raises(InvalidRequestError, match="clipped: 2% of its samples"):
            listen(clip)


@pytest.mark.parametrize(("container", "codec"), FORMATS)
def test_every_format_is_heard_as_it_is(container: str, codec: str) -> None:
    chunk = listen(encoded(container, codec, beep(1.0)))
    assert chunk.sample_rate == 48_000
    assert 48_000 <= len(chunk.samples) <= 51_000
    assert abs(pitch(to_s16(chunk.samples), 48_000) - 330) < 1


def test_a_wav_without_the_codecs_is_read_and_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flac = encoded("flac", "flac", beep(1.0))
    monkeypatch.setitem(sys.modules, "av", None)
    assert listen(recording(330)).sample_rate == 16_000
    with pytest.raises(MissingDependencyError, match=r"tts-plugins\[codecs\]"):
        listen(flac)
