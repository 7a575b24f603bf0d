"""Have a text encoder look at the neighbours of an id alone, not at zeros all around them.

VITS attends to how far ids are apart, up to ``w = 4`` (https://arxiv.org/abs/1803.02155). Its
export fills the window's ``k = 2 w + 1`` vectors up with zeros to the ``2 n - 1`` distances that
there are between ``n`` ids, multiplies by all of them, and moves each row to where it belongs:

```
queries [n, d] @ filled.T [d, 2 n - 1] -> row i moved left by n - 1 - i -> added to scores [n, n]
weights [n, n] -> row i moved right by n - 1 - i -> [n, 2 n - 1] @ filled [2 n - 1, d]
```
Here only the window is multiplied, to the same numbers:

```
queries [n, d] @ window.T [d, k] -> row i moved right by i -> added to scores [n, n]
weights [n, n] -> row i moved left by i -> [n, k] @ window [k, d]
```
Rows are moved as in the export: once the numbers of all rows are read again as rows that are one
shorter, row ``i`` begins ``i`` later; and as rows that are one longer, ``i`` earlier.
"""

from __future__ import annotations

from string import Template

import onnx
from onnx import parser

from tts_plugins.network.graph import Graph, UnknownGraphError

_MOVING = {"Identity", "Pad", "Reshape", "Slice"}
"""Operations that put numbers elsewhere: the first of what they take."""

_SCORES = Template("""
scores (float[b, h, n, d] given, float[1, k, d] window) => (float[b, h, n, n] made)
<int64[1] w = {$w}, int64[1] two_w = {$two_w}, int64[7] zeros = {0, 0, 0, 0, 0, 0, 0},
 int64[1] minus_one = {-1}, int64[1] zero = {0}, int64[1] two = {2}, int64[1] three = {3}>
{
    turned = Transpose <perm = [0, 2, 1]> (window)
    near = MatMul (given, turned)

    shape = Shape (given)
    heads = Slice (shape, zero, two)
    n = Slice (shape, two, three)
    n_behind = Concat <axis = 0> (zeros, n)
    longer = Pad (near, n_behind)
    one_row = Concat <axis = 0> (heads, minus_one)
    numbers = Reshape (longer, one_row)
    columns = Add (n, two_w)
    all = Mul (n, columns)
    kept = Slice (numbers, zero, all, two)
    rows = Concat <axis = 0> (heads, n, columns)
    moved = Reshape (kept, rows)
    end = Add (n, w)
    made = Slice (moved, w, end, three)
}
""")

_VALUES = Template("""
values (float[b, h, n, n] given, float[1, k, d] window) => (float[b, h, n, d] made)
<int64[8] w_around = {0, 0, 0, $w, 0, 0, 0, $w}, int64[5] zeros = {0, 0, 0, 0, 0},
 int64[1] minus_one = {-1}, int64[1] zero = {0}, int64[1] two = {2}, int64[1] three = {3},
 int64[1] k = {$k}>
{
    wider = Pad (given, w_around)
    shape = Shape (given)
    heads = Slice (shape, zero, two)
    n = Slice (shape, two, three)
    one_row = Concat <axis = 0> (heads, minus_one)
    numbers = Reshape (wider, one_row)
    n_behind = Concat <axis = 0> (zeros, n)
    longer = Pad (numbers, n_behind)
    columns = Add (n, k)
    rows = Concat <axis = 0> (heads, n, columns)
    moved = Reshape (longer, rows)
    near = Slice (moved, zero, k, three)
    made = MatMul (near, window)
}
""")


def banded(model: onnx.ModelProto) -> onnx.ModelProto:
    """An encoder that multiplies by the windows alone.

    Raises:
        UnknownGraphError: It has none, or uses them in another way.
    """
    graph = Graph(model)
    windows = [name for name in graph.weights if _is_window(graph, name)]
    if not windows:
        raise UnknownGraphError("no window of relative positions")
    parts: dict[str, onnx.GraphProto] = {}
    """What stands instead of a tensor."""
    for window in windows:
        product = _product(graph, window)
        weights = _weights(graph, product)
        if weights is None:
            parts[_moved(graph, product)] = _part(_SCORES, product.input[0], window, graph)
        else:
            parts[product.output[0]] = _part(_VALUES, weights, window, graph)

    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    for node in model.graph.node:
        taking = changed.graph.node.add()
        taking.CopyFrom(node)
        taking.input[:] = [
            parts[name].node[-1].output[0] if name in parts else name for name in node.input
        ]
        for name in node.output:
            if name in parts:
                changed.graph.node.extend(parts[name].node)
                changed.graph.initializer.extend(parts[name].initializer)
    graph = Graph(changed)
    takes, gives = list(model.graph.input), list(model.graph.output)
    return graph.model(graph.between([], [info.name for info in gives]), takes, gives)


def _is_window(graph: Graph, name: str) -> bool:
    """Whether it is a weight of shape [1, 2 w + 1, d] that is filled up."""
    shape = graph.weights[name].dims
    takers = [node.op_type for node in graph.takers(name)]
    return len(shape) == 3 and shape[0] == 1 and shape[1] % 2 == 1 and takers == ["Pad"]


def _product(graph: Graph, window: str) -> onnx.NodeProto:
    """Where a window that was filled up is what something is multiplied by."""
    name = window
    while True:
        node = _only(graph.takers(name))
        if node.op_type == "MatMul" and node.input[1] == name:
            return node
        if node.op_type not in _MOVING | {"Transpose", "Unsqueeze"}:
            raise _unknown()
        name = node.output[0]


def _weights(graph: Graph, product: onnx.NodeProto) -> str | None:
    """The weights of attention whose rows were moved to be multiplied, if they were."""
    name = product.input[0]
    while (node := graph.maker.get(name)) is not None and node.op_type in _MOVING:
        name = node.input[0]
    return name if node is not None and node.op_type == "Softmax" else None


def _moved(graph: Graph, product: onnx.NodeProto) -> str:
    """A product whose rows were moved to be added to the scores."""
    name: str = product.output[0]
    while True:
        node = _only([node for node in graph.takers(name) if node.op_type != "Shape"])
        if node.op_type == "Add":
            return name
        if node.op_type not in _MOVING:
            raise _unknown()
        name = node.output[0]


def _only(nodes: list[onnx.NodeProto]) -> onnx.NodeProto:
    if len(nodes) != 1:
        raise _unknown()
    return nodes[0]


def _unknown() -> UnknownGraphError:
    return UnknownGraphError("a window of relative positions isn't used in the known way")


def _part(text: Template, given: str, window: str, graph: Graph) -> onnx.GraphProto:
    """What stands instead of a product, with names of its own."""
    k = graph.weights[window].dims[1]
    part = parser.parse_graph(text.substitute(k=k, w=k // 2, two_w=k - 1))
    known = {"given": given, "window": window}
    for node in part.node:
        node.input[:] = [known.get(name, f"{window}/{name}") for name in node.input]
        node.output[:] = [f"{window}/{name}" for name in node.output]
        node.name = node.output[0]
    for constant in part.initializer:
        constant.name = f"{window}/{constant.name}"
    return part
