"""End a step that is running when nobody waits for it any more.

A generator can't be closed while it runs. So an engine whose steps take long says, around the part
that does, what would end it early::

    with interruptible(stop.set):
        speak(stop)

and whoever runs the step calls that from another thread when its stream is closed. One whose steps
go through much that makes no sound looks now and then whether it is ``interrupted``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

logger = logging.getLogger(__name__)


class Interruption:
    """Whether a stream was closed, and what ends the step that runs for it, on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []
        self._happened = False

    @property
    def happened(self) -> bool:
        return self._happened

    def interrupt(self) -> None:
        """End the step that runs, and each that would follow, if the engine knows how."""
        with self._lock:
            if self._happened:
                return
            self._happened = True
            for stop in self._stops:
                _call(stop)

    @contextmanager
    def concerns(self) -> Iterator[None]:
        """Make it the one that ``interruptible`` blocks in this thread listen to."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    @contextmanager
    def calls(self, stop: Callable[[], None]) -> Iterator[None]:
        """While this block runs, call ``stop`` when it happens; at once, if it has."""
        with self._lock:
            self._stops.append(stop)
            if self._happened:
                _call(stop)
        try:
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Have ``stop`` called, once at most, if this block runs for a stream that is closed.

    Args:
        stop: Returns at once and may be called from any thread. What the block does then, be it an
            error, is heard of by nobody.
    """
    interruption = _current.get()
    if interruption is None:
        yield
        return
    with interruption.calls(stop):
        yield


def interrupted() -> bool:
    """Whether this runs for a stream that is closed: nobody hears of what it still does."""
    interruption = _current.get()
    return interruption is not None and interruption.happened


_current: ContextVar[Interruption | None] = ContextVar("tts_plugins_interruption", default=None)


def _call(stop: Callable[[], None]) -> None:
    try:
        stop()
    except Exception:
        logger.exception("an engine failed to end a step")
