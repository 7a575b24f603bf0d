"""tts_plugins.dialects.native: what an engine says, heard at the other end as if it were here."""

from __future__ import annotations

import hashlib
import json
import math
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.openai_server import joined, spoken
from tests.servers import Call, Line, by_path, serving
from tts_plugins.dialects.base import Clip, HttpCall, HttpReply, Part
from tts_plugins.dialects.native import (
    LONGEST_DUE,
    ChunkLines,
    Enrolment,
    NativeDialect,
    NativeServer,
    Offer,
)
from tts_plugins.errors import (
    EngineError,
    EngineNotFoundError,
    EngineTimeoutError,
    InvalidRequestError,
    MissingDependencyError,
    OverloadedError,
    RemoteError,
    RemoteTimeoutError,
    TTSError,
    UnreachableError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.registry import open_engine
from tts_plugins.remote import RemoteEngine
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

HELLO = SynthesisRequest("Hello there.")
LINES = HttpReply(200, {"content-type": "application/x-ndjson"})
BODY = (
    b'{"sample_rate":24000,"audio":"AAAAQAB/","words":'
    b'[{"text":"Hello","offset":0,"start":0.05,"end":0.4},'
    b'{"text":"there.","offset":6,"start":0.4,"end":0.75,"exact":false}]}\n'
    b'{"sample_rate":24000,"audio":"AIA="}\n'
)
WORDS = (Word("Hello", 0, 0.05, 0.4), Word("there.", 6, 0.4, 0.75, exact=False))
CHUNKS = [
    AudioChunk(np.array([0.0, 0.5, 32512 / 32768], np.float32), 24_000, WORDS),
    AudioChunk(np.array([-1.0], np.float32), 24_000),
]


def read(*pieces: bytes, text: str = HELLO.text) -> list[AudioChunk]:
    reader = NativeDialect().read_reply(SynthesisRequest(text), LINES)
    return [chunk for piece in pieces for chunk in reader.push(piece)] + reader.flush()


def line(**fields: object) -> bytes:
    return json.dumps({"sample_rate": 24_000, "audio": "AIA="} | fields).encode() + b"\n"


# What is asked


def test_what_is_as_usual_is_not_said() -> None:
    call = NativeDialect().write_call(HELLO)
    assert (call.method, call.path) == ("POST", "/api/speech")
    assert call.headers == {"content-type": "application/json"}
    assert call.body == b'{"text": "Hello there."}'


def test_all_of_a_request_is_sent() -> None:
    request = SynthesisRequest(
        "Xin chào.",
        voice="mai",
        language="vi",
        speed=1.5,
        previous_text="Dạ.",
        due=0.25,
        options={"seed": 7},
    )
    assert json.loads(NativeDialect(model="hibari").write_call(request).body) == {
        "text": "Xin chào.",
        "voice": "mai",
        "language": "vi",
        "speed": 1.5,
        "previous_text": "Dạ.",
        "due": 0.25,
        "options": {"seed": 7},
        "model": "hibari",
    }


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
requests = st.builds(
    SynthesisRequest,
    texts,
    voice=st.none() | texts,
    language=st.none() | texts,
    speed=st.floats(0.01, 100.0),
    previous_text=texts,
    due=st.floats(0.0, LONGEST_DUE),
    options=st.dictionaries(texts, st.none() | st.booleans() | st.integers() | texts | st.just([])),
)


def test_no_place_is_kept_for_longer_than_a_minute() -> None:
    call = NativeDialect().write_call(SynthesisRequest("Hello.", due=math.inf))
    assert json.loads(call.body)["due"] == 60.0
    assert NativeServer().read_call(call).request.due == 60.0
    patient = replace(call, body=b'{"text": "Hello.", "due": 86400}')
    assert NativeServer().read_call(patient).request.due == 60.0


@settings(deadline=None)
@given(requests, st.none() | texts)
def test_what_the_caller_writes_the_server_reads(
    request: SynthesisRequest, model: str | None
) -> None:
    asked = NativeServer().read_call(NativeDialect(model=model).write_call(request))
    assert asked.request == request
    assert asked.model == model
    assert asked.writer.sample_rate == 0
    assert asked.writer.media_type == "application/x-ndjson"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "the body has to be a JSON object"),
        ({"text": None}, "text, what to speak, is missing"),
        ({"text": "a" * 101}, "text has 101 characters; at most 100 are taken"),
        ({"voice": {}}, "voice has to be a string"),
        ({"language": 1}, "language has to be a string"),
        ({"speed": 0}, "speed has to be a number from 0.01 to 100"),
        ({"due": -1}, "due has to be a number from 0 to 86400"),
        ({"due": math.nan}, "due has to be a number from 0 to 86400"),
        ({"options": []}, "options has to be an object"),
        ({"model": 7}, "model has to be a string"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(body: Any, said: str) -> None:
    whole = {"text": "hi"} | body if isinstance(body, dict) else body
    with pytest.raises(InvalidRequestError) as raised:
        NativeServer(longest=100).read_call(HttpCall("POST", "/", body=json.dumps(whole).encode()))
    assert str(raised.value) == said


# What comes back


@pytest.mark.parametrize("size", [1, 7, 100, 1_000])
def test_it_does_not_matter_how_lines_are_cut(size: int) -> None:
    found = read(*(BODY[start : start + size] for start in range(0, len(BODY), size)))
    assert [chunk.words for chunk in found] == [WORDS, ()]
    assert np.array_equal(joined(found)[0], joined(CHUNKS)[0])
    assert {chunk.sample_rate for chunk in found} == {24_000}


def test_lines_are_written_as_they_always_were() -> None:
    writer = ChunkLines()
    assert b"".join(map(writer.push, CHUNKS)) + writer.flush() == BODY
    nothing = AudioChunk(np.zeros(0, np.float32), 8_000)
    assert writer.push(nothing) == b'{"sample_rate":8000}\n'


@st.composite
def utterances(draw: st.DrawFn) -> tuple[str, list[AudioChunk]]:
    """A text, and chunks at any rate with some of its words."""
    text = draw(texts.filter(bool))
    rate = draw(st.sampled_from([8_000, 22_050, 24_000, 48_000]))
    starts = sorted(draw(st.sets(st.integers(0, len(text) - 1), max_size=6)))
    words = []
    for offset, behind in pairwise([*starts, len(text)]):
        start, end = sorted(draw(st.tuples(*2 * [st.floats(0, 1_000)])))
        word = text[offset : draw(st.integers(offset + 1, behind))]
        words.append(Word(word, offset, start, end, draw(st.booleans())))
    chunks = []
    for i in range(draw(st.integers(1, 4))):
        levels = draw(st.lists(st.floats(-1, 1, width=32), max_size=9))
        told = tuple(words[2 * i : 2 * i + 2])
        chunks.append(AudioChunk(np.array(levels, np.float32), rate, told))
    return text, chunks


@settings(deadline=None)
@given(utterances(), st.integers(1, 500))
def test_what_the_server_writes_the_caller_reads(
    said: tuple[str, list[AudioChunk]], size: int
) -> None:
    text, chunks = said
    writer = ChunkLines()
    body = b"".join([*map(writer.push, chunks), writer.flush()])
    assert body.count(b"\n") == len(chunks)
    found = read(*(body[i : i + size] for i in range(0, len(body), size)), text=text)
    assert [chunk.words for chunk in found] == [chunk.words for chunk in chunks]
    assert [chunk.sample_rate for chunk in found] == [chunk.sample_rate for chunk in chunks]
    for ours, theirs in zip(found, chunks, strict=True):
        assert len(ours.samples) == len(theirs.samples)
        assert np.all(abs(ours.samples - theirs.samples) <= 1.001 / 32_768)


GOOD = {"text": "there.", "offset": 6, "start": 0.5, "end": 0.75}


@pytest.mark.parametrize(
    "word",
    [
        None,
        "Hello",
        {},
        {"text": "Hello", "offset": 0},
        {"text": "Hullo", "offset": 0, "start": 0, "end": 0.5},
        {"text": "Hello", "offset": 1, "start": 0, "end": 0.5},
        {"text": "Hello", "offset": -12, "start": 0, "end": 0.5},
        {"text": "Hello", "offset": 0.0, "start": 0, "end": 0.5},
        {"text": "Hello", "offset": 10**400, "start": 0, "end": 0.5},
        {"text": "", "offset": 0, "start": 0, "end": 0.5},
        {"text": 7, "offset": 0, "start": 0, "end": 0.5},
        {"text": "Hello", "offset": 0, "start": -0.1, "end": 0.5},
        {"text": "Hello", "offset": 0, "start": 0.5, "end": 0.4},
        {"text": "Hello", "offset": 0, "start": math.nan, "end": 0.5},
        {"text": "Hello", "offset": 0, "start": 0, "end": math.inf},
        {"text": "Hello", "offset": 0, "start": 0, "end": 10**400},
        {"text": "Hello", "offset": 0, "start": "0", "end": 0.5},
    ],
)
def test_a_word_that_makes_no_sense_is_no_reason_to_be_silent(word: object) -> None:
    [chunk] = read(line(words=[word, GOOD, word, GOOD]))
    assert len(chunk.samples) == 1
    assert chunk.words == (Word("there.", 6, 0.5, 0.75),)


@pytest.mark.parametrize("words", [None, 7, "Hello", {"text": "Hello"}])
def test_words_that_are_no_list_are_none(words: object) -> None:
    [chunk] = read(line(words=words))
    assert (len(chunk.samples), chunk.words) == (1, ())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "expected a JSON object, got '<html>'"),
        (b"[]\n", r"expected a JSON object, got '\[\]'"),
        (b"{}\n", r"expected a chunk of audio, got '\{\}'"),
        (line(sample_rate=True), "expected a chunk of audio"),
        (line(sample_rate=24_000.0), "expected a chunk of audio"),
        (line(sample_rate=1), "expected a chunk of audio"),
        (line(sample_rate=10**9), "expected a chunk of audio"),
        (line(audio=7), "expected audio in base64, got '7'"),
        (line(audio="AAAA"), "expected a chunk of audio"),
        (line() + line(sample_rate=8_000), "audio of 8000 Hz behind some of 24000"),
        (b'{"error":"boom"}\n', "it failed on the way: boom"),
    ],
)
def test_what_is_no_speech_is_told(body: bytes, said: str) -> None:
    with pytest.raises((RemoteError, ValueError), match=said):
        read(body)


