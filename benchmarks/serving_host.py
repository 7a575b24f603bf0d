"""A server in a process of its own: ours, or uvicorn with nothing but the bytes in it.

Prints its port; and whenever it is sent a line, the CPU seconds it has used, those of them that
were the engine's, and its memory in MB.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import uvicorn

from tts_plugins.audio.pcm import to_s16
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.scheduler import Scheduler
from tts_plugins.server import create_app
from tts_plugins.server.house import House
from tts_plugins.server.serving import Server, config, listen
from tts_plugins.types import AudioChunk, SynthesisRequest

TEXT = "Every single sentence is streamed as quickly as anybody can listen to it all. " * 2
AHEAD = 0.5
"""Seconds of audio that a client has at most before it needs them."""

FRAME = 0.02


class Metered(ToneEngine):
    """Knows what its own work costs, which isn't the server's."""

    cpu = 0.0
    """Seconds."""

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        chunks = super().synthesize(request)
        while True:
            began = time.thread_time()
            chunk = next(chunks, None)
            self.cpu += time.thread_time() - began
            if chunk is None:
                return
            yield chunk


ENGINE = Metered()


Send = Callable[[dict[str, Any]], Awaitable[None]]


def bare(pieces: list[bytes]) -> Callable[..., Awaitable[None]]:
    """An app that sends these pieces when they are due, and knows nothing else."""

    async def app(scope: dict[str, Any], receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            return
        await receive()
        headers = [(b"content-type", b"audio/pcm")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        began, given = time.monotonic(), 0.0
        for piece in pieces:
            wait = began + given - AHEAD - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            given += len(piece) / 48_000
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


def pieces(seconds: float | None) -> list[bytes]:
    """The audio as the tone engine cuts it, or in pieces of some seconds."""
    chunks = [to_s16(c.samples) for c in ToneEngine().synthesize(SynthesisRequest(TEXT))]
    if seconds is None:
        return chunks
    whole, size = b"".join(chunks), round(seconds * 24_000) * 2
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def app_of(kind: str) -> Any:
    match kind:
        case "ours":
            return create_app(Scheduler(ENGINE, max_ahead=AHEAD))
        case "hibari":
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            return create_app("hibari")
        case "frames":
            return bare(pieces(FRAME))
        case _:
            return bare(pieces(None))


def main(kind: str) -> None:
    app = app_of(kind)
    settings = config(app, log_level="error", lifespan="auto")
    with asyncio.Runner(loop_factory=settings.get_loop_factory()) as runner:
        runner.run(serve(app, settings))


async def serve(app: Any, settings: uvicorn.Config) -> None:
    listening = listen("127.0.0.1", 0)
    house: House | None = getattr(getattr(app, "state", None), "house", None)
    server = Server(settings, house) if house else uvicorn.Server(settings)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started or (house and not house.engines.ready):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    print(listening.getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(time.process_time(), ENGINE.cpu, resident(), flush=True)
    server.should_exit = True
    await serving


def resident() -> float:
    """MB of memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main(sys.argv[1])
