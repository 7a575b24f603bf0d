"""VieNeu's speech APIs: of the server that comes with the package, and of the vendor's cloud.

The server (``python -m apps.openai_speech``, vieneu 3.8.3) speaks OpenAI's dialect, except that
its PCM has 48 kHz unless told otherwise. When a client breaks off it keeps the stream's slot until
it happens to collect garbage, and on a CPU it has one or two; so what nobody wants to hear any more
is read to its end.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from tts_plugins.audio.pcm import PcmReader, to_s16
from tts_plugins.dialects.base import (
    QUOTED,
    Asked,
    Clip,
    Dialect,
    HttpCall,
    HttpReply,
    Part,
    ReplyReader,
    ReplyWriter,
    json_call,
    known_options,
    quote,
    read_json,
    retry_after,
    status_error,
)
from tts_plugins.dialects.complaints import read_complaint, voice_unknown
from tts_plugins.dialects.fields import Fields, error_reply, status_of
from tts_plugins.dialects.framing import PcmBody, WavBody
from tts_plugins.dialects.openai import (
    PCM_RATE,
    SPEECH,
    EventBody,
    OpenAIDialect,
    OpenAIServer,
)
from tts_plugins.errors import (
    InvalidRequestError,
    OverloadedError,
    RemoteError,
    TTSError,
    VoiceNotFoundError,
)
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

RATES = (48_000, 24_000, 16_000, 8_000)
"""Hertz that the server can answer in; the first is the model's own."""

_LANGUAGE = "vi"
_FORMATS = ("pcm", "wav")
_SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty", "max_chars")

_NAME = re.compile(r"[^\W_][\w .\-]{0,63}")
_CLONED = re.compile(r"clip [0-9a-f]{16}( not denoised)?")
_LARGEST_CLIP = 20 * 1024 * 1024

_LARGEST_BLOCK = 16_000_000
"""Bytes: minutes of 48 kHz. Any text that is taken for a size says more."""


class SizedBody:
    """Reads blocks of audio, each with its size in front::

        00 00 00 03  01 02 03              a block may end within a sample
        00 00 00 05  04 05 06 07 08
        00 00 00 00                        the end, without which something is missing

    What isn't a size is text: an error, to be quoted.
    """

    def __init__(self, sample_rate: int) -> None:
        # Nothing is looked for in it, as in a body without a frame: here it is known what it is.
        self._pcm = PcmReader(sample_rate)
        self._rest = bytearray()
        self._left = 0
        """Bytes of the block that are still to come."""
        self._ended = False
        self._nonsense = False
        """Whether something stands in place of a size that can't be one."""

    def push(self, data: bytes) -> list[AudioChunk]:
        self._rest += data
        samples = self._pcm.push(b"".join(self._content()))
        if self._nonsense and len(self._rest) >= QUOTED:
            raise self._complaint()
        return [AudioChunk(samples, self._pcm.sample_rate)] if len(samples) else []

    def flush(self) -> list[AudioChunk]:
        if self._nonsense:
            raise self._complaint()
        if not self._ended:
            raise ValueError("its audio is cut short")
        return []

    def _content(self) -> Iterator[bytes]:
        while self._rest and (self._left or self._begin()):
            content = bytes(self._rest[: self._left])
            del self._rest[: self._left]
            self._left -= len(content)
            yield content

    def _begin(self) -> bool:
        """Read the next block's size, if it is there and there is a block."""
        if self._ended or self._nonsense or len(self._rest) < 4:
            return False
        size = int.from_bytes(self._rest[:4], "big")
        if size > _LARGEST_BLOCK:
            self._nonsense = True
            return False
        del self._rest[:4]
        self._left = size
        self._ended = size == 0
        return not self._ended

    def _complaint(self) -> ValueError:
        return ValueError(f"expected blocks of audio, got {quote(bytes(self._rest))}")


class SizedPcmBody:
    """Writes blocks of PCM, one for each chunk, and the empty one that ends them."""

    media_type = "application/octet-stream"

    def __init__(self, sample_rate: int = PCM_RATE) -> None:
        self.sample_rate = sample_rate

    def push(self, chunk: AudioChunk) -> bytes:
        pcm = to_s16(chunk.samples)
        return len(pcm).to_bytes(4, "big") + pcm if pcm else b""

    def flush(self) -> bytes:
        return bytes(4)


