"""The OpenAI speech API, ``POST /v1/audio/speech``, and the many servers that speak it.

What they return differs from what is asked for in format, rate and framing, so nothing is believed
but the reply itself (OpenAPI description of 2026-08, openai 3.57, and what servers send).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tts_plugins.audio.sniff import AnyReader
from tts_plugins.dialects.base import (
    Asked,
    Clip,
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
    voice_unknown,
)
from tts_plugins.dialects.framing import (
    AudioBody,
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

VOICES = (
    "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable",
    "marin", "nova", "onyx", "sage", "shimmer", "verse",
)  # fmt: skip

_FORMATS = ("pcm", "wav", "mp3", "opus", "aac", "flac")


class OpenAIDialect:
    """The caller's end.

    Args:
        model: Name of the model.
        instructions: How to speak, for models that can be told.
        response_format: What to ask for. PCM is soonest; anything else that comes is read as well.
        sample_rate: Hertz of PCM from a server that says nothing about it.
        consent: Id of the consent recording that OpenAI wants for a cloned voice.
        extra: More fields of the request's JSON, for servers that know them.
    """

    home: ClassVar[str] = "api.openai.com"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    accepts_any_voice = False
    max_in_flight: int | None = None

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
        if response_format not in _FORMATS:
            raise InvalidRequestError(
                f"no response_format {response_format!r}; formats: {', '.join(_FORMATS)}"
            )
        self._model = model
        self._instructions = instructions
        self._format = response_format
        self._sample_rate = sample_rate
        self._consent = consent
        self._extra = dict(extra or {})

    def authorize(self, key: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer {key}"}

    def write_call(self, request: SynthesisRequest) -> HttpCall:
        options = known_options(request, "instructions", "model")
        speed = check_speed(request, 0.25, 4.0)
        body = {
            "model": self._model,
            "input": request.text,
            "voice": _voice(request.voice or VOICES[0]),
            "instructions": self._instructions,
            "response_format": self._format,
            "speed": None if speed == 1.0 else speed,
        }
        return json_call(SPEECH, body | self._extra | dict(options))

    def read_reply(self, request: SynthesisRequest, reply: HttpReply) -> ReplyReader:
        stated = reply.headers.get("x-sample-rate", "")
        rate = int(stated) if stated.isdecimal() and int(stated) else self._sample_rate
        if reply.media_type.startswith("text/event-stream"):
            return _Events(AnyReader(sample_rate=rate))
        return AudioBody(AnyReader(reply.media_type, sample_rate=rate))

    def read_error(self, reply: HttpReply, request: SynthesisRequest | None = None) -> TTSError:
        said, about_voice = _said(reply.body)
        if request and 400 <= reply.status < 500 and (about_voice or voice_unknown(said)):
            return VoiceNotFoundError(request.voice or VOICES[0], [])
        return status_error(reply, said)

    def write_voices(self) -> Sequence[HttpCall]:
        return [HttpCall("GET", "/v1/audio/voices"), HttpCall("GET", "/v1/voices")]

    def read_voices(self, reply: HttpReply | None) -> Sequence[Voice]:
        if reply is None:
            return [Voice(name, "und") for name in VOICES]
        body = read_json(reply)
        listed = body.get("voices") or body.get("data") or [] if isinstance(body, dict) else body
        return [_read_voice(item) for item in listed if isinstance(item, str | dict)]

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


class _Events(ServerSentEvents):
    """``stream_format: sse``: speech.audio.delta events, and one speech.audio.done."""

    def __init__(self, audio: AnyReader) -> None:
        self._audio = AudioBody(audio)
        super().__init__(self._event, self._audio.flush)

    def _event(self, event: dict[str, Any]) -> list[AudioChunk]:
        if "error" in event:
            raise RemoteError(f"it failed on the way: {_said_in(event)[0]}")
        # LiveKit's plugin reads "delta" as well, so there are servers that send it.
        return self._audio.push(decode(event.get("audio") or event.get("delta")))


class OpenAIServer:
    """The server's end."""

    path = SPEECH

    def read_call(self, call: HttpCall) -> Asked:
        try:
            body = json.loads(call.body)
            text, speed, voice = body["input"], body.get("speed", 1.0), body.get("voice")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidRequestError(f"not a speech request: {error!r}") from None
        voice = voice.get("id") if isinstance(voice, dict) else voice
        _demand("input", isinstance(text, str))
        _demand("speed", type(speed) in (int, float) and 0.25 <= speed <= 4.0)
        _demand("voice", voice is None or isinstance(voice, str))
        _demand("model", isinstance(body.get("model", ""), str))
        instructions = body.get("instructions")
        _demand("instructions", instructions is None or isinstance(instructions, str))
        request = SynthesisRequest(
            text,
            voice=voice,
            speed=float(speed),
            options={} if instructions is None else {"instructions": instructions},
        )
        return Asked(request, _writer(body), body.get("model"))

    def write_error(self, error: TTSError) -> HttpReply:
        kind = "invalid_request_error" if error.status_code < 500 else "server_error"
        code = None
        if error.status_code == 429:
            kind, code = "rate_limit_error", "rate_limit_exceeded"
        elif isinstance(error, VoiceNotFoundError):
            code = "voice_not_found"
        about = "voice" if code == "voice_not_found" else None
        body = {"message": str(error), "type": kind, "param": about, "code": code}
        return HttpReply(
            error.status_code,
            {"content-type": "application/json"},
            json.dumps({"error": body}).encode(),
        )


