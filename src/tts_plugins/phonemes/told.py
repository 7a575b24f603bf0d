"""A pronunciation that the text itself gives, ``[word](/ipa/)``, in espeak-ng's letters.

It may be IPA as people write it, or hibari's letters: whoever marked a text up for hibari may have
it spoken by another voice.
"""

from __future__ import annotations

import re
import unicodedata

MARKUP = re.compile(r"\[([^\[\]]{1,200})\]\(/([^()/]{0,400})/\)")

_LETTERS = {
    "A": "eɪ",
    "I": "aɪ",
    "W": "aʊ",
    "Y": "ɔɪ",
    "O": "oʊ",
    "Q": "əʊ",
    "T": "ɾ",
    "ʤ": "dʒ",
    "ʧ": "tʃ",
    "ᵊ": "ə",
    "ɝ": "ɜː",
    "g": "ɡ",
    "'": "ˈ",
    ",": "ˌ",
    ":": "ː",
}
_LETTER = re.compile("|".join(_LETTERS))
_SILENT = re.compile(r"[.‿\u0361\u035c\u200d]")
"""Between syllables and words, and ties: espeak-ng writes none."""
_VOWELS = "aeiouyæɐɑɒɔɘəɚɛɜɞɤɨɪɯɵøœɶʉʊʌʏᵻ"
_EARLY_STRESS = re.compile(rf"([ˈˌ])([^{_VOWELS}ˈˌ\s]+)(?=[{_VOWELS}])")


def in_espeak_letters(ipa: str) -> str:
    """Stress goes before the vowel; whitespace becomes one space; signs are left out."""
    text = _SILENT.sub("", unicodedata.normalize("NFC", ipa))
    text = _LETTER.sub(lambda match: _LETTERS[match[0]], text)
    text = unicodedata.normalize("NFD", _EARLY_STRESS.sub(r"\2\1", text))
    return " ".join("".join(c for c in word if _is_sound(c)) for word in text.split()).strip()


def _is_sound(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN" or character in "ˈˌː"
