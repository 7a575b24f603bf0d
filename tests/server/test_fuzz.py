"""Whatever a client sends, it is answered or hung up on, and nothing of it stays."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import math
import re
import sys
from collections.abc import Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Any, TypeVar

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute

from tests.server.live import Live, live, tones
from tests.server.raw import (
    BINARY,
    CLOSE,
    PING,
    TEXT,
    Reply,
    exchange,
    frame,
    handshake,
    request,
    wire,
)
from tts_plugins.server.connections import Connection
from tts_plugins.server.house import Limits

T = TypeVar("T")

SECRET = "sesame"
"""Stands in every text, and so in no line of the log."""

JSON = "content-type: application/json"
MSGPACK = "content-type: application/msgpack"
FORM = "content-type: multipart/form-data; boundary=x"

BODIES: Sequence[Mapping[str, Any]] = (
    {  # OpenAI's, VieNeu's
        "input": SECRET,
        "model": "tts-1",
        "voice": "tone",
        "instructions": "softly",
        "response_format": "pcm",
        "stream_format": "audio",
        "speed": 1.0,
        "sample_rate": 24_000,
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.5,
        "repetition_penalty": 1.0,
        "max_chars": 100,
    },
    {  # Kokoro's
        "input": SECRET,
        "model": "kokoro",
        "voice": "tone",
        "response_format": "pcm",
        "speed": 1.0,
        "lang_code": "a",
        "stream": True,
        "return_timestamps": True,
        "volume_multiplier": 1.0,
        "normalization_options": {"normalize": True},
    },
    {  # ElevenLabs'
        "text": SECRET,
        "model_id": "eleven_flash_v2_5",
        "language_code": "en",
        "voice_settings": {
            "stability": 0.5,
            "similarity_boost": 0.5,
            "style": 0.0,
            "speed": 1.0,
            "use_speaker_boost": True,
        },
        "pronunciation_dictionary_locators": [
            {"pronunciation_dictionary_id": "x", "version_id": "y"}
        ],
        "seed": 1,
        "previous_text": SECRET,
        "next_text": SECRET,
        "previous_request_ids": ["x"],
        "apply_text_normalization": "auto",
    },
    {  # Fish's
        "text": SECRET,
        "reference_id": "tone",
        "references": [],
        "format": "pcm",
        "prosody": {"speed": 1.0, "volume": 0},
        "latency": "normal",
        "streaming": True,
        "normalize": True,
        "normalize_loudness": True,
        "condition_on_previous_chunks": True,
        "sample_rate": 24_000,
        "chunk_length": 200,
        "min_chunk_length": 50,
        "max_new_tokens": 1024,
        "seed": 1,
        "mp3_bitrate": 128,
        "opus_bitrate": 32,
        "temperature": 0.7,
        "top_p": 0.7,
        "repetition_penalty": 1.2,
        "early_stop_threshold": 1.0,
    },
    {  # our own
        "text": SECRET,
        "voice": "tone",
        "model": "tone",
        "language": "en",
        "speed": 1.0,
        "previous_text": SECRET,
        "due": 0.0,
        "options": {},
    },
    {  # Piper's
        "text": SECRET,
        "voice": "tone",
        "speaker": "x",
        "speaker_id": 0,
        "length_scale": 1.0,
        "noise_scale": 0.5,
        "noise_w_scale": 0.5,
    },
    {"reference_id": "tone", "old_reference_id": "tone", "new_reference_id": "x"},
)
"""A request of each dialect, with all that it knows."""

VALUES = (
    "null", "true", "0", "-1", "7", "0.5", "1e400", "-1e400", "NaN", "-Infinity", "1" + "0" * 400,
    "9" * 5000, "1e-320", '""', '"x"', '"a\\r\\nx-evil: 1"', '"\\u0000\\u0007\\u202e"',
    '"\\ud800"', '"../../etc/passwd"', '"' + "x" * 20_000 + '"', "[]", "[null]", '["tone", 1]',
    "{}", '{"id": []}', '[{"audio": 7, "text": "x"}]', '[{"audio": "AAAA", "text": "\\ud800"}]',
)  # fmt: skip
"""JSON that may be anywhere, though hardly where it is wanted."""

NONSENSE = (
    b"", b" ", b"null", b"[]", b"7", b'"x"', b"{", b"{}", b'{"text":', b"[" * 100_000,
    b'{"a":' * 100_000, b'{"input": 1' + b"0" * 5000 + b"}", b"\xff\xfe", b"\xed\xa0\x80", b"\0",
    b'{"input": "\xff", "text": "\xff"}', b'{"text": "\xed\xa0\x80"}', b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff\xa1a", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xffabc",
    b"\xc9\xff\xff\xff\xff\x01", b"\x91" * 100_000, b"\x81\xa1a" * 50_000, b"\xc1",
    b"\x81\x90\xa1a", b"\x81\xc0\xa1a", b"\xd6\xff\0\0\0\0", b"\x81\xa4text\xd9\x02\xff\xff",
    msgpack.packb({"text": msgpack.Timestamp(0)}), msgpack.packb({1: 2, "text": SECRET}),
    msgpack.packb({"text": b"\xff", "references": [{"audio": "x"}]}),
    b"--x\r\n\r\n\r\n--x--", b"--x--", b"--x\r\ncontent-disposition: form-data\r\n\r\n\r\n--x--",
    b'--x\r\ncontent-disposition: form-data; name="name"\r\n\r\n\xff\r\n--x--\r\n',
    b'--x\r\ncontent-disposition: form-data; name="id"; filename="../x"\r\n\r\nRIFF\r\n--x--\r\n',
    b"--x\r\n" + b"a: b\r\n" * 10_000 + b"\r\n",
)  # fmt: skip
"""Bodies that aren't anybody's."""

HEADERS = (
    "content-type: ", "content-type: text/plain", "content-type: multipart/form-data",
    "content-type: multipart/form-data; boundary=" + "x" * 5000,
    "content-type: application/json; charset=nonsense", "content-type: \xff\xfe;;;=",
    "accept: " + "*/*," * 1000, "authorization: ", "authorization: Bearer", "xi-api-key: \xff\x80",
    "authorization: bearer \xe9\xa0", "origin: ", "origin: null", "origin: http://[", "host: [",
    "host: \xff", "host: a:99999999999", "x-forwarded-for: [", "x-forwarded-proto: \xff",
    "content-encoding: gzip", "model: \xff", "model: " + "x" * 5000, "traceparent: 00-x-y-z",
    "range: bytes=9-1", "expect: 200-ok", "upgrade: h2c", "connection: upgrade", "te: trailers",
    "cookie: " + "x" * 5000, "accept-encoding: \x01", "if-match: *", "x-http-method-override: X",
)  # fmt: skip

QUERIES = (
    "", "=", "&&&", "%", "%ff=%ff", "%00=%00", "a" * 8000, "&".join("abcdefgh" * 200),
    "output_format=", "output_format=pcm_99999999999", "output_format=%0d%0ax-evil:%201",
    "page_size=" + "9" * 5000 + "&page_number=" + "9" * 5000, "page_size=-1&page_number=x",
    "page_size=%D9%A1", "next_page_token=" + "9" * 5000, "search=%ed%a0%80&title=%F0", "legacy=1",
    "format=json", "model=%0d%0a", "model=" + "x" * 5000, "seed=" + "9" * 5000,
    "inactivity_timeout=nan", "inactivity_timeout=1e999", "text=", "auto_mode=x&auto_mode=true",
)  # fmt: skip

NAMES = (
    "%00", "%0d%0ax-evil:%201", "..%2f..%2fetc%2fpasswd", "%2e%2e", "..", "%5c..%5c", "%ff",
    "%ed%a0%80", "%E2%80%AE", "x" * 10_000, "%20", "%25%32%66", "%", "%zz", "{voice}", "*", "'",
    ";", "tone%00", "tone%0a", "%F0%9F%98%80",
)  # fmt: skip
"""Voices and models that there aren't, as they stand in a path."""

