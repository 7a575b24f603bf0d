"""Tiny networks that take and give what Kokoro's exports do, and voices for them.

A phoneme is a beep of 2 to 6 units of 25 ms, at 100 Hz and another 100 for the mean of the style;
spaces and marks are as long, and silent.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

VOICES = {"af_one": 1.0, "am_three": 3.0, "bf_two": 2.0, "ef_four": 4.0, "jf_five": 5.0}
"""By the mean of their styles. At 4 a beep has 500 Hz."""


def kokoro(
    *,
    tokens: str = "tokens",
    speed: int = TensorProto.FLOAT,
    rounds: bool = True,
    style: int = 256,
    gain: float = 0.3,
) -> onnx.ModelProto:
    """A model.

    Args:
        tokens: What its first input is called.
        speed: Which type its speed has.
        rounds: Whether the durations are rounded, and can be found by it; or else floored.
        style: How long a style is.
        gain: How loud it is.
    """

    def node(kind: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(kind, inputs.split(), [output], **attributes)

    nodes = [
        node("Cast", "speed", "pace", to=TensorProto.FLOAT),
        node("Mod", f"{tokens} five", "rest"),
        node("Cast", "rest", "rest_f", to=TensorProto.FLOAT),
        node("Add", "rest_f two", "natural"),
        node("Div", "natural pace", "exact"),
        node("Round" if rounds else "Floor", "exact", "whole"),
        node("Clip", "whole one", "units"),
        node("Cast", "units", "units_i", to=TensorProto.INT64),
        node("Squeeze", "units_i axis0", "durations"),
        node("Mul", "durations unit", "lengths"),
        node("CumSum", "lengths zero_i", "ends"),
        node("ReduceSum", "lengths", "total", keepdims=0),
        node("Range", "zero_i total one_i", "clock"),
        node("Unsqueeze", "clock axis1", "clock_column"),
        node("Unsqueeze", "ends axis0", "ends_row"),
        node("GreaterOrEqual", "clock_column ends_row", "past"),
        node("Cast", "past", "past_i", to=TensorProto.INT64),
        node("ReduceSum", "past_i axis1", "which", keepdims=0),
        node("Squeeze", f"{tokens} axis0", "flat"),
        node("Greater", "flat last_mark", "sounds"),
        node("Cast", "sounds", "sounds_f", to=TensorProto.FLOAT),
        node("Mul", "sounds_f gain", "levels"),
        node("Gather", "levels which", "level"),
        node("ReduceMean", "style", "mean", keepdims=0),
        node("Mul", "mean hundred", "offset"),
        node("Add", "offset hundred", "hertz"),
        node("Mul", "hertz circle", "step"),
        node("Cast", "clock", "clock_f", to=TensorProto.FLOAT),
        node("Mul", "clock_f step", "phase"),
        node("Sin", "phase", "wave"),
        node("Mul", "wave level", "audio"),
    ]
    constants: Mapping[str, NDArray[Any]] = {
        "five": np.array(5),
        "two": np.array(2.0, np.float32),
        "one": np.ones((), np.float32),
        "axis0": np.array([0]),
        "axis1": np.array([1]),
        "unit": np.array(600),
        "zero_i": np.array(0),
        "one_i": np.array(1),
        "last_mark": np.array(16),
        "gain": np.array(gain, np.float32),
        "hundred": np.array(100.0, np.float32),
        "circle": np.array(2 * np.pi / 24_000, np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info(tokens, TensorProto.INT64, [1, "n"]),
            helper.make_tensor_value_info("style", TensorProto.FLOAT, [1, style]),
            helper.make_tensor_value_info("speed", speed, [1]),
        ],
        [helper.make_tensor_value_info("audio", TensorProto.FLOAT, ["samples"])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def styles(value: float) -> NDArray[np.float32]:
    """A voice all of whose styles are alike."""
    return np.full((510, 1, 256), value, np.float32)


def npz(**arrays: NDArray[Any]) -> bytes:
    """The bytes of a file of arrays."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def make_folder(folder: Path, model: onnx.ModelProto | None = None) -> Path:
    """A folder with a model and its voices, as kokoro-onnx's users have it."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model or kokoro(), folder / "kokoro-v1.0.onnx")
    voices = npz(**{name: styles(value) for name, value in VOICES.items()})
    (folder / "voices-v1.0.bin").write_bytes(voices)
    return folder


def make_hub(cache: Path, export: str = "model_quantized") -> Path:
    """The hub's cache, as if an export had been downloaded; returns the snapshot in it."""
    repository = cache / "models--onnx-community--Kokoro-82M-v1.0-ONNX"
    snapshot = repository / "snapshots" / "abc"
    (snapshot / "onnx").mkdir(parents=True)
    (snapshot / "voices").mkdir()
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    onnx.save(kokoro(tokens="input_ids"), snapshot / "onnx" / f"{export}.onnx")
    for name, value in {"af_heart": 1.0, "am_adam": 2.0}.items():
        (snapshot / "voices" / f"{name}.bin").write_bytes(styles(value).tobytes())
    (snapshot / "config.json").write_text('{"model_type": "style_text_to_speech_2"}')
    return snapshot
