"""What all doors of the server share, and how anything is spoken through one of them."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from tts_plugins.dialects.base import Asked
from tts_plugins.errors import InvalidRequestError, TTSError, VoiceNotFoundError
from tts_plugins.playhead import Playhead
from tts_plugins.server.admission import Admission
from tts_plugins.server.calls import Left
from tts_plugins.server.engines import Engines, Hosted, strangers
from tts_plugins.server.keys import Keys
from tts_plugins.server.ledger import Ledger, Record, Spans
from tts_plugins.server.likeness import like
from tts_plugins.server.refusals import RefusedError
from tts_plugins.turn import Turn
from tts_plugins.types import AudioChunk

_SHOWN = 100
"""Characters of a voice's name in the ledger: there it is whatever a client sent."""

_DRAINING = 2.0
"""Seconds after which a client asks again, and finds another server."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may ask of the server."""

    characters: int = 10_000
    """Of one text."""
    body: int = 1_000_000
    """Bytes of a request."""
    clip: int = 20_000_000
    """Bytes of a recording to clone a voice from."""
    body_seconds: float = 20.0
    """In which a request has to have arrived."""
    send_seconds: float = 30.0
    """For which a client may take nothing of what it is sent."""
    patience: float = 10.0
    """Seconds in which an engine has to give audio."""
    contexts: int = 32
    """Open at once on one WebSocket."""


