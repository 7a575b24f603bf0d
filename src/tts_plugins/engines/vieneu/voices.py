"""The SDK's own voices, and those that were learnt, each found by the name that a request gives."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts_plugins.audio.level import first_above
from tts_plugins.errors import VoiceNotFoundError
from tts_plugins.library import VoiceLibrary
from tts_plugins.types import AudioChunk, Samples, Voice

LANGUAGE = "vi-VN"
"""What each of them speaks; English words among the Vietnamese, and whole sentences, as well."""

Likeness = Mapping[str, NDArray[Any]]
"""What the SDK speaks with in place of a name: an embedding of the speaker, and codes or tokens of
how the recording sounds, under the names that it looks for (vieneu 3.8.3)."""

_EMBEDDING = "speaker_emb"

_FAINT = 0.003
"""-50 dBFS: what is quieter at the ends of a recording is cut off."""

_EDGE = 0.05
"""Seconds that are left of it."""


class Voices:
    """Who can speak.

    Args:
        sdk: The SDK, open.
        library: What was learnt.
    """

    def __init__(self, sdk: Any, library: VoiceLibrary[Likeness]) -> None:
        # The label of the SDK's list has stars and the description in it; the id is the second.
        self._presets = {name: _described(label, name) for label, name in sdk.list_preset_voices()}
        # Nano has no aliases.
        self._resolve = getattr(sdk, "resolve_voice_name", None)
        self.library = library

    def all(self) -> Sequence[Voice]:
        return [*self._presets.values(), *self.library.voices()]

    def find(self, name: str) -> str | dict[str, NDArray[Any]]:
        """What the SDK knows that voice by.

        Raises:
            VoiceNotFoundError: There is none.
            EngineError: It was learnt, but can't be read any more.
        """
        for spelt in dict.fromkeys((name, unicodedata.normalize("NFC", name))):
            if preset := self.preset(spelt):
                return preset
            if (likeness := self.library.find(spelt)) is not None:
                return dict(likeness)
        raise VoiceNotFoundError(name, [voice.id for voice in self.all()])

    def preset(self, name: str) -> str | None:
        """The id of one of the SDK's own voices, of which ``name`` may be a former name."""
        if name in self._presets:
            return name
        found: str | None = self._resolve(name) if self._resolve else None
        return found


def save(likeness: Likeness, path: Path) -> None:
    """Write it into a file that holds nothing but numbers."""
    np.savez(path, **likeness)  # type: ignore[arg-type]  # no name of ours is one of its own


def load(path: Path) -> Likeness:
    """Read it again.

    Raises:
        ValueError: The file is another one.
        OSError: It can't be read.
    """
    with np.load(path, allow_pickle=False) as file:
        likeness = {name: file[name] for name in file.files}
    check(likeness)
    return likeness


def check(likeness: Likeness) -> None:
    """Whether something can be spoken with.

    Raises:
        ValueError: It can't.
    """
    if _EMBEDDING not in likeness or len(likeness) < 2:
        raise ValueError("it isn't a voice that VieNeu learnt")
    for numbers in likeness.values():
        if numbers.dtype.kind not in "fi" or not numbers.size or not np.isfinite(numbers).all():
            raise ValueError("it holds something else than numbers")


def spoken_part(clip: AudioChunk) -> Samples:
    """The recording without the silence at its ends, of which only the first seconds count."""
    samples = clip.samples
    edge = round(_EDGE * clip.sample_rate)
    begin = max(0, (first_above(samples, _FAINT) or 0) - edge)
    end = len(samples) - max(0, (first_above(samples[::-1], _FAINT) or 0) - edge)
    return np.ascontiguousarray(samples[begin:end])


def _described(label: str, name: str) -> Voice:
    _, _, description = label.partition(f"{name} — ")
    return Voice(name, LANGUAGE, description)
