"""English text to phonemes with hibari's reader, and which phonemes belong to which word.

The alphabet is hibari's, which is Kokoro's (misaki): IPA with one letter for a diphthong or an
affricate.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from hibari.g2p import G2P
from hibari.g2p.normalize import normalize

from tts_plugins.phonemes.align import owners
from tts_plugins.phonemes.ipa import in_accent
from tts_plugins.phonemes.source import Item

logger = logging.getLogger(__name__)

LONGEST = 400
"""Phonemes in one run: hibari's own limit."""

_WINDOW = 600
"""Characters looked at together: more than ``LONGEST`` phonemes are written with."""
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*$")
_CLAUSE_END = re.compile(r"[,;:—–][\"'”’)\]]*$")
_PAUSES = ' ;:,.!?—…"()“”'


@dataclass(frozen=True, slots=True)
class Reading:
    """Phonemes of a run, and where those of each item begin and end."""

    phonemes: str
    items: Sequence[Item]
    spans: Sequence[tuple[int, int]]
    """``phonemes[begin:end]`` is what is heard of the item: no pauses; empty if nothing is."""

    @property
    def audible(self) -> bool:
        return any(begin < end for begin, end in self.spans)

    @property
    def ends_sentence(self) -> bool:
        read = [item.spoken for item in self.items if item.spoken]
        return bool(read) and bool(_SENTENCE_END.search(read[-1]))

    def head(self, n: int) -> Reading:
        """The first ``n`` items alone."""
        following = [begin for begin, end in self.spans[n:] if begin < end]
        stop = following[0] if following else len(self.phonemes)
        phonemes = self.phonemes[:stop].rstrip()
        spans = [(min(a, len(phonemes)), min(b, len(phonemes))) for a, b in self.spans[:n]]
        return Reading(phonemes, self.items[:n], spans)


def load_reader(*, british: bool) -> G2P:
    """hibari's reader of English, in one of two accents. Takes half a second."""
    reader = G2P(british=british)
    # Touched so that the reader of unknown words is there before the first unknown word.
    _ = reader.oov
    return reader


def read(items: Iterator[Item], g2p: G2P) -> Iterator[Reading]:
    """Readings of at most ``LONGEST`` phonemes, made as they are asked for.

    What fits is one reading. A longer text is cut after a sentence or a clause where one ends, and
    else between words; only a single endless word gives a longer reading.
    """
    window: list[Item] = []
    size = 0
    while True:
        while size <= _WINDOW and (item := next(items, None)):
            window.append(item)
            size += len(item.spoken) + 1
        if not window:
            return
        reading = pronounce(window, g2p)
        if size <= _WINDOW and len(reading.phonemes) <= LONGEST:
            yield reading
            return
        n = _cut(reading)
        yield reading.head(n)
        size -= sum(len(item.spoken) + 1 for item in islice(window, n))
        del window[:n]


def pronounce(items: Sequence[Item], g2p: G2P) -> Reading:
    """Read ``items`` together."""
    phonemes = ""
    words: list[_Heard] = []
    joined = False
    for token, index in _tokens(items, g2p):
        begin = len(phonemes)
        phonemes += token.phonemes or ""
        heard = _Heard(token.text, begin, len(phonemes), index)
        if joined and index is None:
            last = words.pop()
            heard = _Heard(last.text + heard.text, last.begin, heard.end)
        words.append(heard)
        joined = index is None and not token.whitespace
        if token.whitespace and phonemes:
            phonemes += " "
    spans: list[tuple[int, int] | None] = [None] * len(items)
    for owner, word in _owned(items, words):
        if span := _trimmed(phonemes, word):
            earlier = spans[owner]
            spans[owner] = (earlier[0] if earlier else span[0], span[1])
    return Reading(phonemes.rstrip(), items, _filled(spans))


@dataclass(frozen=True, slots=True)
class _Heard:
    """A word that is read, and which phonemes it has."""

    text: str
    begin: int
    end: int
    item: int | None = None
    """Where it comes from, when it brought its pronunciation."""


def _owned(items: Sequence[Item], words: Sequence[_Heard]) -> Iterator[tuple[int, _Heard]]:
    """Each word with the item that it came from."""
    # What stands between two words that brought their pronunciation is matched by itself.
    between: list[_Heard] = []
    since = 0
    for word in words:
        if word.item is None:
            between.append(word)
            continue
        yield from _matched(items, since, word.item, between)
        yield word.item, word
        between, since = [], word.item + 1
    yield from _matched(items, since, len(items), between)


def _matched(
    items: Sequence[Item], since: int, until: int, words: Sequence[_Heard]
) -> Iterator[tuple[int, _Heard]]:
    if since < until:
        spoken = [item.spoken for item in items[since:until]]
        found = owners(spoken, [word.text for word in words])
        yield from ((since + owner, word) for owner, word in zip(found, words, strict=True))


def _trimmed(phonemes: str, word: _Heard) -> tuple[int, int] | None:
    """Where it begins and ends without the pauses around it, unless that leaves nothing."""
    sound = phonemes[word.begin : word.end]
    begin = word.end - len(sound.lstrip(_PAUSES))
    end = word.begin + len(sound.rstrip(_PAUSES))
    return (begin, end) if begin < end else None


def _tokens(items: Sequence[Item], g2p: G2P) -> list[tuple[Any, int | None]]:
    """hibari's tokens with their phonemes, and the item of those that it was told how to say."""
    try:
        return _pronounced(items, g2p)
    except Exception:  # No text may end a conversation, and hibari fails on some.
        logger.debug("hibari failed on a text of %d items", len(items), exc_info=True)
    if len(items) == 1:
        return []
    # The item that it can't read is left out; the others lose no more than their context.
    return [
        (token, i if index is not None else None)
        for i, item in enumerate(items)
        for token, index in _tokens([item], g2p)
    ]


def _pronounced(items: Sequence[Item], g2p: G2P) -> list[tuple[Any, int | None]]:
    tokens: list[Any] = []
    told: dict[int, int] = {}
    plain = ""
    for i, item in enumerate(items):
        space = " " if item.spaced else ""
        if item.phonemes is None:
            plain += item.spoken + space
            continue
        tokens += _plain_tokens(plain, g2p)
        plain = ""
        sound = in_accent(item.phonemes, british=g2p.british)
        (token,) = g2p.tokenize(f"[{item.spoken}](/{sound}/)")
        token.whitespace = space
        told[id(token)] = i
        tokens.append(token)
    tokens += _plain_tokens(plain, g2p)
    return [(token, told.get(id(token))) for token in g2p.phonemize_tokens(tokens)]


def _plain_tokens(text: str, g2p: G2P) -> list[Any]:
    tokens: list[Any] = g2p.tokenize(normalize(text))
    if tokens and text.endswith(" "):
        tokens[-1].whitespace = " "
    return tokens


def _cut(reading: Reading) -> int:
    """How many items to speak first: at least one."""
    ends = [end for _, end in reading.spans]
    fits = sum(end <= LONGEST for end in ends)
    for pattern in (_SENTENCE_END, _CLAUSE_END):
        for n in range(fits, 0, -1):
            # A cut further ahead would leave crumbs.
            if ends[n - 1] < LONGEST // 3:
                break
            if pattern.search(reading.items[n - 1].spoken):
                return n
    return max(fits, 1)


def _filled(spans: Sequence[tuple[int, int] | None]) -> list[tuple[int, int]]:
    """What isn't heard gets no time, where what comes before it ends."""
    at = next((span[0] for span in spans if span), 0)
    filled = []
    for span in spans:
        filled.append(span or (at, at))
        at = filled[-1][1]
    return filled
