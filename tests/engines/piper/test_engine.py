"""The engine as the others see it: requests in, chunks and words out, or a clear error."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engines.piper import tiny
from tts_plugins.engines.piper import PiperEngine
from tts_plugins.engines.piper.letters import LettersReader
from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    UnreadableTextWarning,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.interruption import Interruption
from tts_plugins.phonemes.pronounced import Pronounced
from tts_plugins.registry import open_engine
from tts_plugins.scheduler import Scheduler
from tts_plugins.testing import check_engine
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Word

SENTENCE = "Hello there, how are you today?"


@pytest.fixture(scope="module")
def tiny_engine(tiny_voice: Path) -> PiperEngine:
    return PiperEngine(tiny_voice)


@pytest.fixture(scope="module")
def choir(tiny_choir: Path) -> PiperEngine:
    return PiperEngine(tiny_choir)


def speak(engine: PiperEngine, text: str, **settings: object) -> list[AudioChunk]:
    return list(engine.synthesize(SynthesisRequest(text, **settings)))  # type: ignore[arg-type]


def samples_of(chunks: Sequence[AudioChunk]) -> Samples:
    return np.concatenate([chunk.samples for chunk in chunks])


def words_of(chunks: Sequence[AudioChunk]) -> list[Word]:
    return [word for chunk in chunks for word in chunk.words]


def assert_words_are_lawful(text: str, chunks: Sequence[AudioChunk]) -> None:
    words = words_of(chunks)
    assert all(text[w.offset : w.offset + len(w.text)] == w.text for w in words)
    assert all(0 <= word.start <= word.end for word in words)
    assert all(a.start <= b.start for a, b in pairwise(words))
    assert all(a.offset < b.offset for a, b in pairwise(words))
    heard = 0.0
    for i, chunk in enumerate(chunks):
        heard += chunk.seconds
        assert all(word.start <= heard + 1e-9 for word in chunk.words)
        # None of the words that come later should have started by now.
        later = words_of(chunks[i + 1 :])
        assert all(word.start >= heard - 1e-9 for word in later)
    assert heard >= max((word.end for word in words), default=0.0) - 1e-9


@pytest.mark.parametrize(
    "text",
    [
        SENTENCE,
        "Call me at 9:30 tomorrow; Dr. Smith owes $3.2 billion to 555-1234 & 42.50.",
        'One. Two! Three? And "so" on',
    ],
)
def test_each_word_of_a_text_comes_in_time(engine: PiperEngine, text: str) -> None:
    chunks = speak(engine, text)
    assert_words_are_lawful(text, chunks)
    said = [word for word in text.split() if any(c.isalnum() for c in word)]
    assert [word.text for word in words_of(chunks)] == said
    assert all(word.exact for word in words_of(chunks))
    assert all(chunk.sample_rate == engine.sample_rate == 22_050 for chunk in chunks)
    assert all(chunk.samples.dtype == np.float32 for chunk in chunks)


@settings(max_examples=30, deadline=None)
@given(st.text("abc XY.,!?é你😀\n\x00", max_size=60))
def test_each_word_of_any_text_comes_in_time(tiny_engine: PiperEngine, text: str) -> None:
    with pytest.warns(UnreadableTextWarning) if "你" in text or "é" in text else _nothing():
        try:
            chunks = speak(tiny_engine, text)
        except UnspeakableTextError:
            return
    assert_words_are_lawful(text, chunks)
    assert np.isfinite(samples_of(chunks)).all()


class _nothing:  # noqa: N801  a context, like the others
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_a_word_is_heard_when_it_is_said_to_be(engine: PiperEngine) -> None:
    samples = samples_of(chunks := speak(engine, "Stop, stop, stop.", options={"seed": 0}))
    level = np.abs(samples[: len(samples) // 220 * 220]).reshape(-1, 220).max(axis=1)
    loud = level > 0.02
    onsets = (np.flatnonzero(loud[1:] & ~loud[:-1]) + 1) / 100
    for word in words_of(chunks)[1:]:
        assert np.abs(onsets - word.start).min() < 0.06


def test_the_first_chunk_is_short_and_the_later_ones_are_longer(engine: PiperEngine) -> None:
    lengths = [len(c.samples) / 256 for c in speak(engine, "This is quite a long sentence " * 3)]
    assert 8 < lengths[0] < 17  # it has lost its silence
    assert lengths[1:4] == [32, 32, 32]
    assert all(length >= 11 for length in lengths[1:])


def test_speech_begins_at_once_and_whole(engine: PiperEngine) -> None:
    samples = samples_of(speak(engine, SENTENCE, options={"seed": 0}))
    first = int(np.flatnonzero(np.abs(samples) > 0.0025)[0])
    assert first == 176  # 8 ms in which a sound may begin softly


def test_a_seed_repeats_the_audio(tiny_engine: PiperEngine) -> None:
    one = samples_of(speak(tiny_engine, SENTENCE, options={"seed": 7}))
    assert np.array_equal(one, samples_of(speak(tiny_engine, SENTENCE, options={"seed": 7})))
    other = samples_of(speak(tiny_engine, SENTENCE, options={"seed": 8}))
    assert one.shape != other.shape or not np.array_equal(one, other)
    fresh, another = (samples_of(speak(tiny_engine, SENTENCE)) for _ in range(2))
    assert fresh.shape != another.shape or not np.array_equal(fresh, another)


def test_an_engine_may_have_a_seed_of_its_own(tiny_voice: Path, tiny_engine: PiperEngine) -> None:
    seeded = samples_of(speak(PiperEngine(tiny_voice, seed=7), SENTENCE))
    given = samples_of(speak(tiny_engine, SENTENCE, options={"seed": 7}))
    assert np.array_equal(seeded, given)


def test_a_seed_repeats_whatever_the_sizes_of_the_chunks(
    tiny_engine: PiperEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "one two three. four five. six seven eight nine ten"
    usual = samples_of(speak(tiny_engine, text, options={"seed": 1}))
    monkeypatch.setattr("tts_plugins.engines.piper.speaker._CHUNKS", (5, 9, 100))
    monkeypatch.setattr("tts_plugins.engines.piper.speaker._FLOW_CHUNK", 3)
    other = samples_of(speak(tiny_engine, text, options={"seed": 1}))
    assert other.shape == usual.shape
    assert np.abs(other - usual).max() < 1e-5


def test_streams_side_by_side_do_not_disturb_each_other(engine: PiperEngine) -> None:
    texts = ["Hello there, you.", "How are you today?"]
    alone = [samples_of(speak(engine, text, options={"seed": 1})) for text in texts]
    streams = [engine.synthesize(SynthesisRequest(text, options={"seed": 1})) for text in texts]
    made: list[list[Samples]] = [[], []]
    while any(map(_more, streams, made)):
        pass
    for parts, samples in zip(made, alone, strict=True):
        assert np.array_equal(np.concatenate(parts), samples)


def _more(stream: object, made: list[Samples]) -> bool:
    chunk = next(stream, None)  # type: ignore[call-overload]
    if chunk is not None:
        made.append(chunk.samples)
    return chunk is not None


def test_streams_on_several_threads_do_not_disturb_each_other(tiny_engine: PiperEngine) -> None:
    texts = [f"text number {letter} of these, and no other" for letter in "abcd"]
    alone = [samples_of(speak(tiny_engine, text, options={"seed": 1})) for text in texts]
    together: dict[str, Samples] = {}

    def run(text: str) -> None:
        together[text] = samples_of(speak(tiny_engine, text, options={"seed": 1}))

    threads = [threading.Thread(target=run, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for text, samples in zip(texts, alone, strict=True):
        assert np.array_equal(together[text], samples)


def test_a_book_starts_at_once_and_can_be_closed(engine: PiperEngine) -> None:
    book = "It was the best of times, it was the worst of times. " * 2000
    stream = engine.synthesize(SynthesisRequest(book))
    assert 0.1 < next(stream).seconds < 0.2
    stream.close()
    assert next(stream, None) is None


def test_a_step_ends_when_nobody_waits_for_it_any_more(engine: PiperEngine) -> None:
    interruption = Interruption()
    stream = engine.synthesize(SynthesisRequest(SENTENCE))
    with interruption.concerns():
        next(stream)
        interruption.interrupt()
        with pytest.raises(EngineError, match="the voice failed"):
            next(stream)


def test_a_book_without_a_sound_is_read_for_nobody_who_hung_up(
    tiny_engine: PiperEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption, asked = Interruption(), list[int]()

    def read(*_: object) -> Iterator[Pronounced]:
        for piece in range(1000):
            if piece == 3:
                interruption.interrupt()
            asked.append(piece)
            yield Pronounced("", (), (), ends_sentence=True)

    monkeypatch.setattr(LettersReader, "read", read)
    with interruption.concerns():
        assert speak(tiny_engine, "hello") == []
    assert asked == [0, 1, 2, 3]


def test_who_hangs_up_while_a_voice_is_loaded_leaves_it_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "ab":
        tiny.write(tmp_path / f"{name}.onnx", tiny.voice())
    engine = PiperEngine(tmp_path)
    interruption = Interruption()
    interruption.interrupt()
    with interruption.concerns():
        assert speak(engine, "hello", voice="b") == []
    assert len(words_of(speak(engine, "hello there", voice="b"))) == 2
    assert caplog.records == []


async def test_it_keeps_the_contract(tiny_voice: Path) -> None:
    engine = PiperEngine(tiny_voice, seed=0)
    results = await check_engine(Scheduler(engine, workers=2, max_ahead=math.inf))
    assert len(results) == 13
    assert [str(check) for check in results if not check.passed] == []


def test_it_is_an_entry_point_that_takes_its_options(tiny_voice: Path) -> None:
    opened = open_engine("piper", model=str(tiny_voice), voice="tiny", seed=3)
    assert isinstance(opened, Scheduler)
    assert isinstance(opened.engine, PiperEngine)
    opened.close()


def test_speed_and_length_change_the_pace(tiny_engine: PiperEngine) -> None:
    def seconds(**settings: object) -> float:
        return sum(chunk.seconds for chunk in speak(tiny_engine, SENTENCE, **settings))

    def options(**options: object) -> dict[str, object]:
        return {"options": {"seed": 0, "noise_w": 0, **options}}

    plain = seconds(**options())
    assert seconds(speed=0.5, **options()) == seconds(**options(length_scale=2.0))
    assert 1.6 < seconds(speed=0.5, **options()) / plain < 2.2
    assert 0.4 < seconds(speed=2.0, **options()) / plain < 0.75
    assert seconds(speed=2.0, **options(length_scale=2.0)) == plain


def test_noise_is_an_option_by_each_of_its_names(tiny_engine: PiperEngine) -> None:
    def said(**options: object) -> Samples:
        return samples_of(speak(tiny_engine, SENTENCE, options={"seed": 1, **options}))

    assert not np.array_equal(said(), said(noise_scale=0))
    assert np.array_equal(said(noise_w=0.3), said(noise_w_scale=0.3))
    assert np.array_equal(said(), said(noise_scale=0.667, noise_w=0.8, length_scale=1))
    assert np.array_equal(said(), said(noise_scale=None))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"speed": 0.2}, "speed 0.2 is outside 0.25 to 4.0"),
        ({"speed": float("nan")}, "speed nan is outside"),
        ({"language": "en"}, "the piper voice 'tiny' speaks 'eo', not 'en'; choose a voice"),
        ({"options": {"pitch": 2}}, "piper has no option pitch; it has: length_scale, noise"),
        ({"options": {"seed": "1"}}, "an int from 0 up, not '1'"),
        ({"options": {"seed": True}}, "an int from 0 up, not True"),
        ({"options": {"length_scale": 0}}, "length_scale is a number from 0.25 to 4, not 0"),
        ({"options": {"noise_scale": 3}}, "noise_scale is a number from 0 to 2, not 3"),
        ({"options": {"noise_w": -1}}, "noise_w is a number from 0 to 2, not -1"),
        (
            {"options": {"noise_w_scale": "much"}},
            "w_scale is a number from 0 to 2, not 'much'",
        ),
        (
            {"options": {"noise_scale": float("nan")}},
            "scale is a number from 0 to 2, not nan",
        ),
        ({"options": {"noise_w": 1, "noise_w_scale": 1}}, "one option: give one of them"),
    ],
)
def test_settings_that_never_work_are_refused(
    tiny_engine: PiperEngine, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        speak(tiny_engine, "hello", **settings)


@pytest.mark.parametrize("language", [None, "", "eo", "EO", "eo_XX"])
def test_its_language_is_spoken_by_any_name(tiny_engine: PiperEngine, language: str) -> None:
    assert speak(tiny_engine, "saluton", language=language)


@pytest.mark.parametrize("text", ["", " \n", "…!?", "😀", "---", "\x00", "\ud800"])
def test_a_text_without_words_is_unspeakable(engine: PiperEngine, text: str) -> None:
    with pytest.raises(UnspeakableTextError, match="no word in the text"):
        speak(engine, text)


def test_a_text_in_another_script_is_unspeakable_and_told(
    tiny_voice: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = PiperEngine(tiny_voice)
    remedy = "'tiny' can't read ARMENIAN script; choose a voice for that language"
    for _ in range(2):
        with (
            pytest.warns(UnreadableTextWarning, match=remedy),
            pytest.raises(UnspeakableTextError, match=remedy),
        ):
            speak(engine, "Բարեւ, աշխարհ")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Բարեւ" not in caplog.text


def test_words_that_are_not_heard_come_all_the_same(tiny_engine: PiperEngine) -> None:
    with pytest.warns(UnreadableTextWarning, match="CJK"):
        chunks = speak(tiny_engine, "say. 好. it. 好")
    words = words_of(chunks)
    assert [word.text for word in words] == ["say.", "好.", "it.", "好"]
    assert words[1].start == words[1].end
    assert len(chunks[-1].samples) == 160  # 20 ms, which carry the last word


def test_sounds_that_a_voice_was_not_taught_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fields = tiny.config(phoneme_type="espeak", espeak={"voice": "en-us"})
    engine = PiperEngine(tiny.write(tmp_path / "poor.onnx", tiny.voice(), fields))
    for _ in range(2):
        assert speak(engine, "The thing is there.")
    (record,) = caplog.records
    assert record.getMessage().startswith("the piper voice 'poor' has no sound for ")
    assert "ð" in record.getMessage()


def test_each_speaker_is_a_voice(choir: PiperEngine) -> None:
    assert [(v.id, v.language, v.description) for v in choir.voices()] == [
        ("choir#alto", "eo", "choir.onnx"),
        ("choir#tenor", "eo", "choir.onnx"),
        ("choir#bass", "eo", "choir.onnx"),
    ]
    said = [
        samples_of(speak(choir, SENTENCE, voice=voice, options={"seed": 1}))
        for voice in (None, "choir", "choir#alto", "choir#bass")
    ]
    assert np.array_equal(said[0], said[1])
    assert np.array_equal(said[0], said[2])
    assert not np.array_equal(said[0][:500], said[3][:500])


def test_a_speaker_may_be_the_default(tiny_choir: Path, choir: PiperEngine) -> None:
    engine = PiperEngine(tiny_choir, voice="choir#bass")
    bass = samples_of(speak(choir, SENTENCE, voice="choir#bass", options={"seed": 1}))
    assert np.array_equal(samples_of(speak(engine, SENTENCE, options={"seed": 1})), bass)


def test_a_folder_of_voices_is_loaded_one_by_one(tmp_path: Path) -> None:
    tiny.write(tmp_path / "a.onnx", tiny.voice())
    broken = tiny.write(tmp_path / "b.onnx", tiny.voice(seed=1))
    broken.write_text("<html>")
    tiny.write(tmp_path / "c.onnx", tiny.voice(seed=2), tiny.config(audio={"sample_rate": 16_000}))
    engine = PiperEngine(tmp_path)
    assert [voice.id for voice in engine.voices()] == ["a", "b", "c"]
    assert engine.sample_rate == 8000
    assert {chunk.sample_rate for chunk in speak(engine, "hello", voice="c")} == {16_000}
    with pytest.raises(EngineError, match=r"b.onnx isn't a voice of Piper"):
        speak(engine, "hello", voice="b")
    assert speak(engine, "hello")
    tiny.write(tmp_path / "b.onnx", tiny.voice(seed=1))
    assert speak(engine, "hello", voice="b")


def test_voices_that_nobody_asks_for_any_more_are_let_go_of(tmp_path: Path) -> None:
    for name in "ab":
        tiny.write(tmp_path / f"{name}.onnx", tiny.voice())
    engine = PiperEngine(tmp_path, most_loaded=1)
    stream = engine.synthesize(SynthesisRequest("one two three. four."))
    next(stream)
    assert speak(engine, "hello", voice="b")
    assert len(words_of(list(stream))) >= 1  # who speaks keeps theirs
    (tmp_path / "a.onnx").unlink()
    assert speak(engine, "hello", voice="b")
    with pytest.raises(EngineError, match=r"can't read the voice file .*a.onnx"):
        speak(engine, "hello", voice="a")
    with pytest.raises(InvalidRequestError, match="most_loaded is an int from 1 up, not 0"):
        PiperEngine(tmp_path, most_loaded=0)


@pytest.mark.parametrize("count", [None, 0, 1])
def test_a_network_that_asks_who_speaks_is_told_though_there_is_but_one(
    tmp_path: Path, choir: PiperEngine, count: int | None
) -> None:
    path = tiny.write(
        tmp_path / "one.onnx", tiny.voice(speakers=3), tiny.config(num_speakers=count)
    )
    engine = PiperEngine(path)
    assert [voice.id for voice in engine.voices()] == ["one"]
    first = samples_of(speak(choir, SENTENCE, voice="choir#alto", options={"seed": 1}))
    assert np.array_equal(samples_of(speak(engine, SENTENCE, options={"seed": 1})), first)


def test_a_letter_that_is_damaged_is_told_when_it_is_said(tmp_path: Path) -> None:
    z = (len(tiny.SIGNS) + 25) * 8
    model = tiny.damaged(tiny.voice(), (35, 8), math.nan, at=z)
    engine = PiperEngine(tiny.write(tmp_path / "v.onnx", model))
    assert speak(engine, "all but one")
    with pytest.raises(EngineError, match="gives no sound: its file is damaged; get it again"):
        speak(engine, "zebra")


def test_what_is_spoken_in_one_go_is_looked_at_too(tmp_path: Path) -> None:
    model = tiny.damaged(tiny.voice(), (1, 4, 7), math.nan)
    for node in model.graph.node:
        if node.op_type == "Ceil":
            node.op_type = "Round"
    engine = PiperEngine(tiny.write(tmp_path / "v.onnx", model))
    with pytest.raises(EngineError, match="gives no sound: its file is damaged; get it again"):
        speak(engine, "hello")


def test_an_id_that_the_network_lacks_is_told(tmp_path: Path) -> None:
    table = tiny.config()["phoneme_id_map"] | {"z": 60_000}
    fields = tiny.config(phoneme_id_map=table)
    engine = PiperEngine(tiny.write(tmp_path / "v.onnx", tiny.voice(), fields))
    with pytest.raises(EngineError, match=r"^the voice failed: "):
        speak(engine, "zebra")


def test_an_unknown_voice_is_refused_with_those_there_are(
    choir: PiperEngine, tiny_voice: Path
) -> None:
    message = "no voice 'bob'; available: choir#alto, choir#tenor, choir#bass"
    with pytest.raises(VoiceNotFoundError, match=message):
        speak(choir, "hello", voice="bob")
    with pytest.raises(VoiceNotFoundError, match="no voice 'bob'; available: tiny"):
        PiperEngine(tiny_voice, voice="bob")


def test_a_voice_that_can_not_be_streamed_is_spoken_without_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny.voice()
    for node in model.graph.node:
        if node.op_type == "Ceil":
            node.op_type = "Round"
    with caplog.at_level(logging.WARNING):
        engine = PiperEngine(tiny.write(tmp_path / "other.onnx", model))
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "other.onnx can't be streamed (0 Ceil nodes instead of one): "
        "it is spoken a sentence at a time, without word times"
    )
    chunks = speak(engine, "hello there. and more.")
    assert len(chunks) == 2
    assert words_of(chunks) == []


def test_a_device_that_is_not_there_is_told(tiny_voice: Path) -> None:
    with pytest.raises(EngineError, match=r"no CUDAExecutionProvider, only .*onnxruntime-gpu"):
        PiperEngine(tiny_voice, device="cuda")
    with pytest.raises(InvalidRequestError, match="no device 'tpu'; there are cpu, cuda"):
        PiperEngine(tiny_voice, device="tpu")


def test_a_language_that_can_not_be_read_is_told(tmp_path: Path) -> None:
    fields = tiny.config(phoneme_type="espeak", espeak={"voice": "qqq"})
    with pytest.raises((InvalidRequestError, EngineError), match="espeak"):
        PiperEngine(tiny.write(tmp_path / "v.onnx", tiny.voice(), fields))


def test_a_closed_engine_says_so(tiny_voice: Path) -> None:
    engine = PiperEngine(tiny_voice)
    stream = engine.synthesize(SynthesisRequest("hello there, you"))
    next(stream)
    engine.close()
    list(stream)
    with pytest.raises(EngineError, match="closed"):
        speak(engine, "hello")
