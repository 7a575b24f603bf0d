"""What is answered where nothing is: in the shape of whoever would look for it there."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from tts_plugins.dialects.base import HttpReply, phrase
from tts_plugins.dialects.elevenlabs import ElevenLabsServer
from tts_plugins.dialects.fish import FishCloudServer, FishServer
from tts_plugins.dialects.kokoro import KokoroServer
from tts_plugins.dialects.native import NativeServer
from tts_plugins.dialects.openai import OpenAIServer
from tts_plugins.dialects.piper import PiperServer
from tts_plugins.server.doors import WriteError
from tts_plugins.server.house import request_id
from tts_plugins.server.refusals import RefusedError
from tts_plugins.server.sockets import refuse
from tts_plugins.server.speech import SpeechServer


async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI app for every path that leads to none."""
    path = scope["path"]
    if scope["type"] == "websocket":
        websocket = WebSocket(scope, receive, send)
        await refuse(websocket, _reply(scope, 404, f"no WebSocket at {path}"))
    else:
        reply = _reply(scope, 404, f"{scope['method']} {path}: nothing at {path}")
        await _response(reply, {})(scope, receive, send)


async def not_so(request: Request, error: Exception) -> Response:
    """A method that there isn't, or what went wrong here and was foreseen by nobody."""
    status, headers = 500, {"connection": "close"}  # as uvicorn does it after an exception
    if isinstance(error, HTTPException):
        status, headers = error.status_code, dict(error.headers or {})
    # Not by the request's URL, which its Host is part of: that may be one which can't be read.
    path = request.scope["path"]
    reply = _reply(request.scope, status, f"{request.method} {path}: {phrase(status)}")
    return _response(reply, headers)


def _reply(scope: Scope, status: int, reason: str) -> HttpReply:
    return _shape(scope)(RefusedError(status, reason))


def _response(reply: HttpReply, headers: Mapping[str, str]) -> Response:
    told = {**reply.headers, **headers, "x-request-id": request_id()}
    return Response(reply.body, reply.status, told)


def _shape(scope: Scope) -> WriteError:
    path: str = scope["path"]
    if path.startswith("/v1/tts") and "model" in Headers(scope=scope):
        return FishCloudServer().write_error
    for start, server in _SHAPES.items():
        if path.startswith(start):
            return server.write_error
    return OpenAIServer().write_error


_SHAPES: Mapping[str, SpeechServer] = {
    "/v1/text-to-": ElevenLabsServer(),
    "/v1/user": ElevenLabsServer(),
    "/v2/": ElevenLabsServer(),
    "/elevenlabs/": ElevenLabsServer(),
    "/v1/tts": FishServer(),
    "/v1/references": FishServer(),
    "/model": FishCloudServer(),
    "/dev/": KokoroServer(),
    "/api/": NativeServer(),
    "/synthesize": PiperServer(),
}
