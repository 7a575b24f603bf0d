"""The scheduler: who is served next, who waits, and what a closed stream leaves behind."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.server.cloner import Parrot, recording
from tts_plugins.engine import VoiceCloner, cloner
from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    OverloadedError,
    VoiceNotFoundError,
)
from tts_plugins.scheduler import Scheduler, _start_anew
from tts_plugins.timing import TimedEngine
from tts_plugins.types import AudioChunk, Reference, SynthesisRequest, Voice

RATE = 1000


class SpyEngine:
    """Steps when it is told to, writes down whose step it was.

    The text of a request is ``name`` or ``name:chunks``; a chunk is ``seconds`` long.
    """

    def __init__(self, *, seconds: float = 0.5, before: Callable[[str], None] = lambda _: None):
        self.steps: list[str] = []
        self.closed: list[str] = []
        self.shut = False
        self.most_at_once = 0
        self._seconds = seconds
        self._before = before
        self._now = 0
        self._lock = threading.Lock()

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        name, _, count = request.text.partition(":")
        try:
            for _ in range(int(count or 4)):
                with self._lock:
                    self._now += 1
                    self.most_at_once = max(self.most_at_once, self._now)
                    self.steps.append(name)
                self._before(name)
                with self._lock:
                    self._now -= 1
                yield AudioChunk(np.zeros(int(self._seconds * RATE), np.float32), RATE)
        finally:
            self.closed.append(name)

    def voices(self) -> Sequence[Voice]:
        return [Voice("spy", "und")]

    def close(self) -> None:
        self.shut = True


async def drain(scheduler: Scheduler, text: str, due: float = 0.0) -> int:
    count = 0
    async with aclosing(scheduler.stream(SynthesisRequest(text, due=due))) as chunks:
        async for _ in chunks:
            count += 1
    return count


class Turnstile:
    """Lets one step through at a time, so that a test decides when each one happens."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.pass_ = threading.Semaphore(0)

    def __call__(self, name: str) -> None:
        self.arrived.release()
        self.pass_.acquire()

    async def hold(self) -> None:
        """Wait until a step stands before the turnstile."""
        assert await asyncio.to_thread(self.arrived.acquire, timeout=5)

    def open(self) -> None:
        self.pass_.release(10_000)


async def order_of(requests: list[tuple[str, float]], *, guard: float, seconds: float) -> str:
    """The order of steps when all requests stand in line before the first step ends."""
    gate = Turnstile()
    engine = SpyEngine(seconds=seconds, before=gate)
    scheduler = Scheduler(engine, guard=guard, max_ahead=math.inf, clock=lambda: 100.0)
    first = asyncio.create_task(drain(scheduler, "a"))
    await gate.hold()
    others = [asyncio.create_task(drain(scheduler, *request)) for request in requests]
    await asyncio.sleep(0)
    gate.open()
    await asyncio.gather(first, *others)
    await scheduler.aclose()
    return "".join(engine.steps)


async def test_a_new_stream_is_let_in_when_everyone_has_audio_to_spare() -> None:
    # After one step "a" has half a second, more than the guard, so "b" begins; from then on
    # whoever runs dry first is next.
    assert await order_of([("b", 0.0)], guard=0.3, seconds=0.5) == "abababab"


async def test_a_new_stream_waits_while_someone_has_less_than_the_guard() -> None:
    # "a" has 0.2 s after one step and 0.4 s after two.
    assert await order_of([("b", 0.0)], guard=0.3, seconds=0.2) == "aabbabab"


async def test_a_listener_in_the_middle_of_a_turn_comes_by_when_it_runs_dry() -> None:
    # "c" still has a second of its last sentence to hear: it is served when "a" has more.
    assert await order_of([("c", 1.0)], guard=0.3, seconds=0.4) == "aaacaccc"


async def test_new_streams_are_let_in_in_the_order_of_their_coming() -> None:
    order = await order_of([("b", 0.0), ("c", 0.0), ("d", 0.0)], guard=0.3, seconds=0.5)
    assert order[:4] == "abcd"


