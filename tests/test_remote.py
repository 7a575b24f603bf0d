"""A server as an engine: its connections, its key, its voices, and what an interruption leaves."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import os
import random
import ssl
import subprocess
import sys
import time
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes import ScriptedEngine, tone
from tests.faults import FAULTS, PCM, hangs, ok, sends, speaks, status, whole
from tests.servers import Answer, Call, Line, Server, by_path, certificate, in_turn, serving
from tts_plugins import connections, remote
from tts_plugins.audio.pcm import to_s16
from tts_plugins.dialects.base import Clip, Dialect, HttpCall, HttpReply, ReplyReader
from tts_plugins.dialects.openai import OpenAIDialect
from tts_plugins.engine import Engine, VoiceCloner, warm_up
from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    RemoteError,
    RemoteTimeoutError,
    TTSError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.fallback import FallbackEngine
from tts_plugins.remote import RemoteEngine
from tts_plugins.testing import check_engine
from tts_plugins.types import SynthesisRequest

HELLO = SynthesisRequest("Hello there.")
SPEECH = "/v1/audio/speech"
LATE = 5.0
"""Seconds after which something that should happen at once doesn't happen any more."""


def engine_at(url: str, **options: Any) -> RemoteEngine:
    return RemoteEngine(OpenAIDialect(consent="cons_1"), url, **{"name": "S"} | options)


@asynccontextmanager
async def talking(
    answer: Answer, **options: Any
) -> AsyncGenerator[tuple[RemoteEngine, Server], None]:
    async with serving(answer) as server:
        engine = engine_at(server.url, **options)
        yield engine, server
        await engine.aclose()


async def heard(engine: RemoteEngine, request: SynthesisRequest = HELLO) -> bytes:
    pcm = bytearray()
    async with asyncio.timeout(LATE), aclosing(engine.stream(request)) as stream:
        async for chunk in stream:
            pcm += to_s16(chunk.samples)
    return bytes(pcm)


async def heard_of(engine: Engine) -> bytes:
    """The same, however long it takes."""
    async with aclosing(engine.stream(HELLO)) as stream:
        return b"".join([to_s16(chunk.samples) async for chunk in stream])


async def soon(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LATE):
        while not condition():  # noqa: ASYNC110  there is no event for what others do
            await asyncio.sleep(0.0005)


async def lists(line: Line, call: Call) -> None:
    line.json(200, {"voices": ["ann", "bob"]})


# Connections


async def test_a_request_takes_the_connection_of_the_one_before() -> None:
    async with talking(speaks) as (engine, server):
        assert [await heard(engine) for _ in range(3)] == [PCM] * 3
        assert [call.connection for call in server.calls] == [0, 0, 0]
        assert server.open == 1


async def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    both = asyncio.Barrier(2)

    async def together(line: Line, call: Call) -> None:
        await both.wait()
        await speaks(line, call)

    async with talking(together) as (engine, server):
        assert await asyncio.gather(*[heard(engine) for _ in range(2)]) == [PCM, PCM]
        assert sorted(call.connection for call in server.calls) == [0, 1]


async def test_the_first_request_finds_the_connection_that_was_warmed_up() -> None:
    async with talking(by_path({SPEECH: speaks})) as (engine, server):
        await warm_up(engine)  # answered by 404, which is answer enough
        assert [(call.method, call.path) for call in server.calls] == [("GET", "/v1/models")]
        assert await heard(engine) == PCM
        assert [call.connection for call in server.calls] == [0, 0]


async def test_a_refusal_leaves_its_connection_to_the_next_request() -> None:
    async with talking(in_turn(status(400), speaks)) as (engine, server):
        with pytest.raises(RemoteError):
            await heard(engine)
        assert await heard(engine) == PCM
        assert [call.connection for call in server.calls] == [0, 0]


async def test_closing_closes_the_connections() -> None:
    async with talking(speaks) as (engine, server):
        await heard(engine)
        await engine.aclose()
        await soon(lambda: server.open == 0)
        with pytest.raises(EngineError, match=r"^S: the engine was closed; open it again$"):
            await heard(engine)
        await engine.aclose()  # once more does no harm


async def test_a_session_that_was_given_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(speaks) as server, aiohttp.ClientSession() as session:
        engine = engine_at(server.url, session=session)
        await heard(engine)
        await engine.aclose()
        assert not session.closed
        async with session.get(server.url):
            assert server.calls[-1].connection == 0
        other = engine_at(server.url, session=session)
        await session.close()
        monkeypatch.setattr(remote, "_LONGEST_PAUSE", 100.0)
        monkeypatch.setattr(remote, "_PAUSE", 60.0)  # which nobody waits for
        with pytest.raises(EngineError, match="the engine was closed"):
            await heard(other)


async def test_a_session_that_raises_by_itself_does_not_take_the_servers_words() -> None:
    async with (
        serving(status(400)) as server,
        aiohttp.ClientSession(raise_for_status=True) as session,
    ):
        with pytest.raises(RemoteError, match=r"^S: 400: as you asked for$"):
            await heard(engine_at(server.url, session=session))


@pytest.mark.parametrize("moment", ["before headers", "mid-stream", "between chunks"])
async def test_closing_ends_the_streams_that_run(moment: str) -> None:
    answer = hangs if moment == "before headers" else FAULTS["silence mid-stream"]
    async with talking(answer) as (engine, server):
        stream = engine.stream(HELLO)
        if moment != "before headers":
            await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        if moment != "between chunks":
            await soon(lambda: server.asked)
            await asyncio.sleep(0)
        began = time.monotonic()
        await engine.aclose()
        with pytest.raises(EngineError):
            await waiting
        assert time.monotonic() - began < 1.0
        await soon(lambda: server.open == 0)
        assert server.asked == 1
        await stream.aclose()


async def test_a_request_that_waits_to_ask_again_ends_when_the_engine_is_closed() -> None:
    async with talking(status(500)) as (engine, server):
        speaking = asyncio.create_task(heard(engine))
        await soon(lambda: server.calls)
        await engine.aclose()
        with pytest.raises(EngineError):
            await speaking
        assert server.asked <= 2


class Stubborn(OpenAIDialect):
    """Of a server that doesn't stop when its client leaves."""

    hear_out = True


@pytest.mark.parametrize("dialect", [OpenAIDialect, Stubborn])
@pytest.mark.parametrize("given", [False, True])
async def test_closed_while_it_waits_for_an_answer_a_stream_ends_at_once_and_says_so(
    dialect: type[OpenAIDialect], given: bool
) -> None:
    tasks = asyncio.all_tasks()
    async with serving(hangs) as server, aiohttp.ClientSession() as session:
        engine = RemoteEngine(dialect(), server.url, session=session if given else None, name="S")
        speaking = asyncio.create_task(heard(engine))
        await soon(lambda: server.asked)
        async with asyncio.timeout(1.0):
            await engine.aclose()
            with pytest.raises(EngineError) as caught:
                await speaking
        assert type(caught.value) is EngineError
        assert str(caught.value) == "S: the engine was closed"
        await soon(lambda: server.open == 0)
        await soon(lambda: asyncio.all_tasks() == tasks)


