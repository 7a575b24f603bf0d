"""An encoder that looks at neighbours alone gives the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.engines.piper import tiny
from tts_plugins.engines.piper import graph as cutting
from tts_plugins.engines.piper.banded import banded
from tts_plugins.engines.piper.speaker import Manner, network_input
from tts_plugins.network.graph import Graph, UnknownGraphError
from tts_plugins.network.session import Network


def encoder(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    """The first part of a voice, as it was."""
    found: list[onnx.ModelProto] = []

    def keep(model: onnx.ModelProto) -> onnx.ModelProto:
        found.append(model)
        raise UnknownGraphError

    monkeypatch.setattr(cutting, "banded", keep)
    cutting.cut(model)
    return found[0]


@pytest.fixture
def joes(joe: Path, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    return encoder(onnx.load_model(joe), monkeypatch)


def windows(model: onnx.ModelProto) -> list[str]:
    return [weight.name for weight in model.graph.initializer if list(weight.dims) == [1, 9, 96]]


def test_the_numbers_are_the_same_for_any_number_of_ids(joes: onnx.ModelProto) -> None:
    before = Network(joes.SerializeToString())
    after = Network(banded(joes).SerializeToString())
    assert (after.inputs.keys(), after.outputs) == (before.inputs.keys(), before.outputs)
    for n in (1, 2, 3, 4, 5, 6, 8, 9, 10, 60, 301):
        rng = np.random.default_rng(n)
        given = network_input(rng.integers(3, 100, n).tolist(), Manner(0.667, 1.0, 0.8))
        noise = rng.standard_normal((1, 2, n), "f4")
        feeds = {name: given.get(name, noise) for name in before.inputs}
        for ours, theirs in zip(after.run(None, feeds), before.run(None, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_windows_are_no_longer_filled_up_and_nothing_is_left_over(
    joes: onnx.ModelProto,
) -> None:
    after = banded(joes)
    graph = Graph(after)
    taken = {name: [node.op_type for node in graph.takers(name)] for name in windows(after)}
    assert len(taken) == 12
    assert set(map(tuple, taken.values())) == {("Transpose",), ("MatMul",)}
    assert len(after.graph.node) < len(joes.graph.node)
    onnx.checker.check_model(after)


def test_an_older_export_does_as_well(joes: onnx.ModelProto) -> None:
    joes.opset_import[0].version = 14
    Network(banded(joes).SerializeToString())


def test_the_model_that_is_given_is_left_alone(joes: onnx.ModelProto) -> None:
    before = joes.SerializeToString()
    banded(joes)
    assert joes.SerializeToString() == before


def test_a_voice_is_spoken_with_it_whatever_its_names(joe: Path) -> None:
    for model in (onnx.load_model(joe), tiny.renamed(onnx.load_model(joe))):
        text = onnx.load_model_from_string(cutting.cut(model).text)
        graph = Graph(text)
        assert not [name for name in windows(text) if graph.takers(name)[0].op_type == "Pad"]


def test_an_encoder_without_windows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownGraphError, match="no window"):
        banded(encoder(tiny.voice(), monkeypatch))


Change = Callable[[onnx.ModelProto], None]


def product_of(model: onnx.ModelProto) -> onnx.NodeProto:
    """What the first window is multiplied in."""
    graph = Graph(model)
    node = graph.takers(windows(model)[0])[0]
    while node.op_type != "MatMul":
        (node,) = graph.takers(node.output[0])
    return node


def multiply_from_the_left(model: onnx.ModelProto) -> None:
    node = product_of(model)
    node.input[:] = reversed(node.input)


def bend(model: onnx.ModelProto) -> None:
    graph = Graph(model)
    (window_taker,) = graph.takers(windows(model)[0])
    (moving,) = graph.takers(window_taker.output[0])
    moving.op_type = "Tanh"


def bend_the_product(model: onnx.ModelProto) -> None:
    node = product_of(model)
    bent = onnx.helper.make_node("Tanh", [node.output[0]], ["bent"])
    for taker in Graph(model).takers(node.output[0]):
        taker.input[0] = "bent"
    at = list(model.graph.node).index(node)
    model.graph.node.insert(at + 1, bent)


def look_at_the_product(model: onnx.ModelProto) -> None:
    model.graph.node.append(onnx.helper.make_node("Tanh", [product_of(model).output[0]], ["seen"]))


@pytest.mark.parametrize(
    "change", [multiply_from_the_left, bend, bend_the_product, look_at_the_product]
)
def test_what_is_used_in_another_way_is_left_as_it_is(
    change: Change, joes: onnx.ModelProto
) -> None:
    change(joes)
    with pytest.raises(UnknownGraphError, match="known way"):
        banded(joes)
