"""What a voice is to the network: what it remembers after hearing a recording.

That is a cache of keys and values for each layer, 50 kB to 0.6 MB for each second heard. The
package has it ready for voices of its own, one file for a voice and a model, on huggingface.co.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from pocket_tts import export_model_state
from pocket_tts.default_parameters import get_default_voice_for_language
from pocket_tts.modules.stateful_module import init_states
from pocket_tts.utils.utils import _ORIGINS_OF_PREDEFINED_VOICES, get_predefined_voice

from tts_plugins.audio.resample import StreamResampler
from tts_plugins.engines.pocket.loading import check_cloning, check_there, reason, remedy
from tts_plugins.errors import EngineError
from tts_plugins.types import AudioChunk

State = dict[str, dict[str, torch.Tensor]]
"""By layer: ``cache`` of shape [2, 1, positions, heads, n], and ``offset``, how many are filled."""

_LONGEST = 30
"""Seconds of a recording that are heard; the package cuts there as well, where it cuts."""

_RETRY_AFTER = 30.0
"""Seconds in which what couldn't be downloaded isn't tried again: whoever asks for it with each
sentence shall not keep everybody else waiting each time."""


def learn(model: Any, clip: AudioChunk) -> State:
    """What the network remembers of a recording's first 30 seconds.

    Raises:
        EngineError: The model was loaded without what that takes.
    """
    check_cloning(model)
    resampler = StreamResampler(clip.sample_rate, model.sample_rate)
    samples = clip.samples[: _LONGEST * clip.sample_rate]
    heard = torch.cat([torch.tensor(part) for part in (resampler.push(samples), resampler.flush())])
    state: State = model.get_state_for_audio_prompt(heard[None])
    return state


def save(state: State, path: Path) -> None:
    """Write a state as the package writes its own."""
    export_model_state(state, path)


def load(model: Any, source: Path | str) -> State:
    """Read a state from a .safetensors, or get one of the package's own voices.

    Raises:
        ValueError: It isn't one, or is one of another model.
        Exception: What the package raises for a file that can't be read, or not be had.
    """
    state: State = model.get_state_for_audio_prompt(source)
    fitting = init_states(model.flow_lm, batch_size=1, sequence_length=1)
    if state.keys() != fitting.keys() or not all(
        _fits(state[name], fitting[name]) for name in fitting
    ):
        raise ValueError("this isn't a voice of this model")
    return state


class Catalogue:
    """The voices that the package has for a model, each fetched when it is first asked for.

    Args:
        model: What to speak them with; one that wasn't loaded by its name has none.
        name: What the package calls it, or ``None``.
        clock: Monotonic time in seconds. Tests pass their own.
    """

    def __init__(
        self, model: Any, name: str | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._model, self._model_name, self._clock = model, name, clock
        self.names: Sequence[str] = () if name is None else tuple(_ORIGINS_OF_PREDEFINED_VOICES)
        self._locks = {voice: threading.Lock() for voice in self.names}
        self._states: dict[str, State] = {}
        self._failures: dict[str, tuple[float, str]] = {}

    @property
    def default(self) -> str | None:
        """The voice that the package would speak with."""
        name: str | None = None
        if self._model_name is not None:
            name = get_default_voice_for_language(self._model_name)
        return name

    def ready(self, voice: str) -> bool:
        """Whether it is here already."""
        if voice in self._states:
            return True
        source = get_predefined_voice(language=self._model_name, name=voice)
        address, _, revision = source.removeprefix("hf://").partition("@")
        owner, repository, file = address.split("/", 2)
        found = try_to_load_from_cache(f"{owner}/{repository}", file, revision=revision or None)
        return isinstance(found, str)

    def find(self, voice: str) -> State:
        """A voice's state.

        Raises:
            EngineError: It can't be downloaded, or is of no use, or the model was dropped.
        """
        with self._locks[voice]:
            if voice in self._states:
                return self._states[voice]
            failed, message = self._failures.get(voice, (0.0, ""))
            if message and self._clock() < failed + _RETRY_AFTER:
                raise EngineError(message)
            model = self._model
            check_there(model)
            try:
                self._states[voice] = load(model, voice)
            except Exception as error:  # hub, files, torch: each has errors of its own
                message = f"pocket's voice {voice!r} can't be had: {reason(error)}; {remedy(error)}"
                self._failures[voice] = (self._clock(), message)
                raise EngineError(message) from error
            return self._states[voice]

    def drop(self) -> None:
        """Let go of the model, and of what was fetched."""
        self._model = None
        self._states.clear()


def _fits(module: dict[str, torch.Tensor], fitting: dict[str, torch.Tensor]) -> bool:
    cache, offset = module.get("cache"), module.get("offset")
    if cache is None or offset is None or offset.numel() != 1:
        return False
    wanted = fitting["cache"].shape
    heard = int(offset.item())
    return (
        cache.ndim == len(wanted)
        and cache.shape[:2] == wanted[:2]
        and cache.shape[3:] == wanted[3:]
        and 0 < heard <= cache.shape[2]
        and bool(cache[:, :, :heard].isfinite().all())
    )
