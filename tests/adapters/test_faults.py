"""Servers that fail behind the real frameworks: what is made of it, and that the bot speaks on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from livekit.agents import (
    APIConnectionError,
    APIConnectOptions,
    APIError,
    APIStatusError,
    APITimeoutError,
    tts,
)
from loguru import logger
from pipecat.frames.frames import (
    InterruptionFrame,
    LLMFullResponseEndFrame,
    TTSAudioRawFrame,
    TTSUpdateSettingsFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.utils.errors import ErrorCategory

from tests.adapters.pipecat_call import Call, turn
from tests.faults import FAULTS, PCM, RATE, SILENT, speaks
from tests.servers import Answer, Server, by_path, certificate, in_turn, serving
from tts_plugins import remote
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService, EngineTTSSettings
from tts_plugins.dialects.openai import OpenAIDialect
from tts_plugins.remote import RemoteEngine

SPEECH = "/v1/audio/speech"

SOON = 0.15
"""Seconds of silence after which a server is given up."""

WHOLE = len(PCM)
"""Bytes of audio that a healthy server makes of a sentence."""


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No pauses before an engine asks again, and nothing of Pipecat's on the screen."""
    pause = remote._pause
    monkeypatch.setattr(remote, "_pause", lambda *about: None if pause(*about) is None else 0.0)
    logger.remove()
    yield
    logger.remove()


@asynccontextmanager
async def talking(
    answer: Answer, fault: str = "", **options: Any
) -> AsyncGenerator[tuple[RemoteEngine, Server], None]:
    async with serving(by_path({SPEECH: answer})) as server:
        engine = engine_at(server.url, fault, **options)
        yield engine, server
        await engine.aclose()


def engine_at(url: str, fault: str = "", **options: Any) -> RemoteEngine:
    patience = SOON if fault in SILENT else 5.0
    settings: dict[str, Any] = {"voice": "bob", "retries": 1} | options
    settings |= {"first_audio_timeout": patience, "idle_timeout": patience}
    return RemoteEngine(OpenAIDialect(), url, name="S", **settings)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  there is no event for what others do
            await asyncio.sleep(0.0005)


def asked_for(server: Server) -> list[str]:
    return [call.json["input"] for call in server.calls if call.method == "POST"]


# Pipecat

REFUSED, DENIED = ErrorCategory.INVALID_REQUEST, ErrorCategory.AUTHORIZATION
AWAY, BROKEN, BUSY = ErrorCategory.CONNECTIVITY, ErrorCategory.SERVER, ErrorCategory.RATE_LIMIT


