"""Jobs for workers: the half of LiveKit that an AgentServer talks to, at ``/agent``.

worker                      server
  | register        ->        |
  |        <- register (id)   |
  |        <- availability    |   is there room for this job?
  | availability    ->        |   yes, under this identity
  |        <- assignment      |   then here is its token
  | update_job      ->        |   it runs, it ended
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from aiohttp import WSMsgType, web
from livekit.protocol import agent, models

PATIENCE = 20.0
"""Seconds that anybody here may take to answer. A job's process may have to be started first."""


class NotUnderstoodError(AssertionError):
    """A client or a worker of another version said something else than was expected."""


class Job:
    """A job that was offered to a worker."""

    def __init__(self, number: int, room: models.Room) -> None:
        self.info = agent.Job(
            id=f"AJ_{number}", dispatch_id=f"AD_{number}", type=agent.JobType.JT_ROOM, room=room
        )
        self.identity = ""
        """Of the agent in the room."""
        self.status = agent.JobStatus.JS_PENDING
        self.answered = asyncio.Event()
        self._ended = asyncio.Event()

    async def ended(self, within: float = PATIENCE) -> agent.JobStatus:
        """How it ended, once it has."""
        async with asyncio.timeout(within):
            await self._ended.wait()
        return self.status

    def update(self, status: agent.JobStatus) -> None:
        self.status = status
        if status not in (agent.JobStatus.JS_PENDING, agent.JobStatus.JS_RUNNING):
            self._ended.set()


class Worker:
    """A worker that registered."""

    def __init__(self, socket: web.WebSocketResponse, name: str) -> None:
        self._socket = socket
        self.name = name
        """Its agent_name; empty for one that takes any room."""
        self.load = 0.0
        """Between 0 and 1, as it said last."""
        self.full = False

    async def send(self, message: agent.ServerMessage) -> None:
        await self._socket.send_bytes(message.SerializeToString())


class Dispatch:
    """Knows the workers and gives them jobs.

    Args:
        token: Makes the token of an agent, of its room and identity.
        url: Tells where the rooms are.
    """

    def __init__(self, token: Callable[[str, str], str], url: Callable[[], str]) -> None:
        self._token, self._url = token, url
        self.workers: list[Worker] = []
        self._came = asyncio.Event()
        self._jobs: dict[str, Job] = {}
        self._numbers = itertools.count(1)

    async def worker(self) -> Worker:
        """The worker with the least to do, once there is one."""
        async with asyncio.timeout(PATIENCE):
            await self._came.wait()
        return min(self.workers, key=lambda worker: (worker.full, worker.load))

    async def offer(self, room: models.Room) -> Job:
        """Have a worker take a job. Returns once it has been told to run it.

        Raises:
            NotUnderstoodError: It doesn't want it.
        """
        worker = await self.worker()
        job = Job(next(self._numbers), room)
        self._jobs[job.info.id] = job
        asked = agent.AvailabilityRequest(job=job.info)
        await worker.send(agent.ServerMessage(availability=asked))
        async with asyncio.timeout(PATIENCE):
            await job.answered.wait()
        if not job.identity:
            raise NotUnderstoodError(f"worker {worker.name!r} refused the job, load {worker.load}")
        assigned = agent.JobAssignment(
            job=job.info, url=self._url(), token=self._token(room.name, job.identity)
        )
        await worker.send(agent.ServerMessage(assignment=assigned))
        return job

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """One worker, as long as it stays."""
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        first = agent.WorkerMessage.FromString(await socket.receive_bytes(timeout=PATIENCE))
        if not first.HasField("register"):
            raise NotUnderstoodError(f"a worker began with {first.WhichOneof('message')}")
        worker = Worker(socket, first.register.agent_name)
        welcome = agent.RegisterWorkerResponse(
            worker_id=f"AW_{next(self._numbers)}", server_info=models.ServerInfo(protocol=16)
        )
        await worker.send(agent.ServerMessage(register=welcome))
        self.workers.append(worker)
        self._came.set()
        try:
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    await self._read(worker, agent.WorkerMessage.FromString(message.data))
        finally:
            self.workers.remove(worker)
            if not self.workers:
                self._came.clear()
        return socket

    async def _read(self, worker: Worker, message: agent.WorkerMessage) -> None:
        match message.WhichOneof("message"):
            case "availability":
                answer = message.availability
                job = self._jobs[answer.job_id]
                job.identity = answer.participant_identity if answer.available else ""
                job.answered.set()
            case "update_job":
                self._jobs[message.update_job.job_id].update(message.update_job.status)
            case "update_worker":
                worker.load = message.update_worker.load
                worker.full = message.update_worker.status == agent.WorkerStatus.WS_FULL
            case "ping":
                pong = agent.WorkerPong(last_timestamp=message.ping.timestamp)
                await worker.send(agent.ServerMessage(pong=pong))
