"""Voices that were learnt: what is kept, what is found again, and what is left afterwards."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tts_plugins.errors import EngineError, InvalidRequestError, VoiceNotFoundError
from tts_plugins.library import FOLDER_VARIABLE, VoiceLibrary, default_folder
from tts_plugins.types import AudioChunk, Voice

Learnt = NDArray[np.float32]

RATE = 16_000


def clip(value: float = 0.3) -> AudioChunk:
    return AudioChunk(np.full(RATE, value, np.float32), RATE)


def save(what: Learnt, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, what, allow_pickle=False)


def load(path: Path) -> Learnt:
    learnt: Learnt = np.load(path, allow_pickle=False)
    return learnt


def opened(
    folder: Path,
    *,
    engine: str = "mimic",
    model: str = "one",
    save: Callable[[Learnt, Path], None] = save,
    load: Callable[[Path], Learnt] = load,
) -> VoiceLibrary[Learnt]:
    return VoiceLibrary(engine, model, save=save, load=load, suffix=".npy", folder=folder)


class Learning:
    """Learns how loud a recording is, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, heard: AudioChunk) -> Learnt:
        self.count += 1
        return heard.samples[:1] * 10


def learn(library: VoiceLibrary[Learnt], name: str, value: float = 0.3) -> Voice:
    return library.learn(name, clip(value), Learning())


def found(library: VoiceLibrary[Learnt], name: str) -> float | None:
    what = library.find(name)
    return None if what is None else round(float(what[0]), 3)


def names(library: VoiceLibrary[Learnt]) -> list[str]:
    return [voice.id for voice in library.voices()]


def files(folder: Path) -> list[str]:
    """The files in a folder, as kinds: ``names/json`` and ``learnt/npy``."""
    return sorted(f"{p.parent.name}/{p.suffix[1:]}" for p in folder.rglob("*") if p.is_file())


def the_file(folder: Path, kind: str) -> Path:
    (path,) = folder.rglob(f"*.{kind}")
    return path


# ---------------------------------------------------------------- what is kept


def test_a_voice_that_was_learnt_is_found_and_listed(tmp_path: Path) -> None:
    library = opened(tmp_path)
    voice = library.learn("mai", clip(), Learning(), language="vi")
    assert voice == Voice("mai", "vi", "cloned")
    assert library.voices() == [voice]
    assert found(library, "mai") == 3.0
    assert library.find("anh") is None


def test_what_a_voice_speaks_is_told_without_a_look_at_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = opened(tmp_path)
    library.learn("mai", clip(), Learning(), language="vi")
    learn(library, "anh")

    def listing(_: Path) -> None:
        pytest.fail("all names were listed")

    monkeypatch.setattr(Path, "iterdir", listing)
    assert opened(tmp_path).language("mai") == "vi"
    assert library.language("anh") == "und"
    assert library.language("zoe") is None


def test_it_is_there_for_the_next_process(tmp_path: Path) -> None:
    learn(opened(tmp_path), "mai")
    assert found(opened(tmp_path), "mai") == 3.0
    assert names(opened(tmp_path)) == ["mai"]


def test_voices_are_listed_as_they_were_learnt(tmp_path: Path) -> None:
    library = opened(tmp_path)
    for place, name in enumerate(("zoe", "anh", "mai")):
        learn(library, name)
        newest = max(tmp_path.rglob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (place, place))  # a file system may count in seconds
    assert names(library) == ["zoe", "anh", "mai"]


def test_no_model_finds_what_another_has_learnt(tmp_path: Path) -> None:
    learn(opened(tmp_path), "mai")
    for other in (opened(tmp_path, model="two"), opened(tmp_path, engine="parrot")):
        assert other.find("mai") is None
        assert other.voices() == []
        with pytest.raises(VoiceNotFoundError):
            other.forget("mai")
    assert found(opened(tmp_path), "mai") == 3.0


