"""hibari's phonemes in the letters of espeak-ng's ``en-us`` and ``en-gb``.

For Piper voices where espeak-ng isn't installed. The two dictionaries agree on most sounds, and
differ in how they write them: one letter for a diphthong, no length, and ``əɹ`` for ``ɚ``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

Rule = tuple[re.Pattern[str], str]

_VOWEL = "[aeiouæɐɑɒɔəɚɛɜɪʊʌᵻAIOQWYᵊ]"
_CONSONANTS = "[^aeiouæɐɑɒɔəɚɛɜɪʊʌᵻAIOQWYᵊˈˌ]"


def _rules(*pairs: tuple[str, str]) -> tuple[Rule, ...]:
    return tuple((re.compile(pattern), letters) for pattern, letters in pairs)


_UNSTRESSED = (
    "ˌI ˌIm ˌIv ˌIl ˌId jˌu jˌʊɹ jˌɔː ʃˌi ʃˌiː hˌi hˌiː wˌi wˌiː ðˌA wˌɪɹ wˌɪə ˌɪt ˌɪts ˌɪz ɑˌɹ "
    "ˌɑɹ ˌɑː wˌʌt wˌɒt wˌʊd kˌʊd ˌænd ˌand ˌæt ˌat fˌɔɹ fˌɔː hˌæv hˌav wˌʌz wˌɒz wˌɪl kˌæn kˌan "
    "ðˌɛɹ ðˌɛː ðˌæt ðˌat ðˌɪs fɹˌʌm fɹˌɒm wˌɪð ˌʌv ˌɒv"
)
"""Words that hibari gives half a stress, and espeak-ng none."""

_WORDS = {word: word.replace("ˌ", "") for word in _UNSTRESSED.split()} | {
    "ˈɪl": "Il",
    "ˈʌv": "ʌv",
    "ˈɒv": "ɒv",
    "ði": "ðɪ",
    "bətwˈin": "bᵻtwˌin",
    "bɪtwˈiːn": "bɪtwˌiːn",
}

_FIRST = _rules(
    # "about", "again": at the beginning of a word.
    (r"^ə(?!ɹ|ʊ|$)", "ɐ"),
    # "Thursday", "unless", "okay".
    (r"zdˌA$", "zdA"),
    (r"^ˌʌn(?=.*ˈ)", "ʌn"),
    (r"^ˌ([OQ]kˈA)", r"\1"),
    # "repeat", "decide", "between".
    (r"^([bdɹ])ə(?=[^aeiouæɐɑɒɔəɛɜɪʊʌᵻAIOQWYᵊ]+ˈ)", r"\1ᵻ"),
)

_AMERICAN = _rules(
    (rf"əɹ(?=[ˈˌ]?{_VOWEL})", "ɚɹ"),
    (r"əɹ", "ɚ"),
    (rf"ɜɹ(?=[ˈˌ]?{_VOWEL})", "ɜːɹ"),
    (r"ɜɹ", "ɜː"),
    (r"ɑ(?!ː)", "ɑː"),
    # "long", "on", "soft", "loss", "moth" are short.
    (r"ɔ(?![ːɪŋnfsθ])", "ɔː"),
    # "anything": one syllable has a long one, and so has the stress.
    (r"([ˈˌ])i(?!ː|ə)", r"\1iː"),
    (rf"^({_CONSONANTS}*)i(?={_CONSONANTS}*$)", r"\1iː"),
    (r"u(?!ː)", "uː"),
    (r"^(ˈɛn)i", r"\1ɪ"),
    (r"^(zˈ)ɪɹ", r"\1iəɹ"),
)

_BRITISH = _rules(
    (r"^ə(?=ɹ)", "ɐ"),
    (r"ɛː", "eə"),
    (r"ɪə", "iə"),
    (r"^wˈʌn$", "wˈɒn"),
)

_LETTERS = _rules(
    ("A", "eɪ"),
    ("I", "aɪ"),
    ("W", "aʊ"),
    ("Y", "ɔɪ"),
    ("O", "oʊ"),
    ("Q", "əʊ"),
    ("T", "ɾ"),
    ("ʤ", "dʒ"),
    ("ʧ", "tʃ"),
    ("ᵊ", "ə"),
)

_TOKEN = re.compile(r"(?P<word>[^\s;:,.!?—…\"()“”]+)|(?P<sign>[;:,.!?—…])|.", re.DOTALL)
_PAUSES = " ,;:.!?"
_SIGNS = {"—": ";", "…": ","}
_VOWEL_NEXT = re.compile(rf" [ˈˌ]?{_VOWEL}")
_RHOTIC = re.compile("(?:ɚ|ɜː)$")
_SILENT_R = re.compile("(?<!^ð)(?<!^t)(?:ə|[ɔɜɑ]ː)$")
"""Where the British leave an r out, but for a vowel that follows: nearly all such words."""


def respelt(
    phonemes: str, spans: Sequence[tuple[int, int]], *, british: bool
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Phonemes of hibari, and where words are in them, in espeak-ng's letters.

    Punctuation becomes what Piper voices know: ``,;:`` and ``.!?`` behind a word.
    """
    made = ""
    places: list[int] = []
    for token in _TOKEN.finditer(phonemes):
        if word := token["word"]:
            linked = bool(_VOWEL_NEXT.match(phonemes, token.end()))
            letters, within = _word(word, british=british, linked=linked)
            places += (len(made) + at for at in within)
            made += letters
            continue
        sign = _SIGNS.get(token[0], token[0]) if token["sign"] else " "
        at = len(made)
        if sign == " ":
            made += " " if made and not made.endswith(" ") else ""
        elif made.strip() and made.rstrip()[-1] not in _PAUSES:
            made = made.rstrip() + sign
            at = len(made)
        places.append(min(at, len(made)))
    made = made.rstrip()
    if phonemes.endswith("…") and made.endswith(","):
        made = made[:-1] + "."
    places.append(len(made))
    return made, tuple(_trimmed(made, places[begin], places[end]) for begin, end in spans)


