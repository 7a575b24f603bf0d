"""One tiny model and one engine for all tests of pocket: importing torch is what takes the time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.pocket.tiny import recording, tiny
from tts_plugins.engines.pocket import PocketEngine
from tts_plugins.engines.pocket.loading import imported


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    imported()
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny(tmp_path_factory.mktemp("pocket"))
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def engine(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketEngine]:
    """It has learnt one voice, mai."""
    engine = PocketEngine(config, voices_dir=tmp_path_factory.mktemp("voices"))
    engine.clone("mai", recording(220))
    yield engine
    engine.close()
