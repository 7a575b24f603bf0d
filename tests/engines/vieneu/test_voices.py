"""Voices that are learnt: they outlive the engine, and the SDK's own files stay as they are."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import vieneu

from tts_plugins.engines.vieneu import VieNeuEngine
from tts_plugins.engines.vieneu.voices import load, save, spoken_part
from tts_plugins.errors import EngineError, InvalidRequestError, VoiceNotFoundError
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Voice

TEXT = "Xin chào các bạn."
RATE = 24_000

Model = Literal["v3turbo", "v3nano"]
models = pytest.mark.parametrize("model", ["v3turbo", "v3nano"])


def recording(frequency: float = 200.0, loudness: float = 0.3) -> AudioChunk:
    t = np.arange(2 * RATE) / RATE
    return AudioChunk((loudness * np.sin(2 * np.pi * frequency * t)).astype(np.float32), RATE)


@contextmanager
def opened(model: Model, folder: Path, **settings: Any) -> Iterator[VieNeuEngine]:
    device = "cpu" if model == "v3turbo" else "auto"
    with closing(
        VieNeuEngine(model, device=device, threads=1, voices_dir=folder, **settings)
    ) as engine:
        yield engine


def speak(engine: VieNeuEngine, voice: str) -> Samples:
    sure = {"temperature": 0.0} if engine.sample_rate == 48_000 else {}
    request = SynthesisRequest(TEXT, voice=voice, options=sure)
    return np.concatenate([chunk.samples for chunk in engine.synthesize(request)])


def installed() -> str:
    """What is in the SDK's folder."""
    digest = hashlib.sha256()
    for path in sorted(Path(vieneu.__file__).parent.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


@models
def test_a_voice_outlives_the_engine_and_nothing_else_is_written(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = installed()
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with opened(model, tmp_path / "voices") as engine:
        assert engine.clone("Tôi", recording()) == Voice("Tôi", "vi-VN", "cloned")
        spoken = speak(engine, "Tôi")
    with opened(model, tmp_path / "voices", voice="Tôi") as engine:
        assert np.array_equal(speak(engine, "Tôi"), spoken)
        assert Voice("Tôi", "vi-VN", "cloned") in engine.voices()
        engine.forget("Tôi")
        with pytest.raises(VoiceNotFoundError, match="no voice 'Tôi'"):
            speak(engine, "Tôi")
        with pytest.raises(VoiceNotFoundError, match="no voice 'Tôi'"):
            engine.forget("Tôi")
    assert list((tmp_path / "voices").rglob("*.npz")) == []
    assert list(home.rglob("*")) == []
    assert installed() == before


def test_a_learnt_voice_gets_a_new_name_that_no_voice_has(tmp_path: Path) -> None:
    with opened("v3nano", tmp_path) as engine:
        own = engine.voices()[0].id
        engine.clone("Tôi", recording())
        spoken = speak(engine, "Tôi")
        assert engine.rename("Tôi", "Ta") == Voice("Ta", "vi-VN", "cloned")
        assert np.array_equal(speak(engine, "Ta"), spoken)
        with pytest.raises(VoiceNotFoundError, match="no voice 'Tôi'"):
            speak(engine, "Tôi")
        with pytest.raises(InvalidRequestError, match=f"vieneu has a voice '{own}' of its own"):
            engine.rename("Ta", own)


def test_what_is_learnt_is_the_recordings_own(tmp_path: Path) -> None:
    with opened("v3turbo", tmp_path) as engine:
        engine.clone("loud", recording(loudness=0.6))
        engine.clone("quiet", recording(loudness=0.2))
        assert not np.array_equal(speak(engine, "loud"), speak(engine, "quiet"))
        assert not np.array_equal(speak(engine, "loud"), speak(engine, "Mai Anh"))


def test_a_recording_with_its_noise_is_another_voice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denoised: list[bool] = []
    for denoise in (True, False, True):
        with opened("v3turbo", tmp_path, denoise=denoise) as engine:
            prepare = engine._sdk.engine.prepare_reference

            def spy(samples: Samples, *, sr: int, denoise: bool, prepare: Any = prepare) -> Any:
                denoised.append(denoise)
                return prepare(samples, sr=sr, denoise=denoise)

            monkeypatch.setattr(engine._sdk.engine, "prepare_reference", spy)
            engine.clone(f"with {denoise}", recording())
    # The third time it is known.
    assert denoised == [True, False]


@models
def test_a_voice_with_its_noise_is_not_kept_as_one_without(
    model: Model, tmp_path: Path, hub: Path, offline: pytest.MonkeyPatch
) -> None:
    files = list(hub.rglob("denoiser.onnx"))
    assert files
    for file in files:
        file.rename(file.with_suffix(".gone"))
    try:
        with opened(model, tmp_path) as engine:
            remedy = "open the engine again while there is a network, or with denoise=False"
            with pytest.raises(EngineError, match=remedy):
                engine.clone("Tôi", recording())
        with opened(model, tmp_path, denoise=False) as engine:
            engine.clone("noisy", recording())
    finally:
        for file in files:
            file.with_suffix(".gone").rename(file)
    with opened(model, tmp_path) as engine:
        assert [voice.id for voice in engine.voices()][-1] == "noisy"
        engine.clone("Tôi", recording())
        assert engine._sdk.engine.denoiser is not None


def test_one_learns_while_others_speak(tmp_path: Path) -> None:
    with opened("v3turbo", tmp_path) as engine:
        expected = speak(engine, "Adam")
        heard: list[Samples] = []
        threads = [
            threading.Thread(target=lambda: heard.append(speak(engine, "Adam"))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for i in range(3):
            engine.clone(f"voice {i}", recording(100 + 50 * i))
        for thread in threads:
            thread.join()
        assert all(np.array_equal(samples, expected) for samples in heard)
        assert [voice.id for voice in engine.voices()][-3:] == ["voice 0", "voice 1", "voice 2"]


@pytest.mark.parametrize("name", ["Mai Anh", "Minh Quân Pro"])
def test_a_voice_of_the_sdks_own_or_a_former_one_is_not_replaced(
    turbo: VieNeuEngine, name: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"vieneu has a voice '{name}' of its own"):
        turbo.clone(name, recording())


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (b"no audio at all", "can't be read"),
        (AudioChunk(np.zeros(RATE, np.float32), RATE), "the recording is silent"),
        (AudioChunk(np.ones(100, np.float32), RATE), "shorter than 0.5 s"),
        ("/no/such/file.wav", "can't read the recording"),
    ],
)
def test_a_recording_of_no_use_is_refused(
    turbo: VieNeuEngine, reference: bytes | AudioChunk | str, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        turbo.clone("Tôi", reference)


def test_what_fails_while_it_learns_is_told_in_one_line(
    turbo: VieNeuEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise FileNotFoundError("speaker_encoder.onnx\nmore")

    monkeypatch.setattr(turbo._sdk.engine, "prepare_reference", broken)
    with pytest.raises(EngineError, match=r"can't learn a voice .*speaker_encoder\.onnx") as caught:
        turbo.clone("Tôi", recording())
    assert "\n" not in str(caught.value)


@models
def test_what_cloning_needs_is_told(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kaldi_native_fbank", "torch", "torchaudio"):
        monkeypatch.setitem(sys.modules, name, None)
    with (
        opened(model, tmp_path) as engine,
        pytest.raises(EngineError, match="cloning needs more: pip install kaldi-native-fbank"),
    ):
        engine.clone("Tôi", recording())


def test_silence_at_the_ends_is_not_learnt() -> None:
    tone = recording().samples
    silence = np.zeros(RATE, np.float32)
    heard = spoken_part(AudioChunk(np.concatenate([silence, tone, silence]), RATE))
    assert len(heard) == pytest.approx(len(tone) + 2 * 0.05 * RATE, abs=5)


@pytest.mark.parametrize(
    "content",
    [
        {"speaker_emb": np.ones(192)},
        {"codes": np.ones(3), "style": np.ones(3)},
        {"speaker_emb": np.full(192, np.nan), "codes": np.ones((3, 16))},
        {"speaker_emb": np.array(["x"]), "codes": np.ones((3, 16))},
        {"speaker_emb": np.ones(192), "codes": np.ones((0, 16))},
    ],
)
def test_a_file_that_is_something_else_is_not_spoken_with(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    save(content, tmp_path / "voice.npz")
    with pytest.raises(ValueError, match=r"isn't a voice|something else"):
        load(tmp_path / "voice.npz")


def test_a_file_with_code_in_it_is_not_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "voice.npz", speaker_emb=np.array([object()], object), codes=np.ones(3))
    with pytest.raises(ValueError, match="allow_pickle"):
        load(tmp_path / "voice.npz")