class VieNeuCloudDialect(Dialect):
    """The vendor's cloud, at ``https://api.vieneu.io/api/v1``.

    This follows what other clients of it do. It has not been run against the service itself.

    Args:
        sample_rate: Hertz to ask for. Other clients ask for 24000.
        engine: List only the voices of this engine, such as ``v4``.
    """

    home: ClassVar[str] = "api.vieneu.io"
    key_variable: ClassVar[str] = "VIENEU_API_KEY"

    def __init__(self, *, sample_rate: int = PCM_RATE, engine: str | None = None) -> None:
        self._sample_rate = _rate(sample_rate)
        self._engine = engine

    def write_call(self, request: SynthesisRequest) -> HttpCall:
        if request.options:
            raise InvalidRequestError(
                f"no option {', '.join(sorted(request.options))}; it has none"
            )
        if not request.voice:
            raise InvalidRequestError("VieNeu's cloud has no voice of its own choice: give voice=")
        _check_speed(request)
        body = {
            "text": request.text,
            "voiceId": request.voice,
            "outputFormat": "pcm",
            "sampleRate": self._sample_rate,
        }
        return json_call("/v1/tts/stream", body)

    def read_reply(self, request: SynthesisRequest, reply: HttpReply) -> ReplyReader:
        return SizedBody(self._sample_rate)

    def read_error(self, reply: HttpReply, request: SynthesisRequest | None = None) -> TTSError:
        said, about_voice = read_complaint(reply.body)
        if reply.status == 503 and b"STREAM_BUSY" in reply.body:
            return OverloadedError(f"503: {said}", retry_after=retry_after(reply) or 0.5)
        if reply.status in (400, 404, 422) and request and request.voice:
            if about_voice or voice_unknown(said, request):
                return VoiceNotFoundError(request.voice, [])
            if reply.status == 404:
                said += f"; is the address https://{self.home}/api/v1?"
        return status_error(reply, said)

    def write_voices(self) -> Sequence[HttpCall]:
        return [HttpCall("GET", "/v1/voices")]

    def read_voices(self, reply: HttpReply | None) -> Sequence[Voice]:
        # An id that two engines have is one voice here: a request says no more than the id.
        voices: dict[str, Voice] = {}
        for item in _listed(reply, "voices"):
            if self._engine in (None, item.get("engine")):
                voices.setdefault(_id(item), _cloud_voice(item))
        return list(voices.values())

    def write_ping(self) -> HttpCall:
        return HttpCall("GET", "/v1/health")


class VieNeuDialect(OpenAIDialect):
    """The caller's end of the server.

    A voice that it learnt is gone when it restarts.

    Args:
        model: Name of the model.
        sample_rate: Hertz: 48000, 24000, 16000 or 8000.
        temperature: How freely it chooses; the server's own default if ``None``, as below.
        top_k: Out of how many it chooses.
        top_p: Out of what share it chooses.
        repetition_penalty: How much it avoids what it just did.
        max_chars: Characters it speaks in one go.
        response_format: ``pcm`` or ``wav``.
        denoise: Whether noise is taken out of a recording before a voice is learnt from it.
        hear_out: Whether what was interrupted is read to its end. False is for a server that stops
            when its client leaves.
    """

    home: ClassVar[str] = ""
    key_variable: ClassVar[str] = "VIENEU_API_KEY"
    cloud: ClassVar[type[VieNeuCloudDialect]] = VieNeuCloudDialect
    formats = _FORMATS
    request_options = _SAMPLING

    def __init__(
        self,
        *,
        model: str = "vieneu-v3-turbo",
        sample_rate: int = PCM_RATE,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        max_chars: int | None = None,
        response_format: str = "pcm",
        denoise: bool = True,
        hear_out: bool = True,
    ) -> None:
        super().__init__(
            model=model, response_format=response_format, sample_rate=_rate(sample_rate)
        )
        self._sampling = {
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "repetition_penalty": repetition_penalty,
            "max_chars": max_chars,
        }
        self._denoise = denoise
        self.hear_out = hear_out

    def write_call(self, request: SynthesisRequest) -> HttpCall:
        options = known_options(request, *self.request_options)
        _check_speed(request)
        body = {
            "model": self._model,
            "input": request.text,
            "voice": request.voice,
            "response_format": self._format,
            "sample_rate": self._sample_rate,
        }
        return json_call(SPEECH, body | self._sampling | dict(options))

    def write_voices(self) -> Sequence[HttpCall]:
        return [HttpCall("GET", "/v1/voices")]

    def read_voices(self, reply: HttpReply | None) -> Sequence[Voice]:
        return [_voice(item) for item in _listed(reply, "data")]

    def write_ping(self) -> HttpCall:
        return HttpCall("GET", "/health")

    def write_clone(self, name: str, clip: Clip) -> HttpCall:
        if not _NAME.fullmatch(_composed(name)):
            raise InvalidRequestError(
                f"{name!r} can't be a voice's name: 1 to 64 letters, digits, spaces, '.', '-'"
                " or '_', beginning with a letter or a digit"
            )
        if len(clip.content) > _LARGEST_CLIP:
            size = len(clip.content) / 1024**2
            raise InvalidRequestError(
                f"the recording has {size:.1f} MB, and the server takes 20; 3 to 8 seconds are best"
            )
        return HttpCall(
            "POST",
            "/v1/voices",
            form=(
                Part("name", _composed(name)),
                Part("file", clip.content, clip.filename, clip.media_type),
                Part("denoise", "true" if self._denoise else "false"),
                Part("description", self._mark(clip)),
            ),
        )

    def read_clone(self, name: str, clip: Clip, reply: HttpReply) -> Voice:
        voice = super().read_clone(name, clip, reply)
        return replace(voice, language=_LANGUAGE, description=self._mark(clip))

    def find_clone(self, name: str, clip: Clip, voices: Sequence[Voice]) -> Voice | None:
        """The voice that was made of this clip earlier, whatever it is called.

        Raises:
            InvalidRequestError: If there is none, and the name is a preset's.
        """
        found = next((v for v in voices if v.description == self._mark(clip)), None)
        taken = any(
            v.id == _composed(name) and not _CLONED.fullmatch(v.description) for v in voices
        )
        if found is None and taken:
            # The server would replace it, for everybody, until it restarts.
            raise InvalidRequestError(
                f"{name!r} is a voice of the server's own: choose another name"
            )
        return found

    def _mark(self, clip: Clip) -> str:
        """What is kept with a voice to say of which recording it is, in letters it may have."""
        return clip.mark + ("" if self._denoise else " not denoised")


