"""A long text is cut where a reader would breathe, and nothing of it is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_plugins.engines.pocket.pieces import pieces


def cut(text: str, most: int = 20) -> list[str]:
    """A token is a character."""
    return list(pieces(text, len, most))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It fits.", ["It fits."]),
        ("One. Two. Three four five.", ["One. Two.", "Three four five."]),
        ("He said 'No.' Then nothing more.", ["He said 'No.'", "Then nothing more."]),
        ("Apples, pears and bananas", ["Apples,", "pears and bananas"]),
        ("seven words and no mark at all", ["seven words and no", "mark at all"]),
        ("two  spaces\nand a\tline", ["two spaces and a", "line"]),
        ("x" * 50, ["x" * 40, "x" * 10]),
        ("", []),
    ],
)
def test_a_text_is_cut_at_sentences_then_commas_then_words(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


@given(st.text("ab .,!", max_size=200), st.integers(8, 60))
def test_no_character_is_lost_and_no_piece_is_too_long(text: str, most: int) -> None:
    got = cut(text, most)
    assert "".join(got).replace(" ", "") == "".join(text.split())
    assert all(len(piece) <= max(most, 40) for piece in got)
    assert all(piece for piece in got)


@pytest.mark.parametrize(
    ("word", "tokens"), [("\u200b", 0), ("word", 1), ("some", 2), ("a.", 1), ("x" * 9999, 3000)]
)
def test_each_character_is_counted_a_few_times_however_long_the_text(
    word: str, tokens: int
) -> None:
    counted = 0

    def count(part: str) -> int:
        nonlocal counted
        counted += len(part)
        return part.count(word) * tokens if word in part else len(part) // 3

    text = " ".join([word] * (10_000 // len(word)))
    assert " ".join(pieces(text, count, 50)).replace(" ", "") == text.replace(" ", "")
    assert counted <= 4 * len(text)


def test_no_more_of_a_text_is_counted_than_the_next_piece_takes() -> None:
    counted: list[str] = []

    def count(part: str) -> int:
        counted.append(part)
        return 1

    assert next(pieces("word " * 2000, count, 50)) == " ".join(["word"] * 50)
    assert len(counted) == 52
