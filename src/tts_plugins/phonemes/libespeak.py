"""The user's own libespeak-ng, bound at run time.

The library is GPL-3: it is loaded from where it is installed, and never shipped. It has one state
for the whole process, so all of it stays behind one lock.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tts_plugins.errors import EngineError, InvalidRequestError

logger = logging.getLogger(__name__)

_REMEDY = "`pip install espeakng-loader`, `apt install libespeak-ng1` or `brew install espeak-ng`"
_OVERRIDES = ("ESPEAKNG_LIBRARY", "PHONEMIZER_ESPEAK_LIBRARY")
"""Variables with the library's path; the second is what users of phonemizer have set already."""

_SYNCHRONOUS, _DONT_EXIT = 2, 0x8000
_UTF8, _IPA = 1, 2
_LISTED = 30
_FRAIL = ("1.49", "1.50", "1.51")
_MOST_EMPTY = 8
"""Clauses without a character, after which it is taken to go round in a circle."""


class EspeakNotFoundError(EngineError):
    """libespeak-ng isn't installed, or can't be loaded."""

    def __init__(self, why: str = "espeak-ng isn't installed") -> None:
        super().__init__(f"{why}: {_REMEDY}")
        self.why = why


class Clause(NamedTuple):
    """What the library makes of a clause, as it gives it."""

    end: int
    """Characters of the text that it had looked at by then: often one more than the clause's."""

    phonemes: str
    """IPA, with a flag such as ``(en)`` where it changes to another language."""


class Espeak:
    """The library at ``path``, with its data in the folder ``data``.

    Raises:
        OSError: No such library.
        EspeakNotFoundError: It can't find its data.
    """

    def __init__(self, path: str, data: str | None) -> None:
        native = ctypes.CDLL(path)
        native.espeak_TextToPhonemes.restype = ctypes.c_char_p
        native.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_Voice))
        folder = os.fsencode(data) if data else None
        if native.espeak_Initialize(_SYNCHRONOUS, 0, folder, _DONT_EXIT) <= 0:
            raise EspeakNotFoundError(f"espeak-ng at {path} finds no data")
        native.espeak_Info.restype = ctypes.c_char_p
        version = (native.espeak_Info(None) or b"").decode()
        logger.debug("espeak-ng %s at %s", version, path)
        if version.startswith(_FRAIL):
            logger.warning(
                "espeak-ng %s ends the process on some odd texts; 1.52 is better: "
                "`pip install espeakng-loader`",
                version,
            )
        self._native = native
        self._lock = threading.Lock()
        self._voice = ""
        if hasattr(os, "register_at_fork"):
            # A child must not inherit a lock whose owner it lacks, nor a clause read by half.
            os.register_at_fork(
                before=self._lock.acquire,
                after_in_parent=self._lock.release,
                after_in_child=self._lock.release,
            )
        self.voices = self._voices()
        """The languages it has, and its names of the best voices for them."""

    def read(self, voice: str, text: str) -> list[Clause]:
        """The clauses of ``text``.

        Args:
            voice: One of the values of ``voices``.
            text: Without control characters and lone surrogates.
        """
        raw = text.encode()
        plain = len(raw) == len(text)
        buffer = ctypes.create_string_buffer(raw)
        base = ctypes.addressof(buffer)
        at = ctypes.c_void_p(base)
        clauses: list[Clause] = []
        start = end = stuck = 0
        with self._lock:
            self._speak_as(voice)
            # To the end always: it keeps the character that it has read ahead for the next call.
            while at.value is not None:
                said: bytes | None = self._native.espeak_TextToPhonemes(
                    ctypes.byref(at), _UTF8, _IPA
                )
                stop = len(raw) if at.value is None else at.value - base
                stuck = stuck + 1 if stop <= start else 0
                if stuck > _MOST_EMPTY:
                    break
                end += stop - start if plain else len(raw[start:stop].decode(errors="ignore"))
                start = stop
                clauses.append(Clause(end, (said or b"").decode(errors="ignore")))
        return clauses

    def _speak_as(self, voice: str) -> None:
        if voice == self._voice:  # it takes a third as long as a sentence
            return
        self._voice = ""
        if self._native.espeak_SetVoiceByName(voice.encode()) != 0:
            raise InvalidRequestError(f"espeak-ng can't load its voice {voice!r}")
        self._voice = voice

    def _voices(self) -> dict[str, str]:
        ranked: list[tuple[int, str, str]] = []
        listed = self._native.espeak_ListVoices(None)
        i = 0
        while listed[i]:
            voice = listed[i].contents
            # A byte with the rank, the language, NUL, and so on; after the last one, a zero.
            at = voice.languages
            while rank := ctypes.c_ubyte.from_address(at).value:
                name = ctypes.string_at(at + 1)
                ranked.append((rank, name.decode().lower(), voice.identifier.decode()))
                at += len(name) + 2
            i += 1
        voices: dict[str, str] = {}
        for _, language, file in sorted(ranked, key=lambda entry: entry[0]):
            voices.setdefault(language, file)
        return voices


