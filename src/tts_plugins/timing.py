"""Estimate word times for an engine that reports none.

What a conversation remembers after a barge-in depends on them: without word times it is whole
sentences or nothing at all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace

import numpy as np

from tts_plugins.audio.level import first_above
from tts_plugins.engine import Engine, layers
from tts_plugins.text.words import estimate, units
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

_PACE = 0.065
"""Seconds a unit of text takes until the voice has been heard: about 15 letters a second."""

_LEARN = 0.3
"""Weight of the newest utterance in what is known about a voice's pace."""

_VOICES = 1000
"""Voices whose pace is remembered: some engines take any name that a client makes up."""


class TimedEngine:
    """The same engine, with words in every stream.

    A stream in which the engine reports words passes through untouched. In any other, words are
    spread over the text by its letters, released as their audio is made, and marked as not exact.
    The pace of each voice is learnt from what it has said. An engine that has ``audible(text)``
    blanks there what stands in a text without being said, such as a cue for an emotion.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._pace: dict[str | None, float] = {}
        said = (getattr(layer, "audible", None) for layer in layers(engine))
        self._audible: Callable[[str], str] = next(filter(None, said), str)

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        pace = self._pace.get(request.voice, _PACE)
        guess: _Guess | None = None
        reported = False
        rate = 0
        async with aclosing(self.engine.stream(request)) as chunks:
            async for chunk in chunks:
                rate = chunk.sample_rate
                # An engine that reports words does so before speech begins, and so is known
                # by now: nothing is guessed about silence.
                if guess and guess.told is not None:
                    # Too late: what was guessed has been given, and no word may come twice.
                    late = guess.told
                    chunk = replace(chunk, words=tuple(w for w in chunk.words if w.offset > late))
                reported = reported or bool(chunk.words)
                if not reported:
                    guess = guess or _Guess(self._audible(request.text), pace / request.speed)
                    chunk = replace(chunk, words=tuple(guess.push(chunk)))
                yield chunk
        if reported or guess is None:
            return
        if rest := tuple(guess.flush()):
            yield AudioChunk(np.zeros(0, np.float32), rate, rest)
        if guess.pace:
            self._pace.pop(request.voice, None)  # to the end, as the newest
            self._pace[request.voice] = pace + _LEARN * (guess.pace * request.speed - pace)
            if len(self._pace) > _VOICES:
                del self._pace[next(iter(self._pace))]

    async def voices(self) -> Sequence[Voice]:
        return await self.engine.voices()

    async def aclose(self) -> None:
        await self.engine.aclose()


class _Guess:
    """Where the words of one text are, given its audio as it comes."""

    def __init__(self, text: str, pace: float) -> None:
        self._words = list(estimate(text, pace))
        self._units = units(text)
        self._guessed = self._units * pace
        self._made = 0.0
        self._speech: float | None = None
        """When speech began, in seconds from the first sample."""
        self._last = 0.0
        self.told: int | None = None
        """Where the last word stands that was given."""

    @property
    def pace(self) -> float:
        """Seconds a unit really took; 0 when nothing was said."""
        return self._spoken / self._units if self._units else 0.0

    @property
    def _spoken(self) -> float:
        return 0.0 if self._speech is None else self._made - self._speech

    def push(self, chunk: AudioChunk) -> Iterator[Word]:
        """Take audio; yield the words that should start in it."""
        if self._speech is None and (first := first_above(chunk.samples)) is not None:
            self._speech = self._made + first / chunk.sample_rate
        self._made += chunk.seconds
        while self._words and self._speech is not None:
            word = self._words[0]
            if self._speech + word.start >= self._made:
                return
            yield self._place(self._words.pop(0), 1.0)

    def flush(self) -> Iterator[Word]:
        """End the audio; yield the words that were guessed to come later, where they must be."""
        if self._speech is None:
            self._speech = 0.0
        stretch = self._spoken / self._guessed if self._guessed else 1.0
        while self._words:
            yield self._place(self._words.pop(0), stretch)

    def _place(self, word: Word, stretch: float) -> Word:
        begin = self._speech or 0.0
        start = max(self._last, begin + word.start * stretch)
        self._last = start
        self.told = word.offset
        return replace(word, start=start, end=max(start, begin + word.end * stretch))