def _trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    """Without the pauses around it."""
    sound = text[begin:end]
    begin += len(sound) - len(sound.lstrip(_PAUSES))
    return begin, begin + len(sound.strip(_PAUSES))


@lru_cache(maxsize=1 << 14)
def _word(word: str, *, british: bool, linked: bool) -> tuple[str, tuple[int, ...]]:
    """A word, and where each of its letters went."""
    text, places = word, list(range(len(word) + 1))
    if whole := _WORDS.get(word):
        text = whole
        if len(whole) < len(word):  # without its stress
            gone = next(i for i, c in enumerate(word) if c in "ˈˌ")
            places = [at - (at > gone) for at in places]
    for pattern, letters in (*_FIRST, *(_BRITISH if british else _AMERICAN), *_LETTERS):
        text, places = _replaced(text, places, pattern, letters)
    if linked and (_SILENT_R if british else _RHOTIC).search(text):
        text += "ɹ"
        places[-1] = len(text)
    return _decomposed(text, places[:-1])


def _replaced(
    text: str, places: list[int], pattern: re.Pattern[str], letters: str
) -> tuple[str, list[int]]:
    if not pattern.search(text):
        return text, places
    made = ""
    moved: list[int] = []
    at = 0
    for match in pattern.finditer(text):
        moved += range(len(made), len(made) + match.start() - at)
        made += text[at : match.start()]
        new = match.expand(letters)
        old = match.end() - match.start()
        moved += (len(made) + min(i, len(new)) for i in range(old))
        made += new
        at = match.end()
    moved += range(len(made), len(made) + len(text) - at + 1)
    made += text[at:]
    return made, [moved[place] for place in places]


def _decomposed(text: str, places: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    if unicodedata.is_normalized("NFD", text):
        return text, tuple(places)
    lengths = [0]
    for c in text:
        lengths.append(lengths[-1] + len(unicodedata.normalize("NFD", c)))
    return unicodedata.normalize("NFD", text), tuple(lengths[at] for at in places)
