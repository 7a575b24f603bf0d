"""Let requests out as fast as a server's plan allows, the most urgent first.

A plan that refuses the eleventh request at once serves eleven callers well if one of them waits.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count


@dataclass(eq=False, slots=True)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    turn: asyncio.Future[None]
    left: bool = False
    """Whether nobody waits there any more."""
    timed: bool = False
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
        self._slots = math.inf if in_flight is None else in_flight
        self._rate = math.inf if per_second is None else per_second
        self._burst = max(1.0, self._rate)
        self._allowance = self._burst
        self._clock = clock
        self._counted_at = clock()
        self._numbers = count()
        self._waiting: list[tuple[float, int, _Waiter]] = []
        """A heap: by when their listeners run dry, then as they came."""
        self._holding: set[_Waiter] = set()
        # One that its holder may take again: the garbage collector ends tasks that were left behind
        # in a loop, and so their slots, wherever this thread is just then.
        self._lock = threading.RLock()

    @asynccontextmanager
    async def slot(self, *, due: float = 0.0) -> AsyncGenerator[None, None]:
        """Hold a slot, for a listener who needs it in ``due`` seconds."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, loop.create_future())
        with self._lock:
            heapq.heappush(self._waiting, (self._clock() + due, next(self._numbers), waiter))
        try:
            self._hand_out()
            if waiter not in self._holding:
                await waiter.turn
            yield
        finally:
            with self._lock:
                waiter.left = True
                self._holding.discard(waiter)
            self._hand_out()

    def _hand_out(self) -> None:
        """Give what there is to whoever is next."""
        with self._lock:
            self._count()
            while self._waiting and self._is_free():
                first = self._waiting[0][-1]
                if first.left or first.loop.is_closed():
                    heapq.heappop(self._waiting)
                elif self._allowance >= 1.0:
                    heapq.heappop(self._waiting)
                    self._grant(first)
                else:
                    self._look_again(first)
                    return

    def _count(self) -> None:
        now = self._clock()
        if now > self._counted_at:
            gained = (now - self._counted_at) * self._rate
            self._allowance = min(self._burst, self._allowance + gained)
            self._counted_at = now

    def _is_free(self) -> bool:
        if len(self._holding) >= self._slots:
            self._holding -= {held for held in self._holding if held.loop.is_closed()}
        return len(self._holding) < self._slots

    def _grant(self, waiter: _Waiter) -> None:
        self._holding.add(waiter)
        self._allowance -= 1.0
        _tell(waiter, _wake, waiter.turn)

    def _look_again(self, first: _Waiter) -> None:
        """Have the first in the queue look at the clock, and nobody else."""
        if not first.timed:
            first.timed = True
            pause = (1.0 - self._allowance) / self._rate
            _tell(first, first.loop.call_later, pause, self._looks_again, first)

    def _looks_again(self, first: _Waiter) -> None:
        first.timed = False
        self._hand_out()


def _tell(waiter: _Waiter, callback: Callable[..., object], *args: object) -> None:
    with suppress(RuntimeError):  # its loop was closed just now
        waiter.loop.call_soon_threadsafe(callback, *args)


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
