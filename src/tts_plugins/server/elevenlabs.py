"""ElevenLabs' API: the same engines behind the paths that its clients know.

All of it is there once more under ``/elevenlabs``, also what several vendors have in common: there
the answer is ElevenLabs' own, whatever the client sends.
"""

from __future__ import annotations

from starlette.routing import BaseRoute, Mount, Route, Router, WebSocketRoute

from tts_plugins.dialects.base import HttpReply
from tts_plugins.dialects.elevenlabs import ElevenLabsServer
from tts_plugins.errors import VoiceNotFoundError
from tts_plugins.server import lists
from tts_plugins.server.doors import Answer, Door, Guest, json_reply
from tts_plugins.server.elevenlabs_socket import ElevenLabsSocket
from tts_plugins.server.enrolment import enrol, enrolling, read_form
from tts_plugins.server.house import House
from tts_plugins.server.nowhere import nowhere
from tts_plugins.server.speech import SpeechDoor

_PAGE = 100
"""Voices that are listed at a time; a client may want fewer."""

_PLENTY = 2**31 - 1
"""Characters that there are to spend, for clients that look before they speak."""


def routes(house: House) -> list[BaseRoute]:
    server = ElevenLabsServer()

    def door(path: str, answer: Answer, method: str = "GET") -> Route:
        return Route(path, Door(house, answer, server.write_error), methods=[method])

    speech, socket = SpeechDoor(house, server, "elevenlabs"), ElevenLabsSocket(house)
    own = [
        *(Route(path, speech, methods=["POST"]) for path in server.paths),
        WebSocketRoute("/v1/text-to-speech/{voice}/stream-input", socket),
        WebSocketRoute("/v1/text-to-speech/{voice}/multi-stream-input", socket),
        door("/v1/voices/add", _add, "POST"),
        door("/v1/voices/{voice}", _voice),
        door("/v1/voices/{voice}", _forget, "DELETE"),
        door("/v2/voices", _voices),
        door("/v1/user", _user),
        door("/v1/user/subscription", _subscription),
    ]
    shared = [door("/v1/models", lists.models), door("/v1/voices", lists.voices)]
    again = Router([*own, *shared], redirect_slashes=False, default=nowhere)
    return [*own, Mount("/elevenlabs", app=again)]


async def _voices(guest: Guest) -> HttpReply:
    """``GET /v2/voices``: a page of those in whose name or description ``search`` occurs."""
    query = guest.line.query
    wanted = query.get("search", "").casefold()
    found = [
        voice
        for voice in await guest.hosted().voices(guest.caller)
        if wanted in f"{voice.id} {voice.description}".casefold()
    ]
    start = _number(query.get("next_page_token"), default=0)
    end = start + min(_PAGE, max(1, _number(query.get("page_size"), default=_PAGE)))
    more = end < len(found)
    return json_reply(
        {
            "voices": [lists.describe(voice) for voice in found[start:end]],
            "has_more": more,
            "total_count": len(found),
            "next_page_token": str(end) if more else None,
        }
    )


async def _voice(guest: Guest) -> HttpReply:
    """``GET /v1/voices/{id}``."""
    name = guest.path["voice"]
    voices = await guest.hosted().voices(guest.caller, wanted=name)
    for voice in voices:
        if voice.id == name:
            return json_reply(lists.describe(voice))
    raise VoiceNotFoundError(name, [voice.id for voice in voices])


@enrolling
async def _add(guest: Guest) -> HttpReply:
    """``POST /v1/voices/add``: learn a voice from the first of the recordings."""
    form = await read_form(guest.line, guest.house.limits)
    voice = await enrol(
        guest,
        name=form.text("name"),
        clip=form.file("files"),
        description=form.text("description"),
    )
    return json_reply({"voice_id": voice.id, "requires_verification": False})


async def _forget(guest: Guest) -> HttpReply:
    """``DELETE /v1/voices/{id}``."""
    await guest.hosted().forget(guest.path["voice"], guest.caller)
    return json_reply({"status": "ok"})


async def _user(guest: Guest) -> HttpReply:
    """``GET /v1/user``, which some clients ask for to see whether the key is right."""
    return json_reply(
        {
            "user_id": guest.caller,
            "subscription": _account(guest),
            "is_new_user": False,
            "can_use_delayed_payment_methods": False,
            "is_onboarding_completed": True,
            "is_onboarding_checklist_completed": True,
            "created_at": 0,
        }
    )


async def _subscription(guest: Guest) -> HttpReply:
    """``GET /v1/user/subscription``."""
    return json_reply(_account(guest))


def _account(guest: Guest) -> dict[str, object]:
    return {
        "tier": "local",
        "status": "active",
        "character_count": 0,
        "character_limit": _PLENTY,
        "can_extend_character_limit": False,
        "allowed_to_extend_character_limit": False,
        "can_use_instant_voice_cloning": guest.hosted().cloner is not None,
        "can_use_professional_voice_cloning": False,
    }


def _number(given: str | None, *, default: int) -> int:
    return int(given) if given and given.isdecimal() and len(given) < 10 else default
