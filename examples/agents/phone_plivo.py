"""A bot that answers a Plivo number, with no framework at all: a WebSocket and a Turn.

scripts/agent phone_plivo                       # answers on port 8000; docs/telephony.md
TTS=kokoro scripts/agent phone_plivo            # with another engine
LLM=openai OPENAI_API_KEY=... scripts/agent phone_plivo    # OpenAI's models hear and answer
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket

from tts_plugins import AudioChunk, Engine, Samples, TTSError, open_engine, warm_up
from tts_plugins.audio.g711 import from_ulaw, to_ulaw
from tts_plugins.audio.pcm import joined
from tts_plugins.audio.wav import wav_file
from tts_plugins.timing import TimedEngine
from tts_plugins.turn import Turn

RATE = 8000
LOUD = 0.02
"""Mean amplitude from which on somebody speaks: -34 dBFS."""
BEGINS, ENDS = 5, 35
"""Packets of 20 ms over which that makes a voice, and without which the voice has ended."""
SCRIPT = (
    "Good morning, you are speaking with the harbour office. How may I help you today?",
    "The ferry to the island leaves at seven, at nine, and at half past eleven.",
    "Yes, there is room for two bicycles, and the crossing takes about forty minutes.",
)
GOODBYE = "Thank you for calling, and goodbye."
WORD_EVERY = 0.03
EAR, MODEL = "gpt-4o-mini-transcribe", "gpt-4o-mini"
MANNERS = "You answer a harbour office's telephone: short sentences, no lists. Begin by greeting."

Talk = list[dict[str, str]]
"""Who said what, as language models take it."""
Mind = Callable[[Samples | None, Talk], AsyncIterator[str]]
"""Adds what it hears to the talk, and answers; without speech it answers what stands there."""


async def script(speech: Samples | None, talk: Talk) -> AsyncIterator[str]:
    """The next line, word by word."""
    if speech is not None:
        talk.append({"role": "user", "content": f"(they spoke for {len(speech) / RATE:.1f} s)"})
    line = SCRIPT[sum(each["role"] == "assistant" for each in talk) % len(SCRIPT)]
    for word in line.split():
        yield word + " "
        await asyncio.sleep(WORD_EVERY)


async def openai(speech: Samples | None, talk: Talk) -> AsyncIterator[str]:
    """What OpenAI's models make of it, or those at OPENAI_BASE_URL."""
    from openai import AsyncOpenAI  # a second that the script doesn't need

    async with AsyncOpenAI() as client:
        if speech is not None:
            wav = ("speech.wav", wav_file(AudioChunk(speech, RATE)))
            heard = await client.audio.transcriptions.create(model=EAR, file=wav)
            talk.append({"role": "user", "content": heard.text})
        messages: Any = [{"role": "developer", "content": MANNERS}, *talk]
        answer = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        async for event in answer:
            if event.choices and (text := event.choices[0].delta.content):
                yield text


async def goodbye(speech: Samples | None, talk: Talk) -> AsyncIterator[str]:
    """The last words."""
    yield GOODBYE


