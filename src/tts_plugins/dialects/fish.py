"""Fish: a fish-speech server of one's own, and Fish Audio's service, which differ in most things.

Both are asked by ``POST /v1/tts``. What stands here of fish-speech is what its code of 2026-04-07
does, which isn't what it says; of Fish Audio, its documentation of 2026-08.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

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
    one_line,
    phrase,
    quote,
    status_error,
)
from tts_plugins.dialects.complaints import complaint, voice_unknown
from tts_plugins.dialects.fields import error_reply, status_of
from tts_plugins.dialects.framing import AudioBody, EncodedBody, PcmBody, WavBody, decode
from tts_plugins.errors import (
    InvalidRequestError,
    MissingDependencyError,
    RemoteError,
    TTSError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.text.words import speakable
from tts_plugins.types import SynthesisRequest, Voice

SPEECH = "/v1/tts"

RATE = 44_100
"""Hertz of samples about which nothing is said."""

RATES = (8_000, 16_000, 24_000, 32_000, 44_100)
"""Hertz in which Fish Audio gives PCM."""

LATENCIES = ("normal", "balanced", "low")
"""How much quality Fish Audio may give up for an early beginning, from nothing to most."""

_NOBODY = "933563129e564b19a115bedd57b7406a"
"""The voice that LiveKit's plugin asks for when it was told none."""

_ID = re.compile(r"[a-zA-Z0-9\-_ ]{1,255}")
"""What a reference on a fish-speech server can be called."""

_TOKEN = re.compile(
    r"<\|(?:\w+:\d+|[a-z]+(?:_[a-z]+)+|pad|text|voice|interleave|endoftext)\|>", re.IGNORECASE
)
"""What the model takes for a sign of its own rather than for text."""

_REFERENCE = re.compile(r"\b(reference|model)([ _]id)?\b", re.IGNORECASE)
"""What they call a voice."""

MSGPACK = "application/msgpack"

_LARGEST = 32_000_000
"""Bytes of a request: some minutes of WAV to clone from."""

LONGEST = 100
"""Entries of a list in a request, and lists in it. Five bytes can claim four billion."""

_LONGEST_TEXT = 1_000_000
"""Characters of a text: more aren't even looked through."""


class Limits(NamedTuple):
    """What a number may be."""

    kind: type[int] | type[float]
    least: float
    most: float


Knob = Limits | type[bool] | tuple[str, ...]
"""What an option may be: a number, a truth, or one of some words."""

SELF_HOSTED: Mapping[str, Knob] = {
    "chunk_length": Limits(int, 100, 1000),
    "temperature": Limits(float, 0.1, 1.0),
    "top_p": Limits(float, 0.1, 1.0),
    "repetition_penalty": Limits(float, 0.9, 2.0),
    "max_new_tokens": Limits(int, 1, 1_000_000),
    "seed": Limits(int, 0, 2**63 - 1),
}

CLOUD: Mapping[str, Knob] = {
    "latency": LATENCIES,
    "temperature": Limits(float, 0.0, 1.0),
    "top_p": Limits(float, 0.0, 1.0),
    "repetition_penalty": Limits(float, 0.0, 10.0),
    "chunk_length": Limits(int, 100, 300),
    "min_chunk_length": Limits(int, 0, 100),
    "max_new_tokens": Limits(int, 1, 1_000_000),
    "normalize": bool,
    "condition_on_previous_chunks": bool,
    "early_stop_threshold": Limits(float, 0.0, 1.0),
    "volume": Limits(float, -20.0, 20.0),
    "normalize_loudness": bool,
}

_PROSODY = ("volume", "normalize_loudness")
"""Options that Fish Audio wants in one field, together with the speed."""

Recording = tuple[Path | str | bytes, str]
"""A path to an audio file or the bytes of one, and what is said in it."""


