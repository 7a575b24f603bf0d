"""The engines of a server: which one a request means, and which of its voices."""

from __future__ import annotations

import asyncio
import logging
import math
import shlex
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeVar
from urllib.parse import urlsplit

from tts_plugins.audio.clips import hear
from tts_plugins.audio.codec import pyav
from tts_plugins.dialects.openai import VOICES
from tts_plugins.engine import Engine, VoiceCloner, cloner, known_options, layers, warm_up
from tts_plugins.errors import (
    EngineError,
    EngineNotFoundError,
    EngineTimeoutError,
    InvalidRequestError,
    MissingDependencyError,
    RemoteError,
    TTSError,
    VoiceNotFoundError,
)
from tts_plugins.library import CLONED
from tts_plugins.registry import open_engine
from tts_plugins.server.enrolled import Enrolled, Enrolment
from tts_plugins.server.keys import NOBODY
from tts_plugins.server.refusals import RefusedError
from tts_plugins.timing import TimedEngine
from tts_plugins.types import SynthesisRequest, Voice

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FRESH = 60.0
"""Seconds for which a list of voices is believed; a server's costs a request."""

_AGAIN = 5.0
"""Seconds until a list that failed is asked for again."""

_SHARE = 20
"""Times as long as it took to list the voices until they are listed again because a name isn't
known: however many such names are sent, that takes no more than a twentieth of a core."""

_MOST = 1000
"""Voices that a caller may have."""

_LEARNING = 120.0
"""Seconds that an engine may take to learn a voice."""

_ABOUT_THE_REQUEST = (400, 413, 422, 429)
"""Statuses of a server behind an engine that its client can do something about: not that the key is
wrong which this server has for it, or that it has moved."""

_LONGEST_NAME = 200

_MIXES = "+,("
"""What stands in the name of a mix of voices."""

DEFAULTS = (*VOICES, "default")
"""Names that clients send because they have to name a voice. Pipecat's OpenAI service refuses any
other before it calls, so each of them has to speak: with the engine's own default, unless the
engine has a voice of that name or an alias says otherwise."""


