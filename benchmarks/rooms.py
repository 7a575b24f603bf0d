"""How long a guest of a LiveKit room waits, for the voice, for silence and for the captions.

A real room on this machine: WebRTC, Opus and LiveKit's own client; agent, server and guest share a
process. Beside hibari the same audio is spoken by an engine that has it ready: what is measured
then is what the room takes.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, Sequence

import numpy as np

from benchmarks.tables import Row
from benchmarks.texts import SENTENCES, SIX_SENTENCES
from tests.rooms.calls import Call, call
from tests.rooms.dispatch import PATIENCE
from tests.rooms.guest import LOUD
from tts_plugins.engine import Engine
from tts_plugins.registry import open_engine
from tts_plugins.turn import Turn
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

TURNS = SENTENCES[:5]
CUTS = 5
AFTER = 4
"""Words that are read before an interruption."""
SOUND = 0.001
"""Of a packet that isn't silence, the loudest sample: -60 dBFS."""


class Ready:
    """Says at once what it heard another engine say."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._heard: dict[str, list[AudioChunk]] = {}

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        if request.text not in self._heard:
            self._heard[request.text] = [chunk async for chunk in self._engine.stream(request)]
        for chunk in self._heard[request.text]:
            yield chunk

    async def voices(self) -> Sequence[Voice]:
        return await self._engine.voices()

    async def aclose(self) -> None:
        await self._engine.aclose()


async def whole_turns(phone: Call, engine: Engine) -> dict[str, list[float]]:
    """Milliseconds until the first sound, and until each word's caption."""
    packet, audible, captions = [], [], []
    for text in TURNS:
        turn = Turn(engine, sample_rate=48_000)
        chunks = [chunk async for chunk in turn.say(text)]
        words = [word for chunk in chunks for word in chunk.words]
        loud = np.flatnonzero(np.abs(np.concatenate([c.samples for c in chunks])) > LOUD)[0]

        began = time.monotonic()
        await phone.say(text)
        sounds = [p for p in phone.guest.packets if np.abs(p.samples).max() > SOUND]
        first = phone.guest.loud[0].at
        packet.append((sounds[0].at - began) * 1000)
        audible.append((first - began) * 1000)
        zero = first - float(loud) / 48_000
        for word, caption in zip(words, phone.guest.captions, strict=True):
            captions.append((caption.at - zero - word.start) * 1000)
    return {"packet": packet, "audible": audible, "captions": captions}


async def cut_turns(phone: Call) -> dict[str, list[float]]:
    """Milliseconds until an interruption returns, and until the guest hears no more."""
    returned, silent = [], []
    for _ in range(CUTS):
        phone.guest.forget()
        speech = phone.session.say(SIX_SENTENCES)
        await phone.guest.until(lambda: len(phone.guest.captions) >= AFTER)
        at = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            await phone.session.interrupt()
            returned.append((time.monotonic() - at) * 1000)
            await speech.wait_for_playout()
        await phone.silence()
        silent.append((phone.guest.loud[-1].at - at) * 1000)
    return {"returned": returned, "silent": silent}


def _spread(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{statistics.median(values):.0f} ms ({low:.0f} to {high:.0f})"


async def run() -> dict[str, list[Row]]:
    rows = []
    hibari = open_engine("hibari")
    ready = Ready(hibari)
    for name, engine in (("hibari", hibari), ("audio that is ready", ready)):
        async with call(engine) as phone:
            await phone.say(SENTENCES[5])  # a room's first words load what LiveKit itself needs
            turns = await whole_turns(phone, engine)
            cuts = await cut_turns(phone)
        for what, figures in (
            ("text to the first packet with a sound", turns["packet"]),
            ("text to the first audible packet", turns["audible"]),
            ("a word's start, as heard, to its caption", turns["captions"]),
            ("interrupt() until it returns", cuts["returned"]),
            ("interrupt() to the last loud packet", cuts["silent"]),
        ):
            rows.append(Row(f"{name}: {what}", _spread(figures)))
    await hibari.aclose()
    title = f"A LiveKit room on this machine, {len(TURNS)} turns and {CUTS} interruptions: median"
    return {title: rows}