class FishDialect(CloningDialect):
    """A fish-speech server of one's own.

    It begins to answer when all of a text is spoken, so give it a sentence at a time, as a Turn
    does; what goes beyond ``max_new_tokens``, some 48 s, is cut off and nobody told. It has one
    speed and finds out the language by itself. Full-scale peaks come wrapped around, as clicks,
    which can't be undone.

    It serves one request at a time, and one whose listener is gone to its end; meanwhile it answers
    nothing else, ``/v1/health`` included. So nothing asks for that but ``prewarm``. On a slow GPU,
    raise RemoteEngine's ``first_audio_timeout``.

    A voice is a reference that the server has; one that it hasn't is refused here, since the server
    would speak with a random voice. Without a voice it is random as well, unless there are
    ``references``.

    Args:
        sample_rate: Hertz of the audio where it comes without a header, as it does.
        references: Recordings to speak like, for requests without a voice: they travel along with
            each. Better clone the voice, once.
        chunk_length: Bytes of text, 100 to 1000, that are spoken in one go; matters to texts with
            several speakers only.
        temperature: How varied it speaks, 0.1 to 1.
        top_p: How far from the likeliest it may go, 0.1 to 1.
        repetition_penalty: 0.9 to 2.
        max_new_tokens: The longest utterance, in tokens, of which 21 or so make a second.
        seed: For the same text to sound the same again.

    Requests take the same as options, except for the rate.

    Raises:
        InvalidRequestError: If an option is out of range, or a recording can't be read.
    """

    key_variable: ClassVar[str] = "FISH_API_KEY"
    request_options = (*SELF_HOSTED, "references")
    cloud: ClassVar[type[CloningDialect]]
    """What speaks to Fish Audio's own service."""
    max_in_flight: int | None = 1
    accepts_any_voice: bool = True

    def __init__(
        self,
        *,
        sample_rate: int = RATE,
        references: Sequence[Recording] = (),
        chunk_length: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        max_new_tokens: int | None = None,
        seed: int | None = None,
    ) -> None:
        if type(sample_rate) is not int or not 8_000 <= sample_rate <= 192_000:
            raise InvalidRequestError(f"sample_rate {sample_rate} is outside 8000 to 192000")
        self._sample_rate = sample_rate
        self._references = _recordings(references)
        options = {
            "chunk_length": chunk_length,
            "temperature": temperature,
            "top_p": top_p,
            "repetition_penalty": repetition_penalty,
            "max_new_tokens": max_new_tokens,
            "seed": seed,
        }
        self._options = _checked(options, SELF_HOSTED)

    def write_call(self, request: SynthesisRequest) -> HttpCall:
        options = known_options(request, *self.request_options)
        if request.speed != 1.0:
            raise InvalidRequestError(
                f"fish-speech has one speed: it can't do {request.speed}, leave it at 1.0"
            )
        body = {"text": _spoken(request.text), "format": "wav", "streaming": True}
        body |= self._options | _checked(options, SELF_HOSTED)
        references = _recordings(options.get("references")) or self._references
        if request.voice:
            _check_id(request.voice)
            # Without its memory the server would listen to the recording anew for each request.
            return json_call(
                SPEECH, body | {"reference_id": request.voice, "use_memory_cache": "on"}
            )
        if references:
            return _msgpack_call(body | {"references": references, "use_memory_cache": "on"})
        return json_call(SPEECH, body)

    def read_reply(self, request: SynthesisRequest, reply: HttpReply) -> ReplyReader:
        return _read_audio(reply, self._sample_rate)

    def read_error(self, reply: HttpReply, request: SynthesisRequest | None = None) -> TTSError:
        return _read_error(reply, request)

    def write_voices(self) -> Sequence[HttpCall]:
        # Answered in msgpack unless JSON is asked for.
        return [HttpCall("GET", "/v1/references/list", headers={"accept": "application/json"})]

    def read_voices(self, reply: HttpReply | None) -> Sequence[Voice]:
        if reply is None:
            return []
        body = _read(reply)
        listed = body.get("reference_ids") if isinstance(body, dict) else None
        if not isinstance(listed, list):
            raise RemoteError(f"expected a list of references, got {quote(reply.body)}")
        return [Voice(name, "und") for name in listed if isinstance(name, str)]

    def write_ping(self) -> HttpCall:
        return HttpCall("GET", "/v1/health")

    def write_clone(self, name: str, clip: Clip) -> HttpCall:
        if not clip.transcript.strip():
            raise InvalidRequestError(
                "fish-speech has to know what is said in the recording: give it as transcript="
            )
        return HttpCall(
            "POST",
            "/v1/references/add",
            headers={"accept": "application/json"},
            form=(
                Part("id", _clone_id(name, clip)),
                Part("text", clip.transcript),
                Part("audio", clip.content, clip.filename, clip.media_type),
            ),
        )

    def read_clone(self, name: str, clip: Clip, reply: HttpReply) -> Voice:
        body = _read(reply)
        if not isinstance(body, dict) or not isinstance(body.get("reference_id"), str):
            raise RemoteError(f"expected a reference, got {quote(reply.body)}")
        return Voice(body["reference_id"], "und")

    def find_clone(self, name: str, clip: Clip, voices: Sequence[Voice]) -> Voice | None:
        return next((voice for voice in voices if voice.id.endswith(_mark(clip))), None)


