"""Scripts that a voice can't read are told, and not again and again."""

from __future__ import annotations

import logging
import warnings

import pytest

from tts_plugins.errors import UnreadableTextWarning
from tts_plugins.phonemes.unread import Unread


def test_a_script_is_told_once_a_request_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    unread = Unread()
    told: list[str] = []
    with caplog.at_level(logging.WARNING), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            request = unread.request("can't read {}".format)
            request("HAN")
            request.tell()
            request("HAN")
            request("ARABIC")
            request.tell()
        told = [str(each.message) for each in caught if each.category is UnreadableTextWarning]
    assert told == ["can't read HAN", "can't read ARABIC"] * 2
    assert caplog.messages == ["can't read HAN", "can't read ARABIC"]


def test_a_warning_that_is_an_error_ends_nothing() -> None:
    request = Unread().request("can't read {}".format)
    request("HAN")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        request.tell()


def test_where_nothing_was_said_the_scripts_are_why() -> None:
    request = Unread().request("can't read {}".format)
    assert request.reason("no word") == "no word"
    request("HAN")
    request("ARABIC")
    assert request.reason("no word") == "can't read ARABIC, HAN"
