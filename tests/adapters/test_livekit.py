from __future__ import annotations

import asyncio
import gc
import logging
import math
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import accumulate
from types import AsyncGeneratorType
from typing import Any

import pytest
from livekit.agents import (
    Agent,
    AgentSession,
    APIConnectOptions,
    APIError,
    APIStatusError,
    APITimeoutError,
    tokenize,
    tts,
)
from livekit.agents.llm import ChatMessage
from livekit.agents.metrics import TTSMetrics
from livekit.agents.types import TimedString
from livekit.agents.voice import SpeechHandle
from livekit.agents.voice.agent_session import SessionConnectOptions
from livekit.agents.voice.transcription import TranscriptSynchronizer

from tests.adapters.livekit_sink import ClockedSink, TextSink
from tests.fakes import ScriptedEngine, WordlessEngine, tone
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.engine import Engine
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.errors import (
    EngineError,
    EngineNotFoundError,
    InvalidRequestError,
    OverloadedError,
    TTSError,
    VoiceNotFoundError,
)
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import AudioChunk, SynthesisRequest

KINDS = ["stream", "synthesize"]
HURRY = APIConnectOptions(max_retry=3, retry_interval=0.01, timeout=0.05)
CALM = APIConnectOptions(max_retry=0)

Stream = tts.SynthesizeStream | tts.ChunkedStream


class Spy(EngineTTS):
    """Notes what LiveKit makes of it."""

    def __init__(self, engine: Engine | str, **options: Any) -> None:
        super().__init__(engine, **options)
        self.metrics: list[TTSMetrics] = []
        self.errors: list[tts.TTSError] = []
        self.on("metrics_collected", self.metrics.append)
        self.on("error", self.errors.append)


class Takes(ScriptedEngine):
    """Takes the next script with each request; the last one stays."""

    def __init__(self, *scripts: Sequence[AudioChunk | Exception | None]) -> None:
        super().__init__()
        self.scripts = list(scripts)

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        self.requests.append(request)
        for item in self.scripts.pop(0) if self.scripts[1:] else self.scripts[0]:
            if item is None:
                await asyncio.get_running_loop().create_future()  # for ever
            elif isinstance(item, Exception):
                raise item
            else:
                yield item


class Quoting(ToneEngine):
    """Repeats what it was to say in its error."""

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        raise ValueError(f"can't say {request.text!r}")


class GatedEngine(ToneEngine):
    """Takes a step of 100 ms of audio for each permit."""

    def __init__(self) -> None:
        super().__init__()
        self.permits = threading.Semaphore(0)
        self.steps = 0
        self.left = threading.Event()

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        try:
            while True:
                self.permits.acquire()
                self.steps += 1
                yield tone(0.1)
        finally:
            self.left.set()


class Heard:
    """What came out of a stream."""

    def __init__(self) -> None:
        self.events: list[tts.SynthesizedAudio] = []

    @property
    def pcm(self) -> bytes:
        return b"".join(event.frame.data.tobytes() for event in self.events)

    @property
    def samples(self) -> int:
        return sum(event.frame.samples_per_channel for event in self.events)

    @property
    def words(self) -> list[TimedString]:
        return [word for e in self.events for word in e.frame.userdata["lk.timed_transcripts"]]

    @property
    def text(self) -> str:
        return "".join(self.words)


def open_stream(
    speaker: tts.TTS[Any],
    text: str,
    kind: str = "stream",
    *,
    by: int = 5,
    conn_options: APIConnectOptions = CALM,
) -> Stream:
    if kind == "synthesize":
        return speaker.synthesize(text, conn_options=conn_options)
    stream = speaker.stream(conn_options=conn_options)
    for start in range(0, len(text), by):
        stream.push_text(text[start : start + by])
    stream.end_input()
    return stream


async def listen(stream: Stream, heard: Heard | None = None) -> Heard:
    heard = heard or Heard()
    async with stream:
        async for event in stream:
            heard.events.append(event)
    return heard


async def say(speaker: tts.TTS[Any], text: str, kind: str = "stream", **options: Any) -> Heard:
    return await listen(open_stream(speaker, text, kind, **options))


