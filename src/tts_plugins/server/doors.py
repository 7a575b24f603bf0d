"""Doors behind which nothing is spoken: lists, health, numbers, the page."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from tts_plugins.dialects.base import HttpReply
from tts_plugins.errors import TTSError
from tts_plugins.server.calls import Left, Line
from tts_plugins.server.engines import Hosted
from tts_plugins.server.house import House, request_id
from tts_plugins.server.keys import NOBODY


@dataclass(frozen=True, slots=True)
class Guest:
    """Who asks, for what."""

    house: House
    line: Line
    caller: str
    path: dict[str, str]
    """What stands in the path, decoded."""

    def hosted(self, model: str | None = None) -> Hosted:
        """The engine that is meant: by the model that is given, or else by ``?model=``."""
        return self.house.engines.find(model or self.line.query.get("model"))


Answer = Callable[[Guest], Awaitable[HttpReply]]
WriteError = Callable[[TTSError], HttpReply]


class Door:
    """An ASGI app that answers in one piece.

    Args:
        house: Where it is a door of.
        answer: What to reply; a TTSError becomes a reply in the dialect's shape.
        write_error: The dialect's shape.
        public: Whether no key is asked for.
    """

    def __init__(
        self, house: House, answer: Answer, write_error: WriteError, *, public: bool = False
    ) -> None:
        self._house = house
        self._answer = answer
        self._write_error = write_error
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        line = Line(scope, receive, send, id=request_id())
        try:
            caller = NOBODY if self._public else self._house.keys.caller(line.headers)
            guest = Guest(self._house, line, caller, scope.get("path_params", {}))
            reply = await self._answer(guest)
        except TTSError as error:
            reply = self._write_error(error)
        except Left:
            return
        await line.answer(reply)


def json_reply(value: object, status: int = 200) -> HttpReply:
    body = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return HttpReply(status, {"content-type": "application/json"}, body.encode(errors="replace"))