class FishCloudDialect(CloningDialect):
    """Fish Audio's own service.

    A plan allows 5, 15 or 50 requests at a time. One too many is answered by 429 and repeated; say
    ``max_in_flight=5`` to have the most urgent go first. ``voices()`` are those of the account, the
    newest hundred of them; any other of the library can be spoken with as well, by its id.

    Args:
        model: ``s2.1-pro``, ``s2.1-pro-free``, ``s2-pro`` or ``s1``.
        sample_rate: Hertz of the audio: 8000, 16000, 24000, 32000 or 44100. 24000 is what most
            voice agents play.
        latency: ``normal`` sounds best, ``low`` begins soonest; ``balanced``, about 300 ms, is what
            voice agents use.
        references: Recordings to speak like, for requests without a voice: they travel along with
            each. Better clone the voice, once.
        temperature: How varied it speaks, 0 to 1.
        top_p: How far from the likeliest it may go, 0 to 1.
        repetition_penalty: More than 1 to repeat sounds less.
        chunk_length: Characters, 100 to 300, that are spoken in one go.
        max_new_tokens: The longest such piece.
        normalize: Whether numbers and dates are written out.
        volume: Louder or softer, in dB, -20 to 20.

    Requests take the same as options, except for the rate, and also ``min_chunk_length``,
    ``condition_on_previous_chunks``, ``early_stop_threshold`` and ``normalize_loudness``.

    Raises:
        InvalidRequestError: If an option is out of range, or a recording can't be read.
    """

    home: ClassVar[str] = "api.fish.audio"
    key_variable: ClassVar[str] = "FISH_API_KEY"
    request_options = (*CLOUD, "model", "references")

    def __init__(
        self,
        *,
        model: str = "s2.1-pro",
        sample_rate: int = 24_000,
        latency: str = "balanced",
        references: Sequence[Recording] = (),
        temperature: float | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        chunk_length: int | None = None,
        max_new_tokens: int | None = None,
        normalize: bool | None = None,
        volume: float | None = None,
    ) -> None:
        if sample_rate not in RATES:
            raise InvalidRequestError(
                f"no sample_rate {sample_rate}; rates: {', '.join(map(str, RATES))}"
            )
        self._model = model
        self._sample_rate = sample_rate
        self._references = _recordings(references)
        options = {
            "latency": latency,
            "temperature": temperature,
            "top_p": top_p,
            "repetition_penalty": repetition_penalty,
            "chunk_length": chunk_length,
            "max_new_tokens": max_new_tokens,
            "normalize": normalize,
            "volume": volume,
        }
        self._options = _checked(options, CLOUD)

    def write_call(self, request: SynthesisRequest) -> HttpCall:
        options = known_options(request, *self.request_options)
        given = self._options | _checked(options, CLOUD)
        prosody = {name: given.pop(name) for name in _PROSODY if name in given}
        speed = check_speed(request, 0.5, 2.0)
        if speed != 1.0:
            prosody["speed"] = float(speed)
        body = {"text": _spoken(request.text), "format": "pcm", "sample_rate": self._sample_rate}
        body |= given
        if prosody:
            body["prosody"] = prosody
        if request.voice:
            body["reference_id"] = request.voice
        elif references := _recordings(options.get("references")) or self._references:
            body["references"] = references
        model = str(options.get("model", self._model))
        if not (model.isascii() and model.isprintable()):
            raise InvalidRequestError(f"no model is called {model!r}")
        return _msgpack_call(body, model=model)

    def read_reply(self, request: SynthesisRequest, reply: HttpReply) -> ReplyReader:
        return _read_audio(reply, self._sample_rate)

    def read_error(self, reply: HttpReply, request: SynthesisRequest | None = None) -> TTSError:
        return _read_error(reply, request)

    def write_voices(self) -> Sequence[HttpCall]:
        query = {"self": "true", "page_size": "100", "sort_by": "created_at"}
        return [HttpCall("GET", "/model", query)]

    def read_voices(self, reply: HttpReply | None) -> Sequence[Voice]:
        if reply is None:
            return []
        body = _read(reply)
        items = body.get("items") if isinstance(body, dict) else None
        if not isinstance(items, list):
            raise RemoteError(f"expected a list of voices, got {quote(reply.body)}")
        voices = [item for item in items if isinstance(item, dict) and "_id" in item]
        return [_cloud_voice(item) for item in voices if item.get("type", "tts") == "tts"]

    def write_ping(self) -> HttpCall:
        return HttpCall("GET", "/model", {"self": "true", "page_size": "1"})

    def write_clone(self, name: str, clip: Clip) -> HttpCall:
        form = [
            Part("type", "tts"),
            Part("train_mode", "fast"),
            Part("visibility", "private"),
            # The title says of which recording it is, for any process to see in the list.
            Part("title", name + _mark(clip)),
            Part("voices", clip.content, clip.filename, clip.media_type),
        ]
        if clip.transcript.strip():
            form.append(Part("texts", clip.transcript))
        return HttpCall("POST", "/model", form=tuple(form))

    def read_clone(self, name: str, clip: Clip, reply: HttpReply) -> Voice:
        body = _read(reply)
        if not isinstance(body, dict) or "_id" not in body:
            raise RemoteError(f"expected a voice, got {quote(reply.body)}")
        return _cloud_voice(body)

    def find_clone(self, name: str, clip: Clip, voices: Sequence[Voice]) -> Voice | None:
        return next((voice for voice in voices if voice.description.endswith(_mark(clip))), None)


