"""A speech server in a process of its own, that speaks a tone at the pace of a real engine.

What only a server can see comes back on its standard output: a line for each request that is over.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import av
import numpy as np
from aiohttp import web

from tts_plugins.audio.pcm import to_s16
from tts_plugins.dialects.base import ReplyWriter
from tts_plugins.dialects.framing import PcmBody, WavBody, encode
from tts_plugins.types import AudioChunk

RATE = 24_000

CHARACTER = 0.065
"""Seconds of audio that a character of text makes."""

FIRST = 0.16
"""Seconds of audio in the first chunk."""

NEXT = 0.08
"""Seconds of audio in each further chunk."""


@dataclass(frozen=True)
class Seen:
    """A request as the server saw it. Times are time.monotonic's, the same in all processes."""

    connection: int
    """Number of the connection: the same for two requests on one socket."""
    first_audio: float
    """When the first of its audio was written; 0 if none was."""
    left: float | None
    """When the client was gone, if that was before the end."""


class SpeechServer:
    """A server that runs, for whoever started it."""

    def __init__(self, port: int, lines: asyncio.StreamReader) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._lines = lines

    async def seen(self) -> Seen:
        """The next request that is over, in the order in which they end."""
        return Seen(**json.loads(await self._lines.readline()))


@asynccontextmanager
async def serving(*, latency: float = 0.0, factor: float = 0.5) -> AsyncIterator[SpeechServer]:
    """Run a server.

    Args:
        latency: Seconds from a request to its first audio.
        factor: Seconds that a second of audio takes after that.
    """
    async with child("benchmarks.speech_server", latency, factor) as (lines, _):
        yield SpeechServer(int(await lines.readline()), lines)


