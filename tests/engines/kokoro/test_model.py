"""Exports of both families run; what isn't one says so in a line."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.engines.kokoro.models import kokoro
from tts_plugins.engines.kokoro.model import Model, parse
from tts_plugins.errors import EngineError

STYLE = np.ones(256, np.float32)


def load(model: onnx.ModelProto) -> Model:
    return Model(model, "tiny.onnx", providers=["CPUExecutionProvider"], threads=1)


@pytest.mark.parametrize("tokens", ["tokens", "input_ids"])
def test_both_families_tell_where_each_token_ends(tokens: str) -> None:
    model = load(kokoro(tokens=tokens))
    spoken = model.speak([20, 21, 16], STYLE, 1.0)
    # 0 -> 2 units of 600 samples, 20 -> 2, 21 -> 3, 16 -> 3, 0 -> 2
    assert spoken.ends is not None
    assert spoken.ends.tolist() == [1200, 2400, 4200, 6000, 7200]
    assert spoken.samples.shape == (7200,)
    assert spoken.samples.dtype == np.float32


def test_speed_is_the_models_own() -> None:
    spoken = load(kokoro()).speak([20, 21, 16], STYLE, 2.0)
    assert spoken.ends is not None
    assert spoken.ends.tolist() == [600, 1200, 2400, 3600, 4200]


def test_an_export_may_take_whole_speeds_only() -> None:
    assert load(kokoro(speed=TensorProto.INT32)).whole_speeds
    assert not load(kokoro(speed=TensorProto.FLOAT)).whole_speeds


def test_durations_are_found_by_what_they_do_not_by_their_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = kokoro()
    decoy = onnx.helper.make_node("Round", ["style"], ["rounded_style"])
    model.graph.node.insert(0, decoy)
    with caplog.at_level(logging.WARNING):
        spoken = load(model).speak([20], STYLE, 1.0)
    assert spoken.ends is not None
    assert spoken.ends.tolist() == [1200, 2400, 3600]
    assert caplog.messages == []


def test_a_model_without_durations_speaks_without_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        model = load(kokoro(rounds=False))
        spoken = [model.speak([20], STYLE, 1.0) for _ in range(2)]
    assert [s.ends for s in spoken] == [None, None]
    assert caplog.messages == [
        "tiny.onnx doesn't tell how long each phoneme is: its words are estimated"
    ]


def test_durations_that_dont_add_up_are_not_believed() -> None:
    model = kokoro()
    # As if the audio were made at another rate: 500 samples for each unit.
    for weight in model.graph.initializer:
        if weight.name == "unit":
            weight.CopyFrom(onnx.numpy_helper.from_array(np.array(500), "unit"))
    assert not load(model).tells_durations


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<!DOCTYPE html><html>404</html>", "it is no ONNX model, or not all of one"),
        (b"", "it is no ONNX model"),
        (kokoro().SerializeToString()[:900], "it is no ONNX model, or not all of one"),
    ],
)
def test_what_is_no_model_is_told_apart(content: bytes, reason: str) -> None:
    with pytest.raises(EngineError) as error:
        parse(content, "k.onnx")
    assert str(error.value) == (
        f"k.onnx isn't a model of Kokoro: {reason}; get an ONNX export such as "
        "kokoro-v1.0.onnx or onnx-community/Kokoro-82M-v1.0-ONNX, and check its size"
    )


def test_another_model_is_named_by_its_inputs() -> None:
    with pytest.raises(EngineError, match="it takes phonemes, style, speed and not tokens"):
        load(kokoro(tokens="phonemes"))


def test_a_style_of_another_length_is_another_model() -> None:
    with pytest.raises(EngineError, match="its inputs have other types or shapes"):
        load(kokoro(style=128))


def test_a_graph_that_cant_run_is_no_model() -> None:
    model = kokoro()
    model.graph.node[1].op_type = "Mud"
    with pytest.raises(EngineError, match=r"^tiny.onnx isn't .*can't load it"):
        load(model)


def test_what_isnt_sound_is_no_model() -> None:
    model = kokoro()
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("total", TensorProto.INT64, []))
    with pytest.raises(EngineError, match="what it gives isn't sound"):
        load(model)


def test_numbers_that_are_none_are_not_played() -> None:
    with pytest.raises(EngineError, match="samples that are no numbers"):
        load(kokoro(gain=np.nan)).speak([20], STYLE, 1.0)


def test_a_saved_model_is_read_back(tmp_path: Path) -> None:
    onnx.save(kokoro(), tmp_path / "k.onnx")
    assert load(parse((tmp_path / "k.onnx").read_bytes(), "k.onnx")).tells_durations
