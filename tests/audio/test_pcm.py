from __future__ import annotations

import numpy as np

from tts_plugins.audio.pcm import from_s16, to_s16


def test_every_16_bit_value_survives_the_round_trip() -> None:
    every = np.arange(-32768, 32768).astype("<i2").tobytes()
    assert to_s16(from_s16(every)) == every


def test_what_is_too_loud_clips_instead_of_wrapping() -> None:
    loud = np.array([1.0, 2.0, -1.0, -2.0, 1e9], np.float32)
    assert np.frombuffer(to_s16(loud), "<i2").tolist() == [32767, 32767, -32768, -32768, 32767]


def test_nan_is_silence() -> None:
    assert to_s16(np.array([np.nan, 0.5], np.float32)) == b"\x00\x00\x00\x40"
