"""Let requests out as fast as a server's plan allows, the most urgent first.

A plan that refuses the eleventh request at once serves eleven callers well if one of them waits.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count


@dataclass(order=True, slots=True)
class _Waiter:
    deadline: float
    """When its listener runs dry."""
    number: int
    loop: asyncio.AbstractEventLoop = field(compare=False)
    turn: asyncio.Future[None] = field(compare=False)
    granted: bool = field(default=False, compare=False)
    left: bool = field(default=False, compare=False)
    """Whether nobody waits there any more."""
    timed: bool = field(default=False, compare=False)
    """Whether its loop will look again when the rate allows one more."""


class Limiter:
    """Hands out slots, to any number of event loops.

    Args:
        in_flight: Slots; ``None`` for any number.
        per_second: Slots handed out in a second, up to a second's worth at once; ``None`` for any
            number.
        clock: Monotonic time in seconds. Tests pass their own.
    """

    def __init__(
        self,
        *,
        in_flight: int | None = None,
        per_second: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._free = in_flight
        self._rate = per_second
        self._clock = clock
        self._allowance = self._burst
        self._counted_at = clock()
        self._waiting: list[_Waiter] = []
        self._numbers = count()
        # One that its holder may take again: a waiter that the garbage collector finds gives its
        # slot back wherever this thread is just then.
        self._lock = threading.RLock()

    @asynccontextmanager
    async def slot(self, *, due: float = 0.0) -> AsyncGenerator[None, None]:
        """Hold a slot, for a listener who needs it in ``due`` seconds."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(self._clock() + due, next(self._numbers), loop, loop.create_future())
        with self._lock:
            heapq.heappush(self._waiting, waiter)
        try:
            self._hand_out()
            if not waiter.granted:
                await waiter.turn
            yield
        finally:
            with self._lock:
                waiter.left = True
                if waiter.granted and self._free is not None:
                    self._free += 1
            self._hand_out()

    @property
    def _burst(self) -> float:
        return max(1.0, self._rate or 0.0)

    def _hand_out(self) -> None:
        """Give what there is to whoever is next."""
        with self._lock:
            self._count()
            while self._waiting and self._free != 0:
                first = self._waiting[0]
                if first.left or first.loop.is_closed():
                    heapq.heappop(self._waiting)
                elif self._allowance >= 1.0:
                    self._grant(heapq.heappop(self._waiting))
                else:
                    self._look_again(first)
                    return

    def _count(self) -> None:
        now = self._clock()
        if self._rate is None:
            self._allowance = self._burst
        else:
            gained = (now - self._counted_at) * self._rate
            self._allowance = min(self._burst, self._allowance + gained)
        self._counted_at = now

    def _grant(self, waiter: _Waiter) -> None:
        waiter.granted = True
        self._allowance -= 1.0
        if self._free is not None:
            self._free -= 1
        _tell(waiter, _wake, waiter.turn)

    def _look_again(self, first: _Waiter) -> None:
        """Have the first in the queue look at the clock, and nobody else."""
        assert self._rate
        if not first.timed:
            first.timed = True
            pause = (1.0 - self._allowance) / self._rate
            _tell(first, first.loop.call_later, pause, self._looks_again, first)

    def _looks_again(self, first: _Waiter) -> None:
        first.timed = False
        self._hand_out()


def _tell(waiter: _Waiter, callback: Callable[..., object], *args: object) -> None:
    # A loop that is closed just now can't be told. A slot that it has comes back when the garbage
    # collector finds the waiter.
    with suppress(RuntimeError):
        waiter.loop.call_soon_threadsafe(callback, *args)


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
