"""A TCP relay in a process of its own, that holds back every byte as a network would."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from benchmarks.speech_server import child, until_unwanted

HANDSHAKE = 2
"""Round trips before a new connection carries a request: one for TCP, one for TLS 1.3."""


@asynccontextmanager
async def relaying(port: int, round_trip: float) -> AsyncIterator[str]:
    """Run a relay to a server on ``port``; give the address at which it is reached."""
    async with child("benchmarks.relay", port, round_trip) as (lines, _):
        yield f"http://127.0.0.1:{int(await lines.readline())}"


class _Relay:
    def __init__(self, port: int, round_trip: float) -> None:
        self._port = port
        self._delay = round_trip / 2
        self._handshake = HANDSHAKE * round_trip
        self._joined: list[asyncio.Task[None]] = []

    def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._joined.append(asyncio.create_task(self._join(reader, writer)))

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = asyncio.get_running_loop().time() + self._handshake + self._delay
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(
            self._carry(reader, server_writer, ready), self._carry(server_reader, writer, ready)
        )

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ready: float
    ) -> None:
        """Carry what comes from one end to the other, where nothing arrives before ``ready``."""
        loop = asyncio.get_running_loop()
        due = ready
        while data := await _read(reader):
            # A little after what came before: at one moment they might come out in any order.
            due = max(due + 1e-6, loop.time() + self._delay)
            loop.call_at(due, writer.write, data)
        loop.call_at(max(due + 1e-6, loop.time() + self._delay), writer.close)


async def _read(reader: asyncio.StreamReader) -> bytes:
    with suppress(ConnectionError):  # a reset is passed on as an end
        return await reader.read(65536)
    return b""


async def main(port: int, round_trip: float) -> None:
    server = await asyncio.start_server(_Relay(port, round_trip).connect, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await until_unwanted()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
