"""Voices of one's own, as VieNeu's clients and OpenAI's enrol and delete them."""

from __future__ import annotations

import time

from starlette.routing import BaseRoute, Route

from tts_plugins.dialects.base import HttpReply
from tts_plugins.dialects.openai import OpenAIServer
from tts_plugins.dialects.vieneu import VieNeuServer
from tts_plugins.errors import InvalidRequestError, VoiceNotFoundError
from tts_plugins.server import lists
from tts_plugins.server.doors import Answer, Door, Guest, WriteError, json_reply
from tts_plugins.server.enrolment import enrol, enrolling, read_form
from tts_plugins.server.house import House
from tts_plugins.server.refusals import RefusedError


def routes(house: House) -> list[BaseRoute]:
    openai, vieneu = OpenAIServer().write_error, VieNeuServer().write_error

    def door(method: str, path: str, answer: Answer, shape: WriteError = openai) -> Route:
        return Route(path, Door(house, answer, shape), methods=[method])

    return [
        door("GET", "/v1/voices", lists.voices),
        door("POST", "/v1/voices", _learn, vieneu),
        door("GET", "/v1/audio/voices", lists.voices),
        door("POST", "/v1/audio/voices", _create),
        door("DELETE", "/v1/audio/voices/{voice}", _delete),
    ]


@enrolling
async def _learn(guest: Guest) -> HttpReply:
    """``POST /v1/voices``, as VieNeu has it."""
    form = await read_form(guest.line, guest.house.limits)
    name, about = form.text("name"), form.text("description")
    clip, model = form.file("file"), form.text("model")
    voice = await enrol(guest, name=name, clip=clip, description=about, model=model)
    return json_reply({"id": voice.id, "name": voice.id, "description": voice.description})


@enrolling
async def _create(guest: Guest) -> HttpReply:
    """``POST /v1/audio/voices``, as OpenAI has it. The consent is between the two people."""
    form = await read_form(guest.line, guest.house.limits)
    if form.text("type") not in ("", "audio_sample"):
        raise InvalidRequestError("voices are made of recordings here: send type=audio_sample")
    name, clip, model = form.text("name"), form.file("audio_sample"), form.text("model")
    voice = await enrol(guest, name=name, clip=clip, model=model)
    return json_reply(
        {
            "id": voice.id,
            "object": "audio.voice",
            "name": voice.id,
            "created_at": int(time.time()),
            "type": "audio_sample",
        }
    )


async def _delete(guest: Guest) -> HttpReply:
    """``DELETE /v1/audio/voices/{id}``."""
    name = guest.path["voice"]
    try:
        await guest.hosted().forget(name, guest.caller)
    except VoiceNotFoundError as error:
        # Elsewhere a voice that isn't there is a wrong request; here the path is wrong.
        raise RefusedError(404, str(error)) from None
    return json_reply({"id": name, "object": "audio.voice.deleted", "deleted": True})