@pytest.mark.parametrize("given", [False, True])
async def test_closed_right_behind_an_interruption_nothing_is_left(
    given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_MOMENT", 60.0)  # which nobody waits for
    tasks = asyncio.all_tasks()
    async with serving(FAULTS["silence mid-stream"]) as server, aiohttp.ClientSession() as session:
        engine = RemoteEngine(Stubborn(), server.url, session=session if given else None)
        async with aclosing(engine.stream(HELLO)) as stream:
            await anext(stream)
        await engine.aclose()
        await soon(lambda: server.open == 0)
    await soon(lambda: asyncio.all_tasks() == tasks)
    gc.collect()  # which would complain


async def test_closed_in_its_pause_a_stream_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pausing = asyncio.Event()

    def long(error: TTSError, attempt: int) -> float:
        pausing.set()
        return 60.0

    monkeypatch.setattr(remote, "_LONGEST_PAUSE", 100.0)
    monkeypatch.setattr(remote, "_pause", long)
    async with talking(status(500)) as (engine, server):
        speaking = asyncio.create_task(heard(engine))
        async with asyncio.timeout(1.0):
            await pausing.wait()
            await engine.aclose()
            with pytest.raises(EngineError, match=r"^S: the engine was closed; open it again$"):
                await speaking
        assert server.asked == 1


@pytest.mark.parametrize("steps", range(1, 5))
async def test_a_closing_that_was_cut_off_can_be_repeated(steps: int) -> None:
    tasks = asyncio.all_tasks()
    async with serving(FAULTS["silence mid-stream"]) as server:
        engine = RemoteEngine(Stubborn(), server.url)
        async with aclosing(engine.stream(HELLO)) as stream:
            await anext(stream)
        (connections,) = engine._connections.values()
        await soon(lambda: connections._unheard)
        closing = asyncio.create_task(engine.aclose())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await engine.aclose()
        assert connections.session.closed
        assert engine._connections == {}
        await soon(lambda: server.open == 0)
    await soon(lambda: asyncio.all_tasks() == tasks)
    gc.collect()  # which would complain


async def test_a_unix_socket_is_an_address(tmp_path: Path) -> None:
    async with serving(speaks, path=tmp_path / "tts.sock") as server:
        assert server.url == f"unix://{tmp_path}/tts.sock"
        engine = engine_at(server.url)
        assert await heard(engine) == PCM
        assert server.calls[0].path == SPEECH
        await engine.aclose()


async def test_two_event_loops_may_share_an_engine() -> None:
    async with talking(speaks) as (engine, server):

        async def many() -> list[bytes]:
            said = [await heard(engine) for _ in range(5)]
            await engine._connections[asyncio.get_running_loop()].aclose()
            return said

        threads = [asyncio.to_thread(asyncio.run, many()) for _ in range(2)]
        for said in await asyncio.gather(*threads, many()):
            assert said == [PCM] * 5
        assert len(server.connections) == 3  # one for each loop


# For sockets of loops that were closed around them; Python closes them, and itself ignores these.
@pytest.mark.filterwarnings("ignore:unclosed")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_engine_outlives_event_loops_that_were_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with talking(speaks) as (engine, server):
        for _ in range(3):
            assert await asyncio.to_thread(asyncio.run, heard(engine)) == PCM
        assert await heard(engine) == PCM
        assert len(engine._connections) == 1
        gc.collect()
        await soon(lambda: server.open == 1)
        await asyncio.to_thread(asyncio.run, heard(engine))
    gc.collect()
    assert caplog.text == ""


async def test_closing_reaches_the_streams_of_other_loops() -> None:
    async with talking(FAULTS["silence mid-stream"]) as (engine, server):
        speaking = asyncio.create_task(asyncio.to_thread(asyncio.run, heard(engine)))
        await soon(lambda: server.asked)
        await soon(lambda: any(c.responses for c in engine._connections.values()))
        await engine.aclose()
        with pytest.raises(EngineError, match="the engine was closed"):
            await speaking
        await soon(lambda: server.open == 0)


def test_what_nobody_closes_is_closed_without_a_word_when_python_ends() -> None:
    program = """
import asyncio, sys
sys.path.insert(0, ".")
from tests.faults import speaks
from tests.servers import serving
from tests.test_remote import engine_at, heard

async def main():
    async with serving(speaks) as server:
        global engine
        engine = engine_at(server.url)
        print(len(await heard(engine)))

asyncio.run(main())
"""
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (out.stdout, out.stderr) == ("4800\n", "")


FORKS = """
import asyncio, os, sys, threading
sys.path.insert(0, ".")
from tests.test_remote import engine_at, heard

engine = engine_at(sys.argv[1], retries=0)

def speak():
    print(len(asyncio.run(heard(engine))))

speaking = threading.Thread(target=speak)
speaking.start()
sys.stdin.readline()  # by now there is an answer
if not (child := os.fork()):
    sys.exit(0)
print(os.waitpid(child, 0)[1], flush=True)
speaking.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
async def test_a_forked_child_that_ends_leaves_its_parents_stream_whole() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def in_two(line: Line, call: Call) -> None:
        line.head(content_type="audio/pcm")
        await line.chunk(PCM)
        asked.set()
        await go_on.wait()
        await line.chunk(PCM)
        line.end()

    async with serving(in_two) as server:
        command = [sys.executable, "-W", "ignore", "-c", FORKS, server.url]
        forking = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert forking.stdin
        assert forking.stdout
        async with asyncio.timeout(4 * LATE):
            await asked.wait()
            forking.stdin.write(b"\n")
            assert await forking.stdout.readline() == b"0\n"
            go_on.set()
            assert await forking.communicate() == (b"9600\n", b"")


LEAVES = """
import asyncio, sys
sys.path.insert(0, ".")
from tests.test_remote import HELLO, OpenAIDialect, RemoteEngine, Stubborn

async def main():
    dialect = Stubborn() if sys.argv[2] == "stubborn" else OpenAIDialect()
    global engine
    engine = RemoteEngine(dialect, sys.argv[1])
    async for chunk in engine.stream(HELLO):
        break
    if sys.argv[3] == "a moment later":
        await asyncio.sleep(0)

asyncio.run(main())
print("done")
"""


@pytest.mark.parametrize("when", ["at once", "a moment later"])
@pytest.mark.parametrize("dialect", ["openai", "stubborn"])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_stream_that_is_left_as_the_event_loop_ends_leaves_without_a_word(
    scheme: str, dialect: str, when: str, tmp_path: Path
) -> None:
    tls, signed = certificate(tmp_path)
    answer = FAULTS["silence mid-stream"]
    async with serving(answer, tls=tls if scheme == "https" else None) as server:
        leaving = await asyncio.create_subprocess_exec(
            *[sys.executable, "-c", LEAVES, server.url, dialect, when],
            env=dict(os.environ, SSL_CERT_FILE=str(signed)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        async with asyncio.timeout(4 * LATE):
            assert await leaving.communicate() == (b"done\n", b"")
        assert server.asked == 1


# Addresses and settings


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("", "/v1/audio/speech"),
        ("/", "/v1/audio/speech"),
        ("/v1", "/v1/audio/speech"),
        ("/v1/", "/v1/audio/speech"),
        ("/speech", "/speech/v1/audio/speech"),
        ("/speech/v1/", "/speech/v1/audio/speech"),
        ("/v1/v1", "/v1/v1/audio/speech"),
        ("/v10", "/v10/v1/audio/speech"),
    ],
)
async def test_the_address_may_end_in_v1_or_not(path: str, asked: str) -> None:
    async with serving(speaks) as server:
        engine = engine_at(server.url + path)
        assert await heard(engine) == PCM
        await engine.aclose()
    assert server.calls[0].path == asked


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://[::1]:8880", "http://[::1]:8880"),
        ("HTTPS://Example.org/V1", "https://Example.org/V1"),
        ("http://v1", "http://v1"),
        ("http://v1/v1", "http://v1"),
        ("https://example.org:443//", "https://example.org:443"),
    ],
)
def test_an_address_is_kept_apart_from_its_path(url: str, base: str) -> None:
    assert engine_at(url)._base == base


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "'' is not http://, https:// or unix:/// with a path"),
        ("localhost:8880", "'localhost:8880' is not http://, https:// or unix:/// with a path"),
        ("ftp://host", "'ftp://host' is not http://, https:// or unix:/// with a path"),
        ("http://", "'http://' is not http://, https:// or unix:/// with a path"),
        ("http:///path", "'http:///path' is not http://, https:// or unix:/// with a path"),
        ("unix://tts.sock", "'unix://tts.sock' is not http://, https:// or unix:/// with a path"),
        ("http://ho\nst", r"'http://ho\nst' is not http://, https:// or unix:/// with a path"),
        ("http://ho st", "'http://ho st' is not http://, https:// or unix:/// with a path"),
        ("http://host/\t", r"'http://host/\t' is not http://, https:// or unix:/// with a path"),
        ("http://host ", "'http://host ' is not http://, https:// or unix:/// with a path"),
        ("http://ho\xa0st", r"'http://ho\xa0st' is not http://, https:// or unix:/// with a path"),
        (
            "http://host/\x7f",
            r"'http://host/\x7f' is not http://, https:// or unix:/// with a path",
        ),
        (
            "http://host/\x1b[2J",
            r"'http://host/\x1b[2J' is not http://, https:// or unix:/// with a path",
        ),
        ("http://host:99999", "'http://host:99999' is no address: Port out of range 0-65535"),
        ("http://[::1", "'http://[::1' is no address: Invalid IPv6 URL"),
        ("https://s3cret@host", "a key doesn't belong in an address: use api_key="),
        ("https://me:s3cret@host", "a key doesn't belong in an address: use api_key="),
        ("me:s3cret@host", "a key doesn't belong in an address: use api_key="),
        ("http://me:s3cret@[::1", "a key doesn't belong in an address: use api_key="),
        ("https://host?key=s3cret", "an address ends with its path: leave out what begins with ?"),
        ("https://host/#s3cret", "an address ends with its path: leave out what begins with ?"),
        ("unix:///tts.sock?s3cret", "an address ends with its path: leave out what begins with ?"),
    ],
)
def test_what_can_not_be_an_address_is_refused(url: str, says: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        engine_at(url)
    assert str(caught.value).removesuffix(" or #") == says
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"retries": -1}, "retries can't be -1"),
        ({"max_in_flight": 0}, "max_in_flight can't be 0"),
        ({"per_second": 0.0}, "per_second can't be 0.0"),
        ({"connect_timeout": 0}, "connect_timeout can't be 0"),
        ({"first_audio_timeout": -1.0}, "first_audio_timeout can't be -1.0"),
        ({"idle_timeout": float("nan")}, "idle_timeout can't be nan"),
        ({"idle_timeout": math.inf}, "idle_timeout can't be inf"),
        ({"first_audio_timeout": "5"}, "first_audio_timeout can't be '5'"),
        ({"connect_timeout": True}, "connect_timeout can't be True"),
        ({"max_in_flight": math.nan}, "max_in_flight can't be nan"),
        ({"max_in_flight": math.inf}, "max_in_flight can't be inf"),
        ({"max_in_flight": "2"}, "max_in_flight can't be '2'"),
        ({"max_in_flight": True}, "max_in_flight can't be True"),
        ({"per_second": math.nan}, "per_second can't be nan"),
        ({"per_second": math.inf}, "per_second can't be inf"),
        ({"per_second": "9"}, "per_second can't be '9'"),
        ({"per_second": False}, "per_second can't be False"),
    ],
)
def test_what_could_never_work_is_refused_where_it_is_written(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        engine_at("http://host", **options)
    assert str(caught.value) == says


async def test_a_session_and_a_unix_socket_are_not_both_given() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(InvalidRequestError, match="brings its own Unix socket"):
            engine_at("unix:///tts.sock", session=session)


async def test_a_session_of_another_event_loop_is_refused() -> None:
    async def made() -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    session = await asyncio.to_thread(asyncio.run, made())
    async with talking(speaks, session=session) as (engine, server):
        with pytest.raises(InvalidRequestError) as caught:
            await heard(engine)
        assert str(caught.value) == "the session was made in another event loop than this"
        assert server.connections == []
    await session.close()


async def test_it_is_an_engine_and_can_clone() -> None:
    async with talking(by_path({SPEECH: speaks, "/v1/audio/voices": lists})) as (engine, _):
        assert isinstance(engine, VoiceCloner)
        assert repr(engine) == "RemoteEngine('S')"
        with pytest.raises(UnspeakableTextError, match="nothing to say in 3 characters"):
            await heard(engine, SynthesisRequest("..."))
        await check_engine(engine)


async def test_no_more_requests_are_out_than_were_agreed() -> None:
    inside = most = 0

    async def counted(line: Line, call: Call) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.001)
        inside -= 1
        await speaks(line, call)

    class Small(OpenAIDialect):
        max_in_flight = 2

    async with serving(counted) as server:
        for limit, expected in ((None, 2), (3, 3)):
            most = 0
            engine = RemoteEngine(Small(), server.url, max_in_flight=limit)
            assert await asyncio.gather(*[heard(engine) for _ in range(9)]) == [PCM] * 9
            assert most == expected
            await engine.aclose()


async def test_the_most_urgent_of_those_who_wait_is_next() -> None:
    go_on = asyncio.Event()

    async def held(line: Line, call: Call) -> None:
        await go_on.wait()
        await speaks(line, call)

    async with talking(held, max_in_flight=1) as (engine, server):
        speaking = []
        for text, due in (("First.", 0.0), ("Calm.", 50.0), ("Urgent.", 5.0)):
            speaking.append(asyncio.create_task(heard(engine, SynthesisRequest(text, due=due))))
            await asyncio.sleep(0)
        await soon(lambda: server.asked)
        go_on.set()
        await asyncio.gather(*speaking)
        assert [call.json["input"] for call in server.calls] == ["First.", "Urgent.", "Calm."]


async def test_no_more_requests_are_let_in_within_a_second_than_were_agreed() -> None:
    async with talking(speaks, per_second=0.001) as (engine, server):
        assert await heard(engine) == PCM
        second = asyncio.create_task(heard(engine))
        await asyncio.wait([second], timeout=0.05)
        await interrupted(second)
        assert server.asked == 1


# Pauses


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that are made before a request is repeated. They take no time."""
    made: list[float] = []

    async def rest(_: object, seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(connections.Connections, "rest", rest)
    return made


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize(
    ("asked_for", "requests"), [("0.5", 4), ("1", 3), ("2", 2), ("2.6", 1), ("4", 1), ("3600", 1)]
)
async def test_the_pauses_that_a_server_asks_for_are_waited_out_up_to_a_limit_in_all(
    asked_for: str, requests: int, code: int, rests: list[float]
) -> None:
    async with talking(status(code, retry_after=asked_for)) as (engine, server):
        with pytest.raises(TTSError, match=f"^S: {code}: as you asked for$") as caught:
            await heard(engine)
        assert getattr(caught.value, "retry_after", None) == float(asked_for)
        assert server.asked == requests
    assert len(rests) == requests - 1
    assert all(float(asked_for) <= rest <= float(asked_for) + 0.1 for rest in rests)
    assert sum(rests) <= 2.5


async def test_where_a_server_asks_for_a_long_pause_the_next_engine_speaks_at_once(
    rests: list[float],
) -> None:
    now = [100.0]
    async with talking(in_turn(status(429, retry_after="4"), speaks)) as (engine, server):
        spare = ScriptedEngine(tone(0.2))
        both = FallbackEngine([engine, spare], rest=30.0, clock=lambda: now[0])
        assert len(await heard_of(both)) == 9600
        assert (server.asked, rests) == (1, [])
        now[0] += 3.9
        assert len(await heard_of(both)) == 9600
        assert (server.asked, len(spare.requests)) == (1, 2)
        now[0] += 0.2
        assert await heard_of(both) == PCM
        assert (server.asked, len(spare.requests)) == (2, 2)


# How long it is waited for


Pass = Callable[[float], None]


@pytest.fixture
async def let_pass(monkeypatch: pytest.MonkeyPatch) -> Pass:
    """Lets seconds pass for the event loop, in no time."""
    loop = asyncio.get_running_loop()
    time_of, passed = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: time_of() + passed[0])

    def let_pass(seconds: float) -> None:
        passed[0] += seconds

    return let_pass


async def still_waits(waiting: asyncio.Future[Any]) -> bool:
    await asyncio.wait([waiting], timeout=0.02)
    return not waiting.done()


async def given_up(waiting: asyncio.Future[Any]) -> str:
    await asyncio.wait([waiting], timeout=1.0)
    assert waiting.done()
    with pytest.raises(RemoteTimeoutError) as caught:
        await waiting
    return str(caught.value)


async def test_an_answer_is_waited_for_as_long_as_the_first_audio(let_pass: Pass) -> None:
    async with talking(hangs, first_audio_timeout=10.0) as (engine, server):
        waiting = asyncio.ensure_future(anext(engine.stream(HELLO)))
        await soon(lambda: server.asked)
        let_pass(9.5)
        assert await still_waits(waiting)
        let_pass(0.5)
        assert await given_up(waiting) == "S: no answer within 10 s (first_audio_timeout)"


async def test_the_first_audio_is_waited_for_from_the_request_on(let_pass: Pass) -> None:
    go_on = asyncio.Event()

    async def headers_only(line: Line, call: Call) -> None:
        await go_on.wait()
        line.head(content_type="audio/pcm")

    async with talking(headers_only, first_audio_timeout=10.0) as (engine, server):
        waiting = asyncio.ensure_future(anext(engine.stream(HELLO)))
        await soon(lambda: server.asked)
        let_pass(6.0)
        go_on.set()
        await soon(lambda: any(c.responses for c in engine._connections.values()))
        let_pass(3.5)
        assert await still_waits(waiting)
        let_pass(0.5)
        assert await given_up(waiting) == "S: no audio within 10 s (first_audio_timeout)"


async def test_more_audio_is_waited_for_as_long_as_was_said(let_pass: Pass) -> None:
    async with talking(FAULTS["silence mid-stream"], idle_timeout=7.5) as (engine, _):
        stream = engine.stream(HELLO)
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        let_pass(7.0)
        assert await still_waits(waiting)
        let_pass(0.5)
        assert await given_up(waiting) == "S: no audio for 7.5 s (idle_timeout)"


@pytest.mark.parametrize("given", [False, True])
async def test_how_long_an_utterance_takes_in_all_is_nobodys_business(
    given: bool, let_pass: Pass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_PIECE", 2 * len(PCM))
    go_on = asyncio.Semaphore(0)

    async def at_length(line: Line, call: Call) -> None:
        line.head(content_type="audio/pcm")
        for _ in range(200):
            await go_on.acquire()
            await line.chunk(2 * PCM)
        line.end()

    short = aiohttp.ClientTimeout(total=20.0, sock_read=1.0)
    async with (
        serving(at_length) as server,
        aiohttp.ClientSession(timeout=short) as session,
    ):
        engine = engine_at(server.url, session=session if given else None)
        waiting = asyncio.create_task(heard_of(engine))
        await soon(lambda: server.asked)
        for _ in range(200):
            let_pass(2.0)  # ten times as long as it is
            await asyncio.sleep(0)
            go_on.release()
            await asyncio.sleep(0.0005)
        assert await waiting == 400 * PCM
        await engine.aclose()


# The key

KEY = "sk-proj-Secret0123456789+/=-_.Secret"


def echoes(text: str) -> dict[str, Answer]:
    """Servers that repeat the key."""
    quoted = json.dumps({"error": {"message": f"Incorrect API key provided: {text}"}}).encode()
    filled = ("x" * 280 + " " + text).encode()  # so that a quotation ends within it
    raw = text.encode()
    event = b'data: {"error": {"message": "bad key ' + json.dumps(text)[1:-1].encode() + b'"}}\n\n'
    sse = "content-type: text/event-stream"
    return {
        "in a refusal": status(401, quoted),
        "in a refusal, at the cut": status(401, filled, content_type="text/plain"),
        "in a refusal, its second half": status(
            401, b"Invalid key: ..." + raw[len(raw) // 2 :], content_type="text/plain"
        ),
        "in a refusal that is retried": status(503, quoted),
        "in a 429": status(429, quoted, retry_after="99"),
        "about the voice": status(404, b'{"detail": "voice not found: ' + raw.replace(b'"', b"")),
        "in a redirect": status(302, location=f"http://elsewhere/?key={text}"),
        "in what is no HTTP": sends(b"HTTP/" + raw + b"\r\n\r\n"),
        "in a header": sends(b"HTTP/1.1 200 OK\r\nx-key: " + raw + b"\r\n", then="leaves"),
        "in a header that is too long": sends(
            b"HTTP/1.1 200 OK\r\nx: " + raw + b"y" * 9000 + b"\r\n\r\n"
        ),
        "in place of audio": sends(whole(quoted, "content-type: application/json")),
        "in place of audio, at the cut": sends(
            whole(b"<html>" + b"x" * 170 + raw + b"</html>", "content-type: text/html")
        ),
        "in an event": sends(whole(event, sse)),
        "in an event that is none": sends(whole(b"data: " + raw + b"\n\n", sse)),
        "in a chunk size": sends(ok("transfer-encoding: chunked"), raw + b"\r\n", then="leaves"),
    }


def everything(error: BaseException) -> str:
    """All that can be read in an error and what led to it."""
    seen: list[BaseException] = []
    new: list[BaseException | None] = [error]
    while new:
        one = new.pop()
        if one is not None and one not in seen:
            seen.append(one)
            new += [one.__cause__, one.__context__]
    told = [f"{one} {one!r} {one.args} {vars(one)}" for one in seen]
    return "\n".join([*told, *traceback.format_exception(error)])


@pytest.fixture
def debug(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Everything that anybody logs."""
    caplog.set_level(logging.DEBUG)
    for name in ("asyncio", "aiohttp.client", "aiohttp.internal", "tts_plugins"):
        caplog.set_level(logging.DEBUG, name)
    return caplog


@pytest.mark.parametrize("how", echoes(KEY))
async def test_the_key_is_told_to_nobody_even_where_the_server_repeats_it(
    how: str, debug: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.0  # everything is slow, and logged
    monkeypatch.setattr(remote, "_PAUSE", 0.0)
    async with talking(
        echoes(KEY)[how], api_key=KEY, retries=1, first_audio_timeout=0.1, voice="ann"
    ) as (engine, server):
        with pytest.raises(TTSError) as caught:
            await heard(engine)
        assert server.calls[0].headers["authorization"] == f"Bearer {KEY}"
        assert "Secret" not in everything(caught.value)
        assert "Secret" not in repr(engine)
        with suppress(TTSError):
            await engine.voices()
    logged = [
        f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in debug.records
    ]
    assert logged
    assert "Secret" not in "\n".join(logged)


async def test_without_a_key_the_cause_is_kept() -> None:
    async with talking(FAULTS["HTML"], retries=0) as (engine, _):
        with pytest.raises(RemoteError) as caught:
            await heard(engine)
        assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_the_key_does_not_follow_to_another_host(code: int) -> None:
    async with serving(speaks) as elsewhere:
        answer = status(code, location=elsewhere.url + SPEECH)
        async with talking(answer, api_key=KEY) as (engine, server):
            with pytest.raises(RemoteError) as caught:
                await heard(engine)
            assert str(caught.value) == (
                f"S: {code}: it moved to {elsewhere.url}{SPEECH}: use that address"
            )
            assert caught.value.status_code == code
            assert server.asked == 1
        assert elsewhere.connections == []


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("http://x/\x1b[2J\x9b1A\tnow", "http://x/ [2J 1A now"),
        ("http://x/" + "y" * 400, "http://x/" + "y" * 268 + "..."),
        ("", "nowhere"),
    ],
)
async def test_where_a_redirect_leads_is_quoted_as_what_a_stranger_said(
    location: str, told: str
) -> None:
    async with talking(status(307, location=location)) as (engine, _):
        with pytest.raises(RemoteError) as caught:
            await heard(engine)
        assert str(caught.value) == f"S: 307: it moved to {told}: use that address"
        assert len(told) <= 300


@pytest.mark.parametrize("key", ["s3cret\nx: y", "s3cr\x00et", "s3cr\u00e9t", "s3cr\x7fet"])
def test_a_key_that_can_not_stand_in_a_header_is_refused_unseen(key: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        engine_at("http://host", api_key=key)
    assert str(caught.value) == "the key has characters that no key has"
    assert "s3c" not in everything(caught.value).replace(__file__, "")


@pytest.mark.parametrize(("key", "sent"), [(" k\n", "Bearer k"), ("", None), (" \n", None)])
async def test_the_space_around_a_key_is_not_part_of_it(key: str, sent: str | None) -> None:
    async with talking(speaks, api_key=key) as (engine, server):
        await heard(engine)
        assert server.calls[0].headers.get("authorization") == sent


# Voices


async def test_voices_come_from_the_first_list_that_there_is() -> None:
    async with talking(by_path({"/v1/voices": lists})) as (engine, server):
        assert [voice.id for voice in await engine.voices()] == ["ann", "bob"]
        assert [call.path for call in server.calls] == ["/v1/audio/voices", "/v1/voices"]
    for code in (404, 405):
        async with talking(status(code)) as (engine, server):
            assert len(await engine.voices()) == 13
            assert len(server.calls) == 2
    async with talking(in_turn(status(403), lists)) as (engine, server):
        with pytest.raises(RemoteError, match=r"^S: 403: as you asked for$"):
            await engine.voices()


async def test_a_voice_that_is_refused_is_answered_with_those_there_are() -> None:
    answers = {SPEECH: FAULTS["an unknown voice"], "/v1/audio/voices": lists}
    async with talking(by_path(answers), voice="eve") as (engine, server):
        with pytest.raises(VoiceNotFoundError) as caught:
            await heard(engine)
        assert str(caught.value) == "no voice 'eve'; available: ann, bob"
        assert [call.connection for call in server.calls] == [0, 0]
        with pytest.raises(VoiceNotFoundError, match="no voice 'max'; available: ann, bob"):
            await heard(engine, SynthesisRequest("Hello.", voice="max"))
        assert server.asked == 2


async def test_a_voice_that_is_refused_is_told_even_if_no_list_can_be_had() -> None:
    answers = {SPEECH: FAULTS["an unknown voice"], "/v1/audio/voices": status(500)}
    async with talking(by_path(answers), voice="eve") as (engine, _):
        with pytest.raises(VoiceNotFoundError, match="no voice 'eve'; available: unknown"):
            await heard(engine)


class Polite(OpenAIDialect):
    """Of a server that speaks with some voice when asked for one that it doesn't have."""

    accepts_any_voice = True


async def test_before_a_server_that_takes_any_voice_speaks_its_list_is_looked_at() -> None:
    async with serving(by_path({SPEECH: speaks, "/v1/audio/voices": lists})) as server:
        engine = RemoteEngine(Polite(), server.url, voice="eve")
        with pytest.raises(VoiceNotFoundError, match="no voice 'eve'; available: ann, bob"):
            await heard(engine)
        assert server.asked == 0
        for _ in range(2):
            assert await heard(engine, SynthesisRequest("Hello.", voice="ann")) == PCM
        assert [call.path for call in server.calls] == ["/v1/audio/voices", SPEECH, SPEECH]
        await engine.aclose()


async def test_where_there_is_no_list_the_voice_is_taken_at_its_word() -> None:
    async with serving(by_path({SPEECH: speaks})) as server:
        engine = RemoteEngine(Polite(), server.url, voice="eve")
        assert await heard(engine) == PCM
        assert server.calls[-1].json["voice"] == "eve"
        await engine.aclose()


async def test_a_list_that_fails_once_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_PAUSE", 0.0)
    once = in_turn(FAULTS["left before headers"], FAULTS["left before headers"], status(503), lists)
    async with serving(by_path({SPEECH: speaks, "/v1/audio/voices": once})) as server:
        engine = RemoteEngine(Polite(), server.url, voice="ann")
        assert await heard(engine) == PCM
        await engine.aclose()


# Cloning


class Studio:
    """A server that learns voices."""

    def __init__(self) -> None:
        self.voices: list[dict[str, str]] = []
        self.refusal: Answer | None = None
        self.answer = by_path(
            {
                SPEECH: speaks,
                "GET /v1/audio/voices": self.tell,
                "POST /v1/audio/voices": self.learn,
            }
        )

    async def tell(self, line: Line, call: Call) -> None:
        line.json(200, {"voices": self.voices})

    async def learn(self, line: Line, call: Call) -> None:
        if self.refusal:
            await self.refusal(line, call)
            return
        name = call.body.partition(b'name="name"\r\n\r\n')[2].partition(b"\r\n")[0].decode()
        voice = {"id": f"voice_{len(self.voices) + 1}", "name": name}
        self.voices.append(voice)
        line.json(200, voice)

    def learnt(self, server: Server) -> list[Call]:
        return [call for call in server.calls if call.method == "POST" and call.path != SPEECH]


async def test_a_cloned_voice_is_usable_at_once_by_its_name() -> None:
    studio = Studio()
    async with talking(studio.answer) as (engine, server):
        voice = await engine.clone("me", b"RIFF and so on")
        assert voice.id == "me"
        (learnt,) = studio.learnt(server)
        assert learnt.headers["content-type"].startswith("multipart/form-data; boundary=")
        assert b"RIFF and so on" in learnt.body
        assert b'filename="clip.wav"' in learnt.body
        assert await heard(engine, SynthesisRequest("Hello.", voice="me")) == PCM
        assert server.calls[-1].json["voice"] == {"id": "voice_1"}
        assert engine.called("me") == "voice_1"
        assert engine.called("ann") == "ann"


async def test_a_cloned_voice_that_is_refused_is_told_by_its_name() -> None:
    studio = Studio()
    async with talking(studio.answer) as (engine, server):
        await engine.clone("me", b"RIFF and so on")
        server.answer = by_path({SPEECH: FAULTS["an unknown voice"], "GET /v1/audio/voices": lists})
        with pytest.raises(VoiceNotFoundError) as caught:
            await heard(engine, SynthesisRequest("Hello.", voice="me"))
        assert str(caught.value) == "no voice 'me'; available: ann, bob"
        assert caught.value.voice == "me"


async def test_a_recording_is_sent_once_whoever_asks_and_however_often(tmp_path: Path) -> None:
    studio = Studio()
    recording = tmp_path / "me.wav"
    recording.write_bytes(b"RIFF and so on")
    async with talking(studio.answer) as (engine, server):
        await asyncio.gather(
            engine.clone("me", recording), engine.clone("me", recording.read_bytes())
        )
        other = engine_at(server.url)
        assert (await other.clone("me", recording)).id == "me"
        assert await heard(other, SynthesisRequest("Hello.", voice="me")) == PCM
        assert server.calls[-1].json["voice"] == {"id": "voice_1"}
        assert len(studio.learnt(server)) == 1
        await other.aclose()
        await engine.clone("me", b"RIFF and something else")
        await heard(engine, SynthesisRequest("Hello.", voice="me"))
        assert server.calls[-1].json["voice"] == {"id": "voice_2"}
        assert len(studio.learnt(server)) == 2


async def test_a_name_stays_what_it_was_enrolled_as_whatever_the_server_lists() -> None:
    studio = Studio()
    async with talking(studio.answer) as (engine, server):
        await engine.clone("me", b"RIFF and so on")
        studio.voices.append({"id": "me", "name": "somebody else"})
        await engine.voices()
        await heard(engine, SynthesisRequest("Hello.", voice="me"))
        assert server.calls[-1].json["voice"] == {"id": "voice_1"}


async def test_a_large_recording_is_sent_whole() -> None:
    studio = Studio()
    async with talking(studio.answer) as (engine, server):
        clip = random.Random(1).randbytes(3_000_000)
        await engine.clone("me", clip)
        assert clip in studio.learnt(server)[0].body


async def test_what_is_no_recording_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    empty = tmp_path / "empty.wav"
    empty.touch()
    async with talking(Studio().answer) as (engine, server):
        for reference, says in (
            (tmp_path / "none.wav", "can't read .*none.wav: .*No such file"),
            (tmp_path, "can't read .*: .*Is a directory"),
            (Path("nul\0"), "can't read nul.*: embedded null byte"),
            (empty, "the recording is empty"),
            (b"", "the recording is empty"),
        ):
            with pytest.raises(InvalidRequestError, match=says):
                await engine.clone("me", reference)
        assert server.calls == []


async def test_a_clone_that_is_refused_may_be_tried_again() -> None:
    studio = Studio()
    async with talking(studio.answer) as (engine, server):
        for refusal, says in (
            (status(400), "S: 400: as you asked for"),
            (FAULTS["HTML"], "S: expected JSON, got '<!DOCTYPE html><p>Welcome to nginx!</p>'"),
            (sends(whole(b"{}")), "S: expected a voice, got '{}'"),
            (FAULTS["left after headers"], "S: its answer is cut short"),
        ):
            studio.refusal = refusal
            with pytest.raises(RemoteError) as caught:
                await engine.clone("me", b"RIFF")
            assert str(caught.value) == says
        assert len(studio.learnt(server)) == 4
        studio.refusal = None
        assert (await engine.clone("me", b"RIFF")).id == "me"


async def test_a_dialect_that_can_not_clone_says_so() -> None:
    class Plain(Dialect):
        def write_call(self, request: SynthesisRequest) -> HttpCall:
            raise NotImplementedError

        def read_reply(self, request: SynthesisRequest, reply: HttpReply) -> ReplyReader:
            raise NotImplementedError

    engine = RemoteEngine(Plain(), "http://host", name="S")
    with pytest.raises(InvalidRequestError, match="S has no way to clone a voice"):
        await engine.clone("me", b"RIFF")
    without = RemoteEngine(OpenAIDialect(), "http://host")
    with pytest.raises(InvalidRequestError, match="give its id as consent="):
        OpenAIDialect().write_clone("me", Clip(b"RIFF", "0" * 16))
    await without.aclose()


# Interruption


class Held(aiohttp.abc.AbstractResolver):
    """Doesn't know the name yet."""

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        pass


async def interrupted(speaking: asyncio.Task[bytes]) -> float:
    """Cancel; return when that was."""
    at = time.monotonic()
    speaking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await speaking
    assert time.monotonic() - at < 1.0
    return at


async def test_interrupted_while_it_connects_nothing_is_left() -> None:
    tasks = asyncio.all_tasks()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=Held(), force_close=True)
    ) as session:
        engine = engine_at("http://host", session=session, max_in_flight=1)
        speaking = asyncio.create_task(heard(engine))
        await asyncio.sleep(0.01)
        await interrupted(speaking)
        assert not engine._limiter._holding
    for resolving in asyncio.all_tasks() - tasks:
        resolving.cancel()  # aiohttp finishes that for others who may want to know


@pytest.mark.parametrize("moment", ["silence before headers", "silence mid-stream", "slow drip"])
async def test_interrupted_the_server_hears_of_it_at_once(moment: str) -> None:
    async with talking(in_turn(FAULTS[moment], speaks), max_in_flight=1) as (engine, server):
        speaking = asyncio.create_task(heard(engine))
        await soon(lambda: server.asked)
        await asyncio.sleep(0.005)
        at = await interrupted(speaking)
        async with asyncio.timeout(1.0):
            await server.connections[0].lost.wait()
        # A few tenths of a millisecond; the benchmark measures it.
        assert server.connections[0].lost_at - at < 0.5
        assert server.open == 0
        assert await heard(engine) == PCM


async def test_closed_between_two_chunks_the_server_hears_of_it_at_once() -> None:
    async with talking(FAULTS["slow drip"]) as (engine, server):
        async with aclosing(engine.stream(HELLO)) as stream:
            await anext(stream)
        async with asyncio.timeout(1.0):
            await server.connections[0].lost.wait()
        assert server.open == 0


async def test_closed_behind_the_last_chunk_the_connection_is_kept() -> None:
    async with talking(speaks) as (engine, server):
        for _ in range(2):
            async with aclosing(engine.stream(HELLO)) as stream:
                pcm = bytearray()
                while len(pcm) < len(PCM):
                    pcm += to_s16((await anext(stream)).samples)
        assert [call.connection for call in server.calls] == [0, 0]


async def test_interrupted_before_it_asks_again_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "_LONGEST_PAUSE", 100.0)
    monkeypatch.setattr(remote, "_PAUSE", 60.0)
    async with talking(in_turn(status(500), speaks), max_in_flight=1) as (engine, server):
        speaking = asyncio.create_task(heard(engine))
        await soon(lambda: server.asked)
        await asyncio.sleep(0.005)
        await interrupted(speaking)
        assert not engine._limiter._holding
        assert await heard(engine) == PCM
        assert server.asked == 2


async def test_interrupted_while_it_waits_for_others_it_never_asks() -> None:
    async with talking(in_turn(hangs, speaks), max_in_flight=1) as (engine, server):
        first = asyncio.create_task(heard(engine))
        await soon(lambda: server.asked)
        second = asyncio.create_task(heard(engine))
        await asyncio.sleep(0.001)
        await interrupted(second)
        await interrupted(first)
        assert server.asked == 1
        assert await heard(engine) == PCM


async def test_a_timeout_around_a_stream_is_not_taken_for_the_servers() -> None:
    async with talking(hangs) as (engine, _):
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.02):
                await heard(engine)
        assert type(caught.value) is TimeoutError


