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
from tests.rooms.media import FRAME, RATE
from tests.server.live import LateError, best_of_three
from tts_plugins.engine import Engine
from tts_plugins.registry import open_engine
from tts_plugins.turn import Turn
from tts_plugins.types import Samples

pytestmark = pytest.mark.wire

TURNS = [
    "Hello there!",
    "At seven, sir.",
    "Yes, for two.",
    "You're welcome.",
    "Goodbye, my friend.",
]
SLACK = 4
"""Packets of 20 ms: a turn's packets are cut elsewhere than those it is compared with."""
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


async def spoken(engine: Engine, text: str, rate: int = RATE) -> Samples:
    """What there is to hear of a text, without a room."""
    turn = Turn(engine, sample_rate=rate)
    return np.concatenate([chunk.samples async for chunk in turn.say(text)])


def loud(samples: Samples) -> int:
    """The packets of 20 ms in which something can be heard."""
    packets = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME)
    return int((np.abs(packets).max(axis=1) > LOUD).sum())


async def assert_whole(phone: Call, engine: Engine, text: str) -> None:
    """The guest heard, and read, and the session remembers, this and nothing else.

    Silence may have been heard in between where a busy machine made a gap: loud packets are
    counted. At the edges of a gap Opus makes a few more of them.
    """
    heard, meant = len(phone.guest.loud), loud(await spoken(engine, text))
    assert heard >= meant - SLACK
    if heard > meant + 2 * SLACK:
        raise LateError(f"{heard} loud packets were heard of {meant}")
    assert phone.guest.read == text
    assert phone.last.text_content == text
    assert not phone.last.interrupted


def assert_remembered_as_read(phone: Call) -> None:
    """The session knows of an interrupted turn what the guest could read of it.

    LiveKit shows a word when half of its time has passed and remembers it when all has
    (livekit-agents 1.8.9, voice/transcription/synchronizer.py): the last may lack.
    """
    pieces = [caption.text for caption in phone.guest.captions]
    remembered = (phone.last.text_content or "").strip()
    assert remembered in ("".join(pieces).strip(), "".join(pieces[:-1]).strip())
    assert phone.last.interrupted
    assert STORY.startswith(phone.guest.read)
    assert len(pieces) < len(STORY.split())


@best_of_three
async def test_five_turns_are_heard_and_read_and_remembered_whole() -> None:
    async with opened("hibari") as engine, call(engine) as phone:
        for text in TURNS:
            await phone.say(text)
            await assert_whole(phone, engine, text)
            assert [caption.text.strip() for caption in phone.guest.captions] == text.split()
            # The first words come before the voice ends, the last after it began.
            assert phone.guest.captions[0].at < phone.guest.loud[-1].at
            assert phone.guest.captions[-1].at > phone.guest.loud[0].at


@best_of_three
async def test_a_tone_has_its_pitch_at_the_other_end() -> None:
    async with opened("tone") as engine, call(engine) as phone:
        await phone.say("Hello there.")
        await assert_whole(phone, engine, "Hello there.")
        meant = await spoken(engine, "Hello there.")
        assert pitch(phone.guest.voice, RATE) == pytest.approx(pitch(meant, RATE), abs=1)


@best_of_three
async def test_an_interrupted_turn_is_remembered_as_it_was_read() -> None:
    async with opened("hibari") as engine, call(engine) as phone:
        speech = phone.session.say(STORY)
        await phone.guest.until(lambda: len(phone.guest.captions) >= 5)
        speech.interrupt()
        await stopped(phone)
        assert_remembered_as_read(phone)
        await phone.say(TURNS[0])
        await assert_whole(phone, engine, TURNS[0])


@best_of_three
async def test_a_guest_who_speaks_up_is_let_speak() -> None:
    vad = inference.VAD()
    async with (
        opened("hibari") as engine,
        call(engine, vad=vad, turn_handling=BY_VOICE) as phone,
    ):
        objection = await spoken(engine, "Wait a moment, please.")
        speech = phone.session.say(STORY)
        await phone.guest.until(lambda: len(phone.guest.captions) >= 3)
        phone.guest.microphone.say(np.pad(objection, (0, RATE // 2)))
        await stopped(phone)
        assert speech.interrupted
        assert_remembered_as_read(phone)


async def stopped(phone: Call) -> None:
    """Wait until what is being said was interrupted, and the guest hears no more of it."""
    speech = phone.session.current_speech
    assert speech
    async with asyncio.timeout(PATIENCE):
        await speech.wait_for_playout()
    await phone.silence()
