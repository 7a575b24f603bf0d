"""One engine for all LiveKit jobs of a host, beside one in each: memory, and the first sound.

LiveKit runs every job in a process of its own, each forked from one server that has imported what
they share. Memory is PSS, where a page that n processes share counts 1/n in each: of the worker,
that server, all jobs, and the engine's own process. What the voice adds is that, less the same with
jobs that have no voice. The first sound is heard by who listens to the session in the job.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import Row, at_most
from benchmarks.texts import SENTENCES
from tests.rooms.server import LiveKitServer
from tts_plugins.devices import cores

JOBS = (1, 4, 8)
ROUNDS = 5
PATIENCE = 120.0
"""Seconds that anything here may take."""

OURS = {"hibari": "hibari", "Piper's joe": "piper"}


class Job:
    """A job that runs, in its process."""

    def __init__(self, pid: int, lines: asyncio.StreamReader, asking: asyncio.StreamWriter) -> None:
        self.pid = pid
        self._lines = lines
        self._asking = asking

    async def say(self, text: str) -> float:
        """Milliseconds to the first sound."""
        self._asking.write(f"{text}\n".encode())
        return float(await self._lines.readline()) * 1000

    def end(self) -> None:
        self._asking.close()


class Host:
    """A worker, and the jobs it has taken."""

    def __init__(self, server: LiveKitServer, pid: int, came: asyncio.Queue[Job]) -> None:
        self._server = server
        self._came = came
        self.pid = pid
        self.jobs: list[Job] = []

    async def grow(self, jobs: int) -> None:
        """Have so many jobs."""
        while len(self.jobs) < jobs:
            await self._server.dispatch(f"room{len(self.jobs)}")
            self.jobs.append(await self._came.get())


@asynccontextmanager
async def host(voice: str) -> AsyncIterator[Host]:
    """A worker whose jobs speak with that, or have no voice."""
    came: asyncio.Queue[Job] = asyncio.Queue()

    async def welcome(lines: asyncio.StreamReader, asking: asyncio.StreamWriter) -> None:
        came.put_nowait(Job(int(await lines.readline()), lines, asking))

    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "jobs.sock"
        async with LiveKitServer() as server, await asyncio.start_unix_server(welcome, socket):
            variables = server.variables | {"VOICE": voice, "JOBS": str(socket)}
            command = (sys.executable, "-m", "benchmarks.job_processes_host")
            async with _process(*command, env=os.environ | variables) as worker:
                running = Host(server, worker.pid, came)
                yield running
                for job in running.jobs:
                    job.end()


@asynccontextmanager
async def serve(voice: str) -> AsyncIterator[tuple[str, int]]:
    """``tts-plugins serve`` on a Unix socket: its address, and its process."""
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/tts.sock"
        command = str(Path(sys.executable).with_name("tts-plugins"))
        arguments = ("serve", "--engine", voice, "--uds", socket)
        async with _process(command, *arguments, stderr=asyncio.subprocess.PIPE) as process:
            assert process.stderr
            async with asyncio.timeout(PATIENCE):
                while b"ready: " not in await process.stderr.readline():
                    if process.returncode is not None:
                        raise ChildProcessError(f"the server ended with {process.returncode}")
            yield f"unix://{socket}", process.pid
            process.terminate()


@asynccontextmanager
async def _process(*command: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that ends when it is to, or with whoever started it."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, **options
    )
    assert process.stdin
    try:
        yield process
    finally:
        process.stdin.close()
        async with asyncio.timeout(PATIENCE):
            await process.wait()


def memory(pids: Sequence[int]) -> tuple[float, float]:
    """PSS and USS of some processes, in MB."""
    pss = uss = 0
    for pid in pids:
        kilobytes = {
            name: int(value.split()[0])
            for name, _, value in (
                line.partition(":")
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
            )
        }
        pss += kilobytes["Pss"]
        uss += kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
    return pss / 1024, uss / 1024


def family(pid: int) -> Iterator[int]:
    """A process and all that come from it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from family(int(child))


