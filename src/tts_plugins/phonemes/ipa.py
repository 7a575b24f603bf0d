"""The phonetic alphabet of the voice: IPA with one letter for a diphthong or an affricate.

hibari reads ``[word](/phonemes/)`` as those phonemes; here they may be IPA as well. Its stress
marks stand before the vowel, not before the syllable, and the two accents have letters of their
own: ``O`` is American where ``Q`` is British, and only British marks length.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import cast

from hibari.tts import ASSETS

from tts_plugins.errors import InvalidRequestError

_LETTERS = {
    "eɪ": "A",
    "aɪ": "I",
    "oʊ": "O",
    "əʊ": "O",
    "aʊ": "W",
    "ɔɪ": "Y",
    "dʒ": "ʤ",
    "tʃ": "ʧ",
    "eə": "ɛə",
    "ɝ": "ɜɹ",
    "ɚ": "əɹ",
    "ɨ": "ᵻ",
    "ɫ": "l",
    "ʍ": "w",
    "e": "ɛ",
    "r": "ɹ",
    "g": "ɡ",
    "'": "ˈ",
    "ˑ": "ː",
    ":": "ː",
    ".": "",
    "‿": "",
}
_LETTER = re.compile("|".join(map(re.escape, sorted(_LETTERS, key=len, reverse=True))))
_TIES = re.compile("[\u0361\u035c\u032f\u200d]")
_SYLLABIC = re.compile("(.)[\u0329\u030d]")
_EARLY_STRESS = re.compile(
    "([ˈˌ])([^AIOQWYaeiouæɑɐɒɔəɛɜɪʊʌᵻᵊɨˈˌ\\s]+)(?=[AIOQWYaeiouæɑɐɒɔəɛɜɪʊʌᵻᵊ])"
)
_AMERICAN = str.maketrans({"Q": "O", "ɒ": "ɑ", "a": "æ", "ː": None})
_BRITISH = str.maketrans({"O": "Q", "æ": "a"})


@cache
def vocabulary() -> dict[str, int]:
    """The phonemes of hibari, and their ids."""
    text = Path(ASSETS, "vocab.json").read_text(encoding="utf-8")
    return cast("dict[str, int]", json.loads(text))


def markup(word: str, ipa: str) -> str:
    """``word`` as hibari reads it aloud with a pronunciation of its own.

    Raises:
        InvalidRequestError: A symbol that the voice has no sound for, or nothing to say.
    """
    if not word.strip() or re.search(r"[\[\]\r\n]", word):
        raise InvalidRequestError(f"can't mark up {word!r}: give a word, without brackets")
    phonemes = from_ipa(ipa)
    if not any(c.isalpha() and c not in "ˈˌː" for c in phonemes):
        raise InvalidRequestError(f"no sound in the pronunciation {ipa!r} of {word!r}")
    return f"[{word.strip()}](/{phonemes}/)"


def from_ipa(ipa: str) -> str:
    """IPA, with or without slashes, in hibari's alphabet. What is in it already stays."""
    text = _respelt(ipa.strip().strip("/[]").strip())
    if unknown := sorted({c for c in text if c not in vocabulary() or c in '()"“”'}):
        raise InvalidRequestError(f"hibari has no sound for {' '.join(unknown)} in /{ipa}/")
    return text


def in_accent(phonemes: str, *, british: bool) -> str:
    """Phonemes or IPA that somebody wrote, in the letters of this accent; others are left out."""
    letters = _respelt(phonemes).translate(_BRITISH if british else _AMERICAN)
    return "".join(c for c in letters if c in vocabulary())


def _respelt(ipa: str) -> str:
    text = _SYLLABIC.sub(r"ᵊ\1", _TIES.sub("", unicodedata.normalize("NFC", ipa)))
    return _EARLY_STRESS.sub(r"\2\1", _LETTER.sub(lambda match: _LETTERS[match[0]], text))
