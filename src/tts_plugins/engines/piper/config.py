"""What the file beside a voice says of it: its rate, its letters, its speakers, its language."""

from __future__ import annotations

import json
import reprlib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts_plugins.errors import EngineError
from tts_plugins.options import Bounds

_BEGIN, _END, _PAD = "^", "$", "_"
_KINDS = ("espeak", "text")
_DEFAULTS = {"noise_scale": 0.667, "length_scale": 1.0, "noise_w": 0.8}
SCALES = {
    "length_scale": Bounds(0.25, 4.0),
    "noise_scale": Bounds(0.0, 2.0),
    "noise_w": Bounds(0.0, 2.0),
}
"""How a voice may be spoken, whether its file or a request says so."""

_RATE = Bounds(1_000, 192_000, whole=True)
_COUNT = Bounds(0, 10_000, whole=True)
"""Of speakers: the voices with most have a thousand."""
_NUMBER = Bounds(0, 9_999, whole=True)
"""Of a speaker."""
_ID = Bounds(0, 65_535, whole=True)
"""Of a phoneme: voices have 256 at most, but for those of languages with syllables as letters."""
_MOST = 4
"""Ids of a phoneme, and phonemes that stand for one: mostly there is one. The network's memory
grows with the square of all ids of a sentence."""


@dataclass(frozen=True, slots=True)
class Config:
    """A voice's ``.onnx.json``."""

    sample_rate: int
    kind: str
    """``espeak``: its letters are those of espeak-ng; ``text``: they are the text's own."""
    espeak_voice: str
    """Which of espeak-ng's voices it was taught with; empty for a voice that reads letters."""
    language: str
    """BCP 47 tag."""
    ids: Mapping[str, tuple[int, ...]]
    """For each phoneme."""
    respelt: Mapping[str, str]
    """Phonemes that stand for another one."""
    speakers: Mapping[str, int]
    """Numbers of the speakers by name; empty if there is but one."""
    noise: float
    length: float
    noise_w: float

    def to_ids(self, phonemes: str) -> tuple[list[int], list[int], set[str]]:
        """The network's ids, and where those of each phoneme begin.

        Returns:
            The ids: a beginning, each phoneme's with a pad behind, and an end. For each phoneme,
            and the end, the number of ids before it. And phonemes that the voice doesn't have.
        """
        pad = self.ids.get(_PAD, ())
        ids = [*self.ids.get(_BEGIN, ()), *pad]
        places: list[int] = []
        unknown: set[str] = set()
        for phoneme in phonemes:
            places.append(len(ids))
            for part in self.respelt.get(phoneme, phoneme):
                known = self.ids.get(part)
                if known is None:
                    unknown.add(part)
                else:
                    ids += [*known, *pad]
        places.append(len(ids))
        return [*ids, *self.ids.get(_END, ())], places, unknown


def config_path(model: Path) -> Path | None:
    """The file that belongs to a model: ``voice.onnx.json``, or else ``voice.json``."""
    for path in (model.with_name(model.name + ".json"), model.with_suffix(".json")):
        if path.is_file():
            return path
    return None


