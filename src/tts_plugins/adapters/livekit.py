"""LiveKit Agents: any engine as a ``livekit.agents.tts.TTS``.

    session = AgentSession(tts=EngineTTS("hibari"), use_tts_aligned_transcript=True, ...)

A stream is one segment, as everywhere in LiveKit: it drops text pushed after ``flush()``, with a
warning, so open a new stream for it. Markdown and emoji are removed by LiveKit before they get
here; ``<expr .../>``, its stage directions, are not spoken but stay in the transcript, where
LiveKit removes them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import version
from typing import Never

from tts_plugins.errors import MissingDependencyError

try:
    from livekit.agents import (
        DEFAULT_API_CONNECT_OPTIONS,
        NOT_GIVEN,
        APIConnectionError,
        APIConnectOptions,
        APIError,
        APIStatusError,
        APITimeoutError,
        NotGivenOr,
        Plugin,
        tts,
        utils,
    )
except ModuleNotFoundError as error:
    raise MissingDependencyError("livekit") from error
from livekit.agents.types import TimedString

from tts_plugins.audio.pcm import to_s16
from tts_plugins.engine import Engine
from tts_plugins.errors import EngineTimeoutError, TTSError, UnreachableError
from tts_plugins.speaker import Speaker, check_listener, settings
from tts_plugins.turn import Turn
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

logger = logging.getLogger(__name__)

_RELEASE = 0.03
"""Seconds of audio that a listener has left when nothing may be held back any more."""

_TAG = re.compile(r"</?expr\b[^<>]*>")
_OPEN_TAG = re.compile(r"<(/?(e(x(p(r([^\w<>][^<>]{0,300})?)?)?)?)?)?\Z")
_REST_OF_WORD = re.compile(r"[^\w\s]*\s*")
"""What follows a word and is heard with it: punctuation, emoji, space."""


class EngineTTS(tts.TTS[Never]):
    """Speaks through an engine, streamed, with the times of its words.

    Args:
        engine: What speaks: an engine, which stays yours to close, or the name of one. Named
            engines are shared within the process, and load in ``prewarm`` or when first needed.
        voice: Voice id; ``None`` means the engine's default.
        language: BCP 47 tag; ``None`` means the voice's own.
        speed: Ratio to the voice's natural pace.
        sample_rate: Rate of the frames in hertz, 8000 to 48000.
        early: Whether a turn may start inside a sentence when its end takes long to come.
        patience: Seconds a listener may hear nothing before APITimeoutError; ``None`` means
            ``conn_options.timeout``.

    Raises:
        EngineNotFoundError: If no engine has that name.
        InvalidRequestError: If an option can't be meant.
    """

    def __init__(
        self,
        engine: Engine | str,
        *,
        voice: str | None = None,
        language: str | None = None,
        speed: float = 1.0,
        sample_rate: int = 24_000,
        early: bool = True,
        patience: float | None = None,
    ) -> None:
        check_listener(sample_rate=sample_rate, patience=patience)
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=True, aligned_transcript=True),
            sample_rate=sample_rate,
            num_channels=1,
        )
        self._speaker = Speaker(engine, early=early)
        self._patience = patience
        self._template = settings(voice=voice, language=language, speed=speed)
        self._warming: asyncio.Task[None] | None = None

    @property
    def model(self) -> str:
        return self._speaker.name

    @property
    def provider(self) -> str:
        return "tts_plugins"

    def update_options(
        self,
        *,
        voice: NotGivenOr[str | None] = NOT_GIVEN,
        language: NotGivenOr[str | None] = NOT_GIVEN,
        speed: NotGivenOr[float] = NOT_GIVEN,
    ) -> None:
        """Change how the streams from now on speak; one that is open goes on as it began."""
        now = self._template
        self._template = settings(
            voice=voice if utils.is_given(voice) else now.voice,
            language=language if utils.is_given(language) else now.language,
            speed=speed if utils.is_given(speed) else now.speed,
        )

    def prewarm(self) -> None:
        """Load the engine. In the background where an event loop runs, as in a session; right
        here where none does, as in the function that sets up a job's process.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._speaker.load()
        else:
            if self._warming is None:
                self._warming = loop.create_task(self._warm_up())

    async def _warm_up(self) -> None:
        try:
            await self._speaker.warm_up(self._template.voice)
        except Exception:  # an engine's own code: anything may come, and the first turn reports it
            logger.exception("%s could not be warmed up", self.model)

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.ChunkedStream:
        return _TextStream(self, text, conn_options)

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.SynthesizeStream:
        return _TokenStream(self, conn_options)

    async def aclose(self) -> None:
        """Let go of the engine. LiveKit doesn't call this, and nothing is lost if nobody does."""
        if self._warming is not None:
            await utils.aio.cancel_and_wait(self._warming)
            self._warming = None
        await self._speaker.aclose()

    def _speech(self, conn_options: APIConnectOptions) -> _Speech:
        patience = conn_options.timeout if self._patience is None else self._patience
        return _Speech(self._speaker, self._template, self.sample_rate, patience)


