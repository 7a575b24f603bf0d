"""Read whatever a speech server sends, by what arrives rather than by what it is called.

What a body is called is often wrong: WAV and MP3 come as ``application/octet-stream``, PCM as
``audio/wav``, an error as 200 ``audio/mpeg``. Its first bytes hardly ever are. They decide, in
this order::

    RIFF....WAVE   WAV                 {"error":  <html    text: an error to quote
    OggS           Ogg                 audio/mpeg          and alike: what the name says
    fLaC           FLAC                0xFF 0xFB           MP3, unless PCM was announced
    ID3            MP3                 anything else       PCM

PCM needs no more than its first byte, unless that could begin something else.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Literal

from tts_plugins.audio.codec import MP3_FRAME, CompressedReader, Format, Mark, literal
from tts_plugins.audio.pcm import AudioReader, Encoding, PcmReader, joined
from tts_plugins.audio.wav import WavReader
from tts_plugins.types import Samples

_Kind = Literal[Format, "wav", "pcm", "text"]

_HELD = 16
"""Bytes after which a body that is called audio is decided at the latest."""

_QUOTED = 200
"""Bytes of an error that are worth waiting for."""

_TEXT_TYPE = re.compile(r"text/|.*[/+](json|xml|html)$")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_TEXT = re.compile(rb'\s*(\{\s*"[\w.-]+"\s*:|<(!doctype|html|\?xml))', re.IGNORECASE)
_TEXT_SO_FAR = re.compile(rb'\s*(\{\s*("([\w.-]+("\s*)?)?)?)?', re.IGNORECASE)
_TAGS = (b"<!doctype", b"<html", b"<?xml")

_PCM = {"audio/pcm", "audio/l16"}
_ULAW = {"audio/basic", "audio/x-mulaw", "audio/mulaw", "audio/x-ulaw", "audio/pcmu"}
_ALAW = {"audio/x-alaw-basic", "audio/x-alaw", "audio/alaw", "audio/pcma"}
_BARE = {"application/octet-stream", "binary/octet-stream"} | _PCM | _ULAW | _ALAW
"""Under these a body isn't taken for an MP3 by its first frame, only by its ID3."""

_NAMED: Mapping[str, _Kind] = {
    "audio/mpeg": "mp3",
    "audio/x-mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/x-mp3": "mp3",
    "audio/ogg": "ogg",
    "audio/opus": "ogg",
    "application/ogg": "ogg",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "audio/aac": "aac",
    "audio/aacp": "aac",
}

_UNREADABLE = {"audio/webm", "audio/mp4", "audio/x-m4a", "video/webm", "video/mp4"}
"""Containers that would be noise if they were taken for PCM, as other bodies are."""


class AnyReader:
    """Reads WAV, MP3, Ogg Opus, FLAC, AAC and bare PCM, whichever it turns out to be.

    Text instead of audio is a ValueError that quotes its beginning. A body that needs PyAV
    where it isn't installed is a MissingDependencyError.

    Args:
        media_type: The body's Content-Type, if there is one. Its parameters rate and channels
            overrule the arguments. L16 is taken for little-endian: the RFC says otherwise,
            but it is about RTP, and the speech services that say L16 send little-endian.
        sample_rate: Rate of the samples in case they are bare, in hertz.
        encoding: How they are written down in this case.
        channels: How many are in a frame in this case.
    """

    def __init__(
        self,
        media_type: str = "",
        *,
        sample_rate: int,
        encoding: Encoding = "s16",
        channels: int = 1,
    ) -> None:
        self._name, self._parameters = _parsed(media_type)
        self._bare = (sample_rate, encoding, channels)
        self._head = b""
        self._reader: AudioReader | None = None

    @property
    def sample_rate(self) -> int:
        """Hertz. What was given until something arrives; 0 until that says its own."""
        return self._bare[0] if self._reader is None else self._reader.sample_rate

    def push(self, data: bytes) -> Samples:
        """Take the next bytes; return the samples that are now complete."""
        if self._reader is None:
            data = self._head = self._head + data
            kind = _kind(data, self._name, ended=False)
            if kind is None or (kind == "text" and len(data) < _QUOTED):
                return joined([])
            self._reader = self._open(kind)
            self._head = b""
        return self._reader.push(data)

    def flush(self) -> Samples:
        """End the body; return what was held back. ValueError if it was cut short."""
        if self._reader is not None:
            return self._reader.flush()
        if not self._head:
            return joined([])
        self._reader = self._open(_kind(self._head, self._name, ended=True) or "pcm")
        return joined([self._reader.push(self._head), self._reader.flush()])

    def _open(self, kind: _Kind) -> AudioReader:
        if kind == "text":
            raise ValueError(f"text instead of audio: {_quoted(self._head)}")
        if kind == "wav":
            return WavReader()
        if kind == "pcm":
            return self._open_pcm()
        return CompressedReader(kind)

    def _open_pcm(self) -> PcmReader:
        if self._name in _UNREADABLE:
            raise ValueError(f"{self._name} can't be read; ask for wav, pcm, mp3, opus or flac")
        sample_rate, encoding, channels = self._bare
        if self._name in _ULAW:
            sample_rate, encoding = 8000, "alaw" if encoding == "alaw" else "ulaw"
        elif self._name in _ALAW:
            sample_rate, encoding = 8000, "alaw"
        elif self._name == "audio/l16":
            encoding = "s16"
        return PcmReader(
            self._parameters.get("rate", sample_rate),
            encoding,
            channels=self._parameters.get("channels", channels),
        )


