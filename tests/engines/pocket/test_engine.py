"""The engine as the others see it: requests in, frames out, or a clear error."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from pipecat.frames.frames import TTSAudioRawFrame, TTSSpeakFrame, TTSStoppedFrame

from tests.adapters.pipecat_call import Call, logged
from tests.engines.pocket.tiny import SILENT, recording, tiny
from tests.hearing import pitch
from tts_plugins.adapters.livekit import EngineTTS
from tts_plugins.adapters.pipecat import EngineTTSService
from tts_plugins.audio.wav import wav_file
from tts_plugins.engines.pocket import PocketEngine
from tts_plugins.errors import (
    EngineError,
    InvalidRequestError,
    UnspeakableTextError,
    VoiceNotFoundError,
)
from tts_plugins.interruption import Interruption
from tts_plugins.registry import open_engine
from tts_plugins.scheduler import Scheduler
from tts_plugins.testing import check_engine
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest

SEEDED: dict[str, object] = {"options": {"seed": 3}}


def speak(engine: PocketEngine, text: str, **settings: object) -> list[AudioChunk]:
    return list(engine.synthesize(SynthesisRequest(text, **settings)))  # type: ignore[arg-type]


def samples_of(chunks: Sequence[AudioChunk]) -> Samples:
    return np.concatenate([chunk.samples for chunk in chunks])


@contextmanager
def decoding(engine: PocketEngine, then: Any) -> Iterator[None]:
    """Do something whenever a frame was decoded."""
    hook = engine._model.mimi.decoder.register_forward_hook(lambda *_: then())
    try:
        yield
    finally:
        hook.remove()


async def test_it_keeps_the_contract(engine: PocketEngine) -> None:
    checks = await check_engine(Scheduler(engine, workers=2, max_ahead=math.inf))
    assert [str(check) for check in checks if not check.passed] == []


def test_a_step_is_a_frame_of_80_ms(engine: PocketEngine) -> None:
    chunks = speak(engine, "Hello there.")
    assert [(len(c.samples), c.sample_rate, c.words) for c in chunks] == [(1920, 24_000, ())] * 11
    assert float(np.abs(samples_of(chunks)).max()) > 0.1


def test_nothing_is_computed_before_it_is_asked_for(engine: PocketEngine) -> None:
    decoded: list[int] = []
    with decoding(engine, lambda: decoded.append(1)):
        stream = engine.synthesize(SynthesisRequest("Hello there."))
        for n in (1, 2, 3):
            next(stream)
            assert len(decoded) == n
        stream.close()


def test_a_stream_has_no_thread_of_its_own(engine: PocketEngine) -> None:
    before = threading.enumerate()
    stream = engine.synthesize(SynthesisRequest("Hello there."))
    next(stream)
    assert threading.enumerate() == before
    stream.close()


def test_a_step_that_is_interrupted_decodes_nothing_more(engine: PocketEngine) -> None:
    interruption = Interruption()
    decoded: list[int] = []
    stream = engine.synthesize(SynthesisRequest("Hello there."))
    with interruption.concerns(), decoding(engine, lambda: decoded.append(1)):
        next(stream)
        hook = engine._model.flow_lm.out_norm.register_forward_hook(
            lambda *_: interruption.interrupt()
        )
        assert list(stream) == []
        hook.remove()
        assert len(decoded) == 1


async def test_after_a_barge_in_nothing_is_computed_and_no_thread_is_left(
    engine: PocketEngine,
) -> None:
    decoded: list[int] = []
    with decoding(engine, lambda: decoded.append(1)):
        scheduler = Scheduler(engine, max_ahead=0.01)
        async with aclosing(scheduler.stream(SynthesisRequest("Hello there."))) as chunks:
            await anext(chunks)
        for thread in threading.enumerate():
            if thread.name == "tts-engine":
                thread.join(10)
                assert not thread.is_alive()
        assert len(decoded) <= 2


def test_a_failure_of_the_model_is_one_clear_error_and_the_next_stream_is_whole(
    engine: PocketEngine,
) -> None:
    def fail() -> None:
        raise RuntimeError("CPU out of memory.\nTried to allocate 1 GiB")

    stream = engine.synthesize(SynthesisRequest("Hello there."))
    next(stream)
    message = "pocket's model failed: RuntimeError: CPU out of memory. Tried to allocate 1 GiB"
    with decoding(engine, fail), pytest.raises(EngineError, match=f"^{message}$"):
        next(stream)
    assert len(speak(engine, "Hello there.")) == 11


def test_a_seed_makes_a_stream_repeatable_whoever_speaks_beside_it(engine: PocketEngine) -> None:
    alone = samples_of(speak(engine, "Hello there.", **SEEDED))
    seeded = engine.synthesize(SynthesisRequest("Hello there.", options={"seed": 3}))
    other = engine.synthesize(SynthesisRequest("And who are you?"))
    got = [chunk for pair in zip(seeded, other, strict=False) for chunk in pair[:1]]
    np.testing.assert_array_equal(samples_of(got), alone[: len(samples_of(got))])
    assert len(got) >= 9
    different = samples_of(speak(engine, "Hello there.", options={"seed": 4}))
    assert not np.array_equal(different, alone)
    assert not np.array_equal(samples_of(speak(engine, "Hello there.")), alone)


def test_at_temperature_0_each_time_is_the_same(engine: PocketEngine) -> None:
    cold = [samples_of(speak(engine, "Hi you.", options={"temperature": 0})) for _ in range(2)]
    np.testing.assert_array_equal(cold[0], cold[1])
    hot = samples_of(speak(engine, "Hi you.", options={"temperature": 1.5}))
    assert not np.array_equal(cold[0], hot)


def test_many_streams_on_many_threads_are_each_as_if_alone(engine: PocketEngine) -> None:
    texts = [f"This is the text of stream {n}." for n in range(8)]
    alone = [samples_of(speak(engine, text, **SEEDED)) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda text: samples_of(speak(engine, text, **SEEDED)), texts))
    for one, another in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, another)


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.25, 2.0])
def test_the_length_goes_with_the_speed(engine: PocketEngine, speed: float) -> None:
    chunks = speak(engine, "Hello there.", speed=speed)
    assert len(samples_of(chunks)) == round(11 * 1920 / speed)
    assert all(len(chunk.samples) for chunk in chunks)


def test_a_long_text_is_spoken_to_its_end(engine: PocketEngine) -> None:
    text = "One two three four five. " * 6
    assert len(speak(engine, text)) == 3 * 9  # two sentences in 49 tokens


@pytest.mark.parametrize("text", ["", "  ", "...", "\N{GRINNING FACE}", SILENT])
def test_a_text_without_a_word_is_unspeakable(engine: PocketEngine, text: str) -> None:
    with pytest.raises(UnspeakableTextError):
        speak(engine, text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"speed": 2.5}, "speed 2.5 is outside 0.5 to 2.0"),
        ({"speed": math.nan}, "speed nan is outside"),
        ({"options": {"heat": 1}}, "pocket has no option heat; it has: seed, temperature"),
        ({"options": {"seed": -1}}, "seed is an int from 0 up, not -1"),
        ({"options": {"seed": True}}, "seed is an int from 0 up, not True"),
        ({"options": {"seed": 1.5}}, "seed is an int from 0 up"),
        ({"options": {"temperature": 3}}, "temperature is a number from 0 to 2, not 3"),
        ({"options": {"temperature": "hot"}}, "temperature is a number from 0 to 2, not 'hot'"),
        ({"options": {"temperature": math.nan}}, "temperature is a number from 0 to 2, not nan"),
        ({"voice": "bob"}, "no voice 'bob'; available: mai"),
    ],
)
def test_wrong_settings_are_refused(
    engine: PocketEngine, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        speak(engine, "Hello.", **settings)


def test_without_any_voice_it_says_how_to_get_one(config: Path, tmp_path: Path) -> None:
    engine = PocketEngine(config, voices_dir=tmp_path)
    assert engine.voices() == []
    with pytest.raises(InvalidRequestError, match="clone one, or pass voice=FILE"):
        speak(engine, "Hello.")


def test_a_cloned_voice_is_there_after_a_restart_bit_for_bit(config: Path, tmp_path: Path) -> None:
    first = PocketEngine(config, voices_dir=tmp_path)
    cloned = first.clone("anh", recording(330))
    assert (cloned.id, cloned.ready) == ("anh", True)
    second = PocketEngine(config, voices_dir=tmp_path, voice="anh")
    assert [voice.id for voice in second.voices()] == ["anh"]
    for engine in (first, second):
        engine.clone("mai", recording(220))
    ours, theirs = (samples_of(speak(e, "Hello.", voice="anh", **SEEDED)) for e in (first, second))
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(samples_of(speak(second, "Hello.", **SEEDED)), theirs)
    assert not np.array_equal(samples_of(speak(first, "Hello.", voice="mai", **SEEDED)), ours)
    second.forget("anh")
    with pytest.raises(VoiceNotFoundError, match="no voice 'anh'; available: mai"):
        speak(first, "Hello.", voice="anh")


def test_a_cloned_voice_gets_a_new_name_that_no_voice_has(config: Path, tmp_path: Path) -> None:
    engine = PocketEngine(config, voices_dir=tmp_path, voice=str(wav(tmp_path)))
    given = engine.voices()[0].id
    engine.clone("anh", recording(330))
    before = samples_of(speak(engine, "Hello.", voice="anh", **SEEDED))
    assert engine.rename("anh", "mai").id == "mai"
    after = samples_of(speak(engine, "Hello.", voice="mai", **SEEDED))
    np.testing.assert_array_equal(after, before)
    assert [voice.id for voice in engine.voices()] == ["mai", given]
    with pytest.raises(InvalidRequestError, match=f"pocket has a voice '{given}' of its own"):
        engine.rename("mai", given)


def test_a_state_is_kept_on_disk_as_it_was(config: Path, tmp_path: Path) -> None:
    engine = PocketEngine(config, voices_dir=tmp_path)
    engine.clone("anh", recording(330))
    (file,) = tmp_path.rglob("*.safetensors")
    kept = safetensors.torch.load_file(file)
    state = engine._find("anh")
    assert {f"{layer}/{name}" for layer in state for name in state[layer]} == set(kept)
    assert all(torch.equal(state[a][b], kept[f"{a}/{b}"]) for a in state for b in state[a])


def test_of_a_recording_30_seconds_are_heard_at_the_models_rate(
    engine: PocketEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[torch.Tensor] = []
    monkeypatch.setattr(engine._model, "get_state_for_audio_prompt", heard.append)
    engine._learn(recording(220, 40.0))
    assert heard[0].shape == (1, 30 * 24_000)
    assert pitch(heard[0][0, :24_000].numpy(), 24_000) == 220


def test_a_state_is_as_long_as_the_recording(engine: PocketEngine) -> None:
    offsets = [int(layer["offset"]) for layer in engine._learn(recording(220)).values()]
    # The network's own beginning, and 1.08 s: the recording and the silence that it ends with.
    assert offsets == [1 + 14] * 2


def test_other_weights_do_not_know_the_voice(
    config: Path, tmp_path: Path, engine: PocketEngine
) -> None:
    PocketEngine(config, voices_dir=tmp_path / "voices").clone("anh", recording(330))
    other = PocketEngine(tiny(tmp_path / "other", seed=1), voices_dir=tmp_path / "voices")
    assert other.voices() == []


def test_weights_that_can_not_clone_speak_with_what_was_cloned_before(
    config: Path, tmp_path: Path
) -> None:
    PocketEngine(config, voices_dir=tmp_path).clone("anh", recording(330))
    settings = json.loads(config.read_text())
    settings["weights_path_without_voice_cloning"] = settings["weights_path"]
    settings["weights_path"] = "hf://kyutai/pocket-tts/no/such.safetensors"
    path = tmp_path / "public.yaml"
    path.write_text(json.dumps(settings))
    with offline():
        engine = PocketEngine(path, voices_dir=tmp_path)
    assert len(speak(engine, "Hello there.")) == 11
    remedy = "accept the terms at https://huggingface.co/kyutai/pocket-tts, log in with `hf auth"
    for learn in (
        lambda: engine.clone("mai", recording(220)),
        lambda: PocketEngine(path, voices_dir=tmp_path, voice=str(wav(tmp_path))),
    ):
        with offline(), pytest.raises(EngineError, match=remedy):
            learn()


@contextmanager
def offline() -> Iterator[None]:
    from huggingface_hub import constants

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        yield


def wav(folder: Path) -> Path:
    path = folder / "linh.wav"
    path.write_bytes(wav_file(recording(440)))
    return path


def test_a_recording_may_be_the_default_voice(config: Path, tmp_path: Path) -> None:
    engine = PocketEngine(config, voice=str(wav(tmp_path)), voices_dir=tmp_path, language="en")
    (voice,) = engine.voices()
    assert (voice.id, voice.language, voice.description) == ("linh", "en", "from a file")
    spoken = samples_of(speak(engine, "Hello.", **SEEDED))
    with pytest.raises(InvalidRequestError, match="'linh' of its own"):
        engine.clone("linh", recording(330))
    engine.clone("same", wav(tmp_path))
    np.testing.assert_array_equal(
        samples_of(speak(engine, "Hello.", voice="same", **SEEDED)), spoken
    )


def test_a_voice_that_the_package_exported_may_be_the_default(
    config: Path, tmp_path: Path, engine: PocketEngine
) -> None:
    from pocket_tts import export_model_state

    export_model_state(engine._find("mai"), tmp_path / "mine.safetensors")
    mine = PocketEngine(config, voice=str(tmp_path / "mine.safetensors"), voices_dir=tmp_path)
    assert [voice.id for voice in mine.voices()] == ["mine"]
    np.testing.assert_array_equal(
        samples_of(speak(mine, "Hello.", **SEEDED)),
        samples_of(speak(engine, "Hello.", voice="mai", **SEEDED)),
    )


def test_a_file_that_is_no_voice_of_the_model_is_refused(config: Path, tmp_path: Path) -> None:
    path = tmp_path / "voice.safetensors"
    other = PocketEngine(tiny(tmp_path / "other", layers=3), voices_dir=tmp_path / "voices")
    other.clone("anh", recording(330))
    (file,) = (tmp_path / "voices").rglob("*.safetensors")
    whole = file.read_bytes()
    for content in (b"<html>not found</html>", b"", whole[:-100], whole):
        path.write_bytes(content)
        with pytest.raises(
            EngineError,
            match=r"voice.safetensors is no voice for this model: .*; "
            "export it again with `pocket-tts export-voice` for this model",
        ):
            PocketEngine(config, voice=str(path), voices_dir=tmp_path / "none")
    with pytest.raises(VoiceNotFoundError, match=r"no voice 'nobody.wav'"):
        PocketEngine(config, voice="nobody.wav", voices_dir=tmp_path / "none")


def test_a_kept_voice_that_was_damaged_says_so(config: Path, tmp_path: Path) -> None:
    PocketEngine(config, voices_dir=tmp_path).clone("anh", recording(330))
    (file,) = tmp_path.rglob("*.safetensors")
    file.write_bytes(b"nothing")
    with pytest.raises(EngineError, match=r"the voice 'anh' can't be read from .*clone it again"):
        speak(PocketEngine(config, voices_dir=tmp_path), "Hello.", voice="anh")


def test_weights_that_are_not_numbers_make_an_error_not_a_noise(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    engine = PocketEngine(config, voices_dir=tmp_path)
    engine.clone("anh", recording(330))
    weights = safetensors.torch.load_file(tmp_path / "model.safetensors")
    weights["flow_lm.emb_std"] *= math.nan
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors")
    broken = PocketEngine(config, voices_dir=tmp_path)
    broken.clone("anh", recording(330))
    with pytest.raises(EngineError, match="samples that are no numbers: are its weights whole"):
        speak(broken, "Hello.")


def test_a_closed_engine_says_so_and_open_streams_end_whole(config: Path, tmp_path: Path) -> None:
    engine = PocketEngine(config, voices_dir=tmp_path)
    engine.clone("anh", recording(330))
    stream = engine.synthesize(SynthesisRequest("Hello there."))
    next(stream)
    engine.close()
    engine.close()
    assert len(list(stream)) == 10
    for call in (lambda: speak(engine, "Hi."), lambda: engine.clone("b", recording(220))):
        with pytest.raises(EngineError, match="this pocket engine is closed; open another one"):
            call()
    assert [voice.id for voice in engine.voices()] == ["anh"]


def test_what_is_closed_while_it_hears_a_recording_says_so(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = PocketEngine(config, voices_dir=tmp_path)

    def closing(reference: AudioChunk) -> AudioChunk:
        engine.close()
        return reference

    monkeypatch.setattr("tts_plugins.library.listen", closing)
    with pytest.raises(EngineError, match="this pocket engine is closed; open another one"):
        engine.clone("anh", recording(330))


async def test_it_is_opened_by_name_with_a_worker_for_each_core(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tts_plugins.engines.pocket.loading.cores", lambda: 6)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    engine = open_engine(
        "pocket", model=str(config), voice=str(wav(tmp_path)), voices_dir=str(tmp_path)
    )
    torch.set_num_threads(threads)
    assert isinstance(engine, Scheduler)
    assert engine._workers == 3
    assert engine.can_clone
    async with aclosing(engine.stream(SynthesisRequest("Hello there."))) as chunks:
        assert len([chunk async for chunk in chunks]) == 11
    await engine.aclose()


# In the frameworks


async def test_pipecat_speaks_with_it(engine: PocketEngine) -> None:
    with logged("WARNING"):
        async with Call(EngineTTSService(Scheduler(engine)), rate=24_000) as call:
            await call.send(TTSSpeakFrame("Hello there."))
            await call.after(TTSStoppedFrame)
            assert call.errors == []
            audio = b"".join(frame.audio for frame in call.all(TTSAudioRawFrame))
    assert len(audio) // 2 >= 11 * 1920


async def test_livekit_speaks_with_it(engine: PocketEngine) -> None:
    heard = bytearray()
    async with EngineTTS(Scheduler(engine), sample_rate=24_000).stream() as stream:
        stream.push_text("Hello there.")
        stream.end_input()
        async for event in stream:
            heard += event.frame.data.tobytes()
    assert len(heard) // 2 >= 11 * 1920
