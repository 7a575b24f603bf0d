"""Several processes on one socket, each with an engine of its own, begun and ended together.

uvicorn has such a parent too, but in recent versions only for servers of its own class.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from tempfile import TemporaryDirectory
from types import FrameType

from prometheus_client import multiprocess

logger = logging.getLogger(__name__)

_NUMBERS = "PROMETHEUS_MULTIPROC_DIR"


@dataclass
class _Worker:
    process: SpawnProcess
    told: Connection
    """Where it says that it is ready."""
    ready: bool = False


class Workers:
    """Processes that do the same work until SIGTERM or Ctrl-C ends them all.

    One that dies is replaced. One that dies before it was ready would do so again, and ends the
    others.

    Args:
        work: What each does: can be pickled, takes ``ready``, ends on SIGTERM, and returns an exit
            status.
        count: How many there are.
        ready: Called once, when all are.
    """

    def __init__(self, work: Callable[..., int], count: int, *, ready: Callable[[], None]) -> None:
        self._work = work
        self._count = count
        self._ready: Callable[[], None] | None = ready
        self._workers: list[_Worker] = []
        self._status: int | None = None
        """To exit with, once they are to end."""

    def run(self) -> int:
        """Begin them, and wait for their end; the exit status for them all."""
        with _numbers_added_up():
            before = {s: signal.signal(s, self._end) for s in (signal.SIGINT, signal.SIGTERM)}
            try:
                for _ in range(self._count):
                    self._start()
                while self._workers:
                    self._wait()
            finally:
                for sig, handler in before.items():
                    signal.signal(sig, handler)
        return self._status or 0

    def _start(self) -> None:
        told, tell = get_context("spawn").Pipe(duplex=False)
        process = get_context("spawn").Process(target=_begin, args=(self._work, tell))
        # A terminal sends Ctrl-C to all of them, and a second signal would hang up on everybody.
        # What is blocked here stays blocked in the worker, and here it comes a moment later; but
        # to start the tracker, which multiprocessing would do by and by, unblocks it.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        tell.close()
        self._workers.append(_Worker(process, told))
        if self._status is not None:
            process.terminate()

    def _end(self, sig: int, frame: FrameType | None = None) -> None:
        self._end_all(128 + sig if sig == signal.SIGINT else 0)

    def _end_all(self, status: int) -> None:
        self._status = self._status or status
        for worker in self._workers:
            worker.process.terminate()

    def _wait(self) -> None:
        waits = [w.told for w in self._workers if not w.ready]
        over = wait([*waits, *(w.process.sentinel for w in self._workers)])
        for worker in list(self._workers):
            if worker.told in over:
                with suppress(EOFError):
                    worker.told.recv()
                    worker.ready = True
            if worker.process.sentinel in over:
                self._replace(worker)
        if self._ready and self._status is None and all(w.ready for w in self._workers):
            self._ready()
            self._ready = None

    def _replace(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.process.join()
        multiprocess.mark_process_dead(worker.process.pid)  # type: ignore[no-untyped-call]
        if self._status is not None:
            return
        if worker.ready:
            logger.error("a worker ended (%s): another begins", worker.process.exitcode)
            self._start()
        else:
            self._end_all(1)


def _begin(work: Callable[..., int], tell: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(work(ready=lambda: tell.send(None)))


def _end_with_parent() -> None:
    # A parent that is killed can't end its workers, and they would keep the port.
    if parent := parent_process():
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _numbers_added_up() -> Generator[None, None, None]:
    """A folder for the numbers of all processes, unless one is set."""
    if _NUMBERS in os.environ:
        yield
        return
    with TemporaryDirectory(prefix="tts-plugins-") as folder:
        os.environ[_NUMBERS] = folder
        try:
            yield
        finally:
            del os.environ[_NUMBERS]
