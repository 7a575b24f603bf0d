"""Cut a text into pieces that the network reads without skipping a word.

pocket-tts (4.0.1) does so itself, but leaves a long sentence whole that has no comma, and writes
the beginning of it into the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_ENDS = (".!?…", ",;:")
"""Characters after which to cut: better ones first."""

_CLOSING = "\"'”’)]»"

_ENDLESS = 40
"""Characters of a word that is no word, and longer than a piece."""


def pieces(text: str, count: Callable[[str], int], most: int) -> Iterator[str]:
    """The pieces of a text, in order, each as long as it may be.

    A piece ends with a sentence if it can, otherwise at a comma, otherwise with a word.

    Args:
        count: How many tokens a text has.
        most: Tokens of a piece; only of one endless word there may be more.
    """
    words = [part for word in text.split() for part in _parts(word, count, most)]
    while words:
        fitting = _fitting(words, count, most)
        taken = fitting if fitting == len(words) else _best(words[:fitting])
        yield " ".join(words[:taken])
        words = words[taken:]


def _parts(word: str, count: Callable[[str], int], most: int) -> Iterator[str]:
    size = _ENDLESS if len(word) > _ENDLESS and count(word) > most else len(word)
    for start in range(0, len(word), size):
        yield word[start : start + size]


def _fitting(words: list[str], count: Callable[[str], int], most: int) -> int:
    """How many of the words fit into a piece, at least one."""
    for n in range(1, len(words)):
        if count(" ".join(words[: n + 1])) > most:
            return n
    return len(words)


def _best(words: list[str]) -> int:
    """How many of the words to take."""
    for ends in _ENDS:
        for n in range(len(words), 0, -1):
            if words[n - 1].rstrip(_CLOSING).endswith(tuple(ends)):
                return n
    return len(words)
