"""Turn the times a server reports into words of the text that was asked for, and back.

Some servers time each character, others the words of a text they rewrote: "five dollars" for
"$5". Only letters and digits are compared, without case and accents, so that it doesn't matter
what a server does with spaces, punctuation and composed characters.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import NamedTuple

from tts_plugins.text.words import spans
from tts_plugins.types import Word

_LETTER = 0.065
"""Seconds that a letter takes whose time hasn't come yet: about 15 letters a second."""

_SURE = 3
"""Letters in a row that show where the text goes on after one that isn't in it."""

_WINDOW = 64
"""How many letters they may skip."""

_FARTHEST = 12
"""How many words two tokens may skip together; one alone skips one."""

_FOREVER = 86_400.0
"""Seconds; a later time is no time."""

_SPOKEN = re.compile(r"[^\W_](?:.*[^\W_])?", re.DOTALL)


class _Heard(NamedTuple):
    letters: str
    start: float
    end: float
    reported: bool
    """False when the times made no sense and were put right."""


class Alignment:
    """Push times as they come; get back the words that are now known, in order.

    A word is given as soon as its first letter has a time. It is exact when both its start and
    its end were reported by then. Words that were passed over are spread by their letters over
    the time in which they must have been said. However the times are cut into pushes, the words
    and their starts are the same.
    """

    def __init__(self, text: str) -> None:
        self._words = list(spans(text))
        self._given = 0
        letters: list[str] = []
        self._firsts: list[int] = []  # where each word begins in the letters
        self._edges: list[int] = []  # where a token may begin: "well-known" has two places
        for _, word in self._words:
            self._firsts.append(len(letters))
            inside = False
            for character in word:
                if folded := _fold(character):
                    if not inside:
                        self._edges.append(len(letters))
                    letters += folded
                inside = bool(folded) or (inside and _is_mark(character))
        self._letters = "".join(letters)
        self._firsts.append(len(letters))
        self._edges.append(len(letters))
        self._times: list[tuple[float, float]] = []  # of each letter so far
        self._starts: set[int] = set()  # the letters whose start was reported
        self._ends: set[int] = set()
        self._tail: list[_Heard] = []  # not found yet, but perhaps with what comes next
        self._strays: list[float] = []  # starts of what wasn't found since the last match
        self._latest = 0.0
        self._touching = False  # whether an accent would belong to the last letter

    def push_characters(
        self, characters: Sequence[str], starts: Sequence[float], ends: Sequence[float]
    ) -> list[Word]:
        """Take the start and end of each character, in seconds."""
        for character, start, end in zip(characters, starts, ends, strict=False):
            if letters := _fold(character):
                self._follow(self._hear(letters, start, end))
            elif self._touching and _is_mark(character[:1]):
                self._lengthen(end)
            else:
                self._touching = False
        return self._give()

    def push_tokens(self, tokens: Iterable[tuple[str, float, float]]) -> list[Word]:
        """Take words of a rewritten text, each with its start and end in seconds."""
        for token, start, end in tokens:
            if letters := _fold(token):
                self._look_up(self._hear(letters, start, end))
        return self._give()

    def flush(self, end: float) -> list[Word]:
        """End the audio at ``end`` seconds; return the words that nobody timed."""
        self._drop_tail_to(0)
        start = self._strays[0] if self._strays else self._now
        end = end if start <= end < _FOREVER else start
        self._times += _steps(len(self._letters) - len(self._times), start, end)
        return self._give()

    @property
    def _now(self) -> float:
        return self._times[-1][1] if self._times else 0.0

    def _hear(self, letters: str, start: float, end: float) -> _Heard:
        reported = self._latest <= start <= end < _FOREVER  # false for NaN, too
        if not self._latest <= start < _FOREVER:
            start = self._latest
        if not start <= end < _FOREVER:
            end = start
        self._latest = start
        return _Heard(letters, start, end, reported)

    def _follow(self, heard: _Heard) -> None:
        """Place a character: the next in the text, or else once enough in a row are found."""
        at = len(self._times)
        in_step = not self._tail and self._letters.startswith(heard.letters, at)
        self._tail.append(heard)
        if in_step:
            self._place_tail(at)
            return
        self._touching = False
        while len(letters := "".join(heard.letters for heard in self._tail)) >= _SURE:
            found = self._letters.find(letters, at, at + _WINDOW + len(letters))
            if found >= 0:
                self._place_tail(found)
                return
            self._drop_tail_to(len(self._tail) - 1)

    def _look_up(self, heard: _Heard) -> None:
        """Place a token: near by, or else once it and the one before are found in a row.

        So the "and" of "nine dollars and ninety cents" for "$9.90" isn't taken for a later one.
        """
        at = len(self._times)
        in_step = not (self._strays or self._tail) and self._letters.startswith(heard.letters, at)
        near = at if in_step else self._find(heard.letters, 1)  # in step "do" is part of "don't"
        self._tail.append(heard)
        far = self._find("".join(heard.letters for heard in self._tail), _FARTHEST)
        if near is None and len(self._tail) > 1 and far is not None:
            self._place_tail(far)
            return
        self._drop_tail_to(1)
        if near is not None:
            self._place_tail(near)

    def _find(self, letters: str, farthest: int) -> int | None:
        """Where letters stand between two edges, at most ``farthest`` words on."""
        next_edge = bisect_left(self._edges, len(self._times))
        for edge in self._edges[next_edge : next_edge + farthest + 1]:
            if self._letters.startswith(letters, edge):
                end = edge + len(letters)
                if self._edges[bisect_left(self._edges, end)] == end:
                    return edge
        return None

    def _drop_tail_to(self, count: int) -> None:
        while len(self._tail) > count:
            self._strays.append(self._tail.pop(0).start)

    def _place_tail(self, at: int) -> None:
        for heard in self._tail:
            self._place(at, heard)
            at += len(heard.letters)
        self._tail.clear()

    def _place(self, at: int, heard: _Heard) -> None:
        """Give letters their times, after those before them that never came."""
        skipped = at - len(self._times)
        since = self._strays[0] if self._strays else min(self._now, heard.start)
        self._times += _steps(skipped, since, heard.start)
        self._times += _steps(len(heard.letters), heard.start, heard.end)
        if heard.reported:
            self._starts.add(at)
            self._ends.add(len(self._times) - 1)
        self._strays.clear()
        self._touching = True

    def _lengthen(self, end: float) -> None:
        if self._now <= end < _FOREVER:
            self._times[-1] = (self._times[-1][0], end)

    def _give(self) -> list[Word]:
        words = []
        while self._firsts[self._given] < len(self._times):
            words.append(self._word(self._given))
            self._given += 1
        return words

    def _word(self, i: int) -> Word:
        first, last = self._firsts[i], self._firsts[i + 1] - 1
        timed = min(last, len(self._times) - 1)
        start, end = self._times[first][0], self._times[timed][1] + (last - timed) * _LETTER
        offset, word = self._words[i]
        return Word(word, offset, start, end, exact=first in self._starts and last in self._ends)


