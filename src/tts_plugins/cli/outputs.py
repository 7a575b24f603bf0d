"""Where speech goes: a file, standard output, a player; or several of them at once.

A file is written under another name beside its own and renamed when it is whole, so that half
of a text is never taken for all of it. What has gone down a pipe can't be taken back: there, the
exit status tells.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from tts_plugins.audio.pcm import to_s16
from tts_plugins.audio.wav import WavWriter
from tts_plugins.errors import InvalidRequestError
from tts_plugins.types import Samples

Write = Callable[[Samples], None]

_FORMATS = {"": "wav", ".wav": "wav", ".pcm": "pcm", ".raw": "pcm"}
"""What a file's name says about its format."""

_PLAYERS = {
    "aplay": "-q -t wav -",
    "paplay": "--raw --format=s16le --channels=1 --rate={rate}",
    "ffplay": "-nodisp -autoexit -loglevel error -f wav -i -",
    "play": "-q -V1 -t wav -",
}
"""What plays from a pipe; first those whose status tells whether it could be heard. afplay
doesn't: it wants to seek."""


@contextmanager
def outputs(
    output: str | None, *, play: bool, rate: int, audio_format: str | None
) -> Iterator[tuple[Write, list[str]]]:
    """Open everything that is to be written to.

    Args:
        output: A file's name, or ``-`` for standard output; ``None`` means speech.wav, or
            nothing when it is played.
        play: Whether to play it.
        rate: Sample rate, in hertz.
        audio_format: ``wav`` or ``pcm``; ``None`` means what the file's name says.

    Yields:
        What takes the samples, and the names of where they go.
    """
    suffix = Path(output or "").suffix.lower()
    audio_format = audio_format or _FORMATS.get(suffix, suffix.lstrip("."))
    if audio_format not in _FORMATS.values():
        raise InvalidRequestError(f"no format {audio_format!r}; available: wav, pcm")
    if output is None and not play:
        output = f"speech.{audio_format}"
    writes: list[Write] = []
    names: list[str] = []

    def write(samples: Samples) -> None:
        for one in writes:
            one(samples)

    with ExitStack() as stack:
        if output is not None:
            encoder = _encoder(audio_format, rate)
            writes.append(stack.enter_context(_opened(output, encoder)))
            names.append("standard output" if output == "-" else output)
        if play:
            player = _player()
            writes.append(stack.enter_context(_playing(player, rate)))
            names.append(Path(player).name)
        yield write, names


class _Encoder(Protocol):
    """What WavWriter is, and _PcmWriter too."""

    def push(self, samples: Samples) -> bytes: ...

    def flush(self) -> bytes: ...

    @property
    def header(self) -> bytes: ...


class _PcmWriter:
    header = b""

    def push(self, samples: Samples) -> bytes:
        return to_s16(samples)

    def flush(self) -> bytes:
        return b""


def _encoder(audio_format: str, rate: int) -> _Encoder:
    return WavWriter(rate) if audio_format == "wav" else _PcmWriter()


def _opened(output: str, encoder: _Encoder) -> AbstractContextManager[Write]:
    if output == "-":
        return _standard_output(encoder)
    if output.endswith("/"):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), output)
    path = Path(output)
    # /dev/stdout is what it leads to, which may be a file, but no name to write another beside.
    if path.is_relative_to("/dev") or (path.exists() and not path.is_file()):
        return _device(path, encoder)
    return _file(path.resolve() if path.is_symlink() else path, encoder)


@contextmanager
def _stream(file: BinaryIO, encoder: _Encoder) -> Iterator[Write]:
    """Encode into something that takes bytes only once."""

    def write(samples: Samples) -> None:
        file.write(encoder.push(samples))
        file.flush()

    yield write
    file.write(encoder.flush())
    file.flush()


@contextmanager
def _standard_output(encoder: _Encoder) -> Iterator[Write]:
    if sys.stdout is None:
        raise InvalidRequestError("standard output is closed")
    if sys.stdout.isatty():
        raise InvalidRequestError("audio is nothing to read; send standard output somewhere")
    with _stream(sys.stdout.buffer, encoder) as write:
        yield write


@contextmanager
def _device(path: Path, encoder: _Encoder) -> Iterator[Write]:
    with path.open("wb") as file, _stream(file, encoder) as write:
        yield write


@contextmanager
def _file(path: Path, encoder: _Encoder) -> Iterator[Write]:
    part, file = _open_part(path)
    spoken = whole = False

    def write(samples: Samples) -> None:
        nonlocal spoken
        file.write(encoder.push(samples))
        spoken = spoken or len(samples) > 0

    try:
        with file:
            try:
                yield write
                whole = True
            except KeyboardInterrupt:
                whole = spoken
                raise
            finally:
                file.write(encoder.flush())
                file.seek(0)
                file.write(encoder.header)
    except Exception as error:
        if spoken:
            error.add_note(f"what was spoken until then is in {part}")
        raise
    finally:
        if whole:
            part.replace(path)
        elif not spoken:
            part.unlink()


def _open_part(path: Path) -> tuple[Path, BinaryIO]:
    """What a file is called until it is whole, opened."""
    if path.exists() and not os.access(path, os.W_OK):  # renaming wouldn't ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    part = path.with_name(f"{path.stem}.part{path.suffix}")
    try:
        return part, part.open("wb")
    except OSError as error:
        error.filename = str(path)  # the name that was asked for
        raise


def _player() -> str:
    for name in _PLAYERS:
        if found := shutil.which(name):
            return found
    raise FileNotFoundError(
        "nothing to play with; install one of ffmpeg, alsa-utils, pulseaudio-utils, sox"
    )


@contextmanager
def _playing(player: str, rate: int) -> Iterator[Write]:
    name = Path(player).stem
    arguments = _PLAYERS[name].format(rate=rate).split()
    encoder = _encoder("pcm" if "--raw" in arguments else "wav", rate)
    process = subprocess.Popen([player, *arguments], stdin=subprocess.PIPE, bufsize=0)
    pipe = cast("BinaryIO", process.stdin)

    def write(data: bytes) -> None:
        try:
            pipe.write(data)
        except BrokenPipeError:
            raise ChildProcessError(f"{name} stopped with status {process.wait()}") from None

    try:
        yield lambda samples: write(encoder.push(samples))
        write(encoder.flush())
        pipe.close()
        if process.wait():
            raise ChildProcessError(f"{name} stopped with status {process.returncode}")
    finally:
        pipe.close()
        process.kill()
        process.wait()
