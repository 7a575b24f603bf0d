"""Read about a hundred languages aloud with the user's own libespeak-ng.

The library is GPL-3: it is loaded at run time where it is installed, and never shipped.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache

from tts_plugins.errors import EngineError, InvalidRequestError
from tts_plugins.phonemes.pronounced import Pronounced
from tts_plugins.phonemes.source import Mark
from tts_plugins.text.words import spans

_REMEDY = "`pip install espeakng-loader`, `apt install libespeak-ng1` or `brew install espeak-ng`"
_FLAG = re.compile(r"\([^)]*\)")


class EspeakNotFoundError(EngineError):
    """libespeak-ng isn't installed, or can't be loaded."""

    def __init__(self, why: str = "reading this language needs espeak-ng") -> None:
        super().__init__(f"{why}: {_REMEDY}")


class EspeakReader:
    """Reads with a voice of espeak-ng, in the letters that Piper voices are trained on."""

    def __init__(self, voice: str, *, longest: int = 400) -> None:
        self._library = _library()
        if voice not in _voices():
            some = ", ".join(sorted(_voices())[:20])
            raise InvalidRequestError(f"espeak-ng has no voice {voice!r}; it has {some} and others")
        self.voice = voice
        self._longest = longest

    def read(self, text: str, unreadable: Callable[[str], None]) -> Iterator[Pronounced]:
        clean = "".join(c if c.isprintable() else " " for c in text)
        phonemes = unicodedata.normalize("NFD", " ".join(self._library.read(self.voice, clean)))
        marks = tuple(Mark(word, offset) for offset, word in spans(text))
        n = max(1, len(marks))
        bounds = [len(phonemes) * i // n for i in range(n + 1)]
        if phonemes.strip():
            yield Pronounced(
                phonemes, marks, tuple((bounds[i], bounds[i + 1]) for i in range(len(marks)))
            )


def available() -> bool:
    """Whether libespeak-ng can be loaded."""
    try:
        _library()
    except EspeakNotFoundError:
        return False
    return True


def supports(language: str) -> bool:
    """Whether espeak-ng is there and has a voice of that name, such as ``en-us`` or ``vi``."""
    return available() and language in _voices()


class _Library:
    def __init__(self, path: str, data: str | None) -> None:
        self._native = ctypes.CDLL(path)
        self._lock = threading.Lock()
        if self._native.espeak_Initialize(2, 0, data.encode() if data else None, 0x8000) <= 0:
            raise EspeakNotFoundError("espeak-ng finds no data")
        self._native.espeak_TextToPhonemes.restype = ctypes.c_char_p

    def read(self, voice: str, text: str) -> list[str]:
        with self._lock:
            self._native.espeak_SetVoiceByName(voice.encode())
            buffer = ctypes.create_string_buffer(text.encode())
            at = ctypes.c_void_p(ctypes.addressof(buffer))
            clauses = []
            while at.value:
                said = self._native.espeak_TextToPhonemes(ctypes.byref(at), 1, 2)
                clauses.append(_FLAG.sub("", (said or b"").decode()).strip())
            return clauses

    def voices(self) -> set[str]:
        names = set()

        class Record(ctypes.Structure):
            _fields_ = (
                ("name", ctypes.c_char_p),
                ("languages", ctypes.c_void_p),
                ("identifier", ctypes.c_char_p),
            )

        self._native.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(Record))
        listed = self._native.espeak_ListVoices(None)
        i = 0
        while listed[i]:
            at = listed[i].contents.languages
            while ctypes.c_ubyte.from_address(at).value:
                name = ctypes.string_at(at + 1)
                names.add(name.decode())
                at += len(name) + 2
            i += 1
        return names


@cache
def _library() -> _Library:
    for path, data in _places():
        try:
            return _Library(path, data)
        except OSError:
            continue
    raise EspeakNotFoundError


def _places() -> Iterator[tuple[str, str | None]]:
    if path := os.environ.get("ESPEAKNG_LIBRARY"):
        yield path, os.environ.get("ESPEAK_DATA_PATH")
    if importlib.util.find_spec("espeakng_loader"):
        import espeakng_loader

        yield espeakng_loader.get_library_path(), espeakng_loader.get_data_path()
    if path := ctypes.util.find_library("espeak-ng"):
        yield path, None
    yield "libespeak-ng.so.1", None


@cache
def _voices() -> set[str]:
    return _library().voices()
