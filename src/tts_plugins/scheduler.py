"""Share one in-process engine among many streams, most urgent first.

A stream is as urgent as its listener is close to silence, so each step goes to the stream whose
listener runs out of audio first. A new listener has nothing to lose yet: it is let in only when
everyone who is already listening can spare the time. Overload so becomes waiting, never stuttering.
Who doesn't take what there is can't run out of it: such a stream rests, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tts_plugins.engine import BlockingCloner, BlockingEngine
from tts_plugins.errors import EngineError, InvalidRequestError, OverloadedError, TTSError
from tts_plugins.interruption import Interruption
from tts_plugins.playhead import Playhead
from tts_plugins.types import AudioChunk, Reference, SynthesisRequest, Voice

logger = logging.getLogger(__name__)

_RECENT = 0.2
"""Weight of the newest measurement in a running mean."""

_GRACE = 1.0
"""Seconds that closing waits for steps that still run."""

_IDLE = 2.0
"""Seconds that a worker waits for work before it ends, while there are streams."""

_TICK = 0.001
"""Seconds by which a timer may come early: libuv's count whole milliseconds."""

_FIRST_LIFETIME = 3.0
"""Seconds that a stream is taken to last until one has been measured."""

_Outcome = AudioChunk | BaseException | None


class Load(NamedTuple):
    """How many listeners a scheduler has."""

    open: int
    """Streams that haven't ended, of which max_streams are allowed."""

    waiting: int
    """Those of them that have had no audio yet."""


@dataclass(eq=False, slots=True)
class _Stream:
    """One request on its way through the engine. Guarded by the scheduler's lock."""

    request: SynthesisRequest
    playhead: Playhead
    loop: asyncio.AbstractEventLoop
    opened_at: float
    urgent: bool
    """Whether its listener is in the middle of something, and would hear a gap."""
    outcomes: asyncio.Queue[_Outcome] = field(default_factory=asyncio.Queue)
    chunks: Iterator[AudioChunk] | None = None
    interruption: Interruption = field(default_factory=Interruption)
    stepping: bool = False
    closed: bool = False
    made: float = 0.0
    """Seconds of audio posted."""
    taken: float = 0.0
    """Seconds of it that the consumer has asked for. Written by the consumer alone, without the
    lock, for which the event loop would often wait: a worker holds it while it wakes that loop."""
    held: bool = False
    """Whether it rests until its consumer takes more. Written on the consumer's loop alone."""

    @property
    def untaken(self) -> float:
        """Seconds of audio that wait for the consumer; elsewhere than on its loop, at most."""
        return self.made - self.taken