@pytest.mark.parametrize(
    ("fault", "category", "requests", "audio"),
    [
        ("400", ErrorCategory.APPLICATION, 1, 0),
        ("402", ErrorCategory.QUOTA, 1, 0),
        ("403", DENIED, 1, 0),
        ("404", REFUSED, 1, 0),
        ("408", ErrorCategory.UNKNOWN, 2, 0),
        ("413", ErrorCategory.APPLICATION, 1, 0),
        ("422", ErrorCategory.APPLICATION, 1, 0),
        ("429", BUSY, 2, 0),
        ("429, in a second", BUSY, 2, 0),
        ("429, in a minute", BUSY, 1, 0),
        ("500", BROKEN, 2, 0),
        ("501", BROKEN, 2, 0),
        ("503", BROKEN, 2, 0),
        ("503, in a second", BROKEN, 2, 0),
        ("503, in a minute", BROKEN, 1, 0),
        ("a refusal made to be hard to read", BROKEN, 2, 0),
        ("redirect", ErrorCategory.UNKNOWN, 1, 0),
        ("an upgrade", ErrorCategory.UNKNOWN, 1, 0),
        ("silence before headers", AWAY, 1, 0),
        ("silence after headers", AWAY, 1, 0),
        ("silence mid-stream", AWAY, 1, WHOLE),
        ("comments only", AWAY, 1, 0),
        ("garbled chunks", AWAY, 1, WHOLE),
        ("reset before headers", AWAY, 2, 0),
        ("left before headers", AWAY, 2, 0),
        ("left amid headers", AWAY, 2, 0),
        ("left after headers", AWAY, 2, 0),
        ("reset mid-stream", AWAY, 1, WHOLE),
        ("chunks without an end", AWAY, 1, WHOLE),
        ("shorter than it said", AWAY, 1, WHOLE),
        ("a WAV cut short", BROKEN, 1, 3800),
        ("an event that says so", BROKEN, 1, WHOLE),
        ("empty", BROKEN, 2, 0),
        ("a WAV without samples", BROKEN, 2, 0),
        ("HTML", BROKEN, 2, 0),
        ("JSON", BROKEN, 2, 0),
        ("events that aren't JSON", BROKEN, 2, 0),
        ("events that aren't objects", BROKEN, 2, 0),
        ("events of no type", BROKEN, 2, 0),
        ("events not in base64", BROKEN, 2, 0),
        ("events made to be hard to read", BROKEN, 2, 0),
        ("not gzip", AWAY, 2, 0),
        ("not HTTP", BROKEN, 2, 0),
        ("a huge header", BROKEN, 2, 0),
    ],
)
async def test_pipecat_hears_what_kind_of_fault_it_was_and_the_next_turn_speaks(
    fault: str, category: ErrorCategory, requests: int, audio: int
) -> None:
    async with talking(FAULTS[fault], fault) as (engine, server):
        service = EngineTTSService(engine)
        async with Call(service, rate=RATE) as call:
            await call.send(*turn("One two."))
            await call.after(LLMFullResponseEndFrame)
            assert call.errors[0].category is category
            assert "S: " in call.errors[0].error
            assert len(call.audio) == audio
            assert asked_for(server) == ["One two."] * requests
            server.answer = speaks
            await call.send(*turn("Three four."))
            await call.after(LLMFullResponseEndFrame, 2)
            assert service.is_usable
        assert asked_for(server)[requests:] == ["Three four."]
        assert len(call.audio) == audio + WHOLE


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("500", "S: 500: as you asked for"),
        ("429", "S: 429: as you asked for"),
        ("an unknown voice", "S: no voice 'bob'; available: alloy, "),
    ],
)
async def test_pipecat_tells_once_which_server_it_was(fault: str, says: str) -> None:
    async with talking(FAULTS[fault], fault) as (engine, _):
        async with Call(EngineTTSService(engine), rate=RATE) as call:
            await call.send(*turn("One two."))
            await call.after(LLMFullResponseEndFrame)
        assert call.errors[0].error.count("S: ") == 1
        assert says in call.errors[0].error


@pytest.mark.parametrize("fault", ["500", "reset mid-stream", "silence before headers", "HTML"])
async def test_pipecat_speaks_the_rest_of_a_turn_in_which_a_sentence_failed(fault: str) -> None:
    context = LLMContext()
    bad = FAULTS[fault]
    async with talking(in_turn(speaks, bad, speaks), fault, retries=0) as (engine, server):
        async with Call(EngineTTSService(engine), context=context, rate=RATE) as call:
            await call.send(*turn("One two. ", "Three four. ", "Five six."))
            await call.after(LLMFullResponseEndFrame)
        assert asked_for(server) == ["One two.", "Three four.", "Five six."]
        assert len(call.audio) == WHOLE * (3 if "mid-stream" in fault else 2)
    (message,) = context.get_messages()
    assert isinstance(message, dict)
    assert str(message["content"]).startswith("One two.")
    assert str(message["content"]).endswith("Five six.")


@pytest.mark.parametrize(
    "fault", ["400", "403", "404", "500", "429", "reset before headers", "HTML"]
)
async def test_pipecat_is_not_muted_by_three_faults_in_a_row(fault: str) -> None:
    async with talking(FAULTS[fault], fault) as (engine, server):
        service = EngineTTSService(engine)
        async with Call(service, rate=RATE) as call:
            for n in (1, 2, 3):
                await call.send(*turn("One two."))
                await call.after(LLMFullResponseEndFrame, n)
            assert call.audio == b""
            asked = server.asked
            server.answer = speaks
            await call.send(*turn("Three four."))
            await call.after(LLMFullResponseEndFrame, 4)
            assert service.is_usable
        assert asked_for(server)[asked:] == ["Three four."]
        assert len(call.audio) == WHOLE


@pytest.mark.parametrize("fault", ["401", "a refusal cut short", "a refusal without an end"])
async def test_pipecat_gives_up_a_server_that_refuses_the_key_and_says_why(fault: str) -> None:
    async with talking(FAULTS[fault], fault) as (engine, server):
        service = EngineTTSService(engine)
        async with Call(service, rate=RATE) as call:
            await call.send(*turn("One two."))
            await call.after(LLMFullResponseEndFrame)
            assert call.errors[0].category is ErrorCategory.AUTHENTICATION
            assert "S: 401: " in call.errors[0].error
            assert not service.is_usable
            server.answer = speaks
            await call.send(*turn("Five six."))
            await call.after(LLMFullResponseEndFrame, 2)
            assert not service.is_usable
        assert asked_for(server) == ["One two."]
        assert call.audio == b""


