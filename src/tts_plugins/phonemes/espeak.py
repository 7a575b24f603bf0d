"""Read about a hundred languages aloud with espeak-ng, as Piper voices were taught to hear them.

espeak-ng gives a clause at a time without its punctuation, and takes no note of words: both are
found again by how far it has read.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tts_plugins.phonemes.libespeak import (
    EspeakNotFoundError,
    available,
    espeak,
    supports,
    voice_for,
)
from tts_plugins.phonemes.pronounced import Pronounced
from tts_plugins.phonemes.sharing import in_order, shares
from tts_plugins.phonemes.source import Mark
from tts_plugins.phonemes.told import MARKUP, in_espeak_letters
from tts_plugins.text.abbreviations import Stop, begins_sentence, stop_after
from tts_plugins.text.words import spans, speakable

__all__ = ["EspeakNotFoundError", "EspeakReader", "available", "supports"]

_FLAG = re.compile(r"\([^)]*\)")
_ODD = re.compile(
    r"[^\n -~\u00a1-\u00ac\u00ae-\u02ff\u1e00-\u1eff\u2010-\u2022\u2026\u2030\u2039\u203a\u20ac]"
    r"|\S{64,}|\d{13,}"
)
"""What has to be looked at before espeak-ng may see it."""
_SPOKEN = "%&@#+=/°©®™×÷±"
"""Symbols that are read by name."""
_UNSEEN = str.maketrans(dict.fromkeys('()[]{}"“”„«»‹›<>|\\~^`_*•', " "))
"""No voice hears them; espeak-ng 1.51 and 1.52 fall over some, such as ``}-a`` in Vietnamese."""
_LOOSE = re.compile(r"(?<![^\W_])['’](?![^\W_])|(?<![^\W_])-(?!\d)|-(?![^\W_])")
"""Apostrophes and hyphens that aren't part of a word."""
_LONGEST_RUN = 48
"""Characters without a space; espeak-ng drops the end of a word somewhere above 80."""
_LONGEST_CLAUSE = 240
"""Characters; espeak-ng cuts at some 730, but 1.51 writes past the end of a buffer before."""
_WINDOW = 1000
"""Characters that are read at once, unless a sentence ends before: about 4 ms."""

_SILENT = "\n"
_STOPS = {
    **dict.fromkeys(",\u060c\u055d\u1363", ","),
    **dict.fromkeys(":\u1365\u1366", ":"),
    **dict.fromkeys(";\u0387\u061b\u1364\u2013\u2014", ";"),
    **dict.fromkeys(".\u06d4\u1362\uff61", "."),
    **dict.fromkeys("?\u037e\u061f\u1367", "?"),
    **dict.fromkeys("!\u203c", "!"),
    # Sentences end here too, but piper-tts has no sign for it, so no voice was taught one.
    **dict.fromkeys("\u0964\u0965\u0589\u3002\uff01\uff0e\uff1f", _SILENT),
    "\u2026": ",",  # piper-tts joins the words around it; a pause is what it means
    **dict.fromkeys("\u00a1\u00bf\u3001\uff0c\uff1a\uff1b", " "),
}
"""What stands in the phonemes for the sign that ends a clause, after piper-tts 1.8."""
_KEPT = frozenset((*_STOPS, *_SPOKEN, *"'’-"))
_PAUSES = (",", ";", ":")
_FULL_STOPS = (".", "!", "?")
_ENDS = (*_FULL_STOPS, _SILENT)

