"""VieNeu's own code on tiny networks, found where it would have downloaded the real ones."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.vieneu.models import make_hub
from tts_plugins.engines.vieneu import VieNeuEngine


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the hub's cache."""
    folder = tmp_path_factory.mktemp("hub")
    make_hub(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def offline(hub: Path) -> Iterator[pytest.MonkeyPatch]:
    """That folder is the hub's cache, and there is no network."""
    constants = importlib.import_module("huggingface_hub.constants")
    with pytest.MonkeyPatch.context() as patch:
        # In place of HF_HUB_CACHE and HF_HUB_OFFLINE, which were read when it was imported.
        patch.setattr(constants, "HF_HUB_CACHE", str(hub))
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        yield patch


@pytest.fixture(scope="session")
def turbo(
    offline: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VieNeuEngine]:
    engine = VieNeuEngine(device="cpu", threads=1, voices_dir=tmp_path_factory.mktemp("voices"))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def nano(
    offline: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VieNeuEngine]:
    engine = VieNeuEngine("v3nano", threads=1, voices_dir=tmp_path_factory.mktemp("voices"))
    yield engine
    engine.close()
