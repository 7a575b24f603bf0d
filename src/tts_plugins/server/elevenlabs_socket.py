"""Speak on ElevenLabs' WebSockets: several contexts at a time, each a turn of its own.

The same message ends a turn and interrupts it. What tells them apart is whether the client had
asked for all of its text to be spoken::

    text, flush, close          said to its end
    text, close                 an interruption: silent at once
    text, flush, close, close   likewise, at the second one
    close                       of nothing, or of what is over: no matter

LiveKit's plugin flushes with each sentence, and once more, without text, at the end of a turn: what
it closes without that was interrupted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from tts_plugins.dialects.base import HttpCall
from tts_plugins.dialects.elevenlabs import ElevenLabsServer
from tts_plugins.dialects.elevenlabs_socket import (
    Address,
    ContextWriter,
    Message,
    close_code,
    joined,
    read_message,
    write_error,
    write_final,
)
from tts_plugins.errors import InvalidRequestError, OverloadedError, TTSError
from tts_plugins.server.calls import Left, Line
from tts_plugins.server.house import House, Job
from tts_plugins.server.sockets import Socket, attend, refuse

_FAREWELL = 1.0
"""Seconds for which a socket that its client wants closed still speaks; after two, Pipecat leaves
without a goodbye."""


class ElevenLabsSocket:
    """An ASGI app that serves one client of either WebSocket."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        house, line = self._house, Line(scope, receive, send, id="")
        websocket = WebSocket(scope, receive, send)
        with house.enter("elevenlabs", line.headers) as visit:
            try:
                caller = house.admit(line.headers, line.query)
                house.admission.check(caller)
                address = Address(HttpCall("GET", line.path, dict(line.query)))
                asked = address.asked()
                await house.engines.find(asked.model).check(asked.request.voice, caller)
            except TTSError as error:
                visit.fail(error)
                reply = ElevenLabsServer().write_error(error)
                await refuse(websocket, replace(reply, status=error.status_code))
                return
        session = _Session(house, line, address)
        await attend(websocket, house.limits, session.serve)


class _Over(Exception):  # noqa: N818  it isn't always an error
    """Nothing more comes on a socket."""


class _Session:
    """One client, from the handshake on."""

    def __init__(self, house: House, line: Line, address: Address) -> None:
        self.house = house
        self.headers = line.headers
        self.address = address
        self._query = line.query
        self._contexts: dict[str | None, _Context] = {}
        self._goodbye: tuple[int, str] | None = (1000, "")

    async def serve(self, socket: Socket) -> None:
        """Until the client wants an end, or sends nonsense; in the end the socket is closed."""
        self._socket = socket
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._listen()
        except* Left:
            self._goodbye = None
        except* _Over:
            pass
        if self._goodbye:
            await socket.close(*self._goodbye)

    async def send(self, messages: Iterable[str]) -> None:
        for message in messages:
            await self._socket.send(message)

    async def end(self, name: str | None, error: TTSError | None = None) -> None:
        """Tell the client that nothing more comes of a context, which isn't one of ours any more.

        Raises:
            _Over: The socket has no other.
        """
        self._contexts.pop(name, None)
        if error:
            await self._socket.send(write_error(error, name))
        if self.address.multi:
            await self._socket.send(write_final(name))
            return
        if error:
            self._goodbye = (close_code(error), str(error))
        else:
            await self._socket.send(write_final(name))
        raise _Over

    async def _listen(self) -> None:
        while True:
            try:
                message = read_message(await self._socket.take(), multi=self.address.multi)
            except InvalidRequestError as error:
                await self._socket.send(write_error(error))
                self._goodbye = (1008, str(error))
                raise _Over from None
            if message.closes_socket:
                await self._farewell()
            try:
                await self._obey(message)
            except TTSError as error:
                if context := self._contexts.get(message.context):
                    context.cancel()
                await self.end(message.context, error)
            # A megabyte of text in one go, cut into sentences, would keep all others waiting.
            await asyncio.sleep(0)

    async def _obey(self, message: Message) -> None:
        context = self._contexts.get(message.context)
        if context is None:
            # Stock clients keep alive, flush and close what isn't there, or not any more.
            if not message.text and self.address.multi:
                return
            context = await self._open(message)
        context.take(message)
        if message.closes_context:
            if context.finish():
                return
            context.cancel()
            await self.end(message.context)

    async def _open(self, message: Message) -> _Context:
        if len(self._contexts) >= self.house.limits.contexts:
            raise OverloadedError(
                f"{len(self._contexts)} contexts are open here, as many as may be", retry_after=1.0
            )
        caller = self.house.admit(self.headers, self._query)
        asked = self.address.asked(message.settings)
        with self.house.enter("elevenlabs", self.headers) as visit:
            job = await visit.prepare(asked, caller)
        writer = ContextWriter(
            asked.writer, message.context, sync_alignment=self.address.sync_alignment
        )
        context = _Context(self, message.context, job, writer)
        context.task = self._tasks.create_task(context.run())
        self._contexts[message.context] = context
        return context

    async def _farewell(self) -> None:
        last = Message(flush=True)
        for context in self._contexts.values():
            context.take(last)
            context.finish()
        if tasks := [context.task for context in self._contexts.values()]:
            await asyncio.wait(tasks, timeout=_FAREWELL)
        raise _Over


