"""What hears and thinks in the Pipecat examples: by a script, or with services of your choice.

scripts/agent pipecat_bot                                        # needs no key
LLM=openai OPENAI_API_KEY=... scripts/agent pipecat_bot          # a model answers what is typed
STT=deepgram DEEPGRAM_API_KEY=... LLM=... scripts/agent ...      # and what is said

LLM_MODEL and STT_MODEL name another model than Pipecat's default; OPENAI_BASE_URL, another server.
"""

# mypy: disable-error-code="no-untyped-call"
# Pipecat leaves out annotations where a function returns nothing.

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import sys
from typing import Any

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.utils.time import time_now_iso8601

SERVICES = {
    ("STT", "deepgram"): ("DeepgramSTTService", "DEEPGRAM_API_KEY"),
    ("STT", "groq"): ("GroqSTTService", "GROQ_API_KEY"),
    ("STT", "openai"): ("OpenAISTTService", "OPENAI_API_KEY"),
    ("STT", "whisper"): ("WhisperSTTService", None),  # in this process
    ("LLM", "anthropic"): ("AnthropicLLMService", "ANTHROPIC_API_KEY"),
    ("LLM", "groq"): ("GroqLLMService", "GROQ_API_KEY"),
    ("LLM", "ollama"): ("OLLamaLLMService", None),  # on this machine
    ("LLM", "openai"): ("OpenAILLMService", "OPENAI_API_KEY"),  # or OPENAI_BASE_URL's
}
"""Pipecat's class and the variable with its key, by kind and name."""

SCRIPT = (
    "Good morning, you are speaking with the harbour office. How may I help you today?",
    "The ferry to the island leaves at seven, at nine, and at half past eleven.",
    "Yes, there is room for two bicycles, and the crossing takes about forty minutes.",
    "Your places are booked. Please be at the quay ten minutes before the ferry leaves.",
)
MANNERS = (
    "You answer the telephone of a harbour office, and each word that you write is spoken: use"
    " short sentences and no lists. Begin with a greeting. (they spoke) stands for something that"
    " was said but not understood."
)
"""What a model is told; the script knows."""

WORD_EVERY = 0.03
"""Seconds between two words of the script, as a quick model would write them."""


def ears() -> FrameProcessor:
    """What turns speech into text: the service named by STT, or one that hears when it ends."""
    return _service("STT") or Ears()


def brain() -> FrameProcessor:
    """What answers: the model named by LLM, or the script."""
    return _service("LLM") or Brain()


def memory(context: LLMContext) -> LLMContextAggregatorPair:
    """What keeps both sides of the conversation, and hears when the user speaks."""
    if os.environ.get("LLM"):
        context.add_message({"role": "developer", "content": MANNERS})
    stop = SpeechTimeoutUserTurnStopStrategy()
    return LLMContextAggregatorPair(
        context,
        user_params=LLMUserAggregatorParams(
            user_turn_strategies=UserTurnStrategies(stop=[stop]), vad_analyzer=SileroVADAnalyzer()
        ),
    )


class Ears(FrameProcessor):
    """Hears when the user has finished, but not what they said."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
        if isinstance(frame, VADUserStoppedSpeakingFrame):
            heard = TranscriptionFrame("(they spoke)", "user", time_now_iso8601(), finalized=True)
            await self.push_frame(heard)


class Brain(FrameProcessor):
    """Answers with the next line of the script, word by word."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = itertools.cycle(SCRIPT)
        self._writing: asyncio.Task[None] | None = None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame):
            await self._stop()
            self._writing = self.create_task(self._write(next(self._lines)))
            return
        if isinstance(frame, InterruptionFrame):
            await self._stop()
        await self.push_frame(frame, direction)

    async def cleanup(self) -> None:
        await self._stop()
        await super().cleanup()

    async def _write(self, line: str) -> None:
        await self.push_frame(LLMFullResponseStartFrame())
        for word in line.split():
            await self.push_frame(LLMTextFrame(word + " "))
            await asyncio.sleep(WORD_EVERY)
        await self.push_frame(LLMFullResponseEndFrame())

    async def _stop(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            await self.cancel_task(writing)


def _service(kind: str) -> FrameProcessor | None:
    name = os.environ.get(kind, "")
    if not name:
        return None
    if (kind, name) not in SERVICES:
        known = ", ".join(each for its, each in SERVICES if its == kind)
        sys.exit(f"{kind}={name} isn't known here; one of: {known}")
    service, variable = SERVICES[kind, name]
    options: dict[str, Any] = {}
    if variable is not None:
        if not os.environ.get(variable):
            sys.exit(f"set {variable}: {kind}={name} needs a key")
        options["api_key"] = os.environ[variable]
    try:
        module = importlib.import_module(f"pipecat.services.{name}.{kind.lower()}")
    except Exception as error:  # noqa: BLE001  it raises a bare one where its own package lacks
        sys.exit(f'{kind}={name} needs more: pip install "pipecat-ai[{name}]" ({error})')
    create = getattr(module, service)
    if model := os.environ.get(f"{kind}_MODEL"):
        options["settings"] = create.Settings(model=model)
    made: FrameProcessor = create(**options)
    return made