_RUN = f"[{re.escape(''.join(_STOPS))}]"
_CLOSING = r"[\"'“”’»)\]}]*"
_TIGHT = f"[{''.join(c for c, sign in _STOPS.items() if sign in (_SILENT, ' '))}]"
"""Signs that need no space behind them."""
_TAIL = re.compile(rf"({_RUN}+){_CLOSING}(?=\s+\S?$|$)|({_TIGHT}+){_CLOSING}(?=\s*\S?$)")
"""At the end of what espeak-ng has read for a clause; it has looked at one character more."""
_LAST_TAIL = re.compile(rf"({_RUN}+)[\s\"'“”’»)\]}}]*$")
_PARAGRAPH = re.compile(r"\n\s*\n\s*\S?$")
_SENTENCE_END = re.compile(r"[.!?\u2026\u0964\u06d4][\"'”’»)\]]*\s+|[\u3002\uff01\uff1f]|\n\s*\n")
_CLAUSE_END = re.compile(rf"{_RUN}\s|{_TIGHT}")
_TOKEN = re.compile(r"\s+|\S+")
_LONG_RUN = re.compile(rf"\S{{{_LONGEST_RUN}}}(?=\S)")
_LONG_NUMBER = re.compile(r"\d{13,}")
"""Read digit by digit; with a unit behind, espeak-ng 1.51 can't take it in some languages."""
_INITIALS = re.compile(r"(?:[^\W\d_]\.[^\w\s]*\s*){12,}")
"""espeak-ng 1.51 and 1.52 write past the end of a buffer when they join some fifty of them."""
_SCRIPTS = frozenset(
    [
        "LATIN",
        "GREEK",
        "CYRILLIC",
        "ARMENIAN",
        "HEBREW",
        "ARABIC",
        "DEVANAGARI",
        "BENGALI",
        "GURMUKHI",
        "GUJARATI",
        "ORIYA",
        "TAMIL",
        "TELUGU",
        "KANNADA",
        "MALAYALAM",
        "SINHALA",
        "THAI",
        "LAO",
        "MYANMAR",
        "GEORGIAN",
        "ETHIOPIC",
        "CHEROKEE",
    ]
)
"""What languages of espeak-ng are written in; it falls over some that it never heard of."""
_JOINERS = "\u200c\u200d"
"""Not seen, but they change the letters beside them in Persian and in India."""


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of the text as espeak-ng sees it: ``text[begin:end]``."""

    begin: int
    end: int
    marks: tuple[Mark, ...]
    told: str | None = None
    """Its phonemes, when the text says so."""


@dataclass(frozen=True, slots=True)
class _Clause:
    begin: int
    end: int
    phonemes: str
    sign: str
    """Of ``_STOPS``, or empty."""


@dataclass(slots=True)
class _Sentence:
    """What has been read since the last pause."""

    phonemes: str = ""
    words: list[_Word] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    joints: list[int] = field(default_factory=list)
    """Where a clause ends."""
    ends: bool = False

    def say(self, phonemes: str) -> int:
        """Add them as words of their own, and tell where they begin."""
        if phonemes and self.phonemes and not self.phonemes.endswith(" "):
            self.phonemes += " "
        begin = len(self.phonemes)
        self.phonemes += phonemes
        return begin

    def stop(self, sign: str) -> None:
        """End a clause."""
        said = self.phonemes.rstrip()
        if not said:
            return
        if sign in _PAUSES and said[-1] not in _PAUSES:  # two in a row, as in "Yes," —, are one
            self.phonemes = f"{said}{sign} "
        elif sign in _FULL_STOPS:
            self.phonemes = said.rstrip("".join(_PAUSES)) + sign
        if sign:
            self.joints.append(len(self.phonemes))
        self.ends = sign in _ENDS


class EspeakReader:
    """Reads with a voice of espeak-ng.

    The phonemes are those of piper-tts for the same data of espeak-ng: decomposed (NFD) IPA,
    ``,;:`` followed by a space, ``.!?`` at the end of a sentence; each sentence is a piece. Where
    it differs, one hears it: words around an ellipsis or before ``¿`` aren't run together, a full
    stop counts at the end of a paragraph too, and pictures aren't read by their names.

    One reader serves any number of streams and threads.

    Args:
        voice: ``en-us``, ``vi``, ``fr-fr``...; ``de`` is taken for ``de-AT``, which isn't there.
        longest: Phonemes in a piece. A longer sentence is cut after a clause, else between words.

    Raises:
        EspeakNotFoundError: libespeak-ng isn't installed.
        InvalidRequestError: It has no such voice.
    """

    def __init__(self, voice: str, *, longest: int = 400) -> None:
        self._espeak = espeak()
        self.voice = voice_for(voice)
        self._language = voice.lower().replace("_", "-").split("-")[0]
        self._longest = longest

    def read(self, text: str, unreadable: Callable[[str], None]) -> Iterator[Pronounced]:
        """The text, sentence by sentence. ``[word](/ipa/)`` is read as that IPA.

        Args:
            text: Anything.
            unreadable: Called with the name of a script of which a word has no sound at all.
        """
        late: list[Mark] = []
        for sentence in self._sentences(*_source(text)):
            for word, (begin, end) in zip(sentence.words, sentence.spans, strict=True):
                if begin == end:
                    _report(word, unreadable)
            if not any(map(str.isalpha, sentence.phonemes)):
                late += (mark for word in sentence.words for mark in word.marks)
                continue
            sentence.spans = in_order(sentence.spans)
            marks = [(mark, (0, 0)) for mark in late]
            late = []
            for word, span in zip(sentence.words, sentence.spans, strict=True):
                marks += [(mark, span) for mark in word.marks]
            yield from _pieces(sentence, marks, self._longest)
        if late:
            yield Pronounced("", tuple(late), ((0, 0),) * len(late), ends_sentence=False)

    def _sentences(self, text: str, words: Sequence[_Word]) -> Iterator[_Sentence]:
        sentence = _Sentence()
        at = 0
        for clause in self._clauses(text):
            since = at
            while at < len(words) and words[at].begin < clause.end:
                at += 1
            # A sign that ends a clause may stand within a word, which then goes on in the next.
            crosses = since > 0 and words[since - 1].end > clause.begin
            self._add(sentence, text, clause, words[since - crosses : at], crosses=crosses)
            if sentence.ends:
                yield sentence
                sentence = _Sentence()
        for word in words[at:]:
            sentence.words.append(word)
            sentence.spans.append((len(sentence.phonemes),) * 2)
        yield sentence

    def _add(
        self,
        sentence: _Sentence,
        text: str,
        clause: _Clause,
        words: Sequence[_Word],
        *,
        crosses: bool,
    ) -> None:
        """Read a clause.

        Args:
            crosses: Whether the first of the words began in the clause before.
        """
        parts = [text[max(w.begin, clause.begin) : min(w.end, clause.end)] for w in words]
        alone = [_alone(self.voice, _core(part)) if speakable(part) else "" for part in parts]
        phonemes, places = _as_told(clause.phonemes, words, shares(clause.phonemes, alone))
        start = sentence.say(phonemes)
        for i, (word, (begin, end)) in enumerate(zip(words, places, strict=True)):
            span = (start + begin, start + end)
            if i or not crosses:
                sentence.words.append(word)
                sentence.spans.append(span)
            elif begin < end and sentence.spans:
                earlier = sentence.spans[-1]
                since = earlier[0] if earlier[0] < earlier[1] else span[0]
                sentence.spans[-1] = (since, span[1])
        sentence.stop(clause.sign)

    def _clauses(self, text: str) -> Iterator[_Clause]:
        for begin, end in _windows(text):
            window = text[begin:end]
            *read, last = self._espeak.read(self.voice, window)
            since = 0
            for clause in read:
                seen = window[since : clause.end]
                tail = _TAIL.search(seen)
                # It has looked at a character of the next clause.
                until = since + (tail.end() if tail else len(seen.rstrip()[:-1]))
                sign = _sign(tail)
                if sign == "." and self._goes_on(window, until):
                    sign = " "
                if sign not in _FULL_STOPS and _PARAGRAPH.search(seen):
                    sign = _SILENT
                yield _Clause(begin + since, begin + until, _plain(clause.phonemes), sign)
                since = until
            seen = window[since:]
            sign = _sign(_LAST_TAIL.search(seen))
            if not sign and seen.endswith("\n") and end < len(text):
                sign = _SILENT
            yield _Clause(begin + since, end, _plain(last.phonemes), sign)

    def _goes_on(self, text: str, at: int) -> bool:
        """Whether the full stop before ``at`` is that of an abbreviation, as in "Dr. Smith"."""
        words = text[max(0, at - _LONGEST_RUN) : at].split()
        word = words[-1].strip("\"'“”‘’«»()[]").removesuffix(".") if words else ""
        following = text[at : at + _LONGEST_RUN].split()
        match stop_after(word, self._language):
            case Stop.ABBREVIATION:
                return True
            case Stop.BEFORE_DIGIT:
                return bool(following) and following[0][0].isdigit()
            case Stop.EITHER:
                return bool(following) and not begins_sentence(following[0], word, self._language)
            case Stop.END:
                return False


def _sign(tail: re.Match[str] | None) -> str:
    run = next(filter(None, tail.groups())) if tail else ""
    return "," if run.startswith("...") else _STOPS.get(run[:1], "")


def _plain(sound: str) -> str:
    return unicodedata.normalize("NFD", " ".join(_FLAG.sub("", sound).split()))


@lru_cache(maxsize=1 << 14)
def _alone(voice: str, word: str) -> str:
    """What a word is by itself."""
    return " ".join(_plain(clause.phonemes) for clause in espeak().read(voice, word))


def _core(word: str) -> str:
    """The word without the signs that don't change it, so that fewer are read alone."""
    core = word.strip("\"'“”‘’«»()[]{},;:!?…")
    return core[:-1] if core.endswith(".") and core[:-1].isalpha() else core


