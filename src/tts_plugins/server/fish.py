"""Fish's doors: those of a fish-speech server of one's own, and those of Fish Audio's service.

Both have some at the same places; clients of the service are those that send a ``model`` header.
"""

from __future__ import annotations

from collections.abc import Awaitable

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from tts_plugins.dialects.base import HttpReply
from tts_plugins.dialects.fish import (
    MSGPACK,
    SPEECH,
    FishCloudServer,
    FishServer,
    pack,
    read_fields,
)
from tts_plugins.dialects.fish_socket import LIVE
from tts_plugins.errors import InvalidRequestError, TTSError, VoiceNotFoundError
from tts_plugins.server import standing
from tts_plugins.server.doors import Answer, Door, Guest, json_reply
from tts_plugins.server.enrolment import enrol, enrolling, read_form
from tts_plugins.server.fish_socket import FishSocket
from tts_plugins.server.house import House
from tts_plugins.server.refusals import RefusedError
from tts_plugins.server.speech import SpeechDoor
from tts_plugins.types import Voice

_OWN, _CLOUD = FishServer(), FishCloudServer()


def routes(house: House) -> list[BaseRoute]:
    def own(path: str, answer: Answer, method: str, *, public: bool = False) -> Route:
        return Route(path, Door(house, answer, _OWN.write_error, public=public), methods=[method])

    def cloud(path: str, answer: Answer, method: str) -> Route:
        return Route(path, Door(house, answer, _CLOUD.write_error), methods=[method])

    return [
        Route(SPEECH, _Speech(house), methods=["POST"]),
        WebSocketRoute(LIVE, FishSocket(house)),
        own("/v1/health", standing.health, "GET", public=True),
        own("/v1/health", standing.health, "POST", public=True),
        own("/v1/references/add", _add, "POST"),
        own("/v1/references/list", _list, "GET"),
        own("/v1/references/delete", _delete, "DELETE"),
        own("/v1/references/update", _update, "POST"),
        cloud("/model", _models, "GET"),
        cloud("/model", _create, "POST"),
        cloud("/model/{id}", _model, "GET"),
        cloud("/model/{id}", _remove, "DELETE"),
    ]