class Costs:
    """A clock by which steps last as long as a test wants."""

    def __init__(self, **seconds: float) -> None:
        self.now = 100.0
        self.seconds = seconds
        self.seen: set[str] = set()

    def __call__(self) -> float:
        return self.now

    def step(self, name: str) -> None:
        self.now += self.seconds["later" if name in self.seen else "first"]
        self.seen.add(name)


async def test_a_new_stream_waits_until_everyone_can_wait_for_everyone() -> None:
    clock, gate = Costs(first=0.1, later=0.2), Turnstile()

    def before(name: str) -> None:
        gate(name)
        clock.step(name)

    engine = SpyEngine(seconds=0.6, before=before)
    scheduler = Scheduler(engine, guard=0.05, max_ahead=math.inf, clock=clock)
    known = asyncio.create_task(drain(scheduler, "known"))
    await gate.hold()
    gate.pass_.release(4)
    await known
    tasks = [asyncio.create_task(drain(scheduler, name)) for name in "abcd"]
    await gate.hold()
    gate.open()
    await asyncio.gather(*tasks)
    await scheduler.aclose()
    # After three first steps "a" has 0.4 s left, enough for one of "d" and one of its own; but "b",
    # with 0.5 s, would have to wait for three.
    assert "".join(engine.steps[4:]).index("d") > 6


async def test_a_new_stream_costs_those_who_listen_nothing_while_a_worker_is_left() -> None:
    clock = Costs(first=3.0, later=0.0)
    engine = SpyEngine(before=clock.step)
    scheduler = Scheduler(engine, workers=2, max_ahead=math.inf, clock=clock)
    assert await drain(scheduler, "known") == 4

    gates = {name: Turnstile() for name in "abcd"}
    engine._before = lambda name: gates[name](name)
    tasks = []
    for name in "ab":
        tasks.append(asyncio.create_task(drain(scheduler, name)))
        await gates[name].hold()
        gates[name].pass_.release()
        await gates[name].hold()
    tasks += [asyncio.create_task(drain(scheduler, name)) for name in "cd"]
    await asyncio.sleep(0)
    # Both have less to hear than a first step takes. While one worker takes that for "c", the
    # other one is there for them; so it mustn't take "d".
    gates["a"].pass_.release()
    await gates["c"].hold()
    gates["b"].pass_.release()
    await gates["a"].hold()
    assert "d" not in engine.steps
    for gate in gates.values():
        gate.open()
    await asyncio.gather(*tasks)
    await scheduler.aclose()


async def test_no_more_steps_at_once_than_workers() -> None:
    barrier = threading.Barrier(2)

    def together(name: str) -> None:
        barrier.wait(5)  # breaks unless two steps really run at once

    engine = SpyEngine(before=together)
    scheduler = Scheduler(engine, workers=2, max_ahead=math.inf)
    counts = await asyncio.gather(drain(scheduler, "a"), drain(scheduler, "b"))
    assert list(counts) == [4, 4]
    await scheduler.aclose()
    assert engine.most_at_once == 2


async def test_one_worker_never_steps_twice_at_once() -> None:
    engine = SpyEngine()
    scheduler = Scheduler(engine, max_ahead=math.inf)
    await asyncio.gather(*(drain(scheduler, f"{n}:9") for n in range(20)))
    await scheduler.aclose()
    assert engine.most_at_once == 1
    assert len(engine.steps) == 180
    assert len(engine.closed) == 20


async def test_a_cancelled_caller_doesnt_wait_for_the_step() -> None:
    gate = Turnstile()
    engine = SpyEngine(before=gate)
    scheduler = Scheduler(engine)
    task = asyncio.create_task(drain(scheduler, "a"))
    await gate.hold()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task  # returns though the step still stands before the turnstile
    assert engine.closed == []
    gate.open()
    assert await drain(scheduler, "b") == 4
    await scheduler.aclose()
    assert engine.steps == ["a", "b", "b", "b", "b"]
    assert engine.closed == ["a", "b"]


