"""A voice's network is cut where it can be, whatever its parts are called."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.engines.piper import tiny
from tts_plugins.engines.piper.graph import cut
from tts_plugins.network.graph import UnknownGraphError


def test_what_the_flow_and_the_decoder_of_a_real_voice_look_at_is_known(joe: Path) -> None:
    parts = cut(onnx.load_model(joe))
    assert (parts.flow_layout.lag, parts.flow_layout.context) == (32, 32)
    assert (parts.decoder_layout.rate, parts.decoder_layout.context) == (256, 11)
    assert parts.text_layout.channels == 192


def test_names_make_no_difference() -> None:
    parts, renamed = cut(tiny.voice(3)), cut(tiny.renamed(tiny.voice(3)))
    assert renamed.flow_layout.lag == parts.flow_layout.lag == 12
    assert renamed.decoder_layout.lag == parts.decoder_layout.lag
    assert renamed.text_layout.durations.startswith("x")


@pytest.mark.parametrize("speakers", [0, 3])
def test_the_speaker_goes_into_each_part(speakers: int) -> None:
    parts = cut(tiny.voice(speakers))
    assert ("sid" in parts.flow_layout.others) == (speakers > 0)
    assert ("sid" in parts.decoder_layout.others) == (speakers > 0)
    text = onnx.load_model_from_string(parts.text)
    assert ("sid" in [info.name for info in text.graph.input]) == (speakers > 0)


def test_no_part_has_the_weights_of_another() -> None:
    model = tiny.voice()
    parts = cut(model)
    shares = [
        {weight.name for weight in onnx.load_model_from_string(part).graph.initializer}
        & {weight.name for weight in model.graph.initializer if len(weight.dims) == 3}
        for part in (parts.text, parts.flow, parts.decoder)
    ]
    assert all(shares)
    assert not shares[0] & shares[1]
    assert not shares[1] & shares[2]
    assert not shares[0] & shares[2]


def without(operation: str, instead: str) -> onnx.ModelProto:
    model = tiny.voice()
    for node in model.graph.node:
        if node.op_type == operation:
            node.op_type = instead
    return model


def with_another_output() -> onnx.ModelProto:
    model = tiny.voice()
    (durations,) = [node for node in model.graph.node if node.op_type == "Ceil"]
    model.graph.output.append(
        helper.make_tensor_value_info(durations.output[0], onnx.TensorProto.FLOAT, None)
    )
    return model


def without_noise() -> onnx.ModelProto:
    model = tiny.voice()
    for node in model.graph.node:
        if node.op_type == "RandomNormalLike":
            node.op_type = "Identity"
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (without("Ceil", "Round"), "0 Ceil nodes instead of one"),
        (with_another_output(), "2 outputs instead of one"),
        (without_noise(), "0 random tensors, 0 before the durations"),
        (without("MatMul", "Add"), "the means aren't stretched by the durations in the known way"),
        (without("ConvTranspose", "Conv"), "no transposed convolution"),
    ],
)
def test_what_is_missing_is_told(model: onnx.ModelProto, reason: str) -> None:
    with pytest.raises(UnknownGraphError, match=reason):
        cut(model)
