"""Cut hibari's network in two in memory, and make its second half resumable.

```
ids, speed -> text encoders -> durations -> pitch, energy -> [ features ] -> decoder -> heads
              '------------------ text half ------------------'  '----- decoder half -----'
```
The parts are found by structure, since node names change from export to export: the durations are
what the only CumSum sums up, the features are the Concat that takes the logarithm of the pitch in,
and the heads come out of one Split of a transposed tensor.

The decoder is a stack of convolutions padded to keep their length, and of operations that look at
one frame at a time. Each such convolution is given a memory of the frames before::

    conv(pad(x))   becomes   y = concat(memory, x, end);  conv(y);  memory' = y[-span:]

where ``end`` is empty until the last call and the zeros of the padding then. What bypasses the
convolution takes the middle of ``y``, so that it waits for the same frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tts_plugins.network.graph import Graph, UnknownGraphError, attributes, tensor_info


@dataclass(frozen=True, slots=True)
class Memory:
    """What one convolution keeps from call to call."""

    name: str
    """Input that takes it."""
    update: str
    """Output that gives it back."""
    end: str
    """Input that takes what follows the frames of a call: nothing, or zeros at the end."""
    channels: int
    half: int
    """Frames that the convolution looks ahead; it looks as far back."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of what goes in and out of the halves."""

    durations: str
    """int64, one for each id, in units of two frames."""

    features: str
    """float32, shape [1, channels, frames]; the last channel is the energy."""

    pitch: str
    """Hertz, shape [1, frames]."""

    spectra: str
    """All heads side by side: shape [1, frames, bins of all heads]."""

    memories: tuple[Memory, ...]

    @property
    def context(self) -> int:
        """Frames that the decoder looks ahead, and back."""
        return sum(memory.half for memory in self.memories)


@dataclass(frozen=True, slots=True)
class Halves:
    """A network cut in two, as serialized models."""

    text: bytes
    """ids [1, n], speed [1] -> durations, features, pitch."""

    decoder: bytes
    """features, memories, ends -> spectra, updates."""

    whole: bytes
    """The network as it was, giving durations and features as well: to compare with."""

    layout: Layout


def cut(data: bytes) -> Halves:
    """Cut a serialized network.

    Raises:
        UnknownGraphError: A part wasn't found; the message says which.
    """
    model = onnx.load_model_from_string(data)
    graph = Graph(model)
    *heads, pitch = (output.name for output in model.graph.output)
    durations = graph.only("CumSum").input[0]
    features, channels = _features(graph)
    spectra = _spectra(graph, heads)

    pitch_info = tensor_info(pitch, 1, "frames")
    features_info = tensor_info(features, 1, channels, "frames")
    durations_info = helper.make_tensor_value_info(durations, TensorProto.INT64, None)
    known = [features_info, durations_info, pitch_info]
    text_nodes = graph.between([i.name for i in model.graph.input], [o.name for o in known])
    text = graph.model(text_nodes, list(model.graph.input), known)
    decoder, memories = _decoder(graph, features_info, spectra)
    model.graph.output.extend([features_info, durations_info])
    return Halves(
        text.SerializeToString(),
        decoder.SerializeToString(),
        model.SerializeToString(),
        Layout(durations, features, pitch, spectra, memories),
    )


def _features(graph: Graph) -> tuple[str, int]:
    """The Concat downstream of the only Log that feeds a convolution, and its channels."""
    node = graph.only("Log")
    for _ in range(4):
        takers = graph.takers(node.output[0])
        if len(takers) != 1:
            break
        node = takers[0]
        if node.op_type == "Concat":
            for taker in graph.takers(node.output[0]):
                if taker.op_type == "Conv":
                    return node.output[0], graph.channels(taker)
    raise UnknownGraphError("no features made of the logarithm of the pitch")


