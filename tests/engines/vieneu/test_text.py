"""What the SDK is given of a text."""

from __future__ import annotations

import importlib

import pytest

from tts_plugins.engines.vieneu.text import pieces, sayable, without_cues
from tts_plugins.text.words import spans


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("Xin chào.", "Xin chào."),
        ("a lone \ud800 half", "a lone   half"),
        ("nul \0 here\nand there", "nul   here\nand there"),
        ("Ha\N{COMBINING HOOK ABOVE}i", "Hải"),
        ("x" * 90, f"{'x' * 40} {'x' * 40} {'x' * 10}"),
        ("x" * 40, "x" * 40),
        ("x" * 30 + "-" + "y" * 30, "x" * 30 + "- " + "y" * 30),
        ("1." * 50, f"{'1.' * 20} {'1.' * 20} {'1.' * 10}"),
        ("[cười]" * 7, "[cười]" * 6 + " [cười]"),
        ("ha " + "x" * 35 + "<|emotion_2|>", "ha " + "x" * 35 + " <|emotion_2|>"),
        ("a" + "\u0301" * 20_000, "á" + "\u0301" * 3),
        ("q\u0323\u0302", "q\u0323\u0302"),
    ],
)
def test_no_letter_is_left_that_the_sdk_stumbles_over(text: str, given: str) -> None:
    assert sayable(text) == given


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Nghe hay quá đi [cười].", ["Nghe", "hay", "quá", "đi"]),
        ("[thở dài] Thôi, [ Clear Throat ] được<|emotion_2|>rồi.", ["Thôi,", "được", "rồi."]),
        ("Một [ghi chú] nhỏ", ["Một", "[ghi", "chú]", "nhỏ"]),
    ],
)
def test_a_cue_is_no_word_and_the_words_stay_where_they_are(text: str, words: list[str]) -> None:
    heard = without_cues(text)
    assert len(heard) == len(text)
    found = list(spans(heard))
    assert [span.word for span in found] == words
    assert all(text[span.offset :].startswith(span.word) for span in found)


def test_the_first_piece_is_short_and_the_later_ones_grow() -> None:
    text = (
        "Vâng, chào anh, em là trợ lý của cửa hàng. Hôm nay cửa hàng mở cửa từ tám giờ sáng, "
        "và đóng cửa lúc mười giờ tối; anh có thể đến bất cứ lúc nào, hay gọi điện thoại."
    )
    assert pieces(text) == [
        ("Vâng, chào anh, em là trợ lý của cửa hàng.", 0.5),
        ("Hôm nay cửa hàng mở cửa từ tám giờ sáng,", 0.3),
        (
            "và đóng cửa lúc mười giờ tối; anh có thể đến bất cứ lúc nào, hay gọi điện thoại.",
            0.5,
        ),
    ]


@pytest.mark.parametrize("text", ["Vâng.", "Vâng, ạ", "không có dấu câu nào cả ở đây hay ở đó"])
def test_a_text_without_a_place_to_cut_is_one_piece(text: str) -> None:
    assert pieces(text) == [(text, 0.5)]


def test_what_is_left_at_the_end_is_spoken_with_what_is_before() -> None:
    assert pieces("Hôm nay trời đẹp quá, đúng không?") == [
        ("Hôm nay trời đẹp quá, đúng không?", 0.5)
    ]


def test_a_number_and_an_abbreviation_are_not_cut() -> None:
    assert pieces("Giá là 1.250,5 đồng ở TP. Hồ Chí Minh.") == [
        ("Giá là 1.250,5 đồng ở TP. Hồ Chí Minh.", 0.5)
    ]


def test_a_long_paragraph_is_several_that_end_with_a_sentence_if_they_can() -> None:
    sentence = "Hôm nay trời đẹp quá, đúng không? "  # of 34 characters
    assert sayable(sentence * 14) == sentence * 14
    assert sayable(sentence * 15).split("\n") == [(sentence * 14).strip(), " " + sentence]
    assert sayable("một hai, " * 60).split("\n")[0].endswith(" hai,")
    assert sayable("một " * 200).split("\n")[0].endswith(" một")
    assert "\n" not in sayable("một hai ba.\n" * 10).replace("ba.\n", "")


@pytest.mark.parametrize(
    "unit", ["123,456.78 ", "1.", "1-", "1.1-", "XIV-", "a.", "1,", "TP. ", "a\u0323\u0302\u0301"]
)
def test_whatever_is_given_the_sdk_reads_it_in_pieces_of_its_usual_length(unit: str) -> None:
    sdk = importlib.import_module("vieneu_utils.phonemize_text")
    # It panics at a hundredth of that, at numbers without a space.
    text = sayable(unit * (20_000 // len(unit)))
    paragraphs = text.splitlines()
    assert max(map(len, paragraphs)) <= 500
    for chunk in sdk.normalize_to_chunks_v3("\n".join(paragraphs[:4]), max_chars=256):
        assert len(chunk) <= 300