NOT_HTTP = (
    b"\r\n\r\n\r\nnonsense\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(500),
    b"GET\r\n\r\n", b"GET /\x00 HTTP/1.1\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0" * 1000,
    b"GET  / HTTP/1.1\r\n\r\n", b"GET http://evil HTTP/1.1\r\nhost: x\r\n\r\n",
    b"CONNECT evil:80 HTTP/1.1\r\nhost: x\r\n\r\n", b"GET / HTTP/1.1\r\n: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nx\r\n\r\n", b"GET / HTTP/1.1\r\nx : y\r\n\r\n", b"WHAT / HTTP/1.1\r\n\r\n",
    request("POST", "/v1/audio/speech", "content-length: -1"),
    request("POST", "/v1/audio/speech", "content-length: 1e3"),
    request("POST", "/v1/audio/speech", "content-length: " + "9" * 5000),
    request("POST", "/v1/audio/speech", "content-length: 1", "content-length: 2"),
    request("POST", "/v1/audio/speech", "content-length: 1", "transfer-encoding: chunked"),
    request("POST", "/v1/audio/speech", "transfer-encoding: chunked") + b"zz\r\n",
    request("POST", "/v1/audio/speech", "transfer-encoding: chunked") + b"F" * 40 + b"\r\n",
    request("GET", "/health", "x: a\r\n y: b"), request("GET", "/health", "x: \0"),
)  # fmt: skip


