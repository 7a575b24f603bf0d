from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.audio.bodies import tone
from tests.dialects.fish_server import FishAudio, FishSpeech, beep, header
from tests.hearing import pitch
from tests.servers import Answer, Call, Line, Server, serving
from tts_plugins.audio.pcm import from_s16
from tts_plugins.dialects.base import Clip, HttpCall, HttpReply, Part, ReplyReader
from tts_plugins.dialects.fish import (
    CLOUD,
    LATENCIES,
    SELF_HOSTED,
    FishCloudDialect,
    FishCloudServer,
    FishDialect,
    FishServer,
)
from tts_plugins.errors import (
    InvalidRequestError,
    MissingDependencyError,
    OverloadedError,
    RemoteError,
    UnreachableError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.registry import open_engine
from tts_plugins.remote import RemoteEngine
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice

KEY = "fish-key-0123456789"
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt "
"""How a recording begins; nobody listens to it here."""
CLIP = Clip(WAV, "c0ffee1234567890", "What I said.")

LIVEKIT = {
    "text": "Hello there.",
    "chunk_length": 100,
    "format": "wav",
    "sample_rate": 24000,
    "mp3_bitrate": 64,
    "opus_bitrate": 64000,
    "references": [],
    "reference_id": "933563129e564b19a115bedd57b7406a",
    "normalize": True,
    "latency": "balanced",
    "prosody": None,
    "top_p": 0.7,
    "temperature": 0.7,
    "features": ["quality-guard"],
}
"""What LiveKit's plugin 1.8.9 sends: 244 bytes of msgpack."""

OLD_SDK = {
    "text": "Hello",
    "chunk_length": 200,
    "format": "wav",
    "sample_rate": None,
    "mp3_bitrate": 128,
    "opus_bitrate": 32,
    "references": [],
    "reference_id": None,
    "normalize": True,
    "latency": "balanced",
    "prosody": None,
    "top_p": 0.7,
    "temperature": 0.7,
}
"""What fish_audio_sdk of 1.3.0 sends: 178 bytes of msgpack."""

NEW_SDK = {
    "text": "Hi",
    "chunk_length": 200,
    "format": "wav",
    "mp3_bitrate": 128,
    "opus_bitrate": 32,
    "references": [{"audio": bytes(300), "text": "ref"}],
    "reference_id": "abc",
    "normalize": True,
    "latency": "balanced",
    "top_p": 0.7,
    "temperature": 0.7,
    "max_new_tokens": 1024,
    "repetition_penalty": 1.2,
    "min_chunk_length": 50,
    "condition_on_previous_chunks": True,
    "early_stop_threshold": 1.0,
}
"""What fishaudio of 1.3.0 sends: 601 bytes of msgpack."""


def in_json(body: object, **headers: str) -> HttpCall:
    sent = {"content-type": "application/json"} | headers
    return HttpCall("POST", "/v1/tts", headers=sent, body=json.dumps(body).encode())


def in_msgpack(body: object, **headers: str) -> HttpCall:
    sent = {"content-type": "application/msgpack"} | headers
    return HttpCall("POST", "/v1/tts", headers=sent, body=msgpack.packb(body))


def sent(call: HttpCall) -> dict[str, Any]:
    """The fields of a call."""
    packed = "msgpack" in call.headers["content-type"]
    body: dict[str, Any] = msgpack.unpackb(call.body) if packed else json.loads(call.body)
    return body


def reply(status: int, body: bytes, media_type: str = "application/json") -> HttpReply:
    return HttpReply(status, {"content-type": media_type}, body)


def read(reader: ReplyReader, data: bytes, by: int) -> tuple[Samples, int]:
    """All samples of a body that comes in pieces, and their rate."""
    chunks = [c for i in range(0, len(data), by) for c in reader.push(data[i : i + by])]
    chunks += reader.flush()
    [rate] = {chunk.sample_rate for chunk in chunks}
    return np.concatenate([chunk.samples for chunk in chunks]), rate


# What a caller sends to fish-speech


def test_a_text_is_asked_for_in_json_and_streamed() -> None:
    assert FishDialect().write_call(SynthesisRequest("Xin chào.")) == HttpCall(
        "POST",
        "/v1/tts",
        headers={"content-type": "application/json"},
        body='{"text": "Xin chào.", "format": "wav", "streaming": true}'.encode(),
    )


def test_a_voice_is_a_reference_that_the_server_remembers() -> None:
    call = FishDialect().write_call(SynthesisRequest("Hi.", voice="Mai_Anh-1 b"))
    assert sent(call) == {
        "text": "Hi.",
        "format": "wav",
        "streaming": True,
        "reference_id": "Mai_Anh-1 b",
        "use_memory_cache": "on",
    }


def test_recordings_travel_along_in_msgpack(tmp_path: Path) -> None:
    (tmp_path / "me.wav").write_bytes(WAV)
    dialect = FishDialect(references=[(tmp_path / "me.wav", "It's me."), (b"\xff\xfb", "And me.")])
    call = dialect.write_call(SynthesisRequest("Hi."))
    assert call == HttpCall(
        "POST",
        "/v1/tts",
        headers={"content-type": "application/msgpack"},
        body=b"\x85\xa4text\xa3Hi.\xa6format\xa3wav\xa9streaming\xc3"
        b"\xaareferences\x92"
        b"\x82\xa5audio\xc4\x10RIFF\x24\x00\x00\x00WAVEfmt \xa4text\xa8It's me."
        b"\x82\xa5audio\xc4\x02\xff\xfb\xa4text\xa7And me."
        b"\xb0use_memory_cache\xa2on",
    )


def test_a_voice_wins_over_recordings_and_sends_none_of_them() -> None:
    dialect = FishDialect(references=[(WAV, "It's me.")])
    call = dialect.write_call(SynthesisRequest("Hi.", voice="spk1"))
    assert call.headers == {"content-type": "application/json"}
    assert "references" not in sent(call)


def test_options_of_a_request_win_over_those_of_the_dialect() -> None:
    dialect = FishDialect(temperature=1, top_p=0.5, seed=7)
    call = dialect.write_call(SynthesisRequest("Hi.", options={"top_p": 1, "seed": 0}))
    assert call.body == (
        b'{"text": "Hi.", "format": "wav", "streaming": true,'
        b' "temperature": 1.0, "top_p": 1.0, "seed": 0}'
    )


def test_a_recording_can_come_with_a_request() -> None:
    options = {"references": [(WAV, "It's me.")]}
    call = FishDialect().write_call(SynthesisRequest("Hi.", options=options))
    assert sent(call)["references"] == [{"audio": WAV, "text": "It's me."}]


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("chunk_length", 99, "chunk_length 99 is not a whole number from 100 to 1000"),
        ("chunk_length", 1001, "chunk_length 1001 is not"),
        ("chunk_length", 200.0, "chunk_length 200.0 is not a whole number"),
        ("temperature", 0.05, "temperature 0.05 is not a number from 0.1 to 1"),
        ("temperature", float("nan"), "temperature nan is not"),
        ("top_p", "0.7", "top_p '0.7' is not a number from 0.1 to 1"),
        ("top_p", True, "top_p True is not"),
        ("repetition_penalty", 2.5, "repetition_penalty 2.5 is not a number from 0.9 to 2"),
        ("max_new_tokens", 0, "max_new_tokens 0 is not a whole number from 1"),
        ("seed", -1, "seed -1 is not"),
        ("references", "me.wav", "references are a list of recordings"),
        ("references", [WAV], "a reference is a path or the bytes of a recording, and its text"),
        ("references", [(WAV, None)], "a reference is"),
        ("references", [("/no/such.wav", "")], "can't read /no/such.wav: No such file"),
    ],
)
def test_an_option_out_of_range_is_refused_here(name: str, value: Any, complaint: str) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(InvalidRequestError, match=complaint):
        FishDialect(**options)
    with pytest.raises(InvalidRequestError, match=complaint):
        FishDialect().write_call(SynthesisRequest("Hi.", options=options))