class _Speech:
    """An ASGI app that answers each client as it expects."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, limits = Headers(scope=scope), self._house.limits
        server = _CLOUD if "model" in headers else _OWN
        # Recordings of voices may come along; not in JSON, which is slow to read.
        packed = "msgpack" in headers.get("content-type", "")
        largest = limits.body + limits.clip * packed
        await SpeechDoor(self._house, server, "fish", largest=largest)(scope, receive, send)


# What fish-speech has


@enrolling
async def _add(guest: Guest) -> HttpReply:
    form = await read_form(guest.line, guest.house.limits)
    name = form.text("id")
    learning = _learn(guest, name, form.file("audio"), form.text("text"))
    return await _done(guest, learning, f"'{name}' added", reference_id=name)


async def _list(guest: Guest) -> HttpReply:
    names = [voice.id for voice in await guest.hosted().voices(guest.caller)]
    said = f"Found {len(names)} reference voices"
    return _reply(guest, {"success": True, "reference_ids": names, "message": said})


async def _delete(guest: Guest) -> HttpReply:
    (name,) = await _names(guest, "reference_id")
    forgetting = guest.hosted().forget(name, guest.caller)
    return await _done(guest, forgetting, f"'{name}' deleted", reference_id=name)


async def _update(guest: Guest) -> HttpReply:
    old, new = await _names(guest, "old_reference_id", "new_reference_id")
    renaming = guest.hosted().rename(old, new, guest.caller)
    said = f"renamed from '{old}' to '{new}'"
    return await _done(guest, renaming, said, old_reference_id=old, new_reference_id=new)


async def _learn(guest: Guest, name: str, clip: bytes, transcript: str) -> None:
    voices = await guest.hosted().voices(guest.caller, wanted=name)
    if any(voice.id == name for voice in voices):
        raise RefusedError(409, f"Reference ID '{name}' already exists")
    await enrol(guest, name=name, clip=clip, transcript=transcript)


async def _names(guest: Guest, *fields: str) -> list[str]:
    """What stands in some fields of the body."""
    limits = guest.house.limits
    call = await guest.line.call(largest=limits.body, seconds=limits.body_seconds)
    body = read_fields(call)
    names = [body.get(field) for field in fields]
    if not all(isinstance(name, str) for name in names):
        raise InvalidRequestError(f"{' and '.join(fields)} have to be strings")
    return [str(name) for name in names]


async def _done(guest: Guest, doing: Awaitable[None], said: str, **about: str) -> HttpReply:
    try:
        await doing
    except TTSError as error:
        body = {"success": False, "message": str(error), **about}
        return _reply(guest, body, error.status_code)
    return _reply(
        guest, {"success": True, "message": f"Reference voice {said} successfully", **about}
    )


def _reply(guest: Guest, body: object, status: int = 200) -> HttpReply:
    """In msgpack, unless the client wants JSON."""
    line = guest.line
    if line.query.get("format") == "json" or "json" in line.headers.get("accept", ""):
        return json_reply(body, status)
    return HttpReply(status, {"content-type": MSGPACK}, pack(body))


# What Fish Audio has


async def _models(guest: Guest) -> HttpReply:
    """The voices, one page of them."""
    query = guest.line.query
    title = query.get("title", "").casefold()
    voices = await guest.hosted().voices(guest.caller)
    found = [voice for voice in voices if title in voice.id.casefold()]
    size, number = _number(query.get("page_size"), 10), _number(query.get("page_number"), 1)
    page = found[size * (number - 1) :][:size]
    return json_reply({"total": len(found), "items": [_entity(voice) for voice in page]})


async def _model(guest: Guest) -> HttpReply:
    name = guest.path["id"]
    for voice in await guest.hosted().voices(guest.caller, wanted=name):
        if voice.id == name:
            return json_reply(_entity(voice))
    raise _no_model(name)


@enrolling
async def _create(guest: Guest) -> HttpReply:
    form = await read_form(guest.line, guest.house.limits)
    if len(form.files.get("voices", ())) > 1:
        raise InvalidRequestError("a voice is learnt from one recording here: send one as voices")
    voice = await enrol(
        guest,
        name=form.text("title"),
        clip=form.file("voices"),
        transcript=form.text("texts"),
        description=form.text("description"),
    )
    return json_reply(_entity(voice), 201)


async def _remove(guest: Guest) -> HttpReply:
    name = guest.path["id"]
    try:
        await guest.hosted().forget(name, guest.caller)
    except VoiceNotFoundError:
        raise _no_model(name) from None
    return json_reply({"message": f"deleted {name}"})


def _no_model(name: str) -> RefusedError:
    return RefusedError(404, f"no model {name!r}")


def _number(given: str | None, usual: int) -> int:
    """A number of a query, 1 to 1000."""
    number = int(given) if given and given.isdecimal() and len(given) < 9 else usual
    return min(max(number, 1), 1000)


def _entity(voice: Voice) -> dict[str, object]:
    """A voice with all the fields that the SDKs demand."""
    return {
        "_id": voice.id,
        "type": "tts",
        "title": voice.id,
        "description": voice.description,
        "cover_image": "",
        "train_mode": "fast",
        "state": "trained",
        "tags": [],
        "samples": [],
        "created_at": _LONG_AGO,
        "updated_at": _LONG_AGO,
        "languages": [voice.language],
        "visibility": "private",
        "lock_visibility": False,
        "like_count": 0,
        "mark_count": 0,
        "shared_count": 0,
        "task_count": 0,
        "author": {"_id": "-", "nickname": "-", "avatar": ""},
    }


_LONG_AGO = "1970-01-01T00:00:00Z"
