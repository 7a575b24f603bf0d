"""When streamed text is spoken, against a clock and a listener that the test moves."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_plugins.phraser import Phraser
from tts_plugins.playhead import Playhead

LONG = (
    "I think that the best way to handle this is to begin with small things that we already "
    "know and then move on to the larger ones when all of us have more time left."
)


class Scene:
    """A model that writes, a listener who hears 0.3 s a word, an engine that takes a while."""

    def __init__(self, *, early: bool = True, engine_takes: float = 0.15) -> None:
        self.now = 0.0
        self.engine_takes = engine_takes
        self.playhead = Playhead(dry_at=0.0)
        self.arriving: list[tuple[float, float]] = []
        self.spoken: list[tuple[float, str]] = []
        self.phraser = Phraser(
            ahead=lambda: self.playhead.ahead(self.now), early=early, clock=lambda: self.now
        )

    def write(self, tokens: list[str], every: float) -> None:
        for token in tokens:
            self.speak(self.phraser.push(token))
            self.pass_time(self.now + every)

    def pass_time(self, until: float) -> None:
        """Poll when ``wait`` asks for it, as the callers do, and let audio arrive."""
        for _ in range(10_000):
            wait = self.phraser.wait()
            poll_at = until if wait is None else self.now + wait
            arrives_at = min((at for at, _ in self.arriving), default=until)
            if min(poll_at, arrives_at) >= until - 1e-9:
                self.now = until
                return
            self.now = min(poll_at, arrives_at)
            for arrival in [a for a in self.arriving if a[0] <= self.now]:
                self.arriving.remove(arrival)
                self.playhead.add(arrival[1], self.now)
            if poll_at <= self.now:
                self.speak(self.phraser.poll())
        raise AssertionError("wait() sends its caller in circles")

    def speak(self, pieces: list[str]) -> None:
        for piece in pieces:
            self.spoken.append((round(self.now, 2), piece))
            self.arriving.append((self.now + self.engine_takes, 0.3 * len(piece.split())))


def tokens(text: str) -> list[str]:
    """As models send them: a word with the space before it."""
    return re.findall(r"\s*\S+", text)


def phraser(
    ahead: float = 0.0, early: bool = True
) -> tuple[Phraser, Callable[[float], None], Callable[[float], None]]:
    """A phraser, and what sets the time and the audio ahead."""
    cell = [0.0, ahead]

    def at(now: float) -> None:
        cell[0] = now

    def hears(seconds: float) -> None:
        cell[1] = seconds

    return Phraser(ahead=lambda: cell[1], early=early, clock=lambda: cell[0]), at, hears


def test_whole_sentences_go_out_at_once() -> None:
    subject, _, _ = phraser()
    assert subject.push("One. Two! Three? And") == ["One. ", "Two! ", "Three? "]


def test_a_sentence_goes_out_however_much_is_ahead() -> None:
    subject, _, _ = phraser(ahead=60.0)
    assert subject.push("One more. ") == ["One more. "]


def test_a_slow_sentence_begins_after_0_3_seconds() -> None:
    scene = Scene()
    scene.write(tokens(LONG), every=0.05)
    scene.pass_time(10.0)
    assert scene.spoken == [
        (0.3, "I think that the best "),
        (
            1.45,
            (
                "way to handle this is to begin with small things that we already know and then "
                "move on to the larger ones "
            ),
        ),
        (1.8, "when all of us have more time left."),
    ]


def test_characters_one_by_one_make_the_same_pieces_as_words() -> None:
    scene = Scene()
    scene.write(list(LONG), every=0.01)
    scene.pass_time(10.0)
    assert scene.spoken[0] == (0.3, "I think that the best ")
    assert len(scene.spoken) == 3


def test_without_early_only_sentences_go_out() -> None:
    scene = Scene(early=False)
    scene.write(tokens("Sure thing. " + LONG), every=0.05)
    scene.pass_time(10.0)
    assert scene.spoken == [(0.1, "Sure thing. "), (1.9, LONG)]


def test_an_engine_that_is_slow_is_not_flooded_with_pieces() -> None:
    scene = Scene(engine_takes=1.5)
    scene.write(tokens(LONG), every=0.05)
    scene.pass_time(10.0)
    assert [at for at, _ in scene.spoken] == [0.3, 1.3, 1.8]


def test_endless_text_keeps_the_listener_supplied() -> None:
    scene = Scene()
    scene.write(["word "] * 400, every=0.1)
    assert scene.playhead.ahead(scene.now) > 0
    assert all(len(piece) <= 400 for _, piece in scene.spoken)
    starts = [at for at, _ in scene.spoken]
    assert starts[0] == 0.3
    assert len(starts) < 12  # the more is ahead, the longer the pieces


def test_a_stall_in_mid_clause_is_bridged_with_what_there_is() -> None:
    scene = Scene()
    scene.write(["Let me look", " at that list of"], every=0.02)
    scene.pass_time(5.0)
    assert scene.spoken == [(0.3, "Let me look at that list "), (1.75, "of")]


def test_a_word_alone_waits_a_second() -> None:
    scene = Scene()
    scene.write(["Hello"], every=0.02)
    scene.pass_time(5.0)
    assert scene.spoken == [(1.0, "Hello")]


def test_a_sentence_that_looks_over_is_spoken_after_0_1_seconds() -> None:
    subject, at, _ = phraser()
    assert subject.push("Sure.") == []
    assert subject.wait() == pytest.approx(0.1)
    at(0.1)
    assert subject.poll() == ["Sure."]
    assert subject.wait() is None
    assert subject.push(" Let me see. ") == [" Let me see. "]


def test_what_may_go_on_is_spoken_after_0_3_seconds() -> None:
    subject, at, _ = phraser(ahead=9.0)
    subject.push("It costs 29.")
    at(0.1)
    assert subject.poll() == []
    assert subject.wait() == pytest.approx(0.2)
    at(0.3)
    assert subject.poll() == ["It costs 29."]


def test_nothing_is_cut_while_the_listener_has_enough() -> None:
    subject, at, hears = phraser(ahead=3.0)
    assert subject.push("one two three four five six ") == []
    at(0.3)
    assert subject.poll() == []
    assert subject.wait() == pytest.approx(2.5)
    at(2.8)
    hears(0.5)
    assert subject.poll() == ["one two three four five six "]


def test_one_piece_goes_out_per_call() -> None:
    subject, at, _ = phraser()
    subject.push("one two three four, five six seven eight ")
    at(0.5)
    assert subject.poll() == ["one two three four, "]
    assert subject.poll() == []


def test_the_next_piece_waits_for_the_audio_of_the_last() -> None:
    subject, at, hears = phraser()
    subject.push("one two three four, five six seven eight ")
    at(0.3)
    assert subject.poll() == ["one two three four, "]
    at(0.7)
    assert subject.poll() == []
    hears(0.4)
    assert subject.poll() == ["five six seven eight "]


def test_the_next_piece_goes_out_after_a_second_even_if_no_audio_came() -> None:
    subject, at, _ = phraser()
    subject.push("one two three four, five six seven eight ")
    at(0.3)
    assert subject.poll() == ["one two three four, "]
    at(1.3)
    assert subject.poll() == ["five six seven eight "]


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_there_is_nothing_to_wait_for_without_text(text: str) -> None:
    subject, _, _ = phraser()
    assert subject.push(text) == []
    assert subject.wait() is None
    assert subject.poll() == []


def test_waiting_ends_when_only_text_can_help() -> None:
    subject, at, _ = phraser()
    subject.push("see Dr.")
    at(1.0)
    assert subject.poll() == ["see "]
    at(5.0)
    assert subject.poll() == []
    assert subject.wait() is None


def test_a_late_caller_is_told_to_poll_now() -> None:
    subject, at, _ = phraser()
    subject.push("one two three four ")
    at(5.0)
    assert subject.wait() == 0.0
    assert subject.poll() == ["one two three four "]


def test_flush_gives_the_rest_whatever_the_time() -> None:
    subject, _, _ = phraser(ahead=9.0)
    subject.push("One. And two")
    assert subject.flush() == ["And two"]
    assert subject.flush() == []
    assert subject.wait() is None


@given(
    st.text() | st.text(alphabet="ab. ,!?\n1。，你D r"),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_everything_pushed_is_spoken_once_and_in_order(
    text: str, rng: random.Random, early: bool
) -> None:
    subject, at, hears = phraser(early=early)
    now, spoken = 0.0, ""
    for fragment in re.findall(r"(?s).{1,5}", text):
        spoken += "".join(subject.push(fragment))
        for _ in range(rng.randrange(3)):
            now += rng.choice([0.0, 0.05, 0.1, 0.3, 1.0])
            at(now)
            hears(rng.choice([0.0, 0.0, 0.4, 3.0]))
            spoken += "".join(subject.poll())
            wait = subject.wait()
            assert wait is None or wait >= 0
    assert spoken + "".join(subject.flush()) == text


def test_a_row_of_numbers_is_spoken_in_time() -> None:
    scene = Scene()
    scene.write([f"4{n} " for n in range(40)], every=0.05)
    assert scene.spoken[0][0] <= 1.05
