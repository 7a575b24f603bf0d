"""tts_plugins.dialects.base: what dialects have in common."""

from __future__ import annotations

import json
import math

import pytest

from tts_plugins.dialects.base import (
    Clip,
    HttpReply,
    check_speed,
    json_call,
    known_options,
    one_line,
    quote,
    read_json,
    retry_after,
    status_error,
)
from tts_plugins.dialects.complaints import voice_unknown
from tts_plugins.errors import InvalidRequestError, OverloadedError, RemoteError
from tts_plugins.types import SynthesisRequest

TEXT = "Unknown voice on the line. Voice not found! The voice 'x' does not exist."
ASKED = SynthesisRequest(TEXT, voice="af_bella(2)+af_sky")
OTHER = SynthesisRequest("Good morning.", voice="af_bella(2)+af_sky")


@pytest.mark.parametrize(
    "said",
    [
        "unknown voice 'alloy'; see GET /v1/voices",
        "Voice 'af_sky' not found. Available voices: af_bella, af_heart",
        "The voice af_bella(2)+af_sky does not exist",
        "the requested voice is not available",
        "Invalid voice: x",
        "invalid voice",
        "Error: voice not found",
        "Value error, Voice `x` is not supported",
        "Failed to generate speech: no voice 'x'; available: heart",
        "A voice with voice_id 'x' was not found.",
        "Voice with id 'x' could not be found",
        "'Voice \"x\" is unknown'",
        "No such voice named x",
        "VOICE 'x'\nNOT FOUND",
    ],
)
def test_a_complaint_about_the_voice_is_one(said: str) -> None:
    assert voice_unknown(said, OTHER)


def test_without_a_request_a_voice_is_known_by_its_quotes() -> None:
    assert voice_unknown("The voice 'emma' does not exist")
    assert not voice_unknown("The voice emma does not exist")


@pytest.mark.parametrize(
    "said",
    [
        "Voice cloning is not available",
        "voice settings are invalid",
        "invalid voice settings: stability",
        "invalid voice_settings",
        "no voice activity was found",
        "text too long for this voice: not supported",
        "The voice of reason was not found",
        "model 'x' not found",
        "invalid input: my voice, she said, was not found",
        "the text says that the voice 'x' was not found",
        "could not find a voice",
        "",
    ],
)
def test_a_complaint_about_something_else_is_none(said: str) -> None:
    assert not voice_unknown(said, OTHER)
    assert not voice_unknown(said)


@pytest.mark.parametrize(
    "said",
    [
        f"invalid input: {TEXT}",
        TEXT,
        TEXT[:30],
        "invalid input: voice not found",
        "invalid input, 'VOICE NOT FOUND'",
        "The voice 'x' does not exist.",
        'input: unknown voice "on the line"',
    ],
)
def test_an_echo_of_the_text_is_no_complaint(said: str) -> None:
    assert not voice_unknown(said, ASKED)


def test_a_long_message_is_judged_at_once() -> None:
    assert not voice_unknown("voice " * 50_000, OTHER)
    assert not voice_unknown("a, " * 50_000, OTHER)


def test_what_a_server_says_becomes_one_line_that_a_terminal_only_shows() -> None:
    assert one_line(" a\n\tb\r\nc ") == "a b c"
    assert one_line("red \x1b[31m, nul \0, bell \x07") == "red [31m, nul , bell"
    assert one_line("half \ud83d") == "half"
    assert one_line(b"caf\xc3\xa9 \xff") == "café \N{REPLACEMENT CHARACTER}"
    assert one_line("") == one_line(b"\n") == ""


def test_a_long_story_is_cut_short() -> None:
    assert one_line("x" * 280) == "x" * 280
    assert one_line("x" * 281) == "x" * 277 + "..."
    assert one_line(("ü" * 400).encode()) == "ü" * 277 + "..."


def test_a_quotation_has_marks_around_it() -> None:
    assert quote(b"<html>") == "'<html>'"
    assert quote("it's") == '"it\'s"'
    assert quote(b"  ") == "nothing"


