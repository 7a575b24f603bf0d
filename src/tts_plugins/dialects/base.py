"""How a dialect is written: as functions between our types and somebody's API, without I/O.

The caller writes calls and reads replies; a server reads calls and writes replies. Both halves
stand in one file, so they can't drift apart, and a test joins them without a socket::

    assert server.read_call(client.write_call(request)).request == request
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, ClassVar, Protocol

from tts_plugins.errors import InvalidRequestError, OverloadedError, RemoteError, TTSError
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

QUOTED = 280
"""Characters of a server's own words that an error repeats: with its status, 300 at most."""


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a multipart form: text, or a file if it has a file name."""

    name: str
    content: str | bytes
    filename: str | None = None
    media_type: str | None = None


@dataclass(frozen=True, slots=True)
class HttpCall:
    """An HTTP request. The key is not in it: the client adds it last."""

    method: str
    path: str
    """Begins with a slash, and is relative to the server's address."""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""
    form: tuple[Part, ...] = ()
    """Sent as multipart/form-data in place of a body."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An HTTP response, up to what has been read of its body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""
    """Empty while it is still to come."""

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "")


class ReplyReader(Protocol):
    """Turns the bytes of a reply into chunks.

    Raises:
        ValueError: If the bytes aren't what they should be, or are cut short.
        TTSError: If they tell of a failure of the server.
    """

    def push(self, data: bytes) -> list[AudioChunk]: ...

    def flush(self) -> list[AudioChunk]: ...


class ReplyWriter(Protocol):
    """Turns chunks into the bytes of a reply.

    One that has ``whole = True`` gives them all at the end, so that nobody listens meanwhile.
    """

    sample_rate: int
    """Rate that the chunks must have, in hertz; 0 takes the engine's own, from the first chunk."""
    media_type: str

    def push(self, chunk: AudioChunk) -> bytes: ...

    def flush(self) -> bytes: ...


class Dialect(Protocol):
    """One text-to-speech HTTP API, from the caller's end.

    A dialect object holds the settings of one client, such as the model. Every method either
    describes a call or reads the reply to one. A dialect that inherits from this has two to write.
    """

    home: ClassVar[str] = ""
    """Host name of the vendor's own service, if there is one."""
    key_variable: ClassVar[str] = ""
    """Environment variable that holds the key for ``home``."""
    max_in_flight: int | None = None
    """How many requests the server serves at a time, if it is known."""
    hear_out: bool = False
    """Whether the server stays occupied when its client leaves early, so that an answer that nobody
    wants any more is better read to its end."""
    request_options: Collection[str] | None = ()
    """The options of a request that ``write_call`` knows; ``None`` where the server judges."""
    accepts_any_voice: bool = False
    """Whether the server speaks with some voice when asked for one that it doesn't have."""

    @abstractmethod
    def write_call(self, request: SynthesisRequest) -> HttpCall:
        """Ask for speech.

        Raises:
            InvalidRequestError: If this API can't do what is asked for.
        """
        ...

    @abstractmethod
    def read_reply(self, request: SynthesisRequest, reply: HttpReply) -> ReplyReader:
        """Read what comes of ``write_call``, once its headers are there."""
        ...

    def read_error(self, reply: HttpReply, request: SynthesisRequest | None = None) -> TTSError:
        """What went wrong, for a reply with a status that isn't 2xx."""
        return status_error(reply, one_line(reply.body))

    def authorize(self, key: str) -> Mapping[str, str]:
        """The headers that prove who calls."""
        return {"authorization": f"Bearer {key}"}

    def write_voices(self) -> Sequence[HttpCall]:
        """Ways to ask for the voices; the first that isn't answered by 404 or 405 counts.

        None at all if the API has a fixed set, or can't tell.
        """
        return []

    def read_voices(self, reply: HttpReply | None) -> Sequence[Voice]:
        """The voices; those that every such server has, if there is no answer."""
        return []

    def write_ping(self) -> HttpCall:
        """Something cheap, whose answer doesn't matter, to have a connection open."""
        return HttpCall("GET", "/")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller wants, as a server reads it."""

    request: SynthesisRequest
    writer: ReplyWriter
    model: str | None = None
    any_voice: bool = False
    """Whether the engine's own voice will do where there is none of the name that was sent."""
    strict: bool = False
    """Whether an option that the engine doesn't know, or a model that is none, is an error."""


