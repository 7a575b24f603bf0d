from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

import pytest

from tests.fakes import ScriptedEngine, tone
from tts_plugins.errors import (
    EngineError,
    EngineNotFoundError,
    OverloadedError,
    RemoteError,
    VoiceNotFoundError,
)
from tts_plugins.speaker import Speaker
from tts_plugins.types import SynthesisRequest


async def test_who_asks_for_the_same_name_gets_the_same_engine_loaded_once() -> None:
    one, two = Speaker("tone"), Speaker("tone")
    first, second = await asyncio.gather(one.open(), two.open())
    assert first is second
    await one.aclose()
    async with aclosing(first.stream(SynthesisRequest("still open"))) as chunks:
        assert await anext(chunks)
    await two.aclose()
    third = Speaker("tone")
    assert await third.open() is not first
    await third.aclose()


async def test_an_engine_given_as_an_object_stays_its_owners() -> None:
    engine = ScriptedEngine(tone(0.1))
    speaker = Speaker(engine)
    await speaker.warm_up()
    await speaker.aclose()
    assert not engine.closed
    assert [request.text for request in engine.requests] == ["Hello."]
    assert speaker.name == "ScriptedEngine"


def test_a_misspelt_name_fails_where_it_is_written() -> None:
    with pytest.raises(EngineNotFoundError, match="no engine 'tonne'"):
        Speaker("tonne")


async def test_closing_twice_is_closing_once() -> None:
    speaker, other = Speaker("tone"), Speaker("tone")
    await speaker.open()
    await other.open()
    await speaker.aclose()
    await speaker.aclose()
    turn = await other.turn(sample_rate=8000, template=SynthesisRequest(""))
    async with aclosing(turn.say("Hello")) as chunks:
        assert sum([len(chunk.samples) async for chunk in chunks]) == 2400
    await other.aclose()


async def test_it_may_be_opened_again() -> None:
    speaker = Speaker("tone")
    await speaker.warm_up()
    await speaker.aclose()
    await speaker.warm_up("tone")
    await speaker.aclose()


async def test_a_cancelled_opening_is_not_lost() -> None:
    speaker = Speaker("tone")
    task = asyncio.create_task(speaker.open())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await speaker.open()
    await speaker.aclose()
    fresh = Speaker("tone")
    engine = await fresh.open()
    await fresh.aclose()
    with pytest.raises(Exception, match="closed"):
        async with aclosing(engine.stream(SynthesisRequest("x"))) as chunks:
            await anext(chunks)


async def test_an_engine_that_fails_to_load_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(spec: str) -> None:
        raise EngineError("no memory")

    speaker = Speaker("tone")
    with monkeypatch.context() as broken:
        broken.setattr("tts_plugins.speaker.open_engine", fail)
        with pytest.raises(EngineError, match="no memory"):
            await speaker.open()
    await speaker.aclose()
    await speaker.warm_up()
    await speaker.aclose()


async def test_closing_while_it_loads_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    loading, go_on = threading.Event(), threading.Event()
    opened = []

    def slow(spec: str) -> ScriptedEngine:
        loading.set()
        go_on.wait(5)
        opened.append(ScriptedEngine())
        return opened[0]

    monkeypatch.setattr("tts_plugins.speaker.open_engine", slow)
    speaker = Speaker("tone")
    task = asyncio.create_task(speaker.open())
    await asyncio.to_thread(loading.wait, 5)
    task.cancel()
    await asyncio.wait([task])
    closing = asyncio.create_task(speaker.aclose())
    await asyncio.sleep(0)  # the loop is free
    go_on.set()
    await closing
    assert [engine.closed for engine in opened] == [True]


class Called(ScriptedEngine):
    name = "S"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RemoteError("S: 500: oops"), "S: 500: oops"),
        (OverloadedError("S: 429: busy", retry_after=1.0), "S: 429: busy"),
        (OverloadedError("busy", retry_after=1.0), "S: busy"),
        (VoiceNotFoundError("bob", ["ann"]), "S: no voice 'bob'; available: ann"),
        (EngineError("Speech is broken"), "S: Speech is broken"),
        (KeyError("audio"), "S: 'audio'"),
    ],
)
def test_an_error_is_told_with_the_engines_name_once(error: Exception, told: str) -> None:
    assert Speaker(Called()).told(error) == told


async def test_an_engine_opened_by_name_is_told_by_that_name() -> None:
    spec = "openai+http://localhost:8880?model=x"
    speaker = Speaker(spec)
    await speaker.open()
    assert speaker.told(EngineError("oops")) == f"{spec}: oops"
    said = "openai+http://localhost:8880: 500: oops"
    assert speaker.told(RemoteError(said)) == said
    await speaker.aclose()
