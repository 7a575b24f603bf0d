"""Styles are read from any of their files and blended; anything else is refused."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.kokoro.models import npz, styles
from tts_plugins.engines.kokoro import voices as module
from tts_plugins.engines.kokoro.voices import (
    NoStyleError,
    Part,
    VoiceFiles,
    blend,
    gender,
    language_letter,
    parse_blend,
    read_styles,
    read_voice,
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


def test_a_blend_of_more_voices_than_anybody_needs_is_refused() -> None:
    assert len(parse_blend("+".join("a" * 64))) == 64
    with pytest.raises(InvalidRequestError, match="it has 65 voices, and 64 are the most"):
        parse_blend("+".join("a" * 65))


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
        (npz(x=np.ones((2, 256), np.int64)), "an array of '<i8' instead of float32"),
        (npz(x=np.full((2, 256), np.nan, np.float32)), "its numbers are none of a style"),
        (b"\x7f\xff" * 512, "its numbers are none of a style"),
        (b"\x93NUMPY garbled", "the array can't be read"),
    ],
)
def test_what_is_no_voice_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(NoStyleError, match=reason):
        read_styles(content)


def npy(header: str, data: bytes = b"", *, begin: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    size = len(header).to_bytes(2 if begin[6] == 1 else 4, "little")
    return begin + size + header.encode() + data


def header(shape: str, kind: str = "<f4", order: str = "False") -> str:
    return f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}\n"


def packed(content: bytes, method: int = zipfile.ZIP_DEFLATED, name: str = "x.npy") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def patched(content: bytes, at: int, value: int) -> bytes:
    """An archive of one file, with another byte in its entry of the directory at its end."""
    place = content.rindex(b"PK\x01\x02") + at
    return content[:place] + bytes([value]) + content[place + 1 :]


ARRAY = npy(header("(2, 256)"), np.ones(512, np.float32).tobytes())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (npy(header("(2, 256)", "<f8"), b"\0" * 4095), r"^4095 bytes for an array of shape \[2"),
        (npy(header("(1000000, 1, 256)")), r"^0 bytes for an array of shape \[1000000, 1, 256\]$"),
        (npy(header("(" + "9" * 30 + ",)")), "^0 bytes for an array"),
        (npy(header("(" + "9" * 900 + ",)")), "^the array can't be read$"),
        (npy(header("(" + "1," * 19 + ")"), b"\0" * 4), r"^an array of shape \[1, 1, .* instead"),
        (npy(header("(0, 256)")), r"^an array of shape \[0, 256\] instead of"),
        (npy(header("()"), b"\0" * 4), r"^an array of shape \[\] instead of"),
        (npy(header("(1025, 256)"), b"\0" * 1025 * 1024), "^1025 styles, and 1024 are the most"),
        (b"\0" * 1025 * 1024, "^1025 styles, and 1024 are the most"),
        (npy(header("(2, 256)", "|O"), b"\0" * 512), r"^an array of '\|O' instead of float32"),
        (npy(header("(2, 256)", "<q9"), b"\0" * 512), "^an array of '<q9' instead of float32"),
        (npy(header("(1, 256)", "<f8"), np.full(256, 1e300).tobytes()), "numbers are none of"),
        (b"\x01\x00\xa0\x7f" * 256, "numbers are none of"),  # a NaN that numpy may warn of
        (npy("("), "^the array can't be read$"),
        (npy("(" * 60_000), "^the array can't be read$"),
        (npy('{"descr": """'), "^the array can't be read$"),
        (b"\x93NUMPY", "^the array can't be read$"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "^the array can't be read$"),
        (packed(b"some text"), "^the array can't be read$"),
        (packed(ARRAY, zipfile.ZIP_LZMA), "^the arrays can't be read: they are packed in an unu"),
        (patched(packed(ARRAY), 8, 1), "^the arrays can't be read$"),  # with a password
        (patched(packed(ARRAY), 10, 99), "^the arrays can't be read: they are packed in an unu"),
        (patched(packed(ARRAY), 6, 99), "^the arrays can't be read$"),  # of a later zip
        (packed(ARRAY)[:60] + b"\xff" * 20 + packed(ARRAY)[80:], "^the arrays can't be read$"),
        (packed(b"\0" * 4_000_000), "^an array of 4000000 bytes is larger than a voice$"),
    ],
)  # fmt: skip
def test_what_only_pretends_to_be_a_voice_is_refused(content: bytes, reason: str) -> None:
    for read in (read_styles, read_voice):
        with pytest.raises(NoStyleError, match=reason):
            read(content)


def test_arrays_are_read_as_numpy_writes_them() -> None:
    array = np.arange(512, dtype=np.float32).reshape(2, 256) / 32
    for version in ((1, 0), (2, 0), (3, 0)):
        for written in (array, np.asfortranarray(array), array.astype(">f4"), array.astype("f8")):
            file = io.BytesIO()
            np.lib.format.write_array(file, written, version)
            assert np.array_equal(read_voice(file.getvalue()), array)
    assert np.array_equal(read_styles(packed(ARRAY, name="af_x.npy"))["af_x"], np.ones((2, 256)))


def test_a_pack_that_unpacks_to_too_much_is_refused_before_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 4 << 20)
    monkeypatch.setattr(module, "_unpacked", lambda *_: pytest.fail("it was unpacked"))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in "abc":
            archive.writestr(f"{name}.npy", b"\0" * 2_000_000)
    with pytest.raises(NoStyleError, match=r"^it unpacks to more than 4 MB$"):
        read_styles(file.getvalue())
    with pytest.raises(NoStyleError, match=r"^it holds 3 voices, not one$"):
        read_voice(file.getvalue())


@given(st.data())
def test_whatever_damages_a_file_it_is_read_or_refused(data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([ARRAY, packed(ARRAY), packed(ARRAY, zipfile.ZIP_STORED)]))
    content = bytearray(whole)
    for at, byte in data.draw(
        st.lists(st.tuples(st.integers(-200, 200), st.integers(0, 255)), min_size=1, max_size=4)
    ):
        content[at % len(content)] = byte
    with suppress(NoStyleError):
        read_styles(bytes(content[: data.draw(st.integers(100, len(content)))]))


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


def test_a_file_of_several_voices_in_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "af_a.npz").write_bytes(npz(x=styles(1.0), y=styles(2.0)))
    with pytest.raises(EngineError, match=r"from .*af_a.npz: it holds 2 voices, not one; give the"):
        VoiceFiles(tmp_path).get("af_a")


def test_a_folder_that_cant_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(_: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", forbidden)
    with pytest.raises(EngineError, match=r"voices from .*: Permission denied; give the path"):
        VoiceFiles(tmp_path)


def test_a_folder_without_voices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no .bin, .npy or .npz in it; give the path"):
        VoiceFiles(tmp_path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="No such file or directory; give the path"):
        VoiceFiles(tmp_path / "voices.bin")