@pytest.mark.parametrize("steps", range(24))
async def test_interrupted_at_any_step_the_next_request_is_whole(steps: int) -> None:
    tasks = asyncio.all_tasks()
    async with talking(speaks, max_in_flight=1) as (engine, server):
        speaking = asyncio.create_task(heard(engine))
        for _ in range(steps):
            await asyncio.sleep(0)
        speaking.cancel()
        await asyncio.wait([speaking])
        assert await heard(engine) == PCM
        await soon(lambda: server.open == 1)
        assert not engine._limiter._holding
    await soon(lambda: asyncio.all_tasks() == tasks)


def idle(engine: RemoteEngine) -> int:
    """Connections that are kept for later."""
    (connections,) = engine._connections.values()
    assert connections.session.connector is not None
    return sum(map(len, connections.session.connector._conns.values()))


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208  counted, not looked at


async def test_two_hundred_faults_and_interruptions_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "_PAUSE", 0.001)
    chance = random.Random(7)
    names = [name for name in FAULTS if "second" not in name]

    async def any_of_them(line: Line, call: Call) -> None:
        answer = FAULTS[chance.choice(names)] if chance.random() < 0.7 else speaks
        await answer(line, call)

    tasks, files = asyncio.all_tasks(), descriptors()
    options: dict[str, Any] = {"first_audio_timeout": 0.02, "idle_timeout": 0.02}
    async with talking(any_of_them, max_in_flight=3, retries=1, **options) as (engine, server):
        for _ in range(50):
            speaking = [asyncio.create_task(heard(engine)) for _ in range(4)]
            for task in speaking:
                await asyncio.sleep(chance.choice([0.0, 0.0, 0.001, 0.01]))
                if chance.random() < 0.6:
                    task.cancel()
            for task in speaking:
                with suppress(TTSError, asyncio.CancelledError):
                    await task
        assert not engine._limiter._holding
        await soon(lambda: server.open == idle(engine))
        assert len(server.calls) > 150
        server.answer = speaks
        assert await heard(engine) == PCM
    await soon(lambda: asyncio.all_tasks() == tasks)
    gc.collect()
    await soon(lambda: descriptors() == files)


