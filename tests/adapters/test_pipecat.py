"""Pipecat, the real one: what comes out of a pipeline, and when."""

from __future__ import annotations

import asyncio
import gc
import math
import re
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    MetricsFrame,
    TextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    TTSUpdateSettingsFrame,
)
from pipecat.metrics.metrics import TTFBMetricsData, TTSUsageMetricsData
from pipecat.pipeline.service_switcher import ServiceSwitcher, ServiceSwitcherStrategyFailover
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode
from pipecat.transcriptions.language import Language
from pipecat.utils.errors import ErrorCategory
from pipecat.utils.text.pattern_pair_aggregator import MatchAction, PatternPairAggregator

from tests.adapters.pipecat_call import RATE, Call, RealtimeSink, logged, turn
from tests.fakes import ScriptedEngine, WordlessEngine, tone
from tests.server.live import best_of_three, in_time
from tts_plugins.adapters.pipecat import EngineTTSService, EngineTTSSettings
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.errors import (
    EngineNotFoundError,
    InvalidRequestError,
    MissingDependencyError,
    OverloadedError,
    TTSError,
)
from tts_plugins.scheduler import Scheduler
from tts_plugins.speaker import _shared
from tts_plugins.types import AudioChunk, SynthesisRequest, Word

WARM_UP = "Hello."

not_in_1_12 = pytest.mark.skipif(
    version("pipecat-ai").startswith("1.12."), reason="Pipecat 1.12 can't do this yet"
)


@pytest.fixture(autouse=True)
def log() -> Iterator[list[str]]:
    """What Pipecat warns of. Nothing of it is printed."""
    with logged("WARNING") as messages:
        yield messages


class SpyTone(ToneEngine):
    """Writes down what it was asked for."""

    def __init__(self, *, sample_rate: int = 24_000) -> None:
        super().__init__(sample_rate=sample_rate)
        self.requests: list[SynthesisRequest] = []

    @property
    def texts(self) -> list[str]:
        return [request.text for request in self.requests]

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        if request.text != WARM_UP:
            self.requests.append(request)
        yield from super().synthesize(request)


class GatedTone(SpyTone):
    """Waits for a permit before each step, except to warm up."""

    def __init__(self) -> None:
        super().__init__()
        self.permits = threading.Semaphore(0)
        self.steps = 0

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        for chunk in super().synthesize(request):
            if request.text != WARM_UP:
                self.permits.acquire()
                self.steps += 1
            yield chunk


class FailingTone(SpyTone):
    """Raises in the middle of a text that says "bad", after so many chunks."""

    def __init__(self, *, after: int = 0, error: Exception | None = None) -> None:
        super().__init__()
        self.after = after
        self.error = error or RuntimeError("out of memory")

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        for n, chunk in enumerate(super().synthesize(request)):
            if "bad" in request.text and n == self.after:
                raise self.error
            yield chunk
        if "bad" in request.text:
            raise self.error


class HangingEngine(ScriptedEngine):
    """Never gives anything for a text that says "hang"."""

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        if "hang" in request.text:
            await asyncio.Event().wait()
        async for chunk in super().stream(request):
            yield chunk


def said(call: Call) -> list[str]:
    return [frame.text for frame in call.all(TTSTextFrame)]


def samples(frames: Sequence[Frame]) -> int:
    return sum(frame.num_frames for frame in frames if isinstance(frame, TTSAudioRawFrame))


async def worst_lag(call: Call) -> float:
    """Seconds by which the event loop was late at its worst until the turn stopped."""
    worst = 0.0
    while not call.all(TTSStoppedFrame):
        began = time.monotonic()
        await asyncio.sleep(0.01)
        worst = max(worst, time.monotonic() - began - 0.01)
    return worst


def contexts(frames: Sequence[Frame]) -> list[str]:
    """The turns that frames belong to, each once, in order."""
    ids = [getattr(frame, "context_id", None) for frame in frames]
    return list(dict.fromkeys(id_ for id_ in ids if id_))


# What comes out, in which order


async def test_an_answer_of_two_sentences_is_one_turn() -> None:
    async with Call(EngineTTSService("tone")) as call:
        await call.send(*turn("Hello the", "re. How a", "re you?"))
        await call.after(LLMFullResponseEndFrame)
    assert call.names == [
        "LLMFullResponseStart",
        "AggregatedText",
        "TTSStarted",
        *["TTSText", "TTSAudioRaw"] * 2,
        "AggregatedText",
        *["TTSText", "TTSAudioRaw"] * 3,
        "TTSStopped",
        "LLMFullResponseEnd",
    ]
    assert said(call) == ["Hello", "there.", "How", "are", "you?"]
    assert len(contexts(call.down)) == 1
    assert call.errors == []