async def test_pipecat_gives_up_an_unknown_voice_until_it_is_given_another() -> None:
    async with talking(FAULTS["an unknown voice"]) as (engine, server):
        service = EngineTTSService(engine)
        async with Call(service, rate=RATE) as call:
            await call.send(*turn("One two."))
            await call.after(LLMFullResponseEndFrame)
            assert call.errors[0].category is REFUSED
            assert "no voice 'bob'; available: alloy" in call.errors[0].error
            await call.send(*turn("Three four."))
            await call.after(LLMFullResponseEndFrame, 2)
            assert not service.is_usable
            server.answer = speaks
            await call.send(TTSUpdateSettingsFrame(delta=EngineTTSSettings(voice="nova")))
            await call.send(*turn("Five six."))
            await call.after(LLMFullResponseEndFrame, 3)
        assert asked_for(server) == ["One two.", "Five six."]
        assert len(call.audio) == WHOLE


async def test_pipecat_starts_without_its_server_and_speaks_when_it_is_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    engine = engine_at(f"http://127.0.0.1:{port}")
    async with Call(EngineTTSService(engine), rate=RATE) as call:
        assert call.errors[0].category is AWAY
        assert "S: Cannot connect to host 127.0.0.1" in call.errors[0].error
        await call.send(*turn("One two."))
        await call.after(LLMFullResponseEndFrame)
        assert call.errors[1].category is AWAY
        async with serving(speaks, port=port) as server:
            await call.send(*turn("Three four."))
            await call.after(LLMFullResponseEndFrame, 2)
            assert asked_for(server) == ["Three four."]
    assert len(call.audio) == WHOLE
    await engine.aclose()


@pytest.mark.parametrize("moment", ["silence before headers", "silence mid-stream"])
async def test_pipecat_interrupted_the_server_hears_of_it_and_the_next_turn_speaks(
    moment: str,
) -> None:
    async with talking(in_turn(FAULTS[moment], speaks)) as (engine, server):
        async with Call(EngineTTSService(engine), rate=RATE) as call:
            await call.send(*turn("One two."))
            await until(lambda: server.asked)
            if "mid-stream" in moment:
                await call.after(TTSAudioRawFrame)
            await call.send(InterruptionFrame())
            speech = next(c.connection for c in server.calls if c.method == "POST")
            async with asyncio.timeout(1.0):
                await server.connections[speech].lost.wait()
            before = len(call.audio)
            await call.send(*turn("Three four."))
            await until(lambda: len(call.audio) >= before + WHOLE)
        assert asked_for(server) == ["One two.", "Three four."]
        assert call.errors == []


# LiveKit

TRIES = 3


class Spy(EngineTTS):
    """Notes what LiveKit is told."""

    def __init__(self, engine: RemoteEngine) -> None:
        super().__init__(engine)
        self.errors: list[tts.TTSError] = []
        self.on("error", self.errors.append)


async def said(speaker: EngineTTS, text: str, pcm: bytearray | None = None) -> bytes:
    pcm = bytearray() if pcm is None else pcm
    options = APIConnectOptions(max_retry=TRIES - 1, retry_interval=0.001, timeout=5.0)
    async with asyncio.timeout(10), speaker.stream(conn_options=options) as stream:
        stream.push_text(text)
        stream.end_input()
        async for event in stream:
            pcm += event.frame.data.tobytes()
    return bytes(pcm)


LATER, NEVER = True, False


