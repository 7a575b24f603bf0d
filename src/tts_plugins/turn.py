"""One bot turn: text in, one continuous timeline of audio and words out.

What every framework needs and none does right is done here once: sentences, the listener's
sample rate without a lost tail, words on one timeline, silence instead of nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing, suppress
from dataclasses import replace

import numpy as np

from tts_plugins.audio.resample import StreamResampler
from tts_plugins.engine import Engine
from tts_plugins.errors import EngineError, EngineTimeoutError, UnspeakableTextError
from tts_plugins.phraser import Phraser
from tts_plugins.playhead import Playhead
from tts_plugins.text.sentences import SentenceSplitter
from tts_plugins.text.words import speakable
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Word

_BREATH = 0.02
"""Seconds of silence for a text with nothing to say: both frameworks take a request without any
audio for a broken service."""

_BREATH_RATE = 24000
"""Hertz of a breath before the engine's own rate is known."""

_LONGEST_REST = 60.0
"""Seconds that an engine may rest for a listener with so much left, or who waits for the whole."""

_CONTEXT = 300
"""Characters of what was said before that an engine is told about."""


class Turn:
    """Speaks one turn, at the rate that the listener wants.

    All chunks are at ``sample_rate``. Word times count from the first sample of the turn, and
    their offsets from the first character of ``text``, everything given to the turn so far.

    Args:
        engine: What speaks; a TimedEngine if words matter.
        sample_rate: Rate of the chunks, in hertz; 0 for the engine's own, which the attribute
            tells from the first chunk on.
        template: The request to speak with; each sentence takes the place of its text, and what
            the turn has said is added to its ``previous_text``. May be replaced between two texts.
        early: Whether ``say_all`` may start inside a sentence when its end takes long to come.
        patience: Seconds a listener may hear nothing before EngineTimeoutError.
        playhead: The listener, if what was said before may still be playing.
        clock: Monotonic time in seconds. Tests pass their own.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        sample_rate: int,
        template: SynthesisRequest | None = None,
        early: bool = True,
        patience: float = 10.0,
        playhead: Playhead | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sample_rate = sample_rate
        self.template = template or SynthesisRequest("")
        self.text = ""
        """Everything given to the turn so far."""
        self.stalled = 0.0
        """Seconds for which a listener had run out of audio in the middle of the turn."""
        self._engine = engine
        self._patience = patience
        self._clock = clock
        self._playhead = playhead or Playhead(clock())
        self._samples = 0
        self._early = early

    @property
    def seconds(self) -> float:
        """Audio so far."""
        return self._samples / self.sample_rate if self._samples else 0.0

    def ahead(self) -> float:
        """Seconds of audio that the listener hasn't heard yet."""
        return self._playhead.ahead(self._clock())

    def phraser(self) -> Phraser:
        """What cuts this turn's text into pieces, for a caller who feeds ``say`` itself."""
        return Phraser(
            ahead=self.ahead,
            language=self.template.language,
            early=self._early,
            clock=self._clock,
        )

    async def say_all(self, fragments: AsyncIterable[str]) -> AsyncGenerator[AudioChunk, None]:
        """Speak text while it is being written; a breath of silence if none of it can be said."""
        before, text = self._samples, self.text
        async with aclosing(_pieces(fragments, self.phraser())) as pieces:
            async for piece in pieces:
                async with aclosing(self._say(piece)) as chunks:
                    async for chunk in chunks:
                        yield chunk
        if self._samples == before and self.text != text:
            yield self._breathe()

    async def say(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Speak a text sentence by sentence; a breath of silence if there is nothing in it to say.

        Raises:
            TTSError: What the engine raises, except UnspeakableTextError.
            EngineError: If the engine returned no audio, or changed its rate on the way.
            EngineTimeoutError: If the listener heard nothing for ``patience`` seconds.
        """
        before = self._samples
        splitter = SentenceSplitter(self.template.language)
        for sentence in [*splitter.push(text), *splitter.flush()]:
            async with aclosing(self._say(sentence)) as chunks:
                async for chunk in chunks:
                    yield chunk
        if self._samples == before:
            yield self._breathe()

    async def _say(self, piece: str) -> AsyncGenerator[AudioChunk, None]:
        """Speak a sentence, or a piece of one, if there is anything in it to say."""
        base = len(self.text)
        self.text += piece
        if speakable(piece):
            with suppress(UnspeakableTextError):
                async with aclosing(self._speak(piece, base)) as chunks:
                    async for chunk in chunks:
                        yield chunk

    async def _speak(self, piece: str, base: int) -> AsyncGenerator[AudioChunk, None]:
        spoken = piece.strip()
        base += piece.index(spoken)
        before, start = self._samples, self.seconds
        request = replace(
            self.template,
            text=spoken,
            due=self.ahead(),
            previous_text=self._previous(base),
        )
        resampler: StreamResampler | None = None
        early: list[Word] = []
        heard = waited = 0.0
        async with aclosing(self._engine.stream(request)) as chunks:
            while True:
                began = self._clock()
                chunk = await self._next(chunks, waited)
                if chunk is None:
                    break
                waited = 0.0 if len(chunk.samples) else waited + self._clock() - began
                # Whatever comes later, a caller who left the rate open gets one rate.
                self.sample_rate = self.sample_rate or chunk.sample_rate
                resampler = resampler or StreamResampler(chunk.sample_rate, self.sample_rate)
                if chunk.sample_rate != resampler.from_rate:
                    raise EngineError(
                        f"the engine went from {resampler.from_rate} to {chunk.sample_rate} Hz"
                        " within one utterance"
                    )
                heard += chunk.seconds
                # A word waits for its audio, which a server's wrong time may never reach.
                early += chunk.words
                words, early = _until(early, heard)
                yield self._emit(resampler.push(chunk.samples), _moved(words, base, start))
        if resampler:
            last = [
                # In this order a time that is no number is the end as well.
                replace(w, start=min(heard, w.start), end=min(heard, w.end), exact=False)
                for w in early
            ]
            yield self._emit(resampler.flush(), _moved(last, base, start))
        if self._samples == before:
            raise EngineError(f"the engine returned no audio for {len(spoken)} characters")

    def _previous(self, base: int) -> str:
        """The end of what was said before a piece of ``text``, in this turn and before it."""
        own = self.text[max(0, base - _CONTEXT) : base].strip()
        return f"{self.template.previous_text.strip()} {own}".strip()[-_CONTEXT:].lstrip()

    async def _next(
        self, chunks: AsyncGenerator[AudioChunk, None], waited: float
    ) -> AudioChunk | None:
        """The next chunk, for a listener who has waited for some seconds; None at the end."""
        try:
            # With audio left they wait longer: the engine may rest while they catch up.
            ahead = min(self.ahead(), _LONGEST_REST)
            async with asyncio.timeout(self._patience + ahead - waited) as patience:
                return await anext(chunks, None)
        except TimeoutError:
            if not patience.expired():
                raise
            raise EngineTimeoutError(f"the engine gave no audio for {self._patience:g} s") from None

    def _breathe(self) -> AudioChunk:
        self.sample_rate = self.sample_rate or _BREATH_RATE
        return self._emit(np.zeros(round(_BREATH * self.sample_rate), np.float32), ())

    def _emit(self, samples: Samples, words: Iterable[Word]) -> AudioChunk:
        chunk = AudioChunk(samples, self.sample_rate, tuple(words))
        if len(samples):
            silence = self._playhead.add(chunk.seconds, self._clock())
            self.stalled += silence if self._samples else 0.0
            self._samples += len(samples)
        return chunk


def _until(words: Sequence[Word], moment: float) -> tuple[list[Word], list[Word]]:
    """The words that have begun by then, and the others; all those behind one of them wait too."""
    for i, word in enumerate(words):
        if not word.start <= moment:
            return list(words[:i]), list(words[i:])
    return list(words), []


def _moved(words: Iterable[Word], base: int, start: float) -> Iterator[Word]:
    """The words of a piece as words of the turn.

    In Python's own numbers: engines count with numpy, whose numbers JSON doesn't know.
    """
    for word in words:
        yield replace(
            word,
            offset=base + int(word.offset),
            start=start + float(word.start),
            end=start + float(word.end),
        )


async def _pieces(fragments: AsyncIterable[str], phraser: Phraser) -> AsyncGenerator[str, None]:
    """The pieces to speak of a text that is still being written, each as soon as it is due."""
    source = aiter(fragments)
    coming: asyncio.Task[str | None] | None = None
    try:
        while True:
            # The next fragment keeps coming while the phraser looks at the clock, and while the
            # pieces so far are spoken.
            coming = coming or asyncio.create_task(_fetch(source))
            await asyncio.wait([coming], timeout=phraser.wait())
            if not coming.done():
                pieces = phraser.poll()
            else:
                fragment, coming = coming.result(), None
                if fragment is None:
                    break
                pieces = phraser.push(fragment)
            for piece in pieces:
                yield piece
        for piece in phraser.flush():
            yield piece
    finally:
        if coming is not None:
            coming.cancel()


async def _fetch(source: AsyncIterator[str]) -> str | None:
    return await anext(source, None)
