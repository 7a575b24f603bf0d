"""Lists of models and voices, as OpenAI's clients and those of its many relatives ask for them."""

from __future__ import annotations

from tts_plugins.dialects.base import HttpReply
from tts_plugins.server.doors import Guest, json_reply
from tts_plugins.server.engines import Hosted
from tts_plugins.server.refusals import RefusedError
from tts_plugins.types import Voice


async def models(guest: Guest) -> HttpReply:
    """``GET /v1/models``. ElevenLabs' clients ask for a bare array at the same place."""
    hosted = guest.house.engines.all()
    if is_elevenlabs(guest):
        return json_reply([_elevenlabs_model(each) for each in hosted])
    return json_reply({"object": "list", "data": [_model(each) for each in hosted]})


async def model(guest: Guest) -> HttpReply:
    """``GET /v1/models/{id}``."""
    name = guest.path["model"]
    for hosted in guest.house.engines.all():
        if hosted.name == name:
            return json_reply(_model(hosted))
    raise RefusedError(404, f"no model {name!r}; models: {', '.join(guest.house.engines.names)}")


async def voices(guest: Guest) -> HttpReply:
    """``GET /v1/voices`` and ``/v1/audio/voices``: one body for VieNeu's clients, which look for
    data, and for Kokoro's and ElevenLabs', which look for voices.
    """
    listed = await guest.hosted().voices(guest.caller)
    if guest.line.query.get("legacy") == "true":
        return json_reply({"voices": [voice.id for voice in listed]})
    described = [describe(each) for each in listed]
    return json_reply(
        {
            "object": "list",
            "data": described,
            "voices": described,
            "has_more": False,
            "total_count": len(listed),
        }
    )


def is_elevenlabs(guest: Guest) -> bool:
    """Whether the client is one of ElevenLabs': theirs name their key so, or the SDK."""
    headers = guest.line.headers
    return (
        "xi-api-key" in headers
        or "elevenlabs" in headers.get("x-fern-sdk-name", "")
        or guest.line.scope.get("root_path", "").endswith("/elevenlabs")
    )


def describe(voice: Voice) -> dict[str, object]:
    """A voice under all the names that clients know the same thing by."""
    about = voice.description or voice.id
    return {
        "id": voice.id,
        "voice_id": voice.id,
        "name": voice.id,
        "description": about,
        "language": voice.language,
        "category": "premade",
        "gender": "",
        "featured": None,
        "aliases": [],
        "labels": {"language": voice.language.partition("-")[0]},
    }


def _model(hosted: Hosted) -> dict[str, object]:
    return {
        "id": hosted.name,
        "object": "model",
        "created": 0,
        "owned_by": "tts_plugins",
        "sample_rate": hosted.sample_rate,
    }


def _elevenlabs_model(hosted: Hosted) -> dict[str, object]:
    return {
        "model_id": hosted.name,
        "name": hosted.name,
        "can_do_text_to_speech": True,
        "can_be_finetuned": False,
        "can_do_voice_conversion": False,
        "can_use_style": False,
        "can_use_speaker_boost": False,
        "serves_pro_voices": False,
        "languages": [],
    }