async def test_a_closed_stream_frees_its_place_at_once() -> None:
    gate = Turnstile()
    engine = SpyEngine(before=gate)
    scheduler = Scheduler(engine, max_streams=1)
    task = asyncio.create_task(drain(scheduler, "a"))
    await gate.hold()
    with pytest.raises(OverloadedError):
        await drain(scheduler, "b")
    task.cancel()
    await asyncio.wait([task])
    gate.open()
    assert await drain(scheduler, "c") == 4
    await scheduler.aclose()


async def test_a_stream_that_is_closed_between_steps_is_closed_in_the_engine() -> None:
    engine = SpyEngine()
    scheduler = Scheduler(engine, max_ahead=0.4)
    chunks = scheduler.stream(SynthesisRequest("a:100"))
    await anext(chunks)
    await chunks.aclose()
    await scheduler.aclose()
    assert engine.closed == ["a"]
    assert len(engine.steps) <= 2


async def test_overload_says_how_long_it_will_last() -> None:
    now = [0.0]
    scheduler = Scheduler(SpyEngine(), max_streams=2, clock=lambda: now[0])
    a, b = (scheduler.stream(SynthesisRequest(name)) for name in "ab")
    await anext(a)
    await anext(b)
    with pytest.raises(OverloadedError, match="all 2 streams are in use") as refusal:
        await drain(scheduler, "c")
    assert refusal.value.status_code == 429
    assert refusal.value.retryable
    assert refusal.value.retry_after == 1.5  # two streams of three seconds: one ends every 1.5 s
    await a.aclose()
    await b.aclose()
    assert scheduler.expected_wait() == 0
    await scheduler.aclose()


async def test_a_stream_rests_when_it_is_far_enough_ahead() -> None:
    engine = SpyEngine(seconds=0.5)
    now = [0.0]
    scheduler = Scheduler(engine, max_ahead=1.0, clock=lambda: now[0])
    async with aclosing(scheduler.stream(SynthesisRequest("a:100"))) as chunks:
        for _ in range(3):
            await anext(chunks)
        resting = asyncio.ensure_future(anext(chunks))
        await asyncio.wait([resting], timeout=0.02)
        assert len(engine.steps) == 3  # 1.5 s ahead of a clock that stands still
        now[0] = 10.0
        await resting
        assert len(engine.steps) >= 4
    await scheduler.aclose()


# Consumers that don't take their audio


class Stalled:
    """A stream "a" that rests for its consumer, who has taken one chunk of four.

    Chunks are 0.5 s: more than a second waits. A listener would have heard it all.
    """

    def __init__(self, chunks: int) -> None:
        self.gate = Turnstile()
        self.engine = SpyEngine(seconds=0.5, before=self.gate)
        self.now = 100.0
        self.scheduler = Scheduler(self.engine, max_ahead=1.0, clock=lambda: self.now)
        self.chunks = self.scheduler.stream(SynthesisRequest(f"a:{chunks}"))

    async def step(self) -> None:
        """Let the next step end, when everybody has run dry."""
        await self.gate.hold()
        self.now += 100.0
        self.gate.pass_.release()


@asynccontextmanager
async def stall(chunks: int = 100) -> AsyncGenerator[Stalled, None]:
    stalled = Stalled(chunks)
    gate = stalled.gate
    try:
        first = asyncio.ensure_future(anext(stalled.chunks))
        await gate.hold()
        gate.pass_.release()  # costs nothing by the clock
        for _ in range(3):
            await stalled.step()
        await first
        other = asyncio.create_task(drain(stalled.scheduler, "b:1"))
        await gate.hold()
        assert stalled.engine.steps == [*"aaaab"]
        gate.pass_.release()
        await asyncio.wait_for(other, 5)
        stalled.now += 100.0
        stalled.scheduler._later_step = 0.0  # time has passed, but not because a step took long
        yield stalled
    finally:
        gate.open()
        await stalled.chunks.aclose()
        await stalled.scheduler.aclose()


