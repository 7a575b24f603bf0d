"""Our own API: what an engine here says and has, for engines elsewhere that stand for it."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from tts_plugins.dialects.base import HttpCall, HttpReply, Part
from tts_plugins.dialects.native import ENGINES, SPEECH, VOICES, NativeServer, Offer
from tts_plugins.server.doors import Answer, Door, Guest
from tts_plugins.server.enrolment import enrol, enrolling, read_form
from tts_plugins.server.house import House
from tts_plugins.server.speech import SpeechDoor

_SERVER = NativeServer()


def routes(house: House) -> list[BaseRoute]:
    def door(method: str, path: str, answer: Answer) -> Route:
        return Route(path, Door(house, answer, _SERVER.write_error), methods=[method])

    return [
        Route(SPEECH, SpeechDoor(house, _SERVER, "native"), methods=["POST"]),
        door("GET", VOICES, _voices),
        door("POST", VOICES, _learn),
        door("GET", ENGINES, _engines),
    ]


async def _voices(guest: Guest) -> HttpReply:
    return _SERVER.write_voices(await guest.hosted().voices(guest.caller))


@enrolling
async def _learn(guest: Guest) -> HttpReply:
    form = await read_form(guest.line, guest.house.limits)
    texts = [Part(name, text) for name, text in form.texts.items()]
    files = [Part(name, clip, "clip") for name, given in form.files.items() for _, clip in given]
    asked = _SERVER.read_clone(HttpCall("POST", VOICES, form=(*texts, *files)))
    voice = await enrol(
        guest,
        name=asked.name,
        clip=asked.clip.content,
        transcript=asked.clip.transcript,
        description=asked.clip.mark,
        model=asked.model,
    )
    return _SERVER.write_clone(voice)


async def _engines(guest: Guest) -> HttpReply:
    default = guest.hosted()
    return _SERVER.write_engines(
        [
            Offer(each.name, each is default, each.cloner is not None, each.sample_rate)
            for each in guest.house.engines.all()
        ]
    )
