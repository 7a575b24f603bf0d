"""The engine as the others see it: requests in, chunks and words out, or a clear error."""

from __future__ import annotations

import logging
import shutil
import threading
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from hibari import voices
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_plugins.engines.hibari import HibariEngine
from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    UnreadableTextWarning,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Word


def speak(engine: HibariEngine, text: str, **settings: object) -> list[AudioChunk]:
    return list(engine.synthesize(SynthesisRequest(text, **settings)))  # type: ignore[arg-type]


def samples_of(chunks: Sequence[AudioChunk]) -> Samples:
    return np.concatenate([chunk.samples for chunk in chunks])


def words_of(chunks: Sequence[AudioChunk]) -> list[Word]:
    return [word for chunk in chunks for word in chunk.words]


def assert_words_are_lawful(text: str, chunks: Sequence[AudioChunk]) -> None:
    words = words_of(chunks)
    assert [word.text for word in words] == [
        word for word in text.split() if any(c.isalnum() for c in word)
    ]
    assert all(text[w.offset : w.offset + len(w.text)] == w.text for w in words)
    assert all(0 <= word.start <= word.end for word in words)
    assert all(a.start <= b.start for a, b in pairwise(words))
    heard = 0.0
    for chunk in chunks:
        heard += chunk.seconds
        assert all(word.start <= heard + 1e-9 for word in chunk.words)
    spoken = 0.0
    for chunk in chunks:
        # None of the words that come later should have started by now.
        spoken += chunk.seconds
        words = words[len(chunk.words) :]
        assert all(word.start >= spoken - 1e-9 for word in words)
    assert heard >= max((word.end for word in words_of(chunks)), default=0.0) - 1e-9


@pytest.mark.parametrize(
    "text",
    [
        "Hello there.",
        "Call me at 9:30am tomorrow; Dr. Smith owes $3.2 billion to 555-1234 & 42.50.",
        "On 12/25/2024 10:30am we met, e.g. NASA vs. FBI\non 3 March 2024: 5km & 10 - 20 °C!",
        "\"Wait…\" — she said 'no' (twice) — don't/can't; 50% of x² is ½, a@b.com or https://x.io/a",
        "Hi \x00foo\x01bar\ud800 café 1️⃣ 😀 ok 🇩🇪",
        "ok _a_ __ ? 7",
    ],
)
def test_each_word_of_a_hard_text_comes_in_time(engine: HibariEngine, text: str) -> None:
    chunks = speak(engine, text)
    assert_words_are_lawful(text, chunks)
    assert all(word.exact for word in words_of(chunks))
    assert all(chunk.sample_rate == 24_000 for chunk in chunks)
    assert all(chunk.samples.dtype == np.float32 for chunk in chunks)
    assert np.abs(samples_of(chunks)).max() <= 1.0


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.sampled_from(["yes", "9:30am", "$3.2", "billion", "Dr.", "555-1234", "-", "&", "42.50"])
        | st.text("aB9.,:$%-'é😀 ", min_size=1, max_size=6),
        min_size=1,
        max_size=5,
    )
)
def test_each_word_of_any_text_comes_in_time(engine: HibariEngine, parts: list[str]) -> None:
    text = " ".join(parts)
    try:
        chunks = speak(engine, text)
    except UnspeakableTextError:
        return
    assert_words_are_lawful(text, chunks)


