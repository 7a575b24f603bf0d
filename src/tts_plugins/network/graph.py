"""Read an ONNX network in memory, and make a model of a part of it.

Parts are found by what they do, since node names change from export to export.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
from onnx import TensorProto, helper


class UnknownGraphError(Exception):
    """The network isn't built like the ones that can be cut."""


class Graph:
    """Who makes and who takes each tensor of a model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self.weights = {weight.name: weight for weight in model.graph.initializer}
        self.maker = {name: node for node in model.graph.node for name in node.output if name}
        self._takers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in taken_by(node):
                self._takers.setdefault(name, []).append(node)

    def only(self, operation: str) -> onnx.NodeProto:
        found = [node for node in self._model.graph.node if node.op_type == operation]
        if len(found) != 1:
            raise UnknownGraphError(f"{len(found)} {operation} nodes instead of one")
        return found[0]

    def takers(self, name: str) -> list[onnx.NodeProto]:
        return self._takers.get(name, [])

    def between(self, starts: Iterable[str], ends: Iterable[str]) -> list[onnx.NodeProto]:
        """The nodes that lead to ``ends``, not looking beyond ``starts``, in order."""
        seen = set(starts)
        needed: set[int] = set()
        waiting = list(ends)
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self.maker:
                continue
            seen.add(name)
            node = self.maker[name]
            needed.add(id(node))
            waiting.extend(taken_by(node))
        return [node for node in self._model.graph.node if id(node) in needed]

    def inputs_of(self, nodes: list[onnx.NodeProto]) -> set[str]:
        """The tensors that ``nodes`` take and that neither they nor the weights provide."""
        made = {name for node in nodes for name in node.output}
        taken = {name for node in nodes for name in taken_by(node)}
        return taken - made - self.weights.keys()

    def model(
        self,
        nodes: list[onnx.NodeProto],
        inputs: list[onnx.ValueInfoProto],
        outputs: list[onnx.ValueInfoProto],
        constants: Iterable[onnx.TensorProto] = (),
    ) -> onnx.ModelProto:
        """A model of ``nodes`` alone, with the weights that they use."""
        used = {name for node in nodes for name in taken_by(node)}
        weights = [*(w for name, w in self.weights.items() if name in used), *constants]
        graph = helper.make_graph(nodes, "part", inputs, outputs, weights)
        return helper.make_model(
            graph,
            opset_imports=self._model.opset_import,
            ir_version=self._model.ir_version,
        )

    def channels(self, conv: onnx.NodeProto) -> int:
        """What a convolution takes at each step.

        Raises:
            UnknownGraphError: Its weights are computed.
        """
        weight = self.weights.get(conv.input[1])
        if weight is None:
            raise UnknownGraphError("a convolution without constant weights")
        return int(weight.dims[1]) * int(attributes(conv).get("group", 1))


def taken_by(node: onnx.NodeProto) -> list[str]:
    """The tensors that a node takes, and those that a loop or branch takes from around it."""
    taken = [name for name in node.input if name]
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            inside = {each.name for each in body.input} | {each.name for each in body.initializer}
            inside |= {name for each in body.node for name in each.output}
            wanted = [name for each in body.node for name in taken_by(each)]
            wanted += [output.name for output in body.output]
            taken += [name for name in wanted if name not in inside]
    return taken


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes, by name."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def tensor_info(name: str, *shape: int | str | None) -> onnx.ValueInfoProto:
    """A float32 tensor that goes in or out; ``None`` is any size."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
