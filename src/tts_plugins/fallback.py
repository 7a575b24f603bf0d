"""Ask the next engine when one fails before its first sound.

After the first sound there is no way back: half a sentence is better than one and a half. Until
then an engine's words are held back, so all that can have gone out of it is silence. The next
engine goes on behind that silence, at the rate in which the stream began.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tts_plugins.audio.level import first_above
from tts_plugins.audio.resample import StreamResampler
from tts_plugins.engine import Engine, known_options, layers, warm_up
from tts_plugins.errors import (
    EngineError,
    EngineTimeoutError,
    InvalidRequestError,
    TTSError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.playhead import Playhead
from tts_plugins.text.words import speakable
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice, Word

logger = logging.getLogger(__name__)

_WARM_UP = 5.0
"""Seconds that an engine may take to warm up: a call that is being set up waits for the slowest."""

_SILENCE = 3.0
"""Seconds of silence that an engine may begin with, however fast it makes them: a broken one could
otherwise fill a listener's minutes before it is noticed."""

_LONGEST_REST = 10
"""Times its usual rest that an engine may rest because it asks to."""

_SETTINGS: dict[str, object] = {"voice": None, "speed": 1.0, "language": None}
"""What of a request an engine may not have, and what it then does instead."""

_QUOTED = 20
"""Characters by which a quotation of a text is recognized."""


class AllFailedError(EngineError):
    """No engine answered; ``__cause__`` holds what each of them raised.

    The same call may succeed a moment later if it may with one of them, and is in vain with every
    text only if it is with all of them.
    """

    def __init__(self, failures: Sequence[_Failure]) -> None:
        reasons = "; ".join(f"{failure.name}: {failure.reason}" for failure in failures)
        super().__init__(f"no engine could speak: {reasons}")
        hopeful = min(failures, key=lambda failure: (not failure.retryable, failure.permanent))
        self.status_code = hopeful.status_code
        self._permanent = hopeful.permanent
        self.__cause__ = ExceptionGroup("what each engine raised", [f.error for f in failures])

    @property
    def permanent(self) -> bool:
        return self._permanent


