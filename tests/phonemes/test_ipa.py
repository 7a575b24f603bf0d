"""IPA becomes the alphabet that hibari reads."""

from __future__ import annotations

import pytest
from hibari.g2p import G2P

from tts_plugins.errors import InvalidRequestError
from tts_plugins.phonemes.ipa import from_ipa, in_accent, markup


@pytest.mark.parametrize(
    ("ipa", "expected"),
    [
        ("/ˈnaɪki/", "nˈIki"),
        ("həˈloʊ", "həlˈO"),
        ("t͡ʃɔɪs", "ʧYs"),
        ("ˈdʒeɪsən", "ʤˈAsən"),
        ("ˈbɝd", "bˈɜɹd"),
        ("ˈbʌtɚ", "bˈʌtəɹ"),
        ("naʊ gəʊ red", "nW ɡO ɹɛd"),
        ("ˈlɪtl̩", "lˈɪtᵊl"),
        ("ˌɪn.foʊ", "ˌɪnfO"),
        ("kˈOkəɹO", "kˈOkəɹO"),
        ("siː", "siː"),
    ],
)
def test_ipa_is_respelled(ipa: str, expected: str) -> None:
    assert from_ipa(ipa) == expected


@pytest.mark.parametrize("word", ["hello", "choice", "banana", "mountain", "voyage"])
def test_the_alphabet_of_the_dictionary_stays(word: str, g2p: G2P) -> None:
    assert from_ipa(g2p(word)) == g2p(word).replace("ɾ", "T")


def test_an_accent_has_letters_of_its_own() -> None:
    assert in_accent("ɡˈO hˈɒt siː kˈæt", british=False) == "ɡˈO hˈɑt si kˈæt"
    assert in_accent("ɡˈO hˈɒt siː kˈæt", british=True) == "ɡˈQ hˈɒt siː kˈat"


def test_ipa_in_a_text_is_read_as_well_and_what_has_no_sound_is_left_out() -> None:
    assert in_accent("ˈnaɪki", british=False) == "nˈIki"
    assert in_accent("ˈtʃɔɪs7", british=False) == "ʧˈYs"


def test_a_pronunciation_is_marked_up() -> None:
    assert markup("Nike", "/ˈnaɪki/") == "[Nike](/nˈIki/)"


@pytest.mark.parametrize(
    ("word", "ipa", "message"),
    [
        ("x", "ʘ7", "no sound for 7 ʘ"),
        ("x", "", "no sound in the pronunciation ''"),
        ("x", "ˈ.", "no sound in the pronunciation"),
        ("a]b", "a", "without brackets"),
        (" ", "a", "give a word"),
    ],
)
def test_what_can_not_be_pronounced_is_told(word: str, ipa: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        markup(word, ipa)
