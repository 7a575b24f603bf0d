"""PocketEngine: checks a request, picks the voice, yields the frames."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tts_plugins.audio.clips import listen
from tts_plugins.audio.stretch import FASTEST, SLOWEST, StreamStretcher
from tts_plugins.devices import cores
from tts_plugins.engines.pocket import loading
from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.interruption import interruptible
from tts_plugins.library import VoiceLibrary
from tts_plugins.options import SEED, Bounds, Options, check_speed, primary
from tts_plugins.text.words import speakable
from tts_plugins.types import AudioChunk, Reference, Samples, SynthesisRequest, Voice

if TYPE_CHECKING:
    from tts_plugins.engines.pocket.speaker import Speaker
    from tts_plugins.engines.pocket.states import State

_OPTIONS = {"seed": SEED, "temperature": Bounds(0, 2)}
_UNREADABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and halves of characters: tokenizers fail on the latter."""


class PocketEngine:
    """Kyutai's pocket-tts: small voices of seven languages, streamed by 80 ms on a CPU.

    A model is downloaded from huggingface.co when it is first used, and so is each of its voices;
    without a login it speaks with 27 of them, with one that accepted Kyutai's terms it clones as
    well. ``options["seed"]: int`` makes the audio repeatable, ``options["temperature"]: float``
    (0 to 2) makes it more or less even. Words aren't reported, since the model knows of none.

    Loading takes seconds: construct it before the first caller, and off the event loop. One engine
    serves any number of streams and threads. How many threads torch takes for a step is left to
    whoever runs the process (``OMP_NUM_THREADS``); the package is made for one.

    Args:
        model: One of the package's by name, such as ``english_7m_2026-10`` or ``french_24l``, or
            the path of a configuration (.yaml). By default one for ``language``: for English the
            smaller, the fewer cores there are.
        voice: Default voice: one of ``voices()``, or a file: a .safetensors of the package's
            ``export-voice``, or a recording to clone, of which the first 30 s are heard.
        language: What to speak: ``de``, ``en``, ``es``, ``fr``, ``it``, ``nl`` or ``pt``; or what
            the model of a .yaml speaks.
        device: Where torch computes.
        temperature: Of requests that don't say; by default what the model was made for.
        decode_steps: Steps from noise to a frame: more take longer, and may sound better.
        voices_dir: Where cloned voices are kept, instead of in the user's data folder.

    Raises:
        MissingDependencyError: The package isn't installed.
        InvalidRequestError: There is no such model, language or device.
        VoiceNotFoundError: There is no such voice.
        EngineError: The model or the voice can't be loaded, or not be downloaded.
    """

    request_options = tuple(_OPTIONS)
    needs = ("pocket_tts", "torch")

    def __init__(
        self,
        model: str | PathLike[str] | None = None,
        *,
        voice: str | None = None,
        language: str | None = None,
        device: str = "cpu",
        temperature: float | None = None,
        decode_steps: int = 1,
        voices_dir: str | PathLike[str] | None = None,
    ) -> None:
        loading.imported()
        # They import torch and the package, which may not be there.
        from tts_plugins.engines.pocket import speaker, states

        if decode_steps < 1:
            raise InvalidRequestError(f"decode_steps is 1 or more, not {decode_steps}")
        given = None if model is None else str(model)
        name, self._language = loading.choose(given, language, cores())
        self._states, self._noise = states, speaker.noise
        self._model: Any = loading.load(name, device, decode_steps)
        self._speaker: Speaker | None = speaker.Speaker(self._model)
        options = Options("pocket", {"temperature": temperature}, _OPTIONS)
        self._temperature = options.number("temperature", self._model.temp)
        self.sample_rate: int = self._model.sample_rate
        self._catalogue = states.Catalogue(
            self._model, name if name in loading.model_names() else None
        )
        self._library: VoiceLibrary[State] = VoiceLibrary(
            "pocket",
            loading.fingerprint(self._model),
            save=states.save,
            load=self._load,
            suffix=".safetensors",
            folder=voices_dir,
        )
        self.workers = loading.workers(self._model)
        """Steps that may run at once: one for as many cores as torch takes for each."""
        self._given: dict[str, State] = {}
        self._default = self._catalogue.default
        if voice is not None:
            self._default = self._take(voice)
        if self._default is not None:
            self._find(self._default)

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        """Speak, one frame of 80 ms per step; a step that is interrupted ends early.

        Another speed than 1 is the same speech with its waveform stretched, pitch kept.

        Raises:
            InvalidRequestError: An unknown option, a speed outside 0.5 to 2, another language.
            VoiceNotFoundError: There is no such voice.
            UnspeakableTextError: Nothing in the text can be read aloud.
            EngineError: The voice can't be had, or the model fails.
        """
        speaker = self._open()
        temperature, seed = self._settings(request)
        if not speakable(request.text):
            raise UnspeakableTextError("no letter or digit in the text")
        voice = self._find(self._default_voice() if request.voice is None else request.voice)
        stop = threading.Event()
        text = _UNREADABLE.sub(" ", request.text)
        noise = self._noise(seed, speaker.device)
        frames = speaker.speak(text, voice, temperature, noise, stop.is_set)
        stretcher = StreamStretcher(self.sample_rate, request.speed)
        spoken = False
        while True:
            with interruptible(stop.set):
                frame = _next(frames)
            if frame is None:
                break
            spoken = True
            if len(samples := stretcher.push(frame)):
                yield AudioChunk(samples, self.sample_rate)
        if stop.is_set():
            return
        if not spoken:
            raise UnspeakableTextError("the model can read nothing in the text")
        if len(samples := stretcher.flush()):
            yield AudioChunk(samples, self.sample_rate)

    def voices(self) -> Sequence[Voice]:
        """The package's voices for this model, the file that was given, and what was cloned."""
        listed = {voice.id: voice for voice in self._library.voices()}
        for name in self._catalogue.names:
            ready = self._catalogue.ready(name)
            about = "" if ready else "downloaded on first use"
            listed[name] = Voice(name, self._language, about, ready)
        listed |= {name: Voice(name, self._language, "from a file") for name in self._given}
        return list(listed.values())

    def clone(self, name: str, reference: Reference, *, transcript: str = "") -> Voice:
        """Learn a voice from a recording, of which the first 30 s are heard; 10 s are plenty.

        Raises:
            InvalidRequestError: The name can't be one, or the recording is of no use.
            EngineError: The model was loaded without what that takes, for want of a login.
        """
        loading.check_cloning(self._model)
        return self._library.learn(
            name,
            reference,
            self._learn,  # what is said makes no difference to it
            language=self._language,
            taken=[*self._catalogue.names, *self._given],
        )

    def forget(self, voice: str) -> None:
        """Forget a voice that was cloned.

        Raises:
            VoiceNotFoundError: None of that name was.
        """
        self._library.forget(voice)

    def rename(self, voice: str, new: str) -> Voice:
        """Call a voice that was cloned otherwise; see ``library.VoiceLibrary.rename``."""
        taken = [*self._catalogue.names, *self._given]
        return self._library.rename(voice, new, taken=taken)

    def close(self) -> None:
        """Let go of the model. Streams that are open may go on to their end."""
        self._speaker = self._model = None
        self._catalogue.drop()
        self._given.clear()

    def _open(self) -> Speaker:
        if self._speaker is None:
            raise EngineError("this pocket engine is closed; open another one")
        return self._speaker

    def _settings(self, request: SynthesisRequest) -> tuple[float, int | None]:
        """The temperature and the seed of a request, if all else in it is right as well."""
        options = Options("pocket", request.options, _OPTIONS)
        check_speed(request.speed, SLOWEST, FASTEST)
        language = request.language and primary(request.language)
        if language and self._language != "und" and language != primary(self._language):
            raise InvalidRequestError(
                f"this pocket model speaks {self._language}, not {request.language!r}; "
                "open one for that language"
            )
        return options.number("temperature", self._temperature), options.whole("seed")

    def _take(self, voice: str) -> str:
        """The id of the default voice, which may be a file's."""
        if voice in self._catalogue.names or self._library.find(voice) is not None:
            return voice
        path = Path(voice)
        if not path.is_file():
            raise VoiceNotFoundError(voice, [each.id for each in self.voices()])
        if path.suffix == ".safetensors":
            try:
                state = self._load(path)
            except Exception as error:  # whatever a wrong file makes the package raise
                raise EngineError(
                    f"{path} is no voice for this model: {loading.reason(error)}; "
                    "export it again with `pocket-tts export-voice` for this model"
                ) from error
        else:
            state = self._learn(listen(path))
        self._given[path.stem] = state
        return path.stem

    def _default_voice(self) -> str:
        if self._default is not None:
            return self._default
        learnt = self._library.voices()
        if not learnt:
            raise InvalidRequestError(
                "this pocket model has no voice of its own: clone one, or pass voice=FILE"
            )
        return learnt[0].id

    def _find(self, voice: str) -> State:
        if voice in self._given:
            return self._given[voice]
        if voice in self._catalogue.names:
            return self._catalogue.find(voice)
        state = self._library.find(voice)
        if state is None:
            raise VoiceNotFoundError(voice, [each.id for each in self.voices()])
        return state

    def _load(self, path: Path) -> State:
        return self._states.load(self._model, path)

    def _learn(self, clip: AudioChunk) -> State:
        return self._states.learn(self._model, clip)


def _next(frames: Iterator[Samples]) -> Samples | None:
    """The next frame; None at the end."""
    try:
        frame = next(frames, None)
    except (RuntimeError, IndexError, ValueError) as error:  # torch's, and a wrong tokenizer's
        raise EngineError(f"pocket's model failed: {loading.reason(error)}") from error
    if frame is not None and not np.isfinite(frame).all():
        raise EngineError("pocket's model made samples that are no numbers: are its weights whole?")
    return frame
