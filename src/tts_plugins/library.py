"""Keep the voices that an engine has learnt, in memory and on disk, by what they were made of.

```
FOLDER/ENGINE/MODEL/            a model can't speak with what another one has learnt
    names/1f3870be27....json  {"name": "mai", "language": "und", "clip": "5a2b91c0d3..."}
    names/9b74c9897b....json  {"name": "anh", ...}      of the same recording
    learnt/5a2b91c0d3....npz  what the engine learnt from it
```
The recording itself isn't kept. Whoever enrols it again, under whatever name, pays nothing for it,
and so can tell that somebody has; what no name leads to is deleted. Several processes may share a
folder, but on Windows: each finds what another has learnt, and no more what it has forgotten, when
it is asked for it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from platformdirs import user_data_path

from tts_plugins.audio.clips import listen
from tts_plugins.errors import EngineError, InvalidRequestError, VoiceNotFoundError
from tts_plugins.types import AudioChunk, Reference, Voice

try:
    import fcntl
except ModuleNotFoundError:  # on Windows, where a folder can't be locked
    _locks = False
else:
    _locks = True

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "TTS_PLUGINS_VOICES"
"""Environment variable: the folder for voices, in place of one in the user's data folder."""

CLONED = "cloned"
"""How every voice that was learnt is described."""

_IN_MEMORY = 256 * 2**20
"""Bytes of what is on disk that are in memory as well, by the sizes of the files; one at least."""

_LONGEST_NAME = 256
"""What a server calls a voice tells whose it is as well: its clients' names may have 200."""

_NOT_OURS = (FileNotFoundError, NotADirectoryError, PermissionError)
"""What there is when nothing is kept: whoever can't use the folder has no voices in it."""

T = TypeVar("T")


def default_folder() -> Path:
    """Where voices are kept unless it is said where."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given).expanduser()
    return user_data_path("tts_plugins", appauthor=False) / "voices"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A voice by its name."""

    name: str
    language: str
    clip: str
    """What was learnt, and from which recording."""


