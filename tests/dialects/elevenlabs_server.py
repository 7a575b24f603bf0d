"""ElevenLabs, as far as a client can tell: 440 Hz, 50 ms a character, no tts_plugins in it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import numpy as np

from tests.servers import Answer, Call, Line
from tts_plugins.audio.g711 import to_alaw, to_ulaw

PACE = 0.05
"""Seconds a character takes: 22 periods of the tone, and whole samples at every rate here."""

_PATH = re.compile(r"/v1/text-to-speech/([^/]*)/stream(/with-timestamps)?")


def beep(text: str, output_format: str) -> bytes:
    """A text, said."""
    kind, rate = output_format.split("_")
    t = np.arange(round(PACE * len(text) * int(rate))) / int(rate)
    samples = (0.25 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)
    encoders: dict[str, Callable[[Any], bytes]] = {
        "pcm": lambda s: (s * 32767).astype("<i2").tobytes(),
        "ulaw": to_ulaw,
        "alaw": to_alaw,
    }
    return encoders[kind](samples)


def timed(text: str, start: int = 0) -> dict[str, list[object]]:
    """An alignment whose first character is the one with that number."""
    ends = range(start, start + len(text) + 1)
    return {
        "characters": list(text),
        "character_start_times_seconds": [PACE * i for i in ends[:-1]],
        "character_end_times_seconds": [PACE * i for i in ends[1:]],
    }


def line(audio: bytes, alignment: object = None, normalized: object = None) -> bytes:
    """A line of a reply with times."""
    return json.dumps(
        {
            "audio_base64": base64.b64encode(audio).decode(),
            "alignment": alignment,
            "normalized_alignment": normalized,
        }
    ).encode()


def lines(text: str, output_format: str = "pcm_24000", per_line: int = 7) -> Iterator[bytes]:
    """A reply with times, so many characters a line: words are cut wherever that is."""
    audio = beep(text, output_format)
    width = len(audio) // len(text)
    for start in range(0, len(text), per_line):
        piece = text[start : start + per_line]
        part = audio[start * width : (start + len(piece)) * width]
        yield line(part, timed(piece, start), timed(piece, start)) + b"\n\n"


def refusal(status: int, code: str, message: str = "msg", **headers: object) -> Answer:
    """An answer that says no."""

    async def answer(back: Line, call: Call) -> None:
        back.json(status, {"detail": {"status": code, "message": message}}, **headers)

    return answer


@dataclass
class ElevenLabs:
    """The service. ``serving(service.answer)`` runs it."""

    key: str = "xi-secret-7f3a"
    per_line: int = 7
    voices: list[dict[str, Any]] = field(
        default_factory=lambda: [
            {"voice_id": "v1", "name": "Ann", "category": "premade", "labels": {"language": "en"}},
            {"voice_id": "hpp4J3VqNfWAUOO0d1Us", "name": "Bella", "category": "premade"},
        ]
    )
    next: list[Answer] = field(default_factory=list)
    """What the coming requests for speech are answered with, in place of speech."""
    stalls: bool = False
    """Whether it never ends a reply."""
    speech: list[Call] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client leaves a reply that never ends."""

    @property
    def texts(self) -> list[str]:
        return [call.json["text"] for call in self.speech]

    async def answer(self, back: Line, call: Call) -> None:
        if call.headers.get("xi-api-key") != self.key:
            # The real one doesn't repeat the key; some proxies do.
            said = f"invalid: {call.headers.get('xi-api-key')}"
            back.json(401, {"detail": {"status": "invalid_api_key", "message": said}})
        elif place := _PATH.fullmatch(call.path):
            self.speech.append(call)
            if self.next:
                await self.next.pop(0)(back, call)
            else:
                await self._speak(back, call, unquote(place[1]), with_times=bool(place[2]))
        elif call.path == "/v1/voices/add":
            self._enrol(back, call)
        elif call.path == "/v1/voices":
            back.json(200, {"voices": self.voices})
        elif call.path == "/v1/models":
            back.json(200, [{"model_id": "eleven_flash_v2_5"}])
        else:
            back.json(404, {"detail": "Not Found"})

    async def _speak(self, back: Line, call: Call, voice: str, *, with_times: bool) -> None:
        if voice not in [known["voice_id"] for known in self.voices]:
            said = f"A voice with the voice_id {voice} was not found."
            back.json(400, {"detail": {"status": "voice_not_found", "message": said}})
            return
        text, output_format = call.json["text"], call.query["output_format"]
        kind = "audio/pcm" if output_format.startswith("pcm") else "audio/basic"
        back.head(content_type="application/json" if with_times else kind)
        if with_times:
            for each in lines(text, output_format, self.per_line):
                await back.chunk(each)
        else:
            await back.chunk(beep(text, output_format))
        if self.stalls:
            await back.left.wait()
            self.left.set()
        else:
            back.end()

    def _enrol(self, back: Line, call: Call) -> None:
        fields = form(call)
        voice = {
            "voice_id": f"clone{len(self.voices)}",
            "name": fields["name"].decode(),
            "category": "cloned",
            "description": fields["description"].decode(),
        }
        self.voices.append(voice)
        back.json(200, {"voice_id": voice["voice_id"], "requires_verification": False})


def form(call: Call) -> dict[str, bytes]:
    """The fields of a multipart form, by name."""
    boundary = call.headers["content-type"].partition("boundary=")[2].strip('"').encode()
    fields = {}
    for part in call.body.split(b"--" + boundary)[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        [name] = re.findall(rb'name="(\w+)"', head)[:1]
        fields[name.decode()] = content.removesuffix(b"\r\n")
    return fields
