"""In pieces a voice says what it says at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, repeat
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engines.piper import tiny
from tts_plugins.engines.piper.config import read_config
from tts_plugins.engines.piper.loading import load
from tts_plugins.engines.piper.speaker import Manner, Prior, Sounding, StreamedSpeaker
from tts_plugins.network.session import Network
from tts_plugins.types import Samples

MANNER = Manner(0.667, 1.0, 0.8)
PHONEMES = "ðə kwˈɪk bɹˈaʊn fˈɑːks dʒˈʌmps ˌoʊvɚ ðə lˈeɪzi dˈɔːɡ."
SEED = 3


@pytest.fixture(scope="module")
def ids(joe: Path) -> list[int]:
    found, _, unknown = read_config(joe).to_ids(PHONEMES)
    assert unknown == set()
    return found


@pytest.fixture(scope="module")
def voice(joe: Path, ids: list[int]) -> StreamedSpeaker:
    voice = load(joe, ids)
    assert isinstance(voice, StreamedSpeaker)
    return voice


@pytest.fixture(scope="module")
def prior(voice: StreamedSpeaker, ids: list[int]) -> Prior:
    return voice.predict(ids, MANNER, np.random.default_rng(SEED))


@pytest.fixture(scope="module")
def whole(joe: Path, ids: list[int], prior: Prior) -> Samples:
    """What the network that nobody has touched makes of the same noise."""
    model, (first, second) = tiny.fed_noise(onnx.load_model(joe))
    frames = int(prior.durations.sum())
    durations_noise = np.random.default_rng(SEED).standard_normal((len(ids), 2), np.float32)
    noise = np.random.default_rng(SEED).standard_normal((frames, 192), np.float32)
    (samples,) = Network(model.SerializeToString()).run(
        None,
        {
            "input": np.array([ids]),
            "input_lengths": np.array([len(ids)]),
            "scales": np.array([0.667, 1.0, 0.8], np.float32),
            first: durations_noise.T[None],
            second: noise.T[None],
        },
    )
    assert samples.size == frames * 256
    return samples.reshape(-1)


def decoded(
    voice: StreamedSpeaker, prior: Prior, start: int, stop: int, sizes: Sequence[int]
) -> Samples:
    rng = np.random.default_rng(SEED)
    return np.concatenate(list(voice.decode(prior, MANNER, rng, start, stop, cycle(sizes))))


def decibels(expected: Samples, got: Samples) -> float:
    assert got.shape == expected.shape
    difference = max(1e-30, np.square(got - expected, dtype=np.float64).mean())
    return float(10 * np.log10(np.square(expected, dtype=np.float64).mean() / difference))


@pytest.mark.parametrize("sizes", [[16, 32], [7], [128], [1, 60], [10_000]])
def test_in_pieces_it_sounds_as_at_once(
    voice: StreamedSpeaker, prior: Prior, whole: Samples, sizes: list[int]
) -> None:
    frames = int(prior.durations.sum())
    assert decibels(whole, decoded(voice, prior, 0, frames, sizes)) >= 100


@pytest.mark.parametrize(("start", "stop"), [(5, 150), (60, 61), (100, 120), (3, 8)])
def test_a_part_is_that_part(
    voice: StreamedSpeaker, prior: Prior, whole: Samples, start: int, stop: int
) -> None:
    part = decoded(voice, prior, start, stop, [16])
    assert decibels(whole[start * 256 : stop * 256], part) >= 90


@pytest.fixture(scope="module")
def tiny_speaker(tiny_voice: Path) -> StreamedSpeaker:
    voice = load(tiny_voice, [9, 10, 11])
    assert isinstance(voice, StreamedSpeaker)
    return voice


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 34), min_size=1, max_size=30),
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.integers(1, 100),
)
def test_any_ids_in_any_pieces_sound_as_at_once(
    tiny_speaker: StreamedSpeaker, ids: list[int], sizes: list[int], flow_chunk: int
) -> None:
    prior = tiny_speaker.predict(ids, MANNER, np.random.default_rng(SEED))
    frames = int(prior.durations.sum())
    rng = np.random.default_rng(SEED)
    (once,) = tiny_speaker.decode(prior, MANNER, rng, 0, frames, repeat(frames))
    rng = np.random.default_rng(SEED)
    pieces = np.concatenate(
        list(
            tiny_speaker.decode(prior, MANNER, rng, 0, frames, cycle(sizes), flow_chunk=flow_chunk)
        )
    )
    assert len(once) == frames * tiny.HOP
    assert decibels(once, pieces) >= 100


def test_chunks_grow_and_add_up(voice: StreamedSpeaker, ids: list[int]) -> None:
    speech = voice.speak(
        ids, Sounding(2, len(ids) - 3, True), MANNER, np.random.default_rng(0), 22_050
    )
    assert speech.schedule is not None
    lengths = [len(chunk) / 256 for chunk in speech.chunks]
    assert 16 <= lengths[0] < 17
    assert lengths[1:3] == [32, 32]
    assert sum(lengths) * 256 == speech.schedule.length


def test_a_sentence_keeps_its_pause_and_a_piece_of_one_less(
    voice: StreamedSpeaker, ids: list[int]
) -> None:
    ends = []
    for pause in (True, False):
        sounding = Sounding(2, len(ids) - 3, pause)
        speech = voice.speak(ids, sounding, MANNER, np.random.default_rng(0), 22_050)
        assert speech.schedule is not None
        ends.append((speech.schedule.length - speech.schedule.bounds[len(ids) - 3]) / 22_050)
    assert ends[0] == pytest.approx(0.16, abs=0.012) or ends[0] < 0.16
    assert ends[1] == pytest.approx(0.05, abs=0.012)


def test_a_slower_voice_takes_longer(voice: StreamedSpeaker, ids: list[int]) -> None:
    def frames(length: float) -> int:
        manner = Manner(0.667, length, 0.0)
        return int(voice.predict(ids, manner, np.random.default_rng(0)).durations.sum())

    assert frames(2.0) / frames(1.0) == pytest.approx(2.0, rel=0.15)
    assert frames(0.5) / frames(1.0) == pytest.approx(0.5, rel=0.3)
