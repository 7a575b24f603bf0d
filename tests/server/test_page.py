"""tts_plugins.server.playground: the page, and what a browser may do with it."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import tts_plugins
from tests.server.live import live

PAGE = Path(tts_plugins.__file__).parent / "server" / "playground.html"


async def test_the_page_is_there_for_everybody_and_runs_nothing_but_its_own() -> None:
    async with live(keys=["key-of-ann"]) as server:
        async with server.client.get(server.url) as reply:
            page = await reply.text()
        assert (reply.status, reply.content_type) == (200, "text/html")
        assert page == PAGE.read_text()
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["x-content-type-options"] == "nosniff"
        policy = dict(
            directive.strip().split(" ", 1)
            for directive in reply.headers["content-security-policy"].split(";")
        )
        script, style = (
            page.split(f"<{element}>")[1].split(f"</{element}>")[0]
            for element in ("script", "style")
        )
        assert policy == {
            "default-src": "'none'",
            "script-src": f"'sha256-{sha256(script)}' blob:",
            "style-src": f"'sha256-{sha256(style)}'",
            "img-src": "data:",
            "connect-src": "'self'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        async with server.client.head(server.url) as reply:
            assert (reply.status, await reply.read()) == (200, b"")
        async with server.client.get(f"{server.url}/api/voices") as reply:
            assert reply.status == 401


def sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
