"""Draw the pictures of the documents, into docs/images.

    python -m benchmarks.pictures                      both; the second measures for a minute
    python -m benchmarks.pictures speech               one of them: speech, first_sound
    python -m benchmarks.pictures speech --to FOLDER

``speech`` is the same to the byte each time: a sentence of hibari, with the marks it gives itself.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.__main__ import PEERS
from benchmarks.texts import SHORT
from tts_plugins.audio.level import first_above
from tts_plugins.engines.hibari import HibariEngine
from tts_plugins.types import Samples, SynthesisRequest, Word

IMAGES = Path(__file__).parent.parent / "docs" / "images"
SEED = 1
OURS = "ours"
"""How those begin who speak through this package."""

Panels = Mapping[str, Mapping[str, float]]
"""Milliseconds by who speaks, for each panel of a picture."""

INTERRUPTED = 1.38
"""Seconds of the sentence that its listener hears before they speak up."""

_COLUMN = 0.005
"""Seconds in a column of a waveform."""
_WINDOW, _HOP = 512, 256
"""Samples of a column of the spectrogram, and between two of them."""
_TOP = 8_000
"""Hertz that it shows at most."""

PAPER, INK, FAINT = "#ffffff", "#24292f", "#8c959f"
HEARD, UNHEARD, OTHERS = "#0a66c2", "#b6bec8", "#a9b1bb"
_DARK = {PAPER: "#0d1117", INK: "#e6edf3", FAINT: "#7d8590", HEARD: "#58a6ff", UNHEARD: "#3d444d"}
"""What each is where the viewer's pages are dark."""


@dataclass(frozen=True)
class Sentence:
    """A sentence, as the engine gave it."""

    samples: Samples
    sample_rate: int
    words: Sequence[Word]
    borders: Sequence[float]
    """Seconds at which its chunks end."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate

    @property
    def first_sound(self) -> float:
        """Seconds until a sample is above -40 dBFS."""
        return (first_above(self.samples) or 0) / self.sample_rate


def spoken(text: str) -> Sentence:
    """Have hibari say it, chunk by chunk."""
    engine = HibariEngine()
    chunks = list(engine.synthesize(SynthesisRequest(text, options={"seed": SEED})))
    engine.close()
    return Sentence(
        np.concatenate([chunk.samples for chunk in chunks]),
        chunks[0].sample_rate,
        [word for chunk in chunks for word in chunk.words],
        list(accumulate(chunk.seconds for chunk in chunks)),
    )


def heard(words: Sequence[Word], until: float) -> list[Word]:
    """Those that had begun when the listener spoke up."""
    return [word for word in words if word.start < until]


def speech(folder: Path) -> None:
    """A sentence with its words, whole and interrupted."""
    sentence = spoken(SHORT)
    figure = _figure(8.4, 5.2)
    # Gaps between the axes hold the words of those below them.
    rows = figure.subplots(
        3, 1, sharex=True, gridspec_kw={"height_ratios": [1, 1.15, 1], "hspace": 0.42}
    )
    figure.subplots_adjust(left=0.075, right=0.985, top=0.9, bottom=0.1)
    _whole(rows[0], sentence)
    _spectrogram(rows[1], sentence)
    _interrupted(rows[2], sentence)
    rows[0].set_xlim(0, sentence.seconds)
    rows[2].set_xlabel("seconds of audio")
    _save(figure, folder / "speech.svg")


def _whole(axes: Axes, sentence: Sentence) -> None:
    first = f"{sentence.first_sound * 1000:.0f} ms"
    _title(
        axes, f"Words where they begin, ticks where chunks end; dashed: the first sound, at {first}"
    )
    _wave(axes, sentence, 0.0, sentence.seconds, HEARD)
    for border in sentence.borders[:-1]:
        axes.plot([border, border], [-1.0, -0.72], color=INK, linewidth=1.4)
    axes.axvline(sentence.first_sound, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
    _words(axes, sentence.words, HEARD, "whole")


def _spectrogram(axes: Axes, sentence: Sentence) -> None:
    columns = np.lib.stride_tricks.sliding_window_view(sentence.samples, _WINDOW)[::_HOP]
    spectra = np.abs(np.fft.rfft(columns * np.hanning(_WINDOW), axis=1))
    shown = round(_TOP / sentence.sample_rate * _WINDOW) + 1
    level = 20 * np.log10(spectra[:, :shown].T + 1e-6)
    middle, step = np.array([_WINDOW / 2, _HOP / 2]) / sentence.sample_rate
    # In steps of 4 dB, since each shade makes the file larger.
    axes.imshow(
        np.round(level / 4) * 4,
        origin="lower",
        aspect="auto",
        extent=(middle - step, middle + (2 * len(columns) - 1) * step, 0, _TOP),
        vmin=-40,
        vmax=30,
        cmap="magma",
        interpolation="none",
    )
    axes.set_ylim(0, _TOP)
    axes.set_yticks([0, 4000, 8000], ["0", "4", "8 kHz"])
    for word in sentence.words:
        axes.axvline(word.start, color="#fffffe", linewidth=0.7, alpha=0.55)
    _words(axes, sentence.words, INK, "spectrogram")


def _interrupted(axes: Axes, sentence: Sentence) -> None:
    known = heard(sentence.words, INTERRUPTED)
    _wave(axes, sentence, 0.0, INTERRUPTED, HEARD)
    _wave(axes, sentence, INTERRUPTED, sentence.seconds, UNHEARD)
    axes.axvline(INTERRUPTED, color=INK, linewidth=1.2)
    axes.text(INTERRUPTED + 0.015, -0.92, "a barge-in: the rest is never heard", fontsize=8)
    _words(axes, known, HEARD, "heard")
    _words(axes, sentence.words[len(known) :], FAINT, "unheard")


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10, color=INK, pad=20)


def _words(axes: Axes, words: Sequence[Word], colour: str, where: str) -> None:
    for word in words:
        axes.text(
            word.start,
            1.06,
            word.text,
            transform=axes.get_xaxis_transform(),
            fontsize=8.5,
            color=colour,
            gid=f"{where}-{word.offset}",
        )


def _wave(axes: Axes, sentence: Sentence, begin: float, end: float, colour: str) -> None:
    """The highest and lowest sample of each column."""
    each = round(_COLUMN * sentence.sample_rate)
    columns = len(sentence.samples) // each
    parts = sentence.samples[: columns * each].reshape(columns, each)
    times = (np.arange(columns) + 0.5) * _COLUMN
    shown = (times >= begin) & (times < end)
    scale = float(np.abs(sentence.samples).max())
    axes.fill_between(
        times[shown],
        parts.min(axis=1)[shown] / scale,
        parts.max(axis=1)[shown] / scale,
        color=colour,
        linewidth=0.4,
    )
    axes.set_ylim(-1.02, 1.02)
    axes.set_yticks([])


def first_sound(folder: Path) -> None:
    """How soon a bot is heard, ours beside the frameworks' own; measured now."""
    panels: dict[str, Mapping[str, float]] = {}
    for python, what in ((PEERS / "bin" / "python", "piper"), (Path(sys.executable), "server")):
        printed = subprocess.run(
            [python, "-m", "benchmarks.beside", what],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # Pipecat's greeting
            text=True,
            check=True,
        ).stdout
        panels |= json.loads(printed.splitlines()[-1])
    for panel, bars in panels.items():
        for name, milliseconds in bars.items():
            print(f"{panel}: {name} {milliseconds:g} ms")
    _save(bars_of(panels), folder / "first-sound.svg")


