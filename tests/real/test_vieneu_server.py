"""VieNeu, the server from its wheel: what a caller makes of what it really answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np
import pytest
from loguru import logger
from pipecat.frames.frames import TTSAudioRawFrame, TTSSpeakFrame, TTSStoppedFrame, TTSTextFrame

from tests.adapters.pipecat_call import Call
from tests.hearing import pitch
from tests.real.vieneu_server import missing, vieneu_server
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService
from tts_plugins.audio.pcm import from_s16, joined
from tts_plugins.audio.wav import WavWriter
from tts_plugins.dialects.vieneu import VieNeuDialect
from tts_plugins.errors import (
    InvalidRequestError,
    OverloadedError,
    RemoteError,
    UnreachableError,
    VoiceNotFoundError,
)
from tts_plugins.remote import RemoteEngine
from tts_plugins.testing import check_engine
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not installed: {', '.join(missing())}")

TEXT = "Xin chào các bạn."
"""Five steps of the model: 0.8 s."""

ENROL = ("POST", "/v1/voices")

LONG = "Xin chào. " * 1000
"""More than fits between server and client, so that the server is never done with it."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with slots for all that the tests leave."""
    with vieneu_server(max_streams="32") as address:
        yield address


@pytest.fixture
async def engine(url: str) -> AsyncGenerator[RemoteEngine, None]:
    async with speaking(url) as engine:
        yield engine


@asynccontextmanager
async def speaking(
    url: str, dialect: VieNeuDialect | None = None, **options: Any
) -> AsyncGenerator[RemoteEngine, None]:
    engine = RemoteEngine(dialect or VieNeuDialect(), url, **options)
    try:
        yield engine
    finally:
        await engine.aclose()


@dataclass
class Traffic:
    """What an engine sent, and what came of it."""

    url: str
    answers: list[tuple[str, str, int]] = field(default_factory=list)
    refused: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the first 429."""

    @property
    def spoken(self) -> list[int]:
        return [status for _, path, status in self.answers if path == "/v1/audio/speech"]

    @property
    def enrolled(self) -> list[int]:
        return [status for method, path, status in self.answers if (method, path) == ENROL]

    async def note(self, _: object, __: object, done: aiohttp.TraceRequestEndParams) -> None:
        self.answers.append((done.method, done.url.path, done.response.status))
        if done.response.status == 429:
            self.refused.set()

    async def collect(self) -> None:
        """Have the server collect its garbage."""
        async with aiohttp.ClientSession() as session, session.post(f"{self.url}/collect") as done:
            assert done.status == 200


async def waiting(url: str) -> int:
    """How many wait for a slot."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/health") as reply:
        return int((await reply.json())["waiting"])


@asynccontextmanager
async def watched(
    url: str, dialect: VieNeuDialect | None = None, **options: Any
) -> AsyncGenerator[tuple[RemoteEngine, Traffic], None]:
    """The same, with a look at what is sent."""
    traffic = Traffic(url)
    trace = aiohttp.TraceConfig()
    trace.on_request_end.append(traffic.note)
    async with (
        aiohttp.ClientSession(trace_configs=[trace]) as session,
        speaking(url, dialect, session=session, **options) as engine,
    ):
        yield engine, traffic


async def speak(
    engine: RemoteEngine,
    text: str = TEXT,
    *,
    voice: str | None = None,
    heard: list[AudioChunk] | None = None,
) -> list[AudioChunk]:
    """What is said, in ``heard`` as well: also when it isn't said to the end."""
    heard = [] if heard is None else heard
    async with aclosing(engine.stream(SynthesisRequest(text, voice=voice))) as chunks:
        async for chunk in chunks:
            heard.append(chunk)
    return heard


async def barge_in(engine: RemoteEngine) -> None:
    """Leave when the first sound is there."""
    async with aclosing(engine.stream(SynthesisRequest(LONG))) as chunks:
        await anext(chunks)


def samples(chunks: list[AudioChunk]) -> Samples:
    return joined(chunk.samples for chunk in chunks)


def recording(frequency: float) -> bytes:
    """A clip of a voice: 50 ms of a tone."""
    writer = WavWriter(24_000)
    tone = np.sin(2 * np.pi * frequency * np.arange(1200) / 24_000).astype(np.float32)
    return writer.push(tone) + writer.flush()


# What is heard


