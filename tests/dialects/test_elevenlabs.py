"""ElevenLabs' API: both ends against each other, and each against what was recorded."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.audio.bodies import encoded, frames_of, tone
from tests.dialects.elevenlabs_server import beep, line, lines, timed
from tests.hearing import pitch
from tts_plugins.audio.g711 import from_alaw, from_ulaw, to_alaw, to_ulaw
from tts_plugins.audio.pcm import from_s16, to_s16
from tts_plugins.audio.wav import WavWriter
from tts_plugins.dialects.base import Clip, HttpCall, HttpReply, ReplyReader
from tts_plugins.dialects.elevenlabs import (
    DEFAULT_VOICE,
    Character,
    Characters,
    ElevenLabsDialect,
    ElevenLabsServer,
)
from tts_plugins.errors import (
    EngineTimeoutError,
    InvalidRequestError,
    OverloadedError,
    RemoteError,
    TTSError,
    VoiceNotFoundError,
)
from tts_plugins.text.words import spans
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice, Word

JSON = HttpReply(200, {"content-type": "application/json"})
BASIC = HttpReply(200, {"content-type": "audio/basic"})
CUTS = (1, 7, 480, 1_000_000)

_texts = st.text(st.characters(exclude_categories=["Cs"]))


def reader(text: str = "Hello big world", /, **options: Any) -> ReplyReader:
    return ElevenLabsDialect(**options).read_reply(SynthesisRequest(text), JSON)


def read(reading: ReplyReader, body: bytes, cut: int = 1_000_000) -> list[AudioChunk]:
    pieces = [body[i : i + cut] for i in range(0, len(body), cut)]
    return [*(chunk for piece in pieces for chunk in reading.push(piece)), *reading.flush()]


def samples(chunks: Iterable[AudioChunk]) -> Samples:
    return np.concatenate([np.zeros(0, np.float32), *(chunk.samples for chunk in chunks)])


def words(chunks: Iterable[AudioChunk]) -> list[Word]:
    return [word for chunk in chunks for word in chunk.words]


def heard(chunks: Iterable[AudioChunk]) -> list[tuple[str, float, float, bool]]:
    """Words, with times to the millisecond."""
    return [(w.text, round(w.start, 3), round(w.end, 3), w.exact) for w in words(chunks)]


def refused(status: int, body: object, **headers: str) -> TTSError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = HttpReply(status, named, json.dumps(body).encode())
    return ElevenLabsDialect().read_error(reply, SynthesisRequest("Hi", voice="v1"))


# Requests


PIPECAT = HttpCall(
    "POST",
    "/v1/text-to-speech/v1/stream/with-timestamps",
    {"output_format": "pcm_24000"},
    {"content-type": "application/json"},
    b'{"text": "How are you?", "model_id": "eleven_flash_v2_5", "previous_text": "Hello there.",'
    b' "voice_settings": {"stability": 0.5}}',
)
SDK = HttpCall(
    "POST",
    "/v1/text-to-speech/v1/stream",
    {"output_format": "pcm_24000"},
    {"content-type": "application/json"},
    b'{"text": "Hello", "model_id": "eleven_flash_v2_5", "language_code": "vi", "voice_settings":'
    b' {"stability": 0.5, "similarity_boost": 0.75, "speed": 1.1}, "seed": 1}',
)
LIVEKIT = HttpCall(
    "POST",
    "/v1/text-to-speech/hpp4J3VqNfWAUOO0d1Us/stream",
    {"output_format": "pcm_24000", "enable_logging": "true"},
    {"content-type": "application/json"},
    b'{"text": "Hello there.", "model_id": "eleven_turbo_v2_5", "voice_settings": null,'
    b' "apply_text_normalization": "auto"}',
)


def test_a_request_is_written_as_pipecat_writes_it() -> None:
    request = SynthesisRequest("How are you?", voice="v1", previous_text="Hello there.")
    assert ElevenLabsDialect(stability=0.5).write_call(request) == PIPECAT


def test_a_request_is_written_as_the_vendors_sdk_writes_it() -> None:
    dialect = ElevenLabsDialect(timestamps=False, stability=0.1, similarity_boost=0.75)
    options = {"stability": 0.5, "seed": 1}
    request = SynthesisRequest("Hello", voice="v1", language="vi-VN", speed=1.1, options=options)
    assert dialect.write_call(request) == SDK


def test_what_pipecat_the_sdk_and_livekit_send_is_read() -> None:
    server = ElevenLabsServer()
    asked = server.read_call(PIPECAT)
    assert asked.request == SynthesisRequest(
        "How are you?", voice="v1", previous_text="Hello there.", options={"stability": 0.5}
    )
    assert (asked.model, asked.writer.sample_rate) == ("eleven_flash_v2_5", 24_000)
    assert asked.writer.media_type == "application/json"
    asked = server.read_call(SDK)
    assert asked.request == SynthesisRequest(
        "Hello",
        voice="v1",
        language="vi",
        speed=1.1,
        options={"stability": 0.5, "similarity_boost": 0.75, "seed": 1},
    )
    assert asked.writer.media_type == "audio/pcm"
    asked = server.read_call(LIVEKIT)
    assert asked.request == SynthesisRequest("Hello there.")
    assert asked.model == "eleven_turbo_v2_5"


_shares = st.floats(0, 1) | st.sampled_from([0, 1])
_options = st.fixed_dictionaries(
    {},
    optional={
        "stability": _shares,
        "similarity_boost": _shares,
        "style": _shares,
        "use_speaker_boost": st.booleans(),
        "seed": st.integers(0, 2**32 - 1),
        "next_text": _texts.filter(bool),
        "apply_text_normalization": st.sampled_from(["on", "off"]),
        "pronunciation_dictionary_locators": st.lists(
            st.dictionaries(_texts, _texts, max_size=2), min_size=1, max_size=3
        ),
    },
)
_requests = st.builds(
    SynthesisRequest,
    text=_texts,
    voice=st.none() | _texts.filter(lambda v: v not in ("", ".", "..", DEFAULT_VOICE)),
    language=st.none() | st.sampled_from(["en", "vi", "fil"]),
    speed=st.floats(0.7, 1.2),
    previous_text=_texts,
    options=_options,
)


@given(request=_requests, timestamps=st.booleans())
def test_a_server_reads_what_a_client_wrote(request: SynthesisRequest, timestamps: bool) -> None:
    call = ElevenLabsDialect(timestamps=timestamps).write_call(request)
    assert ElevenLabsServer().read_call(call).request == request


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("eleven_flash_v2_5", {"language_code": "en", "previous_text": "Hi."}),
        ("eleven_turbo_v2_5", {"language_code": "en", "previous_text": "Hi."}),
        ("eleven_multilingual_v2", {"previous_text": "Hi."}),
        ("eleven_flash_v2", {"previous_text": "Hi."}),
        ("eleven_v3", {"language_code": "en"}),
        ("a_model_of_another_server", {"language_code": "en", "previous_text": "Hi."}),
    ],
)
def test_a_model_is_told_only_what_it_does_not_refuse(
    model: str, fields: dict[str, object]
) -> None:
    request = SynthesisRequest(
        "Bye.", language="en-US", previous_text="Hi.", options={"model": model}
    )
    body = json.loads(ElevenLabsDialect().write_call(request).body)
    assert body == {"text": "Bye.", "model_id": model} | fields


@pytest.mark.parametrize(
    ("language", "code"), [("nb-NO", "no"), ("tl", "fil"), ("ZH-Hant-TW", "zh"), ("und", None)]
)
def test_languages_go_by_the_vendors_codes(language: str, code: str | None) -> None:
    call = ElevenLabsDialect().write_call(SynthesisRequest("Hi", language=language))
    assert json.loads(call.body).get("language_code") == code


@pytest.mark.parametrize(
    ("voice", "place"),
    [
        (None, "hpp4J3VqNfWAUOO0d1Us"),
        ("a/b", "a%2Fb"),
        ("../../v1/models", "..%2F..%2Fv1%2Fmodels"),
        ("a?b#c%2F", "a%3Fb%23c%252F"),
        ("Hổ +", "H%E1%BB%95%20%2B"),
        ("\ud800", "%3F"),
    ],
)
def test_nothing_in_a_voice_id_leaves_its_place_in_the_path(voice: str | None, place: str) -> None:
    call = ElevenLabsDialect(timestamps=False).write_call(SynthesisRequest("Hi", voice=voice))
    assert call.path == f"/v1/text-to-speech/{place}/stream"


@pytest.mark.parametrize("voice", [".", ".."])
def test_a_voice_id_that_is_a_step_in_a_path_is_none(voice: str) -> None:
    with pytest.raises(VoiceNotFoundError):
        ElevenLabsDialect().write_call(SynthesisRequest("Hi", voice=voice))


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        (SynthesisRequest("Hi", speed=1.3), "speed 1.3 is outside 0.7 to 1.2"),
        (SynthesisRequest("Hi", speed=0.69), "speed 0.69 is outside 0.7 to 1.2"),
        (SynthesisRequest("Hi", options={"stabilty": 0.5}), "no option stabilty; options: stab"),
        (SynthesisRequest("Hi", options={"stability": 1.5}), "stability=1.5 is not a value"),
        (SynthesisRequest("Hi", options={"seed": True}), "seed=True is not a value"),
        (SynthesisRequest("Hi", options={"seed": 2**32}), "seed=4294967296 is not a value"),
        (SynthesisRequest("Hi", options={"apply_text_normalization": "no"}), "='no' is not"),
    ],
)
def test_what_the_api_cannot_do_is_refused_before_it_is_asked(
    request_: SynthesisRequest, complaint: str
) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        ElevenLabsDialect().write_call(request_)


@pytest.mark.parametrize("name", ["pcm_11025", "mp3", "opus", "wav_24000", "PCM_24000", ""])
def test_an_unknown_format_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"formats: pcm_8000, .*, ulaw_8000, alaw_8000"):
        ElevenLabsDialect(output_format=name)


@pytest.mark.parametrize("name", ["pcm_44100", "ulaw_8000", "mp3_22050_32", "opus_48000_64"])
def test_a_format_is_asked_for_in_the_query(name: str) -> None:
    call = ElevenLabsDialect(output_format=name).write_call(SynthesisRequest("Hi"))
    assert call.query == {"output_format": name}


def test_a_key_goes_into_a_header_of_its_own() -> None:
    assert ElevenLabsDialect().authorize("xk") == {"xi-api-key": "xk"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/text-to-speech/v1/stream", b"{"),
        ("/v1/text-to-speech/v1/stream", b"[]"),
        ("/v1/text-to-speech/v1/stream", b'{"text": 1}'),
        ("/v1/text-to-speech/v1/stream", b'{"text": "Hi", "voice_settings": [1]}'),
        ("/v1/text-to-speech/v1/stream", b'{"text": "Hi", "voice_settings": {"speed": "1"}}'),
        ("/v1/text-to-speech/v1/stream", b'{"text": "Hi", "voice_settings": {"speed": 2}}'),
        ("/v1/text-to-speech/v1/stream", b'{"text": "Hi", "voice_settings": {"style": "x"}}'),
        ("/v1/text-to-speech/v1/stream", b'{"text": "Hi", "language_code": 7}'),
        ("/v1/text-to-speech/v1/stream", b'{"text": "Hi", "seed": -1}'),
        ("/v1/text-to-speech/v1/stream", b'{"text": ' + b"[" * 100_000),
        ("/v1/text-to-speech//stream", b'{"text": "Hi"}'),
        ("/v1/text-to-speech/v1/stream-input", b'{"text": "Hi"}'),
    ],
)
def test_a_server_refuses_what_is_no_request(path: str, body: bytes) -> None:
    call = HttpCall("POST", path, {"output_format": "pcm_24000"}, body=body)
    with pytest.raises(InvalidRequestError):
        ElevenLabsServer().read_call(call)


@pytest.mark.parametrize(
    "name", ["mp3_44100_320", "mp3_22050_64", "opus_24000_32", "wav_24000", ""]
)
def test_a_server_refuses_a_format_that_there_is_not(name: str) -> None:
    query = {"output_format": name}
    call = HttpCall("POST", "/v1/text-to-speech/v1", query, body=b'{"text": "Hello"}')
    with pytest.raises(
        InvalidRequestError, match=f"no output_format '{name}'; formats: pcm_8000, "
    ):
        ElevenLabsServer().read_call(call)


def test_mp3_is_meant_where_no_format_is_named() -> None:
    pytest.importorskip("av")
    call = HttpCall("POST", "/v1/text-to-speech/v1", body=b'{"text": "Hello"}')
    writer = ElevenLabsServer().read_call(call).writer
    assert (writer.media_type, writer.sample_rate) == ("audio/mpeg", 44_100)


# Replies with times


@pytest.mark.parametrize("cut", CUTS)
def test_words_cut_by_lines_are_whole_and_start_exactly(cut: int) -> None:
    body = b"".join(lines("Hello big world", per_line=7))
    chunks = read(reader(), body, cut)
    assert samples(chunks).tolist() == from_s16(beep("Hello big world", "pcm_24000")).tolist()
    assert [(text, start) for text, start, _, _ in heard(chunks)] == [
        ("Hello", 0.0),
        ("big", 0.3),
        ("world", 0.5),
    ]
    assert [(len(chunk.samples), [w.text for w in chunk.words]) for chunk in chunks] == [
        (8_400, ["Hello", "big"]),
        (8_400, ["world"]),
        (1_200, []),
    ]


def test_a_recorded_reply_is_read() -> None:
    # From elevenlabs 2.78's stream_with_timestamps; the audio is 6 samples.
    body = (
        b'{"audio_base64": "AADoA9AHuAs=", "alignment": {"characters": ["H", "e", "l", "l", "o",'
        b' " "], "character_start_times_seconds": [0.0, 0.02, 0.04, 0.06, 0.08, 0.1],'
        b' "character_end_times_seconds": [0.02, 0.04, 0.06, 0.08, 0.1, 0.12]},'
        b' "normalized_alignment": null}\n\n'
        b'{"audio_base64": "oA+IEw==", "alignment": {"characters": ["b", "i", "g"],'
        b' "character_start_times_seconds": [0.12, 0.14, 0.16],'
        b' "character_end_times_seconds": [0.14, 0.16, 0.18]}, "normalized_alignment": null}'
    )
    chunks = read(reader("Hello big"), body, 11)
    assert (samples(chunks) * 32768).tolist() == [0, 1000, 2000, 3000, 4000, 5000]
    assert words(chunks) == [Word("Hello", 0, 0.0, 0.1), Word("big", 6, 0.12, 0.18)]


def test_a_word_comes_with_the_line_in_which_it_begins() -> None:
    reading = reader("Hello big world")
    first = line(bytes(2_400), timed("Hello b"))
    assert [(text, start) for text, start, *_ in heard(reading.push(first + b"\n"))] == [
        ("Hello", 0.0),
        ("big", 0.3),
    ]


def test_lines_may_be_far_longer_than_64_kib() -> None:
    text = "Hello big world"
    [body] = lines(text, "pcm_48000", per_line=100)
    body = body.replace(b"{", b'{"padding": "' + b"x" * 300_000 + b'", ', 1)
    chunks = read(reader(text, output_format="pcm_48000"), body, 60_000)
    assert len(samples(chunks)) == 36_000
    assert [word for word, *_ in heard(chunks)] == ["Hello", "big", "world"]


def test_lines_without_alignment_say_nothing_about_words() -> None:
    audio = beep("Hello", "pcm_24000")
    chunks = read(reader("Hello big"), line(audio, timed("Hello")) + b"\n" + line(audio))
    assert heard(chunks) == [("Hello", 0.0, 0.25, True), ("big", 0.25, 0.5, False)]
    assert len(samples(chunks)) == 12_000


def test_without_any_alignment_no_words_are_reported() -> None:
    chunks = read(reader(), (line(beep("Hello", "pcm_24000")) + b"\n") * 3)
    assert len(samples(chunks)) == 18_000
    assert words(chunks) == []


def test_alignment_that_comes_after_speech_began_is_too_late() -> None:
    # Whoever listens has begun to guess: the same words would come a second time.
    late = line(beep("Hello", "pcm_24000")) + b"\n" + line(bytes(480), timed("Hello big world"))
    assert words(read(reader(), late)) == []


def test_alignment_that_comes_after_silence_is_in_time() -> None:
    body = line(bytes(480)) + b"\n" + line(beep("Hello", "pcm_24000"), timed("Hello big world"))
    assert [word for word, *_ in heard(read(reader(), body))] == ["Hello", "big", "world"]


def test_the_alignment_of_how_it_is_read_serves_where_there_is_no_other() -> None:
    said = "That is five dollars, my friend"
    chunks = read(reader("That is $5, my friend"), line(beep(said, "pcm_24000"), None, timed(said)))
    assert [(word, start) for word, start, _, _ in heard(chunks)] == [
        ("That", 0.0),
        ("is", 0.25),
        ("$5,", 0.4),
        ("my", 1.1),
        ("friend", 1.25),
    ]


def test_only_one_of_two_alignments_is_followed() -> None:
    first = line(beep("I pay", "pcm_24000"), timed("I pay "), timed("I pay "))
    other = line(b"", None, timed("five dollars", 20))
    last = line(beep("$5", "pcm_24000"), timed("$5", 6))
    assert heard(read(reader("I pay $5"), b"\n".join([first, other, last]))) == [
        ("I", 0.0, 0.05, True),
        ("pay", 0.1, 0.25, True),
        ("$5", 0.35, 0.4, True),
    ]


def test_times_may_come_before_their_audio() -> None:
    reading = reader("Hi you")
    assert reading.push(line(b"", timed("Hi ")) + b"\n") == []
    [chunk] = reading.push(line(bytes(480), timed("you", 3)) + b"\n")
    assert [word.text for word in chunk.words] == ["Hi", "you"]


@pytest.mark.parametrize("cut", CUTS)
def test_a_sample_cut_by_two_lines_is_whole(cut: int) -> None:
    body = line(b"\xe8") + b"\r\n" + line(b"\x03\xd0") + b"\n\n\n" + line(b"\x07")
    assert (samples(read(reader(), body, cut)) * 32768).tolist() == [1000, 2000]


def test_an_event_stream_is_read_as_well() -> None:
    body = b"data: " + line(bytes(480), timed("Hello")) + b"\n\n"
    assert len(samples(read(reader("Hello"), body))) == 240


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"<html>", "expected a JSON object, got '<html>'"),
        (b"[1]", "expected a JSON object"),
        (b'{"audio_base64": "?"}', "expected audio in base64, got '\\?'"),
        (b'{"audio_base64": 7}', "expected audio in base64"),
        (b'{"alignment": [1]}', "expected times of characters, got"),
        (b'{"alignment": {"characters": ["a"]}}', "expected times of characters, got"),
        (
            json.dumps(
                {"alignment": timed("a") | {"character_start_times_seconds": [None]}}
            ).encode(),
            "expected times of characters, got",
        ),
    ],
)
def test_nonsense_is_refused(body: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read(reader(), body)


@pytest.mark.parametrize(
    ("body", "kind", "status", "said"),
    [
        (
            {"detail": {"status": "quota_exceeded", "message": "m"}},
            RemoteError,
            402,
            "402: it failed on the way: m",
        ),
        (
            {"detail": {"status": "system_busy", "message": "m"}},
            OverloadedError,
            429,
            "429: it failed on the way: m",
        ),
        ({"detail": "boom"}, RemoteError, 502, "502: it failed on the way: boom"),
        ({"error": "internal", "message": "m", "code": 1011}, RemoteError, 502, "way: m"),
        ({"message": "boom", "audio_base64": None}, RemoteError, 502, "way: boom"),
    ],
)
def test_an_error_in_a_line_is_raised(
    body: dict[str, object], kind: type[TTSError], status: int, said: str
) -> None:
    reading = reader()
    assert len(reading.push(line(bytes(480)) + b"\n")) == 1
    with pytest.raises(kind, match=said) as caught:
        reading.push(json.dumps(body).encode() + b"\n")
    assert caught.value.status_code == status


# Bare audio


@pytest.mark.parametrize(("name", "decode"), [("ulaw_8000", from_ulaw), ("alaw_8000", from_alaw)])
@pytest.mark.parametrize("cut", CUTS)
def test_which_law_audio_follows_is_what_was_asked_for(name: str, decode: Any, cut: int) -> None:
    codes = beep("Hello", name)
    dialect = ElevenLabsDialect(output_format=name, timestamps=False)
    bare = read(dialect.read_reply(SynthesisRequest("Hello"), BASIC), codes, cut)
    in_lines = read(reader("Hello", output_format=name), line(codes, timed("Hello")), cut)
    assert samples(bare).tolist() == samples(in_lines).tolist() == decode(codes).tolist()
    assert {chunk.sample_rate for chunk in bare + in_lines} == {8_000}


def test_bare_audio_in_place_of_lines_is_read() -> None:
    request = SynthesisRequest("Hello")
    for name in ("audio/pcm", "application/octet-stream"):
        reading = ElevenLabsDialect(output_format="pcm_16000").read_reply(
            request, HttpReply(200, {"content-type": name})
        )
        [chunk] = read(reading, beep("Hello", "pcm_16000"))
        assert (len(chunk.samples), chunk.sample_rate, chunk.words) == (4_000, 16_000, ())


def test_a_container_that_arrives_is_believed() -> None:
    writer = WavWriter(22_050)
    wav = writer.push(np.full(100, 0.5, np.float32)) + writer.flush()
    for reading, body in (
        (ElevenLabsDialect(timestamps=False).read_reply(SynthesisRequest("Hi"), BASIC), wav),
        (reader("Hi"), line(wav[:30]) + b"\n" + line(wav[30:])),
    ):
        chunks = read(reading, body)
        assert samples(chunks).tolist() == [0.5] * 100
        assert {chunk.sample_rate for chunk in chunks} == {22_050}


@pytest.mark.parametrize(
    ("name", "kind", "rate"),
    [("mp3_44100_128", "mp3", 44_100), ("opus_48000_64", "ogg", 48_000)],
)
@pytest.mark.parametrize("cut", [480, 1_000_000])
def test_compressed_audio_in_lines_is_read(
    name: str, kind: Literal["mp3", "ogg"], rate: int, cut: int
) -> None:
    sound = encoded(kind, 1.0, sample_rate=rate)
    parts = [sound[:100], sound[100:5_000], sound[5_000:]]
    body = b"\n".join(
        [line(parts[0], timed("Hello big ")), line(parts[1], timed("world", 10)), line(parts[2])]
    )
    chunks = read(reader("Hello big world", output_format=name), body, cut)
    assert len(samples(chunks)) == pytest.approx(rate, rel=0.06)
    assert {chunk.sample_rate for chunk in chunks} == {rate}
    assert [word.text for word in words(chunks)] == ["Hello", "big", "world"]
    # No sound comes out of the first 100 bytes; the words wait for it.
    assert [word.text for word in chunks[0].words] == ["Hello", "big", "world"]


def later_frames() -> bytes:
    """MP3 that doesn't look like it: it begins in the middle of one."""
    whole = frames_of("mp3", encoded("mp3"))
    body = whole[whole.index(b"\xff\xf3", 500) :]
    assert body[4] != 0
    return body


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("mp3_24000_48", "application/octet-stream"),
        ("mp3_24000_48", "application/json"),
        ("pcm_24000", "audio/mpeg"),
    ],
)
def test_what_audio_does_not_show_is_what_it_is_called_or_was_asked_for(
    asked: str, named: str
) -> None:
    reply = HttpReply(200, {"content-type": named})
    reading = ElevenLabsDialect(output_format=asked).read_reply(SynthesisRequest("Hi"), reply)
    body = later_frames()
    chunks = read(reading, line(body) if named == "application/json" else body)
    assert 0.8 < len(samples(chunks)) / 24_000 < 1.1


