"""Cut what is read into pieces that are spoken one after the other: a short one first.

Kokoro's instance norms look at all of what is said at once, so that it can't be streamed inside a
run. A piece is heard when all of it is made, at twice real time or less on a CPU. So each may be as
long as can be made while the one before it is heard::

    phonemes    |----|---------|-------------------|
    at least     20
    at most      60   1.5 of that before, 40 to 200    400 for whoever waits for the whole

It ends where a clause does, or else before a conjunction, or else at a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tts_plugins.phonemes.pronounced import Pronounced
from tts_plugins.phonemes.source import Mark

LONGEST = 400
"""Phonemes in a piece, of the 510 that Kokoro can take: with many it begins to hurry."""

FIRST = 60
"""Phonemes in a first piece that is waited for: three seconds or so."""

_SECOND, _LATER = 40, 200
_GROWTH = 1.5
"""Phonemes that can be made while one is heard. Two quiet cores make 2.2."""

_FEWEST = 20
"""Phonemes: a shorter piece is over before the next is made."""

_BARE_FIRST = 45
"""Phonemes in a first piece that ends in the middle of a clause."""

_CLAUSE_END = re.compile(r"[,;:.!?—…][\"”)]*(?=\s|$)")
_SENTENCE_END = re.compile(r"[.!?…][\"”)]*(?=\s|$)")
_CONJUNCTIONS = re.compile(
    r"(and|but|or|nor|so|yet|because|although|though|while|when|if|that|which|who|where|until"
    r"|unless|y|pero|o|porque|cuando|si|et|mais|ou|car|quand|e|ma|perché|quando|se|mas)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """What is spoken in one run."""

    phonemes: str
    marks: tuple[Mark, ...]
    spans: tuple[tuple[int, int], ...]
    """As in Pronounced."""

    @property
    def audible(self) -> bool:
        return any(c.isalpha() for c in self.phonemes)


def pieces(readings: Iterable[Pronounced], first: int) -> Iterator[Piece]:
    """The pieces of what is read, in order, with nothing lost between them.

    Args:
        readings: What is read, asked for when it is needed.
        first: Phonemes that the first piece may have.
    """
    most = min(first, LONGEST)
    hurried = most <= FIRST
    for heard in readings:
        begin = 0
        while begin < len(heard.phonemes):
            end = _end(heard, begin, most, hurried)
            yield _part(heard, begin, end)
            grown = max(_SECOND, min(_LATER, round(_GROWTH * (end - begin))))
            most = grown if hurried else max(most, grown)
            begin, hurried = end, False


def _end(heard: Pronounced, begin: int, most: int, hurried: bool) -> int:
    """Where the piece ends that begins there."""
    phonemes = heard.phonemes
    stop = len(phonemes)
    if stop - begin <= most and not hurried:
        return stop
    # Neither this piece nor what is left may be a crumb.
    low, high = begin + _FEWEST, min(begin + most, stop - _FEWEST)
    clauses = _ends(_CLAUSE_END, phonemes, low, high)
    if hurried and clauses:
        return clauses[0]
    if stop - begin <= most:
        return stop
    sentences = _ends(_SENTENCE_END, phonemes, begin + most // 3, high)
    for ends in (sentences, clauses):
        if ends:
            return ends[-1]
    high = min(high, begin + _BARE_FIRST) if hurried else high
    before = [
        span[0]
        for mark, span in zip(heard.marks, heard.spans, strict=True)
        if low <= span[0] <= high and _CONJUNCTIONS.fullmatch(mark.text)
    ]
    spaces = [at + 1 for at in range(low, high) if phonemes[at] == " "]
    for places in (before, spaces):
        if places:
            return places[-1]
    return begin + most


def _ends(pattern: re.Pattern[str], phonemes: str, low: int, high: int) -> list[int]:
    return [match.end() for match in pattern.finditer(phonemes, low) if match.end() <= high]


def _part(heard: Pronounced, begin: int, end: int) -> Piece:
    last = end == len(heard.phonemes)
    inside = [
        (mark, (max(0, a - begin), min(b, end) - begin))
        for mark, (a, b) in zip(heard.marks, heard.spans, strict=True)
        if begin <= a < end or (last and a >= end)
    ]
    return Piece(
        heard.phonemes[begin:end],
        tuple(mark for mark, _ in inside),
        tuple((min(a, end - begin), max(b, 0)) for _, (a, b) in inside),
    )
