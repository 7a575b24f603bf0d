"""From a server's times to words, and back."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_plugins.text.alignment import Alignment, characters
from tts_plugins.text.words import spans
from tts_plugins.types import Word

_NUMBERS = [
    ("Pay", 0.0, 0.3),
    ("five", 0.3, 0.6),
    ("dollars", 0.6, 1.0),
    ("now", 1.0, 1.2),
    (",", 1.2, 1.4),
    ("Doctor", 1.4, 1.8),
    ("Smith", 1.8, 2.2),
    (".", 2.2, 2.4),
]

_texts = st.text() | st.text(alphabet="aAéßИ1½. ,-—。「」'’你ディﾞเธอ่กิ한🙂\u0301\ufe0f$")
_garbage = st.floats() | st.floats(-1, 10)


@st.composite
def _spoken(draw: st.DrawFn) -> tuple[str, list[Word]]:
    """A text and its words, in order of time."""
    text = draw(_texts)
    found = list(spans(text))
    starts = sorted(draw(st.lists(st.floats(0, 99), min_size=len(found), max_size=len(found))))
    lasting = draw(st.lists(st.floats(0, 9), min_size=len(found), max_size=len(found)))
    return text, [
        Word(span.word, span.offset, start, start + seconds)
        for span, start, seconds in zip(found, starts, lasting, strict=True)
    ]


def _each(entries: str, pace: float = 1.0) -> tuple[list[str], list[float], list[float]]:
    """Every character takes ``pace`` seconds."""
    return (
        list(entries),
        [i * pace for i in range(len(entries))],
        [(i + 1) * pace for i in range(len(entries))],
    )


def _check(text: str, words: Sequence[Word]) -> None:
    """Each word of the text is there once, and time goes on."""
    assert [(word.offset, word.text) for word in words] == list(spans(text))
    assert all(one.start <= other.start for one, other in pairwise(words))
    assert all(0 <= word.start <= word.end < math.inf for word in words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, you!", [Word("Hello,", 0, 0.0, 5.0), Word("you!", 7, 7.0, 10.0)]),
        ("It’s $5.", [Word("It’s", 0, 0.0, 4.0), Word("$5.", 5, 6.0, 7.0)]),
        ("được về", [Word("được", 0, 0.0, 4.0), Word("về", 5, 5.0, 7.0)]),
        ("你好。", [Word("你", 0, 0.0, 1.0), Word("好。", 1, 1.0, 2.0)]),
        ("ไม่กิน", [Word("ไม่", 0, 0.0, 3.0), Word("กิ", 3, 3.0, 5.0), Word("น", 5, 5.0, 6.0)]),
        ("🙂 ok 👍", [Word("ok", 2, 2.0, 4.0)]),
        ("की जय", [Word("की", 0, 0.0, 2.0), Word("जय", 3, 3.0, 5.0)]),
    ],
)
def test_characters_time_the_words_they_are_in(text: str, words: list[Word]) -> None:
    assert Alignment(text).push_characters(*_each(text)) == words


def test_a_word_is_given_with_its_first_letter_and_a_guess_of_its_end() -> None:
    alignment = Alignment("“Hello you")
    assert alignment.push_characters(*_each("“")) == []
    assert alignment.push_characters(["H"], [1.0], [1.1]) == [
        Word("“Hello", 0, 1.0, 1.1 + 4 * 0.065, exact=False)
    ]
    assert alignment.push_characters(list("ello "), [1.1] * 5, [1.5] * 5) == []
    assert alignment.push_characters(list("you"), [2.0] * 3, [2.5] * 3) == [
        Word("you", 7, 2.0, 2.5)
    ]


def test_spaces_case_accents_and_punctuation_of_the_server_do_not_matter() -> None:
    alignment = Alignment("Về, nhà")
    words = alignment.push_characters(*_each("  VE\u0302\u0300   "))  # the accents on their own
    words += alignment.push_characters([" ", "Nh", "à", " "], [7, 8, 9, 10], [8, 9, 10, 11])
    assert words == [Word("Về,", 0, 2.0, 6.0), Word("nhà", 4, 8.0, 10.0)]


@pytest.mark.parametrize(
    ("entries", "starts"),
    [
        ("onex two three four", [0, 5, 9, 15]),  # one too many
        ("one txwo three four", [0, 4, 9, 15]),
        ("one tvo three four", [0, 4, 8, 14]),  # a wrong one
        ("one to three four", [0, 4, 7, 13]),  # one too few
        ("one three four", [0, 4, 5, 10]),  # a word too few, and "t" is taken for it
    ],
)
def test_a_character_that_is_not_in_the_text_costs_little(
    entries: str, starts: list[float]
) -> None:
    words = Alignment("one two three four").push_characters(*_each(entries))
    assert [word.start for word in words] == starts
    assert words[-1].exact


def test_words_that_never_came_share_the_time_between_by_their_letters() -> None:
    alignment = Alignment("one at three four")
    words = alignment.push_characters(
        list("onefour"), [0, 0, 0, 9, 9, 9, 9], [2, 2, 2, 11, 11, 11, 11]
    )
    assert words == [
        Word("one", 0, 0.0, 2.0),
        Word("at", 4, 2.0, 4.0, exact=False),
        Word("three", 7, 4.0, 9.0, exact=False),
        Word("four", 13, 9.0, 11.0),
    ]


def test_times_that_make_no_sense_are_put_right_and_not_called_exact() -> None:
    words = Alignment("a b c d e").push_characters(
        list("abcde"), [1.0, math.nan, -3.0, 0.5, 2.0], [1.5, 2.0, math.inf, 0.2, 3.0, 4.0]
    )
    assert words == [
        Word("a", 0, 1.0, 1.5),
        Word("b", 2, 1.0, 2.0, exact=False),
        Word("c", 4, 1.0, 1.0, exact=False),
        Word("d", 6, 1.0, 1.0, exact=False),
        Word("e", 8, 2.0, 3.0),
    ]


def test_the_shortest_array_counts() -> None:
    alignment = Alignment("a b c")
    assert alignment.push_characters(list("a b c"), [0.0, 1.0, 2.0], [1.0]) == [
        Word("a", 0, 0.0, 1.0)
    ]


def test_words_of_a_rewritten_text_find_their_place() -> None:
    assert Alignment("Pay $5 now, Dr. Smith.").push_tokens(_NUMBERS) == [
        Word("Pay", 0, 0.0, 0.3),
        Word("$5", 4, 0.3, 1.0, exact=False),
        Word("now,", 7, 1.0, 1.2),
        Word("Dr.", 12, 1.4, 1.8, exact=False),
        Word("Smith.", 16, 1.8, 2.2),
    ]


def test_a_token_is_a_word_of_its_own_or_what_comes_next() -> None:
    text = "I don’t know 4 well-known forms, for now"
    tokens = ["I", "do", "n't", "know", "four", "well", "known", "forms", ",", "for", "now"]
    words = Alignment(text).push_tokens([(one, i, i + 1) for i, one in enumerate(tokens)])
    assert [(word.text, word.start, word.end) for word in words] == [
        ("I", 0, 1),
        ("don’t", 1, 3),
        ("know", 3, 4),
        ("4", 4, 5),
        ("well-known", 5, 7),
        ("forms,", 7, 8),
        ("for", 9, 10),
        ("now", 10, 11),
    ]
    assert [word.text for word in words if not word.exact] == ["4"]


@pytest.mark.parametrize(
    ("text", "tokens", "late"),
    [
        ("one two three four and five", "and one two three four and five", 1),
        ("$9.90 for you and me", "nine dollars and ninety cents for you and me", 5),
    ],
)
def test_a_token_out_of_nowhere_cannot_swallow_the_text(text: str, tokens: str, late: int) -> None:
    words = Alignment(text).push_tokens([(one, i, i + 1) for i, one in enumerate(tokens.split())])
    exact = [word for word in words if word.exact]
    last = list(spans(text))[-len(exact) :]
    assert exact == [Word(word, offset, i, i + 1) for i, (offset, word) in enumerate(last, late)]


def test_two_tokens_in_a_row_show_how_many_words_were_rewritten() -> None:
    alignment = Alignment("$2 Mo. or later")
    heard = [("two", 0.0, 1.0), ("dollars", 1.0, 2.0), ("Monday", 2.0, 3.0), ("or", 3.0, 4.0)]
    assert alignment.push_tokens(heard) == []
    assert alignment.push_tokens([("later", 4.0, 5.0)]) == [
        Word("$2", 0, 0.0, 1.0, exact=False),
        Word("Mo.", 3, 1.0, 3.0, exact=False),
        Word("or", 7, 3.0, 4.0),
        Word("later", 10, 4.0, 5.0),
    ]


def test_a_token_of_several_words_is_spread_over_them() -> None:
    alignment = Alignment("你好，ไป U. S.")
    words = alignment.push_tokens([("你好", 0.0, 1.0), ("ไป", 1.0, 2.0), ("U.S.", 2.0, 4.0)])
    assert words == [
        Word("你", 0, 0.0, 0.5, exact=False),
        Word("好，", 1, 0.5, 1.0, exact=False),
        Word("ไป", 3, 1.0, 2.0),
        Word("U.", 6, 2.0, 3.0, exact=False),
        Word("S.", 9, 3.0, 4.0, exact=False),
    ]


def test_what_nobody_timed_gets_what_is_left() -> None:
    alignment = Alignment("one two three")
    assert alignment.push_tokens([("one", 0.0, 1.0)]) == [Word("one", 0, 0.0, 1.0)]
    assert alignment.flush(9.0) == [
        Word("two", 4, 1.0, 4.0, exact=False),
        Word("three", 8, 4.0, 9.0, exact=False),
    ]
    assert alignment.flush(9.0) == []
    assert alignment.push_tokens([("three", 9.0, 10.0)]) == []


@pytest.mark.parametrize("end", [math.nan, math.inf, -1.0, 0.5])
def test_an_end_that_makes_no_sense_leaves_no_time(end: float) -> None:
    alignment = Alignment("one two")
    alignment.push_characters(list("one"), [0.0] * 3, [1.0] * 3)
    assert alignment.flush(end) == [Word("two", 4, 1.0, 1.0, exact=False)]


def test_characters_share_the_time_of_their_word_and_the_others_the_time_between() -> None:
    words = [Word("Hi,", 1, 1.0, 2.0), Word("you!", 5, 4.0, 7.0)]
    assert characters(" Hi, you! ", words) == (
        list(" Hi, you! "),
        [0.0, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0],
        [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0, 7.0],
    )
    assert characters("...", []) == ([".", ".", "."], [0.0] * 3, [0.0] * 3)


@given(_spoken())
def test_words_made_characters_are_the_same_words_again(spoken: tuple[str, list[Word]]) -> None:
    text, words = spoken
    entries, starts, ends = characters(text, words)
    assert "".join(entries) == text
    assert len(entries) == len(starts) == len(ends)
    assert starts == sorted(starts)
    assert all(start <= end for start, end in zip(starts, ends, strict=True))
    if all(one.end <= other.start for one, other in pairwise(words)):
        assert ends == sorted(ends)
    assert Alignment(text).push_characters(entries, starts, ends) == words


@given(_spoken(), st.data())
def test_how_characters_are_cut_only_moves_ends_of_words_that_are_cut(
    spoken: tuple[str, list[Word]], data: st.DataObject
) -> None:
    text, words = spoken
    entries, starts, ends = characters(text, words)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    alignment = Alignment(text)
    given: list[Word] = []
    for start, end in pairwise(cuts):
        given += alignment.push_characters([" "], [starts[start]], [starts[start]])
        given += alignment.push_characters(entries[start:end], starts[start:end], ends[start:end])
    assert [(word.offset, word.start) for word in given] == [
        (word.offset, word.start) for word in words
    ]
    for one, other in zip(given, words, strict=True):
        stop = one.offset + len(one.text)
        assert one == other or any(one.offset < cut < stop for cut in cuts)


@given(
    st.sampled_from(["Pay $5 now, Dr. Smith.", "你好，世界 ไม่ไป", "về nhà"]) | _texts,
    st.lists(
        st.tuples(st.text("Payfivenow$5 Dr你好世ไปvềnhà.", max_size=4), _garbage, _garbage)
        | st.sampled_from(_NUMBERS)
    ),
    st.booleans(),
    st.data(),
)
def test_whatever_comes_every_word_is_given_once_and_cuts_do_not_move_starts(
    text: str, heard: list[tuple[str, float, float]], tokens: bool, data: st.DataObject
) -> None:
    if data.draw(st.booleans()):
        heard += [(character, i / 10, i / 10) for i, character in enumerate(text)]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(heard)))) | {0, len(heard)})
    end = data.draw(_garbage)

    def words(cuts: Sequence[int]) -> list[Word]:
        alignment = Alignment(text)
        given: list[Word] = []
        for start, stop in pairwise(cuts):
            part = heard[start:stop]
            if tokens:
                given += alignment.push_tokens(part)
            else:
                given += alignment.push_characters(
                    [one for one, _, _ in part], [s for _, s, _ in part], [e for _, _, e in part]
                )
        return given + alignment.flush(end)

    whole, cut = words([0, len(heard)]), words(cuts)
    _check(text, whole)
    _check(text, cut)
    assert [word.start for word in cut] == [word.start for word in whole]


@pytest.mark.parametrize("entries", ["hello world ", "x", "helxo "])
def test_ten_thousand_characters_take_no_time(entries: str) -> None:
    text = "hello world " * 834
    begun = time.perf_counter()
    alignment = Alignment(text)
    alignment.push_characters(*_each((entries * len(text))[:10_000]))
    alignment.push_tokens([("lo", 0.0, 0.0)] * 10_000)
    alignment.flush(1e4)
    assert time.perf_counter() - begun < 1.0
