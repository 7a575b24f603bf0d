"""Phonemes to samples: one voice's network, shared by all streams.

A stream's state lives in its generator, and ONNX Runtime's ``run`` may be called from several
threads at once, so any number of streams can speak with one voice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tts_plugins.engines.hibari.graph import Layout
from tts_plugins.engines.hibari.vocoder import HOP, SAMPLE_RATE, Spectra, Vocoder, draw_noise
from tts_plugins.network.session import Network
from tts_plugins.phonemes.ipa import vocabulary
from tts_plugins.types import Samples

OUTPUTS = ["lh", "theta", "ln", "lr", "phi", "f0"]
"""What hibari's network gives: five parts of the spectra, and the pitch."""

_CHUNKS = (16, 32, 64, 80)
"""Frames of 12.5 ms: the first chunk is soon there, the later ones cost less each."""
_SHORTEST_CHUNK = 8
UNIT = 2
"""Frames in a unit of duration."""
_AUDIBLE = -2.0 / 5.0
"""Predicted energy above which a frame is heard; silence has about -9.5 / 5.

Durations can't say where silence ends: speech starts up to 80 ms before the first phoneme does by
them, and ends 50 to 300 ms before the last one.
"""
_LEAD = 2
"""Frames kept in front of the first that is foretold to be heard, so that none is cut off."""
_PAUSE = 9
"""Frames of silence kept after a sentence: with what is inaudible before, about 150 ms."""
_JOINT = 2
"""Frames of silence kept after a piece of a sentence: about 50 ms, no longer than a comma."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is known of a run before its first sample."""

    bounds: NDArray[np.float64]
    """Seconds from the first sample at which each phoneme begins, and the last one ends, by the
    network's durations: shape [phonemes + 1]."""

    heard: float
    """Seconds until silence follows."""

    length: int
    """Samples in all."""


@dataclass(frozen=True, slots=True)
class Speech:
    """The samples of one run of phonemes, on their way."""

    chunks: Iterator[Samples]

    schedule: Schedule | None
    """``None`` when the network doesn't tell."""


class Speaker(Protocol):
    """A network that speaks phonemes."""

    def speak(
        self, phonemes: str, speed: float, rng: np.random.Generator, *, pause: bool
    ) -> Speech:
        """Start to speak.

        Args:
            phonemes: At most ``LONGEST``, in hibari's alphabet; others are passed over.
            speed: Ratio to the natural pace, 0.5 to 2.
            rng: Where the noise of the voice comes from.
            pause: Whether to end with the silence that follows a sentence.
        """
        ...