class _TextStream(tts.ChunkedStream):
    """``synthesize``: the whole text is there from the start."""

    def __init__(self, owner: EngineTTS, text: str, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=owner, input_text=text, conn_options=conn_options)
        self._speech = owner._speech(conn_options)

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        output_emitter.initialize(
            request_id=utils.shortuuid("tts_"),
            sample_rate=self._speech.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
        )
        text = utils.aio.Chan[object]()
        text.send_nowait(self._input_text)
        text.close()
        await self._speech.run(text, output_emitter, asked=lambda: None)


class _TokenStream(tts.SynthesizeStream):
    """``stream``: the text comes as it is written."""

    def __init__(self, owner: EngineTTS, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=owner, conn_options=conn_options)
        self._speech = owner._speech(conn_options)

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        request_id = utils.shortuuid("tts_")
        output_emitter.initialize(
            request_id=request_id,
            sample_rate=self._speech.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            stream=True,
        )
        output_emitter.start_segment(segment_id=request_id)
        # A retry runs all of this again, over a fresh channel that holds the text from the start.
        await self._speech.run(self._input_ch, output_emitter, asked=self._mark_started)


@dataclass(frozen=True)
class _Speech:
    """How a stream speaks: what its TTS was set to when the stream was opened."""

    speaker: Speaker
    template: SynthesisRequest
    sample_rate: int
    patience: float

    async def run(
        self, text: AsyncIterable[object], out: tts.AudioEmitter, *, asked: Callable[[], None]
    ) -> None:
        """Speak ``text`` into ``out``; call ``asked`` when the engine is asked for speech.

        What LiveKit holds back to make frames of is released just before a listener runs dry; it
        does so itself from 1.8.7 on, and before that not after the shortest sentences. A flush
        behind each sentence would add 10 ms of silence behind the last.
        """
        release: asyncio.TimerHandle | None = None
        heard = False
        try:
            async with asyncio.timeout(self.patience):
                engine = await self.speaker.open()
            turn = Turn(
                _Asked(engine, asked),
                sample_rate=self.sample_rate,
                template=self.template,
                early=self.speaker.early,
                patience=self.patience,
            )
            script = _Script(text)
            async with aclosing(turn.say_all(script)) as chunks:
                async for chunk in chunks:
                    out.push_timed_transcript(script.timed(turn, chunk.words))
                    if len(chunk.samples):
                        out.push(to_s16(chunk.samples))
                        heard = True
                        if release:
                            release.cancel()
                        in_time = turn.ahead() - _RELEASE
                        release = asyncio.get_running_loop().call_later(in_time, out.flush)
            if heard:
                out.push_timed_transcript(script.rest(turn))
        except Exception as error:
            # Anything but an APIError would leave the agent silent, with no error event.
            if heard:
                out.flush()
                await asyncio.sleep(0)  # LiveKit drops what it hasn't passed on when this raises
            raise _api_error(error, retryable=not heard) from error
        finally:
            if release:
                release.cancel()


