"""When each word of a request is heard."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from tts_plugins.engines.piper.speaker import Schedule
from tts_plugins.phonemes.pronounced import Pronounced
from tts_plugins.phonemes.source import heard_together
from tts_plugins.types import Word

EARLY = 0.03
"""Seconds that a phoneme is heard before its duration begins: by forced alignment 50 ms, and 20 by
where sound sets in after a pause."""


def words_of(
    pronounced: Pronounced,
    places: Sequence[int],
    schedule: Schedule,
    sample_rate: int,
    before: int,
) -> list[Word]:
    """The words of a piece.

    Args:
        pronounced: The piece.
        places: For each of its phonemes, and the end, the number of ids before it.
        schedule: When the ids are heard.
        sample_rate: Of the voice.
        before: Samples of the utterance before the piece.
    """
    shifted = schedule.bounds[np.asarray(places)] / sample_rate - EARLY
    heard = (before / sample_rate + np.clip(shifted, 0, schedule.length / sample_rate)).tolist()
    words: list[Word] = []
    said = zip(pronounced.marks, pronounced.spans, strict=True)
    for (begin, end), several in groupby(said, key=lambda each: each[1]):
        marks = [mark for mark, _ in several]
        words += heard_together(marks, heard[begin], heard[max(begin, end)])
    return words


def unheard(pronounced: Pronounced, at: float) -> list[Word]:
    """Words of a piece in which there is nothing to hear."""
    return heard_together(pronounced.marks, at, at)