def _spectra(graph: Graph, heads: list[str]) -> str:
    """The tensor of all heads side by side, frame by frame: before Transpose and Split."""
    split = graph.maker.get(heads[0]) if heads else None
    if split is None or split.op_type != "Split" or list(split.output) != heads:
        raise UnknownGraphError("the heads don't come out of one Split")
    transpose = graph.maker.get(split.input[0])
    if transpose is None or transpose.op_type != "Transpose":
        raise UnknownGraphError("no Transpose before the heads")
    if attributes(transpose).get("perm") != [0, 2, 1]:
        raise UnknownGraphError("an unknown Transpose before the heads")
    return str(transpose.input[0])


def _decoder(
    graph: Graph, features: onnx.ValueInfoProto, spectra: str
) -> tuple[onnx.ModelProto, tuple[Memory, ...]]:
    """The second half, made resumable."""
    nodes = graph.between([features.name], [spectra])
    if graph.inputs_of(nodes) - {features.name}:
        raise UnknownGraphError("the decoder takes more than the features")
    nodes, memories, constants = _resumable(graph, nodes)
    ends = {memory.end: memory.channels for memory in memories}
    inputs = [
        features,
        *(tensor_info(memory.name, 1, memory.channels, None) for memory in memories),
        *(tensor_info(end, 1, channels, None) for end, channels in ends.items()),
    ]
    outputs = [
        tensor_info(spectra, 1, None, None),
        *(tensor_info(memory.update, 1, memory.channels, None) for memory in memories),
    ]
    return graph.model(nodes, inputs, outputs, constants), tuple(memories)


def _resumable(
    graph: Graph, nodes: list[onnx.NodeProto]
) -> tuple[list[onnx.NodeProto], list[Memory], list[onnx.TensorProto]]:
    """The nodes of the decoder with a memory for each convolution, and the constants they need."""
    made: list[onnx.NodeProto] = []
    memories: list[Memory] = []
    constants: dict[str, onnx.TensorProto] = {}
    delayed: dict[str, str] = {}

    def constant(value: int) -> str:
        name = f"resumable_{value}"
        constants[name] = numpy_helper.from_array(np.array([value], np.int64), name)
        return name

    for original in nodes:
        node = onnx.NodeProto()
        node.CopyFrom(original)
        half = _half_span(node) if node.op_type == "Conv" else 0
        if not half:
            for i, name in enumerate(node.input):
                node.input[i] = delayed.get(name, name)
            made.append(node)
            continue
        number, source, width = len(memories), node.input[0], graph.channels(node)
        memory = Memory(f"memory_{number}", f"update_{number}", f"end_{width}_{half}", width, half)
        memories.append(memory)
        joined, middle = f"joined_{number}", f"middle_{number}"
        axis, whole = constant(2), constant(2**62)
        made += [
            helper.make_node("Concat", [memory.name, source, memory.end], [joined], axis=2),
            helper.make_node("Slice", [joined, constant(-2 * half), whole, axis], [memory.update]),
        ]
        if len(graph.takers(source)) > 1:
            cut_off = [joined, constant(half), constant(-half), axis]
            made.append(helper.make_node("Slice", cut_off, [middle]))
            delayed[source] = middle
        node.input[0] = joined
        for attribute in node.attribute:
            if attribute.name == "pads":
                attribute.CopyFrom(helper.make_attribute("pads", [0, 0]))
        made.append(node)
    if not memories:
        raise UnknownGraphError("no convolution in the decoder")
    return made, memories, list(constants.values())


def _half_span(conv: onnx.NodeProto) -> int:
    """How many frames a convolution looks ahead."""
    known = attributes(conv)
    kernel, dilation = known.get("kernel_shape", [1])[0], known.get("dilations", [1])[0]
    half = dilation * (kernel - 1) // 2
    if known.get("pads", [0, 0]) != [half, half] or known.get("strides", [1]) != [1]:
        raise UnknownGraphError("a convolution of the decoder changes the number of frames")
    return int(half)