async def test_a_stream_rests_while_its_consumer_takes_nothing() -> None:
    async with stall() as stalled:
        stalled.gate.open()
        for _ in range(5):
            stalled.now += 100.0
            assert await drain(stalled.scheduler, "b:1") == 1  # is let in, and served
        assert "".join(stalled.engine.steps) == "aaaabbbbbb"


async def test_a_stream_goes_on_once_its_consumer_does() -> None:
    async with stall(chunks=9) as stalled:
        for _ in range(5):
            await anext(stalled.chunks)
            await stalled.step()
        assert "".join(stalled.engine.steps) == "aaaabaaaaa"
        assert len([chunk async for chunk in stalled.chunks]) == 3


async def test_nobody_is_kept_waiting_by_a_stream_whose_consumer_takes_nothing() -> None:
    async with stall() as stalled:
        others = [asyncio.create_task(drain(stalled.scheduler, "c:2"))]
        await stalled.gate.hold()
        others.append(asyncio.create_task(drain(stalled.scheduler, "d:2")))
        await asyncio.sleep(0)
        stalled.gate.open()
        await asyncio.gather(*others)
        assert "".join(stalled.engine.steps) == "aaaabcdcd"  # "c" can spare the time for "d"


async def test_who_hasnt_taken_what_there_is_comes_by_after_those_who_have() -> None:
    async with stall() as stalled:
        other = asyncio.create_task(drain(stalled.scheduler, "c:2"))
        await stalled.gate.hold()
        await anext(stalled.chunks)  # "a" goes on, but a second is left for it
        stalled.gate.open()
        await other
        assert "".join(stalled.engine.steps)[:7] == "aaaabcc"


async def test_a_stream_that_rests_for_its_consumer_is_closed_in_the_engine() -> None:
    async with stall() as stalled:
        pass
    assert stalled.engine.closed == ["b", "a"]
    assert stalled.scheduler.load == (0, 0)


async def test_closing_ends_a_stream_that_rests_for_its_consumer() -> None:
    async with stall() as stalled:
        await stalled.scheduler.aclose()
        with pytest.raises(EngineError, match="closed"):
            [chunk async for chunk in stalled.chunks]
        assert stalled.engine.closed == ["b", "a"]


async def test_without_a_limit_all_is_computed_for_a_consumer_who_takes_nothing() -> None:
    gate = Turnstile()
    gate.open()
    scheduler = Scheduler(SpyEngine(before=gate), max_ahead=math.inf)
    async with aclosing(scheduler.stream(SynthesisRequest("a:100"))) as chunks:
        await anext(chunks)
        for _ in range(100):
            await gate.hold()
    await scheduler.aclose()


async def test_the_load_is_how_many_streams_are_open_and_how_many_have_no_audio_yet() -> None:
    gate = Turnstile()
    scheduler = Scheduler(SpyEngine(before=gate), max_ahead=math.inf)
    assert scheduler.load == (0, 0)
    chunks = scheduler.stream(SynthesisRequest("a"))
    first = asyncio.ensure_future(anext(chunks))
    await gate.hold()
    other = asyncio.create_task(drain(scheduler, "b", due=1.0))
    await asyncio.sleep(0)
    assert scheduler.load == (2, 2)
    gate.pass_.release()
    await first
    assert (scheduler.load.open, scheduler.load.waiting) == (2, 1)
    gate.open()
    await other
    await chunks.aclose()
    assert scheduler.load == (0, 0)
    await scheduler.aclose()


# Failures


