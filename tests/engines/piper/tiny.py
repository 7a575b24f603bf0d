"""Networks built as Piper's are, with random weights and few of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIGNS = ["_", "^", "$", " ", ".", ",", "!", "?", "'"]
RATE = 8000
HOP = 64

_WIDTH = 8


class Builder:
    """Adds nodes with unspeaking names, and random weights."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def __call__(self, operation: str, *inputs: str, n: int = 1, **attributes: Any) -> Any:
        names = [f"t{len(self.nodes)}_{i}" for i in range(n)]
        self.nodes.append(helper.make_node(operation, inputs, names, **attributes))
        return names[0] if n == 1 else names

    def constant(self, value: object, kind: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, kind), name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def random(self, *shape: int) -> str:
        fan = max(1, int(np.prod(shape[1:])))
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(fan))

    def conv(self, x: str, n: int, m: int, kernel: int, dilation: int = 1) -> str:
        pad = dilation * (kernel - 1) // 2
        made: str = self(
            "Conv",
            x,
            self.random(m, n, kernel),
            self.random(m),
            kernel_shape=[kernel],
            dilations=[dilation],
            pads=[pad, pad],
        )
        return made

    def spread(self, x: str, n: int, m: int, stride: int) -> str:
        pad = stride // 2
        made: str = self(
            "ConvTranspose",
            x,
            self.random(n, m, 2 * stride),
            self.random(m),
            kernel_shape=[2 * stride],
            strides=[stride],
            pads=[pad, pad],
        )
        return made

    def slice(self, x: str, start: int, stop: int, axis: int, step: int = 1) -> str:
        bounds = [self.ints(v) for v in (start, stop, axis, step)]
        made: str = self("Slice", x, *bounds)
        return made


def voice(speakers: int = 0, seed: int = 0) -> onnx.ModelProto:
    """A VITS: a text encoder, random durations, a flow and a decoder with residual blocks."""
    add = Builder(seed)
    ids = len(LETTERS) + len(SIGNS)
    x = add("Gather", add.random(ids, _WIDTH), "input")
    speaker = None
    if speakers:
        speaker = add("Unsqueeze", add("Gather", add.random(speakers, 4), "sid"), add.ints(2))
    scales = [add("Gather", "scales", add.constant(i, np.int64)) for i in range(3)]

    # Durations: 1 to 10 frames for each id.
    columns = add("Transpose", x, perm=[0, 2, 1])
    noise = add("RandomNormalLike", add.slice(columns, 0, 2, 1))
    log = add.slice(add("Mul", noise, scales[2]), 0, 1, 1)
    log = add("Add", log, add.conv(columns, _WIDTH, 1, 3))
    if speaker:
        log = add("Add", log, add.conv(speaker, 4, 1, 1))
    length = add("Mul", add("Exp", add("Add", add("Tanh", log), add.constant(1.0))), scales[1])
    durations = add("Ceil", length)
    total = add("Cast", add("ReduceSum", durations, keepdims=0), to=TensorProto.INT64)
    zero, one = add.constant(0, np.int64), add.constant(1, np.int64)
    frames = add("Range", zero, total, one)

    # Which frame is whose: [1, frames, ids]; and which frames are there at all: [1, 1, frames].
    ends = add("CumSum", durations, add.constant(2, np.int64))
    at = add("Unsqueeze", add("Cast", frames, to=TensorProto.FLOAT), add.ints(0, 2))
    before = add("Less", at, ends)
    begun = add("Not", add("Less", at, add("Sub", ends, durations)))
    path = add("Cast", add("And", before, begun), to=TensorProto.FLOAT)
    there = add("Cast", add("Less", frames, total), to=TensorProto.FLOAT)
    mask = add("Unsqueeze", there, add.ints(0, 1))

    means, spreads = (
        add("Transpose", add("MatMul", path, values), perm=[0, 2, 1])
        for values in [add("MatMul", x, add.random(_WIDTH, _WIDTH)) for _ in range(2)]
    )
    noise = add("Mul", add("RandomNormalLike", means), add("Exp", spreads))
    z = add("Add", means, add("Mul", noise, scales[0]))
    for _ in range(2):
        z = _couple(add, add.slice(z, -1, -(2**62), 1, -1), mask, speaker)
    z = add("Mul", z, mask)

    z = add.conv(z, _WIDTH, 12, 7)
    if speaker:
        z = add("Add", z, add.conv(speaker, 4, 12, 1))
    for n, m in ((12, 8), (8, 4)):
        z = add.spread(add("LeakyRelu", z, alpha=0.1), n, m, 8)
        blocks = [_residual(add, z, m, kernel) for kernel in (3, 7)]
        z = add("Div", add("Add", *blocks), add.constant(2.0))
    sound = add("Tanh", add("Mul", add.conv(add("LeakyRelu", z), 4, 1, 7), add.constant(0.2)))
    add.nodes.append(helper.make_node("Unsqueeze", [sound, add.ints(1)], ["output"]))
    return _model(add, ["input", "input_lengths", "scales"] + ["sid"] * bool(speakers))