@asynccontextmanager
async def child(
    module: str, *arguments: object
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Run a module in a process of its own: what it prints, and where it is asked for more."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *map(str, arguments)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    try:
        yield process.stdout, process.stdin
    finally:
        process.stdin.close()
        await process.communicate()


async def until_unwanted() -> None:
    """Wait for the end of standard input: who started this process is done with it, or gone."""
    await asyncio.to_thread(sys.stdin.buffer.read)


class _Speech:
    """The server's own end."""

    def __init__(self, latency: float, factor: float) -> None:
        self._latency = latency
        self._factor = factor
        self._connections: dict[object, int] = {}

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/v1/models", self.models),
                web.post("/v1/audio/speech", self.openai),
                web.post("/v1/text-to-speech/{voice}/stream/with-timestamps", self.elevenlabs),
                web.get("/v1/text-to-speech/{voice}/multi-stream-input", self.contexts),
            ]
        )
        return app

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response([])

    async def openai(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        body = _BODIES[asked["response_format"]]()
        if asked.get("stream_format") == "sse":
            body = _Events(body)
        return await self._answer(request, asked["input"], body)

    async def elevenlabs(self, request: web.Request) -> web.StreamResponse:
        text = (await request.json())["text"]
        return await self._answer(request, text, _Lines(text))

    async def contexts(self, request: web.Request) -> web.WebSocketResponse:
        """Many turns on one WebSocket. Each context speaks its sentences one after the other."""
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        contexts: dict[str, _Context] = {}
        async for message in socket:
            asked = message.json()
            name = asked["context_id"]
            if name not in contexts:
                contexts[name] = _Context(self, socket, name)
            if asked.get("close_context"):
                contexts[name].close()
            elif text := asked.get("text", "").strip():
                contexts[name].texts.put_nowait(text)
        for context in contexts.values():
            context.task.cancel()
        return socket

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """The chunks of a text, each when an engine would have made it."""
        began = time.monotonic()
        seconds = len(text) * CHARACTER
        start = 0.0
        while start < seconds:
            end = min(seconds, start + (NEXT if start else FIRST))
            due = self._latency + self._factor * max(0.0, end - FIRST)
            await asyncio.sleep(max(0.0, began + due - time.monotonic()))
            at = np.arange(round(start * RATE), round(end * RATE)) / RATE
            yield AudioChunk((0.5 * np.cos(2 * np.pi * 440 * at)).astype(np.float32), RATE)
            start = end

    async def _answer(
        self, request: web.Request, text: str, body: ReplyWriter
    ) -> web.StreamResponse:
        connection = self._connections.setdefault(request.protocol, len(self._connections))
        response = web.StreamResponse(
            headers={"content-type": body.media_type, "x-request-id": "benchmark"}
        )
        first_audio, left = 0.0, None
        try:
            async with aclosing(self.speak(text)) as chunks:
                async for chunk in chunks:
                    data = body.push(chunk)
                    if not response.prepared:
                        await response.prepare(request)
                        first_audio = time.monotonic()
                    await response.write(data)
            await response.write(body.flush())
            await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            left = time.monotonic()
            raise
        finally:
            print(json.dumps(asdict(Seen(connection, first_audio, left))), flush=True)
        return response


class _Context:
    """A turn on a WebSocket."""

    def __init__(self, speech: _Speech, socket: web.WebSocketResponse, name: str) -> None:
        self.texts: asyncio.Queue[str | None] = asyncio.Queue()
        self.task = asyncio.create_task(self._run(speech, socket, name))
        self._closing = False

    def close(self) -> None:
        """Finish what was asked for; if that was said before, stop."""
        if self._closing:
            self.task.cancel()
        self._closing = True
        self.texts.put_nowait(None)

    async def _run(self, speech: _Speech, socket: web.WebSocketResponse, name: str) -> None:
        with suppress(ConnectionError):
            while (text := await self.texts.get()) is not None:
                async with aclosing(speech.speak(text)) as chunks:
                    async for chunk in chunks:
                        audio = encode(to_s16(chunk.samples))
                        await socket.send_json({"audio": audio, "contextId": name})
            await socket.send_json({"isFinal": True, "contextId": name})


class _Mp3Body:
    media_type = "audio/mpeg"
    sample_rate = RATE

    def __init__(self) -> None:
        self._encoder: Any = av.CodecContext.create("libmp3lame", "w")
        self._encoder.sample_rate = RATE
        self._encoder.format = "s16p"
        self._encoder.layout = "mono"

    def push(self, chunk: AudioChunk) -> bytes:
        pcm = np.frombuffer(to_s16(chunk.samples), "<i2")
        frame = av.AudioFrame.from_ndarray(pcm[None], format="s16p", layout="mono")
        frame.sample_rate = RATE
        return b"".join(map(bytes, self._encoder.encode(frame)))

    def flush(self) -> bytes:
        return b"".join(map(bytes, self._encoder.encode(None)))


class _Events:
    """OpenAI's ``stream_format: sse``."""

    media_type = "text/event-stream"
    sample_rate = RATE

    def __init__(self, body: ReplyWriter) -> None:
        self._body = body

    def push(self, chunk: AudioChunk) -> bytes:
        return _event("delta", audio=encode(self._body.push(chunk)))

    def flush(self) -> bytes:
        rest = self._body.flush()
        return (_event("delta", audio=encode(rest)) if rest else b"") + _event("done", usage={})


def _event(kind: str, **fields: object) -> bytes:
    return b"data: " + json.dumps({"type": f"speech.audio.{kind}", **fields}).encode() + b"\n\n"


class _Lines:
    """ElevenLabs' lines of JSON, with the times of the characters that each chunk begins."""

    media_type = "application/json"
    sample_rate = RATE

    def __init__(self, text: str) -> None:
        self._text = text
        self._seconds = 0.0
        self._told = 0

    def push(self, chunk: AudioChunk) -> bytes:
        self._seconds += chunk.seconds
        end = min(len(self._text), round(self._seconds / CHARACTER))
        told = range(self._told, end)
        self._told = end
        alignment = {
            "characters": [self._text[n] for n in told],
            "character_start_times_seconds": [n * CHARACTER for n in told],
            "character_end_times_seconds": [(n + 1) * CHARACTER for n in told],
        }
        line = {"audio_base64": encode(to_s16(chunk.samples)), "alignment": alignment}
        return json.dumps(line).encode() + b"\n"

    def flush(self) -> bytes:
        return b""


_BODIES: Mapping[str, Callable[[], ReplyWriter]] = {
    "pcm": lambda: PcmBody(RATE),
    "wav": WavBody,
    "mp3": _Mp3Body,
}


async def main(latency: float, factor: float) -> None:
    # A handler is cancelled when its client leaves, and can say when that was.
    runner = web.AppRunner(
        _Speech(latency, factor).app(),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=0.1,
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await until_unwanted()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(*map(float, sys.argv[1:])))