def test_an_unknown_option_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidRequestError, match="no option emotion; options: chunk_length, "):
        FishDialect().write_call(SynthesisRequest("Hi.", options={"emotion": "joy"}))


def test_fish_speech_has_one_speed() -> None:
    with pytest.raises(InvalidRequestError, match=r"one speed: it can't do 1.5, leave it at 1.0"):
        FishDialect().write_call(SynthesisRequest("Hi.", speed=1.5))


@pytest.mark.parametrize("voice", ["../etc", "Mai Ánh", "a\n", "x" * 256])
def test_an_id_that_no_reference_can_have_is_refused(voice: str) -> None:
    with pytest.raises(InvalidRequestError, match="can't be a reference's id: at most 255 of a-z"):
        FishDialect().write_call(SynthesisRequest("Hi.", voice=voice))


@pytest.mark.parametrize("rate", [0, 44_100.0, True, 200_000])
def test_a_rate_that_can_not_be_is_refused(rate: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"sample_rate {rate} is outside 8000 to 192000"):
        FishDialect(sample_rate=rate)


# What a text may not do


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Hello. <|speaker:1|>I am he.", "Hello.  I am he."),
        ("Bye<|im_end|> now.", "Bye  now."),
        ("<|SEMANTIC:12|>One<|text|>two<|endoftext|>.", " One two ."),
        ("Say <|hello there|> to him.", "Say  hello there  to him."),
        ("<|spea<|im_end|>ker:1|>Hi.", " spea ker:1 Hi."),
        ("a <| b", "a   b"),
        ("if a < b | c > d", "if a < b | c > d"),
    ],
)
def test_signs_of_the_model_are_taken_out_and_words_stay(text: str, spoken: str) -> None:
    request = SynthesisRequest(text)
    assert sent(FishDialect().write_call(request))["text"] == spoken
    assert sent(FishCloudDialect().write_call(request))["text"] == spoken
    assert FishServer().read_call(in_json({"text": text})).request.text == spoken


@given(st.lists(st.sampled_from(["<|", "|>", "<", "|", ">", "im_end", "speaker:1", "pad", "x"])))
def test_no_text_leaves_a_sign_in_what_is_sent(pieces: list[str]) -> None:
    call = FishDialect().write_call(SynthesisRequest("x" + "".join(pieces)))
    assert "<|" not in sent(call)["text"]
    assert "|>" not in sent(call)["text"]


def test_a_text_of_signs_alone_has_nothing_to_say() -> None:
    with pytest.raises(UnspeakableTextError, match="nothing to say in 10 characters"):
        FishDialect().write_call(SynthesisRequest("<|im_end|>"))


def test_half_of_a_character_is_sent_as_a_question_mark() -> None:
    request = SynthesisRequest("Hi \ud83d.")
    assert sent(FishDialect().write_call(request))["text"] == "Hi ?."
    assert sent(FishCloudDialect().write_call(request))["text"] == "Hi ?."


# What a caller sends to Fish Audio


def test_fish_audio_is_asked_in_msgpack_with_the_model_in_a_header() -> None:
    assert FishCloudDialect().write_call(SynthesisRequest("Hi.", voice="802e")) == HttpCall(
        "POST",
        "/v1/tts",
        headers={"content-type": "application/msgpack", "model": "s2.1-pro"},
        body=b"\x85\xa4text\xa3Hi.\xa6format\xa3pcm\xabsample_rate\xcd\x5d\xc0"
        b"\xa7latency\xa8balanced\xacreference_id\xa4802e",
    )


@pytest.mark.parametrize("model", ["s1\nx: y", "s1\r\n", "s1\0", "s\u00e9"])
def test_a_model_that_can_not_stand_in_a_header_is_refused(model: str) -> None:
    for dialect, options in (
        (FishCloudDialect(model=model), {}),
        (FishCloudDialect(), {"model": model}),
    ):
        with pytest.raises(InvalidRequestError) as raised:
            dialect.write_call(SynthesisRequest("Hi.", options=options))
        assert str(raised.value) == f"no model is called {model!r}"


def test_speed_and_volume_are_prosody() -> None:
    dialect = FishCloudDialect(volume=-6, normalize=False, latency="low", sample_rate=8000)
    options = {"normalize_loudness": False, "model": "s1", "temperature": 0}
    call = dialect.write_call(SynthesisRequest("Hi.", speed=1.5, options=options))
    assert call.headers["model"] == "s1"
    assert sent(call) == {
        "text": "Hi.",
        "format": "pcm",
        "sample_rate": 8000,
        "latency": "low",
        "normalize": False,
        "temperature": 0.0,
        "prosody": {"speed": 1.5, "volume": -6.0, "normalize_loudness": False},
    }


