"""A voice file is cut, or spoken whole with a warning, or refused with the remedy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tts_plugins.engines.hibari.loading import load
from tts_plugins.engines.hibari.speaker import StreamedSpeaker, WholeSpeaker
from tts_plugins.errors import EngineError

PHONEMES = "ðə kwˈɪk bɹˈWn fˈɑks ʤˈʌmps ˈOvəɹ ðə lˈAzi dˈɔɡ."


@pytest.fixture
def uncut_file(model_file: Path, tmp_path: Path) -> Path:
    """The bundled voice with an operation that nobody uses: it runs as before."""
    model = onnx.load_model(model_file)
    model.graph.node.append(helper.make_node("Log", ["speed"], ["nobody_wants_this"]))
    path = tmp_path / "uncut.onnx"
    onnx.save_model(model, path)
    return path


def test_a_voice_that_can_be_cut_is_streamed_without_a_word(
    model_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(load(model_file), StreamedSpeaker)
    assert caplog.records == []


def test_a_voice_that_can_not_be_cut_is_spoken_in_one_go(
    uncut_file: Path, model_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = load(uncut_file)
    (record,) = caplog.records
    assert record.name == "tts_plugins.engines.hibari.loading"
    assert f"{uncut_file} can't be streamed (2 Log nodes instead of one)" in record.getMessage()

    speech = whole.speak(PHONEMES, 1.0, np.random.default_rng(0), pause=True)
    (samples,) = speech.chunks
    assert speech.schedule is None
    streamed = load(model_file).speak(PHONEMES, 1.0, np.random.default_rng(0), pause=True)
    assert streamed.schedule is not None
    assert len(samples) == pytest.approx(streamed.schedule.length, abs=0.1 * 24_000)


def test_a_cut_that_changes_the_sound_is_not_used(
    model_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tts_plugins.engines.hibari.loading._TOLERANCE", 0.0)
    assert isinstance(load(model_file), WholeSpeaker)
    assert "spoken in pieces it differs by" in caplog.text


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"can't read the voice file .*gone.onnx: No such file"):
        load(tmp_path / "gone.onnx")


@pytest.mark.parametrize(
    "content",
    [
        b"<!DOCTYPE html><html><body>404: Not Found</body></html>",
        b"",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:5f70\nsize 7936868\n",
    ],
    ids=["a web page", "empty", "a pointer"],
)
def test_a_file_that_is_no_voice_is_named_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "voice.onnx"
    path.write_bytes(content)
    with pytest.raises(EngineError, match=r"voice.onnx isn't a voice of hibari: .*fetched again"):
        load(path)


@pytest.mark.parametrize("part", [0.001, 0.5, 0.999])
def test_half_a_voice_is_named_with_the_remedy(
    tmp_path: Path, model_file: Path, part: float
) -> None:
    data = model_file.read_bytes()
    path = tmp_path / "voice.onnx"
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(EngineError, match=r"voice.onnx isn't a voice of hibari: .*fetched again"):
        load(path)


def test_another_network_is_named_with_what_it_takes(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], [result])
    opset = helper.make_opsetid("", 17)
    path = tmp_path / "other.onnx"
    onnx.save_model(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    with pytest.raises(EngineError, match="it takes x and gives y"):
        load(path)
