"""Run an export of Kokoro: tokens and a style in, samples and durations out.

Two families of exports are about, told apart by their inputs::

    kokoro-onnx 0.6     tokens [1, n]     style [1, 256]  speed [1]
    onnx-community      input_ids [1, n]  style [1, 256]  speed [1]

None of them gives the durations, though all compute them: one for each token, in units of 600
samples, rounded to whole ones. They are made an output here, in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tts_plugins.errors import EngineError, first_line
from tts_plugins.network.graph import Graph
from tts_plugins.network.session import UNRUNNABLE, Network
from tts_plugins.types import Samples

logger = logging.getLogger(__name__)

SAMPLE_RATE = 24_000
UNIT = 600
"""Samples of one unit of duration: 25 ms."""

STYLE = 256
"""Numbers of a style."""

LONGEST = 510
"""Tokens in one run, without the two that stand around them."""

_AROUND = 0
"""Token before the first and after the last."""

_TRIAL = (50, 83, 54, 156, 31, 4)
"""Hello, in tokens."""

_UNLOADABLE: tuple[type[Exception], ...] = (*UNRUNNABLE, ValueError)

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}
_KEEPS_VALUES = {"Clip", "Max", "Min"}
"""What may stand between the rounding and the use of the durations."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """What came of a run."""

    samples: Samples

    ends: NDArray[np.int64] | None
    """For each token where its samples end, the first being the one in front of all; None where
    the network doesn't tell."""


class Model:
    """An export of Kokoro, ready to run; any number of threads may run it at once.

    Args:
        model: What is in the file.
        source: What to call it in errors.
        providers: Where it runs, as ONNX Runtime names them, the best first.
        threads: Threads of one run.

    Raises:
        EngineError: It isn't one, or can't run there.
    """

    def __init__(
        self, model: onnx.ModelProto, source: str, *, providers: Sequence[str], threads: int
    ) -> None:
        durations = _durations(model)
        for name in durations:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
        try:
            self._network = Network(model.SerializeToString(), providers=providers, threads=threads)
        except _UNLOADABLE as error:
            raise _no_model(source, "ONNX Runtime can't load it") from error
        self._tokens, self._types = _inputs(self._network.inputs, source)
        self._audio = self._network.outputs[0]
        self._durations: str | None = None
        self._try(source, durations)

    @property
    def providers(self) -> list[str]:
        """Where it really runs."""
        return self._network.providers

    @property
    def whole_speeds(self) -> bool:
        """Whether it takes no speeds but whole ones: some exports were made so."""
        return bool(np.issubdtype(self._types["speed"], np.integer))

    @property
    def tells_durations(self) -> bool:
        return self._durations is not None

    def speak(self, tokens: Sequence[int], style: NDArray[np.float32], speed: float) -> Spoken:
        """Say some tokens, ``LONGEST`` at most.

        Args:
            tokens: Ids of phonemes, without those around them.
            style: Of shape [256].
            speed: Ratio to the natural pace.

        Raises:
            EngineError: The network fails, or gives what isn't sound.
        """
        outputs = [self._audio, self._durations] if self._durations else [self._audio]
        try:
            audio, *told = self._network.run(outputs, self._feeds(tokens, style, speed))
        except UNRUNNABLE as error:
            raise EngineError(f"Kokoro failed: {first_line(error)}") from error
        samples = audio.reshape(-1).astype(np.float32)
        if not np.isfinite(samples).all():
            raise EngineError("Kokoro gave samples that are no numbers: try a float32 model")
        if not told:
            return Spoken(samples, None)
        return Spoken(samples, np.cumsum(told[0].reshape(-1).astype(np.int64)) * UNIT)

    def _feeds(
        self, tokens: Sequence[int], style: NDArray[np.float32], speed: float
    ) -> Mapping[str, Any]:
        shape = self._network.inputs["speed"].shape
        return {
            self._tokens: np.array([[_AROUND, *tokens, _AROUND]], self._types[self._tokens]),
            "style": style.reshape(1, -1).astype(self._types["style"]),
            "speed": np.full([1] * len(shape), speed, self._types["speed"]),
        }

    def _try(self, source: str, durations: Sequence[str]) -> None:
        """Have it say a word, to know that it can, and which of its tensors are the durations."""
        feeds = self._feeds(_TRIAL, np.zeros(STYLE, np.float32), 1.0)
        try:
            audio, *told = self._network.run([self._audio, *durations], feeds)
        except UNRUNNABLE as error:
            raise _no_model(source, "ONNX Runtime can't run it") from error
        if not np.issubdtype(audio.dtype, np.floating) or audio.size < UNIT:
            raise _no_model(source, "what it gives isn't sound")
        for name, units in zip(durations, told, strict=True):
            if units.size == len(_TRIAL) + 2 and float(units.sum()) * UNIT == audio.size:
                self._durations = name
                return
        logger.warning("%s doesn't tell how long each phoneme is: its words are estimated", source)


def parse(content: bytes, source: str) -> onnx.ModelProto:
    """The model in a file.

    Raises:
        EngineError: There is none.
    """
    try:
        model = onnx.load_model_from_string(content)
    except (DecodeError, ValueError) as error:
        raise _no_model(source, "it is no ONNX model, or not all of one") from error
    if not model.graph.output:
        raise _no_model(source, "it is no ONNX model")
    return model


def _durations(model: onnx.ModelProto) -> list[str]:
    """Tensors that may be the durations: what was rounded, at its last stop before its use."""
    graph = Graph(model)
    names = []
    for node in model.graph.node:
        if node.op_type != "Round":
            continue
        name = node.output[0]
        takers = graph.takers(name)
        while len(takers) == 1 and takers[0].op_type in _KEEPS_VALUES:
            name = takers[0].output[0]
            takers = graph.takers(name)
        names.append(name)
    given = {output.name for output in model.graph.output}
    return [name for name in names if name not in given]


def _inputs(inputs: Mapping[str, Any], source: str) -> tuple[str, dict[str, type[Any]]]:
    """Which input takes the tokens, and the type of each."""
    tokens = next((name for name in ("tokens", "input_ids") if name in inputs), "tokens")
    if set(inputs) != {tokens, "style", "speed"}:
        raise _no_model(source, f"it takes {', '.join(inputs)} and not tokens, style, speed")
    types = {name: _TYPES.get(given.type) for name, given in inputs.items()}
    known = {name: kind for name, kind in types.items() if kind is not None}
    width = inputs["style"].shape[-1] if inputs["style"].shape else 0
    # A size that isn't fixed has a name, or none.
    if len(known) < len(types) or (isinstance(width, int) and width != STYLE):
        raise _no_model(source, "its inputs have other types or shapes")
    return tokens, known


def _no_model(source: str, reason: str) -> EngineError:
    return EngineError(
        f"{source} isn't a model of Kokoro: {reason}; get an ONNX export such as "
        "kokoro-v1.0.onnx or onnx-community/Kokoro-82M-v1.0-ONNX, and check its size"
    )
