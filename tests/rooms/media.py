"""Audio both ways, between aiortc and arrays of samples."""

from __future__ import annotations

import asyncio
import time
from fractions import Fraction

import av
import numpy as np
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCRtpReceiver
from aiortc.jitterbuffer import JitterBuffer

from tts_plugins.audio.pcm import from_s16, to_s16
from tts_plugins.types import Samples

RATE = 48_000
FRAME = RATE // 50
"""Samples of a packet."""


def peer() -> RTCPeerConnection:
    """One that asks nobody outside where it is."""
    return RTCPeerConnection(RTCConfiguration(iceServers=[]))


def hurry(receiver: RTCRtpReceiver) -> None:
    """Decode each packet as soon as the next is there.

    aiortc keeps four packets back in case some come in the wrong order, which nothing does here:
    the end of an utterance would come to light only with the packets of the next.
    """
    receiver._RTCRtpReceiver__jitter_buffer = JitterBuffer(capacity=16)  # type: ignore[attr-defined]


async def packet(track: MediaStreamTrack) -> Samples:
    """The next packet, decoded. aiortc makes interleaved 16-bit stereo of Opus."""
    frame = await track.recv()
    assert isinstance(frame, av.AudioFrame)
    return from_s16(frame.to_ndarray().tobytes())[::2]


class Microphone(MediaStreamTrack):
    """Sends what is said into it in real time, and nothing else: no packets while it is quiet."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._frames: asyncio.Queue[Samples] = asyncio.Queue()
        self._sent = 0
        self._began: float | None = None

    def say(self, samples: Samples) -> None:
        """Say something; ``samples`` are at 48000 hertz."""
        padded = np.pad(samples, (0, -len(samples) % FRAME))
        for frame in padded.reshape(-1, FRAME):
            self._frames.put_nowait(frame)

    async def recv(self) -> av.AudioFrame:
        """The next packet, not before its time. aiortc calls it."""
        samples = await self._frames.get()
        now = time.monotonic()
        if self._began is None or now > self._began + (self._sent + FRAME) / RATE:
            self._began = now - self._sent / RATE  # it was quiet since
        await asyncio.sleep(self._began + self._sent / RATE - now)
        pcm = np.frombuffer(to_s16(samples), np.int16)
        frame = av.AudioFrame.from_ndarray(pcm[np.newaxis], format="s16", layout="mono")
        frame.sample_rate, frame.time_base = RATE, Fraction(1, RATE)
        frame.pts = self._sent
        self._sent += FRAME
        return frame