# Spare connections


class OneAtATime(OpenAIDialect):
    max_in_flight = 1


@asynccontextmanager
async def secured(
    answer: Answer, directory: Path, dialect: Dialect | None = None
) -> AsyncGenerator[tuple[RemoteEngine, Server], None]:
    tls, signed = certificate(directory)
    trust = ssl.create_default_context(cafile=str(signed))
    async with (
        serving(answer, tls=tls) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session,
    ):
        engine = RemoteEngine(dialect or OpenAIDialect(), server.url, session=session)
        yield engine, server
        await engine.aclose()


@pytest.mark.parametrize("moment", ["silence before headers", "silence mid-stream"])
async def test_over_tls_an_interruption_opens_a_spare_connection(
    moment: str, tmp_path: Path
) -> None:
    answers = by_path({SPEECH: in_turn(FAULTS[moment], speaks)})
    async with secured(answers, tmp_path) as (engine, server):
        speaking = asyncio.create_task(heard(engine))
        await soon(lambda: server.asked)
        await asyncio.sleep(0.005)
        await interrupted(speaking)
        async with asyncio.timeout(1.0):
            await server.connections[0].lost.wait()
        await soon(lambda: len(server.calls) == 2)
        assert (server.calls[1].method, server.calls[1].path) == ("GET", "/v1/models")
        await soon(lambda: idle(engine) == 1)
        assert await heard(engine) == PCM
        assert [call.connection for call in server.calls] == [0, 1, 1]


