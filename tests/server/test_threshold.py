"""Pages of other people's, and names that were made to point here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import pytest

from tests.server.live import Live, live
from tts_plugins.server.threshold import Threshold

SPEECH = {"model": "tts-1", "input": "Hi.", "voice": "alloy", "response_format": "pcm"}
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


async def knock(
    headers: Mapping[str, str],
    *,
    type: str = "http",  # noqa: A002
    origins: Sequence[str] = (),
    hosts: Sequence[str] | None = None,
) -> bool:
    """Whether somebody gets in."""
    entered = []

    async def house(scope: Any, receive: Any, send: Any) -> None:
        entered.append(scope["type"])

    async def receive() -> Any:
        raise AssertionError("nobody reads what is refused")

    async def send(message: Any) -> None:
        assert message["type"] != "http.response.start" or message["status"] in (403, 421)

    scope = {
        "type": type,
        "headers": [(n.encode(), v.encode("latin-1")) for n, v in headers.items()],
    }
    await Threshold(house, origins=origins, hosts=hosts)(scope, receive, send)
    return entered == [type]


@pytest.mark.parametrize("type_", ["http", "websocket"])
async def test_a_page_gets_in_if_it_is_this_servers_own(type_: str) -> None:
    async def own(origin: str, host: str) -> bool:
        return await knock({"origin": origin, "host": host}, type=type_)

    assert await own("http://127.0.0.1:8080", "127.0.0.1:8080")
    assert await own("http://LocalHost:8080", "localhost:8080")
    assert await own("http://[::1]:8080", "[::1]:8080")
    assert await own("https://voice.example", "voice.example")  # a proxy has decrypted it
    assert not await own("http://evil.example", "127.0.0.1:8080")
    assert not await own("http://127.0.0.1:3000", "127.0.0.1:8080")
    assert not await own("http://localhost:8080", "127.0.0.1:8080")
    assert not await own("http://127.0.0.1:8080.evil.example", "127.0.0.1:8080")
    assert not await own("null", "127.0.0.1:8080")
    assert not await own("null", "")
    assert not await own("", "127.0.0.1:8080")
    assert not await own("", "")


async def test_who_isnt_a_page_gets_in() -> None:
    assert await knock({"host": "anything"})
    assert await knock({})
    assert await knock({}, type="lifespan", hosts=LOOPBACK)


async def test_pages_that_it_was_told_of_get_in() -> None:
    origins = ("https://app.example", "null")
    for origin in origins:
        assert await knock({"origin": origin, "host": "tts"}, origins=origins)
    for origin in ("https://app.example.evil", "http://app.example", "https://app.example:444"):
        assert not await knock({"origin": origin, "host": "tts"}, origins=origins)
    assert await knock({"origin": "https://whoever.example", "host": "tts"}, origins=["*"])


async def test_only_the_names_that_are_allowed_are_answered() -> None:
    for host in ("localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "[::1]", "localhost:"):
        assert await knock({"host": host}, hosts=LOOPBACK), host
    for host in (
        "rebound.example:8080",
        "localhost.evil.example",
        "127.0.0.2",
        "::1",
        "a@localhost",
        "",
    ):
        assert not await knock({"host": host}, hosts=LOOPBACK), host
    rebound = {"host": "rebound.example:80", "origin": "http://rebound.example:80"}
    assert not await knock(rebound, hosts=LOOPBACK)


async def test_the_reply_says_what_to_do() -> None:
    async with live(allowed_hosts=LOOPBACK) as server:
        status, headers, body = await server.ask(
            "/v1/audio/speech", SPEECH, origin="https://a.example"
        )
        assert (status, headers["content-type"]) == (403, "application/json")
        assert b"pages of https://a.example may not call this server, unless --cors" in body
        status, _, body = await server.ask("/v1/audio/speech", SPEECH, host="a.example:80")
        assert status == 421
        assert b"only localhost, 127.0.0.1, [::1] are answered" in body
        assert (await server.ask("/v1/audio/speech", SPEECH, origin=server.url))[0] == 200
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await server.client.ws_connect(
                f"{server.url}/v1/text-to-speech/tone/stream-input", origin="https://a.example"
            )
        assert refused.value.status == 403


async def test_browsers_are_told_of_cors_only_where_it_was_asked_for() -> None:
    async def told(server: Live, origin: str) -> tuple[int, dict[str, str]]:
        asks = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, content-type",
        }
        async with server.client.options(f"{server.url}/v1/audio/speech", headers=asks) as reply:
            return reply.status, {n.lower(): v for n, v in reply.headers.items()}

    async with live() as server:
        status, headers = await told(server, server.url)
        assert status == 405
        assert not [name for name in headers if name.startswith("access-control")]
    async with live(cors_origins=["https://app.example"]) as server:
        status, headers = await told(server, "https://app.example")
        assert status == 200
        assert headers["access-control-allow-origin"] == "https://app.example"
        assert "authorization" in headers["access-control-allow-headers"].lower()
        assert (await told(server, "https://evil.example"))[0] == 403
        status, answered, _ = await server.ask(
            "/v1/audio/speech", SPEECH, origin="https://app.example"
        )
        assert status == 200
        assert answered["access-control-allow-origin"] == "https://app.example"
        exposed = answered["access-control-expose-headers"]
        assert exposed == "x-request-id, x-sample-rate, x-tts-ignored, retry-after"
