"""The text of a request as items to read aloud, each remembering where it stood.

What can't be read (other scripts, control characters, emoji) is left out here, so that nothing
after this module has to be afraid of a text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tts_plugins.text.words import speakable
from tts_plugins.types import Word

_SHOWN, _SOUND = r"[^\[\]]{1,200}", r"[^()/]{0,400}"
_ITEM = re.compile(
    rf"\[(?P<shown>{_SHOWN})\]\(/(?P<phonemes>{_SOUND})/\)"
    rf"|(?:(?!\[{_SHOWN}\]\(/{_SOUND}/\))\S)+"
)
_WORD = re.compile(r"\S+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_ITEM = 200
_LONG_RUN = re.compile(r"[^\W\d_]{49,}")
_READABLE_RUN = 24
"""Letters of one word that hibari's reader of unknown words looks at; it drops what follows."""
_LONG_NUMBER = re.compile(r"\d[\d,]{12,}")
_PART = re.compile(r"[A-ZÀ-Þ]+|[^\W\d_A-ZÀ-Þ]+|\d+|.", re.DOTALL)
_MOST_PARTS = 16
"""In one word: hibari tries all ways of joining its parts, which takes their number cubed."""
_FIRST_PICTURE = 0x2190
"""Symbols from here on are arrows, boxes and emoji; before, such as degrees and copyright."""
_LATIN_LIMIT = 0x180
"""hibari knows the accented letters below and few of those above."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A word of the request: ``request.text[offset : offset + len(text)] == text``."""

    text: str
    offset: int


def heard_together(marks: Sequence[Mark], start: float, end: float) -> list[Word]:
    """Divide the time of what is said as one among its words; nearly always there is one."""
    step = (end - start) / max(1, len(marks))
    return [
        Word(mark.text, mark.offset, start + i * step, start + (i + 1) * step)
        for i, mark in enumerate(marks)
    ]


@dataclass(frozen=True, slots=True)
class Item:
    """A run of the text without whitespace, or a word with its pronunciation."""

    spoken: str
    """What to read; empty when nothing in it can be."""

    marks: tuple[Mark, ...]
    """The words that are heard with it: none for mere punctuation."""

    spaced: bool
    """Whether whitespace follows."""

    phonemes: str | None = None
    """How to pronounce it, when the text says so."""


def read_items(text: str, unreadable: Callable[[str], None]) -> Iterator[Item]:
    """Items of ``text``, in order, as they are asked for.

    Args:
        text: Anything.
        unreadable: Called with the name of a script that was left out, such as ``CYRILLIC``.
    """
    for match in _ITEM.finditer(text):
        spaced = match.end() < len(text) and text[match.end()].isspace()
        if match["shown"] is not None:
            shown, at = match["shown"], match.start("shown")
            marks = tuple(
                Mark(word[0], at + word.start())
                for word in _WORD.finditer(shown)
                if speakable(word[0])
            )
            # A name in another script can be said all the same: only something must stand there.
            spoken = readable(shown, lambda _: None) or "x"
            yield Item(spoken, marks, spaced, match["phonemes"])
            continue
        marks = (Mark(match[0], match.start()),) if speakable(match[0]) else ()
        spoken = _short_runs(readable(match[0], unreadable))
        yield Item(spoken[:_LONGEST_ITEM], marks, spaced or len(spoken) > _LONGEST_ITEM)
        for start in range(_LONGEST_ITEM, len(spoken), _LONGEST_ITEM):
            end = start + _LONGEST_ITEM
            yield Item(spoken[start:end].strip(), (), spaced or end < len(spoken))


def readable(word: str, unreadable: Callable[[str], None]) -> str:
    """``word`` without what the voice can't read."""
    if word.isascii():
        return _CONTROL.sub("", word)
    # Whoever types NFD, or mathematical letters for bold, means the plain ones.
    return "".join(_readable(c, unreadable) for c in unicodedata.normalize("NFC", word))


def _readable(character: str, unreadable: Callable[[str], None]) -> str:
    plain, script = _classify(character)
    if script:
        unreadable(script)
    return plain


@lru_cache(maxsize=4096)
def _classify(character: str) -> tuple[str, str]:
    """What to read for a character, and the script when that is nothing because of it."""
    category = unicodedata.category(character)
    match category[0]:
        case "C" | "M":
            return "", ""
        case "N" if ord(character) >= _LATIN_LIMIT:
            plain = unicodedata.normalize("NFKC", character).replace("\u2044", "/")
            if category == "Nd":
                plain = str(unicodedata.decimal(character))
            return (plain if plain.isascii() else ""), ""
        case "L" if category != "Lm":
            return _letter(character)
        case "S" if category in ("So", "Sk") and ord(character) >= _FIRST_PICTURE:
            return "", ""
        case _:
            return character, ""


def _letter(character: str) -> tuple[str, str]:
    name = unicodedata.name(character, "UNKNOWN")
    if name.startswith(("LATIN", "MICRO", "FEMININE", "MASCULINE")):
        if ord(character) < _LATIN_LIMIT:
            return character, ""
        base = unicodedata.normalize("NFD", character)[0]
        return (base if base.isascii() else character), ""
    if name == "GREEK SMALL LETTER MU":
        return "µ", ""  # what hibari takes for micro is the other one
    plain = unicodedata.normalize("NFKC", character)
    if plain.isascii():
        return plain, ""
    script = name.removeprefix("HALFWIDTH ").removeprefix("FULLWIDTH ").split()[0]
    return "", script.split("-")[0]


def _short_runs(word: str) -> str:
    """Break up what hibari can't take in one piece: endless words, and numbers beyond names."""
    word = _LONG_RUN.sub(lambda run: _spaced(run[0], _READABLE_RUN), word)
    word = _LONG_NUMBER.sub(lambda run: _spaced(run[0].replace(",", ""), 1), word)
    return " ".join(_spaced(_PART.findall(chunk), _MOST_PARTS) for chunk in word.split())


def _spaced(parts: Sequence[str], n: int) -> str:
    """The parts joined, with a space after every ``n``."""
    return " ".join("".join(parts[i : i + n]) for i in range(0, len(parts), n))
