"""Bodies of replies: bare audio, or events and lines of JSON with audio in them."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Callable, Mapping
from typing import Any

from tts_plugins.audio.codec import Format
from tts_plugins.audio.encode import Encoder
from tts_plugins.audio.pcm import to_s16
from tts_plugins.audio.sniff import AnyReader
from tts_plugins.audio.wav import WavWriter
from tts_plugins.dialects.base import quote
from tts_plugins.errors import InvalidRequestError, TTSError
from tts_plugins.types import AudioChunk, Samples

_LONGEST_LINE = 16_000_000
"""Bytes: minutes of 48 kHz audio in base64."""


class AudioBody:
    """Reads a body that is nothing but audio, whatever its format."""

    def __init__(self, audio: AnyReader) -> None:
        self._audio = audio

    @property
    def sample_rate(self) -> int:
        """Hertz; what was announced, until the audio itself says otherwise."""
        return self._audio.sample_rate

    def push(self, data: bytes) -> list[AudioChunk]:
        return self._chunks(self._audio.push(data))

    def flush(self) -> list[AudioChunk]:
        return self._chunks(self._audio.flush())

    def _chunks(self, samples: Samples) -> list[AudioChunk]:
        return [AudioChunk(samples, self._audio.sample_rate)] if len(samples) else []


class Lines:
    """Cuts a body into lines; the last may lack its end.

    Raises:
        ValueError: If one doesn't end.
    """

    def __init__(self) -> None:
        self._rest = bytearray()

    def push(self, data: bytes) -> list[bytes]:
        searched = len(self._rest)
        self._rest += data
        end = self._rest.rfind(b"\n", searched)
        if end < 0:
            if len(self._rest) > _LONGEST_LINE:
                raise ValueError(f"a line of more than {_LONGEST_LINE} bytes")
            return []
        lines = bytes(self._rest[:end]).split(b"\n")
        del self._rest[: end + 1]
        return [line.rstrip(b"\r") for line in lines]

    def flush(self) -> list[bytes]:
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest.strip() else []


class JsonLines:
    """Reads a body of one JSON object a line.

    Args:
        read: Makes chunks of an object.
        flush: Makes chunks of what was held back, at the end.

    Raises:
        ValueError: If a line is something else.
    """

    def __init__(
        self,
        read: Callable[[dict[str, Any]], list[AudioChunk]],
        flush: Callable[[], list[AudioChunk]],
    ) -> None:
        self._lines = Lines()
        self._read = read
        self._flush = flush
        self._failure: Exception | None = None

    def push(self, data: bytes) -> list[AudioChunk]:
        return self._chunks(self._lines.push(data))

    def flush(self) -> list[AudioChunk]:
        return [*self._chunks(self._lines.flush()), *self._flush()]

    def _chunks(self, lines: list[bytes]) -> list[AudioChunk]:
        if self._failure:
            raise self._failure
        chunks: list[AudioChunk] = []
        for line in lines:
            try:
                found = read_object(self._content(line))
                chunks += [] if found is None else self._read(found)
            except (TTSError, ValueError) as error:
                if not chunks:
                    raise
                self._failure = error  # what came before it is heard first
                break
        return chunks

    def _content(self, line: bytes) -> bytes:
        return line


class ServerSentEvents(JsonLines):
    """The same for server-sent events, of whose fields only ``data`` matters.

    Each event's data stands on one line, as in every speech API that sends them.
    """

    def _content(self, line: bytes) -> bytes:
        name, _, value = line.removeprefix(codecs.BOM_UTF8).partition(b":")
        return value if name == b"data" else b""


def read_object(text: bytes) -> dict[str, Any] | None:
    """A JSON object; None for an empty line, or the ``[DONE]`` that some put at the end.

    Raises:
        ValueError: If it is anything else.
    """
    text = text.strip().removeprefix(codecs.BOM_UTF8)
    if not text or text == b"[DONE]":
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {quote(text)}")  # noqa: TRY004  it is data
    return value


def decode(audio: object) -> bytes:
    """The bytes of a base64 field; none where it is null.

    Raises:
        ValueError: If it isn't base64.
    """
    if audio is None:
        return b""
    try:
        return base64.b64decode(audio, validate=True)  # type: ignore[arg-type]  # it looks itself
    except (TypeError, ValueError):
        raise ValueError(f"expected audio in base64, got {quote(str(audio)[:60])}") from None


def encode(audio: bytes | bytearray) -> str:
    """Bytes as a base64 field."""
    return base64.b64encode(audio).decode()


class PcmBody:
    """Writes a body of bare samples: mono, signed 16-bit, little-endian."""

    media_type = "audio/pcm"

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate

    def push(self, chunk: AudioChunk) -> bytes:
        return to_s16(chunk.samples)

    def flush(self) -> bytes:
        return b""


class WavBody:
    """Writes a body that is a WAV file of unknown length."""

    media_type = "audio/wav"

    def __init__(self, sample_rate: int = 0) -> None:
        self.sample_rate = sample_rate
        self._writer: WavWriter | None = None

    def push(self, chunk: AudioChunk) -> bytes:
        self._writer = self._writer or WavWriter(chunk.sample_rate)
        return self._writer.push(chunk.samples)

    def flush(self) -> bytes:
        return self._writer.flush() if self._writer else b""


class EncodedBody:
    """Writes a body of compressed audio.

    Raises:
        MissingDependencyError: What encodes isn't installed.
        InvalidRequestError: The codec doesn't have that rate.
    """

    def __init__(self, kind: Format, sample_rate: int, bit_rate: int | None = None) -> None:
        self.sample_rate = sample_rate
        self.media_type = _MEDIA_TYPES[kind]
        try:
            self._encoder = Encoder(kind, sample_rate, bit_rate)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error

    def push(self, chunk: AudioChunk) -> bytes:
        return self._encoder.push(chunk.samples)

    def flush(self) -> bytes:
        return self._encoder.flush()


_MEDIA_TYPES: Mapping[Format, str] = {
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
}
