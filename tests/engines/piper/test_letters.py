"""A text is read as the letters that it is written in."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_plugins.engines.piper.letters import LettersReader
from tts_plugins.phonemes.pronounced import Pronounced

LATIN = "abcdefghijklmnopqrstuvwxyz '.,!?-\u0301"
ARABIC = "\u0645\u0631\u062d\u0628\u0627 \u0650\u061f."


def read(text: str, known: str = LATIN) -> tuple[list[Pronounced], set[str]]:
    scripts: set[str] = set()
    return list(LettersReader(known).read(text, scripts.add)), scripts


def said(pieces: Sequence[Pronounced]) -> list[tuple[str, str]]:
    """Each word with what is heard of it."""
    return [
        (mark.text, piece.phonemes[begin:end])
        for piece in pieces
        for mark, (begin, end) in zip(piece.marks, piece.spans, strict=True)
    ]


def test_letters_are_phonemes_and_signs_are_kept() -> None:
    ((piece,), _) = read("Yes, it's Ana.")
    assert piece.phonemes == "yes, it's ana."
    assert said([piece]) == [("Yes,", "yes"), ("it's", "it's"), ("Ana.", "ana")]
    assert piece.ends_sentence


def test_a_sentence_is_a_piece() -> None:
    pieces, _ = read("One. Two! And three")
    assert [piece.phonemes for piece in pieces] == ["one.", " two!", " and three"]
    assert [piece.ends_sentence for piece in pieces] == [True, True, False]
    assert [mark.offset for piece in pieces for mark in piece.marks] == [0, 5, 10, 14]


def test_letters_are_taken_apart_as_a_voice_knows_them() -> None:
    pieces, _ = read("Olé")
    assert said(pieces) == [("Olé", "ole\u0301")]


def test_another_alphabet_is_read_by_a_voice_that_has_it() -> None:
    pieces, scripts = read("\u0645\u0631\u062d\u0628\u0627\u061f", ARABIC)
    assert [piece.phonemes for piece in pieces] == ["\u0645\u0631\u062d\u0628\u0627\u061f"]
    assert scripts == set()


def test_a_pronunciation_is_left_to_the_letters() -> None:
    text = "to [Hue](/hwe/), now"
    pieces, _ = read(text)
    assert said(pieces) == [("to", "to"), ("Hue", "hue"), ("now", "now")]
    assert pieces[0].phonemes == "to hue , now"
    assert [mark.offset for mark in pieces[0].marks] == [0, 4, 17]


def test_what_it_lacks_is_left_out_and_told() -> None:
    pieces, scripts = read("Say 你好 now 7 😀.")
    assert said(pieces) == [("Say", "say"), ("你", ""), ("好", ""), ("now", "now"), ("7", "")]
    assert scripts == {"CJK"}


def test_a_word_is_of_the_piece_in_which_it_begins() -> None:
    pieces, _ = read(f"one. {'x' * 500} two. three")
    words = [[mark.text for mark in piece.marks] for piece in pieces]
    assert words == [["one."], ["x" * 500], ["two."], ["three"]]


def test_an_endless_text_is_cut_between_words() -> None:
    text = "word " * 400
    pieces, _ = read(text)
    assert all(len(piece.phonemes) <= 400 for piece in pieces)
    assert [sound for _, sound in said(pieces)] == ["word"] * 400
    assert not any(piece.ends_sentence for piece in pieces)


@pytest.mark.parametrize("text", ["x" * 2000, ""])
def test_an_endless_word_is_one_word(text: str) -> None:
    pieces, _ = read(text)
    assert "".join(piece.phonemes for piece in pieces) == text
    assert [mark.text for piece in pieces for mark in piece.marks] == [text] * bool(text)


@given(st.text(max_size=1000))
def test_every_word_of_any_text_is_in_a_piece(text: str) -> None:
    pieces, _ = read(text)
    marks = [mark for piece in pieces for mark in piece.marks]
    assert all(text[m.offset : m.offset + len(m.text)] == m.text for m in marks)
    assert [m.offset for m in marks] == sorted({m.offset for m in marks})
    for piece in pieces:
        ends = [0, *(end for _, end in piece.spans)]
        assert all(begin >= last for (begin, _), last in zip(piece.spans, ends, strict=False))
