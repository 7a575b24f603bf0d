"""Kokoro's voices are arrays of styles: read from files, and blended.

A voice has a style of 256 numbers for each length of what is said, up to 510 tokens. All voices lie
in one space, so that a weighted mean of two is a voice as well. Its name tells two things::

    a f _heart      language: a, b, e, f, h, i, j, p or z; gender: f or m
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tts_plugins.engines.kokoro.model import STYLE
from tts_plugins.errors import EngineError, InvalidRequestError

Styles = NDArray[np.float32]
"""A voice: [n, 256], a style for each number of tokens from 1 on."""

_MOST = 100.0
"""Greater numbers are in no style; theirs are below 3."""

_SIGNED = re.compile(r"([+-])")
_PART = re.compile(r"(?P<name>[^()]+)(?:\((?P<weight>[0-9]*\.?[0-9]+)\))?")
_SUFFIXES = (".npz", ".npy", ".bin")


class NoStyleError(ValueError):
    """These bytes aren't a voice."""


@dataclass(frozen=True, slots=True)
class Part:
    """A voice in a blend."""

    name: str
    weight: float
    """Its share; negative for one that is taken away."""


def language_letter(voice: str) -> str | None:
    """Kokoro's letter for the language of a voice, by its name."""
    found = re.match(r"([abefhijpz])[fm]_", voice)
    return found[1] if found else None


def gender(voice: str) -> str:
    if language_letter(voice) is None:
        return ""
    return "female" if voice[1] == "f" else "male"


def parse_blend(expression: str) -> list[Part]:
    """The parts of ``af_bella(2)+af_sky(1)``, as Kokoro-FastAPI understands it.

    Weights, 1 where there is none, are divided by their sum, that of a voice which is taken away
    with ``-`` counted like any other. Spaces mean nothing.

    Raises:
        InvalidRequestError: It can't be read.
    """
    first, *rest = _SIGNED.split("".join(expression.split()))
    signed = [("+", first), *zip(rest[::2], rest[1::2], strict=True)]
    parts = []
    for sign, written in signed:
        found = _PART.fullmatch(written)
        if found is None:
            raise _unreadable(expression, f"{written!r} isn't a voice with a weight")
        weight = float(found["weight"] or 1)
        if not 0 < weight < float("inf"):
            raise _unreadable(expression, "a weight is greater than 0")
        parts.append((found["name"], weight if sign == "+" else -weight))
    total = sum(abs(weight) for _, weight in parts)
    return [Part(name, weight / total) for name, weight in parts]


def blend(parts: list[tuple[Styles, float]]) -> Styles:
    """The weighted sum of voices, as long as the shortest of them."""
    rows = min(len(styles) for styles, _ in parts)
    mixed = np.zeros((rows, STYLE), np.float32)
    for styles, weight in parts:
        mixed += np.float32(weight) * styles[:rows]
    return mixed


def style_for(styles: Styles, tokens: int) -> NDArray[np.float32]:
    """The style in which so many tokens are said."""
    row: NDArray[np.float32] = styles[min(max(tokens, 1), len(styles)) - 1]
    return row


def read_styles(content: bytes) -> dict[str, Styles]:
    """All voices in the bytes of a file, by name; the name is empty where the file has none.

    Raises:
        NoStyleError: There is none, or something else as well.
    """
    if content.startswith(b"PK"):
        return _read_npz(content)
    if content.startswith(b"\x93NUMPY"):
        try:
            array = np.load(io.BytesIO(content), allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise NoStyleError("the array can't be read") from error
        return {"": _styles(array)}
    if not content or len(content) % (STYLE * 4):
        raise NoStyleError(f"{len(content)} bytes aren't styles of {STYLE} numbers")
    return {"": _styles(np.frombuffer(content, "<f4").reshape(-1, STYLE))}


def _read_npz(content: bytes) -> dict[str, Styles]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            found = {name: _styles(arrays[name]) for name in arrays.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        if isinstance(error, NoStyleError):
            raise
        raise NoStyleError("the arrays can't be read") from error
    if not found:
        raise NoStyleError("it is empty")
    return found


def _styles(array: NDArray[np.generic]) -> Styles:
    shape = array.shape
    if len(shape) == 3 and shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.shape[1] != STYLE or not len(array):
        raise NoStyleError(f"an array of shape {list(shape)} instead of [510, 1, {STYLE}]")
    if not np.issubdtype(array.dtype, np.floating):
        raise NoStyleError(f"an array of {array.dtype} instead of float32")
    styles = array.astype(np.float32)
    # Also false for what is no number.
    if not bool((np.abs(styles) < _MOST).all()):
        raise NoStyleError("its numbers are none of a style")
    return styles


class VoiceFiles:
    """The voices in a file or a folder. Those of a folder are read when they are first asked for.

    Args:
        path: An ``.npz`` (kokoro-onnx calls it ``.bin``) with all voices, or a folder with a
            ``.bin``, ``.npy`` or ``.npz`` for each.

    Raises:
        EngineError: There is no voice in it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._styles: dict[str, Styles] = {}
        self._files: dict[str, Path] = {}
        if path.is_dir():
            self._files = {f.stem: f for f in sorted(path.iterdir()) if f.suffix in _SUFFIXES}
            if not self._files:
                raise _no_voices(path, "the folder has no .bin, .npy or .npz in it")
            return
        read = _read(path)
        self._styles = {name or path.stem: styles for name, styles in read.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._files or self._styles)

    def __contains__(self, name: str) -> bool:
        return name in self._files or name in self._styles

    def get(self, name: str) -> Styles:
        """The styles of a voice that is there.

        Raises:
            EngineError: Its file can't be read.
        """
        if name not in self._styles:
            read = list(_read(self._files[name]).values())
            if len(read) > 1:
                raise _no_voices(self._files[name], "it holds several; give it as voices=")
            self._styles[name] = read[0]
        return self._styles[name]


def _read(path: Path) -> dict[str, Styles]:
    try:
        return read_styles(path.read_bytes())
    except OSError as error:
        raise _no_voices(path, error.strerror or str(error)) from error
    except NoStyleError as error:
        raise _no_voices(path, str(error)) from error


def _no_voices(path: Path, reason: str) -> EngineError:
    return EngineError(
        f"can't read Kokoro's voices from {path}: {reason}; give the path of a voices-v1.0.bin, "
        "an .npz, or a folder of .bin files"
    )


def _unreadable(expression: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"can't read the blend {expression!r}: {reason}; write such as 'af_bella(2)+af_sky(1)'",
        field="voice",
    )
