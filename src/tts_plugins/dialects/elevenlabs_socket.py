"""ElevenLabs' WebSockets, ``/stream-input`` and ``/multi-stream-input``, from the server's end.

On the second, what is said under one id is a context: one after the other or at the same time. On
the first there is one, and an empty text ends it, which on the second only keeps it alive. What
clients read was looked up in elevenlabs 2.78, pipecat-ai 1.14 and livekit-plugins-elevenlabs 1.8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tts_plugins.dialects.base import Asked, HttpCall, ReplyWriter, json_call
from tts_plugins.dialects.elevenlabs import Character, Characters, ElevenLabsServer
from tts_plugins.dialects.fields import Fields
from tts_plugins.dialects.framing import encode
from tts_plugins.errors import InvalidRequestError, TTSError
from tts_plugins.types import AudioChunk

_PATH = re.compile(r"(?P<speech>/v1/text-to-speech/[^/]+)/(?P<multi>multi-)?stream-input")

_AUDIO = 48_000
"""Bytes of audio in a message: some clients take no message of a megabyte."""

_LONGEST_NAME = 200
"""Characters of a context's id, which every message back repeats."""

_INACTIVE, _LONGEST_INACTIVE = 20.0, 180.0
"""Seconds."""


_LIVEKIT = {"auto_mode": "true", "inactivity_timeout": "180", "sync_alignment": "true"}
"""What stands in the addresses of livekit-plugins-elevenlabs 1.8, unless it is told otherwise."""


class Address:
    """What the address of a socket says about all that is spoken on it.

    Args:
        call: The handshake; its path is still percent-encoded.

    Raises:
        InvalidRequestError: If it is no such address, or asks for what there isn't.
    """

    def __init__(self, call: HttpCall) -> None:
        place = _PATH.fullmatch(call.path)
        if place is None:
            raise InvalidRequestError(f"not a socket for speech: {call.path}")
        query = call.query
        self._speech = place["speech"]
        self._query = query
        self.multi = bool(place["multi"])
        """Whether it has contexts."""
        self.auto_mode = query.get("auto_mode") == "true"
        """Whether every message is a phrase."""
        self.sync_alignment = query.get("sync_alignment") == "true"
        self.is_livekit = {**query, **_LIVEKIT} == dict(query)
        """Whether it is one that LiveKit's plugin made, which nothing else tells."""
        self.inactivity = _inactivity(query.get("inactivity_timeout"))
        """Seconds for which a context waits for its client."""
        self.asked()

    def asked(self, settings: Mapping[str, Any] | None = None) -> Asked:
        """What a context is spoken with: the same as in a call over HTTP.

        Args:
            settings: What the message says that opened it.
        """
        seed = self._query.get("seed", "")
        fields = {
            "text": "",
            "model_id": self._query.get("model_id"),
            "language_code": self._query.get("language_code"),
            "apply_text_normalization": self._query.get("apply_text_normalization"),
            "seed": int(seed) if re.fullmatch("[0-9]{1,10}", seed) else None,
            **(settings or {}),
        }
        formats = {n: v for n, v in self._query.items() if n == "output_format"}
        return ElevenLabsServer().read_call(json_call(self._speech, fields, **formats))


@dataclass(frozen=True, slots=True)
class Message:
    """What a client sent."""

    context: str | None = None
    """None where it names none, which is a context as well."""
    text: str = ""
    flush: bool = False
    """Whether what was sent so far is to be spoken, whatever comes of it."""
    closes_context: bool = False
    closes_socket: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


def read_message(data: str | bytes, *, multi: bool) -> Message:
    """Read a message; of what isn't known, nothing matters.

    Raises:
        InvalidRequestError: If it is nonsense.
    """
    if isinstance(data, bytes):
        raise InvalidRequestError("messages are JSON, and so text")
    fields = Fields(HttpCall("", "", body=data.encode()))
    text = fields.string("text")
    names = ("voice_settings", "pronunciation_dictionary_locators")
    settings = {name: fields.value(name) for name in names if fields.value(name)}
    fields.fields("voice_settings")
    if not multi:
        ends = text == "" or fields.flag("close_socket", default=False)
        flush = ends or fields.flag("flush", default=False)
        return Message(None, text or "", flush, closes_context=ends, settings=settings)
    context = fields.string("context_id") or fields.string("contextId")
    if context and len(context) > _LONGEST_NAME:
        raise InvalidRequestError(f"a context_id has {_LONGEST_NAME} characters at most")
    return Message(
        context,
        text or "",
        fields.flag("flush", default=False),
        fields.flag("close_context", default=False),
        fields.flag("close_socket", default=False),
        settings,
    )


