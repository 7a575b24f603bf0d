"""The engine as the others see it: requests in, chunks out, or a clear error."""

from __future__ import annotations

import math
import threading
import unicodedata
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pipecat.frames.frames import TTSAudioRawFrame, TTSSpeakFrame, TTSStoppedFrame

from tests.adapters.pipecat_call import Call, logged
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService
from tts_plugins.audio.pcm import from_s16
from tts_plugins.engine import BlockingCloner
from tts_plugins.engines.vieneu import VieNeuEngine
from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.interruption import Interruption
from tts_plugins.registry import open_engine
from tts_plugins.scheduler import Scheduler
from tts_plugins.testing import check_engine
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice

TEXT = "Xin chào các bạn, hôm nay trời đẹp quá."
SURE = {"temperature": 0.0}
"""The same audio every time."""


def speak(engine: VieNeuEngine, text: str = TEXT, **settings: Any) -> list[AudioChunk]:
    return list(engine.synthesize(SynthesisRequest(text, **settings)))


def samples_of(chunks: Sequence[AudioChunk]) -> Samples:
    return np.concatenate([chunk.samples for chunk in chunks])


@pytest.fixture(params=["turbo", "nano"])
def engine(request: pytest.FixtureRequest) -> VieNeuEngine:
    found: VieNeuEngine = request.getfixturevalue(request.param)
    return found


async def test_it_keeps_the_contract(engine: VieNeuEngine) -> None:
    checks = await check_engine(Scheduler(engine, max_ahead=math.inf))
    assert [str(check) for check in checks if not check.passed] == []


async def test_it_is_opened_by_its_name_with_the_sdk_as_it_is(
    turbo: VieNeuEngine,  # which has the hub's cache made
) -> None:
    engine = open_engine("vieneu", device="cpu", threads=1, voice="Mai Anh", max_streams=4)
    try:
        assert isinstance(engine, Scheduler)
        assert isinstance(engine.engine, VieNeuEngine)
        assert engine.engine.workers == 1
        assert engine.can_clone
        chunks = [chunk async for chunk in engine.stream(SynthesisRequest(TEXT))]
        assert sum(chunk.seconds for chunk in chunks) > 1
    finally:
        await engine.aclose()


def test_turbo_takes_a_frame_of_80_ms_a_step(turbo: VieNeuEngine) -> None:
    chunks = speak(turbo)
    assert {chunk.sample_rate for chunk in chunks} == {48_000}
    # The first has lost some of its soft beginning.
    assert all(len(chunk.samples) == 3840 for chunk in chunks[1:])
    assert 3000 < len(chunks[0].samples) <= 3840


def test_more_frames_make_longer_steps_of_the_same_audio(turbo: VieNeuEngine) -> None:
    with closing(VieNeuEngine(device="cpu", threads=1, frames=3)) as other:
        chunks = speak(other, options=SURE)
        assert {len(chunk.samples) for chunk in chunks[1:-1]} == {11_520}
    assert np.array_equal(samples_of(chunks), samples_of(speak(turbo, options=SURE)))


def test_nano_gives_its_first_clause_before_it_makes_the_next(nano: VieNeuEngine) -> None:
    text = "Vâng, chào anh, em nghe đây ạ. Hôm nay cửa hàng mở cửa từ tám giờ sáng."
    asked: list[str] = []
    infer = nano._sdk.infer_stream

    def spy(piece: str, **settings: object) -> Generator[Samples, None, None]:
        asked.append(piece)
        yield from infer(piece, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nano._sdk, "infer_stream", spy)
        stream = nano.synthesize(SynthesisRequest(text))
        first = next(stream)
        assert asked == ["Vâng, chào anh, em nghe đây ạ."]
        rest = list(stream)
    assert len(asked) == 2
    assert {chunk.sample_rate for chunk in rest} == {24_000}
    assert max(chunk.seconds for chunk in [first, *rest]) == 0.25