async def test_many_interruptions_at_once_open_one_spare_connection(tmp_path: Path) -> None:
    async with secured(by_path({SPEECH: hangs}), tmp_path) as (engine, server):
        speaking = [asyncio.create_task(heard(engine)) for _ in range(10)]
        await soon(lambda: server.asked == 10)
        await asyncio.gather(*map(interrupted, speaking))
        await soon(lambda: server.open == 1)
        assert len(server.connections) == 11


async def test_a_spare_connection_that_can_not_be_had_disturbs_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers = by_path({SPEECH: in_turn(hangs, speaks), "/v1/models": FAULTS["not HTTP"]})
    async with secured(answers, tmp_path) as (engine, server):
        speaking = asyncio.create_task(heard(engine))
        await soon(lambda: server.asked)
        await interrupted(speaking)
        (connections,) = engine._connections.values()
        await soon(lambda: connections._warming and connections._warming.done())
        assert connections._warming
        assert connections._warming.exception() is None
        assert len(server.calls) == 2
        assert await heard(engine) == PCM
    assert caplog.text == ""


async def test_closing_does_not_wait_for_a_spare_connection(tmp_path: Path) -> None:
    tasks = asyncio.all_tasks()
    async with secured(by_path({SPEECH: hangs, "/v1/models": hangs}), tmp_path) as (engine, server):
        speaking = asyncio.create_task(heard(engine))
        await soon(lambda: server.asked)
        await interrupted(speaking)
        await soon(lambda: len(server.calls) == 2)
        async with asyncio.timeout(1.0):
            await engine.aclose()
    await soon(lambda: asyncio.all_tasks() == tasks)


