"""Your own voice: learnt from a recording once, and spoken with ever after.

scripts/agent clone_voice me.wav "Hello, it is me."      # writes out/clone.wav
scripts/agent clone_voice me.wav "And here I am again."  # knows the voice, and only speaks
TTS=vieneu scripts/agent clone_voice me.wav "Xin chào."  # with another engine that clones

Ten seconds of clear speech will do, as WAV, MP3, FLAC, Ogg Opus or AAC. kokoro clones no recording
but keeps a style or a blend: TTS=kokoro scripts/agent clone_voice "af_bella(2)+af_sky" "Hello."
A server clones too: TTS=http://127.0.0.1:8080, or TTS=elevenlabs+https://api.elevenlabs.io.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import sys
import time
from contextlib import aclosing, suppress
from pathlib import Path

from tts_plugins import (
    AudioChunk,
    EngineError,
    InvalidRequestError,
    SynthesisRequest,
    TTSError,
    open_engine,
)
from tts_plugins.audio.pcm import joined
from tts_plugins.audio.wav import wav_file
from tts_plugins.engine import cloner
from tts_plugins.turn import Turn

TEXT = "Hello. You have never heard me say this, and nor have I."
REMEDY = (
    "Files of your own are TTS='pocket?model=/path/of/a.yaml'; other engines that clone are "
    "TTS=vieneu and, on a server, TTS=http://127.0.0.1:8080"
)


def name_of(clip: str) -> str:
    """What to call the voice: the same for the same recording, wherever it lies."""
    path = Path(clip)
    stem, content = (path.stem, path.read_bytes()) if path.is_file() else ("blend", clip.encode())
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:8]}"


async def speak(clip: str, text: str, engine: str) -> AudioChunk:
    """Say a text in the voice of a recording, which the engine learns unless it knows it."""
    print(f"Loading {engine} ...", flush=True)
    began = time.monotonic()
    async with aclosing(open_engine(engine)) as opened:
        learner = cloner(opened)
        if learner is None:
            raise InvalidRequestError(f"{engine} can't clone a voice. {REMEDY}")
        name = name_of(clip)
        print(f"It took {time.monotonic() - began:.1f} s.", flush=True)
        if name in [voice.id for voice in await opened.voices()]:
            print(f"It knows {name} already.", flush=True)
        else:
            began = time.monotonic()
            await learner.clone(name, clip)
            print(f"It learnt {name} in {time.monotonic() - began:.1f} s.", flush=True)
        turn = Turn(opened, sample_rate=24_000, template=SynthesisRequest("", voice=name))
        async with aclosing(turn.say(text)) as chunks:
            samples = joined([chunk.samples async for chunk in chunks])
        return AudioChunk(samples, turn.sample_rate)


def main() -> None:
    options = argparse.ArgumentParser(description="Your own voice, from a recording.")
    options.add_argument("clip", help="a recording; or what else the engine clones from")
    options.add_argument("text", nargs="?", default=TEXT)
    options.add_argument("-o", "--output", default="out/clone.wav", type=Path)
    chosen = options.parse_args()
    try:
        with suppress(KeyboardInterrupt):
            said = asyncio.run(speak(chosen.clip, chosen.text, os.environ.get("TTS", "pocket")))
            chosen.output.parent.mkdir(parents=True, exist_ok=True)
            chosen.output.write_bytes(wav_file(said))
            print(f"{said.seconds:.1f} s in {chosen.output}")
    except EngineError as error:  # the weights, most likely
        sys.exit(f"{error}. {REMEDY}")
    except TTSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
