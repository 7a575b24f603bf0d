"""Who is computed on a GPU and who waits, with streams whose every piece the test lets through."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator

import numpy as np
import pytest

from tts_plugins.engines.vieneu.rows import Rows
from tts_plugins.errors import EngineError, OverloadedError
from tts_plugins.interruption import Interruption
from tts_plugins.types import Samples


class Source:
    """Audio that comes when the test says so."""

    def __init__(self, *, pieces: int = 1000) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.given = 0
        self._pieces = pieces
        self._permits = threading.Semaphore(0)

    def audio(self) -> Generator[Samples, None, None]:
        self.begun.set()
        try:
            for _ in range(self._pieces):
                self._permits.acquire()
                self.given += 1
                yield np.full(10, self.given, np.float32)
        finally:
            self.ended.set()

    def give(self, count: int = 1) -> None:
        self._permits.release(count)


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def waiting(rows: Rows, count: int) -> None:
    """Wait until so many wait for a row."""
    while rows._waiting != count:
        pass


def test_what_is_computed_arrives_in_order_and_ends() -> None:
    source = Source(pieces=3)
    source.give(3)
    assert [piece[0] for piece in Rows(1).run(source.audio)] == [1, 2, 3]
    assert source.ended.wait(5)


def test_a_stream_that_was_computed_leaves_its_row_before_it_was_heard() -> None:
    rows, first, second = Rows(1), Source(pieces=2), Source(pieces=1)
    first.give(2)
    heard = rows.run(first.audio)
    next(heard)
    assert first.ended.wait(5)
    second.give()
    assert len(list(rows.run(second.audio))) == 1
    assert len(list(heard)) == 1


def test_one_that_is_closed_gives_its_row_back_with_the_piece_that_was_on_its_way() -> None:
    rows, first, second = Rows(1), Source(), Source(pieces=1)
    first.give()
    heard = rows.run(first.audio)
    next(heard)
    heard.close()
    assert not first.ended.is_set()
    first.give()
    second.give()
    assert len(list(rows.run(second.audio))) == 1
    assert first.ended.is_set()
    assert first.given == 2


def test_a_step_that_waits_for_audio_ends_at_once_for_who_has_left() -> None:
    rows, source, interruption = Rows(1), Source(), Interruption()
    heard = rows.run(source.audio)
    left: list[Samples | None] = []

    def step() -> None:
        with interruption.concerns():
            left.append(next(heard, None))

    thread = in_thread(step)
    assert source.begun.wait(5)
    interruption.interrupt()
    thread.join(5)
    assert left == [None]
    source.give()
    assert source.ended.wait(5)


def test_a_step_that_waits_for_a_row_ends_at_once_for_who_has_left() -> None:
    rows, first, second, interruption = Rows(1), Source(), Source(), Interruption()
    first.give()
    heard = rows.run(first.audio)
    next(heard)
    left: list[Samples | None] = []

    def step() -> None:
        with interruption.concerns():
            left.append(next(rows.run(second.audio), None))

    thread = in_thread(step)
    waiting(rows, 1)
    interruption.interrupt()
    thread.join(5)
    assert left == [None]
    assert not second.begun.is_set()
    heard.close()
    first.give()


def test_who_waits_is_served_when_a_row_is_free_and_not_before() -> None:
    rows, first, second = Rows(1), Source(pieces=2), Source(pieces=1)
    first.give()
    heard = rows.run(first.audio)
    next(heard)
    second.give()
    spoken: list[Samples] = []
    thread = in_thread(lambda: spoken.extend(rows.run(second.audio)))
    waiting(rows, 1)
    assert not second.begun.is_set()
    first.give()
    thread.join(5)
    assert len(spoken) == 1


def test_more_than_may_wait_are_refused() -> None:
    rows, first, second = Rows(1), Source(), Source(pieces=1)
    first.give()
    heard = rows.run(first.audio)
    next(heard)
    thread = in_thread(lambda: list(rows.run(second.audio)))
    waiting(rows, 1)
    with pytest.raises(OverloadedError, match="all 1 streams of the GPU are in use") as caught:
        next(rows.run(Source().audio))
    assert caught.value.retry_after == 1.0
    second.give()
    heard.close()
    first.give()
    thread.join(5)


def test_what_the_sdk_raises_is_raised_here_and_the_row_is_free() -> None:
    def broken() -> Generator[Samples, None, None]:
        yield np.zeros(1, np.float32)
        raise RuntimeError("out of memory")

    rows, second = Rows(1), Source(pieces=1)
    heard = rows.run(broken)
    next(heard)
    with pytest.raises(RuntimeError, match="out of memory"):
        next(heard)
    second.give()
    assert len(list(rows.run(second.audio))) == 1


def test_a_thread_that_cannot_be_had_leaves_the_row_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    rows, source = Rows(1), Source(pieces=1)
    source.give()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(EngineError, match="no further thread"):
            next(rows.run(source.audio))
    assert len(list(rows.run(source.audio))) == 1


def test_closing_ends_who_is_computed_and_who_waits() -> None:
    rows, first, second = Rows(1), Source(), Source()
    first.give()
    heard = rows.run(first.audio)
    next(heard)
    errors: list[str] = []

    def wait() -> None:
        try:
            next(rows.run(second.audio))
        except EngineError as error:
            errors.append(str(error))

    thread = in_thread(wait)
    waiting(rows, 1)
    first.give(2)
    rows.close()
    thread.join(5)
    assert errors == ["this vieneu engine is closed; open another one"]
    assert first.ended.is_set()
    assert not second.begun.is_set()
