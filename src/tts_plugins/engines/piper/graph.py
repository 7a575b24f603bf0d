"""Cut a VITS network in three in memory: what is said, how it flows, and how it sounds.

```
ids, scales -> encoder -> means, spreads --------(one for each id)------.
                    '---> durations = Ceil(...)   [noise of durations]  |
                                                                        v
      prior = means + noise * exp(spreads) * scale, each as long as its duration
      prior -> flow (a stack of convolutions) -> z -> decoder (more of them) -> samples
```
The parts are found by structure, since names change from export to export: the durations are what
the only Ceil gives; one of the random tensors leads to them; to the other one, multiplied, the
means are added, which makes the prior; z goes into the first convolution before the first
transposed one. Flow and decoder are made resumable. The prior is computed outside: so its noise
can be drawn from a seed, and only as much of it as is needed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import onnx

from tts_plugins.engines.piper.banded import banded
from tts_plugins.engines.piper.resumable import Layout, resumable
from tts_plugins.network.graph import Graph, UnknownGraphError, attributes, tensor_info

INPUTS = ("input", "input_lengths", "scales")
"""What every voice of Piper takes: ids [1, n], n [1], and the scales of noise, length and noise of
durations [3]."""
SPEAKER = "sid"
"""What one of many speakers takes as well: a number [1]."""


@dataclass(frozen=True, slots=True)
class TextLayout:
    """The names of what goes in and out of the first part."""

    noise: str | None
    """Normal noise, shape [1, 2, ids]; a voice without such has durations that are always equal."""
    durations: str
    """Frames for each id, shape [1, 1, ids]."""
    means: str
    """Shape [1, ids, channels]."""
    spreads: str
    """Logarithms of standard deviations: shape [1, ids, channels]."""
    channels: int


@dataclass(frozen=True, slots=True)
class Parts:
    """A network cut in three."""

    text: bytes
    flow: bytes
    decoder: bytes
    text_layout: TextLayout
    flow_layout: Layout
    decoder_layout: Layout

    whole: bytes
    """All of it as it was, to compare with, but for durations and noise: those it takes, since
    elsewhere than on a CPU the durations may be rounded otherwise."""
    prior_noise: str
    """Input of the whole: shape [1, channels, frames]."""


def cut(model: onnx.ModelProto) -> Parts:
    """Cut a network; the model is changed.

    Raises:
        UnknownGraphError: A part wasn't found; the message says which.
    """
    graph = Graph(model)
    inputs = {info.name: info for info in model.graph.input}
    if len(model.graph.output) != 1:
        raise UnknownGraphError(f"{len(model.graph.output)} outputs instead of one")
    durations = graph.only("Ceil").output[0]
    noise, prior_noise = _noises(model, graph, durations)
    made_of_durations = _downstream(graph, durations)
    prior, means, spreads = _prior(graph, prior_noise, made_of_durations)
    before, z = _entrance(model, graph)
    channels = graph.channels(before)
    samples = _samples(graph, model.graph.output[0].name)

    random = [name for name in (noise, prior_noise) if name]
    text_nodes = graph.between([*inputs, *random], [durations, means, spreads])
    used = {name for node in text_nodes for name in node.input}
    noise_info = [tensor_info(noise, 1, 2, "ids")] if noise else []
    said = [tensor_info(name, None, None, None) for name in (durations, means, spreads)]
    text = graph.model(
        text_nodes,
        [*(info for name, info in inputs.items() if name in used), *noise_info],
        said,
    )
    with suppress(UnknownGraphError):  # then it takes longer
        text = banded(text)
    speaker = {name: inputs[name] for name in (SPEAKER,) if name in inputs}
    prior_info = tensor_info(prior_noise, 1, channels, "frames")
    masks = _masks(graph, prior, z, made_of_durations)
    flow, flow_layout = resumable(
        graph, tensor_info(prior, 1, channels, "frames"), z, inputs=speaker, ones=masks
    )
    decoder, decoder_layout = resumable(
        graph, tensor_info(z, 1, channels, "frames"), samples, inputs=speaker
    )
    return Parts(
        text.SerializeToString(),
        flow.SerializeToString(),
        decoder.SerializeToString(),
        TextLayout(noise, durations, means, spreads, channels),
        flow_layout,
        decoder_layout,
        _whole(graph, [*inputs.values(), said[0], prior_info], samples),
        prior_noise,
    )


def _noises(model: onnx.ModelProto, graph: Graph, durations: str) -> tuple[str | None, str]:
    """The random tensor that durations are made of, if any, and the other one."""
    random = [n.output[0] for n in model.graph.node if n.op_type.startswith("RandomNormal")]
    leading = {name for node in graph.between([], [durations]) for name in node.output}
    first = [name for name in random if name in leading]
    second = [name for name in random if name not in leading]
    if len(first) > 1 or len(second) != 1:
        raise UnknownGraphError(f"{len(random)} random tensors, {len(first)} before the durations")
    return (first[0] if first else None), second[0]


def _prior(graph: Graph, noise: str, stretched: set[str]) -> tuple[str, str, str]:
    """The sum of means and noise, and the means and spreads for each id."""
    node = _only_taker(graph, noise)
    factors = []
    made = noise
    while node.op_type == "Mul":
        factors += [name for name in node.input if name != made]
        made = node.output[0]
        node = _only_taker(graph, made)
    exponentials = [graph.maker[f] for f in factors if f in graph.maker]
    exponentials = [maker for maker in exponentials if maker.op_type == "Exp"]
    if node.op_type != "Add" or len(exponentials) != 1:
        raise UnknownGraphError("the noise isn't spread and added to means")
    (means,) = (name for name in node.input if name != made)
    spreads = exponentials[0].input[0]
    return (
        node.output[0],
        _for_each_id(graph, means, stretched),
        _for_each_id(graph, spreads, stretched),
    )


def _for_each_id(graph: Graph, name: str, stretched: set[str]) -> str:
    """What was stretched by the durations to become this: path @ it, transposed."""
    transpose = graph.maker.get(name)
    if transpose is not None and transpose.op_type == "Transpose":
        stretch = graph.maker.get(transpose.input[0])
        if stretch is not None and stretch.op_type == "MatMul":
            path, values = stretch.input
            if path in stretched and values not in stretched:
                return str(values)
    raise UnknownGraphError("the means aren't stretched by the durations in the known way")


def _entrance(model: onnx.ModelProto, graph: Graph) -> tuple[onnx.NodeProto, str]:
    """The first convolution of the decoder, and what goes in."""
    spreading = next((n for n in model.graph.node if n.op_type == "ConvTranspose"), None)
    if spreading is None:
        raise UnknownGraphError("no transposed convolution")
    name = spreading.input[0]
    while (node := graph.maker.get(name)) is not None:
        if node.op_type == "Conv":
            return node, str(node.input[0])
        branches = [n for n in node.input if n in graph.maker]
        # Among several speakers the voice is added to it, through a convolution of width 1.
        name = max(branches, key=lambda n: _width(graph.maker[n]), default="")
    raise UnknownGraphError("no convolution before the first transposed one")


def _width(node: onnx.NodeProto) -> int:
    return int(attributes(node).get("kernel_shape", [0])[0]) if node.op_type == "Conv" else -1


def _samples(graph: Graph, output: str) -> str:
    """The output before it was given another shape."""
    while graph.maker[output].op_type in ("Identity", "Reshape", "Squeeze", "Unsqueeze"):
        output = graph.maker[output].input[0]
    return output


def _masks(graph: Graph, prior: str, z: str, made_of_durations: set[str]) -> list[str]:
    """What says which frames are there: in a batch of one, all."""
    made_of_prior = _downstream(graph, prior)
    taken = {
        name
        for node in graph.between([prior], [z])
        if made_of_prior.intersection(node.output)
        for name in node.input
    }
    return sorted((taken & made_of_durations) - made_of_prior - {prior})


def _downstream(graph: Graph, name: str) -> set[str]:
    """All that is computed from a tensor."""
    waiting, found = [name], set()
    while waiting:
        for node in graph.takers(waiting.pop()):
            fresh = [output for output in node.output if output not in found]
            found.update(fresh)
            waiting += fresh
    return found


def _only_taker(graph: Graph, name: str) -> onnx.NodeProto:
    takers = graph.takers(name)
    if len(takers) != 1:
        raise UnknownGraphError(f"noise that {len(takers)} operations take")
    return takers[0]


def _whole(graph: Graph, starts: list[onnx.ValueInfoProto], samples: str) -> bytes:
    nodes = graph.between([info.name for info in starts], [samples])
    used = {name for node in nodes for name in node.input}
    takes = [info for info in starts if info.name in used]
    return graph.model(nodes, takes, [tensor_info(samples, 1, None, None)]).SerializeToString()
