"""The engine as the others see it, on a tiny network: requests in, chunks and words out."""

from __future__ import annotations

import logging
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto

from tests.engines.kokoro.models import kokoro, make_folder, npz, styles
from tests.hearing import pitch
from tts_plugins.audio.wav import wav_file
from tts_plugins.engines.kokoro import KokoroEngine, readers
from tts_plugins.engines.kokoro import voices as files
from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    TTSError,
    UnreadableTextWarning,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.interruption import Interruption
from tts_plugins.phonemes.pronounced import Pronounced, Reader
from tts_plugins.phonemes.unread import Unread
from tts_plugins.registry import open_engine
from tts_plugins.scheduler import Scheduler
from tts_plugins.testing import check_engine
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice, Word

SENTENCE = "The train to Hamburg leaves at seven, so please be at the station in time."


def speak(engine: KokoroEngine, text: str, **settings: object) -> list[AudioChunk]:
    return list(engine.synthesize(SynthesisRequest(text, **settings)))  # type: ignore[arg-type]


def samples_of(chunks: Sequence[AudioChunk]) -> Samples:
    return np.concatenate([chunk.samples for chunk in chunks])


def words_of(chunks: Sequence[AudioChunk]) -> list[Word]:
    return [word for chunk in chunks for word in chunk.words]


def hertz(engine: KokoroEngine, voice: str, **settings: object) -> float:
    return pitch(samples_of(speak(engine, "A.", voice=voice, **settings)), 24_000)


async def test_it_keeps_the_contract(folder: Path) -> None:
    scheduler = Scheduler(KokoroEngine(folder, threads=1), max_ahead=math.inf)
    try:
        failed = [check for check in await check_engine(scheduler) if not check.passed]
    finally:
        await scheduler.aclose()
    assert failed == []


async def test_it_is_opened_by_its_name(folder: Path) -> None:
    engine = open_engine("kokoro", model=str(folder), threads=1)
    try:
        assert [voice.id for voice in await engine.voices()][:2] == ["af_one", "am_three"]
    finally:
        await engine.aclose()


@pytest.mark.parametrize(
    "text",
    [
        "Hello there.",
        "Call me at 9:30am tomorrow; Dr. Smith owes $3.2 billion to 555-1234 & 42.50.",
        '"Wait…" - she said (twice) - don\'t: 50% of it is, a@b.com or https://x.io/a!',
        "ok _a_ __ ? 7",
        SENTENCE * 4,
    ],
)
def test_each_word_comes_in_time(engine: KokoroEngine, text: str) -> None:
    chunks = speak(engine, text)
    words = words_of(chunks)
    spoken = [word for word in text.split() if any(c.isalnum() for c in word)]
    assert [word.text for word in words] == spoken
    assert all(text[w.offset : w.offset + len(w.text)] == w.text for w in words)
    assert all(word.exact and 0 <= word.start <= word.end for word in words)
    assert all(a.start <= b.start for a, b in pairwise(words))
    begun = 0.0
    for chunk in chunks:
        assert len(chunk.samples) <= 12_000
        assert all(begun - 1e-9 <= word.start <= begun + chunk.seconds for word in chunk.words)
        begun += chunk.seconds
    assert words[-1].end <= begun


def test_a_word_is_heard_60_ms_after_the_time_that_its_duration_begins_less_the_offset(
    engine: KokoroEngine,
) -> None:
    chunks = speak(engine, SENTENCE, due=math.inf)
    loud = np.abs(samples_of(chunks)) > 0.0
    # A sample of a sine is nearly never 0: a word's beep ends where 20 ms are.
    quiet_before = np.array([not loud[max(0, i - 480) : i].any() for i in range(len(loud))])
    onsets = np.flatnonzero(loud & quiet_before) / 24_000
    starts = [word.start for word in words_of(chunks)]
    assert len(onsets) == len(starts) == 15
    # The first can't be earlier than the audio.
    assert onsets[1:] - starts[1:] == pytest.approx([0.06] * 14, abs=0.001)


