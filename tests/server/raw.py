"""Bytes to a server as they are, and whatever comes back."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import struct
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reply:
    """An answer as far as it came."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    whole: bool
    """Whether it ended as it should, not because the connection did."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """A connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes, unless the server doesn't want any more."""
        with suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def reply(self, *, head: bool = False) -> Reply | None:
        """The next answer; None if the connection ended instead.

        Args:
            head: Whether it was HEAD that was asked, so that there is no body.
        """
        try:
            top = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        first, *lines = top.decode("latin-1").split("\r\n")[:-2]
        status = int(first.split(" ")[1])
        if status == 100:
            return await self.reply(head=head)
        headers = {n.lower(): v for n, _, v in (line.partition(": ") for line in lines)}
        body = bytearray()
        if head or status in (101, 204, 304):
            return Reply(status, headers, b"", whole=True)
        whole = True
        try:
            async for part in self._body(headers):
                body += part
        except (asyncio.IncompleteReadError, ConnectionError):
            whole = False
        return Reply(status, headers, bytes(body), whole)

    async def _body(self, headers: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        if headers.get("transfer-encoding") != "chunked":
            yield await self._reader.readexactly(int(headers.get("content-length", 0)))
            return
        while size := int((await self._reader.readuntil(b"\r\n"))[:-2], 16):
            yield await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)

    async def some(self) -> bytes:
        """What is there, or comes next; nothing at the end."""
        try:
            return await self._reader.read(65_536)
        except ConnectionError:
            return b""

    async def frame(self) -> tuple[int, bytes] | None:
        """The opcode and payload of the next WebSocket frame; None at the end."""
        try:
            first, length = await self._reader.readexactly(2)
            if length > 125:
                wide = length == 127
                data = await self._reader.readexactly(8 if wide else 2)
                (length,) = struct.unpack(">Q" if wide else ">H", data)
            return first & 15, await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def frames(self) -> list[tuple[int, bytes]]:
        """All frames up to the goodbye, or the end."""
        found = []
        while (frame := await self.frame()) and frame[0] != CLOSE:
            found.append(frame)
        return found

    @property
    def receives(self) -> int:
        """Bytes that the kernel holds until they are read."""
        own: socket.socket = self._writer.get_extra_info("socket")
        return own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    def rest(self) -> None:
        """Read nothing from now on."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def finish(self) -> None:
        """Say that nothing more is sent."""
        with suppress(OSError, RuntimeError):
            self._writer.write_eof()

    def leave(self) -> None:
        """Go, without a word."""
        self._writer.transport.abort()


@asynccontextmanager
async def wire(port: int, *, receives: int | None = None) -> AsyncGenerator[Wire, None]:
    """A connection to a port of the loopback.

    Args:
        port: The server's.
        receives: Bytes that its end of the connection holds, about; as many as usual by default.
    """
    # With its protocol named, or else asyncio would let small parts wait for each other.
    own = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    own.setblocking(False)
    if receives is not None:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    await asyncio.get_running_loop().sock_connect(own, ("127.0.0.1", port))
    limit = receives or 65_536
    reader, writer = await asyncio.open_connection(sock=own, limit=limit)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


async def exchange(
    port: int, *parts: bytes, head: bool = False, finish: bool = False, seconds: float = 5.0
) -> Reply | None:
    """Send bytes, and get the answer; None if the server hung up.

    Raises:
        TimeoutError: If it does neither.
    """
    async with asyncio.timeout(seconds), wire(port) as line:
        sending = asyncio.create_task(_send(line, parts, finish=finish))
        try:
            return await line.reply(head=head)
        finally:
            sending.cancel()
            await asyncio.wait({sending})


async def _send(line: Wire, parts: Iterable[bytes], *, finish: bool) -> None:
    for part in parts:
        await line.send(part)
    if finish:
        line.finish()


def request(
    method: str, target: str | bytes, *headers: str | bytes, body: bytes | None = None
) -> bytes:
    """A request, byte for byte."""
    target = target if isinstance(target, bytes) else target.encode()
    lines = [method.encode() + b" " + target + b" HTTP/1.1", b"host: test"]
    lines += [each if isinstance(each, bytes) else each.encode("latin-1") for each in headers]
    if body is not None:
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body or b""])


def handshake(target: str, *headers: str) -> bytes:
    """The request for a WebSocket."""
    return request(
        "GET",
        target,
        "connection: Upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        f"sec-websocket-key: {base64.b64encode(bytes(16)).decode()}",
        *headers,
    )


TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


def frame(opcode: int, payload: bytes, *, fin: bool = True, masked: bool = True) -> bytes:
    """A WebSocket frame, as a client sends it."""
    n, mask = len(payload), os.urandom(4)
    first, marked = opcode | (0x80 if fin else 0), 0x80 if masked else 0
    if n < 126:
        head = struct.pack(">BB", first, n | marked)
    elif n < 65_536:
        head = struct.pack(">BBH", first, 126 | marked, n)
    else:
        head = struct.pack(">BBQ", first, 127 | marked, n)
    if not masked:
        return head + payload
    key = (mask * (n // 4 + 1))[:n]
    hidden = (int.from_bytes(payload) ^ int.from_bytes(key)).to_bytes(n) if n else b""
    return head + mask + hidden
