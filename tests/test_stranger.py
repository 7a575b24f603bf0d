"""An engine from somebody else's package, as the documents teach it, in one file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import environment, install_stranger

CHECK = "from tts_plugins.cli import main; main(['check', {name!r}])"
ENGINES = "from tts_plugins.cli import main; main(['engines'])"
SPEAK = """
import asyncio
from contextlib import aclosing
from tts_plugins.registry import engine_names, open_engine
from tts_plugins.turn import Turn

async def main():
    assert {name!r} in engine_names()
    async with aclosing(open_engine({name!r})) as engine:
        turn = Turn(engine, sample_rate=8_000)
        async with aclosing(turn.say("Hello there.")) as chunks:
            print(sum([len(chunk.samples) async for chunk in chunks]))

asyncio.run(main())
"""

PIPECAT = """
import asyncio
from loguru import logger
from pipecat.frames.frames import TTSAudioRawFrame, TTSSpeakFrame
from pipecat.pipeline.worker import PipelineParams
from pipecat.tests.utils import run_test
from tts_plugins.adapters.pipecat import EngineTTSService

logger.remove()

async def main():
    down, up = await run_test(
        EngineTTSService({name!r}),
        frames_to_send=[TTSSpeakFrame("Hello there.")],
        pipeline_params=PipelineParams(audio_out_sample_rate=8_000),
    )
    assert not up, up
    audio = [frame for frame in down if isinstance(frame, TTSAudioRawFrame)]
    print(sum(frame.num_frames for frame in audio))

asyncio.run(main())
"""
LIVEKIT = """
import asyncio
from tts_plugins.adapters.livekit import EngineTTS

async def main():
    tts = EngineTTS({name!r}, sample_rate=8_000)
    frame = await tts.synthesize("Hello there.").collect()
    print(frame.samples_per_channel)
    await tts.aclose()

asyncio.run(main())
"""


class Stranger:
    """A folder in which the engine is installed, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = install_stranger(folder)

    def run(self, code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code.format(name=self.name)],
            capture_output=True,
            text=True,
            env=environment(self._folder),
            check=False,
        )


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    return Stranger(tmp_path)


def test_it_keeps_the_contract(stranger: Stranger) -> None:
    result = stranger.run(CHECK)
    assert result.returncode == 0, result.stdout + result.stderr
    assert all(line.startswith("ok") for line in result.stdout.splitlines())


def test_it_is_listed_with_its_package(stranger: Stranger) -> None:
    assert "buzz\ttts-buzz 0.1.0\tyes\n" in stranger.run(ENGINES).stdout


@pytest.mark.parametrize("code", [SPEAK, PIPECAT, LIVEKIT], ids=["turn", "Pipecat", "LiveKit"])
def test_it_opens_by_name_and_speaks_everywhere(stranger: Stranger, code: str) -> None:
    result = stranger.run(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("5867\n")  # 11 characters of 1600 samples, from 24 to 8 kHz
