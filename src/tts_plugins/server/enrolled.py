"""Whose the voices are that callers had an engine learn.

Engines know nothing of callers. So they are given a name that tells whose the voice is, and that
nobody meets by chance. An engine that keeps its voices when the server is restarted lists it
again, and it is found to be its owner's::

    mai                what its owner calls it; anybody else may call another so
    mai-key1f3870be    what the engine calls it; just mai where no keys are set
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain, count

from tts_plugins.errors import VoiceNotFoundError
from tts_plugins.server.keys import NOBODY
from tts_plugins.types import Voice

_MARKED = re.compile(r"(.+)-key([0-9a-f]{8})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A voice as the engine calls it, and what its owner said of it."""

    voice: Voice
    description: str


class Enrolled:
    """The voices that callers enrolled with one engine."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], Enrolment] = {}
        """By caller, and what they call it."""
        self._dropped: set[str] = set()
        """What the engine goes on to list although nobody has it any more."""

    def find(self, caller: str, name: str) -> Voice | None:
        """A caller's voice, as the engine calls it."""
        found = self._by_name.get((caller, name))
        return found.voice if found else None

    def of(self, caller: str) -> list[Voice]:
        """A caller's voices, as they call them."""
        return [
            replace(each.voice, id=name, description=each.description)
            for (owner, name), each in self._by_name.items()
            if owner == caller
        ]

    def has(self, voice: str) -> bool:
        """Whether what the engine calls so is, or was, anybody's."""
        return bool(voice in self._dropped or voice in self._ids() or _MARKED.fullmatch(voice))

    def title(self, caller: str, name: str) -> str:
        """What the engine is to call a voice: the same as before if this one is learnt again."""
        if before := self.find(caller, name):
            return before.id
        mark = "" if caller == NOBODY else f"-key{caller}"
        taken = self._ids() | self._dropped  # such as what was enrolled so, and then renamed
        titles = (f"{name}{number}{mark}" for number in chain([""], map(str, count(2))))
        return next(title for title in titles if title not in taken)

    def put(self, caller: str, name: str, enrolment: Enrolment) -> None:
        self._by_name[caller, name] = enrolment
        self._dropped.discard(enrolment.voice.id)

    def take(self, caller: str, name: str) -> Enrolment:
        """Take a voice from its owner.

        Raises:
            VoiceNotFoundError: If it is none of theirs.
        """
        if (caller, name) not in self._by_name:
            raise VoiceNotFoundError(name, [voice.id for voice in self.of(caller)])
        return self._by_name.pop((caller, name))

    def drop(self, voice: str) -> None:
        """The engine keeps a voice that nobody has any more."""
        self._dropped.add(voice)

    def is_used(self, voice: str) -> bool:
        """Whether anybody has what the engine calls so: it may know one recording from two."""
        return voice in self._ids()

    def recognize(self, listed: Iterable[Voice]) -> None:
        """Give back to their owners what an earlier server had the engine learn."""
        known = self._ids() | self._dropped
        for voice in listed:
            match = _MARKED.fullmatch(voice.id)
            if match and voice.id not in known:
                name, owner = match.groups()
                self._by_name.setdefault((owner, name), Enrolment(voice, voice.description))

    def _ids(self) -> set[str]:
        return {each.voice.id for each in self._by_name.values()}
