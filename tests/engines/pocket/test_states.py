"""The package's own voices: listed at once, downloaded when they are asked for, never twice."""

from __future__ import annotations

import gc
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engines.pocket.tiny import recording, tiny
from tts_plugins.engines.pocket import PocketEngine, loading, states
from tts_plugins.errors import EngineError, InvalidRequestError
from tts_plugins.types import SynthesisRequest

REVISION = "a7056f505a4a8ca72d8b5fb1440071d6f1a35739"
"""Of the voices that pocket-tts 4.0.1 knows."""


class Hub:
    """What has been downloaded from huggingface.co, which can't be reached any more."""

    def __init__(self, folder: Path) -> None:
        self._voices = (
            folder
            / "models--kyutai--pocket-tts-without-voice-cloning"
            / f"snapshots/{REVISION}/languages"
        )

    def put(self, model: str, voice: str, file: Path) -> None:
        path = self._voices / model / "embeddings" / f"{voice}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, path)


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory, config: Path) -> Path:
    """The package's models, tiny."""
    folder = tmp_path_factory.mktemp("configs")
    for name in ("english", "english_2m_2026-10", "french", "french_24l"):
        shutil.copy(config, folder / f"{name}.yaml")
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, config: Path) -> list[Path]:
    """Two states of the tiny model."""
    folder = tmp_path_factory.mktemp("files")
    model = loading.load(str(config), "cpu", 1)
    made = []
    for hertz in (220, 330):
        path = folder / f"{hertz}.safetensors"
        states.save(states.learn(model, recording(hertz)), path)
        made.append(path)
    return made


@pytest.fixture
def hub(tmp_path: Path, configs: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> Hub:
    """alba and estelle were downloaded."""
    from huggingface_hub import constants

    monkeypatch.setattr("pocket_tts.utils.config.CONFIGS_DIR", configs)
    monkeypatch.setattr("pocket_tts.models.tts_model.CONFIGS_DIR", configs)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("tts_plugins.engines.pocket.loading.cores", lambda: 2)
    hub = Hub(tmp_path / "hub")
    hub.put("english_2m_2026-10", "alba", files[0])
    hub.put("french", "estelle", files[1])
    return hub


def first(engine: PocketEngine, **settings: Any) -> Any:
    """The samples of the first frame."""
    request = SynthesisRequest("Hello.", options={"seed": 1}, **settings)
    stream = engine.synthesize(request)
    samples = next(stream).samples
    stream.close()
    return samples


def test_all_voices_are_listed_and_those_that_are_here_are_ready(hub: Hub) -> None:
    voices = {voice.id: voice for voice in PocketEngine().voices()}
    assert len(voices) == 27
    assert [name for name, voice in voices.items() if voice.ready] == ["alba"]
    assert {voice.language for voice in voices.values()} == {"en"}
    assert voices["marius"].description == "downloaded on first use"


def test_each_language_has_a_voice_of_its_own(hub: Hub, files: list[Path]) -> None:
    english, french = PocketEngine(), PocketEngine(language="fr-CA")
    assert {voice.language for voice in french.voices()} == {"fr"}
    np.testing.assert_array_equal(first(french), first(french, voice="estelle"))
    np.testing.assert_array_equal(first(english), first(english, voice="alba", language="en-GB"))
    assert not np.array_equal(first(french), first(english))
    with pytest.raises(InvalidRequestError, match="this pocket model speaks fr, not 'en-US'"):
        first(french, language="en-US")


def test_a_voice_that_can_not_be_downloaded_is_told_and_the_others_go_on(
    hub: Hub, files: list[Path]
) -> None:
    engine = PocketEngine()
    message = (
        r"^pocket's voice 'marius' can't be had: LocalEntryNotFoundError: .*; check the connection "
        r"to huggingface.co, or set HF_HOME to where its files are$"
    )
    with pytest.raises(EngineError, match=message):
        first(engine, voice="marius")
    assert len(first(engine)) == 1920
    with pytest.raises(EngineError, match="pocket's voice 'lola' can't be had"):
        PocketEngine(voice="lola")
    hub.put("english_2m_2026-10", "lola", files[1])
    assert len(first(PocketEngine(voice="lola"))) == 1920


def test_what_has_just_failed_is_not_tried_again_at_once(hub: Hub, files: list[Path]) -> None:
    now = [0.0]
    model = loading.load("english", "cpu", 1)
    catalogue = states.Catalogue(model, "english", clock=lambda: now[0])
    with pytest.raises(EngineError):
        catalogue.find("alba")
    hub.put("english", "alba", files[0])
    now[0] = 29.0
    with pytest.raises(EngineError):
        catalogue.find("alba")
    now[0] = 31.0
    assert catalogue.find("alba") is catalogue.find("alba")


def test_a_voice_that_is_asked_for_after_closing_is_not_there(hub: Hub) -> None:
    catalogue = states.Catalogue(loading.load("english", "cpu", 1), "english")
    catalogue.drop()
    with pytest.raises(EngineError, match=r"^this pocket engine is closed; open another one$"):
        catalogue.find("alba")


def test_a_damaged_voice_is_told(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<html>not found</html>")
    hub.put("english_2m_2026-10", "jean", tmp_path / "page.html")
    with pytest.raises(
        EngineError, match=r"'jean' can't be had: SafetensorError: .*check the file"
    ):
        first(PocketEngine(), voice="jean")


def test_the_name_of_a_voice_that_there_is_can_not_be_cloned_over(hub: Hub) -> None:
    with pytest.raises(InvalidRequestError, match="pocket has a voice 'alba' of its own"):
        PocketEngine().clone("alba", recording(220))


def test_a_voice_of_another_size_is_refused(hub: Hub, tmp_path: Path, files: list[Path]) -> None:
    model = loading.load(str(tiny(tmp_path / "other", layers=3)), "cpu", 1)
    with pytest.raises(ValueError, match="this isn't a voice of this model"):
        states.load(model, files[0])


@pytest.mark.parametrize(
    ("seconds", "samples"), [(0.5, 12_000), (29.9, 717_600), (30.0, 720_000), (31.0, 720_000)]
)
def test_all_of_a_recording_is_heard_and_no_more_than_30_seconds(
    config: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, samples: int
) -> None:
    model = loading.load(str(config), "cpu", 1)
    heard: list[tuple[int, ...]] = []
    monkeypatch.setattr(
        model, "get_state_for_audio_prompt", lambda audio: heard.append(tuple(audio.shape))
    )
    states.learn(model, recording(220, seconds))  # at 16 kHz, and the model's rate is 24
    assert heard == [(1, samples)]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_voice_of_numbers_that_are_none_is_refused(
    config: Path, tmp_path: Path, number: float
) -> None:
    model = loading.load(str(config), "cpu", 1)
    state = states.learn(model, recording(220, 0.5))
    path = tmp_path / "voice.safetensors"
    states.save(state, path)
    states.load(model, path)
    next(iter(state.values()))["cache"][0, 0, 0, 0, 0] = number
    states.save(state, path)
    with pytest.raises(ValueError, match="this isn't a voice of this model"):
        states.load(model, path)


def test_a_catalogue_that_is_dropped_lets_go_of_its_voices(hub: Hub, files: list[Path]) -> None:
    hub.put("english", "alba", files[0])
    catalogue = states.Catalogue(loading.load("english", "cpu", 1), "english")
    kept = weakref.ref(next(iter(catalogue.find("alba").values()))["cache"])
    gc.collect()
    assert kept() is not None
    catalogue.drop()
    gc.collect()
    assert kept() is None
    with pytest.raises(EngineError):
        catalogue.find("alba")
