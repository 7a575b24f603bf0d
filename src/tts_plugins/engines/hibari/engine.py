"""HibariEngine: checks a request, picks the voice, yields the chunks with their words."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from hibari.voices import VOICES

from tts_plugins.audio.level import quiet_front
from tts_plugins.engines.hibari.download import Downloader, path_of
from tts_plugins.engines.hibari.loading import load
from tts_plugins.engines.hibari.speaker import Speaker
from tts_plugins.engines.hibari.timing import unheard, words_of
from tts_plugins.engines.hibari.vocoder import SAMPLE_RATE
from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.lazy import Lazy
from tts_plugins.options import SEED, Options, check_speed, primary
from tts_plugins.phonemes.english import LONGEST, Reading, load_reader, read
from tts_plugins.phonemes.ipa import markup
from tts_plugins.phonemes.source import read_items
from tts_plugins.phonemes.unread import Unread
from tts_plugins.text.words import shifted
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

_SLOWEST, _FASTEST = 0.5, 2.0
_OPTIONS = {"seed": SEED}
_NOTHING = SAMPLE_RATE // 50
"""Samples of silence that carry words of which nothing is heard, when no sound follows."""


class HibariEngine:
    """A neural English voice, bundled; streamed on one CPU core at many times real time.

    A request is spoken as one sentence, without looking for others in it, up to 400 phonemes
    (about as many characters) in one breath. ``options["seed"]: int`` makes the audio repeatable.
    ``[word](/ipa/)`` in the text pronounces a word: see ``pronunciation``.

    Loading takes up to a second: construct it before the first caller, and off the event loop.
    One engine serves any number of streams and threads.

    Args:
        voice: Default voice; ``voices()`` lists them.
        model: An ONNX file to use for that voice instead of its own.

    Raises:
        VoiceNotFoundError: hibari has no such voice.
        EngineError: The file can't be loaded, or not be downloaded.
    """

    sample_rate = SAMPLE_RATE
    reads_pronunciations = True
    request_options = tuple(_OPTIONS)

    def __init__(self, voice: str = "heart", *, model: str | Path | None = None) -> None:
        _check_voice(voice)
        self._default = voice
        downloader = Downloader()
        self._speakers: dict[str, Lazy[Speaker]] = {
            name: Lazy(partial(_load_speaker, downloader, name)) for name in VOICES
        }
        if model is not None:
            self._speakers[voice] = Lazy(partial(load, Path(model)))
        self._readers = {
            british: Lazy(partial(load_reader, british=british)) for british in (False, True)
        }
        self._unread = Unread()
        self._closed = False
        # The dictionary is parsed while ONNX Runtime, which lets go of the GIL, loads the network.
        with ThreadPoolExecutor(1, "hibari-load") as loader:
            loading = loader.submit(self._speakers[voice])
            self._readers[VOICES[voice]["british"]]()
            loading.result()

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        """Speak, one chunk per step: 0.2 s of audio first, later 1 s.

        Silence in front is left out but for 8 ms, and kept behind only as long as the pause
        after a sentence; less when the text doesn't end one.

        Raises:
            InvalidRequestError: An unknown option, a speed outside 0.5 to 2, another language.
            VoiceNotFoundError: hibari has no such voice.
            UnspeakableTextError: Nothing in the text can be read aloud.
            EngineError: The voice can't be loaded, or not be downloaded.

        Warns:
            UnreadableTextWarning: Part of the text is in a script that the voice can't read.
        """
        if self._closed:
            raise EngineError("this hibari engine is closed; open another one")
        voice = self._default if request.voice is None else request.voice
        _check_voice(voice)
        _check_language(request.language)
        check_speed(request.speed, _SLOWEST, _FASTEST)
        options = Options("hibari", request.options, _OPTIONS)
        rng = np.random.default_rng(options.whole("seed"))
        speaker = self._speakers[voice]()
        reader = self._readers[VOICES[voice]["british"]]()

        unread = self._unread.request(partial(_cannot_read, voice))
        samples = 0
        late: list[Word] = []
        for reading in read(read_items(request.text, unread), reader):
            unread.tell()
            if not reading.audible:
                late += unheard(reading, samples / SAMPLE_RATE)
                continue
            for chunk in _speak(reading, speaker, request.speed, rng, samples):
                yield AudioChunk(chunk.samples, SAMPLE_RATE, (*late, *chunk.words))
                samples += len(chunk.samples)
                late = []
        unread.tell()
        if not samples:
            raise UnspeakableTextError(unread.reason("no word in the text"))
        if late:
            yield AudioChunk(np.zeros(_NOTHING, np.float32), SAMPLE_RATE, tuple(late))

    def voices(self) -> Sequence[Voice]:
        """All voices of hibari; those that aren't ``ready`` are downloaded on first use."""
        return [_describe(name, self._speakers[name].made) for name in VOICES]

    def close(self) -> None:
        """Let go of the networks. Streams that are open may go on to their end."""
        self._closed = True
        for lazy in (*self._speakers.values(), *self._readers.values()):
            lazy.drop()

    @staticmethod
    def pronunciation(word: str, ipa: str) -> str:
        """``word`` marked up for the text of a request, so that it is said in this way.

        Args:
            word: What stands in the text, and is shown to whoever reads along.
            ipa: Such as ``ˈnaɪki``, with or without slashes; hibari's own phonemes stay.

        Raises:
            InvalidRequestError: A symbol that the voice has no sound for.
        """
        return markup(word, ipa)