def test_a_message_beside_audio_is_no_error() -> None:
    body = line(bytes(480)).replace(b"{", b'{"message": "hello", ', 1)
    assert len(samples(read(reader(), body))) == 240


def test_an_error_in_place_of_bare_audio_is_quoted() -> None:
    reading = ElevenLabsDialect(timestamps=False).read_reply(SynthesisRequest("Hi"), JSON)
    with pytest.raises(ValueError, match="text instead of audio"):
        read(reading, b'{"detail": {"status": "quota_exceeded", "message": "m"}}')


# Both ends of a reply


@st.composite
def _speech(draw: st.DrawFn) -> tuple[str, list[AudioChunk]]:
    """A text, and chunks in which its words come no later than its sound.

    It doesn't end in a letter: the last character comes last, and lasts until the end.
    """
    text = draw(_texts) + "."
    found = list(spans(text))
    count = 2 * len(found)
    times = sorted(draw(st.lists(st.floats(0, 99), min_size=count, max_size=count)))
    spoken = [
        Word(span.word, span.offset, start, end)
        for span, start, end in zip(found, times[::2], times[1::2], strict=True)
    ]
    cuts = draw(st.lists(st.integers(1, max(1, len(spoken))), max_size=4))
    edges = [0, *sorted(cuts), len(spoken)]
    levels = st.lists(st.integers(-32768, 32767), max_size=30)
    chunks = []
    for number, (start, end) in enumerate(pairwise(edges)):
        pcm = np.array([0] * (not number) + draw(levels), "<i2").tobytes()
        chunks.append(AudioChunk(from_s16(pcm), 24_000, tuple(spoken[start:end])))
    return text, chunks


