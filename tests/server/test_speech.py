"""Speech over HTTP, whatever the dialect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.hearing import pitch
from tests.server.live import live, tones
from tests.server.raw import exchange, request
from tts_plugins.dialects.native import SPEECH
from tts_plugins.errors import RemoteError
from tts_plugins.server import house
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice


async def test_pcm_is_spoken_at_24_khz_whatever_the_engine_has() -> None:
    for rate in (24_000, 44_100, 48_000):
        async with live(tones(sample_rate=rate)) as server:
            status, headers, body = await server.ask(
                "/v1/audio/speech",
                {
                    "model": "tts-1",
                    "input": "Hello there.",
                    "voice": "alloy",
                    "response_format": "pcm",
                },
            )
        assert status == 200
        assert headers["x-sample-rate"] == "24000"
        assert len(body) == 2 * round(0.06 * 11 * 24_000)
        assert abs(pitch(body, 24_000) - 440) < 2
        assert np.frombuffer(body, "<i2").max() > 6000


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/text-to-speech/tone", "/v1/tts", SPEECH])
async def test_a_full_server_refuses_before_it_reads(path: str) -> None:
    async with live(max_streams=1) as server:
        with server.house.admission.place("-"):
            reply = await exchange(server.port, request("POST", path, "content-length: 1000"))
    assert reply
    assert (reply.status, reply.headers["retry-after"]) == (429, "3")


class Refused:
    """Is a server elsewhere that refuses."""

    def __init__(self, status: int) -> None:
        self.status = status

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        raise RemoteError(f"{self.status}: no", status_code=self.status)
        yield

    async def voices(self) -> Sequence[Voice]:
        raise RemoteError(f"{self.status}: no", status_code=self.status)

    async def aclose(self) -> None:
        pass


async def test_what_a_server_behind_this_one_has_against_it_is_not_its_clients_fault() -> None:
    expected = {301: 502, 307: 502, 401: 502, 403: 502, 404: 502, 407: 502, 999: 502}
    expected |= {status: status for status in (400, 422, 429, 500, 503)}
    for status, answered in expected.items():
        engine = Refused(status)
        async with live(engine) as server:
            for path in ("/v1/audio/speech", "/v1/text-to-speech/default", SPEECH):
                body = {"input": "Hi.", "text": "Hi.", "voice": "alloy"}
                assert (await server.ask(path, body))[0] == answered, (path, status)
            async with server.client.get(f"{server.url}/v1/voices") as reply:
                assert reply.status == answered


async def test_what_nobody_foresaw_is_an_error_in_the_dialects_shape(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: object) -> SynthesisRequest:
        raise RuntimeError("oops")

    monkeypatch.setattr(house, "like", fails)
    async with live() as server:
        body = {"input": "Hi.", "text": "Hi.", "voice": "alloy"}
        status, headers, said = await server.ask("/v1/audio/speech", body)
        assert (status, json.loads(said)["error"]["type"]) == (500, "server_error")
        assert headers["x-request-id"]
        assert headers["connection"] == "close"  # or a client's next request on it would be lost
        status, _, said = await server.ask("/v1/text-to-speech/default", body)
        assert (status, json.loads(said)["detail"]["code"]) == (500, "internal_error")
        assert server.house.admission.active == 0
    assert "RuntimeError: oops" in caplog.text


@pytest.mark.parametrize(("length", "status"), [("9" * 5000, 413), ("\xb2", 200), ("-1", 200)])
async def test_a_server_may_pass_on_any_length_and_no_raw_path(length: str, status: int) -> None:
    asked = [{"type": "http.request", "body": b'{"input": "Hi."}'}]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/audio/speech",
        "headers": [(b"content-length", length.encode("latin-1"))],
    }
    told: list[Any] = []

    async def receive() -> Any:
        return asked.pop() if asked else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        told.append(message)

    async with live() as server:
        app: Any = server.server.config.app
        await app(scope, receive, send)
    assert told[0]["status"] == status
    assert told[-1]["more_body"] is False
