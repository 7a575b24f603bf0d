"""Listen to a recording that a client sent, and write down what was heard.

Engines are given that in place of the client's bytes, so that nothing which was made to do harm
reaches a decoder of theirs. No header is believed: a kilobyte may claim to be hours, and a few
kilobytes of FLAC really are. What is heard is counted while it is decoded, a little at a time::

    a frame                    can be              becomes at most
    FLAC, all of one value     12 bytes            65,535 samples
    Opus, a packet of nothing   1 byte              5,760
    MP3, at 8 kbit/s           24 bytes               576
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from tts_plugins.audio.codec import ADTS_FRAME
from tts_plugins.audio.level import first_above
from tts_plugins.audio.pcm import AudioReader
from tts_plugins.audio.sniff import AnyReader
from tts_plugins.audio.wav import WavWriter
from tts_plugins.errors import InvalidRequestError
from tts_plugins.types import Samples

_SHORTEST, _LONGEST = 0.5, 120.0
"""Seconds."""

_LOWEST, _HIGHEST = 8_000, 96_000
"""Hertz."""

_PIECE = 1024
"""Bytes that are decoded between two looks at what came of them: 22 MB at the very most."""

_PATIENCE = 10.0
"""Seconds of a processor. An honest recording needs one; a search for the ends of frames that were
made to have none goes on for hours."""

_SEND = "send wav, mp3, flac, ogg opus or aac"


def hear(clip: bytes, *, clock: Callable[[], float] = time.thread_time) -> bytes:
    """A WAV of what is in a recording: mono, 16 bits a sample, at the recording's own rate.

    Blocks its thread for as long as decoding takes.

    Args:
        clip: WAV, MP3, FLAC, Ogg Opus or AAC.
        clock: Seconds that this thread has worked. Tests pass their own.

    Raises:
        InvalidRequestError: If it is none of these, broken, too long, too short or silent.
    """
    # No rate for bare samples, which makes them an error: anything at all could be some.
    reader = AnyReader(_media_type(clip), sample_rate=0)
    deadline = clock() + _PATIENCE
    writer: WavWriter | None = None
    wav, count, loud = bytearray(), 0, False
    try:
        for samples in _pieces(reader, clip):
            if clock() > deadline:
                raise InvalidRequestError("the recording takes too long to decode: send it as wav")
            if not len(samples):
                continue
            writer = writer or WavWriter(_rate(reader.sample_rate))
            count += len(samples)
            if count > _LONGEST * writer.sample_rate:
                raise InvalidRequestError(
                    f"the recording is longer than {_LONGEST:g} s: cut it, 10 s are plenty"
                )
            wav += writer.push(samples)
            loud = loud or first_above(samples) is not None
    except ValueError as error:
        raise InvalidRequestError(f"the recording can't be read: {error}; {_SEND}") from error
    if writer is None or count < _SHORTEST * writer.sample_rate:
        raise InvalidRequestError(f"the recording is shorter than {_SHORTEST:g} s: say more")
    if not loud:
        raise InvalidRequestError("the recording is silent: nothing in it is above -40 dB")
    wav[: len(writer.header)] = writer.header
    return bytes(wav)


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