def _parsed(media_type: str) -> tuple[str, Mapping[str, int]]:
    """Name and numeric parameters: ``audio/L16; rate=8000`` -> audio/l16, rate 8000."""
    name, *parameters = media_type.lower().split(";")
    pairs = (parameter.partition("=") for parameter in parameters)
    values = {key.strip(): value.strip(' "') for key, _, value in pairs}
    return name.strip(), {key: int(value) for key, value in values.items() if value.isdecimal()}


def _kind(head: bytes, name: str, *, ended: bool) -> _Kind | None:
    """What a body of this name is that begins like this; None if more of it has to be seen.

    Text may still turn out to be none until _QUOTED bytes of it are there. No rule looks at
    what comes after the bytes that it waits for, so it doesn't matter in which pieces they
    come.
    """
    for kind, mark in _marks(name):
        if _agrees(head, mark):
            # Four bytes are no coincidence: where a body ends within its mark, it was cut.
            if len(head) >= (min(len(mark), 4) if ended else len(mark)):
                return kind
            if not ended:
                return None
    if _TEXT_TYPE.match(name) and _is_text(head[:_QUOTED]):
        return "text"
    head = head[:_HELD]
    if _TEXT.match(head):
        return "text"
    if _could_be_text(head):
        if not ended and len(head) < _HELD:
            return None
        if b'"' in head:  # A key too long to see its end
            return "text"
    return _NAMED.get(name, "pcm")


def _could_be_text(head: bytes) -> bool:
    start = head.lstrip().lower()
    return bool(_TEXT_SO_FAR.fullmatch(head)) or any(tag.startswith(start) for tag in _TAGS)


def _is_text(head: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)  # may end within a character
    except UnicodeDecodeError:
        return False
    return not _CONTROL.search(text)


def _quoted(head: bytes) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return " ".join(decoder.decode(head[:_QUOTED]).split())


def _agrees(head: bytes, mark: Mark) -> bool:
    return all(byte in allowed for byte, allowed in zip(head, mark, strict=False))


_ANY = bytes(range(256))

_MARKS: tuple[tuple[_Kind, Mark], ...] = (
    ("wav", (*literal(b"RIFF"), *[_ANY] * 4, *literal(b"WAVE"))),
    ("ogg", literal(b"OggS")),
    ("flac", literal(b"fLaC")),
    ("mp3", (*literal(b"ID3"), b"\x02\x03\x04")),
)

_FIRST_MP3_FRAME: tuple[_Kind, Mark] = (
    # Without a checksum, as usual, the header is followed by how much of the frame came
    # earlier, which is nothing where a body begins. Not one body of noise in a million begins
    # like this by chance, and none that begins softly.
    "mp3",
    (MP3_FRAME[0], b"\xfb\xf3\xe3", *MP3_FRAME[2:], b"\0"),
)


def _marks(name: str) -> tuple[tuple[_Kind, Mark], ...]:
    return _MARKS if name in _BARE or name in _NAMED else (*_MARKS, _FIRST_MP3_FRAME)
