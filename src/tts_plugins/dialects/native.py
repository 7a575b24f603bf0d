"""Our own speech API: all that an engine says, as it says it, to whoever sits at the other end.

``POST /api/speech`` takes a SynthesisRequest as JSON, and answers with a line for each chunk::

    {"sample_rate": 24000, "audio": "<base64 of s16>", "words":
        [{"text": "Hello", "offset": 0, "start": 0.05, "end": 0.4}, ...]}

What goes without saying is left out: no words, no audio, ``"exact": true``. An error is the class
that was raised, with its message, and becomes that class again::

    {"error": {"kind": "OverloadedError", "message": "...", "status": 429, "retry_after": 0.5}}

One on the way is the last line of a body that then ends as it should. It tells that the body isn't
whole; were the connection broken off as well, the caller might lose the line, or audio before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar

from tts_plugins import errors
from tts_plugins.audio.pcm import HIGHEST_RATE, LOWEST_RATE, from_s16, to_s16
from tts_plugins.dialects.base import (
    Asked,
    Clip,
    CloningDialect,
    HttpCall,
    HttpReply,
    Part,
    ReplyReader,
    json_call,
    one_line,
    quote,
    read_json,
    status_error,
)
from tts_plugins.dialects.complaints import complaint, read_complaint
from tts_plugins.dialects.fields import Fields, error_reply
from tts_plugins.dialects.framing import JsonLines, decode, encode
from tts_plugins.errors import InvalidRequestError, RemoteError, TTSError
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

SPEECH = "/api/speech"
VOICES = "/api/voices"
ENGINES = "/api/engines"

_KINDS: Mapping[str, type[TTSError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, TTSError)
}
"""Errors that come through as they are. A stranger's own becomes a RemoteError of its status."""

LONGEST_DUE = 60.0
"""Seconds. A place isn't kept for a listener who has more left than that."""

_FOREVER = 86_400.0
"""Seconds; a later time is no time."""

_LONGEST_MESSAGE = 4_000
"""Characters of an error: one of ours lists 30 voices."""


class NativeDialect(CloningDialect):
    """The caller's end.

    Args:
        model: Name of one of the server's engines; its default if ``None``.
    """

    request_options = None

    def __init__(self, *, model: str | None = None) -> None:
        self._model = model

    def write_call(self, request: SynthesisRequest) -> HttpCall:
        body = {
            "text": request.text,
            "voice": request.voice,
            "language": request.language,
            "speed": None if request.speed == 1.0 else request.speed,
            "previous_text": request.previous_text or None,
            "due": min(request.due, LONGEST_DUE) or None,
            "options": dict(request.options) or None,
            "model": self._model,
        }
        return json_call(SPEECH, body)

    def read_reply(self, request: SynthesisRequest, reply: HttpReply) -> ReplyReader:
        return _Chunks(request.text)

    def read_error(self, reply: HttpReply, request: SynthesisRequest | None = None) -> TTSError:
        try:
            error = _read_error(json.loads(reply.body), reply.status)
        except (ValueError, RecursionError):
            error = None
        if error:
            return error
        if request and reply.status in (404, 405):
            known = (point.name for point in entry_points(group="tts_plugins.dialects"))
            return RemoteError(
                f"{reply.status}: no server of ours; say in which dialect, in front of the"
                f" address: {', '.join(f'{name}+' for name in sorted({*known}))}",
                status_code=reply.status,
            )
        return status_error(reply, read_complaint(reply.body)[0])

    def write_voices(self) -> Sequence[HttpCall]:
        return [HttpCall("GET", VOICES, query={"model": self._model} if self._model else {})]

    def read_voices(self, reply: HttpReply | None) -> Sequence[Voice]:
        if reply is None:
            return []
        body = read_json(reply)
        listed = body.get("voices") if isinstance(body, dict) else None
        if not isinstance(listed, list):
            raise RemoteError(f"expected voices, got {quote(reply.body)}")
        return [voice for item in listed if (voice := _read_voice(item))]

    def write_ping(self) -> HttpCall:
        return HttpCall("GET", ENGINES)

    def write_clone(self, name: str, clip: Clip) -> HttpCall:
        form = [Part("name", name), Part("file", clip.content, clip.filename, clip.media_type)]
        if clip.transcript:
            form.append(Part("transcript", clip.transcript))
        if self._model:
            form.append(Part("model", self._model))
        return HttpCall("POST", VOICES, form=tuple(form))

    def read_clone(self, name: str, clip: Clip, reply: HttpReply) -> Voice:
        voice = _read_voice(read_json(reply))
        if voice is None:
            raise RemoteError(f"expected a voice, got {quote(reply.body)}")
        return voice

    def find_clone(self, name: str, clip: Clip, voices: Sequence[Voice]) -> Voice | None:
        return next((voice for voice in voices if clip.mark in voice.description), None)