class House:
    """Engines, keys, places and the ledger.

    Belongs to one event loop.
    """

    def __init__(
        self,
        engines: Engines,
        *,
        admission: Admission,
        keys: Keys,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engines = engines
        self.admission = admission
        self.keys = keys
        self.limits = limits
        self.ledger = Ledger()
        self.spans = Spans()
        self.clock = clock
        self.draining = False
        """Whether what runs is finished, and nothing new is begun."""
        self.enrolling = 0
        """How many voices are learnt just now, or wait for it."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._visits = 0

    def enter(self, dialect: str, headers: Mapping[str, str]) -> Visit:
        """Somebody comes in by one of the doors."""
        record = Record(request_id(), dialect)
        return Visit(self, record, self.spans.start(record, headers))

    def admit(self, headers: Mapping[str, str], query: Mapping[str, str] | None = None) -> str:
        """Who calls, if they may.

        Raises:
            RefusedError: 401 for a wrong key; 503 while nothing new is begun.
        """
        caller = self.keys.caller(headers, query)
        if self.draining:
            raise RefusedError(503, "the server is shutting down", retry_after=_DRAINING)
        return caller

    def refusal(self) -> str | None:
        """Why nothing new can be spoken just now, if it can't."""
        if self.draining:
            return "draining"
        if not self.engines.ready:
            return self.engines.failure or "loading"
        return "full" if self.admission.is_full else None

    def began(self) -> None:
        self._visits += 1
        self._idle.clear()

    def ended(self) -> None:
        self._visits -= 1
        if not self._visits:
            self._idle.set()

    async def drain(self) -> None:
        """Begin nothing new, and wait until what runs is over."""
        self.draining = True
        while self._visits:  # the next may have begun before this comes to run
            await self._idle.wait()

    def page(self) -> tuple[str, bytes]:
        """The numbers for Prometheus."""
        self.level()
        return self.ledger.page()

    def level(self) -> None:
        """Note in the ledger how many streams there are."""
        self.ledger.level(
            active=self.admission.active,
            waiting=self.admission.waiting,
            slots=self.admission.max_streams,
        )


class Visit:
    """One request, from when it came in until it is in the ledger.

    What it says on the way of itself stands in its ``record``. Use it as a context manager: however
    it ends, it is written down once. A WebSocket has one to prepare, and one for each piece that is
    spoken.
    """

    def __init__(self, house: House, record: Record, span: Any) -> None:
        self.house = house
        self.record = record
        self._span = span
        self._began = house.clock()

    def __enter__(self) -> Visit:
        self.house.began()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        record = self.record
        record.took = self.house.clock() - self._began
        if record.outcome == "finished" and kind is not None:
            ours = issubclass(kind, TTSError)
            cut = issubclass(kind, (asyncio.CancelledError, GeneratorExit, Left))
            record.outcome = "cancelled" if cut else kind.__name__ if ours else "EngineError"
        if record.outcome == "cancelled" and not record.status:
            record.seconds, record.first_audio = 0.0, None  # nothing of it was sent
        self.house.ended()
        if record.outcome == "finished" and not record.status:
            return  # A WebSocket got ready for what hasn't been said yet.
        self.house.ledger.enter(record)
        self.house.spans.end(self._span, record)

    def fail(self, error: TTSError, status: int | None = None) -> None:
        """It didn't work, and the client has been told, perhaps with a status of its dialect's."""
        kinds = (kind.__name__ for kind in type(error).__mro__)
        self.record.outcome = next(name for name in kinds if not name.startswith("_"))
        self.record.status = status or error.status_code

    async def prepare(self, asked: Asked, caller: str) -> Job:
        """Find the engine and the voice; nothing is spoken yet.

        Raises:
            TTSError: If that can't be spoken here.
        """
        house, record = self.house, self.record
        record.caller = caller
        hosted = house.engines.find(asked.model, strict=asked.strict)
        record.engine = hosted.name
        record.voice = (asked.request.voice or "-")[:_SHOWN]
        record.format = getattr(asked.writer, "media_type", "-").partition(";")[0]
        record.characters = len(asked.request.text)
        request = await like(hosted, asked.request, caller)
        request, ignored = await hosted.request(request, caller, any_voice=asked.any_voice)
        if ignored and asked.strict:
            raise InvalidRequestError(f"{hosted.name} has no option {', '.join(ignored)}")
        whole = getattr(asked.writer, "whole", False)
        turn = Turn(
            hosted.engine,
            sample_rate=asked.writer.sample_rate,
            template=replace(request, text=""),
            patience=house.limits.patience,
            playhead=Playhead(house.clock() + (math.inf if whole else request.due)),
            clock=house.clock,
        )
        return Job(self, hosted, turn, ignored)

    def go_on(self, job: Job, text: str) -> None:
        """It is about more text for what an earlier visit prepared."""
        earlier = job.visit.record
        self.record.caller = earlier.caller
        self.record.engine = earlier.engine
        self.record.voice = earlier.voice
        self.record.format = earlier.format
        self.record.characters = len(text)
        self.record.status = 101

    async def speak(self, job: Job, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Say a text in a job's turn, in a place of its own.

        Raises:
            TTSError: What the engine raises; OverloadedError if there is no place.
        """
        record, house, turn = self.record, self.house, job.turn
        longest = house.limits.characters
        if len(text) > longest:
            raise InvalidRequestError(
                f"the text has {len(text)} characters; at most {longest} are taken at a time"
            )
        before, stalled = turn.seconds, turn.stalled
        paused = not turn.ahead()
        place = house.admission.place(record.caller)
        with job.hosted.speaking(turn.template.voice), place as heard:
            try:
                with strangers():
                    async with aclosing(turn.say(text)) as chunks:
                        async for chunk in chunks:
                            if record.first_audio is None and len(chunk.samples):
                                heard()
                                record.first_audio = house.clock() - self._began
                                house.spans.heard(self._span)
                                if paused:  # by the client, who had nothing to say
                                    stalled = turn.stalled
                            yield chunk
            except VoiceNotFoundError:
                raise await job.hosted.unknown(record.voice, record.caller) from None
            finally:
                record.seconds += turn.seconds - before
                record.stalled += turn.stalled - stalled


@dataclass(frozen=True, slots=True)
class Job:
    """Something to say, and all that is needed for it."""

    visit: Visit
    hosted: Hosted
    turn: Turn
    ignored: tuple[str, ...]
    """Options that the engine doesn't know."""

    def headers(self) -> dict[str, str]:
        """What is told about the audio beside it."""
        headers = {"x-tts-engine": self.hosted.name}
        if self.ignored:
            headers["x-tts-ignored"] = ",".join(self.ignored)
        return headers


def request_id() -> str:
    return f"req-{uuid.uuid4().hex[:12]}"
