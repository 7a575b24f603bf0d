"""Listeners without a network: they play what a framework sends, by the clock.

A listener starts to play with the first frame that arrives. When they hear the first sound, and
whether they ever had to wait, follows from the arrival times and the samples alone.
"""

from __future__ import annotations

import asyncio
import time
import wave
from dataclasses import dataclass, field
from pathlib import Path

from livekit import rtc
from livekit.agents.voice import io
from pipecat.frames.frames import OutputAudioRawFrame, StartFrame
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams

from tts_plugins.audio.level import first_above
from tts_plugins.audio.pcm import from_s16

_BUFFERED = 0.04
"""Seconds that a loudspeaker takes in ahead of what it plays, as a jitter buffer would."""


@dataclass
class Recording:
    """What one listener heard, and when."""

    asked_at: float = field(default_factory=time.monotonic)
    """When they asked for it. Reset it to measure the next turn."""
    pcm: bytearray = field(default_factory=bytearray)
    sample_rate: int = 0
    audible_at: float | None = None
    """When they heard the first sample above -40 dBFS."""
    underruns: int = 0
    """How often they ran out of audio in the middle."""
    dry_at: float | None = None

    def play(self, pcm: bytes, sample_rate: int, *, gap: float = 0.001) -> None:
        """Take 16-bit samples that have just arrived."""
        now = time.monotonic()
        if self.dry_at is not None and now > self.dry_at + gap:
            self.underruns += 1
        start = now if self.dry_at is None else max(self.dry_at, now)
        first = first_above(from_s16(pcm))
        if self.audible_at is None and first is not None:
            self.audible_at = start + first / sample_rate
        self.dry_at = start + len(pcm) / 2 / sample_rate
        self.sample_rate = sample_rate
        self.pcm += pcm

    def next_turn(self) -> None:
        """Start to measure anew; the audio goes on."""
        self.asked_at, self.audible_at, self.dry_at = time.monotonic(), None, None
        self.underruns = 0

    async def heard(self) -> None:
        """Wait until all that has come has been played."""
        if self.dry_at is not None:
            await asyncio.sleep(self.dry_at - time.monotonic())

    @property
    def first_audible(self) -> float:
        """Seconds from the asking to the first sound; infinite if there was none."""
        return float("inf") if self.audible_at is None else self.audible_at - self.asked_at

    def save(self, path: Path) -> None:
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(self.sample_rate or 24000)
            file.writeframes(bytes(self.pcm))


class PipecatSpeaker(BaseOutputTransport):
    """A loudspeaker at the end of a Pipecat pipeline: takes audio in real time."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(TransportParams(audio_out_enabled=True, audio_out_end_silence_secs=0))
        self._recording = recording
        self._played_until = 0.0

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        self._recording.play(frame.audio, frame.sample_rate)
        now = time.monotonic()
        seconds = len(frame.audio) / 2 / frame.sample_rate
        self._played_until = max(self._played_until, now) + seconds
        await asyncio.sleep(self._played_until - now - _BUFFERED)
        return True


class LiveKitSpeaker(io.AudioOutput):
    """A loudspeaker for an AgentSession: takes audio at once, reports playback by the clock."""

    def __init__(self, recording: Recording, sample_rate: int | None = None) -> None:
        super().__init__(
            label="speaker",
            capabilities=io.AudioOutputCapabilities(pause=False),
            sample_rate=sample_rate,
        )
        self._recording = recording
        self._started_at: float | None = None
        self._seconds = 0.0
        self._end: asyncio.TimerHandle | None = None
        self.playing = asyncio.Event()
        """Set from the first frame on."""

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if self._started_at is None:
            self._started_at = time.monotonic()
            self._seconds = 0.0
            self.playing.set()
            self.on_playback_started(created_at=time.time())
        self._seconds += frame.duration
        self._recording.play(bytes(frame.data), frame.sample_rate)

    def flush(self) -> None:
        super().flush()
        if self._started_at is not None:
            left = self._started_at + self._seconds - time.monotonic()
            self._end = asyncio.get_running_loop().call_later(max(0.0, left), self._finish, False)

    def clear_buffer(self) -> None:
        if self._started_at is not None:
            self._finish(True)

    def _finish(self, interrupted: bool) -> None:
        if self._end is not None:
            self._end.cancel()
        if self._started_at is None:
            return
        played = time.monotonic() - self._started_at
        position = min(self._seconds, played) if interrupted else self._seconds
        if interrupted:  # what was not played was not heard
            kept = round(position * self._recording.sample_rate) * 2
            sent = round(self._seconds * self._recording.sample_rate) * 2
            del self._recording.pcm[len(self._recording.pcm) - (sent - kept) :]
        self._started_at = self._end = None
        self.on_playback_finished(playback_position=position, interrupted=interrupted)
