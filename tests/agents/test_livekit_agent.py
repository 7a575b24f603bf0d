from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("aiortc")

from livekit.agents import JobExecutorType, JobProcess, llm

from examples.agents.livekit_agent import SCRIPT, Brain, main, warm_up
from tests.agents.running import Running
from tests.rooms.calls import understood
from tests.rooms.server import LiveKitServer
from tests.server.live import live

pytestmark = pytest.mark.wire

OFFLINE = {"LLM": "", "STT": "", "TTS": "hibari"}


async def test_it_greets_answers_what_is_typed_and_hangs_up_at_ctrl_c() -> None:
    async with LiveKitServer() as server:
        guest = server.guest("harbour")
        with Running("livekit_agent", "--dev", **OFFLINE | server.variables) as running:
            await asyncio.to_thread(running.wait_for, "registered worker")
            with understood():
                await server.dispatch("harbour")
                await guest.meet()
            await guest.until(lambda: guest.captions and guest.loud, 20)
            guest.types("When does the ferry leave?")
            await guest.until(lambda: len(guest.turns) == 2, 20)
            await guest.until(lambda: "ferry" in guest.turns[1])
            greeting, answer = guest.turns
            assert SCRIPT[0].startswith(greeting)
            assert len(greeting) < len(SCRIPT[0])  # it was interrupted
            assert SCRIPT[1].startswith(answer)
            ended = await asyncio.to_thread(running.press_ctrl_c)
    assert ended.status == 0, ended.output
    assert "Traceback" not in ended.output


async def test_the_script_goes_on_though_the_greeting_was_cut_before_a_word() -> None:
    context = llm.ChatContext.empty()
    for line in SCRIPT:
        async with Brain().chat(chat_ctx=context) as stream:
            words = [chunk.delta.content or "" async for chunk in stream if chunk.delta]
        assert "".join(words).strip() == line
        context.add_message(role="user", content="Please go on.")


async def test_a_job_may_speak_through_the_engine_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with live(uds=tmp_path / "tts.sock"):
        monkeypatch.setenv("TTS", f"unix://{tmp_path / 'tts.sock'}")
        process = JobProcess(
            executor_type=JobExecutorType.PROCESS, user_arguments=None, http_proxy=None
        )
        await asyncio.to_thread(warm_up, process)  # as in a job, where no event loop runs yet
        tts = process.userdata["tts"]
        async with tts.stream() as stream:
            stream.push_text("Hello there.")
            stream.end_input()
            frames = [event.frame async for event in stream]
        await tts.aclose()
    # The tone takes 60 ms for each of eleven characters.
    assert sum(frame.samples_per_channel for frame in frames) == 11 * 1440


@pytest.mark.parametrize(
    "variable", ["LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET", "OPENAI_API_KEY"]
)
def test_what_it_needs_is_named(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = {"LIVEKIT_URL": "ws://nowhere", "LIVEKIT_API_KEY": "k", "LIVEKIT_API_SECRET": "s"}
    for name, value in (needed | {"LLM": "openai", "OPENAI_API_KEY": "k", variable: ""}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=f"^set {variable}: "):
        main()