@pytest.mark.parametrize("response_format", ["pcm", "wav"])
@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 48_000])
async def test_pitch_and_length_are_right_at_every_rate(
    url: str, rate: int, response_format: str
) -> None:
    dialect = VieNeuDialect(sample_rate=rate, response_format=response_format)
    async with speaking(url, dialect) as engine:
        chunks = await speak(engine)
    assert {chunk.sample_rate for chunk in chunks} == {rate}
    heard = samples(chunks)
    assert len(heard) == 0.8 * rate
    assert pitch(heard, rate) == pytest.approx(440, abs=1)


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])
async def test_pipecat_hears_the_same(engine: RemoteEngine, rate: int) -> None:
    logger.remove()
    async with Call(EngineTTSService(engine), rate=rate) as call:
        await call.send(TTSSpeakFrame(TEXT))
        await call.after(TTSStoppedFrame)
    frames = call.all(TTSAudioRawFrame)
    assert {frame.sample_rate for frame in frames} == {rate}
    heard = from_s16(call.audio)
    assert len(heard) == 0.8 * rate
    assert pitch(heard, rate) == pytest.approx(440, abs=1)
    assert [frame.text for frame in call.all(TTSTextFrame)] == ["Xin", "chào", "các", "bạn."]
    assert call.errors == []


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])
async def test_livekit_hears_the_same(engine: RemoteEngine, rate: int) -> None:
    heard, words = bytearray(), []
    async with EngineTTS(engine, sample_rate=rate).stream() as stream:
        stream.push_text(TEXT)
        stream.end_input()
        async for event in stream:
            assert event.frame.sample_rate == rate
            heard += event.frame.data.tobytes()
            words += event.frame.userdata["lk.timed_transcripts"]
    assert len(heard) / 2 == 0.8 * rate
    assert pitch(from_s16(bytes(heard)), rate) == pytest.approx(440, abs=1)
    assert [str(word) for word in words] == ["Xin ", "chào ", "các ", "bạn."]
    assert [word.start_time for word in words] == pytest.approx([0, 0.2, 0.4, 0.6], abs=0.1)


async def test_what_it_leaves_out_of_the_contract_is_speed(engine: RemoteEngine) -> None:
    checks = await check_engine(engine)
    assert [check.name for check in checks if not check.passed] == ["speed changes the length"]


# Voices


async def test_its_voices_are_listed_with_their_aliases() -> None:
    with vieneu_server() as fresh:
        async with speaking(fresh) as engine:
            assert await engine.voices() == [
                Voice("Hải Đăng", "vi", "Nam · Bắc; male"),
                Voice("Mai Anh", "vi", "Nữ · Bắc; female; also MA, Mai"),
            ]


@pytest.mark.parametrize("voice", ["Mai Anh", "Mai", None])
async def test_it_speaks_by_name_by_alias_and_of_its_own_choice(
    engine: RemoteEngine, voice: str | None
) -> None:
    assert len(samples(await speak(engine, voice=voice))) == 0.8 * 24_000


async def test_an_unknown_voice_is_told_with_those_there_are(engine: RemoteEngine) -> None:
    with pytest.raises(VoiceNotFoundError, match=r"no voice 'alloy'; available: Hải Đăng, Mai Anh"):
        await speak(engine, voice="alloy")


async def test_a_voice_speaks_as_soon_as_it_is_cloned(engine: RemoteEngine) -> None:
    voice = await engine.clone("Tôi", recording(200))
    assert (voice.id, voice.language) == ("Tôi", "vi")
    assert len(samples(await speak(engine, voice="Tôi"))) == 0.8 * 24_000
    assert "Tôi" in [each.id for each in await engine.voices()]


async def test_a_recording_is_sent_once_whoever_asks_and_whatever_it_is_called(url: str) -> None:
    async with watched(url) as (engine, traffic):
        await engine.clone("Bạn tôi", recording(300))
        await engine.clone("Bạn tôi", recording(300))
        assert traffic.enrolled == [200]
    async with watched(url) as (another, traffic):
        await another.clone("A friend", recording(300))
        assert traffic.enrolled == []
        await speak(another, voice="A friend")
        names = [voice.id for voice in await another.voices()]
    assert "A friend" in names  # as it is called here, and not twice
    assert "Bạn tôi" not in names


async def test_a_recording_with_its_noise_is_another_voice(url: str) -> None:
    for denoise in (True, False):
        async with watched(url, VieNeuDialect(denoise=denoise)) as (engine, traffic):
            await engine.clone(f"Denoised {denoise}", recording(400))
            assert traffic.enrolled == [200]


async def test_a_voice_of_the_servers_own_is_not_replaced(engine: RemoteEngine) -> None:
    with pytest.raises(InvalidRequestError, match="'Mai Anh' is a voice of the server's own"):
        await engine.clone("Mai Anh", recording(500))


async def test_a_name_typed_with_loose_accents_is_one_for_the_server(
    url: str, engine: RemoteEngine
) -> None:
    loose = "Bo\N{COMBINING CIRCUMFLEX ACCENT}ng"
    assert (await engine.clone(loose, recording(600))).id == loose
    assert len(samples(await speak(engine, voice=loose))) == 0.8 * 24_000
    assert loose in [voice.id for voice in await engine.voices()]
    async with watched(url) as (another, _):
        names = [voice.id for voice in await another.voices()]
    assert "B\N{LATIN SMALL LETTER O WITH CIRCUMFLEX}ng" in names


