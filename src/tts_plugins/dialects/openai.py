"""The OpenAI speech API, ``POST /v1/audio/speech``, and the many servers that speak it.

What they return differs from what is asked for in format, rate and framing, so nothing is believed
but the reply itself (OpenAPI description of 2026-08, openai 3.57, and what servers send).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from tts_plugins.audio.codec import Format
from tts_plugins.audio.pcm import HIGHEST_RATE, LOWEST_RATE
from tts_plugins.audio.sniff import AnyReader
from tts_plugins.dialects.base import (
    Asked,
    Clip,
    CloningDialect,
    HttpCall,
    HttpReply,
    Part,
    ReplyReader,
    ReplyWriter,
    check_speed,
    json_call,
    known_options,
    quote,
    read_json,
    status_error,
)
from tts_plugins.dialects.complaints import complaint, read_complaint, voice_unknown
from tts_plugins.dialects.fields import Fields, error_reply, status_of
from tts_plugins.dialects.framing import (
    AudioBody,
    EncodedBody,
    PcmBody,
    ServerSentEvents,
    WavBody,
    decode,
    encode,
)
from tts_plugins.errors import InvalidRequestError, RemoteError, TTSError, VoiceNotFoundError
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

SPEECH = "/v1/audio/speech"

PCM_RATE = 24_000
"""Hertz of ``response_format: pcm``: every client takes it for that, whatever the engine."""

SPEEDS = (0.25, 4.0)

VOICES = (
    "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable",
    "marin", "nova", "onyx", "sage", "shimmer", "verse",
)  # fmt: skip

_COMPRESSED: Mapping[str, Format] = {"mp3": "mp3", "opus": "ogg", "aac": "aac", "flac": "flac"}

_ANONYMOUS = ("", "application/octet-stream", "binary/octet-stream")
"""Media types that say nothing about what a body is."""


class OpenAIDialect(CloningDialect):
    """The caller's end.

    The API has no field for a language, which its models hear from the text, nor for what was said
    before: ``request.language`` and ``request.previous_text`` aren't sent.

    Args:
        model: Name of the model.
        instructions: How to speak, for models that can be told.
        response_format: What to ask for. PCM is soonest; anything else that comes is read as well.
        sample_rate: Hertz of PCM from a server that says nothing about it.
        consent: Id of the consent recording that OpenAI wants for a cloned voice.
        extra: More fields of the request's JSON, for servers that know them; None leaves one out.

    Raises:
        InvalidRequestError: If the format or the rate can't be one.
    """

    home: ClassVar[str] = "api.openai.com"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    formats: ClassVar[tuple[str, ...]] = ("pcm", "wav", *_COMPRESSED)
    """What a server can be asked for as response_format."""
    request_options: Collection[str] = ("instructions", "model")
    default_voice: ClassVar[str] = VOICES[0]
    """Sent for a request without a voice, since the API requires one."""

    def __init__(
        self,
        *,
        model: str = "gpt-4o-mini-tts",
        instructions: str | None = None,
        response_format: str = "pcm",
        sample_rate: int = PCM_RATE,
        consent: str | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        if response_format not in self.formats:
            raise InvalidRequestError(
                f"no response_format {response_format!r}; formats: {', '.join(self.formats)}"
            )
        if not isinstance(sample_rate, int) or not LOWEST_RATE <= sample_rate <= HIGHEST_RATE:
            raise InvalidRequestError(f"sample_rate {sample_rate!r} is not a number of hertz")
        self._model = model
        self._instructions = instructions
        self._format = response_format
        self._sample_rate = sample_rate
        self._consent = consent
        self._extra = dict(extra or {})

    def write_call(self, request: SynthesisRequest) -> HttpCall:
        options = known_options(request, *self.request_options)
        speed = check_speed(request, *SPEEDS)
        body = {
            "model": self._model,
            "input": request.text,
            "voice": _voice(request.voice or self.default_voice),
            "instructions": self._instructions,
            "response_format": self._format,
            "speed": None if speed == 1.0 else speed,
        }
        return json_call(SPEECH, body | self._extra | dict(options))

    def read_reply(self, request: SynthesisRequest, reply: HttpReply) -> ReplyReader:
        rate = stated_rate(reply) or self._sample_rate
        if reply.media_type.lower().startswith("text/event-stream"):
            return _Events(AnyReader(self._asked_for, sample_rate=rate))
        return AudioBody(AnyReader(self._media_type(reply), sample_rate=rate))

    def read_error(self, reply: HttpReply, request: SynthesisRequest | None = None) -> TTSError:
        said, about_voice = read_complaint(reply.body)
        about_voice = about_voice or voice_unknown(said, request)
        if request and about_voice and reply.status in (400, 404, 422):
            return VoiceNotFoundError(request.voice or self.default_voice, [])
        return status_error(reply, said)

    def write_voices(self) -> Sequence[HttpCall]:
        return [HttpCall("GET", "/v1/audio/voices"), HttpCall("GET", "/v1/voices")]

    def read_voices(self, reply: HttpReply | None) -> Sequence[Voice]:
        if reply is None:
            return [Voice(name, "und") for name in VOICES]
        body = read_json(reply)
        listed = body.get("voices") or body.get("data") if isinstance(body, dict) else body
        voices = [_read_voice(item) for item in listed] if isinstance(listed, list | dict) else []
        return [voice for voice in voices if voice]

    def write_ping(self) -> HttpCall:
        return HttpCall("GET", "/v1/models")

    def write_clone(self, name: str, clip: Clip) -> HttpCall:
        if not self._consent:
            raise InvalidRequestError(
                "OpenAI clones a voice only with the consent of its owner: record it, upload it,"
                " and give its id as consent="
            )
        return HttpCall(
            "POST",
            "/v1/audio/voices",
            form=(
                Part("name", _clone_name(name, clip)),
                Part("audio_sample", clip.content, clip.filename, clip.media_type),
                Part("consent", self._consent),
                Part("type", "audio_sample"),
            ),
        )

    def read_clone(self, name: str, clip: Clip, reply: HttpReply) -> Voice:
        body = read_json(reply)
        try:
            return Voice(str(body["id"]), "und", str(body.get("name", name)))
        except (KeyError, TypeError, AttributeError):
            raise RemoteError(f"expected a voice, got {quote(reply.body)}") from None

    def find_clone(self, name: str, clip: Clip, voices: Sequence[Voice]) -> Voice | None:
        return next((v for v in voices if v.description == _clone_name(name, clip)), None)

    @property
    def _asked_for(self) -> str:
        """Media type of what was asked for, as far as audio doesn't tell by itself what it is."""
        return f"audio/{self._format}" if self._format in _COMPRESSED else ""

    def _media_type(self, reply: HttpReply) -> str:
        """What a body is called: by the reply or, where that says nothing, by what was asked for.

        Without its rate where a header states one: that header exists only to state it.
        """
        if reply.media_type.lower() in _ANONYMOUS and self._asked_for:
            return self._asked_for
        rate = r";\s*rate=[^;]*"
        return re.sub(rate, "", reply.media_type) if stated_rate(reply) else reply.media_type


