"""ElevenLabs' WebSockets: what is promised message by message, and stock clients unchanged."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import websockets
from elevenlabs import ElevenLabs, VoiceSettings
from livekit.agents import APIConnectOptions, APIStatusError
from livekit.agents.types import TimedString
from livekit.plugins import elevenlabs as livekit_elevenlabs
from pipecat.frames.frames import (
    EndFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.services.elevenlabs.tts import ElevenLabsTTSService
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.adapters.pipecat_call import Call, logged, turn
from tests.fakes import PausingEngine
from tests.hearing import decoded, pitch
from tests.server.live import Live, best_of_three, live, within
from tests.servers import certificate
from tts_plugins.audio.g711 import from_alaw, from_ulaw
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.errors import EngineError
from tts_plugins.scheduler import Scheduler
from tts_plugins.server.house import Limits
from tts_plugins.types import AudioChunk, SynthesisRequest

LONG = "Sentences that go on and on until somebody stops them. " * 40
"""100 seconds: more than is computed before anybody listens."""

SECONDS = 0.06
"""Of a character that isn't a space."""


class Counted(ToneEngine):
    """The tone, and how many of its streams are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open = 0
        self.opened = 0
        self.texts: list[str] = []

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        self.open += 1
        self.opened += 1
        self.texts.append(request.text)
        try:
            yield from super().synthesize(request)
        finally:
            self.open -= 1


class Broken(ToneEngine):
    """Fails after some words."""

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        for number, chunk in enumerate(super().synthesize(request)):
            if number == 2:
                raise EngineError("out of breath")
            yield chunk


@dataclass
class Heard:
    """What came of one context."""

    audio: bytes = b""
    chars: str = ""
    starts: list[int] = field(default_factory=list)
    """Milliseconds from the beginning of the context, as ``normalizedAlignment`` has them."""
    errors: list[dict[str, Any]] = field(default_factory=list)
    final: dict[str, Any] | None = None
    messages: int = 0

    @property
    def seconds(self) -> float:
        """At 24 kHz."""
        return len(self.audio) / 48_000

    def words(self) -> list[tuple[str, int]]:
        found, begin = [], 0
        for i, char in enumerate(self.chars):
            if char == " ":
                found += [(self.chars[begin:i], self.starts[begin])] if i > begin else []
                begin = i + 1
        return found


class Client:
    """Somebody who sends messages as told, and keeps what comes by context."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.heard: dict[str | None, Heard] = {}
        self._reading = asyncio.create_task(self._read())

    def of(self, context: str | None = None) -> Heard:
        return self.heard.setdefault(context, Heard())

    async def say(self, context: str | None = None, **message: object) -> None:
        names = {} if context is None else {"context_id": context}
        await self.connection.send(json.dumps({**message, **names}))

    async def until(self, condition: Any, seconds: float = 5.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  what it asks has no event
                await asyncio.sleep(0.001)

    async def ends(self, context: str | None = None) -> Heard:
        await self.until(lambda: self.of(context).final is not None)
        return self.of(context)

    async def closes(self) -> int:
        """The code with which the server closes."""
        await asyncio.wait_for(self._reading, 5)
        assert self.connection.close_code is not None
        return self.connection.close_code

    async def _read(self) -> None:
        try:
            async for data in self.connection:
                message = json.loads(data)
                assert message.get("contextId") == message.get("context_id")
                heard = self.of(message.get("contextId"))
                assert heard.final is None, "something came after the end"
                if message.get("error"):
                    heard.errors.append(message)
                elif message.get("isFinal"):
                    assert "audio" not in message
                    heard.final = message
                else:
                    heard.messages += 1
                    heard.audio += base64.b64decode(message["audio"] or "")
                    if times := message["normalizedAlignment"]:
                        heard.chars += "".join(times["chars"])
                        heard.starts += times["charStartTimesMs"]
        except ConnectionClosed:
            pass


MULTI = "multi-stream-input"
SINGLE = "stream-input"


@asynccontextmanager
async def connected(
    server: Live, kind: str = MULTI, prefix: str = "", **query: str
) -> AsyncGenerator[Client, None]:
    asked = {"output_format": "pcm_24000", "sync_alignment": "true", **query}
    address = f"ws://127.0.0.1:{server.port}{prefix}/v1/text-to-speech/tone/{kind}?"
    address += "&".join(f"{name}={value}" for name, value in asked.items())
    async with websockets.connect(address, proxy=None) as connection:
        yield Client(connection)


def idle(server: Live) -> bool:
    return server.house.admission.active == 0


# Contexts


async def test_a_context_is_one_timeline_and_its_end_stands_alone() -> None:
    async with live() as server, connected(server, auto_mode="true") as client:
        await client.say("a", text=" ", voice_settings={"stability": 0.5, "speed": 1.0})
        await client.say("a", text="Hello there.")
        await client.say("a", text="How are you?")
        await client.say("a", flush=True)
        await client.say("a", close_context=True)
        heard = await client.ends("a")
        assert heard.final == {"isFinal": True, "contextId": "a", "context_id": "a"}
        assert heard.seconds == pytest.approx(21 * SECONDS)
        assert pitch(heard.audio, 24_000) == pytest.approx(440, abs=2)
        assert heard.chars == "Hello there. How are you? "
        assert heard.words() == [
            ("Hello", 0),
            ("there.", 300),
            ("How", 660),
            ("are", 840),
            ("you?", 1020),
        ]
        assert idle(server)


async def test_contexts_speak_at_the_same_time() -> None:
    async with live() as server, connected(server) as client:
        for name, text in (("a", "One."), ("b", "Two, three."), (None, "Four.")):
            await client.say(name, text=text, flush=True)
        for name in ("a", "b", None):
            await client.say(name, close_context=True)
        seconds = [(await client.ends(name)).seconds for name in ("a", "b", None)]
        assert seconds == pytest.approx([4 * SECONDS, 10 * SECONDS, 5 * SECONDS])


async def test_text_is_spoken_as_sentences_become_complete() -> None:
    engine = Counted()
    async with live(Scheduler(engine)) as server, connected(server) as client:
        await client.say("a", text=" ")
        for token in ("Hel", "lo", " there", ".", " How", " are", " you", " doing", " to"):
            await client.say("a", text=token)
        await client.until(lambda: client.of("a").seconds == pytest.approx(11 * SECONDS))
        await client.say("a", text="day?")
        await client.say("a", flush=True)
        await client.say("a", close_context=True)
        heard = await client.ends("a")
        assert heard.chars == "Hello there. How are you doing today? "
        assert engine.texts[0] == "Hello there."
        assert "".join(engine.texts).replace(" ", "") == "Hellothere.Howareyoudoingtoday?"


async def test_sentences_get_the_space_that_a_client_leaves_out() -> None:
    async with live() as server, connected(server) as client:
        await client.say("a", text="Hello there.")
        await client.say("a", text="How are you?", flush=True)
        await client.say("a", close_context=True)
        assert (await client.ends("a")).chars == "Hello there. How are you? "


async def test_a_pause_of_the_writer_stands_in_no_time() -> None:
    async with live() as server, connected(server, auto_mode="true") as client:
        await client.say("a", text="Hello there.")
        await client.until(lambda: client.of("a").seconds == pytest.approx(11 * SECONDS))
        await server.until(lambda: idle(server))  # a context that says nothing holds no place
        await client.say("a", text="How are you?", flush=True)
        await client.say("a", close_context=True)
        heard = await client.ends("a")
        assert heard.words()[2] == ("How", 660)
        assert heard.seconds == pytest.approx(21 * SECONDS)


async def test_what_cant_be_spoken_is_a_breath_of_silence() -> None:
    async with live() as server, connected(server, auto_mode="true") as client:
        await client.say("a", text="... ", flush=True)
        await client.say("a", close_context=True)
        heard = await client.ends("a")
        assert heard.seconds == pytest.approx(0.02)
        assert heard.errors == []


async def test_spaces_and_keep_alives_say_nothing() -> None:
    async with live() as server, connected(server, auto_mode="true") as client:
        for _ in range(3):
            await client.say(text="")
            await client.say("nobody", text="")
            await client.say("nobody", flush=True)
            await client.say("nobody", close_context=True)
        await client.say("a", text=" ")
        await client.say("a", text="")
        await client.say("a", text=" ", flush=True)
        await client.say("a", close_context=True)
        heard = await client.ends("a")
        assert (heard.messages, heard.errors) == (0, [])
        assert list(client.heard) == ["a"]
        await client.say("b", text="Hello.", flush=True)
        await client.say("b", close_context=True)
        assert (await client.ends("b")).seconds == pytest.approx(6 * SECONDS)


async def test_a_context_hears_of_the_settings_that_it_opened_with() -> None:
    async with live() as server, connected(server, auto_mode="true") as client:
        await client.say("a", text=" ", voice_settings={"speed": 1.2}, generation_config={})
        await client.say("a", text="Hello.", flush=True)
        await client.say("a", close_context=True)
        assert (await client.ends("a")).seconds == pytest.approx(6 * SECONDS / 1.2, abs=0.001)


# Ends and interruptions


async def test_what_was_flushed_is_said_to_its_end() -> None:
    hurry = Scheduler(ToneEngine(), max_ahead=math.inf)
    async with live(hurry) as server, connected(server) as client:
        text = LONG[:550]
        await client.say("a", text=text, flush=True)
        await client.say("a", close_context=True)
        heard = await client.ends("a")
        assert heard.seconds == pytest.approx(SECONDS * len(text.replace(" ", "")))


@pytest.mark.parametrize("auto_mode", ["true", "false"])
@best_of_three
async def test_closed_without_a_flush_it_is_silent_at_once(auto_mode: str) -> None:
    engine = Counted()
    async with (
        live(Scheduler(engine)) as server,
        connected(server, auto_mode=auto_mode) as client,
    ):
        await client.say("a", text=" ")
        await client.say("a", text=LONG)
        await client.until(lambda: client.of("a").audio)
        assert server.house.admission.active == 1
        with within(0.1):
            await client.say("a", close_context=True)
            await client.until(lambda: idle(server) and not engine.open)
            heard = await client.ends("a")
        assert heard.seconds < 10


@best_of_three
async def test_a_second_close_interrupts() -> None:
    engine = Counted()
    async with live(Scheduler(engine)) as server, connected(server) as client:
        await client.say("a", text=LONG, flush=True)
        await client.say("a", close_context=True)
        await client.until(lambda: client.of("a").audio)
        with within(0.1):
            await client.say("a", close_context=True)
            await client.until(lambda: idle(server) and not engine.open)
            await client.ends("a")
        await client.say("a", close_context=True)  # of what is over: no matter
        await client.say("b", text="Hello.", flush=True)
        await client.say("b", close_context=True)
        await client.ends("b")
        assert client.of("a").errors == []


async def test_a_name_may_be_used_again() -> None:
    async with live() as server, connected(server) as client:
        for _ in range(3):
            await client.say("a", text="Hello.", flush=True)
            await client.say("a", close_context=True)
            assert (await client.ends("a")).starts[0] == 0
            del client.heard["a"]


@best_of_three
async def test_a_client_that_is_gone_is_noticed_while_nothing_is_sent() -> None:
    engine = Counted()
    async with live(Scheduler(engine)) as server, connected(server) as client:
        await client.say("a", text=LONG, flush=True)
        await client.until(lambda: client.of("a").audio)
        assert server.house.admission.active == 1
        client.connection.transport.abort()
        with within(0.1):
            await client.until(lambda: idle(server) and not engine.open)


async def test_a_storm_of_interruptions_leaves_nothing_behind() -> None:
    engine = Counted()
    async with live(Scheduler(engine)) as server, connected(server, auto_mode="true") as client:
        for number in range(20):
            await client.say(str(number), text=" ")
            await client.say(str(number), text=LONG)
            await client.say(str(number), close_context=True)
        for number in range(20):
            assert (await client.ends(str(number))).errors == []
        await client.until(lambda: idle(server) and not engine.open)
        await client.say("a", text="Hello.", flush=True)
        await client.say("a", close_context=True)
        assert (await client.ends("a")).seconds == pytest.approx(6 * SECONDS)


@best_of_three
async def test_closing_the_socket_says_what_is_left_and_closes_promptly() -> None:
    async with live() as server, connected(server) as client:
        await client.say("a", text="Hello there")
        with within(0.2):
            await client.say(close_socket=True)
            assert await client.closes() == 1000
        assert client.of("a").seconds == pytest.approx(10 * SECONDS)
        assert client.of("a").final


async def test_closing_the_socket_doesnt_wait_for_a_long_speech() -> None:
    async with live() as server, connected(server) as client:
        await client.say("a", text=LONG, flush=True)
        began = time.monotonic()
        await client.say(close_socket=True)
        assert await client.closes() == 1000
        assert time.monotonic() - began < 1.5
        assert client.of("a").final is None  # so that it isn't taken for all
        await client.until(lambda: idle(server))


async def test_a_context_that_nobody_writes_to_ends() -> None:
    async with live() as server, connected(server, inactivity_timeout="0.2") as client:
        began = time.monotonic()
        await client.say("a", text="Hello.", flush=True)
        heard = await client.ends("a")
        assert heard.seconds == pytest.approx(6 * SECONDS)
        assert 0.2 < time.monotonic() - began < 1


async def test_contexts_have_a_limit_that_is_told_in_band() -> None:
    async with (
        live(limits=Limits(contexts=2)) as server,
        connected(server) as client,
    ):
        for name in "abc":
            await client.say(name, text="Hello.", flush=True)
        heard = await client.ends("c")
        assert heard.errors[0]["code"] == 1013
        assert "2 contexts are open" in heard.errors[0]["message"]
        await client.say("a", close_context=True)
        await client.ends("a")
        await client.say("d", text="Hello.", flush=True)
        await client.say("d", close_context=True)
        assert (await client.ends("d")).errors == []


# Without contexts


async def test_an_empty_text_ends_it_and_the_socket_is_closed() -> None:
    async with live() as server, connected(server, SINGLE) as client:
        await client.say(text=" ", generation_config={"chunk_length_schedule": [50]})
        await client.say(text="Hello ", try_trigger_generation=True)
        await client.say(text="there. ", try_trigger_generation=True)
        await client.say(text="")
        assert await client.closes() == 1000
        heard = client.of()
        assert heard.final == {"isFinal": True}
        assert heard.words() == [("Hello", 0), ("there.", 300)]
        assert heard.seconds == pytest.approx(11 * SECONDS)


@pytest.mark.parametrize("kind", [MULTI, SINGLE])
async def test_they_are_there_twice(kind: str) -> None:
    async with live() as server, connected(server, kind, "/elevenlabs") as client:
        await client.say(text="Hello.", flush=True)
        await client.say(close_socket=True)
        assert await client.closes() == 1000
        assert client.of().seconds == pytest.approx(6 * SECONDS)


async def test_an_end_without_a_beginning() -> None:
    async with live() as server, connected(server, SINGLE) as client:
        await client.say(text="")
        assert await client.closes() == 1000
        assert client.of().final == {"isFinal": True}


async def test_a_failure_closes_the_socket_and_says_why() -> None:
    async with live(Scheduler(Broken())) as server, connected(server, SINGLE) as client:
        await client.say(text="One two three four.", flush=True)
        assert await client.closes() == 1011
        assert client.connection.close_reason == "out of breath"
        assert client.of().errors[0]["message"] == "out of breath"
        assert client.of().final is None


# Refusals and nonsense


@pytest.mark.parametrize(
    ("path", "options", "status", "code"),
    [
        (f"tone/{MULTI}", {"keys": ["secret-key"]}, 401, "invalid_api_key"),
        (f"tone/{MULTI}?xi-api-key=wrong-key", {"keys": ["secret-key"]}, 401, "invalid_api_key"),
        (f"bob/{MULTI}", {}, 404, "voice_not_found"),
        (f"bob/{SINGLE}", {}, 404, "voice_not_found"),
        (f"tone/{MULTI}?output_format=wav", {}, 400, "invalid_parameters"),
    ],
)
async def test_a_handshake_that_is_refused_says_why(
    path: str,
    options: dict[str, Any],
    status: int,
    code: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with live(**options) as server:
        address = f"ws://127.0.0.1:{server.port}/v1/text-to-speech/{path}"
        with pytest.raises(InvalidStatus) as refused:
            await websockets.connect(address, proxy=None)
    response = refused.value.response
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req-")
    detail = json.loads(response.body)["detail"]
    assert detail["code"] == code
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


async def test_a_full_server_refuses() -> None:
    async with live(max_streams=1) as server:
        with server.house.admission.place("-"), pytest.raises(InvalidStatus) as refused:
            async with connected(server):
                pass
        assert refused.value.response.status_code == 429
        assert refused.value.response.headers["retry-after"] == "3"


async def test_a_server_that_shuts_down_refuses() -> None:
    async with live() as server, connected(server) as client:
        server.house.draining = True
        with pytest.raises(InvalidStatus) as refused:
            async with connected(server):
                pass
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["retry-after"] == "2"
        await client.say("a", text="Hello.", flush=True)
        assert (await client.ends("a")).errors[0]["code"] == 1013


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"xi-api-key": "secret-key"}, ""),
        ({"authorization": "Bearer secret-key"}, ""),
        ({}, "?xi-api-key=secret-key"),
        ({}, "?authorization=Bearer%20secret-key"),
    ],
)
async def test_a_key_is_a_header_or_stands_in_the_address(
    headers: dict[str, str], query: str
) -> None:
    async with live(keys=["secret-key"]) as server:
        address = f"ws://127.0.0.1:{server.port}/v1/text-to-speech/tone/{SINGLE}{query}"
        async with websockets.connect(
            address, proxy=None, additional_headers=headers
        ) as connection:
            await connection.send('{"text": ""}')
            assert json.loads(await connection.recv()) == {"isFinal": True}


