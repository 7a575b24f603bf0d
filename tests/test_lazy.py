"""Made once, for whoever asks, whatever becomes of the first who did."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from tts_plugins.interruption import Interruption, interruptible
from tts_plugins.lazy import Latest, Lazy, _start_anew


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


def test_what_is_dropped_while_it_is_made_is_not_kept() -> None:
    made = iter("ab")

    def make() -> str:
        lazy.drop()  # as another thread does that closes an engine
        return next(made)

    lazy = Lazy(make)
    assert lazy() == "a"
    assert not lazy.made
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


def test_the_child_of_a_fork_makes_what_was_being_made() -> None:
    # As after a fork while it is made: the thread that makes it doesn't exist in the child.
    begun, go_on = threading.Event(), threading.Event()

    def make() -> str:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(10)
        return "a"

    lazy = Lazy(make)
    latest = Latest({"a": lazy}, 1)
    made: list[str] = []
    threads = [threading.Thread(target=lazy, daemon=True)]
    threads[0].start()
    assert begun.wait(10)
    with latest._lock:
        _start_anew()
        threads.append(threading.Thread(target=lambda: made.append(latest("a")), daemon=True))
        threads[1].start()
        threads[1].join(10)
        assert made == ["a"]
    go_on.set()
    threads[0].join(10)


def test_only_those_that_were_asked_for_last_are_kept() -> None:
    lazies = {name: Lazy(partial(str.upper, name)) for name in "abc"}
    latest = Latest(lazies, 2)
    assert [latest(name) for name in "abac"] == ["A", "B", "A", "C"]
    assert [lazy.made for lazy in lazies.values()] == [True, False, True]
    assert latest("b") == "B"
    assert [lazy.made for lazy in lazies.values()] == [False, True, True]
    latest.drop()
    assert not any(lazy.made for lazy in lazies.values())
