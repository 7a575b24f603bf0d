"""The simulated phone line keeps the laws of a real one, by a clock that a test holds."""

from __future__ import annotations

from tests.agents.carriers import Line

TENTH = b"x" * 800
"""A tenth of a second."""


def test_a_packet_behind_another_waits_for_its_turn() -> None:
    now = [0.0]
    line = Line(lambda: now[0])
    line.play(TENTH)
    line.play(TENTH)
    assert line.ahead() == 0.2
    now[0] = 0.15
    assert round(line.ahead(), 3) == 0.05
    (utterance,) = line.utterances
    assert utterance.codes == utterance.heard == 2 * TENTH
    assert utterance.silences == []


def test_a_line_that_runs_dry_is_silent_until_more_comes() -> None:
    now = [0.0]
    line = Line(lambda: now[0])
    line.play(TENTH)
    now[0] = 0.4
    line.play(TENTH)
    (utterance,) = line.utterances
    assert [round(silence, 3) for silence in utterance.silences] == [0.3]
    assert utterance.gaps == [0.4]


def test_what_comes_after_a_pause_is_another_utterance() -> None:
    now = [0.0]
    line = Line(lambda: now[0])
    line.play(TENTH)
    now[0] = 0.7
    line.play(TENTH)
    assert [utterance.codes for utterance in line.utterances] == [TENTH, TENTH]


def test_a_mark_is_reached_when_all_before_it_was_played() -> None:
    now = [0.0]
    line = Line(lambda: now[0])
    line.play(TENTH)
    line.mark("a")
    line.play(TENTH)
    line.mark("b")
    assert line.until_mark() == 0.1
    now[0] = 0.1
    assert line.reached() == ["a"]
    assert line.reached() == []
    now[0] = 0.2
    assert line.reached() == ["b"]
    assert line.until_mark() is None


def test_a_clear_drops_what_was_not_played_and_the_marks_behind_it() -> None:
    now = [0.0]
    line = Line(lambda: now[0])
    line.play(b"a" * 800)
    line.mark("a")
    line.play(b"b" * 800)
    line.mark("b")
    now[0] = 0.15
    assert line.reached() == ["a"]
    assert line.clear() == ["b"]
    assert line.ahead() == 0.0
    (utterance,) = line.utterances
    assert utterance.cleared
    assert utterance.heard == b"a" * 800 + b"b" * 400
    line.play(TENTH)
    assert line.utterances[1].codes == TENTH


def test_a_mark_that_was_heard_is_reached_though_a_clear_comes_before_it_was_told() -> None:
    now = [0.0]
    line = Line(lambda: now[0])
    line.play(TENTH)
    line.mark("a")
    line.play(TENTH)
    line.mark("b")
    now[0] = 0.15
    assert line.clear() == ["b"]
    assert line.reached() == ["a"]


def test_a_clear_of_an_empty_line_drops_nothing() -> None:
    now = [0.0]
    line = Line(lambda: now[0])
    line.play(TENTH)
    now[0] = 0.1
    assert line.clear() == []
    assert not line.utterances[0].cleared
    assert line.utterances[0].heard == TENTH