async def test_a_speak_frame_is_a_turn_of_its_own() -> None:
    engine = SpyTone()
    async with Call(EngineTTSService(Scheduler(engine))) as call:
        await call.send(TTSSpeakFrame("Hello there. How are you?"))
        await call.after(TTSStoppedFrame)
    assert engine.texts == ["Hello there.", "How are you?"]
    assert call.names == [
        "AggregatedText",
        "TTSStarted",
        *["TTSText", "TTSAudioRaw"] * 5,
        "LLMAssistantPushAggregation",
        "TTSStopped",
    ]


async def test_text_outside_of_any_answer_ends_right_behind_its_audio() -> None:
    async with Call(EngineTTSService("tone")) as call:
        await call.send(TextFrame("Hi there. "))
        await call.after(TTSStoppedFrame)
    assert call.names[-2:] == ["TTSAudioRaw", "TTSStopped"]
    assert len(call.all(TTSStoppedFrame)) == 1


async def test_a_speak_frame_in_the_middle_of_an_answer_follows_the_answer() -> None:
    async with Call(EngineTTSService("tone")) as call:
        start, *rest = turn("First one. ", "Second.")
        await call.send(start, rest[0], TTSSpeakFrame("Between."), *rest[1:])
        await call.after(TTSStoppedFrame, 2)
        await call.after(LLMFullResponseEndFrame)
    assert said(call) == ["First", "one.", "Second.", "Between."]
    assert len(contexts(call.down)) == 2
    assert len(call.all(TTSStartedFrame)) == len(call.all(TTSStoppedFrame)) == 2
    assert call.errors == []


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 48000])
async def test_every_sample_arrives_at_the_rate_of_the_pipeline(rate: int) -> None:
    async with Call(EngineTTSService("tone"), rate=rate) as call:
        await call.send(TTSSpeakFrame("12345 12345 12345 12345."))  # 1.26 s
        await call.after(TTSStoppedFrame)
    frames = call.all(TTSAudioRawFrame)
    assert {frame.sample_rate for frame in frames} == {rate}
    assert samples(frames) == math.ceil(1.26 * rate)
    pcm = np.frombuffer(call.audio, np.int16)
    loudest = np.abs(np.fft.rfft(pcm)).argmax() / 1.26
    assert loudest == pytest.approx(440, abs=1)


async def test_a_rate_of_its_own_wins_over_that_of_the_pipeline() -> None:
    async with Call(EngineTTSService("tone", sample_rate=16000), rate=24000) as call:
        await call.send(TTSSpeakFrame("12345."))
        await call.after(TTSStoppedFrame)
    assert samples(call.all(TTSAudioRawFrame)) == 0.36 * 16000


async def test_nothing_of_an_utterance_leaks_into_the_next() -> None:
    async with Call(EngineTTSService("tone")) as call:
        await call.send(TTSSpeakFrame("Say that."), TTSSpeakFrame("Say that."))
        await call.after(TTSStoppedFrame, 2)
    half = len(call.audio) // 2
    assert call.audio[:half] == call.audio[half:]


# Text


async def test_nothing_unspeakable_reaches_the_engine_or_is_an_error() -> None:
    engine = SpyTone()
    async with Call(EngineTTSService(Scheduler(engine))) as call:
        for n, text in enumerate(["😀", "...", "***", "🎉 …"], 1):
            await call.send(*turn(text))
            await call.after(LLMFullResponseEndFrame, n)
        assert engine.texts == []
        assert call.errors == []
        await call.send(*turn("Fine."))
        await call.after(LLMFullResponseEndFrame, 5)
    assert engine.texts == ["Fine."]
    assert len(call.all(TTSStartedFrame)) == len(call.all(TTSStoppedFrame)) == 5


@pytest.mark.parametrize("text", ["", " ", "\n\n", " \t \n"])
async def test_blank_text_is_not_a_turn(text: str) -> None:
    async with Call(EngineTTSService("tone")) as call:
        await call.send(*turn(text), TTSSpeakFrame(text), *turn("Hi."))
        await call.after(TTSStoppedFrame)
    assert said(call) == ["Hi."]
    assert len(call.all(TTSStartedFrame)) == 1
    assert call.errors == []


async def test_an_answer_that_ends_in_an_emoji_stops_right_behind_its_audio() -> None:
    async with Call(EngineTTSService("tone")) as call:
        began = time.monotonic()
        await call.send(*turn("All done. ", "🎉"))
        await call.after(LLMFullResponseEndFrame)
        assert time.monotonic() - began < 1
    assert len(call.all(TTSStoppedFrame)) == 1


async def test_odd_characters_are_spoken_around() -> None:
    async with Call(EngineTTSService("tone")) as call:
        await call.send(*turn("One\x00 two \ud800 three.\ufffe"))
        await call.after(LLMFullResponseEndFrame)
        await call.send(*turn("a < b & c <br> d"))
        await call.after(LLMFullResponseEndFrame, 2)
    assert call.errors == []
    assert len(call.all(TTSStoppedFrame)) == 2


