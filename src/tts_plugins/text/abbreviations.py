"""Tell a full stop that ends a sentence from one that ends an abbreviation.

sentencex knows the abbreviations of some 250 languages; asked about two short sentences it is
a dictionary of them. It doesn't know Vietnamese titles, it takes English "me" and "ok" for
abbreviations, and it breaks after "p.m." before "Monday": that much is listed here.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache

import sentencex


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NEVER = _set(
    "Dr dr Mr mr Mrs mrs Ms ms Mx Prof prof Rev Hon Capt Lt Sgt Cmdr Messrs Gov Mme Mlle Mgr "
    "Sra Srta Dra डॉ प्रो e.g E.g i.e I.e vs viz cf "
    "TP Tp GS PGS TS TSKH ThS Th.S BS HLV NSND NSƯT"
)
"""What follows belongs to these: a name, mostly. The last line is Vietnamese."""

_NEVER_IN_VIETNAMESE = _set("CN DS KS LS TT TX")
"""Elsewhere these may end a sentence, as in "Austin, TX."."""

_NUMBERED = _set("approx no nos nr num fig figs vol pp pg ch sec art eq")
"""Abbreviations before a digit; words, or the end of the sentence, before anything else."""

_ENDING = _set("etc v.v usw ecc itd enz osv jne a.m p.m")
"""Abbreviations that a sentence may well end with: over when a capital follows."""

_PLAIN = _set("ill may me miss ok ore")
"""Words to anyone but sentencex."""

_CALENDAR = _set(
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May "
    "June July August September October November December Eastern Central Mountain Pacific "
    "EST EDT ET CST CDT CT MST MDT MT PST PDT PT GMT UTC CET"
)
"""Capitals that go on with a time of day: "3 p.m. Monday", "9 a.m. Pacific"."""

_ORDINALS = _set("bs cs da de et fi fo hr hu is lb lv nb nn no pl sk sl sr tr")
"""Languages in which "3." is "the third"."""

_LETTERS = re.compile(r"[^\W\d_]{1,12}(?:\.[^\W\d_]{1,12}){0,3}")
_INITIALS = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}|[^\W\d_]")
_TITLES = re.compile(r"(?:[^\W\d_]{1,4}\.)+[^\W\d_]{1,4}")


class Stop(Enum):
    """What a full stop behind a word means."""

    END = auto()
    ABBREVIATION = auto()
    BEFORE_DIGIT = auto()
    """An abbreviation if a digit follows, an end if not."""
    EITHER = auto()
    """The next word tells: see ``begins_sentence``."""


@lru_cache(maxsize=4096)
def stop_after(word: str, language: str) -> Stop:
    """What a full stop behind ``word`` means."""
    titles = _TITLES.fullmatch(word) and word.rpartition(".")[2] in _NEVER  # "PGS.TS"
    if word in _NEVER or titles or (language == "vi" and word in _NEVER_IN_VIETNAMESE):
        return Stop.ABBREVIATION
    if word.lower() in _NUMBERED:
        return Stop.BEFORE_DIGIT
    if word.isdecimal() and len(word) <= 3:
        return Stop.EITHER
    if "\u05d0" <= word <= "\u06ff" and len(word) == 1:
        return Stop.ABBREVIATION  # Hebrew and Arabic have no one-letter words to end on
    if _INITIALS.fullmatch(word) and word.lower() != word.upper():
        return Stop.EITHER
    if word.lower() in _PLAIN or not _LETTERS.fullmatch(word):
        return Stop.END
    if word.lower() in _ENDING or not _splits(word, "Smith", language):
        return Stop.EITHER
    return Stop.END


def begins_sentence(next_word: str, word: str, language: str) -> bool:
    """Whether ``next_word`` begins a sentence behind an abbreviation, initial or number."""
    if not next_word[:1].isalpha() or next_word[0].islower() or next_word in _CALENDAR:
        return False
    if word.lower() in _ENDING:
        return True
    if word.isdecimal():
        return language not in _ORDINALS or len(word) > 2
    return _splits(word, next_word, language)


@lru_cache(maxsize=4096)
def _splits(word: str, next_word: str, language: str) -> bool:
    return len(sentencex.segment(language, f"See {word}. {next_word} too.")) > 1