@pytest.mark.parametrize("nonsense", ["", "{", "[1]", '{"text": 5}', '{"flush": []}', b"\x00\x01"])
@pytest.mark.parametrize("kind", [MULTI, SINGLE])
async def test_nonsense_is_answered_and_ends_it(nonsense: str | bytes, kind: str) -> None:
    engine = Counted()
    async with live(Scheduler(engine)) as server, connected(server, kind) as client:
        await client.say(text=LONG, flush=True)
        await client.until(lambda: client.of().audio)
        await client.connection.send(nonsense)
        assert await client.closes() == 1008
        assert client.of().errors
        assert client.connection.close_reason == client.of().errors[0]["message"]
        await client.until(lambda: idle(server) and not engine.open)


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ({"text": "a", "voice_settings": {"speed": 9}}, "speed has to be"),
        ({"text": "a" * 10_000}, "fewer than 10000 are taken at a time"),
    ],
)
async def test_what_a_context_cant_be_it_is_told_and_others_go_on(
    message: dict[str, Any], remedy: str
) -> None:
    async with live() as server, connected(server) as client:
        await client.say("b", text="Hello there.", flush=True)
        await client.say("a", **message)
        heard = await client.ends("a")
        assert heard.errors[0]["code"] == 1008
        assert remedy in heard.errors[0]["message"]
        await client.say("b", close_context=True)
        assert (await client.ends("b")).seconds == pytest.approx(11 * SECONDS)


