"""Read a text as the letters that it is written in, for voices that were taught these."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator

from tts_plugins.phonemes.pronounced import Pronounced
from tts_plugins.phonemes.source import Mark
from tts_plugins.phonemes.told import MARKUP
from tts_plugins.text.words import spans

_LONGEST = 400
_END = re.compile(r"[.!?…。！？।؟۔]+[\"'”’»)\]]*(?=\s)|\n")
_SPACE = re.compile(r"\s+")
_ENDED = re.compile(r"[.!?…。！？।؟۔][\"'”’»)\]]*\s*$|\n$")


class LettersReader:
    """Gives the text itself, decomposed (NFD), sentence by sentence.

    Args:
        known: The letters that the voice has; capitals that it lacks are read as small ones.
    """

    def __init__(self, known: Collection[str]) -> None:
        self._known = frozenset(known)

    def read(self, text: str, unreadable: Callable[[str], None]) -> Iterator[Pronounced]:
        """The text in pieces of about 400 letters at most, and ``[word](/ipa/)`` as the word."""
        text = MARKUP.sub(_shown, text)
        words = [Mark(word, offset) for offset, word in spans(text)]
        at = 0
        for begin, end in _pieces(text):
            since = at
            while at < len(words) and words[at].offset < end:
                at += 1
            marks = words[since:at]
            phonemes = ""
            places: list[int] = []
            for character in text[begin:end]:
                places.append(len(phonemes))
                if not (character.isspace() and phonemes.endswith(" ")):
                    phonemes += self._letters(character, unreadable)
            places.append(len(phonemes))
            heard = [
                _trimmed(phonemes, places[m.offset - begin], places[_stop(m, begin, end)])
                for m in marks
            ]
            yield Pronounced(
                phonemes,
                tuple(marks),
                tuple(heard),
                ends_sentence=bool(_ENDED.search(text[begin:end])),
            )

    def _letters(self, character: str, unreadable: Callable[[str], None]) -> str:
        if character.isspace():
            return " "
        for form in (character, character.casefold()):
            parts = unicodedata.normalize("NFD", form)
            if all(part in self._known for part in parts):
                return parts
        if character.isalpha():
            name = unicodedata.name(character, "UNKNOWN").split()[0]
            unreadable(name.split("-")[0])
        return ""


def _shown(match: re.Match[str]) -> str:
    """The word alone of one with its pronunciation, where it stood: it has letters already."""
    return f" {match[1]}".ljust(len(match[0]))


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Where sentences begin and end; a long one is cut between words."""
    begin = 0
    while begin < len(text):
        match = _END.search(text, begin, begin + _LONGEST)
        end = match.end() if match else min(len(text), begin + _LONGEST)
        if not match and end < len(text):
            spaces = [m.end() for m in _SPACE.finditer(text, begin + _LONGEST // 2, end)]
            end = spaces[-1] if spaces else end
        yield begin, end
        begin = end


def _stop(mark: Mark, begin: int, end: int) -> int:
    """Where a word ends in its piece, which may be cut within an endless one."""
    return min(mark.offset + len(mark.text), end) - begin


def _trimmed(phonemes: str, begin: int, end: int) -> tuple[int, int]:
    """Without the signs around it."""
    while begin < end and not phonemes[begin].isalnum():
        begin += 1
    # A mark that is joined to the last letter belongs to it.
    while begin < end and not (
        phonemes[end - 1].isalnum() or unicodedata.category(phonemes[end - 1])[0] == "M"
    ):
        end -= 1
    return begin, end
