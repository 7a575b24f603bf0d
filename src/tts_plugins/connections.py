"""Connections to a server, of one event loop: kept warm, cut off, heard out, closed for good."""

from __future__ import annotations

import asyncio
import atexit
import os
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tts_plugins.errors import EngineError, InvalidRequestError, TTSError

_KEEP_ALIVE = 75.0
"""Seconds an idle connection is kept: servers keep theirs for 60 to 120."""

_MOMENT = 0.02
"""Seconds after which a connection that was cut off is replaced, or its answer read to its end:
before a user is through."""

_UNHEARD = 30.0
"""Seconds for which an answer is read that nobody wants any more."""


@dataclass(eq=False)
class Connections:
    """The connections of one event loop, and what is to be done with them.

    Args:
        session: Of aiohttp.
        owned: Whether to close it.
    """

    session: aiohttp.ClientSession
    owned: bool
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    responses: set[aiohttp.ClientResponse] = field(default_factory=set)
    """Those that are being read."""
    cloning: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a voice is enrolled, so that two who ask at once enrol it once."""
    limits: set[asyncio.Timeout] = field(default_factory=set)
    """Of those that wait for an answer to begin."""
    _left: set[aiohttp.ClientResponse] = field(default_factory=set)
    """Those that nobody wants any more, to be read to their end in a moment."""
    _unheard: set[asyncio.Future[Any]] = field(default_factory=set)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _warm_at: asyncio.TimerHandle | None = None
    _warming: asyncio.Task[None] | None = None

    @classmethod
    def open(cls, session: aiohttp.ClientSession | None, socket: str | None) -> Connections:
        if session is not None:
            if getattr(session, "_loop", None) not in (None, asyncio.get_running_loop()):
                raise InvalidRequestError("the session was made in another event loop than this")
            return cls(session, owned=False)
        connector: aiohttp.BaseConnector = (
            aiohttp.UnixConnector(socket, limit=0, keepalive_timeout=_KEEP_ALIVE)
            if socket
            else aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE)
        )
        session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        _open.add(session)
        return cls(session, owned=True)

    async def rest(self, seconds: float) -> None:
        """Wait, unless everything is closed before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    def forget_addresses(self) -> None:
        """Have names looked up anew."""
        if self.owned and isinstance(connector := self.session.connector, aiohttp.TCPConnector):
            connector.clear_dns_cache()

    def warm(self, prewarm: Callable[[], Awaitable[None]]) -> None:
        """Replace a connection that was cut off, before somebody waits for its handshake.

        A moment later: if everything is cut off because the event loop ends, it is gone by then.
        """
        if self._warm_at is None:
            self._warm_at = self.loop.call_later(_MOMENT, self._warm, prewarm)

    def _warm(self, prewarm: Callable[[], Awaitable[None]]) -> None:
        self._warm_at = None
        if self._warming is None or self._warming.done():
            self._warming = self.loop.create_task(_quietly(prewarm))

    async def surely(self, asking: Awaitable[aiohttp.ClientResponse]) -> aiohttp.ClientResponse:
        """The answer. If whoever asks leaves before it is there, it is read to its end."""
        task = asyncio.ensure_future(asking)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._read_out_answer)
            self._unheard.add(task)
            self.loop.call_later(0.0 if self._closing.is_set() else _UNHEARD, task.cancel)
            raise

    def read_out(self, response: aiohttp.ClientResponse) -> None:
        """Read an answer to its end that nobody wants any more."""
        # Begun by a timer, which is quiet if the event loop has ended by then.
        self._left.add(response)
        self.loop.call_later(_MOMENT, self._read_out, response)

    def _read_out(self, response: aiohttp.ClientResponse) -> None:
        self._left.discard(response)
        if self._closing.is_set():
            response.close()
            return
        task = self.loop.create_task(_read_out(response))
        # Also for a task that is cancelled before it has begun.
        task.add_done_callback(lambda _: response.close())
        task.add_done_callback(self._unheard.discard)
        self._unheard.add(task)

    def _read_out_answer(self, asking: asyncio.Future[aiohttp.ClientResponse]) -> None:
        self._unheard.discard(asking)
        if not asking.cancelled() and not asking.exception():
            self.read_out(asking.result())

    async def aclose(self) -> None:
        self._closing.set()
        try:
            if not self.loop.is_closed():
                await self._end()
        finally:
            if self.owned:
                await self.session.close()

    async def _end(self) -> None:
        for response in self.responses:  # or their readers would wait for more
            response.content.set_exception(EngineError("the engine was closed"))
        for response in self._left:
            response.close()
        if self._warm_at is not None:
            self._warm_at.cancel()
        for limit in self.limits:
            limit.reschedule(0.0)
        ending = {*self._unheard, *([self._warming] if self._warming else [])}
        for future in ending:
            future.cancel()
        if ending:
            await asyncio.wait(ending)


async def _read_out(response: aiohttp.ClientResponse) -> None:
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_UNHEARD):
            async for _ in response.content.iter_any():
                pass


async def _quietly(prewarm: Callable[[], Awaitable[None]]) -> None:
    with suppress(TTSError):  # the next request will tell
        await prewarm()


_open: weakref.WeakSet[aiohttp.ClientSession] = weakref.WeakSet()

if hasattr(os, "register_at_fork"):  # there is none on Windows
    # To close them in a child as well would take the parent's off the list it polls.
    os.register_at_fork(after_in_child=_open.clear)


@atexit.register
def _close_all() -> None:
    """Close what nobody closed: LiveKit doesn't tell a TTS when its job is over."""
    for session in list(_open):
        with suppress(Exception):  # its event loop is gone
            asyncio.run(session.close())
