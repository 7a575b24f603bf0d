from __future__ import annotations

import numpy as np
import pytest

from tts_plugins.audio.resample import StreamResampler
from tts_plugins.types import Samples

RATES = [8000, 16000, 22050, 24000, 48000]


def resample(samples: Samples, from_rate: int, to_rate: int, size: int) -> Samples:
    resampler = StreamResampler(from_rate, to_rate)
    parts = [resampler.push(samples[i : i + size]) for i in range(0, len(samples), size)]
    return np.concatenate([*parts, resampler.flush()])


@pytest.mark.parametrize("to_rate", RATES)
@pytest.mark.parametrize("from_rate", [22050, 24000, 48000])
def test_any_cutting_of_the_input_gives_the_same_samples(from_rate: int, to_rate: int) -> None:
    noise = np.random.default_rng(0).standard_normal(3001).astype(np.float32)
    whole = resample(noise, from_rate, to_rate, 10**6)
    for size in (1, 7, 480):
        np.testing.assert_array_equal(resample(noise, from_rate, to_rate, size), whole)


@pytest.mark.parametrize("n", [1, 2, 100, 23999, 24001])
@pytest.mark.parametrize("to_rate", RATES)
def test_the_length_is_exact(n: int, to_rate: int) -> None:
    assert len(resample(np.zeros(n, np.float32), 24000, to_rate, 960)) == -(-n * to_rate // 24000)


@pytest.mark.parametrize("to_rate", RATES)
def test_a_tone_keeps_its_pitch_its_level_and_its_place(to_rate: int) -> None:
    t = np.arange(24000) / 24000
    got = resample(np.sin(2 * np.pi * 1000 * t).astype(np.float32), 24000, to_rate, 480)
    want = np.sin(2 * np.pi * 1000 * np.arange(to_rate) / to_rate)
    assert np.abs(got - want)[400:-400].max() < 2e-3


def test_what_the_new_rate_cant_carry_is_gone() -> None:
    t = np.arange(24000) / 24000
    got = resample(np.sin(2 * np.pi * 6000 * t).astype(np.float32), 24000, 8000, 480)
    assert np.abs(got[400:-400]).max() < 10 ** (-80 / 20)


def test_nothing_in_gives_nothing_out() -> None:
    assert len(StreamResampler(24000, 8000).flush()) == 0
