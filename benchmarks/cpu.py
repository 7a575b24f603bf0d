"""What computing costs, by the clocks of CPU time."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Self

Clock = Callable[[], float]
"""Seconds of CPU time used so far."""

_STEP = 0.001
"""Seconds between two looks at the clock."""

_REST = 0.002
"""Seconds of CPU time that housekeeping may use while an engine rests."""


def of_process(pid: int) -> Clock:
    """The clock of another process, with the threads in it that have ended."""
    clock = (~pid << 3) | 2  # as clock_getcpuclockid of Linux makes it
    return lambda: time.clock_gettime(clock)


def of_threads_beside(*threads: threading.Thread) -> Clock:
    """The clock of this process without these threads, which must live."""
    clocks = [time.pthread_getcpuclockid(thread.ident or 0) for thread in threads]
    return lambda: time.process_time() - sum(map(time.clock_gettime, clocks))


async def rest(clock: Clock, *, still: float = 0.15, at_most: float = 15.0) -> None:
    """Wait until an engine has done nothing for a while."""
    end = time.monotonic() + at_most
    while time.monotonic() < end:
        before = clock()
        await asyncio.sleep(still)
        if clock() - before < _REST:
            return


class Watch:
    """Looks at the clocks of an engine every millisecond, to say later when it came to rest.

    What the event loop's thread and the watch itself use isn't the engine's.

    Args:
        elsewhere: The clock of another process that works for this one.
    """

    def __init__(self, elsewhere: Clock | None = None) -> None:
        self._elsewhere = elsewhere
        self._seen: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._loop_thread = threading.current_thread()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        here = of_threads_beside(self._loop_thread, threading.current_thread())
        while not self._over.is_set():
            used = here() + (self._elsewhere() if self._elsewhere else 0.0)
            self._seen.append((time.monotonic(), used))
            time.sleep(_STEP)

    async def rest(self, *, still: float = 0.3, at_most: float = 30.0) -> None:
        """Wait until the engine has done nothing for a while."""
        await rest(lambda: self._seen[-1][1], still=still, at_most=at_most)

    def before(self, moment: float, *, seconds: float = 0.1) -> float:
        """CPU time used in the last seconds before a moment."""
        seen = [used for at, used in self._seen if moment - seconds <= at <= moment]
        return seen[-1] - seen[0]

    def after(self, moment: float) -> tuple[float, float]:
        """Seconds from a moment until the engine was quiet, and CPU time used in them."""
        before = max(used for at, used in self._seen if at <= moment)
        end = self._seen[-1][1]
        quiet_at = next(at for at, used in self._seen if at > moment and used >= end - _REST)
        return quiet_at - moment, end - before


class Others:
    """What others on this machine used meanwhile: a figure that says how far to trust the rest."""

    def __init__(self, *mine: Clock) -> None:
        self._mine = mine or (time.process_time,)
        self._began = time.monotonic()
        self._machine, self._own = _machine(), self._used()

    def _used(self) -> float:
        return sum(clock() for clock in self._mine)

    def cores(self) -> float:
        """CPUs that others kept busy since the start, on average."""
        seconds = time.monotonic() - self._began
        return max(0.0, (_machine() - self._machine - self._used() + self._own) / seconds)


def _machine() -> float:
    """Seconds of CPU time that all processes have used."""
    with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123
        ticks = [int(n) for n in file.readline().split()[1:9]]
    user, nice, system, _, _, irq, softirq, _ = ticks
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