FishDialect.cloud = FishCloudDialect


class FishServer:
    """The server's end, for clients of either; its errors are in fish-speech's shape.

    Clients send many options with every request. All become options of the request, and who
    speaks it leaves out those that its engine doesn't know.
    """

    path = SPEECH
    usual_format: ClassVar[str] = "wav"
    """Of a request that says none."""

    def read_call(self, call: HttpCall) -> Asked:
        """What is asked for, in JSON or msgpack; fields that are null count as not given.

        With ``?raw=true`` a stream of WAV has no header, as from fish-speech itself: players need
        one.

        Raises:
            InvalidRequestError: If it isn't what it should be.
            MissingDependencyError: If it is msgpack, and that isn't installed.
        """
        raw = call.query.get("raw") == "true"
        return self.read_request(read_fields(call), call.headers.get("model"), raw=raw)

    def read_request(
        self, fields: Mapping[str, Any], model: str | None, *, raw: bool = False
    ) -> Asked:
        """What is asked for by the fields of a request, and the model beside them.

        Raises:
            InvalidRequestError: If they aren't what they should be.
        """
        body = {name: value for name, value in fields.items() if value is not None}
        prosody = body.pop("prosody", {})
        _demand("prosody", isinstance(prosody, dict))
        for name in ("speed", *_PROSODY):
            body.pop(name, None)  # which means nothing outside of prosody
            if prosody.get(name) is not None:
                body[name] = prosody[name]
        _check_fields(body)
        voice = _asked_voice(body)
        request = SynthesisRequest(
            without_tokens(_whole(body["text"])),
            voice=voice,
            speed=float(body.get("speed", 1.0)),
            options=_asked_options(body, with_references=voice is None),
        )
        return Asked(request, self._writer(body, raw=raw), model)

    def write_error(self, error: TTSError) -> HttpReply:
        status = status_of(error)
        said = {"statusCode": status, "message": str(error), "error": phrase(status)}
        return error_reply(error, said, status=status)

    def _writer(self, body: Mapping[str, Any], *, raw: bool) -> ReplyWriter:
        rate = body.get("sample_rate")
        match body.get("format", self.usual_format):
            case "wav" if raw and body.get("streaming"):
                return _RawBody(rate or RATE)
            case "wav":
                return WavBody(rate or 0)
            case "pcm":
                return PcmBody(rate or RATE)
            case "mp3":
                return EncodedBody("mp3", rate or RATE, 1000 * _mp3_bitrate(body))
            case "opus":
                return EncodedBody("ogg", _OPUS_RATE, _opus_bitrate(body))
            case other:
                raise InvalidRequestError(f"no format {other!r}; formats: wav, pcm, mp3, opus")


