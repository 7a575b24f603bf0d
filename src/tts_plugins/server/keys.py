"""Who may call: keys, told apart without telling how much of a wrong one was right."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tts_plugins.errors import InvalidRequestError
from tts_plugins.server.refusals import RefusedError

NOBODY = "-"
"""The caller where no keys are set."""

_SCHEMES = ("bearer", "token")


class Keys:
    """The keys that open the server; without any it is open.

    Args:
        keys: Each of at least 8 visible ASCII characters, since others can't stand in a header or
            can be guessed.

    Raises:
        InvalidRequestError: If one can't be a key. It isn't repeated.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests: dict[bytes, str] = {}
        for key in keys:
            if len(key) < 8 or not (key.isascii() and key.isprintable()) or " " in key:
                raise InvalidRequestError("a key has at least 8 visible ASCII characters, no space")
            digest = hashlib.sha256(key.encode()).digest()
            self._digests[digest] = digest.hex()[:8]

    @classmethod
    def from_file(cls, path: Path) -> Keys:
        """One key a line; empty lines and those that begin with # don't count.

        Raises:
            InvalidRequestError: If it can't be read, or has no key in it, or what can't be one.
        """
        try:
            lines = [line.strip() for line in path.read_text().splitlines()]
        except (OSError, ValueError) as error:
            raise InvalidRequestError(f"can't read the keys in {path}: {error}") from None
        return cls._some([line for line in lines if line and not line.startswith("#")], str(path))

    @classmethod
    def from_environment(cls, variable: str) -> Keys:
        """From an environment variable, with spaces or commas between them.

        Raises:
            InvalidRequestError: If it has no key in it, or what can't be one.
        """
        return cls._some(os.environ.get(variable, "").replace(",", " ").split(), variable)

    @classmethod
    def _some(cls, keys: Sequence[str], place: str) -> Keys:
        if not keys:
            # Rather than open the server to everybody.
            raise InvalidRequestError(
                f"there is no key in {place}: put one there, such as `openssl rand -hex 16` makes"
            )
        try:
            return cls(keys)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{place}: {error}") from None

    def __bool__(self) -> bool:
        return bool(self._digests)

    def caller(self, headers: Mapping[str, str], query: Mapping[str, str] | None = None) -> str:
        """A short name for whoever has this key, the same in every process.

        Args:
            headers: With names in lower case: ``authorization``, ``xi-api-key``, ``x-api-key``.
            query: Of a WebSocket's address, for clients that can't set headers.

        Raises:
            RefusedError: 401, if there is no key, or a wrong one.
        """
        if not self._digests:
            return NOBODY
        given = _given(headers) or _given(query or {})
        if not given:
            raise RefusedError(
                401, "no API key: send Authorization: Bearer, xi-api-key or X-API-Key"
            )
        # Digests have one length, and all are compared, so time tells nothing.
        digest = hashlib.sha256(given.encode()).digest()
        found = [
            name for known, name in self._digests.items() if hmac.compare_digest(known, digest)
        ]
        if not found:
            raise RefusedError(401, "wrong API key")
        return found[0]


def _given(fields: Mapping[str, str]) -> str:
    scheme, _, key = fields.get("authorization", "").partition(" ")
    bearer = key.strip() if scheme.lower() in _SCHEMES else ""
    return bearer or fields.get("xi-api-key", "") or fields.get("x-api-key", "")