# For the session's sockets, whose loop is gone before they are closed.
@pytest.mark.filterwarnings("ignore:unclosed")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_event_loop_that_ends_while_it_speaks_does_so_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls, signed = certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(signed))
    async with serving(hangs, tls=tls) as server:

        async def a_job() -> aiohttp.ClientSession:
            session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust))
            speaking = asyncio.create_task(heard(engine_at(server.url, session=session)))
            await soon(lambda: server.asked)
            assert not speaking.done()
            return session

        session = await asyncio.to_thread(asyncio.run, a_job())
        await session.close()
    gc.collect()
    assert caplog.text == ""


async def test_without_tls_there_is_no_spare_connection() -> None:
    async with talking(hangs) as (engine, server):
        speaking = asyncio.create_task(heard(engine))
        await soon(lambda: server.asked)
        await interrupted(speaking)
        await soon(lambda: server.open == 0)
        await asyncio.sleep(2 * connections._MOMENT)
        assert len(server.connections) == 1


async def test_a_server_that_does_one_thing_at_a_time_is_not_kept_busy_by_a_spare_connection(
    tmp_path: Path,
) -> None:
    async with secured(by_path({SPEECH: hangs}), tmp_path, OneAtATime()) as (engine, server):
        speaking = asyncio.create_task(heard(engine))
        await soon(lambda: server.asked)
        await interrupted(speaking)
        await soon(lambda: server.open == 0)
        await asyncio.sleep(2 * connections._MOMENT)
        assert len(server.connections) == 1