class VoiceLibrary(Generic[T]):
    """The voices that one engine has learnt with one model. Any thread may use it.

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
        self._names, self._learnt = self._folder / "names", self._folder / "learnt"
        self._save, self._load, self._suffix = save, load, suffix
        self._learning = threading.Lock()
        """One voice at a time is learnt: it takes all the memory and cores that there are."""
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        """For the memory, held for no longer than a look at it takes."""
        self._recent: OrderedDict[str, tuple[T, int]] = OrderedDict()
        """What was used last and its size, by its recording."""
        self._size = 0
        """Bytes of all that."""
        self._unkept: dict[str, tuple[_Entry, T]] = {}
        """What couldn't be written, by its name."""
        _alive.add(self)

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
        self._check_name(name, taken)
        clip = listen(reference)
        about = json.dumps([clip.sample_rate, transcript]).encode()
        entry = _Entry(name, language, _digest(about + clip.samples.tobytes()))
        return self._enrol(entry, lambda: learn(clip))

    def adopt(
        self,
        name: str,
        what: T,
        *,
        content: bytes,
        language: str = "und",
        taken: Collection[str] = (),
    ) -> Voice:
        """Enrol what needs no learning, since somebody brought what the engine speaks with.

        Args:
            name: As for ``learn``; so are ``language`` and ``taken``.
            what: What the engine speaks with.
            content: What tells it from all others.

        Raises:
            InvalidRequestError: The name can't be one.
        """
        self._check_name(name, taken)
        return self._enrol(_Entry(name, language, _digest(content)), lambda: what)

    def _check_name(self, name: str, taken: Collection[str]) -> None:
        if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
            raise InvalidRequestError(
                f"a voice's name has 1 to {_LONGEST_NAME} printable characters, not {name!r}"
            )
        if name in taken:
            raise InvalidRequestError(
                f"{self._engine} has a voice {name!r} of its own: choose another name"
            )

    def _enrol(self, entry: _Entry, learn: Callable[[], T]) -> Voice:
        with self._learning:
            what = self._known(entry.clip)
            new = what is None
            if what is None:
                what = learn()
            self._keep(entry, what, anew=new)
        return _voice(entry)

    def find(self, name: str) -> T | None:
        """What the engine learnt under that name; ``None`` if it learnt nothing.

        Raises:
            EngineError: It can't be read from the disk any more.
        """
        with self._lock:
            if name in self._unkept:
                return self._unkept[name][1]
        entry = self._entry(name)
        while entry is not None:
            try:
                return self._recall(entry.clip)
            except Exception as error:  # whatever a damaged file makes an engine's package raise
                # It may just now have been forgotten, or learnt anew from something else.
                before, entry = entry, self._entry(name)
                if entry == before:
                    raise EngineError(
                        f"the voice {name!r} can't be read from {self._path_of(entry.clip)}: "
                        f"{error}; clone it again"
                    ) from error
        return None

    def language(self, name: str) -> str | None:
        """What the voice of that name speaks, for one look at one file; ``None`` if there is none.

        Raises:
            EngineError: It can't be read from the disk any more.
        """
        with self._lock:
            unkept = self._unkept.get(name)
        entry = self._entry(name) if unkept is None else unkept[0]
        return None if entry is None else entry.language

    def voices(self) -> list[Voice]:
        """All that was learnt, by this process or another, oldest first.

        Raises:
            EngineError: The folder can't be read.
        """
        with self._lock:
            unkept = {name: entry for name, (entry, _) in self._unkept.items()}
        try:
            kept = [each for each in self._entries(passing=_NOT_OURS) if each.name not in unkept]
        except OSError as error:
            raise EngineError(f"the voices in {self._names} can't be read: {error}") from error
        return [_voice(entry) for entry in (*kept, *unkept.values())]

    def forget(self, name: str) -> None:
        """Forget a voice, and what was learnt for it unless another name is for the same.

        Raises:
            VoiceNotFoundError: None of that name was learnt.
            EngineError: It can't be deleted.
        """
        with self._lock:
            unkept = self._unkept.pop(name, None)
        entry = self._entry(name)
        if entry is None and unkept is None:
            raise VoiceNotFoundError(name, [voice.id for voice in self.voices()])
        with self._lock:
            for each in filter(None, (entry, unkept and unkept[0])):
                self._drop(each.clip)
        if entry is not None:
            try:
                with self._changing():
                    self._file_of(name).unlink(missing_ok=True)
            except OSError as error:
                raise EngineError(f"the voice {name!r} can't be deleted: {error}") from error

    def rename(self, name: str, new: str, *, taken: Collection[str] = ()) -> Voice:
        """Call a voice by another name, which none has yet.

        Args:
            name: What it is called.
            new: As for ``learn``; so is ``taken``.

        Raises:
            VoiceNotFoundError: None of that name was learnt.
            InvalidRequestError: The new name can't be one, or is taken.
            EngineError: It can't be written down.
        """
        self._check_name(new, taken)
        with self._lock:
            unkept = self._unkept.get(name)
        entry = self._entry(name) if unkept is None else unkept[0]
        if entry is None:
            raise VoiceNotFoundError(name, [voice.id for voice in self.voices()])
        self._check_free(new)
        renamed = replace(entry, name=new)
        if unkept is not None:
            self._keep(renamed, unkept[1], anew=True)
            self.forget(name)
            return _voice(renamed)
        try:
            with self._changing():
                # Another process may have been first.
                self._check_free(new)
                entry = self._entry(name)
                if entry is None:
                    raise VoiceNotFoundError(name, [voice.id for voice in self.voices()])
                renamed = replace(entry, name=new)
                self._write(renamed, age=self._file_of(name).stat().st_mtime)
                self._file_of(name).unlink()
        except OSError as error:
            raise EngineError(f"the voice {name!r} can't be renamed: {error}") from error
        return _voice(renamed)

    def _check_free(self, name: str) -> None:
        if self.language(name) is not None:
            raise InvalidRequestError(f"there is a voice {name!r} already: choose another name")

    def _entry(self, name: str) -> _Entry | None:
        """What a name is for now."""
        try:
            return self._read(self._file_of(name))
        except _NOT_OURS:
            return None
        except OSError as error:
            raise EngineError(f"the voice {name!r} can't be read: {error}") from error

    def _entries(self, passing: tuple[type[OSError], ...] = ()) -> Iterator[_Entry]:
        """What is on disk, oldest first, but for what can't be read with an error of ``passing``.

        Raises:
            OSError: Any other.
        """
        with suppress(*passing):
            # Not glob, which takes a folder that can't be read for an empty one.
            for file in sorted(self._names.iterdir(), key=_age):
                with suppress(*passing):
                    if file.suffix == ".json" and (entry := self._read(file)):
                        yield entry

    def _read(self, file: Path) -> _Entry | None:
        """The voice in a file; ``None`` if the file is damaged, or not in its place."""
        try:
            entry = _Entry(**json.loads(file.read_bytes()))
            whole = self._file_of(entry.name) == file and entry.clip.isalnum()
        except (ValueError, TypeError, AttributeError, RecursionError, IsADirectoryError):
            return None
        return entry if whole and isinstance(entry.language, str) else None

    def _known(self, clip: str) -> T | None:
        """What was learnt from a recording, if that is at hand."""
        with self._lock:
            unkept = [what for entry, what in self._unkept.values() if entry.clip == clip]
        if unkept:
            return unkept[0]
        try:
            return self._recall(clip)
        except Exception:  # noqa: BLE001  as in find; then it is learnt
            return None

    def _recall(self, clip: str) -> T:
        with self._lock:
            if clip in self._recent:
                self._recent.move_to_end(clip)
                return self._recent[clip][0]
        what = self._load(self._path_of(clip))
        self._remember(clip, what)
        return what

    def _remember(self, clip: str, what: T) -> None:
        try:
            size = self._path_of(clip).stat().st_size
        except OSError:  # it was forgotten meanwhile
            return
        with self._lock:
            self._drop(clip)
            self._recent[clip] = what, size
            self._size += size
            while self._size > _IN_MEMORY and len(self._recent) > 1:
                self._drop(next(iter(self._recent)))

    def _drop(self, clip: str) -> None:
        """Let the memory go of something, if it has that."""
        _, size = self._recent.pop(clip, (None, 0))
        self._size -= size

    def _keep(self, entry: _Entry, what: T, *, anew: bool) -> None:
        """Write down a voice; whoever is killed on the way leaves all voices whole."""
        path = self._path_of(entry.clip)
        try:
            with self._changing():
                if anew or not path.exists():
                    part = path.with_name(f"{entry.clip}.part{self._suffix}")
                    self._save_into(part, what)
                    part.chmod(0o600)
                    part.replace(path)
                self._write(entry)
        except OSError as error:
            logger.warning("the voice %r isn't kept beyond this process: %s", entry.name, error)
            with self._lock:
                self._unkept[entry.name] = (entry, what)
        else:
            with self._lock:
                self._unkept.pop(entry.name, None)
        self._remember(entry.clip, what)

    def _save_into(self, path: Path, what: T) -> None:
        try:
            self._save(what, path)
        except OSError:
            raise
        except Exception as error:  # an engine's package may have its own for a full disk
            raise OSError(f"{type(error).__name__}: {error}") from error

    def _write(self, entry: _Entry, age: float | None = None) -> None:
        """Write down what a name is for, as if at the time ``age``."""
        file = self._file_of(entry.name)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(entry)))
        part.chmod(0o600)
        if age is not None:
            os.utime(part, (age, age))
        part.replace(file)

    @contextmanager
    def _changing(self) -> Generator[None, None, None]:
        """While what is on disk is changed, by one thread of one process at a time."""
        for folder in (self._folder, self._names, self._learnt):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._writing, _alone_in(self._folder):
            yield
            with suppress(OSError):  # as it may be another time
                self._sweep()

    def _sweep(self) -> None:
        """Delete what no name leads to, and what was left behind by whoever was killed."""
        used = {entry.clip for entry in self._entries()}
        files = list(self._learnt.iterdir())
        unused = [file for file in files if file.name.removesuffix(self._suffix) not in used]
        parts = [file for file in self._names.iterdir() if file.suffix != ".json"]
        for file in (*unused, *parts):
            with suppress(OSError):  # such as a folder that somebody put there
                file.unlink()

    def _file_of(self, name: str) -> Path:
        return self._names / f"{_digest(name.encode(errors='surrogatepass'))}.json"

    def _path_of(self, clip: str) -> Path:
        return self._learnt / f"{clip}{self._suffix}"


@contextmanager
def _alone_in(folder: Path) -> Generator[None, None, None]:
    """Until it ends, other processes wait; or don't, where a folder can't be locked."""
    if not _locks:
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # the disks of some networks
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        # A process that was forked meanwhile has it open as well: to close it isn't enough.
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_UN)
        os.close(opened)


def _age(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _voice(entry: _Entry) -> Voice:
    return Voice(entry.name, entry.language, CLONED)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


_alive: weakref.WeakSet[VoiceLibrary[Any]] = weakref.WeakSet()


def _start_anew() -> None:
    """In the child of a fork there are no threads, and nobody who would let go of a lock."""
    for library in list(_alive):
        library._learning, library._writing = threading.Lock(), threading.Lock()
        library._lock = threading.Lock()
        library._size = sum(size for _, size in library._recent.values())


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_start_anew)
