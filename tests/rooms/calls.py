"""An AgentSession of this process in a room, with a guest who listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import Any

import pytest
from livekit import rtc
from livekit.agents import Agent, AgentSession
from livekit.agents.llm import ChatMessage
from livekit.agents.voice import SpeechHandle

from tests.rooms.dispatch import PATIENCE, NotUnderstoodError
from tests.rooms.guest import Guest
from tests.rooms.server import LiveKitServer
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.engine import Engine

TRIED = {
    "aiortc": "1.16.0",
    "livekit": "1.1.21",
    "livekit-agents": "1.8.9",
    "livekit-protocol": "1.1.29",
}
"""The versions that the server is known to understand."""


@contextmanager
def understood() -> Iterator[None]:
    """Skips the test where another version says something else than those that were tried."""
    try:
        yield
    except (NotUnderstoodError, TimeoutError, rtc.ConnectError) as error:
        others = {name: version(name) for name in TRIED if version(name) != TRIED[name]}
        if not others:
            raise
        pytest.skip(f"the test server doesn't understand {others}: {error!r}")


class Call:
    """A session and the one it talks to."""

    def __init__(self, session: AgentSession[None], guest: Guest) -> None:
        self.session, self.guest = session, guest

    async def say(self, text: str) -> SpeechHandle:
        """Say something to the end, until the guest has heard and read it all."""
        self.guest.forget()
        speech = self.session.say(text)
        async with asyncio.timeout(PATIENCE):
            await speech.wait_for_playout()
        await self.silence()
        return speech

    async def silence(self) -> None:
        """Wait until the turn is over for the guest: whole on the screen, and quiet."""
        packets = self.guest.packets
        await self.guest.until(lambda: self.guest.ended)
        await self.guest.until(lambda: len(packets) >= QUIET and not _loud(packets[-QUIET:]))

    @property
    def last(self) -> ChatMessage:
        """What the session remembers as said last."""
        message = self.session.history.items[-1]
        assert isinstance(message, ChatMessage)
        return message


QUIET = 3
"""Quiet packets in a row after a turn. LiveKit soon sends none at all."""


def _loud(packets: list[Any]) -> bool:
    return any(packet.loud for packet in packets)


@asynccontextmanager
async def call(engine: Engine, **options: Any) -> AsyncGenerator[Call, None]:
    """Put a session into a room; ``options`` are the session's."""
    tts = EngineTTS(engine)
    options = {"vad": None, "turn_handling": {"turn_detection": None}} | options
    session: AgentSession[None] = AgentSession(tts=tts, use_tts_aligned_transcript=True, **options)
    async with LiveKitServer() as server:
        guest, room = server.guest("kitchen"), rtc.Room()
        try:
            with understood():
                async with asyncio.timeout(PATIENCE):
                    await room.connect(server.url, server.token("kitchen"))
                    await session.start(Agent(instructions=""), room=room, record=False)
                await guest.meet()
            yield Call(session, guest)
        finally:
            await session.aclose()
            await room.disconnect()
            await tts.aclose()
