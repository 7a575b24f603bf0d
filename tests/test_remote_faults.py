"""What an engine makes of everything that a server can do wrong."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from tests.faults import FAULTS, PCM, PLAYED, SILENT, hangs, pieces, sends, speaks, status, whole
from tests.servers import Answer, Call, Line, Server, certificate, in_turn, serving
from tts_plugins import remote
from tts_plugins.audio.pcm import to_s16
from tts_plugins.dialects.base import HttpReply, ReplyReader
from tts_plugins.dialects.openai import OpenAIDialect
from tts_plugins.errors import (
    EngineTimeoutError,
    OverloadedError,
    RemoteError,
    RemoteTimeoutError,
    TTSError,
    UnreachableError,
    VoiceNotFoundError,
)
from tts_plugins.remote import RemoteEngine
from tts_plugins.types import SynthesisRequest

SOON = 0.15
"""Seconds of silence after which a server is given up, where a test waits for that."""

HELLO = SynthesisRequest("Hello there.")


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that an engine wants before it asks again. It makes none."""
    wanted: list[float] = []
    pause = remote._pause

    def noted(error: TTSError, attempt: int) -> float | None:
        seconds = pause(error, attempt)
        if seconds is None:
            return None
        wanted.append(seconds)
        return 0.0

    monkeypatch.setattr(remote, "_pause", noted)
    return wanted


def speaking_to(
    url: str,
    *,
    patience: float = 5.0,
    retries: int = 2,
    session: aiohttp.ClientSession | None = None,
) -> RemoteEngine:
    return RemoteEngine(
        OpenAIDialect(),
        url,
        voice="bob",
        session=session,
        retries=retries,
        connect_timeout=5.0,
        first_audio_timeout=patience,
        idle_timeout=patience,
        name="S",
    )


@asynccontextmanager
async def broken(
    answer: Answer, *, patience: float = 5.0
) -> AsyncGenerator[tuple[RemoteEngine, Server], None]:
    async with serving(answer) as server:
        engine = speaking_to(server.url, patience=patience)
        yield engine, server
        await engine.aclose()


async def heard(engine: RemoteEngine, pcm: bytearray | None = None) -> bytes:
    """What comes of a request. What came before an error is in ``pcm``."""
    pcm = bytearray() if pcm is None else pcm
    async with asyncio.timeout(10), aclosing(engine.stream(HELLO)) as chunks:
        async for chunk in chunks:
            assert chunk.sample_rate == 24_000
            pcm += to_s16(chunk.samples)
    return bytes(pcm)


async def failing(engine: RemoteEngine) -> TTSError:
    with pytest.raises(TTSError) as caught:
        await heard(engine)
    return caught.value


NO_VOICE = (
    "no voice 'bob'; available: alloy, ash, ballad, cedar, coral, echo, fable, marin, nova, onyx,"
    " sage, shimmer, verse"
)
JSON = "S: expected a JSON object, got"
LATER, NEVER = True, False