def test_recordings_go_to_fish_audio_as_well() -> None:
    dialect = FishCloudDialect(references=[(WAV, "It's me.")])
    call = dialect.write_call(SynthesisRequest("Hi."))
    assert sent(call)["references"] == [{"audio": WAV, "text": "It's me."}]
    assert "references" not in sent(dialect.write_call(SynthesisRequest("Hi.", voice="802e")))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"sample_rate": 48_000}, "no sample_rate 48000; rates: 8000, 16000, 24000, 32000, 44100"),
        ({"latency": "fast"}, "no latency 'fast'; there are: normal, balanced, low"),
        ({"latency": ["low"]}, r"no latency \['low'\]"),
        ({"normalize": 1}, "normalize 1 is neither True nor False"),
        ({"chunk_length": 301}, "chunk_length 301 is not a whole number from 100 to 300"),
        ({"volume": 21}, "volume 21 is not a number from -20 to 20"),
    ],
)
def test_what_fish_audio_does_not_allow_is_refused_here(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        FishCloudDialect(**options)


@pytest.mark.parametrize("speed", [0.4, 2.1])
def test_fish_audio_has_no_such_speed(speed: float) -> None:
    with pytest.raises(InvalidRequestError, match=r"outside 0.5 to 2"):
        FishCloudDialect().write_call(SynthesisRequest("Hi.", speed=speed))


def test_without_msgpack_json_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    assert FishDialect().write_call(SynthesisRequest("Hi.")).body
    with pytest.raises(MissingDependencyError, match=r'pip install "tts-plugins\[remote\]"'):
        FishCloudDialect().write_call(SynthesisRequest("Hi."))
    with pytest.raises(MissingDependencyError):
        FishDialect(references=[(WAV, "Me.")]).write_call(SynthesisRequest("Hi."))
    with pytest.raises(MissingDependencyError):
        FishServer().read_call(HttpCall("POST", "/v1/tts", headers={"content-type": "x-msgpack"}))


# What comes back


STREAM = bytes.fromhex("00009f093513b71c1d265c2f6b384241")
"""The first samples that fish-speech sent of a tone, as audio/wav."""
FILE = bytes.fromhex(
    "524946468067000057415645666d7420100000000100010044ac00008858010002001000646174615c670000"
)
"""The header of a whole file from it, of 26,460 bytes of samples."""
HEARD = [0, 2463, 4917, 7351, 9757, 12124, 14443, 16706]


@pytest.mark.parametrize("by", [1, 3, 16])
def test_bare_samples_are_read_though_they_are_called_a_wav(by: int) -> None:
    reader = FishDialect().read_reply(SynthesisRequest("Hi."), reply(200, b"", "audio/wav"))
    samples, rate = read(reader, STREAM, by)
    assert (samples * 32768).tolist() == HEARD
    assert rate == 44_100


@pytest.mark.parametrize("by", [1, 7, 480, 26_504])
def test_a_file_is_read_with_the_rate_in_its_header(by: int) -> None:
    dialect = FishDialect(sample_rate=16_000)
    reader = dialect.read_reply(SynthesisRequest("Hi."), reply(200, b"", "audio/wav"))
    samples, rate = read(reader, FILE + STREAM + bytes(26_444), by)
    assert len(samples) == 13_230
    assert (samples[:8] * 32768).tolist() == HEARD
    assert rate == 44_100


def test_bare_samples_have_the_rate_that_was_said() -> None:
    dialect = FishDialect(sample_rate=32_000)
    reader = dialect.read_reply(SynthesisRequest("Hi."), reply(200, b"", "audio/wav"))
    assert read(reader, STREAM, 16)[1] == 32_000


def test_fish_audio_sends_the_rate_that_it_was_asked_for() -> None:
    dialect = FishCloudDialect(sample_rate=8_000)
    reader = dialect.read_reply(SynthesisRequest("Hi."), reply(200, b"", "audio/mpeg"))
    samples, rate = read(reader, STREAM, 5)
    assert (samples * 32768).tolist() == HEARD
    assert rate == 8_000


def test_an_error_that_is_called_audio_is_not_played() -> None:
    reader = FishDialect().read_reply(SynthesisRequest("Hi."), reply(200, b"", "audio/wav"))
    with pytest.raises(ValueError, match=r"text instead of audio: .*cuda oom"):
        read(reader, b'{"statusCode":500,"message":"cuda oom"}', 100)


MISSING = b"""[
  {
    "type": "missing",
    "loc": [
      "text"
    ],
    "msg": "Field required",
    "input": {
      "format": "wav"
    },
    "url": "https://errors.pydantic.dev/2.14/v/missing",
    "in": "body"
  }
]"""
"""How fish-speech says that there is no text."""


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            400,
            b'{"statusCode":400,"message":"Text is too long, max length is 500"}',
            "400: Text is too long, max length is 500",
        ),
        (
            422,
            MISSING,
            "422: text: Field required",
        ),
        (
            422,
            b'[{"loc":["references",0,"text"],"msg":"Field required"},{"msg":"Bad"}]',
            "422: references.0.text: Field required; Bad",
        ),
        (
            500,
            b'{"statusCode":500,"message":"cuda oom","error":"Internal Server Error"}',
            "500: cuda oom",
        ),
        (404, b'{"statusCode":404,"message":null,"error":"Not Found"}', "404: Not Found"),
        (401, b'{"statusCode":401,"message":null,"error":"Unauthorized"}', "401: Unauthorized"),
        (401, b'{"message":"Invalid Token","status":401}', "401: Invalid Token"),
        (
            402,
            b'{"message":"Insufficient Balance","status":402,"reason":"api_credit"}',
            "402: Insufficient Balance (api_credit)",
        ),
        (405, b"", "405: Method Not Allowed"),
        (599, b"", "599: an error"),
        (400, b"expected value at line 1\ncolumn 1", "400: expected value at line 1 column 1"),
        (503, b"<html>busy</html>", "503: <html>busy</html>"),
        (500, b"null", "500: Internal Server Error"),
        (500, b"[[[]]]", "500: [[]]"),
        (500, b'{"message":{"a":1},"loc":"b"}', '500: {"a": 1}'),
        (500, b"[" * 100_000, "500: " + "[" * 277 + "..."),
    ],
)
def test_an_error_in_any_shape_says_what_the_server_said(
    status: int, body: bytes, said: str
) -> None:
    for dialect in (FishDialect(), FishCloudDialect()):
        error = dialect.read_error(reply(status, body), SynthesisRequest("Hi.", voice="spk1"))
        assert str(error) == said
        assert isinstance(error, RemoteError)
        assert error.status_code == status
        assert error.permanent == (status == 401)


def test_an_error_may_be_msgpack() -> None:
    body = b"\x83\xaastatusCode\xcd\x01\x90\xa7message\xa3Bad\xa5error\xabBad Request"
    error = FishDialect().read_error(reply(400, body, "application/msgpack"))
    assert str(error) == "400: Bad"


def test_an_error_of_broken_msgpack_is_quoted() -> None:
    error = FishDialect().read_error(reply(500, b"\xc1oops", "application/msgpack"))
    assert str(error) == "500: \N{REPLACEMENT CHARACTER}oops"


def test_too_many_requests_are_asked_again_when_the_server_says() -> None:
    headers = {"content-type": "application/json", "retry-after": "2"}
    error = FishCloudDialect().read_error(
        HttpReply(429, headers, b'{"message":"Too many","status":429}')
    )
    assert isinstance(error, OverloadedError)
    assert error.retry_after == 2.0


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Reference not found"),
        (400, "reference_id 'bob' does not exist"),
        (404, "Model not found"),
        (404, "Voice not found"),
    ],
)
def test_a_voice_that_fish_audio_has_not_is_told_from_other_errors(
    status: int, message: str
) -> None:
    body = json.dumps({"message": message, "status": status}).encode()
    error = FishCloudDialect().read_error(reply(status, body), SynthesisRequest("Hi.", voice="bob"))
    assert isinstance(error, VoiceNotFoundError)


@pytest.mark.parametrize(
    ("status", "message", "request_"),
    [
        (400, "Reference not found", None),
        (400, "Reference not found", SynthesisRequest("Hi.")),
        (500, "Reference not found", SynthesisRequest("Hi.", voice="bob")),
        (400, "Reference not found", SynthesisRequest("A reference not found.", voice="bob")),
        (400, "Can't say: model not found", SynthesisRequest("Model not found!", voice="bob")),
    ],
)
def test_only_a_complaint_about_the_voice_is_one(
    status: int, message: str, request_: SynthesisRequest | None
) -> None:
    body = json.dumps({"message": message, "status": status}).encode()
    error = FishCloudDialect().read_error(reply(status, body), request_)
    assert str(error) == f"{status}: {message}"


# Voices, and clones of voices


def test_fish_speech_lists_its_references() -> None:
    [call] = FishDialect().write_voices()
    assert call == HttpCall("GET", "/v1/references/list", headers={"accept": "application/json"})
    body = b'{"success":true,"reference_ids":["spk1","Mai Anh"],"message":"Found 2"}'
    voices = FishDialect().read_voices(reply(200, body))
    assert voices == [Voice("spk1", "und"), Voice("Mai Anh", "und")]
    assert FishDialect().read_voices(None) == []


def test_the_list_may_be_msgpack() -> None:
    none = b"\x83\xa7success\xc3\xadreference_ids\x90\xa7message\xb8Found 0 reference voices"
    assert FishDialect().read_voices(reply(200, none, "application/msgpack")) == []
    many = msgpack.packb({"reference_ids": [f"spk{n}" for n in range(5_000)]})
    assert len(FishDialect().read_voices(reply(200, many, "application/msgpack"))) == 5_000


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"reference_ids":3,"items":3}', b"<html>", b""])
def test_a_list_that_is_none_is_an_error(body: bytes) -> None:
    for dialect in (FishDialect(), FishCloudDialect()):
        with pytest.raises(RemoteError, match="expected"):
            dialect.read_voices(reply(200, body))


