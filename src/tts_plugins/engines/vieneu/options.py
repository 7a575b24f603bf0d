"""What a request may ask of VieNeu, and within which bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tts_plugins.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an option may be."""

    low: float
    high: float
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
        return f"{'an int' if self.whole else 'a number'} from {self.low:g} to {self.high:g}"


Table = Mapping[str, Bounds]

TURBO: Table = {
    "temperature": Bounds(0, 2),
    "top_k": Bounds(0, 1024, whole=True),
    "top_p": Bounds(0.01, 1),
    "repetition_penalty": Bounds(1, 2),
    "max_chars": Bounds(40, 512, whole=True),
}
"""As ``V3TurboVieNeuTTS.infer_stream`` calls them (vieneu 3.8.3). A temperature of 0 always takes
what is likeliest, a ``top_k`` of 0 and a ``top_p`` of 1 leave everything to choose from."""

NANO: Table = {
    "steps": Bounds(1, 64, whole=True),
    "cfg": Bounds(0, 10),
    "sway": Bounds(-1, 1),
    "max_chars": Bounds(40, 256, whole=True),
}
"""As ``V3NanoVieNeuTTS.infer_stream`` calls them: half the steps take half the time."""


def checked(given: Mapping[str, object], table: Table) -> dict[str, object]:
    """The options, all of which there are and may be so.

    Raises:
        InvalidRequestError: One of them isn't. The SDK itself would pass over it.
    """
    if unknown := sorted(set(given) - set(table)):
        raise InvalidRequestError(
            f"vieneu has no option {', '.join(unknown)}; it has: {', '.join(table)}"
        )
    for name, value in given.items():
        if not table[name].allow(value):
            raise InvalidRequestError(f"the option {name} is {table[name]}, not {value!r}")
    return dict(given)