class Call:
    """One call. Of what the bot says, the talk keeps what was heard.

    A checkpoint stands behind each word, and Plivo tells when that has been played.
    """

    def __init__(self, socket: WebSocket, engine: Engine, mind: Mind) -> None:
        self.talk: Talk = []
        self._socket, self._engine, self._mind = socket, engine, mind
        self._turns: dict[int, Turn] = {}  # by where they stand in the talk
        self._speaking: asyncio.Task[None] | None = None
        self._levels: deque[float] = deque([0.0] * ENDS, ENDS)
        self._speech: list[Samples] = []
        self._voice = self._leaving = False

    async def run(self) -> None:
        """Answer until somebody hangs up."""
        async for message in self._socket.iter_json():
            if self._speaking is not None and self._speaking.done():
                self._speaking.result()  # an engine or a model that failed ends the call
            match message["event"]:
                case "start":
                    self._stream = message["start"]["streamId"]
                    await self._say(self._mind(None, self.talk))
                case "media" if not self._leaving:
                    await self._listen(from_ulaw(base64.b64decode(message["media"]["payload"])))
                case "dtmf":
                    self._leaving = message["dtmf"]["digit"] == "#"
                    await self._say((goodbye if self._leaving else self._mind)(None, self.talk))
                case "playedStream":
                    place, end = map(int, message["name"].split())
                    text = self._turns[place].text
                    self.talk[place]["content"] = text[:end].strip()
                    if self._leaving and text == GOODBYE and end == len(text):
                        break
        if self._speaking is not None:
            self._speaking.cancel()

    async def _listen(self, packet: Samples) -> None:
        self._speech.append(packet)
        self._levels.append(float(np.abs(packet).mean()))
        if not self._voice:
            del self._speech[: -2 * BEGINS]  # the voice will have begun before it is noticed
            if np.mean(list(self._levels)[-BEGINS:]) > LOUD:
                self._voice = True
                await self._interrupt()
        elif max(self._levels) < LOUD:
            speech, self._speech, self._voice = joined(self._speech), [], False
            await self._say(self._mind(speech, self.talk))

    async def _interrupt(self) -> None:
        speaking, self._speaking = self._speaking, None
        if speaking is not None:
            speaking.cancel()
            await self._send("clearAudio")

    async def _say(self, text: AsyncIterator[str]) -> None:
        await self._interrupt()  # a key may be pressed while somebody speaks
        self._speaking = asyncio.create_task(self._speak(text))

    async def _speak(self, text: AsyncIterator[str]) -> None:
        turn = Turn(self._engine, sample_rate=RATE)
        place, sent = None, 0
        words: deque[tuple[int, int]] = deque()  # where each begins, in samples and in characters
        async with aclosing(turn.say_all(text)) as chunks:
            async for chunk in chunks:
                if place is None:
                    place = len(self.talk)
                    self.talk.append({"role": "assistant", "content": ""})
                    self._turns[place] = turn
                words += [(round(word.start * RATE), word.offset) for word in chunk.words]
                codes = to_ulaw(chunk.samples)
                while words and words[0][0] < sent + len(codes):
                    begin, offset = words.popleft()
                    await self._play(codes[: begin - sent])
                    await self._send("checkpoint", name=f"{place} {offset}")
                    codes, sent = codes[begin - sent :], begin
                await self._play(codes)
                sent += len(codes)
        if place is not None:
            await self._send("checkpoint", name=f"{place} {len(turn.text)}")

    async def _play(self, codes: bytes) -> None:
        if codes:
            payload = base64.b64encode(codes).decode()
            media = {"contentType": "audio/x-mulaw", "sampleRate": RATE, "payload": payload}
            await self._send("playAudio", media=media)

    async def _send(self, event: str, **its: Any) -> None:
        await self._socket.send_json({"event": event, "streamId": self._stream} | its)


def create_app(name: str, mind: Mind = script) -> FastAPI:
    """What Plivo asks for what to do with a call, and the call itself. One engine for all."""
    engine = TimedEngine(open_engine(name))

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await warm_up(engine)
        yield
        await engine.aclose()

    app = FastAPI(lifespan=life)

    @app.api_route("/", methods=["GET", "POST"])
    async def answer(request: Request) -> Response:
        how = 'bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000"'
        stream = f"<Stream {how}>wss://{escape(request.headers['host'])}/ws</Stream>"
        return Response(f"<Response>{stream}</Response>", media_type="application/xml")

    @app.websocket("/ws")
    async def ring(socket: WebSocket) -> None:
        await socket.accept()
        call = Call(socket, engine, mind)
        await call.run()
        for each in call.talk:
            print(f"{each['role']}: {each['content']}", flush=True)

    return app


def main() -> None:
    options = argparse.ArgumentParser(description="A bot that answers a Plivo number.")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", default=8000, type=int)
    chosen = options.parse_args()
    llm = os.environ.get("LLM", "")
    if llm not in ("", "openai"):
        sys.exit(f"LLM={llm} isn't known here; one of: openai")
    if llm and not os.environ.get("OPENAI_API_KEY"):
        sys.exit("set OPENAI_API_KEY: LLM=openai needs a key")
    try:
        app = create_app(os.environ.get("TTS", "hibari"), openai if llm else script)
    except TTSError as error:
        sys.exit(str(error))
    print(f"Answering calls at http://{chosen.host}:{chosen.port}", flush=True)
    with suppress(KeyboardInterrupt):
        uvicorn.run(app, host=chosen.host, port=chosen.port, log_level="warning")


if __name__ == "__main__":
    main()
