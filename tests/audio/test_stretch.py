"""tts_plugins.audio.stretch: another pace, the same pitch, however the stream was cut."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hearing import pitch
from tts_plugins.audio.stretch import StreamStretcher
from tts_plugins.types import Samples

PACES = [0.5, 0.8, 1.1, 1.25, 2.0]
NOISE = np.random.default_rng(0).standard_normal(12_001).astype(np.float32)


def stretched(samples: Samples, speed: float, size: int = 1920, rate: int = 24_000) -> Samples:
    stretcher = StreamStretcher(rate, speed)
    parts = [stretcher.push(samples[i : i + size]) for i in range(0, len(samples), size)]
    return np.concatenate([*parts, stretcher.flush()])


def tone(hertz: float, seconds: float = 1.0, rate: int = 24_000) -> Samples:
    t = np.arange(round(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * hertz * t)).astype(np.float32)


@pytest.mark.parametrize("speed", [*PACES, 1.0])
def test_any_cutting_of_the_input_gives_the_same_samples(speed: float) -> None:
    whole = stretched(NOISE, speed, 10**6)
    for size in (1, 7, 480):
        np.testing.assert_array_equal(stretched(NOISE, speed, size), whole)


@given(st.integers(0, 5000), st.floats(0.5, 2.0))
@settings(max_examples=200, deadline=None)
def test_the_length_is_exact(n: int, speed: float) -> None:
    assert len(stretched(NOISE[:n], speed)) == round(n / speed)


@pytest.mark.parametrize("hertz", [80, 220, 1000])
@pytest.mark.parametrize("rate", [24_000, 48_000])
@pytest.mark.parametrize("speed", PACES)
def test_a_tone_keeps_its_pitch_and_its_level(speed: float, rate: int, hertz: float) -> None:
    heard = stretched(tone(hertz, rate=rate), speed, rate=rate)
    assert pitch(heard, rate) == pytest.approx(hertz, rel=0.01)
    middle = heard[rate // 20 : -rate // 20]
    level = np.abs(middle[: len(middle) // 600 * 600]).reshape(-1, 600).max(axis=1)
    assert level.min() > 0.48
    assert level.max() < 0.52


@pytest.mark.parametrize("speed", PACES)
def test_a_sound_comes_when_it_should(speed: float) -> None:
    samples = np.concatenate([np.zeros(12_000, np.float32), tone(220, 0.5)])
    onset = int(np.argmax(np.abs(stretched(samples, speed)) > 0.1))
    assert abs(onset / 24_000 - 0.5 / speed) < 0.015


def test_speed_1_leaves_each_piece_as_it_is() -> None:
    stretcher = StreamStretcher(24_000, 1.0)
    for piece in (NOISE[:7], NOISE[7:100]):
        np.testing.assert_array_equal(stretcher.push(piece), piece)
    assert len(stretcher.flush()) == 0


@pytest.mark.parametrize("speed", PACES)
def test_at_most_45_ms_of_the_input_are_held_back(speed: float) -> None:
    stretcher = StreamStretcher(24_000, speed)
    given = 0
    for taken in range(24, len(NOISE), 24):
        given += len(stretcher.push(NOISE[taken - 24 : taken]))
        assert taken - given * speed <= 0.045 * 24_000


def test_silence_stays_silence() -> None:
    assert not stretched(np.zeros(4800, np.float32), 1.25).any()


@pytest.mark.parametrize("speed", [0.49, 2.01, 0.0, -1.0, float("nan")])
def test_another_speed_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match=r"outside 0\.5 to 2\.0"):
        StreamStretcher(24_000, speed)


@pytest.mark.parametrize(("growth", "speed"), [(40, 0.8), (40, 1.25), (-40, 0.8)])
def test_a_tone_that_swells_or_fades_keeps_its_pitch(growth: int, speed: float) -> None:
    t = np.arange(6000) / 24_000  # ten times louder every 60 ms, or softer
    swelling = np.exp(growth * (t - (t[-1] if growth > 0 else 0))) * np.sin(2 * np.pi * 80 * t)
    heard = stretched(swelling.astype(np.float32), speed)
    level = np.exp(growth * speed * np.arange(len(heard)) / 24_000)
    assert pitch(heard / level, 24_000) == pytest.approx(80, abs=0.3)


def test_a_long_stream_takes_no_more_memory_than_a_short_one() -> None:
    stretcher = StreamStretcher(24_000, 1.25)
    tracemalloc.start()
    try:
        for _ in range(120):
            stretcher.push(NOISE[:12_000].copy())
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4 * 24_000  # a second of it, of 60