def test_fish_audio_lists_the_voices_of_the_account() -> None:
    [call] = FishCloudDialect().write_voices()
    assert (call.path, call.query) == (
        "/model",
        {"self": "true", "page_size": "100", "sort_by": "created_at"},
    )
    body = (
        b'{"total":4,"items":[{"_id":"802e","type":"tts","title":"Ethan","languages":["en","zh"]},'
        b'{"_id":"b347","type":"tts","title":"Selene","languages":[]},'
        b'{"_id":"5161","type":"svc","title":"A singer"},{"title":"Nobody"},7]}'
    )
    voices = FishCloudDialect().read_voices(reply(200, body))
    assert voices == [Voice("802e", "en", "Ethan"), Voice("b347", "und", "Selene")]
    assert FishCloudDialect().read_voices(None) == []


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("Mai Ánh", "Mai Anh-c0ffee12"),
        ("Đặng Trần_1", "Dang Tran_1-c0ffee12"),
        ("José/..\\Müller", "Jose-Muller-c0ffee12"),
        ("Straße", "Strasse-c0ffee12"),
        ("小明", "voice-c0ffee12"),
        ("../../etc", "etc-c0ffee12"),
        ("x" * 300, "x" * 200 + "-c0ffee12"),
    ],
)
def test_a_clone_has_an_id_that_can_be_one_and_says_of_which_clip_it_is(
    name: str, reference: str
) -> None:
    call = FishDialect().write_clone(name, CLIP)
    assert call == HttpCall(
        "POST",
        "/v1/references/add",
        headers={"accept": "application/json"},
        form=(
            Part("id", reference),
            Part("text", "What I said."),
            Part("audio", WAV, "clip.wav", "audio/wav"),
        ),
    )
    assert FishDialect().write_call(SynthesisRequest("Hi.", voice=reference))
    listed = [Voice("other", "und"), Voice(reference, "und")]
    assert FishDialect().find_clone(name, CLIP, listed) == listed[1]
    assert FishDialect().find_clone(name, CLIP, listed[:1]) is None


def test_fish_speech_can_not_clone_without_a_transcript() -> None:
    with pytest.raises(InvalidRequestError, match="give it as transcript="):
        FishDialect().write_clone("me", Clip(WAV, "c0ffee1234567890", " "))


def test_an_added_reference_is_a_voice() -> None:
    body = (
        b'{"success":true,"message":"Reference voice \'spk1\' added successfully",'
        b'"reference_id":"spk1"}'
    )
    assert FishDialect().read_clone("me", CLIP, reply(200, body)) == Voice("spk1", "und")
    for broken in (b"{}", b"[]", b'{"reference_id":null}'):
        with pytest.raises(RemoteError, match="expected a reference"):
            FishDialect().read_clone("me", CLIP, reply(200, broken))


def test_a_clone_at_fish_audio_is_private_and_says_of_which_clip_it_is() -> None:
    dialect = FishCloudDialect()
    call = dialect.write_clone("Mai Ánh", CLIP)
    assert (call.method, call.path) == ("POST", "/model")
    assert call.form == (
        Part("type", "tts"),
        Part("train_mode", "fast"),
        Part("visibility", "private"),
        Part("title", "Mai Ánh-c0ffee12"),
        Part("voices", WAV, "clip.wav", "audio/wav"),
        Part("texts", "What I said."),
    )
    untold = dialect.write_clone("Mai Ánh", Clip(WAV, "c0ffee1234567890"))
    assert [part.name for part in untold.form][-1] == "voices"
    body = b'{"_id":"802e","type":"tts","title":"Mai \xc3\x81nh-c0ffee12","languages":["vi"]}'
    voice = dialect.read_clone("Mai Ánh", CLIP, reply(201, body))
    assert voice == Voice("802e", "vi", "Mai Ánh-c0ffee12")
    assert dialect.find_clone("Mai Ánh", CLIP, [Voice("b347", "und"), voice]) == voice
    with pytest.raises(RemoteError, match="expected a voice"):
        dialect.read_clone("me", CLIP, reply(201, b"{}"))


# The server's end


@pytest.mark.parametrize("write", [in_json, in_msgpack])
def test_livekits_request_is_read_in_json_and_msgpack(write: Any) -> None:
    assert len(msgpack.packb(LIVEKIT)) == 244
    asked = FishServer().read_call(write(LIVEKIT, model="s2.1-pro"))
    assert asked.request == SynthesisRequest(
        "Hello there.", options={"chunk_length": 100, "temperature": 0.7, "top_p": 0.7}
    )
    assert asked.model == "s2.1-pro"
    assert (asked.writer.media_type, asked.writer.sample_rate) == ("audio/wav", 24_000)


@pytest.mark.parametrize("write", [in_json, in_msgpack])
def test_fields_that_are_null_count_as_not_given(write: Any) -> None:
    assert len(msgpack.packb(OLD_SDK)) == 178
    asked = FishServer().read_call(write(OLD_SDK))
    assert asked.request == SynthesisRequest(
        "Hello", options={"chunk_length": 200, "temperature": 0.7, "top_p": 0.7}
    )
    assert asked.model is None
    assert asked.writer.sample_rate == 0


def test_prosody_may_be_null_in_part_and_means_nothing_elsewhere() -> None:
    body = {"text": "Hi", "speed": "fast", "volume": 3, "prosody": {"speed": None, "volume": -3}}
    asked = FishServer().read_call(in_json(body))
    assert asked.request == SynthesisRequest("Hi", options={"volume": -3})
    del body["prosody"]
    asked = FishServer().read_call(in_json(body))
    assert asked.request == SynthesisRequest("Hi")


def test_a_reference_id_wins_over_recordings() -> None:
    assert len(msgpack.packb(NEW_SDK)) == 601
    asked = FishServer().read_call(in_msgpack(NEW_SDK))
    assert asked.request.voice == "abc"
    assert "references" not in asked.request.options


@pytest.mark.parametrize("reference_id", [None, "", "933563129e564b19a115bedd57b7406a"])
def test_recordings_come_along_where_no_voice_is_named(reference_id: str | None) -> None:
    server = FishServer()
    asked = server.read_call(in_msgpack(NEW_SDK | {"reference_id": reference_id}))
    assert asked.request.voice is None
    assert asked.request.options["references"] == [(bytes(300), "ref")]
    asked = server.read_call(in_json({"text": "Hi", "references": [{"audio": "AQI=", "text": ""}]}))
    assert asked.request.options == {"references": [(b"\x01\x02", "")]}


def test_knobs_become_options_unless_they_go_without_saying() -> None:
    body = LIVEKIT | {
        "prosody": {"speed": 1.2, "volume": -3, "normalize_loudness": False},
        "latency": "low",
        "normalize": False,
        "seed": 0,
        "min_chunk_length": 50,
    }
    asked = FishServer().read_call(in_json(body))
    assert asked.request.speed == 1.2
    assert asked.request.options == {
        "chunk_length": 100,
        "latency": "low",
        "min_chunk_length": 50,
        "normalize": False,
        "normalize_loudness": False,
        "seed": 0,
        "temperature": 0.7,
        "top_p": 0.7,
        "volume": -3,
    }
    said = {"latency": "normal", "prosody": {"volume": 0, "normalize_loudness": True}}
    asked = FishServer().read_call(in_json({"text": "Hi", "normalize": True} | said))
    assert asked.request.options == {}