async def test_a_failing_engine_becomes_an_engine_error_with_its_cause() -> None:
    def fail(name: str) -> None:
        if name == "bad":
            raise RuntimeError("no luck")

    scheduler = Scheduler(SpyEngine(before=fail))
    with pytest.raises(EngineError, match="RuntimeError: no luck") as failure:
        await drain(scheduler, "bad")
    assert isinstance(failure.value.__cause__, RuntimeError)
    assert await drain(scheduler, "good") == 4
    await scheduler.aclose()


async def test_what_was_to_be_said_is_not_in_the_message_of_an_error() -> None:
    def fail(name: str) -> None:
        raise ValueError(f"can't say {name!r}")

    scheduler = Scheduler(SpyEngine(before=fail))
    with pytest.raises(EngineError, match=r"^ValueError: can't say '\.\.\.'$"):
        await drain(scheduler, "my secret")
    await scheduler.aclose()


async def test_an_engine_that_hangs_costs_one_thread_and_nobody_elses_voice() -> None:
    forever = threading.Event()
    hanging = threading.Event()

    def hang(name: str) -> None:
        if name == "hang":
            hanging.set()
            forever.wait(10)

    engine = SpyEngine(before=hang)
    scheduler = Scheduler(engine, hang_after=0.01)
    task = asyncio.create_task(drain(scheduler, "hang"))
    assert await asyncio.to_thread(hanging.wait, 5)
    task.cancel()
    await asyncio.wait([task])
    assert await asyncio.wait_for(drain(scheduler, "b"), 5) == 4
    forever.set()
    await scheduler.aclose()
    assert engine.steps == ["hang", "b", "b", "b", "b"]


async def test_closing_the_scheduler_ends_its_streams_with_an_error() -> None:
    engine = SpyEngine()
    scheduler = Scheduler(engine, max_ahead=0.4)
    chunks = scheduler.stream(SynthesisRequest("a:100"))
    await anext(chunks)
    await scheduler.aclose()
    with pytest.raises(EngineError, match="closed"):
        [chunk async for chunk in chunks]
    assert engine.shut
    with pytest.raises(EngineError, match="open it again"):
        await drain(scheduler, "b")
    await scheduler.aclose()


def test_streams_of_several_event_loops_share_one_scheduler() -> None:
    scheduler = Scheduler(SpyEngine(), max_ahead=math.inf)
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: counts.append(asyncio.run(drain(scheduler, f"{n}:5"))))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    scheduler.close()
    assert counts == [5, 5, 5, 5]


def test_a_listener_whose_event_loop_is_gone_gives_its_place_back() -> None:
    gate = Turnstile()
    scheduler = Scheduler(SpyEngine(before=gate), max_streams=1)
    loop = asyncio.new_event_loop()
    chunks = scheduler.stream(SynthesisRequest("a:100"))
    waiting = loop.create_task(anext(chunks))
    loop.call_later(0, loop.stop)
    loop.run_forever()
    waiting.cancel()
    loop.run_until_complete(asyncio.wait([waiting]))
    loop.close()
    del chunks, waiting
    gc.collect()
    gate.open()
    assert asyncio.run(drain(scheduler, "b")) == 4
    scheduler.close()


async def test_a_stream_that_rests_comes_back_to_the_same_thread_which_ends_with_it() -> None:
    threads: list[threading.Thread] = []
    engine = SpyEngine(seconds=0.02, before=lambda _: threads.append(threading.current_thread()))
    scheduler = Scheduler(engine, max_ahead=0.01)
    assert await drain(scheduler, "a:8") == 8
    assert len(threads) == 8
    assert len(set(threads)) == 1
    await asyncio.to_thread(threads[0].join, 1.0)
    assert not threads[0].is_alive()
    await scheduler.aclose()


async def test_interrupted_streams_leave_no_thread_and_no_stream_behind() -> None:
    engine = SpyEngine(seconds=0.01)
    scheduler = Scheduler(engine, max_ahead=math.inf)
    for n in range(200):
        chunks = scheduler.stream(SynthesisRequest(f"{n}:1000"))
        await anext(chunks)
        await chunks.aclose()
    await drain(scheduler, "last")
    await scheduler.aclose()
    assert len(engine.closed) == 201
    assert not [thread for thread in threading.enumerate() if thread.name == "tts-engine"]


