"""In pieces a voice says what it says at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tts_plugins.engines.hibari.loading import load
from tts_plugins.engines.hibari.speaker import StreamedSpeaker, to_ids
from tts_plugins.engines.hibari.vocoder import HOP

PHONEMES = "ðə kwˈɪk bɹˈWn fˈɑks ʤˈʌmps ˈOvəɹ ðə lˈAzi dˈɔɡ."


@pytest.fixture(scope="module")
def voice(model_file: Path) -> StreamedSpeaker:
    voice = load(model_file)
    assert isinstance(voice, StreamedSpeaker)
    return voice


def features_of(voice: StreamedSpeaker) -> NDArray[np.float32]:
    ids, _ = to_ids(PHONEMES)
    _, features, _ = voice.predict(ids, 1.0)
    return features


def sizes(size: int) -> Iterator[int]:
    while True:
        yield size


@pytest.mark.parametrize("size", [1, 16, 80])
def test_decoding_in_pieces_gives_what_decoding_at_once_does(
    voice: StreamedSpeaker, size: int
) -> None:
    features = features_of(voice)
    frames = features.shape[2]
    (whole,) = voice.decode(features, 0, frames, sizes(frames))
    pieces = np.concatenate(list(voice.decode(features, 0, frames, sizes(size))))
    assert pieces.shape == whole.shape == (frames, 3005)
    # What is left is int8: the scale of a piece isn't that of the whole.
    assert np.std(pieces - whole) < 0.02 * np.std(whole)


@pytest.mark.parametrize(("start", "stop"), [(24, 200), (1, 40), (60, 61), (200, 246)])
def test_decoding_a_part_gives_that_part(voice: StreamedSpeaker, start: int, stop: int) -> None:
    features = features_of(voice)
    (whole,) = voice.decode(features, 0, features.shape[2], sizes(1000))
    part = np.concatenate(list(voice.decode(features, start, stop, sizes(16))))
    assert part.shape == (stop - start, 3005)
    assert np.std(part - whole[start:stop]) < 0.02 * np.std(whole)


def test_chunks_grow_and_add_up(voice: StreamedSpeaker) -> None:
    speech = voice.speak(PHONEMES, 1.0, np.random.default_rng(0), pause=True)
    lengths = [len(chunk) // HOP for chunk in speech.chunks]
    assert lengths[:3] == [16, 32, 64]
    assert speech.schedule is not None
    assert sum(lengths) * HOP == speech.schedule.length


def test_silence_is_left_out_but_for_a_breath(voice: StreamedSpeaker) -> None:
    speech = voice.speak(PHONEMES, 1.0, np.random.default_rng(0), pause=True)
    loud = np.flatnonzero(np.abs(np.concatenate(list(speech.chunks))) > 0.005)
    assert speech.schedule is not None
    assert 0.01 < loud[0] / 24_000 < 0.09
    assert 0.10 < (speech.schedule.length - loud[-1]) / 24_000 < 0.20


def test_a_piece_of_a_sentence_ends_closer(voice: StreamedSpeaker) -> None:
    speech = voice.speak(PHONEMES[:-1], 1.0, np.random.default_rng(0), pause=False)
    loud = np.flatnonzero(np.abs(np.concatenate(list(speech.chunks))) > 0.005)
    assert speech.schedule is not None
    assert (speech.schedule.length - loud[-1]) / 24_000 < 0.08


@pytest.mark.parametrize(("speed", "ratio"), [(0.5, 2.0), (1.5, 0.67), (2.0, 0.5)])
def test_speed_scales_the_durations(voice: StreamedSpeaker, speed: float, ratio: float) -> None:
    def seconds(speed: float) -> float:
        schedule = voice.speak(PHONEMES, speed, np.random.default_rng(0), pause=False).schedule
        assert schedule is not None
        return schedule.heard

    assert seconds(speed) / seconds(1.0) == pytest.approx(ratio, rel=0.15)
