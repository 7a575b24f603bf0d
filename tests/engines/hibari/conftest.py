"""One engine for all tests of hibari: loading it is what takes the time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hibari.tts import ASSETS

from tts_plugins.engines.hibari import HibariEngine


@pytest.fixture(scope="session")
def engine() -> Iterator[HibariEngine]:
    engine = HibariEngine()
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def model_file() -> Path:
    """The bundled voice."""
    return Path(ASSETS, "hibari.onnx")
