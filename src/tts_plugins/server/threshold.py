"""Who may knock at all: pages of this server's own, and those that it was told of.

A browser lets any page on the web send to any address that it can reach, this machine's loopback
among them, where a key is seldom set. What gives such a page away is its Origin, which no script
can leave out or change; or, if its own name was made to point here once it had loaded, the Host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tts_plugins.dialects.openai import OpenAIServer
from tts_plugins.server.refusals import RefusedError

_PORT = re.compile(r":\d*$")


def guards(origins: Sequence[str], hosts: Sequence[str] | None) -> list[Middleware]:
    """What stands in front of an app: see Threshold for what is let in."""
    threshold = Middleware(Threshold, origins=origins, hosts=hosts)
    if not origins:
        return [threshold]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "x-sample-rate", "x-tts-ignored", "retry-after"],
    )
    return [threshold, cors]


class Threshold:
    """An ASGI app in front of another.

    Args:
        app: Where those go who may.
        origins: Of pages elsewhere that may call, such as ``https://example.com``; ``*`` for all.
        hosts: The names by which the server may be called, without ports; ``None`` for any.
    """

    def __init__(
        self, app: ASGIApp, *, origins: Sequence[str] = (), hosts: Sequence[str] | None = None
    ) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or not (refused := self._refusal(Headers(scope=scope))):
            await self._app(scope, receive, send)
        elif scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
            reply = OpenAIServer().write_error(refused)
            await Response(reply.body, reply.status, reply.headers)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, headers: Headers) -> RefusedError | None:
        host = headers.get("host", "").lower()
        if self._hosts is not None and _PORT.sub("", host) not in self._hosts:
            names = ", ".join(self._hosts)
            return RefusedError(
                421, f"without a key only {names} are answered, not {host!r}: set an API key"
            )
        origin = headers.get("origin")
        if origin is None or {"*", origin} & self._origins:
            return None
        # Not by the scheme too, which differs behind a proxy that decrypts.
        if host and origin.lower().partition("://")[2] == host:
            return None
        return RefusedError(
            403, f"pages of {origin} may not call this server, unless --cors (cors_origins) says so"
        )
