"""Sentences in many languages, whole and in fragments."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_plugins.text.sentences import MAX_CHARACTERS, SentenceSplitter

ENGLISH = [
    # Names, titles, initials
    ["Dr. Smith went. ", "The dog ran."],
    ["Mr. and Mrs. Smith paid $5.50 (approx. 5 euros). ", "They left."],
    ["J. K. Rowling wrote it. ", "J.R.R. Tolkien did not. ", "George W. Bush neither."],
    ["Go to St. Louis. ", "It is on Main St. ", "The dog is there."],
    ["She got a Ph.D. in maths. ", "He got a Ph.D. ", "He is smart."],
    # Abbreviations, in a sentence and at its end
    ["I live in the U.S. and like it. ", "I live in the U.S. ", "The dog does too."],
    ["The U.S. Government said so."],
    ["Use a language, e.g. Python, i.e. that one. ", "Apples vs. pears."],
    ["We sell apples, etc. and more. ", "We sell pears, etc. ", "Come in."],
    ["Acme Inc. announced it. ", "It was Acme Inc. ", "The firm is old."],
    ["Dinner is at 7 p.m. on Monday. ", "Dinner is at 7 p.m. ", "Bring wine."],
    ["We meet at 9 a.m. Pacific, at 3 p.m. Monday."],
    ["Come on Jan. 5 or Feb. 6."],
    ["He moved to Austin, TX. ", "The sun shines."],
    ["See No. 5 and fig. 3. ", "Did you? ", "No. ", "I did not."],
    # Short words that only look like abbreviations
    ["It is me. ", "OK. ", "Yes. ", "I see. ", "You may. ", "No. ", "Maybe."],
    # Numbers and money
    ["It costs $29.95. ", "Pi is 3.14 or so. ", "Give me 1,000.50 now."],
    ["I went there in 2024. ", "The end. ", "It is 5. ", "Then 6. ", "I am No. 1. ", "We won."],
    ["Version 2.0.1 is out. ", "Install it."],
    # Addresses
    ["Visit https://a.b.c/x?y=1. ", "Mail me@x.com. ", "Really?! ", "Yes."],
    ["See www.example.com/a.html?x=1&y=2. ", "Node.js and example.com are fine. ", "Try."],
    # Lists
    ["1. First item\n", "2. Second item\n", "Visit us."],
    ["Ingredients:\n", "- two eggs\n", "- milk\n", "Mix well."],
    ["Ingredients:\n", "two eggs"],
    ["Total:\n", "5 apples\n", "3 pears"],
    ["# Title\n", "Some text here\n\n", "* one\n", "* two"],
    ["1. Open the door. ", "2. Close it. ", "Done."],
    ["A. First\n", "B. Second"],
    ["1.\nFirst"],
    # Lines
    ["Roses are red\n", "Violets are blue\n\n", "The end"],
    ["This is prose that was wrapped\nand goes on. ", "Next."],
    ["Hello,\nJohn. ", "Bye."],
    ["Dr.\nSmith came."],
    # Quotations and brackets
    ['He said "Go." ', "Then he left."],
    ['"Go!" he said. ', '"Why?" ', "She stayed."],
    ["He said, “Go.” ", "(He left.) ", "[The end.] ", "Bye."],
    ["**Bold.** ", "_Light!_ ", "Next."],
    # Marks in a row
    ["Really?! ", "Yes... ok. ", "Wait... what? ", "Hm… fine. ", "Hm... ", "No!!!"],
    ["Is it “done”? ", "Yes!"],
    # No space between
    ["One.", "Two is next. ", "Wow!", "Great stuff."],
    ["I like cats.", "🙂 The dog too."],
    ["end of System.out.println and Example.Com here"],
]

OTHERS = [
    ("vi", ["TP. Hồ Chí Minh đẹp lắm! ", "GS. TS. Trần Văn A đã đến. ", "PGS.TS. Lê B. cũng vậy."]),
    ("vi", ["Hẹn gặp lúc 14h30 ở Q.1. ", "Giá 1.250.000 đồng. ", "ThS. Mai, BS. Nam. ", "Vâng."]),
    ("vi-VN", ["Bạn ở Q. 1, TP. HCM? ", "Có cá, gà, v.v. ", "Tôi đi."]),
    (None, ["GS. TS. Trần Văn A đã đến TP. Huế. ", "Tôi đi."]),
    ("zh", ["你好。", "世界！", "今天呢？", "很好；", "不错"]),
    ("zh", ["“你好。", "世界。”", "他说。", "真的？！", "“走！”，他说。"]),
    ("ja", ["彼は「はい。」と言った。", "「行く。」", "次へ！！", "すごい？\n", "本当…そうです。"]),
    ("ja", ["３．５です．", "はい。"]),
    (None, ["你好。", "Hello there. ", "世界！", "Bye."]),
    ("ko", ["안녕하세요. ", "네. ", "저는 AI입니다. ", "무엇을 도와드릴까요?"]),
    ("ar", ["مرحبا يا د. أحمد، كيف حالك؟ ", "بخير. ", "شكرا"]),
    ("ur", ["وہ گیا۔ ", "ٹھیک ہے۔"]),
    ("hi", ["नमस्ते।", " डॉ. शर्मा कैसे हैं? ", "अच्छे॥", " हो"]),
    ("de", ["Am 3. Mai kommt er z. B. hierher. ", "Dr. Müller usw. ", "Es kostet 3,50 Euro."]),
    ("fr", ["C'est bon ! ", "Non ? ", "Oui… peut-être. ", "M. Dupont arrive. ", "Fin."]),
    ("es", ["¿Qué? ", "¡Hola! ", "La Sra. López vino, etc. ", "Luego se fue."]),
    ("ru", ["Он живёт в г. Москве, т.е. тут. ", "Да."]),
    ("th", ["ราคา 3.50 บาท ไปไหน"]),
    ("xx-unknown", ["Dr. Smith went. ", "The dog ran."]),
    ("", ["Dr. Smith went. ", "The dog ran."]),
]


def split(text: str, language: str | None = None, step: int = 10**9) -> list[str]:
    splitter = SentenceSplitter(language)
    pieces = [
        piece for i in range(0, len(text), step) for piece in splitter.push(text[i : i + step])
    ]
    return pieces + splitter.flush()


def waiting_for(text: str, language: str | None = None) -> SentenceSplitter:
    splitter = SentenceSplitter(language)
    assert splitter.push(text) == []
    return splitter


@pytest.mark.parametrize("step", [1, 7, 10**9])
@pytest.mark.parametrize("sentences", ENGLISH, ids="".join)
def test_english_is_cut_where_a_reader_would_stop(sentences: list[str], step: int) -> None:
    assert split("".join(sentences), None, step) == sentences


@pytest.mark.parametrize("step", [1, 7, 10**9])
@pytest.mark.parametrize(("language", "sentences"), OTHERS)
def test_other_languages_are_cut_where_a_reader_would_stop(
    language: str | None, sentences: list[str], step: int
) -> None:
    assert split("".join(sentences), language, step) == sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Sure", []),
        ("Sure.", []),  # "Sure.com"?
        ("Sure. ", ["Sure. "]),
        ("Really?", []),  # "Really?!"
        ("Really? ", ["Really? "]),
        ("No. ", []),  # "No. 5"?
        ("No. I", ["No. "]),
        ("At 3 p.m. ", []),
        ("At 3 p.m. T", []),
        ("At 3 p.m. The", []),  # "Theodor"?
        ("At 3 p.m. The ", ["At 3 p.m. "]),
        ("At 3 p.m. t", []),
        ("Well... ", []),
        ("Well... I", ["Well... "]),
        ('"Go." ', []),
        ('"Go." T', ['"Go." ']),
        ("你好。", ["你好。"]),
        ("「你好。", []),
        ("「你好。」", []),  # 「と言った」?
        ("「你好。」世", ["「你好。」"]),
        ("你好！", []),
        ("你好！世", ["你好！"]),
        ("नमस्ते।", ["नमस्ते।"]),
        ("Eggs:\n", []),
        ("Eggs:\n- ", ["Eggs:\n"]),
        ("- eggs\n", ["- eggs\n"]),
    ],
)
def test_a_sentence_is_given_back_as_soon_as_it_is_certain(text: str, sentences: list[str]) -> None:
    assert SentenceSplitter().push(text) == sentences


@pytest.mark.parametrize(
    "text", ["Sure.", "Really?!", '"Go."', "Hm...", "你好！", "你好？", "Eggs:\n"]
)
def test_what_looks_over_is_released_when_the_text_pauses(text: str) -> None:
    splitter = waiting_for(text)
    assert splitter.release() == [text]
    assert splitter.pending == ""


@pytest.mark.parametrize("text", ["It costs 29.", "At 3 p.m.", "No.", "Go to a.b/c.", "me@x."])
def test_what_may_go_on_is_released_only_after_a_long_pause(text: str) -> None:
    splitter = waiting_for(text)
    assert splitter.release() == []
    assert splitter.release(settled=True) == [text]


@pytest.mark.parametrize("text", ["See Dr.", "1.", "...", "and then", "and then ", "", "TP."])
def test_what_is_not_over_is_never_released(text: str) -> None:
    assert waiting_for(text).release(settled=True) == []


def test_text_goes_on_after_a_release() -> None:
    splitter = waiting_for("Sure.")
    splitter.release()
    assert splitter.push(" Let me see. ") == [" Let me see. "]


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("Well, yes, I think that, if it", "Well, yes, I think that, "),
        ("The list of the big things: one", "The list of the big things: "),
        ("well – yes – no maybe – so", "well – yes – no maybe – "),
        ("go to the big city—then co", "go to the big city—"),
        ("one two three four ", "one two three four "),
        ("one two three four", None),  # "fourteen"?
        ("one two three", None),
        ("we all went out of the hou", "we all went out "),
        ("people often walk into the hou", "people often walk into "),
        ("four people often walk into the hou", "four people often walk "),
        ("I have seen that Dr. Smith", "I have seen that "),
        ("meet me at 3 p.m. on Mon", "meet me at 3 p.m. on "),
        ("we will meet you at 3 ", "we will meet you "),
        ("we do meet here 3 p", "we do meet here "),
        ("it costs about $ 1,000,000 dol", None),
        ("please write to me@x.com right now", "please write to me@x.com right "),
        ("1. Open the big door of", "1. Open the big door "),
        ("c'est un mot très long\u00a0!", "c'est un mot très "),
        ("今天天气真的很好，我们一起", "今天天气真的很好，"),
        ("今天天气，我们", None),
        (
            "今天天气很好我们一起去公园玩吧你觉得怎么样好不好",
            "今天天气很好我们一起去公园玩吧你觉得怎么样好",
        ),
        ("هذا يوم جميل جدا، نحن نذهب", "هذا يوم جميل جدا، "),
    ],
)
def test_an_early_piece_ends_where_it_sounds_best(text: str, piece: str | None) -> None:
    splitter = waiting_for(text)
    assert splitter.cut(min_words=4) == piece
    assert (piece or "") + splitter.pending == text


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("Hello", "Hello"),
        ("see Dr.", "see "),
        ("go to example.c", "go "),
        ("the total is 29", "the total "),
        ("你好世界", "你好世界"),
        ("...", None),
    ],
)
def test_a_settled_last_word_may_be_cut_behind(text: str, piece: str | None) -> None:
    assert waiting_for(text).cut(min_words=1, settled=True) == piece


def test_a_thai_vowel_stays_with_its_consonant() -> None:
    text = "ทำไมเธอไม่ไปโรงเรียนในวันนี้ละเธอเ"
    piece = waiting_for(text).cut()
    assert piece == "ทำไมเธอไม่ไปโรงเรียนในวันนี้ละเธ"


def test_after_a_cut_the_sentence_goes_on() -> None:
    splitter = waiting_for("the answer we all wait for is 5")
    assert splitter.cut() == "the answer we all wait "
    assert splitter.push(". The next one. ") == ["for is 5. ", "The next one. "]


def test_text_without_any_mark_is_cut_between_words() -> None:
    pieces = split("word " * 200)
    assert pieces == ["word " * 80, "word " * 80, "word " * 40]


def test_text_without_any_space_is_cut_too() -> None:
    assert [len(piece) for piece in split("x" * 900)] == [400, 400, 100]


def test_a_long_sentence_is_cut_at_its_last_comma() -> None:
    text = "word " * 50 + "word, " + "word " * 50
    assert split(text)[0] == "word " * 50 + "word, "


def test_whitespace_alone_is_no_sentence_until_the_end() -> None:
    splitter = SentenceSplitter()
    assert splitter.push(" \n\n \n") == []
    assert splitter.flush() == [" \n\n \n"]
    assert splitter.flush() == []


def test_a_splitter_can_be_used_again_after_flush() -> None:
    splitter = SentenceSplitter()
    splitter.push("(One")
    assert splitter.flush() == ["(One"]
    assert splitter.push("你好。") == ["你好。"]


class Counting(SentenceSplitter):
    """Counts how much text is looked at to decide about marks."""

    looked = 0

    def _end(self, at: int) -> int | None:
        self.looked += 1
        return super()._end(at)


@pytest.mark.parametrize(
    "text", ["The dog ran at 3 p.m. and. ", "word ", ".", "p.m. Th", "a\n", "你，"]
)
def test_a_character_at_a_time_costs_the_same_for_each(text: str) -> None:
    text = (text * 20_000)[:20_000]
    splitter, longest = Counting(), 0
    for character in text:
        splitter.push(character)
        longest = max(longest, len(splitter.pending))
    assert longest <= MAX_CHARACTERS + 80
    assert splitter.looked <= 2 * len(text)


AWKWARD = st.lists(
    st.sampled_from(
        [
            *"ab.A。！?!…\"'”“「」()\n \t1２３，,:;-—*とนเ#@/x\u0301\x00\u00a0।؟é🙂",
            *[
                "Dr",
                "p.m",
                "The ",
                "etc",
                "1. ",
                "\n\n",
                "U.S",
                "TP",
                "...",
                " " * 33,
                "word " * 30,
            ],
        ]
    )
).map("".join)


@given(st.one_of(st.text(), AWKWARD), st.sampled_from([None, "vi", "de", "ja"]))
def test_no_cutting_of_the_text_changes_its_sentences(text: str, language: str | None) -> None:
    whole = split(text, language)
    assert "".join(whole) == text
    assert split(text, language, 1) == whole
    assert split(text, language, 7) == whole


@given(st.one_of(st.text(), AWKWARD))
def test_every_sentence_but_the_last_can_be_spoken(text: str) -> None:
    for sentence in split(text)[:-1]:
        assert any(c.isalnum() for c in sentence) or len(sentence) >= MAX_CHARACTERS // 2
        assert len(sentence) <= MAX_CHARACTERS + 80


@given(st.one_of(st.text(), AWKWARD), st.randoms(use_true_random=False))
def test_no_character_is_lost_however_it_is_taken(text: str, rng: random.Random) -> None:
    splitter, taken = SentenceSplitter(), ""
    for fragment in re.findall(r"(?s).{1,9}", text):
        taken += "".join(splitter.push(fragment))
        if rng.random() < 0.3:
            taken += splitter.cut(min_words=rng.choice([1, 4]), settled=rng.random() < 0.5) or ""
        if rng.random() < 0.3:
            taken += "".join(splitter.release(settled=rng.random() < 0.5))
    assert taken + "".join(splitter.flush()) == text
