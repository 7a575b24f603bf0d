"""tts_plugins.dialects.kokoro: captioned speech, word for word."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.openai_server import (
    Reply,
    audio,
    caption,
    captions,
    encoded,
    joined,
    s16,
    speaking,
    spoken,
    wav,
)
from tests.hearing import pitch
from tests.servers import Call, Line, by_path, serving
from tts_plugins.audio.pcm import from_s16
from tts_plugins.dialects.base import HttpCall, HttpReply
from tts_plugins.dialects.kokoro import KokoroDialect, KokoroServer
from tts_plugins.errors import (
    InvalidRequestError,
    OverloadedError,
    RemoteError,
    TTSError,
    VoiceNotFoundError,
)
from tts_plugins.remote import RemoteEngine
from tts_plugins.text.words import spans
from tts_plugins.timing import TimedEngine
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

HELLO = SynthesisRequest("Hello there.", voice="af_heart")
JSON = HttpReply(200, {"content-type": "application/json"})
TENTH = s16(seconds=0.1)


def read(text: str, *lines: bytes) -> list[AudioChunk]:
    reader = KokoroDialect().read_reply(SynthesisRequest(text), JSON)
    return [chunk for line in lines for chunk in reader.push(line)] + reader.flush()


def words(chunks: list[AudioChunk]) -> list[tuple[str, float, float, bool]]:
    return [
        (word.text, round(word.start, 3), round(word.end, 3), word.exact)
        for chunk in chunks
        for word in chunk.words
    ]


# What we ask for


@pytest.mark.parametrize(
    ("dialect", "request_", "path", "body"),
    [
        (
            KokoroDialect(),
            SynthesisRequest("Hello.", previous_text="Hi."),
            "/dev/captioned_speech",
            {
                "model": "kokoro",
                "input": "Hello.",
                "voice": "af_heart",
                "response_format": "pcm",
                "stream": True,
                "return_timestamps": True,
            },
        ),
        (
            KokoroDialect(captions=False, model="tts-1", response_format="wav"),
            SynthesisRequest("Hola.", voice="ef_dora", language="es-MX", speed=1.5),
            "/v1/audio/speech",
            {
                "model": "tts-1",
                "input": "Hola.",
                "voice": "ef_dora",
                "response_format": "wav",
                "speed": 1.5,
                "stream": True,
                "lang_code": "e",
            },
        ),
        (
            KokoroDialect(extra={"allow_voice_tags": True, "stream": False}),
            SynthesisRequest(
                "Hi.",
                voice="voice_1",
                language="en-GB",
                options={
                    "lang_code": "a",
                    "volume_multiplier": 0.5,
                    "normalization_options": {"normalize": False},
                },
            ),
            "/dev/captioned_speech",
            {
                "model": "kokoro",
                "input": "Hi.",
                "voice": "voice_1",
                "response_format": "pcm",
                "stream": False,
                "return_timestamps": True,
                "lang_code": "a",
                "allow_voice_tags": True,
                "volume_multiplier": 0.5,
                "normalization_options": {"normalize": False},
            },
        ),
    ],
    ids=["captions", "none", "options"],
)
def test_a_request_is_what_kokoros_schema_describes(
    dialect: KokoroDialect, request_: SynthesisRequest, path: str, body: object
) -> None:
    call = dialect.write_call(request_)
    assert (call.method, call.path) == ("POST", path)
    assert json.loads(call.body) == body


@pytest.mark.parametrize(
    "voice", ["af_bella(2)+af_sky(1)", "af_bella+am_adam", "af_bella-af_sky", "af_bella(0.5)"]
)
def test_a_blend_of_voices_is_passed_on_unharmed(voice: str) -> None:
    call = KokoroDialect().write_call(SynthesisRequest("Hi", voice=voice))
    assert f'"voice": "{voice}"'.encode() in call.body


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("en-US", "a"),
        ("en-GB", "b"),
        ("en", "a"),
        ("en-AU", "a"),
        ("EN_gb", "b"),
        ("es", "e"),
        ("es-419", "e"),
        ("fr-CA", "f"),
        ("hi-IN", "h"),
        ("it", "i"),
        ("ja-JP", "j"),
        ("pt-BR", "p"),
        ("pt", "p"),
        ("zh-Hans-CN", "z"),
    ],
)
def test_a_language_is_named_by_kokoros_letter(language: str, code: str) -> None:
    call = KokoroDialect().write_call(SynthesisRequest("Hi", language=language))
    assert json.loads(call.body)["lang_code"] == code


@pytest.mark.parametrize("language", ["vi", "de-DE", "x", "eng"])
def test_a_language_that_kokoro_does_not_speak_is_answered_with_those_it_does(
    language: str,
) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        KokoroDialect().write_call(SynthesisRequest("Hi", language=language))
    assert str(raised.value) == (
        f"Kokoro doesn't speak {language}; languages: en-US, en-GB, es, fr, hi, it, ja, pt-BR, zh"
    )


@pytest.mark.parametrize("speed", [0.2, 4.1, math.nan])
def test_a_speed_that_kokoro_does_not_have_is_refused_before_it_is_asked(speed: float) -> None:
    with pytest.raises(InvalidRequestError, match=r"is outside 0\.25 to 4"):
        KokoroDialect().write_call(SynthesisRequest("Hi", speed=speed))


def test_openais_options_are_not_kokoros() -> None:
    known = "lang_code, normalization_options, volume_multiplier"
    with pytest.raises(InvalidRequestError, match=f"no option instructions; options: {known}"):
        KokoroDialect().write_call(SynthesisRequest("Hi", options={"instructions": "calm"}))


# What comes back


def test_a_line_becomes_a_chunk_with_the_words_that_are_in_it() -> None:
    first = caption(TENTH, ("Hello", 0.0, 0.05), (",", 0.05, 0.06), ("you", 0.06, 0.1))
    second = caption(TENTH, ("there", 0.11, 0.15), ("!", 0.15, 0.2))
    reader = KokoroDialect().read_reply(SynthesisRequest("Hello, you there!"), JSON)
    assert reader.push(first[:100]) == []
    [chunk] = reader.push(first[100:] + second[:1])
    assert np.array_equal(chunk.samples, from_s16(TENTH))
    assert chunk.sample_rate == 24_000
    assert chunk.words == (Word("Hello,", 0, 0.0, 0.05), Word("you", 7, 0.06, 0.1))
    [chunk] = reader.push(second[1:])
    assert chunk.words == (Word("there!", 11, 0.11, 0.15),)
    assert reader.flush() == []


@pytest.mark.parametrize("size", [1, 7, 480, 1_000_000])
def test_it_does_not_matter_how_lines_are_cut(size: int) -> None:
    body = caption(TENTH[:1], ("Hello", 0.0, 0.05)) + caption(TENTH[1:], ("there", 0.05, 0.1))
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    chunks = read("Hello there.", *pieces)
    assert np.array_equal(joined(chunks)[0], from_s16(TENTH))
    assert words(chunks) == [("Hello", 0.0, 0.05, True), ("there.", 0.05, 0.1, True)]


def test_one_object_for_the_whole_is_read_the_same() -> None:
    one = caption(TENTH, ("Hello", 0.0, 0.05), ("there", 0.05, 0.1)).rstrip()
    assert words(read("Hello there.", one)) == [
        ("Hello", 0.0, 0.05, True),
        ("there.", 0.05, 0.1, True),
    ]


def test_words_of_a_rewritten_text_are_found_in_the_one_that_was_asked_for() -> None:
    stamps = [("It", 0.0, 0.1), ("costs", 0.1, 0.3), ("five", 0.3, 0.6), ("dollars", 0.6, 0.9)]
    found = words(read("It costs $5 now.", caption(TENTH, *stamps, ("now", 0.9, 1.0))))
    assert [word[0] for word in found] == ["It", "costs", "$5", "now."]
    assert found[2] == ("$5", 0.3, 0.9, False)
    assert found[3] == ("now.", 0.9, 1.0, True)


def test_words_wait_for_their_audio_and_none_is_left_behind() -> None:
    lines = [
        caption(b"", ("Hello", 0.0, 0.05)),
        caption(TENTH, ("there", 0.05, 0.1)),
        caption(b"", ("my", 0.1, 0.2)),
    ]
    chunks = read("Hello there my friend.", *lines)
    assert [len(chunk.samples) for chunk in chunks] == [2400, 0]
    assert [[word.text for word in chunk.words] for chunk in chunks] == [
        ["Hello", "there"],
        ["my", "friend."],
    ]


@pytest.mark.parametrize("timestamps", [None, [], {}, "x", 7, [7], [{"word": "Hello"}]])
def test_without_times_there_are_no_words(timestamps: object) -> None:
    chunks = read("Hello there.", caption(TENTH, timestamps=timestamps))
    assert [len(chunk.samples) for chunk in chunks] == [2400]
    assert words(chunks) == []


@pytest.mark.parametrize(
    "stamp",
    [
        {"word": 7, "start_time": 0.0, "end_time": 0.1},
        {"word": None, "start_time": 0.0, "end_time": 0.1},
        {"word": "...", "start_time": 0.0, "end_time": 0.1},
        {"word": "Hello", "start_time": None, "end_time": 0.1},
        {"word": "Hello", "start_time": "0", "end_time": 0.1},
        {"word": "Hello", "start_time": -1.0, "end_time": 0.1},
        {"word": "Hello", "start_time": math.nan, "end_time": 0.1},
        {"word": "Hello", "start_time": 0.0, "end_time": math.inf},
        {"word": "Hello", "start_time": 0.0, "end_time": 10**400},
    ],
)
def test_a_time_that_makes_no_sense_is_no_reason_to_be_silent(stamp: dict[str, Any]) -> None:
    assert words(read("Hello there.", caption(TENTH, timestamps=[stamp]))) == []
    good = {"word": "there", "start_time": 0.05, "end_time": 0.1}
    chunks = read("Hello there.", caption(TENTH, timestamps=[stamp, good]))
    assert [word[0] for word in words(chunks)] == ["Hello", "there."]
    assert words(chunks)[1] == ("there.", 0.05, 0.1, True)


def test_words_that_come_after_the_first_sound_are_left_to_whoever_guesses_by_then() -> None:
    lines = [caption(TENTH), caption(TENTH, ("there", 0.1, 0.2))]
    assert words(read("Hello there.", *lines)) == []


def test_silence_in_front_of_the_first_word_is_no_sound() -> None:
    lines = [caption(bytes(4_800)), caption(TENTH, ("Hello", 0.1, 0.15), ("there", 0.15, 0.2))]
    assert words(read("Hello there.", *lines)) == [
        ("Hello", 0.1, 0.15, True),
        ("there.", 0.15, 0.2, True),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"error":{"message":"out of memory"}}\n', "it failed on the way: out of memory"),
        (b'{"detail":"Not\\nhere"}\n', "it failed on the way: Not here"),
        (b'{"audio":"","error":"late"}\n', "it failed on the way: late"),
        (b"{}\n", r"it failed on the way: \{\}"),
        (b"[]\n", r"expected a JSON object, got '\[\]'"),
        (b'{"audio":7}\n', "expected audio in base64, got '7'"),
    ],
)
def test_a_line_that_is_no_speech_is_told(line: bytes, said: str) -> None:
    with pytest.raises((RemoteError, ValueError), match=said):
        read("Hello.", line)


REPLIES: dict[str, tuple[Reply, int, int]] = {
    "captions": (captions(caption(s16()[:9_601]), caption(s16()[9_601:])), 24_000, 24_000),
    "captions of wav": (
        captions(
            caption(wav(48_000)[:30], audio_format="audio/wav"),
            caption(wav(48_000)[30:], audio_format="audio/wav"),
        ),
        48_000,
        48_000,
    ),
    "captions of nothing in between": (
        captions(caption(s16()), caption(b"", timestamps=None)),
        24_000,
        24_000,
    ),
    "captions without a format": (captions(caption(s16(), audio_format=None)), 24_000, 24_000),
    "captions at the rate of a header": (
        Reply(
            [caption(s16(48_000))],
            {"content_type": "Application/JSON", "X_Sample_Rate": "48000"},
        ),
        48_000,
        48_000,
    ),
    "bare pcm": (audio(s16(), "audio/pcm"), 24_000, 24_000),
    "bare wav": (audio(wav(), "audio/wav"), 24_000, 24_000),
}


async def heard(dialect: KokoroDialect, reply: Reply) -> list[AudioChunk]:
    async with speaking(reply) as server:
        engine = RemoteEngine(dialect, server.url)
        chunks = await spoken(engine, HELLO)
        await engine.aclose()
    return chunks


@pytest.mark.parametrize("kind", REPLIES)
async def test_every_kind_of_reply_is_the_tone_at_its_pitch_and_length(kind: str) -> None:
    reply, rate, length = REPLIES[kind]
    samples, found = joined(await heard(KokoroDialect(), reply))
    assert (found, len(samples)) == (rate, length)
    assert pitch(samples, rate) == pytest.approx(440, abs=1)


async def test_captions_may_hold_mp3() -> None:
    pytest.importorskip("av")
    body = encoded("libmp3lame", "mp3")
    lines = [
        caption(body[:5_000], ("Hello", 0.1, 0.4), audio_format="audio/mpeg"),
        caption(body[5_000:], ("there", 0.5, 0.9), audio_format="audio/mpeg"),
    ]
    chunks = await heard(KokoroDialect(response_format="mp3"), captions(*lines))
    samples, rate = joined(chunks)
    assert rate == 24_000
    assert 24_000 <= len(samples) <= 26_000
    assert pitch(samples, rate) == pytest.approx(440, abs=1)
    assert words(chunks) == [("Hello", 0.1, 0.4, True), ("there.", 0.5, 0.9, True)]


@pytest.mark.parametrize(
    ("reply", "exact"),
    [
        (captions(caption(s16(), ("Hello", 0.1, 0.4), ("there", 0.5, 0.9))), True),
        (captions(caption(s16(), timestamps=None)), False),
        (captions(caption(TENTH), caption(TENTH, ("there", 0.1, 0.2))), False),
    ],
    ids=["with times", "without", "too late"],
)
async def test_every_word_is_heard_of_once(reply: Reply, exact: bool) -> None:
    async with speaking(reply) as server:
        engine = RemoteEngine(KokoroDialect(), server.url)
        found = words(await spoken(TimedEngine(engine), HELLO))
        await engine.aclose()
    assert [(text, flag) for text, _, _, flag in found] == [("Hello", exact), ("there.", exact)]


# What goes wrong


@pytest.mark.parametrize("status", [404, 405])
async def test_a_server_without_captions_is_answered_with_the_way_out(status: int) -> None:
    reply = Reply([b'{"detail":"Not Found"}'], {"content_type": "application/json"}, status)
    async with speaking(reply) as server:
        engine = RemoteEngine(KokoroDialect(), server.url, name="k")
        with pytest.raises(RemoteError) as raised:
            await spoken(engine, HELLO)
        plain = RemoteEngine(KokoroDialect(captions=False), server.url, name="k")
        with pytest.raises(RemoteError, match=rf"^k: {status}: Not Found \(asked"):
            await spoken(plain, HELLO)
        await engine.aclose()
        await plain.aclose()
    assert str(raised.value) == (
        f"k: {status}: no /dev/captioned_speech there; captions=False does without it"
        f" (asked for POST {server.url}/dev/captioned_speech)"
    )
    assert raised.value.status_code == status
    assert [call.path for call in server.calls] == ["/dev/captioned_speech", "/v1/audio/speech"]


async def test_a_refused_voice_is_answered_with_those_there_are() -> None:
    async def refuse(line: Line, call: Call) -> None:
        said = "Voice 'af_x' not found. Available voices: af_heart, bf_emma"
        kind = "invalid_request_error"
        detail = {"error": "validation_error", "message": said, "type": kind}
        line.json(400, {"detail": detail})

    async def list_voices(line: Line, call: Call) -> None:
        line.json(200, {"voices": [{"id": "af_heart", "name": "af_heart"}, "bf_emma"]})

    paths = {"POST /dev/captioned_speech": refuse, "GET /v1/audio/voices": list_voices}
    async with serving(by_path(paths)) as server:
        engine = RemoteEngine(KokoroDialect(), server.url)
        with pytest.raises(VoiceNotFoundError) as raised:
            await spoken(engine, SynthesisRequest("Hi.", voice="af_x+af_heart"))
        await engine.aclose()
    assert str(raised.value).endswith("no voice 'af_x+af_heart'; available: af_heart, bf_emma")


def test_another_of_kokoros_errors_is_quoted() -> None:
    detail = {
        "error": "invalid_model",
        "message": "Unsupported model: x",
        "type": "invalid_request_error",
    }
    reply = HttpReply(400, body=json.dumps({"detail": detail}).encode())
    error = KokoroDialect().read_error(reply, HELLO)
    assert type(error) is RemoteError
    assert str(error) == "400: Unsupported model: x"


# Voices


def test_a_voices_language_is_its_first_letter() -> None:
    ids = ["af_heart", "am_adam", "bf_emma", "ef_dora", "ff_siwis", "hf_alpha", "if_sara"]
    ids += ["jf_alpha", "pf_dora", "zf_xiaobei", "alloy", "xf_new", "a_b"]
    reply = HttpReply(200, body=json.dumps({"voices": ids}).encode())
    found = {voice.id: voice.language for voice in KokoroDialect().read_voices(reply)}
    assert found == {
        "af_heart": "en-US",
        "am_adam": "en-US",
        "bf_emma": "en-GB",
        "ef_dora": "es",
        "ff_siwis": "fr",
        "hf_alpha": "hi",
        "if_sara": "it",
        "jf_alpha": "ja",
        "pf_dora": "pt-BR",
        "zf_xiaobei": "zh",
        "alloy": "und",
        "xf_new": "und",
        "a_b": "und",
    }


def test_a_server_without_a_list_has_the_default_voice() -> None:
    assert KokoroDialect().write_voices() == [HttpCall("GET", "/v1/audio/voices")]
    assert KokoroDialect().read_voices(None) == [Voice("af_heart", "en-US")]


def test_kokoro_can_not_clone() -> None:
    assert not RemoteEngine(KokoroDialect(), "http://host").can_clone


# The server's end

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
requests = st.builds(
    SynthesisRequest,
    texts,
    voice=texts,
    language=st.sampled_from([None, "en-US", "en-GB", "es", "fr", "hi", "it", "ja", "pt-BR", "zh"]),
    speed=st.floats(0.25, 4.0),
    options=st.fixed_dictionaries(
        {},
        optional={
            "volume_multiplier": st.floats(0.0, 100.0).filter(lambda value: value != 1.0),
            "normalization_options": st.dictionaries(texts, st.booleans(), max_size=2),
        },
    ),
)


@settings(deadline=None)
@given(requests, st.sampled_from(["pcm", "wav"]), texts)
def test_what_the_caller_writes_the_server_reads(
    request: SynthesisRequest, response_format: str, model: str
) -> None:
    dialect = KokoroDialect(model=model, response_format=response_format)
    asked = KokoroServer().read_call(dialect.write_call(request))
    assert asked.request == request
    assert asked.model == model
    assert asked.writer.media_type == "application/json"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "the body has to be a JSON object"),
        ({"input": None}, "input, the text to speak, is missing"),
        ({"lang_code": "x"}, "lang_code has to be one of a, b, e, f, h, i, j, p, z"),
        ({"stream": 1}, "stream has to be true or false"),
        ({"return_timestamps": "no"}, "return_timestamps has to be true or false"),
        ({"volume_multiplier": math.nan}, "volume_multiplier has to be a number from 0 to 100"),
        ({"normalization_options": []}, "normalization_options has to be an object"),
        (
            {"response_format": "ogg"},
            "response_format has to be one of pcm, wav, mp3, opus, aac, flac",
        ),
        ({"voice": {"id": 7}}, "voice has to be a string"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(body: Any, said: str) -> None:
    good = {"input": "hi", "response_format": "pcm"}
    whole = good | body if isinstance(body, dict) else body
    with pytest.raises(InvalidRequestError) as raised:
        KokoroServer().read_call(HttpCall("POST", "/", body=json.dumps(whole).encode()))
    assert str(raised.value) == said


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["model", "input", "voice", "response_format", "speed", "stream", "return_timestamps"]
FIELDS += ["lang_code", "volume_multiplier", "normalization_options"]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), json_values | st.just("pcm") | st.just("a")))
def test_a_request_with_anything_in_it_is_read_or_refused(body: dict[str, object]) -> None:
    try:
        KokoroServer().read_call(HttpCall("POST", "/", body=json.dumps(body).encode()))
    except InvalidRequestError as error:
        assert len(str(error)) < 100  # noqa: PT017  a refusal is as good as an answer


@st.composite
def spoken_texts(draw: st.DrawFn) -> tuple[str, list[AudioChunk]]:
    """A text, and chunks of loud samples with all its words, the first in the first."""
    text = draw(
        st.text("aebc é.,'-今日は", min_size=1, max_size=40).filter(lambda t: any(spans(t)))
    )
    found = list(spans(text))
    times = sorted(
        draw(st.lists(st.floats(0, 100), min_size=2 * len(found), max_size=2 * len(found)))
    )
    timed = [
        Word(word, offset, times[2 * i], times[2 * i + 1]) for i, (offset, word) in enumerate(found)
    ]
    inner = draw(st.lists(st.integers(1, len(timed)), max_size=3))
    cuts = sorted({0, 1, *inner, len(timed)})
    samples = np.full(5, 0.5, np.float32)
    return text, [AudioChunk(samples, 24_000, tuple(timed[a:b])) for a, b in pairwise(cuts)]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("response_format", ["pcm", "wav"])
@settings(deadline=None)
@given(spoken_texts(), st.integers(1, 500))
def test_what_the_server_writes_the_caller_reads(
    response_format: str, stream: bool, said: tuple[str, list[AudioChunk]], size: int
) -> None:
    text, chunks = said
    dialect = KokoroDialect(response_format=response_format, extra={"stream": stream})
    request = SynthesisRequest(text)
    writer = KokoroServer().read_call(dialect.write_call(request)).writer
    parts = [writer.push(chunk) for chunk in chunks]
    body = b"".join([*parts, writer.flush()])
    assert body.count(b"\n") == (len(chunks) if stream else 1)
    reader = dialect.read_reply(request, JSON)
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    back = [chunk for piece in pieces for chunk in reader.push(piece)] + reader.flush()
    samples, rate = joined(back)
    assert rate == 24_000
    assert np.array_equal(samples, joined(chunks)[0])
    assert [word for c in back for word in c.words] == [word for c in chunks for word in c.words]
    if stream:
        assert [chunk.words for chunk in back] == [chunk.words for chunk in chunks]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("response_format", ["mp3", "opus", "aac", "flac"])
def test_compressed_lines_are_heard_with_their_words(response_format: str, stream: bool) -> None:
    pytest.importorskip("av")
    dialect = KokoroDialect(response_format=response_format, extra={"stream": stream})
    request = SynthesisRequest("One two three")
    writer = KokoroServer().read_call(dialect.write_call(request)).writer
    timed = [Word("One", 0, 0.0, 0.3), Word("two", 4, 0.4, 0.6), Word("three", 8, 0.7, 1.0)]
    samples = np.array_split(from_s16(s16()), 40)
    chunks = [AudioChunk(part, 24_000) for part in samples]
    for word, place in zip(timed, (0, 16, 28), strict=True):
        chunks[place] = AudioChunk(samples[place], 24_000, (word,))
    lines = b"".join([*(writer.push(chunk) for chunk in chunks), writer.flush()]).splitlines()
    assert all(json.loads(line)["audio"] or json.loads(line)["timestamps"] for line in lines)
    reader = dialect.read_reply(request, JSON)
    back = [chunk for line in lines for chunk in reader.push(line + b"\n")] + reader.flush()
    assert [word for chunk in back for word in chunk.words] == timed
    came, rate = joined(back)
    assert rate <= len(came) <= rate + 2_000
    assert pitch(came, rate) == pytest.approx(440, abs=1)


def test_a_voice_may_be_named_by_an_object() -> None:
    body = b'{"input":"Hi","response_format":"pcm","voice":{"id":"af_sky"}}'
    assert KokoroServer().read_call(HttpCall("POST", "/", body=body)).request.voice == "af_sky"


def test_lines_are_written_as_kokoro_writes_them() -> None:
    body = b'{"input":"H\xc3\xa9llo","response_format":"pcm"}'
    writer = KokoroServer().read_call(HttpCall("POST", "/", body=body)).writer
    half = AudioChunk(np.array([0.5], np.float32), 24_000, (Word("Héllo", 0, 0.25, 0.5),))
    assert writer.sample_rate == 24_000
    assert writer.push(half).decode() == (
        '{"audio":"AEA=","audio_format":"audio/pcm",'
        '"timestamps":[{"word":"Héllo","start_time":0.25,"end_time":0.5}]}\n'
    )
    assert writer.flush() == b""


def test_who_wants_no_times_gets_none() -> None:
    body = b'{"input":"Hi","response_format":"pcm","return_timestamps":false,"stream":false}'
    writer = KokoroServer().read_call(HttpCall("POST", "/", body=body)).writer
    half = AudioChunk(np.array([0.5], np.float32), 24_000, (Word("Hi", 0, 0.25, 0.5),))
    assert writer.push(half) == b""
    assert writer.flush() == b'{"audio":"AEA=","audio_format":"audio/pcm","timestamps":null}\n'


@pytest.mark.parametrize(
    ("error", "kind", "said", "called"),
    [
        (
            VoiceNotFoundError("af_heart", ["a"]),
            VoiceNotFoundError,
            "no voice 'af_heart'",
            ("validation_error", "invalid_request_error"),
        ),
        (
            InvalidRequestError("speed 9"),
            RemoteError,
            "400: speed 9",
            ("validation_error", "invalid_request_error"),
        ),
        (
            OverloadedError("busy", retry_after=1.2),
            OverloadedError,
            "429: busy",
            ("rate_limit_error", "rate_limit_error"),
        ),
        (
            RemoteError("boom", status_code=503),
            RemoteError,
            "503: boom",
            ("processing_error", "server_error"),
        ),
    ],
)
def test_an_error_that_the_server_writes_the_caller_reads(
    error: TTSError, kind: type[TTSError], said: str, called: tuple[str, str]
) -> None:
    reply = KokoroServer().write_error(error)
    detail = dict(zip(("error", "type"), called, strict=True)) | {"message": str(error)}
    assert json.loads(reply.body) == {"detail": detail}
    read = KokoroDialect().read_error(reply, HELLO)
    assert type(read) is kind
    assert str(read).startswith(said)
