"""Pronunciations that a text gives, in espeak-ng's letters."""

from __future__ import annotations

import pytest

from tts_plugins.phonemes.told import in_espeak_letters


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("kˈOkəɹO", "kˈoʊkəɹoʊ"),
        ("ˈnaɪki", "nˈaɪki"),
        ("ʧˈIld ʤˈYn", "tʃˈaɪld dʒˈɔɪn"),
        ("d͡ʒˈeɪn", "dʒˈeɪn"),
        ("ˈgu:.gəl", "ɡˈuːɡəl"),
        ("bɔ̃ʒˈuʁ", "bɔ̃ʒˈuʁ"),
        (" a\n (b) ", "a b"),
        ("", ""),
    ],
)
def test_letters_and_stress_are_those_of_espeak(given: str, expected: str) -> None:
    assert in_espeak_letters(given) == expected