@given(_speech(), st.sampled_from(CUTS))
def test_a_client_hears_what_a_server_said(speech: tuple[str, list[AudioChunk]], cut: int) -> None:
    text, chunks = speech
    call = ElevenLabsDialect().write_call(SynthesisRequest(text))
    writer = ElevenLabsServer().read_call(call).writer
    body = b"".join([*(writer.push(chunk) for chunk in chunks), writer.flush()])
    came = read(reader(text), body, cut)
    assert samples(came).tolist() == samples(chunks).tolist()
    assert words(came) == words(chunks)


@pytest.mark.parametrize(
    ("name", "encode", "decode"),
    [
        ("pcm_48000", to_s16, from_s16),
        ("ulaw_8000", to_ulaw, from_ulaw),
        ("alaw_8000", to_alaw, from_alaw),
    ],
)
@pytest.mark.parametrize("timestamps", [True, False])
def test_every_raw_format_goes_both_ways(
    name: str, encode: Any, decode: Any, timestamps: bool
) -> None:
    dialect = ElevenLabsDialect(output_format=name, timestamps=timestamps)
    request = SynthesisRequest("Hi")
    writer = ElevenLabsServer().read_call(dialect.write_call(request)).writer
    chunk = AudioChunk(np.linspace(-1, 1, 1000, dtype=np.float32), writer.sample_rate)
    reply = HttpReply(200, {"content-type": writer.media_type})
    [came] = read(dialect.read_reply(request, reply), writer.push(chunk) + writer.flush())
    assert came.samples.tolist() == decode(encode(chunk.samples)).tolist()
    assert came.sample_rate == int(name.split("_")[1])


