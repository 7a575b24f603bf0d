from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import numpy as np
import pytest

pytest.importorskip("aiortc")

from livekit.agents import inference

from tests.hearing import pitch
from tests.rooms.calls import Call, call
from tests.rooms.dispatch import PATIENCE
from tests.rooms.guest import LOUD
from tests.rooms.media import FRAME
from tts_plugins.engine import Engine
from tts_plugins.registry import open_engine
from tts_plugins.turn import Turn
from tts_plugins.types import Samples

pytestmark = pytest.mark.wire

TURNS = [
    "Hello there!",
    "The ferry leaves at seven.",
    "Yes, there is room for bicycles.",
    "Your places are booked.",
    "Goodbye, my friend.",
]
STORY = (
    "Let me tell you how the lighthouse came to be. In eighteen fifty three, a ship called the "
    "Meridian ran aground on the rocks below us."
)

BY_VOICE = {
    "turn_detection": "vad",
    "interruption": {"mode": "vad", "resume_false_interruption": False},
}
"""Nobody here knows what is said, so whoever speaks means it."""


@asynccontextmanager
async def opened(name: str) -> AsyncGenerator[Engine, None]:
    engine = open_engine(name)
    try:
        yield engine
    finally:
        await engine.aclose()


async def spoken(engine: Engine, text: str, rate: int = 48_000) -> Samples:
    """What there is to hear of a text, without a room."""
    turn = Turn(engine, sample_rate=rate)
    return np.concatenate([chunk.samples async for chunk in turn.say(text)])


def loud(samples: Samples) -> int:
    """The packets of 20 ms in which something can be heard."""
    packets = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME)
    return int((np.abs(packets).max(axis=1) > LOUD).sum())


async def assert_whole(phone: Call, engine: Engine, text: str) -> None:
    """The guest heard, and read, and the session remembers, this and nothing else.

    Where a busy machine made a gap, silence was heard in it: so what is loud is counted.
    """
    heard, meant = len(phone.guest.loud), loud(await spoken(engine, text))
    assert heard == pytest.approx(meant, abs=4)
    assert phone.guest.read == text
    assert phone.last.text_content == text
    assert not phone.last.interrupted


async def test_five_turns_are_heard_and_read_and_remembered_whole() -> None:
    async with opened("hibari") as engine, call(engine) as phone:
        for text in TURNS:
            await phone.say(text)
            await assert_whole(phone, engine, text)
            assert [caption.text.strip() for caption in phone.guest.captions] == text.split()
            # The first words come before the voice ends, the last after it began.
            assert phone.guest.captions[0].at < phone.guest.loud[-1].at
            assert phone.guest.captions[-1].at > phone.guest.loud[0].at


async def test_a_tone_has_its_pitch_at_the_other_end() -> None:
    async with opened("tone") as engine, call(engine) as phone:
        await phone.say("Hello there.")
        await assert_whole(phone, engine, "Hello there.")
        meant = await spoken(engine, "Hello there.")
        assert pitch(phone.guest.voice, 48_000) == pytest.approx(pitch(meant, 48_000), abs=1)


async def test_an_interrupted_turn_is_remembered_as_it_was_read() -> None:
    async with opened("hibari") as engine, call(engine) as phone:
        speech = phone.session.say(STORY)
        await phone.guest.until(lambda: len(phone.guest.captions) == 5)
        speech.interrupt()
        await stopped(phone)
        assert phone.last.interrupted
        assert phone.last.text_content == phone.guest.read.strip()
        assert STORY.startswith(phone.guest.read)
        assert 5 <= len(phone.guest.captions) <= 7
        await phone.say(TURNS[0])
        await assert_whole(phone, engine, TURNS[0])


async def test_a_guest_who_speaks_up_is_let_speak() -> None:
    vad = inference.VAD()
    async with (
        opened("hibari") as engine,
        call(engine, vad=vad, turn_handling=BY_VOICE) as phone,
    ):
        objection = await spoken(engine, "Wait a moment please, I have a question.")
        speech = phone.session.say(STORY)
        await phone.guest.until(lambda: len(phone.guest.captions) == 3)
        phone.guest.microphone.say(np.pad(objection, (0, 48_000)))
        await stopped(phone)
        assert speech.interrupted
        assert phone.last.interrupted
        assert phone.last.text_content == phone.guest.read.strip()
        assert STORY.startswith(phone.guest.read)
        assert len(phone.guest.captions) < len(STORY.split())
        await phone.guest.microphone.said()
        await phone.say(TURNS[0])
        await assert_whole(phone, engine, TURNS[0])


async def stopped(phone: Call) -> None:
    """Wait until what is being said was interrupted, and the guest hears no more of it."""
    speech = phone.session.current_speech
    assert speech
    async with asyncio.timeout(PATIENCE):
        await speech.wait_for_playout()
    await phone.silence()
