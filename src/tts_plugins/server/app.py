"""The app: which door leads where."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route

from tts_plugins.dialects.kokoro import KokoroServer
from tts_plugins.dialects.openai import OpenAIServer
from tts_plugins.dialects.piper import PiperServer
from tts_plugins.engine import Engine, layers
from tts_plugins.server import elevenlabs, fish, lists, native, playground, standing, voices
from tts_plugins.server.admission import Admission
from tts_plugins.server.doors import Answer, Door
from tts_plugins.server.engines import Engines, named
from tts_plugins.server.house import House, Limits
from tts_plugins.server.keys import Keys
from tts_plugins.server.nowhere import not_so, nowhere
from tts_plugins.server.speech import SpeechDoor, SpeechServer
from tts_plugins.server.threshold import guards

logger = logging.getLogger(__name__)


def create_app(
    engine: Engine | str | Mapping[str, Engine | str],
    *,
    aliases: Mapping[str, str] | None = None,
    keys: Keys | Sequence[str] = (),
    max_streams: int = 256,
    max_waiting: int = 64,
    max_per_key: int | None = None,
    max_ahead: float | None = None,
    cors_origins: Sequence[str] = (),
    allowed_hosts: Sequence[str] | None = None,
    limits: Limits | None = None,
    warm: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Starlette:
    """An ASGI app that speaks through an engine in every dialect.

    Args:
        engine: What speaks: an engine, what open_engine takes, or several of them by the names
            that requests give as their model. The first is the default. What is given as a name
            is loaded when the app starts, and closed when it ends.
        aliases: Names of voices that clients ask for, and what the engines call them; ``*`` stands
            for any that there isn't.
        keys: Who may call; without any it is open to everybody who can reach it.
        max_streams: Streams open at once.
        max_waiting: Of these, how many may wait for their first audio.
        max_per_key: Streams open at once with one key.
        max_ahead: Seconds by which an engine that is loaded here is ahead of its listeners, if not
            Scheduler's own.
        cors_origins: Of web pages elsewhere that may call, such as ``https://example.com``.
        allowed_hosts: The names by which the server may be called, without ports.
        limits: What one client may ask for.
        warm: Whether the engines speak to nobody once before the first caller.
        clock: Monotonic time in seconds. Tests pass their own.
    """
    pace: dict[str, float] = {"max_streams": max_streams}
    if max_ahead is not None:
        pace["max_ahead"] = max_ahead
    engines = Engines(_by_name(engine), aliases=aliases, pace=pace, clock=clock)
    house = House(
        engines,
        admission=Admission(
            max_streams=max_streams, max_waiting=max_waiting, max_per_key=max_per_key, clock=clock
        ),
        keys=keys if isinstance(keys, Keys) else Keys(keys),
        limits=limits or Limits(),
        clock=clock,
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        # Meanwhile /health answers already, and /ready says that it loads.
        opening = asyncio.create_task(_open(engines, warm=warm))
        try:
            yield
        finally:
            opening.cancel()
            await asyncio.wait({opening})
            await engines.aclose()

    app = Starlette(
        routes=_routes(house),
        middleware=guards(cors_origins, allowed_hosts),
        lifespan=lifespan,
        exception_handlers={405: not_so, Exception: not_so},
    )
    # A redirection would lead wherever a client's Host says.
    app.router.redirect_slashes = False
    app.router.default = nowhere
    app.state.house = house
    return app


def _routes(house: House) -> list[BaseRoute]:
    openai = OpenAIServer()

    def door(path: str, answer: Answer, *, public: bool = False, method: str = "GET") -> Route:
        return Route(path, Door(house, answer, openai.write_error, public=public), methods=[method])

    def speech(path: str, server: SpeechServer, dialect: str) -> Route:
        return Route(path, SpeechDoor(house, server, dialect), methods=["POST"])

    return [
        door("/health", standing.health, public=True),
        door("/ready", standing.ready, public=True),
        door("/metrics", standing.metrics),
        door("/v1/models", lists.models),
        door("/v1/models/{model:path}", lists.model),
        speech("/v1/audio/speech", openai, "openai"),
        speech("/dev/captioned_speech", KokoroServer(), "kokoro"),
        *(speech(path, PiperServer(), "piper") for path in PiperServer.paths),
        *playground.routes(house),
        *native.routes(house),
        *voices.routes(house),
        *fish.routes(house),
        *elevenlabs.routes(house),
    ]


async def _open(engines: Engines, *, warm: bool) -> None:
    try:
        await engines.open(warm=warm)
    except Exception as error:  # noqa: BLE001  # a stranger's engine loads: anything may come
        engines.failure = engines.failure or f"{type(error).__name__}: {error}"
        logger.error("no engine: %s", engines.failure)  # noqa: TRY400  # one line says it


def _by_name(engine: Engine | str | Mapping[str, Engine | str]) -> Mapping[str, Engine | str]:
    if isinstance(engine, Mapping):
        return engine
    if isinstance(engine, str):
        return named([engine])
    *_, innermost = layers(engine)
    called = getattr(innermost, "name", "") or type(innermost).__name__.lower()
    return {called.removesuffix("engine") or called: engine}
