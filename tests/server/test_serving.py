"""``tts-plugins serve`` in a process of its own, from its first line to its exit status."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import ssl
import stat
import sys
from base64 import b64decode
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from tests.server.live import live
from tts_plugins.cli import main
from tts_plugins.errors import InvalidRequestError
from tts_plugins.registry import open_engine
from tts_plugins.server.serving import config, listen, listen_unix
from tts_plugins.types import SynthesisRequest

# A child of a shell that ignores Ctrl-C, as those in the background do, would ignore it too.
_MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from tts_plugins.cli import main
main()
"""
LONG = " ".join(["word"] * 20)
"""4.8 s as a tone, and no more than 3 s of it are spoken ahead of the listener."""
KEY = "sesame-open-1"


class Command:
    """A running ``tts-plugins serve``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        """Of its standard error, so far."""
        self.url = ""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr
        async for line in self.process.stderr:
            self.lines.append(line.decode().rstrip())

    async def line(self, part: str, seconds: float = 30.0) -> str:
        """Wait for a line with this in it."""
        async with asyncio.timeout(seconds):
            while not (found := [line for line in self.lines if part in line]):
                assert not self._reading.done(), f"no {part!r} in {self.lines}"
                await asyncio.sleep(0.01)
        return found[0]

    async def end(self, *signals: int, seconds: float = 20.0) -> int:
        """The exit status, after these signals."""
        for sig in signals:
            self.process.send_signal(sig)
            await asyncio.sleep(0.2)
        async with asyncio.timeout(seconds):
            status = await self.process.wait()
            await self._reading
        return status


@asynccontextmanager
async def command(*arguments: str, **environment: str) -> AsyncGenerator[Command, None]:
    """Start it; whatever happens, it is gone at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _MAIN, "serve", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={k: v for k, v in os.environ.items() if k != "TTS_API_KEYS"} | environment,
    )
    running = Command(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await running.end()


@asynccontextmanager
async def serving(
    *arguments: str, at: Iterable[str] = ("--port", "0"), **environment: str
) -> AsyncGenerator[Command, None]:
    """The same with a tone on a free port, once it is ready."""
    async with command("--engine", "tone", *at, *arguments, **environment) as running:
        ready = await running.line("ready: ")
        running.url = ready.partition(" at ")[2].partition(";")[0]
        yield running


def said(text: str = "Hi.") -> dict[str, str]:
    return {"model": "tts-1", "input": text, "voice": "alloy", "response_format": "pcm"}


async def speech(
    client: aiohttp.ClientSession, url: str, text: str = "Hi.", **options: Any
) -> tuple[int, bytes]:
    async with client.post(f"{url}/v1/audio/speech", json=said(text), **options) as reply:
        return reply.status, await reply.read()


@asynccontextmanager
async def speaking(running: Command) -> AsyncGenerator[asyncio.Task[tuple[int, bytes]], None]:
    """A stream that has begun, and takes some time yet."""
    async with aiohttp.ClientSession() as client:
        begun = asyncio.Event()

        async def listen_() -> tuple[int, bytes]:
            url = f"{running.url}/v1/audio/speech"
            async with client.post(url, json=said(LONG)) as reply:
                body = await reply.content.readexactly(2)
                begun.set()
                return reply.status, body + await reply.content.read()

        task = asyncio.create_task(listen_())
        async with asyncio.timeout(10):
            await begun.wait()
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait({task})


async def answer(url: str, **options: Any) -> tuple[int, str | None, dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as client,
        client.request(options.pop("method", "GET"), url, **options) as reply,
    ):
        return reply.status, reply.headers.get("retry-after"), await reply.json()


async def test_it_says_where_it_is_and_writes_a_line_for_each_request() -> None:
    async with serving() as running, aiohttp.ClientSession() as client:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", running.url)
        assert running.lines == [f"ready: tone at {running.url}; no key is asked for"]
        status, body = await speech(client, running.url, "Not for the log.")
        assert (status, len(body)) == (200, 2 * 24_000 * 6 * 13 // 100)
        line = await running.line("dialect=openai")
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO id=req-\w+ dialect=", line)
        assert "characters=16 status=200 outcome=finished" in line
        assert await running.end(signal.SIGTERM) == 0
        assert len(running.lines) == 2
        assert "Not for" not in "".join(running.lines)


async def test_sigterm_lets_what_is_being_said_be_said_and_begins_nothing_new() -> None:
    async with serving() as running, speaking(running) as spoken:
        running.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(4):
            while (ready := await answer(f"{running.url}/ready"))[0] == 200:
                pass
        assert (ready[0], ready[2]["status"]) == (503, "draining")
        assert (await answer(f"{running.url}/health"))[0] == 200
        url = f"{running.url}/v1/audio/speech"
        status, retry_after, body = await answer(url, method="POST", json=said())
        assert (status, retry_after) == (503, "2")
        assert body["error"]["message"] == "the server is shutting down"
        assert not spoken.done()
        status, body_ = await spoken
        assert (status, len(body_)) == (200, 2 * 24_000 * 48 // 10)
        assert await running.end() == 0


async def test_ctrl_c_does_too_and_ends_with_130() -> None:
    async with serving() as running, speaking(running) as spoken:
        running.process.send_signal(signal.SIGINT)
        assert len((await spoken)[1]) == 2 * 24_000 * 48 // 10
        assert await running.end() == 130
        assert len(running.lines) == 2


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        ((signal.SIGTERM, signal.SIGTERM), 0),
        ((signal.SIGINT, signal.SIGINT), 130),
        ((signal.SIGTERM, signal.SIGINT), 130),
    ],
)
async def test_a_second_signal_ends_it_at_once(signals: tuple[int, int], expected: int) -> None:
    async with serving() as running, speaking(running) as spoken:
        assert await running.end(*signals, seconds=1.5) == expected
        with pytest.raises(aiohttp.ClientPayloadError):
            await spoken
        assert "outcome=cancelled" in running.lines[-1]
        assert len(running.lines) == 2


async def test_no_longer_than_the_grace() -> None:
    async with serving("--grace", "0.2") as running, speaking(running) as spoken:
        assert await running.end(signal.SIGTERM, seconds=1.5) == 0
        with pytest.raises(aiohttp.ClientPayloadError):
            await spoken
        assert "cutting off what still speaks after 0.2 s" in running.lines[1]


async def test_a_socket_that_speaks_is_heard_to_the_end_and_one_that_waits_is_closed() -> None:
    async with live() as server:
        house = server.house

        async def door(websocket: WebSocket) -> None:
            await websocket.accept()
            text = await websocket.receive_text()
            with house.enter("test", {}) as visit:
                async with aclosing(
                    house.engines.find(None).engine.stream(SynthesisRequest(text))
                ) as s:
                    async for chunk in s:
                        await websocket.send_bytes(chunk.samples.tobytes())
                visit.record.status = 101
            await websocket.receive_text()

        app: Any = server.server.config.app
        app.router.routes.append(WebSocketRoute("/test", door))
        async with (
            server.client.ws_connect(f"{server.url}/test") as waits,
            server.client.ws_connect(f"{server.url}/test") as speaks,
        ):
            await speaks.send_str(LONG)
            heard = len(await speaks.receive_bytes())
            server.server.handle_exit(signal.SIGTERM, None)
            async with asyncio.timeout(10):
                while (message := await speaks.receive()).type is aiohttp.WSMsgType.BINARY:
                    heard += len(message.data)
                assert message.type is aiohttp.WSMsgType.CLOSE
                assert (await waits.receive()).data == 1012
        assert heard == 4 * 24_000 * 48 // 10


async def test_it_is_not_ready_before_its_engine_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        engine = f"slow=http://127.0.0.1:{silent.getsockname()[1]}"
        async with command("--engine", engine, "--port", str(port)) as running:
            url = f"http://127.0.0.1:{port}"
            async with asyncio.timeout(20):
                while True:
                    try:
                        status, _, body = await answer(f"{url}/ready")
                        break
                    except aiohttp.ClientConnectorError:
                        await asyncio.sleep(0.05)
            assert (status, body["status"]) == (503, "loading")
            assert (await answer(f"{url}/health"))[0] == 200
            status, retry_after, _ = await answer(
                f"{url}/v1/audio/speech", method="POST", json=said()
            )
            assert (status, retry_after) == (503, "1")
            assert await running.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_an_engine_that_cannot_be_opened_ends_it(tmp_path: Path, workers: str) -> None:
    engine = f"far=unix://{tmp_path}/nobody.sock"
    async with command("--engine", engine, "--port", "0", "--workers", workers) as running:
        assert await running.end() == 1
    assert all("ERROR no engine: far: " in line for line in running.lines)
    assert 1 <= len(running.lines) <= int(workers)


async def test_a_unix_socket_is_for_this_user_and_gone_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "tts.sock"
    listen_unix(path).close()  # as a server leaves it that was killed
    assert path.is_socket()
    async with serving(at=("--uds", str(path))) as running:
        assert running.url == f"unix://{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as client:
            status, body = await speech(client, "http://any.name.is.one")
            assert (status, len(body)) == (200, 2 * 24_000 * 18 // 100)
        async with (
            aclosing(open_engine(f"openai+unix://{path}")) as engine,
            aclosing(engine.stream(SynthesisRequest("Hi."))) as chunks,
        ):
            assert sum([len(chunk.samples) async for chunk in chunks]) == 24_000 * 18 // 100
        async with command("--engine", "tone", "--uds", str(path)) as second:
            assert await second.end() == 1
            assert second.lines == [f"error: a server listens on {path} already"]
        assert path.is_socket()
        assert await running.end(signal.SIGTERM) == 0
    assert not path.exists()


async def test_a_socket_of_a_successor_stays(tmp_path: Path) -> None:
    path = tmp_path / "tts.sock"
    async with serving(at=("--uds", str(path))) as running:
        path.unlink()
        with listen_unix(path):
            assert await running.end(signal.SIGTERM) == 0
            assert path.is_socket()


async def test_it_speaks_encrypted(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    pem, key = tmp_path / "both.pem", tmp_path / "key.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(pem)
    certificate.private_key_pem.write_to_path(key)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    for more in ([], ["--tls-key", str(key)]):
        async with (
            serving("--tls-certificate", str(pem), *more) as running,
            aiohttp.ClientSession() as client,
        ):
            assert running.url.startswith("https://127.0.0.1:")
            status, body = await speech(client, running.url, ssl=trust)
            assert (status, len(body)) == (200, 2 * 24_000 * 18 // 100)
            socket_ = running.url.replace("https", "wss") + "/v1/text-to-speech/tone/stream-input"
            async with client.ws_connect(f"{socket_}?output_format=pcm_24000", ssl=trust) as line:
                for text in (" ", "Hi. ", ""):
                    await line.send_json({"text": text})
                audio = b"".join([b64decode(m.json().get("audio") or "") async for m in line])
            assert len(audio) == 2 * 24_000 * 18 // 100
            assert await running.end(signal.SIGTERM) == 0


async def test_workers_share_the_address_and_their_numbers_add_up(tmp_path: Path) -> None:
    temporary = {"TMPDIR": str(tmp_path)}
    async with serving("--workers", "2", **temporary) as running, speaking(running) as spoken:
        assert running.lines == [f"ready: tone at {running.url}; no key is asked for"]
        for _ in range(10):
            # On a connection each, as one process has what is on one connection.
            async with aiohttp.ClientSession() as client:
                assert (await speech(client, running.url))[0] == 200
        page = ""
        expected = (
            'tts_requests_total{dialect="openai",engine="tone",outcome="finished"} 10.0',
            "tts_slots 512.0",
            "tts_streams_active 1.0",
        )
        async with asyncio.timeout(5):  # a request is counted once its answer is sent
            while not all(line in page for line in expected):
                page = await numbers(running)
        running.process.send_signal(signal.SIGTERM)
        assert len((await spoken)[1]) == 2 * 24_000 * 48 // 10
        assert await running.end() == 0
    assert files(tmp_path) == []


async def test_a_worker_that_dies_is_replaced_and_none_outlives_its_parent(
    tmp_path: Path,
) -> None:
    # A parent that is killed leaves its temporary folder.
    async with serving("--workers", "2", TMPDIR=str(tmp_path)) as running:
        first = children(running.process.pid)
        os.kill(first[0], signal.SIGKILL)
        await running.line("a worker ended (-9): another begins")
        async with aiohttp.ClientSession() as client:
            assert (await speech(client, running.url))[0] == 200
        assert len(children(running.process.pid)) == 2
        running.process.kill()
        await running.end()  # when nobody has its standard error any more
        with pytest.raises(aiohttp.ClientConnectorError):
            await answer(f"{running.url}/health")


async def test_ctrl_c_in_a_terminal_drains_the_workers_too() -> None:
    async with serving("--workers", "2") as running, speaking(running) as spoken:
        for pid in [running.process.pid, *children(running.process.pid)]:
            os.kill(pid, signal.SIGINT)  # as a terminal does
        assert len((await spoken)[1]) == 2 * 24_000 * 48 // 10
        assert await running.end() == 130
        assert not [line for line in running.lines if "Traceback" in line]


async def numbers(running: Command) -> str:
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"{running.url}/metrics") as reply,
    ):
        return await reply.text()


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def children(pid: int) -> list[int]:
    """The workers of a process; its resource tracker isn't one."""
    of = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(c) for c in of if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]


async def test_keys_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# ours\n\n{KEY}\n")
    for arguments, environment in (
        ([], {"TTS_API_KEYS": f"another-key-1,{KEY}"}),
        (["--api-key-env", "MINE"], {"MINE": KEY}),
        (["--api-key-file", str(file)], {"TTS_API_KEYS": "another-key-1"}),
    ):
        async with serving(*arguments, **environment) as running, aiohttp.ClientSession() as client:
            assert running.lines[0].endswith("; a key is asked for")
            assert (await speech(client, running.url))[0] == 401
            given = {"authorization": f"Bearer {KEY}", "host": "a.name.elsewhere"}
            assert (await speech(client, running.url, headers=given))[0] == 200
            assert await running.end(signal.SIGTERM) == 0
            assert KEY not in "".join(running.lines)


async def test_without_a_key_it_is_for_this_machine_or_says_that_it_is_not() -> None:
    async with serving() as running:
        url = f"{running.url}/health"
        assert (await answer(url, headers={"host": "localhost:1"}))[0] == 200
        assert (await answer(url, headers={"host": "rebound.example"}))[0] == 421
        assert (await answer(url, headers={"origin": "https://evil.example"}))[0] == 403
    async with serving("--host", "0.0.0.0", "--cors", "https://good.example") as running:
        assert running.lines[0] == (
            "warning: whoever can reach 0.0.0.0 may speak, and no key is asked for; "
            "put some into TTS_API_KEYS"
        )
        url = running.url.replace("0.0.0.0", "127.0.0.1") + "/health"
        assert (await answer(url, headers={"host": "tts.lan"}))[0] == 200
        assert (await answer(url, headers={"origin": "https://good.example"}))[0] == 200


async def test_its_limits_hold() -> None:
    limits = ("--max-per-key", "1", "--max-waiting", "9", "--max-streams", "7")
    async with serving(*limits) as running, speaking(running):
        url = f"{running.url}/v1/audio/speech"
        status, retry_after, body = await answer(url, method="POST", json=said())
        assert (status, retry_after) == (429, "3")
        assert "1 streams are open with this key" in body["error"]["message"]
        assert (await answer(f"{running.url}/health"))[2]["max_streams"] == 7


async def test_several_engines_and_other_names_for_voices() -> None:
    async with serving("--engine", "low=tone", "--voice-alias", "bob=tone") as running:
        assert running.lines[0].startswith("ready: tone, low at http://")
        _, _, models = await answer(f"{running.url}/v1/models")
        assert [model["id"] for model in models["data"]] == ["tone", "low"]
        body = {**said(), "voice": "bob", "model": "low"}
        async with aiohttp.ClientSession() as client:
            url = f"{running.url}/v1/audio/speech"
            async with client.post(url, json=body) as reply:
                assert (reply.status, reply.headers["x-tts-engine"]) == (200, "low")


def test_what_cannot_work_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TTS_API_KEYS", raising=False)
    monkeypatch.setenv("EMPTY", " , ")
    monkeypatch.setenv("SHORT", "1234567")
    (tmp_path / "empty").write_text("# nobody\n")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")

    def error(*arguments: str, status: int = 1) -> str:
        with pytest.raises(SystemExit) as exit_:
            main(["serve", *arguments])
        assert exit_.value.code == status
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
        return line.removeprefix("error: ")

    assert error("--engine", "nobody").startswith("no engine 'nobody'; available: ")
    assert error("--engine", "tone", "--engine", "tone") == (
        "two engines are called 'tone': write NAME=tone"
    )
    tone = ("--engine", "tone")
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        assert error(*tone, "--port", port) == (
            f"can't listen on 127.0.0.1:{port}: Address already in use; choose another host or port"
        )
    assert error(*tone, "--host", "nowhere.invalid").startswith(
        "can't listen on nowhere.invalid:8080:"
    )
    assert (
        error(*tone, "--uds", str(nonsense))
        == f"can't listen on {nonsense}: Address already in use; choose another path"
    )
    assert error(*tone, "--voice-alias", "bob") == "--voice-alias bob: write NAME=VOICE"
    for origin in ("notanorigin", "https://a.example/", "https://A.example", "a.example:80"):
        assert error(*tone, "--cors", "https://b.example:80", "--cors", origin) == (
            f"--cors {origin}: write scheme://host or scheme://host:port, in lower case and "
            "without a slash behind it, or * for all"
        )
    remedy = "put one there, such as `openssl rand -hex 16` makes"
    assert error(*tone, "--api-key-env", "NOT_SET") == f"there is no key in NOT_SET: {remedy}"
    assert error(*tone, "--api-key-env", "EMPTY") == f"there is no key in EMPTY: {remedy}"
    assert error(*tone, "--api-key-env", "SHORT") == (
        "SHORT: a key has at least 8 visible ASCII characters, no space"
    )
    empty = tmp_path / "empty"
    assert error(*tone, "--api-key-file", str(empty)) == f"there is no key in {empty}: {remedy}"
    empty.write_text("1234567\n")
    assert error(*tone, "--api-key-file", str(empty)) == (
        f"{empty}: a key has at least 8 visible ASCII characters, no space"
    )
    assert error(*tone, "--api-key-file", "nowhere").startswith("can't read the keys in nowhere")
    both = ("--api-key-file", "nowhere", "--api-key-env", "SHORT")
    assert error(*tone, *both) == "give --api-key-env or --api-key-file, not both"
    assert error(*tone, "--tls-certificate", "nowhere") == "nowhere: No such file or directory"
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    trustme.CA().cert_pem.write_to_path(str(chain))
    trustme.CA().private_key_pem.write_to_path(str(key))
    for keyless in (chain, nonsense):
        assert error(*tone, "--tls-certificate", str(keyless)) == (
            f"{keyless} has no certificate with its key in it, as PEM: a key in another file is "
            "--tls-key"
        )
    assert error(*tone, "--tls-certificate", str(chain), "--tls-key", str(key)).startswith(
        f"{chain} and {key} are no certificate and its key, as PEM: "
    )
    assert error(*tone, "--tls-key", "nowhere") == (
        "--tls-key is the key of a --tls-certificate: give both"
    )
    assert "workers" in error(*tone, "--workers", "0", status=2)


def test_without_its_packages_it_names_the_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("tts_plugins.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    with pytest.raises(SystemExit) as exit_:
        main(["serve"])
    assert exit_.value.code == 1
    assert capsys.readouterr().err == (
        'error: server needs more: pip install "tts-plugins[server]"\n'
    )


def test_who_answers_no_ping_is_not_given_up() -> None:
    # LiveKit's Fish plugin reads nothing from a socket that it keeps for the next turn.
    assert config(None).ws_ping_timeout is None


def test_a_path_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("dear")
    with pytest.raises(InvalidRequestError, match="Address already in use"):
        listen_unix(file)
    assert file.read_text() == "dear"
