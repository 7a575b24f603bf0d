"""A loudspeaker for AgentSession: plays by the clock, without a room or a server."""

from __future__ import annotations

import asyncio
import time

from livekit import rtc
from livekit.agents.voice import io


class ClockedSink(io.AudioOutput):
    """Plays each segment in real time from its first frame on, and keeps every frame."""

    def __init__(self, sample_rate: int | None = None) -> None:
        super().__init__(
            label="clocked sink",
            capabilities=io.AudioOutputCapabilities(pause=False),
            sample_rate=sample_rate,
        )
        self.frames: list[rtc.AudioFrame] = []
        self.finished: list[tuple[float, bool]] = []
        """Seconds played of each segment, and whether it was interrupted."""
        self.started = asyncio.Event()
        """Whether a segment is playing."""
        self._started_at = 0.0
        self._pushed = 0.0
        self._end: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        self.frames.append(frame)
        self._pushed += frame.duration
        if not self.started.is_set():
            self.started.set()
            self._started_at = time.time()
            self.on_playback_started(created_at=self._started_at)

    def flush(self) -> None:
        super().flush()
        if self.started.is_set():
            rest = self._pushed - self._played()
            self._end = asyncio.get_running_loop().call_later(rest, self._finish, False)

    def clear_buffer(self) -> None:
        if self.started.is_set():
            self._finish(interrupted=True)

    def _played(self) -> float:
        return min(self._pushed, time.time() - self._started_at)

    def _finish(self, interrupted: bool) -> None:
        played = self._played() if interrupted else self._pushed
        if self._end is not None:
            self._end.cancel()
        self.finished.append((played, interrupted))
        self.started.clear()
        self._pushed, self._end = 0.0, None
        self.on_playback_finished(playback_position=played, interrupted=interrupted)


class TextSink(io.TextOutput):
    """What a transcript on a screen would show."""

    def __init__(self) -> None:
        super().__init__(label="text sink", next_in_chain=None)
        self.text = ""

    async def capture_text(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass
