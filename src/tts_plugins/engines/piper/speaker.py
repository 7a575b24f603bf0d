"""Ids to samples: one voice's network, shared by all streams.

A stream's state lives in its generator, and ONNX Runtime's ``run`` may be called from several
threads at once, so any number of streams can speak with one voice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tts_plugins.engines.piper.graph import INPUTS, SPEAKER, TextLayout
from tts_plugins.engines.piper.resumable import ResumableNetwork
from tts_plugins.errors import EngineError
from tts_plugins.network.session import Network
from tts_plugins.types import Samples

_CHUNKS = (16, 32)
"""Frames of mostly 11.6 ms: the first chunk is soon there, the later ones cost less each, and no
step takes longer than about 40 ms."""
_SHORTEST_CHUNK = 12
_LEAD = 0.08
"""Seconds kept in front of the first sound by the durations: it begins up to 60 ms before."""
_PAUSE = 0.16
"""Seconds of silence kept after a sentence, at most: about what a voice makes itself."""
_JOINT = 0.05
"""Seconds of silence kept after a piece of a sentence."""
_LONGEST = 10_000
"""Frames of an id, at most: two minutes."""
_FLOW_CHUNK = 64
"""Frames that flow together once the first chunk is out: it reads all of its weights each time."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How to say something."""

    noise: float
    """Standard deviations of what is varied in the sound."""
    length: float
    """Ratio to the voice's natural durations."""
    noise_w: float
    """Standard deviations of what is varied in the durations."""
    speaker: int = 0
    """Which of the voice's speakers says it; a network that has but one may ask all the same."""


@dataclass(frozen=True, slots=True)
class Prior:
    """What the text half makes of ids."""

    durations: NDArray[np.int64]
    """Frames for each id, shape [ids]."""
    means: NDArray[np.float32]
    """Shape [ids, channels]."""
    deviations: NDArray[np.float32]
    """Shape [ids, channels]."""


@dataclass(frozen=True, slots=True)
class Sounding:
    """Which ids are heard, in an utterance that begins and ends with silence."""

    first: int
    """The first that is a sound."""
    stop: int
    """The one after the last that is a sound."""
    pause: bool
    """Whether to keep the silence that follows a sentence."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is known of an utterance before its first sample."""

    bounds: NDArray[np.int64]
    """Samples from the first one at which each id begins, and the last one ends, by the network's
    durations: shape [ids + 1]. Those in what is left out are below 0, or beyond the end."""

    length: int
    """Samples in all."""


@dataclass(frozen=True, slots=True)
class Speech:
    """What becomes of some ids, on its way."""

    chunks: Iterator[Samples]

    schedule: Schedule | None
    """``None`` when the network doesn't tell."""


class NoSoundError(EngineError):
    """The network gives numbers that are none, as with weights that are damaged."""

    def __init__(self) -> None:
        super().__init__("the voice gives no sound: its file is damaged; get it again")


class Speaker(Protocol):
    """A network that speaks ids. It raises NoSoundError when the ids give none."""

    def speak(
        self,
        ids: Sequence[int],
        sounding: Sounding,
        manner: Manner,
        rng: np.random.Generator,
        sample_rate: int,
    ) -> Speech:
        """Start to speak.

        Args:
            ids: What the network takes.
            sounding: Which of them aren't silence.
            manner: How to say it.
            rng: Where the noise comes from.
            sample_rate: Of the voice.
        """
        ...


class StreamedSpeaker:
    """Speaks chunk by chunk and knows when each id is heard."""

    def __init__(
        self, text: Network, layout: TextLayout, flow: ResumableNetwork, decoder: ResumableNetwork
    ) -> None:
        self._text, self._layout = text, layout
        self._flow, self._decoder = flow, decoder
        self.hop = decoder.layout.rate
        """Samples in a frame."""

    def speak(
        self,
        ids: Sequence[int],
        sounding: Sounding,
        manner: Manner,
        rng: np.random.Generator,
        sample_rate: int,
    ) -> Speech:
        prior = self.predict(ids, manner, rng)
        bounds = np.concatenate([[0], np.cumsum(prior.durations)])
        total = int(bounds[-1])
        behind = _PAUSE if sounding.pause else _JOINT
        frames = sample_rate / self.hop
        start = max(0, int(bounds[sounding.first] - _LEAD * frames))
        stop = min(total, int(bounds[sounding.stop] + behind * frames))
        sizes = _sizes(stop - start)
        return Speech(
            self.decode(prior, manner, rng, start, stop, sizes),
            Schedule((bounds - start) * self.hop, (stop - start) * self.hop),
        )

    def predict(self, ids: Sequence[int], manner: Manner, rng: np.random.Generator) -> Prior:
        """The first part of the network."""
        layout = self._layout
        feeds = network_input(ids, manner)
        if layout.noise:
            # Id by id, where the network draws one row after the other.
            feeds[layout.noise] = rng.standard_normal((len(ids), 2), np.float32).T[None]
        names = [layout.durations, layout.means, layout.spreads]
        durations, means, spreads = self._text.run(
            names, {name: feeds[name] for name in self._text.inputs}
        )
        durations = _numbers(durations.reshape(-1))
        if durations.min() < 0 or durations.max() > _LONGEST:
            raise NoSoundError
        with np.errstate(over="ignore"):  # what is then infinite is none of the numbers
            deviations = _numbers(np.exp(spreads[0]))
        return Prior(durations.astype(np.int64), _numbers(means[0]), deviations)

    def decode(
        self,
        prior: Prior,
        manner: Manner,
        rng: np.random.Generator,
        start: int,
        stop: int,
        sizes: Iterator[int],
        *,
        flow_chunk: int = _FLOW_CHUNK,
    ) -> Iterator[Samples]:
        """The samples of frames ``start`` to ``stop``, as they are of the whole.

        Args:
            sizes: Frames to give at a time.
            flow_chunk: Frames to flow together, at least, after the first time.
        """
        total = int(prior.durations.sum())
        context = self._decoder.layout.context
        first = max(0, start - context)
        frames = _Frames(self._flow, prior, manner, rng, first, min(total, stop + context))
        decoding = self._decoder.stream(_others(manner))
        surplus = (start - first) * self.hop
        left = (stop - start) * self.hop
        fed, given = first, start
        while left:
            given = min(stop, given + next(sizes))
            until = min(total, given + context)
            if until <= fed:
                continue
            samples = decoding.push(frames.read(until - fed, flow_chunk), last=until == total)
            fed = until
            samples = samples[0, 0, surplus : surplus + left]
            surplus = 0
            left -= len(samples)
            yield _numbers(samples)