async def test_a_recording_that_is_none_is_refused_in_the_servers_words(
    engine: RemoteEngine,
) -> None:
    with pytest.raises(RemoteError, match=r"400: .*could not enroll voice: no audio in it"):
        await engine.clone("Nobody", b"these are no samples")


# What goes wrong


async def test_a_wrong_key_is_permanent_and_not_repeated_in_the_error() -> None:
    with vieneu_server(api_key="sesame") as url:
        async with speaking(url, api_key="open-barley") as engine:
            await engine.prewarm()
            with pytest.raises(RemoteError, match=r"401: .*invalid api key") as caught:
                await speak(engine)
        assert caught.value.permanent
        assert "open-barley" not in str(caught.value)
        async with speaking(url, api_key="sesame") as engine:
            assert len(samples(await speak(engine))) == 0.8 * 24_000


async def test_a_rate_it_does_not_have_is_refused_before_it_is_asked() -> None:
    with pytest.raises(InvalidRequestError, match="rates: 48000, 24000, 16000, 8000"):
        VieNeuDialect(sample_rate=22_050)


async def test_a_model_that_fails_before_its_first_sound_is_asked_again(url: str) -> None:
    async with watched(url, retries=2) as (engine, traffic):
        with pytest.raises(UnreachableError, match="cut short"):
            await speak(engine, "Refuse this.")
    assert traffic.spoken == [200, 200, 200]


async def test_a_model_that_fails_after_it_is_not(url: str) -> None:
    heard: list[AudioChunk] = []
    async with watched(url) as (engine, traffic):
        with pytest.raises(UnreachableError, match="cut short"):
            await speak(engine, "Break off in the middle.", heard=heard)
    assert 0 < len(samples(heard)) <= 0.32 * 24_000
    assert traffic.spoken == [200]


# Its only slot, which it keeps after a client has left until it collects its garbage


async def test_while_the_slot_is_taken_it_is_asked_again_and_then_reported_as_busy() -> None:
    with vieneu_server(queue_timeout="0.1") as url:
        async with (
            watched(url, retries=1) as (engine, traffic),
            aclosing(engine.stream(SynthesisRequest(LONG))) as taken,
        ):
            await anext(taken)
            with pytest.raises(OverloadedError, match=r"429: .*timed out") as caught:
                await speak(engine)
    assert caught.value.retry_after == 2.0
    assert traffic.spoken == [200, 429, 429]


async def test_after_a_barge_in_the_only_slot_comes_back_without_a_collection() -> None:
    with vieneu_server(collect="0") as url:
        async with watched(url) as (engine, traffic):
            for _ in range(3):
                await barge_in(engine)
                assert len(samples(await speak(engine))) == 0.8 * 24_000
    assert traffic.spoken == [200] * 6


async def test_who_leaves_its_queue_leaves_no_slot_taken() -> None:
    with vieneu_server(collect="0", queue="8") as url:
        async with watched(url) as (engine, traffic):
            async with aclosing(engine.stream(SynthesisRequest(LONG))) as taken:
                await anext(taken)
                queued = asyncio.create_task(speak(engine))
                while await waiting(url) == 0:
                    pass
                queued.cancel()
            assert len(samples(await speak(engine))) == 0.8 * 24_000
    assert traffic.spoken == [200] * 3


async def test_a_closed_connection_keeps_it_until_the_server_collects_its_garbage() -> None:
    with vieneu_server(collect="0", queue_timeout="0.1") as url:
        async with watched(url, VieNeuDialect(hear_out=False)) as (engine, traffic):
            await barge_in(engine)
            speaks = asyncio.create_task(speak(engine))
            refused = asyncio.create_task(traffic.refused.wait())
            # It isn't refused if the server lets go of the slot by itself, as a later one may.
            await asyncio.wait([speaks, refused], return_when=asyncio.FIRST_COMPLETED)
            refused.cancel()
            while not speaks.done():
                await traffic.collect()
                await asyncio.wait([speaks], timeout=0.1)
            assert len(samples(await speaks)) == 0.8 * 24_000
    assert traffic.spoken in ([200, 200], [200, 429, 200])


async def test_who_waits_in_its_queue_is_served_in_turn() -> None:
    with vieneu_server(queue="8") as url:
        async with speaking(url) as engine:
            spoken = await asyncio.gather(*(speak(engine) for _ in range(8)))
    assert [len(samples(chunks)) for chunks in spoken] == [19_200] * 8
