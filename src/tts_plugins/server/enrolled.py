"""Whose the voices are that callers had an engine learn.

Engines know nothing of callers. So they are given a name that tells whose the voice is, and that
nobody meets by chance. An engine that keeps its voices when the server is restarted lists it
again, and it is found to be its owner's::

    mai                what its owner calls it; anybody else may call another so
    mai-key1f3870be    what the engine calls it; just mai where no keys are set

A vendor that calls voices by ids of its own describes them by that name::

    21m00Tcm4TlvDq8ikWAM    mai-key1f3870be (cloned): clip 5a2b91c0
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count

from tts_plugins.errors import EngineTimeoutError, UnreachableError, VoiceNotFoundError
from tts_plugins.server.keys import NOBODY
from tts_plugins.types import Voice

logger = logging.getLogger(__name__)

_MARKED = re.compile(r"(.+)-key([0-9a-f]{8})", re.IGNORECASE | re.DOTALL)
"""The last one is ours: a name before it is its owner's choice, and may look like another."""


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A voice as the engine calls it, and what its owner said of it."""

    voice: Voice
    description: str


class Enrolled:
    """The voices that callers enrolled with one engine."""

    def __init__(self) -> None:
        self._by_caller: dict[str, dict[str, Enrolment]] = {}
        """By caller, and what they call it."""
        self._users: dict[str, int] = {}
        """How many have what the engine calls so: it may know one recording from two."""
        self._dropped: set[str] = set()
        """What the engine goes on to list although nobody has it any more."""
        self._marked: set[str] = set()
        """What the engine lists with a mark."""
        self._listed: set[str] | None = None
        """All that the engine listed when it was last asked."""
        self._in_doubt = False
        """Whether the engine may have learnt a voice without saying what it calls it."""

    def find(self, caller: str, name: str) -> Voice | None:
        """A caller's voice, as the engine calls it."""
        found = self._by_caller.get(caller, {}).get(name)
        return found.voice if found else None

    def of(self, caller: str) -> list[Voice]:
        """A caller's voices, as they call them."""
        return [
            replace(each.voice, id=name, description=each.description)
            for name, each in self._by_caller.get(caller, {}).items()
        ]

    def has(self, voice: str) -> bool:
        """Whether what the engine calls so is, or was, anybody's."""
        return voice in self._users or voice in self._dropped or voice in self._marked

    def is_in(self, name: str) -> bool:
        """Whether a name asks for anybody's voice, perhaps as a part of a blend."""
        return self.has(name) or _MARKED.match(name) is not None

    def users(self, voice: str) -> int:
        """How many have what the engine calls so."""
        return self._users.get(voice, 0)

    def title(self, caller: str, name: str) -> str:
        """What the engine is to call a voice: the same as before if this one is learnt again."""
        before = self.find(caller, name)
        mark = "" if caller == NOBODY else f"-key{caller}"
        # Such as what was to be forgotten, but speaks.
        taken = (self._users.keys() | self._dropped) - {before.id if before else ""}
        titles = (f"{name}{number}{mark}" for number in chain([""], map(str, count(2))))
        return next(title for title in titles if title not in taken)

    def put(self, caller: str, name: str, enrolment: Enrolment) -> None:
        self.take(caller, name)
        voice = enrolment.voice.id
        self._by_caller.setdefault(caller, {})[name] = enrolment
        self._users[voice] = self.users(voice) + 1
        self._dropped.discard(voice)

    def get(self, caller: str, name: str) -> Enrolment:
        """A caller's voice, and what they said of it.

        Raises:
            VoiceNotFoundError: If it is none of theirs.
        """
        if not self.find(caller, name):
            raise VoiceNotFoundError(name, [voice.id for voice in self.of(caller)])
        return self._by_caller[caller][name]

    def take(self, caller: str, name: str) -> None:
        """Take a voice from its owner, who may have lost it already: see recognize."""
        taken = self._by_caller.get(caller, {}).pop(name, None)
        if taken is None:
            return
        self._users[taken.voice.id] -= 1
        if not self._users[taken.voice.id]:
            del self._users[taken.voice.id]

    def rename(self, caller: str, name: str, new: str, was: Enrolment, voice: Voice) -> None:
        """Have a caller call a voice otherwise, and the engine as well, whoever has it."""
        self.take(caller, name)
        for owner, called in self._with(was.voice.id):
            self.put(owner, called, replace(self.get(owner, called), voice=voice))
        self.put(caller, new, replace(was, voice=voice))

    def drop(self, voice: str) -> None:
        """The engine keeps a voice that nobody has any more."""
        self._dropped.add(voice)

    @contextmanager
    def learning(self) -> Generator[None, None, None]:
        """While the engine learns a voice, and for good if that is cut short.

        What turns up in its list meanwhile may be that voice. If it has no mark, it is nobody's.
        """
        in_doubt, self._in_doubt = self._in_doubt, True
        try:
            yield
        except (asyncio.CancelledError, EngineTimeoutError, UnreachableError):
            in_doubt = True
            raise
        finally:
            self._in_doubt = in_doubt

    def recognize(self, listed: Iterable[Voice], *, new: Collection[str] = ()) -> None:
        """Give back to their owners what another server had the engine learn, or an earlier one.

        What is listed no more was forgotten there.

        Args:
            listed: The engine's voices.
            new: What the list may not have yet.
        """
        before, self._listed, self._marked = self._listed, set(), set()
        for voice in listed:
            self._listed.add(voice.id)
            match = _MARKED.match(voice.id) or _MARKED.match(voice.description)
            if match:
                self._marked.add(voice.id)
            if voice.id in self._users or voice.id in self._dropped:
                continue
            if match:
                name, owner = match[1], match[2].lower()
                if not self.find(owner, name):
                    self.put(owner, name, Enrolment(voice, voice.description))
            elif self._in_doubt and before is not None and voice.id not in before:
                logger.warning("%r may be a voice that was half learnt: it is nobody's", voice.id)
                self._dropped.add(voice.id)
        self._dropped &= self._listed
        for gone in (before or set()) - self._listed - {*new}:
            for caller, name in self._with(gone):
                self.take(caller, name)

    def _with(self, voice: str) -> list[tuple[str, str]]:
        """Who have what the engine calls so, and what they call it."""
        if voice not in self._users:
            return []
        return [
            (caller, name)
            for caller, theirs in self._by_caller.items()
            for name, each in theirs.items()
            if each.voice.id == voice
        ]