@pytest.mark.parametrize(
    ("reference_id", "voice"),
    [("spk1", "spk1"), (["spk1"], "spk1"), ("", None), ("933563129e564b19a115bedd57b7406a", None)],
)
def test_no_voice_may_be_said_in_several_ways(reference_id: object, voice: str | None) -> None:
    asked = FishServer().read_call(in_json({"text": "Hi", "reference_id": reference_id}))
    assert asked.request.voice == voice


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": None},
        {"text": 3},
        {"text": b"Hi"},
        {"reference_id": 7},
        {"reference_id": ["a", "b"]},
        {"reference_id": []},
        {"reference_id": [None]},
        {"references": {}},
        {"format": 1},
        {"format": "flac"},
        {"format": "mp3", "mp3_bitrate": 100},
        {"format": "mp3", "mp3_bitrate": "128"},
        {"format": "mp3", "sample_rate": 23_000},
        {"format": "opus", "opus_bitrate": 8},
        {"format": "opus", "opus_bitrate": 0},
        {"latency": 1},
        {"streaming": "yes"},
        {"normalize": 1},
        {"sample_rate": 24_000.0},
        {"sample_rate": 4_000},
        {"sample_rate": 96_000},
        {"sample_rate": True},
        {"prosody": 1.5},
        {"prosody": {"speed": "fast"}},
        {"prosody": {"speed": 0.1}},
        {"prosody": {"speed": float("nan")}},
        {"prosody": {"volume": "loud"}},
        {"chunk_length": "200"},
        {"top_p": "0.7"},
        {"temperature": True},
        {"seed": 1.5},
    ],
)
def test_what_is_not_what_it_should_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        FishServer().read_call(in_msgpack(LIVEKIT | wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        [{"audio": "AQI="}],
        [{"text": ""}],
        [{"audio": "?", "text": ""}],
        [{"audio": 3, "text": ""}],
        ["AQI="],
    ],
)
def test_a_recording_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidRequestError, match="not a speech request"):
        FishServer().read_call(in_json({"text": "Hi", "references": wrong}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\xa2Hi",
        b"\x81\xa4text",
        b"\x81\xa4text\xa2\xff\xfe",
        b"\x81\x01\xa2Hi",
        b"\x81\xa4text\xa2Hi\x00",
        b"\x82\xa4text\xa2Hi\xa1x" + b"\x91" * 100_000 + b"\xc0",
        b"\x82\xa4text\xa2Hi\xa1x\xdd\xff\xff\xff\xff",
        b"\x82\xa4text\xa2Hi\xa1x\xdd\x00\x00\x10\x00" + b"\xc0" * 4096,
        b"\xdf\xff\xff\xff\xff\xa4text\xa2Hi",
        b"\x82\xa4text\xa2Hi\xa1x\xc9\xff\xff\xff\xff\x00",
        b"\x82\xa4text\xa2Hi\xa1x\xc6\xff\xff\xff\xff\x00",
        b"\x82\xa4text\xa2Hi\xa1x" + b"\xdd\x00\x00\x03\xe8" * 2_000,
        b"\x82\xa4text\xa2Hi\xa1x\xdc\x00\x64" + (b"\xdc\x00\x64" + b"\x90" * 100) * 100,
        b"\x82\xa4text\xa2Hi\xa1x\xdc\x00\x64" + b"\x80" * 100,
        b"\x81\xa4text\xdb\x00\x00\x10\x00" + b"\xff" * 4096,
        msgpack.packb({"text": "Hi"} | {str(n): n for n in range(1_000)}),
    ],
)
def test_msgpack_that_is_broken_or_a_bomb_is_refused_in_a_line(body: bytes) -> None:
    call = HttpCall("POST", "/v1/tts", headers={"content-type": "application/msgpack"}, body=body)
    with pytest.raises(InvalidRequestError, match="not a request") as refused:
        FishServer().read_call(call)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"Hi"', b"[" * 100_000, b'{"text":"\xff"}'])
def test_json_that_is_broken_is_refused_in_a_line(body: bytes) -> None:
    call = HttpCall("POST", "/v1/tts", headers={"content-type": "application/json"}, body=body)
    with pytest.raises(InvalidRequestError, match="not a request") as refused:
        FishServer().read_call(call)
    assert len(str(refused.value)) < 400


def test_a_text_of_a_million_characters_is_not_looked_through() -> None:
    assert FishServer().read_call(in_json({"text": "x" * 1_000_000})).request.text
    with pytest.raises(InvalidRequestError, match="a text of more than 1000000 characters"):
        FishServer().read_call(in_json({"text": "x" * 1_000_001}))


@pytest.mark.parametrize("voice", ["Mai \ud83d", ["Mai \ud83d"]])
def test_half_of_a_character_is_read_as_none_that_is_known(voice: object) -> None:
    asked = FishServer().read_call(in_json({"text": "Hi \udc00", "reference_id": voice})).request
    assert (asked.text, asked.voice) == ("Hi \ufffd", "Mai \ufffd")


def test_a_request_of_too_many_megabytes_is_not_looked_at() -> None:
    with pytest.raises(InvalidRequestError, match="more than 32000000 bytes"):
        FishServer().read_call(in_json({"text": "x" * 32_000_000}))


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}])
def test_a_request_in_no_known_format_is_refused_with_those_there_are(
    headers: dict[str, str],
) -> None:
    with pytest.raises(InvalidRequestError, match="types: application/json, application/msgpack"):
        FishServer().read_call(HttpCall("POST", "/v1/tts", headers=headers, body=b"{}"))


def test_a_stream_begins_with_a_true_header() -> None:
    writer = FishServer().read_call(in_json({"text": "Hi", "streaming": True})).writer
    chunk = AudioChunk(from_s16(STREAM), 22_050)
    assert writer.push(chunk) == bytes.fromhex(
        "52494646ffffffff57415645666d7420100000000100010022560000"
        "44ac00000200100064617461ffffffff" + STREAM.hex()
    )
    assert writer.push(chunk) == STREAM


def raw(call: HttpCall) -> HttpCall:
    return replace(call, query={"raw": "true"})


def test_a_raw_stream_is_as_from_fish_speech() -> None:
    server = FishServer()
    writer = server.read_call(raw(in_json({"text": "Hi", "streaming": True}))).writer
    assert (writer.media_type, writer.sample_rate) == ("audio/wav", 44_100)
    assert writer.push(AudioChunk(from_s16(STREAM), 44_100)) == STREAM
    assert writer.flush() == b""
    whole = server.read_call(raw(in_json({"text": "Hi"}))).writer
    assert whole.push(AudioChunk(from_s16(STREAM), 44_100)).startswith(b"RIFF")


@pytest.mark.parametrize(("rate", "given_rate"), [(44_100, None), (8_000, 8_000)])
def test_pcm_has_the_rate_that_was_asked_for(rate: int, given_rate: int | None) -> None:
    body = {"text": "Hi", "format": "pcm", "sample_rate": given_rate}
    writer = FishServer().read_call(in_msgpack(body)).writer
    assert (writer.media_type, writer.sample_rate) == ("audio/pcm", rate)


def compressed(**fields: object) -> tuple[bytes, str, int]:
    """Two seconds of a tone as the server writes them, what it calls them, and at which rate."""
    pytest.importorskip("av")
    writer = FishServer().read_call(in_msgpack({"text": "Hi"} | fields)).writer
    rate = writer.sample_rate
    body = writer.push(AudioChunk(tone(2.0, rate), rate)) + writer.flush()
    reader = FishDialect().read_reply(SynthesisRequest("Hi."), reply(200, b"", writer.media_type))
    samples, heard_rate = read(reader, body, 480)
    assert heard_rate == rate
    assert 2 * rate <= len(samples) <= 2 * rate + 3_000
    assert pitch(samples, rate) == pytest.approx(440, abs=0.1)
    return body, writer.media_type, rate


