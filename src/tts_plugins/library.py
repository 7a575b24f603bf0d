"""Keep the voices that an engine has learnt, in memory and on disk, by what they were made of.

```
FOLDER/ENGINE/MODEL/            a model can't speak with what another one has learnt
    names/1f3870be274f6c49.json     {"name": "mai", "language": "und", "clip": "5a2b91c0..."}
    names/9b74c9897bac770f.json     {"name": "anh", ...}      of the same recording
    5a2b91c0d3e8f714.npz            what the engine learnt from it
```
The recording itself isn't kept. Whoever enrols it again, under whatever name, pays nothing for it;
what nobody has a name for is deleted. Several processes may share a folder: each finds what another
has learnt when it is asked for it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from platformdirs import user_data_path

from tts_plugins.audio.clips import listen
from tts_plugins.errors import EngineError, InvalidRequestError, VoiceNotFoundError
from tts_plugins.types import AudioChunk, Reference, Voice

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "TTS_PLUGINS_VOICES"
"""Environment variable: the folder for voices, in place of one in the user's data folder."""

_IN_MEMORY = 64
"""What was learnt from so many recordings is in memory, of those that are on disk as well."""

_LONGEST_NAME = 200

T = TypeVar("T")


def default_folder() -> Path:
    """Where voices are kept unless it is said where."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else user_data_path("tts_plugins", appauthor=False) / "voices"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A voice by its name."""

    name: str
    language: str
    clip: str
    """What was learnt, and from which recording."""