async def test_a_text_may_be_as_long_as_that() -> None:
    async with live() as server, connected(server, auto_mode="true") as client:
        await client.say("a", text="a" * 9_999)
        await client.until(lambda: client.of("a").audio)
        await client.say("a", close_context=True)
        assert (await client.ends("a")).errors == []


async def test_more_text_than_can_be_spoken_isnt_kept() -> None:
    async with live(limits=Limits(body=20_000)) as server, connected(server) as client:
        for number in range(6):
            await client.say("a", text="word " * 1_000, flush=True)
            # By when this is over, that has been taken.
            await client.say(str(number), text=" ")
            await client.say(str(number), close_context=True)
            await client.ends(str(number))
        assert "at most 20000 in all" in (await client.ends("a")).errors[0]["message"]
        await client.until(lambda: idle(server))


async def test_a_lot_of_text_at_once_keeps_nobody_waiting() -> None:
    async with live() as server, connected(server) as client:
        for _ in range(90):
            await client.say("a", text="word " * 1_999, flush=True)
        await client.say("b", close_context=True, text=" ")
        # Of this thread's own time: what other processes take meanwhile is not the server's.
        longest, before = 0.0, time.thread_time()
        while not client.of("b").final:
            await asyncio.sleep(0)
            longest, before = max(longest, time.thread_time() - before), time.thread_time()
        assert longest < 0.1


