"""Run an ONNX network, so that a run ends at once when nobody waits for it any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from tts_plugins.devices import CPU
from tts_plugins.interruption import interruptible

UNRUNNABLE: tuple[type[Exception], ...] = (
    UnicodeDecodeError,  # which pybind11 raises when a name in the file is none
    *(
        getattr(ort_errors, name)
        for name in (
            "Fail",
            "InvalidArgument",
            "InvalidGraph",
            "InvalidProtobuf",
            "NoSuchFile",
            "NotImplemented",
            "RuntimeException",
        )
    ),
)
"""What ONNX Runtime raises for a file that is no network, or one that it can't run."""


class Network:
    """A network, ready to run. Any number of threads may run it at once.

    Args:
        model: The serialized network, or a path to it.
        providers: Where it runs: names as ONNX Runtime gives them, the best first.
        threads: Threads that one run may use. One, by default: streams run side by side, and a
            second thread spends its time waiting.
        optimized: Whether to optimize it first, which takes longer than a run.

    Raises:
        UNRUNNABLE: It is none.
    """

    def __init__(
        self,
        model: bytes | str,
        *,
        providers: Sequence[str] = CPU,
        threads: int = 1,
        optimized: bool = True,
    ) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # A thread that waits for the others of its run sleeps: spinning costs a third more of the
        # processor, and where that is shared it makes the run slower.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4
        if threads > 1:
            # Or they look for more to do for another 70 ms, on a full core each.
            options.add_session_config_entry("session.force_spinning_stop", "1")
        if not optimized:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        # It falls back to the processor, and prints that to standard output, also from there.
        falls_back = int(tuple(providers) != CPU)
        self._session = ort.InferenceSession(
            model, options, providers=list(providers), enable_fallback=falls_back
        )
        self.inputs: dict[str, Any] = {i.name: i for i in self._session.get_inputs()}
        """What it takes, by name; each with ``shape`` and ``type``."""
        self.outputs: list[str] = [o.name for o in self._session.get_outputs()]
        """What it gives."""

    @property
    def providers(self) -> list[str]:
        """Where it really runs."""
        return list(self._session.get_providers())

    def run(self, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[NDArray[Any]]:
        """Compute ``outputs``, or all of them.

        For a stream that is closed meanwhile, it ends after the operation that it is at, and
        raises one of UNRUNNABLE.
        """
        return run_interruptibly(self._session, outputs, feeds)


def run_interruptibly(
    session: ort.InferenceSession, outputs: Sequence[str] | None, feeds: Mapping[str, Any]
) -> list[NDArray[Any]]:
    """Have a session compute ``outputs``, or all of them, as ``Network.run`` does."""
    options = ort.RunOptions()

    def terminate() -> None:
        options.terminate = True

    with interruptible(terminate):
        given: list[NDArray[Any]] = session.run(outputs, dict(feeds), options)
    return given
