"""tts_plugins.dialects.framing: lines and events, however they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.audio.bodies import tone
from tts_plugins.audio.codec import Format
from tts_plugins.audio.encode import Encoder
from tts_plugins.audio.sniff import AnyReader
from tts_plugins.dialects.framing import (
    AudioBody,
    EncodedBody,
    JsonLines,
    Lines,
    PcmBody,
    ServerSentEvents,
    WavBody,
    decode,
    encode,
    read_object,
)
from tts_plugins.errors import InvalidRequestError, RemoteError
from tts_plugins.types import AudioChunk


def chunk(*samples: float, rate: int = 24_000) -> AudioChunk:
    return AudioChunk(np.array(samples, np.float32), rate)


def read(body: bytes, size: int, framing: type[JsonLines]) -> list[Any]:
    """The objects in a body that comes in pieces of ``size`` bytes."""
    found: list[Any] = []

    def note(value: dict[str, Any]) -> list[AudioChunk]:
        found.append(value)
        return [chunk(0.5)]

    reader = framing(note, lambda: [chunk(0.0)])
    chunks = [c for i in range(0, len(body), size) for c in reader.push(body[i : i + size])]
    chunks += reader.flush()
    assert [c.samples[0] for c in chunks] == [*[0.5] * len(found), 0.0]
    return found


SIZES = [1, 2, 7, 1000]


def test_a_line_comes_with_its_end_and_the_last_without_one() -> None:
    lines = Lines()
    table: list[tuple[bytes, list[bytes]]] = [
        (b"a", []),
        (b"b\r", []),
        (b"\n", [b"ab"]),
        (b"\n\nc\nd", [b"", b"", b"c"]),
        (b"", []),
        (b"e", []),
    ]
    for data, expected in table:
        assert lines.push(data) == expected
    assert lines.flush() == [b"de"]
    assert lines.flush() == []


def test_a_line_without_an_end_is_given_up() -> None:
    lines = Lines()
    lines.push(b"x" * 16_000_000)
    with pytest.raises(ValueError, match="a line of more than 16000000 bytes"):
        lines.push(b"x")


@pytest.mark.parametrize("size", SIZES)
def test_lines_of_json_come_however_they_are_cut(size: int) -> None:
    body = '{"a":1}\n\n{"b":"ü"}\r\n{"c":[]}'.encode()
    assert read(body, size, JsonLines) == [{"a": 1}, {"b": "ü"}, {"c": []}]


@pytest.mark.parametrize("size", SIZES)
def test_events_come_however_they_are_cut(size: int) -> None:
    body = (
        b": keep-alive\n\n"
        b'event: delta\nid: 7\ndata: {"a":1}\n\n'
        b'data:{"b":"data: no"}\r\n\r\n'
        b"data: [DONE]\n\n"
    )
    assert read(body, size, ServerSentEvents) == [{"a": 1}, {"b": "data: no"}]


@pytest.mark.parametrize("size", SIZES)
def test_a_byte_order_mark_hides_nothing(size: int) -> None:
    lines = b'\xef\xbb\xbf{"a":1}\n{"b":2}\n'
    assert read(lines, size, JsonLines) == [{"a": 1}, {"b": 2}]
    assert read(b"\xef\xbb\xbf\n" + lines[3:], size, JsonLines) == [{"a": 1}, {"b": 2}]
    events = b'\xef\xbb\xbfdata: {"a":1}\n\ndata: {"b":2}\n\n'
    assert read(events, size, ServerSentEvents) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"<html>", "expected a JSON object, got '<html>'"),
        (b'{"a":', "expected a JSON object, got '{\"a\":'"),
        (b"[1]", r"expected a JSON object, got '\[1\]'"),
        (b"null", "expected a JSON object, got 'null'"),
        (b"\xff", "expected a JSON object, got '\N{REPLACEMENT CHARACTER}'"),
        (b'{"a":' + b"[" * 100_000, r'expected a JSON object, got \'{"a":\[+\.\.\.'),
    ],
)
def test_what_is_no_object_is_quoted(line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_object(line)


def test_what_came_before_a_failure_is_given_before_it_is_raised() -> None:
    def note(value: dict[str, Any]) -> list[AudioChunk]:
        if "error" in value:
            raise RemoteError("it failed")
        return [chunk(0.5)]

    for end in (b'{"error": 1}\n', b"nonsense\n"):
        reader = JsonLines(note, list)
        assert len(reader.push(b"{}\n{}\n" + end + b"{}\n")) == 2
        with pytest.raises((RemoteError, ValueError)):
            reader.push(b"{}\n")
        with pytest.raises((RemoteError, ValueError)):
            reader.flush()
        with pytest.raises((RemoteError, ValueError)):
            JsonLines(note, list).push(end)


def test_base64_is_read_and_written() -> None:
    assert encode(b"\0\x40") == "AEA="
    assert decode("AEA=") == b"\0\x40"
    assert decode("") == decode(None) == b""


@pytest.mark.parametrize("audio", ["AEA", "AE A=", "é", 7, True, [], {}, "~~~~"])
def test_what_is_no_base64_is_quoted(audio: object) -> None:
    with pytest.raises(ValueError, match="expected audio in base64, got"):
        decode(audio)


def test_bare_audio_is_read_at_the_rate_that_arrives() -> None:
    body = AudioBody(AnyReader("audio/pcm", sample_rate=16_000))
    assert body.sample_rate == 16_000
    table = [(b"\0", []), (b"\x40\0", [[0.5]]), (b"\x40", [[0.5]]), (b"", [])]
    for data, expected in table:
        chunks = body.push(data)
        assert [list(c.samples) for c in chunks] == expected
        assert all(c.sample_rate == 16_000 for c in chunks)
    assert body.flush() == []


def test_pcm_is_written_bare() -> None:
    body = PcmBody(24_000)
    assert body.push(chunk(0.5, -1.0)) == b"\x00\x40\x00\x80"
    assert body.flush() == b""
    assert (body.media_type, body.sample_rate) == ("audio/pcm", 24_000)


def test_a_wav_has_the_rate_of_the_first_chunk() -> None:
    body = WavBody()
    assert (body.media_type, body.sample_rate) == ("audio/wav", 0)
    first = body.push(chunk(0.5, rate=44_100))
    assert first[:4] == b"RIFF"
    assert int.from_bytes(first[24:28], "little") == 44_100
    assert first[44:] == b"\x00\x40"
    assert body.push(chunk(0.5, rate=44_100)) == b"\x00\x40"
    assert body.flush() == b""


def test_a_wav_of_nothing_is_nothing() -> None:
    assert WavBody().flush() == b""


@pytest.mark.parametrize(
    ("kind", "media_type"),
    [
        ("mp3", "audio/mpeg"),
        ("ogg", "audio/ogg"),
        ("aac", "audio/aac"),
        ("flac", "audio/flac"),
    ],
)
def test_a_compressed_body_is_what_its_encoder_writes(kind: Format, media_type: str) -> None:
    pytest.importorskip("av")
    body, encoder = EncodedBody(kind, 24_000, 32_000), Encoder(kind, 24_000, 32_000)
    assert (body.media_type, body.sample_rate) == (media_type, 24_000)
    speech = tone(0.2)
    assert body.push(AudioChunk(speech, 24_000)) == encoder.push(speech)
    assert body.flush() == encoder.flush()


def test_a_rate_that_a_codec_lacks_is_refused() -> None:
    pytest.importorskip("av")
    with pytest.raises(InvalidRequestError, match="ogg can't have 44100 Hz"):
        EncodedBody("ogg", 44_100)
