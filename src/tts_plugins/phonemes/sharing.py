"""Which phonemes of a clause belong to which word.

espeak-ng doesn't say. It writes a group of phonemes for most words, but one for several function
words and several for a number. So each word is read alone as well, and the two are compared.

```
words      out of    the   24       cars
alone      ˈaʊt ʌv   ðə    twˈɛnti fˈoːɹ  kˈɑːɹz
together   ˌaʊɾəvðə        twˈɛnti fˈoːɹ  kˈɑːɹz
```
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

_MARKS = str.maketrans("", "", "ˈˌː")
_GROUP = re.compile(r"\S+")
_VOWELS = frozenset("aeiouyæɐɑɒɔɘəɚɛɜɝɞɤɨɪɯɵøœɶʉʊʌʏᵻ")
_MOST_COMPARED = 4000
"""Pairs of letters: beyond it, a clause without spaces is shared by length."""
_SPACE = "|"
"""Between words, in what was read alone."""
_LEFT_OUT, _CLOSE, _FAR = 0.8, 0.5, 1.5

Part = tuple[int, int]


def shares(phonemes: str, alone: Sequence[str]) -> list[Part]:
    """For each word, ``phonemes[begin:end]`` is what is heard of it: in order, without spaces.

    A word has a part of its own if there is any sound for it; when there are fewer sounds than
    words, they have the same one.

    Args:
        phonemes: Of a clause: groups with spaces between.
        alone: What each word is when it is read by itself: groups with spaces between.
    """
    groups = [match.span() for match in _GROUP.finditer(phonemes)]
    said = [(group, word) for word, text in enumerate(alone) for group in text.split()]
    if not said or not groups:
        return [(0, 0)] * len(alone)
    found: list[Part | None] = [None] * len(alone)
    for (_, word), (begin, end) in zip(
        said, _placed(phonemes, groups, [group for group, _ in said]), strict=True
    ):
        earlier = found[word]
        found[word] = (earlier[0] if earlier else begin, end)
    return in_order(found)


def _placed(phonemes: str, groups: Sequence[Part], said: Sequence[str]) -> list[Part]:
    """Where each group that was read alone is heard."""
    if len(said) == len(groups):
        return list(groups)
    placed: list[Part] = []
    heard = [phonemes[begin:end].translate(_MARKS) for begin, end in groups]
    for i, i_end, j, j_end in _blocks([group.translate(_MARKS) for group in said], heard):
        if i_end - i == j_end - j:
            placed += groups[j:j_end]
        else:
            placed += _carved(phonemes, groups[j][0], groups[j_end - 1][1], said[i:i_end])
    return placed


def _blocks(said: Sequence[str], heard: Sequence[str]) -> list[list[int]]:
    """Runs of both that belong together, none of them empty."""
    blocks: list[list[int]] = []
    matcher = SequenceMatcher(None, said, heard, autojunk=False)
    for _, i, i_end, j, j_end in matcher.get_opcodes():
        alike = i_end - i == j_end - j
        if (i == i_end or j == j_end) and blocks:
            # Only with its neighbour can it be told apart; that one's others are clear already.
            a, a_end, b, b_end = blocks.pop()
            if a_end - a == b_end - b and a_end - a > 1:
                blocks.append([a, a_end - 1, b, b_end - 1])
                a, b = a_end - 1, b_end - 1
            blocks.append([a, i_end, b, j_end])
        elif blocks and (blocks[-1][0] == blocks[-1][1] or blocks[-1][2] == blocks[-1][3]):
            first = blocks.pop()
            k = 1 if alike else i_end - i
            blocks.append([first[0], i + k, first[2], j + k if alike else j_end])
            if alike and k < i_end - i:
                blocks.append([i + k, i_end, j + k, j_end])
        else:
            blocks.append([i, i_end, j, j_end])
    return blocks


def _carved(phonemes: str, begin: int, end: int, said: Sequence[str]) -> list[Part]:
    """``phonemes[begin:end]`` among the groups, as their letters fall."""
    sound = phonemes[begin:end]
    letters = _SPACE.join(said)
    if len(letters) * len(sound) <= _MOST_COMPARED:
        starts = _aligned(letters, sound)
    else:
        total = len(letters)
        starts = [len(sound) * i // total for i in range(total)]
    cuts, at = [0], 0
    for group in said[:-1]:
        at += len(group) + 1
        cuts.append(_settled(sound, max(starts[at], cuts[-1])))
    parts = []
    for a, b in zip(cuts, [*cuts[1:], len(sound)], strict=True):
        inner = sound[a:b]
        left = a + len(inner) - len(inner.lstrip())
        parts.append((begin + left, begin + max(left, a + len(inner.rstrip()))))
    if any(a == b for a, b in parts):
        return [(begin, end)] * len(said)
    return parts


def _settled(sound: str, cut: int) -> int:
    """Before the stress of the vowel that follows, and not within a letter with its signs."""
    while cut and cut < len(sound) and (sound[cut] in "ː" or "\u0300" <= sound[cut] <= "\u036f"):
        cut += 1
    while cut and sound[cut - 1] in "ˈˌ":
        cut -= 1
    return cut


def _aligned(letters: str, sound: str) -> list[int]:
    """For each of ``letters``, where in ``sound`` it is heard: the way of least change."""
    row = [0.0]
    for s in sound:
        row.append(row[-1] + _skip(s))
    ways: list[bytearray] = []
    for letter in letters:
        skip = _skip(letter)
        above, row = row, [row[0] + skip]
        way = bytearray(1)
        for j, s in enumerate(sound):
            both = above[j] + _difference(letter, s)
            up, left = above[j + 1] + skip, row[j] + _skip(s)
            best = min(both, up, left)
            row.append(best)
            way.append(1 if best == both else 0 if best == up else 2)
        ways.append(way)
    starts = [0] * len(letters)
    i, j = len(letters), len(sound)
    while i:
        match ways[i - 1][j]:
            case 1:
                i, j = i - 1, j - 1
                starts[i] = j
            case 0:
                i -= 1
                starts[i] = j
            case _:
                j -= 1
    return starts


def _skip(letter: str) -> float:
    return 0.3 if letter in "ˈˌː |" else _LEFT_OUT


def _difference(a: str, b: str) -> float:
    if a == b or (a == _SPACE and b == " "):
        return 0.0
    if a in "ˈˌː |" or b in "ˈˌː |":
        return _FAR
    return _CLOSE if (a in _VOWELS) == (b in _VOWELS) else _FAR


def in_order(parts: Sequence[Part | None]) -> list[Part]:
    """Parts that never go back: each has what is left of its place, or that of the word before.

    ``None`` has no place, except among words that have the same one.
    """
    heard = [part if part and part[0] < part[1] else None for part in parts]
    following: list[Part | None] = [None]
    for part in reversed(heard):
        following.append(part or following[-1])
    following.reverse()
    first = following[0][0] if following[0] else 0
    last = (first, first)
    ordered: list[Part] = []
    for part, later in zip(heard, following[1:], strict=True):
        if part is None:
            if later is None or later[1] > last[1]:
                last = (last[1], last[1])
        elif part[1] > last[1]:
            last = (max(part[0], last[1]), part[1])
        ordered.append(last)
    return ordered