@pytest.mark.parametrize(
    ("fields", "rate", "bits"),
    [
        ({}, 44_100, 128_000),
        ({"mp3_bitrate": 64}, 44_100, 64_000),
        ({"mp3_bitrate": 192}, 44_100, 192_000),
        ({"sample_rate": 32_000}, 32_000, 128_000),
        ({"sample_rate": 24_000, "mp3_bitrate": 64}, 24_000, 64_000),
    ],
)
def test_mp3_has_the_rates_that_are_asked_for(
    fields: dict[str, object], rate: int, bits: int
) -> None:
    body, media_type, came = compressed(format="mp3", **fields)
    assert (media_type, came) == ("audio/mpeg", rate)
    assert len(body) == pytest.approx(2 * bits / 8, rel=0.06)


def test_opus_has_the_bit_rate_that_is_asked_for_in_either_unit() -> None:
    for fields in ({}, {"sample_rate": 24_000}, {"opus_bitrate": -1000}):
        assert compressed(format="opus", **fields)[1:] == ("audio/ogg", 48_000)
    sizes = {rate: len(compressed(format="opus", opus_bitrate=rate)[0]) for rate in (24, 32, 48)}
    assert sizes[24] < 0.9 * sizes[32] < 0.8 * sizes[48]
    assert sizes[48] == len(compressed(format="opus", opus_bitrate=48_000)[0])


def test_fish_audio_means_mp3_where_nothing_is_said() -> None:
    pytest.importorskip("av")
    body = in_json({"text": "Hi"})
    assert FishServer().read_call(body).writer.media_type == "audio/wav"
    writer = FishCloudServer().read_call(body).writer
    assert (writer.media_type, writer.sample_rate) == ("audio/mpeg", 44_100)


def test_samples_outside_the_scale_clip_and_do_not_wrap() -> None:
    writer = FishServer().read_call(raw(in_json({"text": "Hi", "streaming": True}))).writer
    loud = AudioChunk(np.array([1.0, 1.2, -1.5], np.float32), 44_100)
    assert np.frombuffer(writer.push(loud), "<i2").tolist() == [32767, 32767, -32768]


def test_an_error_is_written_in_the_shape_of_each() -> None:
    error = VoiceNotFoundError("bob", ["emma"])
    written = FishServer().write_error(error)
    assert (written.status, written.media_type) == (400, "application/json")
    assert written.body == (
        b'{"statusCode": 400, "message": "no voice \'bob\'; available: emma",'
        b' "error": "Bad Request"}'
    )
    written = FishCloudServer().write_error(error)
    assert written.status == 400
    assert written.body == b'{"message": "no voice \'bob\'; available: emma", "status": 400}'
    request = SynthesisRequest("Hi", voice="bob")
    assert isinstance(FishCloudDialect().read_error(written, request), VoiceNotFoundError)


def test_who_is_told_to_wait_is_told_for_how_long() -> None:
    for server in (FishServer(), FishCloudServer()):
        written = server.write_error(OverloadedError("busy", retry_after=1.2))
        assert (written.status, written.headers["retry-after"]) == (429, "2")


# Laws


def in_range(knobs: Mapping[str, Any]) -> dict[str, st.SearchStrategy[Any]]:
    """For each option, what it may be."""
    strategies: dict[str, st.SearchStrategy[Any]] = {}
    for name, knob in knobs.items():
        if knob is bool:
            strategies[name] = st.booleans()
        elif getattr(knob, "kind", None) is int:
            strategies[name] = st.integers(int(knob.least), int(knob.most))
        elif getattr(knob, "kind", None) is float:
            strategies[name] = st.floats(knob.least, knob.most)
        else:
            strategies[name] = st.sampled_from(knob)
    return strategies


texts = st.text().map(lambda text: "a" + text).filter(lambda t: "<|" not in t and "|>" not in t)
voices = st.none() | st.from_regex(r"[a-zA-Z0-9\-_ ]{1,255}", fullmatch=True)
options = st.fixed_dictionaries({}, optional=in_range(SELF_HOSTED))
references = st.lists(st.tuples(st.binary(), st.text()), min_size=1)
cloud_options = st.fixed_dictionaries(
    {"latency": st.sampled_from(LATENCIES)},
    optional=in_range({name: knob for name, knob in CLOUD.items() if name != "latency"}),
)


@given(st.builds(SynthesisRequest, texts, voice=voices, options=options))
def test_a_server_reads_what_a_caller_of_fish_speech_wrote(request: SynthesisRequest) -> None:
    call = FishDialect().write_call(request)
    assert call.headers == {"content-type": "application/json"}
    assert FishServer().read_call(call).request == request


@given(texts, references)
def test_a_server_reads_recordings_in_msgpack(text: str, heard: list[tuple[bytes, str]]) -> None:
    request = SynthesisRequest(text, options={"references": heard, "seed": 3})
    call = FishDialect().write_call(request)
    assert call.headers == {"content-type": "application/msgpack"}
    assert FishServer().read_call(call).request == request


@given(
    st.builds(
        SynthesisRequest,
        texts,
        voice=st.none() | st.text(min_size=1),
        speed=st.floats(0.5, 2.0),
        options=cloud_options,
    ),
)
def test_a_server_reads_what_a_caller_of_fish_audio_wrote(request: SynthesisRequest) -> None:
    asked = FishCloudServer().read_call(FishCloudDialect().write_call(request))
    unsaid = [("latency", "normal"), ("latency", "balanced"), ("volume", 0)]
    unsaid += [("normalize", True), ("normalize_loudness", True)]
    said = dict(item for item in request.options.items() if item not in unsaid)
    assert asked.request == replace(request, options=said)
    assert asked.model == "s2.1-pro"
    assert asked.writer.sample_rate == 24_000


