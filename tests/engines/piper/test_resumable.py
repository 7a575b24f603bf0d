"""What a stack of convolutions is given in pieces, it gives as it would at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

from tests.engines.piper.tiny import Builder
from tts_plugins.engines.piper.resumable import ResumableNetwork, resumable
from tts_plugins.network.graph import Graph, UnknownGraphError, tensor_info
from tts_plugins.network.session import Network

CHANNELS = 4
SOURCE = tensor_info("x", 1, CHANNELS, "frames")


def model_of(add: Builder, result: str) -> onnx.ModelProto:
    graph = helper.make_graph(
        add.nodes, "stack", [SOURCE], [tensor_info(result, 1, None, None)], add.weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def resumed(add: Builder, result: str) -> ResumableNetwork:
    model, layout = resumable(Graph(model_of(add, result)), SOURCE, result, inputs={})
    return ResumableNetwork(Network(model.SerializeToString()), layout)


def at_once(add: Builder, result: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
    session = ort.InferenceSession(model_of(add, result).SerializeToString())
    y: NDArray[np.float32] = session.run(None, {"x": x})[0]
    return y


def in_pieces(
    network: ResumableNetwork, x: NDArray[np.float32], sizes: Sequence[int]
) -> NDArray[np.float32]:
    stream, made, at = network.stream(), [], 0
    more = network.layout.context
    for size in cycle(sizes):
        end = min(x.shape[2], at + size + more)
        made.append(stream.push(x[:, :, at:end], last=end == x.shape[2]))
        at, more = end, 0
        if end == x.shape[2]:
            return np.concatenate(made, axis=2)
    raise AssertionError


def hifigan() -> tuple[Builder, str]:
    """Upsampling, and blocks beside each other that look at more and less."""
    add = Builder()
    z = add.conv("x", CHANNELS, 6, 7)
    for n, m, stride in ((6, 4, 4), (4, 3, 2)):
        z = add.spread(add("LeakyRelu", z), n, m, stride)
        blocks = []
        for kernel in (3, 5, 11):
            y = z
            for dilation in (1, 3):
                y = add("Add", y, add.conv(add("LeakyRelu", y), m, m, kernel, dilation))
            blocks.append(y)
        z = add("Add", add("Add", blocks[0], blocks[1]), blocks[2])
    return add, add("Tanh", z)


def coupling() -> tuple[Builder, str]:
    """Channels that go their own ways and meet again."""
    add = Builder()
    first, second = add("Split", add.slice("x", -1, -(2**62), 1, -1), n=2, axis=1)
    moved = add("Sub", second, add.conv(first, 2, 2, 5, 2))
    return add, add("Concat", first, moved, axis=1)


@pytest.mark.parametrize("stack", [hifigan, coupling])
@settings(max_examples=10, deadline=None)
@given(st.integers(1, 90), st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_pieces_of_any_size_give_what_the_whole_gives(
    stack: object, frames: int, sizes: list[int]
) -> None:
    assert callable(stack)
    add, result = stack()
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, frames), np.float32)
    whole = at_once(add, result, x)
    pieces = in_pieces(resumed(add, result), x, sizes)
    assert pieces.shape == whole.shape
    assert np.abs(pieces - whole).max() < 1e-4 * np.abs(whole).max()


def test_what_is_held_back_is_what_a_convolution_looks_ahead() -> None:
    add = Builder()
    result = add.conv(add.conv("x", CHANNELS, 2, 7, 3), 2, 2, 5)
    layout = resumed(add, result).layout
    assert (layout.lag, layout.rate, layout.context) == (11, 1, 11)


def test_upsampling_holds_back_in_samples() -> None:
    add = Builder()
    result = add.conv(add.spread(add.conv("x", CHANNELS, 2, 3), 2, 2, 8), 2, 2, 3)
    layout = resumed(add, result).layout
    # One frame of eight, four that the next frame reaches into, and one.
    assert (layout.lag, layout.rate, layout.context) == (13, 8, 2)


def test_nothing_is_given_before_it_is_final() -> None:
    add = Builder()
    stream = resumed(add, add.conv("x", CHANNELS, 1, 5)).stream()
    x = np.ones((1, CHANNELS, 3), np.float32)
    lengths = [stream.push(x, last=last).shape[2] for last in (False, False, True)]
    assert lengths == [1, 3, 5]


def test_streams_know_nothing_of_each_other() -> None:
    add, result = hifigan()
    network = resumed(add, result)
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, 80), np.float32)
    one, two = network.stream(), network.stream()
    halves = [(one.push(x[:, :, :50]), two.push(-x[:, :, :50]))]
    halves.append((one.push(x[:, :, 50:], last=True), two.push(-x[:, :, 50:], last=True)))
    alone = in_pieces(network, x, [80])
    together = np.concatenate([first for first, _ in halves], axis=2)
    assert np.abs(together - alone).max() < 1e-5


def strided(add: Builder) -> str:
    made: str = add("Conv", "x", add.random(2, CHANNELS, 3), strides=[2], pads=[1, 1])
    return made


def leaning(add: Builder) -> str:
    made: str = add("Conv", "x", add.random(2, CHANNELS, 3), pads=[2, 0])
    return made


def averaged(add: Builder) -> str:
    return add.conv(add("ReduceMean", "x", axes=[2]), CHANNELS, 2, 3)


def sliced_in_time(add: Builder) -> str:
    return add.conv(add.slice("x", 0, 5, 2), CHANNELS, 2, 3)


def of_two_rates(add: Builder) -> str:
    made: str = add("Mul", add.spread("x", CHANNELS, 1, 2), add.conv("x", CHANNELS, 1, 3))
    return made


def odd_upsampling(add: Builder) -> str:
    made: str = add("ConvTranspose", "x", add.random(CHANNELS, 2, 4), strides=[4], pads=[1, 1])
    return made


@pytest.mark.parametrize(
    ("stack", "reason"),
    [
        (strided, "a convolution that changes the number of samples"),
        (leaning, "a convolution that changes the number of samples"),
        (averaged, "a ReduceMean along the time"),
        (sliced_in_time, "a Slice along the time"),
        (of_two_rates, "a Mul of two rates"),
        (odd_upsampling, "a transposed convolution that isn't a multiple"),
        (lambda add: add("Tanh", "x"), "no convolution to be resumed"),
        (lambda add: add("Identity", add.random(1, 2, 3)), "doesn't depend on what goes in"),
    ],
)
def test_what_can_not_be_resumed_is_told(stack: object, reason: str) -> None:
    add = Builder()
    assert callable(stack)
    result = stack(add)
    with pytest.raises(UnknownGraphError, match=reason):
        resumable(Graph(model_of(add, result)), SOURCE, result, inputs={})