COMPRESSED = {
    "mp3_22050_32": 4_000,
    "mp3_24000_48": 6_000,
    "mp3_44100_32": 4_000,
    "mp3_44100_64": 8_000,
    "mp3_44100_96": 12_000,
    "mp3_44100_128": 16_000,
    "mp3_44100_192": 24_000,
    "opus_48000_32": 0,
    "opus_48000_64": 0,
    "opus_48000_96": 0,
    "opus_48000_128": 0,
    "opus_48000_192": 0,
}
"""Bytes of a second; as many as it takes of Opus."""


@pytest.mark.parametrize("timestamps", [True, False])
@pytest.mark.parametrize("name", COMPRESSED)
def test_every_compressed_format_goes_both_ways(name: str, timestamps: bool) -> None:
    pytest.importorskip("av")
    dialect = ElevenLabsDialect(output_format=name, timestamps=timestamps)
    request = SynthesisRequest("Hello big world.")
    writer = ElevenLabsServer().read_call(dialect.write_call(request)).writer
    rate = writer.sample_rate
    spoken = tuple(Word(w, at, at / 20, at / 20 + 0.2) for at, w in spans(request.text))
    said = np.array_split(tone(2.0, rate), 10)
    body = writer.push(AudioChunk(said[0], rate, spoken))
    body += b"".join(writer.push(AudioChunk(part, rate)) for part in said[1:]) + writer.flush()
    reply = HttpReply(200, {"content-type": writer.media_type})
    came = read(dialect.read_reply(request, reply), body, 480)
    assert {chunk.sample_rate for chunk in came} == {rate} == {int(name.split("_")[1])}
    assert 2 * rate <= len(samples(came)) <= 2 * rate + 3_000
    assert pitch(samples(came), rate) == pytest.approx(440, abs=0.2)
    if timestamps:
        assert words(came) == list(spoken)
    elif COMPRESSED[name]:
        assert len(body) == pytest.approx(2 * COMPRESSED[name], rel=0.06)