class FallbackEngine:
    """Speaks through the first of several engines that can; is itself an Engine.

    An engine that failed rests: it is asked only after those that don't, the one that is back
    first before the others. Behind its rest it is tried by one request at a time until it speaks.
    A TTSError about one text or one caller's settings is no reason to rest.

    The settings of a request are meant for the first engine. The others get no options, and use
    their own voice, their own language and their usual speed where they don't have those.

    Args:
        engines: What may speak, the best first. They are the fallback's to close.
        first_audio_within: Seconds that an engine is waited for until its first sound. For all
            engines together that should be within the patience of whoever listens: who gives
            up on one sooner never hears the next.
        rest: Seconds that an engine rests, unless it said itself when to ask again.
        clock: Monotonic time in seconds. Tests pass their own.

    Raises:
        InvalidRequestError: If there is no engine, or one of the times can't be meant.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        *,
        first_audio_within: float = 3.0,
        rest: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not engines:
            raise InvalidRequestError("a fallback needs at least one engine")
        if not first_audio_within > 0 or not rest >= 0:
            raise InvalidRequestError(
                f"no engine can be given {first_audio_within} s to speak, or a rest of {rest} s"
            )
        self._members = [_Member(engine, _name(engine)) for engine in engines]
        self._within = first_audio_within
        self._rest = rest
        self._clock = clock
        self._closed = False

    @property
    def request_options(self) -> Collection[str] | None:
        """The options that the first engine knows."""
        return known_options(self._members[0].engine)

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        """Speak.

        Raises:
            AllFailedError: If no engine gave a sound.
            UnspeakableTextError: If the engine whose turn it was found nothing to say.
            Exception: What an engine raised after its first sound.
        """
        if self._closed:
            raise EngineError("the engine was closed; open it again")
        sent = _Sent(Playhead(self._clock() + request.due))
        failures: list[_Failure] = []
        left = list(self._members)
        while left:
            member = self._choose(left)
            asked = self._request(request, member, due=sent.listener.ahead(self._clock()))
            part = _Part(sent.rate, sent.seconds)
            try:
                async with aclosing(self._speak(member, asked, part)) as chunks:
                    async for chunk in chunks:
                        sent.add(chunk, self._clock())
                        yield chunk
            except UnspeakableTextError:
                raise
            except Exception as error:
                if self._closed:
                    raise
                if not part.heard and self._lacks(member, asked, error):
                    continue  # and it is asked again
                failures.append(self._failed(member, error, request.text))
                if part.heard:
                    raise
                left.remove(member)
            else:
                return
        raise AllFailedError(failures)

    async def prewarm(self) -> None:
        """Warm the engines up, all at the same time. One that fails is logged and rests.

        One that rests is left alone, unless all do: a call that begins would wait for it in vain.

        Raises:
            AllFailedError: If none could be warmed up.
        """
        now = self._clock()
        members = [member for member in self._members if member.back_at <= now] or self._members
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._warm_up(member)) for member in members]
        failures = [failure for task in tasks if (failure := task.result())]
        if len(failures) == len(members):
            raise AllFailedError(failures)

    async def voices(self) -> Sequence[Voice]:
        """The voices of the first engine that tells.

        Raises:
            AllFailedError: If none does.
        """
        failures = []
        for member in self._members:
            try:
                async with asyncio.timeout(self._within):
                    return await member.engine.voices()
            except Exception as error:  # noqa: BLE001  an engine's own code: anything may come
                failures.append(_Failure(member.name, error, ""))
        raise AllFailedError(failures)

    async def aclose(self) -> None:
        """Close all engines, even if one fails to."""
        self._closed = True
        async with AsyncExitStack() as stack:
            for member in reversed(self._members):
                stack.push_async_callback(member.engine.aclose)

    def _choose(self, members: Sequence[_Member]) -> _Member:
        now = self._clock()
        member = min(members, key=lambda member: max(member.back_at, now))
        if -math.inf < member.back_at <= now:
            # If it hangs, one listener waits for it and not everybody who asks meanwhile.
            member.back_at = now + self._within
        return member

    def _request(self, request: SynthesisRequest, member: _Member, due: float) -> SynthesisRequest:
        if member is self._members[0]:
            return replace(request, due=due)

        def known(name: str) -> Any:
            value = getattr(request, name)
            return _SETTINGS[name] if (name, value) in member.lacks else value

        return replace(
            request,
            voice=known("voice"),
            speed=known("speed"),
            language=known("language"),
            options={},
            due=due,
        )

    async def _speak(
        self, member: _Member, request: SynthesisRequest, part: _Part
    ) -> AsyncGenerator[AudioChunk, None]:
        """What one engine makes of a request, or why it has failed."""
        back_at = member.back_at
        async with aclosing(member.engine.stream(request)) as chunks:
            while (chunk := await self._next(chunks, part)) is not None:
                out = part.push(chunk)
                if not part.heard and part.waited >= self._within:
                    raise self._too_late()
                if not part.heard and part.seconds > _SILENCE:
                    raise EngineError(f"it began with more than {_SILENCE:g} s of silence")
                if part.heard and member.back_at == back_at:
                    member.back_at = -math.inf  # well again, unless it failed others meanwhile
                if len(out.samples) or out.words:
                    yield out  # an empty one would tie the stream to a rate
        out = part.flush()
        if not part.heard and speakable(request.text):
            raise EngineError(f"it ended without a sound for {len(request.text)} characters")
        if len(out.samples) or out.words:
            yield out

    async def _next(
        self, chunks: AsyncGenerator[AudioChunk, None], part: _Part
    ) -> AudioChunk | None:
        """The engine's next chunk, None at the end."""
        began = self._clock()
        try:
            async with asyncio.timeout(None if part.heard else self._within - part.waited) as limit:
                return await anext(chunks, None)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._too_late() from None
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            # Some client libraries cancel whoever waits for a connection that they close.
            raise EngineError("it cancelled its own work") from None
        finally:
            # Not counted is the time that whoever listens takes between two chunks.
            part.waited += self._clock() - began

    def _too_late(self) -> EngineTimeoutError:
        return EngineTimeoutError(f"no sound within {self._within:g} s")

    def _lacks(self, member: _Member, asked: SynthesisRequest, error: Exception) -> bool:
        """Whether all that is wrong is a setting that was meant for another engine."""
        if member is self._members[0] or not isinstance(error, InvalidRequestError):
            return False
        kinds = ["voice"] if isinstance(error, VoiceNotFoundError) else ["speed", "language"]
        for name in kinds:
            if (value := getattr(asked, name)) != _SETTINGS[name]:
                member.lacks.add((name, value))
                return True
        return False

    def _failed(self, member: _Member, error: Exception, text: str) -> _Failure:
        failure = _Failure(member.name, error, text)
        logger.warning("%s failed: %s", failure.name, failure.reason)
        # A setting that can't be had is this caller's alone; others needn't do without the engine.
        if failure.retryable or (failure.permanent and not isinstance(error, InvalidRequestError)):
            asked_for = min(failure.retry_after, _LONGEST_REST * self._rest)
            member.back_at = self._clock() + (asked_for or self._rest)
        return failure

    async def _warm_up(self, member: _Member) -> _Failure | None:
        try:
            async with asyncio.timeout(_WARM_UP):
                await warm_up(member.engine)
        except UnspeakableTextError:  # it answers, if only in another script
            return None
        except Exception as error:  # noqa: BLE001  an engine's own code: anything may come
            return self._failed(member, error, "")
        return None