def bars_of(panels: Panels) -> Figure:
    """A row of bars for each who speaks, the shortest on top."""
    figure = _figure(8.4, 0.8 + 0.52 * len(panels) + 0.3 * sum(map(len, panels.values())))
    rows = figure.subplots(
        len(panels),
        1,
        squeeze=False,
        gridspec_kw={"height_ratios": [len(bars) for bars in panels.values()], "hspace": 0.62},
    )[:, 0]
    figure.subplots_adjust(left=0.34, right=0.93, top=0.92, bottom=0.06)
    for axes, (panel, bars) in zip(rows, panels.items(), strict=True):
        axes.set_title(panel, loc="left", fontsize=10, color=INK, x=-0.5)
        names = sorted(bars, key=lambda name: bars[name])
        drawn = axes.barh(
            names,
            [bars[name] for name in names],
            height=0.68,
            color=[HEARD if name.startswith(OURS) else OTHERS for name in names],
        )
        labels = [f"{bars[n]:.0f} ms" if bars[n] >= 10 else f"{bars[n]:.1f} ms" for n in names]
        axes.bar_label(drawn, labels, padding=4, fontsize=9, color=INK)
        axes.invert_yaxis()
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    return figure


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), facecolor=PAPER)
    figure.set_gid("paper")
    return figure


def _save(figure: Figure, path: Path) -> None:
    """As SVG with its text as text, and with colours for dark pages."""
    drawn = StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None}, facecolor=PAPER)
    rules = "".join(
        f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}\n'
        for light, dark in _DARK.items()
        for kind in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark) {{\n{rules}}}</style>\n"
    head, end, rest = drawn.getvalue().partition("<defs>")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(str.rstrip, f"{head}{style}{end}{rest}".splitlines())) + "\n")
    print(f"{path} ({path.stat().st_size / 1000:.0f} kB)")


PICTURES: Mapping[str, Callable[[Path], None]] = {"speech": speech, "first_sound": first_sound}


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the pictures of the documents.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    parser.add_argument("--to", type=Path, default=IMAGES, help="a folder (docs/images)")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - PICTURES.keys():
        parser.error(f"no picture {', '.join(sorted(unknown))}; there are {', '.join(PICTURES)}")
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "tts-plugins",
        "font.size": 9,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": FAINT,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with mpl.rc_context(settings):
        for name in arguments.names or PICTURES:
            PICTURES[name](arguments.to)


if __name__ == "__main__":
    main()