def characters(text: str, words: Sequence[Word]) -> tuple[list[str], list[float], list[float]]:
    """The characters of ``text``, each with its start and end in seconds.

    The words come in order and don't overlap in the text; some may be missing.
    A word's time goes to what is between its first letter and its last; spaces and punctuation
    share the time between words. Starts never decrease; nor do ends, unless words overlap.
    """
    times: list[tuple[float, float]] = []
    now = 0.0
    for word, following in zip_longest(words, words[1:]):
        first, stop = _spoken(word)
        times += _steps(first - len(times), min(now, word.start), word.start)
        end = min(word.end, following.start) if following else word.end
        times += _steps(stop - first, word.start, end)
        now = word.end
        times[-1] = (times[-1][0], now)
    times += _steps(len(text) - len(times), now, now)
    return list(text), [start for start, _ in times], [end for _, end in times]


def _spoken(word: Word) -> tuple[int, int]:
    """Where its first letter is in the text, and where its last one ends, accents included."""
    found = _SPOKEN.search(word.text)
    first, stop = found.span() if found else (0, len(word.text))
    while stop < len(word.text) and _is_mark(word.text[stop]):
        stop += 1
    return word.offset + first, word.offset + stop


def _steps(count: int, start: float, end: float) -> Iterator[tuple[float, float]]:
    """``count`` equal steps; the last one ends at ``end`` to the last bit."""
    return pairwise([*(start + (end - start) * i / count for i in range(count)), end])


def _fold(text: str) -> str:
    """Its letters and digits, without case and accents."""
    return "".join(_bare(character) for character in text if character.isalnum())


def _bare(letter: str) -> str:
    plain = unicodedata.normalize("NFKD", letter.casefold())
    return "".join(filter(str.isalnum, plain)) or letter  # "ﾞ" is a letter made of nothing else


def _is_mark(character: str) -> bool:
    return bool(character) and unicodedata.category(character).startswith("M")
