"""The commands, their options, and how each of them ends.

Audio and tables go to standard output, everything said about them to standard error. What goes
wrong is one line and an exit status: 1 when it failed, 2 when the call can't be understood, 130
after Ctrl-C, 141 when whoever was reading left.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tts_plugins.cli.cloning import clone, forget
from tts_plugins.cli.outputs import outputs
from tts_plugins.cli.serving import serve
from tts_plugins.cli.speaking import Speech, speak
from tts_plugins.cli.telling import tell, warnings_as_lines
from tts_plugins.errors import InvalidRequestError, MissingDependencyError, TTSError
from tts_plugins.registry import DIALECTS, ENGINES, check_spec, open_engine
from tts_plugins.testing import checks
from tts_plugins.types import SynthesisRequest, Voice

_USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[1]
"""The class above BadParameter. Older typers import it from click, newer ones carry their own."""

app = typer.Typer(
    help="Any TTS engine, spoken from the command line.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)

_Engine = Annotated[
    str,
    typer.Option(help="An engine's name, or the address of a server; see `tts-plugins engines`."),
]


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status."""
    try:
        status = app(list(arguments) or ["--help"], prog_name="tts-plugins", standalone_mode=False)
    except _USAGE_ERROR as error:
        _fail(error.format_message())
        return 2
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):  # typer makes it an exit with 1
            raise
        _leave_standard_output()
        return 141
    except (TTSError, OSError, ImportError) as error:
        _fail(_described(error))
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return 130
    return int(status or 0)


@app.callback(invoke_without_command=True)
def _options(
    show_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if show_version:
        typer.echo(version("tts-plugins"))
        raise typer.Exit


@app.command()
def say(
    text: Annotated[
        str, typer.Argument(help="What to say; - reads standard input as it arrives.")
    ] = "-",
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", help="A file, or - for standard output (speech.wav)."),
    ] = None,
    play: Annotated[bool, typer.Option("--play", help="Play it while it is spoken.")] = False,
    engine: _Engine = "hibari",
    voice: Annotated[
        str | None, typer.Option(help="A voice's id; see `tts-plugins voices`.")
    ] = None,
    language: Annotated[str | None, typer.Option(help="A BCP 47 tag, such as en-US.")] = None,
    speed: Annotated[float, typer.Option(help="2 is twice as fast.")] = 1.0,
    rate: Annotated[int, typer.Option(help="Sample rate in hertz.")] = 24_000,
    audio_format: Annotated[
        str | None,
        typer.Option("--format", help="wav, or pcm for bare 16-bit samples (by the file's name)."),
    ] = None,
) -> None:
    """Say a text into a file, a pipe, or the room.

    A file appears under its name when it is whole. Until then, and for good if the engine fails
    on the way, what was spoken is in NAME.part.wav. Ctrl-C ends the file there.
    """
    if not 4_000 <= rate <= 192_000:
        raise InvalidRequestError(f"rate {rate} is outside 4000 to 192000")
    if not text.strip() or (text == "-" and sys.stdin is None):
        raise InvalidRequestError("no text to say")
    check_spec(engine)
    if text == "-" and sys.stdin.isatty():
        tell("type what to say; Ctrl-D ends it")
    template = SynthesisRequest("", voice=voice, language=language, speed=speed)
    speech = Speech(rate)
    try:
        with (
            warnings_as_lines(),
            outputs(output, play=play, rate=rate, audio_format=audio_format) as (write, names),
        ):
            asyncio.run(speak(speech, engine, text, template=template, rate=rate, write=write))
    except KeyboardInterrupt:
        tell(f"stopped: {speech.summary()}")
        raise
    tell(f"{speech.summary()}: {', '.join(names)}")


@app.command()
def voices(engine: _Engine = "hibari") -> None:
    """List an engine's voices."""

    async def listed() -> Sequence[Voice]:
        async with aclosing(open_engine(engine)) as opened:
            return await opened.voices()

    _show(
        ("voice", "language", "ready", "description"),
        (
            (v.id, v.language, "ready" if v.ready else "downloads first", v.description)
            for v in asyncio.run(listed())
        ),
    )


@app.command()
def engines() -> None:
    """List the installed engines, and the dialects in which servers can be spoken to."""
    rows = []
    for group, suffix in ((ENGINES, ""), (DIALECTS, "+http://...")):
        for point in sorted(entry_points(group=group), key=lambda point: point.name):
            package = f"{point.dist.name} {point.dist.version}" if point.dist else ""
            try:
                needs = getattr(point.load(), "needs", ())
                if not all(map(find_spec, needs)):
                    raise MissingDependencyError(point.name)  # noqa: TRY301  as others do
            except Exception as error:  # noqa: BLE001  # a stranger's module runs here
                usable = f"no: {_described(error)}"
            else:
                usable = "yes"
            rows.append((point.name + suffix, package, usable))
    _show(("engine", "package", "usable"), rows)


@app.command()
def check(
    engine: Annotated[str, typer.Argument(help="An engine's name or address.")] = "",
    named: Annotated[str, typer.Option("--engine", help="The same.")] = "",
) -> None:
    """Check that an engine keeps the contract."""
    engine = engine or named
    if not engine:
        raise typer.BadParameter("which engine? such as: tts-plugins check hibari")

    async def checked() -> bool:
        passed = True
        async with aclosing(open_engine(engine, max_ahead=math.inf)) as opened:
            async for result in checks(opened):
                typer.echo(str(result))
                passed = passed and result.passed
        return passed

    with warnings_as_lines():
        if not asyncio.run(checked()):
            raise typer.Exit(1)


app.command()(clone)
app.command()(forget)
app.command()(serve)


def _show(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table for people, or lines of tab-separated columns for programs."""
    if sys.stdout is None:
        raise InvalidRequestError("standard output is closed")
    if not sys.stdout.isatty():
        for row in rows:
            typer.echo("\t".join(row))
        return
    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _leave_standard_output() -> None:
    # Or Python would fail once more, when it flushes standard output at the end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _described(error: Exception) -> str:
    what = str(error)
    if isinstance(error, OSError) and error.strerror:
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return "; ".join([what or type(error).__name__, *getattr(error, "__notes__", ())])


def _fail(message: str) -> None:
    tell(f"error: {message}")
