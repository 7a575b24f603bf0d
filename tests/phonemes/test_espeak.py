"""What espeak-ng reads, in pieces, and whose phonemes are whose."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tts_plugins.errors import EngineError, InvalidRequestError
from tts_plugins.phonemes import libespeak
from tts_plugins.phonemes.espeak import EspeakNotFoundError, EspeakReader, available, supports
from tts_plugins.phonemes.pronounced import Pronounced
from tts_plugins.text.words import spans


def pieces(text: str, voice: str = "en-us", longest: int = 400) -> list[Pronounced]:
    return list(EspeakReader(voice, longest=longest).read(text, lambda script: None))


def phonemes(text: str, voice: str = "en-us") -> list[str]:
    return [piece.phonemes for piece in pieces(text, voice)]


def said(text: str, voice: str = "en-us") -> list[tuple[str, str]]:
    """Words and what is heard of each."""
    return [
        (mark.text, piece.phonemes[begin:end])
        for piece in pieces(text, voice)
        for mark, (begin, end) in zip(piece.marks, piece.spans, strict=True)
    ]


@pytest.mark.parametrize(
    ("voice", "text", "expected"),
    [
        ("en-us", "Hello there, how are you?", ["həlˈoʊ ðˈɛɹ, hˈaʊ ɑːɹ juː?"]),
        ("en-gb", "Hello there!", ["həlˈəʊ ðˈeə!"]),
        ("vi", "Xin chào, tôi là Minh.", ["sˈin tʃˈaː2w, t̪ˈoj lˌaː2 mˈiɲ."]),
        ("fr-fr", "Qu'est-ce que c'est ?", ["kɛskˌə sˈɛ?"]),
        ("de", "Guten Tag", ["ɡˈuːtən tˈɑːk"]),
        ("es", "¡Hola, amigo!", ["ˈola, amˈiɣo!"]),
    ],
)
def test_a_language_is_read_as_piper_voices_know_it(
    voice: str, text: str, expected: list[str]
) -> None:
    assert phonemes(text, voice) == [unicodedata.normalize("NFD", piece) for piece in expected]


def test_each_sentence_is_a_piece() -> None:
    read = pieces("Please wait. Is it you? Yes")
    assert [(piece.phonemes, piece.ends_sentence) for piece in read] == [
        ("plˈiːz wˈeɪt.", True),
        ("ɪz ɪt juː?", True),
        ("jˈɛs", False),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a test; of it", ["ɐ tˈɛst; ʌv ɪt"]),
        ("this is: it", ["ðɪs ɪz: ɪt"]),
        ("ok – yes — no", ["ˌoʊkˈeɪ; jˈɛs; nˈoʊ"]),
        ("what?! no", ["wˌʌt?", "nˈoʊ"]),
        ("He said “no.” She left.", ["hiː sˈɛd nˈoʊ.", "ʃiː lˈɛft."]),
        ("one\n\ntwo", ["wˌʌn", "tˈuː"]),
        ("one\ntwo", ["wˈʌn tˈuː"]),
        ("Yes,” — he", ["jˈɛs, hiː"]),
    ],
)
def test_punctuation_is_kept_where_a_clause_ends(text: str, expected: list[str]) -> None:
    assert phonemes(text) == expected


def test_an_ellipsis_is_a_pause_and_runs_no_words_together() -> None:
    assert phonemes("wait... no") == ["wˈeɪt, nˈoʊ"]
    assert phonemes("wait… no") == ["wˈeɪt, nˈoʊ"]
    assert phonemes("Dime ¿qué?", "es") == ["dˈime kˈe?"]


def test_an_abbreviation_ends_no_sentence() -> None:
    assert phonemes("Dr. Smith left.") == ["dˈɑːktɚ smˈɪθ lˈɛft."]


def test_another_language_leaves_no_flag() -> None:
    assert phonemes("das Team ist da", "de") == ["das tˈiːm ɪst dˈɑː"]


def test_words_that_are_said_as_one_share_what_is_heard() -> None:
    assert said("out of the 24 cars in the U.S.") == [
        ("out", "ˌaʊɾ"),
        ("of", "əv"),
        ("the", "ðə"),
        ("24", "twˈɛnti fˈɔːɹ"),
        ("cars", "kˈɑːɹz"),
        ("in", "ɪn"),
        ("the", "ðə"),
        ("U.S.", "jˌuːˈɛs"),
    ]


def test_a_word_has_all_that_is_read_for_it() -> None:
    assert dict(said("It is $42.50, Yes.No really")) == {
        "It": "ɪɾ",
        "is": "ɪz",
        "$42.50,": "dˈɑːlɚ fˈɔːɹɾi tˈuː pɔɪnt fˈaɪv zˈiəɹoʊ",
        "Yes.No": "jˈɛs dˈɑːt nˈoʊ",
        "really": "ɹˈiəli",
    }


def test_a_script_without_spaces_has_a_word_for_each_character() -> None:
    assert [word for word, sound in said("你好，世界。", "zh") if sound] == [
        "你",
        "好，",
        "世",
        "界。",
    ]


def test_pronunciations_in_the_text_are_followed() -> None:
    assert said("Ask [Kokoro](/kˈOkəɹO/), please, in [the](/ˈðiː/) [猫](/nˈɛkoʊ/).") == [
        ("Ask", "ˈæsk"),
        ("Kokoro", "kˈoʊkəɹoʊ"),
        ("please,", "plˈiːz"),
        ("in", "ɪn"),
        ("the", "ðˈiː"),
        ("猫", "nˈɛkoʊ"),
    ]


def test_a_long_sentence_is_cut_after_a_clause_and_else_between_words() -> None:
    clauses = phonemes_of("we went there and nobody was at home, " * 15, longest=100)
    assert set(clauses[:-1]) == {clauses[0]}
    assert clauses[0].endswith("hˈoʊm, ")
    words = phonemes_of("home " * 50, longest=20)
    assert {word for piece in words for word in piece.split()} == {"hˈoʊm"}
    assert max(map(len, words)) <= 20


def phonemes_of(text: str, longest: int) -> list[str]:
    return [piece.phonemes for piece in pieces(text, longest=longest)]


def test_words_without_a_sound_are_still_given() -> None:
    assert [(p.phonemes, [m.text for m in p.marks]) for p in pieces("𓀀. Yes.")] == [
        ("jˈɛs.", ["𓀀.", "Yes."])
    ]
    assert pieces("... 😀") == []


def test_a_word_that_has_no_sound_for_its_script_is_reported() -> None:
    scripts: list[str] = []
    read = list(EspeakReader("en-us").read("𓀀 hello", scripts.append))
    assert [piece.phonemes for piece in read] == ["həlˈoʊ"]
    assert scripts == ["EGYPTIAN"]


def test_pictures_and_markup_are_not_read_by_name() -> None:
    assert phonemes("😀 **hi** <b> _there_") == ["hˈaɪ bˈiː ðˈɛɹ"]


@pytest.mark.parametrize(
    ("voice", "text"),
    [
        ("vi", "y!}-U"),
        ("en-us", "g.e." * 100),
        ("fr-fr", "e.g. " * 300),
        ("en-us", "A. " * 400),
        ("en-us", "9" * 400 + "°"),
        ("en-us", "word " * 1000),
        ("hi", "\U00016a71%"),
        ("en-us", "a" + "\u0301" * 500),
    ],
)
def test_what_the_library_falls_over_is_kept_from_it(voice: str, text: str) -> None:
    assert [mark for piece in pieces(text, voice) for mark in piece.marks]


TOKENS = [
    "the",
    "in the",
    "Dr.",
    "e.g.",
    "NASA",
    "$3.2",
    "9:30am",
    "555-1234",
    "don't",
    "a@b.com",
    "½",
    "…",
    "—",
    "¿",
    "Привет",
    "مرحبا",
    "नमस्ते",
    "你好世界",
    "สวัสดี",
    "\x00",
    "\ud800",
    "\u200d",
    "😀",
    "ﬁ",
    "(y)",
    "[[x]]",
    "\n\n",
    "x" * 100,
    "hello。world",
]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.sampled_from(TOKENS) | st.text("ab19.,:-/$% '!", max_size=6) | st.text(max_size=8),
        max_size=14,
    ),
    st.sampled_from([" ", "", ", "]),
    st.sampled_from(["en-us", "vi", "de", "zh", "ar"]),
    st.sampled_from([20, 400]),
)
@example(["hello。world"], " ", "en-us", 20)
def test_any_text_gives_its_words_in_order(
    parts: list[str], between: str, voice: str, longest: int
) -> None:
    text = between.join(parts)
    marks = []
    for piece in pieces(text, voice, longest):
        assert len(piece.phonemes) <= longest
        last = (0, 0)
        for span in piece.spans:
            assert span == last or last[1] <= span[0] <= span[1] <= len(piece.phonemes)
            last = span
        marks += [(mark.offset, mark.text) for mark in piece.marks]
    assert marks == [tuple(span) for span in spans(text)]


def test_a_long_text_is_read_little_by_little() -> None:
    text = "We went there and nobody was at home. " * 140
    reader = EspeakReader("en-us")
    read: list[str] = []

    class Counted:
        def read(self, voice: str, part: str) -> list[libespeak.Clause]:
            read.append(part)
            return libespeak.espeak().read(voice, part)

    reader._espeak = Counted()  # type: ignore[assignment]
    first = next(reader.read(text, lambda script: None))
    assert first.phonemes == "wiː wɛnt ðɛɹ ænd nˈoʊbɑːdi wʌz æt hˈoʊm."
    assert len(read) == 1
    assert len(read[0]) <= 1000
    assert [mark.text for piece in pieces(text) for mark in piece.marks] == text.split()


def test_threads_and_voices_dont_disturb_each_other() -> None:
    jobs = [("en-us", "out of the 24 cars"), ("vi", "Xin chào, tôi là Minh."), ("de", "Guten Tag")]
    alone = [phonemes(text, voice) for voice, text in jobs]
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(lambda job: phonemes(job[1], job[0]), jobs * 40))
    assert together == alone * 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_that_is_forked_while_another_thread_reads_can_read_on() -> None:
    script = """
