"""``tts-plugins clone`` and ``forget``: give an engine a voice of one's own, and take it away."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import aclosing, suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from tts_plugins.cli.telling import tell, warnings_as_lines
from tts_plugins.engine import Engine, VoiceCloner, cloner
from tts_plugins.errors import InvalidRequestError
from tts_plugins.registry import DIALECTS, ENGINES, check_spec, open_engine

_Name = Annotated[str, typer.Argument(help="What the voice is called.")]
_Engine = Annotated[str, typer.Option(help="An engine's name, or the address of a server.")]


def clone(
    name: _Name,
    clip: Annotated[
        Path,
        typer.Argument(
            help="A recording of the voice, 5 to 15 seconds: WAV, MP3, FLAC, Ogg Opus or AAC.",
            exists=True,
            dir_okay=False,
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

    check_spec(engine)
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

    check_spec(engine)
    asyncio.run(forgotten())
    tell(f"{name} is forgotten")


def _cloner(opened: Engine, called: str) -> VoiceCloner:
    found = cloner(opened)
    if found is None:
        raise InvalidRequestError(f"{called} can't clone voices; these can: {_cloners()}")
    return found


def _cloners() -> str:
    """The engines that can, and how to spell the servers that can."""
    found = []
    for group, suffix, method in ((ENGINES, "", "clone"), (DIALECTS, "+http://...", "write_clone")):
        for point in sorted(entry_points(group=group), key=lambda point: point.name):
            with suppress(Exception):  # a stranger's module runs here
                if callable(getattr(point.load(), method, None)):
                    found.append(point.name + suffix)
    return ", ".join(found)
