"""When each word of the request is heard."""

from __future__ import annotations

import numpy as np

from tts_plugins.engines.hibari.speaker import Schedule
from tts_plugins.phonemes.english import Reading
from tts_plugins.phonemes.source import heard_together
from tts_plugins.types import Word

_EARLY = 0.04
"""Seconds that a phoneme is heard before its duration begins: measured, the same everywhere."""


def words_of(reading: Reading, begin: int, schedule: Schedule, before: float) -> list[Word]:
    """Words whose first phoneme is in the run that starts at ``reading.phonemes[begin]``.

    Args:
        reading: What is spoken, in one run or several.
        begin: First phoneme of the run.
        schedule: When the phonemes of the run are heard.
        before: Seconds from the start of the utterance to that of the run.
    """
    heard = before + np.clip(schedule.bounds - _EARLY, 0.0, schedule.heard)
    last = len(heard) - 1
    words: list[Word] = []
    for item, (first, stop) in zip(reading.items, reading.spans, strict=True):
        # What isn't heard may stand behind the last phoneme of the last run.
        if begin <= first < begin + last or first == begin + last == len(reading.phonemes):
            start, end = float(heard[first - begin]), float(heard[min(stop - begin, last)])
            words += heard_together(item.marks, start, end)
    return words


def unheard(reading: Reading, at: float) -> list[Word]:
    """Words of a reading in which there is nothing to hear."""
    return [word for item in reading.items for word in heard_together(item.marks, at, at)]
