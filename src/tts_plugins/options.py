"""What a request may ask of an engine, and within which bounds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tts_plugins.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a number may be."""

    low: float
    high: float = math.inf
    whole: bool = False
    """Whether it is an int."""

    def allow(self, value: object) -> bool:
        kinds = (int,) if self.whole else (int, float)
        return (
            isinstance(value, kinds)
            and not isinstance(value, bool)
            and self.low <= value <= self.high
        )

    def __str__(self) -> str:
        kind = "an int" if self.whole else "a number"
        return f"{kind} from {self.low:g} {'up' if self.high == math.inf else f'to {self.high:g}'}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """What a word may be, one by one."""

    values: Collection[str]

    def allow(self, value: object) -> bool:
        return isinstance(value, str) and value in self.values

    def __str__(self) -> str:
        return f"one of {', '.join(self.values)}"


Table = Mapping[str, Bounds | OneOf]
"""The options that an engine has."""

SEED = Bounds(0, whole=True)
"""Of what makes the audio of an engine repeatable."""


class Options:
    """The options of a request that were given, all of which there are and may be so.

    Args:
        engine: The name of what takes them.
        given: As they stand in the request; None is as good as none.
        table: Those that there are.

    Raises:
        InvalidRequestError: There is no such option, or it can't be so.
    """

    def __init__(self, engine: str, given: Mapping[str, object], table: Table) -> None:
        if unknown := sorted(set(given) - set(table)):
            has = f"it has: {', '.join(table)}" if table else "it has none"
            raise InvalidRequestError(f"{engine} has no option {', '.join(unknown)}; {has}")
        self.given = {name: value for name, value in given.items() if value is not None}
        for name, value in self.given.items():
            if not table[name].allow(value):
                raise InvalidRequestError(f"the option {name} is {table[name]}, not {value!r}")

    def number(self, name: str, default: float) -> float:
        """One with bounds."""
        value = self.given.get(name, default)
        assert isinstance(value, int | float)  # as was checked
        return float(value)

    def whole(self, name: str, default: int | None = None) -> int | None:
        """One that is an int."""
        value = self.given.get(name, default)
        assert value is None or isinstance(value, int)
        return value

    def word(self, name: str) -> str | None:
        """One of several words."""
        value = self.given.get(name)
        assert value is None or isinstance(value, str)
        return value


def check_speed(speed: float, slowest: float, fastest: float) -> None:
    """Look whether an engine can speak at this pace.

    Raises:
        InvalidRequestError: It can't.
    """
    if not slowest <= speed <= fastest:
        raise InvalidRequestError(f"speed {speed} is outside {slowest} to {fastest}")


def primary(language: str) -> str:
    """The language of a tag without its region and script: ``en`` of ``en_US``."""
    return language.replace("_", "-").partition("-")[0].lower()