def test_a_request_is_spoken_clause_by_clause(engine: KokoroEngine) -> None:
    chunks = engine.synthesize(SynthesisRequest(SENTENCE))
    first = next(chunks)
    assert [word.text for word in first.words] == ["The", "train"]
    assert [w.text for w in words_of(list(chunks))][-3:] == ["station", "in", "time."]


class Counting:
    """A model that notes how much it is given at once."""

    def __init__(self, engine: KokoroEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        assert engine._model is not None
        self.lengths: list[int] = []
        speak = engine._model.speak

        def counted(tokens: Sequence[int], style: Samples, speed: float) -> object:
            self.lengths.append(len(tokens))
            return speak(tokens, style, speed)

        monkeypatch.setattr(engine._model, "speak", counted)


@pytest.mark.parametrize(
    ("due", "lengths"), [(0.0, [38, 36]), (3.0, [38, 36]), (10.0, [74]), (math.inf, [74])]
)
def test_who_has_something_to_hear_yet_gets_longer_pieces(
    engine: KokoroEngine, monkeypatch: pytest.MonkeyPatch, due: float, lengths: list[int]
) -> None:
    counting = Counting(engine, monkeypatch)
    speak(engine, SENTENCE, due=due)
    assert counting.lengths == lengths


def test_nothing_is_made_that_isnt_asked_for(
    engine: KokoroEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(engine, monkeypatch)
    chunks = engine.synthesize(SynthesisRequest(SENTENCE * 3))
    next(chunks)
    chunks.close()
    assert len(counting.lengths) == 1


def test_the_silence_around_is_left_out(engine: KokoroEngine) -> None:
    samples = samples_of(speak(engine, "Hello."))
    loud = np.flatnonzero(np.abs(samples) > 0.0025)
    assert loud[0] == 240
    # The full stop and the end are 8 units of 25 ms.
    assert len(samples) - loud[-1] == pytest.approx(24_000 * 0.2, abs=10)


def test_speed_is_a_ratio(engine: KokoroEngine) -> None:
    lengths = [len(samples_of(speak(engine, SENTENCE, speed=s))) for s in (0.5, 1.0, 2.0)]
    assert lengths[0] / lengths[1] == pytest.approx(2.0, rel=0.1)
    assert lengths[2] / lengths[1] == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("speed", [0.49, 2.01, math.nan])
def test_a_speed_outside_the_range_is_refused(engine: KokoroEngine, speed: float) -> None:
    with pytest.raises(InvalidRequestError, match=r"is outside 0.5 to 2.0"):
        speak(engine, "Hello.", speed=speed)


def test_a_model_of_whole_speeds_is_stretched(tmp_path: Path) -> None:
    engine = KokoroEngine(make_folder(tmp_path, kokoro(speed=TensorProto.INT32)), threads=1)
    slow, fast = (speak(engine, "A day at sea.", speed=s, due=math.inf) for s in (1.0, 1.25))
    assert len(samples_of(fast)) == round(len(samples_of(slow)) / 1.25)
    assert [w.start for w in words_of(fast)] == pytest.approx(
        [w.start / 1.25 for w in words_of(slow)]
    )
    assert pitch(samples_of(fast), 24_000) == pytest.approx(200, abs=3)


def test_a_model_without_durations_reports_no_words(tmp_path: Path) -> None:
    engine = KokoroEngine(make_folder(tmp_path, kokoro(rounds=False)), threads=1)
    assert words_of(speak(engine, SENTENCE)) == []


def test_voices_tell_language_and_gender(engine: KokoroEngine) -> None:
    assert engine.voices()[:5] == [
        Voice("af_one", "en-US", "female"),
        Voice("am_three", "en-US", "male"),
        Voice("bf_two", "en-GB", "female"),
        Voice("ef_four", "es", "female"),
        Voice("jf_five", "ja", "female"),
    ]


def test_a_blend_lies_between_its_parts(engine: KokoroEngine) -> None:
    assert hertz(engine, "af_one") == pytest.approx(200, abs=3)
    assert hertz(engine, "am_three") == pytest.approx(400, abs=3)
    assert hertz(engine, "af_one+am_three") == pytest.approx(300, abs=3)
    assert hertz(engine, "af_one (3) + am_three") == pytest.approx(250, abs=3)
    assert hertz(engine, "am_three(3)-af_one") == pytest.approx(300, abs=3)


def test_an_unknown_voice_is_refused_with_those_there_are(engine: KokoroEngine) -> None:
    for voice in ("bob", "af_one+bob", "bob(2)+af_one"):
        with pytest.raises(VoiceNotFoundError, match="no voice 'bob'; available: af_one, am_three"):
            speak(engine, "Hello.", voice=voice)


def test_a_blend_that_cant_be_read_is_refused(engine: KokoroEngine) -> None:
    with pytest.raises(InvalidRequestError, match=r"blend 'af_one\(x\)\+am_three'"):
        speak(engine, "Hello.", voice="af_one(x)+am_three")


def test_a_voice_speaks_its_own_language_unless_told_otherwise(
    engine: KokoroEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    english = engine._readers.get("a")

    def get(letter: str) -> Reader:
        asked.append(letter)
        return english

    monkeypatch.setattr(engine._readers, "get", get)
    speak(engine, "A.", voice="bf_two")
    speak(engine, "A.", voice="ef_four+bf_two")
    speak(engine, "A.", voice="ef_four", language="en")
    speak(engine, "A.", voice="bf_two", language="en")
    speak(engine, "A.", voice="af_one", options={"lang_code": "f"})
    assert asked == ["b", "e", "a", "b", "f"]


def test_an_engine_may_speak_one_language_with_all_voices(folder: Path) -> None:
    engine = KokoroEngine(folder, voice="jf_five", language="en-US", threads=1)
    assert words_of(speak(engine, "Hello there."))[1].text == "there."


def test_a_language_that_cant_be_read_is_refused(engine: KokoroEngine) -> None:
    with pytest.raises(InvalidRequestError, match="can't read 'de' here; languages: en-US, en-GB"):
        speak(engine, "Hallo.", language="de")
    with pytest.raises(InvalidRequestError, match="Chinese for Kokoro isn't supported"):
        speak(engine, "Hallo.", options={"lang_code": "z"})


def test_japanese_voices_alone_say_what_they_need_and_read_english_when_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_has", lambda module: module != "pyopenjtalk")
    (tmp_path / "v.npz").write_bytes(npz(jf_alpha=styles(1.0)))
    with pytest.raises(InvalidRequestError, match=r"`pip install pyopenjtalk-plus`; or have its"):
        speak(KokoroEngine(folder, tmp_path / "v.npz", threads=1), "Hello.")
    assert speak(KokoroEngine(folder, tmp_path / "v.npz", threads=1, language="en"), "Hello.")


def test_options_are_kokoro_fastapis(engine: KokoroEngine) -> None:
    plain = samples_of(speak(engine, "A."))
    louder = samples_of(speak(engine, "A.", options={"volume_multiplier": 2, "lang_code": "a"}))
    assert np.abs(louder).max() == pytest.approx(2 * np.abs(plain).max())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"nope": 1}, "kokoro has no option nope; it has: lang_code, volume_multiplier"),
        ({"lang_code": "q"}, "lang_code is one of a, b, e"),
        ({"lang_code": ["a"]}, r"lang_code is one of a, b, e"),
        ({"volume_multiplier": "2"}, "volume_multiplier is a number from 0 to 10, not '2'"),
        ({"volume_multiplier": True}, "volume_multiplier is a number from 0 to 10, not True"),
        ({"volume_multiplier": math.nan}, "volume_multiplier is a number from 0 to 10, not nan"),
        ({"volume_multiplier": 11}, "volume_multiplier is a number from 0 to 10, not 11"),
    ],
)
def test_a_wrong_option_is_refused(
    engine: KokoroEngine, options: dict[str, object], complaint: str
) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        speak(engine, "A.", options=options)


