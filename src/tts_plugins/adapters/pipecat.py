"""Pipecat: any engine as a ``TTSService``.

    tts = EngineTTSService("hibari", settings=EngineTTSService.Settings(voice="heart"))
    pipeline = Pipeline([transport.input(), stt, user, llm, tts, transport.output(), assistant])

Text is cut into pieces to speak by Phraser, which also looks at the clock, in place of Pipecat's
own aggregator. Words are always timed, so that after an interruption the context holds what was
heard and nothing else.
"""

# mypy: disable-error-code="no-untyped-call"
# Pipecat leaves out annotations where a function returns nothing.

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from tts_plugins.errors import MissingDependencyError

try:
    from pipecat.frames.frames import (
        AggregatedTextFrame,
        ControlFrame,
        EndFrame,
        ErrorFrame,
        Frame,
        InterruptionFrame,
        TextFrame,
        TTSAudioRawFrame,
        TTSTextFrame,
    )
except ModuleNotFoundError as error:
    raise MissingDependencyError("pipecat") from error
from pipecat.processors.frame_processor import FrameDirection, FrameProcessorSetup
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode, TTSService
from pipecat.utils.errors import ErrorCategory
from pipecat.utils.text.base_text_aggregator import Aggregation, BaseTextAggregator
from pipecat.utils.time import seconds_to_nanoseconds
from pipecat.utils.tracing.service_decorators import traced_tts
from pipecat.utils.types import NOT_GIVEN, NotGiven, assert_given

from tts_plugins.audio.pcm import to_s16
from tts_plugins.engine import Engine
from tts_plugins.errors import EngineTimeoutError, RemoteError, UnreachableError
from tts_plugins.phraser import Phraser
from tts_plugins.playhead import Playhead
from tts_plugins.speaker import Speaker, check_listener
from tts_plugins.speaker import settings as template
from tts_plugins.text.sentences import SentenceSplitter
from tts_plugins.text.words import UNSPACED
from tts_plugins.turn import Turn
from tts_plugins.types import SynthesisRequest, Word

_IDLE = 60.0
"""Seconds after which Pipecat gives up on a turn that got neither audio nor an end.

Its own 3 s would cut a turn in two where the LLM or the engine takes longer. Every turn is closed
explicitly here, so this is only for one whose end got lost.
"""

_SOUND = r"\]\(/[^/]*/\)"
_PRONUNCIATION = re.compile(_SOUND)
_PRONOUNCED = re.compile(rf"\[?([^\[\]]*){_SOUND}")
"""A word and its pronunciation, as ``format_pronunciation`` joins them; of many words the last."""

_LONG = 1_000
"""Characters from which on a text goes through Pipecat sentence by sentence."""

_RUNS_ON = re.compile(rf"\s|[{UNSPACED}\u3000-\u303f\uff01-\uff65]")
"""Space, or a character that has none next to it."""


@dataclass
class EngineTTSSettings(TTSSettings):
    """What may change while a pipeline runs, from one sentence to the next.

    Parameters:
        speed: Ratio to the voice's natural pace; ``None`` means 1.
    """

    speed: float | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)


