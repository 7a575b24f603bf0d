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
        self._lock = threading.Lock()

    @asynccontextmanager
    async def slot(self, *, due: float = 0.0) -> AsyncGenerator[None, None]:
        """Hold a slot, for a listener who needs it in ``due`` seconds."""
        loop = asyncio.get_running_loop()
        deadline = self._clock() + due
        waiter = _Waiter(deadline, next(self._numbers), loop, loop.create_future())
        try:
            with self._lock:
                heapq.heappush(self._waiting, waiter)
            while not waiter.granted:
                await asyncio.wait([waiter.turn], timeout=self._hand_out())
            yield
        finally:
            with self._lock:
                if not waiter.granted:
                    self._waiting.remove(waiter)
                    heapq.heapify(self._waiting)
                elif self._free is not None:
                    self._free += 1
            self._hand_out()

    @property
    def _burst(self) -> float:
        return max(1.0, self._rate or 0.0)

    def _hand_out(self) -> float | None:
        """Give what there is to whoever is next; return the seconds until there is more to give.

        None means that only a slot that is given back can change anything.
        """
        with self._lock:
            self._count()
            while self._waiting and self._free != 0:
                if self._allowance < 1.0:
                    assert self._rate
                    return (1.0 - self._allowance) / self._rate
                self._grant(heapq.heappop(self._waiting))
            return None

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
        # A loop that was closed with a waiter in it can't be told; its slot comes back when the
        # waiter is thrown away.
        with suppress(RuntimeError):
            waiter.loop.call_soon_threadsafe(_wake, waiter.turn)


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