@pytest.mark.parametrize(
    ("fault", "kind", "says", "code", "retryable", "requests", "audio"),
    [
        ("400", RemoteError, "S: 400: as you asked for", 400, NEVER, 1, 0),
        ("401", RemoteError, "S: 401: as you asked for", 401, NEVER, 1, 0),
        ("402", RemoteError, "S: 402: as you asked for", 402, NEVER, 1, 0),
        ("403", RemoteError, "S: 403: as you asked for", 403, NEVER, 1, 0),
        ("404", RemoteError, "S: 404: as you asked for", 404, NEVER, 1, 0),
        ("408", RemoteError, "S: 408: as you asked for", 408, LATER, 3, 0),
        ("413", RemoteError, "S: 413: as you asked for", 413, NEVER, 1, 0),
        ("422", RemoteError, "S: 422: as you asked for", 422, NEVER, 1, 0),
        ("429", OverloadedError, "S: 429: as you asked for", 429, LATER, 3, 0),
        ("429, in a second", OverloadedError, "S: 429: as you asked for", 429, LATER, 3, 0),
        ("429, in a minute", OverloadedError, "S: 429: as you asked for", 429, LATER, 1, 0),
        ("500", RemoteError, "S: 500: as you asked for", 500, LATER, 3, 0),
        ("501", RemoteError, "S: 501: as you asked for", 501, LATER, 3, 0),
        ("503", RemoteError, "S: 503: as you asked for", 503, LATER, 3, 0),
        ("503, in a second", RemoteError, "S: 503: as you asked for", 503, LATER, 3, 0),
        ("503, in a minute", RemoteError, "S: 503: as you asked for", 503, LATER, 1, 0),
        ("an unknown voice", VoiceNotFoundError, NO_VOICE, 404, NEVER, 1, 0),
        ("a refusal cut short", RemoteError, "S: 401: {", 401, NEVER, 1, 0),
        ("a refusal without an end", RemoteError, "S: 401: No", 401, NEVER, 1, 0),
        ("a refusal made to be hard to read", RemoteError, "S: 500: [[[", 500, LATER, 3, 0),
        ("redirect", RemoteError, "S: 307: it moved to http://127.0.0.1:9", 307, NEVER, 1, 0),
        ("an upgrade", RemoteError, "S: 101: Switching Protocols", 101, NEVER, 1, 0),
        ("silence before headers", RemoteTimeoutError, "S: no answer within", 504, LATER, 1, 0),
        ("silence after headers", RemoteTimeoutError, "S: no audio ", 504, LATER, 1, 0),
        ("silence mid-stream", RemoteTimeoutError, "S: no audio ", 504, LATER, 1, 4800),
        ("comments only", RemoteTimeoutError, "S: no audio ", 504, LATER, 1, 0),
        ("garbled chunks", RemoteTimeoutError, "S: no audio ", 504, LATER, 1, 4800),
        ("reset before headers", UnreachableError, "S: [Errno 104]", 503, LATER, 3, 0),
        ("left before headers", UnreachableError, "S: it left without", 503, LATER, 3, 0),
        ("left amid headers", UnreachableError, "S: it left without", 503, LATER, 3, 0),
        ("left after headers", UnreachableError, "S: its answer is cut", 503, LATER, 3, 0),
        ("reset mid-stream", UnreachableError, "S: its answer is cut", 503, LATER, 1, 4800),
        ("chunks without an end", UnreachableError, "S: its answer is cut", 503, LATER, 1, 4800),
        ("shorter than it said", UnreachableError, "S: its answer is cut", 503, LATER, 1, 4800),
        ("a WAV cut short", RemoteError, "S: the WAV data was cut short", 502, LATER, 1, 3800),
        ("an event that says so", RemoteError, "S: it failed on the way: ", 502, LATER, 1, 4800),
        ("empty", RemoteError, "S: its answer has no audio in it", 502, LATER, 3, 0),
        ("a WAV without samples", RemoteError, "S: its answer has no audio", 502, LATER, 3, 0),
        ("HTML", RemoteError, "S: text instead of audio: <!DOCTYPE", 502, LATER, 3, 0),
        ("JSON", RemoteError, 'S: text instead of audio: {"error"', 502, LATER, 3, 0),
        ("events that aren't JSON", RemoteError, f"{JSON} 'oops'", 502, LATER, 3, 0),
        ("events that aren't objects", RemoteError, f"{JSON} '[1, 2]'", 502, LATER, 3, 0),
        ("events of no type", RemoteError, "S: expected audio in base64", 502, LATER, 3, 0),
        ("events not in base64", RemoteError, "S: expected audio in base64", 502, LATER, 3, 0),
        ("events made to be hard to read", RemoteError, f"{JSON} '[[[", 502, LATER, 3, 0),
        ("not gzip", UnreachableError, "S: its answer is cut short", 503, LATER, 3, 0),
        ("not HTTP", RemoteError, "S: not HTTP: ", 502, LATER, 3, 0),
        ("a huge header", RemoteError, "S: not HTTP: Got more than 8190", 502, LATER, 3, 0),
    ],
)
async def test_a_fault_is_told_by_its_kind_and_asked_about_again_only_before_the_first_audio(
    fault: str,
    kind: type[TTSError],
    says: str,
    code: int,
    retryable: bool,
    requests: int,
    audio: int,
) -> None:
    pcm = bytearray()
    patience = SOON if fault in SILENT else 5.0
    async with broken(FAULTS[fault], patience=patience) as (engine, server):
        with pytest.raises(TTSError) as caught:
            await heard(engine, pcm)
        assert server.asked == requests
    error = caught.value
    assert type(error) is kind
    assert str(error).startswith(says)
    assert str(error).count("S: ") == says.count("S: ")
    assert "\n" not in str(error)
    assert len(str(error)) < 450
    assert error.status_code == code
    assert error.retryable is retryable
    assert error.permanent is (fault == "an unknown voice" or code == 401)
    assert bytes(pcm) == PCM[:audio]


