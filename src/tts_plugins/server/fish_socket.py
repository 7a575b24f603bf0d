"""Fish Audio's WebSocket, on which one utterance follows another.

Text is spoken sentence by sentence as it comes, and all of it by a flush or a stop. Fish Audio
closes the socket after an utterance; here it stays open for the next, as LiveKit's plugin expects.
Pipecat's sends one start for all of a call, and would be mute after its first error: so text that
comes without a start is spoken as the last one said.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from tts_plugins.dialects.base import ReplyWriter, one_line
from tts_plugins.dialects.fish import FishCloudServer, without_tokens
from tts_plugins.dialects.fish_socket import (
    Flush,
    Start,
    Stop,
    Text,
    read_message,
    write_audio,
    write_finish,
)
from tts_plugins.errors import InvalidRequestError, TTSError
from tts_plugins.phraser import Phraser
from tts_plugins.server.house import House, Job, Visit
from tts_plugins.server.sockets import Socket, attend, refuse
from tts_plugins.text.words import speakable

logger = logging.getLogger(__name__)

IDLE = 330.0
"""Seconds for which a socket may lie between two utterances. LiveKit's plugin takes one again for
up to 300, and reports an error if it is closed by then."""

_SERVER = FishCloudServer()


class FishSocket:
    """An ASGI app that serves one client of the WebSocket."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        try:
            self._house.admit(websocket.headers, websocket.query_params)
            self._house.engines.find(None)
        except TTSError as error:
            await refuse(websocket, _SERVER.write_error(error))
            return
        session = _Session(self._house, websocket)
        await attend(websocket, self._house.limits, session.serve)


@dataclass(slots=True)
class _Utterance:
    """What is said from a start to its finish."""

    job: Job
    writer: ReplyWriter
    phraser: Phraser = field(init=False)
    unsaid: str = ""
    """Text that can't be spoken by itself, such as an ellipsis."""
    heard: bool = False
    """Whether anything was, since the last flush."""

    def __post_init__(self) -> None:
        self.phraser = self.job.turn.phraser()


class _Session:
    """One client, from the handshake on."""

    def __init__(self, house: House, websocket: WebSocket) -> None:
        self._house = house
        self._headers = websocket.headers
        self._query = websocket.query_params
        self._start: Start | None = None
        self._utterance: _Utterance | None = None

    async def serve(self, socket: Socket) -> None:
        while True:
            utterance = self._utterance
            try:
                message = await socket.take(utterance.phraser.wait() if utterance else IDLE)
                event = read_message(message)
            except TimeoutError:
                if utterance is None:
                    await socket.close()
                    return
                event = Text("")  # only time has passed
            except InvalidRequestError as error:
                logger.warning("a client of the WebSocket sent nonsense: %s", one_line(str(error)))
                await socket.send(write_finish("error"))
                await socket.close(1008, str(error))
                return
            try:
                await self._take(event, socket)
            except TTSError:
                self._utterance = None
                await socket.send(write_finish("error"))
            # Much text in one go, cut into sentences, would keep all others waiting.
            await asyncio.sleep(0)

    async def _take(self, event: Start | Text | Flush | Stop | None, socket: Socket) -> None:
        match event:
            case Start(request):
                await self._stop(socket)
                self._start = event
                await self._push(await self._begin(), request.get("text") or "", socket)
            case Text(text):
                await self._push(self._utterance or await self._begin(), text, socket)
            case Flush():
                await self._flush(socket)
            case Stop():
                await self._stop(socket)

    async def _begin(self) -> _Utterance:
        with self._visit() as visit:
            caller = self._house.admit(self._headers, self._query)
            if self._start is None:
                raise InvalidRequestError("text before a start")
            request = {"text": "", **self._start.request}
            asked = _SERVER.read_request(request, self._headers.get("model"))
            job = await visit.prepare(asked, caller)
        self._utterance = _Utterance(job, asked.writer)
        return self._utterance

    async def _flush(self, socket: Socket) -> None:
        utterance = self._utterance
        if utterance is None:
            return
        await self._say(utterance, utterance.phraser.flush(), socket)
        if utterance.unsaid.strip() and not utterance.heard:
            await self._speak(utterance, socket)  # a breath, for something has to be heard
        utterance.unsaid, utterance.heard = "", False

    async def _stop(self, socket: Socket) -> None:
        utterance = self._utterance
        if utterance is None:
            return
        await self._flush(socket)
        if utterance.job.turn.seconds:
            await _play(utterance.writer.flush(), socket)
        self._utterance = None
        await socket.send(write_finish("stop"))

    async def _push(self, utterance: _Utterance, text: str, socket: Socket) -> None:
        longest = self._house.limits.characters
        if len(utterance.unsaid) + len(text) > longest:
            with self._visit() as visit:
                visit.go_on(utterance.job, text)
                raise InvalidRequestError(f"at most {longest} characters are taken at a time")
        await self._say(utterance, utterance.phraser.push(text), socket)

    async def _say(self, utterance: _Utterance, pieces: list[str], socket: Socket) -> None:
        utterance.unsaid += without_tokens("".join(pieces))
        if speakable(utterance.unsaid):
            await self._speak(utterance, socket)

    async def _speak(self, utterance: _Utterance, socket: Socket) -> None:
        text, utterance.unsaid = utterance.unsaid, ""
        utterance.heard = True
        with self._visit() as visit:
            visit.go_on(utterance.job, text)
            async with aclosing(visit.speak(utterance.job, text)) as chunks:
                async for chunk in chunks:
                    await _play(utterance.writer.push(chunk), socket)

    @contextmanager
    def _visit(self) -> Generator[Visit, None, None]:
        with self._house.enter("fish", self._headers) as visit:
            try:
                yield visit
            except TTSError as error:
                visit.fail(error)
                # The client is told no more than that there was one.
                logger.warning("%s: %s", visit.record.id, one_line(str(error)))
                raise


async def _play(audio: bytes, socket: Socket) -> None:
    for message in write_audio(audio):
        await socket.send(message)