# What goes wrong

ERRORS: list[TTSError] = [
    VoiceNotFoundError("bob", [f"voice-{i}" for i in range(100)]),
    VoiceNotFoundError("bob", ["nhật bản"]),
    InvalidRequestError("speed 9 is outside 0.5 to 2"),
    UnspeakableTextError("nothing to say in 3 characters"),
    OverloadedError("64 streams wait already", retry_after=0.7),
    EngineTimeoutError("no audio for 10 s"),
    EngineNotFoundError("tno", ["tone"]),
    MissingDependencyError("remote"),
    EngineError("boom"),
    RemoteError("401: who are you?", status_code=401),
    RemoteError("503: later", status_code=503, retry_after=2.5),
    UnreachableError("it left without an answer"),
    RemoteTimeoutError("no answer within 10 s"),
]


def shape(error: TTSError) -> tuple[object, ...]:
    voice, wait = (getattr(error, name, None) for name in ("voice", "retry_after"))
    classes = (error.status_code, error.retryable, error.permanent)
    return type(error), str(error), classes, voice, wait


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_at_the_other_end(error: TTSError) -> None:
    reply = NativeServer().write_error(error)
    assert reply.status == error.status_code
    assert shape(NativeDialect().read_error(reply, HELLO)) == shape(error)
    with pytest.raises(TTSError) as raised:
        read(ChunkLines().fail(error))
    assert shape(raised.value) == shape(error)