class Hosted:
    """One engine of the server.

    Args:
        name: What requests call it, as their model.
        engine: The engine itself.
        aliases: Names of voices, and what the engine calls them.
        spec: What opens such an engine, if that is known.
        clock: Monotonic time in seconds. Tests pass their own.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        *,
        aliases: Mapping[str, str],
        spec: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.engine = engine if isinstance(engine, TimedEngine) else TimedEngine(engine)
        self._aliases = aliases
        self._spec = spec
        self._clock = clock
        self._listed: Sequence[Voice] = ()
        self._unlisted: TTSError | None = EngineError(f"{name} hasn't listed its voices yet")
        """Why there is no list, not even an old one."""
        self._listing: asyncio.Task[None] | None = None
        """What asks for the list, or did so last."""
        self._stale_at = -math.inf
        self._looking: asyncio.Task[None] | None = None
        """What will ask for a list that nobody has yet."""
        self._rests_until = -math.inf
        self._fails = False
        """Whether it couldn't be listed when that was last tried."""
        self._forgotten: set[str] = set()
        """Voices that a list on its way may still have."""
        self._new: set[str] = set()
        """Voices that it may not have yet."""
        self._enrolled = Enrolled()
        self._learning = asyncio.Lock()
        """One voice at a time is learnt, given another name or deleted."""
        self._speaking: Counter[str | None] = Counter()
        """How many texts are being said with each voice."""
        self._options = known_options(self.engine)

    @property
    def sample_rate(self) -> int | None:
        """Hertz, if the engine says so."""
        rates = (getattr(layer, "sample_rate", None) for layer in layers(self.engine))
        return next((rate for rate in rates if isinstance(rate, int)), None)

    @property
    def cloner(self) -> VoiceCloner | None:
        """What learns voices, if anything does."""
        return cloner(self.engine)

    async def voices(self, caller: str, *, wanted: str | None = None) -> list[Voice]:
        """The engine's voices and those that this caller enrolled, never anybody else's.

        Args:
            caller: Who that is.
            wanted: One that is looked for; see _look_for.

        Raises:
            EngineError: If the engine can't list its own, and never could.
        """
        if wanted:
            await self._look_for(wanted, caller)
        theirs = await self._ready()
        mine = self._enrolled.of(caller)
        taken = {voice.id for voice in mine}
        return [*(voice for voice in theirs if voice.id not in taken), *mine]

    async def request(
        self, request: SynthesisRequest, caller: str, *, any_voice: bool = False
    ) -> tuple[SynthesisRequest, tuple[str, ...]]:
        """The request as the engine takes it, and the options that it can't honour.

        Args:
            request: What the caller asks for.
            caller: Who that is.
            any_voice: Whether the engine's own voice is better than none.

        Raises:
            VoiceNotFoundError: If the name can't be a voice's, or is somebody else's.
            InvalidRequestError: If the engine would have to download the voice.
        """
        name = request.voice
        if any_voice and name and not self._has(name, caller, await self._known()):
            name = None
        voice = await self._voice(name, caller)
        options = request.options
        known = {n: v for n, v in options.items() if self._options is None or n in self._options}
        ignored = tuple(sorted(options.keys() - known.keys()))
        return replace(request, voice=voice, options=known), ignored

    def _has(self, name: str, caller: str, theirs: Iterable[Voice]) -> bool:
        called = self._aliases.get(name, name)
        mine = self._enrolled.find(caller, name) is not None
        return mine or any(voice.id == called for voice in theirs)

    async def check(self, name: str | None, caller: str) -> None:
        """Look whether there is a voice of this name, before anything is spoken with it.

        Raises:
            VoiceNotFoundError: If there isn't.
            InvalidRequestError: If the engine would have to download it.
        """
        voice = await self._voice(name, caller)
        if voice is None or self._enrolled.has(voice):
            return
        listed = [each.id for each in await self._known()]
        if listed and not _may_be(voice, listed):
            raise await self.unknown(voice, caller)

    async def clone(
        self,
        name: str,
        clip: bytes,
        *,
        caller: str,
        transcript: str = "",
        description: str = "",
        anew: bool = True,
    ) -> Voice:
        """Enrol a recording for this caller alone.

        Args:
            name: What the caller calls it.
            clip: The recording.
            caller: Who that is.
            transcript: What is said in it.
            description: What the caller says of it.
            anew: Whether a voice that the caller has by this name is replaced, rather than kept.

        Raises:
            RefusedError: 501, if the engine can't; 409, if the name is taken by the engine, or the
                caller has as many voices as may be.
            InvalidRequestError: If the name can't be one, or the recording is none.
            EngineError: If the engine fails.
        """
        learner = self.cloner
        if learner is None:
            raise RefusedError(501, f"{self.name} can't clone voices")
        _check_name(name)
        async with self._learning:
            before = self._enrolled.find(caller, name)
            if before and not anew:
                return replace(before, id=name)
            if before is None and name not in await self._everybodys(caller):
                await self._check_free(name, caller)
                await self._check_room(caller)
            wav = await asyncio.to_thread(hear, clip)
            title = self._enrolled.title(caller, name)
            with self._enrolled.learning():
                voice = await _learnt(learner.clone(title, wav, transcript=transcript))
            self._enrolled.put(caller, name, Enrolment(voice, description))
            self._new.add(voice.id)
            self._stale_at = self._clock()
            if before and not self._enrolled.users(before.id):
                self._enrolled.drop(before.id)  # nobody's, even if the engine fails to forget it
                await self._unlearn(before.id)
        return replace(voice, id=name, description=description)

    async def forget(self, name: str, caller: str) -> None:
        """Delete a voice that this caller enrolled.

        Raises:
            VoiceNotFoundError: If it is none of theirs.
            RefusedError: 409, while it speaks: the rest of a text would have no voice.
            EngineError: If the engine fails.
        """
        async with self._learning:
            title = await self._title(name, caller)
            if self._speaking[title]:
                raise RefusedError(409, f"{name!r} speaks just now: delete it later")
            if self._enrolled.users(title) <= 1:
                await self._unlearn(title)
            # Not before: what the engine still lists and nobody has is everybody's.
            self._enrolled.take(caller, name)

    async def rename(self, name: str, new: str, caller: str) -> None:
        """Call a voice that this caller enrolled by another name.

        The engine has to: what only this server knew would be lost when it ends, and another one
        beside it would take the old name for free.

        Raises:
            VoiceNotFoundError: If it is none of theirs.
            RefusedError: 501, if the engine can't; 409, if there is one of the new name, or while
                the voice speaks: the rest of a text would have none.
            InvalidRequestError: If that can't be a name.
            EngineError: If the engine fails.
        """
        rename = getattr(self.cloner, "rename", None)
        if rename is None or not getattr(self.cloner, "can_rename", True):
            raise RefusedError(501, f"{self.name} can't rename voices: enrol it by another name")
        _check_name(new)
        async with self._learning:
            title = await self._title(name, caller)
            await self._look_for(new, caller)
            await self._check_free(new, caller)
            if self._speaking[title]:
                raise RefusedError(409, f"{name!r} speaks just now: rename it later")
            mine = self._enrolled.find(caller, name) and self._enrolled.get(caller, name)
            voice = await _learnt(rename(title, self._enrolled.title(caller, new)))
            if mine:
                self._enrolled.rename(caller, name, new, mine, voice)
            self._new.add(voice.id)
            self._forgotten |= {title} - {voice.id}
            self._listed = [voice if each.id == title else each for each in self._listed]
            self._stale_at = self._clock()

    @contextmanager
    def speaking(self, voice: str | None) -> Generator[None, None, None]:
        """While a text is said with what the engine calls so."""
        self._speaking[voice] += 1
        try:
            yield
        finally:
            self._speaking[voice] -= 1
            if not self._speaking[voice]:
                del self._speaking[voice]

    async def unknown(self, name: str, caller: str) -> VoiceNotFoundError:
        """The error for a voice that there isn't: an engine would name everybody's."""
        known = [*await self._known(), *self._enrolled.of(caller)]
        return VoiceNotFoundError(name, [voice.id for voice in known])

    async def _check_free(self, name: str, caller: str) -> None:
        if self._has(name, caller, await self._ready()):
            raise RefusedError(409, f"there is a voice {name!r} already: choose another name")

    async def _check_room(self, caller: str) -> None:
        if len(self._enrolled.of(caller)) + len(await self._everybodys(caller)) >= _MOST:
            raise RefusedError(409, f"you have {_MOST} voices, as many as may be: delete one first")

    async def _unlearn(self, voice: str) -> None:
        """Have the engine forget a voice, unless it can't or somebody hears it."""
        forget = getattr(self.cloner, "forget", None)
        if forget is None or self._speaking[voice]:
            self._enrolled.drop(voice)
            return
        with suppress(VoiceNotFoundError):  # another process had it forgotten
            await _learnt(forget(voice))
        self._forgotten.add(voice)
        self._listed = [each for each in self._listed if each.id != voice]

    async def _voice(self, name: str | None, caller: str) -> str | None:
        if not name:
            return None
        await self._look_for(name, caller)
        theirs = await self._known()
        if mine := self._enrolled.find(caller, name):
            return mine.id
        name = self._aliases.get(name, name)
        there = any(voice.id == name for voice in theirs)
        if theirs and not there:
            name = self._aliases.get("*", name)
        if name in DEFAULTS and not there:
            return None
        if not _is_name(name) or self._enrolled.is_in(name):
            raise await self.unknown(name, caller)
        if any(voice.id == name and not voice.ready for voice in self._listed):
            # The download would keep everybody waiting. 503 would have the client ask again.
            raise InvalidRequestError(f"voice {name!r} isn't here yet: {self._fetching(name)}")
        return name

    async def _title(self, name: str, caller: str) -> str:
        """What the engine calls a voice that is this caller's to change.

        Raises:
            VoiceNotFoundError: If it is none of theirs.
        """
        await self._look_for(name, caller)
        if not self._enrolled.find(caller, name) and name in await self._everybodys(caller):
            return name
        return self._enrolled.get(caller, name).voice.id

    async def _everybodys(self, caller: str) -> set[str]:
        """What was learnt for whoever calls, by another process or an earlier one."""
        if caller != NOBODY or not self._keeps:
            return set()
        return {voice.id for voice in await self._known() if voice.description == CLONED}

    @property
    def _keeps(self) -> bool:
        """Whether the engine itself has what it learnt, for other processes to share."""
        return getattr(self.cloner, "forget", None) is not None

    async def _look_for(self, name: str, caller: str) -> None:
        """Have the list be new enough to say that there is no voice of a name.

        Another process may have had the engine learn it a moment ago. Where voices are a server's,
        no list has all that can be asked for, and to ask for it costs more.
        """
        listed = [voice.id for voice in self._listed]
        if not self._keeps or self._fails or self._may_know(name, caller, listed):
            return
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        await asyncio.shield(self._looking)

    def _may_know(self, name: str, caller: str, listed: Sequence[str]) -> bool:
        return (
            self._enrolled.find(caller, name) is not None
            or name in self._aliases
            or "*" in self._aliases
            or name in DEFAULTS
            or name in listed
            or not _is_name(name)
            or (_may_be(name, listed) and any(sign in name for sign in _MIXES))
        )

    async def _look(self) -> None:
        """List the voices: at once, or when enough time has passed since that was last done."""
        if (rest := self._rests_until - self._clock()) > 0:
            await asyncio.sleep(rest)
        while self._listing and not self._listing.done():
            await asyncio.shield(self._listing)
        self._looking = None  # whoever comes from now on waits for the next
        began = self._clock()
        self._listing = asyncio.create_task(self._list())
        await asyncio.shield(self._listing)
        self._rests_until = self._clock() + _SHARE * (self._clock() - began)

    def _fetching(self, voice: str) -> str:
        """How to have the engine download a voice."""
        if not self._spec or ":" in self._spec:  # an address may have a key in it
            return "have its engine fetch it first"
        words = ["tts-plugins", "say", "Hi.", "--engine", self._spec, "--voice", voice]
        return f"fetch it first with `{shlex.join(words)}`, where the server runs"

    async def _known(self) -> list[Voice]:
        """The engine's own voices as far as they are known: speech doesn't need a list."""
        try:
            return await self._ready()
        except TTSError:
            return []

    async def _ready(self) -> list[Voice]:
        """The engine's own voices, nobody's, that can speak at once.

        Only the first list is waited for. While another is fetched, or can't be, the old one holds.
        """
        fetching = self._listing is not None and not self._listing.done()
        if not fetching and self._clock() > self._stale_at:
            self._listing = asyncio.create_task(self._list())
        if self._unlisted and self._listing:
            await asyncio.shield(self._listing)
        if self._unlisted:
            raise self._unlisted.with_traceback(None)
        return [each for each in self._listed if each.ready and not self._enrolled.has(each.id)]

    async def _list(self) -> None:
        self._forgotten.clear()
        self._new.clear()
        try:
            with strangers():
                listed = await self.engine.voices()
        except TTSError as error:
            logger.warning("%s doesn't list its voices: %s", self.name, error)
            self._fails = True
            if self._unlisted:
                self._unlisted = error
            self._stale_at = self._clock() + _AGAIN
            return
        self._listed = [voice for voice in listed if voice.id not in self._forgotten]
        self._unlisted, self._fails = None, False
        self._stale_at = self._clock() + _FRESH
        self._enrolled.recognize(self._listed, new=self._new)