@pytest.mark.parametrize("turns_of_the_loop", range(12))
async def test_cancellation_at_every_await_leaves_the_next_stream_whole(
    turns_of_the_loop: int,
) -> None:
    engine = SpyEngine(seconds=0.1)
    scheduler = Scheduler(engine, max_streams=1, max_ahead=math.inf)
    task = asyncio.create_task(drain(scheduler, "a"))
    for _ in range(turns_of_the_loop):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert await drain(scheduler, "b") == 4
    await scheduler.aclose()


# Engines that don't keep the contract


class Odd:
    """Gives what it is told to for the text "odd", and a good chunk for every other."""

    def __init__(self, synthesize: Callable[[], object]) -> None:
        self._synthesize = synthesize

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        if request.text == "odd":
            return self._synthesize()  # type: ignore[return-value]
        return (chunk for chunk in [AudioChunk(np.zeros(10, np.float32), RATE)])

    def voices(self) -> Sequence[Voice]:
        return []

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "chunk",
    [
        AudioChunk(np.zeros(10, np.float32), 0),
        AudioChunk(np.zeros(10, np.int16), RATE),
        AudioChunk(np.zeros((10, 2), np.float32), RATE),
        AudioChunk(np.float32(0), RATE),  # type: ignore[arg-type]
        AudioChunk(None, RATE),  # type: ignore[arg-type]
        np.zeros(10, np.float32),
        ValueError("yielded"),
        None,
    ],
    ids=repr,
)
async def test_what_is_no_chunk_is_an_error_and_the_next_stream_is_whole(chunk: object) -> None:
    closed = []

    def one() -> Generator[object, None, None]:
        try:
            yield chunk
            yield chunk
        finally:
            closed.append(True)

    scheduler = Scheduler(Odd(one))
    with pytest.raises(EngineError):
        await drain(scheduler, "odd")
    assert await drain(scheduler, "good") == 1
    await scheduler.aclose()
    assert closed == [True]


@pytest.mark.parametrize("returned", [None, 7])
async def test_what_is_no_generator_is_an_error(returned: object) -> None:
    scheduler = Scheduler(Odd(lambda: returned))
    with pytest.raises(EngineError, match="not iterable"):
        await drain(scheduler, "odd")
    assert await drain(scheduler, "good") == 1
    await scheduler.aclose()


async def test_a_list_will_do() -> None:
    chunks = [AudioChunk(np.zeros(10, np.float32), RATE)] * 3
    scheduler = Scheduler(Odd(lambda: chunks))
    assert await drain(scheduler, "odd") == 3
    async with aclosing(scheduler.stream(SynthesisRequest("odd"))) as stream:
        await anext(stream)
    await scheduler.aclose()


async def test_a_slow_step_is_not_overtaken_by_another() -> None:
    gate = Turnstile()
    engine = SpyEngine(before=gate)
    now = [0.0]
    scheduler = Scheduler(engine, hang_after=10.0, clock=lambda: now[0])
    task = asyncio.create_task(drain(scheduler, "a"))
    await gate.hold()
    task.cancel()
    await asyncio.wait([task])
    now[0] = 9.0  # slow, but it may come back
    other = asyncio.create_task(drain(scheduler, "b"))
    await asyncio.sleep(0)
    gate.open()
    assert await other == 4
    await scheduler.aclose()
    assert engine.most_at_once == 1


async def test_an_engine_that_hangs_while_it_closes_a_stream_is_left_to_itself() -> None:
    closing, forever = threading.Event(), threading.Event()

    def stuck() -> Generator[AudioChunk, None, None]:
        try:
            while True:
                yield AudioChunk(np.zeros(5 * RATE, np.float32), RATE)
        finally:
            closing.set()
            forever.wait(10)

    scheduler = Scheduler(Odd(stuck), hang_after=0.01)
    async with aclosing(scheduler.stream(SynthesisRequest("odd"))) as chunks:
        await anext(chunks)
    assert await asyncio.to_thread(closing.wait, 5)
    assert await asyncio.wait_for(drain(scheduler, "good"), 5) == 1
    forever.set()
    await scheduler.aclose()


