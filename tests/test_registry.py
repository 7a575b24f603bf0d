from __future__ import annotations

import subprocess
import sys
from contextlib import aclosing

import pytest

from tts_plugins.errors import EngineNotFoundError, InvalidRequestError
from tts_plugins.registry import engine_names, open_engine
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import SynthesisRequest


async def test_an_engine_opens_by_name_with_its_own_and_the_schedulers_options() -> None:
    engine = open_engine("tone", frequency=220, workers=2, max_streams=7)
    assert isinstance(engine, Scheduler)
    async with aclosing(engine.stream(SynthesisRequest("Hello"))) as chunks:
        assert [len(chunk.samples) async for chunk in chunks] == [7200]
    await engine.aclose()


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(EngineNotFoundError, match=r"no engine 'hibary'; available: hibari, tone"):
        open_engine("hibary")


def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError, match=r"'pitch'.*options: frequency, sample_rate"):
        open_engine("tone", pitch=3)


def test_our_engines_are_there() -> None:
    assert {"hibari", "tone"} <= set(engine_names())


def test_importing_the_package_costs_no_framework_and_no_model() -> None:
    heavy = "livekit pipecat scipy onnx onnxruntime hibari soxr sentencex typer rich"
    program = f"import sys, tts_plugins; print([m for m in {heavy.split()!r} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