def beeps(text: str, rate: int = 24_000) -> int:
    """Samples that ToneEngine makes of one sentence."""
    return sum(math.ceil(round(0.06 * len(w) * 24_000) * rate / 24_000) for w in text.split())


def tone_tts(**options: Any) -> Spy:
    return Spy(Scheduler(ToneEngine(), max_ahead=math.inf), **options)


def ours() -> int:
    """How many streams, turns and generators are alive."""
    gc.collect()
    modules = ("tts_plugins.adapters.livekit", "tts_plugins.turn")
    return sum(
        type(thing).__module__ in modules or type(thing) is AsyncGeneratorType
        for thing in gc.get_objects()
    )


@contextmanager
def nothing_left() -> Iterator[None]:
    """No task, thread, stream, turn or generator outlives the block."""
    tasks, threads, things = asyncio.all_tasks(), set(threading.enumerate()), ours()
    yield
    assert asyncio.all_tasks() <= tasks
    deadline = time.monotonic() + 2
    while set(threading.enumerate()) - threads and time.monotonic() < deadline:
        time.sleep(0.001)
    assert set(threading.enumerate()) <= threads
    assert ours() <= things


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  LiveKit's objects have no event to wait for
            await asyncio.sleep(0.001)


def when(word: TimedString) -> tuple[float, float]:
    """When a word starts and ends, to the millisecond."""
    assert isinstance(word.start_time, float)
    assert isinstance(word.end_time, float)
    return round(word.start_time, 3), round(word.end_time, 3)


# What LiveKit's own tests of a TTS ask for


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_is_one_request_with_one_end(kind: str) -> None:
    speaker = tone_tts()
    heard = await say(speaker, "Hello there, everybody. How are you?", kind)
    assert len({event.request_id for event in heard.events}) == 1
    assert heard.events[0].request_id
    assert len({event.segment_id for event in heard.events}) == 1
    assert (heard.events[0].segment_id != "") == (kind == "stream")
    assert [event.is_final for event in heard.events].index(True) == len(heard.events) - 1
    assert all(0 < event.frame.duration < 0.25 for event in heard.events)
    assert all(event.frame.sample_rate == speaker.sample_rate for event in heard.events)
    assert all(event.frame.num_channels == 1 for event in heard.events)
    assert heard.samples == beeps("Hello there, everybody. How are you?")


@pytest.mark.parametrize("kind", KINDS)
async def test_metrics_are_reported_once_a_turn(kind: str) -> None:
    speaker = tone_tts()
    await say(speaker, "Hello there. How are you?", kind)
    [metrics] = speaker.metrics
    assert metrics.characters_count == 25
    assert metrics.audio_duration == pytest.approx(1.26)
    assert metrics.streamed == (kind == "stream")
    assert not metrics.cancelled
    assert metrics.label == f"{__name__}.Spy"
    assert metrics.metadata is not None
    assert metrics.metadata.model_name == "ToneEngine"
    assert metrics.metadata.model_provider == "tts_plugins"
    assert not speaker.errors


async def test_first_audio_is_timed_from_the_request_not_from_the_first_token() -> None:
    speaker = tone_tts()
    stream = speaker.stream()
    stream.push_text("Hello ")
    await asyncio.sleep(0.1)  # the model thinks
    stream.push_text("there. ")
    stream.end_input()
    await listen(stream)
    [metrics] = speaker.metrics
    assert 0 < metrics.ttfb < 0.09


@pytest.mark.parametrize("kind", KINDS)
async def test_an_engine_that_hangs_is_a_timeout_and_the_next_turn_speaks(kind: str) -> None:
    engine = Takes([None], [None], [None], [None], [tone(0.1)])
    speaker = Spy(engine)
    began = time.monotonic()
    with pytest.raises(APITimeoutError):
        await say(speaker, "Hello.", kind, conn_options=HURRY)
    assert time.monotonic() - began > 4 * 0.05
    assert [error.recoverable for error in speaker.errors] == [True, True, True, False]
    assert not speaker.metrics
    assert (await say(speaker, "Hello.", kind, conn_options=HURRY)).samples == 2400
    assert [request.text for request in engine.requests] == ["Hello."] * 5


