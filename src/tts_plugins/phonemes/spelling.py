"""Readers of English that need nothing installed, and which reader a language gets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache, lru_cache

from hibari.g2p import G2P

from tts_plugins.phonemes import espeak
from tts_plugins.phonemes.english import Reading, load_reader, read
from tts_plugins.phonemes.pronounced import Pronounced, Reader
from tts_plugins.phonemes.respelling import respelt
from tts_plugins.phonemes.source import Mark, read_items

logger = logging.getLogger(__name__)


class EnglishReader:
    """English in hibari's letters, which are misaki's and so Kokoro's.

    What fits into 400 phonemes is one piece. The first reader of an accent takes half a second.
    """

    def __init__(self, *, british: bool = False) -> None:
        self._g2p = _g2p(british)

    def read(self, text: str, unreadable: Callable[[str], None]) -> Iterator[Pronounced]:
        """The text; ``[word](/ipa/)`` is read as that IPA."""
        for reading in read(read_items(text, unreadable), self._g2p):
            yield _pronounced(reading)


class SpeltReader:
    """English in the letters of espeak-ng's ``en-us`` or ``en-gb``, for Piper voices.

    It reads amounts, dates and homographs better than espeak-ng does.
    """

    def __init__(self, *, british: bool = False) -> None:
        self._british = british
        self._reader = EnglishReader(british=british)

    def read(self, text: str, unreadable: Callable[[str], None]) -> Iterator[Pronounced]:
        """The text; ``[word](/ipa/)`` is read as that IPA."""
        for piece in self._reader.read(text, unreadable):
            phonemes, spans = respelt(piece.phonemes, piece.spans, british=self._british)
            yield Pronounced(phonemes, piece.marks, spans, piece.ends_sentence)


def reader_for(language: str) -> Reader:
    """What reads a language aloud in espeak-ng's letters, as Piper voices are taught.

    Args:
        language: A language, or the name of espeak-ng's voice for it: ``en-us``, ``vi``, ``de-AT``.

    Raises:
        EspeakNotFoundError: The language isn't English, and espeak-ng isn't installed.
        InvalidRequestError: espeak-ng has no voice for it.
    """
    try:
        reader = espeak.EspeakReader(language)
    except espeak.EspeakNotFoundError as error:
        primary, _, region = language.lower().replace("_", "-").partition("-")
        if primary != "en":
            raise espeak.EspeakNotFoundError(f"can't read {language!r}: {error.why}") from error
        _tell("%s is read by hibari's reader, since espeak-ng isn't installed", language)
        # Plain "en" is British in espeak-ng.
        return SpeltReader(british=not region.startswith("us"))
    _tell("%s is read by espeak-ng", language)
    return reader


@lru_cache(maxsize=256)
def _tell(message: str, language: str) -> None:
    """Log it once."""
    logger.info(message, language)


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
