"""A step that nobody waits for any more is ended, once, on whatever thread it runs."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from tts_plugins.interruption import Interruption, interrupted, interruptible


class Stop:
    """Counts how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_a_plain_call_is_no_streams_and_ends_by_itself() -> None:
    stop = Stop()
    with interruptible(stop):
        pass
    assert stop.calls == 0


def test_what_runs_when_it_happens_is_stopped() -> None:
    interruption, stop = Interruption(), Stop()
    assert not interruption.happened
    with interruption.concerns(), interruptible(stop):
        assert stop.calls == 0
        interruption.interrupt()
        assert stop.calls == 1
        assert interruption.happened


def test_what_begins_after_it_happened_is_stopped_at_once() -> None:
    interruption, stop = Interruption(), Stop()
    interruption.interrupt()
    with interruption.concerns(), interruptible(stop):
        assert stop.calls == 1


def test_what_is_over_when_it_happens_is_left_alone() -> None:
    interruption, stop = Interruption(), Stop()
    with interruption.concerns():
        with interruptible(stop):
            pass
        with pytest.raises(ZeroDivisionError), interruptible(stop):
            raise ZeroDivisionError
        interruption.interrupt()
    assert stop.calls == 0


def test_nothing_is_stopped_twice() -> None:
    interruption, stop = Interruption(), Stop()
    with interruption.concerns(), interruptible(stop):
        interruption.interrupt()
        interruption.interrupt()
    assert stop.calls == 1


def test_blocks_in_each_other_are_all_stopped() -> None:
    interruption, outer, inner, later = Interruption(), Stop(), Stop(), Stop()
    with interruption.concerns(), interruptible(outer):
        with interruptible(inner), interruptible(inner):
            interruption.interrupt()
        with interruptible(later):
            pass
    assert (outer.calls, inner.calls, later.calls) == (1, 2, 1)


def test_only_the_stream_that_was_closed_is_stopped() -> None:
    closed, other = Interruption(), Interruption()
    stops = Stop(), Stop()
    with other.concerns(), interruptible(stops[0]):
        with closed.concerns(), interruptible(stops[1]):
            closed.interrupt()
        with interruptible(Stop()):
            assert not other.happened
    assert (stops[0].calls, stops[1].calls) == (0, 1)


def test_who_asks_is_told_whether_the_stream_was_closed() -> None:
    closed, other = Interruption(), Interruption()
    assert not interrupted()  # a plain call never is
    with closed.concerns():
        assert not interrupted()
        closed.interrupt()
        assert interrupted()
        with other.concerns():
            assert not interrupted()
    assert not interrupted()


def test_a_stop_that_fails_is_told_of_and_keeps_no_other_from_being_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    interruption, stop = Interruption(), Stop()

    def fails() -> None:
        raise RuntimeError("no such stream")

    with interruption.concerns(), interruptible(fails), interruptible(stop):
        interruption.interrupt()
        with interruptible(fails):  # at once, and not into the engine's face
            pass
    assert stop.calls == 1
    assert caplog.messages == ["an engine failed to end a step"] * 2
    assert "no such stream" in caplog.text


def test_it_is_called_from_another_thread_than_the_step_runs_on() -> None:
    interruption, begun, ended = Interruption(), threading.Event(), threading.Event()
    waited: list[bool] = []

    def step() -> None:
        with interruption.concerns(), interruptible(ended.set):
            begun.set()
            waited.append(ended.wait(5))

    thread = threading.Thread(target=step)
    thread.start()
    assert begun.wait(5)
    with interruptible(Stop()):  # the thread that calls isn't concerned
        interruption.interrupt()
    thread.join(5)
    assert waited == [True]


def test_a_block_may_last_over_several_steps_of_a_generator() -> None:
    interruption, stop = Interruption(), Stop()

    def steps() -> Generator[int, None, None]:
        with interruptible(stop):
            yield 1
            yield 2

    generator = steps()
    for _ in range(2):
        with interruption.concerns():
            next(generator)
    interruption.interrupt()
    assert stop.calls == 1
    generator.close()  # on a thread that nothing concerns
    assert stop.calls == 1


def test_once_it_is_over_the_thread_is_concerned_by_what_it_was_before() -> None:
    closed, open_ = Interruption(), Interruption()
    closed.interrupt()
    with closed.concerns():
        with open_.concerns():
            assert not interrupted()
        assert interrupted()
    assert not interrupted()
    with pytest.raises(ZeroDivisionError), closed.concerns():
        raise ZeroDivisionError
    assert not interrupted()
