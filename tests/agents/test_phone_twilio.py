"""The bot on a Twilio number, called over a real WebSocket: Pipecat's transport and serializer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx
import numpy as np
import pytest
import pytest_asyncio
import soxr

pytest.importorskip("pipecat.transports.websocket.fastapi", reason="needs the agents group")

from examples.agents import brains, phone_twilio
from tests.agents.carriers import RATE, SILENCE, Twilio, answering, reachable
from tests.agents.running import Running, free_port
from tts_plugins import Engine, SynthesisRequest, open_engine
from tts_plugins.audio.g711 import from_ulaw, to_ulaw
from tts_plugins.audio.pcm import joined
from tts_plugins.turn import Turn
from tts_plugins.types import Samples

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = (
    "Good morning to you.",
    "The ferry to the island leaves at seven and at nine.",
    "Room for two.",
)
GOODBYE = "Thank you, goodbye."
PACKET = 320
"""Codes of the transport's packets: 40 ms."""


async def in_one_piece(text: str, engine: Engine | None = None) -> bytes:
    """A text as codes, the last packet filled up with silence."""
    turn = Turn(engine or open_engine("tone"), sample_rate=RATE)
    async with aclosing(turn.say(text)) as chunks:
        codes = to_ulaw(joined([chunk.samples async for chunk in chunks]))
    return codes.ljust(-(-len(codes) // PACKET) * PACKET, SILENCE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def voice() -> AsyncIterator[Engine]:
    """A real one, which takes its time to load."""
    async with aclosing(open_engine("hibari")) as engine:
        yield engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def question(voice: Engine) -> Samples:
    """Somebody who speaks into a phone."""
    async with aclosing(voice.stream(SynthesisRequest("Excuse me, a question."))) as stream:
        chunks = [chunk async for chunk in stream]
    samples: Samples = soxr.resample(
        joined([chunk.samples for chunk in chunks]), chunks[0].sample_rate, RATE
    )
    return samples


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def call(question: Samples) -> AsyncIterator[Twilio]:
    """A call that is over: greeted, answered and cut short, answered again, and said goodbye."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brains, "SCRIPT", SCRIPT)
        patch.setattr(phone_twilio, "GOODBYE", GOODBYE)
        async with (
            answering(phone_twilio.create_app("tone")) as address,
            Twilio(f"ws://{address}/ws") as call,
        ):
            await call.until(lambda: call.marks)
            await call.say(question)
            await call.until(lambda: len(call.line.utterances) > 1)
            await call.say(question)
            await call.until(lambda: len(call.line.utterances) > 2 and len(call.marks) > 1)
            await call.press("#")
            await call.until(lambda: call.ended)
        yield call


async def test_the_greeting_arrives_whole_to_the_last_sample(call: Twilio) -> None:
    greeting = call.line.utterances[0]
    assert greeting.codes == await in_one_piece(SCRIPT[0])
    assert not greeting.cleared


async def test_packets_are_of_40_ms(call: Twilio) -> None:
    assert {len(packet) for each in call.line.utterances for packet in each.packets} == {PACKET}


async def test_a_barge_in_clears_the_line_and_sends_no_more(call: Twilio) -> None:
    _, answer, *later = call.line.utterances
    whole = await in_one_piece(SCRIPT[1])
    assert whole.startswith(answer.codes)
    assert len(answer.heard) <= len(answer.codes) < len(whole)
    cut = next(at for at in call.times("clear") if at > answer.arrivals[0])
    behind = [at for at in call.times("media") if at > cut]
    assert len(behind) == sum(len(each.packets) for each in later)


async def test_the_turn_behind_a_barge_in_is_whole(call: Twilio) -> None:
    assert call.line.utterances[2].codes == await in_one_piece(SCRIPT[2])


async def test_a_mark_stands_behind_each_turn_that_was_said(call: Twilio) -> None:
    order = [name for _, name in call.log]
    runs = [name for n, name in enumerate(order) if n == 0 or order[n - 1] != name]
    # Whoever speaks up clears the line, even an empty one, and so does the key.
    assert " ".join(runs) == "media mark clear media clear media mark clear media mark"
    assert len(set(call.marks)) == 3


async def test_the_goodbye_is_heard_whole_before_the_bot_hangs_up(call: Twilio) -> None:
    goodbye = call.line.utterances[-1]
    assert goodbye.codes == goodbye.heard == await in_one_piece(GOODBYE)
    assert call.ended
    assert call.ended >= goodbye.arrivals[0] + len(goodbye.codes) / RATE


async def test_a_real_voice_keeps_its_last_syllable(
    voice: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brains, "SCRIPT", ("Goodbye.",))
    monkeypatch.setattr(phone_twilio, "open_engine", lambda _: voice)
    async with (
        answering(phone_twilio.create_app("hibari")) as address,
        Twilio(f"ws://{address}/ws") as call,
    ):
        await call.until(lambda: call.marks)
        whole = await in_one_piece("Goodbye.", voice)
    (said,) = call.line.utterances
    assert len(said.codes) == len(whole)
    # Each time hibari speaks its noise is another one, so that the two aren't equal to the bit.
    heard, wanted = (from_ulaw(codes)[-RATE // 4 :] for codes in (said.codes, whole))
    assert np.corrcoef(heard, wanted)[0, 1] > 0.9


async def test_a_call_ends_by_its_stop_alone() -> None:
    async with (
        answering(phone_twilio.create_app("tone")) as address,
        Twilio(f"ws://{address}/ws") as call,
    ):
        await call.until(lambda: call.line.utterances)
        await call.hang_up()
        await call.until(lambda: call.ended)


async def test_a_call_ends_by_its_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    left = asyncio.Event()
    talk = phone_twilio.talk

    async def watched(*call: object) -> None:
        await talk(*call)  # type: ignore[arg-type]
        left.set()

    monkeypatch.setattr(phone_twilio, "talk", watched)
    async with answering(phone_twilio.create_app("tone")) as address:
        async with Twilio(f"ws://{address}/ws") as call:
            await call.until(lambda: call.line.utterances)
            await call.drop()
        await asyncio.wait_for(left.wait(), 10)


async def test_a_caller_who_speaks_over_the_goodbye_is_not_kept_waiting(question: Samples) -> None:
    async with (
        answering(phone_twilio.create_app("tone")) as address,
        Twilio(f"ws://{address}/ws") as call,
    ):
        await call.until(lambda: call.line.utterances)
        await call.press("#")
        await call.until(lambda: len(call.line.utterances) > 1)
        await call.say(question)
        await call.until(lambda: call.ended, phone_twilio.LONGEST / 2)


async def test_twilio_is_told_to_stream_to_the_host_that_it_asked() -> None:
    app = phone_twilio.create_app("tone")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
        for method in ("GET", "POST"):
            answer = await client.request(method, "/", headers={"host": "bot.example"})
            assert answer.headers["content-type"] == "application/xml"
            assert answer.text == (
                '<Response><Connect><Stream url="wss://bot.example/ws"/></Connect></Response>'
            )


async def test_one_command_answers_calls_and_ctrl_c_ends_one_in_its_middle() -> None:
    port = free_port()
    with Running("phone_twilio", "--port", str(port), TTS="tone", TWILIO_AUTH_TOKEN="") as bot:
        await asyncio.to_thread(bot.wait_for, "TWILIO_ACCOUNT_SID and TWILIO_AUTH_TOKEN aren't set")
        await asyncio.to_thread(bot.wait_for, f"http://127.0.0.1:{port}$")
        async with Twilio(await reachable(f"ws://127.0.0.1:{port}/ws")) as call:
            await call.until(lambda: call.line.utterances)
            ended = await asyncio.to_thread(bot.press_ctrl_c)
    assert ended.status == 0
    assert "Traceback" not in ended.output


async def test_a_model_without_its_key_is_named_before_anybody_calls() -> None:
    with Running("phone_twilio", LLM="openai", OPENAI_API_KEY="") as bot:
        ended = await asyncio.to_thread(bot.end)
    assert ended.status == 1
    assert ended.output.splitlines()[-1].startswith("set OPENAI_API_KEY")
