"""A voice file is cut, or spoken whole with a warning, or refused with the remedy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.engines.piper import tiny
from tts_plugins.engines.piper.banded import banded
from tts_plugins.engines.piper.loading import load
from tts_plugins.engines.piper.speaker import Manner, Sounding, StreamedSpeaker, WholeSpeaker
from tts_plugins.errors import EngineError
from tts_plugins.types import Samples

IDS = [1, 0, 9, 0, 12, 0, 20, 0, 9, 0, 5, 0, 2]
MANNER = Manner(0.667, 1.0, 0.0)


def spoken(speaker: StreamedSpeaker | WholeSpeaker) -> Samples:
    rng = np.random.default_rng(0)
    speech = speaker.speak(IDS, Sounding(0, len(IDS), True), MANNER, rng, tiny.RATE)
    return np.concatenate(list(speech.chunks))


def test_a_voice_that_can_be_cut_is_streamed_without_a_word(
    tiny_voice: Path, tiny_choir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(load(tiny_voice, IDS), StreamedSpeaker)
    assert isinstance(load(tiny_choir, IDS), StreamedSpeaker)
    assert caplog.records == []


def test_names_make_no_difference_to_a_real_voice(
    joe: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "renamed.onnx"
    path.write_bytes(tiny.renamed(onnx.load_model(joe)).SerializeToString())
    assert isinstance(load(path, [20, 30, 40, 50]), StreamedSpeaker)
    assert caplog.records == []


def rounded() -> onnx.ModelProto:
    model = tiny.voice()
    for node in model.graph.node:
        if node.op_type == "Ceil":
            node.op_type = "Round"
    return model


def telling_durations() -> onnx.ModelProto:
    model = tiny.voice()
    (durations,) = [node for node in model.graph.node if node.op_type == "Ceil"]
    model.graph.output.append(
        helper.make_tensor_value_info(durations.output[0], TensorProto.FLOAT, None)
    )
    return model


def in_half_precision() -> onnx.ModelProto:
    """As converters leave it: weights and scales of two bytes, and casts where it needs them."""
    model = tiny.voice()
    for weight in model.graph.initializer:
        if weight.data_type == TensorProto.FLOAT:
            half = numpy_helper.to_array(weight).astype(np.float16)
            weight.CopyFrom(numpy_helper.from_array(half, weight.name))
    for info in (*model.graph.input, *model.graph.output):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
        if node.op_type == "ConstantOfShape":
            zero = helper.make_tensor("zero", TensorProto.FLOAT16, [1], [0.0])
            node.attribute.append(helper.make_attribute("value", zero))
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (rounded(), "0 Ceil nodes instead of one"),
        (telling_durations(), "2 outputs instead of one"),
        (in_half_precision(), ""),
    ],
    ids=["no Ceil", "two outputs", "half precision"],
)
def test_a_voice_that_can_not_be_cut_is_spoken_in_one_go(
    model: onnx.ModelProto, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tiny.write(tmp_path / "other.onnx", model)
    whole = load(path, IDS)
    assert isinstance(whole, WholeSpeaker)
    (record,) = caplog.records
    assert f"{path} can't be streamed ({reason}" in record.getMessage()
    samples = spoken(whole)
    assert samples.dtype == np.float32
    assert len(samples) > 10 * tiny.HOP
    assert np.abs(samples).max() > 0.01


def test_a_cut_that_changes_the_sound_is_not_used(
    tiny_voice: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tts_plugins.engines.piper.loading._LEAST_SNR", 400.0)
    assert isinstance(load(tiny_voice, IDS), WholeSpeaker)
    assert "it sounds different in pieces" in caplog.text


def test_a_choir_that_can_not_be_cut_is_told_who_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tts_plugins.engines.piper.loading._LEAST_SNR", 400.0)
    whole = load(tiny.write(tmp_path / "choir.onnx", tiny.voice(2)), IDS)
    assert isinstance(whole, WholeSpeaker)
    manner = Manner(0.667, 1.0, 0.8, speaker=1)
    speech = whole.speak(
        IDS, Sounding(0, len(IDS), True), manner, np.random.default_rng(0), tiny.RATE
    )
    assert len(next(speech.chunks)) > 10 * tiny.HOP


@pytest.mark.parametrize("shape", [(35, 8), (1, 8, 3), (8, 4, 1), (1, 4, 7)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_give_no_sound_are_told_with_their_file(
    tmp_path: Path, shape: tuple[int, ...], value: float
) -> None:
    model = tiny.damaged(tiny.voice(), shape, value)
    with pytest.raises(EngineError) as raised:
        load(tiny.write(tmp_path / "voice.onnx", model), IDS)
    assert str(raised.value) == (
        f"{tmp_path / 'voice.onnx'}: the voice gives no sound: its file is damaged; get it again"
    )


def test_a_voice_that_would_not_end_is_damaged(tmp_path: Path) -> None:
    model = tiny.voice()
    (tanh,) = [n for n in model.graph.node if n.op_type == "Tanh"][:1]
    tanh.op_type = "Abs"  # or the durations of these networks are bounded
    path = tiny.write(tmp_path / "voice.onnx", tiny.damaged(model, (1, 8, 3), 40.0))
    with pytest.raises(EngineError, match=r"voice.onnx: the voice gives no sound"):
        load(path, IDS)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"can't read the voice file .*gone.onnx: No such file"):
        load(tmp_path / "gone.onnx", IDS)


@pytest.mark.parametrize(
    "content",
    [
        b"<!DOCTYPE html><html><body>404: Not Found</body></html>",
        b"",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:5f70\nsize 63201294\n",
        b"\x08\x08\x12\x07pytorch",
    ],
    ids=["a web page", "empty", "a pointer", "a head"],
)
def test_a_file_that_is_no_voice_is_named_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "voice.onnx"
    path.write_bytes(content)
    with pytest.raises(EngineError, match=r"voice.onnx isn't a voice of Piper: .*again$") as raised:
        load(path, IDS)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("part", [0.01, 0.5, 0.9, 0.999])
def test_half_a_voice_is_named_with_the_remedy(
    tmp_path: Path, tiny_voice: Path, part: float
) -> None:
    data = tiny_voice.read_bytes()
    path = tmp_path / "voice.onnx"
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(EngineError, match=r"voice.onnx isn't a voice of Piper: .*again$"):
        load(path, IDS)


def test_another_network_is_named_with_what_it_takes(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], [result])
    path = tmp_path / "other.onnx"
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), path
    )
    with pytest.raises(EngineError, match="isn't a voice of Piper: it takes x; give the path"):
        load(path, IDS)


def test_weights_that_are_elsewhere_are_asked_for(tmp_path: Path) -> None:
    model = tiny.voice()
    path = tmp_path / "voice.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert isinstance(load(path, IDS), StreamedSpeaker)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(EngineError, match=r"isn't a voice of Piper: .*w\.bin"):
        load(path, IDS)


def test_another_place_than_asked_for_is_refused(tiny_voice: Path) -> None:
    with (
        pytest.warns(UserWarning, match="is not in available provider names"),
        pytest.raises(EngineError, match="ONNX Runtime can't use CUDAExecutionProvider here"),
    ):
        load(tiny_voice, IDS, providers=("CUDAExecutionProvider", "CPUExecutionProvider"))


def test_an_encoder_that_says_something_else_once_it_is_changed_is_not_spoken_with(
    joe: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(model: onnx.ModelProto) -> onnx.ModelProto:
        model = banded(model)
        for weight in model.graph.initializer:
            if list(weight.dims) == [1, 9, 96]:
                weight.CopyFrom(numpy_helper.from_array(np.zeros((1, 9, 96), "f4"), weight.name))
        return model

    monkeypatch.setattr("tts_plugins.engines.piper.graph.banded", damaged)
    assert isinstance(load(joe, IDS), WholeSpeaker)
    assert "can't be streamed" in caplog.text
