"""A text is cut where it may be, the first piece being short, and nothing of it is lost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_plugins.engines.kokoro.pieces import FIRST, LONGEST, Piece, pieces
from tts_plugins.phonemes.pronounced import Pronounced
from tts_plugins.phonemes.source import Mark


def reading(text: str) -> Pronounced:
    """A text that is said as it is written."""
    words = [(m[0], m.start(), m.end()) for m in re.finditer(r"\w+", text)]
    marks = tuple(Mark(word, begin) for word, begin, _ in words)
    return Pronounced(text, marks, tuple((begin, end) for _, begin, end in words))


def cut(*texts: str, first: int = FIRST) -> list[str]:
    return [piece.phonemes for piece in pieces(map(reading, texts), first)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello.", ["hello."]),
        # The first clause that is long enough, though more would fit.
        (
            "you can help me with that, and then with this, i think.",
            ["you can help me with that,", " and then with this, i think."],
        ),
        # No crumbs: neither the first clause nor what would be left is long enough.
        ("well, let me see what i can do.", ["well, let me see what i can do."]),
        ("let me see what i can do, well.", ["let me see what i can do, well."]),
        ('he said "it is much too late." and then he left her.',
         ['he said "it is much too late."', " and then he left her."]),
        # Without a mark: before a conjunction, or else at a space.
        (
            "i would like to know your name and then the number on the back of the card",
            ["i would like to know your name ", "and then the number on the back of the card"],
        ),
        (
            "please tell me now your full name the number on the back of the card right now",
            ["please tell me now your full name the number ",
             "on the back of the card right now"],
        ),
    ],
)  # fmt: skip
def test_the_first_piece_is_short(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


def test_later_pieces_grow_with_the_one_before_and_end_with_a_sentence_if_they_can() -> None:
    text = "a first clause of this, " + "so it goes on, " * 3 + "to its end. " + "and on, " * 9
    assert cut(text) == [
        "a first clause of this,",
        " so it goes on, so it goes on,",
        " so it goes on, to its end.",
        " and on, and on, and on, and on, and on,",
        " and on, and on, and on, and on, ",
    ]


def test_whoever_waits_for_the_whole_gets_whole_sentences() -> None:
    sentence = "you can help me with that, and then with this, i think."
    assert cut(sentence, sentence, first=LONGEST) == [sentence, sentence]


def test_pieces_grow_from_one_sentence_to_the_next() -> None:
    long = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen."
    assert cut("a sentence of a clause.", long) == [
        "a sentence of a clause.",
        "one two three four five six seven eight ",
        "nine ten eleven twelve thirteen fourteen.",
    ]


def test_an_endless_word_is_cut_all_the_same() -> None:
    assert [len(piece) for piece in cut("x" * 1000, first=LONGEST)] == [400, 400, 200]


def test_a_word_belongs_to_the_piece_in_which_it_starts() -> None:
    heard = Pronounced(
        "wˈʌn tˈu ɡˈO.", (Mark("12", 0), Mark("-", 3), Mark("go.", 5)), ((0, 8), (8, 8), (9, 12))
    )
    assert list(pieces([heard], LONGEST)) == [
        Piece("wˈʌn tˈu ɡˈO.", heard.marks, ((0, 8), (8, 8), (9, 12)))
    ]


def test_what_is_unheard_at_the_end_stays_with_the_last_piece() -> None:
    heard = Pronounced("go.", (Mark("go.", 0), Mark("x", 4)), ((0, 2), (3, 3)))
    (piece,) = pieces([heard], FIRST)
    assert piece.spans == ((0, 2), (3, 3))


def joined(found: Sequence[Piece]) -> list[Mark]:
    return [mark for piece in found for mark in piece.marks]


@given(st.text("abc ,.;and", max_size=900), st.sampled_from([20, 45, FIRST, 100, LONGEST, 10_000]))
def test_nothing_is_lost_and_nothing_is_too_long(text: str, first: int) -> None:
    heard = reading(text)
    found = list(pieces([heard], first))
    assert "".join(piece.phonemes for piece in found) == text
    assert joined(found) == list(heard.marks)
    for piece in found:
        assert 0 < len(piece.phonemes) <= LONGEST
        for a, b in piece.spans:
            assert 0 <= a <= b <= len(piece.phonemes)
        assert all(a[0] <= b[0] for a, b in pairwise(piece.spans))


def test_neither_the_first_piece_nor_what_is_left_is_shorter_than_twenty() -> None:
    rest = " " + "b" * 30 + "."
    assert cut("a" * 20 + "," + rest) == ["a" * 20 + ",", rest]
    assert cut("a" * 18 + "," + rest) == ["a" * 18 + "," + rest]
    clause = "a" * 25 + ","
    assert cut(clause + " " + "b" * 18 + ".") == [clause, " " + "b" * 18 + "."]
    assert cut(clause + " " + "b" * 17 + ".") == [clause + " " + "b" * 17 + "."]


def test_later_pieces_grow_by_half_to_two_hundred() -> None:
    assert [len(piece) for piece in cut("x" * 1000)] == [60, 90, 135, 200, 200, 200, 115]


def test_a_sentence_ends_a_piece_from_its_first_third_on_and_else_the_last_clause_does() -> None:
    rest = " bbbbbbbbbbbbbbbbbbb, " + "c" * 60
    assert cut("a" * 30 + "." + rest, first=90)[0] == "a" * 30 + "."
    assert cut("a" * 29 + "." + rest, first=90)[0] == "a" * 29 + ". bbbbbbbbbbbbbbbbbbb,"


def test_a_conjunction_that_comes_too_early_ends_no_piece() -> None:
    rest = "and bbbbbbbbbbbbbbb " + "c" * 30
    assert cut("a" * 19 + " " + rest)[0] == "a" * 19 + " "
    assert cut("a" * 18 + " " + rest)[0] == "a" * 18 + " and bbbbbbbbbbbbbbb "


def test_the_last_conjunction_that_is_not_too_late_ends_a_piece() -> None:
    start, rest = "a" * 29 + " ", "or " + "c" * 30
    assert cut(start + "and bbbbbbbbbb " + rest)[0] == start + "and bbbbbbbbbb "  # 45
    assert cut(start + "and bbbbbbbbbbb " + rest)[0] == start