class _Asked:
    """The same engine; calls ``asked`` before each request."""

    def __init__(self, engine: Engine, asked: Callable[[], None]) -> None:
        self.engine = engine
        self._asked = asked

    def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        self._asked()
        return self.engine.stream(request)

    async def voices(self) -> Sequence[Voice]:
        return await self.engine.voices()

    async def aclose(self) -> None:
        await self.engine.aclose()


class _Script:
    """What a stream is given to say: as text to speak, and back as a transcript that is exact.

    Times count from when the segment is first heard, with the gaps in which the listener waited
    for more: LiveKit shows words by the clock, and remembers as heard what it has shown.

    Not an async generator: one of those can't be closed while a task waits inside of it.
    """

    def __init__(self, items: AsyncIterable[object]) -> None:
        self._items = aiter(items)
        self._ended = False
        self._written = ""  # all that came
        self._pending = ""  # what of it hasn't been given to the turn yet
        self._told = 0  # how much of it is in the transcript
        self._time = 0.0

    def __aiter__(self) -> _Script:
        return self

    async def __anext__(self) -> str:
        while not self._ended:
            item = await anext(self._items, None)
            if isinstance(item, str):
                self._written += item
                # As long as what it replaces, so that every offset holds in both texts.
                self._pending = _TAG.sub(lambda tag: " " * len(tag[0]), self._pending + item)
                opening = _OPEN_TAG.search(self._pending)
                ready = self._pending[: opening.start()] if opening else self._pending
            else:  # the end, or a flush, which ends the segment
                self._ended = item is None or bool(self._written)
                ready = self._pending
            # Blank text is not a turn: LiveKit expects no audio for it.
            if ready and not self._written.isspace():
                self._pending = self._pending[len(ready) :]
                return ready
        raise StopAsyncIteration

    def timed(self, turn: Turn, words: Iterable[Word]) -> list[TimedString]:
        """The words, each with the space behind it and all that was skipped before it."""
        return [
            self._tell(end, word.start + turn.stalled, word.end + turn.stalled)
            for word in words
            if (end := _end_of_word(turn.text, word)) > self._told
        ]

    def rest(self, turn: Turn) -> list[TimedString]:
        """What no word covered, at the end of the audio."""
        end, now = len(self._written), turn.seconds + turn.stalled
        return [self._tell(end, now, now)] if end > self._told else []

    def _tell(self, end: int, start_time: float, end_time: float) -> TimedString:
        told, self._told = self._told, end
        start_time = self._time = max(self._time, start_time)
        return TimedString(self._written[told:end], start_time, max(start_time, end_time))


def _end_of_word(spoken: str, word: Word) -> int:
    rest = _REST_OF_WORD.match(spoken, word.offset + len(word.text))
    return rest.end() if rest else len(spoken)


def _api_error(error: Exception, *, retryable: bool) -> APIError:
    """The error as LiveKit classifies errors. Speech that was heard is never repeated."""
    if isinstance(error, EngineTimeoutError | TimeoutError):
        message = str(error) or "the engine took too long"
        return APITimeoutError(message, retryable=retryable)
    if isinstance(error, UnreachableError):
        return APIConnectionError(str(error), retryable=retryable)
    if isinstance(error, TTSError):
        return APIStatusError(
            str(error),
            status_code=error.status_code,
            retryable=retryable and error.retryable,
        )
    # Its message is not repeated here: it may hold what was to be said, and LiveKit logs it.
    return APIError(f"{type(error).__name__} while speaking", retryable=False)


if threading.current_thread() is threading.main_thread():  # LiveKit refuses it on any other
    Plugin.register_plugin(
        Plugin("tts_plugins", version("tts-plugins"), __name__, logging.getLogger("tts_plugins"))
    )
