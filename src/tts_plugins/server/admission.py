"""Let in as many streams as can be served, and tell the others honestly when to come back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tts_plugins.errors import OverloadedError

_RECENT = 0.2
"""Weight of the newest measurement in a running mean."""

_FIRST_LIFETIME = 3.0
"""Seconds that a stream is taken to last until one has been measured."""

_FIRST_WAIT = 1.0
"""Seconds that a stream is taken to wait for its first audio, likewise."""


class Admission:
    """Counts streams. Who waits for whom is the engine's to decide; here is only said how many may.

    Belongs to one event loop.

    Args:
        max_streams: Streams open at once.
        max_waiting: Of these, how many may wait for their first audio: the queue.
        max_per_key: Streams open at once with one key; ``None`` for any number.
        clock: Monotonic time in seconds. Tests pass their own.
    """

    def __init__(
        self,
        *,
        max_streams: int = 256,
        max_waiting: int = 64,
        max_per_key: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_streams = max_streams
        self._max_waiting = max_waiting
        self._max_per_key = max_per_key
        self._clock = clock
        self._of: Counter[str] = Counter()
        self.active = 0
        """Streams open now, including ..."""
        self.waiting = 0
        """... those that nothing has been heard of yet."""
        self._lifetime = _FIRST_LIFETIME
        self._wait = _FIRST_WAIT

    @property
    def is_full(self) -> bool:
        return self.active >= self.max_streams or self.waiting >= self._max_waiting

    @contextmanager
    def place(self, caller: str) -> Generator[Callable[[], None], None, None]:
        """A place for a stream; call what it gives when the first audio is there.

        Raises:
            OverloadedError: If there is none.
        """
        self.check(caller)
        began = self._clock()
        waits = True
        self.active += 1
        self.waiting += 1
        self._of[caller] += 1

        def heard() -> None:
            nonlocal waits
            if waits:
                waits = False
                self.waiting -= 1
                self._wait += _RECENT * (self._clock() - began - self._wait)

        try:
            yield heard
        finally:
            self.active -= 1
            self.waiting -= waits
            self._of[caller] -= 1
            if not self._of[caller]:
                del self._of[caller]
            self._lifetime += _RECENT * (self._clock() - began - self._lifetime)

    def check(self, caller: str) -> None:
        """Look whether there is a place.

        Raises:
            OverloadedError: If there is none.
        """
        # Little's law: of n streams that last t seconds each, one ends every t / n.
        if self._max_per_key is not None and self._of[caller] >= self._max_per_key:
            raise _refusal(
                f"{self._max_per_key} streams are open with this key, as many as it may have",
                self._lifetime / self._max_per_key,
            )
        if self.active >= self.max_streams:
            raise _refusal(
                f"all {self.max_streams} streams are in use", self._lifetime / self.max_streams
            )
        if self.waiting >= self._max_waiting:
            raise _refusal(
                f"{self.waiting} streams wait already, as many as may", self._wait / self.waiting
            )


def _refusal(what: str, wait: float) -> OverloadedError:
    return OverloadedError(f"{what}; try again in {wait:.1f} s", retry_after=wait)