async def test_a_hundred_kilobytes_at_once_are_spoken_from_the_start_until_interrupted() -> None:
    sentence = "Twelve words of text that say nothing make up this sentence here."
    engine = SpyTone()
    async with Call(EngineTTSService(Scheduler(engine))) as call:
        began = time.monotonic()
        await call.send(*turn(f"{sentence} " * 1500))
        await call.after(TTSAudioRawFrame)
        assert time.monotonic() - began < 2
        await call.send(InterruptionFrame(), *turn("Thanks."))
        await call.after(LLMFullResponseEndFrame)
    assert engine.texts == [sentence, "Thanks."]


@not_in_1_12
@best_of_three
async def test_a_long_speak_frame_leaves_the_event_loop_alone() -> None:
    class Brief(ToneEngine):
        def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
            yield from super().synthesize(replace(request, speed=4.0))

    text = "Twelve words of text that say nothing make up this sentence here. " * 80
    context = LLMContext()
    engine = Scheduler(Brief(), max_ahead=math.inf)
    async with Call(EngineTTSService(engine), context=context) as call:
        await call.send(TTSSpeakFrame(text))
        worst = await worst_lag(call)
    in_time(worst, 0.1)
    assert len(said(call)) == 80 * 12
    assert context.get_messages() == [{"role": "assistant", "content": text.strip()}]


async def test_sentences_go_out_whole_without_waiting_for_the_next() -> None:
    engine = SpyTone()
    async with Call(EngineTTSService(Scheduler(engine))) as call:
        await call.send(*turn("Dr. Smith is here. ", "wait")[:2])
        await call.after(TTSAudioRawFrame, 2)
        assert engine.texts == ["Dr. Smith is here."]
        await call.send(LLMFullResponseEndFrame())


async def test_the_language_of_the_settings_cuts_the_text() -> None:
    engine = SpyTone()
    tts = EngineTTSService(Scheduler(engine), settings=EngineTTSSettings(language=Language.VI_VN))
    async with Call(tts) as call:
        await call.send(*turn("GS. TS. Trần Văn A sống ở TP. Hồ Chí Minh. ", "Xin chào!"))
        await call.after(LLMFullResponseEndFrame)
    assert engine.texts == ["GS. TS. Trần Văn A sống ở TP. Hồ Chí Minh.", "Xin chào!"]
    assert {request.language for request in engine.requests} == {"vi-VN"}


@pytest.mark.parametrize(
    "text",
    [
        "Hello there. How are you?",
        "Xin chào! Tôi sống ở TP. Hồ Chí Minh, còn bạn thì sao?",
        "你好。世界很大！我喜欢Python 语言。你呢？",
        "今日は「いい天気」ですね。 はい、そうです！",
        "안녕하세요. 반갑습니다.",
        "สวัสดีครับ วันนี้อากาศดีมาก",
        "You need:\n\n1. Two eggs.\n2. A pan.\n\nEnjoy!  😊",
        "It costs $29.95 (approx.) - really…  “Two  spaces”, *bold*.",
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_the_conversation_gets_the_text_as_it_was_written(text: str, size: int) -> None:
    context = LLMContext()
    async with Call(EngineTTSService(Scheduler(WordlessEngine())), context=context) as call:
        await call.send(*turn(*(text[i : i + size] for i in range(0, len(text), size))))
        await call.after(LLMFullResponseEndFrame)
    assert context.get_messages() == [{"role": "assistant", "content": text}]


async def test_turns_of_one_message_are_kept_apart() -> None:
    context = LLMContext()
    async with Call(EngineTTSService("tone"), context=context) as call:
        start, *rest = turn("One. ", "Two.")
        await call.send(start, rest[0], TTSSpeakFrame("Three four."), *rest[1:])
        await call.after(TTSStoppedFrame, 2)
    text = " ".join(str(message["content"]) for message in context.get_messages())  # type: ignore[index]
    assert text == "One. Two. Three four."


async def test_the_text_to_speak_may_differ_from_the_text_that_is_kept() -> None:
    async def read_out(text: str, _: str) -> str:
        return text.replace("$5", "five dollars")

    engine, context = SpyTone(), LLMContext()
    tts = EngineTTSService(Scheduler(engine), text_transforms=[("*", read_out)])
    async with Call(tts, context=context) as call:
        await call.send(*turn("That is $5 in all. ", "Bye."))
        await call.after(LLMFullResponseEndFrame)
    assert engine.texts == ["That is five dollars in all.", "Bye."]
    assert context.get_messages() == [{"role": "assistant", "content": "That is $5 in all. Bye."}]


@not_in_1_12
async def test_an_aggregator_of_ones_own_is_kept_and_its_types_skipped() -> None:
    code = PatternPairAggregator()  # type: ignore[no-untyped-call]  # Pipecat's
    code.add_pattern("code", "<code>", "</code>", action=MatchAction.AGGREGATE)
    engine = SpyTone()
    tts = EngineTTSService(Scheduler(engine), text_aggregator=code, skip_text_types=["code"])
    async with Call(tts) as call:
        await call.send(*turn("Look here. <code>x = 1</code> Done."))
        await call.after(LLMFullResponseEndFrame)
    assert engine.texts == ["Look here.", "Done."]


class ReadingTone(SpyTone):
    """Reads a pronunciation, and reports the word alone."""

    reads_pronunciations = True

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        for chunk in super().synthesize(request):
            words = tuple(
                Word(found[0], word.offset + found.start(), word.start, word.end)
                for word in chunk.words
                if (found := re.search(r"\w+", word.text))
            )
            yield replace(chunk, words=words)


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        (ReadingTone(), "In [New York](/nuːjɔːɹk/), take [Metformin](/mɛtˈfɔɹmɪn/) daily."),
        (SpyTone(), "In New York, take Metformin daily."),
    ],
)
async def test_pronunciations_reach_an_engine_that_reads_them(engine: SpyTone, text: str) -> None:
    hint = EngineTTSService.pronunciation_transform_ipa(
        {"metformin": "mɛtˈfɔɹmɪn", "New York": "nuːjɔːɹk"}
    )
    context = LLMContext()
    tts = EngineTTSService(Scheduler(engine), text_transforms=[("*", hint)])
    async with Call(tts, context=context) as call:
        await call.send(*turn("In New York, take Metformin daily. ", "Bye."))
        await call.after(LLMFullResponseEndFrame)
    assert engine.texts == [text, "Bye."]
    plain = "In New York, take Metformin daily. Bye."
    assert context.get_messages() == [{"role": "assistant", "content": plain}]
    assert [word.strip(",.") for word in said(call)] == plain.replace(",", "").replace(
        ".", ""
    ).split()