class Scheduler:
    """Runs a BlockingEngine on worker threads; is itself an Engine.

    Streams may belong to different event loops. While nobody speaks there is no thread. Behind an
    engine slower than real time, where nobody ever has audio to spare, a new stream waits until
    those before it have been computed.

    Args:
        engine: The engine to share. It is the scheduler's to close.
        workers: Steps that may run at the same time.
        max_streams: Streams open at once before OverloadedError.
        max_ahead: Seconds of unheard audio after which a stream rests: the most that a barge-in
            throws away, and that waits for a consumer who takes nothing. ``math.inf`` computes as
            fast as it can, for writing to a file; so does a request whose ``due`` is infinite,
            whenever nobody who listens needs a step.
        guard: Seconds of audio that everyone listening must have left for a new stream to begin,
            beyond what its first step and those of the others will make them wait.
        hang_after: Seconds after which a step for a stream that is closed already is taken to
            hang. Its worker is then replaced, and the step left to itself.
        clock: Monotonic time in seconds. Tests pass their own.
    """

    def __init__(
        self,
        engine: BlockingEngine,
        *,
        workers: int = 1,
        max_streams: int = 256,
        max_ahead: float = 3.0,
        guard: float = 0.2,
        hang_after: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._max_streams = max_streams
        self._max_ahead = max_ahead
        self._guard = guard
        self._hang_after = hang_after
        self._clock = clock
        self._lock = threading.Lock()
        self._work_is_there = threading.Condition(self._lock)
        self._open: set[_Stream] = set()
        self._ready: list[_Stream] = []
        self._ended: deque[_Stream] = deque()
        self._threads: set[threading.Thread] = set()
        self._busy: dict[threading.Thread, tuple[_Stream, float]] = {}
        """What each worker does, and since when."""
        self._first_step = self._later_step = 0.0
        self._lifetime = _FIRST_LIFETIME
        self._closed = False
        _alive.add(self)

    @property
    def engine(self) -> BlockingEngine:
        """What is shared."""
        return self._engine

    @property
    def load(self) -> Load:
        """Who is served now."""
        with self._lock:
            return Load(len(self._open), sum(not stream.made for stream in self._open))

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        stream = self._enter(request)
        try:
            while (outcome := await self._outcome(stream)) is not None:
                if isinstance(outcome, BaseException):
                    raise outcome
                stream.taken += outcome.seconds
                if stream.held:
                    self._wake(stream)
                yield outcome
        finally:
            # Nothing is awaited here: a barge-in waits for this block. A step that is running
            # ends unheard on its thread: early, if the engine knows how.
            with self._lock:
                self._leave(stream)

    async def voices(self) -> Sequence[Voice]:
        if self.can_clone:  # they are on a disk
            return await asyncio.to_thread(self._engine.voices)
        return self._engine.voices()

    @property
    def can_clone(self) -> bool:
        """Whether the engine learns voices."""
        return isinstance(self._engine, BlockingCloner) and getattr(self._engine, "can_clone", True)

    async def clone(self, name: str, reference: Reference, *, transcript: str = "") -> Voice:
        """Have the engine learn a voice, beside what it speaks meanwhile; see VoiceCloner.

        Whoever is cancelled doesn't wait for it: it is learnt all the same.

        Raises:
            InvalidRequestError: If it can't, or not from that.
            EngineError: If it fails.
        """
        engine = self._cloner()
        with _as_engine_errors(transcript):
            return await asyncio.to_thread(engine.clone, name, reference, transcript=transcript)

    async def forget(self, voice: str) -> None:
        """Have the engine forget a voice that it learnt. Streams that have begun keep it.

        Raises:
            VoiceNotFoundError: If it learnt none of that name.
            EngineError: If it fails.
        """
        engine = self._cloner()
        with _as_engine_errors():
            await asyncio.to_thread(engine.forget, voice)

    @property
    def can_rename(self) -> bool:
        """Whether the engine gives other names to the voices that it learnt."""
        return self.can_clone and hasattr(self._engine, "rename")

    async def rename(self, voice: str, new: str) -> Voice:
        """Have the engine call a voice that it learnt otherwise.

        Raises:
            VoiceNotFoundError: If it learnt none of that name.
            InvalidRequestError: If it can't, or the new name can't be one, or is taken.
            EngineError: If it fails.
        """
        engine = self._cloner()
        rename: Callable[[str, str], Voice] | None = getattr(engine, "rename", None)
        if rename is None:
            raise InvalidRequestError(f"{type(engine).__name__} can't rename voices")
        with _as_engine_errors():
            return await asyncio.to_thread(rename, voice, new)

    def _cloner(self) -> BlockingCloner:
        if not (isinstance(self._engine, BlockingCloner) and self.can_clone):
            raise InvalidRequestError(f"{type(self._engine).__name__} can't clone voices")
        if self._closed:
            raise EngineError("the engine was closed; open it again")
        return self._engine

    async def aclose(self) -> None:
        """End all streams and close the engine, once the steps that run are over."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Like aclose, for a caller without an event loop; blocks for a step, or for a second."""
        if self._end_streams():
            self._close_engine(time.monotonic() + _GRACE)

    def _end_streams(self) -> bool:
        """Begin to close; return whether that was still to do."""
        with self._lock:
            if self._closed:
                return False
            self._closed = True
            for stream in list(self._open):
                self._post(stream, EngineError("the engine was closed"))
                self._leave(stream)
            return True

    def _close_engine(self, deadline: float) -> None:
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        self._engine.close()

    def expected_wait(self) -> float:
        """Seconds until a place should be free for one more stream; 0 when one is."""
        over = len(self._open) + 1 - self._max_streams
        # Little's law: with n streams that last t seconds each, one ends every t / n.
        return max(0, over) * self._lifetime / self._max_streams

    def choose(self, now: float) -> _Stream | None:
        """The stream that takes the next step, or None if none is ready."""
        listening = [stream for stream in self._ready if stream.urgent]
        waiting = [stream for stream in self._ready if not stream.urgent]
        if waiting and (not listening or self._spare(now) >= self._guard):
            return min(waiting, key=_dry_at)
        return min(listening, key=_dry_at, default=None)

    def _spare(self, now: float) -> float:
        """Seconds that the neediest listener would have left if a new stream began now.

        Its first step delays them only if it takes the last worker. Then they are served, the
        first to run dry first, so the n-th waits for n steps.
        """
        dry = sorted(s.playhead.dry_at for s in self._open if s.urgent and not s.held)
        beginning = sum(not stream.urgent for stream, _ in self._busy.values())
        delay = self._first_step if beginning + 1 >= self._workers else 0.0
        each = self._later_step / self._workers
        return min((at - delay - n * each for n, at in enumerate(dry, 1)), default=math.inf) - now

    def _enter(self, request: SynthesisRequest) -> _Stream:
        now = self._clock()
        stream = _Stream(
            request,
            Playhead(now + request.due),
            asyncio.get_running_loop(),
            opened_at=now,
            urgent=request.due > 0,
        )
        with self._lock:
            if self._closed:
                raise EngineError("the engine was closed; open it again")
            for gone in [other for other in self._open if other.loop.is_closed()]:
                self._leave(gone)
            if len(self._open) >= self._max_streams:
                wait = self.expected_wait()
                raise OverloadedError(
                    f"all {self._max_streams} streams are in use; one is expected in {wait:.1f} s",
                    retry_after=wait,
                )
            self._open.add(stream)
            self._ready.append(stream)
            self._hire()
            if not self._threads:
                self._leave(stream)
                raise EngineError("no thread could be started to speak with")
        return stream

    async def _outcome(self, stream: _Stream) -> _Outcome:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._hang_after):
                    return await stream.outcomes.get()
            # Somebody who waits for so long looks whether a hanging engine is the reason.
            with self._lock:
                self._hire()

    def _leave(self, stream: _Stream) -> None:
        if stream.closed:
            return
        stream.closed = True
        self._open.discard(stream)
        if not self._open:
            self._work_is_there.notify_all()
        self._lifetime = _mean(self._lifetime, self._clock() - stream.opened_at)
        if stream in self._ready:
            self._ready.remove(stream)
        if stream.stepping:
            # Its worker closes the generator after that.
            stream.interruption.interrupt()
        elif stream.chunks is not None:
            self._ended.append(stream)
            self._hire()

    def _post(self, stream: _Stream, outcome: _Outcome, rest: float | None = None) -> None:
        """Hand a result to the listener's event loop, and for how long the stream rests."""
        try:
            stream.loop.call_soon_threadsafe(self._arrive, stream, outcome, rest)
        except RuntimeError:  # that loop is closed, so nobody is left to close the stream
            self._leave(stream)

    def _arrive(self, stream: _Stream, outcome: _Outcome, rest: float | None) -> None:
        stream.outcomes.put_nowait(outcome)
        self._rest(stream, rest)

    def _hire(self) -> None:
        """Have a worker do what none of those who run will take at once.

        While somebody is served, one who has nothing to do waits, since to start another for each
        chunk of streams that rest in between costs as much as all else here. They are daemons, so
        that an engine that hangs doesn't keep the process from ending.
        """
        self._strike_off()
        self._work_is_there.notify()
        work = len(self._busy) + len(self._ready) + len(self._ended)
        if len(self._threads) < min(self._workers, work):
            thread = threading.Thread(target=self._work, name="tts-engine", daemon=True)
            try:
                thread.start()  # and waits for the lock that is held here
            except RuntimeError:
                logger.exception("no further thread for an engine")
            else:
                self._threads.add(thread)

    def _strike_off(self) -> None:
        """Go on without workers that hang in an engine, for nobody any more.

        Such an engine must not take everybody else's voice with it. Whoever is struck off finds
        out when the engine lets go of them, and ends.
        """
        latest = self._clock() - self._hang_after
        for worker, (stream, since) in list(self._busy.items()):
            if stream.closed and since <= latest:
                logger.warning("an engine hangs; going on without its thread")
                self._threads.discard(worker)
                del self._busy[worker]

    def _work(self) -> None:
        me = threading.current_thread()
        while True:
            with self._lock:
                self._busy.pop(me, None)
                stream = self._take() if me in self._threads else None
                if stream is None and self._open and me in self._threads:
                    self._work_is_there.wait(_IDLE)
                    stream = self._take() if me in self._threads else None
                if stream is None:
                    self._threads.discard(me)
                    return
                self._busy[me] = (stream, self._clock())
            if stream.stepping:
                self._step(stream)
            else:
                _close(stream.chunks)

    def _take(self) -> _Stream | None:
        """What to work for next: a stream to close, or one to take a step for."""
        if self._ended:
            return self._ended.popleft()
        stream = None if self._closed else self.choose(self._clock())
        if stream is not None:
            self._ready.remove(stream)
            stream.stepping = True
        return stream

    def _step(self, stream: _Stream) -> None:
        began = self._clock()
        outcome: _Outcome
        try:
            with stream.interruption.concerns():
                if stream.chunks is None:
                    stream.chunks = iter(self._engine.synthesize(stream.request))
                outcome = _next(stream.chunks)
        except TTSError as error:
            outcome = error
        except BaseException as error:  # noqa: BLE001  an engine's own code: anything may come
            outcome = _wrapped(error, stream.request.text)
        now = self._clock()
        rest = None
        with self._lock:
            stream.stepping = False
            chunks, over = stream.chunks, stream.closed
            if not isinstance(outcome, AudioChunk):
                stream.chunks, over = None, True
                stream.urgent = False
            elif not over:
                self._account(stream, outcome, began, now)
                rest = self._continue(stream, now)
            if not stream.closed:
                self._post(stream, outcome, rest)
        if over:
            _close(chunks)

    def _account(self, stream: _Stream, chunk: AudioChunk, began: float, now: float) -> None:
        cost = now - began
        if stream.urgent:
            self._later_step = _mean(self._later_step, cost)
        else:
            self._first_step = _mean(self._first_step, cost)
        stream.urgent = True
        stream.made += chunk.seconds
        stream.playhead.add(chunk.seconds, now)

    def _continue(self, stream: _Stream, now: float) -> float | None:
        """Let a stream take its next step; or return the seconds after which to look again.

        Those are 0 at least for one whose consumer hasn't caught up: whether it has is for the
        consumer's loop to say, lest a take pass unnoticed.
        """
        ahead = stream.playhead.ahead(now)
        rest = 0.0 if ahead == math.inf else ahead - self._max_ahead
        if rest > 0 or stream.untaken > self._max_ahead:
            return max(0.0, rest)
        self._ready.append(stream)
        self._hire()
        return None

    def _rest(self, stream: _Stream, seconds: float | None) -> None:
        """On the consumer's loop: look again later, by a clock that may be a little fast."""
        if seconds is not None:
            stream.loop.call_later(seconds and seconds + _TICK, self._wake, stream)

    def _wake(self, stream: _Stream) -> None:
        """On the consumer's loop: go on, or wait until more has been taken."""
        with self._lock:
            now = self._clock()
            stream.playhead.keep(stream.untaken, now)
            stream.held = stream.untaken > self._max_ahead
            if not stream.held and not stream.closed:
                self._rest(stream, self._continue(stream, now))


