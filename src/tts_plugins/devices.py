"""Where an engine may compute: cores of this process, or what ONNX Runtime calls a provider."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tts_plugins.errors import EngineError, InvalidRequestError

CPU = ("CPUExecutionProvider",)

_PROVIDERS = {
    "cpu": CPU,
    "cuda": ("CUDAExecutionProvider", *CPU),
    "coreml": ("CoreMLExecutionProvider", *CPU),
    "dml": ("DmlExecutionProvider", *CPU),
}
_REMEDIES = {
    "CUDAExecutionProvider": "pip uninstall onnxruntime && pip install onnxruntime-gpu",
    "DmlExecutionProvider": "pip uninstall onnxruntime && pip install onnxruntime-directml",
}


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def providers(device: str | Sequence[str]) -> tuple[str, ...]:
    """ONNX Runtime's names of where to run, the best first.

    Args:
        device: ``cpu``, ``cuda``, ``coreml``, ``dml``, or such names.

    Raises:
        InvalidRequestError: There is no such device.
        EngineError: This ONNX Runtime can't use it; the message says which can.
    """
    import onnxruntime as ort  # here, since most of who counts cores has no use for it

    if not isinstance(device, str):
        wanted = tuple(device)
    elif device.endswith("ExecutionProvider"):
        wanted = (device,)
    else:
        wanted = _PROVIDERS.get(device, ())
    if not wanted:
        raise InvalidRequestError(f"no device {device!r}; there are {', '.join(_PROVIDERS)}")
    there = ort.get_available_providers()
    if wanted[0] not in there:
        remedy = _REMEDIES.get(wanted[0], "get an onnxruntime that has it")
        raise EngineError(f"this onnxruntime has no {wanted[0]}, only {', '.join(there)}: {remedy}")
    return wanted