class _Chunks(JsonLines):
    """The lines of speech."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._rate: int | None = None
        self._told = -1
        """Where the last word stands in the text."""
        super().__init__(self._line, list)

    def _line(self, line: dict[str, Any]) -> list[AudioChunk]:
        if "error" in line:
            error = _read_error(line)
            raise error or RemoteError(f"it failed on the way: {complaint(line)[0]}")
        rate, audio = line.get("sample_rate"), decode(line.get("audio"))
        if type(rate) is not int or not LOWEST_RATE <= rate <= HIGHEST_RATE or len(audio) % 2:
            raise ValueError(f"expected a chunk of audio, got {quote(str(line))}")
        if rate != (self._rate or rate):
            raise ValueError(f"audio of {rate} Hz behind some of {self._rate}")
        self._rate = rate
        words = line.get("words")
        found = [self._word(item) for item in words] if isinstance(words, list) else []
        return [AudioChunk(from_s16(audio), rate, tuple(word for word in found if word))]

    def _word(self, item: object) -> Word | None:
        """A word; None if it makes no sense, which is no reason to be silent."""
        match item:
            case {
                "text": str(word),
                "offset": int(offset),
                "start": int() | float() as start,
                "end": int() | float() as end,
                **rest,
            } if (
                word
                and offset > self._told
                and self._text[offset : offset + len(word)] == word
                and 0 <= start <= end < _FOREVER
            ):
                self._told = offset
                return Word(word, offset, float(start), float(end), rest.get("exact", True) is True)
        return None


def _read_voice(item: object) -> Voice | None:
    match item:
        case {"id": str(name), **rest} if name:
            return Voice(
                name,
                str(rest.get("language") or "und"),
                str(rest.get("description") or ""),
                rest.get("ready") is not False,
            )
    return None


def _read_error(body: object, status: int | None = None) -> TTSError | None:
    """The error in a line, or in a reply of that status; None if it is none of ours."""
    match body:
        case {"error": {"kind": str(name), "message": str(message), "status": int(code)} as said}:
            kind = _KINDS.get(name, RemoteError)
        case _:
            return None
    if not message.isprintable() or len(message) > _LONGEST_MESSAGE:
        message = one_line(message)
    # Not through __init__, where most make their message themselves.
    error = kind.__new__(kind, message)
    error.status_code = status or code
    wait = said.get("retry_after")
    known = isinstance(wait, int | float) and 0 <= wait < _FOREVER
    if isinstance(error, errors.OverloadedError):
        error.retry_after = float(wait) if known else 0.5
    elif isinstance(error, RemoteError):
        error.retry_after = float(wait) if known else None
    elif isinstance(error, errors.VoiceNotFoundError):
        error.voice = str(said.get("voice"))
    return error


@dataclass(frozen=True, slots=True)
class Enrolment:
    """What a caller wants who has a recording of a voice."""

    name: str
    clip: Clip
    """Its mark stands in the voice's description wherever that is listed, so that nobody sends the
    recording again."""
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """An engine that a server has."""

    name: str
    default: bool
    """Whether it speaks when no model is named."""
    clones: bool
    sample_rate: int | None
    """Hertz; ``None`` while it isn't known."""