def _mean(mean: float, value: float) -> float:
    """A running mean, 0 before the first measurement, with one more."""
    return mean + (_RECENT if mean else 1) * (value - mean)


def _dry_at(stream: _Stream) -> float:
    return stream.playhead.dry_at


def _next(chunks: Iterator[AudioChunk]) -> AudioChunk | None:
    """The next chunk, None at the end; what isn't one is refused before anybody hears it."""
    for chunk in chunks:
        if not isinstance(chunk, AudioChunk):
            raise TypeError(f"an engine yields AudioChunk, not {type(chunk).__name__}")
        if chunk.samples.dtype != np.float32 or chunk.samples.ndim != 1 or chunk.sample_rate <= 0:
            raise TypeError(
                f"a chunk has float32 samples of shape [n] and a rate, not {chunk.samples.dtype}"
                f" of shape {list(chunk.samples.shape)} at {chunk.sample_rate} Hz"
            )
        return chunk
    return None


def _wrapped(error: BaseException, text: str) -> EngineError:
    # Whoever logs the error must not log what was to be said.
    reason = str(error).replace(text, "...") if text else str(error)
    wrapped = EngineError(f"{type(error).__name__}: {reason}")
    wrapped.__cause__ = error
    return wrapped


@contextmanager
def _as_engine_errors(text: str = "") -> Generator[None, None, None]:
    """Around an engine's own code, on a thread that isn't a worker's."""
    try:
        yield
    except TTSError:
        raise
    except Exception as error:
        raise _wrapped(error, text) from error


def _close(chunks: Iterator[AudioChunk] | None) -> None:
    try:
        if isinstance(chunks, Generator):
            chunks.close()
    except BaseException:  # as in _step; and there is nobody left to tell
        logger.exception("an engine failed while it closed a stream")


_alive: weakref.WeakSet[Scheduler] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Let no step run into the interpreter's end, where native code may crash."""
    ending = [scheduler for scheduler in list(_alive) if scheduler._end_streams()]
    deadline = time.monotonic() + _GRACE
    for scheduler in ending:
        try:
            scheduler._close_engine(deadline)
        except Exception:  # an engine's own code: anything may come
            logger.exception("an engine failed to close")


def _start_anew() -> None:
    """In the child of a fork there are no threads, and nobody who listened is here."""
    for scheduler in list(_alive):
        scheduler._lock = threading.Lock()
        scheduler._work_is_there = threading.Condition(scheduler._lock)
        for kept in (scheduler._open, scheduler._threads, scheduler._busy):
            kept.clear()
        scheduler._ready.clear()
        scheduler._ended.clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_start_anew)