async def test_patience_of_its_own_goes_before_the_sessions() -> None:
    began = time.monotonic()
    with pytest.raises(APITimeoutError, match=r"0\.02 s"):
        await say(Spy(Takes([None]), patience=0.02), "Hello.", conn_options=CALM)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("text", ["", " ", " \n\t "])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_turn_without_text_ends_without_audio(kind: str, text: str) -> None:
    speaker = tone_tts()
    assert (await say(speaker, text, kind)).events == []
    assert not speaker.errors


@pytest.mark.parametrize("text", ["...", "-", "😀", "?!", '<expr type="sound" label="laugh"/>'])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_turn_with_nothing_to_say_is_a_breath_of_silence(kind: str, text: str) -> None:
    engine = ScriptedEngine(tone(0.1))
    speaker = Spy(engine)
    heard = await say(speaker, text, kind)
    assert heard.pcm == bytes(2 * 480)
    assert heard.text == text
    assert not engine.requests
    assert not speaker.errors


# Audio


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 48000])
@pytest.mark.parametrize("kind", KINDS)
async def test_no_sample_is_lost_added_or_leaked_into_the_next_turn(kind: str, rate: int) -> None:
    speaker = tone_tts(sample_rate=rate)
    first = await say(speaker, "Hello there", kind)
    second = await say(speaker, "Hello there", kind)
    assert first.samples == math.ceil(beeps("Hello there") * rate / 24_000)
    assert first.pcm == second.pcm
    assert {event.frame.sample_rate for event in first.events} == {rate}


async def test_both_kinds_of_stream_sound_the_same() -> None:
    speaker = tone_tts()
    text = "Hello there. How are you today, my friend?"
    one, two, three = [
        await say(speaker, text, kind, by=by)
        for kind, by in (("synthesize", 1), ("stream", 1), ("stream", 100))
    ]
    assert one.pcm == two.pcm == three.pcm
    assert one.words == two.words == three.words


async def test_the_end_of_a_sentence_is_not_held_back_until_the_next() -> None:
    speaker = tone_tts()
    stream = speaker.stream()
    stream.push_text("Yes! ")
    heard = Heard()
    listening = asyncio.create_task(listen(stream, heard))
    await until(lambda: heard.samples == beeps("Yes!"))
    stream.push_text("No!")
    stream.end_input()
    await listening
    assert heard.samples == beeps("Yes! No!")
    assert heard.text == "Yes! No!"


async def test_a_flush_ends_the_segment(caplog: pytest.LogCaptureFixture) -> None:
    speaker = tone_tts()
    async with speaker.stream() as stream:
        stream.flush()
        stream.push_text("Hello")
        stream.flush()
        stream.push_text(" again")  # LiveKit drops it, and says so
        heard = await listen(stream)
        stream.end_input()
    assert "multiple segments" in caplog.text
    assert heard.samples == beeps("Hello")
    assert heard.events[-1].is_final


# Words


@pytest.mark.parametrize("by", [1, 7, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "Hello there, my friend. How are you?",
        "  Two  spaces,\n\n  lines\tand tabs.  ",
        "Look 😀 here 🎉! 😀😀 Bye 👋",
        "... And then? — He said: «No!»",
        "你好世界。今天天气很好。",
        "नमस्ते दुनिया। आप कैसे हैं?",
        "Dr. Smith paid $3.50 (twice) at https://example.com/a?b=c.",
        '<expr type="x" label="so warm"/> Hi! <expr type="spell">A7</expr> is 3 < 4 <exp <',
        "**Bold** and `code` [link](u) _it_",
        "nul \0 and surrogate \ud800 here",
    ],
)
async def test_the_words_joined_are_the_text(text: str, by: int) -> None:
    for engine in (ToneEngine(), WordlessEngine()):
        heard = await say(Spy(Scheduler(engine, max_ahead=math.inf)), text, by=by)
        assert heard.text == text
        times = [when(word) for word in heard.words]
        assert [start for start, _ in times] == sorted(start for start, _ in times)
        assert all(start <= end for start, end in times)


