"""The engines of a server: which one a request means, and which of its voices."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tts_plugins.dialects.openai import VOICES
from tts_plugins.engine import Engine, VoiceCloner, layers, warm_up
from tts_plugins.errors import InvalidRequestError, TTSError, VoiceNotFoundError
from tts_plugins.registry import open_engine
from tts_plugins.server.refusals import RefusedError
from tts_plugins.timing import TimedEngine
from tts_plugins.types import SynthesisRequest, Voice

logger = logging.getLogger(__name__)

_FRESH = 60.0
"""Seconds for which a list of voices is believed; a server's costs a request."""

_LONGEST_NAME = 200

DEFAULTS = (*VOICES, "default")
"""Names that clients send because they have to name a voice. Pipecat's OpenAI service refuses any
other before it calls, so each of them has to speak: with the engine's own default, unless the
engine has a voice of that name or an alias says otherwise."""


@dataclass(frozen=True, slots=True)
class _Clone:
    voice: Voice
    """As the engine knows it."""
    owner: str
    description: str


class Hosted:
    """One engine of the server.

    Args:
        name: What requests call it, as their model.
        engine: The engine itself.
        aliases: Names of voices, and what the engine calls them.
        clock: Monotonic time in seconds. Tests pass their own.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        *,
        aliases: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.engine = engine if isinstance(engine, TimedEngine) else TimedEngine(engine)
        self._aliases = aliases
        self._clock = clock
        self._listed: Sequence[Voice] = ()
        self._listed_at: float | None = None
        self._clones: dict[tuple[str, str], _Clone] = {}
        """By who enrolled them, and the name that they gave."""
        self._learning = asyncio.Lock()
        known: set[str] = set()
        for layer in layers(self.engine):
            known |= set(getattr(layer, "request_options", ()))
        self._options = frozenset(known)

    @property
    def sample_rate(self) -> int | None:
        """Hertz, if the engine says so."""
        rates = (getattr(layer, "sample_rate", None) for layer in layers(self.engine))
        return next((rate for rate in rates if isinstance(rate, int)), None)

    @property
    def cloner(self) -> VoiceCloner | None:
        """What learns voices, if anything does."""
        return next((each for each in layers(self.engine) if isinstance(each, VoiceCloner)), None)

    async def voices(self, caller: str) -> list[Voice]:
        """The engine's voices and those that this caller enrolled, never anybody else's."""
        mine = {
            name: replace(c.voice, id=name, description=c.description)
            for (owner, name), c in self._clones.items()
            if owner == caller
        }
        cloned = {clone.voice.id for clone in self._clones.values()}
        others = [v for v in await self._voices() if v.id not in cloned and v.id not in mine]
        return [*others, *mine.values()]

    async def request(
        self, request: SynthesisRequest, caller: str
    ) -> tuple[SynthesisRequest, tuple[str, ...]]:
        """The request as the engine takes it, and the options that it can't honour.

        Raises:
            VoiceNotFoundError: If the name can't be a voice's, or is somebody else's.
        """
        voice = await self._voice(request.voice, caller)
        known = {n: v for n, v in request.options.items() if n in self._options}
        ignored = tuple(sorted(request.options.keys() - known.keys()))
        return replace(request, voice=voice, options=known), ignored

    async def clone(
        self, name: str, clip: bytes, *, caller: str, transcript: str = "", description: str = ""
    ) -> Voice:
        """Enrol a recording for this caller alone.

        Raises:
            RefusedError: 501, if the engine can't; 409, if the name is taken by the engine.
            InvalidRequestError: If the name can't be one.
        """
        if self.cloner is None:
            raise RefusedError(501, f"{self.name} can't clone voices")
        if not _is_name(name):
            raise InvalidRequestError(
                f"a voice's name has 1 to {_LONGEST_NAME} characters, and no slash among them"
            )
        async with self._learning:
            if (caller, name) not in self._clones and any(
                voice.id == name for voice in await self.voices(caller)
            ):
                raise RefusedError(409, f"there is a voice {name!r} already: choose another name")
            taken = {c.voice.id for (owner, _), c in self._clones.items() if owner != caller}
            # Two callers may give the same name without hearing of each other.
            theirs = f"{name}-{caller}" if name in taken else name
            voice = await self.cloner.clone(theirs, clip, transcript=transcript)
            self._clones[caller, name] = _Clone(voice, caller, description)
            self._listed_at = None
            return replace(voice, id=name, description=description)

    async def forget(self, name: str, caller: str) -> None:
        """Delete a voice that this caller enrolled.

        Raises:
            VoiceNotFoundError: If it is none of theirs.
        """
        if (caller, name) not in self._clones:
            raise VoiceNotFoundError(name, [n for owner, n in self._clones if owner == caller])
        clone = self._clones.pop((caller, name))
        self._listed_at = None
        if forget := getattr(self.cloner, "forget", None):
            await forget(clone.voice.id)
        else:
            # The engine keeps it, so it stays out of everybody's sight.
            self._clones["", clone.voice.id] = clone

    async def rename(self, name: str, new: str, caller: str) -> None:
        """Call a voice that this caller enrolled by another name.

        Raises:
            VoiceNotFoundError: If it is none of theirs.
            RefusedError: 409, if there is one of the new name.
            InvalidRequestError: If that can't be a name.
        """
        if not _is_name(new):
            raise InvalidRequestError(f"{new!r} can't be a voice's name")
        if (caller, name) not in self._clones:
            raise VoiceNotFoundError(name, [n for owner, n in self._clones if owner == caller])
        if any(voice.id == new for voice in await self.voices(caller)):
            raise RefusedError(409, f"there is a voice {new!r} already")
        self._clones[caller, new] = self._clones.pop((caller, name))

    async def _voice(self, name: str | None, caller: str) -> str | None:
        if not name:
            return None
        if clone := self._clones.get((caller, name)):
            return clone.voice.id
        name = self._aliases.get(name, name)
        if name in DEFAULTS and not any(voice.id == name for voice in await self._voices()):
            return None
        if not _is_name(name) or any(name == c.voice.id for c in self._clones.values()):
            raise VoiceNotFoundError(name, [voice.id for voice in await self.voices(caller)])
        return name

    async def _voices(self) -> Sequence[Voice]:
        now = self._clock()
        if self._listed_at is None or now - self._listed_at > _FRESH:
            self._listed = await self.engine.voices()
            self._listed_at = now
        return self._listed


class Engines:
    """The engines by name; the first is the default.

    Args:
        engines: Engines, or what open_engine takes to make them, by the names that requests use.
        aliases: Names of voices, and what the engines call them.
        clock: Monotonic time in seconds. Tests pass their own.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine | str],
        *,
        aliases: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not engines:
            raise InvalidRequestError("a server has at least one engine")
        self._given = dict(engines)
        self._aliases = dict(aliases or {})
        self._clock = clock
        self._hosted: dict[str, Hosted] = {}
        self._ours: list[Engine] = []
        """Opened here, and so to be closed here."""
        self.failure: str | None = None
        """Why they can't be opened, if they can't."""

    @property
    def ready(self) -> bool:
        return len(self._hosted) == len(self._given)

    @property
    def names(self) -> list[str]:
        return list(self._given)

    def all(self) -> list[Hosted]:
        return list(self._hosted.values())

    async def open(self, *, warm: bool = True) -> None:
        """Load all engines and have each speak to nobody once."""
        opened: dict[str, Hosted] = {}
        try:
            for name, given in self._given.items():
                engine = given
                if isinstance(engine, str):
                    engine = await asyncio.to_thread(open_engine, engine)
                    self._ours.append(engine)
                opened[name] = Hosted(name, engine, aliases=self._aliases, clock=self._clock)
                if warm:
                    await warm_up(opened[name].engine)
        except (TTSError, OSError) as error:
            self.failure = f"{name}: {error}"
            raise
        self._hosted = opened

    def find(self, model: str | None) -> Hosted:
        """The engine that a request's model names; the default for any name that is no engine's,
        since clients send those of their vendor's models.

        Raises:
            RefusedError: 503, while they load.
        """
        if not self.ready:
            raise RefusedError(503, self.failure or "the engine is loading", retry_after=1.0)
        return self._hosted.get(model or "") or next(iter(self._hosted.values()))

    async def aclose(self) -> None:
        """Close those that were opened here."""
        self._hosted = {}
        while self._ours:
            with suppress(TTSError):
                await self._ours.pop().aclose()


def named(engines: Iterable[str]) -> dict[str, str]:
    """Engines as a command line gives them, by the names that requests use.

    ``hibari`` is called so; ``low=tone?frequency=220`` is called low; of an address, which would
    be no name for a model, what stands before its plus.

    Raises:
        InvalidRequestError: If two have the same name.
    """
    found: dict[str, str] = {}
    for given in engines:
        name, equals, spec = given.partition("=")
        if not equals or not name.replace("-", "").replace("_", "").isalnum():
            name, spec = given, given
        name = name.partition("+")[0] if "://" in name else name
        if name in found:
            raise InvalidRequestError(f"two engines are called {name!r}: write NAME={given}")
        found[name] = spec
    return found


def _is_name(name: str) -> bool:
    """Whether a client may call a voice so: nothing that could be a path, or hide in a log."""
    return (
        0 < len(name) <= _LONGEST_NAME
        and name.isprintable()
        and not name.startswith(".")
        and not any(c in name for c in "/\\")
    )