class CloningDialect(Dialect, Protocol):
    """A dialect whose server learns voices from recordings."""

    @abstractmethod
    def write_clone(self, name: str, clip: Clip) -> HttpCall: ...

    @abstractmethod
    def read_clone(self, name: str, clip: Clip, reply: HttpReply) -> Voice: ...

    @abstractmethod
    def find_clone(self, name: str, clip: Clip, voices: Sequence[Voice]) -> Voice | None:
        """The voice that was made of this very clip earlier, if the server still has it."""
        ...


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording to clone a voice from."""

    content: bytes
    """A whole file: wav, mp3, flac, ogg, m4a."""
    digest: str
    """Of the content: 16 hexadecimal digits of its SHA-256."""
    transcript: str = ""
    """What is said in it; some servers need to know."""

    @property
    def mark(self) -> str:
        """What is kept with a voice, where it has a description, to say which clip it is of."""
        return f"clip {self.digest}"

    @property
    def filename(self) -> str:
        return f"clip.{self._kind[0]}"

    @property
    def media_type(self) -> str:
        return self._kind[1]

    @property
    def _kind(self) -> tuple[str, str]:
        head = self.content[:12]
        if head[4:8] == b"ftyp":
            return "m4a", "audio/mp4"
        for magic, extension, media_type in (
            (b"RIFF", "wav", "audio/wav"),
            (b"fLaC", "flac", "audio/flac"),
            (b"OggS", "ogg", "audio/ogg"),
        ):
            if head.startswith(magic):
                return extension, media_type
        return "mp3", "audio/mpeg"


def json_call(path: str, body: Mapping[str, object], **query: str) -> HttpCall:
    """A POST of JSON; fields that are None are left out.

    Raises:
        InvalidRequestError: If something in it can't be said in JSON.
    """
    given = {name: value for name, value in body.items() if value is not None}
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"an option can't be said in JSON: {error}") from None
    return HttpCall(
        "POST",
        path,
        query=query,
        headers={"content-type": "application/json"},
        body=text.encode(errors="replace"),
    )


def read_json(reply: HttpReply) -> Any:
    """The body of a reply that should be JSON.

    Raises:
        RemoteError: If it isn't.
    """
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        raise RemoteError(f"expected JSON, got {quote(reply.body)}") from None


def status_error(reply: HttpReply, said: str) -> TTSError:
    """The error of a status that means the same in every dialect."""
    # A page's title often begins with the status.
    said = said.removeprefix(str(reply.status)).lstrip(": ") or phrase(reply.status)
    if reply.status == 429:
        wait = retry_after(reply)
        return OverloadedError(f"429: {said}", retry_after=0.5 if wait is None else wait)
    if 300 <= reply.status < 400:
        target = one_line(reply.headers.get("location", "")) or "nowhere"
        said = f"it moved to {target}: use that address"
    return RemoteError(
        f"{reply.status}: {said}", status_code=reply.status, retry_after=retry_after(reply)
    )


def phrase(status: int) -> str:
    """What a status is called."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "an error"


def retry_after(reply: HttpReply) -> float | None:
    """Seconds after which to ask again, if the server says so. A date is not looked at."""
    try:
        seconds = float(reply.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def known_options(request: SynthesisRequest, *known: str) -> Mapping[str, object]:
    """The request's options.

    Raises:
        InvalidRequestError: If one of them isn't known.
    """
    if unknown := sorted(request.options.keys() - set(known)):
        raise InvalidRequestError(f"no option {', '.join(unknown)}; options: {', '.join(known)}")
    return request.options


def check_speed(request: SynthesisRequest, slowest: float, fastest: float) -> float:
    """The request's speed.

    Raises:
        InvalidRequestError: If the API can't go that slow or fast.
    """
    if not slowest <= request.speed <= fastest:
        raise InvalidRequestError(f"speed {request.speed} is outside {slowest:g} to {fastest:g}")
    return request.speed


def one_line(said: bytes | str) -> str:
    """The beginning of what a server said, on one line, without what a terminal would obey."""
    text = said if isinstance(said, str) else said[: 4 * QUOTED].decode(errors="replace")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= QUOTED else line[: QUOTED - 3] + "..."


def quote(body: bytes | str) -> str:
    """The same as a quotation, for a message that goes on around it."""
    line = one_line(body)
    return repr(line) if line else "nothing"