def _as_told(
    phonemes: str, words: Sequence[_Word], places: Sequence[tuple[int, int]]
) -> tuple[str, Sequence[tuple[int, int]]]:
    """The clause with what the text itself says how to pronounce."""
    if all(word.told is None for word in words):
        return phonemes, places
    made = ""
    new: list[tuple[int, int]] = []
    at = 0
    for word, (begin, end) in zip(words, places, strict=True):
        made += phonemes[at:begin] if at < begin else ""
        sound = phonemes[max(at, begin) : end] if word.told is None else word.told
        after_word = word.told is not None or (new and words[len(new) - 1].told is not None)
        if sound and made and not made.endswith(" ") and after_word:
            made += " "
        new.append((len(made), len(made) + len(sound)))
        made += sound
        at = max(at, end)
    rest = phonemes[at:]
    if rest and words[-1].told and not rest.startswith(" "):
        made += " "
    return made + rest, new


def _source(text: str) -> tuple[str, list[_Word]]:
    """The text as espeak-ng may see it, and its words there."""
    clean: list[str] = []
    words: list[_Word] = []
    at = size = 0
    for match in MARKUP.finditer(text):
        size = _take(text, at, match.start(), clean, words, size)
        marks = tuple(Mark(w, match.start(1) + offset) for offset, w in spans(match[1]))
        # A plain word, so that those around it are read as if it were what the text shows.
        shown = match[1] if match[1].isalpha() and len(match[1]) <= _LONGEST_RUN else "name"
        shown, _ = _cleaned(shown)
        words.append(_Word(size, size + len(shown), marks, in_espeak_letters(match[2])))
        clean.append(shown)
        size += len(shown)
        at = match.end()
    _take(text, at, len(text), clean, words, size)
    seen = _LOOSE.sub(" ", "".join(clean))
    return _INITIALS.sub(lambda run: run[0].replace(".", " "), seen), words


