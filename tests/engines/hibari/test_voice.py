"""The cut network says what the whole one does, and one that can't be cut is still spoken."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from tts_plugins.engines.hibari.vocoder import HOP
from tts_plugins.engines.hibari.voice import StreamedVoice, WholeVoice, load, to_ids
from tts_plugins.errors import EngineError

PHONEMES = "ðə kwˈɪk bɹˈWn fˈɑks ʤˈʌmps ˈOvəɹ ðə lˈAzi dˈɔɡ."


@pytest.fixture(scope="module")
def voice(model_file: Path) -> StreamedVoice:
    voice = load(model_file)
    assert isinstance(voice, StreamedVoice)
    return voice


@pytest.fixture(scope="module")
def uncut_file(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled voice with an operation that nobody uses: it runs as before."""
    model = onnx.load_model(model_file)
    for node in model.graph.node:
        if node.op_type == "Log":
            scaled = helper.make_node("Log", [node.input[0]], ["a_second_log"])
            model.graph.node.append(scaled)
            break
    path = tmp_path_factory.mktemp("voice") / "uncut.onnx"
    onnx.save_model(model, path)
    return path


def features_of(voice: StreamedVoice) -> NDArray[np.float32]:
    ids, _ = to_ids(PHONEMES)
    names = [voice.layout.features]
    request = {"ids": np.array([ids], np.int64), "speed": np.ones(1, np.float32)}
    (features,) = voice._text.run(names, request)
    assert features.dtype == np.float32
    return np.asarray(features, np.float32)


def sizes(size: int) -> Iterator[int]:
    while True:
        yield size


@pytest.mark.parametrize("size", [1, 16, 80])
def test_decoding_in_pieces_gives_what_decoding_at_once_does(
    voice: StreamedVoice, size: int
) -> None:
    features = features_of(voice)
    frames = features.shape[2]
    (whole,) = voice.decode(features, 0, frames, sizes(frames))
    pieces = np.concatenate(list(voice.decode(features, 0, frames, sizes(size))))
    assert pieces.shape == whole.shape == (frames, 3005)
    # What is left is int8: the scale of a piece isn't that of the whole.
    assert np.std(pieces - whole) < 0.02 * np.std(whole)


@pytest.mark.parametrize(("start", "stop"), [(24, 200), (1, 40), (60, 61), (200, 246)])
def test_decoding_a_part_gives_that_part(voice: StreamedVoice, start: int, stop: int) -> None:
    features = features_of(voice)
    (whole,) = voice.decode(features, 0, features.shape[2], sizes(1000))
    part = np.concatenate(list(voice.decode(features, start, stop, sizes(16))))
    assert part.shape == (stop - start, 3005)
    assert np.std(part - whole[start:stop]) < 0.02 * np.std(whole)


def test_chunks_grow_and_add_up(voice: StreamedVoice) -> None:
    speech = voice.speak(PHONEMES, 1.0, np.random.default_rng(0), pause=True)
    lengths = [len(chunk) // HOP for chunk in speech.chunks]
    assert lengths[:3] == [16, 32, 64]
    assert speech.schedule is not None
    assert sum(lengths) * HOP == speech.schedule.length


def test_silence_is_left_out_but_for_a_breath(voice: StreamedVoice) -> None:
    speech = voice.speak(PHONEMES, 1.0, np.random.default_rng(0), pause=True)
    loud = np.flatnonzero(np.abs(np.concatenate(list(speech.chunks))) > 0.005)
    assert speech.schedule is not None
    assert 0.01 < loud[0] / 24_000 < 0.09
    assert 0.10 < (speech.schedule.length - loud[-1]) / 24_000 < 0.20


def test_a_piece_of_a_sentence_ends_closer(voice: StreamedVoice) -> None:
    speech = voice.speak(PHONEMES[:-1], 1.0, np.random.default_rng(0), pause=False)
    loud = np.flatnonzero(np.abs(np.concatenate(list(speech.chunks))) > 0.005)
    assert speech.schedule is not None
    assert (speech.schedule.length - loud[-1]) / 24_000 < 0.08


@pytest.mark.parametrize(("speed", "ratio"), [(0.5, 2.0), (1.5, 0.67), (2.0, 0.5)])
def test_speed_scales_the_durations(voice: StreamedVoice, speed: float, ratio: float) -> None:
    def seconds(speed: float) -> float:
        schedule = voice.speak(PHONEMES, speed, np.random.default_rng(0), pause=False).schedule
        assert schedule is not None
        return schedule.heard

    assert seconds(speed) / seconds(1.0) == pytest.approx(ratio, rel=0.15)


def test_a_voice_that_can_not_be_cut_is_spoken_in_one_go(
    uncut_file: Path, caplog: pytest.LogCaptureFixture, voice: StreamedVoice
) -> None:
    with caplog.at_level(logging.WARNING):
        whole = load(uncut_file)
    (record,) = caplog.records
    assert record.name == "tts_plugins.engines.hibari.voice"
    assert f"{uncut_file} can't be streamed (2 Log nodes instead of one)" in record.getMessage()

    speech = whole.speak(PHONEMES, 1.0, np.random.default_rng(0), pause=True)
    (samples,) = speech.chunks
    assert speech.schedule is None
    streamed = voice.speak(PHONEMES, 1.0, np.random.default_rng(0), pause=True).schedule
    assert streamed is not None
    assert len(samples) == pytest.approx(streamed.length, abs=0.1 * 24_000)


def test_a_cut_that_changes_the_sound_is_not_used(
    model_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tts_plugins.engines.hibari.voice._TOLERANCE", 0.0)
    assert isinstance(load(model_file), WholeVoice)
    assert "spoken in pieces it differs by" in caplog.text


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"can't read the voice file .*gone.onnx: No such file"):
        load(tmp_path / "gone.onnx")


@pytest.mark.parametrize(
    "content",
    [
        b"<!DOCTYPE html><html><body>404: Not Found</body></html>",
        b"",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:5f70\nsize 7936868\n",
    ],
    ids=["a web page", "empty", "a pointer"],
)
def test_a_file_that_is_no_voice_is_named_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "voice.onnx"
    path.write_bytes(content)
    with pytest.raises(EngineError, match=r"voice.onnx isn't a voice of hibari: .*fetched again"):
        load(path)


@pytest.mark.parametrize("part", [0.001, 0.5, 0.999])
def test_half_a_voice_is_named_with_the_remedy(
    tmp_path: Path, model_file: Path, part: float
) -> None:
    data = model_file.read_bytes()
    path = tmp_path / "voice.onnx"
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(EngineError, match=r"voice.onnx isn't a voice of hibari: .*fetched again"):
        load(path)


def test_another_network_is_named_with_what_it_takes(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], [result])
    opset = helper.make_opsetid("", 17)
    path = tmp_path / "other.onnx"
    onnx.save_model(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    with pytest.raises(EngineError, match="it takes x and gives y"):
        load(path)