@pytest.mark.parametrize(
    ("fault", "kind", "code", "retryable", "attempts", "audio"),
    [
        ("400", APIStatusError, 400, NEVER, 1, 0),
        ("401", APIStatusError, 401, NEVER, 1, 0),
        ("402", APIStatusError, 402, NEVER, 1, 0),
        ("403", APIStatusError, 403, NEVER, 1, 0),
        ("404", APIStatusError, 404, NEVER, 1, 0),
        ("408", APIStatusError, 408, LATER, 3, 0),
        ("413", APIStatusError, 413, NEVER, 1, 0),
        ("422", APIStatusError, 422, NEVER, 1, 0),
        ("429", APIStatusError, 429, LATER, 3, 0),
        ("429, in a second", APIStatusError, 429, LATER, 3, 0),
        ("429, in a minute", APIStatusError, 429, LATER, 3, 0),
        ("500", APIStatusError, 500, LATER, 3, 0),
        ("501", APIStatusError, 501, LATER, 3, 0),
        ("503", APIStatusError, 503, LATER, 3, 0),
        ("503, in a second", APIStatusError, 503, LATER, 3, 0),
        ("503, in a minute", APIStatusError, 503, LATER, 3, 0),
        ("an unknown voice", APIStatusError, 404, NEVER, 1, 0),
        ("a refusal cut short", APIStatusError, 401, NEVER, 1, 0),
        ("a refusal without an end", APIStatusError, 401, NEVER, 1, 0),
        ("a refusal made to be hard to read", APIStatusError, 500, LATER, 3, 0),
        ("redirect", APIStatusError, 307, NEVER, 1, 0),
        ("an upgrade", APIStatusError, 101, NEVER, 1, 0),
        ("silence before headers", APITimeoutError, 0, LATER, 3, 0),
        ("silence after headers", APITimeoutError, 0, LATER, 3, 0),
        ("silence mid-stream", APITimeoutError, 0, NEVER, 1, WHOLE),
        ("comments only", APITimeoutError, 0, LATER, 3, 0),
        ("garbled chunks", APITimeoutError, 0, NEVER, 1, WHOLE),
        ("reset before headers", APIConnectionError, 0, LATER, 3, 0),
        ("left before headers", APIConnectionError, 0, LATER, 3, 0),
        ("left amid headers", APIConnectionError, 0, LATER, 3, 0),
        ("left after headers", APIConnectionError, 0, LATER, 3, 0),
        ("reset mid-stream", APIConnectionError, 0, NEVER, 1, WHOLE),
        ("chunks without an end", APIConnectionError, 0, NEVER, 1, WHOLE),
        ("shorter than it said", APIConnectionError, 0, NEVER, 1, WHOLE),
        ("a WAV cut short", APIStatusError, 502, NEVER, 1, 3800),
        ("an event that says so", APIStatusError, 502, NEVER, 1, WHOLE),
        ("empty", APIStatusError, 502, LATER, 3, 0),
        ("a WAV without samples", APIStatusError, 502, LATER, 3, 0),
        ("HTML", APIStatusError, 502, LATER, 3, 0),
        ("JSON", APIStatusError, 502, LATER, 3, 0),
        ("events that aren't JSON", APIStatusError, 502, LATER, 3, 0),
        ("events that aren't objects", APIStatusError, 502, LATER, 3, 0),
        ("events of no type", APIStatusError, 502, LATER, 3, 0),
        ("events not in base64", APIStatusError, 502, LATER, 3, 0),
        ("events made to be hard to read", APIStatusError, 502, LATER, 3, 0),
        ("not gzip", APIConnectionError, 0, LATER, 3, 0),
        ("not HTTP", APIStatusError, 502, LATER, 3, 0),
        ("a huge header", APIStatusError, 502, LATER, 3, 0),
    ],
)
async def test_livekit_is_told_what_it_may_try_again_and_the_next_turn_speaks(
    fault: str, kind: type[APIError], code: int, retryable: bool, attempts: int, audio: int
) -> None:
    pcm = bytearray()
    async with talking(FAULTS[fault], fault, retries=0) as (engine, server):
        speaker = Spy(engine)
        with pytest.raises(APIError) as caught:
            await said(speaker, "One two.", pcm)
        told = speaker.errors[0].error
        assert type(told) is kind
        assert (told.status_code if isinstance(told, APIStatusError) else 0) == code
        assert told.retryable is retryable
        assert caught.value.retryable is retryable
        assert "S: " in str(told) or "no voice 'bob'" in str(told)
        assert asked_for(server) == ["One two."] * attempts
        assert len(pcm) == audio
        server.answer = speaks
        assert len(await said(speaker, "Three four.")) == WHOLE
        assert asked_for(server)[attempts:] == ["Three four."]
        await speaker.aclose()


@pytest.mark.parametrize("fault", ["500", "reset before headers", "silence before headers", "HTML"])
async def test_livekit_speaks_when_the_second_attempt_succeeds(fault: str) -> None:
    async with talking(in_turn(FAULTS[fault], speaks), fault, retries=0) as (engine, server):
        speaker = Spy(engine)
        assert len(await said(speaker, "One two.")) == WHOLE
        assert asked_for(server) == ["One two.", "One two."]
        assert [error.recoverable for error in speaker.errors] == [True]
        await speaker.aclose()


