"""English without espeak-ng, and which reader a language gets."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.phonemes.test_espeak import TOKENS, absent
from tts_plugins.phonemes.espeak import EspeakNotFoundError, EspeakReader
from tts_plugins.phonemes.pronounced import Reader
from tts_plugins.phonemes.respelling import respelt
from tts_plugins.phonemes.spelling import EnglishReader, SpeltReader, _tell, reader_for


def said(reader: Reader, text: str) -> list[tuple[str, str]]:
    return [
        (mark.text, piece.phonemes[begin:end])
        for piece in reader.read(text, lambda script: None)
        for mark, (begin, end) in zip(piece.marks, piece.spans, strict=True)
    ]


def read(reader: Reader, text: str) -> str:
    (piece,) = reader.read(text, lambda script: None)
    return piece.phonemes


def test_english_is_read_in_hibaris_letters() -> None:
    assert said(EnglishReader(), "Say Kokoro for $3.") == [
        ("Say", "sˈA"),
        ("Kokoro", "kəkˈɔɹO"),
        ("for", "fɔɹ"),
        ("$3.", "θɹˈi dˈɑləɹz"),
    ]
    assert read(EnglishReader(british=True), "Hello there!") == "həlˈQ ðˈɛː!"


@pytest.mark.parametrize(
    "text",
    [
        "Thanks for calling, how can I help you today?",
        "I can book that table for you at seven this evening.",
        "How much wood would a woodchuck chuck",
        "Let me check that for you; they went home.",
        "Would you like me to repeat the options?",
        "Our number is here.",
    ],
)
def test_american_is_respelt_nearly_as_espeak_writes_it(text: str) -> None:
    bare = str.maketrans("", "", "ˈˌ")
    respelt_words = read(SpeltReader(), text).translate(bare).split()
    assert respelt_words == read(EspeakReader("en-us"), text).translate(bare).split()


def test_british_is_respelt_as_espeak_writes_it() -> None:
    text = "One number is about the chair, isn't it?"
    assert read(SpeltReader(british=True), text) == "wˈɒn nˈʌmbəɹ ɪz ɐbˈaʊt ðə tʃˈeə, ˈɪzənt ɪt?"


def test_words_keep_their_phonemes_when_they_are_respelt() -> None:
    text = "“Wait…” Dr. Jones paid $42.50 — ask [Kokoro](/kˈOkO/)!"
    assert said(SpeltReader(), text) == [
        ("“Wait…”", "wˈeɪt"),
        ("Dr.", "dˈɑːktɚ"),
        ("Jones", "dʒˈoʊnz"),
        ("paid", "pˈeɪd"),
        ("$42.50", "fˈɔːɹɾi tˈuː dˈɑːlɚz ænd fˈɪfti sˈɛnts"),
        ("ask", "ˈæsk"),
        ("Kokoro", "kˈoʊkoʊ"),
    ]


@pytest.mark.parametrize(
    ("phonemes", "expected"),
    [
        ("nˈO — jˈɛs", "nˈoʊ; jˈɛs"),
        ("wˈAt… nˈO…", "wˈeɪt, nˈoʊ."),
        ("“nˈO,” (jˈɛs)", "nˈoʊ, jˈɛs"),
        ("…nˈO", "nˈoʊ"),
        ("", ""),
    ],
)
def test_punctuation_becomes_what_piper_voices_know(phonemes: str, expected: str) -> None:
    assert respelt(phonemes, (), british=False)[0] == expected


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(TOKENS) | st.text(max_size=6), max_size=10), st.booleans())
def test_any_text_keeps_its_words(parts: list[str], british: bool) -> None:
    text = " ".join(parts)
    plain = list(EnglishReader(british=british).read(text, lambda script: None))
    spelt = list(SpeltReader(british=british).read(text, lambda script: None))
    assert [piece.marks for piece in spelt] == [piece.marks for piece in plain]
    for piece, before in zip(spelt, plain, strict=True):
        last = (0, 0)
        for span, old in zip(piece.spans, before.spans, strict=True):
            assert span == last or last[1] <= span[0] <= span[1] <= len(piece.phonemes)
            assert (span[0] < span[1]) == (old[0] < old[1])
            last = span


def test_a_language_is_read_by_espeak_where_it_is_installed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _tell.cache_clear()
    with caplog.at_level(logging.INFO):
        readers = [reader_for("de"), reader_for("de")]
    assert all(isinstance(reader, EspeakReader) for reader in readers)
    assert caplog.messages == ["de is read by espeak-ng"]


def test_english_is_read_without_espeak_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent(monkeypatch)
    assert read(reader_for("en-us"), "over there") == "ˈoʊvɚ ðˈɛɹ"
    assert read(reader_for("en-gb-x-rp"), "over there") == "ˈəʊvə ðˈeə"
    with pytest.raises(EspeakNotFoundError, match=r"^can't read 'de': espeak-ng isn't installed: "):
        reader_for("de")
