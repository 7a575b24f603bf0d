"""What an error says about itself: its place in the tree, its status, whether to try again."""

from __future__ import annotations

import inspect
import re

import pytest

from tts_plugins import errors
from tts_plugins.errors import (
    EngineError,
    EngineNotFoundError,
    EngineTimeoutError,
    InvalidRequestError,
    MissingDependencyError,
    OverloadedError,
    RemoteError,
    RemoteTimeoutError,
    TTSError,
    UnreachableError,
    UnspeakableTextError,
    VoiceNotFoundError,
    first_line,
)


def children(kind: type) -> list[str]:
    """Names as the docstring draws them: each below the first of what it inherits from."""
    inside = [
        each
        for each in vars(errors).values()
        if inspect.isclass(each)
        and kind in each.__bases__[:1]
        and each.__module__ == kind.__module__
    ]
    return [
        line
        for each in inside
        for line in (f"    {each.__name__}", *(f"    {deeper}" for deeper in children(each)))
    ]


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = re.findall(r"^( *)\* (\w+)", errors.__doc__ or "", re.MULTILINE)
    tree = [spaces + name for spaces, name in drawn]
    assert sorted(tree) == sorted(["TTSError", *children(TTSError)])


@pytest.mark.parametrize(
    ("error", "status", "retryable", "permanent"),
    [
        (TTSError("no"), 500, True, False),
        (EngineNotFoundError("x", ["tone"]), 404, False, True),
        (MissingDependencyError("cli"), 501, False, True),
        (InvalidRequestError("no"), 400, False, True),
        (VoiceNotFoundError("x", []), 404, False, True),
        (UnspeakableTextError("..."), 422, False, False),
        (OverloadedError("full", retry_after=1.0), 429, True, False),
        (EngineError("no"), 500, True, False),
        (EngineTimeoutError("late"), 504, True, False),
        (UnreachableError("away"), 503, True, False),
        (RemoteTimeoutError("late"), 504, True, False),
        (RemoteError("nonsense"), 502, True, False),
        *[
            (RemoteError("", status_code=code), code, retryable, permanent)
            for code, retryable, permanent in [
                (101, False, False),
                (307, False, False),
                (400, False, False),
                (401, False, True),
                (402, False, False),
                (403, False, False),
                (404, False, False),
                (408, True, False),
                (413, False, False),
                (422, False, False),
                (429, True, False),
                (500, True, False),
                (501, True, False),
                (503, True, False),
                (529, True, False),
            ]
        ],
    ],
)
def test_an_error_says_whether_the_same_may_work_later(
    error: TTSError, status: int, retryable: bool, permanent: bool
) -> None:
    assert (error.status_code, error.retryable, error.permanent) == (status, retryable, permanent)


def test_a_message_carries_the_remedy() -> None:
    assert str(EngineNotFoundError("x", ["tone", "hibari"])) == (
        "no engine 'x'; available: hibari, tone"
    )
    assert str(MissingDependencyError("remote")) == (
        'remote needs more: pip install "tts-plugins[remote]"'
    )
    assert str(VoiceNotFoundError("bob", ["heart", "emma"])) == (
        "no voice 'bob'; available: heart, emma"
    )
    assert str(VoiceNotFoundError("bob", [])) == "no voice 'bob'; available: unknown"


def test_of_thousands_of_voices_thirty_are_listed() -> None:
    thirty = ", ".join(f"v{n}" for n in range(30))
    for known, listed in (
        (30, thirty),
        (31, f"{thirty} and 1 more"),
        (1030, f"{thirty} and 1000 more"),
    ):
        error = VoiceNotFoundError("bob", (f"v{n}" for n in range(known)))
        assert str(error) == f"no voice 'bob'; available: {listed}"


def test_what_a_server_asks_for_is_kept() -> None:
    assert OverloadedError("full", retry_after=2.0).retry_after == 2.0
    assert RemoteError("full", status_code=503, retry_after=3.0).retry_after == 3.0
    assert RemoteError("full").retry_after is None
    assert UnreachableError("away").retry_after is None


def test_a_silent_server_is_caught_as_a_silent_engine() -> None:
    assert isinstance(RemoteTimeoutError("late"), EngineTimeoutError)
    assert isinstance(MissingDependencyError("cli"), ImportError)


@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("a\nb"), "a"), (ValueError(" \n a "), "a"), (TimeoutError(), "TimeoutError")],
)
def test_an_error_is_told_in_one_line(error: Exception, line: str) -> None:
    assert first_line(error) == line