def _written(text: str, *chunks: AudioChunk, output_format: str = "pcm_24000") -> list[Any]:
    call = ElevenLabsDialect(output_format=output_format).write_call(SynthesisRequest(text))
    writer = ElevenLabsServer().read_call(call).writer
    body = b"".join([*(writer.push(chunk) for chunk in chunks), writer.flush()])
    assert all(len(each) < 65_536 for each in body.split(b"\n"))
    return [json.loads(each) for each in body.splitlines()]


def test_a_line_is_as_elevenlabs_writes_it() -> None:
    quiet = np.zeros(2, np.float32)
    [written, following, rest] = _written(
        "“Hi, ‘you’ …",
        AudioChunk(quiet, 24_000, (Word("Hi,", 1, 0.25, 0.5),)),
        AudioChunk(quiet, 24_000, (Word("Hi,", 1, 0.25, 0.5), Word("‘you’", 5, 1.0, 1.75))),
    )
    assert written == {
        "audio_base64": "AAAAAA==",
        "alignment": {
            "characters": ["“", "H", "i", ",", " "],
            "character_start_times_seconds": [0.0, 0.25, 0.375, 0.5, 0.5],
            "character_end_times_seconds": [0.25, 0.375, 0.5, 0.5, 0.5],
        },
        "normalized_alignment": None,
    }
    assert following["alignment"] == {
        "characters": ["‘", "y", "o", "u", "’", " "],
        "character_start_times_seconds": [0.5 + 1 / 3, 1.0, 1.25, 1.5, 1.75, 1.75],
        "character_end_times_seconds": [1.0, 1.25, 1.5, 1.75, 1.75, 1.75],
    }
    assert rest == {
        "audio_base64": "",
        "alignment": {
            "characters": ["…"],
            "character_start_times_seconds": [1.75],
            "character_end_times_seconds": [1.75],
        },
        "normalized_alignment": None,
    }