class _Voice(ctypes.Structure):
    """The first fields of ``espeak_VOICE`` (espeak-ng 1.51 and 1.52, speak_lib.h)."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_void_p),
        ("identifier", ctypes.c_char_p),
    )


def available() -> bool:
    """Whether libespeak-ng can be loaded."""
    try:
        espeak()
    except EspeakNotFoundError:
        return False
    return True


def supports(language: str) -> bool:
    """Whether espeak-ng is there and has a voice for it: ``en-us``, ``vi``, ``de-AT``."""
    return available() and _found(language) is not None


def voice_for(language: str) -> str:
    """espeak-ng's name of the voice for a language: the one for ``de`` if Austria has none.

    Raises:
        EspeakNotFoundError: libespeak-ng can't be loaded.
        InvalidRequestError: It has no voice for that language.
    """
    if voice := _found(language):
        return voice
    some = ", ".join(sorted(name for name in espeak().voices if len(name) == 2)[:_LISTED])
    raise InvalidRequestError(
        f"espeak-ng has no voice {language!r}; it has {some} and more: see `espeak-ng --voices`"
    )


def _found(language: str) -> str | None:
    voices = espeak().voices
    parts = language.lower().replace("_", "-").split("-")
    for n in range(len(parts), 0, -1):
        if voice := voices.get("-".join(parts[:n])):
            return voice
    return None


def espeak() -> Espeak:
    """The library, loaded once per process.

    Raises:
        EspeakNotFoundError: It isn't installed, or can't be loaded.
    """
    with _loading:
        found = _looked_up()
    if isinstance(found, EspeakNotFoundError):
        raise found
    return found


_loading = threading.Lock()


@cache
def _looked_up() -> Espeak | EspeakNotFoundError:
    """Looked for once: in vain, that may take a tenth of a second."""
    for variable in _OVERRIDES:
        if path := os.environ.get(variable):
            try:
                return Espeak(path, os.environ.get("ESPEAK_DATA_PATH"))
            except (OSError, AttributeError, EspeakNotFoundError) as error:
                logger.debug("no espeak-ng at %s", path, exc_info=error)
                return EspeakNotFoundError(f"{variable} is {path!r}, which isn't espeak-ng")
    missing = EspeakNotFoundError()
    for path, data in _places():
        try:
            return Espeak(path, data)
        except EspeakNotFoundError as error:
            missing = error
        except (OSError, AttributeError) as error:
            logger.debug("no espeak-ng at %s", path, exc_info=error)
    return missing


def _places() -> Iterator[tuple[str, str | None]]:
    """Where the library may be, and its data; ``None`` where it knows that by itself."""
    if importlib.util.find_spec("espeakng_loader"):
        import espeakng_loader

        yield espeakng_loader.get_library_path(), espeakng_loader.get_data_path()
    for name in ("espeak-ng", "libespeak-ng"):
        if path := ctypes.util.find_library(name):
            yield path, None
    # find_library needs a compiler or ldconfig, which small containers lack.
    match sys.platform:
        case "darwin":
            yield "libespeak-ng.dylib", None
            yield "/opt/homebrew/lib/libespeak-ng.dylib", None
        case "win32":
            yield "libespeak-ng.dll", None
            yield r"C:\Program Files\eSpeak NG\libespeak-ng.dll", None
        case _:
            yield "libespeak-ng.so.1", None
