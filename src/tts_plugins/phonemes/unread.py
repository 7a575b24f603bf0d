"""Say which scripts a voice couldn't read: once a request, and in the log once."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from contextlib import suppress

from tts_plugins.errors import UnreadableTextWarning

logger = logging.getLogger(__name__)


class Unread:
    """What the streams of one engine couldn't read."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def request(self, message: Callable[[str], str]) -> UnreadRequest:
        """For one request.

        Args:
            message: Says that the voice can't read a script, and what to do.
        """
        return UnreadRequest(message, self._logged)


class UnreadRequest:
    """The scripts of one text that its voice couldn't read."""

    def __init__(self, message: Callable[[str], str], logged: set[str]) -> None:
        self._message, self._logged = message, logged
        self._scripts: set[str] = set()
        self._told: set[str] = set()

    def __call__(self, script: str) -> None:
        """Take note of one, by its name, such as ``CYRILLIC``."""
        self._scripts.add(script)

    def tell(self) -> None:
        """Warn of those that haven't been told yet."""
        for script in sorted(self._scripts - self._told):
            self._told.add(script)
            message = self._message(script)
            if message not in self._logged:
                self._logged.add(message)
                logger.warning(message)
            with suppress(UnreadableTextWarning):  # under -W error: the rest is spoken all the same
                warnings.warn(UnreadableTextWarning(message), stacklevel=4)

    def reason(self, otherwise: str) -> str:
        """Why nothing was said: for that reason, unless it was because of the scripts."""
        return self._message(", ".join(sorted(self._scripts))) if self._scripts else otherwise