def test_errors_are_written_as_they_always_were() -> None:
    reply = NativeServer().write_error(OverloadedError("busy", retry_after=0.7))
    assert reply == HttpReply(
        429,
        {"content-type": "application/json", "retry-after": "1"},
        b'{"error": {"kind": "OverloadedError", "message": "busy", "status": 429,'
        b' "retry_after": 0.7}}',
    )
    assert ChunkLines().fail(VoiceNotFoundError("bob", ["ann"])) == (
        b'{"error":{"kind":"VoiceNotFoundError","message":"no voice \'bob\'; available: ann",'
        b'"status":404,"voice":"bob"}}\n'
    )


def test_a_strangers_error_keeps_its_status_and_its_words() -> None:
    class OutOfPaperError(EngineError):
        status_code = 507

    found = NativeDialect().read_error(NativeServer().write_error(OutOfPaperError("no paper")))
    assert shape(found) == (RemoteError, "no paper", (507, True, False), None, None)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (502, b"<html><title>Bad Gateway</title>", "502: Bad Gateway"),
        (401, b'{"detail": "no key"}', "401: no key"),
        (500, b'{"error": {"kind": 7, "message": "boom"}}', "500: boom"),
        (500, b'{"error": {"kind": "TTSError", "message": "boom"}}', "500: boom"),
        (500, b"[" * 5_000, "500: " + "[" * 277 + "..."),
        (500, b"", "500: Internal Server Error"),
    ],
)
def test_an_error_of_whatever_stands_between_is_a_readable_line(
    status: int, body: bytes, said: str
) -> None:
    error = NativeDialect().read_error(HttpReply(status, body=body), HELLO)
    assert (type(error), str(error), error.status_code) == (RemoteError, said, status)


