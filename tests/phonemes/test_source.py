"""Any text becomes items that can be read aloud, and no word of it is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_plugins.phonemes.source import Item, Mark, heard_together, read_items
from tts_plugins.types import Word


def items(text: str) -> list[Item]:
    return list(read_items(text, lambda script: None))


def spoken(text: str) -> str:
    return "".join(item.spoken + " " * item.spaced for item in items(text))


def scripts(text: str) -> set[str]:
    found: set[str] = set()
    list(read_items(text, found.add))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hi  there,\nyou.", "Hi there, you."),
        (
            "nul\x00 bell\x07 half\ud800 soft\u00adhyphen zero\u200bwidth",
            "nul bell half softhyphen zerowidth",
        ),
        ("cafe\u0301 naïve Ærø Łódź Việt", "café naïve Ærø Łódź Viet"),
        ("😀 ok 👩‍👩‍👧 1️⃣ 🇩🇪", " ok  1 "),
        ("𝐇𝐞𝐥𝐥𝐨 ＡＢＣ １２ ٣ ① ⅓", "Hello ABC 12 3 1 1/3"),
        ("5 μm, 20 °C, x², ½, ©", "5 µm, 20 °C, x², ½, ©"),
        ("Привет you 你好", " you "),
        ("9" * 16, "9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9"),
        ("1,000,000,000", "1 0 0 0 0 0 0 0 0 0"),
        ("1,000,000", "1,000,000"),
        ("a-" * 10, "a-a-a-a-a-a-a-a- a-a-"),
    ],
)
def test_what_is_read(text: str, expected: str) -> None:
    assert spoken(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, é ñ ß — 5 µm 😀!", set()),
        ("Привет", {"CYRILLIC"}),
        ("say 你好 and ありがとう", {"CJK", "HIRAGANA"}),
        ("שלום ελληνικά", {"HEBREW", "GREEK"}),
    ],
)
def test_scripts_that_can_not_be_read_are_told(text: str, expected: set[str]) -> None:
    assert scripts(text) == expected


def test_a_word_can_bring_its_pronunciation() -> None:
    assert items("Ask [New York](/nˈu jˈɔɹk/), now") == [
        Item("Ask", (Mark("Ask", 0),), spaced=True),
        Item("New York", (Mark("New", 5), Mark("York", 9)), spaced=False, phonemes="nˈu jˈɔɹk"),
        Item(",", (), spaced=True),
        Item("now", (Mark("now", 29),), spaced=False),
    ]


def test_brackets_that_are_no_pronunciation_are_text() -> None:
    assert [item.marks[0].text for item in items("[see](http://x) [a] (b)")] == [
        "[see](http://x)",
        "[a]",
        "(b)",
    ]


def test_an_endless_word_is_read_in_parts_but_is_one_word() -> None:
    parts = items("x" * 10_000)
    assert [part.marks for part in parts[:2]] == [(Mark("x" * 10_000, 0),), ()]
    assert all(len(part.spoken) <= 200 for part in parts)
    assert "".join(part.spoken for part in parts).replace(" ", "") == "x" * 10_000


def test_a_long_text_is_read_as_it_is_asked_for() -> None:
    endless = read_items("word " * 100_000, lambda script: None)
    assert next(endless).spoken == "word"


@given(st.text(st.characters(exclude_characters="[]")))
def test_each_word_of_any_text_is_marked_once(text: str) -> None:
    marks = [mark for item in items(text) for mark in item.marks]
    words = [word for word in text.split() if any(c.isalnum() for c in word)]
    assert [mark.text for mark in marks] == words
    assert all(text[m.offset : m.offset + len(m.text)] == m.text for m in marks)


@given(st.text())
def test_what_is_read_of_any_text_is_harmless(text: str) -> None:
    for item in items(text):
        assert len(item.spoken) <= 200
        assert item.spoken.isprintable()


def test_words_that_are_said_as_one_share_its_time() -> None:
    words = heard_together([Mark("in", 3), Mark("the", 6)], 1.0, 2.0)
    assert words == [Word("in", 3, 1.0, 1.5), Word("the", 6, 1.5, 2.0)]
    assert heard_together([], 1.0, 2.0) == []