async def test_livekit_keeps_what_was_heard_and_does_not_say_it_twice() -> None:
    answers = in_turn(speaks, FAULTS["reset mid-stream"], speaks)
    async with talking(answers) as (engine, server):
        speaker = Spy(engine)
        pcm = bytearray()
        with pytest.raises(APIConnectionError):
            await said(speaker, "One two. Three four. Five six.", pcm)
        assert asked_for(server) == ["One two.", "Three four."]
        assert bytes(pcm) == PCM * 2
        await speaker.aclose()


async def test_livekit_interrupted_the_server_hears_of_it_and_the_next_turn_speaks() -> None:
    for moment in ("silence before headers", "silence mid-stream"):
        async with talking(in_turn(FAULTS[moment], speaks)) as (engine, server):
            speaker = Spy(engine)
            speaking = asyncio.create_task(said(speaker, "One two."))
            await until(lambda: server.asked)
            speaking.cancel()
            await asyncio.wait([speaking])
            async with asyncio.timeout(1.0):
                await server.connections[0].lost.wait()
            assert len(await said(speaker, "Three four.")) == WHOLE
            assert asked_for(server) == ["One two.", "Three four."]
            await speaker.aclose()


# Without a connection, and with one that is next to none


class NoNames(AbstractResolver):
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        raise OSError(None, "Name or service not known")

    async def close(self) -> None:
        pass


@asynccontextmanager
async def out_of_reach(fault: str, directory: Path) -> AsyncGenerator[RemoteEngine, None]:
    """An engine whose server can't be connected to."""
    tls = certificate(directory)[0] if fault == "untrusted" else None
    connector = aiohttp.TCPConnector(resolver=NoNames())
    async with (
        serving(speaks, tls=tls) as server,
        aiohttp.ClientSession(connector=connector) as nameless,
    ):
        address = {
            "refused": "http://127.0.0.1:1",
            "no such name": "http://speech.invalid",
            "untrusted": server.url,
            "no TLS": server.url.replace("http:", "https:"),
        }[fault]
        engine = engine_at(address, session=nameless if fault == "no such name" else None)
        yield engine
        await engine.aclose()
        assert server.calls == []


UNREACHABLE = ["refused", "no such name", "untrusted", "no TLS"]


@pytest.mark.parametrize("fault", UNREACHABLE)
async def test_pipecat_hears_that_there_is_no_connection(fault: str, tmp_path: Path) -> None:
    async with out_of_reach(fault, tmp_path) as engine:
        service = EngineTTSService(engine)
        async with Call(service, rate=RATE) as call:
            await call.send(*turn("One two."))
            await call.after(LLMFullResponseEndFrame)
            assert service.is_usable
        assert {error.category for error in call.errors[:2]} == {AWAY}
        assert "S: Cannot connect to host" in call.errors[1].error


@pytest.mark.parametrize("fault", UNREACHABLE)
async def test_livekit_hears_that_there_is_no_connection(fault: str, tmp_path: Path) -> None:
    async with out_of_reach(fault, tmp_path) as engine:
        speaker = Spy(engine)
        with pytest.raises(APIConnectionError, match="S: Cannot connect to host") as caught:
            await said(speaker, "One two.")
        assert caught.value.retryable
        assert len(speaker.errors) == TRIES
        await speaker.aclose()


async def test_a_slow_drip_is_given_up_in_both_frameworks_and_not_asked_again() -> None:
    async with talking(FAULTS["slow drip"], "slow drip") as (engine, server):
        async with Call(EngineTTSService(engine), rate=RATE) as call:
            await call.send(*turn("One two."))
            await call.after(LLMFullResponseEndFrame)
        assert call.errors[0].category is AWAY
        assert asked_for(server) == ["One two."]
    async with talking(FAULTS["slow drip"], "slow drip") as (engine, server):
        speaker = Spy(engine)
        with pytest.raises(APITimeoutError) as caught:
            await said(speaker, "One two.")
        assert not caught.value.retryable
        assert asked_for(server) == ["One two."]
        await speaker.aclose()


def test_every_fault_is_in_both_tables() -> None:
    pipecat = test_pipecat_hears_what_kind_of_fault_it_was_and_the_next_turn_speaks
    livekit = test_livekit_is_told_what_it_may_try_again_and_the_next_turn_speaks
    here = [
        {row[0] for row in vars(table)["pytestmark"][0].args[1]} for table in (pipecat, livekit)
    ]
    elsewhere = {"401", "a refusal cut short", "a refusal without an end", "an unknown voice"}
    dripping = {"slow drip"}  # has its own test: how much of it is heard is a matter of chance
    assert here[0] | elsewhere | dripping == FAULTS.keys()
    assert here[1] | dripping == FAULTS.keys()