# Time


async def test_a_long_sentence_is_spoken_while_it_is_being_written() -> None:
    words = ["and ", "then ", "something ", "else ", "happened ", "there ", "too "] * 5
    context = LLMContext()
    sink = RealtimeSink()
    tts = EngineTTSService("tone", settings=EngineTTSSettings(speed=4.0))
    async with Call(tts, sink=sink, context=context) as call:
        began = time.monotonic()
        await call.send(LLMFullResponseStartFrame())
        for word in words:
            await call.send(LLMTextFrame(word))
            await asyncio.sleep(0.05)
        await call.send(LLMTextFrame("again."), LLMFullResponseEndFrame())
        await call.after(LLMFullResponseEndFrame)
    assert sink.began
    assert sink.began - began < 0.5
    assert len(call.all(TTSStartedFrame)) == len(call.all(TTSStoppedFrame)) == 1
    assert context.get_messages() == [{"role": "assistant", "content": "".join(words) + "again."}]


@pytest.mark.parametrize("early", [True, False])
async def test_when_the_text_stops_in_mid_sentence_time_alone_lets_it_be_spoken(
    early: bool,
) -> None:
    async with Call(EngineTTSService("tone", early=early)) as call:
        await call.send(*turn("I am still thinking about this")[:-1])
        await asyncio.sleep(0.6)
        assert bool(call.all(TTSAudioRawFrame)) is early
        await call.send(LLMTextFrame(" one."), LLMFullResponseEndFrame())
        await call.after(LLMFullResponseEndFrame)
    assert said(call) == ["I", "am", "still", "thinking", "about", "this", "one."]
    assert len(call.all(TTSStoppedFrame)) == 1


async def test_an_interruption_forgets_text_that_was_held_back() -> None:
    engine = SpyTone()
    async with Call(EngineTTSService(Scheduler(engine))) as call:
        await call.send(*turn("I was about")[:-1])
        await asyncio.sleep(0.05)
        await call.send(InterruptionFrame())
        await call.after(InterruptionFrame)
        await asyncio.sleep(0.5)
        await call.send(*turn("Yes?"))
        await call.after(LLMFullResponseEndFrame)
    assert engine.texts == ["Yes?"]


