"""What an adapter holds: an engine, made ready, and the turns that speak through it.

An engine given by name is shared: everybody in the process who asks for the same name gets the
same one, loaded once, and the last to leave closes it. An engine given as an object stays its
owner's to close.
"""

from __future__ import annotations

import asyncio
import math
import threading
from dataclasses import dataclass, field

from tts_plugins.engine import Engine, layers, warm_up
from tts_plugins.errors import InvalidRequestError
from tts_plugins.playhead import Playhead
from tts_plugins.registry import check_spec, open_engine
from tts_plugins.timing import TimedEngine
from tts_plugins.turn import Turn
from tts_plugins.types import SynthesisRequest


class Speaker:
    """An engine, ready for any number of turns.

    Args:
        engine: What speaks: an engine, or the name of one.
        early: Whether a turn may start inside a sentence when its end takes long to come.
        patience: Seconds a listener may hear nothing before EngineTimeoutError.

    Raises:
        EngineNotFoundError: If no engine has that name. The engine itself loads later.
    """

    def __init__(self, engine: Engine | str, *, early: bool = True, patience: float = 10.0) -> None:
        self.early = early
        self.patience = patience
        self.name = engine if isinstance(engine, str) else _name(engine)
        self._spec = engine if isinstance(engine, str) else None
        self._lock = threading.Lock()
        self._engine: TimedEngine | None = None
        self._closing: asyncio.Task[None] | None = None
        if isinstance(engine, str):
            check_spec(engine)  # a misspelt name fails here, where it was written
        else:
            self._engine = TimedEngine(engine)

    def load(self) -> TimedEngine:
        """The engine, opened if that is still to do. Blocks, for a second or so; any thread may."""
        with self._lock:
            if self._engine is not None:
                return self._engine
            assert self._spec is not None  # or else it was given as an object
            engine = _borrow(self._spec)
            self._engine = engine
            return engine

    async def open(self) -> TimedEngine:
        """The engine, opened without blocking the event loop."""
        if self._engine is not None:
            return self._engine
        return await asyncio.to_thread(self.load)

    async def warm_up(self, voice: str | None = None) -> None:
        """Open the engine and have it speak to nobody once."""
        await warm_up(await self.open(), voice)

    async def turn(
        self, *, sample_rate: int, template: SynthesisRequest, playhead: Playhead | None = None
    ) -> Turn:
        """A turn to speak, with the settings of ``template``, at ``sample_rate`` hertz."""
        return Turn(
            await self.open(),
            sample_rate=sample_rate,
            template=template,
            early=self.early,
            patience=self.patience,
            playhead=playhead,
        )

    @property
    def reads_pronunciations(self) -> bool:
        """Whether the engine takes ``[word](/ipa/)``. Known once it is open."""
        return any(getattr(each, "reads_pronunciations", False) for each in layers(self._engine))

    def told(self, error: Exception) -> str:
        """What went wrong and with which engine, which a server's errors say themselves."""
        message, name = str(error), _name(self._engine) if self._engine else self.name
        named = message.startswith((f"{name}: ", f"{self.name}: "))
        return message if named else f"{self.name}: {message}"

    async def aclose(self) -> None:
        """Let go of an engine that was opened by name. It may be opened again."""
        if self._spec is not None:
            # A task of its own: it ends even if whoever waits for it is cut off.
            self._closing = asyncio.create_task(self._let_go(self._spec))
            await asyncio.shield(self._closing)

    async def _let_go(self, spec: str) -> None:
        # A load that was cut off holds the lock until it is through; a thread can wait for that.
        loading = self._lock.locked()
        if await asyncio.to_thread(self._forget) if loading else self._forget():
            await _give_back(spec)

    def _forget(self) -> bool:
        with self._lock:
            engine, self._engine = self._engine, None
        return engine is not None


def settings(*, voice: str | None, language: str | None, speed: float) -> SynthesisRequest:
    """A template for turns; what no engine could take fails here, where it was written.

    Raises:
        InvalidRequestError: If one of them can't be meant.
    """
    if voice == "" or language == "":
        raise InvalidRequestError("a voice or language of '' is none; None means the default")
    if not 0 < speed < math.inf:
        raise InvalidRequestError(f"speed {speed} is not a ratio to the voice's natural pace")
    return SynthesisRequest("", voice=voice, language=language, speed=speed)


def check_listener(*, sample_rate: int | None, patience: float | None) -> None:
    """Refuse what no listener can be; None is left to the framework.

    Raises:
        InvalidRequestError: If the rate is no whole number from 8000 to 48000, or the patience
            isn't above 0.
    """
    if sample_rate is not None and sample_rate not in range(8_000, 48_001):
        raise InvalidRequestError(f"sample rate {sample_rate} is outside 8000 to 48000")
    if patience is not None and not patience > 0:
        raise InvalidRequestError(f"a patience of {patience} s is none")


@dataclass(slots=True)
class _Shared:
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while it loads, so that two who ask at once don't load it twice."""
    engine: TimedEngine | None = None
    users: int = 0


_shared: dict[str, _Shared] = {}
_shared_lock = threading.Lock()


def _borrow(spec: str) -> TimedEngine:
    with _shared_lock:
        shared = _shared.setdefault(spec, _Shared())
        shared.users += 1
    try:
        with shared.lock:
            shared.engine = shared.engine or TimedEngine(open_engine(spec))
            return shared.engine
    except BaseException:
        _leave(spec)
        raise


async def _give_back(spec: str) -> None:
    if engine := _leave(spec):
        await engine.aclose()


def _leave(spec: str) -> TimedEngine | None:
    """One user less; the engine, if that was the last."""
    with _shared_lock:
        shared = _shared[spec]
        shared.users -= 1
        return None if shared.users else _shared.pop(spec).engine


def _name(engine: object) -> str:
    *_, innermost = layers(engine)
    return str(getattr(innermost, "name", "") or type(innermost).__name__)