def _speak(
    reading: Reading, speaker: Speaker, speed: float, rng: np.random.Generator, before: int
) -> Iterator[AudioChunk]:
    """The chunks of one reading, with each word no later than it is heard.

    Args:
        before: Samples of the utterance before this reading.
    """
    for begin, end in _runs(reading.phonemes):
        pause = reading.ends_sentence and end == len(reading.phonemes)
        speech = speaker.speak(reading.phonemes[begin:end], speed, rng, pause=pause)
        words: list[Word] = []
        stop = 0
        if speech.schedule is not None:
            words = words_of(reading, begin, speech.schedule, before / SAMPLE_RATE)
            stop = before + speech.schedule.length
        for samples in speech.chunks:
            if not before:
                # The network foretells the first sound only roughly.
                quiet = quiet_front(samples, SAMPLE_RATE)
                samples = samples[quiet:]
                words = [shifted(word, -quiet / SAMPLE_RATE) for word in words]
                stop -= quiet
            before += len(samples)
            due = [w for w in words if w.start * SAMPLE_RATE < before or before == stop]
            words = words[len(due) :]
            yield AudioChunk(samples, SAMPLE_RATE, tuple(due))


def _runs(phonemes: str) -> Iterator[tuple[int, int]]:
    """Where to cut phonemes that are too many for one run: only an endless word has so many."""
    begin = 0
    while len(phonemes) - begin > LONGEST:
        space = phonemes.rfind(" ", begin + LONGEST // 2, begin + LONGEST)
        end = space + 1 if space >= 0 else begin + LONGEST
        yield begin, end
        begin = end
    yield begin, len(phonemes)


def _load_speaker(downloader: Downloader, voice: str) -> Speaker:
    return load(downloader.fetch(voice))


def _check_voice(voice: str) -> None:
    if voice not in VOICES:
        raise VoiceNotFoundError(voice, VOICES)


def _check_language(language: str | None) -> None:
    if language and primary(language) != "en":
        raise InvalidRequestError(
            f"hibari speaks English ('en' or 'en-...'), not {language!r}; "
            "choose an engine for that language"
        )


def _cannot_read(voice: str, scripts: str) -> str:
    return (
        f"the hibari voice {voice!r} can't read {scripts} script; "
        "choose an engine or a voice for that language"
    )


def _describe(name: str, loaded: bool) -> Voice:
    entry = VOICES[name]
    description = f"{entry['accent']}, {entry['gender']}"
    ready = loaded or path_of(name).exists()
    if not ready:
        description += f", downloaded on first use ({entry['bytes'] / 1e6:.1f} MB)"
    return Voice(name, entry["language"], description, ready)