def test_ten_seconds_at_once_are_written_in_lines_of_less_than_64_kib() -> None:
    text = "words " * 400 + "x" * 900 + " 🙂" * 500
    spoken = [Word(w, at, 0.01 * i, 0.01 * i + 1 / 300) for i, (at, w) in enumerate(spans(text))]
    chunk = AudioChunk(np.zeros(480_000, np.float32), 48_000, tuple(spoken))
    written = _written(text, chunk, output_format="pcm_48000")
    assert len(written) == 43
    said = [c for each in written if each["alignment"] for c in each["alignment"]["characters"]]
    assert "".join(said) == text
    assert "".join(written[0]["alignment"]["characters"]) == "words " * 66


def test_the_last_character_lasts_until_the_audio_ends() -> None:
    sound = np.zeros(12_000, np.float32)
    for text, last in (("Hi you.", "."), ("Hi you", "u"), ("Hi you. ", " "), ("Hi you …", "…")):
        you = Word(text.split()[1], 3, 0.25, 0.4)
        said = [AudioChunk(sound, 24_000, (Word("Hi", 0, 0.0, 0.25), you))]
        said += [AudioChunk(sound, 24_000)] * 2
        first, *_, rest = _written(text, *said)
        assert "".join(first["alignment"]["characters"]) == text[:-1]
        assert rest["alignment"]["characters"] == [last]
        assert rest["alignment"]["character_end_times_seconds"] == [1.5]


def test_all_of_it_may_come_as_one_object() -> None:
    query = {"output_format": "pcm_24000"}
    path = "/v1/text-to-speech/v1/with-timestamps"
    call = HttpCall("POST", path, query, body=b'{"text": "Hi you."}')
    writer = ElevenLabsServer().read_call(call).writer
    half = np.full(24_000, 0.5, np.float32)
    pushed = [
        writer.push(AudioChunk(half, 24_000, (Word("Hi", 0, 0.0, 0.5),))),
        writer.push(AudioChunk(half, 24_000, (Word("you", 3, 1.0, 1.75),))),
    ]
    assert pushed == [b"", b""]
    alignment = {
        "characters": ["H", "i", " ", "y", "o", "u", "."],
        "character_start_times_seconds": [0.0, 0.25, 0.5, 1.0, 1.25, 1.5, 1.75],
        "character_end_times_seconds": [0.25, 0.5, 0.5, 1.25, 1.5, 1.75, 2.0],
    }
    assert json.loads(writer.flush()) == {
        "audio_base64": base64.b64encode(b"\0\x40" * 48_000).decode(),
        "alignment": alignment,
        "normalized_alignment": alignment,
    }


