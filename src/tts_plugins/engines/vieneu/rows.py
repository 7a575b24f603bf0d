"""Who is computed with whom on a GPU, and who waits.

VieNeu's scheduler computes so many streams together, each a row of one batch. It lets any number of
others wait, for ever, and whoever waits for audio from it can't be called back. So each stream that
is computed is listened to on a thread of its own, as fast as it comes, and its row is free again
when it has been computed, however slowly it is then heard.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing

from tts_plugins.errors import EngineError, OverloadedError
from tts_plugins.interruption import interruptible
from tts_plugins.types import Samples

Audio = Generator[Samples, None, None]

_PATIENCE = 2.0
"""Seconds that closing waits for streams to notice."""

_RETRY = 1.0
"""Seconds after which one of many rows is likely to be free: about a sentence."""


class Rows:
    """The rows of a batch.

    Args:
        count: Streams that are computed together. As many again may wait for them.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting = 0
        self._busy: set[_Row] = set()
        self._changed = threading.Condition()
        self._closed = False

    def run(self, audio: Callable[[], Audio]) -> Audio:
        """What ``audio`` gives, computed in a row of its own as soon as one is free.

        Closing it gives the row back once the piece that is being computed is there.

        Raises:
            OverloadedError: Too many wait already.
        """
        row = _Row(audio)
        self._take(row)
        try:
            while (piece := row.next()) is not None:
                yield piece
        finally:
            row.abandon()

    def close(self) -> None:
        """Have all streams end, and wait until they have; but not for long."""
        with self._changed:
            self._closed = True
            busy = list(self._busy)
            self._changed.notify_all()
        for row in busy:
            row.abandon()
        deadline = time.monotonic() + _PATIENCE
        with self._changed:
            while self._busy and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def _take(self, row: _Row) -> None:
        def leave() -> None:
            row.abandon()
            with self._changed:
                self._changed.notify_all()

        # The condition inside: whoever interrupts holds the interruption while it waits for it.
        with interruptible(leave), self._changed:
            if len(self._busy) >= self._count <= self._waiting:
                raise OverloadedError(
                    f"all {self._count} streams of the GPU are in use, and as many wait",
                    retry_after=_RETRY,
                )
            self._waiting += 1
            try:
                while len(self._busy) >= self._count and not (row.abandoned or self._closed):
                    self._changed.wait()
            finally:
                self._waiting -= 1
            if self._closed:
                raise EngineError("this vieneu engine is closed; open another one")
            if row.abandoned:
                return
            self._busy.add(row)
        try:
            threading.Thread(
                target=self._listen, args=(row,), name="vieneu-stream", daemon=True
            ).start()
        except RuntimeError as error:
            self._give_back(row)
            raise EngineError("no further thread for a stream of VieNeu's") from error

    def _listen(self, row: _Row) -> None:
        try:
            row.listen()
        finally:
            self._give_back(row)

    def _give_back(self, row: _Row) -> None:
        with self._changed:
            self._busy.discard(row)
            self._changed.notify_all()


class _Row:
    """One stream while it is computed."""

    def __init__(self, audio: Callable[[], Audio]) -> None:
        self._audio = audio
        self._pieces: queue.SimpleQueue[Samples | BaseException | None] = queue.SimpleQueue()
        self.abandoned = False

    def listen(self) -> None:
        """Hand on what is computed until there is no more, or nobody who wants it."""
        try:
            if not self.abandoned:
                with closing(self._audio()) as pieces:
                    for piece in pieces:
                        self._pieces.put(piece)
                        if self.abandoned:
                            break
        except BaseException as error:  # noqa: BLE001  the SDK's own code; told to who listens
            self._pieces.put(error)
        self._pieces.put(None)

    def next(self) -> Samples | None:
        """The next piece; None behind the last, or when it is abandoned meanwhile."""
        if self.abandoned:
            return None
        with interruptible(self.abandon):
            piece = self._pieces.get()
        if isinstance(piece, BaseException):
            raise piece
        return piece

    def abandon(self) -> None:
        """Nobody wants any more of it."""
        self.abandoned = True
        self._pieces.put(None)
