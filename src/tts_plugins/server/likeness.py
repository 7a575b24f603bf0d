"""Speak like a recording that came along with a request.

It is learnt as a voice of the caller's, under a name made of what it is, so that the next request
with the same recording costs nothing.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace

from tts_plugins.errors import InvalidRequestError, VoiceNotFoundError
from tts_plugins.server.engines import Hosted
from tts_plugins.server.refusals import RefusedError
from tts_plugins.types import SynthesisRequest

_NAMED = "like-"

_MOST = 64
"""Such voices that a caller may have; the oldest is forgotten for one more."""


async def like(hosted: Hosted, request: SynthesisRequest, caller: str) -> SynthesisRequest:
    """The request with a voice in place of its option ``references``, if it has any.

    Raises:
        RefusedError: 501, if the engine can't clone.
        InvalidRequestError: If there are several recordings, or it is none.
        EngineError: If the engine fails.
    """
    options = dict(request.options)
    match options.pop("references", None):
        case None:
            return request
        case [(bytes() as clip, str() as transcript)]:
            pass
        case _:  # of which a path would have a file of the server's learnt
            raise InvalidRequestError("references are one recording here, with its text")
    said = transcript.encode(errors="replace")
    name = _NAMED + hashlib.sha256(clip + b"\0" + said).hexdigest()[:16]
    mine = [voice.id for voice in await hosted.voices(caller) if voice.id.startswith(_NAMED)]
    if name not in mine:
        for oldest in mine[: max(0, len(mine) - _MOST + 1)]:
            with suppress(RefusedError, VoiceNotFoundError):  # it speaks, or is just forgotten
                await hosted.forget(oldest, caller)
        # Of several first requests at once, one learns it and the others wait.
        await hosted.clone(name, clip, caller=caller, transcript=transcript, anew=False)
    return replace(request, voice=name, options=options)
