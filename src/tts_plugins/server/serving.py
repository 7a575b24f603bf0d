"""Run the app with uvicorn: sockets that hold little, and an end that cuts nobody off."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from tts_plugins.errors import InvalidRequestError
from tts_plugins.server.house import House

logger = logging.getLogger(__name__)

_SEND_BUFFER = 65_536
"""Bytes that the kernel keeps for a client who doesn't read; by itself it takes megabytes, which
are minutes of audio, computed for nobody. Linux doubles the number."""

_STALLED = 60_000
"""Milliseconds after which the kernel gives up a connection whose client takes nothing."""


class Server(uvicorn.Server):
    """uvicorn, which on SIGTERM or Ctrl-C lets everything that is being said be said first.

    Meanwhile it still listens, so that a load balancer sees ``/ready`` fail and clients are told to
    go elsewhere. A second signal ends it at once.

    Args:
        config: Of uvicorn.
        house: What is drained.
        grace: Seconds that draining may take.
    """

    def __init__(self, config: uvicorn.Config, house: House, *, grace: float = 30.0) -> None:
        super().__init__(config)
        self._house = house
        self._grace = grace
        self._draining: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None or self._house.draining or not self.started:
            super().handle_exit(sig, frame)
            return
        self._captured_signals.append(sig)
        self._house.draining = True
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._draining = asyncio.create_task(self._drained())

    async def _drained(self) -> None:
        try:
            async with asyncio.timeout(self._grace):
                await self._house.drain()
        except TimeoutError:
            logger.warning("streams still run after %g s; ending them", self._grace)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._house.draining = True
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, all of whose connections hold little.

    Raises:
        InvalidRequestError: If the address can't be had.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _hold_little(listening)
        listening.bind(address)
    except OSError as error:
        raise InvalidRequestError(f"can't listen on {host}:{port}: {error}") from None
    return listening


def listen_unix(path: Path) -> socket.socket:
    """The same at a path in the file system, for this user alone.

    Raises:
        InvalidRequestError: If it can't be had, or is something else than an old socket.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _hold_little(listening)
    try:
        if path.is_socket():
            if _answers(path):
                raise InvalidRequestError(f"a server listens on {path} already")
            path.unlink()
        listening.bind(str(path))
        path.chmod(0o600)
    except OSError as error:
        raise InvalidRequestError(f"can't listen on {path}: {error}") from None
    return listening


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


def _hold_little(listening: socket.socket) -> None:
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    if listening.family != socket.AF_UNIX and (option := getattr(socket, "TCP_USER_TIMEOUT", None)):
        listening.setsockopt(socket.IPPROTO_TCP, option, _STALLED)


def config(app: Any, **options: Any) -> uvicorn.Config:
    """How uvicorn runs the app; it writes no lines of its own about requests."""
    return uvicorn.Config(
        app,
        access_log=False,
        server_header=False,
        ws_max_size=1_000_000,
        timeout_graceful_shutdown=5,
        **options,
    )