def read_config(model: Path) -> Config:
    """What the file beside a model says.

    Raises:
        EngineError: It isn't there, can't be read, or lacks something; the message says what.
    """
    path = config_path(model)
    if path is None:
        raise EngineError(
            f"there is no {model.name}.json beside {model}; "
            "get it from where the voice comes from: it holds the voice's letters"
        )
    try:
        fields = json.loads(path.read_bytes())
    except OSError as error:
        raise EngineError(f"can't read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise _bad(path, "it is no JSON") from error
    try:
        return _parse(fields)
    except _WrongError as error:
        raise _bad(path, str(error)) from None


class _WrongError(Exception):
    """A field isn't what it should be."""


def _parse(fields: Any) -> Config:
    if not isinstance(fields, dict):
        raise _WrongError("it is no object")
    kind = str(fields.get("phoneme_type") or "espeak").lower()
    if kind not in _KINDS:
        raise _WrongError(
            f"phoneme_type {_short(kind)} isn't supported, only {' and '.join(_KINDS)}"
        )
    espeak = _dict(fields, "espeak").get("voice") or ""
    if kind == "espeak" and not (espeak and isinstance(espeak, str)):
        raise _WrongError("it lacks espeak.voice")
    inference = _dict(fields, "inference")
    return Config(
        sample_rate=_rate(_dict(fields, "audio").get("sample_rate")),
        kind=kind,
        espeak_voice=espeak if kind == "espeak" else "",
        language=_language(_dict(fields, "language").get("code"), espeak),
        ids=_ids(fields.get("phoneme_id_map")),
        respelt=_respelt(_dict(fields, "phoneme_map")),
        speakers=_speakers(fields),
        noise=_scale("noise_scale", inference),
        length=_scale("length_scale", inference),
        noise_w=_scale("noise_w", inference),
    )


def _dict(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = fields.get(name)
    return found if isinstance(found, dict) else {}


def _rate(rate: Any) -> int:
    return int(_checked("audio.sample_rate", rate, _RATE))


def _ids(table: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(table, dict) or not table:
        raise _WrongError("it lacks phoneme_id_map")
    ids: dict[str, tuple[int, ...]] = {}
    for phoneme, given in table.items():
        numbers = given if isinstance(given, list) else [given]
        if len(numbers) > _MOST or not all(map(_ID.allow, numbers)):
            raise _WrongError(
                f"phoneme_id_map has {_short(given)} for {_short(phoneme)}, not {_ID}, "
                f"or {_MOST} of these at most"
            )
        ids[unicodedata.normalize("NFD", phoneme) if len(phoneme) > 1 else phoneme] = tuple(numbers)
    return ids


def _respelt(table: Mapping[str, Any]) -> dict[str, str]:
    respelt = {
        phoneme: "".join(parts)
        for phoneme, parts in table.items()
        if isinstance(parts, list | str) and all(isinstance(part, str) for part in parts)
    }
    for phoneme, parts in respelt.items():
        if len(parts) > _MOST:
            raise _WrongError(
                f"phoneme_map has {_short(parts)} for {_short(phoneme)}, not {_MOST} at most"
            )
    return respelt


def _speakers(fields: Mapping[str, Any]) -> dict[str, int]:
    count = int(_checked("num_speakers", fields.get("num_speakers") or 1, _COUNT))
    named = _dict(fields, "speaker_id_map")
    for name, number in named.items():
        _checked(f"speaker_id_map has a speaker {_short(name)} that", number, _NUMBER)
    if count <= 1:
        return {}
    return dict(sorted(named.items(), key=lambda each: int(each[1]))) or {
        str(n): n for n in range(count)
    }


def _scale(name: str, fields: Mapping[str, Any]) -> float:
    value = fields.get(name)
    if value is None:
        return _DEFAULTS[name]
    return _checked(f"inference.{name}", value, SCALES[name])


def _checked(name: str, value: Any, bounds: Bounds) -> float:
    if not bounds.allow(value):
        raise _WrongError(f"{name} is {_short(value)}, not {bounds}")
    return float(value)


def _short(value: Any) -> str:
    """As it stands there, but in a line, however long it is."""
    return reprlib.repr(value)


def _language(code: Any, espeak: str) -> str:
    """``en_US``, or else espeak-ng's ``en-us``, as BCP 47 has it."""
    parts = str(code or espeak or "und").replace("_", "-").split("-")
    tag = [parts[0].lower()]
    for part in parts[1:]:
        if len(part) == 1 or "x" in tag:
            tag.append(part.lower())
        else:
            tag.append(part.upper() if len(part) == 2 else part.title())
    return "-".join(tag)


def _bad(path: Path, reason: str) -> EngineError:
    return EngineError(
        f"{path} doesn't describe a voice of Piper: {reason}; get it anew from where the voice "
        "comes from"
    )
