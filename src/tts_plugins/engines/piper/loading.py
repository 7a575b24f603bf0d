"""Load a voice's network: cut it if it can be, and make sure that it still sounds the same."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from tts_plugins.devices import CPU
from tts_plugins.engines.piper.graph import INPUTS, SPEAKER, Parts, cut
from tts_plugins.engines.piper.resumable import ResumableNetwork
from tts_plugins.engines.piper.speaker import (
    Manner,
    NoSoundError,
    Speaker,
    StreamedSpeaker,
    WholeSpeaker,
    network_input,
)
from tts_plugins.errors import EngineError, first_line
from tts_plugins.network.graph import UnknownGraphError
from tts_plugins.network.session import UNRUNNABLE, Network

logger = logging.getLogger(__name__)

_TRIAL_IDS = 60
_LEAST_SNR, _LEAST_ELSEWHERE = 80.0, 40.0
"""Decibels by which the sound is above what cutting changes. Rounding leaves 110 on a CPU, and
less where convolutions are rounded to fewer bits; a wrong cut leaves less than 30."""

_UNFIT: tuple[type[Exception], ...] = (
    UnknownGraphError,
    *UNRUNNABLE,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
)
"""What comes of cutting a network that isn't built like the ones we know."""


def load(path: Path, ids: Sequence[int], *, providers: Sequence[str] = CPU) -> Speaker:
    """Load a voice's network.

    One that can't be cut is spoken in one go; a warning in the log says why.

    Args:
        path: An ONNX file.
        ids: Some that the voice knows, to try it with.
        providers: Where to run it, as ONNX Runtime calls them.

    Raises:
        EngineError: The file can't be read, isn't a voice of Piper, or can't run there.
    """
    model = _read(path)
    takes = [info.name for info in model.graph.input]
    if sorted({*takes} - {SPEAKER}) != sorted(INPUTS):
        raise _no_voice(path, f"it takes {', '.join(takes) or 'nothing'}")
    try:
        parts = cut(model)
        del model
        text = Network(parts.text, providers=providers)
        speaker = StreamedSpeaker(
            text,
            parts.text_layout,
            ResumableNetwork(Network(parts.flow, providers=providers), parts.flow_layout),
            ResumableNetwork(Network(parts.decoder, providers=providers), parts.decoder_layout),
        )
        _check_place(text, providers)
        least = _LEAST_SNR if tuple(providers) == CPU else _LEAST_ELSEWHERE
        _check(speaker, parts, ids, least)
    except NoSoundError as error:
        raise EngineError(f"{path}: {error}") from error
    except _UNFIT as error:
        whole = _whole(path, providers)
        logger.warning(
            "%s can't be streamed (%s): it is spoken a sentence at a time, without word times",
            path,
            first_line(error),
        )
        return whole
    finally:
        gc.collect()  # a graph and its parts are tens of megabytes, and hold each other
    return speaker


def _read(path: Path) -> onnx.ModelProto:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EngineError(
            f"can't read the voice file {path}: {error.strerror or error}; check the path"
        ) from error
    try:
        model = onnx.load_model_from_string(content)
        onnx.load_external_data_for_model(model, str(path.parent))
    except DecodeError as error:
        raise _no_voice(path, "it is no ONNX model") from error
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise _no_voice(path, first_line(error)) from error
    return model


def _check(speaker: StreamedSpeaker, parts: Parts, ids: Sequence[int], least: float) -> None:
    """Compare what comes in pieces to what the network as it was makes of the same noise."""
    ids = (list(ids) * _TRIAL_IDS)[:_TRIAL_IDS]
    manner = Manner(0.667, 1.0, 0.8)
    prior = speaker.predict(ids, manner, np.random.default_rng(0))
    total = int(prior.durations.sum())
    layout = parts.text_layout
    if prior.means.shape != (len(ids), layout.channels) or total < len(ids) // 4:
        raise UnknownGraphError("the durations aren't those of the ids")
    noise = np.random.default_rng(1).standard_normal((total, layout.channels), "f4")
    feeds = {
        **network_input(ids, manner),
        layout.durations: prior.durations.astype(np.float32)[None, None],
        parts.prior_noise: np.ascontiguousarray(noise.T)[None],
    }
    # Optimizing the reference would take longer than running it as it is.
    whole = Network(parts.whole, optimized=False)
    (expected,) = whole.run(None, {name: feeds[name] for name in whole.inputs})
    pieces = speaker.decode(
        prior, manner, np.random.default_rng(1), 0, total, repeat(20), flow_chunk=20
    )
    got = np.concatenate(list(pieces))
    expected = expected.reshape(-1)
    if got.shape != expected.shape:
        raise UnknownGraphError("it makes another number of samples in pieces")
    error = float(np.mean(np.square(got - expected, dtype=np.float64)))
    power = float(np.mean(np.square(expected, dtype=np.float64)))
    if not error < power * 10 ** (-least / 10):
        raise UnknownGraphError("it sounds different in pieces")


def _check_place(network: Network, providers: Sequence[str]) -> None:
    """ONNX Runtime goes elsewhere without a word when a driver or a library is missing."""
    if providers[0] not in network.providers:
        raise EngineError(
            f"ONNX Runtime can't use {providers[0]} here: check the driver and the libraries that "
            "it needs, or choose the device cpu"
        )


def _whole(path: Path, providers: Sequence[str]) -> WholeSpeaker:
    try:
        network = Network(str(path), providers=providers)
    except UNRUNNABLE as error:
        raise _no_voice(path, "ONNX Runtime can't run it") from error
    _check_place(network, providers)
    return WholeSpeaker(network)


def _no_voice(path: Path, reason: str) -> EngineError:
    return EngineError(
        f"{path} isn't a voice of Piper: {reason}; give the path of a .onnx file that was made by "
        "piper's export, or download it again"
    )
