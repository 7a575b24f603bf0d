"""The bot on a Plivo number, called over a real WebSocket; there is no framework in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx
import numpy as np
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.agents import phone_plivo
from examples.agents.phone_plivo import GOODBYE, Talk
from tests.agents.carriers import RATE, Plivo, answering, reachable
from tests.agents.running import Running, free_port
from tts_plugins import open_engine
from tts_plugins.audio.g711 import to_ulaw
from tts_plugins.audio.pcm import joined
from tts_plugins.turn import Turn
from tts_plugins.types import Samples

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = (
    "Good morning and welcome to the harbour.",
    "The ferry leaves at seven.",
    "Room for two.",
)
VOICE: Samples = (0.2 * np.sin(np.arange(RATE // 2) * 0.5)).astype(np.float32)
"""Half a second of what is as loud as a voice."""


async def in_one_piece(text: str) -> bytes:
    turn = Turn(open_engine("tone"), sample_rate=RATE)
    async with aclosing(turn.say(text)) as chunks:
        return to_ulaw(joined([chunk.samples async for chunk in chunks]))


class Watched:
    """The script, with the talk in reach."""

    def __init__(self) -> None:
        self.talk: Talk = []

    def __call__(self, speech: Samples | None, talk: Talk) -> AsyncIterator[str]:
        self.talk = talk
        return phone_plivo.script(speech, talk)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def over() -> AsyncIterator[tuple[Plivo, Talk]]:
    """A call that is over, and what the bot remembers: cut by a voice, then by keys."""
    mind = Watched()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phone_plivo, "SCRIPT", SCRIPT)
        async with (
            answering(phone_plivo.create_app("tone", mind)) as address,
            Plivo(f"ws://{address}/ws") as call,
        ):
            await call.until(lambda: "0 13" in call.marks)
            await call.say(VOICE)
            await call.until(lambda: "2 10" in call.marks)
            await call.press("1")
            await call.until(lambda: "3 14" in call.marks)  # with the space behind it
            await call.press("#")
            await call.until(lambda: call.ended)
            yield call, mind.talk


async def test_an_answer_that_was_heard_out_is_whole_to_the_last_sample(
    over: tuple[Plivo, Talk],
) -> None:
    answer = over[0].line.utterances[2]
    assert answer.codes == answer.heard == await in_one_piece(SCRIPT[2])


async def test_a_barge_in_clears_the_line_and_sends_no_more(over: tuple[Plivo, Talk]) -> None:
    call, _ = over
    greeting, answer, *later = call.line.utterances
    assert greeting.cleared
    assert answer.cleared
    assert (await in_one_piece(SCRIPT[0])).startswith(greeting.heard)
    cleared = call.times("clearAudio")
    # The voice, the key, and the last key, for which nothing was left to clear.
    assert len(cleared) == 3
    behind = [at for at in call.times("playAudio") if at > cleared[0]]
    assert len(behind) == sum(len(each.packets) for each in (answer, *later))


async def test_exactly_the_words_heard_are_remembered(over: tuple[Plivo, Talk]) -> None:
    call, talk = over
    assert [each["role"] for each in talk] == ["assistant", "user", "assistant"] + 2 * ["assistant"]
    said = [each["content"] for each in talk if each["role"] == "assistant"]
    for text, kept, utterance in zip(SCRIPT, said, call.line.utterances, strict=False):
        whole = [word for word in text.split() if word]
        ends = np.cumsum([round(0.06 * len(word) * RATE) for word in whole])  # a beep for a word
        heard = int((ends <= len(utterance.heard)).sum())
        assert kept == " ".join(whole[:heard])
    assert said[2:] == [SCRIPT[2], GOODBYE]
    assert 0 < len(said[0]) < len(SCRIPT[0])


async def test_what_the_caller_said_is_taken_from_its_beginning_to_its_end(
    over: tuple[Plivo, Talk],
) -> None:
    heard = float(over[1][1]["content"].removeprefix("(they spoke for ").removesuffix(" s)"))
    # Half a second, the quiet by which its end is known, and a little in front.
    assert 0.5 + 0.6 <= heard <= 0.5 + 0.7 + 0.2


async def test_the_goodbye_is_heard_whole_before_the_bot_hangs_up(
    over: tuple[Plivo, Talk],
) -> None:
    call, _ = over
    goodbye = call.line.utterances[-1]
    assert goodbye.codes == goodbye.heard == await in_one_piece(GOODBYE)
    assert call.ended
    assert call.ended >= goodbye.arrivals[0] + len(goodbye.codes) / RATE


async def test_one_answer_at_a_time_though_a_key_is_pressed_while_somebody_speaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long, last = "The ferry to the island leaves at seven, at nine, and at noon.", SCRIPT[2]
    monkeypatch.setattr(phone_plivo, "SCRIPT", (SCRIPT[0], long, last))
    monkeypatch.setattr(phone_plivo, "WORD_EVERY", 0.0)
    async with (
        answering(phone_plivo.create_app("tone")) as address,
        Plivo(f"ws://{address}/ws") as call,
    ):
        await call.until(lambda: call.line.utterances)
        speaking = asyncio.create_task(call.say(VOICE))
        await call.until(lambda: call.times("clearAudio"))
        await call.press("1")
        await speaking  # which is answered too
        await call.until(lambda: f"3 {len(last) + 1}" in call.marks)
    _, to_the_key, to_the_voice = call.line.utterances
    assert to_the_key.cleared
    assert to_the_voice.codes == await in_one_piece(last)


async def test_the_last_key_as_an_answer_ends_is_followed_by_the_goodbye(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(phone_plivo, "SCRIPT", SCRIPT)

    class Prompt(Plivo):
        """Whoever calls presses the key just before Plivo tells that the greeting was heard."""

        async def _tell(self, name: str) -> None:
            if name.split() == ["0", str(len(SCRIPT[0]) + 1)]:
                await self.press("#")
            await super()._tell(name)

    async with (
        answering(phone_plivo.create_app("tone")) as address,
        Prompt(f"ws://{address}/ws") as call,
    ):
        await call.until(lambda: call.ended)
    greeting, goodbye = call.line.utterances
    assert greeting.heard == await in_one_piece(SCRIPT[0])
    assert goodbye.heard == await in_one_piece(GOODBYE)


async def test_noise_over_the_goodbye_keeps_nobody_on_the_line() -> None:
    async with (
        answering(phone_plivo.create_app("tone")) as address,
        Plivo(f"ws://{address}/ws") as call,
    ):
        await call.until(lambda: call.line.utterances)
        await call.press("#")
        await call.until(lambda: len(call.line.utterances) == 2)
        await call.say(VOICE)
        await call.until(lambda: call.ended)
    _, goodbye = call.line.utterances
    assert goodbye.heard == await in_one_piece(GOODBYE)


async def test_a_model_that_fails_is_told_and_ends_the_call(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def refused(speech: Samples | None, talk: Talk) -> AsyncIterator[str]:
        yield "Good morning. "
        raise ValueError("that key is nobody's")

    async with (
        answering(phone_plivo.create_app("tone", refused)) as address,
        Plivo(f"ws://{address}/ws") as call,
    ):
        await call.until(lambda: call.ended)
    assert "ValueError: that key is nobody's" in capsys.readouterr().err


async def test_a_model_is_asked_with_what_was_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def transcribe(request: Request) -> Response:
        async with request.form() as form:
            assert not isinstance(form["file"], str)
            asked.append((await form["file"].read())[:4])
        return JSONResponse({"text": "When does it leave?"})

    async def complete(request: Request) -> Response:
        body = await request.json()
        asked.append(body["messages"][1:])
        event = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "delta": {"content": "At seven."}}],
        }
        lines = f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n"
        return Response(lines, media_type="text/event-stream")

    server = Starlette(
        routes=[
            Route("/v1/audio/transcriptions", transcribe, methods=["POST"]),
            Route("/v1/chat/completions", complete, methods=["POST"]),
        ]
    )
    async with answering(server) as models:
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://{models}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        talk = [{"role": "assistant", "content": "Good"}]
        answer = [text async for text in phone_plivo.openai(VOICE, talk)]
    question = {"role": "user", "content": "When does it leave?"}
    assert answer == ["At seven."]
    assert asked == [b"RIFF", [{"role": "assistant", "content": "Good"}, question]]
    assert talk[1:] == [question]


async def test_plivo_is_told_to_stream_mu_law_both_ways() -> None:
    app = phone_plivo.create_app("tone")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
        answer = await client.post("/", headers={"host": "bot.example"})
    assert answer.text == (
        '<Response><Stream bidirectional="true" keepCallAlive="true"'
        ' contentType="audio/x-mulaw;rate=8000">wss://bot.example/ws</Stream></Response>'
    )


async def test_one_command_answers_calls_and_ctrl_c_ends_one_in_its_middle() -> None:
    port = free_port()
    with Running("phone_plivo", "--port", str(port), TTS="tone") as bot:
        await asyncio.to_thread(bot.wait_for, f"http://127.0.0.1:{port}$")
        async with Plivo(await reachable(f"ws://127.0.0.1:{port}/ws")) as call:
            await call.until(lambda: call.line.utterances)
            ended = await asyncio.to_thread(bot.press_ctrl_c)
    assert ended.status == 0
    assert "Traceback" not in ended.output


async def test_a_model_without_its_key_is_named_before_anybody_calls() -> None:
    with Running("phone_plivo", LLM="openai", OPENAI_API_KEY="") as bot:
        ended = await asyncio.to_thread(bot.end)
    assert ended.status == 1
    assert ended.output.splitlines()[-1].startswith("set OPENAI_API_KEY")