class _Context:
    """What is said under one id: one timeline of audio and words."""

    task: asyncio.Task[None]

    def __init__(
        self, session: _Session, name: str | None, job: Job, writer: ContextWriter
    ) -> None:
        self._session = session
        self._name = name
        self._job = job
        self._writer = writer
        self._phraser = job.turn.phraser()
        self._due: deque[str] = deque()
        """Pieces to speak now."""
        self._last = ""
        """What the client sent last, if the next goes on from there."""
        self._waiting = 0
        """Characters that were sent and aren't spoken yet."""
        self._unflushed = False
        """Whether the client sent text without asking for all of it to be spoken."""
        self._ended = False
        """Whether it last asked for that, and for nothing else."""
        self._finishing = False
        self._news = asyncio.Event()

    def take(self, message: Message) -> None:
        """Take text, or a flush, or nothing, which keeps it alive.

        Raises:
            InvalidRequestError: If that is more text than may be.
        """
        self._news.set()
        if self._finishing:
            return
        limits = self._session.house.limits
        text = joined(self._last, message.text)
        self._waiting += len(text)
        # One fewer than over HTTP: a space is put behind.
        if len(text) >= limits.characters or self._waiting > limits.body:
            raise InvalidRequestError(
                f"{self._waiting} characters wait to be spoken; fewer than {limits.characters}"
                f" are taken at a time, and at most {limits.body} in all"
            )
        if message.text or message.flush:
            self._ended = not message.text
        self._last = text or self._last
        self._due += self._phraser.push(text)
        self._unflushed = bool(text.strip() or self._unflushed) and not message.flush
        if message.flush or self._session.address.auto_mode:
            self._last = ""
            self._due += self._phraser.flush()
            if self._due and not self._due[-1][-1:].isspace():
                self._due.append(" ")  # Pipecat's sentences come without.
                self._waiting += 1

    def finish(self) -> bool:
        """Say what was asked for, and no more; False if that isn't what the client wants."""
        interrupted = self._session.address.is_livekit and not self._ended
        if self._unflushed or self._finishing or interrupted:
            return False
        self._finishing = True
        return True

    def cancel(self) -> None:
        self.task.cancel()

    async def run(self) -> None:
        try:
            while (text := await self._next()) is not None:
                if text := text.lstrip():
                    await self._say(text)
            await self._session.send(self._writer.flush())
        except TTSError as error:
            await self._session.end(self._name, error)
        else:
            await self._session.end(self._name)

    async def _next(self) -> str | None:
        """All that is due, of which there may be too much for one time; None at the end."""
        while not self._due:
            if self._finishing:
                return None
            self._news.clear()
            wait = self._phraser.wait()
            try:
                async with asyncio.timeout(
                    self._session.address.inactivity if wait is None else wait
                ):
                    await self._news.wait()
            except TimeoutError:
                if wait is None:
                    return None
            self._due += self._phraser.poll()
        text = self._due.popleft()
        longest = self._session.house.limits.characters
        while self._due and len(text) + len(self._due[0]) < longest:
            text += self._due.popleft()
        self._waiting -= len(text)
        return text

    async def _say(self, text: str) -> None:
        text += "" if text[-1].isspace() else " "
        with self._session.house.enter("elevenlabs", self._session.headers) as visit:
            visit.go_on(self._job, text)
            self._writer.begin(text)
            async with aclosing(visit.speak(self._job, text)) as chunks:
                async for chunk in chunks:
                    await self._session.send(self._writer.push(chunk))
            await self._session.send(self._writer.pause())
