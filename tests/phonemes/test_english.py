"""Text becomes hibari's phonemes, and each word knows which are its own."""

from __future__ import annotations

import pytest
from hibari.g2p import G2P
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_plugins.phonemes.english import Reading, read
from tts_plugins.phonemes.source import read_items


def readings(text: str, g2p: G2P) -> list[Reading]:
    return list(read(read_items(text, lambda script: None), g2p))


def said(text: str, g2p: G2P) -> list[tuple[str, str]]:
    """Words and what is heard of each."""
    return [
        (mark.text, reading.phonemes[begin:end])
        for reading in readings(text, g2p)
        for item, (begin, end) in zip(reading.items, reading.spans, strict=True)
        for mark in item.marks
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Hello there.",
        "The doctor said: read the record, e.g. NASA vs. FBI.",
        "Call me at 9:30am tomorrow, Dr. Smith owes $3.2 billion to 555-1234.",
        "“Wait…” she said — I'm 42.50% sure (don't ask)!",
    ],
)
def test_phonemes_are_those_of_hibari(text: str, g2p: G2P) -> None:
    (reading,) = readings(text, g2p)
    assert reading.phonemes == g2p(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "At 9:30am, Dr. Smith paid $3.2 billion.",
            {
                "9:30am,": "nˈIn θˈɜɹTi ˌAˈɛm",
                "Dr.": "dˈɑktəɹ",
                "$3.2": "θɹˈi pYnt tˈu",
                "billion.": "bˈɪljən dˈɑləɹz",
            },
        ),
        ("It costs 42.50 or so", {"42.50": "fˈɔɹTi tˈu pYnt fˈIv", "or": "ɔɹ"}),
        ("Dial 555-1234 now", {"Dial": "dˈIᵊl", "now": "nˈW"}),
        ('He said "no" — twice!', {'"no"': "nˈO", "twice!": "twˈIs"}),
        ("you & me 10 - 20", {"you": "ju", "me": "mˌi", "10": "tˈɛn", "20": "twˈɛnti"}),
        ("Hi 你好 there", {"你好": "", "there": "ðˈɛɹ"}),
    ],
)
def test_each_word_has_its_own_phonemes(text: str, expected: dict[str, str], g2p: G2P) -> None:
    found = dict(said(text, g2p))
    assert {word: found[word] for word in expected} == expected


def test_a_pronunciation_is_followed(g2p: G2P) -> None:
    assert said("Ask [Kokoro](/kˈOkəɹO/), please", g2p) == [
        ("Ask", "ˈæsk"),
        ("Kokoro", "kˈOkəɹO"),
        ("please", "plˈiz"),
    ]


def test_a_text_within_the_limit_is_read_whole(g2p: G2P) -> None:
    text = "We went there. It was closed, so we came back. " * 8
    (reading,) = readings(text, g2p)
    assert 330 < len(reading.phonemes) <= 400


def test_a_longer_text_is_cut_after_a_sentence(g2p: G2P) -> None:
    text = "We went there and nobody was at home. " * 30
    first, *others = readings(text, g2p)
    assert first.ends_sentence
    assert all(len(reading.phonemes) <= 400 for reading in (first, *others))
    words = [mark.text for r in (first, *others) for item in r.items for mark in item.marks]
    assert words == text.split()


def test_a_longer_sentence_is_cut_after_a_clause_and_else_between_words(g2p: G2P) -> None:
    clauses = readings("we went there and nobody was at home, " * 15, g2p)
    assert clauses[0].items[-1].spoken == "home,"
    words = readings("we went there and nobody was at home " * 15, g2p)
    assert 380 < len(words[0].phonemes) <= 400


@pytest.mark.parametrize("text", ["x" * 10_000, "9" * 10_000, "a-" * 300, "(" * 1000, "1,1" * 900])
def test_a_monster_is_read_a_little_at_a_time(text: str, g2p: G2P) -> None:
    first = next(read(read_items(text, lambda script: None), g2p))
    assert len(first.phonemes) < 4000


def test_what_hibari_fails_on_is_left_out_and_the_rest_is_read(g2p: G2P) -> None:
    class Fragile:
        """Fails on a number, as hibari does on some."""

        british = False

        def tokenize(self, text: str) -> object:
            if "7" in text:
                raise IndexError
            return g2p.tokenize(text)

        def phonemize_tokens(self, tokens: object) -> object:
            return g2p.phonemize_tokens(tokens)

    assert said("one 7 two", Fragile()) == [("one", "wˈʌn"), ("7", ""), ("two", "tˈu")]


TOKENS = [
    "the",
    "Dr.",
    "e.g.",
    "NASA",
    "$3.2",
    "billion",
    "9:30am",
    "12/25/2024",
    "555-1234",
    "42.50",
    "5km",
    "10",
    "-",
    "20",
    "°C",
    "1/2",
    "No.",
    "#1",
    "a@b.com",
    "don't",
    "&",
    "50%",
    "½",
    "x²",
    "Henry",
    "VIII",
    "March",
    "3,",
    "C++",
    "a=b",
    "~5",
    "007",
    "O'Brien's",
    "…",
    "Привет",
    "\x00",
    "\ud800",
    "😀",
    "ﬁ",
    "①",
    "[x]",
    "(y)",
    "“z”",
    "5'6\"",
    "'90s",
    "_a_",
]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(TOKENS) | st.text("ab19.,:-/$% ", max_size=6), max_size=12))
def test_words_of_any_text_come_in_order_with_their_phonemes(g2p: G2P, parts: list[str]) -> None:
    text = " ".join(parts)
    marks = []
    for reading in readings(text, g2p):
        at = 0
        for item, (begin, end) in zip(reading.items, reading.spans, strict=True):
            assert at <= begin <= end <= len(reading.phonemes)
            at = end
            marks += [mark.text for mark in item.marks]
    assert marks == [word for word in text.split() if any(c.isalnum() for c in word)]
