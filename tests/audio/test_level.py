from __future__ import annotations

import numpy as np

from tts_plugins.audio.level import first_above, quiet_front


def test_the_first_sample_above_a_level_is_found() -> None:
    samples = np.array([0.0, 0.01, -0.02, 0.5], np.float32)
    assert first_above(samples, 0.1) == 3
    assert first_above(samples, 0.015) == 2
    assert first_above(samples[2:]) == 0


def test_silence_has_none() -> None:
    assert first_above(np.zeros(3, np.float32)) is None
    assert first_above(np.zeros(0, np.float32)) is None
    assert first_above(np.array([0.5], np.float32), 0.5) is None


def test_a_sound_keeps_the_moment_in_which_it_begins() -> None:
    samples = np.full(300, 0.002, np.float32)
    samples[200] = 0.003
    assert quiet_front(samples, 8_000) == 200 - 64
    assert quiet_front(samples[150:], 8_000) == 0
    assert quiet_front(samples[:200], 8_000) == 0
