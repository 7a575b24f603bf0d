"""Kokoro itself: its words, its blends, and the end of a run that nobody waits for."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tts_plugins.engines.kokoro import KokoroEngine, readers
from tts_plugins.errors import EngineError, InvalidRequestError
from tts_plugins.interruption import Interruption, interruptible
from tts_plugins.network import session
from tts_plugins.types import AudioChunk, SynthesisRequest

LONG = "we will be there, " * 20


def test_its_words_are_exact_and_come_in_time(real: KokoroEngine) -> None:
    text = "Well, let me see."
    chunks = list(real.synthesize(SynthesisRequest(text)))
    words = [word for chunk in chunks for word in chunk.words]
    assert [word.text for word in words] == ["Well,", "let", "me", "see."]
    assert all(word.exact for word in words)
    samples = np.concatenate([chunk.samples for chunk in chunks])
    assert np.flatnonzero(np.abs(samples) > 0.0025)[0] == 240
    assert words[0].start <= 0.06
    assert words[-1].end <= len(samples) / 24_000
    assert 0.8 < len(samples) / 24_000 < 2.5


def median_pitch(chunks: list[AudioChunk]) -> float:
    """The middle of what a voice's frequency is, in hertz, by autocorrelation."""
    samples = np.concatenate([chunk.samples for chunk in chunks])
    found = []
    for at in range(0, len(samples) - 960, 240):
        frame = samples[at : at + 960] - samples[at : at + 960].mean()
        if np.abs(frame).max() < 0.05:
            continue
        echo = np.correlate(frame, frame, "full")[959:]
        lag = 60 + int(np.argmax(echo[60:360]))  # 400 down to 67 Hz
        if echo[lag] > 0.5 * echo[0]:
            found.append(24_000 / lag)
    return float(np.median(found))


def test_a_blend_speaks_at_a_pitch_between_those_of_its_voices(real: KokoroEngine) -> None:
    pitches = [
        median_pitch(list(real.synthesize(SynthesisRequest("Let me see.", voice=voice))))
        for voice in ("jm_kumo", "jf_alpha+jm_kumo", "jf_alpha")
    ]
    assert pitches[0] * 1.2 < pitches[1] < pitches[2] / 1.2


def test_its_voices_are_japanese(real: KokoroEngine) -> None:
    assert [(v.id, v.language, v.description) for v in real.voices()][:5] == [
        ("jf_alpha", "ja", "female"),
        ("jf_gongitsune", "ja", "female"),
        ("jf_nezumi", "ja", "female"),
        ("jf_tebukuro", "ja", "female"),
        ("jm_kumo", "ja", "male"),
    ]


def test_a_run_ends_when_its_stream_is_closed_and_the_next_is_whole(
    real: KokoroEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = threading.Event()

    @contextlib.contextmanager
    def noticed(stop: Callable[[], None]) -> Iterator[None]:
        with interruptible(stop):
            running.set()
            yield

    monkeypatch.setattr(session, "interruptible", noticed)
    interruption = Interruption()
    ended: list[object] = []

    def speak() -> None:
        # Without the interruption it would make a piece of 20 seconds.
        with interruption.concerns():
            chunks = real.synthesize(SynthesisRequest(LONG, due=math.inf))
            try:
                ended.append(next(chunks))
            except EngineError as error:
                ended.append(error)

    worker = threading.Thread(target=speak)
    worker.start()
    assert running.wait(30)
    interruption.interrupt()
    worker.join()
    (end,) = ended
    assert isinstance(end, EngineError)
    assert "terminate" in str(end)
    assert len(list(real.synthesize(SynthesisRequest("Yes.")))) > 0


def test_a_japanese_text_needs_a_japanese_dictionary(
    real: KokoroEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_has", lambda module: module != "pyopenjtalk")
    both = r"`pip install pyopenjtalk-plus`; or .*`kokoro\?language=en`"
    with pytest.raises(InvalidRequestError, match=both):
        next(real.synthesize(SynthesisRequest("はい。", language="ja")))
