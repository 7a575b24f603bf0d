"""Listen to a recording that a voice is to be learnt from.

Engines are given what was heard in place of somebody's bytes, so that nothing which was made to do
harm reaches a decoder of theirs. No header is believed: a kilobyte may claim to be hours, and a few
kilobytes of FLAC really are. What is heard is counted while it is decoded, a little at a time::

    a frame                    can be              becomes at most
    FLAC, all of one value     12 bytes            65,535 samples
    Opus, a packet of nothing   1 byte              5,760
    MP3, at 8 kbit/s           24 bytes               576
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tts_plugins.audio.codec import ADTS_FRAME
from tts_plugins.audio.level import first_above
from tts_plugins.audio.pcm import AudioReader, joined
from tts_plugins.audio.sniff import AnyReader
from tts_plugins.audio.wav import wav_file
from tts_plugins.errors import InvalidRequestError
from tts_plugins.types import AudioChunk, Reference, Samples

_SHORTEST, _LONGEST = 0.5, 120.0
"""Seconds."""

_LOWEST, _HIGHEST = 8_000, 96_000
"""Hertz."""

_LARGEST = 100_000_000
"""Bytes of a file that is read at all: 120 s of any WAV but the most lavish."""

_CLIPPED = 0.01
"""Part of the samples that may be at full scale: more are a distortion, which would be learnt."""

_PIECE = 1024
"""Bytes that are decoded between two looks at what came of them: 22 MB at the very most."""

_PATIENCE = 10.0
"""Seconds of a processor. An honest recording needs one; a search for the ends of frames that were
made to have none goes on for hours."""

_SEND = "send wav, mp3, flac, ogg opus or aac"


def listen(reference: Reference) -> AudioChunk:
    """What is in a recording: mono, at the recording's own rate.

    Blocks its thread for as long as reading and decoding take.

    Args:
        reference: A path to a file, or the bytes of one: WAV, MP3, FLAC, Ogg Opus or AAC; or
            samples.

    Raises:
        InvalidRequestError: If it is none of these, broken, or no use: of another rate than 8 to
            96 kHz, shorter than 0.5 s or longer than 120 s, silent, or clipped.
        MissingDependencyError: If it isn't a WAV and the extra ``codecs`` isn't installed.
    """
    if isinstance(reference, AudioChunk):
        return _useful(reference)
    return decode(reference if isinstance(reference, bytes) else _read(Path(reference)))


def hear(clip: bytes, *, clock: Callable[[], float] = time.thread_time) -> bytes:
    """A WAV, mono and of 16 bits a sample, of what is in a file; see ``decode``."""
    return wav_file(decode(clip, clock=clock))


def decode(clip: bytes, *, clock: Callable[[], float] = time.thread_time) -> AudioChunk:
    """What is in a file that anybody may have made; see ``listen``.

    Args:
        clip: The bytes of the file.
        clock: Seconds that this thread has worked. Tests pass their own.
    """
    # No rate for bare samples, which makes them an error: anything at all could be some.
    reader = AnyReader(_media_type(clip), sample_rate=0)
    deadline = clock() + _PATIENCE
    parts: list[Samples] = []
    count, rate = 0, 0
    try:
        for samples in _pieces(reader, clip):
            if clock() > deadline:
                raise InvalidRequestError("the recording takes too long to decode: send it as wav")
            if not len(samples):
                continue
            rate = rate or _rate(reader.sample_rate)
            parts.append(samples)
            count += len(samples)
            _check_length(count, rate)
    except ValueError as error:
        raise InvalidRequestError(f"the recording can't be read: {error}; {_SEND}") from error
    return _useful(AudioChunk(joined(parts), rate or _LOWEST))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)  # its size isn't known if it is a pipe or a device
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        raise InvalidRequestError(f"can't read the recording {path}: {reason}") from error
    if len(content) > _LARGEST:
        raise InvalidRequestError(f"{path} is too large: at most {_LARGEST} bytes are read")
    return content


def _useful(chunk: AudioChunk) -> AudioChunk:
    """The same recording, if a voice can be learnt from it."""
    samples, rate = chunk.samples, _rate(chunk.sample_rate)
    if samples.ndim != 1 or samples.dtype != np.float32 or not np.isfinite(samples).all():
        raise InvalidRequestError(
            "samples of a recording are float32 of shape [n], and all of them numbers; "
            f"these are {samples.dtype} of shape {list(samples.shape)}"
        )
    if len(samples) < _SHORTEST * rate:
        raise InvalidRequestError(f"the recording is shorter than {_SHORTEST:g} s: say more")
    _check_length(len(samples), rate)
    if first_above(samples) is None:
        raise InvalidRequestError("the recording is silent: nothing in it is above -40 dB")
    clipped = float(np.mean(np.abs(samples) > 0.999))
    if clipped > _CLIPPED:
        raise InvalidRequestError(
            f"the recording is clipped: {clipped:.0%} of its samples are at full scale; "
            "record it more quietly"
        )
    return chunk


def _check_length(count: int, rate: int) -> None:
    if count > _LONGEST * rate:
        raise InvalidRequestError(
            f"the recording is longer than {_LONGEST:g} s: cut it, 10 s are plenty"
        )


def _pieces(reader: AudioReader, clip: bytes) -> Iterator[Samples]:
    for start in range(0, len(clip), _PIECE):
        yield reader.push(clip[start : start + _PIECE])
    yield reader.flush()


def _media_type(clip: bytes) -> str:
    """What to call a file whose first bytes alone don't tell the reader what it is."""
    if clip[4:8] == b"ftyp" or clip.startswith(b"\x1aE\xdf\xa3"):
        raise InvalidRequestError(f"m4a, mp4 and webm can't be read; {_SEND}")
    aac = all(byte in allowed for byte, allowed in zip(clip, ADTS_FRAME, strict=False))
    return "audio/aac" if aac else "audio/mpeg"


def _rate(sample_rate: int) -> int:
    if not _LOWEST <= sample_rate <= _HIGHEST:
        raise InvalidRequestError(
            f"the recording has {sample_rate} Hz: send one of {_LOWEST} to {_HIGHEST}"
        )
    return sample_rate
