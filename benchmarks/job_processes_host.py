"""A LiveKit worker whose jobs speak when they are told to.

It is what somebody's agent would be: a job joins its room and has a session. What the session says
goes to a listener here instead of the room, who notes when the first sound arrives.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from typing import TYPE_CHECKING

from livekit import rtc
from livekit.agents import Agent, AgentServer, AgentSession, JobContext, JobProcess
from livekit.agents.voice import io

if TYPE_CHECKING or os.environ.get("VOICE"):
    # At the top, as in an agent's file: so the forkserver has it and all jobs share it.
    from tts_plugins.adapters.livekit import EngineTTS

AUDIBLE = 327
"""Of 16-bit samples: -40 dBFS."""


class Listener(io.AudioOutput):
    """Hears a sentence as soon as it comes."""

    def __init__(self) -> None:
        super().__init__(label="listener", capabilities=io.AudioOutputCapabilities(pause=False))
        self.heard_at = 0.0
        self._seconds = 0.0

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if not self._seconds:
            self.on_playback_started(created_at=time.time())
        self._seconds += frame.duration
        if not self.heard_at and max(map(abs, frame.data)) > AUDIBLE:
            self.heard_at = time.monotonic()

    def flush(self) -> None:
        super().flush()
        if self._seconds:
            self.on_playback_finished(playback_position=self._seconds, interrupted=False)
            self._seconds = 0.0

    def clear_buffer(self) -> None:
        self.flush()


def warm_up(process: JobProcess) -> None:
    if voice := os.environ.get("VOICE"):
        process.userdata["tts"] = tts = EngineTTS(voice)
        tts.prewarm()


server = AgentServer(setup_fnc=warm_up, num_idle_processes=0, initialize_process_timeout=60, port=0)


@server.rtc_session()
async def job(ctx: JobContext) -> None:
    """Tell who I am; say each line that comes, and tell after how long its first sound came."""
    await ctx.connect()
    listener = Listener()
    session: AgentSession[None] = AgentSession(vad=None)
    if "tts" in ctx.proc.userdata:
        session = AgentSession(tts=ctx.proc.userdata["tts"], vad=None)
        session.output.audio = listener
    await session.start(Agent(instructions=""), record=False)
    lines, asking = await asyncio.open_unix_connection(os.environ["JOBS"])
    asking.write(f"{os.getpid()}\n".encode())
    while text := (await lines.readline()).decode().strip():
        listener.heard_at = 0.0
        began = time.monotonic()
        await session.say(text)
        asking.write(f"{listener.heard_at - began}\n".encode())
    await session.aclose()


async def main() -> None:
    # By its name, for what a job runs is found by that.
    from benchmarks.job_processes_host import server as worker

    running = asyncio.create_task(worker.run(devmode=True))
    await asyncio.to_thread(sys.stdin.buffer.read)  # until whoever started it is done with it
    await worker.aclose()
    await running


if __name__ == "__main__":
    logging.getLogger("livekit").setLevel(logging.ERROR)
    asyncio.run(main())
