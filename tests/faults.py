"""What a speech server can do wrong, byte for byte. It speaks OpenAI's dialect."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Mapping

from tests.servers import Answer, Call, Line

RATE = 24_000

PCM = b"\x10\x20" * 2400
"""A tenth of a second of speech."""

_WAV_HEAD = (
    b"RIFF\xe4\x12\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"
    b"\xc0\x5d\x00\x00\x80\xbb\x00\x00\x02\x00\x10\x00data\xc0\x12\x00\x00"
)

WAV = _WAV_HEAD + PCM

EVENT = {"type": "speech.audio.delta", "audio": base64.b64encode(PCM).decode()}


async def speaks(line: Line, call: Call) -> None:
    """The healthy one: a tenth of a second."""
    line.body(200, PCM, content_type="audio/pcm")


async def hangs(line: Line, call: Call) -> None:
    """Reads the request, and that was it."""


async def drips(line: Line, call: Call) -> None:
    """A byte at a time, a hundred times slower than speech is spoken, for ever."""
    line.head(content_type="audio/pcm")
    while not line.left.is_set():
        await line.chunk(b"\1")
        await asyncio.sleep(0.002)


async def keeps_alive(line: Line, call: Call) -> None:
    """Comments among server-sent events, but no audio, for ever."""
    line.head(content_type="text/event-stream")
    while not line.left.is_set():
        await line.chunk(b": still here\n\n")
        await asyncio.sleep(0.002)


def status(code: int, body: bytes = b"", /, **headers: object) -> Answer:
    """A refusal, in OpenAI's words if not in others."""
    said = body or json.dumps({"error": {"message": "as you asked for"}}).encode()

    async def answer(line: Line, call: Call) -> None:
        line.body(code, said, **{"content_type": "application/json"} | headers)

    return answer


def sends(*parts: bytes, then: str = "stays") -> Answer:
    """Bytes as they are; then it ``stays``, ``leaves`` or resets (``breaks``) the connection."""

    async def answer(line: Line, call: Call) -> None:
        for part in parts:
            line.write(part)
            await asyncio.sleep(0.001)  # so that the client reads it by itself
        if then == "leaves":
            line.close()
        elif then == "breaks":
            line.reset()

    return answer


def ok(*headers: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", *headers, "", ""]).encode()


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def events(*items: Mapping[str, object] | bytes) -> bytes:
    lines = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in items]
    return b"".join(b"data: " + line + b"\n\n" for line in lines)


def whole(body: bytes, *headers: str) -> bytes:
    """A body that says how long it is."""
    return ok(f"content-length: {len(body)}", *headers) + body


_CHUNKED = ok("content-type: audio/pcm", "transfer-encoding: chunked")
_EVENTS = "content-type: text/event-stream"
_DEEP = b"[" * 100_000

