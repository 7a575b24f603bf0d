"""Made once, for whoever asks, whatever becomes of the first who did."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from tts_plugins.interruption import Interruption, interruptible
from tts_plugins.lazy import Latest, Lazy


def test_it_is_made_once() -> None:
    lazy = Lazy(partial(next, iter("abc")))
    assert not lazy.made
    assert [lazy(), lazy()] == ["a", "a"]
    assert lazy.made


def test_it_is_made_again_after_it_failed_or_was_dropped() -> None:
    answers = iter((ValueError("no"), "a", "b"))

    def make() -> str:
        answer = next(answers)
        if isinstance(answer, str):
            return answer
        raise ValueError(answer)

    lazy = Lazy(make)
    with pytest.raises(ValueError, match="no"):
        lazy()
    assert lazy() == "a"
    lazy.drop()
    assert lazy() == "b"


def test_an_interruption_of_the_first_who_asks_doesnt_break_it_off() -> None:
    stopped: list[bool] = []

    def make() -> str:
        with interruptible(lambda: stopped.append(True)):
            interruption.interrupt()
        return "whole"

    interruption = Interruption()
    with interruption.concerns():
        assert Lazy(make)() == "whole"
    assert stopped == []


def test_those_who_ask_meanwhile_wait_for_it() -> None:
    begun, go_on = threading.Event(), threading.Event()
    made: list[object] = []

    def make() -> object:
        begun.set()
        assert go_on.wait(10)
        return object()

    lazy = Lazy(make)
    threads = [threading.Thread(target=lambda: made.append(lazy())) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(made) == 2
    assert made[0] is made[1]


def test_only_those_that_were_asked_for_last_are_kept() -> None:
    lazies = {name: Lazy(partial(str.upper, name)) for name in "abc"}
    latest = Latest(lazies, 2)
    assert [latest(name) for name in "abac"] == ["A", "B", "A", "C"]
    assert [lazy.made for lazy in lazies.values()] == [True, False, True]
    assert latest("b") == "B"
    assert [lazy.made for lazy in lazies.values()] == [False, True, True]
    latest.drop()
    assert not any(lazy.made for lazy in lazies.values())
