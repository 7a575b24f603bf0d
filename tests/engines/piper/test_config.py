"""What the file beside a voice says of it, or which of it is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engines.piper import tiny
from tts_plugins.engines.piper.config import Config, read_config
from tts_plugins.errors import EngineError


def read(tmp_path: Path, **changes: Any) -> Config:
    (tmp_path / "v.onnx.json").write_text(json.dumps(tiny.config(**changes)))
    return read_config(tmp_path / "v.onnx")


def test_a_real_voice_is_described(joe: Path) -> None:
    config = read_config(joe)
    assert config.sample_rate == 22_050
    assert config.kind == "espeak"
    assert config.espeak_voice == "en-us"
    assert config.language == "en-US"
    assert config.speakers == {}
    assert (config.noise, config.length, config.noise_w) == (0.667, 1.0, 0.8)


def test_ids_stand_between_pads(joe: Path) -> None:
    ids, places, unknown = read_config(joe).to_ids("hɛ.")
    assert ids == [1, 0, 20, 0, 61, 0, 10, 0, 2]
    assert places == [2, 4, 6, 8]
    assert unknown == set()


def test_what_a_voice_was_not_taught_is_passed_over_and_told(joe: Path) -> None:
    ids, places, unknown = read_config(joe).to_ids("hカɛ")
    assert ids == [1, 0, 20, 0, 61, 0, 2]
    assert places == [2, 4, 4, 6]
    assert unknown == {"カ"}


def test_a_phoneme_may_be_several_ids_or_stand_for_others(tmp_path: Path) -> None:
    table = {"_": 0, "^": [1], "$": [2], "a": [3, 4], "b": [5]}
    config = read(tmp_path, phoneme_id_map=table, phoneme_map={"c": ["b", "a"]})
    assert config.to_ids("ac") == ([1, 0, 3, 4, 0, 5, 0, 3, 4, 0, 2], [2, 5, 10], set())


def test_speakers_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    named = read(tmp_path, num_speakers=2, speaker_id_map={"bob": 1, "amy": 0})
    assert list(named.speakers.items()) == [("amy", 0), ("bob", 1)]
    assert read(tmp_path, num_speakers=2).speakers == {"0": 0, "1": 1}
    assert read(tmp_path, num_speakers=1, speaker_id_map={"amy": 0}).speakers == {}


@pytest.mark.parametrize(
    ("code", "espeak", "tag"),
    [
        ("en_US", "en-us", "en-US"),
        ("vi_VN", "vi", "vi-VN"),
        (None, "en-us", "en-US"),
        (None, "en-gb-x-rp", "en-GB-x-rp"),
        (None, "es-419", "es-419"),
        (None, "cmn", "cmn"),
        (None, None, "und"),
        ("sr_latn_rs", "sr", "sr-Latn-RS"),
    ],
)
def test_the_language_is_told(tmp_path: Path, code: str, espeak: str, tag: str) -> None:
    config = read(tmp_path, language={"code": code}, espeak={"voice": espeak})
    assert config.language == tag


def test_what_may_be_missing_has_a_default(tmp_path: Path) -> None:
    config = read(tmp_path, inference=None, speaker_id_map=None, num_speakers=None, language=None)
    assert (config.noise, config.length, config.noise_w) == (0.667, 1.0, 0.8)
    assert config.speakers == {}
    scales = {"noise_scale": None, "length_scale": 4}
    assert read(tmp_path, inference=scales) == read(tmp_path, inference={"length_scale": 4.0})
    assert read(tmp_path, inference=scales).length == 4.0


def test_the_name_of_the_file_may_be_shorter(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text(json.dumps(tiny.config()))
    assert read_config(tmp_path / "v.onnx").sample_rate == tiny.RATE


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"there is no v.onnx.json beside .*v.onnx; get it from"):
        read_config(tmp_path / "v.onnx")


@pytest.mark.parametrize("content", [b"", b"<html>", b"\xff\xfe\x00", b'{"audio": ', b"[" * 9999])
def test_a_file_that_is_no_json_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "v.onnx.json").write_bytes(content)
    with pytest.raises(EngineError, match=r"v.onnx.json doesn't .*: it is no JSON; get it anew"):
        read_config(tmp_path / "v.onnx")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"audio": None}, "audio.sample_rate is None"),
        ({"audio": {"sample_rate": "22050"}}, "audio.sample_rate is '22050'"),
        ({"audio": {"sample_rate": 0}}, "audio.sample_rate is 0"),
        ({"audio": 22_050}, "audio.sample_rate is None"),
        ({"phoneme_id_map": None}, "it lacks phoneme_id_map"),
        ({"phoneme_id_map": {}}, "it lacks phoneme_id_map"),
        ({"phoneme_id_map": {"a": ["1"]}}, r"phoneme_id_map has \['1'\] for 'a'"),
        ({"phoneme_type": "pinyin"}, "phoneme_type 'pinyin' isn't supported, only espeak and text"),
        ({"phoneme_type": "x" * 999}, r"phoneme_type 'x+\.\.\.x+' isn't supported"),
        ({"phoneme_type": "espeak"}, "it lacks espeak.voice"),
        ({"phoneme_type": "espeak", "espeak": {"voice": 3}}, "it lacks espeak.voice"),
        ({"inference": {"noise_w": "loud"}}, "inference.noise_w is 'loud'"),
        ({"num_speakers": "two"}, "num_speakers is 'two'"),
        ({"num_speakers": 10**9}, "num_speakers is 1000000000, not an int from 0 to 10000"),
        ({"num_speakers": -3}, "num_speakers is -3, not an int from 0"),
        ({"num_speakers": True}, "num_speakers is True"),
        (
            {"num_speakers": 2, "speaker_id_map": {"a": "b"}},
            "speaker_id_map has a speaker 'a' that is 'b', not an int from 0 to 9999",
        ),
        ({"num_speakers": 2, "speaker_id_map": {"a": 10**400}}, r"'a' that is 10+\.\.\.0+, not"),
        ({"phoneme_id_map": {"a": [10**30]}}, r"phoneme_id_map has \[10+\] for 'a', not an int"),
        ({"phoneme_id_map": {"a": 65_536}}, "phoneme_id_map has 65536 for 'a', not an int"),
        ({"phoneme_id_map": {"a": [-1]}}, r"phoneme_id_map has \[-1\] for 'a'"),
        ({"phoneme_id_map": {"a": [1] * 5}}, r"has \[1, 1, 1, 1, 1\] for 'a', .*or 4 of these"),
        ({"phoneme_map": {"a": ["b"] * 99}}, "phoneme_map has 'b+...b+' for 'a', not 4 at most"),
        ({"phoneme_map": {"a": "b" * 10**6}}, "phoneme_map has 'b+...b+' for 'a', not 4 at most"),
        ({"inference": {"length_scale": 1e30}}, r"inference.length_scale is 1e\+30, not a number"),
        ({"inference": {"length_scale": -3}}, "length_scale is -3, not a number from 0.25 to 4"),
        ({"inference": {"length_scale": 0}}, "length_scale is 0, not a number from 0.25 to 4"),
        ({"inference": {"length_scale": 10**400}}, r"length_scale is 10+\.\.\.0+, not a number"),
        ({"inference": {"noise_scale": 1e38}}, r"noise_scale is 1e\+38, not a number from 0 to 2"),
        ({"inference": {"noise_w": float("nan")}}, "noise_w is nan, not a number from 0 to 2"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(EngineError, match=f"doesn't describe a voice of Piper: .*{reason}") as e:
        read(tmp_path, **changes)
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < len(str(tmp_path)) + 300


def test_another_json_is_no_description(tmp_path: Path) -> None:
    (tmp_path / "v.onnx.json").write_text("[1, 2]")
    with pytest.raises(EngineError, match="it is no object"):
        read_config(tmp_path / "v.onnx")
