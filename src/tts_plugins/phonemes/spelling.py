"""Readers of English that need nothing installed, and which reader a language gets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache

from hibari.g2p import G2P

from tts_plugins.phonemes import espeak
from tts_plugins.phonemes.english import Reading, load_reader, read
from tts_plugins.phonemes.pronounced import Pronounced, Reader
from tts_plugins.phonemes.source import Mark, read_items

logger = logging.getLogger(__name__)


class EnglishReader:
    """English in hibari's letters, which are misaki's and so Kokoro's."""

    def __init__(self, *, british: bool = False) -> None:
        self._british = british
        self._g2p = _g2p(british)

    def read(self, text: str, unreadable: Callable[[str], None]) -> Iterator[Pronounced]:
        for reading in read(read_items(text, unreadable), self._g2p):
            yield _pronounced(reading)


class SpeltReader:
    """English in the letters of espeak-ng's ``en-us`` or ``en-gb``: for Piper voices."""

    def __init__(self, *, british: bool = False) -> None:
        self._british = british
        self._reader = EnglishReader(british=british)

    def read(self, text: str, unreadable: Callable[[str], None]) -> Iterator[Pronounced]:
        yield from self._reader.read(text, unreadable)


def reader_for(language: str) -> Reader:
    """The best reader of a language, or of what an espeak-ng voice of that name speaks.

    In espeak-ng's letters, as Piper voices are trained on them.

    Raises:
        EspeakNotFoundError: The language isn't English, and espeak-ng isn't installed.
        InvalidRequestError: espeak-ng has no such voice.
    """
    if espeak.available():
        return espeak.EspeakReader(language)
    if language.lower().split("-")[0] != "en":
        raise espeak.EspeakNotFoundError(f"reading {language!r} needs espeak-ng")
    return SpeltReader(british=language.lower().startswith("en-gb"))


def _pronounced(reading: Reading) -> Pronounced:
    marks: list[Mark] = []
    spans: list[tuple[int, int]] = []
    for item, span in zip(reading.items, reading.spans, strict=True):
        marks += item.marks
        spans += [span] * len(item.marks)
    return Pronounced(reading.phonemes, tuple(marks), tuple(spans), reading.ends_sentence)


@cache
def _g2p(british: bool) -> G2P:
    return load_reader(british=british)
