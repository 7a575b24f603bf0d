"""Clients of a speech server: ours in each framework, and those that the frameworks come with."""

from __future__ import annotations

import importlib
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
from livekit.agents import tts as livekit_tts
from pipecat.frames.frames import Frame, TTSAudioRawFrame
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.services.tts_service import TTSService

from benchmarks.calls import Call, LiveKitCall, pipecat_call_of
from benchmarks.speech_server import RATE
from examples.listeners import Recording
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService
from tts_plugins.engine import Engine
from tts_plugins.registry import open_engine
from tts_plugins.types import SynthesisRequest

FORMATS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "openai pcm": ("openai", {}),
    "openai wav": ("openai", {"response_format": "wav"}),
    "openai sse": ("openai", {"extra": {"stream_format": "sse"}}),
    "elevenlabs": ("elevenlabs", {"output_format": "pcm_24000"}),
}
"""What our clients are asked to speak: a dialect, and its options."""


@dataclass(frozen=True)
class RemoteCall:
    """A call that gets its speech from a server."""

    call: Call
    frames: list[float]
    """When each frame of audio came, by time.monotonic."""


@dataclass(frozen=True)
class Client:
    name: str
    open: Callable[[str], AbstractAsyncContextManager[RemoteCall]]
    """Opens a call, given the server's address."""
    ours: bool = True
    collects: bool = False
    """Whether it waits for more than the first bytes."""


def clients(formats: Iterable[str]) -> list[Client]:
    """Ours with each of the formats in each framework, and the frameworks' own."""
    return [
        *(Client(f"Pipecat, ours, {name}", partial(_our_pipecat, name)) for name in formats),
        Client("Pipecat's own OpenAI", _pipecat_openai, ours=False, collects=True),
        Client("Pipecat's own ElevenLabs", _pipecat_elevenlabs, ours=False),
        *(Client(f"LiveKit, ours, {name}", partial(_our_livekit, name)) for name in formats),
        *_livekit_own(),
    ]


def missing() -> list[str]:
    """Clients that can't be measured, each with what it needs."""
    return [] if _livekit_own() else ["LiveKit's own OpenAI: needs livekit-plugins-openai"]


@asynccontextmanager
async def engine_at(url: str, name: str) -> AsyncIterator[Engine]:
    """An engine on the server at ``url``, with one of FORMATS."""
    dialect, options = FORMATS[name]
    engine = open_engine(f"{dialect}+{url}", **options)
    yield engine
    await engine.aclose()


class BareCall:
    """An engine without a framework around it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.recording = Recording()
        self.frames: list[float] = []

    async def say(self, text: AsyncIterable[str]) -> None:
        request = SynthesisRequest("".join([fragment async for fragment in text]))
        async with aclosing(self._engine.stream(request)) as chunks:
            async for _ in chunks:
                self.frames.append(time.monotonic())

    async def interrupt(self) -> None:
        raise NotImplementedError


class _Frames(Recording):
    """Writes down when each frame came."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[float] = []

    def play(self, pcm: bytes, sample_rate: int, *, gap: float = 0.001) -> None:
        self.frames.append(time.monotonic())


@asynccontextmanager
async def bare(url: str) -> AsyncIterator[RemoteCall]:
    async with engine_at(url, "openai pcm") as engine:
        call = BareCall(engine)
        yield RemoteCall(call, call.frames)


@asynccontextmanager
async def _pipecat(service: TTSService) -> AsyncIterator[RemoteCall]:
    frames: list[float] = []

    @service.event_handler("on_before_push_frame")  # type: ignore[untyped-decorator]
    async def note(_: object, frame: Frame) -> None:
        if isinstance(frame, TTSAudioRawFrame):
            frames.append(time.monotonic())

    async with pipecat_call_of(service) as call:
        yield RemoteCall(call, frames)


@asynccontextmanager
async def _our_pipecat(name: str, url: str) -> AsyncIterator[RemoteCall]:
    async with engine_at(url, name) as engine, _pipecat(EngineTTSService(engine)) as call:
        yield call


@asynccontextmanager
async def _pipecat_openai(url: str) -> AsyncIterator[RemoteCall]:
    async with _pipecat(OpenAITTSService(api_key="none", base_url=f"{url}/v1")) as call:
        yield call


@asynccontextmanager
async def _pipecat_elevenlabs(url: str) -> AsyncIterator[RemoteCall]:
    async with aiohttp.ClientSession() as session:
        service = ElevenLabsHttpTTSService(
            api_key="none",
            aiohttp_session=session,
            base_url=url,
            settings=ElevenLabsHttpTTSService.Settings(voice="voice"),
        )
        async with _pipecat(service) as call:
            yield call


@asynccontextmanager
async def _livekit(tts: livekit_tts.TTS[Any]) -> AsyncIterator[RemoteCall]:
    call, recording = LiveKitCall(tts), _Frames()
    call.recording = recording
    yield RemoteCall(call, recording.frames)
    await tts.aclose()


@asynccontextmanager
async def _our_livekit(name: str, url: str) -> AsyncIterator[RemoteCall]:
    async with (
        engine_at(url, name) as engine,
        _livekit(EngineTTS(engine, sample_rate=RATE)) as call,
    ):
        yield call


def _livekit_own() -> list[Client]:
    try:
        importlib.import_module("livekit.plugins.openai")
    except ModuleNotFoundError:
        return []
    return [
        Client("LiveKit's own OpenAI, pcm", partial(_livekit_openai, "pcm"), ours=False),
        Client(
            "LiveKit's own OpenAI, mp3, its default",
            partial(_livekit_openai, "mp3"),
            ours=False,
            collects=True,
        ),
    ]


@asynccontextmanager
async def _livekit_openai(response_format: str, url: str) -> AsyncIterator[RemoteCall]:
    openai = importlib.import_module("livekit.plugins.openai")
    tts = openai.TTS(base_url=f"{url}/v1", api_key="none", response_format=response_format)
    # As an AgentSession does with a TTS that takes whole sentences only.
    async with _livekit(livekit_tts.StreamAdapter(tts=tts)) as call:
        yield call
    await tts.aclose()