class Silent:
    """A reader that finds nothing to be heard, and does something before each reading."""

    def __init__(self, readings: int = 1, before: Callable[[int], None] = lambda _: None) -> None:
        self._readings, self._before = readings, before

    def read(self, text: str, unreadable: Callable[[str], None]) -> Iterator[Pronounced]:
        for n in range(self._readings):
            self._before(n)
            yield Pronounced("", (), ())


def test_a_text_without_a_sound_isnt_read_on_for_nobody(
    engine: KokoroEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption = Interruption()
    begun: list[int] = []

    def before(reading: int) -> None:
        begun.append(reading)
        if reading == 2:
            interruption.interrupt()

    monkeypatch.setattr(engine._readers, "get", lambda _: Silent(100, before))
    with interruption.concerns():
        assert speak(engine, "[[" * 10_000) == []
    assert begun == [0, 1, 2]


@pytest.mark.parametrize("text", ["", " ", "...", "😀", "- — -"])
def test_where_nothing_can_be_said_nothing_is(engine: KokoroEngine, text: str) -> None:
    with pytest.raises(UnspeakableTextError):
        speak(engine, text)


def test_a_script_that_is_left_out_is_told(
    engine: KokoroEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine._unread = Unread()
    for _ in range(2):
        with warnings.catch_warnings(record=True) as told, caplog.at_level(logging.WARNING):
            warnings.simplefilter("always")
            speak(engine, "Привет. Hello there. Привет.")
        (only,) = (str(w.message) for w in told if w.category is UnreadableTextWarning)
        assert only == (
            "Kokoro can't read CYRILLIC script as en-US; say which language the text is in, or "
            "choose another engine"
        )
    assert len(caplog.messages) == 1


def test_a_pronunciation_in_the_text_is_said(
    engine: KokoroEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(engine, monkeypatch)
    (word,) = words_of(speak(engine, "[Nike](/ˈnaɪki/)"))
    assert (word.text, word.offset) == ("Nike", 1)
    assert counting.lengths == [len("nˈIki")]


def test_a_style_is_kept_under_a_name(folder: Path, tmp_path: Path) -> None:
    engine = KokoroEngine(folder, threads=1, voices_dir=tmp_path)
    assert engine.clone("mine", npz(x=styles(2.5))) == Voice("mine", "und", "cloned")
    np.save(tmp_path / "style.npy", styles(1.5)[:, 0])
    assert engine.clone("em_his", tmp_path / "style.npy").language == "es"
    (tmp_path / "style.bin").write_bytes(styles(3.5).tobytes())
    engine.clone("other", str(tmp_path / "style.bin"))
    assert hertz(engine, "mine") == pytest.approx(350, abs=3)
    assert hertz(engine, "em_his", language="en") == pytest.approx(250, abs=3)
    assert hertz(engine, "mine+other") == pytest.approx(400, abs=3)

    again = KokoroEngine(folder, threads=1, voices_dir=tmp_path)
    assert [voice.id for voice in again.voices()][5:] == ["mine", "em_his", "other"]
    assert hertz(again, "other") == pytest.approx(450, abs=3)


def test_a_blend_is_kept_under_a_name(folder: Path, tmp_path: Path) -> None:
    engine = KokoroEngine(folder, threads=1, voices_dir=tmp_path)
    assert engine.clone("host", "bf_two+am_three") == Voice("host", "en-GB", "cloned")
    assert hertz(engine, "host") == pytest.approx(350, abs=3)
    assert hertz(engine, "host+am_three") == pytest.approx(375, abs=3)
    engine.clone("host", "am_three(1)")
    assert hertz(engine, "host+am_three") == pytest.approx(400, abs=3), "it is remade"
    engine.forget("host")
    for voice in ("host", "host+am_three"):
        with pytest.raises(VoiceNotFoundError, match="no voice 'host'"):
            speak(engine, "A.", voice=voice)


def test_a_clone_gets_a_new_name_that_no_voice_has(folder: Path, tmp_path: Path) -> None:
    engine = KokoroEngine(folder, threads=1, voices_dir=tmp_path)
    engine.clone("host", "am_three(1)")
    assert engine.rename("host", "guest") == Voice("guest", "en-US", "cloned")
    assert hertz(engine, "guest") == pytest.approx(400, abs=3)
    with pytest.raises(VoiceNotFoundError, match="no voice 'host'"):
        speak(engine, "A.", voice="host")
    with pytest.raises(InvalidRequestError, match="kokoro has a voice 'af_one' of its own"):
        engine.rename("guest", "af_one")


def test_what_another_process_forgets_or_learns_anew_is_so_within_a_blend(
    folder: Path, tmp_path: Path
) -> None:
    engine, other = (KokoroEngine(folder, threads=1, voices_dir=tmp_path) for _ in range(2))
    engine.clone("host", "am_three(1)")
    assert hertz(engine, "host+af_one") == pytest.approx(300, abs=3)
    other.clone("host", "af_one(1)")
    assert hertz(engine, "host+af_one") == pytest.approx(200, abs=3)
    other.forget("host")
    with pytest.raises(VoiceNotFoundError, match="no voice 'host'"):
        speak(engine, "A.", voice="host+af_one")


def test_to_speak_with_a_clone_doesnt_list_all_clones(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = KokoroEngine(folder, threads=1, voices_dir=tmp_path)
    engine.clone("ef_host", "am_three(1)")
    monkeypatch.setattr(engine._library, "voices", lambda: pytest.fail("it read all names"))
    asked: list[str] = []

    def get(letter: str) -> Reader:
        asked.append(letter)
        return Silent()

    monkeypatch.setattr(engine._readers, "get", get)
    for voice in ("ef_host", "ef_host+af_one"):
        with pytest.raises(UnspeakableTextError):
            speak(engine, "A.", voice=voice)
    assert asked == ["a", "a"], "a blend that was cloned keeps the language of its first voice"


def test_a_recording_is_refused(engine: KokoroEngine, tmp_path: Path) -> None:
    clip = AudioChunk(np.zeros(24_000, np.float32), 24_000)
    (tmp_path / "clip.wav").write_bytes(wav_file(clip))
    for reference in (clip, tmp_path / "clip.wav", (tmp_path / "clip.wav").read_bytes()):
        with pytest.raises(InvalidRequestError, match="it learns from style vectors only"):
            engine.clone("mine", reference)
    # As many bytes as styles would have.
    whole = (tmp_path / "clip.wav").read_bytes()[:40_960]
    with pytest.raises(InvalidRequestError, match="it learns from style vectors only"):
        engine.clone("mine", whole)


def test_other_references_that_make_no_voice_are_refused(
    engine: KokoroEngine, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequestError, match="it holds 2 voices, not one"):
        engine.clone("mine", npz(x=styles(1.0), y=styles(2.0)))
    with pytest.raises(InvalidRequestError, match=r"can't read .*No such file"):
        engine.clone("mine", tmp_path / "none.npz")
    with pytest.raises(VoiceNotFoundError, match="no voice 'bob'"):
        engine.clone("mine", "bob+af_one")
    with pytest.raises(InvalidRequestError, match="has a voice 'af_one' of its own"):
        engine.clone("af_one", "am_three")
    with pytest.raises(InvalidRequestError, match="printable characters"):
        engine.clone(" ", "am_three")
    with pytest.raises(VoiceNotFoundError, match="no voice 'xxxx"):
        engine.clone("mine", "x" * 10_000)
    with pytest.raises(InvalidRequestError, match=r"can't read .*File name too long"):
        engine.clone("mine", Path("x" * 10_000))
    with pytest.raises(InvalidRequestError, match=r"can't read .*null byte"):
        engine.clone("mine", Path("x\0y"))


def test_a_file_that_is_no_voice_by_its_size_isnt_read_to_its_end(
    engine: KokoroEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_BYTES", 1 << 20)
    (tmp_path / "disk.bin").write_bytes(b"\0" * ((1 << 20) + 1))
    with pytest.raises(InvalidRequestError, match="from this: it is larger than 1 MB; it learns"):
        engine.clone("mine", tmp_path / "disk.bin")


def test_a_damaged_clone_is_told_with_the_remedy(folder: Path, tmp_path: Path) -> None:
    KokoroEngine(folder, threads=1, voices_dir=tmp_path).clone("mine", npz(x=styles(2.5)))
    (kept,) = tmp_path.rglob("learnt/*.npy")
    kept.write_bytes(kept.read_bytes()[:5000])
    engine = KokoroEngine(folder, threads=1, voices_dir=tmp_path)
    with pytest.raises(EngineError, match=r"voice 'mine' can't be read from .*; clone it again"):
        speak(engine, "A.", voice="mine")


def test_a_closed_engine_says_so_and_its_streams_end_by_themselves(folder: Path) -> None:
    engine = KokoroEngine(folder, threads=1)
    chunks = engine.synthesize(SynthesisRequest(SENTENCE))
    first = next(chunks)
    engine.close()
    assert words_of([first, *chunks])[-1].text == "time."
    with pytest.raises(EngineError, match="this kokoro engine is closed; open another one"):
        speak(engine, "Hello.")


def test_many_threads_hear_what_one_does(engine: KokoroEngine) -> None:
    expected = samples_of(speak(engine, SENTENCE))
    heard: list[Samples] = []
    threads = [
        threading.Thread(target=lambda: heard.append(samples_of(speak(engine, SENTENCE))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 4
    assert all(np.array_equal(samples, expected) for samples in heard)


def test_the_default_voice_is_kokoros_own_if_it_is_there(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "v.npz").write_bytes(npz(af_alloy=styles(1.0), af_heart=styles(2.0)))
    assert hertz(KokoroEngine(folder, tmp_path / "v.npz", threads=1), "af_heart") == pytest.approx(
        pitch(samples_of(speak(KokoroEngine(folder, tmp_path / "v.npz"), "A.")), 24_000)
    )
    with pytest.raises(VoiceNotFoundError, match="no voice 'bob'; available: af_one"):
        KokoroEngine(folder, voice="bob")


@pytest.mark.parametrize(
    ("device", "complaint"),
    [
        ("cuda", "no CUDAExecutionProvider, only .*: pip uninstall onnxruntime && pip install onn"),
        ("coreml", "no CoreMLExecutionProvider, only .*: get an onnxruntime that has it"),
        ("dml", "no DmlExecutionProvider, only .*: pip uninstall onnxruntime && pip install onnxr"),
        (["ROCMExecutionProvider"], "no ROCMExecutionProvider, only"),
        ([], "no device"),
        ("gpu", "no device 'gpu'; there are cpu, cuda, coreml, dml"),
    ],
)
def test_a_device_that_isnt_there_is_refused_with_the_remedy(
    folder: Path, device: str | list[str], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(TTSError, match=complaint):
        KokoroEngine(folder, device=device)


def test_a_provider_that_gives_up_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As a GPU without its driver does: it is there by name, and then the CPU runs instead.
    here = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(ort, "get_available_providers", lambda: here)
    warnings.simplefilter("ignore")  # ONNX Runtime's own, of a provider that it hasn't got
    with pytest.raises(EngineError, match="can't use CUDAExecutionProvider here, though it has it"):
        KokoroEngine(folder, device="cuda")


def test_providers_may_be_named_as_onnx_runtime_does(folder: Path) -> None:
    for device in ("cpu", "CPUExecutionProvider", ["CPUExecutionProvider"]):
        assert speak(KokoroEngine(folder, device=device, threads=1), "A.")


async def test_the_scheduler_clones_with_it(folder: Path, tmp_path: Path) -> None:
    scheduler = Scheduler(KokoroEngine(folder, threads=1, voices_dir=tmp_path))
    try:
        voice = await scheduler.clone("mine", npz(x=styles(2.5)))
        assert voice in await scheduler.voices()
        await scheduler.forget("mine")
        assert voice not in await scheduler.voices()
    finally:
        await scheduler.aclose()