async def test_an_engine_that_fails_is_an_error_and_an_end() -> None:
    async with live(Scheduler(Broken())) as server, connected(server) as client:
        await client.say("a", text="One two three four.", flush=True)
        heard = await client.ends("a")
        assert heard.seconds == pytest.approx(6 * SECONDS)
        assert heard.errors[0]["message"] == "out of breath"
        assert heard.errors[0]["code"] == 1011
        await client.say("b", text="One two.", flush=True)
        await client.say("b", close_context=True)
        assert (await client.ends("b")).errors == []


async def test_a_full_server_is_told_in_band() -> None:
    async with live(max_streams=1) as server, connected(server) as client:
        await client.say("a", text=LONG, flush=True)
        await client.until(lambda: client.of("a").audio)
        await client.say("b", text="Hello.", flush=True)
        assert (await client.ends("b")).errors[0]["code"] == 1013


async def test_a_client_that_takes_nothing_is_left() -> None:
    engine = Counted()
    async with (
        live(Scheduler(engine, max_ahead=math.inf), limits=Limits(send_seconds=0.2)) as server,
    ):
        address = f"ws://127.0.0.1:{server.port}/v1/text-to-speech/tone/{MULTI}"
        async with websockets.connect(
            f"{address}?output_format=pcm_48000", proxy=None, max_queue=1, compression=None
        ) as connection:
            for name in range(8):
                await connection.send(
                    json.dumps({"text": LONG, "flush": True, "context_id": str(name)})
                )
            await server.until(lambda: not idle(server))
            await server.until(lambda: idle(server) and not engine.open, 10)
            connection.transport.abort()