def test_every_fault_is_in_the_table() -> None:
    table = test_a_fault_is_told_by_its_kind_and_asked_about_again_only_before_the_first_audio
    assert {row[0] for row in vars(table)["pytestmark"][0].args[1]} | {"slow drip"} == FAULTS.keys()


@pytest.mark.parametrize("name", PLAYED)
async def test_what_is_only_odd_is_played_and_so_is_what_comes_after_it(name: str) -> None:
    async with broken(in_turn(PLAYED[name], speaks)) as (engine, server):
        assert await heard(engine) == PCM
        assert server.asked == 1
        await server.answered()  # what stands behind the audio is there before the next request
        assert await heard(engine) == PCM
        assert server.asked == 2


async def test_what_comes_at_once_is_heard_in_pieces() -> None:
    many = (PCM * 21)[:100_000]
    async with (
        broken(sends(whole(many, "content-type: audio/pcm"))) as (engine, _),
        aclosing(engine.stream(HELLO)) as stream,
    ):
        pieces = [chunk.samples async for chunk in stream]
    assert b"".join(map(to_s16, pieces)) == many
    assert max(map(len, pieces)) <= 4096


@pytest.mark.parametrize("by", [1, 2, 7])
async def test_headers_may_come_in_pieces(by: int) -> None:
    head = whole(PCM, "content-type: audio/pcm").removesuffix(PCM)
    answer = sends(*pieces(head, by=by), PCM)
    async with broken(answer) as (engine, server):
        assert await heard(engine) == PCM
        assert server.asked == 1


# Silence


async def test_a_drip_far_slower_than_speech_is_silence() -> None:
    pcm = bytearray()
    async with broken(FAULTS["slow drip"], patience=SOON) as (engine, server):
        with pytest.raises(
            RemoteTimeoutError,
            match=r"^S: no audio for \S+ s \(idle_timeout\)$|^S: no audio within",
        ) as caught:
            await heard(engine, pcm)
        assert server.asked == 1
    assert 2 <= len(pcm) < 200
    assert isinstance(caught.value, EngineTimeoutError)


async def test_a_server_that_is_as_slow_as_speech_is_waited_for() -> None:
    async def in_real_time(line: Line, call: Call) -> None:
        line.head(content_type="audio/pcm")
        for piece in pieces(PCM * 9, by=2400):  # 50 ms
            await line.chunk(piece)
            await asyncio.sleep(0.05)
        line.end()

    async with broken(in_real_time, patience=0.7) as (engine, _):  # less than it takes in all
        assert await heard(engine) == PCM * 9


async def test_the_time_that_the_listener_takes_is_not_the_servers() -> None:
    async with broken(in_turn(sends(whole(PCM)), speaks), patience=SOON) as (engine, _):
        async with aclosing(engine.stream(HELLO)) as chunks:
            async for _chunk in chunks:
                await asyncio.sleep(2 * SOON)
        assert await heard(engine) == PCM


