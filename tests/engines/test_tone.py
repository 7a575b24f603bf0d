from __future__ import annotations

import numpy as np
import pytest

from tts_plugins.engines.tone import ToneEngine
from tts_plugins.errors import InvalidRequestError, UnspeakableTextError, VoiceNotFoundError
from tts_plugins.types import SynthesisRequest


def test_a_beep_is_60_ms_a_character_and_has_the_words_own_times() -> None:
    chunks = list(ToneEngine().synthesize(SynthesisRequest("Hello big world")))
    assert [len(chunk.samples) for chunk in chunks] == [7200, 4320, 7200]
    words = [(w.text, w.offset, w.start, w.end) for chunk in chunks for w in chunk.words]
    assert words == [("Hello", 0, 0.0, 0.3), ("big", 6, 0.3, 0.48), ("world", 10, 0.48, 0.78)]


def test_the_beep_has_one_pitch_and_no_seams() -> None:
    chunks = ToneEngine(frequency=500).synthesize(SynthesisRequest("a bb ccc dddd eeeee ffffff"))
    samples = np.concatenate([chunk.samples for chunk in chunks])
    want = 0.2 * np.sin(2 * np.pi * 500 * np.arange(len(samples)) / 24000)
    np.testing.assert_allclose(samples, want, atol=1e-6)


def test_speed_makes_it_shorter() -> None:
    (chunk,) = ToneEngine().synthesize(SynthesisRequest("Hello", speed=2.0))
    assert chunk.seconds == 0.15


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (SynthesisRequest("x", voice="bob"), VoiceNotFoundError),
        (SynthesisRequest("x", speed=0), InvalidRequestError),
        (SynthesisRequest("x", speed=100), InvalidRequestError),
        (SynthesisRequest("x", options={"pitch": 2}), InvalidRequestError),
        (SynthesisRequest("..."), UnspeakableTextError),
    ],
)
def test_what_it_cant_do_it_refuses(request_: SynthesisRequest, error: type[Exception]) -> None:
    with pytest.raises(error):
        next(ToneEngine().synthesize(request_))