@dataclass(eq=False, slots=True)
class _Member:
    engine: Engine
    name: str
    back_at: float = -math.inf
    """When its rest is over. Long ago, if it has spoken since."""
    lacks: set[tuple[str, object]] = field(default_factory=set)
    """Settings that it was asked for and doesn't have."""


@dataclass(slots=True)
class _Sent:
    """What of a stream has gone out, whoever made it."""

    listener: Playhead
    rate: int = 0
    """Hertz; 0 before there are samples."""
    samples: int = 0

    @property
    def seconds(self) -> float:
        return self.samples / self.rate if self.rate else 0.0

    def add(self, chunk: AudioChunk, now: float) -> None:
        if len(chunk.samples):
            self.rate = chunk.sample_rate
            self.samples += len(chunk.samples)
            self.listener.add(chunk.seconds, now)


class _Failure:
    """What an engine raised, in the words of a TTSError even if it was none."""

    def __init__(self, name: str, error: Exception, text: str) -> None:
        ours = error if isinstance(error, TTSError) else TTSError()
        self.name = name
        self.error = error
        self.status_code = ours.status_code
        self.retryable = ours.retryable
        self.permanent = ours.permanent
        self.retry_after = max(0.0, getattr(ours, "retry_after", None) or 0.0)
        self.reason = _unquoted(str(ours), text).removeprefix(f"{name}: ") or type(error).__name__


def _unquoted(message: str, text: str) -> str:
    """A message up to where it quotes the text, or its beginning: who logs it must not log that."""
    before, quoted, _ = message.partition(text[:_QUOTED]) if text else (message, "", "")
    return f"{before}..." if quoted else message


class _Part:
    """One engine's part of a stream: behind what has gone out, and at the same rate.

    Args:
        rate: What the stream began with, in hertz; 0 where it begins here.
        start: Seconds that have gone out before.
    """

    def __init__(self, rate: int, start: float) -> None:
        self.waited = 0.0
        """Seconds that it was waited for."""
        self.seconds = 0.0
        """Audio so far."""
        self.heard = False
        """Whether there was a sound in it."""
        self._rate = rate
        self._start = start
        self._resampler: StreamResampler | None = None
        self._words: list[Word] = []

    def push(self, chunk: AudioChunk) -> AudioChunk:
        """Take what the engine has made; return what of it goes out."""
        self._rate = self._rate or chunk.sample_rate
        self._resampler = self._resampler or StreamResampler(chunk.sample_rate, self._rate)
        if chunk.sample_rate != self._resampler.from_rate:
            raise EngineError(
                f"it went from {self._resampler.from_rate} to {chunk.sample_rate} Hz within one"
                " utterance"
            )
        self.seconds += chunk.seconds
        self.heard = self.heard or first_above(chunk.samples) is not None
        self._words += [
            replace(word, start=self._start + word.start, end=self._start + word.end)
            for word in chunk.words
        ]
        return self._give(self._resampler.push(chunk.samples))

    def flush(self) -> AudioChunk:
        """End the audio; return what was held back."""
        return self._give(self._resampler.flush() if self._resampler else np.zeros(0, np.float32))

    def _give(self, samples: Samples) -> AudioChunk:
        words: list[Word] = []
        if self.heard:
            words, self._words = self._words, words
        return AudioChunk(samples, self._rate, tuple(words))


def _is_cancelled() -> bool:
    """Whether somebody wants the running task to end."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _name(engine: object) -> str:
    *_, innermost = layers(engine)
    return str(getattr(engine, "name", None) or type(innermost).__name__)