async def test_the_rest_of_a_body_that_came_at_once_is_not_dropped_when_patience_is_over() -> None:
    many = PCM * 100
    async with broken(sends(whole(many)), patience=SOON) as (engine, _):
        pcm = bytearray()
        async with aclosing(engine.stream(HELLO)) as chunks:
            async for chunk in chunks:
                if not pcm:
                    await asyncio.sleep(2 * SOON)
                pcm += to_s16(chunk.samples)
        assert pcm == many


# Refusals


@pytest.mark.parametrize("first", [status(500), status(503), status(429), FAULTS["JSON"]])
async def test_what_works_the_second_time_has_worked(first: Answer) -> None:
    async with broken(in_turn(first, speaks)) as (engine, server):
        assert await heard(engine) == PCM
        assert server.asked == 2


@pytest.mark.parametrize(
    ("code", "body", "says"),
    [
        (404, b"404 Not Found", "S: 404: Not Found"),
        (404, b"404: Not Found", "S: 404: Not Found"),
        (404, b"404", "S: 404: Not Found"),
        (405, b"no such method", "S: 405: no such method"),
    ],
)
async def test_where_nothing_is_the_address_is_told(code: int, body: bytes, says: str) -> None:
    async with broken(status(code, body, content_type="text/plain")) as (engine, server):
        asked = f"(asked for POST {server.url}/v1/audio/speech)"
        assert str(await failing(engine)) == f"{says} {asked}"
    async with broken(status(500, b"500 of them", content_type="text/plain")) as (engine, _):
        assert str(await failing(engine)) == "S: 500: of them"


async def test_it_is_asked_as_often_as_was_agreed() -> None:
    for retries in (0, 1, 5):
        async with serving(status(500)) as server:
            engine = speaking_to(server.url, retries=retries)
            assert (await failing(engine)).status_code == 500
            assert server.asked == retries + 1
            await engine.aclose()


async def test_each_pause_is_twice_as_long(pauses: list[float]) -> None:
    async with serving(status(500)) as server:
        engine = speaking_to(server.url, retries=4)
        await failing(engine)
        await engine.aclose()
    for pause, least in zip(pauses, [0.1, 0.2, 0.4, 0.8], strict=False):
        assert least <= pause <= 1.25 * least


async def test_a_connection_that_fails_is_made_anew_at_once_the_first_time(
    pauses: list[float],
) -> None:
    async with broken(FAULTS["reset before headers"]) as (engine, _):
        await failing(engine)
    assert pauses[0] == 0.0
    assert 0.1 <= pauses[1] <= 0.125


@pytest.mark.parametrize("code", [429, 503])
async def test_a_second_that_a_server_asks_for_is_waited_out(
    code: int, pauses: list[float]
) -> None:
    async with broken(in_turn(status(code, retry_after="1"), speaks)) as (engine, server):
        assert await heard(engine) == PCM
        assert server.asked == 2
    assert len(pauses) == 1
    assert 1.0 <= pauses[0] <= 1.1


async def test_a_minute_that_a_server_asks_for_is_told_to_whoever_can_wait() -> None:
    async with broken(FAULTS["429, in a minute"]) as (engine, _):
        error = await failing(engine)
    assert isinstance(error, OverloadedError)
    assert error.retry_after == 60.0
    async with broken(FAULTS["503, in a minute"]) as (engine, _):
        error = await failing(engine)
    assert isinstance(error, RemoteError)
    assert error.retry_after == 60.0


# Connections


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def test_a_server_that_is_not_there_is_unreachable(pauses: list[float]) -> None:
    engine = speaking_to(f"http://127.0.0.1:{closed_port()}")
    error = await failing(engine)
    assert type(error) is UnreachableError
    assert str(error).startswith("S: Cannot connect to host 127.0.0.1")
    assert (error.status_code, error.retryable, error.permanent) == (503, True, False)
    assert len(pauses) == 3
    await engine.aclose()