import os, threading
from tts_plugins.phonemes.espeak import EspeakReader
reader = EspeakReader("en-us")
read = lambda: [piece.phonemes for piece in reader.read("hello there. " * 50, print)]
expected, over = read(), threading.Event()
def busy():
    while not over.is_set():
        read()
thread = threading.Thread(target=busy)
thread.start()
for _ in range(5):
    child = os.fork()
    if not child:
        os._exit(read() != expected)
    assert os.waitpid(child, 0)[1] == 0
over.set()
thread.join()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=60)


def test_a_region_without_a_voice_gets_that_of_its_language() -> None:
    assert EspeakReader("de-AT").voice == EspeakReader("de").voice
    assert EspeakReader("en_US").voice == EspeakReader("en-us").voice
    assert supports("vi")
    assert not supports("xx")


def test_an_unknown_voice_is_refused_with_some_that_are_there() -> None:
    with pytest.raises(InvalidRequestError, match=r"no voice 'xx'; it has af, am, .* --voices"):
        EspeakReader("xx")


def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libespeak, "_looked_up", libespeak._looked_up.__wrapped__)
    monkeypatch.setattr(libespeak, "_places", lambda: iter(()))
    for variable in ("ESPEAKNG_LIBRARY", "PHONEMIZER_ESPEAK_LIBRARY"):
        monkeypatch.delenv(variable, raising=False)


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch)
    assert not available()
    assert not supports("en-us")
    with pytest.raises(EspeakNotFoundError) as caught:
        EspeakReader("en-us")
    assert isinstance(caught.value, EngineError)
    assert str(caught.value) == (
        "espeak-ng isn't installed: `pip install espeakng-loader`, "
        "`apt install libespeak-ng1` or `brew install espeak-ng`"
    )


def test_a_path_that_is_no_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch)
    monkeypatch.setenv("ESPEAKNG_LIBRARY", __file__)
    with pytest.raises(EspeakNotFoundError, match=r"ESPEAKNG_LIBRARY is '.*test_espeak.py', which"):
        EspeakReader("en-us")