@pytest.mark.parametrize("kind", KINDS)
async def test_words_say_when_they_are_heard_and_come_before_their_audio(kind: str) -> None:
    heard = await say(tone_tts(), "Hello there. How are you?", kind)
    assert [(str(word), *when(word)) for word in heard.words] == [
        ("Hello ", 0.0, 0.3),
        ("there. ", 0.3, 0.66),
        ("How ", 0.66, 0.84),
        ("are ", 0.84, 1.02),
        ("you?", 1.02, 1.26),
    ]
    begins = [0.0, *accumulate(event.frame.duration for event in heard.events)]
    for begin, event in zip(begins, heard.events, strict=False):
        for word in event.frame.userdata["lk.timed_transcripts"]:
            assert when(word)[0] >= begin - 0.001


async def test_stage_directions_are_not_spoken() -> None:
    engine = ScriptedEngine(tone(0.1))
    text = 'Well, <expr type="sound" label="sigh"/> hello <expr type="spell">A7</expr> you.'
    assert (await say(Spy(engine), text, by=3)).text == text
    assert [" ".join(request.text.split()) for request in engine.requests] == [
        "Well, hello A7 you."
    ]


# Failures


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunks", [1, 3, 10])
async def test_a_failure_after_the_first_sound_is_never_repeated(kind: str, chunks: int) -> None:
    engine = ScriptedEngine(*[tone(0.1)] * chunks, EngineError("the model broke"))
    speaker = Spy(engine)
    heard = Heard()
    with pytest.raises(APIStatusError, match="the model broke") as caught:
        await listen(open_stream(speaker, "Hello there.", kind, conn_options=HURRY), heard)
    assert len(engine.requests) == 1
    assert not caught.value.retryable
    assert [error.recoverable for error in speaker.errors] == [False]
    assert heard.samples == 2400 * chunks


@pytest.mark.parametrize("kind", KINDS)
async def test_a_sound_too_short_for_a_frame_counts_as_heard(kind: str) -> None:
    engine = ScriptedEngine(tone(0.005), EngineError("the model broke"))
    with pytest.raises(APIStatusError):
        await say(Spy(engine), "Hello there.", kind, conn_options=HURRY)
    assert len(engine.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "error", [EngineError("a bad moment"), OverloadedError("all streams in use", retry_after=1.0)]
)
async def test_a_retry_before_the_first_sound_says_all_of_the_text(
    kind: str, error: TTSError
) -> None:
    engine = Takes([error], [tone(0.1)])
    speaker = Spy(engine)
    heard = await say(speaker, "Hello there. How are you?", kind, conn_options=HURRY)
    assert heard.samples == 4800
    assert heard.text == "Hello there. How are you?"
    assert [request.text for request in engine.requests] == [
        "Hello there.",
        "Hello there.",
        "How are you?",
    ]
    assert [error.recoverable for error in speaker.errors] == [True]
    assert len(speaker.metrics) == 1


async def test_a_retry_says_what_is_still_being_written() -> None:
    engine = Takes([EngineError("a bad moment")], [tone(0.1)])
    speaker = Spy(engine)
    stream = speaker.stream(conn_options=HURRY)
    stream.push_text("Hello there. ")
    heard = Heard()
    listening = asyncio.create_task(listen(stream, heard))
    await until(lambda: speaker.errors)
    stream.push_text("How are ")
    await until(lambda: heard.events)
    stream.push_text("you?")
    stream.end_input()
    await listening
    assert heard.text == "Hello there. How are you?"


@pytest.mark.parametrize("kind", KINDS)
async def test_what_will_never_work_is_not_retried(kind: str) -> None:
    engine = ScriptedEngine(VoiceNotFoundError("bob", ["heart"]))
    speaker = Spy(engine, voice="bob")
    with pytest.raises(APIStatusError, match="no voice 'bob'; available: heart") as caught:
        await say(speaker, "Hello.", kind, conn_options=HURRY)
    assert caught.value.status_code == 404
    assert len(engine.requests) == len(speaker.errors) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_an_engine_that_returns_nothing_is_an_error_and_tried_again(kind: str) -> None:
    engine = Takes([], [], [tone(0.1)])
    speaker = Spy(engine)
    assert (await say(speaker, "Hello.", kind, conn_options=HURRY)).samples == 2400
    assert len(engine.requests) == 3
    assert "no audio for 6 characters" in str(speaker.errors[0].error)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_that_nobody_expected_is_reported_too(kind: str) -> None:
    engine = ScriptedEngine(ValueError("cannot say secret things"))
    speaker = Spy(engine)
    with pytest.raises(APIError, match="ValueError while speaking") as caught:
        await say(speaker, "secret things", kind, conn_options=HURRY)
    assert isinstance(caught.value.__cause__, ValueError)
    assert len(engine.requests) == len(speaker.errors) == 1


