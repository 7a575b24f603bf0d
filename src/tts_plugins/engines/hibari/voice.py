"""Phonemes to samples: one voice's network, loaded once and shared by all streams.

A stream's state lives in its generator, and ONNX Runtime's ``run`` may be called from several
threads at once, so any number of streams can speak with one voice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import onnxruntime as ort
from google.protobuf.message import DecodeError
from hibari.tts import ASSETS
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from tts_plugins.engines.hibari.graph import Halves, UnknownGraphError, cut
from tts_plugins.engines.hibari.vocoder import HOP, SAMPLE_RATE, Spectra, Vocoder, draw_noise
from tts_plugins.errors import EngineError
from tts_plugins.types import Samples

logger = logging.getLogger(__name__)

LONGEST = 400
"""Phonemes in one run: hibari's own limit."""

_INPUTS = ["ids", "speed"]
_OUTPUTS = ["lh", "theta", "ln", "lr", "phi", "f0"]
_CHUNKS = (16, 32, 64, 80)
"""Frames of 12.5 ms: the first chunk is soon there, the later ones cost less each."""
_SHORTEST_CHUNK = 8
_UNIT = 2
"""Frames in a unit of duration."""
_AUDIBLE = -2.0 / 5.0
"""Predicted energy above which a frame is heard; silence has about -9.5 / 5.

Durations can't say where silence ends: speech starts up to 80 ms before the first phoneme does by
them, and ends 50 to 300 ms before the last one.
"""
_LEAD = 3
"""Frames of silence kept in front: 40 ms."""
_PAUSE = 9
"""Frames of silence kept after a sentence: with what is inaudible before, about 150 ms."""
_JOINT = 2
"""Frames of silence kept after a piece of a sentence: about 50 ms, no longer than a comma."""
_TRIAL = "hˈW ɑɹ ju?"
_TOLERANCE = 0.05
"""Part of the spectra's spread that cutting may change; rounding to int8 makes 0.01."""

_ORT_ERRORS: tuple[type[Exception], ...] = tuple(
    getattr(ort_errors, name)
    for name in (
        "Fail",
        "InvalidArgument",
        "InvalidGraph",
        "InvalidProtobuf",
        "NoSuchFile",
        "NotImplemented",
        "RuntimeException",
    )
)
_UNFIT: tuple[type[Exception], ...] = (UnknownGraphError, *_ORT_ERRORS)
"""What comes of cutting a network that isn't built like the ones we know."""


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


class Voice(Protocol):
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


class StreamedVoice:
    """Speaks chunk by chunk and knows when each phoneme is heard."""

    def __init__(self, halves: Halves) -> None:
        self.layout = halves.layout
        self._text = _session(halves.text)
        self._decoder = _session(halves.decoder)

    def speak(
        self, phonemes: str, speed: float, rng: np.random.Generator, *, pause: bool
    ) -> Speech:
        ids, places = to_ids(phonemes)
        names = [self.layout.durations, self.layout.features, self.layout.pitch]
        durations, features, pitch = self._text.run(names, _request(ids, speed))
        start, silent, stop = _audible(features[0, -1], pause=pause)
        ends = np.concatenate([[0], np.cumsum(durations.reshape(-1))]) * (_UNIT * HOP)
        schedule = Schedule(
            bounds=(ends[places] - start * HOP) / SAMPLE_RATE,
            heard=(silent - start) * HOP / SAMPLE_RATE,
            length=(stop - start) * HOP,
        )
        return Speech(self._chunks(features, pitch[0], start, stop, rng), schedule)

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


