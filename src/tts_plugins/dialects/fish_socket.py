"""Fish Audio's WebSocket: text goes in while it is being written, audio comes out.

Every message is a binary frame with a map in msgpack::

    start    how to speak: a request, mostly without text
    text     more of it
    flush    speak all that there is now
    stop     that was all
                                         audio     some of it
                                         finish    after a stop or an error, one for each start
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tts_plugins.dialects.base import quote
from tts_plugins.dialects.fish import LONGEST, pack, unpack
from tts_plugins.errors import InvalidRequestError

LIVE = "/v1/tts/live"

_LARGEST = 48_000
"""Bytes of audio in a message; Fish Audio's SDK takes no message of more than 65,536."""


@dataclass(frozen=True, slots=True)
class Start:
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Flush:
    pass


@dataclass(frozen=True, slots=True)
class Stop:
    pass


def read_message(message: bytes | str) -> Start | Text | Flush | Stop | None:
    """What a client says; None if it is an event that isn't known here.

    Raises:
        InvalidRequestError: If it is no event.
    """
    if isinstance(message, str):
        raise InvalidRequestError("a text frame: send msgpack, in binary ones")
    try:
        value = unpack(message, LONGEST)
    except ValueError as error:
        raise InvalidRequestError(f"not an event: {quote(str(error))}") from None
    match value:
        case {"event": "start", "request": dict(request)}:
            return Start(request)
        case {"event": "text", "text": str(text)}:
            return Text(text)
        case {"event": "flush"}:
            return Flush()
        case {"event": "stop"}:
            return Stop()
        case {"event": "start" | "text" as event}:
            raise InvalidRequestError(f"not an event: {event} without what it is about")
        case {"event": str()}:
            return None
    raise InvalidRequestError("not an event: it is not a map with one")


def write_audio(audio: bytes) -> Iterator[bytes]:
    """Audio, in messages of a size that clients take."""
    for start in range(0, len(audio), _LARGEST):
        yield pack({"event": "audio", "audio": audio[start : start + _LARGEST]})


def write_finish(reason: Literal["stop", "error"]) -> bytes:
    return pack({"event": "finish", "reason": reason})