def test_an_object_without_words_has_no_times() -> None:
    query = {"output_format": "pcm_24000"}
    path = "/v1/text-to-speech/v1/with-timestamps"
    call = HttpCall("POST", path, query, body=b'{"text": "Hi"}')
    writer = ElevenLabsServer().read_call(call).writer
    assert json.loads(writer.flush()) == {
        "audio_base64": "",
        "alignment": None,
        "normalized_alignment": None,
    }


def test_characters_have_times_as_soon_as_their_word_has() -> None:
    timing = Characters("Hi you.")
    assert timing.push([]) == []
    assert timing.push([Word("Hi", 0, 0.0, 0.5)]) == [
        Character("H", 0.0, 0.25),
        Character("i", 0.25, 0.5),
        Character(" ", 0.5, 0.5),
    ]
    assert timing.push([Word("Hi", 0, 0.0, 0.5)]) == []
    assert [each.text for each in timing.push([Word("you.", 3, 1.0, 1.75)])] == list("you.")
    assert timing.flush() == []
    timing.text += " Bye!"
    assert "".join(each.text for each in timing.push([Word("Bye", 8, 2.0, 2.5)])) == " Bye"
    assert timing.flush() == [Character("!", 2.5, 2.5)]


def test_a_text_without_words_has_no_characters() -> None:
    assert Characters("...").flush() == []


def test_a_server_that_knows_no_words_says_null() -> None:
    [written] = _written("Hi", AudioChunk(np.zeros(2, np.float32), 24_000))
    assert written["alignment"] is None


# Errors


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        (400, {"status": "voice_not_found", "message": "msg"}),
        (404, {"type": "not_found", "code": "voice_not_found", "message": "msg"}),
        (400, {"status": "invalid_uid", "message": "An invalid ID has been received: 'v1'."}),
        (400, {"code": "invalid_voice_id", "message": "msg"}),
        (404, "Voice v1 not found"),
        (422, [{"loc": ["path", "voice"], "msg": "m", "type": "t"}]),
    ],
)
def test_an_unknown_voice_is_told_from_other_refusals(status: int, detail: object) -> None:
    error = refused(status, {"detail": detail})
    assert isinstance(error, VoiceNotFoundError)
    assert "no voice 'v1'" in str(error)


@pytest.mark.parametrize(
    ("status", "body", "means", "said"),
    [
        (401, {"detail": {"status": "invalid_api_key", "message": "msg"}}, 401, "401: msg"),
        (
            401,
            {"detail": {"code": "unauthorized", "status": "missing_permissions", "message": "m"}},
            401,
            "401: m",
        ),
        (401, {"detail": {"status": "quota_exceeded", "message": "m"}}, 402, "402: m"),
        (401, {"detail": {"status": "sign_in", "message": "No voice"}}, 401, "401: No voice"),
        (402, {"detail": {"code": "insufficient_credits", "message": "m"}}, 402, "402: m"),
        (403, {"detail": {"code": "voice_access_denied", "message": "m"}}, 403, "403: m"),
        (
            400,
            {"detail": {"status": "max_character_limit_exceeded", "message": "m"}},
            400,
            "400: m",
        ),
        (
            422,
            {"detail": [{"loc": ["body", "text"], "msg": "Field required", "type": "missing"}]},
            422,
            "422: body.text: Field required",
        ),
        (422, {"detail": []}, 422, '422: {"detail": []}'),
        (500, {"detail": {"message": {"not": "text"}}}, 500, '500: {"not": "text"}'),
        (500, {"error": {"message": "as OpenAI says it"}}, 500, "as OpenAI says it"),
        (500, None, 500, "Internal Server Error"),
    ],
)
def test_a_refusal_keeps_its_status_and_its_words(
    status: int, body: object, means: int, said: str
) -> None:
    error = refused(status, body)
    assert type(error) is RemoteError
    assert error.status_code == means
    assert said in str(error)
    assert error.permanent == (means == 401)


def test_an_answer_that_is_no_json_is_quoted() -> None:
    error = ElevenLabsDialect().read_error(HttpReply(502, {}, b"<html>Bad gateway"))
    assert str(error) == "502: Bad gateway"
    nested = b'{"detail":' * 100_000
    assert ElevenLabsDialect().read_error(HttpReply(500, {}, nested)).status_code == 500


@pytest.mark.parametrize(
    "code",
    ["too_many_concurrent_requests", "system_busy", "concurrent_limit_exceeded", "rate_limit"],
)
def test_both_kinds_of_429_are_an_overload(code: str) -> None:
    error = refused(429, {"detail": {"status": code, "message": "m"}}, retry_after="2")
    assert isinstance(error, OverloadedError)
    assert error.retry_after == 2.0


