"""Make something when it is first asked for, once, whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """What ``make`` makes, for any thread; made again if that failed, or if it was dropped."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: T | None = None

    def __call__(self) -> T:
        with self._lock:
            if self._made is None:
                # In a context of its own: an interruption of the stream that happens to be the
                # first to ask would leave everybody with what is half made.
                self._made = Context().run(self._make)
            return self._made

    @property
    def made(self) -> bool:
        return self._made is not None

    def drop(self) -> None:
        """Let go of it."""
        self._made = None
