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

    A piece ends with a sentence if it can, otherwise at a comma, otherwise with a word. Of the
    text no more is counted than the next piece takes, and each word of it once by itself.

    Args:
        count: How many tokens a text has.
        most: Tokens of a piece, and words; only of one endless word there may be more.
    """
    words: list[str] = []
    tokens: list[int] = []
    for word, size in _sized(text, count, most):
        words.append(word)
        tokens.append(size)
        while sum(tokens) > most and len(words) > 1:
            taken = _taken(words, len(words) - 1, count, most)
            yield " ".join(words[:taken])
            del words[:taken], tokens[:taken]
    while words:
        taken = _taken(words, len(words), count, most)
        yield " ".join(words[:taken])
        del words[:taken]


def _sized(text: str, count: Callable[[str], int], most: int) -> Iterator[tuple[str, int]]:
    """The words of a text, endless ones in parts, and the tokens of each.

    One that has none, such as a mark that a tokenizer leaves out, counts as one token: or there
    would be no end to a piece.
    """
    for word in text.split():
        size = max(1, count(word))
        if size <= most or len(word) <= _ENDLESS:
            yield word, size
            continue
        for start in range(0, len(word), _ENDLESS):
            part = word[start : start + _ENDLESS]
            yield part, max(1, count(part))


def _taken(words: list[str], n: int, count: Callable[[str], int], most: int) -> int:
    """How many of the words to take, of which ``n`` fit if one counts them one by one."""
    while n > 1 and count(" ".join(words[:n])) > most:
        n -= 1
    return n if n == len(words) else _best(words[:n])


def _best(words: list[str]) -> int:
    """How many of the words to take."""
    for ends in _ENDS:
        for n in range(len(words), 0, -1):
            if words[n - 1].rstrip(_CLOSING).endswith(tuple(ends)):
                return n
    return len(words)