class _EventBody:
    """Writes the events of ``stream_format: sse``."""

    media_type = "text/event-stream; charset=utf-8"

    def __init__(self, body: ReplyWriter) -> None:
        self.sample_rate = body.sample_rate
        self._body = body

    def push(self, chunk: AudioChunk) -> bytes:
        return _event("speech.audio.delta", audio=encode(self._body.push(chunk)))

    def flush(self) -> bytes:
        # The three counts are required by OpenAI's schema; nothing here counts tokens.
        usage = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 0)
        return _event("speech.audio.done", usage=usage)


def _event(kind: str, **fields: object) -> bytes:
    return b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n"


def _writer(body: dict[str, Any]) -> ReplyWriter:
    audio: ReplyWriter
    match body.get("response_format", "pcm"):
        case "pcm":
            audio = PcmBody(PCM_RATE)
        case "wav":
            audio = WavBody()
        case other:
            raise InvalidRequestError(f"no response_format {other!r}; formats: pcm, wav")
    match body.get("stream_format", "audio"):
        case "audio":
            return audio
        case "sse":
            return _EventBody(audio)
        case other:
            raise InvalidRequestError(f"no stream_format {other!r}; formats: audio, sse")


def _demand(field: str, truth: bool) -> None:
    if not truth:
        raise InvalidRequestError(f"not a speech request: {field} is not what it should be")


def _voice(voice: str) -> object:
    """A custom voice of OpenAI's is named by an object, every other by its name."""
    return {"id": voice} if voice.startswith("voice_") else voice


def _read_voice(item: str | dict[str, Any]) -> Voice:
    if isinstance(item, str):
        return Voice(item, "und")
    name = str(item.get("id") or item.get("name"))
    return Voice(name, "und", str(item.get("description") or item.get("name") or ""))


def _clone_name(name: str, clip: Clip) -> str:
    """The name says of which recording it is, for nothing else is kept with it."""
    return f"{name} {clip.digest}"


def _said(body: bytes) -> tuple[str, bool]:
    """What an error's body says, and whether about the voice."""
    try:
        return _said_in(json.loads(body))
    except ValueError:
        return quote(body), False


def _said_in(value: Any) -> tuple[str, bool]:
    """The same for what was in it: OpenAI's shape, FastAPI's, Kokoro's, or any other."""
    if isinstance(value, dict):
        for name in ("error", "detail"):
            if value.get(name):
                said, about = _said_in(value[name])
                about = about or value.get("code") == "voice_not_found"
                return said, about
        about = value.get("code") == "voice_not_found" or value.get("param") == "voice"
        message = value.get("message") or value.get("msg")
        if message:
            where = value.get("loc")
            return quote(f"{where}: {message}" if where else str(message)), about
        return quote(json.dumps(value)), about
    if isinstance(value, list) and value:
        return _said_in(value[0])
    return quote(value if isinstance(value, str) else json.dumps(value)), False
