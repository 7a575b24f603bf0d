"""Two voices in one conversation who talk into each other: a stereo recording, and what was heard.

scripts/agent two_voices                          # hibari left, Joe right: out/two_voices.wav
scripts/agent two_voices talk.wav                 # into another file; Ctrl-C ends it there
VOICES=hibari,kokoro scripts/agent two_voices     # with other engines

It plays by the clock, as a call does. While one is heard, the line that comes next is being made
already; a barge-in closes the stream of who was speaking, so that no more of it is made.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import time
import wave
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tts_plugins import Engine, Samples, TTSError, Word, open_engine
from tts_plugins.audio.pcm import joined, to_s16
from tts_plugins.timing import TimedEngine
from tts_plugins.turn import Turn

RATE = 24_000
FRAME = RATE // 50
"""Samples of a step, 20 ms of both sides."""
PAUSE = round(0.3 * RATE)
"""Samples between two lines, where nobody comes in earlier."""
NOTICED = round(0.2 * RATE)
"""Samples for which who is interrupted speaks on."""


@dataclass(frozen=True)
class Line:
    side: int
    """Whose it is: 0 is left, 1 is right."""
    text: str
    at: str = ""
    """The word of the line before at which it begins; behind its end if there is none."""
    barges_in: bool = False


SCRIPT = (
    Line(0, "Good morning. They told me that you have kept this lighthouse for thirty years."),
    Line(1, "Thirty one, this winter. My father kept it before me, when the lamp still burnt oil."),
    Line(0, "Oh, really?", at="before"),
    Line(1, "He climbed these stairs every three hours of the night, in any weather, and he never"),
    Line(0, "Excuse me, what is that sound?", at="weather", barges_in=True),
    Line(1, "That is the fog horn. You had better stay for supper."),
)


class Spoken:
    """A line: made from here on, heard as far as somebody listens."""

    def __init__(self, line: Line, engine: Engine) -> None:
        self.line = line
        self.words: list[Word] = []
        """Those that have been made, with seconds from the line's beginning."""
        self.begins = self.heard = 0
        """Samples: of the conversation before it, and of it."""
        self.ends = math.inf
        """Samples of the conversation until it has to end, once it is interrupted."""
        self._chunks = Turn(TimedEngine(engine), sample_rate=RATE).say(line.text)
        self._next = asyncio.create_task(anext(self._chunks, None))
        self._samples = np.zeros(0, np.float32)

    async def listen(self) -> Samples:
        """The next 20 ms; less at the end."""
        while len(self._samples) < FRAME and (chunk := await self._next) is not None:
            self._samples = joined([self._samples, chunk.samples])
            self.words += chunk.words
            self._next = asyncio.create_task(anext(self._chunks, None))
        samples, self._samples = self._samples[:FRAME], self._samples[FRAME:]
        self.heard += len(samples)
        return samples

    def said(self) -> str:
        """What has been heard of it."""
        heard = [word for word in self.words if word.start * RATE < self.heard]
        end = heard[-1].offset + len(heard[-1].text) if heard else 0
        return self.line.text[:end] + (" -" if self.begins + self.heard == self.ends else "")

    async def aclose(self) -> None:
        self._next.cancel()
        await asyncio.wait([self._next])
        await self._chunks.aclose()


async def converse(
    script: Sequence[Line], engines: Sequence[Engine], ended: list[Spoken]
) -> AsyncGenerator[Samples, None]:
    """The conversation, 20 ms of both sides at a time; ``ended`` gets each line when it is over."""
    left = list(script)
    speaking: list[Spoken] = []
    last: Spoken | None = None
    coming: Spoken | None = None
    now = quiet = 0
    try:
        while left or coming or speaking:
            if left and not coming:
                line = left.pop(0)
                coming = Spoken(line, engines[line.side])
            if coming and (
                bool(coming.line.at and last and coming.line.at in last.said())
                if speaking
                else now >= quiet
            ):
                for each in speaking if coming.line.barges_in else ():
                    each.ends = now + NOTICED
                coming.begins = now
                speaking.append(coming)
                last, coming = coming, None
            step = np.zeros((FRAME, 2), np.float32)
            for each in tuple(speaking):
                part = await each.listen()
                step[: len(part), each.line.side] += part
                if len(part) < FRAME or now + FRAME >= each.ends:
                    speaking.remove(each)
                    ended.append(each)
                    await each.aclose()
                    quiet = now + FRAME + PAUSE
            now += FRAME
            yield step
    finally:
        ended += speaking
        for each in (*speaking, *filter(None, [coming])):
            await each.aclose()


async def record(path: Path, names: Sequence[str]) -> None:
    """Play the script by the clock, into a file that is whole at any moment."""
    ended: list[Spoken] = []

    def tell() -> None:
        while ended:
            line = ended.pop(0)
            begins, ends = line.begins / RATE, (line.begins + line.heard) / RATE
            print(f"{begins:5.2f}-{ends:5.2f}  {names[line.line.side]}: {line.said()}", flush=True)

    left, right = map(open_engine, names)
    async with aclosing(left), aclosing(right):
        with wave.open(str(path), "wb") as wav:
            wav.setparams((2, 2, RATE, 0, "NONE", ""))
            print(f"{names[0]} is left, {names[1]} is right.", flush=True)
            began = time.monotonic()
            try:
                async with aclosing(converse(SCRIPT, (left, right), ended)) as steps:
                    async for step in steps:
                        wav.writeframes(to_s16(step.ravel()))
                        tell()
                        due = began + wav.getnframes() / RATE
                        await asyncio.sleep(due - time.monotonic())
            finally:
                tell()
                print(f"{wav.getnframes() / RATE:.1f} s in {path}")


def main() -> None:
    options = argparse.ArgumentParser(description="Two voices in one conversation.")
    options.add_argument("path", nargs="?", default="out/two_voices.wav", type=Path)
    path: Path = options.parse_args().path
    names = os.environ.get("VOICES", "hibari,piper").split(",")
    if len(names) != 2:
        sys.exit("VOICES names two engines: VOICES=hibari,piper")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(record(path, names))
    except TTSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
