"""The phonemes of a clause are shared among its words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_plugins.phonemes.sharing import in_order, shares


@pytest.mark.parametrize(
    ("phonemes", "alone", "expected"),
    [
        ("wˈʌn tˈuː", ["wˈʌn", "tˈuː"], ["wˈʌn", "tˈuː"]),
        ("ɪnðə hˈaʊs", ["ˈɪn", "ðə", "hˈaʊs"], ["ɪn", "ðə", "hˈaʊs"]),
        ("ɪz fˈɔːɹɾi tˈuː", ["ɪz", "fˈɔːɹɾi tˈuː"], ["ɪz", "fˈɔːɹɾi tˈuː"]),
        ("ˌaʊɾəv ðə kˈɑːɹ", ["ˈaʊt", "ʌv", "ðə", "kˈɑːɹ"], ["ˌaʊɾ", "əv", "ðə", "kˈɑːɹ"]),
        ("hˈaɪ", ["", "hˈaɪ", ""], ["", "hˈaɪ", ""]),
        ("a", ["a", "b", "c"], ["a", "a", "a"]),
        ("", ["a"], [""]),
    ],
)
def test_each_word_gets_its_own(phonemes: str, alone: list[str], expected: list[str]) -> None:
    assert [phonemes[begin:end] for begin, end in shares(phonemes, alone)] == expected


GROUPS = st.text("abeiktˈː ", max_size=12)


@given(GROUPS, st.lists(GROUPS, max_size=8))
def test_shares_are_in_order_and_each_sound_has_one(phonemes: str, alone: list[str]) -> None:
    found = shares(phonemes, alone)
    assert len(found) == len(alone)
    last = (0, 0)
    for (begin, end), word in zip(found, alone, strict=True):
        assert (begin, end) == last or last[1] <= begin <= end <= len(phonemes)
        last = (begin, end)
        assert begin < end or not (word.strip() and phonemes.strip())


def test_parts_that_go_back_have_what_is_left_of_them() -> None:
    assert in_order([None, (2, 5), None, (4, 7), (4, 6)]) == [
        (2, 2),
        (2, 5),
        (5, 5),
        (5, 7),
        (5, 7),
    ]