async def test_a_pause_of_the_model_or_of_the_engine_does_not_end_the_turn() -> None:
    async def model_pauses() -> Call:
        async with Call(EngineTTSService("tone")) as call:
            start, first, second, end = turn("First.", "Second.")
            await call.send(start, first)
            await asyncio.sleep(3.3)
            await call.send(second, end)
            await call.after(LLMFullResponseEndFrame)
        return call

    async def engine_pauses() -> Call:
        engine = GatedTone()
        async with Call(EngineTTSService(Scheduler(engine))) as call:
            await call.send(*turn("First second."))
            await asyncio.sleep(3.3)
            engine.permits.release(10)
            await call.after(LLMFullResponseEndFrame)
        return call

    for call in await asyncio.gather(model_pauses(), engine_pauses()):
        assert len(call.all(TTSStartedFrame)) == len(call.all(TTSStoppedFrame)) == 1
        assert call.names[-2:] == ["TTSStopped", "LLMFullResponseEnd"]
        assert len(contexts(call.down)) == 1
        assert call.errors == []


async def test_words_after_a_silence_are_timed_by_when_they_are_heard() -> None:
    async with Call(EngineTTSService("tone")) as call:
        start, first, second, end = turn("Hi.", "Second.")
        await call.send(start, first)
        await call.after(TTSAudioRawFrame)
        await asyncio.sleep(0.5)
        await call.send(second, end)
        await call.after(LLMFullResponseEndFrame)
    hi, late = [frame.pts or 0 for frame in call.all(TTSTextFrame)]
    assert 0.5 <= (late - hi) / 1e9 < 0.8


@best_of_three
async def test_the_event_loop_is_free_while_the_engine_works() -> None:
    class Busy(ToneEngine):
        def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
            for chunk in super().synthesize(request):
                time.sleep(0.1)
                yield chunk

    async with Call(EngineTTSService(Scheduler(Busy()))) as call:
        await call.send(*turn("One two three four five."))
        worst = await worst_lag(call)
    in_time(worst, 0.08)


# Interruptions


async def test_an_interruption_stops_the_engine_and_nothing_old_is_heard_after_it() -> None:
    engine = GatedTone()
    async with Call(EngineTTSService(Scheduler(engine))) as call:
        await call.send(*turn("One two three four five six seven eight nine ten."))
        engine.permits.release(2)
        await call.after(TTSAudioRawFrame, 2)
        await call.send(InterruptionFrame())
        await call.after(InterruptionFrame)
        engine.permits.release(100)
        await call.send(*turn("Now this."))
        await call.after(LLMFullResponseEndFrame)
    cut = next(i for i, frame in enumerate(call.down) if isinstance(frame, InterruptionFrame))
    before, after = call.down[:cut], call.down[cut:]
    assert set(contexts(before)).isdisjoint(contexts(after))
    assert engine.steps <= 2 + 1 + 2  # two that were heard, one that was under way, two new words
    assert [type(f) for f in before].count(TTSStoppedFrame) == 0
    assert [type(f) for f in after].count(TTSStoppedFrame) == 1
    assert [f.text for f in after if isinstance(f, TTSTextFrame)] == ["Now", "this."]


async def test_an_interruption_before_the_first_sound_leaves_nothing() -> None:
    engine = GatedTone()
    async with Call(EngineTTSService(Scheduler(engine))) as call:
        await call.send(*turn("One two three."))
        await call.after(TTSStartedFrame)
        await call.send(InterruptionFrame())
        await call.after(InterruptionFrame)
        engine.permits.release(100)
        await call.send(*turn("Now this."))
        await call.after(LLMFullResponseEndFrame)
    assert said(call) == ["Now", "this."]
    assert engine.steps <= 3
    assert call.errors == []


def ended(call: Call) -> int:
    """Samples of the turn that ended last, if nothing has come since."""
    last = call.down[-1]
    if not isinstance(last, TTSStoppedFrame):
        return 0
    return samples([f for f in call.down if getattr(f, "context_id", None) == last.context_id])


async def test_an_interruption_at_any_moment_leaves_the_next_turn_whole() -> None:
    tts = EngineTTSService("tone")
    async with Call(tts) as call:
        for n in range(60):
            await call.send(*turn("One two. Three 😀. ", "Four five"))
            for _ in range(n):
                await asyncio.sleep(0)
            await call.send(InterruptionFrame())
            await call.after(InterruptionFrame, n + 1)
            old, done = contexts(call.down), len(call.down)
            await call.send(TTSSpeakFrame("Yes please."))
            await call.until(lambda: ended(call) == 0.6 * RATE)
            new = contexts(call.down[done:])
            assert set(old).isdisjoint(new)
            last = [frame for frame in call.down if getattr(frame, "context_id", None) == new[-1]]
            assert samples(last) == 0.6 * RATE
            assert [type(frame) for frame in last].count(TTSStoppedFrame) == 1
    assert tts._turns == {}
    assert call.errors == []


