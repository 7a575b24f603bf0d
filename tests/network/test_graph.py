"""A part of a network computes what it did in the whole."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tts_plugins.network.graph import Graph, UnknownGraphError, attributes, taken_by, tensor_info
from tts_plugins.network.session import UNRUNNABLE, Network


def weight(name: str, *shape: int) -> onnx.TensorProto:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return numpy_helper.from_array(values, name)


def branch(of: str) -> onnx.GraphProto:
    """Gives what stands around it."""
    node = helper.make_node("Add", [of, "bias"], [f"{of}_out"])
    return helper.make_graph([node], of, [], [tensor_info(f"{of}_out", 3)])


@pytest.fixture
def model() -> onnx.ModelProto:
    """Of x: twice that, plus a bias if it is asked for, and clipped without an upper end."""
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["double"]),
        helper.make_node("Neg", ["double"], ["minus"]),
        helper.make_node(
            "If",
            ["asked"],
            ["sum"],
            then_branch=branch("double"),
            else_branch=branch("minus"),
        ),
        helper.make_node("Clip", ["sum", "low", ""], ["y"]),
        helper.make_node("Exp", ["x"], ["aside"]),
        helper.make_node("Dropout", ["aside"], ["kept", ""]),
    ]
    graph = helper.make_graph(
        nodes,
        "whole",
        [tensor_info("x", 3), helper.make_tensor_value_info("asked", TensorProto.BOOL, [])],
        [tensor_info("y", 3), tensor_info("kept", 3)],
        [
            numpy_helper.from_array(np.array(2, np.float32), "two"),
            weight("bias", 3),
            numpy_helper.from_array(np.array(0, np.float32), "low"),
            weight("unused", 100),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def kinds(nodes: list[onnx.NodeProto]) -> list[str]:
    return [node.op_type for node in nodes]


def test_a_node_is_found_by_what_it_does(model: onnx.ModelProto) -> None:
    graph = Graph(model)
    assert graph.only("Clip").output[0] == "y"
    with pytest.raises(UnknownGraphError, match="0 Conv nodes instead of one"):
        graph.only("Conv")
    model.graph.node.append(helper.make_node("Exp", ["y"], ["z"]))
    with pytest.raises(UnknownGraphError, match="2 Exp nodes instead of one"):
        Graph(model).only("Exp")


def test_a_tensor_is_made_by_one_and_taken_by_any_number(model: onnx.ModelProto) -> None:
    graph = Graph(model)
    assert graph.maker["sum"].op_type == "If"
    assert "x" not in graph.maker
    assert "" not in graph.maker
    assert kinds(graph.takers("x")) == ["Mul", "Exp"]
    assert graph.takers("y") == []
    assert graph.takers("") == []


def test_what_a_branch_takes_from_around_it_is_taken(model: onnx.ModelProto) -> None:
    graph = Graph(model)
    assert taken_by(graph.only("If")) == ["asked", "minus", "bias", "double", "bias"]
    assert kinds(graph.takers("double")) == ["Neg", "If"]


def test_between_leads_to_the_ends_in_the_order_of_the_whole(model: onnx.ModelProto) -> None:
    graph = Graph(model)
    assert kinds(graph.between(["x"], ["y"])) == ["Mul", "Neg", "If", "Clip"]
    assert kinds(graph.between([], ["y"])) == ["Mul", "Neg", "If", "Clip"]
    assert kinds(graph.between(["double"], ["y"])) == ["Neg", "If", "Clip"]
    assert kinds(graph.between(["sum"], ["y", "kept"])) == ["Clip", "Exp", "Dropout"]
    assert graph.between(["y"], ["y"]) == []


def test_the_inputs_of_a_part_are_neither_weights_nor_made_in_it(model: onnx.ModelProto) -> None:
    graph = Graph(model)
    assert graph.inputs_of(graph.between([], ["y"])) == {"x", "asked"}
    assert graph.inputs_of(graph.between(["double"], ["y"])) == {"double", "asked"}
    assert graph.inputs_of(graph.between(["sum"], ["y"])) == {"sum"}


@pytest.mark.parametrize("asked", [True, False])
def test_parts_give_together_what_the_whole_does(model: onnx.ModelProto, asked: bool) -> None:
    graph = Graph(model)
    x = np.array([-1, 2, 3], np.float32)
    flag = helper.make_tensor_value_info("asked", TensorProto.BOOL, [])
    first = graph.model(
        graph.between([], ["double"]), [tensor_info("x", 3)], [tensor_info("double", 3)]
    )
    second = graph.model(
        graph.between(["double"], ["y"]), [tensor_info("double", 3), flag], [tensor_info("y", 3)]
    )
    (expected,) = Network(model.SerializeToString()).run(["y"], {"x": x, "asked": np.array(asked)})
    (double,) = Network(first.SerializeToString()).run(None, {"x": x})
    feeds = {"double": double, "asked": np.array(asked)}
    assert np.array_equal(Network(second.SerializeToString()).run(None, feeds)[0], expected)
    assert expected.tolist() == ([0, 5, 8] if asked else [2, 0, 0])


def test_a_part_has_the_weights_that_it_uses_and_no_others(model: onnx.ModelProto) -> None:
    graph = Graph(model)
    part = graph.model(
        graph.between(["sum"], ["y"]),
        [tensor_info("sum", 3)],
        [tensor_info("y", 3)],
        [weight("b", 1)],
    )
    assert [each.name for each in part.graph.initializer] == ["low", "b"]
    assert part.ir_version == 8
    assert part.opset_import == model.opset_import


def test_a_part_that_misses_something_cannot_be_run(model: onnx.ModelProto) -> None:
    graph = Graph(model)
    part = graph.model(graph.between([], ["y"]), [tensor_info("x", 3)], [tensor_info("y", 3)])
    with pytest.raises(UNRUNNABLE):
        Network(part.SerializeToString())


def test_what_a_convolution_takes_is_counted_over_its_groups() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], group=4),
        helper.make_node("Conv", ["x", "w"], ["b"]),
        helper.make_node("Conv", ["x", "computed"], ["c"]),
    ]
    graph = Graph(helper.make_model(helper.make_graph(nodes, "g", [], [], [weight("w", 8, 2, 3)])))
    assert [graph.channels(node) for node in nodes[:2]] == [8, 2]
    assert attributes(nodes[0]) == {"group": 4}
    with pytest.raises(UnknownGraphError, match="a convolution without constant weights"):
        graph.channels(nodes[2])


def test_a_tensor_has_sizes_that_are_known_named_or_free() -> None:
    sizes = tensor_info("x", 1, "time", None).type.tensor_type.shape.dim
    assert [size.dim_value or size.dim_param for size in sizes] == [1, "time", ""]
