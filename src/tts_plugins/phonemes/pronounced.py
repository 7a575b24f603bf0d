"""What a reader makes of a text: sounds, and which of them are whose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tts_plugins.phonemes.source import Mark


@dataclass(frozen=True, slots=True)
class Pronounced:
    """A text, or a piece of one that is too long for a voice, in phonemes."""

    phonemes: str
    """In the letters that the voice was trained on, with its marks and spaces."""

    marks: tuple[Mark, ...]
    """The words of the text that are heard here, in order."""

    spans: tuple[tuple[int, int], ...]
    """For each word, ``phonemes[begin:end]`` is what is heard of it, without pauses. It never goes
    back; it is empty for a word that isn't heard, and the same for words that are said as one."""

    ends_sentence: bool = True
    """Whether a pause follows."""


class Reader(Protocol):
    """Reads a language aloud, for itself."""

    def read(self, text: str, unreadable: Callable[[str], None]) -> Iterator[Pronounced]:
        """The text in pieces that a voice can take, made as they are asked for.

        Args:
            text: Anything.
            unreadable: Called with the name of a script that was left out, such as ``CYRILLIC``.
        """
        ...
