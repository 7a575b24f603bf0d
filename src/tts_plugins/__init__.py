"""Voices for voice agents: one engine contract, and adapters for the frameworks that speak.

What is here is light. A turn of a conversation is in ``tts_plugins.turn``, the frameworks'
services are in ``tts_plugins.adapters``, an engine on a server in ``tts_plugins.remote``, several
engines as one in ``tts_plugins.fallback``, and the contract's checker in ``tts_plugins.testing``.
"""

from tts_plugins.engine import BlockingEngine, Engine, VoiceCloner, warm_up
from tts_plugins.errors import (
    EngineError,
    EngineNotFoundError,
    EngineTimeoutError,
    InvalidRequestError,
    MissingDependencyError,
    OverloadedError,
    RemoteError,
    RemoteTimeoutError,
    TTSError,
    UnreachableError,
    UnreadableTextWarning,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.registry import engine_names, open_engine
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice, Word

__all__ = [
    "AudioChunk",
    "BlockingEngine",
    "Engine",
    "EngineError",
    "EngineNotFoundError",
    "EngineTimeoutError",
    "InvalidRequestError",
    "MissingDependencyError",
    "OverloadedError",
    "RemoteError",
    "RemoteTimeoutError",
    "Samples",
    "Scheduler",
    "SynthesisRequest",
    "TTSError",
    "UnreachableError",
    "UnreadableTextWarning",
    "UnspeakableTextError",
    "Voice",
    "VoiceCloner",
    "VoiceNotFoundError",
    "Word",
    "engine_names",
    "open_engine",
    "warm_up",
]
