"""tts_plugins.audio.g711: the telephone's codes."""

from __future__ import annotations

import hashlib
import importlib
import warnings
from types import ModuleType

import numpy as np
import pytest

from tts_plugins.audio.g711 import from_alaw, from_ulaw, to_alaw, to_ulaw
from tts_plugins.audio.pcm import from_s16, to_s16

EVERY_CODE = bytes(range(256))
EVERY_SAMPLE = from_s16(np.arange(-32768, 32768).astype("<i2").tobytes())


@pytest.fixture
def audioop() -> ModuleType:
    """What the standard library had for this, until Python 3.13."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return importlib.import_module("audioop")
        except ModuleNotFoundError:
            pytest.skip("this Python has no audioop")


def test_all_codes_sound_as_the_standard_library_has_it(audioop: ModuleType) -> None:
    assert to_s16(from_ulaw(EVERY_CODE)) == audioop.ulaw2lin(EVERY_CODE, 2)
    assert to_s16(from_alaw(EVERY_CODE)) == audioop.alaw2lin(EVERY_CODE, 2)


def test_all_samples_are_coded_as_the_standard_library_does(audioop: ModuleType) -> None:
    pcm = to_s16(EVERY_SAMPLE)
    assert to_ulaw(EVERY_SAMPLE) == audioop.lin2ulaw(pcm, 2)
    assert to_alaw(EVERY_SAMPLE) == audioop.lin2alaw(pcm, 2)


def test_all_samples_are_coded_as_the_standard_library_did() -> None:
    # Digests of what audioop of Python 3.11 makes of them.
    assert hashlib.sha256(to_ulaw(EVERY_SAMPLE)).hexdigest() == (
        "81d633c9e6972a18c74a58720b96cb8ca0bdd096d4060b646dd708c3b846019a"
    )
    assert hashlib.sha256(to_alaw(EVERY_SAMPLE)).hexdigest() == (
        "38488f6fd710f4686360edc4d38639f96c491595ef93f8eb8d62d5e07ca6ce7b"
    )


def test_silence_and_the_loudest_samples_have_the_codes_of_the_standard() -> None:
    samples = np.array([0.0, 1.0, -1.0], np.float32)
    assert to_ulaw(samples) == b"\xff\x80\x00"
    assert to_alaw(samples) == b"\xd5\xaa\x2a"


def test_codes_sound_as_loud_as_the_standard_says() -> None:
    loudest = np.array([0x80, 0x00], np.uint8).tobytes()
    assert (from_ulaw(loudest) * 32768).tolist() == [32124, -32124]
    assert (from_alaw(b"\xaa\x2a\xd5\x55") * 32768).tolist() == [32256, -32256, 8, -8]


def test_a_code_survives_the_round_trip() -> None:
    # Mu-law has two zeros; the negative one, 0x7F, becomes the positive one.
    assert to_ulaw(from_ulaw(EVERY_CODE)) == EVERY_CODE.replace(b"\x7f", b"\xff")
    assert to_alaw(from_alaw(EVERY_CODE)) == EVERY_CODE


def test_what_is_too_loud_clips_instead_of_wrapping() -> None:
    loud = np.array([2.0, -2.0, np.nan], np.float32)
    assert to_ulaw(loud) == b"\x80\x00\xff"
    assert to_alaw(loud) == b"\xaa\x2a\xd5"


def test_nothing_in_gives_nothing_out() -> None:
    assert to_ulaw(from_ulaw(b"")) == to_alaw(from_alaw(b"")) == b""
