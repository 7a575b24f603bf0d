"""Say a text through an engine, and measure what a listener would notice."""

from __future__ import annotations

import asyncio
import codecs
import math
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tts_plugins.audio.level import first_above
from tts_plugins.cli.outputs import Write
from tts_plugins.engine import Engine
from tts_plugins.errors import InvalidRequestError
from tts_plugins.registry import open_engine
from tts_plugins.turn import Turn
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice

_LONG = 300
"""Characters from which on a text is worth a progress bar."""

_PATIENCE = 600.0
"""Seconds without audio before it gives up; a voice may have to be downloaded first."""


class Speech:
    """What was said so far, and how long somebody who plays it as it comes waits for it.

    Args:
        sample_rate: Rate of what is added, in hertz.
        clock: Monotonic time in seconds. Tests pass their own.
    """

    def __init__(self, sample_rate: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.waited = 0.0
        """Seconds for which the engine was waited for."""
        self.first_sound: float | None = None
        """Seconds from the first request until a sample is heard; None while all is silence."""
        self._sample_rate = sample_rate
        self._clock = clock
        self._asked_at: float | None = None
        self._plays_from: float | None = None
        self._samples = 0

    @property
    def seconds(self) -> float:
        """Audio so far."""
        return self._samples / self._sample_rate

    def add(self, samples: Samples) -> None:
        """Take samples that have just arrived."""
        if not len(samples):
            return
        now = self._clock()
        if self._plays_from is None:
            self._plays_from = now
        if self.first_sound is None and self._asked_at is not None:
            first = first_above(samples)
            if first is not None:
                # Playing began with the first chunk; this one may have come too late for it.
                played = max(now, self._plays_from + self.seconds)
                self.first_sound = played + first / self._sample_rate - self._asked_at
        self._samples += len(samples)

    def watch(self, engine: Engine) -> Engine:
        """The same engine, with its waiting times measured."""
        return _Watched(engine, self)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The time in this block is spent waiting for the engine."""
        start = self._clock()
        if self._asked_at is None:
            self._asked_at = start
        try:
            yield
        finally:
            self.waited += self._clock() - start

    def summary(self) -> str:
        """One line for people."""
        if not self._samples:
            return "nothing was said"
        sound = "silence"
        if self.first_sound is not None:
            sound = f"first sound after {1000 * self.first_sound:.0f} ms"
        ratio = self.waited / self.seconds
        return f"{sound}, {self.seconds:.2f} s of audio, {ratio:.3f} of real time"


class _Watched:
    def __init__(self, engine: Engine, speech: Speech) -> None:
        self._engine = engine
        self._speech = speech

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        async with aclosing(self._engine.stream(request)) as chunks:
            while True:
                with self._speech.waiting():
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk

    async def voices(self) -> Sequence[Voice]:
        return await self._engine.voices()

    async def aclose(self) -> None:
        await self._engine.aclose()


async def speak(
    speech: Speech, engine: str, text: str, *, template: SynthesisRequest, rate: int, write: Write
) -> None:
    """Say a text, or with ``-`` what arrives on standard input, sentence by sentence.

    Raises:
        InvalidRequestError: If there is no text.
        TTSError: What the engine raises.
    """
    # Nobody is to wait for a file: the engine may run ahead as far as it can.
    async with aclosing(open_engine(engine, max_ahead=math.inf)) as opened:
        turn = Turn(
            speech.watch(opened),
            sample_rate=rate,
            template=template,
            early=text == "-",  # a file may wait for its sentences; who types may not go on
            patience=_PATIENCE,
        )
        fragments = _standard_input() if text == "-" else _once(text)
        with _progress(text) as advance:
            async with aclosing(turn.say_all(fragments)) as chunks:
                async for chunk in chunks:
                    speech.add(chunk.samples)
                    advance(chunk)
                    write(chunk.samples)
    if not speech.seconds:
        raise InvalidRequestError("no text to say")


async def _once(text: str) -> AsyncIterator[str]:
    yield text


async def _standard_input() -> AsyncIterator[str]:
    """What arrives on standard input, as soon as it does; nothing before the first word."""
    # Only a thread can wait for a pipe, a file and a terminal alike. It reads the descriptor,
    # because a daemon thread inside sys.stdin's lock would be fatal when Python ends.
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(16)
    descriptor = sys.stdin.fileno()

    def read() -> None:
        with suppress(RuntimeError):  # the loop is gone: nobody is listening
            while data := os.read(descriptor, 65_536):
                loop.call_soon_threadsafe(arrived.put_nowait, data)
                room.acquire()
            loop.call_soon_threadsafe(arrived.put_nowait, b"")

    threading.Thread(target=read, daemon=True).start()
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    begun = False
    while data := await arrived.get():
        room.release()
        text = decoder.decode(data)
        if begun or text.strip():
            begun = True
            yield text
    if rest := decoder.decode(b"", final=True):
        yield rest


@contextmanager
def _progress(text: str) -> Iterator[Callable[[AudioChunk], None]]:
    """A bar on a terminal while a long text is spoken; it has no end when the text has none."""
    piped = text == "-" and not sys.stdin.isatty()
    if not (sys.stderr and sys.stderr.isatty()) or not (piped or len(text) >= _LONG):
        yield lambda chunk: None
        return
    columns = (TextColumn("speaking"), BarColumn(), TextColumn("{task.fields[seconds]:.1f} s"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        total = None if piped else sum(map(len, text.split()))
        task = progress.add_task("speaking", total=total, seconds=0.0)
        seconds = 0.0

        def advance(chunk: AudioChunk) -> None:
            nonlocal seconds
            seconds += chunk.seconds
            progress.update(
                task, advance=sum(len(word.text) for word in chunk.words), seconds=seconds
            )

        yield advance