def test_nobody_else_can_read_a_voice_and_it_is_no_pickle(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        learn(opened(tmp_path), "mai")
    finally:
        os.umask(before)
    for path in (the_file(tmp_path, "json"), the_file(tmp_path, "npy")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
        assert b"pickle" not in path.read_bytes()
        assert not path.read_bytes().startswith(b"\x80")


def test_the_recording_itself_is_not_kept(tmp_path: Path) -> None:
    learn(opened(tmp_path), "mai")
    assert files(tmp_path) == ["learnt/npy", "names/json"]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 1000


def test_the_folder_is_the_users_own_unless_it_is_said_which(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, "~/voices of mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / "voices of mine"
    library = VoiceLibrary("mimic", "one", save=save, load=load, suffix=".npy")
    learn(library, "mai")
    assert files(tmp_path / "voices of mine" / "mimic") == ["learnt/npy", "names/json"]
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    assert default_folder().parts[-2:] == ("tts_plugins", "voices")


# ---------------------------------------------------------------- what is learnt once


def test_a_recording_is_learnt_once_under_whatever_names_and_by_whom(tmp_path: Path) -> None:
    learning = Learning()
    library = opened(tmp_path)
    for name in ("mai", "anh", "mai"):
        library.learn(name, clip(), learning)
    opened(tmp_path).learn("zoe", clip(), learning)
    assert learning.count == 1
    assert files(tmp_path) == ["learnt/npy", *["names/json"] * 3]


def test_what_is_said_and_how_fast_it_was_recorded_are_part_of_a_recording(tmp_path: Path) -> None:
    learning = Learning()
    library = opened(tmp_path)
    library.learn("a", clip(), learning)
    library.learn("b", clip(), learning, transcript="Hello.")
    library.learn("c", clip(), learning, transcript="Hello there.")
    library.learn("d", AudioChunk(clip().samples, 24_000), learning)
    library.learn("e", clip(), learning, transcript="\ud800")
    assert learning.count == 5
    library.learn("f", clip(), learning, transcript="Hello.")
    assert learning.count == 5


def test_what_fails_to_be_learnt_leaves_the_old_voice(tmp_path: Path) -> None:
    library = opened(tmp_path)
    learn(library, "mai")

    def fails(_: AudioChunk) -> Learnt:
        raise EngineError("too short for this model")

    with pytest.raises(EngineError, match="too short"):
        library.learn("mai", clip(0.5), fails)
    with pytest.raises(EngineError, match="too short"):
        library.learn("anh", clip(0.5), fails)
    assert names(library) == ["mai"]
    assert found(library, "mai") == 3.0
    assert learn(library, "anh", 0.5).id == "anh"  # and the next one isn't kept waiting


def test_a_recording_of_no_use_is_refused_before_anything_is_learnt(tmp_path: Path) -> None:
    learning = Learning()
    with pytest.raises(InvalidRequestError, match="silent"):
        opened(tmp_path).learn("mai", clip(0.0), learning)
    assert learning.count == 0
    assert files(tmp_path) == []


def test_what_needs_no_learning_is_kept_like_what_does(tmp_path: Path) -> None:
    library = opened(tmp_path)
    style = np.full(4, 7, np.float32)
    voice = library.adopt("mai", style, content=style.tobytes(), language="ja")
    assert voice == Voice("mai", "ja", "cloned")
    library.adopt("anh", style, content=style.tobytes())
    assert files(tmp_path) == ["learnt/npy", "names/json", "names/json"]
    assert found(opened(tmp_path), "mai") == 7.0
    with pytest.raises(InvalidRequestError, match="of its own"):
        library.adopt("own", style, content=b"", taken=["own"])
    with pytest.raises(InvalidRequestError, match="a voice's name"):
        library.adopt("", style, content=b"")
    library.forget("mai")
    library.forget("anh")
    assert files(tmp_path) == []


FILE = 132
"""Bytes of what is learnt from a clip."""


def test_of_many_voices_those_used_last_are_in_memory_up_to_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tts_plugins.library._IN_MEMORY", 64 * FILE)
    reads: list[Path] = []

    def counted(path: Path) -> Learnt:
        reads.append(path)
        return load(path)

    writer = opened(tmp_path)
    for n in range(65):
        learn(writer, f"voice {n}", 0.1 + n / 100)
    assert {path.stat().st_size for path in tmp_path.rglob("*.npy")} == {FILE}
    library = opened(tmp_path, load=counted)
    for n in (*range(65), *range(1, 65)):
        assert found(library, f"voice {n}") == round(1 + n / 10, 3)
    assert len(reads) == 65
    assert found(library, "voice 0") == 1.0  # in place of the one that was used longest ago
    assert found(library, "voice 2") == 1.2
    assert len(reads) == 66
    assert found(library, "voice 1") == 1.1
    assert len(reads) == 67


def test_one_voice_is_in_memory_however_large_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tts_plugins.library._IN_MEMORY", FILE - 1)
    learn(opened(tmp_path), "mai")
    learn(opened(tmp_path), "anh", 0.5)
    reads: list[Path] = []

    def counted(path: Path) -> Learnt:
        reads.append(path)
        return load(path)

    library = opened(tmp_path, load=counted)
    for name in ("mai", "mai", "anh", "anh", "mai"):
        assert found(library, name) is not None
    assert len(reads) == 3


def test_the_place_of_what_is_forgotten_or_learnt_anew_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tts_plugins.library._IN_MEMORY", 2 * FILE)
    reads: list[Path] = []

    def counted(path: Path) -> Learnt:
        reads.append(path)
        return load(path)

    library = opened(tmp_path, load=counted)
    for _ in range(3):
        learn(library, "mai")
        learn(library, "mai")
        library.forget("mai")
    learn(library, "anh", 0.5)
    learn(library, "zoe", 0.7)
    reads.clear()
    assert [found(library, name) for name in ("anh", "zoe")] == [5.0, 7.0]
    assert reads == []


# ---------------------------------------------------------------- names


VIETNAMESE = ("Nguyễn Thị Mai Phương " * 10)[:200]


@pytest.mark.parametrize(
    "name",
    [
        VIETNAMESE,
        VIETNAMESE + "2-key0a1b2c3d",
        "../../etc/passwd",
        "/etc/passwd",
        "..",
        ".",
        ".hidden",
        "a\\b",
        "con",
        "C:",
        "a" * 256,
        "🎙️",
        "mai+anh(2)",
        '"},{"',
    ],
)
def test_a_voice_may_be_called_anything(tmp_path: Path, name: str) -> None:
    library = opened(tmp_path / "voices")
    assert learn(library, name).id == name
    assert names(opened(tmp_path / "voices")) == [name]
    assert found(opened(tmp_path / "voices"), name) == 3.0
    assert files(tmp_path) == ["learnt/npy", "names/json"]
    library.forget(name)
    assert files(tmp_path) == []


def test_names_that_differ_in_case_or_spelling_are_different(tmp_path: Path) -> None:
    library = opened(tmp_path)
    spellings = ["Mai", "mai", "MAI", "mai ", " mai", "ma\u00ed", "mai\u0301"]
    for n, name in enumerate(spellings):
        learn(library, name, 0.1 + n / 10)
    assert sorted(names(library)) == sorted(spellings)
    assert [found(library, name) for name in spellings] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize(
    "name", ["", "  ", "a\nb", "a\0b", "\x1b[31m", "a" * 257, "\ud800", "\u202e"]
)
def test_what_cannot_be_a_name_is_refused(tmp_path: Path, name: str) -> None:
    library = opened(tmp_path)
    with pytest.raises(InvalidRequestError, match="a voice's name has 1 to 256 printable"):
        learn(library, name)
    assert library.find(name) is None
    with pytest.raises(VoiceNotFoundError):
        library.forget(name)
    assert files(tmp_path) == []


def test_an_engines_own_names_are_taken(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="mimic has a voice 'own' of its own"):
        opened(tmp_path).learn("own", clip(), Learning(), taken=["own"])


# ---------------------------------------------------------------- forgetting


def test_a_forgotten_voice_leaves_nothing_behind(tmp_path: Path) -> None:
    library = opened(tmp_path)
    learn(library, "mai")
    library.forget("mai")
    assert library.find("mai") is None
    assert library.voices() == []
    assert files(tmp_path) == []
    learning = Learning()
    library.learn("mai", clip(), learning)
    assert learning.count == 1  # not even in memory


def test_who_is_not_there_cannot_be_forgotten(tmp_path: Path) -> None:
    library = opened(tmp_path)
    learn(library, "mai")
    with pytest.raises(VoiceNotFoundError, match="no voice 'anh'; available: mai"):
        library.forget("anh")
    library.forget("mai")
    with pytest.raises(VoiceNotFoundError, match="no voice 'mai'; available: unknown"):
        library.forget("mai")


def test_one_recording_under_two_names_is_forgotten_with_the_second(tmp_path: Path) -> None:
    library = opened(tmp_path)
    learn(library, "mai")
    learn(library, "anh")
    library.forget("mai")
    for each in (library, opened(tmp_path)):
        assert found(each, "anh") == 3.0
        assert each.find("mai") is None
    assert files(tmp_path) == ["learnt/npy", "names/json"]
    library.forget("anh")
    assert files(tmp_path) == []


def test_a_voice_learnt_anew_takes_the_old_ones_place(tmp_path: Path) -> None:
    library, other = opened(tmp_path), opened(tmp_path)
    learn(library, "mai")
    assert found(other, "mai") == 3.0
    learn(library, "mai", 0.5)
    assert found(library, "mai") == 5.0
    assert found(other, "mai") == 5.0
    assert files(tmp_path) == ["learnt/npy", "names/json"]


def test_who_speaks_goes_on_with_a_voice_that_is_forgotten(tmp_path: Path) -> None:
    library = opened(tmp_path)
    learn(library, "mai")
    speaks = library.find("mai")
    library.forget("mai")
    assert speaks is not None
    assert speaks[0] == 3.0


def test_what_another_process_forgot_is_gone_here_too(tmp_path: Path) -> None:
    library, other = opened(tmp_path), opened(tmp_path)
    learn(library, "mai")
    assert found(other, "mai") == 3.0
    library.forget("mai")
    assert other.find("mai") is None
    assert other.voices() == []
    learn(other, "anh")  # of which it still knows in its memory
    assert found(library, "anh") == 3.0


# ---------------------------------------------------------------- renaming


def test_a_renamed_voice_has_the_new_name_alone_here_and_elsewhere(tmp_path: Path) -> None:
    library, other = opened(tmp_path), opened(tmp_path)
    library.learn("mai", clip(), Learning(), language="vi")
    assert found(other, "mai") == 3.0
    assert library.rename("mai", "anh") == Voice("anh", "vi", "cloned")
    for each in (library, other, opened(tmp_path)):
        assert each.voices() == [Voice("anh", "vi", "cloned")]
        assert found(each, "anh") == 3.0
        assert each.find("mai") is None
    assert files(tmp_path) == ["learnt/npy", "names/json"]
    learn(other, "mai", 0.5)
    other.forget("mai")
    assert found(library, "anh") == 3.0


def test_a_renamed_voice_is_as_old_as_before(tmp_path: Path) -> None:
    library = opened(tmp_path)
    learn(library, "mai")
    os.utime(the_file(tmp_path, "json"), (1, 1))
    learn(library, "zoe", 0.5)
    library.rename("mai", "anh")
    assert names(library) == ["anh", "zoe"]


def test_a_voice_takes_no_name_that_another_has(tmp_path: Path) -> None:
    library = opened(tmp_path)
    learn(library, "mai")
    learn(opened(tmp_path), "anh", 0.5)
    for new in ("anh", "mai"):
        with pytest.raises(InvalidRequestError, match=f"there is a voice '{new}' already"):
            library.rename("mai", new)
    with pytest.raises(InvalidRequestError, match="of its own"):
        library.rename("mai", "own", taken=["own"])
    with pytest.raises(InvalidRequestError, match="a voice's name has"):
        library.rename("mai", "\n")
    with pytest.raises(VoiceNotFoundError, match="no voice 'zoe'; available: mai, anh"):
        library.rename("zoe", "lan")
    assert [found(library, name) for name in ("mai", "anh")] == [3.0, 5.0]


@pytest.mark.parametrize("meanwhile", ["enrols the new name", "forgets the old one"])
def test_another_process_may_come_before_a_new_name_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    library, other = opened(tmp_path), opened(tmp_path)
    learn(library, "mai")
    learn(library, "zoe", 0.7)
    flock = fcntl.flock

    def waits(file: int, operation: int) -> None:
        monkeypatch.undo()
        if meanwhile.startswith("enrols"):
            learn(other, "anh", 0.5)
        else:
            other.forget("mai")
        flock(file, operation)

    monkeypatch.setattr("fcntl.flock", waits)
    error = InvalidRequestError if meanwhile.startswith("enrols") else VoiceNotFoundError
    with pytest.raises(error):
        library.rename("mai", "anh")
    assert found(library, "anh") == (5.0 if error is InvalidRequestError else None)
    assert found(library, "mai") == (3.0 if error is InvalidRequestError else None)


def test_a_voice_that_lasts_as_long_as_the_process_can_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    library = opened(tmp_path / "file")
    learn(library, "mai")
    learn(library, "zoe")
    with pytest.raises(InvalidRequestError, match="there is a voice 'zoe' already"):
        library.rename("mai", "zoe")
    assert library.rename("mai", "anh") == Voice("anh", "und", "cloned")
    assert names(library) == ["zoe", "anh"]
    assert found(library, "anh") == 3.0


def test_a_voice_that_cannot_be_renamed_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = opened(tmp_path)
    learn(library, "mai")

    def full(self: Path, *_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(EngineError, match=r"'mai' can't be renamed: .*No space left"):
            library.rename("mai", "anh")
    assert names(library) == ["mai"]
    assert found(library, "mai") == 3.0


# ---------------------------------------------------------------- folders that are no use


def test_where_nothing_can_be_written_a_voice_lasts_as_long_as_the_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    library = opened(tmp_path / "file")
    learning = Learning()
    library.learn("mai", clip(), learning)
    library.learn("anh", clip(), learning)
    assert learning.count == 1
    assert names(library) == ["mai", "anh"]
    assert found(library, "mai") == 3.0
    assert caplog.messages[0].startswith("the voice 'mai' isn't kept beyond this process: ")
    library.forget("mai")
    assert names(library) == ["anh"]
    with pytest.raises(VoiceNotFoundError):
        library.forget("mai")
    assert opened(tmp_path / "file").voices() == []


def test_a_full_disk_leaves_the_old_voice_to_others_and_no_half_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(what: Learnt, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    learn(opened(tmp_path), "mai")
    library = opened(tmp_path, save=full)
    learn(library, "mai", 0.5)
    assert "No space left on device" in caplog.text
    assert found(library, "mai") == 5.0
    assert names(library) == ["mai"]
    assert found(opened(tmp_path), "mai") == 3.0
    learn(opened(tmp_path), "anh")  # which tidies up
    assert files(tmp_path) == ["learnt/npy", "names/json", "names/json"]
    library.forget("mai")
    assert library.find("mai") is None
    assert names(opened(tmp_path)) == ["anh"]


def test_what_cannot_be_saved_for_a_reason_of_its_packages_own_is_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class PackageError(Exception):
        """As of safetensors, which isn't an OSError."""

    def full(what: Learnt, path: Path) -> None:
        path.write_bytes(b"half")
        raise PackageError("No space left on device")

    library = opened(tmp_path, save=full)
    assert learn(library, "mai").id == "mai"
    assert caplog.messages == [
        "the voice 'mai' isn't kept beyond this process: PackageError: No space left on device"
    ]
    assert found(library, "mai") == 3.0
    assert opened(tmp_path).voices() == []


def test_a_name_that_cannot_be_written_lasts_as_long_as_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = opened(tmp_path)

    def full(self: Path, *_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        learn(library, "mai")
    assert found(library, "mai") == 3.0
    assert names(library) == ["mai"]
    assert opened(tmp_path).voices() == []
    learn(library, "mai")  # now there is space
    assert found(opened(tmp_path), "mai") == 3.0
    assert names(library) == ["mai"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_voices_in_a_folder_that_is_read_only_speak(tmp_path: Path) -> None:
    learn(opened(tmp_path), "mai")
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    try:
        for folder in folders:
            folder.chmod(0o500)
        assert found(opened(tmp_path), "mai") == 3.0
        with pytest.raises(EngineError, match="can't be deleted"):
            opened(tmp_path).forget("mai")
    finally:
        for folder in folders:
            folder.chmod(0o700)


def test_a_voice_that_cannot_be_deleted_is_an_error_and_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = opened(tmp_path)
    learn(library, "mai")

    def read_only(self: Path, **_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", read_only)
        with pytest.raises(EngineError, match=r"can't be deleted: .*Read-only"):
            library.forget("mai")
    assert found(library, "mai") == 3.0
    library.forget("mai")
    assert files(tmp_path) == []


@pytest.mark.parametrize("failing", ["iterdir", "read_bytes"])
def test_when_names_cannot_be_read_nothing_is_taken_for_unused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Such as in a process with as many open files as it may have."""
    library = opened(tmp_path)
    learn(library, "mai")

    def fails(self: Path) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(Path, failing, fails)
        learn(library, "anh", 0.5)
        with pytest.raises(EngineError, match=r"can't be read: .*Too many open files"):
            library.voices()
    assert files(tmp_path) == ["learnt/npy", "learnt/npy", "names/json", "names/json"]
    assert found(opened(tmp_path), "mai") == 3.0


def test_somebody_elses_name_in_the_folder_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = opened(tmp_path)
    learn(library, "root's")
    theirs = the_file(tmp_path, "json")
    learn(library, "mai", 0.5)
    read = Path.read_bytes

    def private(self: Path) -> bytes:
        if self == theirs:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", private)
    assert names(library) == ["mai"]
    assert library.find("root's") is None
    library.forget("mai")
    monkeypatch.undo()
    assert found(opened(tmp_path), "root's") == 3.0


# ---------------------------------------------------------------- files that are damaged


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"mai"',
        b"{}",
        b'{"name": "mai"}',
        b'{"name": "mai", "language": "und", "clip": "../../x"}',
        b'{"name": "mai", "language": "und", "clip": 7}',
        b'{"name": "mai", "language": null, "clip": "x"}',
        b'{"name": 7, "language": "und", "clip": "x"}',
        b'{"name": "anh", "language": "und", "clip": "x"}',
        b'{"name": "mai", "language": "und", "clip": "x", "more": 1}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_name_is_none_and_can_be_learnt_again(tmp_path: Path, content: bytes) -> None:
    learn(opened(tmp_path), "mai")
    the_file(tmp_path, "json").write_bytes(content)
    library = opened(tmp_path)
    assert library.voices() == []
    assert library.find("mai") is None
    learn(library, "mai")
    assert found(library, "mai") == 3.0
    assert files(tmp_path) == ["learnt/npy", "names/json"]


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPY", b"\x80\x04N.", b"<html>"])
def test_a_damaged_voice_says_so_and_can_be_learnt_again(
    tmp_path: Path, content: bytes | None
) -> None:
    learn(opened(tmp_path), "mai")
    learn(opened(tmp_path), "anh", 0.5)
    damaged = min(tmp_path.rglob("*.npy"), key=lambda path: float(load(path)[0]))
    if content is None:
        damaged.unlink()
    else:
        damaged.write_bytes(content)
    library = opened(tmp_path)
    with pytest.raises(EngineError, match=r"the voice 'mai' can't be read .*; clone it again$"):
        library.find("mai")
    assert found(library, "anh") == 5.0
    assert sorted(names(library)) == ["anh", "mai"]
    learning = Learning()
    library.learn("mai", clip(), learning)
    assert learning.count == 1
    assert found(opened(tmp_path), "mai") == 3.0


def test_a_damaged_voice_can_be_forgotten(tmp_path: Path) -> None:
    learn(opened(tmp_path), "mai")
    the_file(tmp_path, "npy").write_bytes(b"")
    opened(tmp_path).forget("mai")
    assert files(tmp_path) == []


def test_a_folder_in_the_place_of_a_file_is_passed_over(tmp_path: Path) -> None:
    library = opened(tmp_path)
    learn(library, "mai")
    mai = the_file(tmp_path, "json")
    for place in (mai.with_name("x.json"), mai.with_name("x")):
        place.mkdir()
    (the_file(tmp_path, "npy").parent / "x").mkdir()
    assert names(library) == ["mai"]
    learn(library, "anh", 0.5)
    library.forget("anh")  # and it is tidied up all the same
    assert files(tmp_path) == ["learnt/npy", "names/json"]
    mai.unlink()
    mai.mkdir()
    assert library.find("mai") is None
    assert library.voices() == []


def test_what_is_no_name_of_ours_is_not_looked_at(tmp_path: Path) -> None:
    library = opened(tmp_path)
    learn(library, "mai")
    name = the_file(tmp_path, "json")
    name.with_name("copy of it.json").write_bytes(name.read_bytes())
    name.with_name("x.part").write_bytes(name.read_bytes())
    assert names(library) == ["mai"]


# ---------------------------------------------------------------- several at once


def test_two_threads_with_one_recording_learn_it_once(tmp_path: Path) -> None:
    library = opened(tmp_path)
    together = threading.Barrier(4)
    learning = Learning()

    def enrol(name: str) -> None:
        together.wait(5)
        library.learn(name, clip(), learning)

    threads = [threading.Thread(target=enrol, args=(f"voice {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert learning.count == 1
    assert sorted(names(library)) == ["voice 0", "voice 1", "voice 2", "voice 3"]


def test_one_is_found_and_forgotten_while_another_is_learnt(tmp_path: Path) -> None:
    library = opened(tmp_path)
    learn(library, "mai")
    begun, goes_on = threading.Event(), threading.Event()

    def slowly(heard: AudioChunk) -> Learnt:
        begun.set()
        assert goes_on.wait(5)
        return heard.samples[:1] * 10

    thread = threading.Thread(target=library.learn, args=("anh", clip(0.5), slowly))
    thread.start()
    assert begun.wait(5)
    assert found(library, "mai") == 3.0
    library.forget("mai")
    assert library.voices() == []
    goes_on.set()
    thread.join(5)
    assert found(library, "anh") == 5.0


def test_a_voice_found_while_it_is_learnt_anew_is_one_of_the_two(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    learn(writer, "mai")
    reads = 0

    def meanwhile(path: Path) -> Learnt:
        nonlocal reads
        reads += 1
        if reads == 1:
            learn(writer, "mai", 0.5)
        return load(path)

    assert found(opened(tmp_path, load=meanwhile), "mai") == 5.0
    assert reads == 2

    def forgotten(path: Path) -> Learnt:
        writer.forget("mai")
        return load(path)

    assert opened(tmp_path, load=forgotten).find("mai") is None


def _busy(folder: Path, seed: int) -> None:
    """Enrol and forget at random, as one of several processes."""
    library = opened(folder)
    random = np.random.default_rng(seed)
    for _ in range(60):
        name, value = f"voice {random.integers(3)}", 0.1 + random.integers(3) / 10
        if random.random() < 0.6:
            library.learn(name, clip(value), Learning())
        else:
            try:
                library.forget(name)
            except VoiceNotFoundError:
                continue
        # Whatever the others did meanwhile: no voice is broken.
        assert found(library, name) in (None, 1.0, 2.0, 3.0)
    library.learn(f"last {seed}", clip(0.9), Learning())


def test_processes_on_one_folder_break_no_voice_of_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_busy, args=(tmp_path, seed)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    library = opened(tmp_path)
    for name in names(library):
        assert found(library, name) in (1.0, 2.0, 3.0, 9.0)
    assert {"last 0", "last 1", "last 2"} <= set(names(library))
    for name in names(library):
        library.forget(name)
    assert files(tmp_path) == []


def test_a_folder_whose_disk_has_no_locks_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", none)
    library = opened(tmp_path)
    learn(library, "mai")
    assert found(opened(tmp_path), "mai") == 3.0
    monkeypatch.setattr("tts_plugins.library._locks", False)
    library.forget("mai")
    assert files(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_that_is_forked_while_a_voice_is_learnt_and_read_waits_for_neither(
    tmp_path: Path,
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path)],
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (0, "5.0 3.0 0\n"), ended.stderr


FORKED = """
import os, signal, sys, threading, warnings
from pathlib import Path
from tests.test_library import clip, found, learn, opened

warnings.simplefilter("ignore")
library = opened(Path(sys.argv[1]))
learn(library, "mai")
begun, goes_on = threading.Event(), threading.Event()

def slowly(heard):
    with library._lock, library._writing:
        begun.set()
        goes_on.wait()
    return heard.samples[:1]

threading.Thread(target=library.learn, args=("zoe", clip(0.7), slowly), daemon=True).start()
begun.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    learn(library, "anh", 0.5)
    print(found(library, "anh"), found(library, "mai"), end=" ", flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
os._exit(0)
"""


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.test_library import clip, learn, opened, save

at = int(sys.argv[2])
replace = Path.replace
count = 0

def killed(self, target):
    global count
    count += 1
    if count == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)

Path.replace = killed
learn(opened(Path(sys.argv[1])), "mai", 0.5)
"""


@pytest.mark.parametrize("at", [1, 2])
def test_who_is_killed_while_it_writes_leaves_no_broken_voice(tmp_path: Path, at: int) -> None:
    """First before what was learnt is there, then before the name leads to it."""
    learn(opened(tmp_path), "mai")
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(at)], timeout=60, check=False
    )
    assert ended.returncode == -9
    assert len(files(tmp_path)) > 2
    library = opened(tmp_path)
    assert names(library) == ["mai"]
    assert found(library, "mai") == 3.0
    learn(library, "anh")  # nobody waits for the dead, and it tidies up
    assert files(tmp_path) == ["learnt/npy", "names/json", "names/json"]


def test_what_is_kept_can_be_read_by_anybody_who_reads_json(tmp_path: Path) -> None:
    learn(opened(tmp_path), "Nguyễn")
    kept = json.loads(the_file(tmp_path, "json").read_text())
    assert kept == {"name": "Nguyễn", "language": "und", "clip": the_file(tmp_path, "npy").stem}