class VieNeuServer(OpenAIServer):
    """The server's end. As VieNeu's own, it has neither speed nor instructions, and ignores them.

    Args:
        longest: Characters of a text; VieNeu takes 20,000.
    """

    def __init__(self, *, longest: int = 20_000) -> None:
        super().__init__(longest=longest)

    def read_call(self, call: HttpCall) -> Asked:
        fields = Fields(call)
        request = SynthesisRequest(
            self._text(fields),
            voice=fields.string("voice", inside="id") or None,
            options=_sampling(fields),
        )
        return Asked(request, _writer(fields), fields.string("model"))

    def write_error(self, error: TTSError) -> HttpReply:
        status = status_of(error)
        said = {"message": str(error), "type": "invalid_request_error", "code": status}
        return error_reply(error, {"error": said}, status=status)


def _sampling(fields: Fields) -> dict[str, object]:
    given = {name: fields.number(name, 0, 20_000, default=-1) for name in _SAMPLING}
    counts = ("top_k", "max_chars")
    return {
        name: int(value) if name in counts else value for name, value in given.items() if value >= 0
    }


def _writer(fields: Fields) -> ReplyWriter:
    rate = _rate(fields.number("sample_rate", RATES[-1], RATES[0], default=RATES[0]))
    pcm = fields.choice("response_format", _FORMATS, default="wav") == "pcm"
    audio = PcmBody(rate) if pcm else WavBody(rate)
    events = fields.choice("stream_format", ("audio", "sse"), default="audio") == "sse"
    return EventBody(audio) if events else audio


def _rate(sample_rate: float) -> int:
    if sample_rate not in RATES:
        raise InvalidRequestError(
            f"no sample_rate {sample_rate}; rates: {', '.join(map(str, RATES))}"
        )
    return int(sample_rate)


def _check_speed(request: SynthesisRequest) -> None:
    if request.speed != 1.0:
        raise InvalidRequestError(
            f"speed {request.speed} can't be had: VieNeu speaks at its own pace, which is 1"
        )


def _listed(reply: HttpReply | None, key: str) -> list[dict[str, Any]]:
    """The objects of a list in a reply; none if there is no reply."""
    if reply is None:
        return []
    body = read_json(reply)
    listed = body.get(key) if isinstance(body, dict) else None
    if not isinstance(listed, list):
        raise RemoteError(f"expected voices, got {quote(reply.body)}")
    return [item for item in listed if isinstance(item, dict)]


def _voice(item: Mapping[str, Any]) -> Voice:
    """A voice. The server knows it by its aliases as well, so they are told."""
    aliases = ", ".join(map(str, item.get("aliases") or ()))
    notes = (item.get("description"), item.get("gender"), aliases and f"also {aliases}")
    return Voice(_id(item), _LANGUAGE, _note(*notes))


def _cloud_voice(item: Mapping[str, Any]) -> Voice:
    name = item.get("name") if item.get("name") != _id(item) else None
    cloned = "cloned" if item.get("kind") == "cloned" else None
    notes = (item.get(key) for key in ("description", "gender", "region", "engine"))
    return Voice(_id(item), _LANGUAGE, _note(name, cloned, *notes))


def _id(item: Mapping[str, Any]) -> str:
    return str(item.get("id") or item.get("name"))


def _note(*parts: object) -> str:
    return "; ".join(str(part) for part in parts if part)


def _composed(name: str) -> str:
    """A name in whose letters the accents are. The server takes them for no letters alone."""
    return unicodedata.normalize("NFC", name)
