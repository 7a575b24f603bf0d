"""What is said about a command's work, on standard error: a line for each thing."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from tts_plugins.errors import UnreadableTextWarning


def tell(message: str) -> None:
    typer.echo(" ".join(message.split()), err=True)


@contextmanager
def warnings_as_lines() -> Iterator[set[str]]:
    """What the package warns of and logs, one line each and none of them twice.

    Yields:
        The lines so far.
    """
    told: set[str] = set()

    def warn(message: str) -> None:
        if message not in told:
            told.add(message)
            tell(f"warning: {message}")

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warn(record.getMessage())

    logger = logging.getLogger("tts_plugins")
    handler = Handler(logging.WARNING)
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            standard = warnings.showwarning

            def show(
                message: Warning | str, category: type[Warning], *where: Any, **more: Any
            ) -> None:
                if issubclass(category, UnreadableTextWarning):
                    warn(str(message))
                else:
                    standard(message, category, *where, **more)

            warnings.showwarning = show
            warnings.simplefilter("default", UnreadableTextWarning)
            yield told
    finally:
        logger.removeHandler(handler)
