"""Which words of a rewritten text came from which item of the original.

hibari rewrites a text before it reads it ("9:30am" -> "nine thirty A.M.") and doesn't say what
became of what. So each item is rewritten alone as well, and the two are compared word by word:
what an item becomes alone is nearly always what it becomes in its sentence.

```
items       at   9:30am              pay   $3.2  billion
alone       at   nine thirty A.M.    pay   $3.2  billion
together    at   nine thirty A.M.    pay   3.2   billion  dollars
owner        0      1      1    1      2     3         4        4
```
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from hibari.g2p.normalize import normalize

_PLAIN = re.compile(r"[(\"“'‘]*[A-Za-z]+(?:['’][A-Za-z]+)*[,;:!?)\"”]*")
"""Words that come out as they went in, which saves time."""
_SIGNS = re.compile(r"^[\W_]+|[\W_]+$")


def owners(items: Sequence[str], words: Sequence[str]) -> list[int]:
    """For each of ``words``, the index of the item that it came from: never decreasing.

    Args:
        items: At least one.
        words: What they became together, without whitespace.
    """
    alone = [(word, i) for i, item in enumerate(items) for word in _rewritten(item)]
    if not alone:
        return [0] * len(words)
    matcher = SequenceMatcher(
        None, [word for word, _ in alone], [_bare(word) for word in words], autojunk=False
    )
    found: list[int] = []
    for _, a, a_end, b, b_end in matcher.get_opcodes():
        for j in range(b_end - b):
            # Evenly where they differ; to the item before where words were added.
            at = a + j * (a_end - a) // (b_end - b) if a_end > a else max(0, a - 1)
            found.append(alone[at][1])
    return found


@lru_cache(maxsize=4096)
def _rewritten(item: str) -> tuple[str, ...]:
    words = item.split() if _PLAIN.fullmatch(item) else normalize(item).split()
    return tuple(_bare(word) for word in words)


def _bare(word: str) -> str:
    """Without the signs around it: a full stop moves to what is added behind."""
    return _SIGNS.sub("", word) or word
