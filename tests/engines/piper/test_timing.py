"""A word is heard when its phonemes are, and words that are said as one share that time."""

from __future__ import annotations

import numpy as np
import pytest

from tts_plugins.engines.piper.speaker import Schedule
from tts_plugins.engines.piper.timing import words_of
from tts_plugins.phonemes.pronounced import Pronounced
from tts_plugins.phonemes.source import Mark

SCHEDULE = Schedule(np.array([-100, 130, 330, 530, 730, 2000]), 1000)
"""Of five ids, at 1000 Hz. The first and the end are out of what is heard."""


def timed(marks: list[Mark], spans: list[tuple[int, int]], before: int = 0) -> list[object]:
    """Text, offset, start and end of each word, of four phonemes after an id that is none."""
    pronounced = Pronounced("abcd", tuple(marks), tuple(spans))
    words = words_of(pronounced, [1, 2, 3, 4, 5], SCHEDULE, 1000, before)
    return [
        (word.text, word.offset, pytest.approx(word.start), pytest.approx(word.end))
        for word in words
    ]


def test_a_word_lasts_as_long_as_its_phonemes_and_is_heard_a_little_before_them() -> None:
    marks = [Mark("ab", 0), Mark("c", 3)]
    assert timed(marks, [(0, 2), (2, 3)]) == [("ab", 0, 0.1, 0.5), ("c", 3, 0.5, 0.7)]


def test_words_are_heard_after_what_was_said_before() -> None:
    assert timed([Mark("b", 7)], [(1, 2)], before=2000) == [("b", 7, 2.3, 2.5)]


def test_no_word_ends_after_the_sound_does() -> None:
    assert timed([Mark("d", 0)], [(3, 4)]) == [("d", 0, 0.7, 1.0)]


def test_words_that_are_said_as_one_share_its_time_alike() -> None:
    marks = [Mark("9", 0), Mark("km", 2), Mark("d", 5)]
    assert timed(marks, [(0, 2), (0, 2), (3, 4)]) == [
        ("9", 0, 0.1, 0.3),
        ("km", 2, 0.3, 0.5),
        ("d", 5, 0.7, 1.0),
    ]


def test_a_word_that_is_not_heard_takes_no_time() -> None:
    assert timed([Mark("-", 0)], [(2, 2)]) == [("-", 0, 0.5, 0.5)]


def test_no_word_ends_before_it_begins() -> None:
    # As a span that goes back would have it.
    assert timed([Mark("-", 0)], [(2, 1)]) == [("-", 0, 0.5, 0.5)]