async def test_a_server_that_comes_back_is_spoken_to_again() -> None:
    port = closed_port()
    engine = speaking_to(f"http://127.0.0.1:{port}", retries=0)
    assert isinstance(await failing(engine), UnreachableError)
    for _ in range(2):  # the second time it was gone and its connection is old
        async with serving(speaks, port=port):
            assert await heard(engine) == PCM
    await engine.aclose()


async def test_an_old_connection_that_the_server_has_closed_costs_no_pause(
    pauses: list[float],
) -> None:
    async def leaves_the_old(line: Line, call: Call) -> None:
        if call.connection == 0 and server.asked > 1:
            line.close()
        else:
            await speaks(line, call)

    async with serving(leaves_the_old) as server:
        engine = speaking_to(server.url)
        assert await heard(engine) == PCM
        assert await heard(engine) == PCM
        assert [call.connection for call in server.calls] == [0, 0, 1]
        await engine.aclose()
    assert pauses == [0.0]


class Names(AbstractResolver):
    """Knows one name, once it has been told."""

    def __init__(self) -> None:
        self.port: int | None = None
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked += 1
        if self.port is None:
            raise OSError(None, "Name or service not known")
        return [
            ResolveResult(
                hostname=host, host="127.0.0.1", port=self.port, family=family, proto=0, flags=0
            )
        ]

    async def close(self) -> None:
        pass


async def test_a_name_that_nobody_knows_is_unreachable_until_somebody_does() -> None:
    names = Names()
    async with (
        serving(speaks) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=names)) as session,
    ):
        engine = speaking_to("http://speech.invalid", session=session)
        error = await failing(engine)
        assert type(error) is UnreachableError
        assert str(error).startswith("S: Cannot connect to host speech.invalid:80")
        assert str(error).endswith("[Name or service not known]")
        assert names.asked == 3
        assert (error.status_code, error.retryable, error.permanent) == (503, True, False)
        names.port = int(server.url.rpartition(":")[2])
        assert await heard(engine) == PCM