class FishCloudServer(FishServer):
    """The same as from Fish Audio: MP3 unless something else is asked for, and errors in its shape,
    to which its older SDK allows no more fields.
    """

    usual_format = "mp3"

    def write_error(self, error: TTSError) -> HttpReply:
        status = status_of(error)
        said = {"message": str(error), "status": status}
        return error_reply(error, said, status=status)


class _RawBody(PcmBody):
    """What fish-speech calls a stream of WAV."""

    media_type = "audio/wav"


# What both callers' ends have in common


def _read_audio(reply: HttpReply, sample_rate: int) -> ReplyReader:
    """Audio, of whichever kind it begins like: fish-speech calls bare samples a WAV."""
    name = "" if reply.media_type.startswith("audio/") else reply.media_type
    return AudioBody(AnyReader(name, sample_rate=sample_rate))


def _read_error(reply: HttpReply, request: SynthesisRequest | None) -> TTSError:
    said = _said(reply)
    if request and request.voice and reply.status in (400, 404) and _unknown(said, request):
        return VoiceNotFoundError(request.voice, [])
    return status_error(reply, said)


def _unknown(said: str, request: SynthesisRequest) -> bool:
    """Whether it is the voice that isn't there: a reference, or a model, as they call it."""
    heard = replace(request, text=_REFERENCE.sub("voice", request.text))
    return voice_unknown(_REFERENCE.sub("voice", said, count=1), heard)


def _said(reply: HttpReply) -> str:
    """What an error says, in whichever shape: there are five, and none at all."""
    try:
        value = _read(reply)
    except RemoteError:
        return one_line(reply.body)
    said, _ = complaint(value)
    reason = value.get("reason") if isinstance(value, dict) else None
    return f"{said} ({one_line(reason)})" if isinstance(reason, str) and reason else said


def _spoken(text: str) -> str:
    """The text without the model's own signs.

    Raises:
        UnspeakableTextError: If nothing else was in it.
    """
    spoken = without_tokens(text)
    if not speakable(spoken):
        raise UnspeakableTextError(f"nothing to say in {len(text)} characters")
    return spoken


def without_tokens(text: str) -> str:
    """The text without the model's own signs: ``<|speaker:1|>`` changes who speaks, and what stands
    before the first of them is lost; ``<|im_end|>`` ends it. A language model may write them.
    """
    # A space for each, so that what is around them doesn't become another.
    return _TOKEN.sub(" ", text).replace("<|", " ").replace("|>", " ")


def _check_id(voice: str) -> None:
    if not _ID.fullmatch(voice):
        raise InvalidRequestError(
            f"{voice!r} can't be a reference's id: at most 255 of a-z, A-Z, 0-9, '-', '_', ' '"
        )


def _mark(clip: Clip) -> str:
    """How the name of a voice ends that was made of this clip."""
    return f"-{clip.digest[:8]}"


_LETTERS = str.maketrans({
    "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "ı": "i",
    "ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "Th",
})  # fmt: skip
"""Letters that Unicode doesn't take apart into one of a to z and a mark."""


def _clone_id(name: str, clip: Clip) -> str:
    """An id for ``name``, of the characters that an id can have: Mai Ánh -> Mai Anh-0c5a2b91."""
    plain = unicodedata.normalize("NFKD", name.translate(_LETTERS))
    plain = plain.encode("ascii", "ignore").decode()
    plain = re.sub(r"[^a-zA-Z0-9\-_ ]+", "-", plain).strip("- ")
    return (plain[:200] or "voice") + _mark(clip)


def _cloud_voice(item: Mapping[str, Any]) -> Voice:
    languages = item.get("languages")
    language = languages[0] if isinstance(languages, list) and languages else "und"
    return Voice(str(item["_id"]), str(language), str(item.get("title") or ""))