async def test_the_text_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for error in (ValueError("secret"), EngineError("broken"), OverloadedError("", retry_after=1)):
        for kind in KINDS:
            with suppress(APIError):
                await say(
                    Spy(Takes([error], [tone(0.1)])), "secret. things.", kind, conn_options=HURRY
                )
    with suppress(APIError):
        engine = Scheduler(Quoting())
        await say(Spy(engine), "My secret.", KINDS[0], conn_options=HURRY)
    ours = [record for record in caplog.records if record.name.startswith("tts_plugins")]
    assert not ours
    assert "My secret" not in caplog.text
    assert "secret. " not in caplog.text


# Interruptions


async def test_an_interruption_stops_the_engine_within_a_step() -> None:
    engine = GatedEngine()
    speaker = Spy(Scheduler(engine))
    stream = open_stream(speaker, "Hello there.", conn_options=CALM)
    engine.permits.release(3)
    await anext(stream)
    await until(lambda: engine.steps == 3)
    began = time.perf_counter()
    await stream.aclose()
    assert time.perf_counter() - began < 0.05
    engine.permits.release(10)
    await asyncio.to_thread(engine.left.wait, 2)
    assert engine.steps <= 4
    assert not speaker.errors


async def test_an_interruption_does_not_wait_for_a_step_that_hangs() -> None:
    engine = GatedEngine()
    speaker = Spy(Scheduler(engine))
    stream = open_stream(speaker, "Hello there.", conn_options=CALM)
    await asyncio.sleep(0.01)
    began = time.perf_counter()
    await stream.aclose()
    assert time.perf_counter() - began < 0.05
    engine.permits.release()
    await asyncio.to_thread(engine.left.wait, 2)


@pytest.mark.parametrize("kind", KINDS)
async def test_interruptions_leave_nothing_behind(kind: str) -> None:
    speaker = EngineTTS(Scheduler(ToneEngine()))

    async def interrupted() -> None:
        stream = open_stream(speaker, "This is quite a long sentence, with many words. " * 5, kind)
        async with stream:
            await anext(stream)

    await interrupted()
    with nothing_left():
        tracemalloc.start()
        for _ in range(100):
            await interrupted()
        await asyncio.sleep(0)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 2_500_000


@pytest.mark.parametrize("kind", KINDS)
async def test_a_turn_may_be_cancelled_at_every_await(kind: str) -> None:
    speaker = EngineTTS(Scheduler(ToneEngine(), max_ahead=math.inf))
    whole = (await say(speaker, "Hello there. Bye.", kind)).pcm
    with nothing_left():
        for rounds in range(1, 40):
            for by_closing in (True, False):
                stream = open_stream(speaker, "Hello there. Bye.", kind, conn_options=CALM)
                task = asyncio.create_task(listen(stream))
                for _ in range(rounds):
                    await asyncio.sleep(0)
                if by_closing:
                    await stream.aclose()
                else:
                    task.cancel()
                await asyncio.wait([task])
        del stream, task
        assert (await say(speaker, "Hello there. Bye.", kind)).pcm == whole
        await asyncio.sleep(0)


async def test_a_turn_cancelled_while_the_engine_loads_leaves_it_usable() -> None:
    speaker = EngineTTS("tone")
    stream = open_stream(speaker, "Hello.")
    await asyncio.sleep(0)
    await stream.aclose()
    assert (await say(speaker, "Hello.")).samples == beeps("Hello.")
    await speaker.aclose()


# Options and life