class NativeServer:
    """The server's end.

    Args:
        longest: Characters of a text.
    """

    path: ClassVar[str] = SPEECH

    def __init__(self, *, longest: int = 20_000) -> None:
        self._longest = longest

    def read_call(self, call: HttpCall) -> Asked:
        """What is asked for.

        Raises:
            InvalidRequestError: If it isn't a speech request.
        """
        fields = Fields(call)
        text = fields.string("text")
        if text is None:
            raise InvalidRequestError("text, what to speak, is missing")
        if len(text) > self._longest:
            raise InvalidRequestError(
                f"text has {len(text)} characters; at most {self._longest} are taken"
            )
        request = SynthesisRequest(
            text,
            voice=fields.string("voice"),
            language=fields.string("language"),
            speed=fields.number("speed", 0.01, 100.0, default=1.0),
            previous_text=fields.string("previous_text") or "",
            due=min(fields.number("due", 0.0, _FOREVER, default=0.0), LONGEST_DUE),
            options=fields.fields("options") or {},
        )
        return Asked(request, ChunkLines(), fields.string("model"), strict=True)

    def read_clone(self, call: HttpCall) -> Enrolment:
        """What is to be learnt, from a form.

        Raises:
            InvalidRequestError: If it lacks the name or the recording.
        """
        parts = {part.name: part.content for part in call.form}
        name, content = _text(parts.get("name")), parts.get("file")
        if not name or not isinstance(content, bytes) or not content:
            raise InvalidRequestError("a voice needs a name, and a file with a recording of it")
        digest = hashlib.sha256(content).hexdigest()[:16]
        clip = Clip(content, digest, _text(parts.get("transcript")))
        return Enrolment(name, clip, _text(parts.get("model")) or None)

    def write_error(self, error: TTSError) -> HttpReply:
        """The reply for something that went wrong before there was any audio."""
        return error_reply(error, _error(error))

    def write_voices(self, voices: Sequence[Voice]) -> HttpReply:
        return _json({"voices": [asdict(voice) for voice in voices]})

    def write_clone(self, voice: Voice) -> HttpReply:
        return _json(asdict(voice))

    def write_engines(self, engines: Sequence[Offer]) -> HttpReply:
        return _json({"engines": [asdict(engine) for engine in engines]})


class ChunkLines:
    """Writes a line for each chunk, at the engine's own rate."""

    failure_is_read = True
    """Its clients look for the line of ``fail``, so that the body may end with it."""
    sample_rate = 0
    media_type = "application/x-ndjson"

    def push(self, chunk: AudioChunk) -> bytes:
        line: dict[str, object] = {"sample_rate": chunk.sample_rate}
        if len(chunk.samples):
            line["audio"] = encode(to_s16(chunk.samples))
        if chunk.words:
            line["words"] = [_word(word) for word in chunk.words]
        return _line(line)

    def flush(self) -> bytes:
        return b""

    def fail(self, error: TTSError) -> bytes:
        """The last line, for what went wrong on the way."""
        return _line(_error(error))


def _word(word: Word) -> dict[str, object]:
    said = {"text": word.text, "offset": word.offset, "start": word.start, "end": word.end}
    return said if word.exact else said | {"exact": False}


def _error(error: TTSError) -> object:
    said = {"kind": type(error).__name__, "message": str(error), "status": error.status_code}
    more = {name: getattr(error, name, None) for name in ("voice", "retry_after")}
    return {"error": said | {name: value for name, value in more.items() if value is not None}}


def _text(content: str | bytes | None) -> str:
    return content.strip() if isinstance(content, str) else ""


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _json(value: object) -> HttpReply:
    return HttpReply(200, {"content-type": "application/json"}, json.dumps(value).encode())
