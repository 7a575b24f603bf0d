"""Speak over HTTP, in any dialect: the same door with another sign on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from tts_plugins.dialects.base import Asked, HttpCall, HttpReply, ReplyWriter
from tts_plugins.errors import TTSError
from tts_plugins.server.calls import Left, Line
from tts_plugins.server.enrolment import weighing
from tts_plugins.server.house import House, Job, Visit
from tts_plugins.types import AudioChunk


class SpeechServer(Protocol):
    """The server's end of a dialect."""

    def read_call(self, call: HttpCall) -> Asked: ...

    def write_error(self, error: TTSError) -> HttpReply: ...


class SpeechDoor:
    """An ASGI app that answers the speech requests of one dialect.

    The status waits for the first bytes, so that whatever goes wrong before them has a status of
    its own. What goes wrong later breaks the connection: no client takes half an answer for a
    whole one. A client that leaves stops the engine.

    Args:
        house: Where it is a door of.
        server: The dialect's end.
        dialect: Its name, for the ledger.
        largest: Bytes of a request, where there may be more in it than text.
    """

    def __init__(
        self, house: House, server: SpeechServer, dialect: str, *, largest: int | None = None
    ) -> None:
        self._house = house
        self._largest = largest or house.limits.body
        self._server = server
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._house.enter(self._dialect, Headers(scope=scope)) as visit:
            line = Line(scope, receive, send, id=visit.record.id)
            try:
                try:
                    caller = self._house.admit(line.headers)
                    visit.record.caller = caller
                    self._house.admission.check(caller)
                    job, asked = await self._prepare(visit, line, caller)
                except TTSError as error:
                    await self._refuse(visit, line, error)
                    return
                await self._attend(visit, line, job, asked)
            except Left:
                visit.record.outcome = "cancelled"
                await line.hang_up()

    async def _prepare(self, visit: Visit, line: Line, caller: str) -> tuple[Job, Asked]:
        with weighing(self._house) as weigh:
            call = await line.call(
                largest=self._largest, seconds=self._house.limits.body_seconds, weigh=weigh
            )
            asked = self._server.read_call(call)
            job = await visit.prepare(asked, caller)
            # A recording that came along isn't kept while it is spoken.
            return job, replace(asked, request=replace(asked.request, options={}))

    async def _attend(self, visit: Visit, line: Line, job: Job, asked: Asked) -> None:
        """Speak until all is said, or the client leaves.

        A task waits for that, since a failing send is not how one learns of it: the server's
        buffers take a whole answer from an engine that nobody listens to.
        """
        speaking = asyncio.create_task(self._speak(visit, line, job, asked))
        leaving = asyncio.create_task(line.left())
        try:
            await asyncio.wait({speaking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not speaking.done():
                visit.record.outcome = "cancelled"
                speaking.cancel()
            await asyncio.wait({speaking, leaving})
        if not speaking.cancelled():
            speaking.result()

    async def _speak(self, visit: Visit, line: Line, job: Job, asked: Asked) -> None:
        writer, patience = asked.writer, self._house.limits.send_seconds
        try:
            async with aclosing(visit.speak(job, asked.request.text)) as chunks:
                async for chunk in chunks:
                    for part in _parts(chunk):
                        if data := writer.push(part):
                            await self._begin(visit, line, job, writer)
                            await line.write(data, seconds=patience)
            whole = getattr(writer, "whole", False)
            data = await asyncio.to_thread(writer.flush) if whole else writer.flush()
            await self._begin(visit, line, job, writer)
            if data:
                await line.write(data, seconds=patience)
            await line.end()
        except TTSError as error:
            if not line.started:
                await self._refuse(visit, line, error, **job.headers())
                return
            visit.fail(error, 200)
            if fail := getattr(writer, "fail", None):
                await line.write(fail(error), seconds=patience)
                if getattr(writer, "failure_is_read", False):
                    await line.end()
            # Or else without an end, which breaks the connection.

    async def _refuse(self, visit: Visit, line: Line, error: TTSError, **headers: str) -> None:
        reply = self._server.write_error(error)
        visit.fail(error, reply.status)
        await line.answer(reply, **headers)

    async def _begin(self, visit: Visit, line: Line, job: Job, writer: ReplyWriter) -> None:
        if line.started:
            return
        visit.record.status = 200
        rate = str(job.turn.sample_rate)
        audio = {"x-sample-rate": rate, "x-channels": "1"}
        if writer.media_type == "audio/pcm":
            audio["x-sample-format"] = "s16le"
        await line.start(200, {"content-type": writer.media_type, **audio, **job.headers()})


def _parts(chunk: AudioChunk) -> Iterator[AudioChunk]:
    """A chunk in parts of a second, since to encode a long one would hold the event loop."""
    size = chunk.sample_rate
    if len(chunk.samples) or chunk.words:
        yield replace(chunk, samples=chunk.samples[:size])
    for start in range(size, len(chunk.samples), size):
        yield AudioChunk(chunk.samples[start : start + size], chunk.sample_rate)