@pytest.mark.parametrize("status", [404, 405])
def test_a_server_without_timestamps_is_told_from_one_without_the_voice(status: int) -> None:
    error = refused(status, {"detail": "Not Found"})
    assert "timestamps=False" in str(error)
    assert error.status_code == status
    about_model = refused(status, {"detail": {"code": "model_not_found", "message": "m"}})
    assert str(about_model) == f"{status}: m"
    plain = ElevenLabsDialect(timestamps=False)
    reply = HttpReply(status, {}, b'{"detail":"Not Found"}')
    assert str(plain.read_error(reply, SynthesisRequest("Hi"))) == f"{status}: Not Found"


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (
            VoiceNotFoundError("bob", ["ann"]),
            400,
            {"type": "not_found", "code": "voice_not_found", "status": "voice_not_found"},
        ),
        (
            OverloadedError("full", retry_after=1),
            429,
            {
                "type": "rate_limit_error",
                "code": "concurrent_limit_exceeded",
                "status": "too_many_concurrent_requests",
            },
        ),
        (
            InvalidRequestError("no"),
            400,
            {
                "type": "validation_error",
                "code": "invalid_parameters",
                "status": "invalid_parameters",
            },
        ),
        *[
            (
                RemoteError("so", status_code=code),
                code,
                {"type": kind, "code": said, "status": said},
            )
            for code, kind, said in (
                (401, "authentication_error", "invalid_api_key"),
                (404, "not_found", "not_found"),
                (405, "validation_error", "method_not_allowed"),
                (413, "validation_error", "request_too_large"),
                (422, "validation_error", "invalid_text"),
                (500, "internal_error", "internal_error"),
                (503, "service_unavailable", "service_unavailable"),
            )
        ],
        (
            EngineTimeoutError("slow"),
            504,
            {"type": "internal_error", "code": "internal_error", "status": "internal_error"},
        ),
    ],
)
def test_errors_are_written_for_old_clients_and_new_ones(
    error: TTSError, status: int, detail: dict[str, str]
) -> None:
    reply = ElevenLabsServer().write_error(error)
    assert reply.status == status
    assert json.loads(reply.body) == {"detail": detail | {"message": str(error)}}


@pytest.mark.parametrize(
    "error",
    [
        VoiceNotFoundError("v1", []),
        OverloadedError("full", retry_after=0.5),
        RemoteError("key", status_code=401),
        RemoteError("money", status_code=402),
        RemoteError("text", status_code=422),
        RemoteError("down", status_code=503),
    ],
)
def test_a_client_understands_what_a_server_complains_about(error: TTSError) -> None:
    reply = ElevenLabsServer().write_error(error)
    came = ElevenLabsDialect().read_error(reply, SynthesisRequest("Hi", voice="v1"))
    assert (type(came), came.status_code) == (type(error), error.status_code)


# Voices


def test_voices_have_a_language_where_there_is_one() -> None:
    listed = [
        {"voice_id": "a", "name": "Ann", "category": "premade", "labels": {"language": "en"}},
        {"voice_id": "b", "name": "Bao", "description": "Calm", "labels": None},
        {
            "voice_id": "c",
            "category": "cloned",
            "labels": {"language": "English"},
            "verified_languages": [{"language": "pt", "locale": "pt-BR"}],
        },
        {"name": "no id"},
        "nonsense",
    ]
    body = json.dumps({"voices": listed, "has_more": False}).encode()
    assert ElevenLabsDialect().read_voices(HttpReply(200, {}, body)) == [
        Voice("a", "en", "Ann (premade)"),
        Voice("b", "und", "Bao (voice): Calm"),
        Voice("c", "pt-BR", " (cloned)"),
    ]


@pytest.mark.parametrize("body", [b'{"voices": null}', b"{}", b"7"])
def test_an_answer_without_voices_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteError, match="expected voices"):
        ElevenLabsDialect().read_voices(HttpReply(200, {}, body))


CLIP = Clip(b"RIFFxxxx", "0123456789abcdef")


def test_a_clone_is_asked_for_with_a_form() -> None:
    dialect = ElevenLabsDialect(remove_background_noise=True, labels={"language": "en"})
    call = dialect.write_clone("Me", CLIP)
    assert (call.method, call.path) == ("POST", "/v1/voices/add")
    assert [(p.name, p.content, p.filename, p.media_type) for p in call.form] == [
        ("name", "Me", None, None),
        ("files", b"RIFFxxxx", "clip.wav", "audio/wav"),
        ("description", "clip 0123456789abcdef", None, None),
        ("remove_background_noise", "true", None, None),
        ("labels", '{"language": "en"}', None, None),
    ]
    assert len(ElevenLabsDialect().write_clone("Me", CLIP).form) == 3


def test_a_clone_is_known_by_its_recording_whatever_its_name() -> None:
    dialect = ElevenLabsDialect()
    reply = HttpReply(200, {}, b'{"voice_id": "newv", "requires_verification": false}')
    voice = dialect.read_clone("Me", CLIP, reply)
    assert voice == Voice("newv", "und", "clip 0123456789abcdef")
    listed = dialect.read_voices(
        HttpReply(
            200,
            {},
            b'{"voices": [{"voice_id": "a", "name": "A"}, {"voice_id": "newv", "name": "Other",'
            b' "category": "cloned", "description": "clip 0123456789abcdef"}]}',
        )
    )
    found = dialect.find_clone("Me", CLIP, listed)
    assert found is not None
    assert found.id == "newv"
    assert dialect.find_clone("Me", Clip(b"other", "f" * 16), listed) is None


def test_a_clone_that_wants_to_be_verified_is_an_error_that_says_so() -> None:
    reply = HttpReply(200, {}, b'{"voice_id": "newv", "requires_verification": true}')
    with pytest.raises(RemoteError, match="verify the voice newv"):
        ElevenLabsDialect().read_clone("Me", CLIP, reply)


@pytest.mark.parametrize("body", [b"[]", b"{}", b'"newv"'])
def test_an_answer_that_is_no_clone_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteError, match="expected a voice"):
        ElevenLabsDialect().read_clone("Me", CLIP, HttpReply(200, {}, body))


def test_the_calls_that_are_not_speech_are_free() -> None:
    dialect = ElevenLabsDialect()
    calls: Sequence[HttpCall] = [dialect.write_ping(), *dialect.write_voices()]
    assert [(call.method, call.path, dict(call.query)) for call in calls] == [
        ("GET", "/v1/models", {}),
        ("GET", "/v1/voices", {}),
        ("GET", "/v2/voices", {"page_size": "100"}),
    ]
