"""The server on a loopback port, inside the test's own event loop."""

from __future__ import annotations

import asyncio
import functools
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec

import aiohttp

from tts_plugins.engine import Engine
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.scheduler import Scheduler
from tts_plugins.server import create_app
from tts_plugins.server.house import House
from tts_plugins.server.serving import Server, config, listen, listen_unix

P = ParamSpec("P")


class LateError(AssertionError):
    """All was as it should be, but took too long."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What takes less than that.

    Raises:
        LateError: It did.
    """
    began = time.monotonic()
    yield
    in_time(time.monotonic() - began, seconds)


def in_time(took: float, seconds: float) -> None:
    """Look whether something took less than that.

    Raises:
        LateError: It didn't.
    """
    if took >= seconds:
        raise LateError(f"it took {took:.3f} s; less than {seconds:g} s is good")


def best_of_three(
    test: Callable[P, Awaitable[None]],
) -> Callable[P, Coroutine[Any, Any, None]]:
    """A test that may be late twice, since other processes share its cores; never wrong."""

    @functools.wraps(test)
    async def attempts(*args: P.args, **kwargs: P.kwargs) -> None:
        for _ in range(2):
            with suppress(LateError):
                return await test(*args, **kwargs)
        return await test(*args, **kwargs)

    return attempts


class _Quiet(Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # those are the test's


@dataclass(frozen=True)
class Live:
    """A running server."""

    house: House
    port: int
    client: aiohttp.ClientSession
    server: Server
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def ask(
        self, path: str, body: object, **headers: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        """POST JSON; the status, the headers with names in lower case, and the body."""
        async with self.client.post(self.url + path, json=body, headers=headers) as reply:
            named = {name.lower(): value for name, value in reply.headers.items()}
            return reply.status, named, await reply.read()

    async def until(self, condition: Any, seconds: float = 5.0) -> None:
        """Let everything run until something is so."""
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  what it asks has no event
                await asyncio.sleep(0.001)


def tones(**options: Any) -> Scheduler:
    """The tone engine as it is shared; ``max_ahead`` and the like are the scheduler's."""
    own = {name: options.pop(name) for name in ("frequency", "sample_rate") if name in options}
    return Scheduler(ToneEngine(**own), **options)


@asynccontextmanager
async def live(
    engine: Engine | str | Mapping[str, Engine | str] | None = None,
    *,
    tls: Any = None,
    uds: Path | None = None,
    running: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncGenerator[Live, None]:
    """Serve an engine, the tone by default; ``options`` are create_app's, ``running`` uvicorn's."""
    own = tones() if engine is None else None
    app = create_app(own or engine or "tone", **{"warm": False, **options})
    house: House = app.state.house
    listening: socket.socket = listen_unix(uds) if uds else listen("127.0.0.1", 0)
    port = 0 if uds else listening.getsockname()[1]
    settings = config(app, log_level="warning", lifespan="on", **(running or {}))
    if tls is not None:
        settings.load()
        settings.ssl = tls
    server = _Quiet(settings, house)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with asyncio.timeout(10):
            while not (server.started and (house.engines.ready or house.engines.failure)):
                await asyncio.sleep(0.001)
                if serving.done():
                    serving.result()
        connector = aiohttp.UnixConnector(str(uds)) if uds else None
        async with aiohttp.ClientSession(connector=connector) as client:
            yield Live(house, port, client, server, "https" if tls else "http")
    finally:
        server.should_exit = True
        await serving
        if own:
            await own.aclose()
