from __future__ import annotations

import ctypes
import socket
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.dialects.openai_server import audio, s16, speaking
from tests.hearing import pitch
from tests.servers import Call, Line, by_path, certificate, serving
from tts_plugins.errors import (
    EngineNotFoundError,
    InvalidRequestError,
    OverloadedError,
    RemoteError,
)
from tts_plugins.fallback import FallbackEngine
from tts_plugins.registry import check_spec, dialect_names, engine_names, open_engine
from tts_plugins.remote import RemoteEngine
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import AudioChunk, SynthesisRequest


async def test_an_engine_opens_by_name_with_its_own_and_the_schedulers_options() -> None:
    engine = open_engine("tone", frequency=220, workers=2, max_streams=7)
    assert isinstance(engine, Scheduler)
    async with aclosing(engine.stream(SynthesisRequest("Hello"))) as chunks:
        assert [len(chunk.samples) async for chunk in chunks] == [7200]
    await engine.aclose()


async def test_options_may_stand_behind_the_name() -> None:
    engine = open_engine("tone?frequency=220&sample_rate=8000&max_streams=1")
    async with aclosing(engine.stream(SynthesisRequest("Hello"))) as chunks:
        first = await anext(chunks)
        assert (len(first.samples), first.sample_rate) == (2400, 8000)
        assert round(pitch(first.samples, 8000)) == 220
        with pytest.raises(OverloadedError):
            await anext(engine.stream(SynthesisRequest("Hello")))
    await engine.aclose()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tone?pitch=3", "options: frequency, sample_rate"),
        ("tone?frequency=high", "frequency=high is not a value for it"),
        ("tone?sample_rate=8e3", "sample_rate=8e3 is not a value for it"),
    ],
)
def test_an_option_behind_the_name_is_checked(spec: str, message: str) -> None:
    check_spec(spec)
    with pytest.raises(InvalidRequestError, match=message):
        open_engine(spec)


async def test_a_fallback_may_have_engines_with_options() -> None:
    engine = open_engine("fallback:tone?frequency=220,tone?sample_rate=16000")
    async with aclosing(engine.stream(SynthesisRequest("Hello"))) as chunks:
        assert round(pitch((await anext(chunks)).samples, 24_000)) == 220
    await engine.aclose()


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        EngineNotFoundError,
        match=r"no engine 'hibary'; available: hibari, kokoro, piper, pocket, tone, vieneu",
    ):
        open_engine("hibary")


def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError, match=r"'pitch'.*options: frequency, sample_rate"):
        open_engine("tone", pitch=3)


def test_our_engines_are_there() -> None:
    assert {"hibari", "tone"} <= set(engine_names())


def test_importing_the_package_costs_no_framework_and_no_model() -> None:
    heavy = (
        "aiohttp msgpack av livekit pipecat scipy onnx onnxruntime hibari soxr sentencex typer rich"
    )
    program = f"import sys, tts_plugins; print([m for m in {heavy.split()!r} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