def doors(routes: Sequence[BaseRoute], base: str = "") -> Iterator[tuple[str, str]]:
    """All doors of an app: the method, or WS, and the path."""
    for route in routes:
        if isinstance(route, Mount):
            yield from doors(route.routes, base + route.path)
        elif isinstance(route, WebSocketRoute):
            yield "WS", base + route.path
        elif isinstance(route, Route):
            for method in sorted(route.methods or {"GET", "POST"}):
                yield method, base + route.path


def at(path: str, name: str = "tone") -> str:
    """The path with a name in the place of its parameters."""
    return re.sub(r"\{[^}]*\}", lambda _: name, path)


class Ground:
    """A server for all tests here, and the loop that it runs in."""

    def __init__(self, server: Live, runner: asyncio.Runner) -> None:
        self.server = server
        self._runner = runner
        routes = server.server.config.app.routes  # type: ignore[union-attr]
        self.doors = list(doors(routes))
        self.posts = [path for method, path in self.doors if method == "POST"]
        self.sockets = [at(path) for method, path in self.doors if method == "WS"]

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(doing)

    def ask(self, *parts: bytes, **options: Any) -> Reply | None:
        """Send something to the server, and get an answer that may be given."""
        reply = self.run(exchange(self.server.port, *parts, **options))
        if reply is not None:
            check(reply)
        return reply

    def post(self, path: str, *headers: str, body: bytes) -> int:
        reply = self.ask(request("POST", path, *headers, body=body))
        assert reply is not None
        return reply.status

    def talk(self, path: str, *frames: bytes, seconds: float = 3.0) -> None:
        """Say something on a WebSocket, and goodbye; it has to be at an end in time."""
        self.run(self._talk(path, frames, seconds))

    async def _talk(self, path: str, frames: Sequence[bytes], seconds: float) -> None:
        async with asyncio.timeout(seconds), wire(self.server.port) as line:
            await line.send(handshake(path))
            reply = await line.reply()
            assert reply is not None
            assert reply.status == 101
            for each in frames:
                await line.send(each)
            await line.send(frame(CLOSE, b"\x03\xe8"))
            await line.frames()

    def speaks(self) -> None:
        """A good request is answered as ever, and nothing of earlier ones is left."""
        asked = {"input": "Hi.", "voice": "tone", "response_format": "pcm"}
        reply = self.ask(request("POST", "/v1/audio/speech", JSON, body=json.dumps(asked).encode()))
        assert reply is not None
        assert (reply.status, len(reply.body)) == (200, 2 * 24 * 60 * 3)
        self.run(self._settle())

    async def _settle(self) -> None:
        admission, state = self.server.house.admission, self.server.server.server_state
        await self.server.until(lambda: not (state.connections or state.tasks))
        assert (admission.active, admission.waiting) == (0, 0)
        # The server's own, that of its tick, and this one.
        await self.server.until(lambda: len(asyncio.all_tasks()) <= 3)


