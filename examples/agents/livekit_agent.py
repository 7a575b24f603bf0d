"""An agent for LiveKit rooms, with any engine's voice: it greets, listens, and answers chats.

scripts/agent livekit_agent --dev                                 # Ctrl-C hangs up
LLM=openai/gpt-4.1-mini STT=deepgram/nova-3 scripts/agent livekit_agent   # calls may end first
tts-plugins serve --uds /run/tts.sock & TTS=unix:///run/tts.sock scripts/agent livekit_agent

It works for the LiveKit server that LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET name. Each
job is a process, and loads the engine before there is anybody to talk to; with the third line all
jobs of a host share one. Models are LiveKit's own, by name, or ``openai`` with OPENAI_API_KEY.
Without LLM a script answers; without STT it notices that somebody speaks, but not what they say.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, Never

from livekit.agents import (
    DEFAULT_API_CONNECT_OPTIONS,
    NOT_GIVEN,
    Agent,
    AgentServer,
    AgentSession,
    APIConnectOptions,
    JobContext,
    JobProcess,
    llm,
)
from livekit.agents.__main__ import main as livekit
from livekit.plugins import openai

from tts_plugins import TTSError, open_engine
from tts_plugins.adapters.livekit import EngineTTS

INSTRUCTIONS = "You work in the harbour office. Answer in a sentence or two, without markup."
SCRIPT = (
    "Good morning, you are speaking with the harbour office. How may I help you today?",
    "The ferry to the island leaves at seven, at nine, and at half past eleven.",
    "Yes, there is room for two bicycles, and the crossing takes about forty minutes.",
    "Your places are booked. Please be at the quay ten minutes before the ferry leaves.",
)
WORD_EVERY = 0.03
"""Seconds between two words of the script, as a quick model would write them."""


class Brain(llm.LLM[Never]):
    """Answers with the next line of the script, whatever is said."""

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        **_: Any,
    ) -> llm.LLMStream:
        return Line(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class Line(llm.LLMStream):
    async def _run(self) -> None:
        # What the guest said counts, for an answer that was cut before a word is not remembered.
        asked = sum(message.role == "user" for message in self.chat_ctx.messages())
        for word in SCRIPT[asked % len(SCRIPT)].split():
            delta = llm.ChoiceDelta(role="assistant", content=word + " ")
            self._event_ch.send_nowait(llm.ChatChunk(id="script", delta=delta))
            await asyncio.sleep(WORD_EVERY)


def warm_up(process: JobProcess) -> None:
    """Load the engine, in the job's process and before it has an event loop."""
    process.userdata["tts"] = tts = EngineTTS(os.environ.get("TTS", "hibari"))
    tts.prewarm()


# One process waits for the next guest; a host where many come at once wants more.
server = AgentServer(setup_fnc=warm_up, num_idle_processes=1, initialize_process_timeout=60)


@server.rtc_session()
async def talk(job: JobContext) -> None:
    """One room, until the guest leaves."""
    mind, ears = os.environ.get("LLM"), os.environ.get("STT")
    session: AgentSession[None] = AgentSession(
        llm=openai.LLM() if mind == "openai" else mind or Brain(),
        stt=openai.STT() if ears == "openai" else ears or NOT_GIVEN,
        tts=job.proc.userdata["tts"],
        use_tts_aligned_transcript=True,
        turn_handling={
            "turn_detection": "vad",
            # Where nobody knows what was said, whoever spoke meant it.
            "interruption": {"mode": "vad", "resume_false_interruption": bool(ears)},
        },
    )
    await session.start(Agent(instructions=INSTRUCTIONS), room=job.room)
    session.generate_reply(instructions="Greet the guest.")


def main() -> None:
    needed = ["LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"]
    if "openai" in (os.environ.get("LLM"), os.environ.get("STT")):
        needed.append("OPENAI_API_KEY")
    for variable in needed:
        if not os.environ.get(variable):
            sys.exit(f"set {variable}: see the top of {os.path.relpath(__file__)}")
    try:
        # Each job would fail, and LiveKit would start another one, for ever.
        asyncio.run(open_engine(os.environ.get("TTS", "hibari")).aclose())
    except TTSError as error:
        sys.exit(str(error))
    sys.exit(livekit(["start", __file__, *sys.argv[1:]]))


if __name__ == "__main__":
    main()
