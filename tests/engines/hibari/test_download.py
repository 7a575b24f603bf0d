"""Voices come over the network once, whole or not at all, and never hang."""

from __future__ import annotations

import hashlib
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hibari import voices

from tts_plugins.engines.hibari.download import Downloader, path_of
from tts_plugins.errors import EngineError


class Server:
    """A file server on loopback: gives ``content``, or says nothing until it is closed."""

    def __init__(self) -> None:
        self.content: bytes | None = b"a voice"
        self.asked: list[str] = []
        self._closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                self.send_response(200)
                self.send_header("Content-Length", str(len(server.content or b"12345")))
                self.end_headers()
                if server.content is None:
                    server._closing.wait()
                else:
                    self.wfile.write(server.content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIBARI_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Server]:
    server = Server()
    monkeypatch.setattr(voices, "BASE_URL", server.url)
    yield server
    server.close()


def expect(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Have hibari know this content as emma's."""
    digest = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(voices.VOICES, "emma", {**voices.VOICES["emma"], "sha256": digest})


def test_the_bundled_voice_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voices, "BASE_URL", "http://invalid.invalid/")
    assert Downloader().fetch("heart").name == "hibari.onnx"


def test_a_voice_is_downloaded_once(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect(monkeypatch, b"a voice")
    downloader = Downloader()
    assert downloader.fetch("emma") == downloader.fetch("emma") == path_of("emma")
    assert path_of("emma") == cache / "bf_emma.int8.onnx"
    assert path_of("emma").read_bytes() == b"a voice"
    assert server.asked == ["/bf_emma.int8.onnx"]


def test_a_wrong_file_is_thrown_away(server: Server, cache: Path) -> None:
    with pytest.raises(EngineError, match="isn't the file that hibari knows"):
        Downloader().fetch("emma")
    assert list(cache.iterdir()) == []


def test_a_silent_server_is_given_up(server: Server, cache: Path) -> None:
    server.content = None
    with pytest.raises(EngineError, match=r"voice 'emma' couldn't be downloaded .*timed out"):
        Downloader(silence=0.05).fetch("emma")
    assert list(cache.iterdir()) == []


def test_a_slow_server_is_given_up(server: Server, cache: Path) -> None:
    times = iter([0.0, 61.0, 61.0])
    with pytest.raises(EngineError, match="takes too long"):
        Downloader(clock=lambda: next(times)).fetch("emma")
    assert list(cache.iterdir()) == []


def test_without_a_network_the_remedy_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setattr(voices, "BASE_URL", f"http://127.0.0.1:{port}/")
    remedy = re.escape(f"check the connection, or copy the file to {cache / 'bf_emma.int8.onnx'}")
    with pytest.raises(EngineError, match=rf"refused.*; {remedy}"):
        Downloader().fetch("emma")


def test_a_cache_that_can_not_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HIBARI_HOME", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="voice 'emma' couldn't be downloaded"):
        Downloader().fetch("emma")


def test_what_has_just_failed_is_not_tried_again_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    downloader = Downloader(clock=lambda: now[0])
    for now[0] in (0.0, 29.0):
        with pytest.raises(EngineError, match="isn't the file that hibari knows"):
            downloader.fetch("emma")
    assert len(server.asked) == 1
    now[0] = 31.0
    expect(monkeypatch, b"a voice")
    assert downloader.fetch("emma").read_bytes() == b"a voice"


def test_a_voice_copied_by_hand_is_taken_at_once(server: Server, cache: Path) -> None:
    downloader = Downloader()
    with pytest.raises(EngineError):
        downloader.fetch("emma")
    path_of("emma").write_bytes(b"by hand")
    assert downloader.fetch("emma").read_bytes() == b"by hand"