class WholeSpeaker:
    """Speaks in one go: for a network that can't be cut. Knows no times, and no seed."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def speak(
        self,
        ids: Sequence[int],
        sounding: Sounding,
        manner: Manner,
        rng: np.random.Generator,
        sample_rate: int,
    ) -> Speech:
        del sounding, rng, sample_rate

        def chunks() -> Iterator[Samples]:
            given = network_input(ids, manner)
            feeds = {
                name: given[name].astype(_TYPES.get(info.type, given[name].dtype))
                for name, info in self._network.inputs.items()
            }
            samples, *_ = self._network.run(None, feeds)
            yield _numbers(samples.reshape(-1).astype(np.float32))

        return Speech(chunks(), None)


_TYPES = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}


class _Frames:
    """Frames for the decoder, as they are asked for."""

    def __init__(
        self,
        flow: ResumableNetwork,
        prior: Prior,
        manner: Manner,
        rng: np.random.Generator,
        start: int,
        stop: int,
    ) -> None:
        self._context = flow.layout.context
        self._stream = flow.stream(_others(manner))
        self._prior, self._scale, self._rng = prior, np.float32(manner.noise), rng
        self._id_of = np.repeat(np.arange(len(prior.durations)), prior.durations)
        self._stop = min(len(self._id_of), stop + self._context)
        """Frame after the last that has to flow."""
        self._fed = max(0, start - self._context)
        self._surplus = start - self._fed
        self._ready: NDArray[np.float32] | None = None
        # Noise belongs to its frame, wherever one begins: so it is drawn for those before as well.
        self._noise(self._fed)

    def read(self, n: int, chunk: int) -> NDArray[np.float32]:
        """The next ``n`` frames, [1, channels, n]; at least ``chunk`` are computed together."""
        ready = self._ready
        if ready is None:
            self._ready = ready = self._flow(n + self._surplus + self._context)
            self._ready = ready = ready[:, :, self._surplus :]
        elif n > ready.shape[2]:
            more = self._flow(max(chunk, n - ready.shape[2]))
            self._ready = ready = np.concatenate([ready, more], axis=2)
        self._ready = ready[:, :, n:]
        return ready[:, :, :n]

    def _flow(self, n: int) -> NDArray[np.float32]:
        """Feed the next ``n`` frames, and a rest too short for a call of its own."""
        begin, end = self._fed, self._fed + n
        if self._stop - end < self._context:
            end = self._stop
        self._fed = end
        ids = self._id_of[begin:end]
        frames = self._noise(end - begin)
        frames *= self._prior.deviations[ids]
        frames *= self._scale
        frames += self._prior.means[ids]
        prior = np.ascontiguousarray(frames.T)[None]
        return self._stream.push(prior, last=end == len(self._id_of))

    def _noise(self, n: int) -> NDArray[np.float32]:
        """For the next ``n`` frames, drawn frame by frame: so a seed gives the same however they
        are cut.
        """
        return self._rng.standard_normal((n, self._prior.means.shape[1]), np.float32)


def _sizes(total: int) -> Iterator[int]:
    """Frames per step, growing; what is too short for a chunk goes along with the one before."""
    sizes = iter(_CHUNKS)
    size = next(sizes)
    while True:
        total -= size
        yield size if total >= _SHORTEST_CHUNK else size + max(0, total)
        size = next(sizes, size)


def network_input(ids: Sequence[int], manner: Manner) -> dict[str, Any]:
    """What Piper's networks take."""
    given = [
        np.array([ids], np.int64),
        np.array([len(ids)], np.int64),
        np.array([manner.noise, manner.length, manner.noise_w], np.float32),
    ]
    return {**dict(zip(INPUTS, given, strict=True)), **_others(manner)}


def _others(manner: Manner) -> dict[str, NDArray[Any]]:
    return {SPEAKER: np.array([manner.speaker], np.int64)}


def _numbers(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """``values``, which have to be finite."""
    if not np.isfinite(values).all():
        raise NoSoundError
    return values
