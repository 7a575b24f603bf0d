"""What the file beside a voice says of it: its rate, its letters, its speakers, its language."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts_plugins.errors import EngineError

_BEGIN, _END, _PAD = "^", "$", "_"
_KINDS = ("espeak", "text")
_DEFAULTS = {"noise_scale": 0.667, "length_scale": 1.0, "noise_w": 0.8}


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
        raise _WrongError(f"phoneme_type {kind!r} isn't supported, only {' and '.join(_KINDS)}")
    espeak = _dict(fields, "espeak").get("voice") or ""
    if kind == "espeak" and not (espeak and isinstance(espeak, str)):
        raise _WrongError("it lacks espeak.voice")
    inference = _DEFAULTS | {
        name: value
        for name, value in _dict(fields, "inference").items()
        if name in _DEFAULTS and value is not None
    }
    return Config(
        sample_rate=_rate(_dict(fields, "audio").get("sample_rate")),
        kind=kind,
        espeak_voice=espeak if kind == "espeak" else "",
        language=_language(_dict(fields, "language").get("code"), espeak),
        ids=_ids(fields.get("phoneme_id_map")),
        respelt=_respelt(_dict(fields, "phoneme_map")),
        speakers=_speakers(fields),
        noise=_amount("noise_scale", inference),
        length=_amount("length_scale", inference) or 1.0,
        noise_w=_amount("noise_w", inference),
    )


def _dict(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = fields.get(name)
    return found if isinstance(found, dict) else {}


def _rate(rate: Any) -> int:
    if not isinstance(rate, int) or isinstance(rate, bool) or not 1_000 <= rate <= 192_000:
        raise _WrongError(f"audio.sample_rate is {rate!r}")
    return rate


def _ids(table: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(table, dict) or not table:
        raise _WrongError("it lacks phoneme_id_map")
    ids: dict[str, tuple[int, ...]] = {}
    for phoneme, given in table.items():
        numbers = given if isinstance(given, list) else [given]
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
            raise _WrongError(f"phoneme_id_map has {given!r} for {phoneme!r}")
        ids[unicodedata.normalize("NFD", phoneme) if len(phoneme) > 1 else phoneme] = tuple(numbers)
    return ids


def _respelt(table: Mapping[str, Any]) -> dict[str, str]:
    return {
        phoneme: "".join(parts)
        for phoneme, parts in table.items()
        if isinstance(parts, list | str) and all(isinstance(part, str) for part in parts)
    }


def _speakers(fields: Mapping[str, Any]) -> dict[str, int]:
    count = fields.get("num_speakers") or 1
    if not isinstance(count, int) or isinstance(count, bool):
        raise _WrongError(f"num_speakers is {count!r}")
    named = _dict(fields, "speaker_id_map")
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in named.values()):
        raise _WrongError("speaker_id_map has speakers without a number")
    if count <= 1:
        return {}
    return dict(sorted(named.items(), key=lambda each: int(each[1]))) or {
        str(n): n for n in range(count)
    }


def _amount(name: str, fields: Mapping[str, Any]) -> float:
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _WrongError(f"inference.{name} is {value!r}")
    return float(value)


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