@pytest.mark.parametrize("law", ["ulaw", "alaw"])
async def test_telephones_hear_the_same(law: str) -> None:
    async with (
        live() as server,
        connected(server, output_format=f"{law}_8000") as client,
    ):
        await client.say("a", text="Hello there.", flush=True)
        await client.say("a", close_context=True)
        heard = (await client.ends("a")).audio
    read = {"ulaw": from_ulaw, "alaw": from_alaw}[law]
    samples = read(heard)
    assert len(samples) == round(11 * SECONDS * 8_000)
    assert noise(samples) > 35


@pytest.mark.parametrize("kind", [MULTI, SINGLE])
@pytest.mark.parametrize("text", ["Hello there.", "Hello there. How are you? I am well."])
async def test_mp3_is_as_long_as_over_http(kind: str, text: str) -> None:
    query = {"output_format": "mp3_44100_128"}
    async with live() as server, connected(server, kind, **query) as client:
        path = "/v1/text-to-speech/tone?output_format=mp3_44100_128"
        _, _, body = await server.ask(path, {"text": text})
        await client.say("a" if kind == MULTI else None, text=text, flush=True)
        await client.say(close_socket=True)
        await client.closes()
    (heard,) = (each for each in client.heard.values() if each.audio)
    samples, rate = decoded(heard.audio)
    assert rate == 44_100
    assert len(samples) == len(decoded(body)[0])
    assert pitch(samples, rate) == pytest.approx(440, abs=1)


