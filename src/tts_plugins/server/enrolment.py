"""Read the form that comes with a recording, within limits, and have a voice learnt from it.

Everything stays in memory, and no name that a client gives to a file leads anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from tts_plugins.dialects.base import HttpReply
from tts_plugins.errors import InvalidRequestError, OverloadedError
from tts_plugins.server.calls import Line
from tts_plugins.server.doors import Answer, Guest
from tts_plugins.server.house import House, Limits
from tts_plugins.server.refusals import RefusedError
from tts_plugins.types import Voice

_MOST_PARTS = 20
_LONGEST_HEADERS = 4_000
"""Bytes of the headers of a part."""
_LONGEST_TEXT = 10_000
"""Bytes of a field that isn't a file."""
_FRAME = 200_000
"""Bytes that a form may have beside its recordings: as many as all of that can be."""
_AT_ONCE = 4
"""Enrolments: 80 MB of forms, and at most 50 more for what is heard of a recording."""
_SLOWEST = 250_000
"""Bytes a second: a large recording may take longer than other requests."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a client filled in."""

    texts: Mapping[str, str]
    """The last of each name."""
    files: Mapping[str, list[tuple[str, bytes]]]
    """What each file is called, and all of it, by the name of its field."""

    def text(self, name: str) -> str:
        """What stands in a field, without the space around it; nothing if it isn't there."""
        return self.texts.get(name, "").strip()

    def file(self, name: str) -> bytes:
        """The first file of a field.

        Raises:
            InvalidRequestError: If there is none.
        """
        if name not in self.files:
            raise InvalidRequestError(f"{name}, a file with a recording of the voice, is missing")
        return self.files[name][0][1]


async def read_form(line: Line, limits: Limits) -> Form:
    """All of a multipart form.

    Raises:
        RefusedError: 415 if it is something else; 413 if it is too large; 408 if it takes too long.
        InvalidRequestError: If it is malformed, or has more in it than any form needs.
        Left: The client went before it was whole.
    """
    reader = _FormReader(line.headers.get("content-type", ""))
    await line.read(
        reader.push,
        largest=limits.clip + _FRAME,
        seconds=limits.body_seconds + limits.clip / _SLOWEST,
    )
    form = reader.flush()
    if any(len(content) > limits.clip for files in form.files.values() for _, content in files):
        raise RefusedError(413, f"a recording may have {limits.clip} bytes")
    return form


@contextmanager
def weighing(house: House) -> Generator[Callable[[float], None], None, None]:
    """Count a request as an enrolment, once what this gives hears that it is as large as one.

    That raises OverloadedError where there are as many as may be.
    """
    counted = False

    def weigh(size: float) -> None:
        nonlocal counted
        if counted or size <= house.limits.body:
            return
        if house.enrolling >= _AT_ONCE:
            raise OverloadedError(
                f"{_AT_ONCE} recordings are taken just now, as many as may be", retry_after=1.0
            )
        house.enrolling += 1
        counted = True

    try:
        yield weigh
    finally:
        house.enrolling -= counted


def enrolling(answer: Answer) -> Answer:
    """A door at which few come in at a time: the recordings of all would fill the memory."""

    @wraps(answer)
    async def one_of_few(guest: Guest) -> HttpReply:
        house = guest.house
        house.admit(guest.line.headers)
        with weighing(house) as weigh:
            weigh(math.inf)
            house.began()
            try:
                return await answer(guest)
            finally:
                house.ended()

    return one_of_few


async def enrol(
    guest: Guest,
    *,
    name: str,
    clip: bytes,
    transcript: str = "",
    description: str = "",
    model: str | None = None,
) -> Voice:
    """Have the engine learn a voice that this caller alone can use.

    Raises:
        RefusedError: 501, if the engine can't; 409, if the name is taken by the engine, or the
            caller has as many voices as may be.
        InvalidRequestError: If the name can't be one, or the recording is none.
        EngineError: If the engine fails.
    """
    return await guest.hosted(model).clone(
        name, clip, caller=guest.caller, transcript=transcript, description=description
    )


@dataclass(slots=True)
class _Part:
    """A part of a form on its way."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    header: bytes = b""
    value: bytes = b""
    weight: int = 0
    """Bytes of its headers so far."""
    name: str = ""
    filename: str | None = None
    """None of a part that is text."""
    content: bytearray = field(default_factory=bytearray)


class _FormReader:
    """A form as it comes; push what there is, flush at the end."""

    def __init__(self, media_type: str) -> None:
        kind, options = parse_options_header(media_type)
        if kind != b"multipart/form-data":
            raise RefusedError(415, "send the recording as multipart/form-data")
        self._texts: dict[str, str] = {}
        self._files: dict[str, list[tuple[str, bytes]]] = {}
        self._part = _Part()
        self._parts = 0
        self._ended = False
        try:
            self._parser = MultipartParser(
                options.get(b"boundary", b""),
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._header,
                    "on_header_value": self._value,
                    "on_header_end": self._header_end,
                    "on_headers_finished": self._headers_end,
                    "on_part_data": self._data,
                    "on_part_end": self._end,
                    "on_end": self._all,
                },
            )
        except FormParserError as error:
            raise _unreadable(error) from None
        if not options.get(b"boundary"):
            raise _unreadable("its Content-Type has no boundary")

    def push(self, data: bytes) -> None:
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise _unreadable(error) from None

    def flush(self) -> Form:
        if not self._ended:
            raise _unreadable("it is cut short")
        return Form(self._texts, self._files)

    def _begin(self) -> None:
        self._part = _Part()
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise _unreadable(f"it has more than {_MOST_PARTS} parts")

    def _header(self, data: bytes, start: int, end: int) -> None:
        self._part.header += data[start:end]
        self._weigh(end - start)

    def _value(self, data: bytes, start: int, end: int) -> None:
        self._part.value += data[start:end]
        self._weigh(end - start)

    def _weigh(self, more: int) -> None:
        self._part.weight += more
        if self._part.weight > _LONGEST_HEADERS:
            raise _unreadable(f"a part has more than {_LONGEST_HEADERS} bytes of headers")

    def _header_end(self) -> None:
        part = self._part
        part.headers[part.header.lower()] = part.value
        part.header = part.value = b""

    def _headers_end(self) -> None:
        part = self._part
        kind, options = parse_options_header(part.headers.get(b"content-disposition"))
        if kind != b"form-data" or b"name" not in options:
            raise _unreadable("a part of it has no name")
        part.name = options[b"name"].decode(errors="replace")
        if b"filename" in options:
            part.filename = options[b"filename"].decode(errors="replace")

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._part.content += data[start:end]
        if self._part.filename is None and len(self._part.content) > _LONGEST_TEXT:
            raise _unreadable(f"a text has more than {_LONGEST_TEXT} bytes")

    def _end(self) -> None:
        part = self._part
        if part.filename is not None:
            self._files.setdefault(part.name, []).append((part.filename, bytes(part.content)))
            return
        try:
            self._texts[part.name] = part.content.decode()
        except UnicodeDecodeError:
            raise _unreadable("a text isn't UTF-8; a file needs a filename") from None

    def _all(self) -> None:
        self._ended = True


def _unreadable(why: object) -> InvalidRequestError:
    return InvalidRequestError(f"the form can't be read: {why}")
