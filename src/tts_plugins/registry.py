"""Find an engine by name.

    open_engine("hibari")                       in this process
    open_engine("hibari", workers=2)            with options of the scheduler that shares it
    open_engine("tone", frequency=220)          with options of its own

Engines are entry points, ours like everybody else's, so another package adds one by naming it
in its pyproject.toml. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tts_plugins.engine import Engine
from tts_plugins.errors import EngineNotFoundError, InvalidRequestError
from tts_plugins.scheduler import Scheduler

ENGINES = "tts_plugins.engines"
"""The entry point group in which packages name their engines."""

_SCHEDULING = frozenset(inspect.signature(Scheduler).parameters) - {"engine", "clock"}


def open_engine(spec: str, **options: Any) -> Engine:
    """Open the engine that ``spec`` names. It loads here, which may take a second.

    Args:
        spec: An engine's name.
        **options: What the engine itself takes, such as ``voice`` or ``model``, and for one that
            runs in this process what Scheduler takes, such as ``workers``.

    Raises:
        EngineNotFoundError: If no installed package provides it.
        MissingDependencyError: If it needs a package that isn't installed.
        InvalidRequestError: If it has no such option.
    """
    factory = find_engine(spec).load()
    scheduling = {name: options.pop(name) for name in _SCHEDULING & options.keys()}
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        known = [*inspect.signature(factory).parameters, *sorted(_SCHEDULING)]
        raise InvalidRequestError(f"{spec}: {error}; options: {', '.join(known)}") from None
    engine = factory(**options)
    if inspect.isasyncgenfunction(getattr(engine, "stream", None)):
        return engine  # type: ignore[no-any-return]  # a stranger's class, by its entry point
    return Scheduler(engine, **scheduling)


def engine_names() -> list[str]:
    """The names that open_engine knows, installed or merely installable."""
    return sorted({point.name for point in entry_points(group=ENGINES)})


def find_engine(name: str) -> EntryPoint:
    """Where the engine of that name comes from."""
    points = {point.name: point for point in entry_points(group=ENGINES)}
    try:
        return points[name]
    except KeyError:
        raise EngineNotFoundError(name, points) from None