class WholeVoice:
    """Speaks a run in one go: for a network that can't be cut. Knows no times."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session

    def speak(
        self, phonemes: str, speed: float, rng: np.random.Generator, *, pause: bool
    ) -> Speech:
        ids, _ = to_ids(phonemes)

        def chunks() -> Iterator[Samples]:
            *heads, pitch = self._session.run(_OUTPUTS, _request(ids, speed))
            frames = pitch.shape[1]
            spectra = np.concatenate(heads, axis=1)[0].T
            samples = Vocoder(pitch[0], 0, frames).push(spectra, draw_noise(rng, frames))
            loud = np.abs(samples).reshape(frames, HOP).max(axis=1) - 2e-3
            start, _, stop = _audible(loud + _AUDIBLE, pause=pause)
            yield samples[start * HOP : stop * HOP]

        return Speech(chunks(), None)


def load(path: Path) -> Voice:
    """Load a voice file.

    A network that can't be cut is spoken in one go; a warning in the log says why.

    Raises:
        EngineError: The file can't be read or isn't a voice of hibari.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EngineError(
            f"can't read the voice file {path}: {error.strerror or error}; "
            "check the path, or leave it out for the voice that comes with hibari"
        ) from error
    try:
        voice = StreamedVoice(halves := cut(data))
        _check(voice, halves)
    except _UNFIT as error:
        whole = _whole(data, path)
        logger.warning(
            "%s can't be streamed (%s): it is spoken a sentence at a time, without word times",
            path,
            str(error).splitlines()[0],
        )
        return whole
    except (DecodeError, ValueError) as error:
        raise _no_voice(path, "it is no ONNX model") from error
    return voice


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


@cache
def vocabulary() -> dict[str, int]:
    """The phonemes of hibari, and their ids."""
    text = Path(ASSETS, "vocab.json").read_text(encoding="utf-8")
    return cast("dict[str, int]", json.loads(text))


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


def _audible(energy: NDArray[np.float32], *, pause: bool) -> tuple[int, int, int]:
    """First frame to keep, first one of the silence at the end, and first one not to keep."""
    heard = np.flatnonzero(energy > _AUDIBLE)
    if not len(heard):
        return 0, 0, len(energy)
    silent = int(heard[-1]) + 1
    stop = silent + (_PAUSE if pause else _JOINT)
    return max(0, int(heard[0]) - _LEAD), silent, min(len(energy), stop)


def _check(voice: StreamedVoice, halves: Halves) -> None:
    """Compare the cut network to the one it was made of, on a short text."""
    # Optimizing the reference would take longer than running it as it is.
    session = _session(halves.whole, optimized=False)
    names = [*_OUTPUTS, halves.layout.durations, halves.layout.features]
    ids, _ = to_ids(_TRIAL)
    *heads, pitch, durations, features = session.run(names, _request(ids, 1.0))
    frames = features.shape[2]
    if int(durations.sum()) * _UNIT != frames or durations.size != len(ids):
        raise UnknownGraphError("the durations don't add up to the length of the audio")
    if pitch.shape != (1, frames):
        raise UnknownGraphError("the pitch has another rate")
    expected = np.concatenate(heads, axis=1)[0].T
    got = np.concatenate(list(voice.decode(features, 0, frames, iter([5, *[16] * frames]))))
    if got.shape != expected.shape:
        raise UnknownGraphError("the decoder gives another number of frames in pieces")
    change = float(np.std(got - expected) / np.std(expected))
    if not change < _TOLERANCE:
        raise UnknownGraphError(f"spoken in pieces it differs by {change:.0%}")
    samples = Vocoder(pitch[0], 0, frames).push(
        expected, draw_noise(np.random.default_rng(0), frames)
    )
    start, _, stop = _audible(features[0, -1], pause=False)
    outside = np.concatenate([samples[: start * HOP], samples[stop * HOP :]])
    if np.abs(outside).max(initial=0.0) > 0.01:
        raise UnknownGraphError("the energy doesn't tell silence from speech")


def _whole(data: bytes, path: Path) -> WholeVoice:
    try:
        session = _session(data)
    except _ORT_ERRORS as error:
        raise _no_voice(path, "ONNX Runtime can't run it") from error
    takes = [value.name for value in session.get_inputs()]
    gives = [value.name for value in session.get_outputs()]
    if sorted(takes) != _INPUTS or gives != _OUTPUTS:
        raise _no_voice(path, f"it takes {', '.join(takes)} and gives {', '.join(gives)}")
    return WholeVoice(session)


def _no_voice(path: Path, reason: str) -> EngineError:
    return EngineError(
        f"{path} isn't a voice of hibari: {reason}; delete it if it was downloaded, "
        "so that it is fetched again, or give the path of another file"
    )


def _session(data: bytes, *, optimized: bool = True) -> ort.InferenceSession:
    options = ort.SessionOptions()
    # One thread: streams run side by side, and a second thread spends its time waiting.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _request(ids: list[int], speed: float) -> dict[str, Any]:
    return {"ids": np.array([ids], np.int64), "speed": np.array([speed], np.float32)}
