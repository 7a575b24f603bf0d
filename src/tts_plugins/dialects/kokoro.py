"""Kokoro-FastAPI: the OpenAI speech API, and one of its own that times the words.

That one, ``POST /dev/captioned_speech``, answers with a line of JSON for each sentence or so,
its audio beside the words that are in it (source of 2026-08)::

    {"audio": "<base64>", "audio_format": "audio/pcm", "timestamps":
        [{"word": "Hello", "start_time": 0.275, "end_time": 0.6}, ...]}

Times are in seconds from the start of the whole audio. The words are those of a normalized text,
"five dollars" for "$5", and come for English only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from tts_plugins.audio.level import first_above
from tts_plugins.audio.sniff import AnyReader
from tts_plugins.dialects.base import (
    Asked,
    HttpCall,
    HttpReply,
    ReplyReader,
    ReplyWriter,
    check_speed,
    json_call,
    known_options,
)
from tts_plugins.dialects.complaints import complaint
from tts_plugins.dialects.fields import Fields, error_reply, status_of
from tts_plugins.dialects.framing import AudioBody, JsonLines, decode, encode
from tts_plugins.dialects.openai import (
    PCM_RATE,
    SPEECH,
    SPEEDS,
    OpenAIDialect,
    OpenAIServer,
    audio_writer,
    stated_rate,
)
from tts_plugins.errors import InvalidRequestError, RemoteError, TTSError
from tts_plugins.text.alignment import Alignment
from tts_plugins.text.words import speakable
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

CAPTIONED = "/dev/captioned_speech"

LANGUAGES = {
    "a": "en-US",
    "b": "en-GB",
    "e": "es",
    "f": "fr",
    "h": "hi",
    "i": "it",
    "j": "ja",
    "p": "pt-BR",
    "z": "zh",
}
"""By the letter with which a voice's id begins; it is the language's code as well."""

_VOICE_ID = re.compile(r"([abefhijpz])[fm]_")
_FOREVER = 86_400.0
"""Seconds; a later time is no time."""


class KokoroDialect(OpenAIDialect):
    """The caller's end.

    A voice may be a blend, ``af_bella(2)+af_sky(1)``; the server does the sum. The API has no field
    for what was said before: ``request.previous_text`` isn't sent. Options of a request:
    ``lang_code``, ``volume_multiplier``, and ``normalization_options``, an object.

    Args:
        captions: Ask for the times of words, over ``/dev/captioned_speech``.
        model: Name of the model.
        response_format: What to ask for. PCM is soonest; anything else that comes is read as well.
        sample_rate: Hertz of PCM. Kokoro has one.
        extra: More fields of the request's JSON; None leaves one out.

    Raises:
        InvalidRequestError: If the format or the rate can't be one.
    """

    home: ClassVar[str] = ""
    key_variable: ClassVar[str] = ""
    request_options = ("lang_code", "normalization_options", "volume_multiplier")
    default_voice: ClassVar[str] = "af_heart"

    def __init__(
        self,
        *,
        captions: bool = True,
        model: str = "kokoro",
        response_format: str = "pcm",
        sample_rate: int = PCM_RATE,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(
            model=model, response_format=response_format, sample_rate=sample_rate, extra=extra
        )
        self._captions = captions

    def write_call(self, request: SynthesisRequest) -> HttpCall:
        options = known_options(request, *self.request_options)
        speed = check_speed(request, *SPEEDS)
        body = {
            "model": self._model,
            "input": request.text,
            "voice": request.voice or self.default_voice,
            "response_format": self._format,
            "speed": None if speed == 1.0 else speed,
            "stream": True,
            "return_timestamps": True if self._captions else None,
            "lang_code": _lang_code(request.language) if request.language else None,
        }
        path = CAPTIONED if self._captions else SPEECH
        return json_call(path, body | self._extra | dict(options))

    def read_reply(self, request: SynthesisRequest, reply: HttpReply) -> ReplyReader:
        if "json" in reply.media_type.lower():
            return _Captions(request.text, stated_rate(reply) or self._sample_rate)
        return super().read_reply(request, reply)

    def read_error(self, reply: HttpReply, request: SynthesisRequest | None = None) -> TTSError:
        error = super().read_error(reply, request)
        missing = reply.status in (404, 405) and isinstance(error, RemoteError)
        if request and missing and self._captions:
            return RemoteError(
                f"{reply.status}: no {CAPTIONED} there; captions=False does without it",
                status_code=reply.status,
            )
        return error

    def write_voices(self) -> Sequence[HttpCall]:
        return [HttpCall("GET", "/v1/audio/voices")]

    def read_voices(self, reply: HttpReply | None) -> Sequence[Voice]:
        if reply is None:
            return [Voice(self.default_voice, "en-US")]
        voices = super().read_voices(reply)
        return [replace(voice, language=_language(voice.id)) for voice in voices]

    write_clone = None  # type: ignore[assignment]  # it can only blend the voices that it has


class _Captions(JsonLines):
    """The lines of captioned speech; or its one object, which looks like the only line."""

    def __init__(self, text: str, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._audio: AudioBody | None = None
        self._alignment: Alignment | None = Alignment(text)
        self._timed = False
        self._words: list[Word] = []
        """Known, but their audio is still held back."""
        self._seconds = 0.0
        super().__init__(self._line, self._end)

    def _line(self, line: dict[str, Any]) -> list[AudioChunk]:
        if "audio" not in line or line.get("error"):
            raise RemoteError(f"it failed on the way: {complaint(line)[0]}")
        if self._audio is None:
            called = str(line.get("audio_format") or "")
            self._audio = AudioBody(AnyReader(called, sample_rate=self._sample_rate))
        chunks = self._audio.push(decode(line["audio"]))
        self._listen(list(_timestamps(line)), chunks)
        return self._with_words(chunks)

    def _end(self) -> list[AudioChunk]:
        if self._audio is None:
            return []
        chunks = self._audio.flush()
        seconds = self._seconds + sum(chunk.seconds for chunk in chunks)
        if self._alignment and self._timed:
            self._words += self._alignment.flush(seconds)
        if self._words and not chunks:
            chunks = [AudioChunk(np.zeros(0, np.float32), self._audio.sample_rate)]
        return self._with_words(chunks)

    def _listen(self, tokens: list[tuple[str, float, float]], chunks: list[AudioChunk]) -> None:
        if not self._alignment:
            return
        if tokens:
            self._timed = True
            self._words += self._alignment.push_tokens(tokens)
        elif not self._timed and any(first_above(chunk.samples) is not None for chunk in chunks):
            # Whoever listens guesses words from here on; telling them later would double them.
            self._alignment = None

    def _with_words(self, chunks: list[AudioChunk]) -> list[AudioChunk]:
        self._seconds += sum(chunk.seconds for chunk in chunks)
        if chunks:
            chunks[0] = replace(chunks[0], words=tuple(self._words))
            self._words = []
        return chunks


def _timestamps(line: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Words and when; what makes no sense is left out, for it is no reason to be silent."""
    stamps = line.get("timestamps")
    for stamp in stamps if isinstance(stamps, list) else []:
        if isinstance(stamp, dict) and isinstance(word := stamp.get("word"), str):
            start, end = _seconds(stamp.get("start_time")), _seconds(stamp.get("end_time"))
            if speakable(word) and start is not None and end is not None:
                yield word, start, end


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and 0 <= value < _FOREVER:
        return float(value)
    return None