async def test_options_change_for_the_next_stream_only() -> None:
    engine = ScriptedEngine(tone(0.1))
    speaker = EngineTTS(engine, voice="heart", language="en")
    before = speaker.stream()
    speaker.update_options(voice="emma", speed=1.5)
    before.push_text("One.")
    before.end_input()
    await listen(before)
    await say(speaker, "Two.")
    speaker.update_options(language=None)
    await say(speaker, "Three.")
    spoken = [(r.text, r.voice, r.language, r.speed) for r in engine.requests]
    assert spoken == [
        ("One.", "heart", "en", 1.0),
        ("Two.", "emma", "en", 1.5),
        ("Three.", "emma", None, 1.5),
    ]


@pytest.mark.parametrize(
    "options",
    [{"speed": 0}, {"speed": math.nan}, {"speed": math.inf}, {"voice": ""}, {"language": ""}],
)
def test_options_that_cannot_be_meant_are_refused_where_they_are_written(
    options: dict[str, Any],
) -> None:
    with pytest.raises(InvalidRequestError):
        EngineTTS("tone", **options)
    with pytest.raises(InvalidRequestError):
        EngineTTS("tone").update_options(**options)


def test_what_cannot_be_opened_is_refused_where_it_is_written() -> None:
    with pytest.raises(EngineNotFoundError, match="no engine 'tonne'"):
        EngineTTS("tonne")
    for rate in (7999, 48001):
        with pytest.raises(InvalidRequestError, match="sample rate"):
            EngineTTS("tone", sample_rate=rate)
    for patience in (0, -1, math.nan):
        with pytest.raises(InvalidRequestError, match="patience"):
            EngineTTS("tone", patience=patience)


def test_opening_by_name_takes_no_time() -> None:
    def seconds() -> float:
        began = time.perf_counter()
        EngineTTS("tone")
        return time.perf_counter() - began

    assert min(seconds() for _ in range(3)) < 0.05


def test_it_warms_up_without_an_event_loop() -> None:
    speaker = EngineTTS("tone")
    speaker.prewarm()
    speaker.prewarm()

    async def use() -> int:
        heard = await say(speaker, "Hello.")
        await speaker.aclose()
        await speaker.aclose()
        return heard.samples

    assert asyncio.run(use()) == beeps("Hello.")


async def test_it_warms_up_beside_a_running_event_loop() -> None:
    engine = ScriptedEngine(tone(0.1))
    speaker = EngineTTS(engine, voice="emma")
    speaker.prewarm()
    speaker.prewarm()
    await until(lambda: engine.requests)
    await say(speaker, "Hi.")
    assert [(r.text, r.voice) for r in engine.requests] == [("Hello.", "emma"), ("Hi.", "emma")]
    await speaker.aclose()


async def test_a_warm_up_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    speaker = EngineTTS(ScriptedEngine(EngineError("no such file")))
    speaker.prewarm()
    await until(lambda: caplog.records)
    assert "ScriptedEngine could not be warmed up" in caplog.text
    await speaker.aclose()


async def test_closing_ends_a_warm_up() -> None:
    speaker = EngineTTS(Takes([None]))
    with nothing_left():
        speaker.prewarm()
        await asyncio.sleep(0)
        await speaker.aclose()
        await speaker.aclose()