class VoiceLibrary(Generic[T]):
    """The voices that one engine has learnt with one model.

    Args:
        engine: The engine's name.
        model: What tells this model from all others: any text.
        save: Writes what was learnt into a file.
        load: Reads it again. May raise any Exception for a file that isn't whole.
        suffix: Of such a file, such as ``.npz``.
        folder: Where they are kept; ``None`` for ``default_folder()``.
    """

    def __init__(
        self,
        engine: str,
        model: str,
        *,
        save: Callable[[T, Path], None],
        load: Callable[[Path], T],
        suffix: str,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        base = default_folder() if folder is None else Path(folder)
        self._engine = engine
        self._folder = base / engine / _digest(model.encode())
        self._save, self._load, self._suffix = save, load, suffix
        self._lock = threading.Lock()
        self._learning = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._unsaved: dict[str, T] = {}
        """What couldn't be written, by its recording."""
        self._learnt: OrderedDict[str, T] = OrderedDict()
        """What was used last, by its recording."""
        self._read_names()
        for entry in list(self._entries.values())[-_IN_MEMORY:]:
            try:
                self._what(entry)
            except EngineError as error:
                logger.warning("%s", error)

    def learn(
        self,
        name: str,
        reference: Reference,
        learn: Callable[[AudioChunk], T],
        *,
        transcript: str = "",
        language: str = "und",
        taken: Collection[str] = (),
    ) -> Voice:
        """Learn a voice, or one of that name anew.

        Args:
            name: What to call it.
            reference: A recording of it; see ``audio.clips.listen``.
            learn: What makes of the recording what the engine speaks with. Takes long.
            transcript: What is said in it, if that makes a difference to the engine.
            language: What the voice speaks.
            taken: Names of the engine's own voices.

        Raises:
            InvalidRequestError: The name can't be one, or the recording is of no use.
        """
        if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
            raise InvalidRequestError(
                f"a voice's name has 1 to {_LONGEST_NAME} printable characters, not {name!r}"
            )
        if name in taken:
            raise InvalidRequestError(
                f"{self._engine} has a voice {name!r} of its own: choose another name"
            )
        clip = listen(reference)
        content = clip.samples.tobytes() + f"{clip.sample_rate} {transcript}".encode()
        entry = _Entry(name, language, _digest(content))
        with self._learning:
            if not self._has(entry.clip):
                self._put(entry.clip, learn(clip))
            self.forget(name, missing_ok=True, but=entry.clip)
            with self._lock:
                self._entries[name] = entry
            self._write(self._file_of(name), json.dumps(_fields(entry)).encode())
        return _voice(entry)

    def find(self, name: str) -> T | None:
        """What the engine learnt under that name; ``None`` if it learnt nothing.

        Raises:
            EngineError: It can't be read from the disk any more.
        """
        entry = self._entry(name)
        return None if entry is None else self._what(entry)

    def voices(self) -> list[Voice]:
        """All that was learnt, by this process or another."""
        self._read_names()
        with self._lock:
            return [_voice(entry) for entry in self._entries.values()]

    def forget(self, name: str, *, missing_ok: bool = False, but: str = "") -> None:
        """Forget a voice, and what was learnt for it unless another name is for the same.

        Raises:
            VoiceNotFoundError: None of that name was learnt.
        """
        entry = self._entry(name)
        if entry is None:
            if missing_ok:
                return
            raise VoiceNotFoundError(name, [voice.id for voice in self.voices()])
        self._file_of(name).unlink(missing_ok=True)
        with self._lock:
            self._entries.pop(name, None)
        self._read_names()
        with self._lock:
            if entry.clip != but and all(e.clip != entry.clip for e in self._entries.values()):
                self._learnt.pop(entry.clip, None)
                self._unsaved.pop(entry.clip, None)
                self._path_of(entry.clip).unlink(missing_ok=True)

    def _entry(self, name: str) -> _Entry | None:
        """A name as it is now: another process may have enrolled or forgotten it."""
        file = self._file_of(name)
        with self._lock:
            known = self._entries.get(name)
            if known is not None and known.clip in self._unsaved:
                return known
        entry = _read_entry(file)
        with self._lock:
            if entry is None or entry.name != name:
                self._entries.pop(name, None)
                return None
            self._entries[name] = entry
        return entry

    def _read_names(self) -> None:
        """Take up what is on disk, oldest first."""
        try:
            files = sorted((self._folder / "names").glob("*.json"), key=_age)
        except OSError:
            files = []
        found = {entry.name: entry for file in files if (entry := _read_entry(file))}
        with self._lock:
            kept = {n: e for n, e in self._entries.items() if e.clip in self._unsaved}
            self._entries = kept | found

    def _what(self, entry: _Entry) -> T:
        with self._lock:
            for known in (self._unsaved, self._learnt):
                if entry.clip in known:
                    if known is self._learnt:
                        self._learnt.move_to_end(entry.clip)
                    return known[entry.clip]
        path = self._path_of(entry.clip)
        try:
            what = self._load(path)
        except Exception as error:  # whatever a damaged file makes an engine's package raise
            raise EngineError(
                f"the voice {entry.name!r} can't be read from {path}: {error}; clone it again"
            ) from error
        self._remember(entry.clip, what)
        return what

    def _has(self, clip: str) -> bool:
        with self._lock:
            if clip in self._learnt or clip in self._unsaved:
                return True
        try:
            self._remember(clip, self._load(self._path_of(clip)))
        except Exception:  # noqa: BLE001  as in _what: then it is learnt
            return False
        return True

    def _put(self, clip: str, what: T) -> None:
        path = self._path_of(clip)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = path.with_name(f"{clip}-{os.getpid()}.part{self._suffix}")
            try:
                self._save(what, part)
                part.chmod(0o600)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("voices aren't kept beyond this process: %s", error)
            with self._lock:
                self._unsaved[clip] = what
        else:
            self._remember(clip, what)

    def _remember(self, clip: str, what: T) -> None:
        with self._lock:
            self._learnt[clip] = what
            self._learnt.move_to_end(clip)
            while len(self._learnt) > _IN_MEMORY:
                self._learnt.popitem(last=False)

    def _write(self, path: Path, content: bytes) -> None:
        """Write a file whole or not at all, for this user alone."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(part).replace(path)
        except OSError as error:
            logger.warning("voices aren't kept beyond this process: %s", error)

    def _file_of(self, name: str) -> Path:
        return self._folder / "names" / f"{_digest(name.encode())}.json"

    def _path_of(self, clip: str) -> Path:
        return self._folder / f"{clip}{self._suffix}"


def _read_entry(file: Path) -> _Entry | None:
    try:
        fields = json.loads(file.read_bytes())
        entry = _Entry(fields["name"], fields["language"], fields["clip"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    whole = all(isinstance(value, str) for value in (entry.name, entry.language, entry.clip))
    return entry if whole and entry.clip.isalnum() else None


def _fields(entry: _Entry) -> dict[str, str]:
    return {"name": entry.name, "language": entry.language, "clip": entry.clip}


def _age(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _voice(entry: _Entry) -> Voice:
    return Voice(entry.name, entry.language, "cloned")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