def _lang_code(language: str) -> str:
    """Kokoro's code of a language: the accent that is asked for, or else the first it has."""
    tag = language.replace("_", "-").lower()
    accents = {known.lower(): code for code, known in LANGUAGES.items()}
    others = {known[:2]: code for known, code in reversed(accents.items())}
    code = accents.get(tag) or others.get(tag.split("-")[0])
    if code is None:
        raise InvalidRequestError(
            f"Kokoro doesn't speak {language}; languages: {', '.join(LANGUAGES.values())}"
        )
    return code


def _language(voice: str) -> str:
    found = _VOICE_ID.match(voice)
    return LANGUAGES[found[1]] if found else "und"


class KokoroServer(OpenAIServer):
    """The server's end of captioned speech. ``/v1/audio/speech`` is OpenAIServer's."""

    path: ClassVar[str] = CAPTIONED

    def read_call(self, call: HttpCall) -> Asked:
        fields = Fields(call)
        named = fields.string("lang_code")
        code = fields.choice("lang_code", tuple(LANGUAGES), default="a") if named else None
        options = {
            "normalization_options": fields.fields("normalization_options"),
            "volume_multiplier": fields.number("volume_multiplier", 0.0, 100.0, default=1.0),
        }
        defaults = {"normalization_options": None, "volume_multiplier": 1.0}
        request = SynthesisRequest(
            self._text(fields),
            voice=fields.string("voice", inside="id") or None,
            language=LANGUAGES[code] if code else None,
            speed=fields.number("speed", *SPEEDS, default=1.0),
            options={name: value for name, value in options.items() if value != defaults[name]},
        )
        writer = CaptionedLines if fields.flag("stream", default=True) else CaptionedObject
        timed = fields.flag("return_timestamps", default=True)
        return Asked(request, writer(audio_writer(fields), timed=timed), fields.string("model"))

    def write_error(self, error: TTSError) -> HttpReply:
        kind, like_openai = "validation_error", "invalid_request_error"
        if error.status_code == 429:
            kind = like_openai = "rate_limit_error"
        elif error.status_code >= 500:
            kind, like_openai = "processing_error", "server_error"
        said = {"error": kind, "message": str(error), "type": like_openai}
        return error_reply(error, {"detail": said}, status=status_of(error))


class CaptionedLines:
    """Writes a line of JSON for each chunk: its audio, and the words that start in it."""

    media_type = "application/json"

    def __init__(self, body: ReplyWriter, *, timed: bool) -> None:
        self.sample_rate = body.sample_rate
        self._body = body
        self._timed = timed

    def push(self, chunk: AudioChunk) -> bytes:
        audio = self._body.push(chunk)
        return self._line(audio, chunk.words) if audio or chunk.words else b""

    def flush(self) -> bytes:
        rest = self._body.flush()
        return self._line(rest, ()) if rest else b""

    def _line(self, audio: bytes, words: Sequence[Word]) -> bytes:
        stamps = [{"word": w.text, "start_time": w.start, "end_time": w.end} for w in words]
        line = {
            "audio": encode(audio),
            "audio_format": self._body.media_type,
            "timestamps": stamps if self._timed else None,
        }
        return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class CaptionedObject(CaptionedLines):
    """Writes the same as one object, at the end: ``stream: false``."""

    whole = True

    def __init__(self, body: ReplyWriter, *, timed: bool) -> None:
        super().__init__(body, timed=timed)
        self._audio = bytearray()
        self._words: list[Word] = []

    def push(self, chunk: AudioChunk) -> bytes:
        self._audio += self._body.push(chunk)
        self._words += chunk.words
        return b""

    def flush(self) -> bytes:
        return self._line(bytes(self._audio + self._body.flush()), self._words)
