"""The engine contract as an executable, for our own engines and for everybody else's.

for check in await check_engine(engine):
    print(check)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tts_plugins.audio.level import AUDIBLE
from tts_plugins.engine import Engine
from tts_plugins.errors import InvalidRequestError, UnspeakableTextError, VoiceNotFoundError
from tts_plugins.types import AudioChunk, SynthesisRequest

_SENTENCE = "The train to Hamburg leaves at seven, so please be at the station in time."
_PATIENCE = 60.0
"""Seconds that one check may take: an engine that hangs fails, and the next check goes on."""


_LATE = 0.1
"""Seconds by which a word may come after the audio in which it starts: about a letter."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, and what came of it."""

    name: str
    passed: bool
    detail: str = ""

    def __str__(self) -> str:
        return f"{'ok' if self.passed else 'FAILED':6} {self.name}: {self.detail}".rstrip(": ")


class _Failure(Exception):  # noqa: N818  a check that failed, not an error
    """The engine did something else than the contract says."""


async def check_engine(engine: Engine) -> list[Check]:
    """Try everything that adapters and servers rely on. The engine stays open."""
    return [check async for check in checks(engine)]


async def checks(engine: Engine) -> AsyncIterator[Check]:
    """The same, each as soon as it is known."""
    for check in _CHECKS:
        name = check.__name__.strip("_").replace("_", " ")
        try:
            async with asyncio.timeout(_PATIENCE):
                result = Check(name, True, await check(engine))
        except _Failure as failure:
            result = Check(name, False, str(failure))
        except TimeoutError:
            result = Check(name, False, f"nothing came of it within {_PATIENCE:g} s")
        except Exception as error:  # noqa: BLE001  an engine's own code: anything may come
            result = Check(name, False, f"raised {type(error).__name__}: {error}")
        yield result


