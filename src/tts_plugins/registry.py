"""Find an engine by name or by address.

    open_engine("hibari")                                 in this process
    open_engine("hibari", workers=2)                      with options of the scheduler it shares
    open_engine("tone", frequency=220)                    with options of its own
    open_engine("tone?frequency=220&workers=2")           the same in one word
    open_engine("http://localhost:8080")                  on a server of ours
    open_engine("unix:///run/tts.sock?model=tone")        the same, with options
    open_engine("openai+http://localhost:8880")           on any other, in its dialect
    open_engine("kokoro+http://localhost:8880?voice=af_heart")
    open_engine("elevenlabs+https://api.elevenlabs.io", voice="...", api_key="...")
    open_engine("fallback:elevenlabs+https://api.elevenlabs.io,hibari")

Engines and dialects are entry points, ours like everybody else's, so another package adds one by
naming it in its pyproject.toml. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, urlsplit

from tts_plugins.engine import Engine
from tts_plugins.errors import EngineNotFoundError, InvalidRequestError
from tts_plugins.scheduler import Scheduler

ENGINES = "tts_plugins.engines"
"""The entry point group in which packages name their engines."""

DIALECTS = "tts_plugins.dialects"
"""The entry point group in which packages name the ways to speak to a server."""

_FALLBACK = "fallback:"
_OURS = "native"
_INTERNAL = frozenset({"clock", "engines", "name"})
_GIVEN = frozenset({"clock", "dialect", "engine", "url"})
"""What nobody chooses by an option."""
_SCHEDULING = frozenset(inspect.signature(Scheduler).parameters) - {"engine", "clock"}


def open_engine(spec: str, **options: Any) -> Engine:
    """Open the engine that ``spec`` names. One in this process loads here, which may take a second.

    Args:
        spec: An engine's name; or the address of a server of ours, or ``dialect+address`` of any
            other; or ``fallback:`` and several of these with commas between. Behind a name or an
            address its options may stand as ``?name=value&...``, a plus as it is, a space as
            ``%20`` and a comma as ``%2C``.
        **options: What the engine itself takes, such as ``voice`` or ``model``. Also, for one in
            this process, what Scheduler takes, such as ``workers``; for a server, what RemoteEngine
            takes, and ``api_key_env``, the environment variable that holds the key. The key for a
            vendor's own service is looked for in the variable that the vendor's tools use.

    Raises:
        EngineNotFoundError: If no installed package provides it.
        MissingDependencyError: If it needs a package that isn't installed.
        InvalidRequestError: If it has no such option, or the address can't be one.
    """
    if _is_address(spec):
        options.pop("max_ahead", None)  # a server decides for itself how far ahead it is
        return _open_remote(spec, options)
    name, _, query = spec.partition("?")
    if not spec.startswith(_FALLBACK):
        factory = find_engine(name).load()
        options = _from_query(query, [Scheduler, factory]) | options
    scheduling = {name: options.pop(name) for name in _SCHEDULING & options.keys()}
    if spec.startswith(_FALLBACK):
        from tts_plugins.fallback import FallbackEngine  # here, since it loads soxr

        engines = [
            _open_remote(each, {}) if _is_address(each) else open_engine(each, **scheduling)
            for each in _members(spec)
        ]
        fallback: Engine = _made(FallbackEngine, spec, {"engines": engines, **options})
        return fallback
    engine = _made(factory, name, options, also=_SCHEDULING)
    _give_back_memory()
    if inspect.isasyncgenfunction(getattr(engine, "stream", None)):
        return engine  # type: ignore[no-any-return]  # a stranger's class, by its entry point
    # An engine that speaks for several at once says for how many.
    scheduling.setdefault("workers", getattr(engine, "workers", 1))
    return Scheduler(engine, **scheduling)


def check_spec(spec: str) -> None:
    """Whether open_engine knows what ``spec`` means, without loading anything large.

    Raises:
        TTSError: As open_engine does.
    """
    if spec.startswith(_FALLBACK):
        for each in _members(spec):
            check_spec(each)
    elif _is_address(spec):
        _open_remote(spec, {})
    else:
        find_engine(spec.partition("?")[0])


def engine_names() -> list[str]:
    """The names that open_engine knows, installed or merely installable."""
    return sorted({point.name for point in entry_points(group=ENGINES)})


def dialect_names() -> list[str]:
    """The dialects that open_engine can speak to a server."""
    return sorted({point.name for point in entry_points(group=DIALECTS)})


def find_engine(name: str) -> EntryPoint:
    """Where the engine of that name comes from."""
    return _find(ENGINES, name)


def _is_address(spec: str) -> bool:
    return "://" in spec.partition("?")[0] and not spec.startswith(_FALLBACK)


def _from_query(query: str, takers: Iterable[Any]) -> dict[str, Any]:
    """Options as they stand behind a ``?``, typed as one of ``takers`` takes them."""
    kinds: dict[str, Any] = {}
    for taker in takers if query else ():
        hints = get_type_hints(taker.__init__ if inspect.isclass(taker) else taker)
        kinds |= {name: hints[name] for name in hints.keys() - _GIVEN}
    # A plus is one, as in Kokoro's blend of voices af_bella+af_sky; a space is %20.
    pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
    return {key: _typed(key, value, kinds) for key, value in pairs}


def _members(spec: str) -> list[str]:
    members = [each.strip() for each in spec.removeprefix(_FALLBACK).split(",")]
    if not all(members):
        raise InvalidRequestError(f"{spec!r}: say which engines, with commas between them")
    return members


def _find(group: str, name: str) -> EntryPoint:
    points = {point.name: point for point in entry_points(group=group)}
    try:
        return points[name]
    except KeyError:
        if group == ENGINES and {"+", ":"} & {*name}:
            raise InvalidRequestError(
                f"{name!r} lacks a scheme: http://, https:// or unix:///"
            ) from None
        raise EngineNotFoundError(name, points) from None


def _open_remote(spec: str, options: Mapping[str, Any]) -> Engine:
    name, plus, address = spec.partition("+")
    if not plus or "://" in name:
        name, address = _OURS, spec
    name = name.lower()
    dialect_class = _find(DIALECTS, name).load()
    from tts_plugins.remote import RemoteEngine  # here, since it needs an extra

    url, _, query = address.partition("?")
    called = url if address is spec else f"{name}+{url}"
    host = _host(url)
    cloud = getattr(dialect_class, "cloud", None)
    if cloud and host == cloud.home:
        dialect_class = cloud
    connecting = inspect.signature(RemoteEngine).parameters.keys() - {"dialect", "url"}
    given = _from_query(query, [RemoteEngine, dialect_class]) | dict(options)
    at_home = bool(dialect_class.home) and host == dialect_class.home
    key = _key(dialect_class, given, at_home=at_home and url.startswith("https://"))
    theirs = {name: given.pop(name) for name in connecting & given.keys()}
    dialect = _made(dialect_class, f"{name}+", given, also=[*connecting, "api_key_env"])
    return RemoteEngine(dialect, url, **{"api_key": key, "name": called} | theirs)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError as error:
        raise InvalidRequestError(f"that is no address: {error}") from None


def _key(dialect: Any, options: dict[str, Any], *, at_home: bool) -> str | None:
    """The key from the environment. A vendor's is sent to that vendor only, and encrypted."""
    variable = options.pop("api_key_env", dialect.key_variable if at_home else None)
    if options.get("api_key") or variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise InvalidRequestError(f"there is no key: set {variable}, or pass api_key=")
    return key


