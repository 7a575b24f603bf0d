"""VieNeuEngine: checks a request, picks the voice, yields the chunks."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from os import PathLike, fspath
from typing import Any, Literal

import numpy as np

from tts_plugins.audio.level import FAINT, ONSET, first_above
from tts_plugins.audio.stretch import FASTEST, SLOWEST, StreamStretcher
from tts_plugins.engines.vieneu.loading import check_device, failed, no_panic, open_sdk, unopened
from tts_plugins.engines.vieneu.options import NANO, TURBO
from tts_plugins.engines.vieneu.rows import Audio, Rows
from tts_plugins.engines.vieneu.text import pieces, sayable, without_cues
from tts_plugins.engines.vieneu.voices import (
    LANGUAGE,
    Likeness,
    Voices,
    check,
    load,
    save,
    spoken_part,
)
from tts_plugins.errors import EngineError, InvalidRequestError, TTSError, UnspeakableTextError
from tts_plugins.library import VoiceLibrary
from tts_plugins.options import Options, check_speed, primary
from tts_plugins.text.words import speakable
from tts_plugins.types import AudioChunk, Reference, Samples, SynthesisRequest, Voice

logger = logging.getLogger(__name__)

_LONGEST = 0.25
"""Seconds of a chunk: Nano gives a whole clause at once."""

_TRIMMED = 0.08
"""Seconds of silence that Nano leaves around each piece, both ends together."""


class VieNeuEngine:
    """Vietnamese, and English, at 48 kHz on a CPU or a GPU; or at 24 kHz on a weak CPU.

    ``v3turbo`` speaks frame by frame. On a CPU a step is a frame of 80 ms, and the frames of all
    streams are computed one after the other, most urgent first, each with all the threads. On a GPU
    the SDK's scheduler computes up to ``slots`` streams together. ``v3nano`` computes a clause in
    one step; the first one is short. Either way a step ends early when its stream is closed.

    In the text, ``[cười]``, ``[thở dài]`` and ``[hắng giọng]`` (``[chuckle]``, ``[sigh]``,
    ``[clear throat]``) are a laugh, a sigh and a cleared throat. No times of words are known.

    ``options`` of a request, with the SDK's defaults: for Turbo ``temperature`` (0.8), ``top_k``
    (25), ``top_p`` (0.95), ``repetition_penalty`` (1.2) and ``max_chars`` (256), the letters of a
    sentence that are spoken in one go; for Nano ``steps`` (16), ``cfg`` (3.0), ``sway`` (0.0) and
    ``max_chars`` (140). There is no seed.

    Facts are of vieneu 3.8.3, which asks for a web framework that none of this needs: on a CPU,
    ``pip install --no-deps vieneu`` with sea-g2p, tokenizers and huggingface-hub is enough, and
    kaldi-native-fbank to clone.

    Args:
        model: ``v3turbo`` or ``v3nano``.
        voice: Default voice; ``None`` for the SDK's. ``voices()`` lists them.
        device: ``cpu``, ``cuda`` (Turbo only; needs torch and transformers), or ``auto``: a GPU
            where there is one, unless something else that is asked for is for CPUs.
        precision: Of Turbo's weights on a CPU; ``int8`` is faster and needs one with VNNI.
        repo: Weights to use in place of VieNeu's own: a repository of the hub, or a folder.
        onnx_dir: A folder with the ONNX files of the model. Turbo's codec comes from the hub's
            cache all the same.
        slots: Streams that a GPU computes together. As many again may wait.
        threads: Threads of a CPU that one run uses; 0 for half the processors, up to 8.
        frames: Frames of 80 ms in a step of Turbo on a CPU, 1 to 25. More are a little cheaper.
        voices_dir: Where learnt voices are kept; see ``library.VoiceLibrary``.
        denoise: Whether to take the noise out of a recording before learning from it.
        watermark: Whether to mark the audio, where the package resemble-perth is installed.

    Raises:
        MissingDependencyError: The SDK isn't installed.
        InvalidRequestError: Settings that don't go together.
        VoiceNotFoundError: There is no such voice.
        EngineError: The weights can't be loaded, or not be downloaded, or there is no GPU.
    """

    needs = ("vieneu",)

    def __init__(
        self,
        model: Literal["v3turbo", "v3nano"] = "v3turbo",
        *,
        voice: str | None = None,
        device: str = "auto",
        precision: Literal["fp32", "int8"] = "fp32",
        repo: str | PathLike[str] | None = None,
        onnx_dir: str | PathLike[str] | None = None,
        slots: int = 16,
        threads: int = 0,
        frames: int = 1,
        voices_dir: str | PathLike[str] | None = None,
        denoise: bool = True,
        watermark: bool = True,
    ) -> None:
        if model not in ("v3turbo", "v3nano"):
            raise InvalidRequestError(f"vieneu's models are v3turbo and v3nano, not {model!r}")
        if precision not in ("fp32", "int8"):
            raise InvalidRequestError(f"precision is fp32 or int8, not {precision!r}")
        _check_count("slots", slots, 1, 64)
        _check_count("threads", threads, 0, 256)
        _check_count("frames", frames, 1, 25)
        self._model: str = model
        self._turbo = model == "v3turbo"
        only_cpu = not self._turbo or precision == "int8" or onnx_dir is not None
        if device == "cuda" and only_cpu:
            raise InvalidRequestError("v3nano, int8 and onnx_dir are for CPUs: say device='cpu'")
        self._gpu = check_device("cpu" if only_cpu and device == "auto" else device) == "cuda"
        settings: dict[str, Any] = {"threads": threads}
        if repo is not None:
            settings["backbone_repo"] = fspath(repo)
        if onnx_dir is not None:
            settings["onnx_dir"] = fspath(onnx_dir)
        if self._turbo:
            settings |= {"device": "cuda" if self._gpu else "cpu", "precision": precision}
            settings |= {"backend": "pytorch" if self._gpu else "onnx", "max_streams": slots}
        self._settings = settings
        self._default = voice
        self._closed = False
        self._sdk = open_sdk(model, frames=frames, **settings)
        self.sample_rate: int = self._sdk.sample_rate
        self._options = TURBO if self._turbo else NANO
        self.request_options = tuple(self._options)
        self._watermark = watermark
        self._denoise = denoise
        self._rows = Rows(slots) if self._gpu else None
        # On a CPU the SDK has a lock around each frame, so that a second worker would only wait
        # for it, in no order. On a GPU one waits for each row, and for each stream without one.
        self.workers = 2 * slots if self._gpu else 1
        trained = f"{model} {settings.get('backbone_repo', '')} {settings.get('onnx_dir', '')}"
        self._voices = Voices(
            self._sdk,
            VoiceLibrary[Likeness](
                "vieneu", trained.strip(), save=save, load=load, suffix=".npz", folder=voices_dir
            ),
        )
        try:
            if voice is not None:
                self._voices.find(voice)
            self._warm_up()
        except BaseException:
            self.close()
            raise

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        """Speak, at most 0.25 s a step. The silence in front is left out but for 8 ms.

        Raises:
            InvalidRequestError: An option that there isn't or can't be so, a speed outside 0.5 to
                2, a language that is neither Vietnamese nor English.
            VoiceNotFoundError: There is no such voice.
            UnspeakableTextError: Nothing in the text can be read aloud.
            OverloadedError: The GPU computes as many streams as it can, and as many wait.
            EngineError: The SDK failed, or the engine is closed.
        """
        self._check_open()
        options = Options("vieneu", request.options, self._options).given
        check_speed(request.speed, SLOWEST, FASTEST)
        _check_language(request.language)
        name = self._default if request.voice is None else request.voice
        voice = None if name is None else self._voices.find(name)
        text = sayable(request.text)
        if not speakable(text):
            raise UnspeakableTextError("no letter or digit in the text")

        speak = partial(self._turbo_audio if self._turbo else self._nano_audio, text, voice)
        start = partial(speak, request.speed, options)
        heard = False
        try:
            with closing(self._rows.run(start) if self._rows else start()) as audio:
                for samples in self._finished(audio, request.speed):
                    heard = True
                    yield AudioChunk(samples, self.sample_rate)
                    self._check_open()
        except TTSError:
            raise
        except Exception as error:  # the SDK's own code: anything may come
            self._check_open()
            raise failed(error, text) from error
        if not heard:
            raise UnspeakableTextError("nothing is heard of this text: VieNeu can't read it")

    def voices(self) -> Sequence[Voice]:
        """The SDK's voices, and those that were learnt."""
        self._check_open()
        return self._voices.all()

    def clone(self, name: str, reference: Reference, *, transcript: str = "") -> Voice:
        """Learn a voice from a recording; 3 to 8 seconds are enough, and no more is listened to.

        Takes seconds, once for each recording, and nothing is written but in ``voices_dir``. What
        is said in the recording makes no difference.

        Raises:
            InvalidRequestError: The recording is no use, or the name is taken.
            EngineError: What learns it can't be loaded, or failed.
        """
        self._check_open()
        return self._voices.library.learn(
            name,
            reference,
            self._learn,
            # Two voices, if the noise is taken out of one.
            transcript="" if self._denoise else "with its noise",
            language=LANGUAGE,
            taken=[name] if self._voices.preset(name) else [],
        )

    def forget(self, voice: str) -> None:
        """Forget a voice that was learnt.

        Raises:
            VoiceNotFoundError: There is none of that name.
        """
        self._check_open()
        self._voices.library.forget(voice)

    def rename(self, voice: str, new: str) -> Voice:
        """Call a voice that was learnt otherwise; see ``library.VoiceLibrary.rename``."""
        self._check_open()
        taken = [new] if self._voices.preset(new) else []
        return self._voices.library.rename(voice, new, taken=taken)

    def close(self) -> None:
        """Let go of the networks; streams that are open end."""
        if self._closed:
            return
        self._closed = True
        if self._rows is not None:
            self._rows.close()
        self._sdk.close()

    @staticmethod
    def audible(text: str) -> str:
        """The text with its cues blanked, as long as it was: what is left are words."""
        return without_cues(text)

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("this vieneu engine is closed; open another one")

    def _warm_up(self) -> None:
        """Do what is slow the first time, and see that the networks are what they should be."""
        try:
            with closing(self._sdk.infer_stream("Xin chào.", apply_watermark=False)) as audio:
                next(audio)
        except Exception as error:  # as in synthesize
            raise unopened(self._model, error, self._settings) from error

    def _turbo_audio(
        self, text: str, voice: str | Likeness | None, _: float, options: dict[str, object]
    ) -> Audio:
        return self._spoken(text, voice=voice, **options)

    def _nano_audio(
        self, text: str, voice: str | Likeness | None, speed: float, options: dict[str, object]
    ) -> Audio:
        pause = 0.0
        for piece, behind in pieces(text):
            with closing(self._spoken(piece, voice=voice, speed=speed, **options)) as clauses:
                for samples in clauses:
                    if silence := max(0.0, pause / speed - _TRIMMED):
                        yield np.zeros(round(silence * self.sample_rate), np.float32)
                    pause = 0.0
                    yield samples
            pause = behind

    def _spoken(self, text: str, **settings: Any) -> Audio:
        with no_panic():
            audio = self._sdk.infer_stream(text, apply_watermark=self._watermark, **settings)
            with closing(audio):
                yield from audio

    def _finished(self, audio: Audio, speed: float) -> Iterator[Samples]:
        paced = self._paced(_begun(audio, self.sample_rate), speed)
        return _cut(paced, round(_LONGEST * self.sample_rate))

    def _paced(self, audio: Iterator[Samples], speed: float) -> Iterator[Samples]:
        """At another pace, which Turbo doesn't know by itself."""
        if not self._turbo or speed == 1.0:
            yield from audio
            return
        stretcher = StreamStretcher(self.sample_rate, speed)
        for samples in audio:
            yield stretcher.push(samples)
        yield stretcher.flush()

    def _learn(self, clip: AudioChunk) -> Likeness:
        try:
            # The samples, not a file: the SDK would leave a copy in the user's home meanwhile.
            embedding, codes = self._sdk.engine.prepare_reference(
                spoken_part(clip), sr=clip.sample_rate, denoise=self._denoise
            )
            sound = "codes" if self._turbo else "style"
            likeness = {
                "speaker_emb": np.asarray(embedding, np.float32),
                sound: np.asarray(codes, np.int64 if self._turbo else np.float32),
            }
            check(likeness)
        except ModuleNotFoundError as error:
            # Without the first, the SDK looks for torch in its place.
            name = "soxr" if error.name == "soxr" else "kaldi-native-fbank"
            raise EngineError(f"cloning needs more: pip install {name}") from error
        except Exception as error:  # as in synthesize
            self._check_open()
            raise EngineError(
                f"VieNeu can't learn a voice ({type(error).__name__}: "
                f"{next(iter(str(error).splitlines()), '')}): it downloads what that takes on the "
                "first use"
            ) from error
        # The SDK does without and doesn't tell, and what it learnt would be kept as denoised.
        if self._denoise and self._sdk.engine.denoiser is None:
            raise EngineError(
                "what takes the noise out of a recording isn't there: open the engine again while "
                "there is a network, or with denoise=False"
            )
        return likeness


def _begun(audio: Iterator[Samples], sample_rate: int) -> Iterator[Samples]:
    """The audio from its first sound on."""
    begun = False
    for samples in audio:
        if not begun:
            first = first_above(samples, FAINT)
            if first is None:
                continue
            begun = True
            samples = samples[max(0, first - round(ONSET * sample_rate)) :]
        yield np.asarray(samples, np.float32)


def _cut(audio: Iterator[Samples], longest: int) -> Iterator[Samples]:
    for samples in audio:
        for begin in range(0, len(samples), longest):
            yield samples[begin : begin + longest]


def _check_language(language: str | None) -> None:
    if language and primary(language) not in ("vi", "en"):
        raise InvalidRequestError(
            f"vieneu speaks Vietnamese ('vi') and English ('en'), not {language!r}; "
            "choose an engine for that language"
        )


def _check_count(name: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidRequestError(f"{name} is an int from {low} to {high}, not {value!r}")
