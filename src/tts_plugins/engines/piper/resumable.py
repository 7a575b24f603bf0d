"""Make a stack of convolutions resumable: what it is given in pieces, it gives as it would at once.

Every tensor with a time axis lags behind what came in so far by some samples, which are held back
until what they depend on has come. A convolution padded to keep its length remembers what it has to
look back at, and so does whatever runs beside it::

    conv(pad(x))      y = concat(memory, x, end);  conv(y);        memory' = y[-2 half:]
    a late + b early  y = concat(memory, b, end);  a + y[:-lag];   memory' = y[-lag:]

where ``end`` is empty until the last call, and zeros then: the padding, or what drives out the
rest. One that makes more samples of each (a transposed convolution of stride s) remembers the
inputs that reach into the next call, and gives the part of its output that is final::

    y = concat(memory, x);  conv(y)[from : to]

Nothing is computed twice, and a stream's state is a few hundred kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tts_plugins.network.graph import Graph, UnknownGraphError, attributes, tensor_info
from tts_plugins.network.session import Network

FIRST, LAST = "resumable_first", "resumable_last"
"""Inputs, 1 or 0: whether this is the first call, or the last."""

State = tuple[NDArray[np.float32], ...]
"""The memories between two calls, in the layout's order; none before the first."""

_POINTWISE = {
    "Abs", "Add", "Clip", "Cos", "Div", "Elu", "Erf", "Exp", "Identity", "LeakyRelu", "Mul", "Neg",
    "PRelu", "Pow", "Relu", "Sigmoid", "Sin", "Softplus", "Sqrt", "Sub", "Tanh",
}  # fmt: skip
_CHANNELS, _TIME = 1, 2
"""Axes."""
_BEYOND = 2**62
"""No tensor is so long."""


