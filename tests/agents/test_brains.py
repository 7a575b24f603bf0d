"""What hears and thinks in the Pipecat examples: the script, or a service of one's choice."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("pipecat")

from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMRunFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.processors.aggregators.llm_context import LLMContext

from examples.agents import brains
from examples.agents.brains import MANNERS, SCRIPT, SERVICES, brain, ears, memory
from tests.adapters.pipecat_call import Call
from tests.servers import Call as Request
from tests.servers import Line, by_path, serving
from tts_plugins.audio.pcm import to_s16
from tts_plugins.registry import open_engine
from tts_plugins.turn import Turn

CHOICES = ("STT", "LLM", "STT_MODEL", "LLM_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL")
HEARD = 16_000
"""Samples per second in which a pipeline hears."""


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CHOICES:
        monkeypatch.delenv(name, raising=False)


@asynccontextmanager
async def talking(context: LLMContext) -> AsyncGenerator[Call, None]:
    """A conversation without a voice: what has been written counts as heard."""
    user, _ = memory(context)
    async with Call(Pipeline([ears(), user, brain()]), context=context) as call:
        yield call


def typed(text: str) -> Frame:
    return LLMMessagesAppendFrame([{"role": "user", "content": text}], run_llm=True)


async def test_the_script_is_spoken_line_by_line_and_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brains, "WORD_EVERY", 0.0)
    context = LLMContext()
    async with talking(context) as call:
        for i in range(len(SCRIPT) + 1):
            await call.send(LLMRunFrame())
            await call.after(LLMFullResponseEndFrame, i + 1)
    said = [message["content"] for message in context.get_messages() if isinstance(message, dict)]
    assert said == [*SCRIPT, SCRIPT[0]]
    greeting = [frame.text for frame in call.all(LLMTextFrame)][: len(SCRIPT[0].split())]
    assert greeting == [f"{word} " for word in SCRIPT[0].split()]


async def test_an_interrupted_line_ends_at_once_and_the_next_answer_is_the_next_line() -> None:
    context = LLMContext()
    async with talking(context) as call:
        await call.send(LLMRunFrame())
        await call.after(LLMTextFrame, 3)
        await call.send(InterruptionFrame())
        await call.after(InterruptionFrame)
        cut = len(call.all(LLMTextFrame))
        await call.send(typed("When does it leave?"))
        await call.after(LLMFullResponseEndFrame)
    texts = [frame.text for frame in call.all(LLMTextFrame)]
    assert "".join(texts[cut:]).strip() == SCRIPT[1]
    assert len(call.all(LLMFullResponseStartFrame)) == 2
    assert len(call.all(LLMFullResponseEndFrame)) == 1
    assert context.get_messages() == [
        {"role": "assistant", "content": "".join(texts[:cut]).strip()},
        {"role": "user", "content": "When does it leave?"},
        {"role": "assistant", "content": SCRIPT[1]},
    ]


async def test_who_speaks_interrupts_it_and_is_answered_though_nobody_understands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = LLMContext()
    async with aclosing(open_engine("hibari")) as engine:
        turn = Turn(engine, sample_rate=HEARD)
        said = [chunk async for chunk in turn.say("Excuse me, one question.")]
    speech = b"".join(to_s16(chunk.samples) for chunk in said)
    step = HEARD // 50 * 2
    sound = speech + bytes(HEARD)  # and half a second of silence
    async with talking(context) as call:
        monkeypatch.setattr(brains, "WORD_EVERY", 60.0)
        await call.send(LLMRunFrame())
        await call.after(LLMTextFrame)
        for at in range(0, len(sound) - step + 1, step):
            await call.send(InputAudioRawFrame(sound[at : at + step], HEARD, 1))
        await call.after(InterruptionFrame)
        monkeypatch.setattr(brains, "WORD_EVERY", 0.0)
        await call.after(LLMFullResponseEndFrame)
    assert context.get_messages() == [
        {"role": "assistant", "content": "Good"},
        {"role": "user", "content": "(they spoke)"},
        {"role": "assistant", "content": SCRIPT[1]},
    ]


async def test_a_model_answers_what_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def complete(line: Line, request: Request) -> None:
        line.head(content_type="text/event-stream", connection="close")
        for word in ("At ", "nine."):
            part = {"choices": [{"index": 0, "delta": {"content": word}}], "model": "m", "id": "1"}
            await line.chunk(f"data: {json.dumps(part)}\n\n".encode())
        await line.chunk(b"data: [DONE]\n\n")
        line.end()
        line.close()

    monkeypatch.setenv("LLM", "openai")
    monkeypatch.setenv("LLM_MODEL", "llama")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    context = LLMContext()
    async with serving(by_path({"/v1/chat/completions": complete})) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        async with talking(context) as call:
            await call.send(LLMRunFrame())
            await call.after(LLMFullResponseEndFrame)
            await call.send(typed("When does it leave?"))
            await call.after(LLMFullResponseEndFrame, 2)
    told = {"role": "developer", "content": MANNERS}
    nine = {"role": "assistant", "content": "At nine."}
    asked = {"role": "user", "content": "When does it leave?"}
    assert context.get_messages() == [told, nine, asked, nine]
    assert [request.json["model"] for request in server.calls] == ["llama", "llama"]
    assert server.calls[1].json["messages"] == [told, nine, asked]


@pytest.mark.parametrize(("kind", "name"), SERVICES)
def test_what_can_be_chosen_is_there(kind: str, name: str) -> None:
    spec = importlib.util.find_spec(f"pipecat.services.{name}.{kind.lower()}")
    assert spec
    assert spec.origin
    assert f"\nclass {SERVICES[kind, name][0]}(" in Path(spec.origin).read_text("utf-8")


def test_whatever_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM", "gpt")
    with pytest.raises(SystemExit, match=r"^LLM=gpt isn't known here; one of: anthropic, groq, "):
        brain()
    monkeypatch.setenv("LLM", "openai")
    with pytest.raises(SystemExit, match=r"^set OPENAI_API_KEY: LLM=openai needs a key$"):
        brain()
    monkeypatch.setenv("STT", "deepgram")
    monkeypatch.setenv("DEEPGRAM_API_KEY", "k")
    monkeypatch.setitem(sys.modules, "deepgram", None)
    with pytest.raises(SystemExit, match=r'^STT=deepgram needs more: pip install "pipecat-ai\[dee'):
        ears()
