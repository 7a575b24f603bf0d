"""Find the words of a text, and guess how long each takes to say.

Scripts without spaces have no words to find: there a character with what belongs to it counts
as one, since that is as far as a reader may follow or an interruption may cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tts_plugins.types import Word

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9d\U00020000-\U0003ffff"
)
"""Thai, Lao, Myanmar, Khmer, Kana and Han, as the inside of a character class."""

_THAI_LEAD = "\u0e40-\u0e44\u0ec0-\u0ec4"  # vowels written before the consonant they follow
_ATTACHED = (  # marks, vowels and small kana that can't begin a syllable
    "\u0300-\u036f\u0e2f-\u0e3a\u0e45-\u0e4e\u0eaf-\u0ebd\u0ec6-\u0ece\u102b-\u103e\u1056-\u1060"
    "\u17b4-\u17d3\u17dd\u200c\u200d\ufe00-\ufe0f"
    "\u3041\u3043\u3045\u3047\u3049\u3063\u3083\u3085\u3087\u308e\u3099\u309a"
    "\u30a1\u30a3\u30a5\u30a7\u30a9\u30c3\u30e3\u30e5\u30e7\u30ee\u30fc\u3005\uff67-\uff70"
)
_TOKEN = re.compile(r"\S+")
_OPENING = "(\\[{«“‘「『（《〈【"
_PART = re.compile(
    rf"[^\w\s]*(?:[{_THAI_LEAD}]?[{UNSPACED}][{_ATTACHED}]*|[^\s{UNSPACED}{_OPENING}]+)"
    rf"[^\w\s{_OPENING}]*"  # an opening mark belongs to what it opens, every other to what it ends
)
_UNSPACED = re.compile(f"[{UNSPACED}]")
_ATTACHES = re.compile(f"[{_ATTACHED}]")

_PAUSES = dict.fromkeys(",;:—–،؛、，；：·", 3.0) | dict.fromkeys(".!?…؟۔。｡！？．।॥။។៕።։", 5.0)
"""A mark's pause, in units."""


class Span(NamedTuple):
    """A word and where it stands: ``text[offset : offset + len(word)] == word``."""

    offset: int
    word: str


def spans(text: str) -> Iterator[Span]:
    """The words of ``text``, in order, each with its punctuation.

    What is between spaces is a word if it holds a letter or a digit. Of a script without
    spaces each character is one, together with the marks that belong to it.
    """
    for token in _TOKEN.finditer(text):
        if not _UNSPACED.search(token[0]):
            if speakable(token[0]):
                yield Span(token.start(), token[0])
            continue
        for part in _parts(token[0]):
            if speakable(part[0]):
                yield Span(token.start() + part.start(), part[0])


def _parts(token: str) -> Iterator[re.Match[str]]:
    """Each part that may be a word, in one walk: each begins where the one before it ends.

    None begins behind the last letter or digit, where there are only marks: looking for a word in
    them takes as long as there are marks, squared.
    """
    last = next((i for i in reversed(range(len(token))) if token[i].isalnum()), -1)
    at = 0
    while at <= last and (part := _PART.match(token, at)):
        yield part
        at = part.end()


def count(text: str) -> float:
    """How many words there are; of a script without spaces, two characters count as one."""
    return sum(0.5 if _UNSPACED.search(span.word) else 1.0 for span in spans(text))


def joins(character: str) -> bool:
    """Whether the character belongs to the one before it, so that nothing may be cut there."""
    return bool(_ATTACHES.match(character))


def leads(character: str) -> bool:
    """Whether the character is a vowel written before its consonant, as in Thai."""
    return bool(re.match(f"[{_THAI_LEAD}]", character))


def units(text: str) -> float:
    """How long ``text`` takes to say, in units of one letter, pauses included."""
    *_, (_, end) = _timeline(text)
    return end


def estimate(text: str, seconds_per_unit: float) -> tuple[Word, ...]:
    """The words of ``text`` with guessed times, for an engine that reports none."""
    times = list(_timeline(text))
    words = []
    for offset, word in spans(text):
        spoken = [i for i, c in enumerate(word, offset) if c.isalnum()]
        start, end = times[spoken[0]][0], times[spoken[-1]][1]
        words.append(
            Word(word, offset, start * seconds_per_unit, end * seconds_per_unit, exact=False)
        )
    return tuple(words)


def shifted(word: Word, seconds: float) -> Word:
    """The word later by ``seconds``, or earlier, but not before the start."""
    return replace(word, start=max(0.0, word.start + seconds), end=max(0.0, word.end + seconds))


def _timeline(text: str) -> Iterator[tuple[float, float]]:
    """When each character begins and ends, in units; one more at the end, after the last pause."""
    now = pause = 0.0
    for i, character in enumerate(text):
        weight = _weight(character)
        if character in _PAUSES:
            if text[i - 1 : i].isalnum() and text[i + 1 : i + 2].isalnum():
                weight = 0.0 if _UNSPACED.match(character) else 3.0  # "point", "dot"
            else:
                pause = max(pause, _PAUSES[character])
        if weight:
            now, pause = now + pause, 0.0
        yield now, now + weight
        now += weight
    yield now + pause, now + pause


def _weight(character: str) -> float:
    if character.isalpha():
        return 3.0 if _UNSPACED.match(character) or "\uac00" <= character <= "\ud7a3" else 1.0
    if character.isalnum() or character in "$€£¥₫₹%&@+=°":
        return 3.0  # "three", "dollars": a syllable or two
    return 0.0


def speakable(text: str) -> bool:
    """Whether there is anything in ``text`` to say: a letter or a digit."""
    return any(character.isalnum() for character in text)