class StreamedSpeaker:
    """Speaks chunk by chunk and knows when each phoneme is heard."""

    def __init__(self, text: Network, decoder: Network, layout: Layout) -> None:
        self._text, self._decoder = text, decoder
        self.layout = layout

    def speak(
        self, phonemes: str, speed: float, rng: np.random.Generator, *, pause: bool
    ) -> Speech:
        ids, places = to_ids(phonemes)
        durations, features, pitch = self.predict(ids, speed)
        start, silent, stop = audible_frames(features[0, -1], pause=pause)
        ends = np.concatenate([[0], np.cumsum(durations)]) * (UNIT * HOP)
        schedule = Schedule(
            bounds=(ends[places] - start * HOP) / SAMPLE_RATE,
            heard=(silent - start) * HOP / SAMPLE_RATE,
            length=(stop - start) * HOP,
        )
        return Speech(self._chunks(features, pitch, start, stop, rng), schedule)

    def predict(
        self, ids: list[int], speed: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """The first half of the network.

        Returns:
            Durations of the ids in units of two frames; features, shape [1, channels, frames];
            pitch in hertz, shape [frames].
        """
        names = [self.layout.durations, self.layout.features, self.layout.pitch]
        durations, features, pitch = self._text.run(names, network_input(ids, speed))
        return durations.reshape(-1), features, pitch[0]

    def decode(
        self, features: NDArray[np.float32], start: int, stop: int, sizes: Iterator[int]
    ) -> Iterator[Spectra]:
        """Spectra of the frames ``start`` to ``stop``, computing no frame twice.

        Args:
            features: Of the whole run, shape [1, channels, frames].
            start: First frame wanted.
            stop: Frame after the last one wanted.
            sizes: How many frames to give at a time.
        """
        total, context = features.shape[2], self.layout.context
        fed = max(0, start - context)
        # The first frames out have too little behind them, unless the run begins there.
        surplus = start - fed
        state = {
            memory.name: np.zeros((1, memory.channels, memory.half), np.float32)
            for memory in self.layout.memories
        }
        wanted = [self.layout.spectra, *(m.update for m in self.layout.memories)]
        given = start
        while given < stop:
            given = min(stop, given + next(sizes))
            until = min(total, given + context)
            spectra, *updates = self._decoder.run(
                wanted,
                {
                    self.layout.features: features[:, :, fed:until],
                    **state,
                    **self._ends(closing=until == total),
                },
            )
            state = {m.name: u for m, u in zip(self.layout.memories, updates, strict=True)}
            if until == total:
                # What follows is known as well; once the end is fed, no call may come after it.
                given = stop
            fed = until
            fresh = spectra[0, surplus:]
            surplus = 0
            yield fresh[: len(fresh) - max(0, until - stop) if until == total else None]

    def _ends(self, *, closing: bool) -> dict[str, NDArray[np.float32]]:
        return {
            memory.end: np.zeros((1, memory.channels, memory.half if closing else 0), np.float32)
            for memory in self.layout.memories
        }

    def _chunks(
        self,
        features: NDArray[np.float32],
        pitch: NDArray[np.float32],
        start: int,
        stop: int,
        rng: np.random.Generator,
    ) -> Iterator[Samples]:
        vocoder = Vocoder(pitch, start, stop)
        sizes = _sizes(vocoder.end - vocoder.first)
        for spectra in self.decode(features, vocoder.first, vocoder.end, sizes):
            samples = vocoder.push(spectra, draw_noise(rng, len(spectra)))
            if len(samples):
                yield samples


class WholeSpeaker:
    """Speaks a run in one go: for a network that can't be cut. Knows no times."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def speak(
        self, phonemes: str, speed: float, rng: np.random.Generator, *, pause: bool
    ) -> Speech:
        ids, _ = to_ids(phonemes)

        def chunks() -> Iterator[Samples]:
            *heads, pitch = self._network.run(OUTPUTS, network_input(ids, speed))
            frames = pitch.shape[1]
            spectra = np.concatenate(heads, axis=1)[0].T
            samples = Vocoder(pitch[0], 0, frames).push(spectra, draw_noise(rng, frames))
            loud = np.abs(samples).reshape(frames, HOP).max(axis=1) - 2e-3
            start, _, stop = audible_frames(loud + _AUDIBLE, pause=pause)
            yield samples[start * HOP : stop * HOP]

        return Speech(chunks(), None)


def to_ids(phonemes: str) -> tuple[list[int], NDArray[np.intp]]:
    """The network's ids, and where each phoneme's begin.

    Returns:
        The ids, a pad in front and behind; and for each phoneme, and the end, the number of ids
        before it: shape [phonemes + 1].
    """
    known = vocabulary()
    ids = [known[c] for c in phonemes if c in known]
    places = np.cumsum([1, *(c in known for c in phonemes)])
    return [0, *ids, 0], places


def _sizes(total: int) -> Iterator[int]:
    """Frames per step, growing; what is too short for a chunk goes along with the one before."""
    sizes = iter(_CHUNKS)
    size = next(sizes)
    # The first block is final only when its neighbours on both sides are known.
    step = size + 3
    while True:
        total -= step
        yield step if total >= _SHORTEST_CHUNK else step + max(0, total)
        size = next(sizes, size)
        step = size


def audible_frames(energy: NDArray[np.float32], *, pause: bool) -> tuple[int, int, int]:
    """First frame to keep, first one of the silence at the end, and first one not to keep."""
    heard = np.flatnonzero(energy > _AUDIBLE)
    if not len(heard):
        return 0, 0, len(energy)
    silent = int(heard[-1]) + 1
    stop = silent + (_PAUSE if pause else _JOINT)
    return max(0, int(heard[0]) - _LEAD), silent, min(len(energy), stop)


def network_input(ids: list[int], speed: float) -> dict[str, Any]:
    """What hibari's network takes."""
    return {"ids": np.array([ids], np.int64), "speed": np.array([speed], np.float32)}
