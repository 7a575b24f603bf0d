"""Examples as a user starts and ends them: one command, and Ctrl-C."""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass
from types import TracebackType

from tests.documents import ROOT

_PATIENCE = 60.0
"""Seconds that anything here may take before it is taken for stuck."""


@dataclass(frozen=True)
class Ended:
    """How an example ended."""

    status: int
    output: str
    """All it wrote, errors too."""


class Running:
    """An example that runs, in a group of processes of its own as in a terminal."""

    def __init__(self, name: str, *arguments: str, **variables: str) -> None:
        self._process = subprocess.Popen(
            [ROOT / "scripts" / "agent", name, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | variables,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._output: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line from here on that the pattern is found in."""
        while (line := self._lines.get(timeout=_PATIENCE)) is not None:
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"ended without {pattern!r}:\n{''.join(self._output)}")

    def press_ctrl_c(self) -> Ended:
        """What a terminal does: SIGINT to all in the group."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self.end()

    def end(self) -> Ended:
        """Wait until it ends by itself."""
        status = self._process.wait(_PATIENCE)
        self._reader.join(_PATIENCE)  # the pipe closes when the last process that holds it ends
        assert not self._reader.is_alive(), "it left a process behind"
        return Ended(status, "".join(self._output))

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None or self._reader.is_alive():
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._output.append(line)
            self._lines.put(line)
        self._process.stdout.close()
        self._lines.put(None)


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
