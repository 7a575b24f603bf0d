"""A server that speaks ElevenLabs' API, as RemoteEngine, Pipecat and LiveKit hear it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from livekit.agents import Agent, AgentSession, APIConnectOptions, APIStatusError
from livekit.agents.types import TimedString
from livekit.agents.voice.transcription import TranscriptSynchronizer
from pipecat.frames.frames import (
    InterruptionFrame,
    LLMFullResponseEndFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService
from pipecat.utils.errors import ErrorCategory

from tests.adapters.livekit_sink import ClockedSink, TextSink
from tests.adapters.pipecat_call import Call, RealtimeSink, logged, turn
from tests.dialects.elevenlabs_server import PACE, ElevenLabs, beep, line, refusal, timed
from tests.hearing import pitch
from tests.servers import Answer, Line, Server, serving
from tests.servers import Call as HttpRequest
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService, EngineTTSSettings
from tts_plugins.audio.pcm import to_s16
from tts_plugins.dialects.base import HttpCall
from tts_plugins.dialects.elevenlabs import DEFAULT_VOICE, ElevenLabsServer
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.errors import (
    OverloadedError,
    RemoteError,
    TTSError,
    UnreachableError,
    VoiceNotFoundError,
)
from tts_plugins.registry import open_engine
from tts_plugins.remote import RemoteEngine
from tts_plugins.text.words import spans
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

SENTENCES = ["Hello there, my dear friend.", "How are you doing today?", "That is good to hear."]
TEXT = " ".join(SENTENCES)
FORMATS = ["pcm_8000", "pcm_16000", "pcm_24000", "ulaw_8000"]
RATES = [8_000, 16_000, 24_000]
CALM = APIConnectOptions(max_retry=0)


@asynccontextmanager
async def connected(
    service: ElevenLabs | None = None, **options: object
) -> AsyncGenerator[tuple[RemoteEngine, ElevenLabs, Server], None]:
    """An engine, the service that it speaks through, and the server that this runs on."""
    service = service or ElevenLabs()
    async with serving(service.answer) as server:
        engine = open_engine(
            f"elevenlabs+{server.url}", **{"api_key": service.key, "retries": 0} | options
        )
        assert isinstance(engine, RemoteEngine)
        try:
            yield engine, service, server
        finally:
            await engine.aclose()


async def speak(
    engine: RemoteEngine, text: str = "Hello there.", **asked: object
) -> list[AudioChunk]:
    request = SynthesisRequest(text, **asked)  # type: ignore[arg-type]  # by name
    async with aclosing(engine.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


def seconds(chunks: Sequence[AudioChunk]) -> float:
    return sum(chunk.seconds for chunk in chunks)


def said_when() -> list[tuple[str, float]]:
    """The words of the three sentences, spoken without a pause, and when each of them starts."""
    words, before = [], 0
    for sentence in SENTENCES:
        words += [(word, round(PACE * (before + at), 6)) for at, word in spans(sentence)]
        before += len(sentence)
    return words


def start(word: TimedString) -> float:
    assert isinstance(word.start_time, float)
    return word.start_time


LENGTH = sum(len(sentence) for sentence in SENTENCES) * PACE
"""Seconds of the three sentences: whole samples at every rate here."""


# The engine


async def test_words_and_samples_are_exact() -> None:
    async with connected() as (engine, service, _):
        chunks = await speak(engine, "Hello there.")
    assert service.speech[0].path == (
        "/v1/text-to-speech/hpp4J3VqNfWAUOO0d1Us/stream/with-timestamps"
    )
    assert service.speech[0].query == {"output_format": "pcm_24000"}
    assert service.speech[0].headers["xi-api-key"] == service.key
    assert sum(len(chunk.samples) for chunk in chunks) == 14_400
    words = [word for chunk in chunks for word in chunk.words]
    assert [(w.text, w.offset, round(w.start, 6), w.exact) for w in words] == [
        ("Hello", 0, 0.0, True),
        # Its last letters come with the next line: the end is still a guess.
        ("there.", 6, 0.3, False),
    ]


async def test_a_server_without_timestamps_speaks_without_words() -> None:
    async with connected(timestamps=False, output_format="alaw_8000") as (engine, service, _):
        chunks = await speak(engine, "Hello there.")
    assert service.speech[0].path == "/v1/text-to-speech/hpp4J3VqNfWAUOO0d1Us/stream"
    assert sum(len(chunk.samples) for chunk in chunks) == 4_800
    assert [chunk.words for chunk in chunks if chunk.words] == []


async def test_options_in_the_address_are_of_their_kinds() -> None:
    async with serving((service := ElevenLabs()).answer) as server:
        engine = open_engine(
            f"elevenlabs+{server.url}?voice=v1&stability=0.5&use_speaker_boost=true&seed=7"
            "&output_format=pcm_8000&model=eleven_v3",
            api_key=service.key,
        )
        assert isinstance(engine, RemoteEngine)
        await speak(engine)
        await engine.aclose()
    [call] = service.speech
    assert call.path == "/v1/text-to-speech/v1/stream/with-timestamps"
    assert call.json == {
        "text": "Hello there.",
        "model_id": "eleven_v3",
        "voice_settings": {"stability": 0.5, "use_speaker_boost": True},
        "seed": 7,
    }


async def test_a_voice_id_stays_in_its_place_on_the_wire() -> None:
    strange = "../../v1/models?x=%2F#\u1ed5 +"
    voices = [{"voice_id": strange, "name": "Strange"}]
    async with connected(ElevenLabs(voices=voices)) as (engine, service, _):
        assert seconds(await speak(engine, voice=strange)) == pytest.approx(0.6)
        assert service.speech[0].query == {"output_format": "pcm_24000"}


def late(status: str, message: str) -> Answer:
    """A reply that begins well."""

    async def answer(back: Line, call: HttpRequest) -> None:
        back.head(content_type="application/json")
        await back.chunk(line(beep("Hello ", "pcm_24000"), timed("Hello ")) + b"\n")
        await back.chunk(
            b'{"detail": {"status": "%b", "message": "%b"}}\n' % (status.encode(), message.encode())
        )
        back.end()

    return answer


async def cut_short(back: Line, call: HttpRequest) -> None:
    back.head(content_type="application/json")
    await back.chunk(line(beep("Hello ", "pcm_24000"), timed("Hello "))[:-40])
    back.end()


async def broken_off(back: Line, call: HttpRequest) -> None:
    back.head(content_type="application/json")
    await back.chunk(line(beep("Hello ", "pcm_24000"), timed("Hello ")) + b"\n")
    back.close()


async def not_there(back: Line, call: HttpRequest) -> None:
    back.json(404, {"detail": "Not Found"})


async def unprocessable(back: Line, call: HttpRequest) -> None:
    detail = [{"loc": ["body", "text"], "msg": "Field required", "type": "missing"}]
    back.json(422, {"detail": detail})


async def silent(back: Line, call: HttpRequest) -> None:
    back.body(200, b"", content_type="application/json")


@pytest.mark.parametrize(
    ("answer", "kind", "status", "permanent"),
    [
        (refusal(400, "voice_not_found"), VoiceNotFoundError, 404, True),
        (refusal(401, "invalid_api_key"), RemoteError, 401, True),
        (refusal(401, "missing_permissions"), RemoteError, 401, True),
        (refusal(401, "quota_exceeded"), RemoteError, 402, False),
        (refusal(402, "insufficient_credits"), RemoteError, 402, False),
        (refusal(403, "voice_access_denied"), RemoteError, 403, False),
        (not_there, RemoteError, 404, False),
        (unprocessable, RemoteError, 422, False),
        (refusal(429, "too_many_concurrent_requests"), OverloadedError, 429, False),
        (refusal(429, "system_busy"), OverloadedError, 429, False),
        (refusal(500, "internal_error"), RemoteError, 500, False),
        (silent, RemoteError, 502, False),
        (late("internal_error", "boom"), RemoteError, 502, False),
        (late("quota_exceeded", "boom"), RemoteError, 402, False),
        (cut_short, RemoteError, 502, False),
        (broken_off, UnreachableError, 503, False),
    ],
)
async def test_every_failure_has_its_meaning(
    answer: Answer, kind: type[TTSError], status: int, permanent: bool
) -> None:
    async with connected(ElevenLabs(next=[answer])) as (engine, _, _):
        with pytest.raises(kind) as caught:
            await speak(engine, voice="v1")
        assert (caught.value.status_code, caught.value.permanent) == (status, permanent)
        assert seconds(await speak(engine, voice="v1")) == pytest.approx(0.6)


async def test_an_overloaded_server_is_asked_again_after_the_time_it_wants() -> None:
    busy = refusal(429, "too_many_concurrent_requests", retry_after=0)
    service = ElevenLabs(next=[busy, busy])
    async with connected(service, retries=2) as (engine, _, _):
        assert seconds(await speak(engine)) == pytest.approx(0.6)
    assert len(service.speech) == 3


async def test_a_plan_may_be_kept_by_waiting() -> None:
    async with connected(max_in_flight=1) as (engine, _, server):
        await asyncio.gather(*(speak(engine) for _ in range(5)))
        assert len(server.connections) == 1


async def test_an_unknown_voice_is_told_with_those_there_are() -> None:
    async with connected() as (engine, _, _):
        with pytest.raises(VoiceNotFoundError, match=r"no voice 'bob'; available: v1, hpp4J3"):
            await speak(engine, voice="bob")


async def test_voices_are_listed() -> None:
    async with connected() as (engine, _, _):
        assert await engine.voices() == [
            Voice("v1", "en", "Ann (premade)"),
            Voice("hpp4J3VqNfWAUOO0d1Us", "und", "Bella (premade)"),
        ]


async def test_getting_ready_says_nothing_that_costs_money() -> None:
    async with connected() as (engine, service, server):
        await engine.prewarm()
        await speak(engine)
    assert server.calls[0].path == "/v1/models"
    assert len(service.speech) == len(server.connections) == 1


@pytest.mark.parametrize("place", ["address", "voices", "speech"])
async def test_a_key_is_in_no_error_log_or_repr(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "xi-wrong-91c4"
    async with connected(api_key=wrong) as (engine, _, server):

        async def ask() -> object:
            if place == "address":
                return open_engine(f"elevenlabs+{server.url}?api_key={wrong}")
            return await (engine.voices() if place == "voices" else speak(engine))

        with pytest.raises(TTSError) as bad:
            await ask()
        told = [repr(engine), repr(engine.__dict__["_dialect"]), str(bad.value), repr(bad.value)]
    assert wrong not in "".join([*told, repr(bad.value.__cause__), caplog.text])
    assert ("invalid: ***" in told[2]) is (place != "address")


# Clones


CLIP = b"RIFF\x24\0\0\0WAVEfmt " + bytes(28)


async def test_a_clone_speaks_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "me.wav").write_bytes(CLIP)
    async with connected() as (engine, service, server):
        voice = await engine.clone("Me", tmp_path / "me.wav")
        assert (voice.id, voice.description) == ("Me", "clip 0b5f0a41ebff566b")
        assert seconds(await speak(engine, voice="Me")) == pytest.approx(0.6)
    assert service.speech[0].path == "/v1/text-to-speech/clone2/stream/with-timestamps"
    assert [call.path for call in server.calls] == [
        "/v1/voices",
        "/v1/voices/add",
        "/v1/text-to-speech/clone2/stream/with-timestamps",
    ]
    assert CLIP in server.calls[1].body


async def test_a_recording_is_uploaded_once_by_whatever_process() -> None:
    service = ElevenLabs()
    async with connected(service) as (engine, _, server):
        await engine.clone("Me", CLIP)
        await asyncio.gather(engine.clone("Me", CLIP), engine.clone("I", CLIP))
        assert [call.path for call in server.calls].count("/v1/voices/add") == 1
    async with connected(service) as (other, _, server):
        await other.clone("Myself", CLIP)
        await speak(other, voice="Myself")
        assert "/v1/voices/add" not in [call.path for call in server.calls]
        assert service.speech[-1].path == "/v1/text-to-speech/clone2/stream/with-timestamps"
        await other.clone("Somebody", CLIP + b"else")
        assert [call.path for call in server.calls].count("/v1/voices/add") == 1


# Pipecat


@pytest.fixture(autouse=True)
def log() -> Iterator[list[str]]:
    """What Pipecat logs. Nothing of it is printed."""
    with logged() as messages:
        yield messages


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("rate", RATES)
async def test_pipecat_hears_every_sample_and_times_every_word(
    output_format: str, rate: int
) -> None:
    async with (
        connected(output_format=output_format) as (engine, service, _),
        Call(EngineTTSService(engine), rate=rate) as call,
    ):
        await call.send(*turn(*(TEXT[i : i + 5] for i in range(0, len(TEXT), 5))))
        await call.after(LLMFullResponseEndFrame)
    assert call.errors == []
    assert {frame.sample_rate for frame in call.all(TTSAudioRawFrame)} == {rate}
    assert len(call.audio) // 2 == round(LENGTH * rate)
    assert pitch(call.audio, rate) == pytest.approx(440, abs=1)
    frames = call.all(TTSTextFrame)
    began = frames[0].pts or 0
    heard = [(frame.text, round(((frame.pts or 0) - began) / 1e9, 6)) for frame in frames]
    assert heard == said_when()
    assert service.texts == SENTENCES
    assert [call.json.get("previous_text") for call in service.speech] == [
        None,
        "Hello there, my dear friend.",
        "Hello there, my dear friend. How are you doing today?",
    ]


async def test_pipecat_remembers_the_words_that_were_heard() -> None:
    sink, context = RealtimeSink(), LLMContext()
    async with (
        connected(ElevenLabs(stalls=True), output_format="pcm_8000") as (engine, service, _),
        Call(EngineTTSService(engine), sink=sink, context=context) as call,
    ):
        # Words begin at 0, 0.3, 0.65, 0.85 and 1.1 s.
        await call.send(*turn("Hello there, my dear friend. How are you?"))
        await call.until(lambda: sink.began is not None)
        assert sink.began
        await asyncio.sleep(sink.began + 0.75 - time.monotonic())
        await call.send(InterruptionFrame())
        await call.after(InterruptionFrame)
        await asyncio.wait_for(service.left.wait(), 2)
    assert context.get_messages() == [{"role": "assistant", "content": "Hello there, my"}]
    assert service.texts == ["Hello there, my dear friend."]


@pytest.mark.parametrize(
    ("answer", "category"),
    [
        (refusal(401, "invalid_api_key"), ErrorCategory.AUTHENTICATION),
        (refusal(401, "quota_exceeded"), ErrorCategory.QUOTA),
        (unprocessable, ErrorCategory.APPLICATION),
    ],
)
async def test_only_a_wrong_key_keeps_pipecat_from_the_next_turn(
    answer: Answer, category: ErrorCategory, log: list[str]
) -> None:
    async with (
        connected(ElevenLabs(next=[answer])) as (engine, service, _),
        Call(EngineTTSService(engine)) as call,
    ):
        for number, text in enumerate(["Hello there.", "How are you?"], 1):
            await call.send(*turn(text))
            await call.after(LLMFullResponseEndFrame, number)
    assert call.errors[0].category is category
    spoken = category is not ErrorCategory.AUTHENTICATION
    assert bool(call.audio) is spoken
    assert len(service.speech) == 1 + spoken
    assert service.key not in "".join(log)


async def test_pipecat_speaks_with_a_cloned_voice_and_its_settings() -> None:
    async with connected() as (engine, service, _):
        await engine.clone("Me", CLIP)
        settings = EngineTTSSettings(voice="Me", language="en-US", speed=1.1)
        async with Call(EngineTTSService(engine, settings=settings)) as call:
            await call.send(*turn("Hello there."))
            await call.after(LLMFullResponseEndFrame)
    assert service.speech[0].path == "/v1/text-to-speech/clone2/stream/with-timestamps"
    assert service.speech[0].json == {
        "text": "Hello there.",
        "model_id": "eleven_flash_v2_5",
        "language_code": "en",
        "voice_settings": {"speed": 1.1},
    }


@pytest.mark.parametrize("rate", [24_000, 48_000])
async def test_pipecats_own_client_hears_all_of_our_server(rate: int) -> None:
    text = "I know " + "very well " * 20 + "what you mean."  # 13.3 s

    async def answer(back: Line, request: HttpRequest) -> None:
        call = HttpCall(request.method, request.path, request.query, body=request.body)
        asked = ElevenLabsServer().read_call(call)
        said = list(ToneEngine(sample_rate=rate).synthesize(asked.request))
        audio = np.concatenate([chunk.samples for chunk in said])
        words = tuple(word for chunk in said for word in chunk.words)
        back.head(content_type=asked.writer.media_type)
        for chunk in (
            AudioChunk(audio, rate, words[:-1]),
            AudioChunk(np.zeros(0, np.float32), rate, words[-1:]),
        ):
            await back.chunk(asked.writer.push(chunk))
        await back.chunk(asked.writer.flush())
        back.end()

    async with serving(answer) as server, aiohttp.ClientSession() as session:
        theirs = ElevenLabsHttpTTSService(
            api_key="xk",
            aiohttp_session=session,
            base_url=server.url,
            settings=ElevenLabsHttpTTSService.Settings(voice=DEFAULT_VOICE),
        )
        async with Call(theirs, rate=rate) as call:
            await call.send(*turn(text))
            await call.after(LLMFullResponseEndFrame)
    assert call.errors == []
    spoken = list(ToneEngine(sample_rate=rate).synthesize(SynthesisRequest(text)))
    assert call.audio == b"".join(to_s16(chunk.samples) for chunk in spoken)
    frames = call.all(TTSTextFrame)
    began = frames[0].pts or 0
    heard = [(frame.text, round(((frame.pts or 0) - began) / 1e9, 6)) for frame in frames]
    words = [word for chunk in spoken for word in chunk.words]
    assert heard == [(word.text, round(word.start, 6)) for word in words]


# LiveKit


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("rate", RATES)
async def test_livekit_hears_every_sample_and_times_every_word(
    output_format: str, rate: int
) -> None:
    words: list[TimedString] = []
    pcm = b""
    async with connected(output_format=output_format) as (engine, service, _):
        speaker = EngineTTS(engine, sample_rate=rate)
        async with speaker.stream(conn_options=CALM) as stream:
            for i in range(0, len(TEXT), 5):
                stream.push_text(TEXT[i : i + 5])
            stream.end_input()
            async for event in stream:
                assert event.frame.sample_rate == rate
                pcm += event.frame.data.tobytes()
                words += event.frame.userdata["lk.timed_transcripts"]
        await speaker.aclose()
    assert len(pcm) // 2 == round(LENGTH * rate)
    assert pitch(pcm, rate) == pytest.approx(440, abs=1)
    assert "".join(words) == TEXT
    assert [(word.strip(), round(start(word), 6)) for word in words] == said_when()
    assert service.texts == SENTENCES
    assert service.speech[2].json["previous_text"] == " ".join(SENTENCES[:2])


async def test_livekit_remembers_the_words_that_were_heard() -> None:
    async with connected(ElevenLabs(stalls=True)) as (engine, service, _):
        speaker = EngineTTS(engine)
        sink, screen = ClockedSink(), TextSink()
        sync = TranscriptSynchronizer(next_in_chain_audio=sink, next_in_chain_text=screen)
        session: AgentSession[None] = AgentSession(
            tts=speaker, vad=None, use_tts_aligned_transcript=True
        )
        session.output.audio = sync.audio_output
        session.output.transcription = sync.text_output
        await session.start(Agent(instructions=""))
        handle = session.say("Hello there, my dear friend. How are you?")
        await sink.started.wait()
        await asyncio.sleep(0.75)
        handle.interrupt()
        await handle.wait_for_playout()
        await asyncio.wait_for(service.left.wait(), 2)
        message = session.history.items[-1]
        await session.aclose()
        await sync.aclose()
        await speaker.aclose()
    # LiveKit's synchronizer shows a word some time between its start and its end.
    assert getattr(message, "text_content", "").strip() in ("Hello there,", "Hello there, my")
    assert service.texts == ["Hello there, my dear friend."]


@pytest.mark.parametrize(
    ("answer", "status", "retryable"),
    [
        (refusal(401, "invalid_api_key"), 401, False),
        (refusal(401, "quota_exceeded"), 402, False),
        (refusal(400, "voice_not_found"), 404, False),
        (refusal(429, "system_busy"), 429, True),
    ],
)
async def test_livekit_is_told_what_a_refusal_means(
    answer: Answer, status: int, retryable: bool
) -> None:
    async with connected(ElevenLabs(next=[answer])) as (engine, _, _):
        speaker = EngineTTS(engine, voice="v1")
        stream = speaker.synthesize("Hello there.", conn_options=CALM)
        with pytest.raises(APIStatusError) as caught:
            await stream.collect()
        await speaker.aclose()
    assert (caught.value.status_code, caught.value.retryable) == (status, retryable)
