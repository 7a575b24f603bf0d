"""tts_plugins.dialects.elevenlabs_socket: messages as stock clients send and read them."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from tts_plugins.dialects.base import HttpCall
from tts_plugins.dialects.elevenlabs import DEFAULT_VOICE, audio_writer
from tts_plugins.dialects.elevenlabs_socket import (
    Address,
    ContextWriter,
    Message,
    close_code,
    joined,
    read_message,
    write_error,
    write_final,
)
from tts_plugins.errors import EngineError, InvalidRequestError, OverloadedError, TTSError
from tts_plugins.types import AudioChunk, SynthesisRequest, Word

LIVEKIT = {
    "model_id": "eleven_turbo_v2_5",
    "output_format": "mp3_22050_32",
    "enable_ssml_parsing": "false",
    "enable_logging": "true",
    "inactivity_timeout": "180",
    "apply_text_normalization": "auto",
    "sync_alignment": "true",
    "auto_mode": "true",
}
PIPECAT = {
    "model_id": "eleven_flash_v2_5",
    "output_format": "pcm_24000",
    "auto_mode": "true",
    "language_code": "vi",
}


def address(
    path: str = f"/v1/text-to-speech/{DEFAULT_VOICE}/multi-stream-input", **query: str
) -> Address:
    return Address(HttpCall("GET", path, query))


# Addresses


def test_livekits_address() -> None:
    there = address(**LIVEKIT)
    asked = there.asked({"voice_settings": {}})
    assert (there.multi, there.auto_mode, there.sync_alignment) == (True, True, True)
    assert there.inactivity == 180
    assert asked.request == SynthesisRequest("")
    assert (asked.writer.sample_rate, asked.writer.media_type) == (22_050, "audio/mpeg")
    assert asked.model == "eleven_turbo_v2_5"


def test_pipecats_address_and_what_it_says_when_it_opens_a_context() -> None:
    there = address("/v1/text-to-speech/Mai%20Anh/multi-stream-input", **PIPECAT)
    asked = there.asked({"voice_settings": {"stability": 0.5, "speed": 1.1}})
    assert (there.sync_alignment, there.inactivity) == (False, 20)
    assert asked.request == SynthesisRequest(
        "", voice="Mai Anh", language="vi", speed=1.1, options={"stability": 0.5}
    )
    assert asked.writer.sample_rate == 24_000


def test_the_sdks_address_has_no_contexts() -> None:
    there = address("/v1/text-to-speech/v1/stream-input", model_id="Ellipsis", seed="7")
    assert not there.multi
    assert there.asked().request.options == {"seed": 7}
    assert there.asked().writer.media_type == "audio/mpeg"


@pytest.mark.parametrize(
    ("path", "query", "remedy"),
    [
        ("/v1/text-to-speech/v1/stream", {}, "not a socket"),
        ("/v1/text-to-speech/stream-input", {}, "not a socket"),
        ("/v1/text-to-speech/v/stream-input", {"output_format": "wav"}, "formats: pcm_8000"),
        ("/v1/text-to-speech/v/stream-input", {"inactivity_timeout": "nan"}, "at most 180"),
        ("/v1/text-to-speech/v/stream-input", {"inactivity_timeout": "181"}, "at most 180"),
        ("/v1/text-to-speech/v/stream-input", {"inactivity_timeout": "soon"}, "at most 180"),
    ],
)
def test_what_an_address_may_not_say(path: str, query: dict[str, str], remedy: str) -> None:
    with pytest.raises(InvalidRequestError, match=remedy):
        address(path, **query)


# What clients send


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ('{"text": " ", "context_id": "a"}', Message("a", " ")),
        (
            '{"text": " ", "voice_settings": {"speed": 1.1}, "contextId": "a"}',
            Message("a", " ", settings={"voice_settings": {"speed": 1.1}}),
        ),
        ('{"text": "Hi. ", "context_id": "a", "flush": true}', Message("a", "Hi. ", flush=True)),
        ('{"context_id": "a", "flush": true}', Message("a", flush=True)),
        ('{"text": "", "context_id": "a", "flush": true}', Message("a", flush=True)),
        ('{"text": ""}', Message()),
        ('{"text": "", "context_id": "a"}', Message("a")),
        ('{"context_id": "a", "close_context": true}', Message("a", closes_context=True)),
        ('{"close_socket": true}', Message(closes_socket=True)),
        (
            (
                '{"text": "a", "flush": null, "generation_config": {"chunk_length_schedule": [50]},'
                ' "try_trigger_generation": true, "unheard_of": []}'
            ),
            Message(text="a"),
        ),
        ('{"text": "half of \\ud83d"}', Message(text="half of \N{REPLACEMENT CHARACTER}")),
    ],
)
def test_messages_about_contexts(sent: str, message: Message) -> None:
    assert read_message(sent, multi=True) == message


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (
            '{"text": " ", "try_trigger_generation": true, "voice_settings": null}',
            Message(text=" "),
        ),
        ('{"text": "Hi ", "flush": true}', Message(text="Hi ", flush=True)),
        ('{"text": "Hi ", "context_id": "a"}', Message(text="Hi ")),
        ('{"text": ""}', Message(flush=True, closes_context=True)),
        ('{"close_socket": true}', Message(flush=True, closes_context=True)),
        ("{}", Message()),
    ],
)
def test_messages_where_there_are_no_contexts(sent: str, message: Message) -> None:
    assert read_message(sent, multi=False) == message


@pytest.mark.parametrize(
    "sent",
    [
        b'{"text": "a"}',
        "",
        "[]",
        "null",
        "{",
        "[" * 100_000,
        '{"text": 5}',
        '{"text": ["a"]}',
        '{"context_id": 5}',
        '{"context_id": "%s"}' % ("a" * 201),
        '{"flush": "yes"}',
        '{"close_context": 1}',
        '{"close_socket": "true"}',
        '{"text": "a", "voice_settings": [1]}',
    ],
)
def test_nonsense_is_told(sent: str | bytes) -> None:
    with pytest.raises(InvalidRequestError):
        read_message(sent, multi=True)


@pytest.mark.parametrize(
    ("before", "text", "whole"),
    [
        ("Hello there.", "How are you?", "Hello there. How are you?"),
        ('He said "no!"', "Then", 'He said "no!" Then'),
        ("Hello there. ", "How", "Hello there. How"),
        ("Hello", ".", "Hello."),
        ("unbe", "lievable", "unbelievable"),
        ("3.", "14", "3.14"),
        ("e.", "g.", "e.g."),
        ("", "Hello", "Hello"),
        ("there.", '"', 'there."'),
        ("there.", "", "there."),
    ],
)
def test_sentences_get_the_space_that_was_left_out(before: str, text: str, whole: str) -> None:
    assert before + joined(before, text) == whole


# What they are sent


RATE = 8_000
TEXT = "Hello there. "


def chunk(seconds: float, *words: Word) -> AudioChunk:
    return AudioChunk(np.zeros(round(seconds * RATE), np.float32), RATE, words)


def writer(*, sync_alignment: bool) -> ContextWriter:
    return ContextWriter(audio_writer("pcm_8000"), "a", sync_alignment=sync_alignment)


def alignment(chars: str, starts: list[int], durations: list[int]) -> dict[str, Any]:
    return {"chars": list(chars), "charStartTimesMs": starts, "charDurationsMs": durations}


def spoken(writer: ContextWriter) -> list[dict[str, Any]]:
    """Two phrases of two words and one, each 100 ms a letter, with a pause before the last."""
    writer.begin("Hi you. ")
    messages = writer.push(chunk(0.2, Word("Hi", 0, 0.0, 0.2)))
    messages += writer.push(chunk(0.4, Word("you.", 3, 0.2, 0.5)))
    messages += writer.pause()
    writer.begin("Bo. ")
    messages += writer.push(chunk(0.3, Word("Bo.", 8, 0.6, 0.8)))
    messages += writer.pause() + writer.flush()
    return [json.loads(message) for message in messages]


def test_pipecat_adds_up_the_times_of_each_message() -> None:
    first, second, third = spoken(writer(sync_alignment=False))
    assert first == {
        "audio": base64.b64encode(bytes(3200)).decode(),
        "isFinal": None,
        "alignment": alignment("Hi ", [0, 100, 200], [100, 100, 0]),
        "normalizedAlignment": alignment("Hi ", [0, 100, 200], [100, 100, 0]),
        "contextId": "a",
        "context_id": "a",
    }
    assert second["alignment"] == alignment("you. ", [0, 100, 200, 300, 300], [100, 100, 100, 0, 0])
    assert third["alignment"] == alignment("Bo. ", [100, 200, 300, 300], [100, 100, 0, 0])
    clock, starts = 0, []
    for message in (first, second, third):
        times = message["alignment"]
        starts.append(clock + times["charStartTimesMs"][0])
        clock += times["charStartTimesMs"][-1] + times["charDurationsMs"][-1]
    assert starts == [0, 200, 600]
    assert clock == 800


def test_livekit_counts_from_the_beginning_of_the_context() -> None:
    messages = spoken(writer(sync_alignment=True))
    assert [m["normalizedAlignment"]["charStartTimesMs"][0] for m in messages] == [0, 200, 600]
    assert [m["alignment"]["charStartTimesMs"][0] for m in messages] == [0, 0, 100]


def test_audio_without_words_has_no_times() -> None:
    out = writer(sync_alignment=False)
    out.begin("... ")
    (message,) = map(json.loads, out.push(chunk(0.02)))
    assert message["alignment"] is None
    assert message["normalizedAlignment"] is None
    assert out.pause() == out.flush() == []


def test_no_message_is_large() -> None:
    out = ContextWriter(audio_writer("pcm_48000"), "a", sync_alignment=True)
    text = "word " * 40
    out.begin(text)
    words = [Word("word", 5 * i, 0.25 * i, 0.25 * i + 0.2) for i in range(40)]
    messages = out.push(AudioChunk(np.zeros(480_000, np.float32), 48_000, tuple(words)))
    assert len(messages) == 20
    assert max(map(len, messages)) < 80_000
    assert "".join(json.loads(messages[0])["alignment"]["chars"]) == text
    assert sum(len(base64.b64decode(json.loads(m)["audio"])) for m in messages) == 960_000


def test_what_an_encoder_holds_back_comes_before_the_end() -> None:
    out = ContextWriter(audio_writer("mp3_22050_32"), "a", sync_alignment=False)
    messages = out.push(AudioChunk(np.zeros(300, np.float32), 22_050))
    messages += out.flush()
    assert [bool(json.loads(message)["audio"]) for message in messages][-1:] == [True]


def test_the_end_of_a_context_stands_alone() -> None:
    assert json.loads(write_final("a")) == {"isFinal": True, "contextId": "a", "context_id": "a"}
    assert json.loads(write_final(None)) == {"isFinal": True}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequestError("speed has to be less"), 1008),
        (OverloadedError("full", retry_after=1.0), 1013),
        (EngineError("the engine failed"), 1011),
    ],
)
def test_errors(error: TTSError, code: int) -> None:
    said = str(error)
    assert json.loads(write_error(error, "a")) == {
        "error": said,
        "message": said,
        "code": code,
        "contextId": "a",
        "context_id": "a",
    }
    assert close_code(error) == code
