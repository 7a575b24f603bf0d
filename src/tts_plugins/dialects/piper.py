"""The HTTP API of Piper's own server, for the clients that know no other.

It has changed: first the text was the whole body, or ``?text=`` of a GET; then it stood in JSON, on
``/`` and lately on ``/synthesize`` (source of 2026-08). All of these are read. Clients cut off 44
bytes for the header of the WAV and look in them for its rate, whatever else may be there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from tts_plugins.dialects.base import Asked, HttpCall, HttpReply
from tts_plugins.dialects.fields import Fields, error_reply
from tts_plugins.dialects.framing import WavBody
from tts_plugins.errors import InvalidRequestError, TTSError
from tts_plugins.types import SynthesisRequest


class PiperServer:
    """The server's end; there is no caller's.

    Args:
        longest: Characters of a text.
    """

    paths: ClassVar[tuple[str, ...]] = ("/", "/synthesize")

    def __init__(self, *, longest: int = 20_000) -> None:
        self._longest = longest

    def read_call(self, call: HttpCall) -> Asked:
        """What is asked for.

        Raises:
            InvalidRequestError: If it isn't a speech request.
        """
        if call.method == "GET":
            request = SynthesisRequest(call.query.get("text", ""))
        elif "json" in call.headers.get("content-type", "") or call.body.lstrip().startswith(b"{"):
            request = _request(Fields(call))
        else:
            request = SynthesisRequest(call.body.decode(errors="replace"))
        text = request.text.strip()
        if not text:
            raise InvalidRequestError("text, what to speak, is missing")
        if len(text) > self._longest:
            raise InvalidRequestError(
                f"text has {len(text)} characters; at most {self._longest} are taken"
            )
        # As Piper itself does: clients send the names of its models.
        return Asked(replace(request, text=text), WavBody(), any_voice=True)

    def write_error(self, error: TTSError) -> HttpReply:
        """The reply for something that went wrong before there was any audio.

        One line of text, since clients show all of it.
        """
        reply = error_reply(error, None)
        headers = {**reply.headers, "content-type": "text/plain; charset=utf-8"}
        return replace(reply, headers=headers, body=" ".join(str(error).split()).encode())


def _request(fields: Fields) -> SynthesisRequest:
    options: dict[str, object] = {
        name: fields.number(name, 0.0, 10.0, default=0.0)
        for name in ("noise_scale", "noise_w_scale")
        if fields.value(name) is not None
    }
    if fields.value("speaker_id") is not None:
        options["speaker_id"] = int(fields.number("speaker_id", 0, 100_000, default=0))
    elif speaker := fields.string("speaker"):
        options["speaker"] = speaker
    return SynthesisRequest(
        fields.string("text") or "",
        voice=fields.string("voice") or None,
        speed=1.0 / fields.number("length_scale", 0.05, 20.0, default=1.0),
        options=options,
    )
