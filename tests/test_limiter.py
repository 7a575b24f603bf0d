"""Who gets a slot, when, and that none is ever lost."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from contextlib import suppress

import pytest

from tts_plugins.limiter import Limiter

LATE = 5.0
"""Seconds after which something that should happen at once doesn't happen any more."""


class Clock:
    """Shows what it is set to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Client:
    """Asks for a slot, and holds it until it is let go."""

    def __init__(self, limiter: Limiter, name: str = "", *, due: float = 0.0) -> None:
        self.name = name
        self.inside = asyncio.Event()
        self.let_go = asyncio.Event()
        self._limiter = limiter
        self._due = due
        self.task = asyncio.create_task(self._hold())

    async def _hold(self) -> None:
        async with self._limiter.slot(due=self._due):
            self.inside.set()
            await self.let_go.wait()

    async def enter(self) -> None:
        async with asyncio.timeout(LATE):
            await self.inside.wait()

    async def leave(self) -> None:
        self.let_go.set()
        await self.task

    async def cancel(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def settle() -> None:
    """Let everybody run who can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def free_slots(limiter: Limiter, of: int) -> int:
    """How many slots can be had right now."""
    clients = [Client(limiter) for _ in range(of + 1)]
    await settle()
    free = sum(client.inside.is_set() for client in clients)
    for client in clients:
        await client.cancel()
    return free


async def test_without_limits_nobody_waits() -> None:
    limiter = Limiter()
    clients = [Client(limiter) for _ in range(100)]
    await asyncio.sleep(0)
    assert all(client.inside.is_set() for client in clients)
    for client in clients:
        await client.leave()


async def test_no_more_are_let_in_than_there_are_slots() -> None:
    limiter = Limiter(in_flight=2)
    clients = [Client(limiter) for _ in range(3)]
    await settle()
    assert [client.inside.is_set() for client in clients] == [True, True, False]
    await clients[0].leave()
    await clients[2].enter()
    assert await free_slots(limiter, 2) == 0
    await clients[1].leave()
    await clients[2].leave()
    assert await free_slots(limiter, 2) == 2


async def test_the_most_urgent_is_next_and_the_first_of_two_that_are_alike() -> None:
    clock = Clock()
    limiter = Limiter(in_flight=1, clock=clock)
    holder = Client(limiter)
    await holder.enter()
    calm = Client(limiter, "calm", due=9.0)
    first = Client(limiter, "first", due=2.0)
    second = Client(limiter, "second", due=2.0)
    await settle()
    clock.now += 5.0
    late = Client(limiter, "in silence, but came late")
    await settle()
    order = []
    waiting = [calm, first, second, late]
    await holder.leave()
    for _ in range(4):
        await settle()
        inside = [client for client in waiting if client.inside.is_set()]
        order += [client.name for client in inside]
        waiting = [client for client in waiting if client not in inside]
        for client in inside:
            await client.leave()
    assert order == ["first", "second", "in silence, but came late", "calm"]


