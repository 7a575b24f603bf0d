"""tts_plugins.dialects.piper: the server's end, asked as each of its clients asks."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_plugins.dialects.base import HttpCall, HttpReply
from tts_plugins.dialects.piper import PiperServer
from tts_plugins.errors import (
    InvalidRequestError,
    OverloadedError,
    TTSError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.types import AudioChunk, SynthesisRequest

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("call", "request_"),
    [
        (
            HttpCall("POST", "/", headers=JSON, body=b'{"text": "Hello.", "voice": null}'),
            SynthesisRequest("Hello."),
        ),
        (
            HttpCall("POST", "/", headers=JSON, body=b'{"text": "Hello.", "voice": "en_GB-alba"}'),
            SynthesisRequest("Hello.", voice="en_GB-alba"),
        ),
        (
            HttpCall(
                "POST",
                "/synthesize",
                headers={"content-type": "application/x-www-form-urlencoded"},
                body=b'{ "text": "This is a test." }',
            ),
            SynthesisRequest("This is a test."),
        ),
        (
            HttpCall("POST", "/", headers={"content-type": "text/plain"}, body="Chào.\n".encode()),
            SynthesisRequest("Chào."),
        ),
        (
            HttpCall("GET", "/", query={"text": "This is a test."}),
            SynthesisRequest("This is a test."),
        ),
        (
            HttpCall(
                "POST",
                "/synthesize",
                headers=JSON,
                body=b'{"text": " Hi. ", "speaker": "p239", "speaker_id": 3, "length_scale": 0.8,'
                b' "noise_scale": 0.667, "noise_w_scale": 0.8, "whatever": 1}',
            ),
            SynthesisRequest(
                "Hi.",
                speed=1.25,
                options={"noise_scale": 0.667, "noise_w_scale": 0.8, "speaker_id": 3},
            ),
        ),
        (
            HttpCall("POST", "/", headers=JSON, body=b'{"text": "Hi.", "speaker": "p239"}'),
            SynthesisRequest("Hi.", options={"speaker": "p239"}),
        ),
    ],
    ids=["pipecat", "pipecat with a voice", "curl", "1.1", "1.1 by GET", "all", "speaker"],
)
def test_what_each_client_sends_is_read(call: HttpCall, request_: SynthesisRequest) -> None:
    asked = PiperServer().read_call(call)
    assert asked.request == request_
    assert asked.model is None


def test_the_answer_is_a_wav_with_44_bytes_in_front_and_the_engines_rate_in_them() -> None:
    body = b'{"text": "Hello.", "voice": null}'
    writer = PiperServer().read_call(HttpCall("POST", "/", headers=JSON, body=body)).writer
    assert (writer.sample_rate, writer.media_type) == (0, "audio/wav")
    data = writer.push(AudioChunk(np.array([0.5, -1.0], np.float32), 22_050)) + writer.flush()
    assert data[:4] == b"RIFF"
    assert struct.unpack_from("<I", data, 24) == (22_050,)
    assert data[44:] == b"\x00\x40\x00\x80"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "the body has to be a JSON object"),
        ({"text": " "}, "text, what to speak, is missing"),
        ({"text": None}, "text, what to speak, is missing"),
        ({"text": "a" * 101}, "text has 101 characters; at most 100 are taken"),
        ({"voice": 7}, "voice has to be a string"),
        ({"length_scale": 0}, "length_scale has to be a number from 0.05 to 20"),
        ({"noise_scale": "much"}, "noise_scale has to be a number from 0 to 10"),
        ({"speaker_id": "p239"}, "speaker_id has to be a number from 0 to 100000"),
        ({"speaker": 3}, "speaker has to be a string"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(body: Any, said: str) -> None:
    whole = {"text": "hi"} | body if isinstance(body, dict) else body
    call = HttpCall("POST", "/", headers=JSON, body=json.dumps(whole).encode())
    with pytest.raises(InvalidRequestError) as raised:
        PiperServer(longest=100).read_call(call)
    assert str(raised.value) == said


@given(st.binary(max_size=50))
def test_a_body_that_is_anything_is_read_or_refused(body: bytes) -> None:
    try:
        asked = PiperServer().read_call(HttpCall("POST", "/", body=body))
    except InvalidRequestError:
        return
    assert asked.request.text


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (VoiceNotFoundError("bob", ["a", "b"]), 404, b"no voice 'bob'; available: a, b"),
        (UnspeakableTextError("nothing\nto say"), 422, b"nothing to say"),
    ],
)
def test_an_error_is_one_line_of_text(error: TTSError, status: int, said: bytes) -> None:
    plain = {"content-type": "text/plain; charset=utf-8"}
    assert PiperServer().write_error(error) == HttpReply(status, plain, said)


def test_an_error_says_when_to_ask_again() -> None:
    reply = PiperServer().write_error(OverloadedError("busy", retry_after=1.2))
    assert (reply.status, reply.headers["retry-after"], reply.body) == (429, "2", b"busy")
