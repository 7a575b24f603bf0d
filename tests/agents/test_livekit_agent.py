from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("aiortc")

from examples.agents.livekit_agent import SCRIPT, main
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
            await guest.until(lambda: len(guest.turns) == 2 and len(guest.ended) == 2, 20)
            greeting, answer = guest.turns
            # The greeting was interrupted.
            assert SCRIPT[0].startswith(greeting)
            assert len(greeting) < len(SCRIPT[0])
            assert answer.strip() == SCRIPT[1]
            ended = await asyncio.to_thread(running.press_ctrl_c)
    assert ended.status == 0, ended.output
    assert "Traceback" not in ended.output


async def test_its_jobs_speak_through_the_engine_of_the_host(tmp_path: Path) -> None:
    socket = tmp_path / "tts.sock"
    async with LiveKitServer() as server, live(uds=socket):
        guest = server.guest("harbour")
        variables = OFFLINE | server.variables | {"TTS": f"unix://{socket}"}
        with Running("livekit_agent", "--dev", **variables) as running:
            await asyncio.to_thread(running.wait_for, "registered worker")
            with understood():
                await server.dispatch("harbour")
                await guest.meet()
            await guest.until(lambda: guest.captions and guest.loud, 20)
            ended = await asyncio.to_thread(running.press_ctrl_c)
    assert ended.status == 0, ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize(
    "variable", ["LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET", "OPENAI_API_KEY"]
)
def test_what_it_needs_is_named(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = {"LIVEKIT_URL": "ws://nowhere", "LIVEKIT_API_KEY": "k", "LIVEKIT_API_SECRET": "s"}
    for name, value in (needed | {"LLM": "openai", "OPENAI_API_KEY": "k", variable: ""}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=f"^set {variable}: "):
        main()
