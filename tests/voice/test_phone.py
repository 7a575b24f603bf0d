"""The default voice through a telephone: is it still understood at 8 kHz, in eight bits a sample.

What a carrier is sent is these codes, one for one: tests/agents/test_phone_twilio.py.
"""

from __future__ import annotations

from contextlib import aclosing

import numpy as np
import pytest

from benchmarks.texts import SENTENCES
from tts_plugins.audio.g711 import from_alaw, from_ulaw, to_alaw, to_ulaw
from tts_plugins.audio.pcm import joined
from tts_plugins.registry import open_engine
from tts_plugins.turn import Turn
from tts_plugins.types import Samples

pytest.importorskip("faster_whisper", reason="needs the voice group: scripts/test --voice")
pytestmark = [
    pytest.mark.voice,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

from tests.voice import judges  # noqa: E402  after it is known that they are there


async def spoken(text: str, sample_rate: int) -> Samples:
    engine = open_engine("hibari")
    turn = Turn(engine, sample_rate=sample_rate)
    async with aclosing(turn.say(text)) as chunks:
        samples = joined([chunk.samples async for chunk in chunks])
    await engine.aclose()
    return samples


async def test_it_is_understood_through_a_telephone() -> None:
    near = [await spoken(text, 24_000) for text in SENTENCES]
    line = [await spoken(text, 8_000) for text in SENTENCES]
    rates = {
        what: judges.word_error_rate(SENTENCES, [judges.transcribe(each, rate) for each in heard])
        for what, rate, heard in (
            ("24 kHz", 24_000, near),
            ("mu-law", 8_000, [from_ulaw(to_ulaw(samples)) for samples in line]),
            ("A-law", 8_000, [from_alaw(to_alaw(samples)) for samples in line]),
        )
    }
    print("word error rate:", ", ".join(f"{what} {rate:.1%}" for what, rate in rates.items()))
    assert rates["mu-law"] <= 0.08
    assert rates["A-law"] <= 0.08


async def test_a_voice_stays_below_what_clips() -> None:
    peaks = [float(np.abs(await spoken(text, 8_000)).max()) for text in SENTENCES]
    print(f"peaks {20 * np.log10(min(peaks)):.1f} to {20 * np.log10(max(peaks)):.1f} dBFS")
    assert max(peaks) < 0.98
