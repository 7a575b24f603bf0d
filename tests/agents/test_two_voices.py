"""Two people in one conversation: who is heard when, to the sample."""

from __future__ import annotations

import math
import time
import wave
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from examples.agents.two_voices import FRAME, RATE, Line, Spoken, converse
from tests.agents.running import Running
from tts_plugins.engine import Engine
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice, Word

CHARACTER = 1440
"""Samples that the tone takes for one: 60 ms, three steps."""


@asynccontextmanager
async def tones() -> AsyncIterator[Sequence[Engine]]:
    """300 Hz on the left, 500 Hz on the right."""
    left, right = (
        Scheduler(ToneEngine(frequency=hertz), max_ahead=math.inf) for hertz in (300, 500)
    )
    async with aclosing(left), aclosing(right):
        yield left, right


async def talked(script: Sequence[Line], engines: Sequence[Engine]) -> tuple[Samples, list[Spoken]]:
    """All that is heard: samples of shape [n, 2], and the lines in the order of their ends."""
    ended: list[Spoken] = []
    async with aclosing(converse(script, engines, ended)) as steps:
        return np.concatenate([step async for step in steps]), ended


def side(n: int, hertz: float, *heard: tuple[int, int]) -> Samples:
    """Silence, but for tones that begin at a sample and last for some."""
    samples = np.zeros(n, np.float32)
    for begin, length in heard:
        t = np.arange(length) / RATE
        samples[begin : begin + length] = (0.2 * np.sin(2 * np.pi * hertz * t)).astype(np.float32)
    return samples


async def test_lines_are_heard_one_behind_the_other_each_on_its_side() -> None:
    async with tones() as engines:
        heard, ended = await talked((Line(0, "ab cd"), Line(1, "ef")), engines)
    # That the first ends after 0.24 s is known a step later; 0.3 s behind that comes the next.
    assert [line.begins for line in ended] == [0, 4 * CHARACTER + FRAME + 7200]
    assert np.array_equal(heard[:, 0], side(len(heard), 300, (0, 4 * CHARACTER)))
    assert np.array_equal(heard[:, 1], side(len(heard), 500, (13_440, 2 * CHARACTER)))
    assert [line.said() for line in ended] == ["ab cd", "ef"]


async def test_who_interjects_is_heard_at_the_same_time_and_stops_nobody() -> None:
    script = (Line(0, "abcd efgh ijkl"), Line(1, "mm", at="efgh"))
    async with tones() as engines:
        heard, ended = await talked(script, engines)
    # The word begins at 0.24 s; the first step behind that is heard by 0.26 s.
    begins = 4 * CHARACTER + FRAME
    assert np.array_equal(heard[:, 0], side(len(heard), 300, (0, 12 * CHARACTER)))
    assert np.array_equal(heard[:, 1], side(len(heard), 500, (begins, 2 * CHARACTER)))
    both = np.all(np.abs(heard) > 0.001, axis=1)
    assert both[begins : begins + 2 * CHARACTER].mean() > 0.9
    assert [line.said() for line in ended] == ["mm", "abcd efgh ijkl"]


async def test_a_barge_in_ends_the_other_after_a_fifth_of_a_second_and_so_do_their_words() -> None:
    script = (Line(0, "abcd efgh ijkl mnop"), Line(1, "stop that", at="efgh", barges_in=True))
    async with tones() as engines:
        heard, ended = await talked(script, engines)
    begins = 4 * CHARACTER + FRAME
    assert np.array_equal(heard[:, 0], side(len(heard), 300, (0, begins + RATE // 5)))
    assert np.array_equal(heard[:, 1], side(len(heard), 500, (begins, 8 * CHARACTER)))
    # Until 0.46 s: of the third word, which would begin at 0.48 s, nothing was heard.
    assert [line.said() for line in ended] == ["abcd efgh -", "stop that"]


class Endless:
    """Speaks a word every 0.1 s, until it is closed."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.closed = 0
        self.made = 0

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        self.asked.append(request.text)
        try:
            while True:
                word = Word("on", min(self.made, 1) * 3, self.made * 0.1, self.made * 0.1 + 0.1)
                yield AudioChunk(np.full(2400, 0.5, np.float32), RATE, (word,))
                self.made += 1
        finally:
            self.closed += 1

    async def voices(self) -> Sequence[Voice]:
        return [Voice("endless", "und")]

    async def aclose(self) -> None:
        pass


async def test_a_barge_in_closes_the_stream_of_who_was_speaking() -> None:
    endless = Endless()
    script = (Line(0, "on on"), Line(1, "ab", at="on on", barges_in=True))
    async with tones() as (_, right):
        heard, _ = await talked(script, (endless, right))
    assert endless.closed == 1
    assert np.count_nonzero(heard[:, 0]) == 2400 + FRAME + RATE // 5
    assert endless.made <= 5  # of which four were heard


async def test_the_next_line_is_being_made_while_one_is_heard() -> None:
    first, second = Endless(), Endless()
    async with aclosing(
        converse((Line(0, "on on"), Line(1, "on on")), (first, second), [])
    ) as steps:
        for _ in range(7):  # past the first's first chunk, where it waits and others run
            await anext(steps)
        assert second.asked == ["on on"]
    assert (first.closed, second.closed) == (1, 1)


def test_ctrl_c_leaves_a_whole_recording_of_what_was_heard(tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    with Running("two_voices", str(path), VOICES="tone,tone?frequency=300") as example:
        example.wait_for("^tone is left, tone.frequency=300 is right")
        patience = time.monotonic() + 20
        while path.stat().st_size < 44 + 4 * RATE and time.monotonic() < patience:
            time.sleep(0.01)
        ended = example.press_ctrl_c()
    assert ended.status == 0
    assert "Traceback" not in ended.output
    with wave.open(str(path)) as wav:
        assert (wav.getnchannels(), wav.getsampwidth(), wav.getframerate()) == (2, 2, RATE)
        frames = wav.getnframes()
        assert RATE <= frames < 10 * RATE
        assert len(wav.readframes(frames)) == path.stat().st_size - 44
    *_, said, summary = ended.output.splitlines()
    assert summary == f"{frames / RATE:.1f} s in {path}"
    assert said.startswith(f" 0.00-{frames / RATE:5.2f}  tone: Good morning.")


@pytest.mark.parametrize(
    ("voices", "complaint"),
    [
        ("hibari", "VOICES names two engines: VOICES=hibari,piper"),
        ("tone,nobody", "no engine 'nobody'; available:"),
    ],
)
def test_voices_that_cannot_be_are_one_line(voices: str, complaint: str, tmp_path: Path) -> None:
    with Running("two_voices", str(tmp_path / "talk.wav"), VOICES=voices) as example:
        ended = example.end()
    assert ended.status == 1
    (line,) = ended.output.splitlines()
    assert line.startswith(complaint)
