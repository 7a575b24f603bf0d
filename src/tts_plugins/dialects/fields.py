"""Read the JSON of a call to a server of ours, and write the JSON of its errors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from tts_plugins.dialects.base import HttpCall, HttpReply
from tts_plugins.errors import InvalidRequestError, TTSError, VoiceNotFoundError


class Fields:
    """The JSON of a call, field by field. Null is as good as nothing; unknown fields don't matter.

    Everything raises InvalidRequestError where a field isn't what it should be.
    """

    def __init__(self, call: HttpCall) -> None:
        try:
            body = json.loads(call.body)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise InvalidRequestError("the body has to be a JSON object")
        self._body: dict[str, Any] = body

    def value(self, name: str) -> Any:
        """Whatever is there, as it is; None where nothing is."""
        return self._body.get(name)

    def string(self, name: str, *, inside: str | None = None) -> str | None:
        """Text; it may stand in an object, as its field ``inside``."""
        value = self._body.get(name)
        if inside and isinstance(value, dict):
            value = value.get(inside)
        self._demand(value is None or isinstance(value, str), name, "a string")
        # Half of an emoji can't be sent anywhere, but it is no reason not to speak the rest.
        return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", value) if value else value

    def number(self, name: str, lowest: float, highest: float, *, default: float) -> float:
        value = self._body.get(name)
        if value is None:
            return default
        within = type(value) in (int, float) and lowest <= value <= highest  # NaN isn't
        self._demand(within, name, f"a number from {lowest:g} to {highest:g}")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._body.get(name)
        self._demand(value is None or isinstance(value, bool), name, "true or false")
        return default if value is None else bool(value)

    def fields(self, name: str) -> dict[str, Any] | None:
        """An object, as it is."""
        value = self._body.get(name)
        self._demand(value is None or isinstance(value, dict), name, "an object")
        return value

    def choice(self, name: str, known: Sequence[str], *, default: str) -> str:
        """One of several words; no word at all is the default, which may be none of them."""
        value = self.string(name) or default
        self._demand(value in known, name, f"one of {', '.join(known)}")
        return value

    def _demand(self, truth: bool, name: str, kind: str) -> None:
        if not truth:
            raise InvalidRequestError(f"{name} has to be {kind}", field=name)


def error_reply(error: TTSError, body: object, *, status: int | None = None) -> HttpReply:
    """A reply with an error in JSON, and when to ask again.

    Args:
        error: What went wrong.
        body: How to say it.
        status: What to answer with, if it isn't the error's own.
    """
    headers = {"content-type": "application/json"}
    if (wait := getattr(error, "retry_after", None)) is not None:
        headers["retry-after"] = str(max(1, math.ceil(wait)))  # whole seconds, and 0 is "at once"
    return HttpReply(status or error.status_code, headers, json.dumps(body).encode())


def status_of(error: TTSError) -> int:
    """The status where 404 would be about the path, as in most APIs: no voice is 400."""
    return 400 if isinstance(error, VoiceNotFoundError) else error.status_code
