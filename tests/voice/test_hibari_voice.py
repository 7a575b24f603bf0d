"""The default voice, judged by ear: is it understood, is it pleasant, are its words on time."""

from __future__ import annotations

import functools
import math
from contextlib import aclosing

import numpy as np
import pytest

from benchmarks.texts import REPLY, SENTENCES
from tts_plugins.engines.hibari import HibariEngine
from tts_plugins.phraser import Phraser
from tts_plugins.scheduler import Scheduler
from tts_plugins.turn import Turn
from tts_plugins.types import Samples, SynthesisRequest, Word

pytest.importorskip("faster_whisper", reason="needs the voice group: scripts/test --voice")
pytestmark = [
    pytest.mark.voice,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

from tests.voice import judges  # noqa: E402  after it is known that they are there

RATE = 24000


@functools.cache
def engine() -> HibariEngine:
    return HibariEngine()


@functools.cache
def streamed(text: str) -> tuple[Samples, tuple[Word, ...]]:
    chunks = list(engine().synthesize(SynthesisRequest(text, options={"seed": 1})))
    return (
        np.concatenate([chunk.samples for chunk in chunks]),
        tuple(word for chunk in chunks for word in chunk.words),
    )


@functools.cache
def one_shot(text: str) -> Samples:
    from hibari import Hibari

    samples: Samples = Hibari()(text, seed=1)
    return samples


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


def test_the_gauge_of_opinion_hears_a_listener_run_dry() -> None:
    whole = streamed(SENTENCES[1])[0]
    gap = np.zeros(RATE // 20, np.float32)
    played = [part for at in range(0, len(whole), RATE) for part in (whole[at : at + RATE], gap)]
    broken = np.concatenate(played)
    print(f"with 50 ms of silence each second: {judges.predicted_mos(broken, RATE):.2f}")
    assert judges.predicted_mos(broken, RATE) < judges.predicted_mos(whole, RATE) - 0.1


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


async def test_a_sentence_begun_early_sounds_like_a_whole_one() -> None:
    # The pieces that a reply of a word each 50 ms is cut into, joined as a listener hears them.
    now = [0.0]
    turn = Turn(Scheduler(engine(), max_ahead=math.inf), sample_rate=RATE, clock=lambda: now[0])
    pieces, samples = [], []
    phraser: Phraser = turn.phraser()
    for n, word in enumerate(REPLY.split(" ")):
        now[0] = n * 0.05
        for piece in phraser.push(word if n == 0 else " " + word):
            pieces.append(piece)
            async with aclosing(turn.say(piece)) as chunks:
                samples += [chunk.samples async for chunk in chunks]
    for piece in phraser.flush():
        pieces.append(piece)
        async with aclosing(turn.say(piece)) as chunks:
            samples += [chunk.samples async for chunk in chunks]
    assert "".join(pieces) == REPLY
    assert len(pieces) > 1
    joined = judges.predicted_mos(np.concatenate(samples), RATE)
    whole = judges.predicted_mos(streamed(REPLY)[0], RATE)
    print(f"predicted MOS: {len(pieces)} pieces {joined:.2f}, whole {whole:.2f}: {pieces}")
    assert joined >= whole - 0.2