def test_a_call_leaves_out_what_is_none_and_keeps_letters_as_they_are() -> None:
    call = json_call("/v1/x", {"a": "chào", "b": None, "c": 0, "d": ""}, page="2")
    assert (call.method, call.path, call.query) == ("POST", "/v1/x", {"page": "2"})
    assert call.headers == {"content-type": "application/json"}
    assert call.body == '{"a": "chào", "c": 0, "d": ""}'.encode()


def test_half_an_emoji_is_sent_as_a_question_mark() -> None:
    assert json.loads(json_call("/", {"a": "x\ud83d"}).body) == {"a": "x?"}


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1, 2}, b"x"])
def test_an_option_that_json_has_no_word_for_is_refused(value: object) -> None:
    with pytest.raises(InvalidRequestError, match="an option can't be said in JSON"):
        json_call("/", {"a": value})


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[" * 100_000])
def test_a_body_that_should_be_json_and_is_not_is_the_servers_fault(body: bytes) -> None:
    with pytest.raises(RemoteError, match="expected JSON, got"):
        read_json(HttpReply(200, body=body))


def test_too_much_is_overload_and_says_when_to_come_again() -> None:
    error = status_error(HttpReply(429, {"retry-after": "2"}), "slow down")
    assert isinstance(error, OverloadedError)
    assert (str(error), error.retry_after) == ("429: slow down", 2.0)
    error = status_error(HttpReply(429), "slow down")
    assert isinstance(error, OverloadedError)
    assert error.retry_after == 0.5


def test_another_address_is_told() -> None:
    error = status_error(HttpReply(308, {"location": "https://x/v1"}), "")
    assert str(error) == "308: it moved to https://x/v1: use that address"
    assert error.status_code == 308


@pytest.mark.parametrize(
    ("status", "retryable", "permanent"),
    [
        (400, False, False),
        (401, False, True),
        (403, False, False),
        (404, False, False),
        (408, True, False),
        (422, False, False),
        (500, True, False),
        (503, True, False),
    ],
)
def test_a_status_says_whether_to_try_again_and_whether_ever(
    status: int, retryable: bool, permanent: bool
) -> None:
    error = status_error(HttpReply(status), "no")
    assert (error.retryable, error.permanent) == (retryable, permanent)


@pytest.mark.parametrize(
    ("stated", "seconds"),
    [
        ("0", 0.0),
        ("1.5", 1.5),
        (" 2 ", 2.0),
        ("-1", None),
        ("inf", None),
        ("nan", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("", None),
    ],
)
def test_a_pause_is_read_in_seconds(stated: str, seconds: float | None) -> None:
    assert retry_after(HttpReply(429, {"retry-after": stated})) == seconds


def test_no_header_is_no_pause() -> None:
    assert retry_after(HttpReply(429)) is None


def test_an_option_that_is_not_known_is_answered_with_those_that_are() -> None:
    request = SynthesisRequest("Hi", options={"a": 1, "z": 2, "b": 3})
    with pytest.raises(InvalidRequestError, match="no option b, z; options: a, c"):
        known_options(request, "a", "c")
    assert known_options(request, "a", "b", "z") == {"a": 1, "z": 2, "b": 3}


@pytest.mark.parametrize("speed", [0.24, 4.01, math.nan, -1.0, 0.0, math.inf])
def test_a_speed_that_an_api_does_not_have_is_refused(speed: float) -> None:
    with pytest.raises(InvalidRequestError, match=r"is outside 0\.25 to 4"):
        check_speed(SynthesisRequest("Hi", speed=speed), 0.25, 4.0)


@pytest.mark.parametrize(
    ("content", "filename", "media_type"),
    [
        (b"RIFF\0\0\0\0WAVE", "clip.wav", "audio/wav"),
        (b"fLaC\0", "clip.flac", "audio/flac"),
        (b"OggS\0", "clip.ogg", "audio/ogg"),
        (b"\0\0\0\x20ftypM4A ", "clip.m4a", "audio/mp4"),
        (b"ID3\x04", "clip.mp3", "audio/mpeg"),
        (b"", "clip.mp3", "audio/mpeg"),
    ],
)
def test_a_recording_is_called_what_it_is(content: bytes, filename: str, media_type: str) -> None:
    clip = Clip(content, "0123456789abcdef")
    assert (clip.filename, clip.media_type) == (filename, media_type)
