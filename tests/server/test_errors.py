"""Every dialect's errors: the status, the shape that its clients read, and when to come again."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from tests.server.live import Live, live
from tts_plugins.server.house import Limits

KEY = "sesame-open-1"
JSON = "application/json"


@dataclass(frozen=True)
class Door:
    """Where a dialect speaks, and what its errors look like."""

    path: str
    body: Mapping[str, Any]
    shape: Callable[[int, bytes], str]
    """Looks at the body of an error; what it says in words."""
    nowhere: str
    """A path of the dialect at which there is nothing."""
    media_type: str = JSON
    headers: Mapping[str, str] | None = None


def openai(status: int, body: bytes) -> str:
    (said,) = _fields(body, "error")
    assert list(said) == ["message", "type", "param", "code"]
    kind = "server_error" if status >= 500 else "invalid_request_error"
    assert said["type"] == ("rate_limit_error" if status == 429 else kind)
    assert said["code"] == {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(status)
    assert said["param"] is None
    return str(said["message"])


def kokoro(status: int, body: bytes) -> str:
    (said,) = _fields(body, "detail")
    assert list(said) == ["error", "message", "type"]
    assert (said["error"], said["type"]) == KOKORO[status]
    return str(said["message"])


KOKORO = {
    **dict.fromkeys((401, 404, 405, 413), ("validation_error", "invalid_request_error")),
    429: ("rate_limit_error", "rate_limit_error"),
    503: ("processing_error", "server_error"),
}


def elevenlabs(status: int, body: bytes) -> str:
    (said,) = _fields(body, "detail")
    assert list(said) == ["type", "code", "status", "message"]
    assert (said["type"], said["code"], said["status"]) == ELEVENLABS[status]
    return str(said["message"])


ELEVENLABS = {
    401: ("authentication_error", "invalid_api_key", "invalid_api_key"),
    404: ("not_found", "not_found", "not_found"),
    405: ("validation_error", "method_not_allowed", "method_not_allowed"),
    413: ("validation_error", "request_too_large", "request_too_large"),
    429: ("rate_limit_error", "concurrent_limit_exceeded", "too_many_concurrent_requests"),
    503: ("service_unavailable", "service_unavailable", "service_unavailable"),
}


def fish(status: int, body: bytes) -> str:
    code, message, phrase = _fields(body, "statusCode", "message", "error")
    assert code == status
    assert phrase
    return str(message)


def fish_cloud(status: int, body: bytes) -> str:
    message, code = _fields(body, "message", "status")
    assert code == status
    return str(message)


def native(status: int, body: bytes) -> str:
    (said,) = _fields(body, "error")
    later = ["retry_after"] if status in (429, 503) else []
    assert list(said) == ["kind", "message", "status", *later]
    assert said["status"] == status
    assert said["kind"] == ("OverloadedError" if status == 429 else "RefusedError")
    return str(said["message"])


def piper(status: int, body: bytes) -> str:
    said = body.decode()
    assert "\n" not in said
    return said


def _fields(body: bytes, *names: str) -> list[Any]:
    said = json.loads(body)
    assert list(said) == list(names)
    return [said[name] for name in names]


SPOKEN, INPUT = {"text": "Hi."}, {"input": "Hi.", "voice": "tone"}
ELEVEN = "/v1/text-to-speech/tone"

DOORS = {
    "openai": Door("/v1/audio/speech", INPUT, openai, "/v1/nothing"),
    "kokoro": Door("/dev/captioned_speech", INPUT, kokoro, "/dev/nothing"),
    "elevenlabs": Door(ELEVEN, SPOKEN, elevenlabs, "/v1/text-to-speech/tone/nothing"),
    "elevenlabs, timed": Door(
        f"{ELEVEN}/stream/with-timestamps", SPOKEN, elevenlabs, "/v2/nothing"
    ),
    "elevenlabs, again": Door(f"/elevenlabs{ELEVEN}", SPOKEN, elevenlabs, "/elevenlabs/nothing"),
    "fish": Door("/v1/tts", SPOKEN, fish, "/v1/references/nothing"),
    "fish, cloud": Door(
        "/v1/tts", SPOKEN, fish_cloud, "/model/tone/nothing", headers={"model": "s1"}
    ),
    "native": Door("/api/speech", SPOKEN, native, "/api/nothing"),
    "piper": Door(
        "/synthesize", SPOKEN, piper, "/synthesize/nothing", media_type="text/plain; charset=utf-8"
    ),
}

STATUSES = (401, 404, 405, 413, 429, 503)


@contextmanager
def draining(server: Live) -> Generator[None, None, None]:
    server.house.draining = True
    yield
    server.house.draining = False


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("dialect", DOORS)
async def test_an_error_has_the_shape_of_its_dialect(dialect: str, status: int) -> None:
    door = DOORS[dialect]
    limits = Limits(body=1000, clip=1000)
    async with live(keys=[KEY], max_streams=1, limits=limits) as server:
        key = {"authorization": f"Bearer {KEY if status != 401 else 'wrong-key-1'}"}
        path = door.nowhere if status == 404 else door.path
        body = {**door.body, "more": "m" * 3000} if status == 413 else door.body
        state: Any = nullcontext()
        if status == 429:
            state = server.house.admission.place("-")
        elif status == 503:
            state = draining(server)
        with state:
            async with server.client.request(
                "PATCH" if status == 405 else "POST",
                server.url + path,
                json=body,
                headers={**key, **(door.headers or {})},
            ) as reply:
                said = await reply.read()
    assert reply.status == status
    assert reply.headers["content-type"] == door.media_type
    assert reply.headers["x-request-id"].startswith("req-")
    assert KEY not in said.decode()
    assert WORDS[status] in door.shape(status, said)
    assert reply.headers.get("retry-after") == {429: "3", 503: "2"}.get(status)
    assert ("allow" in reply.headers) == (status == 405)
    assert ("www-authenticate" in reply.headers) == (status == 401)


WORDS = {
    401: "wrong API key",
    404: "nothing at /",
    405: "Method Not Allowed",
    413: "the request has more than ",
    429: "all 1 streams are in use",
    503: "the server is shutting down",
}
"""What each says, whatever its shape."""


@pytest.mark.parametrize("dialect", DOORS)
async def test_without_an_error_the_same_call_speaks(dialect: str) -> None:
    door = DOORS[dialect]
    async with live(keys=[KEY]) as server:
        key = {"authorization": f"Bearer {KEY}"}
        status, _, body = await server.ask(door.path, door.body, **key, **(door.headers or {}))
    assert status == 200
    assert len(body) > 1000
