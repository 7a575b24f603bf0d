"""A bot that answers a Twilio number: Pipecat at the telephone's own 8 kHz, from end to end.

scripts/agent phone_twilio                      # answers on port 8000; docs/telephony.md
TTS=kokoro scripts/agent phone_twilio           # with another engine
LLM=openai OPENAI_API_KEY=... scripts/agent phone_twilio   # with a model; see brains.py
"""

# mypy: disable-error-code="no-untyped-call"
# Pipecat leaves out annotations where a function returns nothing.

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from xml.sax.saxutils import quoteattr

import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket
from pipecat.audio.dtmf.types import KeypadEntry
from pipecat.frames.frames import (
    CancelWorkerFrame,
    EndWorkerFrame,
    Frame,
    InputDTMFFrame,
    InputTransportMessageFrame,
    InterruptionFrame,
    LLMRunFrame,
    OutputTransportMessageFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.runner.utils import parse_telephony_websocket
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.workers.runner import WorkerRunner

from examples.agents.brains import brain, ears, memory
from tts_plugins import Engine, TTSError, open_engine, warm_up
from tts_plugins.adapters.pipecat import EngineTTSService

RATE = 8000
ACCOUNT, TOKEN = os.environ.get("TWILIO_ACCOUNT_SID"), os.environ.get("TWILIO_AUTH_TOKEN")
GOODBYE = "Thank you for calling, and goodbye."
LONGEST = 20.0
"""Seconds that a line may take to tell that the last turn was heard."""


class Line(TwilioFrameSerializer):
    """Twilio's messages, with two that Pipecat leaves out: a mark was reached, the call is over."""

    async def deserialize(self, data: str | bytes) -> Frame | None:
        message = json.loads(data)
        if message["event"] == "mark":
            return InputTransportMessageFrame(message)
        if message["event"] == "stop":
            return CancelWorkerFrame("the call is over")
        return await super().deserialize(data)


class Marks(FrameProcessor):
    """Puts a mark on the line behind each turn, and ends the call when the last one was heard."""

    def __init__(self, stream: str) -> None:
        super().__init__()
        self._stream = stream
        self._turns = 0
        self._heard = asyncio.Event()
        self._heard.set()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, EndWorkerFrame):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heard.wait(), LONGEST)
        await self.push_frame(frame, direction)
        if isinstance(frame, InterruptionFrame):
            self._heard.set()  # whatever was left will never be
        elif isinstance(frame, TTSStoppedFrame):
            self._turns += 1
            self._heard.clear()
            mark = {"event": "mark", "streamSid": self._stream, "mark": {"name": str(self._turns)}}
            await self.push_frame(OutputTransportMessageFrame(mark))
        elif isinstance(frame, InputTransportMessageFrame) and self._is_last(frame.message):
            self._heard.set()

    def _is_last(self, message: Any) -> bool:
        return bool(message["mark"]["name"] == str(self._turns))


async def talk(socket: WebSocket, engine: Engine) -> None:
    """One call, until somebody hangs up."""
    try:
        _, call = await parse_telephony_websocket(socket)
    except ValueError:  # whoever rang has left without a word
        return
    line = Line(
        call["stream_id"],
        call["call_id"],
        ACCOUNT,
        TOKEN,
        params=Line.InputParams(auto_hang_up=bool(ACCOUNT and TOKEN)),
    )
    transport = FastAPIWebsocketTransport(
        socket,
        FastAPIWebsocketParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_out_end_silence_secs=0,  # which is for lines that can't tell what was heard
            serializer=line,
        ),
    )
    # What hears when somebody speaks loads for 0.1 s, in which nobody else would hear anything.
    user, assistant = await asyncio.to_thread(memory, LLMContext())
    tts, marks = EngineTTSService(engine), Marks(call["stream_id"])
    steps = [transport.input(), ears(), user, brain(), tts, marks, transport.output(), assistant]
    worker = PipelineWorker(
        Pipeline(steps),
        params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE),
        cancel_on_idle_timeout=False,
        enable_rtvi=False,
    )
    worker.set_reached_downstream_filter((InputDTMFFrame,))

    @worker.event_handler("on_frame_reached_downstream")  # type: ignore[untyped-decorator]
    async def press(_: Any, key: InputDTMFFrame) -> None:
        if key.button is KeypadEntry.POUND:
            await worker.queue_frames(
                [InterruptionFrame(), TTSSpeakFrame(GOODBYE), EndWorkerFrame()]
            )

    @transport.event_handler("on_client_connected")  # type: ignore[untyped-decorator]
    async def greet(*_: Any) -> None:
        await worker.queue_frame(LLMRunFrame())

    @transport.event_handler("on_client_disconnected")  # type: ignore[untyped-decorator]
    async def leave(*_: Any) -> None:
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()


def create_app(name: str) -> FastAPI:
    """What Twilio asks for what to do with a call, and the call itself. One engine for all."""
    engine = open_engine(name)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await warm_up(engine)
        yield
        await engine.aclose()

    app = FastAPI(lifespan=life)

    @app.api_route("/", methods=["GET", "POST"])
    async def answer(request: Request) -> Response:
        url = quoteattr(f"wss://{request.headers['host']}/ws")
        twiml = f"<Response><Connect><Stream url={url}/></Connect></Response>"
        return Response(twiml, media_type="application/xml")

    @app.websocket("/ws")
    async def ring(socket: WebSocket) -> None:
        await socket.accept()
        await talk(socket, engine)

    return app


def main() -> None:
    options = argparse.ArgumentParser(description="A bot that answers a Twilio number.")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", default=8000, type=int)
    chosen = options.parse_args()
    ears(), brain()  # whatever lacks is better known before anybody calls
    if not (ACCOUNT and TOKEN):
        print("TWILIO_ACCOUNT_SID and TWILIO_AUTH_TOKEN aren't set: calls end by their sockets.")
    try:
        app = create_app(os.environ.get("TTS", "hibari"))
    except TTSError as error:
        sys.exit(str(error))
    print(f"Answering calls at http://{chosen.host}:{chosen.port}", flush=True)
    with suppress(KeyboardInterrupt):
        uvicorn.run(app, host=chosen.host, port=chosen.port, log_level="warning")


if __name__ == "__main__":
    main()
