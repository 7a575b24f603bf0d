"""The network is cut by its structure, and says what it misses when that is another one."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

from tts_plugins.engines.hibari.graph import cut
from tts_plugins.network.graph import UnknownGraphError


@pytest.fixture
def model(model_file: Path) -> onnx.ModelProto:
    return onnx.load_model(model_file)


def test_the_decoder_looks_27_frames_ahead(model: onnx.ModelProto) -> None:
    layout = cut(model.SerializeToString()).layout
    assert layout.context == 27
    assert [memory.channels for memory in layout.memories] == [130, *[256] * 8]


def test_names_of_nodes_and_tensors_do_not_matter(model: onnx.ModelProto) -> None:
    kept = {value.name for value in (*model.graph.input, *model.graph.output)}

    def renamed(name: str) -> str:
        return name if name in kept or not name else f"other/{name}"

    for node in model.graph.node:
        node.name = ""
        node.input[:] = [renamed(name) for name in node.input]
        node.output[:] = [renamed(name) for name in node.output]
    for weight in model.graph.initializer:
        weight.name = renamed(weight.name)
    assert cut(model.SerializeToString()).layout.durations.startswith("other/")


def test_a_graph_without_durations_is_unknown(model: onnx.ModelProto) -> None:
    (sums,) = [node for node in model.graph.node if node.op_type == "CumSum"]
    sums.op_type = "Identity"
    with pytest.raises(UnknownGraphError, match="0 CumSum nodes instead of one"):
        cut(model.SerializeToString())


def test_a_graph_without_the_logarithm_of_the_pitch_is_unknown(model: onnx.ModelProto) -> None:
    (log,) = [node for node in model.graph.node if node.op_type == "Log"]
    log.op_type = "Sqrt"
    with pytest.raises(UnknownGraphError, match="0 Log nodes"):
        cut(model.SerializeToString())


def test_a_decoder_that_changes_the_number_of_frames_is_unknown(model: onnx.ModelProto) -> None:
    *_, convolution = [node for node in model.graph.node if node.op_type == "Conv"]
    for attribute in convolution.attribute:
        if attribute.name == "strides":
            attribute.CopyFrom(helper.make_attribute("strides", [2]))
    with pytest.raises(UnknownGraphError, match="changes the number of frames"):
        cut(model.SerializeToString())


def test_heads_from_elsewhere_are_unknown(model: onnx.ModelProto) -> None:
    (split,) = [node for node in model.graph.node if node.op_type == "Split"]
    split.op_type = "Identity"
    with pytest.raises(UnknownGraphError, match="one Split"):
        cut(model.SerializeToString())