def noise(samples: np.ndarray[Any, Any]) -> float:
    """How far below the tone everything else is, in decibels."""
    inside = samples[400:-400].astype(np.float64)
    t = np.arange(len(inside)) / 8_000
    waves = np.stack([np.sin(2 * np.pi * 440 * t), np.cos(2 * np.pi * 440 * t)], axis=1)
    tone = waves @ np.linalg.lstsq(waves, inside, rcond=None)[0]
    return float(10 * np.log10((tone**2).sum() / ((inside - tone) ** 2).sum()))


async def test_what_is_said_is_in_the_ledger() -> None:
    async with live() as server, connected(server, auto_mode="true") as client:
        await client.say("a", text=" ")
        await client.say("a", text="Hello there.", flush=True)
        await client.say("a", close_context=True)
        await client.ends("a")
        await client.say("b", text=LONG)
        await client.until(lambda: client.of("b").audio)
        await client.say("b", close_context=True)
        await client.ends("b")
        await client.until(lambda: idle(server))
        page = server.house.page()[1].decode()
    name = 'tts_requests_total{dialect="elevenlabs",engine="tone",outcome="%s"} 1.0'
    assert name % "finished" in page
    assert name % "cancelled" in page


# Pipecat


@pytest.fixture(autouse=True)
def log() -> Iterator[list[str]]:
    """What Pipecat logs. Nothing of it is printed."""
    with logged() as messages:
        yield messages


def pipecat(server: Live, **options: Any) -> ElevenLabsTTSService:
    return ElevenLabsTTSService(
        api_key="xk",
        url=f"ws://127.0.0.1:{server.port}",
        settings=ElevenLabsTTSService.Settings(voice="tone"),
        **options,
    )