class Engines:
    """The engines by name; the first is the default.

    Args:
        engines: Engines, or what open_engine takes to make them, by the names that requests use.
        aliases: Names of voices, and what the engines call them; ``*`` is any that there isn't.
        pace: Options of Scheduler, for engines that are opened here.
        clock: Monotonic time in seconds. Tests pass their own.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine | str],
        *,
        aliases: Mapping[str, str] | None = None,
        pace: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not engines:
            raise InvalidRequestError("a server has at least one engine")
        self._given = dict(engines)
        self._aliases = dict(aliases or {})
        self._pace = dict(pace or {})
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
                    engine = await asyncio.to_thread(open_engine, engine, **self._pace_of(engine))
                    self._ours.append(engine)
                opened[name] = Hosted(
                    name,
                    engine,
                    aliases=self._aliases,
                    spec=given if isinstance(given, str) else "",
                    clock=self._clock,
                )
                if warm:
                    await warm_up(opened[name].engine)
            if warm:
                with suppress(MissingDependencyError):
                    await asyncio.to_thread(pyav)
            await self._check_aliases(opened.values())
        except (TTSError, OSError) as error:
            self.failure = f"{name}: {error}"
            raise
        self._hosted = opened

    def _pace_of(self, spec: str) -> Mapping[str, float]:
        """Options of the scheduler, for an engine that has one."""
        here = "://" not in spec or spec.startswith("fallback:")
        return self._pace if here else {}

    async def _check_aliases(self, opened: Iterable[Hosted]) -> None:
        """Say so at the start, rather than when somebody calls, if there is no such voice."""
        with suppress(TTSError):
            there = [voice.id for each in opened for voice in await each.voices(NOBODY)]
            for alias, voice in self._aliases.items():
                if not _may_be(voice, there):
                    logger.warning("alias %s: %s", alias, VoiceNotFoundError(voice, there))

    def find(self, model: str | None, *, strict: bool = False) -> Hosted:
        """The engine that a request's model names.

        Args:
            model: Its name.
            strict: Whether any other name is an error. Clients send those of their vendor's models,
                which mean the default.

        Raises:
            EngineNotFoundError: If there is no such engine, and there should be.
            RefusedError: 503, while they load.
        """
        if not self.ready:
            raise RefusedError(503, self.failure or "the engine is loading", retry_after=1.0)
        found = self._hosted.get(model or "")
        if model and strict and not found:
            raise EngineNotFoundError(model, self.names)
        return found or next(iter(self._hosted.values()))

    async def aclose(self) -> None:
        """Close those that were opened here."""
        self._hosted = {}
        while self._ours:
            with suppress(TTSError):
                await self._ours.pop().aclose()


def named(engines: Iterable[str]) -> dict[str, str]:
    """Engines as a command line gives them, by the names that requests use.

    ``hibari`` is called so, ``en=hibari`` is called en. Of an address, which would be no name for a
    model, it is the dialect, or else the host; several that stand in for each other are a fallback.

    Raises:
        InvalidRequestError: If two have the same name.
    """
    found: dict[str, str] = {}
    for given in engines:
        name, equals, spec = given.partition("=")
        if not equals or not name.replace("-", "").replace("_", "").isalnum():
            name, spec = _called(given), given
        if name in found:
            raise InvalidRequestError(f"two engines are called {name!r}: write NAME={spec}")
        found[name] = spec
    return found


def _called(spec: str) -> str:
    if spec.startswith("fallback:"):
        return "fallback"
    scheme, _, address = spec.partition("://")
    dialect, plus, _ = scheme.partition("+")
    if plus or not address:
        return dialect.partition("?")[0]
    return urlsplit(spec).hostname or "server"


async def _learnt(learning: Awaitable[T]) -> T:
    """What comes of an engine that learns or forgets a voice."""
    try:
        async with asyncio.timeout(_LEARNING):
            with strangers():
                return await learning
    except TimeoutError:
        raise EngineTimeoutError(f"no voice was learnt within {_LEARNING:g} s") from None


@contextmanager
def strangers() -> Generator[None, None, None]:
    """Around an engine's own code, where anything may come.

    Raises:
        TTSError: For whatever comes. Of a server behind it, what isn't about the request is a 502.
    """
    try:
        yield
    except RemoteError as error:
        if error.status_code in _ABOUT_THE_REQUEST or 500 <= error.status_code < 600:
            raise
        raise RemoteError(str(error), retry_after=error.retry_after) from error
    except TTSError:
        raise
    except Exception as error:
        logger.exception("an engine failed")
        raise EngineError(f"{type(error).__name__}: {error}") from error


def _may_be(voice: str, listed: Iterable[str]) -> bool:
    """Whether there may be such a voice: what has the name of one in it can be a mix of several,
    which only the engine can tell.
    """
    return any(each in voice for each in listed)


def _check_name(name: str) -> None:
    if not _is_name(name):
        raise InvalidRequestError(
            f"a voice's name has 1 to {_LONGEST_NAME} characters, no slash, and no dot in front"
        )


def _is_name(name: str) -> bool:
    """Whether a client may call a voice so: nothing that could be a path, or hide in a log."""
    return (
        0 < len(name) <= _LONGEST_NAME
        and name.isprintable()
        and not name.startswith(".")
        and not any(c in name for c in "/\\")
    )