def test_a_word_is_heard_when_it_is_said_to_be(engine: HibariEngine) -> None:
    samples = samples_of(chunks := speak(engine, "Stop, stop, stop.", options={"seed": 0}))
    level = np.abs(samples[: len(samples) // 240 * 240]).reshape(-1, 240).max(axis=1)
    loud = level > 0.03
    onsets = (np.flatnonzero(loud[1:] & ~loud[:-1]) + 1) / 100
    for word in words_of(chunks):
        assert np.abs(onsets - word.start).min() < 0.08


def test_the_words_of_an_expansion_cover_it(engine: HibariEngine) -> None:
    words = {w.text: w for w in words_of(speak(engine, "It is 9:30am on 12/25/2024 now."))}
    assert words["9:30am"].end - words["9:30am"].start > 0.6
    assert words["12/25/2024"].end - words["12/25/2024"].start > 1.2
    assert words["on"].end - words["on"].start < 0.4


def test_the_first_chunk_is_short_and_the_later_ones_are_longer(engine: HibariEngine) -> None:
    lengths = [len(c.samples) // 300 for c in speak(engine, "This is quite a long sentence " * 5)]
    # The first has lost what of its silence can be left out.
    assert 12 <= lengths[0] <= 16
    assert lengths[1:4] == [32, 64, 80]
    assert all(length >= 8 for length in lengths)


def test_a_seed_repeats_the_audio(engine: HibariEngine) -> None:
    one = samples_of(speak(engine, "Hello there.", options={"seed": 7}))
    same = samples_of(speak(engine, "Hello there.", options={"seed": 7}))
    other = samples_of(speak(engine, "Hello there.", options={"seed": 8}))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    fresh = samples_of(speak(engine, "Hello there."))
    assert not np.array_equal(fresh, samples_of(speak(engine, "Hello there.")))


def test_streams_side_by_side_do_not_disturb_each_other(engine: HibariEngine) -> None:
    texts = ["Hello there, you.", "How are you today?", "Good bye now, and thanks."]
    alone = [samples_of(speak(engine, text, options={"seed": 1})) for text in texts]
    together: dict[str, Samples] = {}

    def run(text: str) -> None:
        together[text] = samples_of(speak(engine, text, options={"seed": 1}))

    threads = [threading.Thread(target=run, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for text, samples in zip(texts, alone, strict=True):
        assert np.array_equal(together[text], samples)


def test_a_long_text_is_spoken_whole_and_its_words_go_on(engine: HibariEngine) -> None:
    text = "We went there and nobody was at home. " * 12 + "你好 "
    with pytest.warns(UnreadableTextWarning):
        chunks = speak(engine, text)
    assert_words_are_lawful(text, chunks)
    assert chunks[-1].words[-1].text == "你好"


def test_a_book_starts_at_once_and_can_be_closed(engine: HibariEngine) -> None:
    book = "It was the best of times, it was the worst of times. " * 2000
    stream = engine.synthesize(SynthesisRequest(book))
    assert 0.15 <= next(stream).seconds <= 0.2
    next(stream)
    stream.close()


@pytest.mark.parametrize("text", ["x" * 10_000, "9" * 10_000, "-9,9" * 2500, "a.b/" * 2500])
def test_a_monster_of_a_word_can_be_stepped_and_closed(engine: HibariEngine, text: str) -> None:
    stream = engine.synthesize(SynthesisRequest(text))
    assert next(stream).words[0].text == text
    stream.close()


def test_speed_changes_the_pace(engine: HibariEngine) -> None:
    text = "This takes as long as it takes."
    slow, plain, fast = (len(samples_of(speak(engine, text, speed=s))) for s in (0.5, 1.0, 2.0))
    assert 1.6 < slow / plain < 2.3
    assert 0.4 < fast / plain < 0.65


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"speed": 0.4}, "speed 0.4 is outside 0.5 to 2.0"),
        ({"speed": 2.1}, "speed 2.1 is outside 0.5 to 2.0"),
        ({"speed": float("nan")}, "speed nan is outside"),
        ({"language": "de"}, "hibari speaks English .*not 'de'"),
        ({"language": "eng-lish"}, "not 'eng-lish'"),
        ({"options": {"pitch": 2, "seed": 1}}, "no option pitch; it has: seed"),
        ({"options": {"seed": "1"}}, "an int from 0 up, not '1'"),
        ({"options": {"seed": True}}, "an int from 0 up, not True"),
        ({"options": {"seed": -1}}, "an int from 0 up, not -1"),
    ],
)
def test_settings_that_never_work_are_refused(
    engine: HibariEngine, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        speak(engine, "Hello.", **settings)


@pytest.mark.parametrize("language", [None, "", "en", "en-US", "EN_gb", "en-IN"])
def test_english_is_spoken_by_any_name(engine: HibariEngine, language: str | None) -> None:
    assert speak(engine, "Hi.", language=language)


@pytest.mark.parametrize("text", ["", " \n", "…!?", "😀", "---", "\x00", "\ud800"])
def test_a_text_without_words_is_unspeakable(engine: HibariEngine, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UnspeakableTextError, match="no word in the text"):
            speak(engine, text)


def test_a_text_in_another_script_is_unspeakable_and_told(
    engine: HibariEngine, caplog: pytest.LogCaptureFixture
) -> None:
    remedy = r"'heart' can't read ARMENIAN script; choose an engine or a voice for that language"
    for _ in range(2):
        with (
            pytest.warns(UnreadableTextWarning, match=remedy),
            pytest.raises(UnspeakableTextError, match=remedy),
        ):
            speak(engine, "Բարեւ, աշխարհ")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Բարեւ" not in caplog.text


def test_what_can_be_read_of_a_mixed_text_is_spoken_and_the_rest_told(
    engine: HibariEngine,
) -> None:
    with pytest.warns(UnreadableTextWarning, match="CJK") as caught:
        chunks = speak(engine, "Say 你好 to her.")
    assert len(caught) == 1
    assert [word.text for word in words_of(chunks)] == ["Say", "你好", "to", "her."]
    assert words_of(chunks)[1].start == words_of(chunks)[1].end


def test_a_pronunciation_is_shown_as_the_word(engine: HibariEngine) -> None:
    marked = HibariEngine.pronunciation("New York", "nuː ˈjɔrk")
    text = f"Go to {marked}, now."
    words = words_of(speak(engine, text))
    assert [word.text for word in words] == ["Go", "to", "New", "York", "now."]
    assert all(text[w.offset : w.offset + len(w.text)] == w.text for w in words)


def test_a_sentence_is_never_cut_at_an_abbreviation(engine: HibariEngine) -> None:
    words = words_of(speak(engine, "We met e.g. NASA vs. FBI.", options={"seed": 0}))
    assert words[3].start - words[2].end < 0.1
    assert words[5].start - words[4].end < 0.1


def test_all_voices_are_listed(
    engine: HibariEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIBARI_HOME", str(tmp_path))
    listed = {voice.id: voice for voice in engine.voices()}
    assert list(listed) == ["heart", "emma", "fenrir", "fable", "kore"]
    assert listed["heart"].ready
    assert listed["heart"].language == "en-US"
    assert not listed["emma"].ready
    assert listed["emma"].language == "en-GB"
    assert listed["emma"].description == "British, female, downloaded on first use (7.9 MB)"


def test_an_unknown_voice_is_refused_with_those_there_are(engine: HibariEngine) -> None:
    with pytest.raises(VoiceNotFoundError, match="no voice 'bob'; available: heart, emma"):
        speak(engine, "Hello.", voice="bob")
    with pytest.raises(VoiceNotFoundError, match="no voice 'bob'"):
        HibariEngine("bob")


def test_a_voice_that_can_not_be_downloaded_is_told_and_the_others_go_on(
    engine: HibariEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIBARI_HOME", str(tmp_path))
    monkeypatch.setattr(voices, "BASE_URL", "http://127.0.0.1:1/")
    with pytest.raises(EngineError, match="voice 'kore' couldn't be downloaded"):
        speak(engine, "Hello.", voice="kore")
    assert speak(engine, "Hello.")


def test_a_voice_that_is_in_the_cache_is_spoken(
    engine: HibariEngine, tmp_path: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIBARI_HOME", str(tmp_path))
    shutil.copy(model_file, tmp_path / "af_kore.int8.onnx")
    assert {voice.id: voice.ready for voice in engine.voices()}["kore"]
    seeded = {"options": {"seed": 3}}
    kore = samples_of(speak(engine, "Hello.", voice="kore", **seeded))
    assert np.array_equal(kore, samples_of(speak(engine, "Hello.", **seeded)))


def test_a_model_that_can_not_be_streamed_is_spoken_without_words(
    model_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = onnx.load_model(model_file)
    model.graph.node.append(onnx.helper.make_node("Log", ["speed"], ["nobody_wants_this"]))
    onnx.save_model(model, tmp_path / "other.onnx")
    with caplog.at_level(logging.WARNING):
        engine = HibariEngine(model=tmp_path / "other.onnx")
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "other.onnx can't be streamed (2 Log nodes instead of one): "
        "it is spoken a sentence at a time, without word times"
    )
    (chunk,) = speak(engine, "Hello there.")
    assert 0.6 < chunk.seconds < 1.2
    assert chunk.words == ()
    engine.close()


def test_a_model_of_ones_own_stands_for_the_voice(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIBARI_HOME", str(tmp_path))
    engine = HibariEngine("fenrir", model=model_file)
    assert {voice.id: voice.ready for voice in engine.voices()}["fenrir"]
    assert speak(engine, "Hello.")
    engine.close()


def test_a_model_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "voice.onnx"
    path.write_text("<html>not found</html>")
    with pytest.raises(EngineError, match=r"voice.onnx isn't a voice of hibari"):
        HibariEngine(model=path)


def test_a_closed_engine_says_so() -> None:
    engine = HibariEngine()
    stream = engine.synthesize(SynthesisRequest("Hello there."))
    next(stream)
    engine.close()
    assert list(stream)
    with pytest.raises(EngineError, match="closed"):
        speak(engine, "Hello.")


@pytest.mark.parametrize("text", ["How are you?", "Fifty people came.", "I see.", "She sells."])
def test_speech_begins_at_once_and_whole(engine: HibariEngine, text: str) -> None:
    samples = np.concatenate([chunk.samples for chunk in speak(engine, text)])
    first = int(np.flatnonzero(np.abs(samples) > 0.0025)[0])
    assert first == 192  # 8 ms in which a sound may begin softly
    assert float(np.abs(samples[:192]).max()) <= 0.0025


def test_a_warning_made_an_error_costs_nobody_their_voice(engine: HibariEngine) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(chunk.seconds for chunk in speak(engine, "Hello 你好 there.")) > 0.4
