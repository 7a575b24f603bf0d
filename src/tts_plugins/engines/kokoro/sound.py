"""Join pieces into one utterance: how much silence to keep, and when each word is heard.

Alone, each begins with 0.3 s of silence and ends with 0.5 to 0.7 s. In a longer text Kokoro itself
pauses for 0.09 to 0.34 s at a comma; so much is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tts_plugins.audio.level import FAINT, first_above
from tts_plugins.engines.kokoro.model import SAMPLE_RATE, Spoken
from tts_plugins.engines.kokoro.pieces import Piece
from tts_plugins.text.words import shifted
from tts_plugins.types import AudioChunk, Samples, Word

EARLY = 0.06
"""Seconds that a phoneme is heard before its duration begins, the same everywhere: 0.025 to 0.056
by the first sample that is loud, 0.085 by forced alignment."""

_ONSET = 0.01
"""Seconds kept before the first sample that isn't faint, in which a sound may begin softly."""

_PAUSES = {",": 0.15, ";": 0.25, ":": 0.25, "—": 0.25, ".": 0.35, "!": 0.35, "?": 0.35, "…": 0.35}
"""Seconds kept after the last sample that isn't faint, by what is read there, at a natural pace."""

_NO_PAUSE = 0.03
"""The same between two words of a clause."""

_CHUNK = SAMPLE_RATE * 2 // 5
"""Samples in a chunk: 0.4 s, so that its words come with it."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Phonemes as Kokoro takes them; it has none for some."""

    ids: list[int]
    places: list[int]
    """Where each stands among the phonemes."""


def tokens_of(phonemes: str, vocabulary: Mapping[str, int]) -> Tokens:
    places = [at for at, phoneme in enumerate(phonemes) if phoneme in vocabulary]
    return Tokens([vocabulary[phonemes[at]] for at in places], places)


def heard(piece: Piece, tokens: Tokens, spoken: Spoken, speed: float) -> tuple[Samples, list[Word]]:
    """The sound of a piece without the silence around it but a pause, and its words.

    Args:
        piece: What was spoken.
        tokens: Its phonemes as they were spoken.
        spoken: What came of it.
        speed: At which pace.
    """
    samples = spoken.samples
    begin, end = _sound(samples)
    begin = max(0, begin - round(_ONSET * SAMPLE_RATE))
    words = _words(piece, tokens, spoken, begin, end)
    end = min(len(samples), end + round(_pause(piece.phonemes) / speed * SAMPLE_RATE))
    return samples[begin:end], words


def chunks(samples: Samples, words: list[Word], before: int) -> Iterator[AudioChunk]:
    """Cut a piece, each word with the samples in which it starts.

    Args:
        samples: Of the piece.
        words: With times since the start of the piece.
        before: Samples of the utterance before the piece.
    """
    for at in range(0, len(samples), _CHUNK):
        stop = at + _CHUNK
        last = stop >= len(samples)
        due = [w for w in words if last or w.start * SAMPLE_RATE < stop]
        words = words[len(due) :]
        moved = tuple(shifted(word, before / SAMPLE_RATE) for word in due)
        yield AudioChunk(samples[at:stop], SAMPLE_RATE, moved)


def _sound(samples: Samples) -> tuple[int, int]:
    """The first and last sample that aren't faint; all of them where there is none."""
    first, last = first_above(samples, FAINT), first_above(samples[::-1], FAINT)
    if first is None or last is None:
        return 0, len(samples)
    return first, len(samples) - last


def _pause(phonemes: str) -> float:
    mark = phonemes.rstrip(' "”)')[-1:]
    return _PAUSES.get(mark, _NO_PAUSE)


def _words(piece: Piece, tokens: Tokens, spoken: Spoken, begin: int, end: int) -> list[Word]:
    """Words with times since ``begin``; the last phoneme is silent long before its time is over."""
    if spoken.ends is None:
        return []
    # A token's samples begin where those of the one before it end.
    starts = spoken.ends / SAMPLE_RATE - EARLY
    bounds = np.clip(starts - begin / SAMPLE_RATE, 0.0, (end - begin) / SAMPLE_RATE)

    def when(place: int) -> float:
        return float(bounds[bisect_left(tokens.places, place)])

    return [
        Word(mark.text, mark.offset, when(a), when(max(a, b)))
        for mark, (a, b) in zip(piece.marks, piece.spans, strict=True)
    ]
