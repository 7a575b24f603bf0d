"""However the frames are cut, the samples are those of hibari's own signal processing."""

from __future__ import annotations

import numpy as np
import pytest
from hibari import dsp
from numpy.typing import NDArray

from tts_plugins.engines.hibari.vocoder import HOP, Noise, Spectra, Vocoder, draw_noise
from tts_plugins.types import Samples


class NoiseInBins:
    """Hands hibari the noise that the frames had."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def standard_normal(
        self, shape: tuple[int, int], dtype: type[np.float32]
    ) -> NDArray[np.float32]:
        bins = np.ascontiguousarray(self._noise.T).view(dtype)
        assert bins.shape == shape
        return bins


def utterance(frames: int) -> tuple[Spectra, NDArray[np.float32], Noise]:
    """Spectra, pitch and noise such as a network might give, with voiced and unvoiced parts."""
    rng = np.random.default_rng(frames)
    spectra = rng.standard_normal((frames, 3005), dtype=np.float32)
    spectra[:, :601] -= 4
    spectra[:, 1202:2404] -= 6
    at = np.arange(frames)
    pitch = np.where(at % 50 < 35, 190 + 60 * np.sin(at / 9), 0).astype(np.float32)
    return spectra, pitch, draw_noise(rng, frames)


def at_once(spectra: Spectra, pitch: NDArray[np.float32], noise: Noise) -> Samples:
    parts = [np.ascontiguousarray(part.T) for part in np.split(spectra, 5, axis=1)]
    samples: Samples = dsp.synth(*parts, pitch, NoiseInBins(noise))
    return samples


def in_pieces(
    spectra: Spectra,
    pitch: NDArray[np.float32],
    noise: Noise,
    size: int,
    start: int = 0,
    stop: int | None = None,
) -> Samples:
    vocoder = Vocoder(pitch, start, len(pitch) if stop is None else stop)
    cuts = range(vocoder.first, vocoder.end, size)
    ends = [min(at + size, vocoder.end) for at in cuts]
    pieces = [
        vocoder.push(spectra[a:b], noise[a:b].copy()) for a, b in zip(cuts, ends, strict=True)
    ]
    return np.concatenate(pieces)


@pytest.mark.parametrize("frames", [6, 41, 180])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 80, 1000])
def test_samples_are_bit_identical_however_the_frames_are_cut(frames: int, size: int) -> None:
    spectra, pitch, noise = utterance(frames)
    whole = at_once(spectra, pitch, noise)
    assert np.array_equal(in_pieces(spectra, pitch, noise, size), whole)


@pytest.mark.parametrize(("start", "stop"), [(0, 30), (1, 59), (2, 60), (3, 58), (23, 24)])
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_part_is_a_bit_identical_slice_of_the_whole(start: int, stop: int, size: int) -> None:
    spectra, pitch, noise = utterance(60)
    whole = at_once(spectra, pitch, noise)
    part = in_pieces(spectra, pitch, noise, size, start, stop)
    assert np.array_equal(part, whole[start * HOP : stop * HOP])


def test_samples_come_two_frames_late_and_no_later() -> None:
    spectra, pitch, noise = utterance(20)
    vocoder = Vocoder(pitch, 0, 20)
    lengths = [len(vocoder.push(spectra[i : i + 5], noise[i : i + 5])) for i in range(0, 20, 5)]
    assert lengths == [3 * HOP, 5 * HOP, 5 * HOP, 7 * HOP]


def test_a_seed_gives_the_same_noise_however_it_is_drawn() -> None:
    whole = draw_noise(np.random.default_rng(7), 10)
    rng = np.random.default_rng(7)
    pieces = [draw_noise(rng, n) for n in (1, 2, 7)]
    assert np.array_equal(np.concatenate(pieces), whole)
