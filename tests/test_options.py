"""What an engine's options may be is looked at in one way."""

from __future__ import annotations

import math

import pytest

from tts_plugins.errors import InvalidRequestError
from tts_plugins.options import SEED, Bounds, OneOf, Options, Table, check_speed, primary

TABLE: Table = {"seed": SEED, "heat": Bounds(0, 2), "code": OneOf(("a", "b"))}


def test_what_was_given_is_read() -> None:
    options = Options("x", {"seed": 3, "heat": 1, "code": "b"}, TABLE)
    assert (options.whole("seed"), options.number("heat", 0.5), options.word("code")) == (3, 1, "b")
    assert options.given == {"seed": 3, "heat": 1, "code": "b"}


def test_none_is_as_good_as_none() -> None:
    options = Options("x", {"seed": None, "heat": None, "code": None}, TABLE)
    assert (options.whole("seed"), options.whole("seed", 7)) == (None, 7)
    assert (options.number("heat", 0.5), options.word("code"), options.given) == (0.5, None, {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pitch": 1}, "x has no option pitch; it has: seed, heat, code"),
        ({"seed": -1}, "the option seed is an int from 0 up, not -1"),
        ({"seed": True}, "the option seed is an int from 0 up, not True"),
        ({"seed": 1.0}, "the option seed is an int from 0 up, not 1.0"),
        ({"heat": 2.1}, "the option heat is a number from 0 to 2, not 2.1"),
        ({"heat": math.nan}, "the option heat is a number from 0 to 2, not nan"),
        ({"heat": 10**400}, "the option heat is a number from 0 to 2, not 10{400}"),
        ({"heat": "1"}, "the option heat is a number from 0 to 2, not '1'"),
        ({"code": "c"}, "the option code is one of a, b, not 'c'"),
        ({"code": ["a"]}, "the option code is one of a, b, not \\['a'\\]"),
        ({"code": "ab"}, "the option code is one of a, b, not 'ab'"),
    ],
)
def test_what_can_not_be_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        Options("x", given, TABLE)


def test_an_engine_without_options_says_so() -> None:
    with pytest.raises(InvalidRequestError, match="x has no option seed; it has none"):
        Options("x", {"seed": 1}, {})


@pytest.mark.parametrize("speed", [0.4, 2.1, 0.0, -1.0, math.nan, math.inf])
def test_a_pace_that_can_not_be_is_refused(speed: float) -> None:
    with pytest.raises(InvalidRequestError, match=r"outside 0\.5 to 2\.0"):
        check_speed(speed, 0.5, 2.0)


def test_a_pace_within_the_bounds_is_fine() -> None:
    check_speed(0.5, 0.5, 2.0)
    check_speed(2.0, 0.5, 2.0)


@pytest.mark.parametrize(
    ("tag", "expected"), [("en", "en"), ("en-US", "en"), ("pt_BR", "pt"), ("ZH-Hant-TW", "zh")]
)
def test_the_language_of_a_tag(tag: str, expected: str) -> None:
    assert primary(tag) == expected