@dataclass(frozen=True)
class Memory:
    """MB, by the number of jobs."""

    pss: dict[int, float]
    """Of everything."""
    of_jobs: dict[int, tuple[float, float]]
    """Of the jobs' processes alone, PSS and USS."""
    engine: float
    """Of the engine's own process, with all jobs."""


async def used(voice: str, *engine: int) -> Memory:
    """What a worker and its jobs take, and processes of an engine."""
    pss, of_jobs = {}, {}
    async with host(voice) as running:
        for jobs in JOBS:
            await running.grow(jobs)
            if voice:  # what the first sentences allocate stays
                await _warm(running)
            pss[jobs] = memory([*family(running.pid), *engine])[0]
            of_jobs[jobs] = memory([job.pid for job in running.jobs])
        return Memory(pss, of_jobs, memory(engine)[0])


async def _warm(running: Host) -> None:
    for text in SENTENCES[:3]:
        await asyncio.gather(*(job.say(text) for job in running.jobs))


async def first_sounds(spec: str, address: str) -> list[Row]:
    """In jobs with an engine each and in jobs with one for all, in turn: under the same load."""
    async with host(spec) as own, host(address) as shared:
        kinds = {"one in each": own, "one for all": shared}
        alone: dict[str, list[float]] = {kind: [] for kind in kinds}
        together: dict[str, list[float]] = {kind: [] for kind in kinds}
        for each in kinds.values():
            await each.grow(max(JOBS))
            await _warm(each)
        for text in SENTENCES[:ROUNDS]:
            for n in range(max(JOBS)):
                for kind, each in kinds.items():
                    alone[kind].append(await each.jobs[n].say(text))
            for kind, each in kinds.items():
                together[kind] += await asyncio.gather(*(job.say(text) for job in each.jobs))
    later = np.median(alone["one for all"]) - np.median(alone["one in each"])
    return [
        *_sounds("one after the other", alone),
        at_most("one after the other, one for all", float(later), 10, "ms later"),
        *_sounds("all at once", together),
    ]


def _sounds(what: str, found: dict[str, list[float]]) -> Iterator[Row]:
    for kind, milliseconds in found.items():
        p50, p95 = np.percentile(milliseconds, (50, 95))
        yield Row(f"{what}, {kind}", f"p50 {p50:.0f} p95 {p95:.0f} ms")


async def run() -> dict[str, list[Row]]:
    none = await used("")
    tables = {"LiveKit jobs without a voice": list(_memory(none))}
    most = max(JOBS)
    for name, spec in OURS.items():
        own = await used(spec)
        # As many steps at once as there are cores, which jobs with an engine each take as well.
        async with serve(f"{spec}?workers={cores()}") as (address, pid):
            shared = await used(address, pid)
            sounds = await first_sounds(spec, address)
        share = (shared.pss[most] - none.pss[most]) / (own.pss[most] - none.pss[most])
        tables[f"{name}, one in each job"] = list(_memory(own, none))
        tables[f"{name}, one for all jobs"] = [
            *_memory(shared, none),
            Row("the engine's process", f"{shared.engine:.0f} MB"),
            at_most(f"what it adds to {most} jobs, by that of one in each", share, 0.33, "x", 2),
        ]
        tables[f"{name}, first sound in {most} jobs"] = sounds
    return tables


def _memory(found: Memory, without: Memory | None = None) -> Iterator[Row]:
    for jobs in JOBS:
        pss, uss = found.of_jobs[jobs]
        adds = f", the voice adds {found.pss[jobs] - without.pss[jobs]:.0f} MB" if without else ""
        of_jobs = f"jobs' processes PSS {pss:.0f} USS {uss:.0f} MB"
        yield Row(f"{jobs} jobs", f"all {found.pss[jobs]:.0f} MB{adds}; {of_jobs}")
