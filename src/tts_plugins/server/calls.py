"""Read what a client sends over HTTP, within limits, and answer it."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Callable, Mapping
from contextlib import suppress

from starlette.datastructures import Headers, QueryParams
from starlette.types import Receive, Scope, Send

from tts_plugins.dialects.base import HttpCall, HttpReply
from tts_plugins.server.refusals import RefusedError

ANNOUNCED = {
    # So that no proxy keeps audio back, or keeps it at all.
    "cache-control": "no-store",
    "x-accel-buffering": "no",
    "x-content-type-options": "nosniff",
}


HANG_UP = "tts_plugins.hang_up"
"""The extension of a scope that breaks its connection at once, where ``serve`` runs the app."""

_LINGER = 2.0
"""Seconds for which a request that was refused may still be sent."""


class Left(Exception):  # noqa: N818  it isn't an error: people hang up
    """The client is gone."""


class Line:
    """The two ways between a client and one answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, id: str) -> None:  # noqa: A002
        self.scope = scope
        self.headers = Headers(scope=scope)
        self.query = QueryParams(scope.get("query_string", b""))
        self.started = False
        self._receive = receive
        self._send = send
        self._id = id

    @property
    def path(self) -> str:
        """As it was sent, still percent-encoded, from where this part of the app is mounted."""
        raw: bytes = self.scope.get("raw_path") or self.scope["path"].encode()
        path = raw.partition(b"?")[0].decode("ascii", "replace")
        return path.removeprefix(self.scope.get("root_path", ""))

    async def call(
        self, *, largest: int, seconds: float, weigh: Callable[[int], None] | None = None
    ) -> HttpCall:
        """All of the request, as ``read`` takes it."""
        body = bytearray()
        await self.read(body.extend, largest=largest, seconds=seconds, weigh=weigh)
        headers = dict(self.headers.items())
        return HttpCall(self.scope["method"], self.path, dict(self.query), headers, bytes(body))

    async def read(
        self,
        take: Callable[[bytes], object],
        *,
        largest: int,
        seconds: float,
        weigh: Callable[[int], None] | None = None,
    ) -> None:
        """Hand on the body of the request as it comes.

        Args:
            take: Gets each piece.
            largest: Bytes that it may have.
            seconds: In which it has to be there.
            weigh: Is told how many it will have, or has so far, before they are taken; may refuse.

        Raises:
            RefusedError: 413 if it is too large; 408 if it takes too long.
            Left: The client went before it was whole.
        """

        def check(size: int) -> None:
            if size > largest:
                raise RefusedError(413, f"the request has more than {largest} bytes")
            if weigh:
                weigh(size)

        length = self.headers.get("content-length", "0")
        if length.isdecimal():
            check(int(length[:19]))  # int takes no thousands of digits
        size = 0
        try:
            async with asyncio.timeout(seconds):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise Left
                    data = message.get("body", b"")
                    size += len(data)
                    check(size)
                    take(data)
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            raise RefusedError(408, f"the request wasn't there within {seconds:g} s") from None

    async def left(self) -> None:
        """Wait until the client is gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def hang_up(self) -> None:
        """Break the connection to a client who takes nothing.

        A mere end would wait until it has taken what there is, and uvicorn report it as an error.
        """
        if extension := self.scope.get("extensions", {}).get(HANG_UP):
            extension["abort"]()
            await self.left()

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status and the headers, with the request's id among them."""
        self.started = True
        told = {**ANNOUNCED, "x-request-id": self._id, "request-id": self._id, **headers}
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(n.encode("latin-1"), _header(v)) for n, v in told.items()],
            }
        )

    async def write(self, data: bytes, *, seconds: float | None = None) -> None:
        """Send a part of the body.

        Raises:
            Left: The client took nothing for ``seconds``, or is gone.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        except (TimeoutError, OSError):
            raise Left from None

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def answer(self, reply: HttpReply, **headers: str) -> None:
        """Send all of a reply."""
        told = {**reply.headers, "content-length": str(len(reply.body)), **headers}
        closing = reply.status in (401, 408, 413)
        if closing:
            told["connection"] = "close"  # or all of the body would have to be read
        if reply.status == 401:
            told.setdefault("www-authenticate", "Bearer")
        await self.start(reply.status, told)
        body = b"" if self.scope["method"] == "HEAD" else reply.body
        await self._send({"type": "http.response.body", "body": body, "more_body": closing})
        if closing:
            await self._hear_out()
            await self.end()

    async def _hear_out(self) -> None:
        """Read on for a while: clients that send all before they read would miss the reply."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                while (await self._receive()).get("more_body"):
                    pass


def _header(value: str) -> bytes:
    # What a client sent may be repeated here, and must not become a header of its own.
    return codecs.encode(
        "".join(c if c.isprintable() else " " for c in value), "latin-1", "replace"
    )
