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
from typing import Any

from hibari import voices

from tts_plugins.errors import EngineError

SILENCE = 10.0
"""Seconds that a server may say nothing."""
PATIENCE = 60.0
"""Seconds that a download may take in all."""
_PIECE = 1 << 16


def path_of(voice: str) -> Path:
    """Where the file of a voice is, or belongs."""
    entry = voices.VOICES[voice]
    return Path(voices.ASSETS if entry.get("bundled") else voices.cache_dir(), entry["file"])


def fetch(
    voice: str,
    *,
    silence: float = SILENCE,
    patience: float = PATIENCE,
    clock: Callable[[], float] = time.monotonic,
) -> Path:
    """The file of a voice, downloaded if it isn't there yet.

    Raises:
        EngineError: It couldn't be downloaded; the message says why, and where to copy it.
    """
    path = path_of(voice)
    if path.exists():
        return path
    entry = voices.VOICES[voice]
    url = voices.BASE_URL + entry["file"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _download(url, path, entry["sha256"], silence, clock() + patience, clock)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise EngineError(
            f"voice {voice!r} couldn't be downloaded from {url}: {error}; "
            f"check the connection, or copy the file to {path}"
        ) from error
    return path


def _download(
    url: str,
    path: Path,
    sha256: str,
    silence: float,
    deadline: float,
    clock: Callable[[], float],
) -> None:
    """Write to a file beside it first, so that nobody ever loads half a voice."""
    handle, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    part = Path(name)
    try:
        digest = hashlib.sha256()
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(url, timeout=silence) as reply:
            while piece := _read(reply):
                if clock() > deadline:
                    raise TimeoutError("it takes too long")
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != sha256:
            raise ValueError("what came isn't the file that hibari knows (its sha256 differs)")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _read(reply: Any) -> bytes:
    # read() would wait for a whole piece, however slowly it comes.
    piece: bytes = reply.read1(_PIECE)
    return piece