@not_in_1_12
async def test_speech_that_must_not_be_interrupted_is_not() -> None:
    engine = GatedTone()
    async with Call(EngineTTSService(Scheduler(engine))) as call:
        frame = TTSSpeakFrame("This call is recorded.")
        frame.interruptible = False
        await call.send(frame)
        engine.permits.release(1)
        await call.after(TTSAudioRawFrame)
        await call.send(InterruptionFrame())
        await call.after(InterruptionFrame)
        engine.permits.release(100)
        await call.after(TTSStoppedFrame)
        await call.send(*turn("Yes?"))
        await call.after(LLMFullResponseEndFrame)
    assert said(call) == ["This", "call", "is", "recorded.", "Yes?"]


@pytest.mark.parametrize(
    ("seconds", "heard"),
    [(0.27, "One two"), (0.78, "One two three four."), (1.3, "One two three four. Five six")],
)
async def test_the_conversation_remembers_the_words_that_were_heard(
    seconds: float, heard: str
) -> None:
    sink, context = RealtimeSink(), LLMContext()
    async with Call(EngineTTSService("tone"), sink=sink, context=context) as call:
        # Words begin at 0, 0.18, 0.36, 0.66; 0.96, 1.2, 1.44 - of each "x." the dot takes 0.06 s.
        await call.send(*turn("One two three four. ", "Five six seven eight nine ten."))
        await call.until(lambda: sink.began is not None)
        assert sink.began
        await asyncio.sleep(sink.began + seconds - time.monotonic())
        await call.send(InterruptionFrame())
        await call.after(InterruptionFrame)
    assert context.get_messages() == [{"role": "assistant", "content": heard}]


async def test_a_turn_behind_another_that_still_plays_is_heard_later() -> None:
    sink, context = RealtimeSink(), LLMContext()
    async with Call(EngineTTSService("tone"), sink=sink, context=context) as call:
        await call.send(TTSSpeakFrame("Uno momentito."))  # 0.78 s, its last word 0.6 s
        await call.send(*turn("One two three four five."))  # at 0.78, 0.96, 1.14, 1.44
        await call.until(lambda: sink.began is not None)
        assert sink.began
        await asyncio.sleep(sink.began + 1.05 - time.monotonic())
        await call.send(InterruptionFrame())
        await call.after(InterruptionFrame)
    assert context.get_messages() == [
        {"role": "assistant", "content": "Uno momentito."},
        {"role": "assistant", "content": "One two"},
    ]


# Failures


@pytest.mark.parametrize("after", [0, 2, 4])
async def test_a_sentence_that_fails_does_not_keep_the_next_from_being_spoken(after: int) -> None:
    async with Call(EngineTTSService(Scheduler(FailingTone(after=after)))) as call:
        began = time.monotonic()
        await call.send(*turn("This is a bad."))
        await call.after(LLMFullResponseEndFrame)
        assert time.monotonic() - began < 1
        assert len(call.all(TTSAudioRawFrame)) >= after
        await call.send(*turn("Good."))
        await call.after(LLMFullResponseEndFrame, 2)
    assert said(call)[-1] == "Good."
    assert len(call.all(TTSStartedFrame)) == len(call.all(TTSStoppedFrame)) == 2
    assert call.errors[0].category is ErrorCategory.SERVER
    assert call.errors[0].error == "FailingTone: RuntimeError: out of memory"


async def test_the_rest_of_a_turn_is_spoken_after_a_sentence_that_fails() -> None:
    async with Call(EngineTTSService(Scheduler(FailingTone()))) as call:
        await call.send(*turn("This is bad. ", "This is good."))
        await call.after(LLMFullResponseEndFrame)
    assert samples(call.all(TTSAudioRawFrame)) == 0.66 * RATE
    assert len(call.errors) == 1


@pytest.mark.parametrize(
    ("error", "category", "usable"),
    [
        (OverloadedError("all in use", retry_after=1.0), ErrorCategory.RATE_LIMIT, True),
        (InvalidRequestError("no such option"), ErrorCategory.INVALID_REQUEST, False),
        (TTSError("no"), ErrorCategory.SERVER, True),
        (ValueError("no"), ErrorCategory.SERVER, True),
    ],
)
async def test_an_error_has_the_category_of_its_kind(
    error: Exception, category: ErrorCategory, usable: bool
) -> None:
    tts = EngineTTSService(Scheduler(FailingTone(error=error)))
    async with Call(tts) as call:
        await call.send(*turn("Too bad."))
        await call.after(LLMFullResponseEndFrame)
        assert call.errors[0].category is category
        assert tts.is_usable is usable


async def test_an_engine_that_hangs_is_given_up() -> None:
    async with Call(EngineTTSService(HangingEngine(tone(0.2)), patience=0.2)) as call:
        await call.send(*turn("Please hang."))
        await call.after(LLMFullResponseEndFrame)
        await call.send(*turn("Please speak."))
        await call.after(LLMFullResponseEndFrame, 2)
    assert samples(call.all(TTSAudioRawFrame)) == 0.2 * RATE
    assert call.errors[0].error == "HangingEngine: the engine gave no audio for 0.2 s"
    assert call.errors[0].category is ErrorCategory.CONNECTIVITY


