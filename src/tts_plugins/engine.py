"""The contract between engines and everything that speaks through them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Generator, Iterator, Sequence
from contextlib import aclosing
from itertools import chain
from typing import Protocol, runtime_checkable

from tts_plugins.types import AudioChunk, Reference, SynthesisRequest, Voice


class Engine(Protocol):
    """Something that turns a request into a stream of audio.

    ``stream`` is an async generator: it ends when the utterance is complete, raises a
    TTSError when it can't be, and stops working when it is closed. Consume it inside
    ``contextlib.aclosing`` so that a barge-in closes it at once::

        async with aclosing(engine.stream(request)) as chunks:
            async for chunk in chunks:
                play(chunk.samples)

    An engine that knows options names them in its attribute ``request_options``, so that a server
    can tell callers which of theirs it ignores; ``None`` there takes any.

    Any number of streams may be open at once. All chunks of a stream have one rate. A word
    comes no later than the chunk in which it starts to be heard.
    """

    def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]: ...

    async def voices(self) -> Sequence[Voice]: ...

    async def aclose(self) -> None: ...


class BlockingEngine(Protocol):
    """An in-process engine, written as plain synchronous code.

    Scheduler turns it into an Engine. ``synthesize`` runs on a worker thread, one step (one
    ``next``) at a time; several generators may be open, but with one worker no two steps
    overlap, unless one hangs and nobody waits for it any more. The shorter the step, the sooner
    a more urgent stream gets its turn. One that can't be short has an ``interruptible`` block.

    An attribute ``workers`` says how many steps ``open_engine`` shall have run at the same time:
    one for each stream that the engine computes together, or for each core that it can use. It is 1
    where an engine doesn't say.

    One that is there without its packages names their modules in ``needs``, for those who list it.
    """

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]: ...

    def voices(self) -> Sequence[Voice]: ...

    def close(self) -> None: ...


@runtime_checkable
class VoiceCloner(Protocol):
    """An engine that can learn a voice from a recording.

    It lists the voice by the id that it gave it. One that can unlearn it as well has an
    ``async def forget(self, voice: str) -> None``. One that can call it otherwise, by a name that
    none has yet, has an ``async def rename(self, voice: str, new: str) -> Voice``, and may say
    by an attribute ``can_rename`` that it can't after all.
    """

    async def clone(self, name: str, reference: Reference, *, transcript: str = "") -> Voice:
        """Enrol a recording under ``name``; the voice is usable at once.

        Args:
            name: The id of the new voice.
            reference: A path to an audio file, the bytes of one, or samples.
            transcript: What is said in it, for engines that need to know.
        """
        ...


@runtime_checkable
class BlockingCloner(Protocol):
    """A BlockingEngine that can learn a voice from a recording, and unlearn it.

    It lists the voice by the name that it gave it. Both block, on threads of their own, and while
    other threads speak. An attribute ``can_clone`` says so of one that can't with the model that it
    has. One that can call a voice otherwise has a ``rename(voice: str, new: str) -> Voice``.
    """

    def clone(self, name: str, reference: Reference, *, transcript: str = "") -> Voice: ...

    def forget(self, voice: str) -> None: ...


def layers(engine: object) -> Iterator[object]:
    """An engine, what it wraps, and so on to the innermost."""
    while engine is not None:
        yield engine
        engine = getattr(engine, "engine", None)


def cloner(engine: object) -> VoiceCloner | None:
    """What of an engine learns voices, itself or what it wraps; ``None`` if nothing does."""
    for layer in layers(engine):
        # A BlockingEngine has a clone() of the same looks.
        blocks = not hasattr(layer, "stream")
        # Every server's engine has a way to ask for it, whether or not the server has one.
        if isinstance(layer, VoiceCloner) and not blocks and getattr(layer, "can_clone", True):
            return layer
    return None


def known_options(engine: object) -> Collection[str] | None:
    """The options of a request that an engine knows, or what it wraps; ``None`` for any."""
    known = [getattr(layer, "request_options", ()) for layer in layers(engine)]
    return None if None in known else frozenset(chain.from_iterable(known))


async def warm_up(engine: Engine, voice: str | None = None) -> None:
    """Have an engine do what it does lazily, so that the first listener doesn't pay for it.

    One that has a ``prewarm()``, or wraps one that has, knows how: a server's only connects, for
    its words cost money. Any other speaks a word to nobody.
    """
    for layer in layers(engine):
        if prewarm := getattr(layer, "prewarm", None):
            await prewarm()
            return
    async with aclosing(engine.stream(SynthesisRequest("Hello.", voice=voice))) as chunks:
        async for _ in chunks:
            pass