def test_it_registers_as_a_plugin_and_may_be_imported_on_any_thread() -> None:
    script = (
        "import threading\n"
        "from livekit.agents import Plugin\n"
        "def load(): import tts_plugins.adapters.livekit\n"
        "thread = threading.Thread(target=load); thread.start(); thread.join()\n"
        "import sys; assert 'tts_plugins.adapters.livekit' in sys.modules\n"
        "assert not Plugin.registered_plugins\n"
        "import importlib; importlib.reload(sys.modules['tts_plugins.adapters.livekit'])\n"
        "print([plugin.package for plugin in Plugin.registered_plugins])\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout == "['tts_plugins.adapters.livekit']\n", result.stderr
    assert not result.stderr


async def test_two_may_share_an_engine_at_the_same_time() -> None:
    engine = Scheduler(ToneEngine(), max_ahead=math.inf)
    low, high = EngineTTS(engine, sample_rate=8000), EngineTTS(engine, speed=2.0)
    alone = [(await say(speaker, "Hello there. Bye.")).pcm for speaker in (low, high)]
    together = await asyncio.gather(*(say(s, "Hello there. Bye.") for s in (low, high) * 5))
    assert [heard.pcm for heard in together] == alone * 5


async def test_a_long_text_keeps_every_character() -> None:
    text = "It was a bright cold day in April, and 3.5 clocks were striking. " * 1540
    heard = await say(Spy(ScriptedEngine(tone(0.01))), text, by=10)
    assert len(text) > 100_000
    assert heard.text == text
    assert heard.samples == 240 * 1540


async def test_speech_starts_before_a_long_sentence_is_written() -> None:
    speaker = tone_tts()
    words = re.findall(
        r"\S+ ", "the train to the north leaves in the morning and comes back at night " * 2
    )
    heard = Heard()
    stream = speaker.stream()
    listening = asyncio.create_task(listen(stream, heard))
    written = 0
    for word in words:
        stream.push_text(word)
        written += not heard.events
        await asyncio.sleep(0.05)  # the model writes
    stream.end_input()
    await listening
    assert written < 15
    assert heard.text == "".join(words)


# Compositions


async def test_it_speaks_through_a_stream_adapter() -> None:
    adapter = tts.StreamAdapter(
        tts=tone_tts(), sentence_tokenizer=tokenize.basic.SentenceTokenizer(min_sentence_len=1)
    )
    heard = await say(adapter, "Hello there. How are you?")
    # 10 ms of silence are the adapter's own.
    assert heard.samples == beeps("Hello there. How are you?") + 240


async def test_a_stream_adapter_does_not_repeat_what_was_heard() -> None:
    engine = ScriptedEngine(*[tone(0.1)] * 5, EngineError("the model broke"))
    adapter = tts.StreamAdapter(
        tts=EngineTTS(engine), sentence_tokenizer=tokenize.basic.SentenceTokenizer()
    )
    heard = Heard()
    with pytest.raises(APIError):
        await listen(open_stream(adapter, "Hello there.", conn_options=HURRY), heard)
    assert len(engine.requests) == 1
    assert 0 < heard.samples <= 12_000


async def test_a_fallback_takes_over_from_an_engine_that_is_dead() -> None:
    dead = EngineTTS(ScriptedEngine(EngineError("dead")))
    fallback = tts.FallbackAdapter([dead, tone_tts()], max_retry_per_tts=0)
    heard = await say(fallback, "Hello there.", conn_options=CALM)
    assert heard.samples == beeps("Hello there.")
    assert heard.text == "Hello there."
    await fallback.aclose()


async def test_a_fallback_does_not_repeat_what_was_heard() -> None:
    breaking = ScriptedEngine(*[tone(0.1)] * 5, EngineError("the model broke"))
    spare = ScriptedEngine(tone(1.0))
    fallback = tts.FallbackAdapter([EngineTTS(breaking), EngineTTS(spare)], max_retry_per_tts=1)
    heard = await say(fallback, "Hello there.", conn_options=CALM)
    assert heard.samples == 12_000
    assert not spare.requests
    await fallback.aclose()


# A whole session


class Call:
    """A session with a loudspeaker and a screen, and without ears."""

    def __init__(self, speaker: EngineTTS, **options: Any) -> None:
        self.sink, self.screen = ClockedSink(), TextSink()
        self.session: AgentSession[None] = AgentSession(
            tts=speaker,
            vad=None,
            use_tts_aligned_transcript=True,
            conn_options=SessionConnectOptions(tts_conn_options=HURRY),
            **options,
        )
        self.errors: list[object] = []
        self.closed: list[object] = []
        self.session.on("error", self.errors.append)
        self.session.on("close", self.closed.append)

    @property
    def last(self) -> ChatMessage:
        message = self.session.history.items[-1]
        assert isinstance(message, ChatMessage)
        return message

    async def say(self, text: str) -> SpeechHandle:
        handle = self.session.say(text)
        await handle.wait_for_playout()
        return handle


@asynccontextmanager
async def call(speaker: EngineTTS, **options: Any) -> AsyncGenerator[Call, None]:
    call = Call(speaker, **options)
    sync = TranscriptSynchronizer(next_in_chain_audio=call.sink, next_in_chain_text=call.screen)
    call.session.output.audio = sync.audio_output
    call.session.output.transcription = sync.text_output
    await call.session.start(Agent(instructions=""))
    try:
        yield call
    finally:
        await call.session.aclose()
        await sync.aclose()


async def test_a_session_remembers_all_of_a_turn() -> None:
    text = "Hello there, my friend! How are you?"
    async with call(tone_tts()) as phone:
        await phone.say(text)
        assert phone.last.text_content == text
        assert not phone.last.interrupted
        assert phone.screen.text == text
        assert sum(frame.samples_per_channel for frame in phone.sink.frames) == beeps(text)
        [(played, interrupted)] = phone.sink.finished
        assert played == pytest.approx(beeps(text) / 24_000)
        assert not interrupted
        assert not phone.errors


async def test_a_session_remembers_what_was_heard_of_an_interrupted_turn() -> None:
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    ends = list(accumulate(0.06 * len(word) / 0.7 for word in words))
    speaker = EngineTTS(Scheduler(ToneEngine()), speed=0.7)
    async with call(speaker) as phone:
        for moment in (0.3, 0.75, 1.2):
            handle = phone.session.say(" ".join(words))
            await phone.sink.started.wait()
            await asyncio.sleep(moment)
            began = time.perf_counter()
            handle.interrupt()
            await handle.wait_for_playout()
            assert time.perf_counter() - began < 0.05
            frames = len(phone.sink.frames)
            played, interrupted = phone.sink.finished[-1]
            assert interrupted
            assert phone.last.interrupted
            # LiveKit's synchronizer shows a word some time between its start and its end.
            heard = (phone.last.text_content or "").split()
            assert heard == words[: len(heard)]
            begun = sum(start < played for start in [0.0, *ends[:-1]])
            assert sum(end < played for end in ends) <= len(heard) <= begun
            await asyncio.sleep(0.05)
            assert len(phone.sink.frames) == frames


async def test_a_session_remembers_no_word_early_because_the_model_paused() -> None:
    async def written() -> AsyncGenerator[str, None]:
        yield "Yes! "
        await asyncio.sleep(1.2)
        yield "One two three four five six seven eight nine."

    speaker = EngineTTS(Scheduler(ToneEngine()), speed=0.7)
    # LiveKit's transforms would hold back so short a beginning.
    async with call(speaker, tts_text_transforms=None) as phone:
        handle = phone.session.say(written())
        await phone.sink.started.wait()
        await asyncio.sleep(1.2 + 0.45)
        handle.interrupt()
        await handle.wait_for_playout()
        assert (phone.last.text_content or "").strip() in ("Yes! One", "Yes! One two")


async def test_a_session_survives_turns_without_words() -> None:
    async with call(tone_tts()) as phone:
        for text in ("...", "-", "?!", "...", "...", "..."):
            await phone.say(text)
        assert not phone.errors
        assert not phone.closed
        await phone.say("Yes!")
        assert phone.last.text_content == "Yes!"


async def test_a_session_goes_on_after_an_engine_failed() -> None:
    engine = Takes([tone(0.1)], [None], [None], [None], [None], [tone(0.1)])
    async with call(EngineTTS(engine)) as phone:
        await until(lambda: engine.requests)  # the warm-up
        handle = await phone.say("One.")
        # LiveKit itself doesn't look at it, so asyncio would complain later.
        assert isinstance(handle._tasks[0].exception(), APITimeoutError)
        assert len(phone.errors) == 4
        await phone.say("Two.")
        assert phone.last.text_content == "Two."
        assert len(phone.sink.finished) == 1
        assert not phone.closed


async def test_a_session_leaves_nothing_running() -> None:
    speaker = EngineTTS(Scheduler(ToneEngine()))
    tasks = asyncio.all_tasks()
    async with call(speaker) as phone:
        for _ in range(5):
            handle = phone.session.say("This is going to be a rather long sentence.")
            await phone.sink.started.wait()
            handle.interrupt()
            await handle.wait_for_playout()
    await speaker.aclose()
    await until(lambda: asyncio.all_tasks() <= tasks)
