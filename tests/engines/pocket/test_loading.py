"""Which model is loaded, what is said where none can be, and that nobody else notices."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engines.pocket.tiny import tiny
from tts_plugins.engines.pocket import PocketEngine
from tts_plugins.engines.pocket.loading import choose, imported, load, model_names, remedy
from tts_plugins.errors import EngineError, InvalidRequestError, MissingDependencyError


@pytest.fixture(scope="module", autouse=True)
def package() -> None:
    imported()


def test_importing_it_leaves_torch_the_threads_that_it_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch
    from pocket_tts import models

    def forget() -> None:
        """Have the module that sets the threads run when it is imported next."""
        monkeypatch.setattr(models, "tts_model", models.tts_model)
        for name in ("pocket_tts", "pocket_tts.models.tts_model"):
            monkeypatch.delitem(sys.modules, name)

    before = torch.get_num_threads(), torch.get_num_interop_threads()
    try:
        torch.set_num_threads(3)
        forget()
        imported()
        assert (torch.get_num_threads(), torch.get_num_interop_threads()) == (3, before[1])
        forget()
        importlib.import_module("pocket_tts")
        assert torch.get_num_threads() == 1  # which is why
    finally:
        torch.set_num_threads(before[0])


def test_loading_a_model_leaves_logging_as_it_was(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    load(str(config), "cpu", 1)
    assert logging.getLogger().handlers == []
    with contextlib.redirect_stderr(io.StringIO()):
        sys.modules["pocket_tts"].TTSModel.load_model(config=str(config))
    assert len(logging.getLogger().handlers) == 1  # which is why


def test_naming_the_engine_loads_nothing() -> None:
    asked = (
        "import sys, tts_plugins.engines.pocket; print({'torch', 'pocket_tts'} & {*sys.modules})"
    )
    run = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


@pytest.mark.parametrize("absent", ["pocket_tts", "torch"])
def test_without_the_package_it_says_what_to_install(
    absent: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingDependencyError, match=r'pip install "tts-plugins\[pocket\]"'):
        PocketEngine(config)


@pytest.mark.parametrize(
    ("model", "language", "cores", "expected"),
    [
        (None, None, 2, ("english_2m_2026-10", "en")),
        (None, "en-US", 4, ("english_18m_2026-10", "en")),
        (None, "EN", 8, ("english", "en")),
        (None, "fr_CA", 2, ("french", "fr")),
        (None, "portuguese", 2, ("portuguese", "pt")),
        ("german_24l", None, 2, ("german_24l", "de")),
        ("italian", "it", 2, ("italian", "it")),
        ("english_7m_refl_2026-10", "en-GB", 64, ("english_7m_refl_2026-10", "en")),
        ("my/own.yaml", None, 2, ("my/own.yaml", "und")),
        ("hf://me/mine/own.yaml@main", "vi-VN", 2, ("hf://me/mine/own.yaml@main", "vi-VN")),
    ],
)
def test_a_model_is_chosen(
    model: str | None, language: str | None, cores: int, expected: tuple[str, str]
) -> None:
    assert choose(model, language, cores) == expected


def test_all_models_that_are_chosen_are_the_packages() -> None:
    names = model_names()
    assert len(names) == 27
    for language in ("de", "en", "es", "fr", "it", "nl", "pt"):
        for cores in (1, 4, 64):
            assert choose(None, language, cores)[0] in names


@pytest.mark.parametrize(
    ("model", "language", "message"),
    [
        (
            "klingon",
            None,
            "no model 'klingon'; it has dutch, dutch_24l, english, .*path to a .yaml",
        ),
        (None, "vi", "no model for 'vi'; its languages: de, en, es, fr, it, nl, pt"),
        ("french", "en", "pocket's model 'french' speaks french, not 'en'"),
    ],
)
def test_what_there_is_not_is_refused(model: str | None, language: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        PocketEngine(model, language=language)


def changed(config: Path, path: Path, **settings: Any) -> Path:
    path.write_text(json.dumps(json.loads(config.read_text()) | settings))
    return path


def test_a_configuration_that_is_none_is_refused(config: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    message = r"^pocket's model '.*bad.yaml' can't be loaded: .*; check the file, and those that"
    for content in ("<html>not: [found</html>", "", "just words", "flow_lm: 3"):
        bad.write_text(content)
        with pytest.raises(EngineError, match=message) as caught:
            PocketEngine(bad)
        assert "\n" not in str(caught.value)
    with pytest.raises(EngineError, match=message):
        PocketEngine(changed(config, bad, surprise=1))
    with pytest.raises(EngineError, match=r"can't be loaded: FileNotFoundError: .*check the file"):
        PocketEngine(tmp_path / "none.yaml")


def test_weights_that_are_none_are_refused(config: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    whole = Path(json.loads(config.read_text())["weights_path"]).read_bytes()
    other = tiny(tmp_path / "other", layers=3).with_name("model.safetensors").read_bytes()
    path = changed(config, tmp_path / "own.yaml", weights_path=str(weights))
    for content in (b"<html>not found</html>", b"", whole[:-8], other):
        weights.write_bytes(content)
        with pytest.raises(EngineError, match=r"own.yaml' can't be loaded: .*check the file") as e:
            PocketEngine(path)
        assert len(str(e.value)) < 600
    weights.unlink()
    with pytest.raises(EngineError, match="can't be loaded: FileNotFoundError"):
        PocketEngine(path)


def test_a_tokenizer_that_is_not_there_is_told(config: Path, tmp_path: Path) -> None:
    settings = json.loads(config.read_text())
    settings["flow_lm"]["lookup_table"]["tokenizer_path"] = str(tmp_path / "none.json")
    path = changed(config, tmp_path / "own.yaml", **settings)
    with pytest.raises(EngineError, match=r"can't be loaded: .*check the file"):
        PocketEngine(path)


def test_a_download_that_needs_a_login_says_so() -> None:
    import httpx
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError

    response: Any = httpx.Response(403, request=httpx.Request("GET", "https://huggingface.co"))
    assert "log in with `hf auth login`" in remedy(GatedRepoError("no", response=response))
    assert "check the connection" in remedy(HfHubHTTPError("no", response=response))
    wrapped = OSError("can't")
    wrapped.__cause__ = GatedRepoError("no", response=response)
    assert "log in with `hf auth login`" in remedy(wrapped)


@pytest.mark.parametrize("device", ["cuda", "banana"])
def test_a_device_that_torch_has_not_is_refused(config: Path, device: str) -> None:
    import torch

    if device == "cuda" and torch.cuda.is_available():
        assert PocketEngine(config, device=device)._model.device.type == "cuda"
        return
    with pytest.raises(InvalidRequestError, match=f"torch has no device '{device}' here .*'cpu'"):
        PocketEngine(config, device=device)


@pytest.mark.parametrize(
    "settings", [{"decode_steps": 0}, {"temperature": -1.0}, {"temperature": True}]
)
def test_settings_that_can_not_be_are_refused(config: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        PocketEngine(config, **settings)
