"""Kokoro's voices are arrays of styles: read from files, and blended.

A voice has a style of 256 numbers for each length of what is said, up to 510 tokens. All voices lie
in one space, so that a weighted mean of two is a voice as well. Its name tells two things::

    a f _heart      language: a, b, e, f, h, i, j, p or z; gender: f or m
"""

from __future__ import annotations

import io
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tts_plugins.engines.kokoro.model import STYLE
from tts_plugins.errors import EngineError, InvalidRequestError

Styles = NDArray[np.float32]
"""A voice: [n, 256], a style for each number of tokens from 1 on."""

T = TypeVar("T")

_MOST = 100.0
"""Greater numbers are in no style; theirs are below 3."""

_MOST_STYLES = 1024
"""Of one voice; Kokoro's own have 510."""

_LARGEST = _MOST_STYLES * STYLE * 8 + 1000
"""Bytes of a voice, whose numbers may be float64, with what stands before them."""

_MOST_BYTES = 1 << 28
"""In a file of voices, before and after it is unpacked; Kokoro's own have 28 MB."""

_SIGNED = re.compile(r"([+-])")
_PART = re.compile(r"(?P<name>[^()]+)(?:\((?P<weight>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)\))?")
_MOST_PARTS = 64
"""Voices in a blend: each takes a millisecond."""

_SUFFIXES = (".npz", ".npy", ".bin")

_MAGIC = b"\x93NUMPY"
_TYPE = re.compile(rb"'descr': *'([^']*)'")
_FLOAT = re.compile(r"[<>=]f[248]")
_ORDER = re.compile(rb"'fortran_order': *(True|False)")
_SHAPE = re.compile(rb"'shape': *\(([0-9, ]{0,40})\)")

_BROKEN = (zipfile.BadZipFile, zlib.error, RuntimeError, ValueError, OverflowError, EOFError)
"""What zipfile raises for an archive that isn't whole, or has a password, which is RuntimeError."""

_UNPACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How numpy packs an array; other ways may take any memory to undo."""


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
    if len(parts) > _MOST_PARTS:
        raise _unreadable(expression, f"it has {len(parts)} voices, and {_MOST_PARTS} are the most")
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
    return {"": _read_array(content)}


def read_voice(content: bytes) -> Styles:
    """The one voice in the bytes of a file.

    Raises:
        NoStyleError: There is none, or several, or something else as well.
    """
    if content.startswith(b"PK"):
        (styles,) = _read_npz(content, most=1).values()
        return styles
    return _read_array(content)


def read_file(path: Path) -> bytes:
    """What is in a file of voices.

    Raises:
        NoStyleError: It is too large for one.
        OSError: It can't be read.
    """
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise NoStyleError(f"it is larger than {_MOST_BYTES >> 20} MB")
    return content


def _read_npz(content: bytes, most: int | None = None) -> dict[str, Styles]:
    """Its arrays; nothing is unpacked before it is known that there is room for it."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if most is not None and len(entries) > most:
                raise NoStyleError(f"it holds {len(entries)} voices, not one")
            if sum(entry.file_size for entry in entries) > _MOST_BYTES:
                raise NoStyleError(f"it unpacks to more than {_MOST_BYTES >> 20} MB")
            found = {
                entry.filename.removesuffix(".npy"): _styles(_npy(_unpacked(archive, entry)))
                for entry in entries
            }
    except _BROKEN as error:
        if isinstance(error, NoStyleError):
            raise
        raise NoStyleError("the arrays can't be read") from error
    if not found:
        raise NoStyleError("it is empty")
    return found


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    if entry.compress_type not in _UNPACKED:
        raise NoStyleError("the arrays can't be read: they are packed in an unusual way")
    if entry.file_size > _LARGEST:
        raise NoStyleError(f"an array of {entry.file_size} bytes is larger than a voice")
    return archive.read(entry)


def _read_array(content: bytes) -> Styles:
    if content.startswith(_MAGIC):
        return _styles(_npy(content))
    if not content or len(content) % (STYLE * 4):
        raise NoStyleError(f"{len(content)} bytes aren't styles of {STYLE} numbers")
    return _styles(np.frombuffer(content, "<f4").reshape(-1, STYLE))


def _npy(content: bytes) -> NDArray[np.generic]:
    """The array in a .npy (format 1 to 3 of numpy 2.3), a view of its bytes::

        \\x93NUMPY  1 0  118 0         magic, version, length of the header: 4 bytes from 2.0 on
        {'descr': '<f4', 'fortran_order': False, 'shape': (510, 1, 256), }

    Not by ``np.load``: its header is a literal of Python, which may take any time and memory and
    raise anything, and it makes room for what the header claims before it looks for that.
    """
    wide = 2 if content[6:7] == b"\x01" else 4
    begin = 8 + wide
    end = begin + int.from_bytes(content[8:begin], "little")
    header = content[begin : min(end, begin + 1000)]
    found, order, shape = (field.search(header) for field in (_TYPE, _ORDER, _SHAPE))
    if not content.startswith(_MAGIC) or not (found and order and shape):
        raise NoStyleError("the array can't be read")
    kind = found[1].decode(errors="replace")
    if not _FLOAT.fullmatch(kind):
        raise NoStyleError(f"an array of {kind!r} instead of float32, '<f4'")
    sizes = [int(size) for size in shape[1].replace(b" ", b"").split(b",") if size]
    if math.prod(sizes) * np.dtype(kind).itemsize != len(content) - end:
        raise NoStyleError(f"{max(0, len(content) - end)} bytes for an array of shape {sizes}")
    if len(sizes) > 3 or 0 in sizes:
        raise _no_voice(sizes)
    array = np.frombuffer(content, kind, offset=end)
    return array.reshape(sizes, order="F" if order[1] == b"True" else "C")


def _styles(array: NDArray[np.generic]) -> Styles:
    shape = array.shape
    if len(shape) == 3 and shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.shape[1] != STYLE or not len(array):
        raise _no_voice(shape)
    if len(array) > _MOST_STYLES:
        raise NoStyleError(f"{len(array)} styles, and {_MOST_STYLES} are the most of a voice")
    # Also false for what is no number. Before the conversion, which warns of one that is too great.
    if not bool((np.abs(array) < _MOST).all()):
        raise NoStyleError("its numbers are none of a style")
    return array.astype(np.float32)


def _no_voice(shape: Sequence[int]) -> NoStyleError:
    return NoStyleError(f"an array of shape {list(shape)} instead of [510, 1, {STYLE}]")


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
            self._files = {f.stem: f for f in _listed(path) if f.suffix in _SUFFIXES}
            if not self._files:
                raise _no_voices(path, "the folder has no .bin, .npy or .npz in it")
            return
        read = _read(path, read_styles)
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
            self._styles[name] = _read(self._files[name], read_voice)
        return self._styles[name]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise _no_voices(folder, error.strerror or str(error)) from error


def _read(path: Path, read: Callable[[bytes], T]) -> T:
    try:
        return read(read_file(path))
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
