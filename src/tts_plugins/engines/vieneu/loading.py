"""Open the SDK, so that each of its steps is short and can be broken off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

import onnxruntime as ort

from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    MissingDependencyError,
    TTSError,
    first_line,
)
from tts_plugins.network.session import run_interruptibly

_WATERMARKED = 4
"""Frames that a watermark is put into at least: as few as the SDK itself puts one into."""

_NAMES = {"v3turbo": "v3 Turbo", "v3nano": "v3 Nano"}


def open_sdk(model: str, *, frames: int, **settings: Any) -> Any:
    """What the SDK's ``Vieneu`` gives.

    Args:
        model: Its mode.
        frames: Codec frames, of 80 ms, in a step of v3 Turbo on a CPU.
        **settings: What else it takes. It passes over those that it doesn't know.

    Raises:
        MissingDependencyError: It isn't installed, or what it needs isn't.
        EngineError: The weights aren't there, or are something else.
    """
    if find_spec("vieneu") is None:
        raise MissingDependencyError("vieneu")
    try:
        from vieneu import Vieneu

        sdk = Vieneu(mode=model, **settings)
        if sdk.backend == "pytorch":
            _begin_streams(sdk)
    except TTSError:
        raise
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in ("torch", "transformers"):
            raise EngineError(
                f"VieNeu on a GPU needs {error.name}: pip install torch transformers"
            ) from error
        raise MissingDependencyError("vieneu") from error
    except Exception as error:  # the SDK's own code: anything may come
        raise unopened(model, error, settings) from error
    if sdk.backend == "onnx":
        _make_stoppable(sdk.engine)
        if model == "v3turbo":
            # The class in front of it doesn't pass this on, and would take up to 25 in a step.
            least = _WATERMARKED if sdk.watermarker is not None else 1
            sdk.engine.infer_stream = partial(
                sdk.engine.infer_stream, chunk_frames=max(frames, least)
            )
    return sdk


def check_device(device: str) -> str:
    """Where to compute: ``cpu`` or ``cuda``.

    Raises:
        InvalidRequestError: There is no such place.
        EngineError: It isn't here.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise InvalidRequestError(f"vieneu runs on auto, cpu or cuda, not on {device!r}")
    if device == "cpu":
        return device
    there = _gpu_is_there()
    if device == "cuda" and not there:
        raise EngineError(
            "no GPU that torch can use: install a CUDA build of torch, or say device='cpu'"
        )
    return "cuda" if there else "cpu"


def _gpu_is_there() -> bool:
    if find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def unopened(model: str, error: Exception, settings: Mapping[str, Any]) -> TTSError:
    """Why it can't be opened, in one line with a remedy."""
    reason = f"{type(error).__name__}: {first_line(error)}"
    where = settings.get("onnx_dir") or settings.get("backbone_repo") or "the hub"
    if isinstance(error, OSError) or type(error).__module__.startswith(("huggingface_hub", "http")):
        return EngineError(
            f"the weights of VieNeu {_NAMES[model]} aren't all there ({reason}): download them "
            f"once while there is a network, or let HF_HOME name a folder that has them"
        )
    return EngineError(
        f"VieNeu {_NAMES[model]} can't be loaded from {where} ({reason}): it takes the files of "
        f"that model, whole"
    )


def failed(error: Exception, text: str) -> EngineError:
    """What went wrong while it spoke; the text isn't repeated."""
    if "scheduler is down" in str(error):
        cause = error.__cause__ or error
        return EngineError(
            f"VieNeu's streams have ended ({type(cause).__name__}: {first_line(cause)}): close "
            "this engine and open it again"
        )
    reason = first_line(error)
    if text:
        reason = reason.replace(text, "...")
    return EngineError(f"VieNeu failed: {type(error).__name__}: {reason}")


@contextmanager
def no_panic() -> Iterator[None]:
    """Let the Rust in sea-g2p fail like all else: its panics are no Exception, nor importable.

    Raises:
        EngineError: It gave up; for a text, one that it takes too many steps to read.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise EngineError(
            f"sea-g2p gave up on this text ({first_line(error)}): say it in plainer words"
        ) from error


def _begin_streams(sdk: Any) -> None:
    """Have the scheduler of streams made, which takes seconds, and let it live.

    When several wait for fewer slots than that, 3.8.3 takes more of them than fit, and is down from
    then on. Taken one at a time, a frame apart, they always fit.
    """
    scheduler = sdk._get_stream_scheduler()
    if scheduler is None:
        # Then a stream has a lock for as long as it is open, on whichever thread it began.
        raise EngineError(
            "VIENEU_FUSED_FRAME=0 lets only one stream speak at a time: unset it, or say "
            "device='cpu'"
        )
    scheduler.max_admit = 1


class _Stoppable:
    """An ONNX session whose run ends at once when nobody waits for it any more."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> Any:
        return run_interruptibly(self._session, outputs, feeds)


def _make_stoppable(engine: Any) -> None:
    """Nano computes a whole clause in one step, Turbo reads a whole prompt in its first."""
    for name, value in vars(engine).items():
        if isinstance(value, ort.InferenceSession):
            setattr(engine, name, _Stoppable(value))