async def _speak(engine: Engine, request: SynthesisRequest) -> list[AudioChunk]:
    async with aclosing(engine.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


async def _it_has_a_voice(engine: Engine) -> str:
    voices = await engine.voices()
    _demand(len(voices) > 0, "voices() is empty")
    _demand(len({voice.id for voice in voices}) == len(voices), "two voices have the same id")
    return ", ".join(voice.id for voice in voices[:5]) + (", ..." if len(voices) > 5 else "")


async def _it_speaks_a_sentence(engine: Engine) -> str:
    chunks = await _speak(engine, SynthesisRequest(_SENTENCE))
    seconds = sum(chunk.seconds for chunk in chunks)
    _demand(seconds > 1.0, f"only {seconds:.2f} s of audio for {len(_SENTENCE)} characters")
    loudest = max(float(np.abs(chunk.samples).max(initial=0)) for chunk in chunks)
    _demand(loudest > AUDIBLE, f"no sample above -40 dBFS; the loudest is {loudest:.4f}")
    return f"{seconds:.2f} s in {len(chunks)} chunks"


async def _samples_are_mono_float32_in_range_and_of_one_rate(engine: Engine) -> str:
    chunks = await _speak(engine, SynthesisRequest(_SENTENCE))
    for chunk in chunks:
        samples = chunk.samples
        _demand(samples.dtype == np.float32, f"samples are {samples.dtype}, not float32")
        _demand(samples.ndim == 1, f"samples have shape {samples.shape}, not [n]")
        _demand(bool(np.isfinite(samples).all()), "samples hold NaN or infinity")
        _demand(float(np.abs(samples).max(initial=0)) <= 2.0, "samples are not scaled to [-1, 1]")
    rates = {chunk.sample_rate for chunk in chunks}
    _demand(len(rates) == 1, f"chunks of one stream have rates {sorted(rates)}")
    return f"{rates.pop()} Hz"


async def _words_stand_in_the_text_and_come_in_time(engine: Engine) -> str:
    words = []
    made = 0.0
    for chunk in await _speak(engine, SynthesisRequest(_SENTENCE)):
        begun, made = made, made + chunk.seconds
        for word in chunk.words:
            _demand(word.start > begun - _LATE, f"{word.text!r} comes after its audio")
            there = _SENTENCE[word.offset : word.offset + len(word.text)]
            _demand(there == word.text, f"{word.text!r} is not at {word.offset}, but {there!r}")
            _demand(0 <= word.start <= word.end, f"{word.text!r} ends before it starts")
            words.append(word)
    for earlier, later in pairwise(words):
        _demand(earlier.start <= later.start, f"{later.text!r} starts before {earlier.text!r}")
        _demand(earlier.offset < later.offset, f"{later.text!r} stands before {earlier.text!r}")
    _demand(not words or words[-1].start <= made, "a word starts after the end of the audio")
    return f"{len(words)} words" if words else "reports none, so they will be estimated"


async def _speed_changes_the_length(engine: Engine) -> str:
    seconds = [
        sum(chunk.seconds for chunk in await _speak(engine, SynthesisRequest(_SENTENCE, speed=s)))
        for s in (1.0, 1.25)
    ]
    _demand(seconds[1] < seconds[0], f"{seconds[1]:.2f} s at 1.25, {seconds[0]:.2f} s at 1.0")
    return f"{seconds[0]:.2f} s becomes {seconds[1]:.2f} s at 1.25"


async def _an_unknown_voice_is_refused(engine: Engine) -> str:
    try:
        await _speak(engine, SynthesisRequest(_SENTENCE, voice="no such voice"))
    except VoiceNotFoundError as error:
        return str(error)
    raise _Failure("it spoke; VoiceNotFoundError was expected")


async def _an_unknown_option_is_refused(engine: Engine) -> str:
    try:
        await _speak(engine, SynthesisRequest(_SENTENCE, options={"no such option": 1}))
    except InvalidRequestError as error:
        return str(error)
    raise _Failure("it spoke; InvalidRequestError was expected")


async def _an_absurd_speed_is_refused(engine: Engine) -> str:
    for speed in (0.0, -1.0, 100.0):
        try:
            await _speak(engine, SynthesisRequest(_SENTENCE, speed=speed))
        except InvalidRequestError as error:
            reason = str(error)
        else:
            raise _Failure(f"it spoke at speed {speed}; InvalidRequestError was expected")
    return reason


async def _text_with_nothing_to_say_is_quiet(engine: Engine) -> str:
    for text in ("", " ", "...", "\N{GRINNING FACE}"):
        try:
            chunks = await _speak(engine, SynthesisRequest(text))
        except UnspeakableTextError:
            continue
        _demand(sum(chunk.seconds for chunk in chunks) < 2.0, f"{text!r} became seconds of audio")
    return ""


async def _strange_text_is_survived(engine: Engine) -> str:
    for text in ("nul \0 here", "a lone \ud800 surrogate", "x" * 2000, "tab\tand\nline"):
        try:
            async with aclosing(engine.stream(SynthesisRequest(text))) as chunks:
                await anext(chunks, None)
        except UnspeakableTextError:
            continue
    await _it_speaks_a_sentence(engine)
    return ""


async def _a_closed_stream_leaves_the_next_whole(engine: Engine) -> str:
    for after in (0, 1, 2):
        async with aclosing(engine.stream(SynthesisRequest(_SENTENCE))) as chunks:
            for _ in range(after):
                await anext(chunks, None)
    return await _it_speaks_a_sentence(engine)


async def _a_cancelled_stream_leaves_the_next_whole(engine: Engine) -> str:
    for rounds in (1, 3, 10):
        task = asyncio.create_task(_speak(engine, SynthesisRequest(_SENTENCE)))
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    return await _it_speaks_a_sentence(engine)


async def _streams_may_run_side_by_side(engine: Engine) -> str:
    request = SynthesisRequest(_SENTENCE)
    alone = sum(chunk.seconds for chunk in await _speak(engine, request))
    both = await asyncio.gather(_speak(engine, request), _speak(engine, request))
    for chunks in both:
        seconds = sum(chunk.seconds for chunk in chunks)
        _demand(abs(seconds - alone) < 0.5 * alone, f"{alone:.2f} s alone, {seconds:.2f} s in two")
    return ""


def _demand(truth: bool, complaint: str) -> None:
    if not truth:
        raise _Failure(complaint)


_CHECKS: tuple[Callable[[Engine], Awaitable[str]], ...] = (
    _it_has_a_voice,
    _it_speaks_a_sentence,
    _samples_are_mono_float32_in_range_and_of_one_rate,
    _words_stand_in_the_text_and_come_in_time,
    _speed_changes_the_length,
    _an_unknown_voice_is_refused,
    _an_unknown_option_is_refused,
    _an_absurd_speed_is_refused,
    _text_with_nothing_to_say_is_quiet,
    _strange_text_is_survived,
    _a_closed_stream_leaves_the_next_whole,
    _a_cancelled_stream_leaves_the_next_whole,
    _streams_may_run_side_by_side,
)