_SENTENCE = re.compile(r"[^\W\d_]{2}[.!?…][\"'”’)\]]*$")


def joined(before: str, text: str) -> str:
    """A text as it goes on after another, which may be a sentence without the space behind it.

    Tokens of a model have their spaces; "3." and "14" or "e." and "g." are no sentences.
    """
    return f" {text}" if _SENTENCE.search(before[-20:]) and text[:1].isalnum() else text


class ContextWriter:
    """Writes what is said in one context as messages, with the times of its characters.

    Clients count these times differently. Pipecat takes each message's from where the one before
    ended, so ``alignment`` is written like that. LiveKit asks for ``sync_alignment`` and takes
    ``normalizedAlignment`` from the beginning of the context.

    Args:
        audio: What writes the audio.
        context: The context's id.
        sync_alignment: Whether the client asked for it.
    """

    def __init__(self, audio: ReplyWriter, context: str | None, *, sync_alignment: bool) -> None:
        self._audio = audio
        self._context = context
        self._sync_alignment = sync_alignment
        self._characters = Characters()
        self._base = 0
        """Milliseconds at which the last alignment ended."""

    def begin(self, text: str) -> None:
        """Take what is said next; a space at its end shows clients that its last word is whole."""
        self._characters.text += text

    def push(self, chunk: AudioChunk) -> list[str]:
        return self._messages(self._audio.push(chunk), self._characters.push(chunk.words))

    def pause(self) -> list[str]:
        """What is left of the text so far."""
        return self._messages(b"", self._characters.flush())

    def flush(self) -> list[str]:
        return self._messages(self._audio.flush(), self._characters.flush())

    def _messages(self, audio: bytes, times: Sequence[Character]) -> list[str]:
        if not audio and not times:
            return []
        relative, absolute = self._alignments(times) if times else (None, None)
        pieces = [audio[start : start + _AUDIO] for start in range(0, len(audio), _AUDIO)]
        first, *rest = pieces or [b""]
        timed = {"alignment": relative, "normalizedAlignment": absolute}
        untimed = dict.fromkeys(timed)
        return [
            self._message(first, timed),
            *(self._message(piece, untimed) for piece in rest),
        ]

    def _message(self, audio: bytes, alignments: Mapping[str, object]) -> str:
        sound = encode(audio) if audio else None
        return _write(self._context, {"audio": sound, "isFinal": None, **alignments})

    def _alignments(self, times: Sequence[Character]) -> tuple[object, object]:
        base, self._base = self._base, max(self._base, round(1000 * times[-1].end))
        relative = _alignment(times, base)
        return relative, _alignment(times, 0) if self._sync_alignment else relative


def write_final(context: str | None) -> str:
    """Nothing more comes of a context. Pipecat doesn't hear audio that is in the same message."""
    return _write(context, {"isFinal": True})


def write_error(error: TTSError, context: str | None = None) -> str:
    said = str(error)
    return _write(context, {"error": said, "message": said, "code": close_code(error)})


def close_code(error: TTSError) -> int:
    """The code with which a socket is closed because of it."""
    if error.status_code in (429, 503):
        return 1013  # try again later
    return 1008 if error.status_code < 500 else 1011


def _write(context: str | None, message: Mapping[str, object]) -> str:
    # Pipecat reads one name, the API's newer clients the other.
    names = {} if context is None else {"contextId": context, "context_id": context}
    return json.dumps({**message, **names}, separators=(",", ":"))


def _alignment(times: Sequence[Character], base: int) -> dict[str, list[Any]]:
    starts = [max(0, round(1000 * each.start) - base) for each in times]
    ends = [max(0, round(1000 * each.end) - base) for each in times]
    return {
        "chars": [each.text for each in times],
        "charStartTimesMs": starts,
        "charDurationsMs": [max(0, end - s) for s, end in zip(starts, ends, strict=True)],
    }


def _inactivity(given: str | None) -> float:
    try:
        seconds = float(given or _INACTIVE)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_INACTIVE:
        raise InvalidRequestError(
            f"inactivity_timeout has to be a number of seconds, at most {_LONGEST_INACTIVE:g}"
        )
    return seconds
