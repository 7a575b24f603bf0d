"""A WebSocket at which somebody listens all the time, so that a client who leaves is noticed.

A failing send is not how one learns of it: buffers take minutes of audio from an engine that nobody
listens to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from tts_plugins.dialects.base import HttpReply
from tts_plugins.server.calls import Left
from tts_plugins.server.house import Limits, request_id

_OVERHEAD = 100
"""Bytes that a message takes beside what is in it: nothing, sent often enough, fills memory."""

_LONGEST_REASON = 123
"""Bytes."""


class Socket:
    """The two ways between a client and whoever serves it.

    Args:
        websocket: Accepted already.
        limits: What may wait here, and how long a client may take nothing.
    """

    def __init__(self, websocket: WebSocket, limits: Limits) -> None:
        self._websocket = websocket
        self._inbox: asyncio.Queue[str | bytes] = asyncio.Queue()
        self._room = limits.body
        self._patience = limits.send_seconds
        self.overrun = False
        """Whether the client sent too much."""

    async def take(self, seconds: float | None = None) -> str | bytes:
        """The next message.

        Raises:
            TimeoutError: If none has come within ``seconds``.
        """
        async with asyncio.timeout(seconds):
            message = await self._inbox.get()
        self._room += _OVERHEAD + len(message)
        return message

    async def send(self, message: str | bytes) -> None:
        """Send a message.

        Raises:
            Left: The client took nothing for too long, or is gone.
        """
        text = isinstance(message, str)
        await self._tell({"type": "websocket.send", "text" if text else "bytes": message})

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye."""
        said = reason.encode()[:_LONGEST_REASON].decode(errors="ignore")
        with suppress(Left):
            await self._tell({"type": "websocket.close", "code": code, "reason": said})

    async def _tell(self, message: Message) -> None:
        if self._websocket.application_state is WebSocketState.DISCONNECTED:
            raise Left  # as another task has heard already; starlette would call it a bug
        try:
            async with asyncio.timeout(self._patience):
                await self._websocket.send(message)
        except (TimeoutError, WebSocketDisconnect):
            raise Left from None

    async def read(self) -> None:
        """Keep what comes until it is taken; return when the client is gone, or sends too much."""
        while (event := await self._websocket.receive())["type"] != "websocket.disconnect":
            message = event.get("text")
            message = event["bytes"] if message is None else message
            self._room -= _OVERHEAD + len(message)
            if self._room < 0:
                self.overrun = True
                return
            self._inbox.put_nowait(message)


async def attend(
    websocket: WebSocket, limits: Limits, serve: Callable[[Socket], Awaitable[None]]
) -> None:
    """Accept a client and serve it until that is done, or the client leaves."""
    await websocket.accept(headers=[(b"x-request-id", request_id().encode())])
    socket = Socket(websocket, limits)
    reading = asyncio.ensure_future(socket.read())
    serving = asyncio.ensure_future(serve(socket))
    try:
        await asyncio.wait({reading, serving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        reading.cancel()
        serving.cancel()
        await asyncio.wait({reading, serving})
    if not serving.cancelled():
        with suppress(Left):
            serving.result()
    elif socket.overrun:
        # Not while anything is still sent, which can't be behind a goodbye.
        await socket.close(1008, "more than can be spoken: send no more than is listened to")


async def refuse(websocket: WebSocket, reply: HttpReply) -> None:
    """Answer the handshake over HTTP, where the reason can be read."""
    if "websocket.http.response" not in websocket.scope.get("extensions", {}):
        await websocket.close(1008)
        return
    headers = {**reply.headers, "x-request-id": request_id()}
    await websocket.send_denial_response(Response(reply.body, reply.status, headers))
    await asyncio.sleep(0)  # uvicorn logs an error unless the connection is closed by then
