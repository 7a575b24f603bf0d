"""Stock clients of ElevenLabs' HTTP API, unchanged, against the server."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from elevenlabs import VoiceSettings
from elevenlabs.client import AsyncElevenLabs
from elevenlabs.core.api_error import ApiError
from livekit.plugins import elevenlabs as livekit_elevenlabs
from pipecat.frames.frames import (
    InterruptionFrame,
    LLMFullResponseEndFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService

from tests.adapters.pipecat_call import Call, logged, turn
from tests.fakes import PausingEngine
from tests.hearing import decoded, pitch
from tests.server.cloner import Mimic, recording
from tests.server.live import Live, best_of_three, live, tones, within
from tts_plugins.engine import Engine
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import Voice

TEXT = "Hello there, how are you today?"
SECONDS = 0.06 * 26
"""The tone engine beeps 60 ms a character, and not for spaces."""


@asynccontextmanager
async def sdk(
    engine: Engine | None = None, *, prefix: str = "", **options: Any
) -> AsyncGenerator[AsyncElevenLabs, None]:
    """ElevenLabs' own client of a server; it doesn't close its connections itself."""
    async with live(engine, **options) as server, httpx.AsyncClient(timeout=5) as connections:
        url = server.url + prefix
        yield AsyncElevenLabs(api_key="xk", base_url=url, httpx_client=connections)


async def whole(parts: AsyncIterator[bytes]) -> bytes:
    return b"".join([part async for part in parts])


# Speech


async def test_the_sdk_gets_mp3_unless_it_asks_for_something_else() -> None:
    async with sdk() as client:
        body = await whole(client.text_to_speech.convert("tone", text=TEXT))
    samples, rate = decoded(body)
    assert rate == 44_100
    assert len(samples) / rate == pytest.approx(SECONDS, abs=0.1)
    assert pitch(samples, rate) == pytest.approx(440, abs=1)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000])
async def test_the_sdk_streams_samples_at_any_rate(rate: int) -> None:
    async with sdk() as client:
        body = await whole(
            client.text_to_speech.stream(
                "tone",
                text=TEXT,
                model_id="eleven_flash_v2_5",
                output_format=f"pcm_{rate}",
                language_code="vi",
                optimize_streaming_latency=2,
                seed=1,
                voice_settings=VoiceSettings(stability=0.5, similarity_boost=0.75, speed=1.0),
            )
        )
    assert len(body) == 2 * round(SECONDS * rate)
    assert pitch(body, rate) == pytest.approx(440, abs=1)


async def test_the_sdk_is_told_when_each_character_is_said() -> None:
    async with sdk() as client:
        speech = client.text_to_speech
        parts = [
            part
            async for part in speech.stream_with_timestamps(
                "tone", text="Hello big world", output_format="pcm_24000"
            )
        ]
        object_ = await speech.convert_with_timestamps(
            "tone", text="Hello big world", output_format="pcm_24000"
        )
    told = [part.alignment for part in parts if part.alignment]
    characters = [c for each in told for c in each.characters]
    starts = [s for each in told for s in each.character_start_times_seconds]
    assert "".join(characters) == "Hello big world"
    assert [round(starts[i], 3) for i in (0, 6, 10)] == [0, 0.3, 0.48]
    assert object_.alignment
    assert object_.alignment.characters == characters
    assert object_.alignment.character_start_times_seconds == pytest.approx(starts)
    audio = b"".join(base64.b64decode(part.audio_base_64) for part in parts)
    assert audio == base64.b64decode(object_.audio_base_64)
    assert len(audio) == 2 * round(13 * 0.06 * 24_000)


async def test_no_line_is_too_long_for_those_who_read_lines() -> None:
    text = "I know " + "very well " * 18 + "what you mean."
    async with live(tones(sample_rate=48_000, max_ahead=60)) as server:
        status, headers, body = await server.ask(
            "/v1/text-to-speech/tone/stream/with-timestamps?output_format=pcm_48000", {"text": text}
        )
    assert (status, headers["content-type"]) == (200, "application/json")
    lines = body.splitlines()
    assert max(map(len, lines)) < 65_536
    audio = b"".join(base64.b64decode(json.loads(line)["audio_base64"]) for line in lines)
    assert len(audio) / 2 / 48_000 == pytest.approx(0.06 * len(text.replace(" ", "")))
    assert len(audio) > 2 * 9 * 48_000


@pytest.mark.parametrize("prefix", ["", "/elevenlabs"])
async def test_all_of_it_is_there_twice(prefix: str) -> None:
    async with sdk(prefix=prefix) as client:
        body = await whole(
            client.text_to_speech.stream("tone", text=TEXT, output_format="pcm_24000")
        )
        assert len(body) == 2 * round(SECONDS * 24_000)
        assert [voice.voice_id for voice in (await client.voices.get_all()).voices] == ["tone"]
        assert [model.model_id for model in await client.models.list()] == ["tone"]


async def test_where_the_address_says_whose_api_it_is_no_header_has_to() -> None:
    async with live() as server:
        for path, kind in (("/elevenlabs/v1/models", list), ("/v1/models", dict)):
            async with server.client.get(server.url + path) as reply:
                assert isinstance(await reply.json(), kind)


async def test_options_that_the_engine_doesnt_know_are_announced() -> None:
    said = {
        "seed": 4_294_967_295,
        "voice_settings": {"stability": 1, "style": 0.0, "use_speaker_boost": False},
        "pronunciation_dictionary_locators": [{"pronunciation_dictionary_id": "d"}],
        "previous_request_ids": ["r1"],
        "next_request_ids": ["r3"],
        "next_text": "Bye.",
        "use_pvc_as_ivc": True,
        "apply_text_normalization": "on",
        "apply_language_text_normalization": True,
    }
    unsaid: dict[str, object] = {
        "seed": None,
        "voice_settings": {"stability": None, "speed": 1.0},
        "pronunciation_dictionary_locators": [],
        "previous_request_ids": [],
        "next_request_ids": None,
        "next_text": "",
        "use_pvc_as_ivc": False,
        "apply_text_normalization": "auto",
        "apply_language_text_normalization": False,
    }
    async with live() as server:
        path = "/v1/text-to-speech/tone/stream?output_format=pcm_24000"
        status, headers, _ = await server.ask(path, {"text": "Hi.", **said})
        assert status == 200
        named = {*said, "stability", "style", "use_speaker_boost"} - {"voice_settings"}
        assert headers["x-tts-ignored"] == ",".join(sorted(named))
        status, headers, _ = await server.ask(path, {"text": "Hi.", **unsaid})
        assert (status, headers.get("x-tts-ignored")) == (200, None)


# Voices and accounts


class Many(ToneEngine):
    def voices(self) -> list[Voice]:
        return [Voice(f"voice {number}", "en", "A beep") for number in range(120)]


async def test_voices_are_listed_page_by_page() -> None:
    async with sdk(Scheduler(Many())) as client:
        voices = client.voices
        first = await voices.search()
        assert (len(first.voices), first.has_more, first.total_count) == (100, True, 120)
        rest = await voices.search(next_page_token=first.next_page_token)
        assert (len(rest.voices), rest.has_more, rest.next_page_token) == (20, False, None)
        some = await voices.search(search="VOICE 11", page_size=3)
        assert [voice.name for voice in some.voices] == ["voice 11", "voice 110", "voice 111"]
        assert len((await voices.get_all()).voices) == 120
        one = await voices.get("voice 7")
        assert (one.voice_id, one.name, one.category) == ("voice 7", "voice 7", "premade")
        assert one.labels == {"language": "en"}


async def test_a_voice_that_there_isnt() -> None:
    async with sdk() as client:
        with pytest.raises(ApiError) as unknown:
            await client.voices.get("bob")
        assert unknown.value.body["detail"]["code"] == "voice_not_found"
        with pytest.raises(ApiError) as unspoken:
            await whole(client.text_to_speech.convert("bob", text=TEXT))
        assert unspoken.value.body["detail"]["status"] == "voice_not_found"


async def test_a_voice_is_learnt_spoken_with_and_forgotten() -> None:
    async with sdk(Mimic()) as client:
        learnt = await client.voices.ivc.create(
            name="Me",
            files=[("a.wav", recording(330), "audio/wav"), ("b.wav", recording(200), "audio/wav")],
            description="My own",
            labels={"language": "en"},
            remove_background_noise=True,
        )
        assert (learnt.voice_id, learnt.requires_verification) == ("Me", False)
        body = await whole(client.text_to_speech.stream("Me", text=TEXT, output_format="pcm_24000"))
        assert pitch(body, 24_000) == pytest.approx(330, abs=1)
        assert "Me" in [voice.voice_id for voice in (await client.voices.get_all()).voices]
        assert (await client.voices.get("Me")).description == "My own"
        assert (await client.voices.delete("Me")).status == "ok"
        with pytest.raises(ApiError):
            await client.voices.delete("Me")


async def test_an_engine_that_cant_learn_says_so() -> None:
    async with sdk() as client:
        with pytest.raises(ApiError) as refused:
            await client.voices.ivc.create(
                name="Me", files=[recording()], request_options={"max_retries": 0}
            )
    assert refused.value.status_code == 501


async def test_there_is_plenty_to_spend() -> None:
    async with sdk() as client:
        user = client.user
        subscription = await user.subscription.get()
        assert subscription.character_limit - subscription.character_count > 1_000_000_000
        assert subscription.can_use_instant_voice_cloning is False
        assert (await user.get()).subscription.tier == "local"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/text-to-speech/tone"),
        ("POST", "/v1/text-to-speech/tone/with-timestamps"),
        ("GET", "/v1/user"),
        ("GET", "/v1/user/subscription"),
        ("GET", "/v2/voices"),
        ("GET", "/v1/voices/tone"),
        ("DELETE", "/v1/voices/tone"),
        ("POST", "/v1/voices/add"),
    ],
)
async def test_nothing_opens_without_the_key(method: str, path: str) -> None:
    async with live(keys=["secret-key"]) as server:
        for prefix in ("", "/elevenlabs"):
            async with server.client.request(method, server.url + prefix + path) as reply:
                assert reply.status == 401
                assert (await reply.json())["detail"]["status"] == "invalid_api_key"


# Pipecat


@pytest.fixture(autouse=True)
def log() -> Iterator[list[str]]:
    """What Pipecat logs. Nothing of it is printed."""
    with logged() as messages:
        yield messages


def pipecat(server: Live) -> ElevenLabsHttpTTSService:
    return ElevenLabsHttpTTSService(
        api_key="xk",
        aiohttp_session=server.client,
        base_url=server.url,
        settings=ElevenLabsHttpTTSService.Settings(voice="tone"),
    )


@pytest.mark.parametrize(("engine", "pause"), [(ToneEngine(), 0.0), (PausingEngine(), 0.1)])
async def test_pipecat_hears_all_and_when_each_word_is_said(
    engine: ToneEngine, pause: float
) -> None:
    text = "Hello there, my dear friend. How are you doing today? I am well."
    async with live(Scheduler(engine)) as server, Call(pipecat(server), rate=24_000) as call:
        await call.send(*turn(*(text[i : i + 5] for i in range(0, len(text), 5))))
        await call.after(LLMFullResponseEndFrame)
    assert call.errors == []
    seconds = 0.06 * len(text.replace(" ", "")) + 3 * pause
    assert len(call.audio) == 2 * round(seconds * 24_000)
    assert pitch(call.audio, 24_000) == pytest.approx(440, abs=1)
    frames, now, expected = call.all(TTSTextFrame), 0.0, []
    for word in text.split():
        expected.append((word, round(now, 3)))
        now += 0.06 * len(word) + (pause if word[-1] in ".?" else 0.0)
    began = frames[0].pts or 0
    assert [(f.text, round(((f.pts or 0) - began) / 1e9, 3)) for f in frames] == expected


@best_of_three
async def test_pipecat_interrupts_and_the_place_is_free() -> None:
    long: Engine = tones()
    async with live(long) as server, Call(pipecat(server), rate=24_000) as call:
        await call.send(*turn("Words that go on and on, " * 60))
        await call.after(TTSAudioRawFrame)
        assert server.house.admission.active == 1
        with within(0.1):
            await call.send(InterruptionFrame())
            await server.until(lambda: server.house.admission.active == 0)
    await long.aclose()


# LiveKit


async def test_livekit_lists_the_voices() -> None:
    async with live() as server:
        speaker = livekit_elevenlabs.TTS(
            api_key="xk", base_url=f"{server.url}/v1", http_session=server.client
        )
        (voice,) = await speaker.list_voices()
        await speaker.aclose()
    assert (voice.id, voice.name, voice.category) == ("tone", "tone", "premade")
