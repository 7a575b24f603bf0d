"""Words, and guesses of how long they take."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_plugins.text import words as module
from tts_plugins.text.words import count, estimate, spans, speakable, units
from tts_plugins.types import Word


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" — ... 🙂", []),
        ("Hello, world!", [(0, "Hello,"), (7, "world!")]),
        (" It's — well\n$29.95 ", [(1, "It's"), (8, "well"), (13, "$29.95")]),
        ("xin chào\u00a0bạn", [(0, "xin"), (4, "chào"), (9, "bạn")]),
        ("안녕하세요. 네.", [(0, "안녕하세요."), (7, "네.")]),
        ("「你好。」世界！", [(0, "「你"), (2, "好。」"), (5, "世"), (6, "界！")]),
        (
            "私はPythonが、好き",
            [(0, "私"), (1, "は"), (2, "Python"), (8, "が、"), (10, "好"), (11, "き")],
        ),
        ("東京ディズニー", [(0, "東"), (1, "京"), (2, "ディ"), (4, "ズ"), (5, "ニー")]),
        ("เธอไม่ไป", [(0, "เธ"), (2, "อ"), (3, "ไม่"), (6, "ไป")]),
    ],
)
def test_words_are_found(text: str, words: list[tuple[int, str]]) -> None:
    assert [tuple(span) for span in spans(text)] == words


MANY = 50_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ก" + "(" * MANY, [(0, 1)]),
        ("ก" + "." * MANY + "(" * MANY, [(0, 1 + MANY)]),
        ("(" * MANY + "ก", [(0, MANY + 1)]),
        ("好" + "(" * MANY + "好", [(0, 1), (1, MANY + 1)]),
        ("\u0e31" * MANY + "ก" + "\u0e31" * MANY, [(0, 2 * MANY + 1)]),
        ("ก" + "_(" * MANY, [(0, 1)]),
    ],
)
def test_marks_without_end_are_walked_once(text: str, words: list[tuple[int, int]]) -> None:
    # Walked again from each mark, they would outlast pytest's timeout many times over.
    assert [(span.offset, len(span.word)) for span in spans(text)] == words


@given(st.text("กเแ\u0e31่好你ーディaé1_([「.,。」)]!\u0301 ", max_size=12))
def test_walking_once_finds_what_looking_everywhere_finds(text: str) -> None:
    found = [
        (token.start() + part.start(), part[0])
        for token in re.finditer(r"\S+", text)
        for part in (
            module._PART.finditer(token[0])
            if re.search(f"[{module.UNSPACED}]", token[0])
            else re.finditer(r"\S+", token[0])
        )
        if speakable(part[0])
    ]
    assert [tuple(span) for span in spans(text)] == found


@pytest.mark.parametrize(
    ("text", "words"), [("Hello, big world", 3), ("你好世界", 2), ("用Python写", 2), ("— !", 0)]
)
def test_two_characters_without_spaces_count_as_a_word(text: str, words: float) -> None:
    assert count(text) == words


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("", 0),
        ("hello", 5),
        ("hello you", 8),
        ("Hi, you", 8),  # a comma is a pause of 3
        ("Hi. You...", 15),  # a full stop of 5, and three are no longer
        ("42", 6),
        ("3.14", 12),  # "three point one four"
        ("a.com", 7),  # "dot"
        ("你好", 6),
        ("네", 3),
        ("$5", 6),
        ("- *", 0),
    ],
)
def test_letters_digits_and_pauses_take_their_time(text: str, length: float) -> None:
    assert units(text) == length


def test_words_are_timed_in_turn_with_pauses_between() -> None:
    assert estimate("Hello, you. Yes", 0.5) == (
        Word("Hello,", 0, 0.0, 2.5, exact=False),
        Word("you.", 7, 4.0, 5.5, exact=False),
        Word("Yes", 12, 8.0, 9.5, exact=False),
    )


def test_text_without_words_has_none() -> None:
    assert estimate("...", 0.5) == ()


@given(st.text() | st.text(alphabet="aé1. ,-—。「」你ディเธอ่\u0301$"))
def test_every_word_is_there_in_order(text: str) -> None:
    words = estimate(text, 0.1)
    at, now, skipped = 0, 0.0, ""
    for word in words:
        assert text[word.offset : word.offset + len(word.text)] == word.text
        assert word.offset >= at
        assert now <= word.start <= word.end
        assert not word.exact
        skipped += text[at : word.offset]
        at, now = word.offset + len(word.text), word.end
    assert not any(character.isalnum() for character in skipped + text[at:])
    assert now <= units(text) * 0.1 + 1e-9
