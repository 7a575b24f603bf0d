"""Both frameworks speak a scripted turn through one engine, offline; one is interrupted.

    python -m examples.demo [ENGINE]

Writes what was heard to out/pipecat.wav and out/livekit.wav.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from livekit.agents import Agent, AgentSession
from livekit.agents.voice.transcription.synchronizer import TranscriptSynchronizer
from loguru import logger as pipecat_log
from pipecat.frames.frames import (
    EndFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.workers.runner import WorkerRunner

from examples.listeners import LiveKitSpeaker, PipecatSpeaker, Recording
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService
from tts_plugins.engine import Engine
from tts_plugins.registry import open_engine

TURN = "Good morning! Your table for two is booked, and the kitchen knows about the nuts."
GREETING = "Welcome aboard."
STORY = (
    "Let me tell you how the lighthouse came to be. In eighteen fifty three, a ship called the "
    "Meridian ran aground on the rocks below us. Nobody was lost, but the owners had had enough."
)
INTERRUPTED_AFTER = 3.0
"""Seconds of the story that the listener hears before they speak up."""
WORD_EVERY = 0.05
"""Seconds between two words of a language model."""
OUT = Path("out")


async def tokens(text: str) -> AsyncIterator[str]:
    """The text as a language model would write it."""
    for word in text.split(" "):
        yield word + " "
        await asyncio.sleep(WORD_EVERY)


async def pipecat_turn(engine: Engine, recording: Recording) -> str:
    """A pipeline says TURN to its end. Returns what the conversation remembers."""
    context = LLMContext()
    tts = EngineTTSService(engine)
    memory = LLMContextAggregatorPair(context).assistant()
    pipeline = Pipeline([tts, PipecatSpeaker(recording), memory])
    worker = PipelineWorker(
        pipeline,
        params=PipelineParams(audio_out_sample_rate=24000),
        cancel_on_idle_timeout=False,
        enable_rtvi=False,
    )

    @worker.event_handler("on_pipeline_started")  # type: ignore[untyped-decorator]
    async def speak(worker: PipelineWorker, frame: object) -> None:
        await worker.queue_frame(LLMFullResponseStartFrame())
        recording.next_turn()
        async for token in tokens(TURN):
            await worker.queue_frame(LLMTextFrame(token))
        await worker.queue_frames([LLMFullResponseEndFrame(), EndFrame()])

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()
    return _said(context)


async def livekit_turn(engine: Engine, recording: Recording) -> str:
    """A session tells STORY and is interrupted. Returns what the conversation remembers."""
    session: AgentSession[None] = AgentSession(
        tts=EngineTTS(engine), vad=None, use_tts_aligned_transcript=True
    )
    speaker = LiveKitSpeaker(recording)
    synchronizer = TranscriptSynchronizer(next_in_chain_audio=speaker, next_in_chain_text=None)
    session.output.audio = synchronizer.audio_output
    session.output.transcription = synchronizer.text_output
    await session.start(Agent(instructions="Tell the story."), record=False)
    # A session's first words load what LiveKit itself needs, so they are not the measured ones.
    await session.say(GREETING)
    recording.next_turn()
    speaker.playing.clear()
    speech = session.say(tokens(STORY))
    await speaker.playing.wait()
    await asyncio.sleep(INTERRUPTED_AFTER)
    await speech.interrupt()
    await speech.wait_for_playout()
    said = " ".join(
        item.text_content or "" for item in session.history.items if item.type == "message"
    )
    await session.aclose()
    await synchronizer.aclose()
    return said


async def main(name: str) -> None:
    """Run both and print what came of it."""
    print(f"Loading {name} ...")
    engine = await asyncio.to_thread(open_engine, name)
    for title, turn, text in (
        ("Pipecat pipeline", pipecat_turn, TURN),
        ("LiveKit AgentSession, interrupted", livekit_turn, f"{GREETING} {STORY}"),
    ):
        recording = Recording()
        heard = await turn(engine, recording)
        path = OUT / f"{title.split()[0].lower()}.wav"
        recording.save(path)
        seconds = len(recording.pcm) / 2 / recording.sample_rate
        print(f"\n{title}")
        print(f"  asked to say       {text}")
        print(f"  words heard        {heard}")
        print(f"  first sound        {recording.first_audible * 1000:.0f} ms after the first word")
        print(f"  ran out of audio   {recording.underruns} times")
        print(f"  written            {path} ({seconds:.2f} s)")
    await engine.aclose()


def _said(context: LLMContext) -> str:
    return " ".join(
        str(message["content"])
        for message in context.get_messages()
        if isinstance(message, dict) and message.get("role") == "assistant"
    )


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    pipecat_log.remove()
    logging.getLogger("livekit").setLevel(logging.ERROR)
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "hibari"))
