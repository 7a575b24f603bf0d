"""Fetch the voices of hibari that aren't in its wheel, once, into its own cache.

hibari would download them itself, but waits up to a minute for every read. Whoever speaks to
a caller can't.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from hibari import voices

from tts_plugins.errors import EngineError

_PIECE = 1 << 16


def path_of(voice: str) -> Path:
    """Where the file of a voice is, or belongs."""
    entry = voices.VOICES[voice]
    return Path(voices.ASSETS if entry.get("bundled") else voices.cache_dir(), entry["file"])


class Downloader:
    """Fetches voices, and doesn't try again at once what has just failed.

    Args:
        silence: Seconds that a server may say nothing.
        patience: Seconds that a download may take in all.
        retry_after: Seconds in which a voice that failed isn't tried again: whoever asks for it
            with each sentence shall not keep everybody else waiting each time.
        clock: Seconds, from any start.
    """

    def __init__(
        self,
        *,
        silence: float = 10.0,
        patience: float = 60.0,
        retry_after: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._silence, self._patience, self._retry_after = silence, patience, retry_after
        self._clock = clock
        self._failures: dict[str, tuple[float, str]] = {}

    def fetch(self, voice: str) -> Path:
        """The file of a voice, downloaded if it isn't there yet.

        Raises:
            EngineError: It couldn't be downloaded; the message says why, and where to copy it.
        """
        path = path_of(voice)
        if path.exists():
            return path
        failed, message = self._failures.get(voice, (-self._retry_after, ""))
        if message and self._clock() < failed + self._retry_after:
            raise EngineError(message)
        entry = voices.VOICES[voice]
        url = voices.BASE_URL + entry["file"]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._download(url, path, entry["sha256"])
        except (OSError, http.client.HTTPException, ValueError) as error:
            message = (
                f"voice {voice!r} couldn't be downloaded from {url}: {error}; "
                f"check the connection, or copy the file to {path}"
            )
            self._failures[voice] = (self._clock(), message)
            raise EngineError(message) from error
        return path

    def _download(self, url: str, path: Path, sha256: str) -> None:
        """Write to a file beside it first, so that nobody ever loads half a voice."""
        deadline = self._clock() + self._patience
        handle, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
        part = Path(name)
        try:
            digest = hashlib.sha256()
            with (
                os.fdopen(handle, "wb") as file,
                urllib.request.urlopen(url, timeout=self._silence) as reply,
            ):
                # read() would wait for a whole piece, however slowly it comes.
                while piece := reply.read1(_PIECE):
                    if self._clock() > deadline:
                        raise TimeoutError("it takes too long")
                    digest.update(piece)
                    file.write(piece)
            if digest.hexdigest() != sha256:
                raise ValueError("what came isn't the file that hibari knows (its sha256 differs)")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
