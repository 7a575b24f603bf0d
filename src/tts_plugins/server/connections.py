"""uvicorn's connections, with the bounds that it leaves to a proxy in front of it.

By itself it waits for the rest of a head for ever, takes heads of any size, doesn't answer a
handshake that can't be read, forgets about an answer once another request comes behind it, and
about a connection once the rest of a body comes behind its answer, and reports a text that isn't
UTF-8 as an error of its own.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tts_plugins.server.calls import HANG_UP

_MOST_WAITING = 32
"""Requests on one connection that may wait for the answer to another."""


class Connection(HttpToolsProtocol):
    """A client's connection, until it becomes a WebSocket."""

    head_seconds = 20.0
    """In which all headers of a request have to be there."""
    largest_head = 65_536
    """Bytes of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        """Set while a head is awaited."""
        self._size = 0
        self._whole = True
        """Whether the last request is."""
        self._answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        # The newest request has been told; what is being answered may be one before it.
        if self._answering and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._whole and not self._busy:
            self._await_head()  # even for an empty line, which uvicorn waits on for ever
        super().data_received(data)
        if self._deadline:
            self._size += len(data)
            if self._size > self.largest_head:
                self._refuse(431)
        elif not self._busy and self.transport.get_protocol() is self:
            # The rest of a body came behind its answer, and uvicorn waits for nothing more.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._whole = False
        self.scope["extensions"] = {HANG_UP: {"abort": self.transport.abort}}
        self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        if len(self.pipeline) >= _MOST_WAITING:
            raise ValueError("too many requests at a time")  # which makes them a bad one
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        # Before 0.55.0 uvicorn left a handshake that can't be read without an answer.
        if not getattr(self.transport.get_protocol(), "handshake_initiated", True):
            self._refuse(400)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _busy(self) -> bool:
        return bool(self._answering and not self._answering.response_complete)

    def _await_head(self) -> None:
        if not self._deadline:
            self._size = 0
            self._deadline = self.loop.call_later(self.head_seconds, self._late)

    def _stop_waiting(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if self._busy:
            self._await_head()  # perhaps it isn't read yet
        else:
            self._refuse(408)

    def _refuse(self, status: int) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            said = HTTPStatus(status).phrase
            self.transport.write(
                f"HTTP/1.1 {status} {said}\r\ncontent-type: text/plain\r\nconnection: close\r\n"
                f"content-length: {len(said)}\r\n\r\n{said}".encode()
            )
            self.transport.close()


class SocketConnection(WebSocketsSansIOProtocol):
    """A client's connection, once it is a WebSocket."""

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.fail(1007, "text is UTF-8")
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()