def check(reply: Reply) -> None:
    """A failure is the client's, and says so where its kind of client looks."""
    assert "x-evil" not in reply.headers
    assert reply.status < 500 or reply.status in (501, 503), reply.body
    kind = reply.headers.get("content-type", "")
    if reply.status < 400:
        return
    if kind.startswith("text/plain"):
        assert reply.headers["content-length"] != "0"  # of a HEAD there is no body
    elif "msgpack" in kind:
        assert msgpack.unpackb(reply.body)["message"]
    elif reply.body:
        assert isinstance(reply.json, dict)


@pytest.fixture(scope="module")
def ground() -> Generator[Ground, None, None]:
    # The tone never fails: whatever does is the server.
    limits = Limits(body_seconds=0.5, send_seconds=1.0)
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "head_seconds", 0.5)
        engine = tones(max_ahead=math.inf)
        stack = AsyncExitStack()
        server = runner.run(stack.enter_async_context(live(engine, limits=limits)))
        yield Ground(server, runner)
        runner.run(stack.aclose())
        runner.run(engine.aclose())


@pytest.fixture(autouse=True)
def _laws(ground: Ground, caplog: pytest.LogCaptureFixture) -> Generator[None, None, None]:
    caplog.set_level(logging.INFO)
    yield
    for record in caplog.records:
        assert record.levelno < logging.ERROR, record.getMessage()
        assert SECRET not in record.getMessage()
    ground.speaks()