def word_times(call: Call) -> list[tuple[str, float]]:
    frames = call.all(TTSTextFrame)
    began = frames[0].pts or 0
    return [(frame.text, round(((frame.pts or 0) - began) / 1e9, 3)) for frame in frames]


THREE = "Hello there, my dear friend. How are you doing today? I am well."


PAUSES = pytest.mark.parametrize(("engine", "pause"), [(ToneEngine(), 0.0), (PausingEngine(), 0.1)])


def expected(text: str, pause: float) -> list[tuple[str, float]]:
    now, times = 0.0, []
    for word in text.split():
        times.append((word, round(now, 3)))
        now += SECONDS * len(word) + (pause if word[-1] in ".?" else 0.0)
    return times


@PAUSES
@best_of_three
async def test_pipecat_hears_all_and_when_each_word_is_said(
    engine: ToneEngine, pause: float
) -> None:
    length = SECONDS * len(THREE.replace(" ", "")) + 3 * pause
    async with live(Scheduler(engine)) as server, Call(pipecat(server), rate=24_000) as call:
        await call.send(*turn(*(THREE[i : i + 5] for i in range(0, len(THREE), 5))))
        await call.until(lambda: len(call.audio) == round(length * 24_000) * 2)
        with within(0.5):
            await call.after(TTSStoppedFrame)
        await call.after(LLMFullResponseEndFrame)
        assert call.errors == []
        assert pitch(call.audio, 24_000) == pytest.approx(440, abs=1)
        assert word_times(call) == expected(THREE, pause)


async def test_pipecat_says_something_by_itself_and_goes_without_delay(log: list[str]) -> None:
    async with live() as server:
        async with Call(pipecat(server), rate=24_000) as call:
            await call.send(TTSSpeakFrame("Hello there."))
            await call.after(TTSStoppedFrame)
            began = time.monotonic()
            await call.send(EndFrame())
            await asyncio.wait_for(call._running, 10)
            assert time.monotonic() - began < 1
        assert len(call.audio) == 2 * round(11 * SECONDS * 24_000)
        assert call.errors == []
    assert [line for line in log if "quick failure" in line or "1008" in line] == []


@pytest.mark.parametrize("complete", [False, True])
@best_of_three
async def test_pipecat_interrupts_and_the_place_is_free(complete: bool) -> None:
    engine = Counted()
    async with live(Scheduler(engine)) as server, Call(pipecat(server), rate=24_000) as call:
        await call.send(LLMFullResponseStartFrame(), LLMTextFrame(LONG))
        if complete:
            await call.send(LLMFullResponseEndFrame())
        await call.after(TTSAudioRawFrame)
        assert server.house.admission.active == 1
        with within(0.1):
            await call.send(InterruptionFrame())
            await server.until(lambda: idle(server) and not engine.open)
        before = len(call.audio)
        await call.send(*turn("New turn."))
        await call.until(lambda: len(call.audio) >= before + 2 * round(8 * SECONDS * 24_000))
        assert call.errors == []


async def test_pipecat_interrupts_twenty_times() -> None:
    engine = Counted()
    async with live(Scheduler(engine)) as server, Call(pipecat(server), rate=24_000) as call:
        for number in range(1, 21):
            before = engine.opened
            await call.send(LLMFullResponseStartFrame(), LLMTextFrame(LONG))
            await server.until(lambda n=before: engine.opened > n)
            await call.send(InterruptionFrame())
            await call.after(InterruptionFrame, number)
            await server.until(lambda: idle(server) and not engine.open)
        before = len(call.audio)
        await call.send(*turn("New turn."))
        await call.until(lambda: len(call.audio) >= before + 2 * round(8 * SECONDS * 24_000))
        assert call.errors == []


# LiveKit

CALM = APIConnectOptions(max_retry=0, timeout=5)


def livekit(server: Live, **options: Any) -> livekit_elevenlabs.TTS:
    return livekit_elevenlabs.TTS(
        api_key="xk", base_url=f"{server.url}/v1", http_session=server.client, **options
    )


