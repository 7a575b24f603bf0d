"""fish-speech as its code of 2026-04-07 behaves, and Fish Audio as it is documented.

Both speak a tone of 440 Hz, 0.1 s for each word.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP
from http import HTTPStatus
from typing import Any, Literal

import msgpack
import numpy as np

from tests.servers import Call, Line

PITCH = 440.0
WORD = 0.1
"""Seconds of a word."""

DISPOSITION = "attachment; filename=audio.wav"

Form = dict[str, list[bytes]]


def beep(text: str, rate: int, pitch: float = PITCH) -> bytes:
    """A text as both speak it: signed 16-bit samples."""
    t = np.arange(round(WORD * len(text.split()) * rate)) / rate
    pcm: bytes = np.rint(0.5 * 32768 * np.sin(2 * np.pi * pitch * t)).astype("<i2").tobytes()
    return pcm


def header(rate: int, size: int = 0) -> bytes:
    """The header of a WAV that is still being written; Python's ``wave`` leaves 36 and 0."""
    sizes = (size + 36, b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16, b"data", size)
    return struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", *sizes)


def form(call: Call) -> Form:
    """The fields of a multipart form."""
    head = f"content-type: {call.headers['content-type']}\r\n\r\n".encode()
    parts: Form = {}
    for part in BytesParser(policy=HTTP).parsebytes(head + call.body).iter_parts():
        name = part.get_param("name", header="content-disposition")
        parts.setdefault(str(name), []).append(part.get_payload(decode=True))  # type: ignore[arg-type]
    return parts


class FishSpeech:
    """The self-hosted server.

    Args:
        header: Whether a stream has one, as it is documented and as it hasn't.
        fails: When a stream breaks off.
        longest: Characters of a text; any number if 0.
    """

    rate = 44_100

    def __init__(
        self,
        *,
        header: bool = False,
        fails: Literal["", "early", "mid", "empty"] = "",
        longest: int = 0,
        key: str | None = None,
    ) -> None:
        self.header = header
        self.fails = fails
        self.longest = longest
        self.key = key
        self.references: dict[str, tuple[bytes, str]] = {}
        self.folders: set[str] = set()
        """Where references are kept; one without any came of a request for an unknown one."""
        self.asked: list[dict[str, Any]] = []
        """What was to be spoken, as it came."""
        self.random = 0
        """How often it spoke with a voice that nobody asked for."""
        self.running = 0
        self.most_at_once = 0
        """Requests that were there at the same time, at most."""
        self.queued = asyncio.Event()
        """Set when a request comes while another is spoken."""
        self.resume = asyncio.Event()
        """Taken away to have a stream stop after its first half."""
        self.resume.set()
        self._loop = asyncio.Lock()
        """Its event loop, which speaking blocks."""

    async def __call__(self, line: Line, call: Call) -> None:
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        if self._loop.locked():
            self.queued.set()
        try:
            async with self._loop:
                await self._answer(line, call)
        finally:
            self.running -= 1

    async def _answer(self, line: Line, call: Call) -> None:
        authorization = call.headers.get("authorization", "")
        if self.key and authorization != f"Bearer {self.key}":
            bearer = authorization.startswith("Bearer ")
            self._refuse(line, 401, "Invalid token" if bearer else None)
            return
        match call.method, call.path:
            case "POST", "/v1/tts":
                await self._speak(line, call)
            case "GET" | "POST", "/v1/health":
                line.json(200, {"status": "ok"})
            case "GET", "/v1/references/list":
                names = sorted(self.references)
                said = f"Found {len(names)} reference voices"
                reply = {"success": True, "reference_ids": names, "message": said}
                self._reply(line, call, 200, reply)
            case "POST", "/v1/references/add":
                self._add(line, call)
            case _, "/v1/tts":
                line.body(405, b"")
            case _:
                self._refuse(line, 404, None)

    def _refuse(self, line: Line, status: int, message: str | None) -> None:
        said = {"statusCode": status, "message": message, "error": HTTPStatus(status).phrase}
        line.json(status, said)

    def _reply(self, line: Line, call: Call, status: int, value: Mapping[str, object]) -> None:
        """In msgpack, unless asked otherwise."""
        asked_for = call.headers.get("accept") == "application/json"
        if asked_for or call.query.get("format") == "json":
            line.json(status, value)
        else:
            line.body(status, msgpack.packb(value), content_type="application/msgpack")

    def _add(self, line: Line, call: Call) -> None:
        fields = form(call)
        name, text = fields["id"][0].decode(), fields["text"][0].decode()
        if not re.match(r"^[a-zA-Z0-9\-_ ]+$", name) or len(name) > 255:
            said = "Reference ID contains invalid characters or is too long."
            self._reply(line, call, 400, {"success": False, "message": said, "reference_id": name})
        elif name in self.folders:
            said = f"Reference ID '{name}' already exists"
            self._reply(line, call, 409, {"success": False, "message": said, "reference_id": name})
        else:
            self.folders.add(name)
            self.references[name] = fields["audio"][0], text
            said = f"Reference voice '{name}' added successfully"
            self._reply(line, call, 200, {"success": True, "message": said, "reference_id": name})

    async def _speak(self, line: Line, call: Call) -> None:
        body = self._read(line, call)
        if body is None:
            return
        self.asked.append(body)
        if self.longest and len(body["text"]) > self.longest:
            self._refuse(line, 400, f"Text is too long, max length is {self.longest}")
        elif body.get("streaming"):
            if body.get("format", "wav") != "wav":
                self._refuse(line, 400, "Streaming only supports WAV format")
            else:
                await self._stream(line, body)
        elif body.get("format", "wav") != "wav":
            self._refuse(line, 500, "Failed to generate speech")
        else:
            pcm = self._generate(body)
            whole = header(self.rate, len(pcm)) + pcm
            line.head(200, content_type="audio/wav", content_disposition=DISPOSITION)
            await line.chunk(whole)
            line.end()

    def _read(self, line: Line, call: Call) -> dict[str, Any] | None:
        kind = call.headers.get("content-type", "")
        if kind not in ("application/json", "application/msgpack"):
            self._refuse(line, 415, None)
            return None
        body: dict[str, Any] = (
            msgpack.unpackb(call.body) if "msgpack" in kind else json.loads(call.body)
        )
        if wrong := _wrong(body):
            line.json(422, wrong)
            return None
        return body

    def _generate(self, body: Mapping[str, Any]) -> bytes:
        if name := body.get("reference_id"):
            self.folders.add(name)
            self.random += name not in self.references
        elif not body.get("references"):
            self.random += 1
        # What stands before the first tag is dropped, if there is one.
        tagged = re.split(r"<\|speaker:\d+\|>", body["text"])
        return beep(" ".join(tagged[1:] or tagged), self.rate)

    async def _stream(self, line: Line, body: Mapping[str, Any]) -> None:
        pcm = self._generate(body)
        line.head(200, content_type="audio/wav", content_disposition=DISPOSITION)
        if self.header:
            await line.chunk(header(self.rate))
        if self.fails not in ("early", "empty"):
            half = len(pcm) // 4 * 2
            await line.chunk(pcm[:half])
            # It goes on, whether somebody listens or not.
            await self.resume.wait()
            if self.fails != "mid":
                await line.chunk(pcm[half:])
        if self.fails:
            line.close()
        else:
            line.end()


