"""Each word that is read goes back to the item that it came from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_plugins.phonemes.align import owners


@pytest.mark.parametrize(
    ("items", "words", "expected"),
    [
        ("Hi there", "Hi there", [0, 1]),
        ("at 9:30am on", "at nine thirty A.M. on", [0, 1, 1, 1, 2]),
        ("pay $3.2 billion now", "pay 3.2 billion dollars now", [0, 1, 2, 2, 3]),
        ("Dr. Smith", "Dr Smith", [0, 1]),
        (
            "12/25/2024 10:30am",
            "December twenty-fifth, 2024 ten thirty A.M.",
            [0, 0, 0, 1, 1, 1],
        ),
        ("on 3 March", "on the third of March", [0, 1, 1, 1, 2]),
        ("call 555-1234 now", "call 5 5 5, 1 2 3 4 now", [0, 1, 1, 1, 1, 1, 1, 1, 2]),
        ("a & b", "a and b", [0, 1, 2]),
        ("10 - 20", "10 to 20", [0, 1, 2]),
        ("* a", "a", [1]),
        ("*", "", []),
    ],
)
def test_rewritten_words_keep_their_owner(items: str, words: str, expected: list[int]) -> None:
    assert owners(items.split(), words.split()) == expected


@given(st.lists(st.text(max_size=5), min_size=1), st.lists(st.text("ab1", max_size=2)))
def test_owners_are_items_in_order(items: list[str], words: list[str]) -> None:
    found = owners(items, words)
    assert len(found) == len(words)
    assert found == sorted(found)
    assert all(0 <= owner < len(items) for owner in found)