quick = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def places(value: Any, base: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield (*base, name)
        yield from places(inner, (*base, name))


def written(body: Mapping[str, Any], place: tuple[str, ...], value: str) -> bytes:
    """The body in JSON, with something else at one place."""
    if not place:
        return value.encode()
    inner = {
        name: written(each if isinstance(each, dict) else {}, place[1:], value)
        if name == place[0]
        else json.dumps(each).encode()
        for name, each in body.items()
    }
    return b"{" + b",".join(b'"%s":%s' % (n.encode(), v) for n, v in inner.items()) + b"}"


def test_every_field_of_every_dialect_may_be_anything(ground: Ground) -> None:
    for body in BODIES:
        whole = json.dumps(body).encode()
        paths = [at(path) for path in ground.posts]
        mine = itertools.cycle([p for p in paths if ground.post(p, JSON, body=whole) == 200])
        for number, place in enumerate(places(body)):
            for value in VALUES[number % 3 :: 3]:
                ground.post(next(mine), JSON, body=written(body, place, value))


def test_there_is_a_good_request_for_every_door_that_speaks(ground: Ground) -> None:
    spoken = {
        path
        for path in ground.posts
        for body in BODIES
        if ground.post(at(path), JSON, body=json.dumps(body).encode()) == 200
    }
    forms = {path for path in ground.posts if ground.post(at(path), FORM, body=b"") == 400}
    assert set(ground.posts) - spoken - forms <= {"/v1/references/update"}


def test_a_body_may_be_nonsense(ground: Ground) -> None:
    for method, path in ground.doors:
        if method not in ("WS", "HEAD"):
            for body, kind in zip(NONSENSE, itertools.cycle((JSON, MSGPACK, FORM)), strict=False):
                reply = ground.ask(request(method, at(path), kind, body=body))
                assert reply is not None


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
any_field = st.sampled_from(sorted({name for body in BODIES for name in body}))
any_fields = st.dictionaries(any_field, any_json, max_size=4)


@quick
@given(data=st.data())
def test_fields_may_be_anything_that_json_and_msgpack_can_say(
    ground: Ground, data: st.DataObject
) -> None:
    path = at(data.draw(st.sampled_from(ground.posts)))
    fields = dict(data.draw(st.sampled_from(BODIES))) | data.draw(any_fields)
    ground.post(path, JSON, body=json.dumps(fields).encode())
    try:
        packed = msgpack.packb(fields, unicode_errors="surrogatepass")
    except OverflowError:
        return
    ground.post(path, MSGPACK, body=packed)


@quick
@given(data=st.data())
def test_bytes_on_the_way_may_be_anything(ground: Ground, data: st.DataObject) -> None:
    path = at(data.draw(st.sampled_from(ground.posts)))
    body = json.dumps(data.draw(st.sampled_from(BODIES))).encode()
    whole = request("POST", path, JSON, body=body)
    place = data.draw(st.integers(0, len(whole)))
    more = data.draw(st.binary(max_size=4))
    ground.ask(whole[:place] + more + whole[place + len(more) :], finish=True)


def test_headers_may_be_absurd(ground: Ground) -> None:
    body = json.dumps(BODIES[0]).encode()
    every = itertools.cycle([door for door in ground.doors if door[0] not in ("WS", "HEAD")])
    for header in HEADERS:
        for method, path in itertools.islice(every, 12):
            given_body = None if method == "GET" else body
            assert ground.ask(request(method, at(path), header, body=given_body)) is not None


def test_queries_and_names_may_be_absurd(ground: Ground) -> None:
    every = [door for door in ground.doors if door[0] not in ("WS", "HEAD")]
    for (method, path), query in zip(every, itertools.cycle(QUERIES), strict=False):
        body = None if method == "GET" else b"{}"
        ground.ask(request(method, f"{at(path)}?{query}", JSON, body=body))
    for query in QUERIES:
        for path in ("/model", "/v2/voices", "/v1/text-to-speech/tone", *ground.sockets):
            ground.ask(request("GET", f"{path}?{query}"))
            ground.ask(request("POST", f"{path}?{query}", JSON, body=b'{"text": "Hi."}'))
            ground.ask(handshake(f"{path}?{query}"))
    for (method, path), name in itertools.product(every, NAMES):
        if "{" in path:
            body = None if method == "GET" else b'{"text": "Hi."}'
            ground.ask(request(method, at(path, name), JSON, body=body))
    for (method, path), name in itertools.product(ground.doors, NAMES):
        if method == "WS" and "{" in path:
            ground.ask(handshake(at(path, name)))


def test_a_name_brings_no_header_of_its_own(ground: Ground) -> None:
    evil = "x\r\nx-evil: 1"
    for body in BODIES:
        fields = {**body, "voice": evil, "model": evil, "model_id": evil, "reference_id": evil}
        for path in ground.posts:
            ground.post(at(path), JSON, body=json.dumps(fields).encode())
            ground.post(at(path, "x%0d%0ax-evil:%201"), JSON, body=json.dumps(body).encode())


def test_methods_that_arent_meant_are_told_which_are(ground: Ground) -> None:
    for path in dict.fromkeys(at(path) for method, path in ground.doors if method != "WS"):
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
            body = None if method in ("GET", "HEAD") else b"{}"
            asked = request(method, path, JSON, body=body)
            reply = ground.ask(asked, head=method == "HEAD")
            assert reply is not None
            if reply.status == 405:
                assert reply.headers["allow"]


def test_what_is_hardly_http_is_refused(ground: Ground) -> None:
    for data in NOT_HTTP:
        reply = ground.ask(data)
        assert reply is None or reply.status in (200, 400, 408), data[:100]


@pytest.mark.parametrize("size", [400_000, 10_000_000])
def test_a_head_of_any_size_is_refused(ground: Ground, size: int) -> None:
    for data in (
        request("GET", "/health", "x: " + "y" * size),
        request("GET", "/health", *["x: " + "y" * 1000] * (size // 1000)),
        request("GET", "/health?" + "y" * size),
    ):
        reply = ground.ask(data)
        assert reply is None or reply.status in (400, 431)


def test_ten_megabytes_are_refused_and_the_reason_arrives(ground: Ground) -> None:
    texts = {"input": "a " * 5_000_000, "text": "a " * 5_000_000}
    body = json.dumps(texts).encode()

    async def post(path: str) -> Reply | None:
        async with asyncio.timeout(5), wire(ground.server.port) as line:
            # As httpx does it: nothing is read before all is sent.
            await line.send(request("POST", path, JSON, body=body))
            return await line.reply()

    for path in ground.posts:
        reply = ground.run(post(at(path)))
        assert reply is not None, path
        assert reply.status in (200, 400, 413, 415), path


def test_what_is_never_finished_is_given_up(ground: Ground) -> None:
    whole = request("POST", "/v1/audio/speech", JSON, body=b"{" + b" " * 100)
    heads = [whole[:end] for end in (0, 2, 5, 20, 30, 60)]
    chunked = request("POST", "/v1/audio/speech", JSON, "transfer-encoding: chunked")
    awaited = ("expect: 100-continue", "content-length: 9")
    bodies = [
        whole[:-20],
        chunked,
        chunked + b"5\r\nab",
        chunked + b"1\r\n \r\n" * 10,
        request("POST", "/v1/audio/speech", JSON, *awaited),
    ]

    async def all_of(finish: bool) -> list[Reply | None]:
        asking = (exchange(ground.server.port, d, finish=finish) for d in heads + bodies)
        async with asyncio.timeout(2.5):
            return await asyncio.gather(*asking)

    replies = ground.run(all_of(finish=False))
    assert [reply.status for reply in replies if reply] == [408] * 11
    assert ground.run(all_of(finish=True)) == [None] * 11


def test_an_empty_line_doesnt_hold_a_connection(ground: Ground) -> None:
    async def twice() -> None:
        async with asyncio.timeout(3), wire(ground.server.port) as line:
            await line.send(request("GET", "/health"))
            assert await line.reply()
            await line.send(b"\r\n")
            late = await line.reply()
            assert late is not None
            assert late.status == 408

    ground.run(twice())


def test_the_rest_of_a_body_behind_its_answer_doesnt_hold_a_connection(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ground.server.server.config, "timeout_keep_alive", 0.5)

    async def ask(rest: bytes) -> bytes:
        async with asyncio.timeout(3), wire(ground.server.port) as line:
            await line.send(request("GET", "/health", "content-length: 10"))
            assert await line.reply()
            await line.send(rest)
            if rest[10:]:
                assert await line.reply()
            return await line.some()

    assert ground.run(ask(b"x")) == b""
    assert ground.run(ask(b"x" * 10)) == b""
    assert ground.run(ask(b"x" * 10 + request("GET", "/health"))) == b""


def test_a_body_that_drips_is_given_up(ground: Ground) -> None:
    async def drip() -> Reply | None:
        async with asyncio.timeout(3), wire(ground.server.port) as line:
            await line.send(request("POST", "/v1/audio/speech", JSON, "content-length: 1000"))
            answer = asyncio.create_task(line.reply())
            while not answer.done():
                await line.send(b" ")
                await asyncio.sleep(0.02)
            return answer.result()

    reply = ground.run(drip())
    assert reply is not None
    assert reply.status == 408


def test_requests_may_come_before_the_answers(ground: Ground) -> None:
    asked = request("POST", "/v1/audio/speech", JSON, body=json.dumps(BODIES[0]).encode())

    async def ask(data: bytes, answers: int) -> list[int]:
        async with asyncio.timeout(5), wire(ground.server.port) as line:
            await line.send(data)
            replies = [await line.reply() for _ in range(answers)]
            return [reply.status for reply in replies if reply]

    assert ground.run(ask((asked + request("GET", "/health")) * 5, 10)) == [200] * 10
    # As many as one likes would fill memory with them.
    assert len(ground.run(ask(asked + request("GET", "/health") * 5000, 5001))) < 50


def test_a_handshake_may_be_wrong(ground: Ground) -> None:
    # From these versions on it is told what was wrong with it.
    tells = Version(version("uvicorn")) >= Version("0.55") and Version(
        version("websockets")
    ) >= Version("17")
    too_large = 431 if tells else 400
    for path in ground.sockets:
        good = handshake(path)
        for bad, status in (
            (good.replace(b"sec-websocket-key", b"x"), 400),
            (good.replace(b"websocket-key: ", b"websocket-key: x"), 400),
            (good.replace(b"version: 13", b"version: 99"), 400),
            (good.replace(b"upgrade: websocket", b"upgrade: x"), 404),
            (good.replace(b"GET", b"POST", 1), 405),
            (handshake(path, "content-length: 3") + b"abc", 400),
            (handshake(path, "transfer-encoding: chunked") + b"0\r\n\r\n", 400),
            (handshake(path, "cookie: " + "x" * 9000), too_large),
            (handshake(path, *["x: y"] * 200), too_large),
            (handshake(path, "origin: http://evil"), 403),
            (handshake(path + "/x"), 404),
            (request("GET", path), 404),
        ):
            reply = ground.ask(bad)
            assert reply is not None
            assert reply.status == status, bad[:300]


def test_messages_may_be_nonsense(ground: Ground) -> None:
    for path in ground.sockets:
        for body in NONSENSE:
            ground.talk(path, frame(BINARY, body))
            ground.talk(path, frame(TEXT, body))
        for odd in (
            [frame(PING, b"x" * 125)] * 100,
            [frame(PING, b"x" * 126)],
            [frame(TEXT, b"{", fin=False), frame(0, b"}", fin=False), frame(0, b"")],
            [frame(0, b"{}")],
            [frame(TEXT, b"{", fin=False)] * 3,
            [frame(TEXT, b"", fin=False), *[frame(0, b"", fin=False)] * 1000],
            [frame(3, b"x")],
            [frame(TEXT, b"{}", masked=False)],
            [frame(TEXT, b"{}")[:-1]],
            [b"\x81\xff" + b"\xff" * 8],
            [frame(TEXT, b" " * 2_000_000)],
            [frame(CLOSE, b"\x00")],
            [frame(CLOSE, b"\xff\xff" + b"\xff" * 100)],
            [b"nonsense" * 100],
        ):
            ground.talk(path, *odd)


EVENTS: Sequence[dict[str, Any]] = (
    {"text": " ", "voice_settings": {"speed": 1.0}, "context_id": "a"},
    {"text": SECRET, "flush": True, "context_id": "a"},
    {"text": SECRET, "close_context": True, "contextId": "b", "close_socket": False},
    {"event": "start", "request": dict(BODIES[3])},
    {"event": "text", "text": SECRET},
    {"event": "flush"},
    {"event": "stop"},
)  # fmt: skip


def test_every_field_of_every_message_may_be_anything(ground: Ground) -> None:
    values = itertools.cycle(VALUES)
    for path in ground.sockets:
        for event in EVENTS:
            for place in places(event):
                # What closes the socket hides what comes after it, and so each begins one.
                for value in itertools.islice(values, 3):
                    ground.talk(path, frame(TEXT, written(event, place, value)))


@quick
@given(data=st.data())
def test_messages_may_be_anything_that_json_and_msgpack_can_say(
    ground: Ground, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(ground.sockets))
    events = data.draw(st.lists(st.sampled_from(EVENTS), max_size=4))
    events = [event | data.draw(any_fields) for event in events]
    if data.draw(st.booleans()):
        messages = [frame(TEXT, json.dumps(event).encode()) for event in events]
    else:
        try:
            packed = [msgpack.packb(e, unicode_errors="surrogatepass") for e in events]
        except OverflowError:
            return
        messages = [frame(BINARY, each) for each in packed]
    ground.talk(path, *messages)


def test_a_thousand_bad_requests_leave_nothing_behind(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = [written(body, place, value) for body in BODIES for place in places(body)
              for value in ("NaN", '"\\ud800"', "[null]")]  # fmt: skip
    paths = itertools.cycle(at(path) for path in ground.posts)
    asked = [request("POST", next(paths), JSON, body=body) for body in bodies]
    bad = itertools.cycle([*asked, *NOT_HTTP, *(data[:-5] for data in asked[::7])])

    def blocks(count: int) -> int:
        """Of memory that are in use after so many of them."""
        for data in itertools.islice(bad, count):
            ground.ask(data, finish=True)
        ground.speaks()
        gc.collect()
        return sys.getallocatedblocks()

    caplog.set_level(logging.ERROR)  # what is captured stays in memory
    blocks(300)
    before = blocks(300)
    assert blocks(1000) - before < 2000