def _wrong(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What pydantic has against a request, as it is sent."""
    found: dict[str, Any]
    if "text" not in body:
        found = {"type": "missing", "loc": ["text"], "msg": "Field required", "input": body}
        return [found | {"url": "https://errors.pydantic.dev/2.14/v/missing", "in": "body"}]
    for name in ("top_p", "temperature", "repetition_penalty"):
        value = body.get(name, 1.0)
        if type(value) not in (int, float):
            found = {"type": "float_type", "loc": [name], "input": value}
            return [found | {"msg": "Input should be a valid number", "in": "body"}]
    if "references" in body and body["references"] is None:
        found = {"type": "list_type", "loc": ["references"], "input": None}
        return [found | {"msg": "Input should be a valid list", "in": "body"}]
    return []


class FishAudio:
    """The cloud.

    Args:
        credit: Whether the account has any.
    """

    def __init__(self, key: str, *, credit: bool = True) -> None:
        self.key = key
        self.credit = credit
        self.voices: list[dict[str, Any]] = []
        self.asked: list[tuple[dict[str, Any], str]] = []
        """What was to be spoken, as it came, and by which model."""

    async def __call__(self, line: Line, call: Call) -> None:
        if call.headers.get("authorization") != f"Bearer {self.key}":
            line.json(401, {"message": "Invalid Token", "status": 401})
            return
        match call.method, call.path:
            case "POST", "/v1/tts":
                await self._speak(line, call)
            case "GET", "/model":
                line.json(200, {"total": len(self.voices), "items": self.voices})
            case "POST", "/model":
                self._create(line, form(call))
            case _:
                line.json(404, {"message": "Not Found", "status": 404})

    async def _speak(self, line: Line, call: Call) -> None:
        body = msgpack.unpackb(call.body)
        self.asked.append((body, call.headers["model"]))
        if not self.credit:
            line.json(402, {"message": "Insufficient Balance", "status": 402})
            return
        known = [voice["_id"] for voice in self.voices]
        if body.get("reference_id", known[0] if known else None) not in [*known, None]:
            line.json(400, {"message": "Reference not found", "status": 400})
            return
        line.head(200, content_type="audio/pcm")
        pcm = beep(body["text"], body["sample_rate"])
        for start in range(0, len(pcm), 4096):
            await line.chunk(pcm[start : start + 4096])
        line.end()

    def _create(self, line: Line, fields: Form) -> None:
        voice = {
            "_id": f"{len(self.voices):032x}",
            "type": fields["type"][0].decode(),
            "title": fields["title"][0].decode(),
            "visibility": fields["visibility"][0].decode(),
            "languages": ["en"],
            "state": "trained",
        }
        self.voices.insert(0, voice)
        line.json(201, voice)
