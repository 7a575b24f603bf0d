"""Fish in both frameworks: which words are heard, for how long, how high, and what goes wrong."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from livekit.agents import APIConnectionError, APIConnectOptions, APIStatusError
from loguru import logger
from pipecat.frames.frames import (
    LLMFullResponseEndFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)

from tests.adapters.pipecat_call import Call, turn
from tests.dialects.fish_server import FishAudio, FishSpeech
from tests.hearing import pitch
from tests.servers import serving
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService
from tts_plugins.dialects.fish import FishCloudDialect, FishDialect
from tts_plugins.remote import RemoteEngine

KEY = "fish-key-0123456789"
FRAGMENTS = ["Hello the", "re. How a", "re you?"]
"""Two sentences of 0.2 s and 0.3 s."""
WORDS = ["Hello", "there.", "How", "are", "you?"]

Fish = Callable[[], FishSpeech | FishAudio]

every_fish = pytest.mark.parametrize(
    "fish",
    [
        pytest.param(FishSpeech, id="bare samples"),
        pytest.param(lambda: FishSpeech(header=True), id="with a header"),
        pytest.param(lambda: FishAudio(KEY), id="cloud"),
    ],
)
every_rate = pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Nothing of Pipecat's log is printed."""
    logger.remove()


@asynccontextmanager
async def engine_of(fish: FishSpeech | FishAudio) -> AsyncGenerator[RemoteEngine, None]:
    cloud = isinstance(fish, FishAudio)
    dialect = FishCloudDialect() if cloud else FishDialect()
    async with serving(fish) as server:
        engine = RemoteEngine(dialect, server.url, api_key=KEY if cloud else None, retries=0)
        async with aclosing(engine):
            yield engine


def texts(fish: FishSpeech | FishAudio) -> list[str]:
    """What was to be spoken, one text a request."""
    if isinstance(fish, FishSpeech):
        return [body["text"] for body in fish.asked]
    return [body["text"] for body, _ in fish.asked]


async def say(speaker: EngineTTS) -> tuple[bytes, list[str], set[int]]:
    """What LiveKit hears of the two sentences: samples, words, and rates."""
    stream = speaker.stream(conn_options=APIConnectOptions(max_retry=0))
    for fragment in FRAGMENTS:
        stream.push_text(fragment)
    stream.end_input()
    async with stream:
        frames = [event.frame async for event in stream]
    words = [word for frame in frames for word in frame.userdata["lk.timed_transcripts"]]
    pcm = b"".join(frame.data.tobytes() for frame in frames)
    return pcm, "".join(words).split(), {frame.sample_rate for frame in frames}


@every_rate
@every_fish
async def test_pipecat_hears_two_sentences_whole_and_at_their_pitch(fish: Fish, rate: int) -> None:
    server = fish()
    async with (
        engine_of(server) as engine,
        Call(EngineTTSService(engine), rate=rate) as call,
    ):
        await call.send(*turn(*FRAGMENTS))
        await call.after(LLMFullResponseEndFrame)
    assert call.errors == []
    assert [frame.text for frame in call.all(TTSTextFrame)] == WORDS
    assert {frame.sample_rate for frame in call.all(TTSAudioRawFrame)} == {rate}
    assert len(call.audio) == 2 * rate // 2  # 0.5 s of 16 bits
    assert pitch(call.audio, rate) == pytest.approx(440, abs=1)
    assert texts(server) == ["Hello there.", "How are you?"]


@every_rate
@every_fish
async def test_livekit_hears_two_sentences_whole_and_at_their_pitch(fish: Fish, rate: int) -> None:
    server = fish()
    async with engine_of(server) as engine:
        pcm, words, rates = await say(EngineTTS(engine, sample_rate=rate))
    assert words == WORDS
    assert rates == {rate}
    assert len(pcm) == 2 * rate // 2  # 0.5 s of 16 bits
    assert pitch(pcm, rate) == pytest.approx(440, abs=1)
    assert texts(server) == ["Hello there.", "How are you?"]


async def test_signs_of_the_model_are_not_spoken_and_the_words_behind_them_are() -> None:
    server = FishSpeech()
    async with engine_of(server) as engine, Call(EngineTTSService(engine)) as call:
        await call.send(*turn("Hello <|speaker:1|>there. ", "<|im_end|> "))
        await call.after(LLMFullResponseEndFrame)
    assert call.errors == []
    assert len(call.audio) == 2 * (1_600 + 160)  # 0.2 s, and a breath of 20 ms
    assert texts(server) == ["Hello  there."]


async def test_pipecat_is_told_when_a_stream_breaks_off() -> None:
    server = FishSpeech(fails="mid")
    async with engine_of(server) as engine, Call(EngineTTSService(engine)) as call:
        await call.send(*turn("Hello there."))
        await call.until(lambda: bool(call.errors))
    assert "its answer is cut short" in call.errors[0].error


async def test_livekit_is_told_when_a_stream_breaks_off() -> None:
    async with engine_of(FishSpeech(fails="early")) as engine:
        with pytest.raises(APIConnectionError, match="its answer is cut short"):
            await say(EngineTTS(engine))


async def test_livekit_is_told_that_the_account_is_empty() -> None:
    async with engine_of(FishAudio(KEY, credit=False)) as engine:
        with pytest.raises(APIStatusError, match="402: Insufficient Balance") as told:
            await say(EngineTTS(engine))
    assert KEY not in f"{told.value!r}"
