"""Cut streamed text into sentences, each as soon as it is certain to be over.

The text alone decides, never how it was cut into pushes. A mark that could still turn out
otherwise waits for what decides it, and that is at most the next word:

    "Wait for me. "       over: no abbreviation ends like this
    "It is 3 p.m. "       the next word tells: "The" or "Monday"
    "See Dr. "            not over, whatever follows
    "你好。"               over on the spot, unless a quotation is still open
    "你好！"               the next character tells: "！？" often come in a row
    "Ingredients:\\n"      the next line tells: in lowercase it is wrapped prose
    "- two eggs\\n"        over: a list item
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from tts_plugins.text.abbreviations import Stop, begins_sentence, stop_after
from tts_plugins.text.words import UNSPACED, count, joins, leads, speakable

MAX_CHARACTERS = 400
"""A longer sentence is cut, so that no engine is asked for minutes in one request."""

_LOOK = 32
"""Whitespace, marks or closing marks to wait through at most, before deciding anyway."""

_UNSPACED_MIN = 20
"""Characters of a script without spaces before it is worth cutting between two of them."""

_BLOCK = 1024
"""Characters looked at together, so that a huge push isn't copied once per sentence."""

_STOPS = "。｡；।॥"
"""Nothing but a closing mark is read after these, so they need not wait for it."""

_WIDE = _STOPS + "！？．؟۔။።៕។։"
"""These never occur inside a word, so no space need follow."""

_MARKS = ".!?…‼⁇⁈⁉" + _WIDE
_PAIRS = dict(zip("([“「『（《〈【", ")]”」』）》〉】", strict=True)) | {'"': '"'}
_OPENING = "".join(_PAIRS) + "'{«‘*_`~#¿¡"
_CLOSING = "".join(_PAIRS.values()) + "'}»’*_`~"
_CLAUSE = ",;:—–،؛、，；："


def _any(characters: str) -> str:
    return f"[{re.escape(characters)}]"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CANDIDATE = re.compile(rf"\n|{_any(_MARKS)}{{1,{_LOOK}}}")
_CLOSED = re.compile(rf"{_any(_CLOSING)}{{0,{_LOOK}}}")
_ELLIPSIS = re.compile(r"\.{2,}|…+")
_NEXT_WORD = re.compile(rf"{_any(_OPENING)}{{0,4}}([^\W_]{{0,40}})")
_LAST_WORD = re.compile(r"[^\s—–/“\"(\[]{1,40}\Z")
_ITEM = re.compile(r"\s*(?:\*\*)?(?:[-*+•–▪●‣◦>]|\d{1,3}[.)]|[A-Za-z]\)|#{1,6})\s")
_NUMBERING = re.compile(r"\d{1,3}|[A-Za-zА-Яа-я]|[ivxIVX]{1,4}")
_PLAIN_WORD = re.compile(r"[^\W\d_]{2,}")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_OVER = re.compile(rf"({_any(_MARKS)}+){_any(_CLOSING)}*\s*\Z")
_ADDRESS = re.compile(r"[@/\\]|\w[.:]\w|^www$")
_SPACES = re.compile(r"[^\S\u00a0\u2007\u202f]+")  # a no-break space holds "mot !" together
_AFTER_NUMBER = re.compile(r"(?<=\d)\s+")
_CLAUSE_END = re.compile(
    rf"(?:{_any('、，；：،؛')}|(?<!\d)[—–]|—){_any(_CLOSING)}*(?![\s\d])"  # no space need follow
)
_HOLDS_ON = _OPENING + "$€£¥₫@&+/\\-•"
"""What isn't left alone at the end of a piece: an opening mark, a currency, a bullet."""

_DOMAINS = _set(
    "ai app biz co com css dev edu eu exe gov html info io jp js json md net org pdf py ru ts tv "
    "txt uk us vn xyz zip"
)
_LIGHT = _set(
    "about also because been between both could does each from have into just more most much only "
    "onto other over should some such than that their them then there these they this those "
    "through under until upon very were what when where which while will with would your"
)
"""Not to end on in mid-sentence, like all words of up to three letters."""