async def test_an_engine_that_returns_nothing_is_an_error() -> None:
    async with Call(EngineTTSService(ScriptedEngine())) as call:
        await call.send(*turn("Anything."))
        await call.after(LLMFullResponseEndFrame)
    assert call.errors[0].error == "ScriptedEngine: the engine returned no audio for 9 characters"


async def test_after_many_turns_without_sound_the_voice_comes_back_by_itself() -> None:
    tts = EngineTTSService(Scheduler(FailingTone()))
    async with Call(tts) as call:
        for n in range(1, 5):
            await call.send(*turn("All bad."))
            await call.after(LLMFullResponseEndFrame, n)
            if n == 3:
                assert not tts.is_usable
        await call.send(*turn("Good again."))
        await call.after(LLMFullResponseEndFrame, 5)
        assert tts.is_usable
    assert samples(call.all(TTSAudioRawFrame)) == 0.6 * RATE


async def test_a_switcher_moves_on_after_three_turns_without_sound() -> None:
    services = [EngineTTSService(Scheduler(FailingTone())), EngineTTSService("tone")]
    switcher = ServiceSwitcher(list(services), ServiceSwitcherStrategyFailover)
    async with Call(switcher) as call:
        for n in range(1, 5):
            await call.send(*turn("All bad."))
            await call.after(LLMFullResponseEndFrame, n)
    assert samples(call.all(TTSAudioRawFrame)) == 0.42 * RATE


async def test_a_voice_that_does_not_exist_is_reported_at_the_start() -> None:
    tts = EngineTTSService("tone", settings=EngineTTSSettings(voice="bob"))
    async with Call(tts) as call:
        assert call.errors[0].error == "tone: no voice 'bob'; available: tone"
        assert call.errors[0].category is ErrorCategory.INVALID_REQUEST
        await call.send(*turn("Silence."))
        await call.after(LLMFullResponseEndFrame)
        assert not tts.is_usable
        await call.send(TTSUpdateSettingsFrame(delta=EngineTTSSettings(voice=None)))
        await call.send(*turn("Speech."))
        await call.after(LLMFullResponseEndFrame, 2)
    assert samples(call.all(TTSAudioRawFrame)) == 0.42 * RATE