@PAUSES
@pytest.mark.parametrize(
    ("options", "rate", "early"), [({}, 22_050, 0.06), ({"encoding": "pcm_24000"}, 24_000, 0.0)]
)
async def test_livekit_hears_all_and_when_each_word_is_said(
    options: dict[str, Any], rate: int, early: float, engine: ToneEngine, pause: float
) -> None:
    async with live(Scheduler(engine)) as server:
        speaker = livekit(server, **options)
        pcm, words = b"", list[TimedString]()
        async with speaker.stream(conn_options=CALM) as stream:
            for i in range(0, len(THREE), 5):
                stream.push_text(THREE[i : i + 5])
            stream.end_input()
            async for event in stream:
                assert event.frame.sample_rate == rate
                pcm += event.frame.data.tobytes()
                words += event.frame.userdata.get("lk.timed_transcripts", [])
        await speaker.aclose()
    length = SECONDS * len(THREE.replace(" ", "")) + 3 * pause
    assert len(pcm) / 2 / rate == pytest.approx(length, abs=0.12 if early else 0.001)
    assert pitch(pcm, rate) == pytest.approx(440, abs=1)
    times = [(word.strip(), round(float(word.start_time), 3)) for word in words]  # type: ignore[arg-type]
    assert times == expected(THREE, pause)


@pytest.mark.parametrize("options", [{}, {"encoding": "pcm_24000"}])
async def test_livekit_says_a_text_that_is_there(options: dict[str, Any]) -> None:
    async with live() as server:
        speaker = livekit(server, **options)
        async with speaker.synthesize("Hello there.", conn_options=CALM) as stream:
            frame = await stream.collect()
        await speaker.aclose()
    assert frame.duration == pytest.approx(11 * SECONDS, abs=0.12)
    assert pitch(frame.data.tobytes(), frame.sample_rate) == pytest.approx(440, abs=1)


@best_of_three
async def test_livekit_interrupts_and_the_socket_goes_on() -> None:
    engine = Counted()
    async with live(Scheduler(engine)) as server:
        speaker = livekit(server, encoding="pcm_24000")
        stream = speaker.stream(conn_options=CALM)
        stream.push_text(f"{LONG} And a")
        await anext(stream)
        with within(0.1):
            await stream.aclose()
            await server.until(lambda: idle(server) and not engine.open)
        async with speaker.stream(conn_options=CALM) as another:
            another.push_text("Hello there.")
            another.end_input()
            seconds = sum([event.frame.duration async for event in another])
        assert seconds == pytest.approx(11 * SECONDS, abs=0.001)
        await speaker.aclose()
        await server.until(lambda: idle(server))


@best_of_three
async def test_livekit_drops_a_text_that_is_there_and_the_place_is_free() -> None:
    engine = Counted()
    async with live(Scheduler(engine, max_ahead=0.5)) as server:
        speaker = livekit(server, encoding="pcm_24000")
        stream = speaker.synthesize(LONG, conn_options=CALM)
        await anext(stream)
        assert (server.house.admission.active, engine.open) == (1, 1)
        with within(0.1):
            await stream.aclose()
            await server.until(lambda: idle(server) and not engine.open)
        await speaker.aclose()


async def test_livekit_is_told_what_a_refusal_means() -> None:
    async with live(keys=["secret-key"]) as server:
        speaker = livekit(server)
        async with speaker.stream(conn_options=CALM) as stream:
            stream.push_text("Hello there.")
            stream.end_input()
            with pytest.raises(APIStatusError) as caught:
                await anext(stream)
        await speaker.aclose()
    assert (caught.value.status_code, caught.value.retryable) == (401, False)


# ElevenLabs' own


@pytest.mark.filterwarnings("ignore:ConnectionClosed.code:DeprecationWarning")  # the SDK's own
async def test_the_sdk_speaks_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, signed = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(signed))
    async with live(tls=tls) as server:

        def speak() -> bytes:
            client = ElevenLabs(api_key="xk", base_url=server.url)
            words = iter(["Hello ", "there, ", "how ", "are ", "you?"])
            return b"".join(
                client.text_to_speech.convert_realtime(
                    "tone",
                    text=words,
                    model_id="eleven_flash_v2_5",
                    output_format="pcm_24000",
                    voice_settings=VoiceSettings(stability=0.5, speed=1.0),
                )
            )

        heard = await asyncio.to_thread(speak)
    assert len(heard) == 2 * round(21 * SECONDS * 24_000)
    assert pitch(heard, 24_000) == pytest.approx(440, abs=1)
