"""The ElevenLabs API, ``POST /v1/text-to-speech/{voice}/stream/with-timestamps``.

Its replies time every character of the text, so that words are exact and an interrupted turn is
remembered to the word (elevenlabs 2.78, and ElevenLabs' documentation of 2025-08; the codes of
errors are those of 2026-09 and of before).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote as percent_encoded
from urllib.parse import unquote

import numpy as np

from tts_plugins.audio.g711 import to_alaw, to_ulaw
from tts_plugins.audio.level import first_above
from tts_plugins.audio.pcm import Encoding, to_s16
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
from tts_plugins.dialects.framing import AudioBody, EncodedBody, JsonLines, decode, encode
from tts_plugins.errors import InvalidRequestError, RemoteError, TTSError, VoiceNotFoundError
from tts_plugins.text.alignment import Alignment, characters
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice, Word

DEFAULT_VOICE = "hpp4J3VqNfWAUOO0d1Us"
"""Spoken with where none is named. The API has no default; this is LiveKit's, one of the voices
that every account has, and so known to servers that take LiveKit's calls."""

_SLOWEST, _FASTEST = 0.7, 1.2

_SETTINGS = ("stability", "similarity_boost", "style", "use_speaker_boost")
"""Options that stand in voice_settings."""

_FIELDS = ("seed", "next_text", "apply_text_normalization", "pronunciation_dictionary_locators")
"""Options that stand next to the text."""

_FITS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_SETTINGS[:3], lambda v: type(v) in (int, float) and 0 <= v <= 1),
    "use_speaker_boost": lambda v: isinstance(v, bool),
    "seed": lambda v: type(v) is int and 0 <= v < 2**32,
    "next_text": lambda v: isinstance(v, str),
    "apply_text_normalization": lambda v: v in ("auto", "on", "off"),
    "pronunciation_dictionary_locators": lambda v: isinstance(v, list | tuple),
    "model": lambda v: isinstance(v, str),
}

_UNTOLD = re.compile(r".*_v[12]")
"""Models that find out the language themselves: they ignore a language code, or refuse it."""

_FORGETFUL = "eleven_v3"
"""How models begin that refuse previous_text."""

_CODES = {"nb": "no", "nn": "no", "tl": "fil", "und": None}
"""Languages that ElevenLabs calls by another code than BCP 47."""

_NO_VOICE = {"voice_not_found", "invalid_voice_id", "invalid_uid"}
_BUSY = {"too_many_concurrent_requests", "concurrent_limit_exceeded", "system_busy"}
_UNPAID = {"quota_exceeded", "insufficient_credits"}
"""Answered with 401 by some, as if the key were wrong."""


class _Format(NamedTuple):
    sample_rate: int
    """Hertz."""
    encoding: Encoding
    media_type: str


