"""Who waits in a room for the agent: hears it, reads its captions, types and talks."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from livekit.protocol import models

from tests.rooms.media import Microphone
from tts_plugins.types import Samples

IDENTITY, SID, MICROPHONE_SID = "guest", "PA_guest", "TR_guest_microphone"
LOUD = 0.01
"""Of a packet's samples, the loudest: -40 dBFS. Opus makes silence no louder than 0.001."""


@dataclass(frozen=True)
class Packet:
    """20 ms of the agent's voice, decoded."""

    at: float
    """When it was there, in seconds of time.monotonic."""
    samples: Samples
    """At 48000 hertz."""

    @property
    def loud(self) -> bool:
        return bool(np.abs(self.samples).max() > LOUD)


@dataclass(frozen=True)
class Caption:
    """A piece of what the agent says, as it is shown."""

    at: float
    """When it was there, in seconds of time.monotonic."""
    stream: str
    """Which turn it belongs to: the id of the text stream it came in."""
    text: str


class Line(Protocol):
    """The way to an agent."""

    def send(self, packet: models.DataPacket) -> None:
        """Over the reliable data channel."""


class Guest:
    """The other side of the conversation. It is there before the agent comes.

    Args:
        room: Its name.
    """

    def __init__(self, room: str) -> None:
        self.room = room
        self.packets: list[Packet] = []
        self.captions: list[Caption] = []
        self.ended: set[str] = set()
        """Of captions, the streams that are whole."""
        self.attributes: dict[str, str] = {}
        """Of the agent: ``lk.agent.state`` is what it does."""
        self.microphone = Microphone()
        self.agents: list[str] = []
        """Who is in the room besides, by identity."""
        self.line: Line | None = None
        """Open while an agent can be written to."""
        self._streams: set[str] = set()
        self._came = asyncio.Event()
        self._numbers = itertools.count(1)

    # What it does

    async def until(self, condition: Callable[[], object], within: float = 20.0) -> None:
        """Wait until something is so; it is looked at whenever something came.

        Raises:
            TimeoutError: It took longer than ``within`` seconds.
        """
        try:
            async with asyncio.timeout(within):
                while not condition():
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError as late:
            had = f"{len(self.packets)} packets, of them {len(self.loud)} loud, read {self.turns}"
            raise TimeoutError(f"not within {within:g} s: had {had}") from late

    async def meet(self, within: float = 20.0) -> None:
        """Wait for an agent that can be written to."""
        await self.until(lambda: self.line, within)

    def types(self, text: str, topic: str = "lk.chat") -> None:
        """Send a text stream, as a chat in a browser does."""
        assert self.line, "no agent is in the room"
        stream, content = str(uuid.uuid4()), text.encode()
        header = models.DataStream.Header(
            stream_id=stream,
            timestamp=int(time.time() * 1000),
            topic=topic,
            mime_type="text/plain",
            total_length=len(content),
            text_header=models.DataStream.TextHeader(),
        )
        chunk = models.DataStream.Chunk(stream_id=stream, content=content)
        for packet in (
            models.DataPacket(stream_header=header),
            models.DataPacket(stream_chunk=chunk),
            models.DataPacket(stream_trailer=models.DataStream.Trailer(stream_id=stream)),
        ):
            packet.participant_identity, packet.participant_sid = IDENTITY, SID
            packet.sequence = next(self._numbers)
            self.line.send(packet)

    def forget(self) -> None:
        """Begin anew with what was heard and read."""
        self.packets.clear()
        self.captions.clear()
        self.ended.clear()

    # What it notices

    @property
    def read(self) -> str:
        """The captions so far."""
        return "".join(caption.text for caption in self.captions)

    @property
    def turns(self) -> list[str]:
        """The captions so far, turn by turn."""
        turns: dict[str, str] = {}
        for caption in self.captions:
            turns[caption.stream] = turns.get(caption.stream, "") + caption.text
        return list(turns.values())

    @property
    def loud(self) -> list[Packet]:
        return [packet for packet in self.packets if packet.loud]

    @property
    def voice(self) -> Samples:
        """The agent's voice from its first loud packet to its last."""
        where = [number for number, packet in enumerate(self.packets) if packet.loud]
        heard = self.packets[where[0] : where[-1] + 1] if where else []
        return np.concatenate([np.zeros(0, np.float32), *(packet.samples for packet in heard)])

    def hear(self, samples: Samples) -> None:
        self.packets.append(Packet(time.monotonic(), samples))
        self._came.set()

    def receive(self, packet: models.DataPacket) -> None:
        now = time.monotonic()
        match packet.WhichOneof("value"):
            case "stream_header" if packet.stream_header.topic == "lk.transcription":
                self._streams.add(packet.stream_header.stream_id)
            case "stream_chunk" if packet.stream_chunk.stream_id in self._streams:
                chunk = packet.stream_chunk
                self.captions.append(Caption(now, chunk.stream_id, chunk.content.decode()))
            case "stream_trailer" if packet.stream_trailer.stream_id in self._streams:
                self.ended.add(packet.stream_trailer.stream_id)
        self._came.set()

    def look(self) -> None:
        """Something in the room changed."""
        self._came.set()

    # How others see it

    @property
    def info(self) -> models.ParticipantInfo:
        """As the room describes it to the agent."""
        microphone = models.TrackInfo(
            sid=MICROPHONE_SID,
            type=models.TrackType.AUDIO,
            name="microphone",
            source=models.TrackSource.MICROPHONE,
            mime_type="audio/opus",
        )
        return models.ParticipantInfo(
            sid=SID,
            identity=IDENTITY,
            state=models.ParticipantInfo.State.ACTIVE,
            kind=models.ParticipantInfo.Kind.STANDARD,
            tracks=[microphone],
            is_publisher=True,
        )
