"""A bot to talk to in the browser: Pipecat over WebRTC, with any engine's voice.

scripts/agent pipecat_bot                              # then open http://127.0.0.1:7860
TTS=kokoro scripts/agent pipecat_bot --port 8000       # with another engine, elsewhere
LLM=openai OPENAI_API_KEY=... scripts/agent pipecat_bot   # with a model; see brains.py
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse
from loguru import logger
from pipecat.frames.frames import LLMRunFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import AssistantTurnStoppedMessage
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.transports.smallwebrtc.request_handler import (
    SmallWebRTCPatchRequest,
    SmallWebRTCRequest,
    SmallWebRTCRequestHandler,
)
from pipecat.transports.smallwebrtc.transport import SmallWebRTCTransport
from pipecat.workers.runner import WorkerRunner

from examples.agents.brains import brain, ears, memory
from tts_plugins import Engine, TTSError, open_engine, warm_up
from tts_plugins.adapters.pipecat import EngineTTSService

PAGE = Path(__file__).with_suffix(".html")


async def talk(connection: SmallWebRTCConnection, engine: Engine) -> None:
    """One visitor, until they leave."""
    transport = SmallWebRTCTransport(
        connection, TransportParams(audio_in_enabled=True, audio_out_enabled=True)
    )
    # Loading Silero takes 0.1 s, in which the others would hear nothing.
    user, assistant = await asyncio.to_thread(memory, LLMContext())
    tts = EngineTTSService(engine)
    worker = PipelineWorker(
        Pipeline([transport.input(), ears(), user, brain(), tts, transport.output(), assistant]),
        cancel_on_idle_timeout=False,
    )

    @worker.rtvi.event_handler("on_client_ready")  # type: ignore[untyped-decorator]
    async def greet(_: Any) -> None:
        await worker.queue_frame(LLMRunFrame())

    @worker.rtvi.event_handler("on_client_message")  # type: ignore[untyped-decorator]
    async def interrupt(rtvi: Any, message: Any) -> None:
        if message.type == "interrupt":
            await rtvi.interrupt_bot()

    @assistant.event_handler("on_assistant_turn_stopped")  # type: ignore[untyped-decorator]
    async def tell(_: Any, turn: AssistantTurnStoppedMessage) -> None:
        remembered = {"remembered": turn.content, "interrupted": turn.interrupted}
        await worker.rtvi.send_server_message(remembered)

    @transport.event_handler("on_client_disconnected")  # type: ignore[untyped-decorator]
    async def leave(*_: Any) -> None:
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()


def create_app(name: str) -> FastAPI:
    """The page, and what answers its calls. One engine speaks to everybody."""
    offers = SmallWebRTCRequestHandler()
    visits: set[asyncio.Task[None]] = set()
    engine = open_engine(name)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await warm_up(engine)
        yield
        await offers.close()  # type: ignore[no-untyped-call]
        await asyncio.gather(*visits)
        await engine.aclose()

    app = FastAPI(lifespan=life)

    @app.get("/")
    async def page() -> FileResponse:
        return FileResponse(PAGE)

    @app.post("/api/offer")
    async def offer(request: SmallWebRTCRequest) -> dict[str, str] | None:
        async def visit(connection: SmallWebRTCConnection) -> None:
            task = asyncio.create_task(talk(connection, engine))
            visits.add(task)
            task.add_done_callback(visits.discard)

        return await offers.handle_web_request(request, visit)

    @app.patch("/api/offer")
    async def candidates(request: SmallWebRTCPatchRequest) -> None:
        await offers.handle_patch_request(request)

    return app


def main() -> None:
    options = argparse.ArgumentParser(description="A bot to talk to in the browser.")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", default=7860, type=int)
    chosen = options.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="INFO")
    ears(), brain()  # whatever lacks is better known before anybody calls
    try:
        app = create_app(os.environ.get("TTS", "hibari"))
    except TTSError as error:
        sys.exit(str(error))
    with suppress(KeyboardInterrupt):
        uvicorn.run(app, host=chosen.host, port=chosen.port, access_log=False)


if __name__ == "__main__":
    main()
