"""How the server stands: alive, ready, and in numbers."""

from __future__ import annotations

from tts_plugins.dialects.base import HttpReply
from tts_plugins.server.doors import Guest, json_reply


async def health(guest: Guest) -> HttpReply:
    """Whether the process is alive, and what it does. VieNeu's and Kokoro's clients ask for it."""
    return json_reply({"status": "ok", **_load(guest)})


async def ready(guest: Guest) -> HttpReply:
    """Whether a new stream would be served now: 503 while loading, draining or full."""
    reason = guest.house.refusal()
    if reason is None:
        return json_reply({"status": "ready", **_load(guest)})
    return json_reply({"status": reason, **_load(guest)}, 503)


async def metrics(guest: Guest) -> HttpReply:
    media_type, page = guest.house.page()
    return HttpReply(200, {"content-type": media_type}, page)


def _load(guest: Guest) -> dict[str, object]:
    house = guest.house
    return {
        "active": house.admission.active,
        "waiting": house.admission.waiting,
        "max_streams": house.admission.max_streams,
        "engines": house.engines.names,
    }