pcm = st.binary(max_size=60).map(lambda b: b[: len(b) // 2 * 2].replace(b"R", b"r"))
"""Samples without the letter with which another file would begin among them."""


@pytest.mark.parametrize("query", [{}, {"raw": "true"}])
@given(st.lists(pcm), st.integers(1, 50))
def test_a_caller_hears_what_a_server_of_fish_speech_said(
    query: dict[str, str], pieces: list[bytes], by: int
) -> None:
    pieces = [STREAM, *pieces]
    request = SynthesisRequest("Hi.")
    call = replace(FishDialect().write_call(request), query=query)
    writer = FishServer().read_call(call).writer
    body = b"".join(writer.push(AudioChunk(from_s16(pcm), 44_100)) for pcm in pieces)
    reader = FishDialect().read_reply(request, reply(200, b"", writer.media_type))
    samples, rate = read(reader, body + writer.flush(), by)
    assert (samples * 32768).astype("<i2").tobytes() == b"".join(pieces)
    assert rate == 44_100


@given(st.lists(pcm), st.integers(1, 50))
def test_a_caller_hears_what_a_server_of_fish_audio_said(pieces: list[bytes], by: int) -> None:
    pieces = [STREAM, *pieces]
    request = SynthesisRequest("Hi.")
    writer = FishCloudServer().read_call(FishCloudDialect().write_call(request)).writer
    body = b"".join(writer.push(AudioChunk(from_s16(pcm), 24_000)) for pcm in pieces)
    reader = FishCloudDialect().read_reply(request, reply(200, b"", writer.media_type))
    samples, rate = read(reader, body + writer.flush(), by)
    assert (samples * 32768).astype("<i2").tobytes() == b"".join(pieces)
    assert rate == 24_000


# By address


def dialect(spec: str, **options: Any) -> object:
    engine = open_engine(spec, **options)
    assert isinstance(engine, RemoteEngine)
    return engine._dialect


def test_an_address_of_ones_own_is_fish_speech() -> None:
    found = dialect("fish+http://localhost:8080?temperature=0.5&seed=3&voice=spk1")
    assert type(found) is FishDialect
    assert sent(found.write_call(SynthesisRequest("Hi."))) == {
        "text": "Hi.",
        "format": "wav",
        "streaming": True,
        "temperature": 0.5,
        "seed": 3,
    }
    assert (found.max_in_flight, found.accepts_any_voice) == (1, True)


def test_recordings_may_stand_in_an_address(tmp_path: Path) -> None:
    (tmp_path / "me.wav").write_bytes(WAV)
    given = json.dumps([[str(tmp_path / "me.wav"), "Me."]])
    found = dialect(f"fish+http://localhost:8080?references={given}")
    assert isinstance(found, FishDialect)
    call = found.write_call(SynthesisRequest("Hi."))
    assert sent(call)["references"] == [{"audio": WAV, "text": "Me."}]


def test_the_vendors_address_is_fish_audio_with_the_key_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FISH_API_KEY", KEY)
    engine = open_engine("fish+https://api.fish.audio?latency=low")
    assert isinstance(engine, RemoteEngine)
    assert type(engine._dialect) is FishCloudDialect
    assert engine._key == KEY
    assert KEY not in repr(engine)
    monkeypatch.delenv("FISH_API_KEY")
    with pytest.raises(InvalidRequestError, match="set FISH_API_KEY, or pass api_key="):
        open_engine("fish+https://api.fish.audio")


def test_the_vendors_key_is_not_for_a_server_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FISH_API_KEY", KEY)
    engine = open_engine("fish+http://localhost:8080")
    assert isinstance(engine, RemoteEngine)
    assert engine._key is None


# The stub behaves as the server did when it was recorded


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (
            {"text": "x" * 501},
            400,
            {
                "statusCode": 400,
                "message": "Text is too long, max length is 500",
                "error": "Bad Request",
            },
        ),
        (
            {"text": "Hi", "streaming": True, "format": "mp3"},
            400,
            {
                "statusCode": 400,
                "message": "Streaming only supports WAV format",
                "error": "Bad Request",
            },
        ),
        (
            {"text": "Hi", "format": "pcm"},
            500,
            {
                "statusCode": 500,
                "message": "Failed to generate speech",
                "error": "Internal Server Error",
            },
        ),
        (
            {"format": "wav"},
            422,
            [
                {
                    "type": "missing",
                    "loc": ["text"],
                    "msg": "Field required",
                    "input": {"format": "wav"},
                    "url": "https://errors.pydantic.dev/2.14/v/missing",
                    "in": "body",
                }
            ],
        ),
    ],
)
async def test_the_stub_refuses_what_fish_speech_refuses(
    body: dict[str, object], status: int, said: object
) -> None:
    async with (
        serving(FishSpeech(longest=500)) as server,
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v1/tts", json=body) as response,
    ):
        assert response.status == status
        assert await response.json() == said


async def test_the_stub_answers_in_msgpack_unless_asked_for_json() -> None:
    async with serving(FishSpeech()) as server, aiohttp.ClientSession() as session:
        address = f"{server.url}/v1/references/list"
        async with session.get(address) as response:
            assert await response.read() == (
                b"\x83\xa7success\xc3\xadreference_ids\x90\xa7message\xb8Found 0 reference voices"
            )
        async with session.get(address, params={"format": "json"}) as response:
            assert await response.json() == {
                "success": True,
                "reference_ids": [],
                "message": "Found 0 reference voices",
            }


@pytest.mark.parametrize(
    ("authorization", "said"),
    [
        (None, b'{"statusCode": 401, "message": null, "error": "Unauthorized"}'),
        ("Basic eA==", b'{"statusCode": 401, "message": null, "error": "Unauthorized"}'),
        ("Bearer x", b'{"statusCode": 401, "message": "Invalid token", "error": "Unauthorized"}'),
    ],
)
async def test_the_stub_wants_its_key(authorization: str | None, said: bytes) -> None:
    headers = {"authorization": authorization} if authorization else {}
    async with (
        serving(FishSpeech(key=KEY)) as server,
        aiohttp.ClientSession() as session,
        session.get(f"{server.url}/v1/health", headers=headers) as response,
    ):
        assert (response.status, await response.read()) == (401, said)


# Through RemoteEngine


@asynccontextmanager
async def connected(
    answer: Answer, dialect: FishDialect | FishCloudDialect | None = None, **options: Any
) -> AsyncGenerator[tuple[RemoteEngine, Server], None]:
    async with serving(answer) as server:
        engine = RemoteEngine(dialect or FishDialect(), server.url, **options)
        async with aclosing(engine):
            yield engine, server


async def listen(engine: RemoteEngine, request: SynthesisRequest, heard: list[AudioChunk]) -> None:
    async with aclosing(engine.stream(request)) as stream:
        async for chunk in stream:
            heard.append(chunk)  # noqa: PERF401  what came before an error counts


async def chunks(engine: RemoteEngine, text: str, **fields: Any) -> list[AudioChunk]:
    heard: list[AudioChunk] = []
    await listen(engine, SynthesisRequest(text, **fields), heard)
    return heard


async def spoken(engine: RemoteEngine, text: str, **fields: Any) -> tuple[bytes, int]:
    """What is heard of a text, in 16 bits, and at which rate."""
    heard = await chunks(engine, text, **fields)
    [rate] = {chunk.sample_rate for chunk in heard}
    samples = np.concatenate([chunk.samples for chunk in heard])
    return (samples * 32768).astype("<i2").tobytes(), rate


def paths(server: Server) -> list[str]:
    return [f"{call.method} {call.path}" for call in server.calls]


@pytest.mark.parametrize("with_header", [False, True])
async def test_a_sentence_is_heard_sample_for_sample(with_header: bool) -> None:
    fish = FishSpeech(header=with_header)
    async with connected(fish) as (engine, server):
        assert await spoken(engine, "How are you?") == (beep("How are you?", 44_100), 44_100)
    assert fish.asked == [{"text": "How are you?", "format": "wav", "streaming": True}]
    assert paths(server) == ["POST /v1/tts"]


async def test_requests_come_one_at_a_time() -> None:
    fish = FishSpeech()
    async with connected(fish) as (engine, _):
        texts = ["One.", "Two two.", "Three three three."]
        heard = await asyncio.gather(*(spoken(engine, text) for text in texts))
    assert [pcm for pcm, _ in heard] == [beep(text, 44_100) for text in texts]
    assert fish.most_at_once == 1


@pytest.mark.parametrize("fails", ["early", "empty"])
async def test_a_stream_that_breaks_off_before_its_first_sound_is_asked_for_again(
    fails: Any,
) -> None:
    fish = FishSpeech(fails=fails, header=fails == "early")
    async with connected(fish, retries=1) as (engine, _):
        with pytest.raises(UnreachableError, match="its answer is cut short"):
            await chunks(engine, "Hello there.")
    assert len(fish.asked) == 2


async def test_a_stream_that_breaks_off_later_is_an_error_and_is_not_repeated() -> None:
    fish = FishSpeech(fails="mid")
    heard: list[AudioChunk] = []
    async with connected(fish) as (engine, _):
        with pytest.raises(UnreachableError, match="its answer is cut short"):
            await listen(engine, SynthesisRequest("Hello there."), heard)
    assert sum(len(chunk.samples) for chunk in heard) == 4_410
    assert len(fish.asked) == 1


async def test_a_server_that_goes_on_for_nobody_is_waited_for() -> None:
    fish = FishSpeech()
    fish.resume.clear()
    async with connected(fish) as (engine, server):
        async with aclosing(engine.stream(SynthesisRequest("One two three."))) as stream:
            await anext(stream)
        await server.connections[0].lost.wait()
        second = asyncio.create_task(spoken(engine, "Four."))
        await fish.queued.wait()
        assert not second.done()
        fish.resume.set()
        assert await second == (beep("Four.", 44_100), 44_100)