async def test_without_a_thread_there_is_an_error_and_later_a_voice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    scheduler = Scheduler(SpyEngine(), max_streams=1)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(EngineError, match="no thread"):
            await drain(scheduler, "a")
    assert await drain(scheduler, "b") == 4
    await scheduler.aclose()


async def test_streams_are_closed_before_their_engine() -> None:
    order: list[str] = []

    class Orderly(SpyEngine):
        def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
            try:
                yield from super().synthesize(request)
            finally:
                order.append(request.text)

        def close(self) -> None:
            order.append("engine")

    scheduler = Scheduler(Orderly(), max_ahead=0.1)
    streams = [scheduler.stream(SynthesisRequest("a")) for _ in range(3)]
    for stream in streams:
        await anext(stream)
    await scheduler.aclose()
    for stream in streams:
        await stream.aclose()
    assert order == ["a", "a", "a", "engine"]


def test_a_stream_whose_loop_was_closed_while_it_rested_gives_its_place_back() -> None:
    scheduler = Scheduler(SpyEngine(), max_streams=1, max_ahead=0.1)
    loop = asyncio.new_event_loop()
    chunks = scheduler.stream(SynthesisRequest("a"))
    loop.run_until_complete(anext(chunks))
    loop.close()
    assert asyncio.run(drain(scheduler, "b")) == 4
    scheduler.close()


async def test_the_child_of_a_fork_starts_anew() -> None:
    # As after a fork in mid-step: the thread that took the step doesn't exist in the child.
    gate = Turnstile()
    scheduler = Scheduler(SpyEngine(before=gate), max_streams=1, max_ahead=math.inf)
    task = asyncio.create_task(drain(scheduler, "a"))
    await gate.hold()
    _start_anew()
    other = asyncio.create_task(drain(scheduler, "b"))
    await gate.hold()
    gate.open()
    assert await other == 4
    task.cancel()
    await asyncio.wait([task])
    await scheduler.aclose()


# Voices that are learnt


async def spoken(scheduler: Scheduler, voice: str) -> float:
    """Seconds of a text in a voice."""
    async with aclosing(scheduler.stream(SynthesisRequest("Hello.", voice=voice))) as chunks:
        return round(sum([chunk.seconds async for chunk in chunks]), 2)


async def test_an_engine_that_learns_voices_does_so_through_its_scheduler(tmp_path: Path) -> None:
    scheduler = Scheduler(Parrot(tmp_path))
    assert isinstance(scheduler, VoiceCloner)
    assert scheduler.can_clone
    assert cloner(TimedEngine(scheduler)) is scheduler
    assert await scheduler.clone("mai", recording(330)) == Voice("mai", "und", "cloned")
    assert [voice.id for voice in await scheduler.voices()] == ["own", "mai"]
    assert await spoken(scheduler, "mai") == 0.36
    await scheduler.forget("mai")
    assert [voice.id for voice in await scheduler.voices()] == ["own"]
    with pytest.raises(VoiceNotFoundError, match="no voice 'mai'; available: own"):
        await spoken(scheduler, "mai")
    with pytest.raises(VoiceNotFoundError):
        await scheduler.forget("mai")
    await scheduler.aclose()