FAULTS: Mapping[str, Answer] = {
    # Refusals
    **{str(code): status(code) for code in (400, 401, 402, 403, 404, 408, 413, 422, 500, 501, 503)},
    "an unknown voice": status(
        404, b'{"error": {"message": "no such voice", "code": "voice_not_found"}}'
    ),
    "429": status(429),
    "429, in a second": status(429, retry_after="1"),
    "429, in a minute": status(429, retry_after="60"),
    "503, in a second": status(503, retry_after="1"),
    "503, in a minute": status(503, retry_after="60"),
    "a refusal cut short": sends(
        b'HTTP/1.1 401 No\r\ncontent-length: 99\r\n\r\n{"error', then="leaves"
    ),
    "a refusal without an end": sends(b"HTTP/1.1 401 No\r\ncontent-length: 99\r\n\r\nNo"),
    "a refusal made to be hard to read": status(500, _DEEP),
    "redirect": status(307, location="http://127.0.0.1:9/elsewhere"),
    "an upgrade": sends(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\r\n"),
    # Silence
    "silence before headers": hangs,
    "silence after headers": sends(_CHUNKED),
    "silence mid-stream": sends(_CHUNKED, chunks(PCM)),
    "slow drip": drips,
    "comments only": keeps_alive,
    "garbled chunks": sends(_CHUNKED, chunks(PCM), b"nonsense\r\n"),
    # Broken off
    "reset before headers": sends(then="breaks"),
    "left before headers": sends(then="leaves"),
    "left amid headers": sends(b"HTTP/1.1 200 OK\r\ncontent-ty", then="leaves"),
    "left after headers": sends(_CHUNKED, then="leaves"),
    "reset mid-stream": sends(_CHUNKED, chunks(PCM), then="breaks"),
    "chunks without an end": sends(_CHUNKED, chunks(PCM), then="leaves"),
    "shorter than it said": sends(ok("content-length: 4804"), PCM, then="leaves"),
    "a WAV cut short": sends(whole(WAV[:-1000], "content-type: audio/wav")),
    "an event that says so": sends(
        ok("transfer-encoding: chunked", _EVENTS),
        chunks(events(EVENT)),
        chunks(events({"error": {"message": "out of memory"}})),
    ),
    # Nonsense
    "empty": sends(whole(b"")),
    "a WAV without samples": sends(whole(_WAV_HEAD[:-4] + b"\0\0\0\0", "content-type: audio/wav")),
    "HTML": sends(whole(b"<!DOCTYPE html><p>Welcome to nginx!</p>", "content-type: text/html")),
    "JSON": sends(whole(b'{"error": "the model is loading"}', "content-type: audio/pcm")),
    "events that aren't JSON": sends(whole(events(b"oops"), _EVENTS)),
    "events that aren't objects": sends(whole(events(b"[1, 2]"), _EVENTS)),
    "events of no type": sends(whole(events({"audio": 17}), _EVENTS)),
    "events not in base64": sends(whole(events({"audio": "~~~~"}), _EVENTS)),
    "events made to be hard to read": sends(whole(events(_DEEP), _EVENTS)),
    "not gzip": sends(whole(PCM, "content-encoding: gzip")),
    "not HTTP": sends(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "a huge header": sends(b"HTTP/1.1 200 OK\r\nx: " + b"x" * 100_000 + b"\r\n\r\n"),
}


SILENT = {
    "silence before headers",
    "silence after headers",
    "silence mid-stream",
    "slow drip",
    "comments only",
    "garbled chunks",
    "a refusal without an end",
}
"""Those that only a limit of time ends."""


def pieces(data: bytes, *, by: int) -> list[bytes]:
    return [data[start : start + by] for start in range(0, len(data), by)]


PLAYED: Mapping[str, Answer] = {
    "as it should be": speaks,
    "by another name": sends(whole(WAV, "content-type: audio/mpeg")),
    "by no name": sends(whole(PCM)),
    "a byte at a time": sends(_CHUNKED + chunks(*pieces(PCM, by=1)) + b"0\r\n\r\n"),
    "compressed": sends(whole(gzip.compress(PCM), "content-encoding: gzip")),
    "by HTTP/1.0": sends(b"HTTP/1.0 200 OK\r\n\r\n", PCM, then="leaves"),
    "until it leaves": sends(ok("connection: close"), PCM, then="leaves"),
    "after a hint": sends(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", whole(PCM)),
    "after a word": sends(b"HTTP/1.1 100 Continue\r\n\r\n", whole(PCM)),
    "with a status of its own": sends(b"HTTP/1.1 206 Partial\r\ncontent-length: 4800\r\n\r\n", PCM),
    "garbage behind it": sends(whole(PCM) + b"HTTP/1.1 500 Oops, and more"),
    "garbage behind chunks": sends(_CHUNKED + chunks(PCM) + b"0\r\n\r\n", b"\0\1garbage"),
    "in an odd number of bytes": sends(whole(PCM + b"\1")),
    "among comments": sends(whole(b": hello\n\n" + events(EVENT) + b": bye\n\n", _EVENTS)),
}