class _Events(ServerSentEvents):
    """``stream_format: sse``: speech.audio.delta events, and one speech.audio.done."""

    def __init__(self, audio: AnyReader) -> None:
        self._audio = AudioBody(audio)
        super().__init__(self._event, self._audio.flush)

    def _event(self, event: dict[str, Any]) -> list[AudioChunk]:
        if event.get("error") or event.get("type") == "error":
            raise RemoteError(f"it failed on the way: {complaint(event)[0]}")
        # LiveKit's plugin reads "delta" as well, so there are servers that send it.
        return self._audio.push(decode(event.get("audio") or event.get("delta")))


def stated_rate(reply: HttpReply) -> int | None:
    """Hertz, as VieNeu's server and ours state it beside a body of bare PCM."""
    stated = reply.headers.get("x-sample-rate", "")
    rate = int(stated) if stated.isdecimal() and len(stated) < 9 else 0
    return rate if LOWEST_RATE <= rate <= HIGHEST_RATE else None


def _voice(voice: str) -> object:
    """A custom voice of OpenAI's is named by an object, every other by its name."""
    return {"id": voice} if voice.startswith("voice_") else voice


def _read_voice(item: object) -> Voice | None:
    """A voice in a list: OpenAI's, VieNeu's and Kokoro's are objects, others are names."""
    if isinstance(item, str):
        return Voice(item, "und")
    if not isinstance(item, dict) or not (item.get("id") or item.get("name")):
        return None
    return Voice(
        str(item.get("id") or item["name"]),
        str(item.get("language") or "und"),
        str(item.get("description") or item.get("name") or ""),
    )


