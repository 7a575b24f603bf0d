"""VieNeu's dialects, by what its server was seen to answer and its cloud is said to."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers import Answer, Call, Line, Server, by_path, serving
from tts_plugins.audio.pcm import from_s16, joined, to_s16
from tts_plugins.dialects.base import Clip, Dialect, HttpCall, HttpReply
from tts_plugins.dialects.vieneu import (
    SizedBody,
    SizedPcmBody,
    VieNeuCloudDialect,
    VieNeuDialect,
    VieNeuServer,
)
from tts_plugins.errors import (
    InvalidRequestError,
    OverloadedError,
    RemoteError,
    UnreachableError,
    VoiceNotFoundError,
)
from tts_plugins.registry import open_engine
from tts_plugins.remote import RemoteEngine
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice

HELLO = SynthesisRequest("Xin chào", voice="Mai Anh")
PCM = b"\x01\x02\x03\x04\x05\x06"
CLIP = Clip(b"RIFF....WAVEfmt ", "0123456789abcdef")

UNKNOWN_VOICE = (
    b'{"error":{"message":"unknown voice \'alloy\'; see GET /v1/voices",'
    b'"type":"invalid_request_error","code":400}}'
)
QUEUE_FULL = (
    b'{"error":{"message":"server busy: queue full","type":"invalid_request_error","code":429}}'
)
TOO_SHORT = (
    b'{"detail":[{"type":"string_too_short","loc":["body","input"],"msg":"String should have at'
    b' least 1 character","input":"","ctx":{"min_length":1}}]}'
)
VOICES = (
    b'{"object":"list","data":[{"id":"Mai Anh","name":"Mai Anh","description":"d","gender":"f",'
    b'"featured":1,"aliases":["MA"]},{"id":"Xu\xc3\xa2n V\xc4\xa9nh",'
    b'"name":"Xu\xc3\xa2n V\xc4\xa9nh","description":"","gender":"","featured":null,"aliases":[]}]}'
)
ENROLLED = b'{"id":"T\xc3\xb4i","name":"T\xc3\xb4i","description":""}'


def replies(status: int, body: bytes, **headers: object) -> Answer:
    async def answer(line: Line, call: Call) -> None:
        line.body(status, body, **{"content_type": "application/json"} | headers)

    return answer


@asynccontextmanager
async def answering(
    answers: Mapping[str, Answer], dialect: Dialect | None = None, path: str = "", **options: Any
) -> AsyncGenerator[tuple[RemoteEngine, Server], None]:
    """A server, and an engine that speaks to it."""
    async with serving(by_path(answers)) as server:
        engine = RemoteEngine(dialect or VieNeuDialect(), server.url + path, **options)
        try:
            yield engine, server
        finally:
            await engine.aclose()


async def speak(engine: RemoteEngine, request: SynthesisRequest = HELLO) -> list[AudioChunk]:
    async with aclosing(engine.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


def samples(chunks: list[AudioChunk]) -> Samples:
    return joined(chunk.samples for chunk in chunks)


def read_error(status: int, body: bytes, **headers: str) -> Exception:
    reply = HttpReply(status, {name.replace("_", "-"): v for name, v in headers.items()}, body)
    return VieNeuDialect().read_error(reply, HELLO)


# What the server is asked


def test_a_request_is_this_and_nothing_more() -> None:
    call = VieNeuDialect().write_call(HELLO)
    assert (call.method, call.path) == ("POST", "/v1/audio/speech")
    assert call.body == (
        '{"model": "vieneu-v3-turbo", "input": "Xin chào", "voice": "Mai Anh",'
        ' "response_format": "pcm", "sample_rate": 24000}'.encode()
    )


def test_without_a_voice_the_server_takes_its_own() -> None:
    assert "voice" not in json.loads(VieNeuDialect().write_call(SynthesisRequest("Xin chào")).body)


def test_sampling_is_sent_where_it_is_given_and_a_requests_own_goes_first() -> None:
    dialect = VieNeuDialect(
        model="vieneu", sample_rate=48_000, response_format="wav", temperature=0.5, top_k=10
    )
    request = SynthesisRequest("Chào", options={"top_k": 30, "max_chars": 128})
    assert json.loads(dialect.write_call(request).body) == {
        "model": "vieneu",
        "input": "Chào",
        "response_format": "wav",
        "sample_rate": 48_000,
        "temperature": 0.5,
        "top_k": 30,
        "max_chars": 128,
    }


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"sample_rate": 22_050}, "no sample_rate 22050; rates: 48000, 24000, 16000, 8000"),
        ({"response_format": "mp3"}, "no response_format 'mp3'; formats: pcm, wav"),
    ],
)
def test_what_the_server_does_not_have_is_refused_at_once(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        VieNeuDialect(**options)


@pytest.mark.parametrize("dialect", [VieNeuDialect(), VieNeuCloudDialect()])
@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"speed": 1.25}, "speed 1.25 can't be had"),
        ({"options": {"instructions": "calm"}}, "no option instructions"),
    ],
)
def test_what_would_be_ignored_is_refused(
    dialect: VieNeuDialect | VieNeuCloudDialect, fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        dialect.write_call(SynthesisRequest("Xin chào", voice="Mai Anh", **fields))


options = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2),
        "top_k": st.integers(1, 100),
        "top_p": st.floats(0, 1),
        "repetition_penalty": st.floats(1, 2),
        "max_chars": st.integers(1, 500),
    },
)
requests = st.builds(
    SynthesisRequest,
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    voice=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    options=options,
)
rates = st.sampled_from([48_000, 24_000, 16_000, 8_000])


@given(requests, rates, st.sampled_from(["pcm", "wav"]))
def test_a_server_reads_what_a_caller_writes(
    request: SynthesisRequest, rate: int, response_format: str
) -> None:
    dialect = VieNeuDialect(sample_rate=rate, response_format=response_format)
    asked = VieNeuServer().read_call(dialect.write_call(request))
    assert asked.request == request
    assert asked.model == "vieneu-v3-turbo"
    assert asked.writer.sample_rate == rate
    assert asked.writer.media_type == f"audio/{response_format}"


@given(rates, st.sampled_from(["pcm", "wav"]), st.integers(1, 100))
def test_a_caller_reads_what_a_server_writes(rate: int, response_format: str, cut: int) -> None:
    chunk = AudioChunk(np.linspace(-0.5, 0.5, 64, dtype=np.float32), rate)
    dialect = VieNeuDialect(sample_rate=rate, response_format=response_format)
    writer = VieNeuServer().read_call(dialect.write_call(HELLO)).writer
    body = writer.push(chunk) + writer.flush()
    reader = dialect.read_reply(HELLO, HttpReply(200, {"content-type": writer.media_type}))
    read = [c for n in range(0, len(body), cut) for c in reader.push(body[n : n + cut])]
    read += reader.flush()
    assert {c.sample_rate for c in read} == {rate}
    assert to_s16(samples(read)) == to_s16(chunk.samples)


# What the server's end takes


def asked(**fields: object) -> HttpCall:
    body = {"input": "Xin chào", **fields}
    return HttpCall("POST", "/v1/audio/speech", body=json.dumps(body).encode())


def test_its_defaults_are_a_wav_file_of_48_khz() -> None:
    writer = VieNeuServer().read_call(asked()).writer
    assert (writer.media_type, writer.sample_rate) == ("audio/wav", 48_000)


def test_events_have_the_rate_too() -> None:
    writer = VieNeuServer().read_call(asked(stream_format="sse", sample_rate=8_000)).writer
    assert writer.media_type.startswith("text/event-stream")
    assert writer.sample_rate == 8_000
    chunk = AudioChunk(np.linspace(-0.5, 0.5, 64, dtype=np.float32), 8_000)
    body = writer.push(chunk) + writer.flush()
    reply = HttpReply(200, {"content-type": writer.media_type, "x-sample-rate": "8000"})
    reader = VieNeuDialect().read_reply(HELLO, reply)
    read = [*reader.push(body), *reader.flush()]
    assert {c.sample_rate for c in read} == {8_000}
    assert to_s16(samples(read)) == to_s16(chunk.samples)


def test_a_voice_may_be_named_by_an_object() -> None:
    assert VieNeuServer().read_call(asked(voice={"id": "Mai Anh"})).request.voice == "Mai Anh"


def test_speed_and_instructions_are_ignored() -> None:
    call = asked(speed=1.5, instructions="calm")
    assert VieNeuServer().read_call(call).request == SynthesisRequest("Xin chào")


@pytest.mark.parametrize("rate", [22_050, 0, "24000", True, 24_000.5, []])
def test_any_other_rate_is_refused(rate: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"sample_rate.*8000"):
        VieNeuServer().read_call(asked(sample_rate=rate))


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'"text"', b"{}", b"[" * 100_000])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequestError, match=r"input.* is missing|has to be a JSON object"):
        VieNeuServer().read_call(HttpCall("POST", "/v1/audio/speech", body=body))


def test_an_error_has_a_number_for_its_code_and_is_read_back() -> None:
    reply = VieNeuServer().write_error(VoiceNotFoundError("alloy", ["Mai Anh"]))
    assert (reply.status, json.loads(reply.body)) == (
        400,
        {
            "error": {
                "message": "no voice 'alloy'; available: Mai Anh",
                "type": "invalid_request_error",
                "code": 400,
            }
        },
    )
    again = VieNeuDialect().read_error(reply, SynthesisRequest("Xin chào", voice="alloy"))
    assert isinstance(again, VoiceNotFoundError)


# What the server answers


@pytest.mark.parametrize("stated", [48_000, 8_000])
async def test_the_rate_is_what_the_server_says(stated: int) -> None:
    answer = replies(200, PCM, content_type="audio/pcm", x_sample_rate=stated)
    async with answering({"POST /v1/audio/speech": answer}) as (engine, server):
        chunks = await speak(engine)
    assert {chunk.sample_rate for chunk in chunks} == {stated}
    assert to_s16(samples(chunks)) == PCM
    [call] = server.calls
    assert call.json == {
        "model": "vieneu-v3-turbo",
        "input": "Xin chào",
        "voice": "Mai Anh",
        "response_format": "pcm",
        "sample_rate": 24_000,
    }


async def test_a_refusal_for_now_is_waited_out() -> None:
    answers = [replies(429, QUEUE_FULL, retry_after=0), replies(200, PCM, x_sample_rate=48_000)]

    async def answer(line: Line, call: Call) -> None:
        await answers.pop(0)(line, call)

    async with answering({"POST /v1/audio/speech": answer}) as (engine, server):
        assert to_s16(samples(await speak(engine))) == PCM
    assert len(server.calls) == 2


def test_a_full_queue_says_when_to_come_back() -> None:
    error = read_error(429, QUEUE_FULL, retry_after="1")
    assert isinstance(error, OverloadedError)
    assert error.retry_after == 1.0
    assert "server busy: queue full" in str(error)


def test_an_unknown_voice_is_one() -> None:
    error = read_error(400, UNKNOWN_VOICE)
    assert isinstance(error, VoiceNotFoundError)
    assert str(error) == "no voice 'Mai Anh'; available: unknown"


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (422, TOO_SHORT, "body.input: String should have at least 1 character"),
        (401, b'{"error":{"message":"invalid api key","code":401}}', "invalid api key"),
        (413, b'{"error":{"message":"reference clip larger than 20 MB","code":413}}', "20 MB"),
    ],
)
def test_an_error_is_readable(status: int, body: bytes, said: str) -> None:
    error = read_error(status, body)
    assert isinstance(error, RemoteError)
    assert error.status_code == status
    assert said in str(error)


# Voices


async def test_voices_come_with_all_that_is_known_about_them() -> None:
    async with answering({"GET /v1/voices": replies(200, VOICES)}) as (engine, _):
        assert await engine.voices() == [
            Voice("Mai Anh", "vi", "d; f; also MA"),
            Voice("Xuân Vĩnh", "vi"),
        ]


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"data": 5}', b"null"])
def test_a_list_that_is_none_is_quoted(body: bytes) -> None:
    with pytest.raises(RemoteError, match="expected voices, got"):
        VieNeuDialect().read_voices(HttpReply(200, {}, body))


async def test_a_warm_connection_costs_the_model_nothing() -> None:
    async with answering({"/health": replies(200, b"{}")}) as (engine, server):
        await engine.prewarm()
    assert [(call.method, call.path) for call in server.calls] == [("GET", "/health")]


async def test_a_clip_is_sent_with_what_it_is_found_by_later() -> None:
    answers = {
        "GET /v1/voices": replies(200, VOICES),
        "POST /v1/voices": replies(200, ENROLLED),
    }
    async with answering(answers) as (engine, server):
        assert (await engine.clone("Tôi", b"RIFFxxxxWAVE")).id == "Tôi"
    sent = server.calls[-1].body
    assert b'name="name"\r\n\r\nT\xc3\xb4i\r\n' in sent
    assert b'name="file"; filename="clip.wav"\r\n\r\nRIFFxxxxWAVE\r\n' in sent
    assert b'name="denoise"\r\n\r\ntrue\r\n' in sent
    assert b'name="description"\r\n\r\nclip 93ba7260d8a7da7f\r\n' in sent


def test_a_clip_is_found_under_any_name() -> None:
    voices = [Voice("Mai Anh", "vi", "d; f"), Voice("Tôi", "vi", "clip 0123456789abcdef")]
    assert VieNeuDialect().find_clone("Another", CLIP, voices) == voices[1]
    assert VieNeuDialect(denoise=False).find_clone("Another", CLIP, voices) is None


def test_a_name_is_given_to_a_new_recording_but_not_taken_from_a_preset() -> None:
    voices = [Voice("Mai Anh", "vi", "d; f"), Voice("Tôi", "vi", "clip fedcba9876543210")]
    assert VieNeuDialect().find_clone("Tôi", CLIP, voices) is None
    with pytest.raises(InvalidRequestError, match="choose another name"):
        VieNeuDialect().find_clone("Mai Anh", CLIP, voices)


@pytest.mark.parametrize("name", ["Tôi", "a", "9 lives", "x" * 64, "Mr. A-b_c"])
def test_a_name_that_the_server_takes_is_sent(name: str) -> None:
    assert VieNeuDialect().write_clone(name, CLIP).form[0].content == name


@pytest.mark.parametrize("name", ["", "_me", " me", "x" * 65, "me/you", "me\n", "😀"])
def test_a_name_that_it_would_refuse_is_not_sent(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="1 to 64 letters, digits, spaces"):
        VieNeuDialect().write_clone(name, CLIP)


def test_a_clip_that_is_too_large_is_not_sent() -> None:
    VieNeuDialect().write_clone("Tôi", Clip(bytes(20 * 1024**2), CLIP.digest))
    with pytest.raises(InvalidRequestError, match=r"has 20\.0 MB, and the server takes 20"):
        VieNeuDialect().write_clone("Tôi", Clip(bytes(20 * 1024**2 + 1), CLIP.digest))


# The cloud


def block(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def read(body: bytes, cut: int) -> bytes:
    reader = SizedBody(24_000)
    chunks = [c for n in range(0, len(body), cut) for c in reader.push(body[n : n + cut])]
    return to_s16(samples([*chunks, *reader.flush()]))


WHOLE = b"\0\0\0\3\1\2\3" + b"\0\0\0\3\4\5\6" + b"\0\0\0\0"


@pytest.mark.parametrize("cut", range(1, 19))
def test_blocks_that_end_within_a_sample_are_joined(cut: int) -> None:
    assert read(WHOLE, cut) == PCM


@given(st.lists(st.binary(max_size=20).filter(len)), st.integers(1, 30))
def test_any_blocks_in_any_pieces_are_the_audio_in_them(blocks: list[bytes], cut: int) -> None:
    audio = b"".join(blocks)
    body = b"".join(map(block, blocks)) + bytes(4)
    assert read(body, cut) == audio[: len(audio) // 2 * 2]


@given(st.lists(st.binary(max_size=40).filter(lambda pcm: len(pcm) % 2 == 0)), st.integers(1, 60))
def test_what_is_written_is_read_back(pcm: list[bytes], cut: int) -> None:
    writer = SizedPcmBody(16_000)
    body = b"".join(writer.push(AudioChunk(from_s16(each), 16_000)) for each in pcm)
    assert read(body + writer.flush(), cut) == b"".join(pcm)


def test_audio_is_passed_on_before_its_block_is_whole() -> None:
    reader = SizedBody(24_000)
    assert reader.push(b"\0\0\1") == []
    assert to_s16(samples(reader.push(b"\0" + PCM))) == PCM


@pytest.mark.parametrize("body", [WHOLE[:end] for end in range(len(WHOLE))])
@pytest.mark.parametrize("cut", [1, 100])
def test_a_body_without_its_end_is_cut_short(body: bytes, cut: int) -> None:
    with pytest.raises(ValueError, match="cut short"):
        read(body, cut)


@pytest.mark.parametrize("cut", [1, 3, 1000])
@pytest.mark.parametrize(
    ("body", "quoted"),
    [
        (b'{"code":"NO_CREDIT"}', r"got '{\"code\":\"NO_CREDIT\"}'"),
        (b"<html>" + b"x" * 500, "got '<html>xxx"),
        (block(PCM) + b"Internal error", "got 'Internal error'"),
        (b"\x01\0\0\0", "expected blocks of audio"),
    ],
)
def test_what_is_no_block_is_quoted(body: bytes, quoted: str, cut: int) -> None:
    with pytest.raises(ValueError, match=quoted):
        read(body, cut)


def test_what_is_no_block_is_not_waited_out() -> None:
    reader = SizedBody(24_000)
    with pytest.raises(ValueError, match="expected blocks of audio"):
        reader.push(b"<html>" + b"x" * 500)


def cloud(
    answers: Mapping[str, Answer], *, engine: str | None = None, retries: int = 3
) -> AbstractAsyncContextManager[tuple[RemoteEngine, Server]]:
    dialect = VieNeuCloudDialect(engine=engine)
    return answering(answers, dialect, "/api/v1", api_key="vn_test_key", retries=retries)


async def test_the_cloud_is_asked_as_other_clients_ask_it() -> None:
    answer = replies(200, WHOLE, content_type="application/octet-stream")
    async with cloud({"POST /api/v1/tts/stream": answer}) as (engine, server):
        chunks = await speak(engine, SynthesisRequest("Đã mở cốp", voice="Mai Bé Phương"))
    assert to_s16(samples(chunks)) == PCM
    assert {chunk.sample_rate for chunk in chunks} == {24_000}
    [call] = server.calls
    assert call.headers["authorization"] == "Bearer vn_test_key"
    assert call.json == {
        "text": "Đã mở cốp",
        "voiceId": "Mai Bé Phương",
        "outputFormat": "pcm",
        "sampleRate": 24_000,
    }


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (replies(503, b'{"code":"STREAM_BUSY"}', retry_after=0), OverloadedError, "STREAM_BUSY"),
        (replies(500, b"Internal error"), RemoteError, "500: Internal error"),
        (replies(404, b"Not Found"), RemoteError, "https://api.vieneu.io/api/v1"),
        (replies(200, b"\0\0\0\2\1\2"), RemoteError, "cut short"),
        (replies(200, b'{"code":"NO_CREDIT"}'), RemoteError, "NO_CREDIT"),
        (replies(200, b"\0\0\0\0"), RemoteError, "no audio"),
    ],
)
async def test_a_failure_of_the_cloud_is_told(
    answer: Answer, error: type[Exception], said: str
) -> None:
    async with cloud({"POST /api/v1/tts/stream": answer}, retries=0) as (engine, _):
        with pytest.raises(error, match=said) as caught:
            await speak(engine)
    assert not isinstance(caught.value, UnreachableError)


async def test_a_busy_cloud_is_asked_again() -> None:
    answers = [replies(503, b'{"code":"STREAM_BUSY"}', retry_after=0.01), replies(200, WHOLE)]

    async def answer(line: Line, call: Call) -> None:
        await answers.pop(0)(line, call)

    async with cloud({"POST /api/v1/tts/stream": answer}) as (engine, server):
        assert to_s16(samples(await speak(engine))) == PCM
    assert len(server.calls) == 2


def test_the_cloud_wants_to_know_the_voice() -> None:
    with pytest.raises(InvalidRequestError, match="give voice="):
        VieNeuCloudDialect().write_call(SynthesisRequest("Xin chào"))


CATALOGUE: Mapping[str, object] = {
    "voices": [
        {"id": "Ngọc Lan", "name": "Ngọc Lan", "gender": "female", "region": "Bắc", "engine": "v3"},
        {"id": "Ngọc Lan", "name": "Ngọc Lan", "gender": "female", "region": "Bắc", "engine": "v4"},
        {"id": "clone_1", "name": "Tôi", "kind": "cloned", "engine": "v4"},
    ]
}


@pytest.mark.parametrize(
    ("engine", "voices"),
    [
        (None, [("Ngọc Lan", "female; Bắc; v3"), ("clone_1", "Tôi; cloned; v4")]),
        ("v4", [("Ngọc Lan", "female; Bắc; v4"), ("clone_1", "Tôi; cloned; v4")]),
        ("v3", [("Ngọc Lan", "female; Bắc; v3")]),
    ],
)
async def test_the_clouds_voices_are_those_of_an_engine(
    engine: str | None, voices: list[tuple[str, str]]
) -> None:
    listed = replies(200, json.dumps(CATALOGUE).encode())
    async with cloud({"GET /api/v1/voices": listed}, engine=engine) as (speaker, _):
        found = await speaker.voices()
    assert [(voice.id, voice.description) for voice in found] == voices
    assert {voice.language for voice in found} == {"vi"}


async def test_the_cloud_has_no_way_to_clone() -> None:
    async with cloud({}) as (engine, _):
        with pytest.raises(InvalidRequestError, match="no way to clone"):
            await engine.clone("Tôi", b"RIFF")


# By address


def test_the_vendors_address_is_the_cloud_and_its_key_goes_there_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("VIENEU_API_KEY", raising=False)
    open_engine("vieneu+http://127.0.0.1:8000?sample_rate=8000&denoise=false&temperature=0.5")
    with pytest.raises(InvalidRequestError, match="set VIENEU_API_KEY"):
        open_engine("vieneu+https://api.vieneu.io/api/v1")
    monkeypatch.setenv("VIENEU_API_KEY", "vn_test_key")
    open_engine("vieneu+https://api.vieneu.io/api/v1?engine=v4")
    with pytest.raises(InvalidRequestError, match="denoise"):
        open_engine("vieneu+https://api.vieneu.io/api/v1?denoise=false")
