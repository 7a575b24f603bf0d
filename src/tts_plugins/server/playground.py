"""A page to try the voices on, all of it in one file.

The browser is told to run what stands in that file and nothing else: whatever a text or a voice's
name may bring into the page, it can neither run nor send anything elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from starlette.routing import BaseRoute, Route

from tts_plugins.dialects.base import HttpReply
from tts_plugins.dialects.native import NativeServer
from tts_plugins.server.doors import Door, Guest
from tts_plugins.server.house import House

_PAGE = Path(__file__).with_name("playground.html")


def routes(house: House) -> list[BaseRoute]:
    """``GET /``. It is public: a key is asked for by what the page asks the server for."""
    page = _PAGE.read_bytes()
    headers = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": _policy(page.decode()),
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
    }

    async def show(guest: Guest) -> HttpReply:
        return HttpReply(200, headers, page)

    return [Route("/", Door(house, show, NativeServer().write_error, public=True))]


def _policy(page: str) -> str:
    # The page makes its AudioWorklet of a blob, which has no hash.
    return (
        f"default-src 'none'; script-src {_hashes('script', page)} blob:;"
        f" style-src {_hashes('style', page)}; img-src data:; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hashes(element: str, page: str) -> str:
    inside = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(each.encode()).digest()) for each in inside)
    return " ".join(f"'sha256-{digest.decode()}'" for digest in digests)