def _clone_name(name: str, clip: Clip) -> str:
    """The name says of which recording it is, for nothing else is kept with it."""
    return f"{name} {clip.digest}"


_OPTIONS = (
    *("temperature", "top_k", "top_p", "repetition_penalty", "max_chars"),
    *("lang_code", "volume_multiplier", "normalization_options"),
)
"""VieNeu's and Kokoro's; the engine knows what they may be."""


class OpenAIServer:
    """The server's end.

    Args:
        longest: Characters of a text; OpenAI takes 4096.
    """

    path: ClassVar[str] = SPEECH

    def __init__(self, *, longest: int = 4096) -> None:
        self._longest = longest

    def read_call(self, call: HttpCall) -> Asked:
        """What is asked for.

        Raises:
            InvalidRequestError: If it isn't a speech request, or for something there isn't.
        """
        fields = Fields(call)
        options = {"instructions": fields.string("instructions")}
        options |= {name: fields.value(name) for name in _OPTIONS}
        request = SynthesisRequest(
            self._text(fields),
            voice=fields.string("voice", inside="id") or None,
            speed=fields.number("speed", *SPEEDS, default=1.0),
            options={name: value for name, value in options.items() if value is not None},
        )
        return Asked(request, _writer(fields), fields.string("model"))

    def write_error(self, error: TTSError) -> HttpReply:
        """The reply for something that went wrong before there was any audio."""
        return error_reply(error, {"error": _complaint(error)}, status=status_of(error))

    def _text(self, fields: Fields) -> str:
        text = fields.string("input")
        if not text:
            raise InvalidRequestError("input, the text to speak, is missing", field="input")
        if len(text) > self._longest:
            raise _TooLongError(
                f"input has {len(text)} characters; at most {self._longest} are taken"
            )
        return text


def _complaint(error: TTSError) -> dict[str, str | None]:
    kind = "invalid_request_error" if error.status_code < 500 else "server_error"
    param = error.field if isinstance(error, InvalidRequestError) else None
    code = None
    if error.status_code == 429:
        kind, code = "rate_limit_error", "rate_limit_exceeded"
    elif error.status_code == 401:
        code = "invalid_api_key"
    elif isinstance(error, VoiceNotFoundError):
        param, code = "voice", "voice_not_found"
    elif isinstance(error, _TooLongError):
        param, code = "input", "string_above_max_length"
    return {"message": str(error), "type": kind, "param": param, "code": code}


class _TooLongError(InvalidRequestError):
    """The text has more characters than are taken."""


class EventBody:
    """Writes the events of ``stream_format: sse``, with a body's bytes in them."""

    media_type = "text/event-stream; charset=utf-8"

    def __init__(self, body: ReplyWriter) -> None:
        self.sample_rate = body.sample_rate
        self._body = body

    def push(self, chunk: AudioChunk) -> bytes:
        return self._delta(self._body.push(chunk))

    def flush(self) -> bytes:
        # The three counts are required by OpenAI's schema; nothing here counts tokens.
        usage = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 0)
        return self._delta(self._body.flush()) + _event("speech.audio.done", usage=usage)

    def fail(self, error: TTSError) -> bytes:
        """What tells of something that went wrong on the way."""
        return _event("error", error=_complaint(error))

    def _delta(self, audio: bytes) -> bytes:
        return _event("speech.audio.delta", audio=encode(audio)) if audio else b""


def audio_writer(fields: Fields) -> ReplyWriter:
    """What writes ``response_format``. MP3 is what a caller means who doesn't say.

    ``sample_rate`` is VieNeu's: hertz, for those who don't want what OpenAI has.
    """
    name = fields.choice("response_format", OpenAIDialect.formats, default="mp3")
    rate = int(fields.number("sample_rate", 8_000, 48_000, default=0))
    if name == "wav":
        return WavBody(rate)
    rate = rate or PCM_RATE
    return PcmBody(rate) if name == "pcm" else EncodedBody(_COMPRESSED[name], rate)


def _writer(fields: Fields) -> ReplyWriter:
    body = audio_writer(fields)
    framing = fields.choice("stream_format", ("audio", "sse"), default="audio")
    return EventBody(body) if framing == "sse" else body


def _event(kind: str, **fields: object) -> bytes:
    # LiveKit's plugin wants the space behind "data:".
    return b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n"