class EngineTTSService(TTSService):
    """Speaks through an engine.

    After three turns in a row without any audio Pipecat stops giving work to a service, so that
    a ServiceSwitcher moves on to the next one. Where there is no other, this service tries again
    with each new turn, unless its settings are what is wrong.
    """

    Settings = EngineTTSSettings
    _settings: EngineTTSSettings

    def __init__(
        self,
        engine: Engine | str,
        *,
        settings: EngineTTSSettings | None = None,
        sample_rate: int | None = None,
        early: bool = True,
        patience: float = 10.0,
        text_aggregator: BaseTextAggregator | None = None,
        **kwargs: Any,
    ) -> None:
        """Initialize the service. The engine loads when the pipeline is set up.

        Args:
            engine: What speaks: an engine, which stays yours to close, or the name of one.
            settings: Voice, language and speed; the engine's own defaults if not given.
            sample_rate: Rate of the audio in hertz; the pipeline's if not given.
            early: Whether a turn may start inside a sentence when its end takes long to come.
            patience: Seconds a listener may hear nothing before EngineTimeoutError.
            text_aggregator: What cuts the LLM's text, if not Phraser.
            **kwargs: Passed to TTSService.

        Raises:
            EngineNotFoundError: If no engine has that name.
            InvalidRequestError: If a setting, the sample rate or the patience can't be meant.
            TypeError: If Pipecat knows no such option.
            ValueError: If asked to speak single tokens.
        """
        if (
            kwargs.get("text_aggregation_mode") == TextAggregationMode.TOKEN
            or kwargs.get("aggregate_sentences") is False
        ):
            raise ValueError(
                "an engine speaks phrases, not tokens: leave text_aggregation_mode at SENTENCE;"
                " with early=True a long sentence is spoken while it is being written"
            )
        # Pipecat itself would ignore an option that it doesn't know, such as voice.
        known = {p for c in TTSService.__mro__ for p in inspect.signature(c).parameters}
        if unknown := kwargs.keys() - known:
            raise TypeError(
                f"no option {', '.join(sorted(unknown))}; voice, language and speed"
                " belong in settings=EngineTTSService.Settings(...)"
            )
        check_listener(sample_rate=sample_rate, patience=patience)
        self._speaker = Speaker(engine, early=early, patience=patience)
        store = self.Settings(model=self._speaker.name, voice=None, language=None, speed=None)
        if settings is not None:
            store.apply_update(settings)
        kwargs.setdefault("stop_frame_timeout_s", _IDLE + patience)
        super().__init__(
            sample_rate=sample_rate,
            push_start_frame=True,
            push_stop_frames=True,
            push_text_frames=False,
            settings=store,
            **kwargs,
        )
        self._template()
        self._turns: dict[str, Turn] = {}
        self._spoken = Playhead(time.monotonic())  # counts audio when it has been made
        self._pushed = Playhead(time.monotonic())  # counts audio when its turn to play has come
        self._script = _Script()
        self._may_recover = True
        aggregator = text_aggregator or _Phrases(self._phraser, self._wake)
        self._text_aggregator = aggregator  # type: ignore[assignment]  # declared too narrow

    def can_generate_metrics(self) -> bool:
        """Whether metrics are measured: yes."""
        return True

    @property
    def supports_processing_metrics(self) -> bool:
        """Whether the time in ``run_tts`` means anything: no, it waits while the listener hears."""
        return False

    @classmethod
    def format_pronunciation(cls, word: str, ipa: str) -> str | None:
        """A word with its pronunciation, as engines read it."""
        return f"[{word}](/{ipa}/)"

    @property
    def supports_pronunciations(self) -> bool:
        """Whether the engine reads pronunciations."""
        return self._speaker.reads_pronunciations

    @traced_tts
    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Speak a piece of a turn.

        Args:
            text: What to say.
            context_id: The turn.

        Yields:
            Audio, or an error.
        """
        try:
            turn = await self._turn(context_id)
            await self.start_tts_usage_metrics(text)
            async with aclosing(turn.say(text)) as chunks:
                async for chunk in chunks:
                    words = [
                        (_token(turn.text, word), word.start + turn.stalled) for word in chunk.words
                    ]
                    await self.add_word_timestamps(words, context_id)
                    if len(chunk.samples):
                        yield TTSAudioRawFrame(
                            to_s16(chunk.samples), chunk.sample_rate, 1, context_id=context_id
                        )
        except asyncio.CancelledError:
            await self.cancel_ttfb_metrics()
            raise
        except Exception as error:  # noqa: BLE001  an engine's own code: anything may come
            self._may_recover = not getattr(error, "permanent", False)
            yield ErrorFrame(self._speaker.told(error), exception=error)

    async def setup(  # type: ignore[override]  # as in Pipecat itself
        self, setup: FrameProcessorSetup
    ) -> None:
        """Load the engine and have it speak to nobody once.

        Args:
            setup: The pipeline's.
        """
        await super().setup(setup)
        try:
            await self._speaker.warm_up(self._template().voice)
        except Exception as error:  # noqa: BLE001  an engine's own code: anything may come
            self._may_recover = not getattr(error, "permanent", False)
            await self.push_error(
                self._speaker.told(error),
                exception=error,
                force_treat_as_permanent=not self._may_recover,
            )

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Process a frame.

        Args:
            frame: The frame.
            direction: Where it goes.
        """
        # Text outside of any turn is one by itself: Pipecat would end it by a timer.
        loose = isinstance(frame, TextFrame | _Wake) and not getattr(self, "_turn_context_id", "-")
        if loose:
            self._turn_context_id = self.create_context_id()
        if isinstance(frame, _Wake):
            async for piece in self._text_aggregator.aggregate(""):
                await self.stop_text_aggregation_metrics()
                await super().process_frame(AggregatedTextFrame(piece.text, piece.type), direction)
        else:
            await super().process_frame(frame, direction)
        if loose:
            await self.on_turn_context_completed()
        if isinstance(frame, InterruptionFrame) and not self.get_audio_contexts():
            for playhead in (self._spoken, self._pushed):
                playhead.dry_at = min(playhead.dry_at, time.monotonic())

    async def push_frame(
        self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM
    ) -> None:
        """Push a frame.

        Args:
            frame: The frame.
            direction: Where it goes.
        """
        if isinstance(frame, TTSAudioRawFrame):
            self._pushed.add(frame.num_frames / frame.sample_rate, time.monotonic())
        elif isinstance(frame, TTSTextFrame):
            frame.text = _PRONOUNCED.sub(r"\1", frame.text)
            self._script.speak(frame)
        elif isinstance(frame, AggregatedTextFrame) and frame.will_be_spoken:
            self._script.begin(frame)
        await super().push_frame(frame, direction)

    async def _handle_aggregated_text(
        self, src_frame: AggregatedTextFrame, context_id: str | None = None
    ) -> None:
        # Pipecat follows the words of one text in a time that grows with the square of its
        # length: 20 kB in one TTSSpeakFrame would stop the event loop for seconds.
        context_id = context_id or self.create_context_id()
        for part in self._parts(src_frame):
            await super()._handle_aggregated_text(part, context_id)

    def _parts(self, frame: AggregatedTextFrame) -> list[AggregatedTextFrame]:
        if len(frame.text) < _LONG or (frame.raw_text or frame.text) != frame.text:
            return [frame]
        splitter = SentenceSplitter(self._template().language)
        parts = []
        for text in (*splitter.push(frame.text), *splitter.flush()):
            part = AggregatedTextFrame(text, frame.text_type, raw_text=text)
            part.interruptible = frame.interruptible
            parts.append(part)
        return parts

    async def start_word_timestamps(self) -> None:
        """Count words from when the turn is heard: not while the one before it plays."""
        ahead = seconds_to_nanoseconds(self._pushed.ahead(time.monotonic()))
        heard_at = self.get_clock().get_time() + ahead
        tracker = getattr(self, "_word_timestamp_tracker", None)
        owner, name = (tracker, "last_pts") if tracker else (self, "_word_last_pts")  # before 1.13
        setattr(owner, name, max(getattr(owner, name, 0), heard_at))
        await super().start_word_timestamps()

    async def stop(self, frame: EndFrame) -> None:
        """Say what is left to say, and end.

        Args:
            frame: The end.
        """
        if rest := await self._text_aggregator.flush():
            await self.process_frame(
                AggregatedTextFrame(rest.text, rest.type), FrameDirection.DOWNSTREAM
            )
        await self.on_turn_context_completed()
        await super().stop(frame)

    async def cleanup(self) -> None:
        """Let go of the engine, and of all turns."""
        await super().cleanup()
        await self._text_aggregator.reset()
        self._turns.clear()
        await self._speaker.aclose()

    async def on_turn_context_created(self, context_id: str) -> None:
        """Try again after a failure that may have passed.

        Args:
            context_id: The turn.
        """
        await super().on_turn_context_created(context_id)
        if not self.is_usable and self._may_recover:
            await self.set_usable(True)

    async def on_turn_context_completed(self) -> None:
        """Close the turn right behind its last audio, even if its last piece had none."""
        self._is_yielding_frames_synchronously = True
        await super().on_turn_context_completed()

    async def on_audio_context_completed(self, context_id: str) -> None:
        """Forget a turn that has been spoken.

        Args:
            context_id: The turn.
        """
        self._turns.pop(context_id, None)

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        """Forget a turn that was interrupted.

        Args:
            context_id: The turn.
        """
        self._turns.pop(context_id, None)

    async def _update_settings(  # type: ignore[override]  # as in Pipecat itself
        self, delta: TTSSettings
    ) -> dict[str, Any]:
        changed = await super()._update_settings(delta)
        self._warn_unhandled_updated_settings(changed.keys() - {"voice", "language", "speed"})
        return changed

    def _classify_error(self, exception: Exception) -> ErrorCategory | None:
        if isinstance(exception, EngineTimeoutError | UnreachableError):
            return ErrorCategory.CONNECTIVITY
        if isinstance(exception, RemoteError) and exception.status_code in (400, 413, 422):
            # A server that refuses one text may take the next. As an invalid request, which is what
            # Pipecat makes of it, it would leave the rest of the turn unspoken.
            return ErrorCategory.APPLICATION
        # Everything else has a status code, by which Pipecat classifies.
        return None

    async def _turn(self, context_id: str) -> Turn:
        now = self._template()
        if context_id not in self._turns:
            self._turns[context_id] = await self._speaker.turn(
                sample_rate=self.sample_rate, template=now, playhead=self._spoken
            )
        turn = self._turns[context_id]
        turn.template = now
        return turn

    def _template(self) -> SynthesisRequest:
        speed = assert_given(self._settings.speed)
        return template(
            voice=assert_given(self._settings.voice),
            language=self._language(),
            speed=1.0 if speed is None else speed,
        )

    def _language(self) -> str | None:
        language = assert_given(self._settings.language)
        return None if language is None else str(language)

    def _phraser(self) -> Phraser:
        return Phraser(
            ahead=lambda: self._spoken.ahead(time.monotonic()),
            language=self._language(),
            early=self._speaker.early,
        )

    def _wake(self) -> None:
        self.create_task(self.queue_frame(_Wake()))


