"""What the server refuses before any engine is asked."""

from __future__ import annotations

from tts_plugins.errors import TTSError


class RefusedError(TTSError):
    """The call isn't let in.

    Args:
        status_code: The HTTP status that says why.
        message: What to do about it.
        retry_after: Seconds after which to ask again, if that helps.
    """

    def __init__(self, status_code: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.retry_after = retry_after
