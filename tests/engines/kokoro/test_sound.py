"""What is kept of a piece, and when its words are heard."""

from __future__ import annotations

import numpy as np
import pytest

from tts_plugins.engines.kokoro.model import SAMPLE_RATE, Spoken
from tts_plugins.engines.kokoro.pieces import Piece
from tts_plugins.engines.kokoro.sound import EARLY, chunks, heard, tokens_of
from tts_plugins.phonemes.source import Mark
from tts_plugins.types import Word

VOCABULARY = {"a": 1, "b": 2, " ": 3, ".": 4, ",": 5}


def spoken(*, ends: list[int] | None = None) -> Spoken:
    """Half a second of silence, one of sound, and one of silence."""
    samples = np.zeros(60_000, np.float32)
    samples[12_000:36_000] = 0.3
    return Spoken(samples, None if ends is None else np.array(ends))


def piece(phonemes: str, *spans: tuple[int, int]) -> Piece:
    return Piece(phonemes, tuple(Mark(phonemes[a:b], a) for a, b in spans), spans)


@pytest.mark.parametrize(
    ("phonemes", "speed", "pause"),
    [
        ("a.", 1.0, 0.35), ("a?", 1.0, 0.35), ('a."', 1.0, 0.35), ("a, ", 1.0, 0.15),
        ("a;", 1.0, 0.25), ("a b", 1.0, 0.03), ("a.", 2.0, 0.175), ("a.", 0.5, 0.7),
    ],
)  # fmt: skip
def test_as_much_silence_is_kept_as_there_is_to_hear(
    phonemes: str, speed: float, pause: float
) -> None:
    found = piece(phonemes)
    samples, _ = heard(found, tokens_of(phonemes, VOCABULARY), spoken(), speed)
    assert len(samples) == round((0.01 + 1.0 + pause) * SAMPLE_RATE)
    assert np.flatnonzero(samples)[0] == 240


def test_no_more_silence_is_kept_than_there_was() -> None:
    sound = np.full(2400, 0.3, np.float32)
    samples, _ = heard(piece("a."), tokens_of("a.", VOCABULARY), Spoken(sound, None), 1.0)
    assert len(samples) == 2400


def test_what_is_faint_all_over_is_kept_whole() -> None:
    quiet = np.full(2400, 0.001, np.float32)
    samples, _ = heard(piece("a."), tokens_of("a.", VOCABULARY), Spoken(quiet, None), 1.0)
    assert len(samples) == 2400


def test_a_word_is_heard_a_little_before_its_duration_begins() -> None:
    # The silence in front, then a, the space, b and the full stop.
    ends = [14_400, 24_000, 26_400, 38_400, 48_000, 60_000]
    found = piece("a b.", (0, 1), (2, 3))
    _, words = heard(found, tokens_of("a b.", VOCABULARY), spoken(ends=ends), 1.0)
    begin = 0.49  # of what is kept
    assert [(w.text, w.offset) for w in words] == [("a", 0), ("b", 2)]
    assert words[0].start == pytest.approx(0.6 - EARLY - begin)
    assert words[0].end == pytest.approx(1.0 - EARLY - begin)
    assert words[1].start == pytest.approx(1.1 - EARLY - begin)
    assert words[1].end == pytest.approx(1.51 - begin + 0.0 - 0.01), "the sound ends before b does"
    assert all(word.exact for word in words)


def test_phonemes_that_kokoro_hasnt_got_take_no_time() -> None:
    tokens = tokens_of("aXb", VOCABULARY)
    assert (tokens.ids, tokens.places) == ([1, 2], [0, 2])
    found = piece("aXb", (0, 1), (1, 2), (2, 3))
    _, words = heard(found, tokens, spoken(ends=[14_400, 24_000, 36_000, 60_000]), 1.0)
    assert words[1].start == words[1].end == words[2].start


def test_without_durations_there_are_no_words() -> None:
    assert heard(piece("a b", (0, 1)), tokens_of("a b", VOCABULARY), spoken(), 1.0)[1] == []


def test_each_word_comes_with_the_chunk_in_which_it_starts() -> None:
    words = [Word("a", 0, 0.0, 0.125), Word("b", 2, 0.375, 0.5), Word("c", 4, 0.4, 1.0)]
    samples = np.zeros(SAMPLE_RATE, np.float32)
    found = list(chunks(samples, words, 24_000))
    assert [len(chunk.samples) for chunk in found] == [9600, 9600, 4800]
    assert [chunk.words for chunk in found] == [
        (Word("a", 0, 1.0, 1.125), Word("b", 2, 1.375, 1.5)),
        (Word("c", 4, 1.4, 2.0),),
        (),
    ]


def test_a_word_at_the_very_end_is_not_lost() -> None:
    (chunk,) = chunks(np.zeros(9600, np.float32), [Word("a", 0, 0.4, 0.4)], 0)
    assert chunk.words == (Word("a", 0, 0.4, 0.4),)