@pytest.mark.parametrize("wait", [None, -1, math.nan, math.inf, 10**400, "soon"])
def test_a_message_and_a_pause_that_make_no_sense_do_no_harm(wait: object) -> None:
    said = {"kind": "OverloadedError", "message": "\x1b[2J" + "x" * 9_000, "status": 429}
    body = json.dumps({"error": said | {"retry_after": wait}}).encode()
    error = NativeDialect().read_error(HttpReply(429, body=body))
    assert isinstance(error, OverloadedError)
    assert error.retry_after == 0.5
    assert str(error) == "[2J" + "x" * 274 + "..."


@pytest.mark.parametrize("status", [404, 405])
def test_a_server_that_is_not_ours_is_answered_with_the_way_out(status: int) -> None:
    reply = HttpReply(status, body=b'{"detail":"Not Found"}')
    error = NativeDialect().read_error(reply, HELLO)
    assert str(error).startswith(
        f"{status}: no server of ours; say in which dialect, in front of the address: elevenlabs+"
    )
    assert error.status_code == status
    assert str(NativeDialect().read_error(reply)) == f"{status}: Not Found"


async def test_what_fails_on_the_way_is_heard_until_then_and_told() -> None:
    async def answer(line: Line, call: Call) -> None:
        line.head(content_type="application/x-ndjson")
        await line.chunk(BODY + ChunkLines().fail(EngineTimeoutError("no audio for 10 s")))
        line.end()

    async with serving(by_path({"POST /api/speech": answer})) as server:
        engine = RemoteEngine(NativeDialect(), server.url, name="n")
        chunks = engine.stream(HELLO)
        assert [len((await anext(chunks)).samples) for _ in CHUNKS] == [3, 1]
        with pytest.raises(EngineTimeoutError, match=r"^n: no audio for 10 s$"):
            await anext(chunks)
        await engine.aclose()
    assert server.asked == 1


async def test_an_engine_sounds_the_same_from_afar() -> None:
    here = open_engine("tone")

    async def answer(line: Line, call: Call) -> None:
        asked = NativeServer().read_call(HttpCall("POST", call.path, body=call.body))
        line.head(content_type=asked.writer.media_type)
        async with aclosing(here.stream(asked.request)) as chunks:
            async for chunk in chunks:
                await line.chunk(asked.writer.push(chunk))
        line.end()

    async with serving(by_path({"POST /api/speech": answer})) as server:
        afar = open_engine(server.url)
        ours, theirs = await spoken(here, HELLO), await spoken(afar, HELLO)
        await afar.aclose()
    await here.aclose()
    assert [chunk.words for chunk in theirs] == [chunk.words for chunk in ours]
    assert np.allclose(joined(theirs)[0], joined(ours)[0], atol=1.001 / 32_768)
    assert joined(theirs)[1] == joined(ours)[1]


# Voices


def test_voices_are_the_same_at_the_other_end() -> None:
    voices = [
        Voice("hello", "en-US", "A voice", ready=False),
        Voice("mai", "vi"),
    ]
    reply = NativeServer().write_voices(voices)
    assert json.loads(reply.body)["voices"][0] == {
        "id": "hello",
        "language": "en-US",
        "description": "A voice",
        "ready": False,
    }
    assert NativeDialect().read_voices(reply) == voices


def test_voices_are_those_of_the_engine_that_speaks() -> None:
    assert NativeDialect().write_voices() == [HttpCall("GET", "/api/voices")]
    assert NativeDialect(model="tone").write_voices() == [
        HttpCall("GET", "/api/voices", {"model": "tone"})
    ]
    assert NativeDialect().read_voices(None) == []