async def test_an_exception_gives_the_slot_back() -> None:
    limiter = Limiter(in_flight=1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(LATE), limiter.slot():
                raise ZeroDivisionError
    assert await free_slots(limiter, 1) == 1


# Per second


async def test_a_seconds_worth_goes_out_at_once_and_the_rest_as_time_passes() -> None:
    clock = Clock()
    limiter = Limiter(per_second=64.0, clock=clock)
    clients = [Client(limiter, due=float(n)) for n in range(67)]
    await settle()
    assert sum(client.inside.is_set() for client in clients) == 64
    clock.now += 2 / 64
    await clients[65].enter()
    await asyncio.sleep(0.02)  # time for one more on the real clock, none on this one
    assert not clients[66].inside.is_set()
    clock.now += 1 / 64
    await clients[66].enter()
    for client in clients:
        await client.leave()


async def test_less_than_one_a_second_is_one_and_then_a_pause() -> None:
    clock = Clock()
    limiter = Limiter(per_second=0.5, clock=clock)
    async with limiter.slot():
        pass
    clock.now += 1.0
    waiting = Client(limiter)
    await settle()
    assert not waiting.inside.is_set()
    clock.now += 1.0
    another = Client(limiter)  # who comes in looks at the clock for all
    await waiting.enter()
    assert not another.inside.is_set()
    await another.cancel()
    await waiting.leave()


async def test_what_was_not_used_is_not_saved_for_more_than_a_second() -> None:
    clock = Clock()
    limiter = Limiter(per_second=3.0, clock=clock)
    clock.now += 3600.0
    clients = [Client(limiter) for _ in range(5)]
    await settle()
    assert sum(client.inside.is_set() for client in clients) == 3
    for client in clients:
        await client.cancel()


async def test_a_slot_that_comes_back_before_the_rate_allows_it_is_handed_out_when_it_does() -> (
    None
):
    limiter = Limiter(in_flight=1, per_second=50.0)
    limiter._allowance = 1.0
    first = Client(limiter)
    await first.enter()
    second = Client(limiter)
    await settle()
    await first.leave()  # the second now has a slot to take, but not yet the leave to take it
    await settle()
    began = time.monotonic()
    await second.enter()
    assert time.monotonic() - began < 1.0
    await second.leave()


async def test_when_the_first_in_the_queue_leaves_the_next_looks_at_the_clock() -> None:
    limiter = Limiter(per_second=50.0)
    limiter._allowance = 0.0
    first, second = Client(limiter), Client(limiter)
    await settle()
    await first.cancel()
    await second.enter()
    await second.leave()


async def test_only_the_first_in_the_queue_looks_at_the_clock() -> None:
    clock = Clock()
    looks = 0

    def counted() -> float:
        nonlocal looks
        looks += 1
        return clock.now

    limiter = Limiter(per_second=100.0, clock=counted)
    limiter._allowance = 0.0
    clients = [Client(limiter) for _ in range(200)]
    await settle()
    before = looks
    await asyncio.sleep(0.1)
    assert looks - before < 20  # ten hundredths have passed, for 200 who wait
    for client in clients:
        await client.cancel()


# Cancelled


async def test_cancelled_before_it_has_a_slot_it_leaves_the_queue() -> None:
    limiter = Limiter(in_flight=1)
    holder, gone, next_one = Client(limiter), Client(limiter), Client(limiter)
    await settle()
    await gone.cancel()
    await holder.leave()
    await next_one.enter()
    await next_one.leave()
    assert await free_slots(limiter, 1) == 1


async def test_cancelled_between_being_given_a_slot_and_having_it_the_next_gets_it() -> None:
    limiter = Limiter(in_flight=1)
    holder, gone, next_one = Client(limiter), Client(limiter), Client(limiter)
    await settle()
    holder.let_go.set()
    for _ in range(3):
        await asyncio.sleep(0)
        if limiter._holding and holder.task.done():
            break
    assert len(limiter._holding) == 1
    assert not gone.inside.is_set()
    await gone.cancel()
    assert not gone.inside.is_set()
    await next_one.enter()
    await next_one.leave()
    assert await free_slots(limiter, 1) == 1


async def test_cancelled_with_a_slot_the_next_gets_it() -> None:
    limiter = Limiter(in_flight=1)
    holder, next_one = Client(limiter), Client(limiter)
    await holder.enter()
    await holder.cancel()
    await next_one.enter()
    await next_one.leave()


@pytest.mark.parametrize("steps", range(8))
async def test_cancelled_at_every_step_no_slot_is_lost(
    steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = Limiter(in_flight=1, per_second=1000.0)
    holder, gone = Client(limiter), Client(limiter)
    await settle()
    holder.let_go.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    await gone.cancel()
    await holder.task
    assert not limiter._holding
    assert await free_slots(limiter, 1) == 1
    assert caplog.text == ""


# Many


async def test_a_thousand_wait_and_a_thousand_leave_quickly() -> None:
    limiter = Limiter(in_flight=1)
    holder = Client(limiter)
    await holder.enter()
    began = time.monotonic()
    clients = [Client(limiter, due=float(n % 7)) for n in range(2000)]
    await settle()
    for client in clients[::2]:
        client.task.cancel()
    await holder.leave()
    for client in clients[1::2]:
        client.let_go.set()
    await asyncio.wait([client.task for client in clients])
    assert all(client.inside.is_set() for client in clients[1::2])
    assert time.monotonic() - began < 2.0
    assert limiter._waiting == []
    assert not limiter._holding


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("per_second", [None, 2000.0])
async def test_in_a_storm_of_calls_and_cancellations_no_wake_up_is_lost(
    seed: int, per_second: float | None
) -> None:
    chance = random.Random(seed)
    limiter = Limiter(in_flight=3, per_second=per_second)
    inside = most = 0

    async def call() -> None:
        nonlocal inside, most
        async with limiter.slot(due=chance.random()):
            inside += 1
            most = max(most, inside)
            try:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                inside -= 1

    tasks: list[asyncio.Task[None]] = []
    for _ in range(200):
        tasks.append(asyncio.create_task(call()))
        if chance.random() < 0.4:
            chance.choice(tasks).cancel()
        if chance.random() < 0.5:
            await asyncio.sleep(0)
    async with asyncio.timeout(LATE):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 3
    assert inside == 0
    assert not limiter._holding
    assert limiter._waiting == []


# Several event loops


@pytest.mark.parametrize("per_second", [None, 5000.0])
def test_two_event_loops_share_the_slots(per_second: float | None) -> None:
    limiter = Limiter(in_flight=2, per_second=per_second)
    lock = threading.Lock()
    inside = most = served = 0

    async def call(chance: random.Random) -> None:
        nonlocal inside, most, served
        async with limiter.slot(due=chance.random()):
            with lock:
                inside += 1
                most = max(most, inside)
            await asyncio.sleep(0)
            with lock:
                inside -= 1
                served += 1

    async def calls(seed: int) -> None:
        chance = random.Random(seed)
        async with asyncio.timeout(LATE * 2):
            await asyncio.gather(*(call(chance) for _ in range(300)))

    threads = [threading.Thread(target=asyncio.run, args=[calls(n)]) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert served == 600
    assert most == 2
    assert not limiter._holding


def waiting_on_a_loop(limiter: Limiter, *, steps: int = 3) -> asyncio.AbstractEventLoop:
    """A loop with somebody in it who waits for a slot."""
    loop = asyncio.new_event_loop()

    async def call() -> None:
        async with limiter.slot():
            await asyncio.get_running_loop().create_future()

    task = loop.create_task(call())
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # as is meant here
    for _ in range(steps):
        loop.run_until_complete(asyncio.sleep(0))
    return loop


@pytest.mark.parametrize("per_second", [None, 50.0])
async def test_who_waits_in_a_loop_that_is_closed_is_passed_over(per_second: float | None) -> None:
    limiter = Limiter(in_flight=1, per_second=per_second)
    holder = Client(limiter)
    await holder.enter()
    limiter._allowance = 0.0 if per_second else 1.0
    dead = await asyncio.to_thread(waiting_on_a_loop, limiter)
    alive = Client(limiter)
    await settle()
    dead.close()
    await holder.leave()
    await alive.enter()
    await alive.leave()
    del dead
    gc.collect()
    assert not limiter._holding
    assert not limiter._waiting


async def test_a_slot_given_to_a_loop_that_died_comes_back() -> None:
    limiter = Limiter(in_flight=1)
    holder = Client(limiter)
    await holder.enter()
    dead = await asyncio.to_thread(waiting_on_a_loop, limiter)
    await holder.leave()  # this gives it the slot, of which its loop never hears
    assert await free_slots(limiter, 1) == 0
    dead.close()
    assert await free_slots(limiter, 1) == 1


async def test_a_slot_may_come_back_while_slots_are_handed_out() -> None:
    limiter = Limiter(in_flight=1)
    dead = await asyncio.to_thread(waiting_on_a_loop, limiter)
    next_one = Client(limiter)
    await settle()
    assert not next_one.inside.is_set()
    dead.close()
    with limiter._lock:  # where the garbage collector may run as well
        del dead
        gc.collect()
    await next_one.enter()
    await next_one.leave()