@dataclass(frozen=True, slots=True)
class _Pace:
    """How a tensor goes along with the input."""

    rate: int
    """Samples for each frame of the input."""
    lag: int
    """Samples held back."""
    channels: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What is kept from call to call."""

    name: str
    """Input that takes it."""
    update: str
    """Output that gives it back."""
    channels: int
    initial: int
    """Samples of silence in it at first."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of what goes in and out of a resumable network, and what it holds back."""

    source: str
    """float32, shape [1, channels, frames]."""
    result: str
    """float32, shape [1, channels, samples]."""
    memories: tuple[Memory, ...]
    ends: tuple[tuple[str, int, int], ...]
    """Inputs that are empty until the last call: name, channels, samples of silence then."""
    others: tuple[str, ...]
    """What else goes in."""
    rate: int
    """Samples for each frame."""
    lag: int
    """Samples held back until the last call."""

    @property
    def context(self) -> int:
        """Frames that it looks ahead; it looks as far back."""
        return -(-self.lag // self.rate)


def resumable(
    graph: Graph,
    source: onnx.ValueInfoProto,
    result: str,
    *,
    inputs: Mapping[str, onnx.ValueInfoProto],
    ones: Iterable[str] = (),
) -> tuple[onnx.ModelProto, Layout]:
    """The part of a graph between two tensors, made resumable.

    Args:
        graph: Where they are.
        source: Where it begins: float32, shape [1, channels, frames].
        result: Where it ends: shape [1, channels, samples].
        inputs: What else may go in, without a time axis: by name.
        ones: Tensors that are one everywhere, such as masks, and needn't be computed.

    Raises:
        UnknownGraphError: There is something in between that can't be resumed.
    """
    rewriting = _Rewriting(graph, source)
    for one in ones:
        rewriting.fill(one, 1.0)
    nodes = graph.between([source.name, *ones], [result])
    for node in nodes:
        rewriting.add(node)
    return rewriting.finish(result, inputs)


class _Rewriting:
    """The nodes that were looked at so far, rewritten."""

    def __init__(self, graph: Graph, source: onnx.ValueInfoProto) -> None:
        self._graph, self._source = graph, source
        channels = source.type.tensor_type.shape.dim[_CHANNELS].dim_value
        self._paces = {source.name: _Pace(1, 0, channels)}
        """Of all tensors with a time axis."""
        self._shapes: set[str] = set()
        """Tensors that say how large one with a time axis is."""
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._memories: list[Memory] = []
        self._ends: dict[str, tuple[int, int]] = {}
        self._late: dict[tuple[str, int], str] = {}

    def finish(
        self, result: str, inputs: Mapping[str, onnx.ValueInfoProto]
    ) -> tuple[onnx.ModelProto, Layout]:
        pace = self._paces.get(result)
        if pace is None:
            raise UnknownGraphError("what comes out doesn't depend on what goes in")
        if not self._memories:
            raise UnknownGraphError("no convolution to be resumed")
        used = {name for node in self._nodes for name in node.input}
        takes = [
            self._source,
            *(tensor_info(m.name, 1, m.channels, None) for m in self._memories),
            *(tensor_info(name, 1, end[0], None) for name, end in self._ends.items()),
            *(_flag(name) for name in (FIRST, LAST) if name in used),
            *(info for name, info in inputs.items() if name in used),
        ]
        missing = self._graph.inputs_of(self._nodes) - self._constants.keys()
        if missing := missing - {info.name for info in takes}:
            raise UnknownGraphError(f"something else goes in: {min(missing)}")
        gives = [
            tensor_info(result, 1, None, None),
            *(tensor_info(m.update, 1, m.channels, None) for m in self._memories),
        ]
        model = self._graph.model(self._nodes, takes, gives, self._constants.values())
        return model, Layout(
            source=self._source.name,
            result=result,
            memories=tuple(self._memories),
            ends=tuple((name, *end) for name, end in self._ends.items()),
            others=tuple(info.name for info in takes if info.name in {FIRST, LAST, *inputs}),
            rate=pace.rate,
            lag=pace.lag,
        )

    def fill(self, name: str, value: float) -> None:
        """Have a constant stand for a tensor that has one value everywhere."""
        filled = np.full((1, 1, 1), value, np.float32)
        self._constants[name] = numpy_helper.from_array(filled, name)

    def add(self, original: onnx.NodeProto) -> None:
        """Take up the next node."""
        timed = [name for name in original.input if name in self._paces]
        shaped = [name for name in original.input if name in self._shapes]
        node = onnx.NodeProto()
        node.CopyFrom(original)
        match node.op_type:
            case _ if not timed and not shaped:
                self._nodes.append(node)
            case "Shape" if len(node.attribute) == 0:
                self._shapes.add(node.output[0])
            case "ConstantOfShape" if shaped:
                value = attributes(node).get("value")
                self.fill(node.output[0], 0 if value is None else _only_value(value))
            case "Conv":
                self._convolve(node)
            case "ConvTranspose":
                self._spread(node)
            case name if shaped or not (name in _POINTWISE or self._is_per_channel(node)):
                raise UnknownGraphError(f"a {name} along the time")
            case _:
                self._go_along(node, timed)

    def _go_along(self, node: onnx.NodeProto, timed: Sequence[str]) -> None:
        """An operation on one sample at a time: those that it takes wait for the latest."""
        paces = [self._paces[name] for name in timed]
        rate, lag = paces[0].rate, max(pace.lag for pace in paces)
        if any(pace.rate != rate for pace in paces):
            raise UnknownGraphError(f"a {node.op_type} of two rates")
        for i, name in enumerate(node.input):
            if name in self._paces:
                node.input[i] = self._delayed(name, lag)
        self._nodes.append(node)
        for name, channels in zip(node.output, self._channels(node, paces), strict=True):
            self._paces[name] = _Pace(rate, lag, channels)

    def _channels(self, node: onnx.NodeProto, paces: Sequence[_Pace]) -> list[int]:
        """How many channels come out of a node that isn't a convolution."""
        most = max(pace.channels for pace in paces)
        match node.op_type:
            case "Concat":
                return [sum(pace.channels for pace in paces)]
            case "Split":
                sizes = attributes(node).get("split")
                if sizes is None and len(node.input) > 1:
                    sizes = self._known(node.input[1])
                equal = [most // len(node.output)] * len(node.output)
                return equal if sizes is None else [int(size) for size in sizes]
            case "Slice":
                start, stop, step = (self._known(node.input[i])[0] for i in (1, 2, 4))
                return [len(range(most)[slice(*_bounds(start, stop, step))])]
            case _:
                return [most]

    def _is_per_channel(self, node: onnx.NodeProto) -> bool:
        match node.op_type:
            case "Concat" | "Split":
                return bool(attributes(node).get("axis", 0) == _CHANNELS)
            case "Slice":
                return len(node.input) == 5 and list(self._known(node.input[3])) == [_CHANNELS]
        return False

    def _convolve(self, node: onnx.NodeProto) -> None:
        pace = self._paces.get(node.input[0])
        known = attributes(node)
        weight = self._graph.weights.get(node.input[1])
        if pace is None or weight is None or len(weight.dims) != 3:
            raise UnknownGraphError("a convolution without constant weights")
        span = known.get("dilations", [1])[0] * (weight.dims[2] - 1)
        half = span // 2
        if (
            known.get("pads", [0, 0]) != [half, half]
            or 2 * half != span
            or known.get("strides", [1]) != [1]
            or known.get("auto_pad", b"NOTSET") != b"NOTSET"
        ):
            raise UnknownGraphError("a convolution that changes the number of samples")
        if half:
            memory = self._memory(pace.channels, initial=half)
            end = self._end(pace.channels, half)
            joined = self._join(memory.name, node.input[0], end)
            self._slice(joined, memory.update, -span, None)
            node.input[0] = joined
            _set(node, "pads", [0, 0])
        self._nodes.append(node)
        self._paces[node.output[0]] = _Pace(pace.rate, pace.lag + half, int(weight.dims[0]))

    def _spread(self, node: onnx.NodeProto) -> None:
        """A transposed convolution."""
        pace = self._paces.get(node.input[0])
        known = attributes(node)
        weight = self._graph.weights.get(node.input[1])
        if pace is None or weight is None or len(weight.dims) != 3:
            raise UnknownGraphError("a transposed convolution without constant weights")
        width, stride = int(weight.dims[2]), known.get("strides", [1])[0]
        overlap = width - stride
        pad = overlap // 2
        if (
            overlap < 0
            or known.get("pads", [0, 0]) != [pad, pad]
            or 2 * pad != overlap
            or known.get("dilations", [1]) != [1]
            or known.get("output_padding", [0]) != [0]
            or "output_shape" in known
            or known.get("auto_pad", b"NOTSET") != b"NOTSET"
        ):
            raise UnknownGraphError("a transposed convolution that isn't a multiple")
        channels = int(weight.dims[1]) * int(known.get("group", 1))
        result = node.output[0]
        if overlap:
            behind = -(-overlap // stride)
            memory = self._memory(pace.channels, initial=behind)
            node.input[0] = self._join(memory.name, node.input[0])
            self._slice(node.input[0], memory.update, -behind, None)
            node.output[0] = whole = f"spread_{memory.name}"
            _set(node, "pads", [0, 0])
            self._nodes.append(node)
            start = self._shifted(behind * stride, pad, FIRST)
            stop = self._shifted(-overlap, pad, LAST)
            axis = self._constant(_TIME)
            self._nodes.append(helper.make_node("Slice", [whole, start, stop, axis], [result]))
        else:
            self._nodes.append(node)
        self._paces[result] = _Pace(pace.rate * stride, pace.lag * stride + pad, channels)

    def _delayed(self, name: str, lag: int) -> str:
        """A tensor held back until it lags as far as it should."""
        pace = self._paces[name]
        more = lag - pace.lag
        if not more:
            return name
        if (name, lag) not in self._late:
            memory = self._memory(pace.channels, initial=0)
            joined = self._join(memory.name, name, self._end(pace.channels, more))
            late = f"late_{memory.name}"
            self._slice(joined, late, 0, -more)
            self._slice(joined, memory.update, -more, None)
            self._late[name, lag] = late
        return self._late[name, lag]

    def _memory(self, channels: int, *, initial: int) -> Memory:
        number = len(self._memories)
        memory = Memory(f"memory_{number}", f"update_{number}", channels, initial)
        self._memories.append(memory)
        return memory

    def _end(self, channels: int, samples: int) -> str:
        name = f"end_{channels}_{samples}"
        self._ends[name] = (channels, samples)
        return name

    def _join(self, memory: str, *parts: str) -> str:
        joined = f"joined_{memory}"
        self._nodes.append(helper.make_node("Concat", [memory, *parts], [joined], axis=_TIME))
        return joined

    def _slice(self, name: str, result: str, start: int, stop: int | None) -> None:
        bounds = [start, _BEYOND if stop is None else stop, _TIME]
        taken = [name, *(self._constant(bound) for bound in bounds)]
        self._nodes.append(helper.make_node("Slice", taken, [result]))

    def _shifted(self, value: int, shift: int, flag: str) -> str:
        """A number, and another one in the first call, or the last."""
        name = f"{flag}_{value}_{shift}"
        if not any(name in node.output for node in self._nodes):
            more = f"{name}_more"
            self._nodes += [
                helper.make_node("Mul", [flag, self._constant(shift)], [more]),
                helper.make_node("Add", [more, self._constant(value)], [name]),
            ]
        return name

    def _constant(self, value: int) -> str:
        name = f"resumable_{value}"
        self._constants[name] = numpy_helper.from_array(np.array([value], np.int64), name)
        return name

    def _known(self, name: str) -> NDArray[Any]:
        """The value of a tensor that doesn't change."""
        if name in self._graph.weights:
            return numpy_helper.to_array(self._graph.weights[name])
        maker = self._graph.maker.get(name)
        if maker is None or maker.op_type != "Constant":
            raise UnknownGraphError("channels that aren't always the same")
        return numpy_helper.to_array(attributes(maker)["value"])


class ResumableNetwork:
    """A resumable network, ready to run for any number of streams."""

    def __init__(self, network: Network, layout: Layout) -> None:
        self._network, self.layout = network, layout
        self._silence = {
            (m.channels, m.initial): np.zeros((1, m.channels, m.initial), np.float32)
            for m in layout.memories
        }
        self._open, self._closing = (
            {
                name: np.zeros((1, channels, samples if last else 0), np.float32)
                for name, channels, samples in layout.ends
            }
            for last in (False, True)
        )

    def stream(self, others: Mapping[str, NDArray[Any]] | None = None) -> ResumableStream:
        """Begin a stream.

        Args:
            others: What else goes in, by name.
        """
        return ResumableStream(self, dict(others or {}))

    def run(
        self, x: NDArray[np.float32], state: State, others: dict[str, NDArray[Any]], *, last: bool
    ) -> tuple[NDArray[np.float32], State]:
        """One call: what comes out, and the state after it."""
        layout = self.layout
        first = not state
        if first:
            state = tuple(self._silence[m.channels, m.initial] for m in layout.memories)
        given = {
            layout.source: x,
            **{m.name: kept for m, kept in zip(layout.memories, state, strict=True)},
            **(self._closing if last else self._open),
            FIRST: np.array([first], np.int64),
            LAST: np.array([last], np.int64),
            **others,
        }
        unused = {FIRST, LAST, *others}.difference(layout.others)
        feeds = {name: value for name, value in given.items() if name not in unused}
        result, *after = self._network.run(None, feeds)
        return result, tuple(after)


class ResumableStream:
    """One stream through a resumable network: push frames, get the samples that are final."""

    def __init__(self, network: ResumableNetwork, others: dict[str, NDArray[Any]]) -> None:
        self._network, self._others = network, others
        self._state: State = ()

    def push(self, x: NDArray[np.float32], *, last: bool = False) -> NDArray[np.float32]:
        """Frames of shape [1, channels, n], and whether no more follow; there must be some.

        The first push has at least as many as the network looks ahead, unless it is the last.
        """
        result, self._state = self._network.run(x, self._state, self._others, last=last)
        return result


def _flag(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT64, [1])


def _set(node: onnx.NodeProto, name: str, value: object) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def _only_value(tensor: onnx.TensorProto) -> float:
    return float(numpy_helper.to_array(tensor).reshape(-1)[0])


def _bounds(start: int, stop: int, step: int) -> tuple[int, int | None, int]:
    """ONNX's bounds of a slice as Python's: beyond the beginning is none."""
    return int(start), None if stop < -_BEYOND // 2 else int(stop), int(step)