def _recordings(given: object) -> list[dict[str, object]]:
    """References as they are sent."""
    if given is None:
        return []
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise InvalidRequestError("references are a list of recordings with their transcripts")
    return [_recording(item) for item in given]


def _recording(item: object) -> dict[str, object]:
    match item:
        case (bytes() as audio, str() as text):
            return {"audio": audio, "text": text}
        case (str() | Path() as path, str() as text):
            return {"audio": _file(Path(path)), "text": text}
    raise InvalidRequestError("a reference is a path or the bytes of a recording, and its text")


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequestError(f"can't read {path}: {error.strerror}") from error


def _checked(options: Mapping[str, object], knobs: Mapping[str, Knob]) -> dict[str, object]:
    """Those of the options that are given, as they are sent.

    Raises:
        InvalidRequestError: If one is not what it may be.
    """
    given = {name: options.get(name) for name in knobs}
    return {n: _check(n, value, knobs[n]) for n, value in given.items() if value is not None}


def _check(name: str, value: object, knob: Knob) -> object:
    if isinstance(knob, Limits):
        number = type(value) is int or (knob.kind is float and isinstance(value, float))
        if not number or not knob.least <= value <= knob.most:  # type: ignore[operator]
            raise InvalidRequestError(f"{name} {value!r} is not {_range(knob)}")
        return knob.kind(value)  # type: ignore[arg-type, call-overload]  # a number, as checked
    if isinstance(knob, type):
        if not isinstance(value, bool):
            raise InvalidRequestError(f"{name} {value!r} is neither True nor False")
    elif value not in knob:
        raise InvalidRequestError(f"no {name} {value!r}; there are: {', '.join(knob)}")
    return value


def _range(limits: Limits) -> str:
    kind = "a whole number" if limits.kind is int else "a number"
    return f"{kind} from {limits.least:g} to {limits.most:g}"


def _msgpack_call(body: Mapping[str, object], **headers: str) -> HttpCall:
    headers = {"content-type": MSGPACK} | headers
    return HttpCall("POST", SPEECH, headers=headers, body=pack(body))


def _msgpack() -> Any:
    try:
        import msgpack
    except ModuleNotFoundError as error:
        raise MissingDependencyError("remote") from error
    return msgpack


def pack(value: object) -> bytes:
    packed: bytes = _msgpack().packb(value, unicode_errors="replace")
    return packed


def unpack(data: bytes, longest: int) -> Any:
    """A value of msgpack with no more than ``longest`` lists and maps, nor entries in any of them.

    Raises:
        ValueError: If it isn't one, or it is nested too deep.
    """
    msgpack = _msgpack()
    lists = 0

    def count(value: Any) -> Any:
        nonlocal lists
        lists += 1
        if lists > longest:
            raise ValueError(f"more than {longest} lists")
        return value

    try:
        return msgpack.unpackb(
            data,
            max_array_len=longest,
            max_map_len=longest,
            max_ext_len=64,
            list_hook=count,
            object_hook=count,
        )
    except (msgpack.UnpackException, TypeError, RecursionError) as error:
        raise ValueError(f"not msgpack: {type(error).__name__}") from None


def _read(reply: HttpReply) -> Any:
    """The body of a reply that should be JSON, or msgpack.

    Raises:
        RemoteError: If it isn't.
    """
    try:
        if "msgpack" in reply.media_type:
            return unpack(reply.body, len(reply.body))
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        raise RemoteError(f"expected JSON or msgpack, got {quote(reply.body)}") from None


# What the server's end reads


def read_fields(call: HttpCall) -> dict[str, Any]:
    """The fields of a body in JSON or msgpack.

    Raises:
        InvalidRequestError: If it is neither, or has none.
        MissingDependencyError: If it is msgpack, and that isn't installed.
    """
    if len(call.body) > _LARGEST:
        raise InvalidRequestError(f"a request of more than {_LARGEST} bytes")
    kind = call.headers.get("content-type", "")
    try:
        if "msgpack" in kind:
            body = unpack(call.body, LONGEST)
        elif "json" in kind:
            body = json.loads(call.body)
        else:
            raise InvalidRequestError(
                f"no content-type {kind!r}; types: application/json, {MSGPACK}"
            )
    except (ValueError, RecursionError) as error:
        # Not its repr, which may hold all of the request.
        said = f"{type(error).__name__} {quote(str(error))}"
        raise InvalidRequestError(f"not a request: {said}") from None
    if not isinstance(body, dict):
        raise InvalidRequestError("not a request: it is not a map of fields")
    return body


