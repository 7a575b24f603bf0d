"""Styles are read from any of their files and blended; anything else is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.kokoro.models import npz, styles
from tts_plugins.engines.kokoro.voices import (
    NoStyleError,
    Part,
    VoiceFiles,
    blend,
    gender,
    language_letter,
    parse_blend,
    read_styles,
    style_for,
)
from tts_plugins.errors import EngineError, InvalidRequestError


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("af_bella(2)+af_sky(1)", [Part("af_bella", 2 / 3), Part("af_sky", 1 / 3)]),
        ("a+b", [Part("a", 0.5), Part("b", 0.5)]),
        ("a-b", [Part("a", 0.5), Part("b", -0.5)]),
        (" a ( 3 ) + b ", [Part("a", 0.75), Part("b", 0.25)]),
        ("a(.5)+b(1.5)-c(2)", [Part("a", 0.125), Part("b", 0.375), Part("c", -0.5)]),
        ("a(7)", [Part("a", 1.0)]),
    ],
)
def test_a_blend_is_read_as_kokoro_fastapi_does(expression: str, parts: list[Part]) -> None:
    assert parse_blend(expression) == parts


@pytest.mark.parametrize(
    "expression",
    ["", "+", "a+", "+a", "a++b", "a(", "a()", "a)1(", "a(x)", "a(0)", "a(-1)", "a(1)b", "(2)",
     "a(1e999)", "a(nan)", "a(1.2.3)", "a+b(0.0)"],
)  # fmt: skip
def test_what_is_no_blend_is_refused(expression: str) -> None:
    with pytest.raises(InvalidRequestError, match="can't read the blend") as error:
        parse_blend(expression)
    assert "write such as 'af_bella(2)+af_sky(1)'" in str(error.value)
    assert error.value.field == "voice"


@given(st.text("ab(12.)+- ", max_size=12))
def test_any_blend_is_read_or_refused(expression: str) -> None:
    try:
        parts = parse_blend(expression)
    except InvalidRequestError:
        return
    assert sum(abs(part.weight) for part in parts) == pytest.approx(1.0)


def test_a_blend_is_the_weighted_sum_as_long_as_the_shortest() -> None:
    one, three = np.full((4, 256), 1.0, np.float32), np.full((2, 256), 3.0, np.float32)
    assert blend([(one, 0.25), (three, 0.75)]).tolist() == [[2.5] * 256] * 2


def test_each_length_has_its_style() -> None:
    rows = np.arange(3, dtype=np.float32).repeat(256).reshape(3, 256)
    assert [style_for(rows, n)[0] for n in (0, 1, 2, 3, 4, 510)] == [0, 0, 1, 2, 2, 2]


def test_a_name_tells_language_and_gender() -> None:
    assert (language_letter("af_heart"), gender("af_heart")) == ("a", "female")
    assert (language_letter("zm_yunxi"), gender("zm_yunxi")) == ("z", "male")
    assert (language_letter("mine"), gender("mine")) == (None, "")


def test_all_kinds_of_files_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", styles(1.0))
    assert read_styles((tmp_path / "a.npy").read_bytes())[""].shape == (510, 256)
    assert read_styles(styles(1.0).tobytes())[""].shape == (510, 256)
    assert list(read_styles(npz(x=styles(1.0), y=styles(2.0)[:, 0]))) == ["x", "y"]
    assert read_styles(npz(x=np.ones(256, np.float32)))["x"].shape == (1, 256)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "0 bytes aren't styles"),
        (b"<html>" + b" " * 100, "106 bytes aren't styles"),
        (b"PK\x03\x04 garbled", "the arrays can't be read"),
        (npz(x=styles(1.0))[:2000], "the arrays can't be read"),
        (npz(), "it is empty"),
        (npz(x=np.ones((510, 1, 128), np.float32)), r"shape \[510, 1, 128\] instead of"),
        (npz(x=np.ones((2, 2, 256), np.float32)), r"shape \[2, 2, 256\] instead of"),
        (npz(x=np.ones((0, 256), np.float32)), r"shape \[0, 256\] instead of"),
        (npz(x=np.ones((2, 256), np.int64)), "of int64 instead of float32"),
        (npz(x=np.full((2, 256), np.nan, np.float32)), "its numbers are none of a style"),
        (b"\x7f\xff" * 512, "its numbers are none of a style"),
        (b"\x93NUMPY garbled", "the array can't be read"),
    ],
)
def test_what_is_no_voice_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(NoStyleError, match=reason):
        read_styles(content)


class Dangerous:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("it was unpickled",))


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    array = np.array([Dangerous()], dtype=object)
    np.save(tmp_path / "bad.npy", array, allow_pickle=True)
    with pytest.raises(NoStyleError):
        read_styles((tmp_path / "bad.npy").read_bytes())
    with pytest.raises(NoStyleError):
        read_styles(pickle.dumps(Dangerous()))


def test_a_folder_has_a_voice_for_each_file(tmp_path: Path) -> None:
    (tmp_path / "af_a.bin").write_bytes(styles(1.0).tobytes())
    (tmp_path / "bm_b.npz").write_bytes(npz(whatever=styles(2.0)))
    (tmp_path / "readme.txt").write_text("voices")
    files = VoiceFiles(tmp_path)
    assert list(files) == ["af_a", "bm_b"]
    assert files.get("bm_b")[0, 0] == 2.0


def test_a_damaged_voice_in_a_folder_is_told_when_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "af_a.bin").write_bytes(b"garbled")
    files = VoiceFiles(tmp_path)
    with pytest.raises(EngineError, match=r"voices from .*af_a.bin: 7 bytes aren't styles"):
        files.get("af_a")


def test_a_folder_without_voices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no .bin, .npy or .npz in it; give the path"):
        VoiceFiles(tmp_path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="No such file or directory; give the path"):
        VoiceFiles(tmp_path / "voices.bin")
