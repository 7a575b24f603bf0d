"""Clients of Piper's server, unchanged, against ours."""

from __future__ import annotations

import importlib
import struct
import sys
from typing import Any
from unittest.mock import MagicMock

import aiohttp
import pytest
from pipecat.frames.frames import ErrorFrame, InterruptionFrame, TTSAudioRawFrame, TTSSpeakFrame

from tests.adapters.pipecat_call import Call
from tests.hearing import pitch
from tests.server.cloner import Mimic, recording
from tests.server.live import best_of_three, live, tones, within

TEXT = "Hello there, how are you today?"
SECONDS = 0.06 * 26
"""The tone engine beeps 60 ms a character, and not for spaces."""


@pytest.fixture
def piper_service(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pipecat's client of Piper's server; its module also has one that needs Piper itself."""
    for name in ("piper", "piper.download_voices"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    return importlib.import_module("pipecat.services.piper.tts").PiperHttpTTSService


@pytest.mark.parametrize("voice", [None, "en_US-ryan-high", "tone", "../x"])
async def test_pipecats_own_service_speaks(piper_service: Any, voice: str | None) -> None:
    async with live(tones(sample_rate=22_050)) as server, aiohttp.ClientSession() as session:
        service = piper_service(
            base_url=server.url,
            aiohttp_session=session,
            settings=piper_service.Settings(voice=voice),
        )
        async with Call(service, rate=24_000) as call:
            await call.send(TTSSpeakFrame(TEXT))
            await call.until(lambda: "TTSStopped" in call.names)
        assert not [frame for frame in call.up if isinstance(frame, ErrorFrame)]
        assert {frame.sample_rate for frame in call.all(TTSAudioRawFrame)} == {24_000}
        # Pipecat drops the end of what it resamples.
        assert len(call.audio) == pytest.approx(2 * SECONDS * 24_000, abs=2 * 0.05 * 24_000)
        assert abs(pitch(call.audio, 24_000) - 440) < 2


@pytest.mark.parametrize("path", ["/", "/synthesize"])
async def test_the_answer_is_a_wav_at_the_engines_rate(path: str) -> None:
    async with live(tones(sample_rate=22_050)) as server:
        status, headers, body = await server.ask(
            path, {"text": TEXT, "speaker_id": 3, "length_scale": 0.5, "voice": "en_US-amy-low"}
        )
    assert (status, headers["content-type"]) == (200, "audio/wav")
    assert headers["x-tts-ignored"] == "speaker_id"
    assert struct.unpack_from("<I", body, 24) == (22_050,)
    assert len(body) == pytest.approx(44 + SECONDS * 22_050, abs=10)


async def test_the_text_may_be_all_of_the_body() -> None:
    async with live() as server:
        async with server.client.post(server.url, data=TEXT.encode()) as reply:
            body = await reply.read()
        assert (reply.status, len(body)) == (200, 44 + 2 * round(SECONDS * 24_000))
        async with server.client.post(server.url, data=b" ") as reply:
            assert (reply.status, await reply.text()) == (
                400,
                "text, what to speak, is missing",
            )


async def test_what_isnt_there_is_said_in_one_line_of_text() -> None:
    async with live() as server:
        for method, path, status, said in (
            ("DELETE", "/synthesize", 405, "DELETE /synthesize: Method Not Allowed"),
            ("POST", "/synthesize/x", 404, "POST /synthesize/x: nothing at /synthesize/x"),
        ):
            async with server.client.request(method, server.url + path) as reply:
                assert (reply.status, await reply.text()) == (status, said)
                assert reply.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_voice_of_ones_own_speaks_and_anybody_elses_does_not() -> None:
    async with live(Mimic(), keys=["key-of-ann", "key-of-ben"]) as server:
        form = aiohttp.FormData({"name": "mai"})
        form.add_field("file", recording(330), filename="x")
        ann = {"authorization": "Bearer key-of-ann"}
        async with server.client.post(f"{server.url}/v1/voices", data=form, headers=ann) as reply:
            assert reply.status == 200
        for key, hertz in (("ann", 330), ("ben", 440)):
            _, _, body = await server.ask(
                "/",
                {"text": TEXT, "voice": "mai"},
                authorization=f"Bearer key-of-{key}",
            )
            assert abs(pitch(body[44:], 24_000) - hertz) < 2


@best_of_three
async def test_pipecats_barge_in_frees_the_place_at_once(piper_service: Any) -> None:
    async with live(tones(max_ahead=0.5)) as server:
        service = piper_service(base_url=server.url, aiohttp_session=server.client)
        async with Call(service, rate=24_000) as call:
            await call.send(TTSSpeakFrame("word " * 500))
            await call.after(TTSAudioRawFrame)
            assert server.house.admission.active == 1
            with within(0.1):
                await call.send(InterruptionFrame())
                await server.until(lambda: not server.house.admission.active)