def test_nano_pauses_between_sentences_for_half_a_second(nano: VieNeuEngine) -> None:
    samples = samples_of(speak(nano, "Hôm nay trời đẹp quá nhỉ. Ngày mai trời cũng đẹp lắm đấy."))
    blocks = np.abs(samples[: len(samples) // 240 * 240]).reshape(-1, 240).max(axis=1)
    (quiet,) = np.split(blocks, np.flatnonzero(np.diff(blocks > 0.01)) + 1)[1::2]
    assert 0.40 < len(quiet) / 100 < 0.55


@pytest.mark.parametrize("speed", [0.5, 1.5, 2.0])
def test_speed_changes_the_pace(engine: VieNeuEngine, speed: float) -> None:
    plain, other = (len(samples_of(speak(engine, speed=s))) for s in (1.0, speed))
    assert other == pytest.approx(plain / speed, rel=0.05)


def test_a_cue_is_spoken_even_alone(engine: VieNeuEngine) -> None:
    assert speak(engine, "[cười]")
    assert len(samples_of(speak(engine, f"{TEXT} [thở dài]"))) > len(samples_of(speak(engine)))


def test_a_quiet_beginning_is_left_out(turbo: VieNeuEngine) -> None:
    def late(*_: object, **__: object) -> Generator[Samples, None, None]:
        yield np.zeros(10_000, np.float32)
        yield np.concatenate([np.zeros(1000, np.float32), np.full(1000, 0.5, np.float32)])
        yield np.zeros(1000, np.float32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turbo._sdk, "infer_stream", late)
        chunks = speak(turbo)
    assert [len(chunk.samples) for chunk in chunks] == [1384, 1000]


# Streams


def test_streams_that_take_turns_do_not_disturb_each_other(engine: VieNeuEngine) -> None:
    texts = ["Xin chào các bạn nhé.", "Hôm nay trời đẹp quá.", "Hẹn gặp lại bạn ngày mai nha."]
    sure = SURE if engine.sample_rate == 48_000 else {}
    alone = [samples_of(speak(engine, text, options=sure)) for text in texts]
    streams = [engine.synthesize(SynthesisRequest(text, options=sure)) for text in texts]
    heard: list[list[AudioChunk]] = [[] for _ in texts]
    going = list(range(len(texts)))
    while going:
        for i in list(going):
            if (chunk := next(streams[i], None)) is None:
                going.remove(i)
            else:
                heard[i].append(chunk)
    for chunks, samples in zip(heard, alone, strict=True):
        assert np.array_equal(samples_of(chunks), samples)


def test_streams_on_many_threads_do_not_disturb_each_other(turbo: VieNeuEngine) -> None:
    voices = ["Mai Anh", "Hải Đăng", "Trúc Ly", "Adam"]
    alone = [samples_of(speak(turbo, voice=voice, options=SURE)) for voice in voices]
    assert len({samples.tobytes() for samples in alone}) == 4
    together: dict[str, Samples] = {}

    def run(voice: str) -> None:
        together[voice] = samples_of(speak(turbo, voice=voice, options=SURE))

    threads = [threading.Thread(target=run, args=(voice,)) for voice in voices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for voice, samples in zip(voices, alone, strict=True):
        assert np.array_equal(together[voice], samples)


def test_a_stream_that_is_closed_in_the_middle_leaves_nothing_locked(engine: VieNeuEngine) -> None:
    for steps in (0, 1, 2):
        stream = engine.synthesize(SynthesisRequest(TEXT))
        for _ in range(steps):
            next(stream)
        stream.close()
    heard: list[AudioChunk] = []
    # On another thread, since a lock of this one's would let this one in again.
    thread = threading.Thread(target=lambda: heard.extend(speak(engine)), daemon=True)
    thread.start()
    thread.join(10)
    assert heard


def test_a_step_ends_at_once_for_who_has_left(engine: VieNeuEngine) -> None:
    interruption = Interruption()
    interruption.interrupt()
    stream = engine.synthesize(SynthesisRequest(TEXT))
    # What it raises is heard of by nobody.
    with interruption.concerns(), pytest.raises(EngineError, match="terminate"):
        next(stream)
    assert speak(engine)


# Voices


def test_the_sdks_voices_are_listed_by_the_names_they_are_asked_for_by(
    turbo: VieNeuEngine, nano: VieNeuEngine
) -> None:
    assert len(turbo.voices()) == 25
    assert Voice("Mai Anh", "vi-VN", "Nữ · Bắc · Phong cách tin tức") in turbo.voices()
    assert len(nano.voices()) == 11
    assert Voice("Minh Quân", "vi-VN", "Nam · Bắc · Phong cách tự nhiên") in nano.voices()


def test_a_former_name_is_the_same_voice(turbo: VieNeuEngine) -> None:
    now, formerly, default = (
        samples_of(speak(turbo, voice=voice, options=SURE))
        for voice in ("Hải Đăng", "Minh Quân Pro", None)
    )
    assert np.array_equal(now, formerly)
    assert np.array_equal(now, default)


def test_a_name_may_be_typed_with_loose_accents(engine: VieNeuEngine) -> None:
    assert speak(engine, voice=unicodedata.normalize("NFD", "Trúc Ly"))


def test_an_unknown_voice_is_told_with_those_there_are(engine: VieNeuEngine) -> None:
    with pytest.raises(VoiceNotFoundError, match=r"no voice 'alloy'; available: .*Mai Anh"):
        next(engine.synthesize(SynthesisRequest(TEXT, voice="alloy")))


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"speed": 0.4}, "speed 0.4 is outside 0.5 to 2.0"),
        ({"speed": math.nan}, "speed nan is outside"),
        ({"language": "fr"}, r"Vietnamese \('vi'\) and English \('en'\), not 'fr'"),
        ({"options": {"pitch": 2}}, "no option pitch; it has: temperature, top_k, top_p, "),
        ({"options": {"temperature": -0.1}}, "temperature is a number from 0 to 2, not -0.1"),
        ({"options": {"temperature": math.nan}}, "a number from 0 to 2, not nan"),
        ({"options": {"temperature": "hot"}}, "a number from 0 to 2, not 'hot'"),
        ({"options": {"top_k": 2.5}}, "top_k is an int from 0 to 1024, not 2.5"),
        ({"options": {"top_k": True}}, "an int from 0 to 1024, not True"),
        ({"options": {"top_p": 0}}, "top_p is a number from 0.01 to 1, not 0"),
        ({"options": {"repetition_penalty": 3}}, "a number from 1 to 2, not 3"),
        ({"options": {"max_chars": 10}}, "max_chars is an int from 40 to 512, not 10"),
    ],
)
def test_settings_that_never_work_are_refused(
    turbo: VieNeuEngine, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        speak(turbo, **settings)


def test_each_model_has_options_of_its_own(turbo: VieNeuEngine, nano: VieNeuEngine) -> None:
    every: dict[str, object] = {
        "temperature": 0.7,
        "top_k": 1,
        "top_p": 1,
        "repetition_penalty": 1,
        "max_chars": 64,
    }
    assert tuple(every) == turbo.request_options
    assert speak(turbo, options=every)
    every = {"steps": 2, "cfg": 0, "sway": -1, "max_chars": 64}
    assert tuple(every) == nano.request_options
    assert speak(nano, options=every)
    with pytest.raises(InvalidRequestError, match="no option top_k; it has: steps, cfg, sway"):
        speak(nano, options={"top_k": 5})


@pytest.mark.parametrize("language", [None, "vi", "vi-VN", "VI_vn", "en-US"])
def test_its_languages_are_spoken_by_any_name(turbo: VieNeuEngine, language: str | None) -> None:
    assert next(turbo.synthesize(SynthesisRequest("Hi.", language=language)))


@pytest.mark.parametrize("text", ["", " \n", "…!?", "😀", "\x00", "\ud800", "你好", "Привет"])
def test_a_text_that_it_cannot_read_is_unspeakable(engine: VieNeuEngine, text: str) -> None:
    with pytest.raises(UnspeakableTextError):
        speak(engine, text)


def test_what_the_sdk_raises_becomes_one_line_without_what_was_to_be_said(
    engine: VieNeuEngine,
) -> None:
    def broken(text: str, **_: object) -> Generator[Samples, None, None]:
        yield np.full(100, 0.5, np.float32)
        raise KeyError(f"{text}\nsecond line")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._sdk, "infer_stream", broken)
        stream = engine.synthesize(SynthesisRequest("Bí mật."))
        next(stream)
        with pytest.raises(EngineError, match="VieNeu failed: KeyError: ") as caught:
            next(stream)
    assert "Bí mật" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_panic_of_the_sdks_becomes_an_error_like_any_other(engine: VieNeuEngine) -> None:
    from sea_g2p import Normalizer

    def panics(_: str, **__: object) -> Generator[Samples, None, None]:
        yield np.full(100, 0.5, np.float32)
        Normalizer().normalize("1." * 500)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._sdk, "infer_stream", panics)
        stream = engine.synthesize(SynthesisRequest("Bí mật."))
        next(stream)
        with pytest.raises(EngineError, match=r"sea-g2p gave up .*: say it in plainer words"):
            next(stream)


