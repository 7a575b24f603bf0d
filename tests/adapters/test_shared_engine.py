"""One engine process for many jobs: what a job that speaks through it has in its memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.live import live

LIVEKIT = """
import asyncio
from tts_plugins.adapters.livekit import EngineTTS

async def main():
    tts = EngineTTS({address!r}, sample_rate=24_000)
    tts.prewarm()
    frame = await tts.synthesize("Hello there.").collect()
    print(frame.samples_per_channel)
    await tts.aclose()
"""
ENGINE = """
import asyncio
from contextlib import aclosing
from tts_plugins import open_engine
from tts_plugins.turn import Turn

async def main():
    async with aclosing(open_engine({address!r})) as engine:
        async with aclosing(Turn(engine, sample_rate=24_000).say("Hello there.")) as chunks:
            print(sum([len(chunk.samples) async for chunk in chunks]))
"""
LOADED = """
import sys
asyncio.run(main())
models = ["hibari", "onnx", "onnxruntime", "scipy", "starlette", "torch"]
print([name for name in models if name in sys.modules])
"""


@pytest.mark.parametrize("code", [LIVEKIT, ENGINE], ids=["LiveKit", "engine"])
async def test_a_process_that_speaks_through_a_socket_loads_no_model(
    code: str, tmp_path: Path
) -> None:
    socket = tmp_path / "tts.sock"
    async with live(uds=socket):
        program = code.format(address=f"unix://{socket}") + LOADED
        result = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True
        )
    assert result.stdout.splitlines() == [str(11 * 1440), "[]"], result.stderr
