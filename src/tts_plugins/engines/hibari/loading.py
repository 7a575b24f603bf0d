"""Load a voice file: cut its network if it can be, and make sure that it still sounds the same."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError

from tts_plugins.engines.hibari.graph import Halves, cut
from tts_plugins.engines.hibari.speaker import (
    OUTPUTS,
    UNIT,
    Speaker,
    StreamedSpeaker,
    WholeSpeaker,
    audible_frames,
    network_input,
    to_ids,
)
from tts_plugins.engines.hibari.vocoder import HOP, Vocoder, draw_noise
from tts_plugins.errors import EngineError, first_line
from tts_plugins.network.graph import UnknownGraphError
from tts_plugins.network.session import UNRUNNABLE, Network

logger = logging.getLogger(__name__)

_TRIAL = "hˈW ɑɹ ju?"
_TOLERANCE = 0.05
"""Part of the spectra's spread that cutting may change; rounding to int8 makes 0.01."""

_UNFIT: tuple[type[Exception], ...] = (UnknownGraphError, *UNRUNNABLE)
"""What comes of cutting a network that isn't built like the ones we know."""


def load(path: Path) -> Speaker:
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
        halves = cut(data)
        speaker = StreamedSpeaker(Network(halves.text), Network(halves.decoder), halves.layout)
        _check(speaker, halves)
    except _UNFIT as error:
        whole = _whole(data, path)
        logger.warning(
            "%s can't be streamed (%s): it is spoken a sentence at a time, without word times",
            path,
            first_line(error),
        )
        return whole
    except (DecodeError, ValueError) as error:
        raise _no_voice(path, "it is no ONNX model") from error
    return speaker


def _check(speaker: StreamedSpeaker, halves: Halves) -> None:
    """Compare the cut network to the one it was made of, on a short text."""
    # Optimizing the reference would take longer than running it as it is.
    network = Network(halves.whole, optimized=False)
    names = [*OUTPUTS, halves.layout.durations, halves.layout.features]
    ids, _ = to_ids(_TRIAL)
    *heads, pitch, durations, features = network.run(names, network_input(ids, 1.0))
    frames = features.shape[2]
    if int(durations.sum()) * UNIT != frames or durations.size != len(ids):
        raise UnknownGraphError("the durations don't add up to the length of the audio")
    # Rounding may move a duration by a unit where it is optimized in another way.
    if np.abs(speaker.predict(ids, 1.0)[0] - durations.reshape(-1)).max() > 1:
        raise UnknownGraphError("the durations differ when they are computed alone")
    if pitch.shape != (1, frames):
        raise UnknownGraphError("the pitch has another rate")
    expected = np.concatenate(heads, axis=1)[0].T
    got = np.concatenate(list(speaker.decode(features, 0, frames, iter([5, *[16] * frames]))))
    if got.shape != expected.shape:
        raise UnknownGraphError("the decoder gives another number of frames in pieces")
    change = float(np.std(got - expected) / np.std(expected))
    if not change < _TOLERANCE:
        raise UnknownGraphError(f"spoken in pieces it differs by {change:.0%}")
    samples = Vocoder(pitch[0], 0, frames).push(
        expected, draw_noise(np.random.default_rng(0), frames)
    )
    start, _, stop = audible_frames(features[0, -1], pause=False)
    outside = np.concatenate([samples[: start * HOP], samples[stop * HOP :]])
    if np.abs(outside).max(initial=0.0) > 0.01:
        raise UnknownGraphError("the energy doesn't tell silence from speech")


def _whole(data: bytes, path: Path) -> WholeSpeaker:
    try:
        network = Network(data)
    except UNRUNNABLE as error:
        raise _no_voice(path, "ONNX Runtime can't run it") from error
    takes, gives = list(network.inputs), network.outputs
    if sorted(takes) != ["ids", "speed"] or gives != OUTPUTS:
        raise _no_voice(path, f"it takes {', '.join(takes)} and gives {', '.join(gives)}")
    return WholeSpeaker(network)


def _no_voice(path: Path, reason: str) -> EngineError:
    return EngineError(
        f"{path} isn't a voice of hibari: {reason}; delete it if it was downloaded, "
        "so that it is fetched again, or give the path of another file"
    )