@dataclass
class _Wake(ControlFrame):
    """To the service itself: time has passed without text."""


class _Phrases(BaseTextAggregator):
    """Phraser as Pipecat's text aggregator. Joined, what it gives back is the text.

    Args:
        phraser: Makes one for each turn.
        wake: Called when time has passed and ``aggregate("")`` may have something.
    """

    def __init__(self, phraser: Callable[[], Phraser], wake: Callable[[], None]) -> None:
        super().__init__()
        self._new_phraser = phraser
        self._wake = wake
        self._phraser: Phraser | None = None
        self._pending = ""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def text(self) -> Aggregation:
        return Aggregation(self._pending, self.aggregation_type)

    def set_language(self, language: str | None) -> None:
        super().set_language(language)
        if not self._pending:
            self._phraser = None

    async def aggregate(self, text: str) -> AsyncIterator[Aggregation]:
        self._stop_timer()
        phraser = self._phraser = self._phraser or self._new_phraser()
        for piece in self._taken(text, phraser.push(text)):
            yield piece
        if (wait := phraser.wait()) is not None:
            self._timer = asyncio.get_running_loop().call_later(wait, self._wake)

    async def flush(self) -> Aggregation | None:
        rest = self.text
        await self.reset()
        return rest if rest.text.strip() else None

    async def handle_interruption(self) -> None:
        await self.reset()

    async def reset(self) -> None:
        self._stop_timer()
        self._phraser = None
        self._pending = ""

    def _taken(self, text: str, pieces: list[str]) -> list[Aggregation]:
        self._pending = (self._pending + text)[sum(map(len, pieces)) :]
        kind = self.aggregation_type
        return [Aggregation(piece, kind) for piece in pieces if piece.strip()]

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _token(text: str, word: Word) -> str:
    """A word as Pipecat looks for it in the text: with its pronunciation, if it was given one."""
    pronunciation = _PRONUNCIATION.match(text, word.offset + len(word.text))
    return word.text + (pronunciation[0] if pronunciation else "")


class _Script:
    """Knows what stands between two words, where Pipecat would put a space."""

    def __init__(self) -> None:
        self._context_id: str | None = None
        self._rest = ""
        self._last = "\n"

    def begin(self, piece: AggregatedTextFrame) -> None:
        """Take what is about to be spoken."""
        if piece.context_id != self._context_id:
            self._context_id, self._rest = piece.context_id, ""
        text = piece.raw_text or piece.text
        # A turn, or a piece that was not cut here, comes without the space in front of it.
        seam = (self._rest or self._last)[-1] + text[:1]
        self._rest += text if _RUNS_ON.search(seam) else f" {text}"

    def speak(self, word: TTSTextFrame) -> None:
        """Give a word all that stands before it."""
        text = word.raw_text or word.text
        at = self._rest.find(text)
        if word.context_id != self._context_id or at < 0 or not word.append_to_context:
            return
        end = at + len(text)
        if not self._rest[:at].strip():
            word.raw_text = self._rest[:end]
            word.includes_inter_frame_spaces = True
        self._last, self._rest = text, self._rest[end:]