_FIELDS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "reference_id": (str, list),
    "references": (list,),
    "format": (str,),
    "latency": (str,),
    "streaming": (bool,),
    "normalize": (bool,),
    "normalize_loudness": (bool,),
    "condition_on_previous_chunks": (bool,),
    "sample_rate": (int,),
    "chunk_length": (int,),
    "min_chunk_length": (int,),
    "max_new_tokens": (int,),
    "seed": (int,),
    "mp3_bitrate": (int,),
    "opus_bitrate": (int,),
    "speed": (int, float),
    "volume": (int, float),
    "temperature": (int, float),
    "top_p": (int, float),
    "repetition_penalty": (int, float),
    "early_stop_threshold": (int, float),
}
"""What the fields of a request are."""


def _check_fields(body: Mapping[str, Any]) -> None:
    for name, kinds in _FIELDS.items():
        _demand(name, name not in body or type(body[name]) in kinds)
    _demand("text", "text" in body)
    if len(body["text"]) > _LONGEST_TEXT:
        raise InvalidRequestError(f"a text of more than {_LONGEST_TEXT} characters")
    _demand("speed", 0.5 <= body.get("speed", 1.0) <= 2.0)
    _demand("sample_rate", 8_000 <= body.get("sample_rate", RATE) <= 48_000)


def _demand(field: str, truth: bool) -> None:
    if not truth:
        raise InvalidRequestError(f"not a speech request: {field} is not what it should be")


def _asked_voice(body: Mapping[str, Any]) -> str | None:
    voice = body.get("reference_id")
    if isinstance(voice, list):
        # Several are a conversation, which no other engine can speak.
        _demand("reference_id", len(voice) == 1 and isinstance(voice[0], str))
        voice = voice[0]
    return None if voice in (None, "", _NOBODY) else _whole(voice)


def _whole(text: str) -> str:
    # Half of an emoji can't be sent anywhere, but it is no reason not to speak the rest.
    return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text)


_GIVEN: Mapping[str, tuple[object, ...]] = {
    "latency": ("normal", "balanced"),
    "normalize": (True,),
    "normalize_loudness": (True,),
    "volume": (0,),
}
"""Options that go without saying."""


def _asked_options(body: Mapping[str, Any], *, with_references: bool) -> Mapping[str, object]:
    knobs = sorted((SELF_HOSTED.keys() | CLOUD.keys()) & body.keys())
    options = {name: body[name] for name in knobs if body[name] not in _GIVEN.get(name, ())}
    if with_references and body.get("references"):
        options["references"] = [_asked_reference(item) for item in body["references"]]
    return options


_OPUS_RATE = 48_000
"""Hertz, whichever are asked for: Opus is always played at that."""

_ANY_BITRATE = -1000


def _mp3_bitrate(body: Mapping[str, Any]) -> int:
    """Kilobits a second."""
    bitrate: int = body.get("mp3_bitrate", 128)
    _demand("mp3_bitrate", bitrate in (64, 128, 192))
    return bitrate


def _opus_bitrate(body: Mapping[str, Any]) -> int | None:
    """Bits a second, in which the API has them, though its SDK says thousands of them."""
    bitrate = body.get("opus_bitrate", _ANY_BITRATE)
    bitrate *= 1000 if 0 < bitrate < 1000 else 1
    _demand("opus_bitrate", bitrate in (_ANY_BITRATE, 24_000, 32_000, 48_000, 64_000))
    return None if bitrate == _ANY_BITRATE else bitrate


def _asked_reference(item: Any) -> tuple[bytes, str]:
    _demand("references", isinstance(item, dict) and isinstance(item.get("text"), str))
    audio = item.get("audio")
    _demand("references", audio is not None)
    if isinstance(audio, bytes):
        return audio, item["text"]
    try:
        return decode(audio), item["text"]
    except ValueError as error:
        raise InvalidRequestError(f"not a speech request: {error}") from None