def test_what_is_no_voice_is_left_out_and_what_is_no_list_is_told() -> None:
    listed = [{"id": "a"}, {"id": ""}, {"id": 7}, "b", None, {"id": "c", "language": None}]
    reply = HttpReply(200, body=json.dumps({"voices": listed}).encode())
    assert NativeDialect().read_voices(reply) == [Voice("a", "und"), Voice("c", "und")]
    for body in (b"[]", b"{}", b'{"voices":{}}', b"x"):
        with pytest.raises(RemoteError, match="expected"):
            NativeDialect().read_voices(HttpReply(200, body=body))


def test_engines_are_listed_for_a_page() -> None:
    offers = [Offer("hibari", True, False, 24_000), Offer("far", False, True, None)]
    assert json.loads(NativeServer().write_engines(offers).body) == {
        "engines": [
            {"name": "hibari", "default": True, "clones": False, "sample_rate": 24_000},
            {"name": "far", "default": False, "clones": True, "sample_rate": None},
        ]
    }


WAV = b"RIFF\0\0\0\0WAVE and so on"
CLIP = Clip(WAV, hashlib.sha256(WAV).hexdigest()[:16], "Xin chào.")


@pytest.mark.parametrize("model", [None, "tone"])
@pytest.mark.parametrize("clip", [CLIP, Clip(CLIP.content, CLIP.digest)])
def test_a_recording_is_read_as_it_was_sent(model: str | None, clip: Clip) -> None:
    call = NativeDialect(model=model).write_clone("Mai Anh", clip)
    assert (call.method, call.path) == ("POST", "/api/voices")
    assert call.form[:2] == (
        Part("name", "Mai Anh"),
        Part("file", CLIP.content, "clip.wav", "audio/wav"),
    )
    assert NativeServer().read_clone(call) == Enrolment("Mai Anh", clip, model)


@pytest.mark.parametrize(
    "form",
    [
        (),
        (Part("name", "a"),),
        (Part("name", "a"), Part("file", "text")),
        (Part("name", "a"), Part("file", b"", "a.wav")),
        (Part("name", "  "), Part("file", b"RIFF", "a.wav")),
        (Part("name", b"a", "a.txt"), Part("file", b"RIFF", "a.wav")),
    ],
)
def test_a_recording_without_a_name_or_a_name_without_one_is_refused(form: tuple[Part]) -> None:
    with pytest.raises(InvalidRequestError, match="a voice needs a name, and a file"):
        NativeServer().read_clone(HttpCall("POST", "/api/voices", form=form))


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"id": 7}'])
def test_a_clone_without_an_id_is_none(body: bytes) -> None:
    with pytest.raises(RemoteError, match="expected a voice, got"):
        NativeDialect().read_clone("a", CLIP, HttpReply(200, body=body))


async def test_a_recording_is_sent_once_and_by_nobody_else() -> None:
    known: list[Voice] = []

    async def voices(line: Line, call: Call) -> None:
        reply = NativeServer().write_voices(known)
        line.body(reply.status, reply.body, content_type=reply.media_type)

    async def learn(line: Line, call: Call) -> None:
        assert CLIP.content in call.body
        known.append(Voice("mai-1", "vi", CLIP.mark))
        reply = NativeServer().write_clone(known[0])
        line.body(reply.status, reply.body, content_type=reply.media_type)

    async def speak(line: Line, call: Call) -> None:
        assert call.json["voice"] == "mai-1"
        line.body(200, BODY)

    paths = {"GET /api/voices": voices, "POST /api/voices": learn, "POST /api/speech": speak}
    async with serving(by_path(paths)) as server:
        for name in ("Mai", "Mai again"):
            engine = open_engine(server.url)
            assert isinstance(engine, RemoteEngine)
            voice = await engine.clone(name, CLIP.content)
            assert voice == Voice(name, "vi", CLIP.mark)
            assert await spoken(engine, SynthesisRequest("Hello there.", voice=name))
            await engine.aclose()
    assert [call.method for call in server.calls if call.path == "/api/voices"] == [
        "GET",
        "POST",
        "GET",
    ]


async def test_a_connection_is_made_ahead_of_time_without_any_speech() -> None:
    async with serving(by_path({})) as server:
        engine = RemoteEngine(NativeDialect(), server.url)
        await engine.prewarm()
        await engine.aclose()
    assert [(call.method, call.path) for call in server.calls] == [("GET", "/api/engines")]
