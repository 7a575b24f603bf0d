"""The server: its doors, its tokens and its rooms."""

from __future__ import annotations

import datetime
from types import TracebackType
from typing import Self

from aiohttp import web
from livekit import api
from livekit.api.access_token import Claims
from livekit.protocol import models

from tests.rooms.dispatch import Dispatch, Job
from tests.rooms.guest import Guest
from tests.rooms.signalling import Connection

KEY, SECRET = "key", "a secret of thirty-two characters"


class LiveKitServer:
    """Runs in the event loop that opens it, on a port of 127.0.0.1."""

    def __init__(self) -> None:
        self._guests: dict[str, Guest] = {}
        self._connections: set[Connection] = set()
        self._runner: web.AppRunner | None = None
        self._port = 0
        self.jobs = Dispatch(self.token, lambda: self.url)

    @property
    def url(self) -> str:
        """What LIVEKIT_URL has to be."""
        return f"ws://127.0.0.1:{self._port}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a worker of this server."""
        return {
            "LIVEKIT_URL": self.url,
            "LIVEKIT_API_KEY": KEY,
            "LIVEKIT_API_SECRET": SECRET,
        }

    def token(self, room: str, identity: str = "agent") -> str:
        """What lets an agent into a room."""
        grants = api.VideoGrants(room_join=True, room=room, agent=True)
        token = api.AccessToken(KEY, SECRET).with_identity(identity).with_kind("agent")
        return token.with_grants(grants).with_ttl(datetime.timedelta(hours=1)).to_jwt()

    def guest(self, room: str) -> Guest:
        """Who waits in a room for the agent: there from the beginning."""
        return self._guests.setdefault(room, Guest(room))

    async def dispatch(self, room: str) -> Job:
        """Have a worker send an agent into a room."""
        return await self.jobs.offer(models.Room(sid=f"RM_{room}", name=room))

    async def __aenter__(self) -> Self:
        app = web.Application()
        # /rtc/v1 is what clients try first; they fall back where it isn't found.
        app.router.add_get("/rtc", self._rtc)
        app.router.add_get("/rtc/validate", self._validate)
        app.router.add_get("/agent", self._agent)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        for connection in list(self._connections):
            await connection.close()
        if self._runner:
            await self._runner.cleanup()

    async def _rtc(self, request: web.Request) -> web.StreamResponse:
        claims = _claims(request)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        assert claims.video
        guest = self.guest(claims.video.room)
        connection = Connection(socket, guest, claims.identity)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            await connection.close()
        return socket

    async def _validate(self, request: web.Request) -> web.Response:
        _claims(request)
        return web.Response(text="success")

    async def _agent(self, request: web.Request) -> web.StreamResponse:
        grants = _claims(request).video
        if not grants or not grants.agent:
            raise web.HTTPUnauthorized(text="not a worker's token")
        return await self.jobs.serve(request)


def _claims(request: web.Request) -> Claims:
    bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
    try:
        return api.TokenVerifier(KEY, SECRET).verify(
            bearer or request.query.get("access_token", "")
        )
    except Exception as error:  # a token may be wrong in many ways, and all mean the same
        raise web.HTTPUnauthorized(text=f"{error}") from error
