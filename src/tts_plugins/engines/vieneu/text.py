"""What the SDK is given of a text: no letter that it stumbles over, and for Nano short clauses."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from tts_plugins.text.sentences import SentenceSplitter

_CUE = re.compile(
    r"\[\s*(?:cười|cuoi|chuckle|thở dài|tho dai|sigh|hắng giọng|hang giong|clear throat)\s*\]"
    r"|<\|emotion_\d+\|>",
    re.IGNORECASE,
)
"""A sound that isn't a word: a laugh, a sigh, a cleared throat (vieneu 3.8.3, phonemize_text)."""

_UNSAYABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
"""Control characters and halves of one character, which no text that the SDK takes may hold."""

_ACCENT = "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_HEAPED = re.compile(f"({_ACCENT}{{3}}){_ACCENT}+")
"""More accents on a letter than any language has; Nano would compute with each."""

_LONG = re.compile(r"(?=\S{41})(?:\S{0,39}[^\w\s\[<|]|\S{1,39}(?=[\[<])|\S{40})")
"""Characters in a row without a space, up to a mark if there is one, and never half of a cue:
sea-g2p 0.10 takes their number squared, 45 s for 2000 letters, and panics at 400 of "1.1.1."."""

_PARAGRAPH = re.compile(
    r"(?=[^\n]{501})(?:[^\n]{250,499}[.!?…](?=\s)|[^\n]{250,499}[,;:–—](?=\s)|[^\n]{1,499}(?=\s))"
)
"""As much as it takes at a time, up to the end of a sentence if there is one: it panics at 20 000
characters of numbers. The SDK gives it a paragraph at a time."""

_COMMA = re.compile(r"(?<=[,;:–—])\s+")

_FIRST = 20
"""Letters of the first piece, at least: a second or two of speech."""

_LATER = 100
"""Letters of any later piece before it is cut."""

AFTER_SENTENCE, AFTER_CLAUSE = 0.5, 0.3
"""Seconds of silence behind a piece: what the SDK leaves between pieces of its own."""


def sayable(text: str) -> str:
    """The same text, as the SDK can take it."""
    text = _UNSAYABLE.sub(" ", unicodedata.normalize("NFC", text))
    text = _LONG.sub(r"\g<0> ", _HEAPED.sub(r"\1", text))
    return _PARAGRAPH.sub(r"\g<0>\n", text)


def without_cues(text: str) -> str:
    """The same text with its cues blanked, each word where it was.

    It is as long as ``text``.
    """
    return _CUE.sub(lambda cue: " " * len(cue[0]), text)


def pieces(text: str) -> list[tuple[str, float]]:
    """The text in pieces that are each spoken at once, and the silence behind each, in seconds.

    The first is short, so that it is soon heard; each later one may take twice as long, since it
    is made while the one before it is heard. They end where a speaker would pause.
    """
    found: list[tuple[str, float]] = []
    piece, enough = "", _FIRST
    for clause, pause in _clauses(text):
        piece = f"{piece} {clause}".strip()
        if len(piece) >= enough:
            found.append((piece, pause))
            piece, enough = "", min(2 * enough, _LATER)
    if piece and found and len(piece) < _FIRST:
        found[-1] = (f"{found[-1][0]} {piece}", AFTER_SENTENCE)
    elif piece:
        found.append((piece, AFTER_SENTENCE))
    return found


def _clauses(text: str) -> Iterator[tuple[str, float]]:
    splitter = SentenceSplitter("vi")
    for sentence in [*splitter.push(text), *splitter.flush()]:
        *clauses, last = _COMMA.split(sentence.strip())
        for clause in clauses:
            yield clause, AFTER_CLAUSE
        if last:
            yield last, AFTER_SENTENCE
