"""The SDK's own scheduler for GPUs, its batch and its network, on a CPU that passes for a GPU.

What a CUDA graph would replay is called in its place; all else is VieNeu's code. On a real GPU,
`scripts/gpu_check` does the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

from tts_plugins.engines.vieneu import VieNeuEngine, loading
from tts_plugins.errors import EngineError, InvalidRequestError, OverloadedError
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings(
    "ignore:`past_key_values` is deprecated:FutureWarning"  # VieNeu's, with newer transformers
)

SURE = {"temperature": 0.0}
SHORT = "Vâng."
LONG = "Hôm nay trời đẹp quá, mình đi chơi nhé các bạn."


class NoStream:
    """A CUDA stream, where everything is done at once."""

    def wait_stream(self, other: object) -> None:
        pass


@contextmanager
def gpu(*, fused: bool = True) -> Iterator[None]:
    """Let this CPU pass for a GPU."""
    from vieneu._v3_turbo_engine import VieNeuTTSv3Turbo
    from vieneu.v3_turbo_serve import stream
    from vieneu.v3turbo import V3TurboVieNeuTTS

    from tests.gpu.checkpoint import HummingCodec

    class Frame(stream.StreamFrame):  # type: ignore[misc]  # the SDK has no types
        def replay(self) -> None:
            with torch.no_grad():
                self._body()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "_gpu_is_there", lambda: True)
        patch.setattr(VieNeuTTSv3Turbo, "_resolve_device", lambda *_: torch.device("cpu"))
        patch.setattr(V3TurboVieNeuTTS, "_fused_available", lambda _: fused)
        patch.setattr(stream, "StreamFrame", Frame)
        patch.setattr(transformers.AutoModel, "from_pretrained", HummingCodec.from_pretrained)
        patch.setattr(torch.cuda, "Stream", NoStream)
        patch.setattr(torch.cuda, "current_stream", NoStream)
        patch.setattr(torch.cuda, "stream", nullcontext)
        patch.setattr(torch.cuda, "CUDAGraph", object)
        patch.setattr(torch.cuda, "graph", nullcontext)
        yield


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tests.gpu.checkpoint import make_checkpoint

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint(folder)
    return str(folder)


@pytest.fixture(scope="module")
def engine(repo: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VieNeuEngine]:
    """One that computes two streams together."""
    with gpu():
        voices = tmp_path_factory.mktemp("voices")
        engine = VieNeuEngine(device="auto", slots=2, repo=repo, voices_dir=voices)
        yield engine
        engine.close()


def speak(engine: VieNeuEngine, text: str = SHORT, **settings: Any) -> Samples:
    request = SynthesisRequest(text, **settings)
    return np.concatenate([chunk.samples for chunk in engine.synthesize(request)])


def scheduler_of(engine: VieNeuEngine) -> Any:
    return engine._sdk._stream_sched


async def hear(engine: Scheduler, text: str, voice: str) -> Samples:
    request = SynthesisRequest(text, voice=voice, options=SURE)
    async with aclosing(engine.stream(request)) as chunks:
        return np.concatenate([chunk.samples async for chunk in chunks])


async def test_streams_that_are_computed_together_do_not_disturb_each_other(
    engine: VieNeuEngine,
) -> None:
    assert engine.workers == 4
    voices = ["Mai Anh", "Hải Đăng", "Adam"]
    alone = [speak(engine, voice=voice, options=SURE) for voice in voices]
    assert len({samples.tobytes() for samples in alone}) == 3
    assert all(len(samples) > 40_000 for samples in alone)
    shared = Scheduler(engine, workers=engine.workers)
    together = await asyncio.gather(*(hear(shared, SHORT, voice) for voice in voices))
    for samples, expected in zip(together, alone, strict=True):
        assert np.array_equal(samples, expected)


def test_a_chunk_is_short_however_much_comes_at_once(engine: VieNeuEngine) -> None:
    chunks = list(engine.synthesize(SynthesisRequest(SHORT)))
    assert max(chunk.seconds for chunk in chunks) == 0.25
    assert chunks[0].seconds <= 0.16


def test_a_stream_that_is_closed_frees_its_slot(engine: VieNeuEngine) -> None:
    scheduler = scheduler_of(engine)
    for _ in range(2):
        streams = [engine.synthesize(SynthesisRequest(LONG)) for _ in range(2)]
        for stream in streams:
            next(stream)
        for stream in streams:
            stream.close()
    assert len(speak(engine)) > 10_000
    until(lambda: scheduler.n_active == 0)


def test_many_that_wait_for_few_slots_do_not_bring_the_scheduler_down(
    engine: VieNeuEngine,
) -> None:
    # Past the rows of ours, to the SDK itself, which left alone ends for good.
    streams = [engine._sdk.infer_stream(SHORT) for _ in range(4)]
    heard: list[int] = []
    threads = [
        threading.Thread(target=lambda audio=audio: heard.append(sum(map(len, audio))), daemon=True)
        for audio in streams
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(heard) == 4
    assert len(speak(engine)) > 10_000


def test_more_than_wait_for_slots_are_refused(engine: VieNeuEngine) -> None:
    scheduler = scheduler_of(engine)
    held, go = threading.Event(), threading.Event()
    replay = scheduler.frame.replay

    def slow() -> None:
        held.set()
        go.wait(10)
        replay()

    scheduler.frame.replay = slow
    heard: list[list[AudioChunk]] = []
    threads = [
        threading.Thread(
            target=lambda: heard.append(list(engine.synthesize(SynthesisRequest(SHORT)))),
            daemon=True,
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    assert held.wait(10)
    assert engine._rows is not None
    rows = engine._rows
    until(lambda: rows._waiting == 2)
    with pytest.raises(OverloadedError, match="all 2 streams of the GPU are in use"):
        next(engine.synthesize(SynthesisRequest(SHORT)))
    go.set()
    for thread in threads:
        thread.join(20)
    scheduler.frame.replay = replay
    assert len(heard) == 4


def test_a_gpu_that_fails_is_told_and_so_is_what_helps(repo: str) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be ...")

    with gpu():
        engine = VieNeuEngine(slots=2, repo=repo)
        until(lambda: scheduler_of(engine).n_active == 0)  # the one that warmed it up
        scheduler_of(engine).frame.replay = fail
        with pytest.raises(EngineError, match="failed: RuntimeError: CUDA error: out of memory"):
            speak(engine)
        remedy = r"ended \(RuntimeError: CUDA error: out of memory\): close this engine and open"
        for _ in range(3):
            with pytest.raises(EngineError, match=remedy):
                speak(engine)
        engine.close()


def test_closing_ends_streams_that_are_open(repo: str) -> None:
    with gpu():
        engine = VieNeuEngine(slots=2, repo=repo)
        scheduler = scheduler_of(engine)
        stream = engine.synthesize(SynthesisRequest(LONG))
        next(stream)
        engine.close()
    with pytest.raises(EngineError, match="closed; open another one"):
        list(stream)
    assert not scheduler._thread.is_alive()


def test_a_voice_is_learnt_and_speaks(engine: VieNeuEngine) -> None:
    tone = 0.3 * np.sin(np.arange(48_000) * 0.03).astype(np.float32)
    engine.clone("Tôi", AudioChunk(tone, 24_000))
    assert len(speak(engine, voice="Tôi")) > 10_000
    engine.forget("Tôi")


def test_what_is_for_cpus_is_refused(repo: str) -> None:
    with gpu():
        for settings in ({"precision": "int8"}, {"onnx_dir": "x"}, {"model": "v3nano"}):
            with pytest.raises(InvalidRequestError, match="are for CPUs: say device='cpu'"):
                VieNeuEngine(device="cuda", **settings)  # type: ignore[arg-type]
    with (
        gpu(fused=False),
        pytest.raises(EngineError, match="VIENEU_FUSED_FRAME=0 lets only one stream speak"),
    ):
        VieNeuEngine(repo=repo)


def until(condition: Any) -> None:
    """Wait until it is so; pytest's timeout is the bound."""
    while not condition():
        pass