def test_numbers_without_end_are_spoken(engine: VieNeuEngine) -> None:
    with closing(engine.synthesize(SynthesisRequest("123,456.78 " * 1819))) as stream:
        assert next(stream)


def test_a_closed_engine_says_so() -> None:
    engine = VieNeuEngine(device="cpu", threads=1)
    open_stream = engine.synthesize(SynthesisRequest(TEXT))
    next(open_stream)
    engine.close()
    engine.close()
    message = "this vieneu engine is closed; open another one"
    with pytest.raises(EngineError, match=message):
        next(engine.synthesize(SynthesisRequest(TEXT)))
    with pytest.raises(EngineError, match=message):
        list(open_stream)
    with pytest.raises(EngineError, match=message):
        engine.voices()
    with pytest.raises(EngineError, match=message):
        engine.clone("Tôi", b"")
    with pytest.raises(EngineError, match=message):
        engine.forget("Tôi")


def test_it_is_one_that_learns(turbo: VieNeuEngine) -> None:
    assert isinstance(turbo, BlockingCloner)


# In the frameworks


def voiced(samples: NDArray[np.float32]) -> float:
    """Seconds of sound at 24 kHz."""
    return float(np.count_nonzero(np.abs(samples) > 0.01)) / 24_000


async def test_pipecat_speaks_with_it(turbo: VieNeuEngine) -> None:
    with logged("WARNING"):
        await hear_pipecat(turbo)


async def hear_pipecat(turbo: VieNeuEngine) -> None:
    async with Call(EngineTTSService(Scheduler(turbo)), rate=24_000) as call:
        await call.send(TTSSpeakFrame(TEXT))
        await call.after(TTSStoppedFrame)
        assert call.errors == []
        assert {frame.sample_rate for frame in call.all(TTSAudioRawFrame)} == {24_000}
        assert voiced(from_s16(call.audio)) > 1


async def test_livekit_speaks_with_it(turbo: VieNeuEngine) -> None:
    heard = bytearray()
    async with EngineTTS(Scheduler(turbo), sample_rate=24_000).stream() as stream:
        stream.push_text(TEXT)
        stream.end_input()
        async for event in stream:
            heard += event.frame.data.tobytes()
    assert voiced(from_s16(bytes(heard))) > 1
