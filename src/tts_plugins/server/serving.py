"""Run the app with uvicorn: sockets that hold little, and an end that cuts nobody off."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from tts_plugins.errors import InvalidRequestError, UnreadableTextWarning
from tts_plugins.server.house import House

logger = logging.getLogger(__name__)

_SEND_BUFFER = 65_536
"""Bytes that the kernel keeps for a client who doesn't read; by itself it takes megabytes, which
are minutes of audio, computed for nobody. Linux doubles the number."""

_BACKLOG = 2048

_STALLED = 60_000
"""Milliseconds after which the kernel gives up a connection whose client takes nothing."""


class Server(uvicorn.Server):
    """uvicorn, which on SIGTERM or Ctrl-C lets everything that is being said be said first.

    Meanwhile it still listens, so that a load balancer sees ``/ready`` fail and clients are told to
    go elsewhere. A second signal hangs up on everybody. An engine that can't be opened ends it too.

    Args:
        config: Of uvicorn.
        house: What is drained.
        grace: Seconds that draining may take.
        ready: Called once, when the engines are open.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        house: House,
        *,
        grace: float = 25.0,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config)
        self.interrupted = False
        """Whether Ctrl-C was among what ended it."""
        self._house = house
        self._grace = grace
        self._ready: Callable[[], None] | None = ready
        self._draining: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        self._house.level()
        if self._house.engines.failure:
            self.should_exit = True
        elif self._ready and self._house.engines.ready:
            self._ready()
            self._ready = None
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not by uvicorn's own, which in the end raises the signal once more: then a process that
        # let everybody finish would end like one that was killed.
        self.interrupted |= sig == signal.SIGINT
        if self._loop is None:
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        else:
            self._hang_up()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._grace):
                await self._house.drain()
        except TimeoutError:
            logger.warning("cutting off what still speaks after %g s", self._grace)
            self._hang_up()
        self.should_exit = True

    def _hang_up(self) -> None:
        # So that streams end as if their listeners had left, which they know how to do; uvicorn
        # would cancel them, and report each as an exception.
        self.should_exit = True
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._house.draining = True
        await super().shutdown(sockets)


def run(
    make_app: Callable[[], Starlette],
    listening: socket.socket,
    *,
    grace: float,
    ready: Callable[[], None],
    **options: Any,
) -> int:
    """Serve until a signal ends it; the exit status that says how it went.

    Args:
        make_app: create_app with its arguments.
        listening: From listen or listen_unix.
        grace: Seconds that what is being said may take at the end.
        ready: Called once, when the engines are open.
        **options: Of uvicorn.
    """
    _write_log()
    app = make_app()
    house: House = app.state.house
    server = Server(config(app, **options), house, grace=grace, ready=ready)
    server.run(sockets=[listening])
    if house.engines.failure:
        return 1
    return 128 + signal.SIGINT if server.interrupted else 0


def _write_log() -> None:
    """Requests, and what is wrong, on standard error; one line each."""
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    formatter.converter = time.gmtime
    formatter.default_time_format = "%Y-%m-%dT%H:%M:%S"
    formatter.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("tts_plugins.requests").setLevel(logging.INFO)
    # An engine that warns of a text it can't read says so in the log too.
    warnings.simplefilter("ignore", UnreadableTextWarning)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, all of whose connections hold little.

    Raises:
        InvalidRequestError: If the address can't be had.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return _listening(family, address)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidRequestError(
            f"can't listen on {host}:{port}: {reason}; choose another host or port"
        ) from None


def listen_unix(path: Path) -> socket.socket:
    """The same at a path in the file system, for this user alone.

    Raises:
        InvalidRequestError: If it can't be had, or is something else than an old socket.
    """
    try:
        if path.is_socket():
            if _answers(path):
                raise InvalidRequestError(f"a server listens on {path} already")
            path.unlink()
        return _listening(socket.AF_UNIX, str(path))
    except OSError as error:
        raise InvalidRequestError(
            f"can't listen on {path}: {error.strerror or error}; choose another path"
        ) from None


@contextmanager
def removed_at_the_end(path: Path) -> Generator[None, None, None]:
    """Take the path of a socket away, unless another server has replaced it meanwhile."""
    ours = path.stat().st_ino
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            if path.stat().st_ino == ours:
                path.unlink()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


def _listening(family: int, address: Any) -> socket.socket:
    # asyncio sends at once, without waiting for more, only where the protocol is named.
    protocol = 0 if family == socket.AF_UNIX else socket.IPPROTO_TCP
    listening = socket.socket(family, socket.SOCK_STREAM, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        if family != socket.AF_UNIX and (option := getattr(socket, "TCP_USER_TIMEOUT", None)):
            listening.setsockopt(socket.IPPROTO_TCP, option, _STALLED)
        listening.bind(address)
        if family == socket.AF_UNIX:
            Path(address).chmod(0o600)  # before anybody can connect
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def config(app: Any, **options: Any) -> uvicorn.Config:
    """How uvicorn runs the app; it writes no lines of its own about requests."""
    ours = {
        "access_log": False,
        **_connections(),
        "lifespan": "on",
        "log_config": None,
        "server_header": False,
        # Longer than clients keep a connection, LiveKit's 120 s: a turn comes seldom, and should
        # neither pay for a new one nor meet one that is just being closed.
        "timeout_keep_alive": 130,
        "timeout_graceful_shutdown": 5,
        "ws_max_size": 1_000_000,
        # LiveKit's Fish plugin keeps a socket between two turns and reads nothing from it then, no
        # ping either. Whoever is gone is noticed all the same: the kernel gives up on them.
        "ws_ping_timeout": None,
        # Audio in base64 gets a quarter smaller, for six times the CPU of writing it.
        "ws_per_message_deflate": False,
    }
    return uvicorn.Config(app, **{**ours, **options})


def _connections() -> dict[str, Any]:
    try:
        from tts_plugins.server.connections import Connection, SocketConnection
    except ImportError:  # there is no httptools for Windows
        return {}
    return {"http": Connection, "ws": SocketConnection}
