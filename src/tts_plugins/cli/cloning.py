"""``tts-plugins clone`` and ``forget``: give an engine a voice of one's own, and take it away."""

from __future__ import annotations

import asyncio
import inspect
import shlex
from contextlib import aclosing, suppress
from importlib.metadata import entry_points
from typing import Annotated

import typer

from tts_plugins.cli.telling import tell, warnings_as_lines
from tts_plugins.engine import Engine, VoiceCloner, cloner
from tts_plugins.errors import InvalidRequestError
from tts_plugins.registry import (
    DIALECTS,
    ENGINES,
    check_spec,
    engine_names,
    find_engine,
    open_engine,
)

_Name = Annotated[str, typer.Argument(help="What the voice is called.")]
_Engine = Annotated[str, typer.Option(help="An engine's name, or the address of a server.")]


def clone(
    name: _Name,
    clip: Annotated[
        str,
        typer.Argument(
            help="A recording of the voice, 5 to 15 seconds: WAV, MP3, FLAC, Ogg Opus or AAC. For "
            "kokoro, a style file or a blend such as 'af_bella(2)+af_sky(1)'."
        ),
    ],
    engine: _Engine,
    transcript: Annotated[
        str, typer.Option(help="What is said in it, for engines that need to know.")
    ] = "",
) -> None:
    """Have an engine learn a voice from a recording, and keep it.

    Of a name that it knows it is learnt anew. The recording itself isn't kept by engines on this
    machine; a server may.
    """

    async def learnt() -> str:
        async with aclosing(open_engine(engine)) as opened:
            learner = _cloner(opened, engine)
            voice = await learner.clone(name, clip, transcript=transcript)
            called = getattr(learner, "called", str)
            return str(called(voice.id))

    _check_can(engine)
    with warnings_as_lines() as warned:
        voice = asyncio.run(learnt())
    typer.echo(voice)
    if not warned:  # such as that it can't be kept
        words = ["tts-plugins", "say", "Hello.", "--engine", engine, "--voice", voice]
        tell(f"it is kept; hear it with {shlex.join(words)}")


def forget(name: _Name, engine: _Engine) -> None:
    """Have an engine forget a voice that it learnt from a recording."""

    async def forgotten() -> None:
        async with aclosing(open_engine(engine)) as opened:
            unlearn = getattr(_cloner(opened, engine), "forget", None)
            if unlearn is None:
                raise InvalidRequestError(f"{engine} has no way to forget a voice: delete it there")
            await unlearn(name)

    _check_can(engine)
    with warnings_as_lines():
        asyncio.run(forgotten())
    tell(f"{name} is forgotten")


def _check_can(spec: str) -> None:
    """Refuse, before it is loaded, an engine that can't learn voices."""
    check_spec(spec)
    name = spec.partition("?")[0]
    if name in engine_names():
        factory = find_engine(name).load()
        if inspect.isclass(factory) and not hasattr(factory, "clone"):
            raise _no_cloner(spec)


def _cloner(opened: Engine, called: str) -> VoiceCloner:
    found = cloner(opened)
    if found is None:
        raise _no_cloner(called)
    return found


def _no_cloner(called: str) -> InvalidRequestError:
    return InvalidRequestError(f"{called} can't clone voices; these can: {_cloners()}")


def _cloners() -> str:
    """The engines that can, and how to spell the servers that can."""
    found = []
    for group, suffix, method in ((ENGINES, "", "clone"), (DIALECTS, "+http://...", "write_clone")):
        for point in sorted(entry_points(group=group), key=lambda point: point.name):
            with suppress(Exception):  # a stranger's module runs here
                if callable(getattr(point.load(), method, None)):
                    found.append(point.name + suffix)
    return ", ".join(found)