_RAW = {
    **{
        f"pcm_{rate}": _Format(rate, "s16", "audio/pcm")
        for rate in (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
    },
    # Both laws go by the same name: which it is, only the caller knows.
    "ulaw_8000": _Format(8_000, "ulaw", "audio/basic"),
    "alaw_8000": _Format(8_000, "alaw", "audio/basic"),
}
_ENCODED = (
    "mp3_22050_32",
    "mp3_24000_48",
    *(f"mp3_44100_{kilobits}" for kilobits in (32, 64, 96, 128, 192)),
    *(f"opus_48000_{kilobits}" for kilobits in (32, 64, 96, 128, 192)),
)
DEFAULT_FORMAT = "mp3_44100_128"
_COMPRESSED = re.compile(r"(mp3|opus)_(\d+)_\d+")
_CONTAINERS = {"mp3": "audio/mpeg", "opus": "audio/ogg"}


class ElevenLabsDialect(CloningDialect):
    """The caller's end.

    A request's options are those from ``stability`` to ``pronunciation_dictionary_locators``, which
    overrule these, ``model`` and ``next_text``.

    Args:
        model: Name of the model.
        output_format: What to ask for, such as pcm_24000, ulaw_8000 or mp3_44100_128; a container
            that comes in its place is read as well.
        timestamps: Whether to ask for times; without, words are estimated. For servers that have
            no ``/stream/with-timestamps``.
        stability: 0 to 1; the voice's own if ``None``, like the three below.
        similarity_boost: 0 to 1.
        style: 0 to 1.
        use_speaker_boost: Whether to come closer to the speaker, and answer later.
        seed: 0 to 4294967295; the same for speech that is to be the same.
        apply_text_normalization: "auto", "on" or "off": whether numbers are spelled out first.
        pronunciation_dictionary_locators: Up to three, as the API has them.
        remove_background_noise: Whether to clean the recordings that voices are cloned from.
        labels: Of cloned voices, such as ``{"language": "en"}``.

    Raises:
        InvalidRequestError: If a value can't be one.
    """

    home: ClassVar[str] = "api.elevenlabs.io"
    key_variable: ClassVar[str] = "ELEVENLABS_API_KEY"
    request_options = tuple(_FITS)

    def __init__(
        self,
        *,
        model: str = "eleven_flash_v2_5",
        output_format: str = "pcm_24000",
        timestamps: bool = True,
        stability: float | None = None,
        similarity_boost: float | None = None,
        style: float | None = None,
        use_speaker_boost: bool | None = None,
        seed: int | None = None,
        apply_text_normalization: str | None = None,
        pronunciation_dictionary_locators: Sequence[Mapping[str, str]] | None = None,
        remove_background_noise: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._format = _format(output_format)
        self._output_format = output_format
        self._timestamps = timestamps
        self._options = _checked(
            model=model,
            stability=stability,
            similarity_boost=similarity_boost,
            style=style,
            use_speaker_boost=use_speaker_boost,
            seed=seed,
            apply_text_normalization=apply_text_normalization,
            pronunciation_dictionary_locators=pronunciation_dictionary_locators,
        )
        self._remove_background_noise = remove_background_noise
        self._labels = dict(labels or {})

    def authorize(self, key: str) -> Mapping[str, str]:
        return {"xi-api-key": key}

    def write_call(self, request: SynthesisRequest) -> HttpCall:
        options = self._options | _checked(**known_options(request, *self.request_options))
        model = str(options["model"])
        settings = {name: options[name] for name in _SETTINGS if name in options}
        speed = check_speed(request, _SLOWEST, _FASTEST)
        body = {
            "text": request.text,
            "model_id": model,
            "language_code": _language_code(request.language, model),
            "previous_text": (not model.startswith(_FORGETFUL) and request.previous_text) or None,
            "voice_settings": (settings | ({} if speed == 1.0 else {"speed": speed})) or None,
        }
        return json_call(
            _path(request.voice or DEFAULT_VOICE, timestamps=self._timestamps),
            body | {name: options.get(name) for name in _FIELDS},
            output_format=self._output_format,
        )

    def read_reply(self, request: SynthesisRequest, reply: HttpReply) -> ReplyReader:
        rate, encoding, asked = self._format
        called = reply.media_type.lower()
        named = called.startswith("audio/")
        if self._timestamps and not named and "octet-stream" not in called:
            # Nothing says what the audio in a line is: what it begins with, or what was asked for.
            hint = "" if self._output_format in _RAW else asked
            return _TimedLines(request.text, AnyReader(hint, sample_rate=rate, encoding=encoding))
        media_type = called if named else asked
        return AudioBody(AnyReader(media_type, sample_rate=rate, encoding=encoding))

    def read_error(self, reply: HttpReply, request: SynthesisRequest | None = None) -> TTSError:
        said, about_voice = read_complaint(reply.body)
        codes = _codes_in(reply.body)
        about_voice = about_voice or bool(codes & _NO_VOICE) or voice_unknown(said, request)
        if request and about_voice and reply.status in (400, 404, 422):
            return VoiceNotFoundError(request.voice or DEFAULT_VOICE, [])
        if request and self._timestamps and reply.status in (404, 405) and not codes:
            said += "; a server without /stream/with-timestamps needs timestamps=False"
        return _failure(reply, said, codes)

    def write_voices(self) -> Sequence[HttpCall]:
        # The first tells all of them at once, the second 100 at a time.
        return [
            HttpCall("GET", "/v1/voices"),
            HttpCall("GET", "/v2/voices", query={"page_size": "100"}),
        ]

    def read_voices(self, reply: HttpReply | None) -> Sequence[Voice]:
        if reply is None:
            return []
        body = read_json(reply)
        listed = body.get("voices") if isinstance(body, dict) else body
        if not isinstance(listed, list):
            raise RemoteError(f"expected voices, got {quote(reply.body)}")
        return [_read_voice(v) for v in listed if isinstance(v, dict) and v.get("voice_id")]

    def write_ping(self) -> HttpCall:
        return HttpCall("GET", "/v1/models")

    def write_clone(self, name: str, clip: Clip) -> HttpCall:
        form = [
            Part("name", name),
            Part("files", clip.content, clip.filename, clip.media_type),
            Part("description", clip.mark),
        ]
        if self._remove_background_noise:
            form.append(Part("remove_background_noise", "true"))
        if self._labels:
            form.append(Part("labels", json.dumps(self._labels)))
        return HttpCall("POST", "/v1/voices/add", form=tuple(form))

    def read_clone(self, name: str, clip: Clip, reply: HttpReply) -> Voice:
        body = read_json(reply)
        try:
            voice = str(body["voice_id"])
            unverified = body.get("requires_verification")
        except (KeyError, TypeError, AttributeError):
            raise RemoteError(f"expected a voice, got {quote(reply.body)}") from None
        if unverified:
            raise RemoteError(
                f"{name!r} can't speak yet: verify the voice {voice} on the server's own website",
                status_code=403,
            )
        return Voice(voice, str(self._labels.get("language", "und")), clip.mark)

    def find_clone(self, name: str, clip: Clip, voices: Sequence[Voice]) -> Voice | None:
        return next((voice for voice in voices if clip.mark in voice.description), None)


class _TimedLines(JsonLines):
    """Reads lines of audio with the times of its characters."""

    def __init__(self, text: str, audio: AnyReader) -> None:
        super().__init__(self._read_line, self._end)
        self._audio = audio
        self._alignment = Alignment(text)
        self._field = ""
        """Which of the two alignments this reply has: that of the text, or of how it is read."""
        self._words: list[Word] = []
        """Whose audio hasn't come yet."""
        self._timed = False
        self._untimed = False
        """Whether speech began before any word, so that its listeners go by their own guess."""
        self._samples = 0

    def _content(self, line: bytes) -> bytes:
        # The documentation calls the body an event stream; so far it is only lines.
        return line.removeprefix(b"data:")

    def _read_line(self, line: dict[str, Any]) -> list[AudioChunk]:
        audio = decode(line.get("audio_base64"))
        if not audio and any(line.get(name) for name in ("detail", "error", "message")):
            said = f"it failed on the way: {complaint(line)[0]}"
            raise _failure(HttpReply(502), said, _codes(line))
        self._words += self._read_times(line)
        return self._chunks_of(self._audio.push(audio))

    def _read_times(self, line: dict[str, Any]) -> list[Word]:
        found = (name for name in ("alignment", "normalized_alignment") if line.get(name))
        self._field = self._field or next(found, "")
        times = line.get(self._field)
        if not times or self._untimed:
            return []
        try:
            return self._alignment.push_characters(
                times["characters"],
                [float(time) for time in times["character_start_times_seconds"]],
                [float(time) for time in times["character_end_times_seconds"]],
            )
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"expected times of characters, got {quote(str(times))}") from None

    def _chunks_of(self, samples: Samples) -> list[AudioChunk]:
        if not len(samples):
            return []
        self._samples += len(samples)
        words, self._words = tuple(self._words), []
        self._timed = self._timed or bool(words)
        self._untimed = not self._timed and (self._untimed or first_above(samples) is not None)
        return [AudioChunk(samples, self._audio.sample_rate, words)]

    def _end(self) -> list[AudioChunk]:
        chunks = self._chunks_of(self._audio.flush())
        rate = self._audio.sample_rate
        if self._timed and (rest := self._words + self._alignment.flush(self._samples / rate)):
            chunks.append(AudioChunk(np.zeros(0, np.float32), rate, tuple(rest)))
        return chunks


class ElevenLabsServer:
    """The server's end."""

    paths: ClassVar[tuple[str, ...]] = (
        "/v1/text-to-speech/{voice}",
        "/v1/text-to-speech/{voice}/with-timestamps",
        "/v1/text-to-speech/{voice}/stream",
        "/v1/text-to-speech/{voice}/stream/with-timestamps",
    )

    def read_call(self, call: HttpCall) -> Asked:
        """What is asked for; the call's path is still percent-encoded.

        An option that says what goes without saying, such as LiveKit's "auto", is none.

        Raises:
            InvalidRequestError: If it isn't a speech request, or for something there isn't.
        """
        place = _PATH.fullmatch(call.path)
        if place is None:
            raise InvalidRequestError(f"not a speech request: {call.path}")
        fields = Fields(call)
        settings = fields.fields("voice_settings") or {}
        voice = unquote(place["voice"])
        request = SynthesisRequest(
            fields.string("text") or "",
            voice=None if voice == DEFAULT_VOICE else voice,
            language=fields.string("language_code") or None,
            speed=_speed(settings),
            previous_text=fields.string("previous_text") or "",
            options=_options(settings, fields),
        )
        writer = audio_writer(call.query.get("output_format", DEFAULT_FORMAT))
        if place["timestamps"]:
            timed = _TimedBody if place["stream"] else _TimedObject
            writer = timed(request.text, writer)
        return Asked(request, writer, fields.string("model_id"))

    def write_error(self, error: TTSError) -> HttpReply:
        """The reply for something that went wrong before there was any audio."""
        kind, code = _KINDS.get(error.status_code, ("internal_error", "internal_error"))
        if isinstance(error, VoiceNotFoundError):
            code = "voice_not_found"
        # Old clients look at the status, new ones at the code.
        status = _LEGACY.get(code, code)
        detail = {"type": kind, "code": code, "status": status, "message": str(error)}
        return error_reply(error, {"detail": detail}, status=status_of(error))


_PATH = re.compile(
    r"/v1/text-to-speech/(?P<voice>[^/]+)(?P<stream>/stream)?(?P<timestamps>/with-timestamps)?"
)

_KINDS = {
    400: ("validation_error", "invalid_parameters"),
    401: ("authentication_error", "invalid_api_key"),
    402: ("payment_required", "insufficient_credits"),
    403: ("authorization_error", "forbidden"),
    404: ("not_found", "not_found"),
    405: ("validation_error", "method_not_allowed"),
    413: ("validation_error", "request_too_large"),
    422: ("validation_error", "invalid_text"),
    429: ("rate_limit_error", "concurrent_limit_exceeded"),
    503: ("service_unavailable", "service_unavailable"),
}
_LEGACY = {
    "concurrent_limit_exceeded": "too_many_concurrent_requests",
    "insufficient_credits": "quota_exceeded",
}

_AUDIO = 24_000
"""Bytes of audio in a line, and ..."""
_CHARACTERS = 400
"""... characters timed in it: together less than the 64 KiB that line readers take."""


def audio_writer(name: str) -> ReplyWriter:
    """What writes an output_format.

    Raises:
        InvalidRequestError: If there is no such format.
        MissingDependencyError: If it is compressed, and what encodes isn't installed.
    """
    if name in _RAW:
        return _RawBody(name)
    if name in _ENCODED:
        kind, rate, kilobits = name.split("_")
        return EncodedBody("mp3" if kind == "mp3" else "ogg", int(rate), 1000 * int(kilobits))
    known = ", ".join([*_RAW, *_ENCODED])
    raise InvalidRequestError(f"no output_format {name!r}; formats: {known}")


class _RawBody:
    """Writes a body of bare samples."""

    def __init__(self, name: str) -> None:
        self.sample_rate, encoding, self.media_type = _RAW[name]
        encoders = {"s16": to_s16, "ulaw": to_ulaw, "alaw": to_alaw}
        self._encode = encoders[encoding]

    def push(self, chunk: AudioChunk) -> bytes:
        return self._encode(chunk.samples)

    def flush(self) -> bytes:
        return b""


class Character(NamedTuple):
    """When a character of a text is heard."""

    text: str
    start: float
    """Seconds from the first sample."""
    end: float
    """Seconds from the first sample."""


class Characters:
    """Times the characters of a text while its words become known.

    A word comes with all of its characters and the space behind it, so that nobody waits for the
    next one to know that it is whole.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text
        """May grow at its end."""
        self._done = 0
        """How many characters of the text are timed."""
        self._last: list[Word] = []

    def push(self, words: Sequence[Word]) -> list[Character]:
        """Take the next words; return the characters that now have times."""
        words = [word for word in words if word.offset >= self._done]
        return self._times(words, _behind(words[-1], self.text)) if words else []

    @property
    def whole(self) -> bool:
        """Whether all of the text is timed."""
        return self._done >= len(self.text)

    def flush(self) -> list[Character]:
        """The characters behind the last word; none if there was no word at all."""
        return self._times([], len(self.text)) if self._last else []

    def _times(self, words: Sequence[Word], end: int) -> list[Character]:
        """The characters up to ``end`` that aren't timed yet.

        From the word before them on, since what is between two words shares the time between them.
        """
        known = [*self._last, *words]
        base = self._last[0].offset if self._last else 0
        timed = characters(
            self.text[base:end], [replace(word, offset=word.offset - base) for word in known]
        )
        fresh = [Character(*each) for each in zip(*timed, strict=True)][self._done - base :]
        self._last, self._done = known[-1:], end
        return fresh


class _TimedBody:
    """Writes lines of audio with the times of the characters that are known by then.

    The last character comes at the end and lasts until there: Pipecat counts the times of a reply
    from where the last character of the one before ended, and a pause behind it counts as well.
    """

    media_type = "application/json"

    def __init__(self, text: str, audio: ReplyWriter) -> None:
        self.sample_rate = audio.sample_rate
        self._characters = Characters(text)
        self._last: list[Character] = []
        self._audio = audio
        self._samples = 0

    def push(self, chunk: AudioChunk) -> bytes:
        self._samples += len(chunk.samples)
        times = self._last + self._characters.push(chunk.words)
        if self._characters.whole:
            times, self._last = times[:-1], times[-1:]
        return self._lines(self._audio.push(chunk), times)

    def flush(self) -> bytes:
        times = self._last + self._characters.flush()
        if times:
            last, end = times[-1], self._samples / self.sample_rate
            times[-1] = last._replace(end=max(last.start, end))
        return self._lines(self._audio.flush(), times)

    def _lines(self, audio: bytes, times: list[Character]) -> bytes:
        pieces = (audio[start : start + _AUDIO] for start in range(0, len(audio), _AUDIO))
        lines = zip_longest(pieces, _blocks(times))
        return b"".join(_line(piece or b"", _alignment(block)) for piece, block in lines)


class _TimedObject(_TimedBody):
    """Writes the same as one object, at the end."""

    whole = True

    def __init__(self, text: str, audio: ReplyWriter) -> None:
        super().__init__(text, audio)
        self._whole = bytearray()
        self._times: list[Character] = []

    def _lines(self, audio: bytes, times: list[Character]) -> bytes:
        self._whole += audio
        self._times += times
        return b""

    def flush(self) -> bytes:
        super().flush()
        alignment = _alignment(self._times)
        # Nobody here knows a text as it is read; clients that look only there get the text itself.
        return _line(self._whole, alignment, alignment)


def _alignment(times: Sequence[Character] | None) -> dict[str, list[Any]] | None:
    if not times:
        return None
    return {
        "characters": [each.text for each in times],
        "character_start_times_seconds": [each.start for each in times],
        "character_end_times_seconds": [each.end for each in times],
    }


def _line(audio: bytes | bytearray, alignment: object, normalized: object = None) -> bytes:
    line = {
        "audio_base64": encode(audio),
        "alignment": alignment,
        "normalized_alignment": normalized,
    }
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _blocks(times: list[Character]) -> Iterator[list[Character]]:
    """Cut for lines, between words where there are spaces."""
    while len(times) > _CHARACTERS:
        spaces = (i for i in range(_CHARACTERS, 0, -1) if times[i - 1][0].isspace())
        cut = next(spaces, _CHARACTERS)
        yield times[:cut]
        times = times[cut:]
    if times:
        yield times


def _behind(word: Word, text: str) -> int:
    """Where the text goes on after a word and the space behind it."""
    end = word.offset + len(word.text)
    while text[end : end + 1].isspace():
        end += 1
    return end


def _format(name: str) -> _Format:
    if name in _RAW:
        return _RAW[name]
    if found := _COMPRESSED.fullmatch(name):
        return _Format(int(found[2]), "s16", _CONTAINERS[found[1]])
    known = ", ".join([*_RAW, "mp3_44100_128 and other mp3_*", "opus_48000_64 and other opus_*"])
    raise InvalidRequestError(f"no output_format {name!r}; formats: {known}")


def _path(voice: str, *, timestamps: bool) -> str:
    if voice in (".", ".."):
        # Steps in a path, even percent-encoded: they would lead to another part of the API.
        raise VoiceNotFoundError(voice, [])
    place = f"/v1/text-to-speech/{percent_encoded(voice, safe='', errors='replace')}/stream"
    return f"{place}/with-timestamps" if timestamps else place


def _language_code(language: str | None, model: str) -> str | None:
    if language is None or _UNTOLD.fullmatch(model):
        return None
    code = language.split("-")[0].lower()
    return _CODES.get(code, code)


def _checked(**options: object) -> dict[str, object]:
    """Those that are given.

    Raises:
        InvalidRequestError: If one of them can't be meant.
    """
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if not _FITS[name](value):
            raise InvalidRequestError(f"{name}={value!r} is not a value for it")
    return given


def _speed(settings: Mapping[str, Any]) -> float:
    speed = settings.get("speed")
    if speed is None:
        return 1.0
    if type(speed) not in (int, float) or not _SLOWEST <= speed <= _FASTEST:
        raise InvalidRequestError(f"speed has to be a number from {_SLOWEST} to {_FASTEST}")
    return float(speed)


_ONLY_THEIRS = (
    "previous_request_ids",
    "next_request_ids",
    "use_pvc_as_ivc",
    "apply_language_text_normalization",
)
"""Options that nothing but ElevenLabs' own models has a use for."""


def _options(settings: Mapping[str, Any], fields: Fields) -> dict[str, object]:
    """Those that say something: clients send empty ones, and "auto"."""
    options = {name: settings.get(name) for name in _SETTINGS}
    values = {name: fields.value(name) for name in _FIELDS}
    known = _checked(**options, **{n: v for n, v in values.items() if v not in ("", [], "auto")})
    return known | {name: value for name in _ONLY_THEIRS if (value := fields.value(name))}


def _read_voice(item: Mapping[str, Any]) -> Voice:
    about = f"{item.get('name') or ''} ({item.get('category') or 'voice'})"
    description = item.get("description")
    return Voice(
        str(item["voice_id"]),
        _voice_language(item),
        f"{about}: {description}" if description else about,
    )


def _voice_language(item: Mapping[str, Any]) -> str:
    labels, verified = item.get("labels"), item.get("verified_languages")
    candidates = [labels.get("language")] if isinstance(labels, dict) else []
    if isinstance(verified, list) and verified and isinstance(verified[0], dict):
        candidates += [verified[0].get("locale"), verified[0].get("language")]
    # Labels are written by people: "English" is one, but no tag.
    tags = (c for c in candidates if re.fullmatch(r"[a-z]{2,3}(-\w+)*", str(c or "")))
    return str(next(tags, "und"))


def _codes(value: Any) -> set[str]:
    """What an error calls itself: by its code; before 2025, by its status."""
    detail = value.get("detail") if isinstance(value, dict) else None
    named = detail if isinstance(detail, dict) else {}
    return {str(named[name]) for name in ("code", "status") if named.get(name)}


def _codes_in(body: bytes) -> set[str]:
    try:
        return _codes(json.loads(body))
    except (ValueError, RecursionError):
        return set()


def _failure(reply: HttpReply, said: str, codes: set[str]) -> TTSError:
    """The error that a complaint means, whatever the status that it came with."""
    if codes & _BUSY:
        reply = replace(reply, status=429)
    elif codes & _UNPAID:
        reply = replace(reply, status=402)
    return status_error(reply, said)
