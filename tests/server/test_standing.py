"""Alive, ready, and in numbers."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.server.live import live, tones
from tts_plugins.server import create_app


async def ask(app: Any, path: str) -> tuple[int, dict[str, Any]]:
    """Ask an app that nobody has started."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://tts") as client:
        reply = await client.get(path)
    return reply.status_code, reply.json()


LOAD = {"active": 0, "waiting": 0, "max_streams": 3, "engines": ["tone"]}


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
async def test_it_is_alive_in_whatever_state(path: str) -> None:
    app = create_app("tone", max_streams=3)
    assert await ask(app, path) == (200, {"status": "ok", **LOAD})
    app.state.house.draining = True
    assert await ask(app, path) == (200, {"status": "ok", **LOAD})


async def test_it_is_ready_when_a_stream_would_be_served_now() -> None:
    app = create_app("tone", max_streams=3)
    house = app.state.house
    assert await ask(app, "/ready") == (503, {"status": "loading", **LOAD})
    await house.engines.open()
    assert await ask(app, "/ready") == (200, {"status": "ready", **LOAD})
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(house.admission.place("-"))
        full = {**LOAD, "active": 3, "waiting": 3}
        assert await ask(app, "/ready") == (503, {"status": "full", **full})
    assert await ask(app, "/ready") == (200, {"status": "ready", **LOAD})
    house.draining = True
    assert await ask(app, "/ready") == (503, {"status": "draining", **LOAD})
    await house.engines.aclose()


@pytest.mark.parametrize("wrong", ["unix:///nowhere.sock", "no-such-engine"])
async def test_an_engine_that_cannot_be_opened_is_told_of(wrong: str) -> None:
    app = create_app({"far": wrong})
    async with app.router.lifespan_context(app):
        async with asyncio.timeout(10):
            while not app.state.house.engines.failure:  # noqa: ASYNC110  it has no event
                await asyncio.sleep(0.01)
        status, body = await ask(app, "/ready")
    assert status == 503
    assert body["status"].startswith("far: ")


async def test_numbers_are_for_those_with_a_key_and_health_is_for_all() -> None:
    async with live(tones(), keys=["sesame-open-1"]) as server:
        for path, expected in (("/health", 200), ("/ready", 200), ("/metrics", 401)):
            async with server.client.get(server.url + path) as reply:
                assert reply.status == expected
        key = {"authorization": "Bearer sesame-open-1"}
        async with server.client.get(f"{server.url}/metrics", headers=key) as reply:
            assert reply.status == 200
            assert b"tts_slots 256.0" in await reply.read()