# A server that stays occupied


@pytest.mark.parametrize("when", ["before headers", "mid-stream"])
async def test_a_server_that_does_not_stop_is_heard_out_on_the_same_connection(when: str) -> None:
    go_on = asyncio.Event()

    async def stubborn(line: Line, call: Call) -> None:
        if when == "mid-stream":
            line.head(content_type="audio/pcm")
            await line.chunk(PCM)
        await go_on.wait()
        if when == "before headers":
            line.head(content_type="audio/pcm")
        await line.chunk(PCM)
        line.end()

    async with serving(in_turn(stubborn, speaks)) as server:
        engine = RemoteEngine(Stubborn(), server.url)
        speaking = asyncio.create_task(heard(engine))
        await soon(lambda: server.asked)
        await asyncio.sleep(0.005)
        await interrupted(speaking)
        assert server.open == 1
        go_on.set()
        await soon(lambda: idle(engine) == 1)
        assert await heard(engine) == PCM
        assert [call.connection for call in server.calls] == [0, 0]
        await engine.aclose()


@pytest.mark.parametrize("moment", ["silence before headers", "silence mid-stream"])
async def test_a_server_that_never_ends_is_not_heard_out_for_ever(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_UNHEARD", 0.02)
    tasks = asyncio.all_tasks()
    async with serving(FAULTS[moment]) as server:
        engine = RemoteEngine(Stubborn(), server.url)
        speaking = asyncio.create_task(heard(engine))
        await soon(lambda: server.asked)
        await asyncio.sleep(0.005)
        await interrupted(speaking)
        await soon(lambda: server.open == 0)
        await engine.aclose()
    await soon(lambda: asyncio.all_tasks() == tasks)
