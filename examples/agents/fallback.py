"""A voice in the cloud, and one on this machine that goes on when the cloud can't.

ELEVENLABS_API_KEY=... scripts/agent fallback                # ElevenLabs, and hibari behind it
TTS=piper ELEVENLABS_API_KEY=... scripts/agent fallback "One text." "And another."
scripts/agent fallback --cloud http://127.0.0.1:8080         # a server of your own in its place

Says who speaks each text, and why if it isn't the first. Any address that open_engine takes will
do for the cloud; pull the plug and run it again. What was heard is in out/fallback.wav.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path

from tts_plugins import AudioChunk, Engine, SynthesisRequest, TTSError, Voice, open_engine
from tts_plugins.audio.pcm import joined
from tts_plugins.audio.wav import wav_file
from tts_plugins.fallback import FallbackEngine
from tts_plugins.timing import TimedEngine
from tts_plugins.turn import Turn
from tts_plugins.types import Samples

CLOUD = "elevenlabs+https://api.elevenlabs.io"
TEXTS = (
    "Good morning, this is the harbour office.",
    "The ferry to the island leaves at seven, at nine, and at half past eleven.",
    "Please be at the quay ten minutes before that.",
)
RATE = 24_000
PATIENCE = 2.0
"""Seconds that an engine may take to its first sound: a caller waits for all of them together."""


class Told:
    """The same engine, and whenever it has spoken it says so."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        seconds = 0.0
        try:
            async with aclosing(self.engine.stream(request)) as chunks:
                async for chunk in chunks:
                    seconds += chunk.seconds
                    yield chunk
        finally:
            if seconds:
                print(f"  {self.name} spoke for {seconds:.2f} s", flush=True)

    async def voices(self) -> Sequence[Voice]:
        return await self.engine.voices()

    async def aclose(self) -> None:
        await self.engine.aclose()


async def speak(
    texts: Sequence[str], names: Sequence[str], hear: Callable[[Samples], None]
) -> None:
    """Say texts, each with the first of the engines that can."""
    # All are opened here: a model that has yet to load is no help to who listens already.
    engines = [Told(open_engine(name), name.partition("?")[0]) for name in names]
    async with aclosing(FallbackEngine(engines, first_audio_within=PATIENCE)) as engine:
        turn = Turn(TimedEngine(engine), sample_rate=RATE)
        for text in texts:
            print(text, flush=True)
            try:
                async with aclosing(turn.say(text)) as chunks:
                    async for chunk in chunks:
                        hear(chunk.samples)
            except TTSError as error:
                # Behind its first sound nobody takes over: half is better than one and a half.
                print(f"  and broke off: {error}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description="A voice in the cloud, and one behind it.")
    options.add_argument("texts", nargs="*", default=TEXTS)
    options.add_argument("--cloud", default=CLOUD, help="what speaks first: an address")
    options.add_argument("-o", "--output", default="out/fallback.wav", type=Path)
    chosen = options.parse_args()
    if chosen.cloud == CLOUD and not os.environ.get("ELEVENLABS_API_KEY"):
        sys.exit("set ELEVENLABS_API_KEY, or name another voice with --cloud")
    # Why an engine failed is a line of the log.
    logging.basicConfig(format="  %(message)s", level=logging.WARNING)
    heard: list[Samples] = []
    names = (chosen.cloud, os.environ.get("TTS", "hibari"))
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(speak(chosen.texts, names, heard.append))
    except TTSError as error:
        sys.exit(str(error))
    samples = joined(heard)
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_bytes(wav_file(AudioChunk(samples, RATE)))
    print(f"{len(samples) / RATE:.1f} s in {chosen.output}")


if __name__ == "__main__":
    main()
