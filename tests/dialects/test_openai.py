"""tts_plugins.dialects.openai: both ends alone, joined, and over a socket."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.openai_server import (
    Reply,
    audio,
    encoded,
    events,
    joined,
    s16,
    speaking,
    spoken,
    wav,
    wav_of_ffmpeg,
    wav_of_floats,
)
from tests.hearing import pitch
from tests.servers import Call, Line, by_path, serving
from tts_plugins.audio.pcm import from_s16
from tts_plugins.dialects.base import Clip, HttpCall, HttpReply, ReplyReader, ReplyWriter
from tts_plugins.dialects.openai import EventBody, OpenAIDialect, OpenAIServer
from tts_plugins.errors import (
    InvalidRequestError,
    MissingDependencyError,
    OverloadedError,
    RemoteError,
    TTSError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.remote import RemoteEngine
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice

HELLO = SynthesisRequest("Hello there.", voice="alloy")


def asked(body: object) -> HttpCall:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpCall("POST", "/v1/audio/speech", body=data)


# What we ask for


@pytest.mark.parametrize(
    ("dialect", "request_", "body"),
    [
        (
            OpenAIDialect(model="tts-1"),
            SynthesisRequest('Xin chào "bạn"', voice="alloy"),
            (
                r'{"model": "tts-1", "input": "Xin chào \"bạn\"", "voice": "alloy",'
                r' "response_format": "pcm"}'
            ),
        ),
        (
            OpenAIDialect(
                instructions="calm", response_format="wav", extra={"stream_format": "audio"}
            ),
            SynthesisRequest("hi", voice="voice_1", speed=1.25),
            (
                '{"model": "gpt-4o-mini-tts", "input": "hi", "voice": {"id": "voice_1"},'
                ' "instructions": "calm", "response_format": "wav", "speed": 1.25,'
                ' "stream_format": "audio"}'
            ),
        ),
        (
            OpenAIDialect(model="m", extra={"response_format": None, "stream_format": "sse"}),
            SynthesisRequest("hi", voice="v"),
            '{"model": "m", "input": "hi", "voice": "v", "stream_format": "sse"}',
        ),
        (
            OpenAIDialect(instructions="calm"),
            SynthesisRequest(
                "hi",
                language="fr",
                previous_text="Salut.",
                options={"instructions": "loud", "model": "tts-2"},
            ),
            (
                '{"model": "tts-2", "input": "hi", "voice": "alloy", "instructions": "loud",'
                ' "response_format": "pcm"}'
            ),
        ),
    ],
    ids=["as the SDK's first", "as the SDK's with all fields", "as the SDK's sse", "options"],
)
def test_a_request_is_what_openais_own_client_sends(
    dialect: OpenAIDialect, request_: SynthesisRequest, body: str
) -> None:
    call = dialect.write_call(request_)
    assert (call.method, call.path, call.query) == ("POST", "/v1/audio/speech", {})
    assert call.headers == {"content-type": "application/json"}
    assert call.body.decode() == body


def test_the_key_stands_in_a_header() -> None:
    assert OpenAIDialect().authorize("sk-1") == {"authorization": "Bearer sk-1"}


@pytest.mark.parametrize("sample_rate", [0, -1, 999, 768_001, 24_000.0, "24000", None])
def test_a_rate_that_is_none_is_refused(sample_rate: Any) -> None:
    with pytest.raises(InvalidRequestError, match="is not a number of hertz"):
        OpenAIDialect(sample_rate=sample_rate)


def test_a_format_that_there_is_not_is_answered_with_those_there_are() -> None:
    with pytest.raises(InvalidRequestError, match="formats: pcm, wav, mp3, opus, aac, flac"):
        OpenAIDialect(response_format="ogg")


@pytest.mark.parametrize("speed", [0.2, 4.1, math.nan])
def test_a_speed_that_openai_does_not_have_is_refused_before_it_is_asked(speed: float) -> None:
    with pytest.raises(InvalidRequestError, match=r"is outside 0\.25 to 4"):
        OpenAIDialect().write_call(SynthesisRequest("Hi", speed=speed))


def test_an_unknown_option_is_refused_before_it_is_asked() -> None:
    with pytest.raises(InvalidRequestError, match="no option pitch; options: instructions, model"):
        OpenAIDialect().write_call(SynthesisRequest("Hi", options={"pitch": 1}))


# What comes back

_DIALECT = OpenAIDialect()
_LOW = OpenAIDialect(sample_rate=16_000)
_MP3 = OpenAIDialect(response_format="mp3")
_AAC = OpenAIDialect(response_format="aac")

REPLIES: dict[str, tuple[OpenAIDialect, Callable[[], Reply], int, int]] = {
    "pcm": (_DIALECT, lambda: audio(s16(), "audio/pcm"), 24_000, 24_000),
    "pcm under another name": (
        _DIALECT,
        lambda: audio(s16(), "application/octet-stream"),
        24_000,
        24_000,
    ),
    "pcm at the rate of the settings": (
        _LOW,
        lambda: audio(s16(16_000), "audio/pcm"),
        16_000,
        16_000,
    ),
    "pcm at the rate of a header": (
        _LOW,
        lambda: audio(s16(48_000), "audio/pcm", X_Sample_Rate="48000"),
        48_000,
        48_000,
    ),
    "pcm at the rate of its type": (
        _LOW,
        lambda: audio(s16(44_100), "audio/pcm; rate=44100"),
        44_100,
        44_100,
    ),
    "a header goes before the type": (
        _LOW,
        lambda: audio(s16(48_000), "audio/pcm; rate=44100; channels=1", X_Sample_Rate="48000"),
        48_000,
        48_000,
    ),
    "a header that says nonsense": (
        _LOW,
        lambda: audio(s16(16_000), "audio/pcm", X_Sample_Rate="999999999999"),
        16_000,
        16_000,
    ),
    "a wav's own rate goes before all": (
        _LOW,
        lambda: audio(wav(48_000), "audio/pcm; rate=8000", X_Sample_Rate="24000"),
        48_000,
        48_000,
    ),
    "wav, sizes ffffffff": (_DIALECT, lambda: audio(wav(), "audio/wav"), 24_000, 24_000),
    "wav, sizes 7fffffff": (
        _DIALECT,
        lambda: audio(wav(riff=0x7FFFFFFF, data=0x7FFFFFFF - 36), "audio/wav"),
        24_000,
        24_000,
    ),
    "wav, sizes 36 and 0": (
        _DIALECT,
        lambda: audio(wav(riff=36, data=0), "audio/wav"),
        24_000,
        24_000,
    ),
    "wav of ffmpeg": (_DIALECT, lambda: audio(wav_of_ffmpeg(), "audio/wav"), 24_000, 24_000),
    "wav of two channels of floats": (
        _DIALECT,
        lambda: audio(wav_of_floats(), "application/octet-stream"),
        44_100,
        44_100,
    ),
    "sse of pcm": (_DIALECT, lambda: events(s16()), 24_000, 24_000),
    "sse of pcm, cut in samples": (_DIALECT, lambda: events(s16(), size=4_801), 24_000, 24_000),
    "sse of pcm as delta": (_DIALECT, lambda: events(s16(), key="delta"), 24_000, 24_000),
    "sse that isn't done": (_DIALECT, lambda: events(s16(), done=False), 24_000, 24_000),
    "sse of wav": (_DIALECT, lambda: events(wav(48_000)), 48_000, 48_000),
    "pcm in place of mp3": (_MP3, lambda: audio(s16(), "audio/pcm"), 24_000, 24_000),
    "wav in place of mp3": (_MP3, lambda: audio(wav(), "audio/wav"), 24_000, 24_000),
}


@pytest.mark.parametrize("kind", REPLIES)
async def test_every_kind_of_reply_is_the_tone_at_its_pitch_and_length(kind: str) -> None:
    dialect, reply, rate, length = REPLIES[kind]
    samples, found = await heard(dialect, reply())
    assert (found, len(samples)) == (rate, length)
    assert pitch(samples, rate) == pytest.approx(440, abs=1)


COMPRESSED: dict[str, tuple[OpenAIDialect, Callable[[], Reply], int]] = {
    "mp3": (_DIALECT, lambda: audio(encoded("libmp3lame", "mp3"), "audio/mpeg"), 24_000),
    "mp3 that was asked for, under no name": (
        _MP3,
        lambda: audio(encoded("libmp3lame", "mp3"), "application/octet-stream"),
        24_000,
    ),
    "sse of mp3": (_MP3, lambda: events(encoded("libmp3lame", "mp3")), 24_000),
    "sse of aac": (_AAC, lambda: events(encoded("aac", "adts")), 24_000),
    "opus": (_DIALECT, lambda: audio(encoded("libopus", "ogg"), "audio/ogg"), 48_000),
    "flac": (_DIALECT, lambda: audio(encoded("flac", "flac"), "audio/flac"), 24_000),
}


@pytest.mark.parametrize("kind", COMPRESSED)
async def test_compressed_replies_are_the_tone_as_well(kind: str) -> None:
    pytest.importorskip("av")
    dialect, reply, rate = COMPRESSED[kind]
    samples, found = await heard(dialect, reply())
    # Encoders of MP3 and AAC put a frame or two in front, and fill the last one.
    padding = 2_000 if kind[-3:] in ("mp3", "aac") or kind.startswith("mp3") else 0
    assert found == rate
    assert rate <= len(samples) <= rate + padding
    assert pitch(samples, rate) == pytest.approx(440, abs=1)


async def heard(dialect: OpenAIDialect, reply: Reply) -> tuple[Samples, int]:
    async with speaking(reply) as server, aclosing(RemoteEngine(dialect, server.url)) as engine:
        return joined(await spoken(engine, HELLO))


def push_all(reader: ReplyReader, body: bytes, size: int) -> list[AudioChunk]:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return [*(chunk for piece in pieces for chunk in reader.push(piece)), *reader.flush()]


@pytest.mark.parametrize("size", [1, 7, 480, 1_000_000])
@pytest.mark.parametrize("reply", [audio(s16(), "audio/pcm"), events(wav(24_000))])
def test_it_does_not_matter_how_a_reply_is_cut(reply: Reply, size: int) -> None:
    head = HttpReply(200, {"content-type": reply.headers["content_type"]})
    chunks = push_all(_DIALECT.read_reply(HELLO, head), b"".join(reply.pieces), size)
    samples, rate = joined(chunks)
    assert rate == 24_000
    assert np.array_equal(samples, from_s16(s16()))


@pytest.mark.parametrize("rate", ["0", "1", "3999", "768001", "-1", "1e9", "99999999999", "fast"])
async def test_a_stated_rate_that_can_not_be_is_not_taken(rate: str) -> None:
    reply = audio(s16(), "audio/pcm", x_sample_rate=rate)
    samples, sample_rate = await heard(OpenAIDialect(), reply)
    assert (len(samples), sample_rate) == (24_000, 24_000)


@pytest.mark.parametrize(
    "reply", [audio(s16(), "audio/l16;rate=1"), audio(wav(1), "audio/wav")], ids=["l16", "wav"]
)
async def test_audio_of_a_rate_that_can_not_be_is_no_audio(reply: Reply) -> None:
    with pytest.raises(RemoteError, match="audio of 1 channels at 1 Hz can't be played"):
        await heard(OpenAIDialect(), reply)


def test_events_come_as_soon_as_they_are_whole() -> None:
    reader = _DIALECT.read_reply(HELLO, HttpReply(200, {"content-type": "text/event-stream"}))
    table: list[tuple[bytes, list[list[float]]]] = [
        (b'data: {"type":"speech.audio.delta","audio":"AEA', []),
        (b'="}', []),
        (b"\n", [[0.5]]),
        (b"\n: still there\n\n", []),
        (b'data: {"type":"speech.audio.delta","audio":"AEAAQA=="}\n\n', [[0.5, 0.5]]),
        (b'data: {"type":"speech.audio.done","error":null}\n\n', []),
    ]
    for data, expected in table:
        assert [list(chunk.samples) for chunk in reader.push(data)] == expected
    assert reader.flush() == []


@pytest.mark.parametrize(
    "event",
    [
        '{"type":"error","error":{"message":"out of\\nmemory","code":"x"}}',
        '{"error":"out of memory"}',
        '{"type":"error","message":"out of memory"}',
    ],
)
def test_an_event_may_tell_of_a_failure(event: str) -> None:
    reader = _DIALECT.read_reply(HELLO, HttpReply(200, {"content-type": "text/event-stream"}))
    with pytest.raises(RemoteError) as raised:
        reader.push(f"data: {event}\n\n".encode())
    assert str(raised.value) == "it failed on the way: out of memory"
    assert raised.value.retryable


async def test_an_error_that_calls_itself_a_success_is_quoted() -> None:
    reply = audio(b'{"error": {"message": "no credit"}}', "audio/mpeg")
    async with speaking(reply) as server:
        engine = RemoteEngine(OpenAIDialect(), server.url, retries=0)
        with pytest.raises(RemoteError, match=r"text instead of audio: .*no credit"):
            await spoken(engine, HELLO)
        await engine.aclose()


# What goes wrong

_ENDLESS = "no " * 1000

ERRORS: list[tuple[int, bytes, str, type[TTSError]]] = [
    (
        400,
        (
            b'{"error":{"message":"bad \'speed\' \\"x\\"","type":"invalid_request_error",'
            b'"param":null,"code":null}}'
        ),
        "400: bad 'speed' \"x\"",
        RemoteError,
    ),
    (
        401,
        b'{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}',
        "401: Incorrect API key provided",
        RemoteError,
    ),
    (
        404,
        b'{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}',
        "404: The model `x` does not exist",
        RemoteError,
    ),
    (
        422,
        (
            b'{"detail":[{"type":"string_too_short","loc":["body","input"],"msg":"String should'
            b' have at least 1 character","input":"","ctx":{"min_length":1}},'
            b'{"loc":["body","speed",0],"msg":"Field required"}]}'
        ),
        "422: body.input: String should have at least 1 character; body.speed.0: Field required",
        RemoteError,
    ),
    (404, b'{"detail":"Not Found"}', "404: Not Found", RemoteError),
    (
        400,
        b'{"detail":{"error":"validation_error","message":"Invalid normalization","type":"x"}}',
        "400: Invalid normalization",
        RemoteError,
    ),
    (500, b'{"error":"cuda oom"}', "500: cuda oom", RemoteError),
    (
        400,
        b'{"statusCode":400,"message":"Text is too long","error":"Bad Request"}',
        "400: Text is too long",
        RemoteError,
    ),
    (
        503,
        b'{"message":"Failed","error":{"message":"no GPU\\nleft"}}',
        "503: no GPU left",
        RemoteError,
    ),
    (500, b"boom\r\n  bang", "500: boom bang", RemoteError),
    (500, b"", "500: Internal Server Error", RemoteError),
    (500, b"{}", "500: {}", RemoteError),
    (500, b"[]", "500: Internal Server Error", RemoteError),
    (500, b"null", "500: Internal Server Error", RemoteError),
    (500, b'{"detail":[1,{"msg":null},["x"]]}', "500: 1; {'msg': None}; ['x']", RemoteError),
    (500, b"\xff\x1b[31m", "500: \N{REPLACEMENT CHARACTER} [31m", RemoteError),
    (
        502,
        b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\nnginx</body>",
        "502: Bad Gateway",
        RemoteError,
    ),
    (
        503,
        b"<!DOCTYPE html><body><h1>Busy</h1> &amp; tired</body>",
        "503: Busy & tired",
        RemoteError,
    ),
    (500, _ENDLESS.encode(), "500: " + _ENDLESS[:277] + "...", RemoteError),
    (
        500,
        json.dumps({"error": {"message": _ENDLESS}}).encode(),
        "500: " + _ENDLESS[:277] + "...",
        RemoteError,
    ),
    (500, b'{"error":' * 900 + b'"deep"' + b"}" * 900, "500: deep", RemoteError),
    (500, b"[" * 100_000, "500: " + "[" * 277 + "...", RemoteError),
    (
        429,
        b'{"error":{"message":"server busy: queue full","code":429}}',
        "429: server busy: queue full",
        OverloadedError,
    ),
]


@pytest.mark.parametrize(("status", "body", "said", "kind"), ERRORS)
def test_an_error_of_any_shape_is_a_readable_line(
    status: int, body: bytes, said: str, kind: type[TTSError]
) -> None:
    for request in (HELLO, None):
        error = OpenAIDialect().read_error(HttpReply(status, body=body), request)
        assert type(error) is kind
        assert str(error) == said
        assert error.status_code == status
        assert len(said) <= 300


BAD_VOICES: list[tuple[int, object]] = [
    (400, {"error": {"message": "unknown voice 'x'", "param": "voice", "code": "voice_not_found"}}),
    (400, {"error": {"message": "Invalid value: 'x'", "param": "voice", "code": "invalid_value"}}),
    (404, {"error": {"message": "nope", "param": None, "code": "voice_not_found"}}),
    (400, {"error": {"message": "unknown voice 'x'; see GET /v1/voices", "code": 400}}),
    (422, {"detail": [{"loc": ["body", "voice"], "msg": "Input should be a valid string"}]}),
    (422, {"detail": [{"loc": ["body", "voice", "str"], "msg": "Input should be 'a' or 'b'"}]}),
    (400, {"detail": {"error": "validation_error", "message": "Voice 'x' not found."}}),
    (404, {"error": "voice not found"}),
    (400, {"code": "voice_not_found", "message": "?"}),
]


@pytest.mark.parametrize(("status", "body"), BAD_VOICES)
def test_a_refused_voice_is_told_apart(status: int, body: object) -> None:
    reply = HttpReply(status, body=json.dumps(body).encode())
    error = OpenAIDialect().read_error(reply, SynthesisRequest("Hi", voice="x"))
    assert isinstance(error, VoiceNotFoundError)
    assert str(error) == "no voice 'x'; available: unknown"
    error = OpenAIDialect().read_error(reply, SynthesisRequest("Hi"))
    assert str(error) == "no voice 'alloy'; available: unknown"


SPOKEN = "Unknown voice: the voice 'x' was not found."

NOT_THE_VOICE: list[tuple[int, object]] = [
    (400, {"error": {"message": f"invalid input: {SPOKEN}", "param": "input"}}),
    (400, {"error": SPOKEN}),
    (400, {"error": SPOKEN[:20]}),
    (422, {"detail": [{"loc": ["body", "input"], "msg": "too long", "input": SPOKEN}]}),
    (422, {"detail": [{"loc": ["body", "input"], "msg": f"bad: {SPOKEN}"}]}),
    (400, {"error": {"message": "voice cloning is disabled", "param": "model"}}),
    (401, {"error": {"message": "voice 'x' not found", "code": "voice_not_found"}}),
    (403, {"error": {"message": "this key can't use voice 'x'", "param": "voice"}}),
    (500, {"error": {"message": "unknown voice 'x'", "param": "voice"}}),
    (503, {"error": "voice 'x' is not available"}),
]


@pytest.mark.parametrize(("status", "body"), NOT_THE_VOICE)
def test_a_text_about_voices_does_not_make_a_bot_mute(status: int, body: object) -> None:
    reply = HttpReply(status, body=json.dumps(body).encode())
    error = OpenAIDialect().read_error(reply, SynthesisRequest(SPOKEN, voice="x"))
    assert type(error) is RemoteError
    assert error.permanent == (status == 401)


async def test_a_refused_voice_is_answered_with_those_there_are() -> None:
    async def refuse(line: Line, call: Call) -> None:
        line.json(400, {"error": {"message": "unknown voice", "param": "voice"}})

    async def list_voices(line: Line, call: Call) -> None:
        line.json(200, {"object": "list", "data": [{"id": "Mai Anh"}, {"id": "Xuân Vĩnh"}]})

    paths = {"POST /v1/audio/speech": refuse, "GET /v1/voices": list_voices}
    async with serving(by_path(paths)) as server:
        engine = RemoteEngine(OpenAIDialect(), server.url, voice="bob")
        with pytest.raises(VoiceNotFoundError) as raised:
            await spoken(engine, SynthesisRequest("Hi"))
        await engine.aclose()
    assert str(raised.value).endswith("no voice 'bob'; available: Mai Anh, Xuân Vĩnh")
    assert [call.path for call in server.calls] == [
        "/v1/audio/speech",
        "/v1/audio/voices",
        "/v1/voices",
    ]


async def test_nothing_to_say_is_not_asked() -> None:
    async with speaking(audio(s16(), "audio/pcm")) as server:
        engine = RemoteEngine(OpenAIDialect(), server.url)
        with pytest.raises(UnspeakableTextError):
            await spoken(engine, SynthesisRequest("..."))
        await engine.aclose()
    assert server.calls == []


# Voices


@pytest.mark.parametrize(
    ("body", "voices"),
    [
        (
            {"object": "list", "data": [{"id": "1", "name": "Mai Anh", "description": "d"}]},
            [Voice("1", "und", "d")],
        ),
        ({"voices": [{"id": "x", "name": "X"}]}, [Voice("x", "und", "X")]),
        ({"voices": ["a", "b"]}, [Voice("a", "und"), Voice("b", "und")]),
        (["a"], [Voice("a", "und")]),
        ([{"name": "n", "language": "vi"}], [Voice("n", "vi", "n")]),
        ({"voices": {"a": {"gender": "f"}}}, [Voice("a", "und")]),
        ({"voices": [{"gender": "f"}, 7, None, ["x"]]}, []),
        ({"voices": []}, []),
        ({"data": 7}, []),
        ({}, []),
        (7, []),
        (None, []),
    ],
)
def test_every_list_of_voices_is_read(body: object, voices: list[Voice]) -> None:
    reply = HttpReply(200, body=json.dumps(body).encode())
    assert OpenAIDialect().read_voices(reply) == voices


def test_a_server_without_a_list_is_taken_for_openai() -> None:
    voices = [voice.id for voice in OpenAIDialect().read_voices(None)]
    assert voices[:3] == ["alloy", "ash", "ballad"]
    assert len(voices) == 13


def test_a_voice_is_cloned_with_its_owners_consent_only() -> None:
    clip = Clip(b"RIFF\0\0\0\0WAVE", "0123456789abcdef")
    with pytest.raises(InvalidRequestError, match="consent="):
        OpenAIDialect().write_clone("bob", clip)
    call = OpenAIDialect(consent="cons_1").write_clone("bob", clip)
    assert (call.method, call.path) == ("POST", "/v1/audio/voices")
    assert [(part.name, part.content) for part in call.form] == [
        ("name", "bob 0123456789abcdef"),
        ("audio_sample", clip.content),
        ("consent", "cons_1"),
        ("type", "audio_sample"),
    ]
    reply = HttpReply(200, body=b'{"id":"voice_1","name":"bob 0123456789abcdef"}')
    voice = OpenAIDialect().read_clone("bob", clip, reply)
    assert voice == Voice("voice_1", "und", "bob 0123456789abcdef")
    assert OpenAIDialect().find_clone("bob", clip, [Voice("x", "und"), voice]) == voice
    assert OpenAIDialect().find_clone("bob", Clip(b"", "other"), [voice]) is None


@pytest.mark.parametrize("body", [b"{}", b"[]", b"7", b"null", b'"x"'])
def test_a_clone_without_an_id_is_none(body: bytes) -> None:
    with pytest.raises(RemoteError, match="expected a voice, got"):
        OpenAIDialect().read_clone("bob", Clip(b"", "d"), HttpReply(200, body=body))


# The server's end

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
requests = st.builds(
    SynthesisRequest,
    texts,
    voice=texts,
    speed=st.floats(0.25, 4.0),
    options=st.one_of(st.just({}), st.builds(lambda said: {"instructions": said}, texts)),
)


@settings(deadline=None)
@given(requests, st.sampled_from(["pcm", "wav"]), texts)
def test_what_the_caller_writes_the_server_reads(
    request: SynthesisRequest, response_format: str, model: str
) -> None:
    dialect = OpenAIDialect(model=model, response_format=response_format)
    asked = OpenAIServer().read_call(dialect.write_call(request))
    assert asked.request == request
    assert asked.model == model
    assert asked.writer.media_type == f"audio/{response_format}"


@pytest.mark.parametrize(
    ("body", "request_", "model", "media_type"),
    [
        (
            r'{"model":"tts-1","input":"Xin chào \"bạn\"","voice":"alloy","response_format":"pcm"}',
            SynthesisRequest('Xin chào "bạn"', voice="alloy"),
            "tts-1",
            "audio/pcm",
        ),
        (
            (
                '{"model":"gpt-4o-mini-tts","input":"hi","voice":{"id":"voice_1"},"instructions":"calm"'
                ',"response_format":"wav","speed":1.25,"stream_format":"audio","sample_rate":24000}'
            ),
            SynthesisRequest("hi", voice="voice_1", speed=1.25, options={"instructions": "calm"}),
            "gpt-4o-mini-tts",
            "audio/wav",
        ),
        (
            (
                '{"model":"gpt-4o-mini-tts","input":"Hello there.","voice":"ash",'
                '"response_format":"pcm","speed":1.0,"stream_format":"sse"}'
            ),
            SynthesisRequest("Hello there.", voice="ash"),
            "gpt-4o-mini-tts",
            "text/event-stream; charset=utf-8",
        ),
        (
            (
                '{"input":"hi","voice":null,"speed":null,"instructions":null,"model":null,'
                '"response_format":"pcm","stream_format":null,"seed":7}'
            ),
            SynthesisRequest("hi"),
            None,
            "audio/pcm",
        ),
        (
            '{"input":"hi \\ud83d","voice":"","response_format":"pcm"}',
            SynthesisRequest("hi \N{REPLACEMENT CHARACTER}"),
            None,
            "audio/pcm",
        ),
    ],
    ids=["SDK", "SDK, all fields", "LiveKit", "nulls", "half an emoji"],
)
def test_what_other_clients_send_is_read(
    body: str, request_: SynthesisRequest, model: str | None, media_type: str
) -> None:
    asked_for = OpenAIServer().read_call(asked(body.encode()))
    assert asked_for.request == request_
    assert asked_for.model == model
    assert asked_for.writer.media_type == media_type


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body has to be a JSON object"),
        (b"\xff", "the body has to be a JSON object"),
        (b"[" * 100_000, "the body has to be a JSON object"),
        ([], "the body has to be a JSON object"),
        ({}, "input, the text to speak, is missing"),
        ({"input": ""}, "input, the text to speak, is missing"),
        ({"input": 7}, "input has to be a string"),
        ({"input": "x" * 4097}, "input has 4097 characters; at most 4096 are taken"),
        ({"voice": ["x"]}, "voice has to be a string"),
        ({"voice": {"id": 7}}, "voice has to be a string"),
        ({"speed": math.nan}, "speed has to be a number from 0.25 to 4"),
        ({"speed": math.inf}, "speed has to be a number from 0.25 to 4"),
        ({"speed": 10**400}, "speed has to be a number from 0.25 to 4"),
        ({"speed": True}, "speed has to be a number from 0.25 to 4"),
        ({"speed": "1"}, "speed has to be a number from 0.25 to 4"),
        ({"speed": 0.2}, "speed has to be a number from 0.25 to 4"),
        ({"instructions": {}}, "instructions has to be a string"),
        ({"model": 1}, "model has to be a string"),
        (
            {"response_format": "ogg"},
            "response_format has to be one of pcm, wav, mp3, opus, aac, flac",
        ),
        ({"response_format": []}, "response_format has to be a string"),
        ({"stream_format": "ws"}, "stream_format has to be one of audio, sse"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(body: Any, said: str) -> None:
    good = {"input": "hi", "voice": "x", "response_format": "pcm"}
    with pytest.raises(InvalidRequestError) as raised:
        OpenAIServer().read_call(asked(good | body if body and type(body) is dict else body))
    assert str(raised.value) == said
    field = said.split()[0].removesuffix(",")
    param = None if field == "the" else field
    reply = OpenAIServer().write_error(raised.value)
    assert json.loads(reply.body)["error"]["param"] == param


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["model", "input", "voice", "instructions", "response_format", "speed", "stream_format"]


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(FIELDS), json_values | st.just("pcm") | st.just({"id": "x"}))
)
def test_a_request_with_anything_in_it_is_read_or_refused(body: Mapping[str, object]) -> None:
    try:
        found = OpenAIServer().read_call(asked(body)).request
    except InvalidRequestError as error:
        assert len(str(error)) < 100  # noqa: PT017  a refusal is as good as an answer
    else:
        assert found.text.encode()
        assert 0.25 <= found.speed <= 4.0


@settings(deadline=None)
@given(st.binary(max_size=64) | json_values.map(lambda value: json.dumps(value).encode()))
def test_a_body_that_is_anything_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        OpenAIServer().read_call(asked(body))


chunks_of_samples = st.lists(
    st.lists(st.integers(-32768, 32767), max_size=20).map(
        lambda values: np.array(values, np.float32) / np.float32(32768)
    ),
    min_size=1,
    max_size=6,
).filter(lambda chunks: any(map(len, chunks)))


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
@pytest.mark.parametrize("response_format", ["pcm", "wav"])
@settings(deadline=None)
@given(chunks_of_samples, st.integers(1, 200))
def test_what_the_server_writes_the_caller_reads(
    response_format: str, stream_format: str, chunks: list[Samples], size: int
) -> None:
    dialect = OpenAIDialect(response_format=response_format, extra={"stream_format": stream_format})
    writer = OpenAIServer().read_call(dialect.write_call(HELLO)).writer
    assert writer.sample_rate == (24_000 if response_format == "pcm" else 0)
    rate = writer.sample_rate or 44_100
    body = written(writer, [AudioChunk(samples, rate) for samples in chunks])
    head = HttpReply(200, {"content-type": writer.media_type})
    samples, found = joined(push_all(dialect.read_reply(HELLO, head), body, size))
    assert found == rate
    assert np.array_equal(samples, np.concatenate(chunks))


COMPRESSED_FORMATS = {
    "mp3": ("audio/mpeg", 24_000),
    "opus": ("audio/ogg", 48_000),
    "aac": ("audio/aac", 24_000),
    "flac": ("audio/flac", 24_000),
}
"""What each is called, and at which rate it is heard."""


@pytest.mark.parametrize("size", [7, 1_000_000])
@pytest.mark.parametrize("stream_format", ["audio", "sse"])
@pytest.mark.parametrize("response_format", COMPRESSED_FORMATS)
def test_what_the_server_compresses_the_caller_reads(
    response_format: str, stream_format: str, size: int
) -> None:
    pytest.importorskip("av")
    dialect = OpenAIDialect(response_format=response_format, extra={"stream_format": stream_format})
    writer = OpenAIServer().read_call(dialect.write_call(HELLO)).writer
    media_type, heard_rate = COMPRESSED_FORMATS[response_format]
    if stream_format == "audio":
        assert writer.media_type == media_type
    assert writer.sample_rate == 24_000
    spoken = from_s16(s16())
    body = written(writer, [AudioChunk(part, 24_000) for part in np.array_split(spoken, 9)])
    head = HttpReply(200, {"content-type": writer.media_type})
    samples, rate = joined(push_all(dialect.read_reply(HELLO, head), body, size))
    assert rate == heard_rate
    assert rate <= len(samples) <= rate + (2_000 if response_format in ("mp3", "aac") else 0)
    assert pitch(samples, rate) == pytest.approx(440, abs=1)


@pytest.mark.parametrize("response_format", [{}, {"response_format": None}])
def test_mp3_is_meant_where_nothing_is_said(response_format: dict[str, object]) -> None:
    pytest.importorskip("av")
    writer = OpenAIServer().read_call(asked({"input": "hi"} | response_format)).writer
    assert (writer.media_type, writer.sample_rate) == ("audio/mpeg", 24_000)


def test_without_what_encodes_the_others_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingDependencyError, match=r"tts-plugins\[codecs\]"):
        OpenAIServer().read_call(asked({"input": "hi"}))
    assert OpenAIServer().read_call(asked({"input": "hi", "response_format": "pcm"})).writer


def written(writer: ReplyWriter, chunks: list[AudioChunk]) -> bytes:
    return b"".join([*(writer.push(chunk) for chunk in chunks), writer.flush()])


def test_events_are_written_as_openai_writes_them() -> None:
    body = {"input": "hi", "response_format": "pcm", "stream_format": "sse"}
    writer = OpenAIServer().read_call(asked(body)).writer
    half = AudioChunk(np.array([0.5, -1.0], np.float32), 24_000)
    nothing = AudioChunk(np.zeros(0, np.float32), 24_000)
    assert writer.push(half) == b'data: {"type": "speech.audio.delta", "audio": "AEAAgA=="}\n\n'
    assert writer.push(nothing) == b""
    assert writer.flush() == (
        b'data: {"type": "speech.audio.done",'
        b' "usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}}\n\n'
    )
    assert base64.b64decode("AEAAgA==") == b"\x00\x40\x00\x80"


def test_what_goes_wrong_on_the_way_is_an_event() -> None:
    body = {"input": "hi", "response_format": "pcm", "stream_format": "sse"}
    writer = OpenAIServer().read_call(asked(body)).writer
    assert isinstance(writer, EventBody)
    event = writer.fail(RemoteError("boom"))
    assert event == (
        b'data: {"type": "error", "error": {"message": "boom", "type": "server_error",'
        b' "param": null, "code": null}}\n\n'
    )
    reader = _DIALECT.read_reply(HELLO, HttpReply(200, {"content-type": writer.media_type}))
    with pytest.raises(RemoteError, match="it failed on the way: boom"):
        reader.push(event)


@pytest.mark.parametrize(
    ("error", "status", "said", "pause"),
    [
        (
            VoiceNotFoundError("x", ["a"]),
            400,
            {
                "message": "no voice 'x'; available: a",
                "type": "invalid_request_error",
                "param": "voice",
                "code": "voice_not_found",
            },
            None,
        ),
        (
            InvalidRequestError("speed 9"),
            400,
            {"message": "speed 9", "type": "invalid_request_error", "param": None, "code": None},
            None,
        ),
        (
            OverloadedError("busy", retry_after=1.2),
            429,
            {
                "message": "busy",
                "type": "rate_limit_error",
                "param": None,
                "code": "rate_limit_exceeded",
            },
            "2",
        ),
        (
            OverloadedError("busy", retry_after=0.0),
            429,
            {
                "message": "busy",
                "type": "rate_limit_error",
                "param": None,
                "code": "rate_limit_exceeded",
            },
            "1",
        ),
        (
            RemoteError("boom", status_code=503),
            503,
            {"message": "boom", "type": "server_error", "param": None, "code": None},
            None,
        ),
        (
            RemoteError("wrong key", status_code=401),
            401,
            {
                "message": "wrong key",
                "type": "invalid_request_error",
                "param": None,
                "code": "invalid_api_key",
            },
            None,
        ),
    ],
)
def test_an_error_is_written_with_its_four_fields(
    error: TTSError, status: int, said: object, pause: str | None
) -> None:
    reply = OpenAIServer().write_error(error)
    assert reply.status == status
    assert reply.media_type == "application/json"
    assert json.loads(reply.body) == {"error": said}
    assert reply.headers.get("retry-after") == pause


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *[(status, "invalid_request_error") for status in (404, 405, 413, 422)],
        *[(status, "server_error") for status in (500, 501, 504)],
    ],
)
def test_any_status_has_the_same_envelope(status: int, kind: str) -> None:
    reply = OpenAIServer().write_error(RemoteError("so", status_code=status))
    said = {"message": "so", "type": kind, "param": None, "code": None}
    assert (reply.status, json.loads(reply.body)) == (status, {"error": said})


def test_a_text_that_is_too_long_has_a_code_of_its_own() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        OpenAIServer(longest=3).read_call(asked({"input": "four"}))
    reply = OpenAIServer().write_error(raised.value)
    assert (reply.status, json.loads(reply.body)["error"]) == (
        400,
        {
            "message": "input has 4 characters; at most 3 are taken",
            "type": "invalid_request_error",
            "param": "input",
            "code": "string_above_max_length",
        },
    )


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (VoiceNotFoundError("alloy", ["a"]), VoiceNotFoundError, "no voice 'alloy'"),
        (InvalidRequestError("speed 9"), RemoteError, "400: speed 9"),
        (OverloadedError("busy", retry_after=1.2), OverloadedError, "429: busy"),
        (RemoteError("boom", status_code=503), RemoteError, "503: boom"),
    ],
)
def test_an_error_that_the_server_writes_the_caller_reads(
    error: TTSError, kind: type[TTSError], said: str
) -> None:
    read = OpenAIDialect().read_error(OpenAIServer().write_error(error), HELLO)
    assert type(read) is kind
    assert str(read).startswith(said)
    assert read.retryable == error.retryable