async def test_an_engine_that_renames_voices_does_so_through_its_scheduler(tmp_path: Path) -> None:
    scheduler = Scheduler(Parrot(tmp_path))
    assert scheduler.can_rename
    await scheduler.clone("mai", recording(330))
    assert await scheduler.rename("mai", "anh") == Voice("anh", "und", "cloned")
    assert [voice.id for voice in await scheduler.voices()] == ["own", "anh"]
    with pytest.raises(InvalidRequestError, match="of its own: choose another name"):
        await scheduler.rename("anh", "own")
    with pytest.raises(VoiceNotFoundError):
        await scheduler.rename("mai", "zoe")
    await scheduler.aclose()

    class Unable(SpyEngine):
        def clone(self, name: str, reference: Reference, *, transcript: str = "") -> Voice:
            raise NotImplementedError

        def forget(self, voice: str) -> None:
            raise NotImplementedError

    unable = Scheduler(Unable())
    assert unable.can_clone
    assert not unable.can_rename
    with pytest.raises(InvalidRequestError, match="Unable can't rename voices"):
        await unable.rename("mai", "anh")
    await unable.aclose()


async def test_an_engine_that_cannot_learn_says_so() -> None:
    class NotThisModel(Parrot):
        can_clone = False

    for engine in (SpyEngine(), NotThisModel()):
        scheduler = Scheduler(engine)
        assert not scheduler.can_clone
        assert cloner(TimedEngine(scheduler)) is None
        for call in (scheduler.clone("mai", b"RIFF"), scheduler.forget("mai")):
            with pytest.raises(InvalidRequestError, match=f"{type(engine).__name__} can't clone"):
                await call
        await scheduler.aclose()


async def test_what_learns_but_cannot_forget_is_not_called_on_the_event_loop() -> None:
    class Remembers(SpyEngine):
        def clone(self, name: str, reference: Reference, *, transcript: str = "") -> Voice:
            raise NotImplementedError

    scheduler = Scheduler(Remembers())
    assert cloner(scheduler) is None
    await scheduler.aclose()


async def test_others_are_heard_while_a_voice_is_learnt(tmp_path: Path) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    class Slow(Parrot):
        def clone(self, name: str, reference: Reference, *, transcript: str = "") -> Voice:
            begun.set()
            assert goes_on.wait(5)
            return super().clone(name, reference, transcript=transcript)

    scheduler = Scheduler(Slow(tmp_path))
    learning = asyncio.create_task(scheduler.clone("mai", recording(330)))
    assert await asyncio.to_thread(begun.wait, 5)
    assert await spoken(scheduler, "own") == 0.36
    assert not learning.done()
    goes_on.set()
    assert (await learning).id == "mai"
    await scheduler.aclose()


async def test_a_stream_goes_on_in_a_voice_that_is_forgotten(tmp_path: Path) -> None:
    scheduler = Scheduler(Parrot(tmp_path), max_ahead=0.1)
    await scheduler.clone("mai", recording(330))
    request = SynthesisRequest("Hello.", voice="mai")
    async with aclosing(scheduler.stream(request)) as chunks:
        seconds = (await anext(chunks)).seconds
        await scheduler.forget("mai")
        seconds += sum([chunk.seconds async for chunk in chunks])
    assert round(seconds, 2) == 0.36
    await scheduler.aclose()


async def test_an_engine_that_fails_to_learn_is_an_engine_error_that_tells_no_words() -> None:
    class Fails(Parrot):
        def clone(self, name: str, reference: Reference, *, transcript: str = "") -> Voice:
            raise ValueError(f"can't align {transcript!r}")

        def forget(self, voice: str) -> None:
            raise KeyError(voice)

    scheduler = Scheduler(Fails())
    with pytest.raises(EngineError, match=r"^ValueError: can't align '\.\.\.'$") as failure:
        await scheduler.clone("mai", b"RIFF", transcript="My secret.")
    assert isinstance(failure.value.__cause__, ValueError)
    with pytest.raises(EngineError, match=r"^KeyError: 'mai'$"):
        await scheduler.forget("mai")
    await scheduler.aclose()
    for call in (scheduler.clone("mai", b"RIFF"), scheduler.forget("mai")):
        with pytest.raises(EngineError, match="the engine was closed; open it again"):
            await call