@pytest.mark.skipif(not hasattr(ctypes.pythonapi, "malloc_trim"), reason="glibc has it")
def test_a_model_that_is_loaded_leaves_nothing_of_its_loading_in_memory() -> None:
    # hibari's 50 MB would be there still.
    program = (
        "import ctypes, os, pathlib\n"
        "from tts_plugins import open_engine\n"
        "def megabytes():\n"
        "    pages = int(pathlib.Path('/proc/self/statm').read_text().split()[1])\n"
        "    return pages * os.sysconf('SC_PAGE_SIZE') / 1e6\n"
        "engine = open_engine('hibari')\n"
        "before = megabytes()\n"
        "ctypes.CDLL(None).malloc_trim(0)\n"
        "print(before - megabytes() < 20)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "True"


# Servers

ADDRESS = "openai+http://localhost:8880"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("MY_KEY", raising=False)


async def hear(spec: str, **options: Any) -> tuple[list[AudioChunk], Call]:
    """What an engine speaks, and the one call it made."""
    async with speaking(audio(s16(48_000), "audio/pcm")) as server:
        engine = open_engine(spec.replace("HOST", server.url), **options)
        async with aclosing(engine.stream(SynthesisRequest("Hello."))) as chunks:
            heard = [chunk async for chunk in chunks]
        await engine.aclose()
    [call] = server.calls
    return heard, call


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_an_address_names_dialect_server_and_options(path: str) -> None:
    query = "?model=x&voice=Mai%20Anh&sample_rate=48000&instructions=be+calm&extra=%7B%22a%22:1%7D"
    chunks, call = await hear(f"openai+HOST{path}{query}")
    assert sum(len(chunk.samples) for chunk in chunks) == 48_000
    assert {chunk.sample_rate for chunk in chunks} == {48_000}
    assert call.path == "/v1/audio/speech"
    assert call.json == {
        "model": "x",
        "input": "Hello.",
        "voice": "Mai Anh",
        "instructions": "be+calm",
        "response_format": "pcm",
        "a": 1,
    }


async def test_a_blend_of_voices_keeps_its_plus_in_an_address() -> None:
    _, call = await hear("kokoro+HOST?voice=af_bella(2)+af_sky&captions=false&sample_rate=48000")
    assert call.json["voice"] == "af_bella(2)+af_sky"
    assert call.path == "/v1/audio/speech"


async def test_an_option_given_as_such_goes_before_the_address() -> None:
    _, call = await hear("openai+HOST?model=x&voice=y", model="z", sample_rate=48_000)
    assert (call.json["model"], call.json["voice"]) == ("z", "y")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "pitch=3",
            r"openai\+: got an unexpected keyword argument 'pitch'; options: model, .*retr",
        ),
        ("dialect=3", r"unexpected keyword argument 'dialect'"),
        ("url=3", r"unexpected keyword argument 'url'"),
        ("sample_rate=high", r"sample_rate=high is not a value for it"),
        ("sample_rate=1.5", r"sample_rate=1\.5 is not a value for it"),
        ("sample_rate=", r"sample_rate= is not a value for it"),
        ("sample_rate=7", r"sample_rate 7 is not a number of hertz"),
        ("retries=x", r"retries=x is not a value for it"),
        ("extra=7", r"extra=7 is not a value for it"),
        ("session=7", r"session=7 is not a value for it"),
        ("idle_timeout=[]", r"idle_timeout=\[\] is not a value for it"),
        ("model", r"model= is not a value for it"),
        ("voice=", r"voice= is not a value for it"),
    ],
)
def test_an_option_that_can_not_be_is_refused_where_it_is_written(query: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        open_engine(f"{ADDRESS}?{query}")


@pytest.mark.parametrize("query", ["idle_timeout=3", "max_in_flight=null", "per_second=2.5"])
def test_a_number_may_be_whole_or_none(query: str) -> None:
    assert isinstance(open_engine(f"{ADDRESS}?{query}"), RemoteEngine)


@pytest.mark.parametrize(
    "address",
    ["openai+http://", "openai+ftp://x", "openai+http://[::1", "openai+unix://relative"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"address|is not http://, https:// or unix:///"):
        open_engine(address)


def test_an_unknown_dialect_is_answered_with_the_known_ones() -> None:
    with pytest.raises(EngineNotFoundError, match=r"no engine 'opnai'; available: .*openai"):
        open_engine("opnai+http://localhost:8880")


# Servers of ours

LINE = b'{"sample_rate": 24000, "audio": "AAAAAA=="}\n'


async def speak(line: Line, call: Call) -> None:
    line.body(200, LINE, content_type="application/x-ndjson")


@pytest.mark.parametrize("spec", ["ADDRESS?model=tone", "native+ADDRESS?model=tone"])
async def test_an_address_without_a_dialect_is_a_server_of_ours(spec: str) -> None:
    async with serving(by_path({"POST /api/speech": speak})) as server:
        engine = open_engine(spec.replace("ADDRESS", server.url), voice="a+b")
        async with aclosing(engine.stream(SynthesisRequest("Hello."))) as chunks:
            assert [len(chunk.samples) async for chunk in chunks] == [2]
        await engine.aclose()
    assert server.calls[0].json == {"text": "Hello.", "voice": "a+b", "model": "tone"}


async def test_a_server_of_ours_may_listen_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "tts.sock"
    async with serving(by_path({"POST /api/speech": speak}), path=path) as server:
        assert server.url == f"unix://{path}"
        engine = open_engine(f"{server.url}?voice=a+b")
        async with aclosing(engine.stream(SynthesisRequest("Hello."))) as chunks:
            assert [len(chunk.samples) async for chunk in chunks] == [2]
        await engine.aclose()
    assert server.calls[0].json == {"text": "Hello.", "voice": "a+b"}


@pytest.mark.parametrize(
    "spec",
    [
        "http://127.0.0.1:8080",
        "https://tts.example/speech/v1",
        "unix:///run/tts.sock?voice=a+b",
        "fallback: http://127.0.0.1:8080?model=tone , unix:///run/tts.sock, tone",
    ],
)
def test_an_address_of_ours_is_known_without_asking_there(spec: str) -> None:
    check_spec(spec)


def test_a_server_of_ours_is_called_by_the_address_as_it_was_written() -> None:
    assert repr(open_engine("http://localhost:8080?model=x")) == (
        "RemoteEngine('http://localhost:8080')"
    )


async def test_another_server_is_answered_with_the_dialects() -> None:
    async with serving(by_path({})) as server:
        engine = open_engine(server.url)
        with pytest.raises(RemoteError) as raised:
            async with aclosing(engine.stream(SynthesisRequest("Hello."))) as chunks:
                await anext(chunks)
        await engine.aclose()
    assert str(raised.value) == (
        f"{server.url}: 404: no server of ours; say in which dialect, in front of the address: "
        f"{', '.join(f'{name}+' for name in dialect_names())}"
        f" (asked for POST {server.url}/api/speech)"
    )
    assert {"elevenlabs", "native", "openai"} <= set(dialect_names())


# Fallbacks and slips


def members(engine: object) -> list[object]:
    assert isinstance(engine, FallbackEngine)
    return [member.engine for member in engine._members]


def test_a_fallback_may_be_written_with_spaces() -> None:
    first, second = members(open_engine(f"fallback: {ADDRESS} , tone "))
    assert repr(first) == f"RemoteEngine('{ADDRESS}')"
    assert isinstance(second, Scheduler)
    check_spec(f"fallback: {ADDRESS} , tone ")


async def test_a_fallback_may_be_of_servers_of_ours() -> None:
    first, second = members(open_engine("fallback:http://a:1?model=x,unix:///run/b.sock"))
    assert [repr(each) for each in (first, second)] == [
        "RemoteEngine('http://a:1')",
        "RemoteEngine('unix:///run/b.sock')",
    ]


@pytest.mark.parametrize("spec", ["fallback:", "fallback: ", "fallback:tone,", "fallback:,tone"])
def test_a_fallback_that_lacks_an_engine_says_so(spec: str) -> None:
    for look in (open_engine, check_spec):
        with pytest.raises(InvalidRequestError) as raised:
            look(spec)
        assert str(raised.value) == f"{spec!r}: say which engines, with commas between them"


async def test_the_schedulers_options_are_for_members_in_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[dict[str, Any]] = []

    class Noting(Scheduler):
        def __init__(self, engine: Any, **options: Any) -> None:
            made.append(options)
            super().__init__(engine, **options)

    monkeypatch.setattr("tts_plugins.registry.Scheduler", Noting)
    engine = open_engine(f"fallback:{ADDRESS},tone", workers=2, max_streams=1, max_ahead=3.0)
    assert isinstance(members(engine)[0], RemoteEngine)
    assert made == [{"workers": 2, "max_streams": 1, "max_ahead": 3.0}]
    await engine.aclose()


@pytest.mark.parametrize("option", ["workers", "max_streams"])
def test_the_schedulers_options_are_none_for_a_server_which_has_its_own(option: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'{option}'; options: .*max_in_flight"):
        open_engine(ADDRESS, **{option: 1})
    assert isinstance(open_engine(ADDRESS, max_ahead=3.0), RemoteEngine)


def test_what_only_our_own_code_sets_is_not_listed_as_an_option() -> None:
    for spec in (ADDRESS, "tone", "fallback:tone"):
        with pytest.raises(InvalidRequestError, match=r"'pitch'; options: ") as raised:
            open_engine(spec, pitch=3)
        listed = str(raised.value).partition("options: ")[2].split(", ")
        assert not {"clock", "engine", "engines", "name", "dialect", "url"} & {*listed}
        assert len(listed) > 1


def test_a_dialect_may_be_written_in_capitals() -> None:
    assert repr(open_engine("OpenAI+http://localhost:8880")) == f"RemoteEngine('{ADDRESS}')"


@pytest.mark.parametrize("spec", ["openai+localhost:8880", "localhost:8080", "unix:/run/a.sock"])
def test_an_address_without_a_scheme_is_answered_with_the_schemes(spec: str) -> None:
    for look in (open_engine, check_spec):
        with pytest.raises(InvalidRequestError) as raised:
            look(spec)
        assert str(raised.value) == f"{spec!r} lacks a scheme: http://, https:// or unix:///"


# Keys


@pytest.mark.parametrize(
    "address",
    [
        f"{ADDRESS}?api_key=SECRET",
        f"{ADDRESS}?API_KEY=SECRET",
        f"{ADDRESS}?token=SECRET",
        f"{ADDRESS}#SECRET",
        "openai+http://SECRET@localhost:8880",
        "openai+http://user:SECRET@localhost:8880",
        "openai+http://:SECRET@localhost:8880",
        "openai+https://SECRET@api.openai.com?model=x",
        "http://user:SECRET@localhost:8880",
        "http://localhost:8880?api_key=SECRET",
        "https://localhost:8880?token=SECRET",
    ],
)
def test_a_key_in_an_address_is_refused_and_not_repeated(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    with pytest.raises(InvalidRequestError) as raised:
        open_engine(address)
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize("key", ["SEC\nRET", "SECRÉT", "SEC\0RET"])
def test_a_key_that_can_not_be_one_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        open_engine(ADDRESS, api_key=key)
    assert "SEC" not in str(raised.value)


async def test_a_key_is_sent_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    _, call = await hear("openai+HOST", api_key="sk-1 \n")
    assert call.headers["authorization"] == "Bearer sk-1"
    monkeypatch.setenv("MY_KEY", "sk-2")
    _, call = await hear("openai+HOST?api_key_env=MY_KEY")
    assert call.headers["authorization"] == "Bearer sk-2"
    _, call = await hear("openai+HOST?api_key_env=MY_KEY", api_key="sk-1")
    assert call.headers["authorization"] == "Bearer sk-1"


async def test_a_vendors_key_goes_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    _, call = await hear("openai+HOST")
    assert "authorization" not in call.headers
    assert "sk-env" not in repr(call)


@pytest.mark.parametrize(
    ("host", "sent"),
    [
        ("https://api.openai.com", "Bearer sk-env"),
        ("https://API.OpenAI.com", "Bearer sk-env"),
        ("http://api.openai.com", None),
        ("https://api.openai.com.example", None),
        ("https://notapi.openai.com", None),
    ],
)
async def test_a_vendors_key_goes_to_the_vendor_and_never_in_the_clear(
    host: str, sent: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    tls = certificate(tmp_path)[0] if host.startswith("https") else None
    answer = by_path({"/v1/audio/speech": audio(s16(), "audio/pcm").answer})
    async with serving(answer, tls=tls) as server:
        port = urlsplit(server.url).port
        connector = aiohttp.TCPConnector(resolver=Loopback(), ssl=False)
        async with aiohttp.ClientSession(connector=connector) as session:
            engine = open_engine(f"openai+{host}:{port}", session=session)
            async with aclosing(engine.stream(SynthesisRequest("Hello."))) as chunks:
                assert [chunk async for chunk in chunks]
            await engine.aclose()
    assert server.calls[0].headers.get("authorization") == sent


class Loopback(AbstractResolver):
    """Takes every name for this machine's."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        where = ResolveResult(
            hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0
        )
        return [where]

    async def close(self) -> None:
        pass


def test_a_vendor_without_a_key_is_refused_before_it_is_asked() -> None:
    said = "there is no key: set OPENAI_API_KEY, or pass api_key="
    for address in ("openai+https://api.openai.com", "openai+https://api.openai.com/v1?voice=ash"):
        with pytest.raises(InvalidRequestError) as raised:
            open_engine(address)
        assert str(raised.value) == said
        with pytest.raises(InvalidRequestError):
            check_spec(address)
    with pytest.raises(InvalidRequestError, match="there is no key: set MY_KEY, or pass"):
        open_engine(ADDRESS, api_key_env="MY_KEY")
    check_spec(ADDRESS)