def _couple(add: Builder, z: str, mask: str, speaker: str | None) -> str:
    half = _WIDTH // 2
    kept, changed = add("Split", z, n=2, axis=1)
    h = add("Mul", add.conv(kept, half, _WIDTH, 1), mask)
    out = add("ConstantOfShape", add("Shape", h))
    for dilation in (1, 2):
        both = add.conv(h, _WIDTH, 2 * _WIDTH, 5, dilation)
        if speaker:
            both = add("Add", both, add.conv(speaker, 4, 2 * _WIDTH, 1))
        gate = add("Sigmoid", add.slice(both, _WIDTH, 2**62, 1))
        gated = add("Mul", add("Tanh", add.slice(both, 0, _WIDTH, 1)), gate)
        h = add("Mul", add("Add", h, add.conv(gated, _WIDTH, _WIDTH, 1)), mask)
        out = add("Add", out, h)
    moved = add("Mul", add("Sub", changed, add.conv(out, _WIDTH, half, 1)), mask)
    made: str = add("Concat", kept, moved, axis=1)
    return made


def _residual(add: Builder, x: str, n: int, kernel: int) -> str:
    """As in voices of high quality: two convolutions beside each leap."""
    for dilation in (1, 3):
        inner = add.conv(add("LeakyRelu", x), n, n, kernel, dilation)
        x = add("Add", x, add.conv(add("LeakyRelu", inner), n, n, kernel))
    return x


def _model(add: Builder, inputs: Sequence[str]) -> onnx.ModelProto:
    known: dict[str, tuple[int, list[int | str]]] = {
        "input": (TensorProto.INT64, [1, "ids"]),
        "input_lengths": (TensorProto.INT64, [1]),
        "scales": (TensorProto.FLOAT, [3]),
        "sid": (TensorProto.INT64, [1]),
    }
    graph = helper.make_graph(
        add.nodes,
        "tiny",
        [helper.make_tensor_value_info(name, *known[name]) for name in inputs],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)],
        add.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def config(**changes: Any) -> dict[str, Any]:
    """What stands beside it; a field that is changed to None is left out."""
    table = {sign: [i] for i, sign in enumerate([*SIGNS, *LETTERS])}
    fields = {
        "audio": {"sample_rate": RATE},
        "phoneme_type": "text",
        "phoneme_id_map": table,
        "num_speakers": 1,
        "speaker_id_map": {},
        "inference": {"noise_scale": 0.667, "length_scale": 1.0, "noise_w": 0.8},
        "language": {"code": "eo"},
        **changes,
    }
    return {name: value for name, value in fields.items() if value is not None}


def write(path: Path, model: onnx.ModelProto, fields: Mapping[str, Any] | None = None) -> Path:
    """A voice on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    path.with_name(path.name + ".json").write_text(json.dumps(fields or config()))
    return path


def renamed(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The same network, in which all but what goes in and out has another name."""
    rng = np.random.default_rng(seed)
    new = onnx.ModelProto()
    new.CopyFrom(model)
    names = {info.name: info.name for info in (*new.graph.input, *new.graph.output)} | {"": ""}

    def name(old: str) -> str:
        return names.setdefault(old, f"x{rng.integers(1 << 62)}")

    for weight in new.graph.initializer:
        weight.name = name(weight.name)
    for node in new.graph.node:
        node.name = ""
        node.input[:] = [name(each) for each in node.input]
        node.output[:] = [name(each) for each in node.output]
    del new.graph.value_info[:]
    return new


def fed_noise(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[str]]:
    """The same network, but that its noise goes in: in which names, in the order it is drawn."""
    new = onnx.ModelProto()
    new.CopyFrom(model)
    random = [node for node in new.graph.node if node.op_type == "RandomNormalLike"]
    for node in random:
        info = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [None] * 3)
        new.graph.input.append(info)
        new.graph.node.remove(node)
    return new, [node.output[0] for node in random]


def damaged(
    model: onnx.ModelProto, shape: tuple[int, ...], value: float, at: int = 0
) -> onnx.ModelProto:
    """The same network, but for one number in its first weight of that shape."""
    new = onnx.ModelProto()
    new.CopyFrom(model)
    weight = next(each for each in new.graph.initializer if tuple(each.dims) == shape)
    values = numpy_helper.to_array(weight).copy()
    values.flat[at] = value
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    return new
