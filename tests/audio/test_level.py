from __future__ import annotations

import numpy as np

from tts_plugins.audio.level import first_above


def test_the_first_sample_above_a_level_is_found() -> None:
    samples = np.array([0.0, 0.01, -0.02, 0.5], np.float32)
    assert first_above(samples, 0.1) == 3
    assert first_above(samples, 0.015) == 2
    assert first_above(samples[2:]) == 0


def test_silence_has_none() -> None:
    assert first_above(np.zeros(3, np.float32)) is None
    assert first_above(np.zeros(0, np.float32)) is None
    assert first_above(np.array([0.5], np.float32), 0.5) is None