def _typed(name: str, value: str, kinds: Mapping[str, Any]) -> Any:
    """An option's value as it stands in an address."""
    if name == "api_key":
        raise InvalidRequestError("a key doesn't belong in an address: use api_key_env or api_key=")
    kind = kinds.get(name, str)
    union = get_origin(kind) in (Union, UnionType)
    origins = [get_origin(each) or each for each in (get_args(kind) if union else (kind,))]
    classes = tuple(each for each in origins if isinstance(each, type))
    if value and (str in classes or not classes):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        found = ...
    if not isinstance(found, (*classes, int) if float in classes else classes):
        raise InvalidRequestError(f"{name}={value} is not a value for it")
    return found


def _give_back_memory() -> None:
    """Have the system take what a model needed only to load. glibc would keep that for later: 50 MB
    behind hibari, 120 behind a Piper voice. With nothing to give it takes half a millisecond.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library; Windows
        ctypes.CDLL(None).malloc_trim(0)


def _made(
    factory: Callable[..., Any], spec: str, options: Mapping[str, Any], also: Any = ()
) -> Any:
    """What the factory makes of the options, if it has such."""
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        names = [*inspect.signature(factory).parameters, *sorted(also)]
        known = [name for name in names if name not in _INTERNAL]
        raise InvalidRequestError(f"{spec}: {error}; options: {', '.join(known)}") from None
    return factory(**options)