async def test_a_package_that_is_missing_is_named_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(spec: str) -> None:
        raise MissingDependencyError(spec)

    monkeypatch.setattr("tts_plugins.speaker.open_engine", missing)
    tts = EngineTTSService("tone")
    async with Call(tts) as call:
        assert 'pip install "tts-plugins[tone]"' in call.errors[0].error
        assert not tts.is_usable
        await call.send(*turn("Silence."))
        await call.after(LLMFullResponseEndFrame)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"engine": "tonne"}, EngineNotFoundError, "no engine 'tonne'; available: "),
        ({"settings": EngineTTSSettings(speed=-1)}, InvalidRequestError, "speed -1"),
        ({"settings": EngineTTSSettings(voice="")}, InvalidRequestError, "voice"),
        ({"sample_rate": 0}, InvalidRequestError, "sample rate 0 is outside 8000 to 48000"),
        ({"patience": 0}, InvalidRequestError, "a patience of 0 s is none"),
        ({"voice": "tone"}, TypeError, "no option voice; .* settings="),
        ({"text_aggregation_mode": TextAggregationMode.TOKEN}, ValueError, "SENTENCE"),
        ({"aggregate_sentences": False}, ValueError, "SENTENCE"),
    ],
)
def test_what_can_not_be_meant_fails_where_it_is_written(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        EngineTTSService(**{"engine": "tone"} | arguments)  # type: ignore[arg-type]


# Settings and metrics


async def test_settings_change_from_one_sentence_to_the_next(log: list[str]) -> None:
    engine = SpyTone()
    async with Call(EngineTTSService(Scheduler(engine))) as call:
        start, first, second, end = turn("One. ", "Two.")
        await call.send(start, first)
        for delta in (
            EngineTTSSettings(speed=2.0),
            TTSSettings(voice="tone", language=Language.DE_DE),
        ):
            await call.send(TTSUpdateSettingsFrame(delta=delta))
        await call.send(second, end)
        await call.after(LLMFullResponseEndFrame)
        assert log == []
        nothing = EngineTTSSettings(speed=None, voice=None, language=None, model="other")
        await call.send(TTSUpdateSettingsFrame(delta=nothing), *turn("Three."))
        await call.after(LLMFullResponseEndFrame, 2)
    asked = [(r.text, r.speed, r.voice, r.language) for r in engine.requests]
    assert asked == [
        ("One.", 1.0, None, None),
        ("Two.", 2.0, "tone", "de-DE"),
        ("Three.", 1.0, None, None),
    ]
    assert [message for message in log if "[model]" in message]


async def test_a_setting_that_can_not_be_meant_is_reported_and_the_next_is_taken() -> None:
    tts = EngineTTSService("tone")
    async with Call(tts) as call:
        await call.send(TTSUpdateSettingsFrame(delta=EngineTTSSettings(speed=0)), *turn("One."))
        await call.after(LLMFullResponseEndFrame)
        assert call.errors[0].category is ErrorCategory.INVALID_REQUEST
        await call.send(TextFrame("Silence. "), *turn("Two."))
        await call.after(LLMFullResponseEndFrame, 2)
        await call.send(TTSUpdateSettingsFrame(delta=EngineTTSSettings(speed=1)), *turn("Three."))
        await call.after(LLMFullResponseEndFrame, 3)
    assert samples(call.all(TTSAudioRawFrame)) == 0.36 * RATE


async def test_metrics_are_those_of_the_speech() -> None:
    async with Call(EngineTTSService("tone"), enable_metrics=True, enable_usage_metrics=True) as c:
        await c.send(*turn("Hello there. ", "Bye."))
        await c.after(LLMFullResponseEndFrame)
    data = [item for frame in c.all(MetricsFrame) for item in frame.data]
    first = [item.value for item in data if isinstance(item, TTFBMetricsData) and item.value]
    assert len(first) == 1
    assert first[0] < 0.5
    assert [item.value for item in data if isinstance(item, TTSUsageMetricsData)] == [13, 4]
    assert {item.model for item in data if isinstance(item, TTSUsageMetricsData)} == {"tone"}


async def test_an_interrupted_request_has_no_time_to_first_byte() -> None:
    engine = GatedTone()
    async with Call(EngineTTSService(Scheduler(engine)), enable_metrics=True) as call:
        await call.send(*turn("One two three."))
        await call.after(TTSStartedFrame)
        await call.send(InterruptionFrame())
        await call.after(InterruptionFrame)
        engine.permits.release(100)
    data = [item for frame in call.all(MetricsFrame) for item in frame.data]
    assert [item for item in data if isinstance(item, TTFBMetricsData) and item.value] == []


# Lifecycle


async def test_two_services_speak_through_one_engine() -> None:
    engine = Scheduler(SpyTone())
    one, two = EngineTTSService(engine), EngineTTSService(engine)
    async with Call(one) as first, Call(two) as second:
        await first.send(*turn("Eins zwei drei."))
        await second.send(*turn("Uno dos tres."))
        await asyncio.gather(
            first.after(LLMFullResponseEndFrame), second.after(LLMFullResponseEndFrame)
        )
    assert said(first) == ["Eins", "zwei", "drei."]
    assert said(second) == ["Uno", "dos", "tres."]
    async with Call(EngineTTSService(engine)) as third:  # an object stays its owner's
        await third.send(TTSSpeakFrame("Still open."))
        await third.after(TTSStoppedFrame)
    await engine.aclose()


async def test_what_is_left_to_say_at_the_end_is_said() -> None:
    async with Call(EngineTTSService("tone")) as call:
        began = time.monotonic()
        await call.send(*turn("First. Then the rest")[:-1], EndFrame())
    assert said(call) == ["First.", "Then", "the", "rest"]
    assert time.monotonic() - began < 3
    assert len(call.all(TTSStoppedFrame)) == 1


async def test_a_call_that_is_cancelled_ends_at_once() -> None:
    engine = GatedTone()
    tts = EngineTTSService(Scheduler(engine))
    call = Call(tts)
    await call.__aenter__()
    await call.send(*turn("One two three."))
    await call.after(TTSStartedFrame)
    began = time.monotonic()
    await call.cancel()
    assert time.monotonic() - began < 0.5
    assert tts._turns == {}
    await tts.cleanup()
    engine.permits.release(100)


async def test_fifty_sessions_leave_nothing_behind() -> None:
    threads, tasks = threading.active_count(), len(asyncio.all_tasks())
    services = []
    for _ in range(50):
        tts = EngineTTSService("tone")
        async with Call(tts) as call:
            await call.send(*turn("Hi. ", "This is cut"))
            await call.after(TTSAudioRawFrame)
            await call.send(InterruptionFrame(), TTSSpeakFrame("Bye."))
            await call.after(TTSStoppedFrame)
        assert tts._turns == {}
        services.append(weakref.ref(tts))
        del tts, call
    assert _shared == {}
    async with asyncio.timeout(5):
        # The event loop keeps a few threads of its own, for what blocks.
        while threading.active_count() > threads + 4:  # noqa: ASYNC110  they tell nobody
            await asyncio.sleep(0.001)
    assert len(asyncio.all_tasks()) == tasks
    gc.collect()
    assert sum(service() is not None for service in services) <= 1