async def test_a_name_is_looked_up_anew_where_nobody_answers_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = ["127.0.0.2", "127.0.0.1"]

    async def resolve(
        _: object, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = hosts.pop(0) if hosts[1:] else hosts[0]
        return [
            ResolveResult(
                hostname=host, host=found, port=port, family=socket.AF_INET, proto=0, flags=0
            )
        ]

    monkeypatch.setattr(DefaultResolver, "resolve", resolve)
    async with serving(speaks) as server:
        engine = speaking_to(server.url.replace("127.0.0.1", "speech.invalid"))
        assert await heard(engine) == PCM
        assert hosts == ["127.0.0.1"]
        await engine.aclose()


async def test_a_certificate_that_nobody_trusts_is_unreachable_until_somebody_does(
    tmp_path: Path,
) -> None:
    tls, signed = certificate(tmp_path)
    trust = ssl.create_default_context()
    connector = aiohttp.TCPConnector(ssl=trust)
    async with (
        serving(speaks, tls=tls) as server,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        engine = speaking_to(server.url, session=session)
        error = await failing(engine)
        assert type(error) is UnreachableError
        assert "unable to get local issuer certificate" in str(error)
        assert (error.status_code, error.retryable, error.permanent) == (503, True, False)
        assert server.asked == 0
        trust.load_verify_locations(signed)
        assert await heard(engine) == PCM


async def test_tls_to_a_server_without_it_is_unreachable() -> None:
    async with serving(speaks) as server:
        engine = speaking_to(server.url.replace("http:", "https:"))
        error = await failing(engine)
        assert type(error) is UnreachableError
        assert str(error).startswith("S: Cannot connect to host 127.0.0.1")
        assert str(error).endswith(" (is it http://?)")
        assert (error.status_code, error.retryable, error.permanent) == (503, True, False)
        assert server.asked == 0
        await engine.aclose()


async def test_a_proxy_that_refuses_is_unreachable_and_named() -> None:
    async with (
        serving(status(407)) as proxy,
        aiohttp.ClientSession(proxy=proxy.url) as session,
    ):
        error = await failing(speaking_to("https://speech.invalid", session=session))
        assert type(error) is UnreachableError
        assert str(error) == "S: the proxy refuses: 407"
        assert {call.method for call in proxy.calls} == {"CONNECT"}


async def test_a_server_that_does_not_let_anybody_in_is_given_up() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(("127.0.0.1", port))
            engine = RemoteEngine(
                OpenAIDialect(), f"http://127.0.0.1:{port}", connect_timeout=SOON, name="S"
            )
            error = await failing(engine)
            await engine.aclose()
    assert type(error) is RemoteTimeoutError
    assert str(error).startswith("S: Connection timeout to host http://127.0.0.1")
    assert (error.status_code, error.retryable, error.permanent) == (504, True, False)


async def test_a_server_that_answers_too_late_disturbs_nobody() -> None:
    go = asyncio.Event()

    async def too_late(line: Line, call: Call) -> None:
        await go.wait()
        await speaks(line, call)

    async with broken(in_turn(too_late, speaks), patience=SOON) as (engine, server):
        assert isinstance(await failing(engine), RemoteTimeoutError)
        go.set()
        assert await heard(engine) == PCM
        assert [call.connection for call in server.calls] == [0, 1]


# A dialect that breaks


class Broken(OpenAIDialect):
    """Raises what no dialect should."""

    def __init__(self, error: Exception, *, late: bool = False) -> None:
        super().__init__()
        self.error = error
        self.late = late

    def read_reply(self, request: SynthesisRequest, reply: HttpReply) -> ReplyReader:
        reader = super().read_reply(request, reply)
        if not self.late:
            raise self.error

        def fail() -> None:
            raise self.error

        reader.flush = fail  # type: ignore[method-assign,assignment]
        return reader


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        KeyError("audio"),
        IndexError(3),
        TypeError("not a list"),
        AttributeError("get"),
        RecursionError("too deep"),
        OverflowError("too large"),
        ZeroDivisionError("rate"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
        AssertionError("never"),
    ],
)
async def test_what_a_dialect_stumbles_over_is_the_servers_fault_and_named(
    error: Exception, late: bool
) -> None:
    async with serving(speaks) as server:
        engine = RemoteEngine(Broken(error, late=late), server.url, retries=1, name="S")
        raised = await failing(engine)
        await engine.aclose()
        assert server.asked == (1 if late else 2)
    assert type(raised) is RemoteError
    assert raised.__cause__ is error
    assert raised.status_code == 502
    says = str(error) if isinstance(error, ValueError) else f"its answer can't be read: {error!r}"
    assert str(raised) == f"S: {says}"


async def test_a_fault_while_voices_are_listed_is_told_like_any_other() -> None:
    for answer, says in (
        (status(500), "S: 500: as you asked for"),
        (FAULTS["HTML"], "S: expected JSON, got '<!DOCTYPE html><p>Welcome to nginx!</p>'"),
        (FAULTS["left after headers"], "S: its answer is cut short"),
        (hangs, "S: no answer within 0.15 s (first_audio_timeout)"),
    ):
        async with broken(answer, patience=SOON if answer is hangs else 5.0) as (engine, _):
            with pytest.raises(RemoteError) as caught:
                await engine.voices()
            assert str(caught.value) == says


async def test_an_answer_that_drips_or_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with broken(FAULTS["slow drip"], patience=SOON) as (engine, _):
        with pytest.raises(RemoteTimeoutError):
            await engine.voices()
    monkeypatch.setattr(remote, "_ANSWER", 1000)
    async with broken(sends(whole(b" " * 1001))) as (engine, _):
        with pytest.raises(RemoteError, match="S: an answer of more than 1000 bytes"):
            await engine.voices()
    async with broken(status(500, b"x" * 1001)) as (engine, _):
        with pytest.raises(RemoteError, match="S: 500: xxx"):
            await engine.voices()