_LIGHTEST = _set("a an and at by for her his in its my of on or our the to")
"""Still less to end on: all but glued to the next word."""


class _TextEndsTooSoonError(Exception):
    """What decides whether the sentence is over has not come yet."""


class SentenceSplitter:
    """Push text as it comes; get each sentence back as soon as it is certain to be over.

    However the text is cut into pushes, the sentences are the same, and joined they are the
    text. A sentence keeps the whitespace behind it that was needed to decide, the next one has
    the rest. Only the last may be without a letter or digit.

    A line break ends a sentence behind a list item, and else where the next line doesn't begin
    in lowercase: models break lines where a speaker pauses, and wrapped prose seldom goes on
    with a capital.

    Args:
        language: BCP 47 tag, for its abbreviations. ``None`` or an unknown one means English.
            Vietnamese titles are known in every language.
    """

    def __init__(self, language: str | None = None) -> None:
        self._language = re.split("[-_]", language or "en")[0].lower()
        self._reset()

    def _reset(self) -> None:
        self._text = ""
        self._at = 0  # before this nothing ends a sentence
        self._open = ""  # the closing marks that quotations and brackets wait for
        self._line_start = True  # whether the pending text begins a line...
        self._in_item = False  # ...or, if not, whether its line began as a list item
        self._sentence_start = True  # whether it begins a sentence: not after a cut

    @property
    def pending(self) -> str:
        """The text not given back yet."""
        return self._text

    def push(self, text: str) -> list[str]:
        """Take more text; return the sentences that are over."""
        sentences: list[str] = []
        for start in range(0, len(text), _BLOCK):
            self._text += text[start : start + _BLOCK]
            sentences += self._sentences()
        return sentences

    def flush(self) -> list[str]:
        """End the text; return what was held back."""
        # A line break completes the last word without making anything else of it.
        sentences = [*self.push("\n"), self._text]
        self._reset()
        if not sentences[-1]:
            del sentences[-1]
        sentences[-1] = sentences[-1][:-1]
        return [sentence for sentence in sentences if sentence]

    def release(self, *, settled: bool = False) -> list[str]:
        """Give the pending text back if it looks over and nothing follows, as in "Sure.".

        For a pause in the stream. ``settled`` says that the pause is long, so that even
        "See you at 3 p.m." or "It costs 29." won't go on.
        """
        return [self._take(len(self._text), over=True)] if self._looks_over(settled) else []

    def cut(
        self, *, min_words: float = 4, settled: bool = False, numbers: bool = False
    ) -> str | None:
        """Give back the best beginning of the pending text, for a listener who can't wait.

        Best is up to a comma or the like, else up to a whole word heavier than "the" or "of",
        else up to any whole word; never within a name, a number or an address. ``None`` where
        no such piece has ``min_words``. ``settled`` says that the last word won't grow;
        ``numbers`` that a piece may end on a number if nothing else will do, as in a row of them.
        """
        text = self._text
        ends = list(self._ends(text))
        if settled and self._may_end(text, len(text)) and not _ADDRESS.search(_last_word(text)):
            ends.append((1, len(text)))
        if numbers:
            ends += [(-1, match.end()) for match in _AFTER_NUMBER.finditer(text)]
        for _, end in sorted(ends, reverse=True):
            if count(text[:end]) >= min_words:
                return self._take(end, over=False)
        return None

    def _sentences(self) -> Iterator[str]:
        """Take the sentences that are over off the pending text."""
        while True:
            found = _CANDIDATE.search(self._text, self._at, max(self._at, MAX_CHARACTERS))
            if found:
                try:
                    end = self._end(found.start())
                except _TextEndsTooSoonError:
                    self._at = found.start()
                    return
                if end is None:
                    self._at = self._mark(found.start()).end()
                else:
                    yield self._take(end, over=True)
            elif len(self._text) > MAX_CHARACTERS:
                yield self._take(self._longest(), over=False)
            else:
                self._at = len(self._text)
                return

    def _take(self, end: int, *, over: bool) -> str:
        piece, self._text = self._text[:end], self._text[end:]
        self._at = max(0, self._at - end)
        self._open = "" if "\n\n" in piece else _open_after(piece, self._open)
        self._sentence_start = over
        _, line_break, line = piece.rpartition("\n")
        if line_break or self._line_start:
            self._in_item = bool(_ITEM.match(line))
            self._line_start = not line.strip()
        return piece

    def _mark(self, at: int) -> re.Match[str]:
        mark = _CANDIDATE.match(self._text, at)
        assert mark
        return mark

    def _end(self, at: int) -> int | None:
        """Where the sentence ends whose mark or line break is at ``at``; None if it goes on."""
        text, mark = self._text, self._mark(at)
        if not speakable(text[:at]):
            if mark.end() == len(text) and mark[0] != "\n":
                raise _TextEndsTooSoonError
            return None
        if mark[0] == "\n":
            return self._end_of_line(at)
        if mark[0][0] in _STOPS and not _open_after(text[:at], self._open):
            return at + 1
        closed = _CLOSED.match(text, mark.end())
        assert closed
        after = closed.end()
        if after == len(text):
            raise _TextEndsTooSoonError
        if not text[after].isspace():
            return after if self._ends_without_space(mark, after) else None
        stop = self._stop(mark)
        if stop is Stop.END and after == mark.end() and not _ELLIPSIS.fullmatch(mark[0]):
            return after + 1
        return self._end_before_next(mark, stop, after)

    def _end_of_line(self, at: int) -> int | None:
        text = self._text
        line_start = text.rfind("\n", 0, at) + 1
        line = text[line_start:at].rstrip()
        if line.endswith("."):
            stop = self._stop(self._mark(line_start + len(line) - 1))
            if stop in (Stop.ABBREVIATION, Stop.BEFORE_DIGIT):
                return None  # "Dr." at the end of a line, "1." on a line of its own
        if _ITEM.match(text[line_start:at]) if line_start or self._line_start else self._in_item:
            return at + 1
        end, character = self._gap(at)
        if character == "\n" or line.endswith(":"):
            return end
        goes_on = character.islower() or character in _CLAUSE or line.endswith((",", "，"))
        return None if goes_on else end

    def _end_before_next(self, mark: re.Match[str], stop: Stop, at: int) -> int | None:
        """The end behind a mark with whitespace at ``at``, where what follows that decides."""
        end, character = self._gap(at)
        if character == "\n":
            return end
        if stop is Stop.ABBREVIATION or character.islower() or character in _CLAUSE:
            return None
        if stop is Stop.END:
            return end
        if stop is Stop.BEFORE_DIGIT:
            return None if character.isdigit() else end
        following = self._whole(_NEXT_WORD, end)[1]
        word = _last_word(self._text[: mark.start()])
        return end if begins_sentence(following, word, self._language) else None

    def _ends_without_space(self, mark: re.Match[str], after: int) -> bool:
        """Whether a sentence ends before the character at ``after``, as in "One.Two"."""
        text = self._text
        before, character = text[mark.start() - 1], text[after]
        if character in _CLAUSE:
            return False
        if any(one in _WIDE for one in mark[0]):
            if mark[0] == "．" and (before.isdigit() or character.isdigit()):
                return False
            return after == mark.end() or character not in "とっ"  # 「行く。」と言った: "he said"
        if _ELLIPSIS.fullmatch(mark[0]) or self._stop(mark) is not Stop.END:
            return False
        if unicodedata.category(character) == "So":  # an emoji
            return True
        if _UNSPACED.match(character):
            return mark[0] != "." or bool(_UNSPACED.match(before))
        word = _last_word(text[: mark.start()])
        if not _PLAIN_WORD.fullmatch(word) or not word[1:].islower():
            return False
        following = self._whole(_NEXT_WORD, after)
        is_word = following[1].istitle() and following[1].lower() not in _DOMAINS
        return is_word and (text[following.end()].isspace() or text[following.end()] in ",!?'’")

    def _gap(self, at: int) -> tuple[int, str]:
        """The first character behind whitespace and where it is; a line break for a blank line."""
        breaks = 0
        for i, character in enumerate(self._text[at : at + _LOOK], at):
            if not character.isspace():
                return i, character
            breaks += character == "\n"
            if breaks == 2 or i == at + _LOOK - 1:
                return i + 1, "\n"
        raise _TextEndsTooSoonError

    def _whole(self, pattern: re.Pattern[str], at: int) -> re.Match[str]:
        match = pattern.match(self._text, at)
        assert match
        if match.end() == len(self._text):
            raise _TextEndsTooSoonError
        return match

    def _stop(self, mark: re.Match[str]) -> Stop:
        if mark[0] != ".":
            return Stop.END
        head = self._text[: mark.start()]
        word = _last_word(head)
        if _NUMBERING.fullmatch(word):
            before = head.removesuffix(word).strip().rstrip(_OPENING)
            if before.endswith(":") or (self._sentence_start and not before):
                return Stop.ABBREVIATION  # "1. Open the door."
        return stop_after(word, self._language)

    def _looks_over(self, settled: bool) -> bool:
        text = self._text
        over = _OVER.search(text)
        if not speakable(text):
            return False
        if not over:
            return "\n" in text[len(text.rstrip()) :]
        if over[1] != ".":
            return True
        mark = self._mark(over.start(1))
        word = _last_word(text[: mark.start()])
        stop = self._stop(mark)
        if settled:
            return stop is not Stop.ABBREVIATION
        return stop is Stop.END and not word[-1:].isdigit() and not _ADDRESS.search(word)

    def _longest(self) -> int:
        """Where to cut a text without end."""
        text = self._text[:MAX_CHARACTERS]
        ends = list(self._ends(text))
        late = [(rank, end) for rank, end in ends if end >= MAX_CHARACTERS // 2]
        if late:
            return max(late)[1]
        if ends:
            return max(end for _, end in ends)
        end = MAX_CHARACTERS
        while end > 1 and (joins(self._text[end]) or unicodedata.combining(self._text[end])):
            end -= 1
        return end

    def _ends(self, text: str) -> Iterator[tuple[int, int]]:
        """Where ``text`` may be cut, each with how good that is."""
        for clause in _CLAUSE_END.finditer(text):
            if self._may_end(text, clause.end()):
                yield 2, clause.end()
        for space in _SPACES.finditer(text):
            if self._may_end(text, space.end()):
                yield _rank(text[: space.start()]), space.end()
        for end in range(_UNSPACED_MIN, len(text) - 1 if _UNSPACED.search(text) else 0):
            pair = text[end - 1 : end + 1]
            if len(_UNSPACED.findall(pair)) == 2 and not joins(pair[1]) and not leads(pair[0]):
                yield 0, end

    def _may_end(self, text: str, end: int) -> bool:
        head, rest = text[:end].rstrip(), text[end:]
        if not speakable(head) or head[-1].isdigit() or head[-1] in _HOLDS_ON:
            return False
        if rest and rest[0] in _CLAUSE + _MARKS + ")]}»":
            return False
        return head[-1] != "." or self._stop(self._mark(len(head) - 1)) is Stop.END


def _last_word(text: str) -> str:
    match = _LAST_WORD.search(text[-40:])
    return match[0].lstrip(_OPENING) if match else ""


def _rank(text: str) -> int:
    """How good it is to stop speaking behind ``text``."""
    word = _last_word(text)
    if text.rstrip(_CLOSING)[-1:] in _CLAUSE + _MARKS:
        return 2
    if word.lower() in _LIGHTEST:
        return -1
    return 0 if len(word) <= 3 or word.lower() in _LIGHT else 1


def _open_after(text: str, waiting: str) -> str:
    """The closing marks to wait for after ``text``, where those in ``waiting`` were before."""
    for character in text:
        if waiting.endswith(character):
            waiting = waiting[:-1]
        elif character in _PAIRS:
            waiting = (waiting + _PAIRS[character])[-8:]
    return waiting
