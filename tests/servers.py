"""A server that answers byte for byte as told, and sees when its client leaves."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import trustme


@dataclass(frozen=True)
class Call:
    """A request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    connection: int
    """Number of the connection: the same for two calls on one socket."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Line:
    """The way back to the client of one call."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.left = connection.lost
        """Set when the client is gone."""

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        if not self._connection.transport.is_closing():
            self._connection.transport.write(data)

    def head(self, status: int = 200, /, *, chunked: bool = True, **headers: object) -> None:
        """Send a status line and headers; ``content_type`` is sent as ``content-type``."""
        lines = [f"HTTP/1.1 {status} Whatever"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += ["transfer-encoding: chunked"] if chunked else []
        self.write("\r\n".join([*lines, "", ""]).encode())

    async def chunk(self, data: bytes) -> None:
        """Send a chunk of a chunked body, and let the client run."""
        if data:
            self.write(b"%x\r\n%s\r\n" % (len(data), data))
        await asyncio.sleep(0)

    def end(self) -> None:
        """End a chunked body."""
        self.write(b"0\r\n\r\n")

    def body(self, status: int, body: bytes, /, **headers: object) -> None:
        """Send a whole answer at once."""
        self.head(status, chunked=False, content_length=len(body), **headers)
        self.write(body)

    def json(self, status: int, value: object, /, **headers: object) -> None:
        self.body(status, json.dumps(value).encode(), content_type="application/json", **headers)

    def close(self) -> None:
        """Close the connection."""
        self._connection.transport.close()

    def reset(self) -> None:
        """Reset the connection: what was sent may never arrive."""
        self._connection.reset()


Answer = Callable[[Line, Call], Awaitable[None]]


@dataclass
class Server:
    """What a test knows about a server that runs."""

    url: str
    answer: Answer
    """What it does with a request; may be replaced."""
    calls: list[Call] = field(default_factory=list)
    connections: list[_Connection] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    """What went wrong in its own script."""

    @property
    def open(self) -> int:
        """Connections that the client still holds."""
        return sum(not connection.lost.is_set() for connection in self.connections)

    @property
    def asked(self) -> int:
        """Requests for speech, or whatever else is posted."""
        return sum(call.method == "POST" for call in self.calls)

    async def answered(self) -> None:
        """When every answer is sent to its end, and a client on this loop has read it."""
        answering = [task for each in self.connections for task in each._answering]
        await asyncio.gather(*answering, return_exceptions=True)
        for _ in range(3):  # what was written is there to read when the loop looks next
            await asyncio.sleep(0)


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self._server = server
        self._received = b""
        self._answering: set[asyncio.Task[None]] = set()
        self.lost = asyncio.Event()
        self.lost_at = 0.0
        """When the client was seen to be gone, by time.monotonic."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._number = len(self._server.connections)
        self._server.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_at = time.monotonic()
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"\x16\x03"):  # TLS, to a server that doesn't speak it
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            self.transport.close()
            return
        self._received += data
        while call := self._next():
            self._server.calls.append(call)
            task = asyncio.ensure_future(self._server.answer(Line(self), call))
            self._answering.add(task)
            task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._server.failures.append(error)
            self.transport.abort()

    def reset(self) -> None:
        if not self.transport.is_closing():
            linger = struct.pack("ii", 1, 0)  # closed without a goodbye
            tcp = self.transport.get_extra_info("socket")
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()

    def _next(self) -> Call | None:
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end:
            return None
        request, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (s.partition(": ") for s in lines)}
        if "chunked" in headers.get("transfer-encoding", ""):
            if not rest.endswith(b"0\r\n\r\n"):
                return None
            body, self._received = _unchunked(rest), b""
        else:
            length = int(headers.get("content-length", 0))
            if len(rest) < length:
                return None
            body, self._received = rest[:length], rest[length:]
        method, target, _ = request.split(" ")
        url = urlsplit(target)
        return Call(method, url.path, dict(parse_qsl(url.query)), headers, body, self._number)

    async def end(self) -> None:
        self.transport.abort()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)


def _unchunked(data: bytes) -> bytes:
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        body += data[: int(size, 16)]
        data = data[int(size, 16) + 2 :]
    return body


@asynccontextmanager
async def serving(
    answer: Answer,
    *,
    tls: ssl.SSLContext | None = None,
    path: Path | None = None,
    port: int = 0,
) -> AsyncGenerator[Server, None]:
    """Run a server on loopback, or on a Unix socket; ``answer`` is called for each request."""
    loop = asyncio.get_running_loop()
    server = Server("", answer)

    def connection() -> _Connection:
        return _Connection(server)

    if path:
        listening = await loop.create_unix_server(connection, str(path))
        server.url = f"unix://{path}"
    else:
        listening = await loop.create_server(connection, "127.0.0.1", port, ssl=tls)
        port = listening.sockets[0].getsockname()[1]
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield server
    finally:
        listening.close()
        for each in server.connections:
            await each.end()
    if server.failures:
        raise AssertionError("the server's script failed") from server.failures[0]


def in_turn(*answers: Answer) -> Answer:
    """One answer after the other; the last one stays."""
    left = list(answers)

    async def answer(line: Line, call: Call) -> None:
        await (left.pop(0) if left[1:] else left[0])(line, call)

    return answer


def certificate(directory: Path) -> tuple[ssl.SSLContext, Path]:
    """What a server on 127.0.0.1 needs for TLS; and who signed it, whom nobody trusts yet."""
    authority, signed = trustme.CA(), directory / "authority.pem"
    authority.cert_pem.write_to_path(str(signed))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    return tls, signed


def by_path(answers: Mapping[str, Answer]) -> Answer:
    """Answers by path, or by "METHOD path"; 404 where there is none."""

    async def answer(line: Line, call: Call) -> None:
        chosen = answers.get(f"{call.method} {call.path}") or answers.get(call.path)
        if chosen is None:
            line.json(404, {"detail": "Not Found"})
        else:
            await chosen(line, call)

    return answer