def _take(text: str, begin: int, end: int, clean: list[str], words: list[_Word], size: int) -> int:
    """Add ``text[begin:end]`` and its words; how long the text is then."""
    source = text[begin:end]
    made, places = _cleaned(source)
    for offset, word in spans(source):
        a, b = offset, offset + len(word)
        a, b = (a, b) if places is None else (places[a], places[b])
        words.append(_Word(size + a, size + b, (Mark(word, begin + offset),)))
    clean.append(made)
    return size + len(made)


def _cleaned(text: str) -> tuple[str, list[int] | None]:
    """The text without what espeak-ng had better not see, and where its characters went.

    Returns:
        ``None`` instead of the places, one for each character and the end, if nothing changes.
    """
    text = text.translate(_UNSEEN)
    if not _ODD.search(text):
        return text, None
    clean = ""
    places: list[int] = []
    for token in _TOKEN.finditer(text):
        if token[0].isspace():
            made = "".join("\n" if c in "\n\u2029" else " " for c in token[0])
        else:
            made = "".join(map(_seen, unicodedata.normalize("NFC", token[0])))
            made = _LONG_NUMBER.sub(lambda run: " ".join(run[0]), made)
            made = _LONG_RUN.sub(r"\g<0> ", made)
        places += (len(clean) + i * len(made) // len(token[0]) for i in range(len(token[0])))
        clean += made
    return clean, [*places, len(clean)]


@lru_cache(maxsize=4096)
def _seen(character: str) -> str:
    """What espeak-ng sees of a character."""
    if not _known(character):
        character = unicodedata.normalize("NFKC", character)
        if len(character) > 1:
            return "".join(map(_seen, character))
        if not _known(character):
            return " "
    category = unicodedata.category(character)
    if category[0] == "C":
        return character if character in _JOINERS else ""
    if category == "Nd":
        return str(unicodedata.decimal(character))
    if category[0] in "PS" and category != "Sc" and character not in _KEPT:
        return " "
    return character


def _known(character: str) -> bool:
    """Whether it isn't a letter, or one that espeak-ng may have heard of."""
    if character < "\u0250" or unicodedata.category(character)[0] != "L":
        return character <= "\uffff"
    name = unicodedata.name(character, "")
    if name.startswith(("CJK UNIFIED", "HANGUL SYLLABLE", "HIRAGANA", "KATAKANA")):
        return True
    return character < "\u2000" and name.split(" ")[0] in _SCRIPTS


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """Parts that are read at once: a long text isn't read to its end before it is heard."""
    begin = 0
    while begin < len(text):
        end = _within_clause(text, begin, _whole_sentences(text, begin))
        yield begin, end
        begin = end


def _whole_sentences(text: str, begin: int) -> int:
    """Where the last sentence ends that the window still holds."""
    limit = begin + _WINDOW
    if len(text) <= limit:
        return len(text)
    ends = [match.end() for match in _SENTENCE_END.finditer(text, begin, limit)]
    return ends[-1] if ends else limit


def _within_clause(text: str, begin: int, end: int) -> int:
    """``end``, or where a clause gets too long before it."""
    at = begin
    while end - at > _LONGEST_CLAUSE:
        stop = _CLAUSE_END.search(text, at, at + _LONGEST_CLAUSE)
        if not stop:
            space = max(text.rfind(c, at, at + _LONGEST_CLAUSE) for c in " \n")
            return space + 1 if space > at else at + _LONGEST_CLAUSE
        at = stop.end()
    return end


def _pieces(
    sentence: _Sentence, marks: list[tuple[Mark, tuple[int, int]]], longest: int
) -> Iterator[Pronounced]:
    """The sentence, cut where it is too long."""
    phonemes = sentence.phonemes
    begin = 0
    while len(phonemes) - begin > longest:
        cut = _cut(sentence, begin, longest)
        n = next((i for i, (_, (at, _)) in enumerate(marks) if at >= cut), len(marks))
        yield _piece(phonemes, begin, cut, marks[:n], ends=False)
        del marks[:n]
        begin = cut
        while phonemes[begin : begin + 1] == " ":
            begin += 1
    yield _piece(phonemes, begin, len(phonemes), marks, ends=sentence.ends)


def _cut(sentence: _Sentence, begin: int, longest: int) -> int:
    """Where to cut so that at most ``longest`` phonemes are before it."""
    limit = begin + longest
    # A cut further ahead would leave crumbs.
    enough = begin + longest // 3
    if clauses := [at for at in sentence.joints if enough <= at <= limit]:
        return clauses[-1]
    spaced = sentence.phonemes
    if words := [at for at, _ in sentence.spans if begin < at <= limit and spaced[at - 1] == " "]:
        return words[-1]
    return max(spaced.rfind(" ", begin, limit) + 1, 0) or limit


def _piece(
    phonemes: str,
    begin: int,
    end: int,
    marks: Sequence[tuple[Mark, tuple[int, int]]],
    *,
    ends: bool,
) -> Pronounced:
    places = tuple(
        (min(max(a, begin), end) - begin, min(max(b, begin), end) - begin) for _, (a, b) in marks
    )
    sound = phonemes[begin:end]
    return Pronounced(sound, tuple(mark for mark, _ in marks), places, ends)


def _report(word: _Word, unreadable: Callable[[str], None]) -> None:
    for mark in word.marks:
        letter = next(filter(str.isalpha, mark.text), "")
        script = unicodedata.name(letter, "").split(" ")[0].split("-")[0] if letter else ""
        if script and script != "LATIN":
            unreadable(script)
