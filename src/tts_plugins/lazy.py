"""Make something when it is first asked for, once, whoever asks."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """What ``make`` makes, for any thread; made again if that failed, or if it was dropped."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: T | None = None
        self._drops = 0
        _alive.add(self)

    def __call__(self) -> T:
        with self._lock:
            if self._made is None:
                drops = self._drops
                # In a context of its own: an interruption of the stream that happens to be the
                # first to ask would leave everybody with what is half made.
                made = Context().run(self._make)
                if drops != self._drops:
                    return made  # for who asked; nobody wants it kept any more
                self._made = made
            return self._made

    @property
    def made(self) -> bool:
        return self._made is not None

    def drop(self) -> None:
        """Let go of it, and of what is being made."""
        self._drops += 1
        self._made = None


class Latest(Generic[T]):
    """Of what is made by name, that which was asked for last; the rest is dropped meanwhile.

    Args:
        lazies: What there is.
        most: How many are kept.
    """

    def __init__(self, lazies: Mapping[str, Lazy[T]], most: int) -> None:
        self._lazies, self._most = lazies, most
        self._lock = threading.Lock()
        self._kept: dict[str, None] = {}
        """The names of those that are kept, the latest last."""
        _alive.add(self)

    def __call__(self, name: str) -> T:
        made = self._lazies[name]()
        with self._lock:
            self._kept.pop(name, None)
            self._kept[name] = None
            if len(self._kept) > self._most:
                oldest = next(iter(self._kept))
                del self._kept[oldest]
                self._lazies[oldest].drop()
        return made

    def drop(self) -> None:
        """Let go of all."""
        for lazy in self._lazies.values():
            lazy.drop()


_alive: weakref.WeakSet[Lazy[Any] | Latest[Any]] = weakref.WeakSet()


def _start_anew() -> None:
    """In the child of a fork nobody goes on to make what was being made."""
    for each in list(_alive):
        each._lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_start_anew)