@pytest.mark.parametrize("names", [[], ["spk1"]])
async def test_a_voice_that_the_server_has_not_is_refused_before_it_speaks(
    names: Sequence[str],
) -> None:
    fish = FishSpeech()
    fish.references = dict.fromkeys(names, (WAV, "Me."))
    async with connected(fish) as (engine, server):
        with pytest.raises(
            VoiceNotFoundError, match=f"no voice 'bob'; available: {''.join(names)}"
        ):
            await chunks(engine, "Hello there.", voice="bob")
    assert paths(server) == ["GET /v1/references/list"]
    assert (fish.asked, fish.random, fish.folders) == ([], 0, set())


async def test_a_voice_is_looked_up_once() -> None:
    fish = FishSpeech()
    fish.references = {"spk1": (WAV, "Me.")}
    async with connected(fish, voice="spk1") as (engine, server):
        await chunks(engine, "One.")
        await chunks(engine, "Two.")
    assert paths(server) == ["GET /v1/references/list", "POST /v1/tts", "POST /v1/tts"]
    assert [body["reference_id"] for body in fish.asked] == ["spk1", "spk1"]
    assert fish.random == 0


async def test_a_server_too_old_to_list_its_voices_is_believed_to_have_them() -> None:
    fish = FishSpeech()

    async def older(line: Line, call: Call) -> None:
        if call.path == "/v1/tts":
            await fish(line, call)
        else:
            line.json(404, {"statusCode": 404, "message": None, "error": "Not Found"})

    async with connected(older) as (engine, _):
        await chunks(engine, "Hello.", voice="spk1")
    assert fish.asked[0]["reference_id"] == "spk1"


async def test_a_text_that_says_who_speaks_loses_none_of_its_words() -> None:
    fish = FishSpeech()
    text = "Hello there. <|speaker:1|>How are you?"
    async with connected(fish) as (engine, _):
        assert await spoken(engine, text) == (beep("1 2 3 4 5", 44_100), 44_100)


async def test_a_text_that_is_too_long_is_refused_and_the_next_one_spoken() -> None:
    async with connected(FishSpeech(longest=10)) as (engine, _):
        with pytest.raises(RemoteError, match="400: Text is too long, max length is 10") as refused:
            await chunks(engine, "Far too long.")
        assert not refused.value.permanent
        assert await spoken(engine, "Short.")


async def test_prewarming_asks_for_nothing_but_health() -> None:
    async with connected(FishSpeech()) as (engine, server):
        await engine.prewarm()
        await chunks(engine, "Hello.")
    assert paths(server) == ["GET /v1/health", "POST /v1/tts"]
    assert len(server.connections) == 1


async def test_a_clone_speaks_by_its_name_and_is_not_sent_twice() -> None:
    fish = FishSpeech()
    mark = hashlib.sha256(WAV).hexdigest()[:8]
    async with connected(fish) as (engine, server):
        voice = await engine.clone("Mai Ánh", WAV, transcript="It's me.")
        assert voice == Voice("Mai Ánh", "und")
        assert fish.references == {f"Mai Anh-{mark}": (WAV, "It's me.")}
        await chunks(engine, "Hello.", voice="Mai Ánh")
        await engine.clone("Mai Ánh", WAV, transcript="It's me.")
        await engine.clone("somebody", WAV, transcript="It's me.")
        await chunks(engine, "Hello.", voice="somebody")
        assert paths(server).count("POST /v1/references/add") == 1
        async with aclosing(RemoteEngine(FishDialect(), server.url)) as another:
            await another.clone("Mai Ánh", WAV, transcript="It's me.")
            await chunks(another, "Hello.", voice="Mai Ánh")
        assert paths(server).count("POST /v1/references/add") == 1
    assert [body["reference_id"] for body in fish.asked] == [f"Mai Anh-{mark}"] * 3
    assert fish.random == 0


async def test_a_clone_that_another_process_made_first_is_found() -> None:
    fish = FishSpeech()
    mark = hashlib.sha256(WAV).hexdigest()[:8]

    async def racing(line: Line, call: Call) -> None:
        await fish(line, call)
        if call.path == "/v1/references/list":
            fish.folders.add(f"me-{mark}")
            fish.references[f"me-{mark}"] = (WAV, "It's me.")

    async with connected(racing) as (engine, server):
        await engine.clone("me", WAV, transcript="It's me.")
        await chunks(engine, "Hello.", voice="me")
    assert "POST /v1/references/add" in paths(server)
    assert [body["reference_id"] for body in fish.asked] == [f"me-{mark}"]


async def test_a_name_whose_folder_is_empty_is_an_error_not_a_random_voice() -> None:
    fish = FishSpeech()
    fish.folders.add(f"me-{hashlib.sha256(WAV).hexdigest()[:8]}")
    async with connected(fish) as (engine, _):
        with pytest.raises(RemoteError, match=r"409: Reference ID 'me-.*' already exists"):
            await engine.clone("me", WAV, transcript="It's me.")


async def test_a_wrong_key_is_not_repeated_in_the_error() -> None:
    async with connected(FishSpeech(key="right"), api_key=KEY) as (engine, _):
        with pytest.raises(RemoteError, match="401: Invalid token") as refused:
            await chunks(engine, "Hello.")
        assert refused.value.permanent
        assert KEY not in f"{refused.value!r} {engine!r} {refused.value.__cause__!r}"


async def test_fish_audio_speaks_at_the_rate_that_was_asked_for() -> None:
    fish = FishAudio(KEY)
    async with connected(fish, FishCloudDialect(sample_rate=16_000), api_key=KEY) as (engine, _):
        heard = await spoken(engine, "How are you?", speed=1.25)
    assert heard == (beep("How are you?", 16_000), 16_000)
    [(body, model)] = fish.asked
    assert model == "s2.1-pro"
    assert body["prosody"] == {"speed": 1.25}


async def test_an_empty_account_is_said_to_be_empty() -> None:
    fish = FishAudio(KEY, credit=False)
    async with connected(fish, FishCloudDialect(), api_key=KEY) as (engine, _):
        with pytest.raises(RemoteError, match="402: Insufficient Balance") as refused:
            await chunks(engine, "Hello.")
    assert refused.value.status_code == 402
    assert len(fish.asked) == 1


async def test_fish_audio_names_its_voices_when_asked_for_another() -> None:
    fish = FishAudio(KEY)
    fish.voices = [{"_id": "802e", "title": "Ethan"}]
    async with connected(fish, FishCloudDialect(), api_key=KEY) as (engine, _):
        with pytest.raises(VoiceNotFoundError, match="no voice 'bob'; available: 802e"):
            await chunks(engine, "Hello.", voice="bob")


async def test_a_clone_at_fish_audio_speaks_by_its_name_and_is_not_sent_twice() -> None:
    fish = FishAudio(KEY)
    async with connected(fish, FishCloudDialect(), api_key=KEY) as (engine, server):
        voice = await engine.clone("Mai Ánh", WAV)
        assert (voice.id, voice.language) == ("Mai Ánh", "en")
        await engine.clone("Mai Ánh", WAV)
        await chunks(engine, "Hello.", voice="Mai Ánh")
        async with aclosing(RemoteEngine(FishCloudDialect(), server.url, api_key=KEY)) as another:
            await another.clone("Mai Ánh", WAV)
            await chunks(another, "Hello.", voice="Mai Ánh")
        assert paths(server).count("POST /model") == 1
    assert [body["reference_id"] for body, _ in fish.asked] == [f"{0:032x}"] * 2
    assert fish.voices[0]["visibility"] == "private"


def test_the_header_of_the_stub_is_one_of_pythons() -> None:
    assert header(44_100, 26_460) == FILE
