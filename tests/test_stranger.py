"""An engine from somebody else's package, as CONTRIBUTING teaches it, in one file."""

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


def test_it_opens_by_name_and_speaks(stranger: Stranger) -> None:
    result = stranger.run(SPEAK)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "5867\n"  # 11 characters of 1600 samples, from 24 to 8 kHz
