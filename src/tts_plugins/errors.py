"""Everything that tts_plugins raises on purpose.

* TTSError
    * EngineNotFoundError         no engine of that name is installed
    * MissingDependencyError      the engine's package isn't installed
    * InvalidRequestError         these settings will never work: voice, speed, option
        * VoiceNotFoundError
    * UnspeakableTextError        this text has nothing to say; the next one may
    * OverloadedError             too many streams at once; try again later
    * EngineError                 the engine itself failed
        * EngineTimeoutError      ... or went silent for too long
        * RemoteError             the engine is a server, and refused or answered nonsense
            * UnreachableError    ... or can't be reached, or broke off
            * RemoteTimeoutError  ... or went silent for too long

and one warning: UnreadableTextWarning, for text in a script that the voice can't read.

``status_code`` is the HTTP status that says the same thing. Pipecat and LiveKit classify
failures by it and a server answers with it, so no surface keeps a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterable


class TTSError(Exception):
    """Base class of every error raised on purpose by tts_plugins."""

    status_code = 500

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed a moment later."""
        return self.status_code in (408, 429) or self.status_code >= 500

    @property
    def permanent(self) -> bool:
        """Whether with these settings every other text will fail as well, from now on."""
        return not self.retryable


class EngineNotFoundError(TTSError):
    """No installed package provides an engine of that name."""

    status_code = 404

    def __init__(self, name: str, available: Iterable[str]) -> None:
        super().__init__(f"no engine {name!r}; available: {', '.join(sorted(available))}")


class MissingDependencyError(TTSError, ImportError):
    """The engine, adapter or command is known but a package that it needs isn't installed."""

    status_code = 501

    def __init__(self, extra: str) -> None:
        super().__init__(f'{extra} needs more: pip install "tts-plugins[{extra}]"')

    @property
    def retryable(self) -> bool:
        return False


class InvalidRequestError(TTSError):
    """Settings that will never work, whatever the text."""

    status_code = 400

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        """What a call's body names the setting, if one of its fields is at fault."""


_MANY = 30
"""Voices that a message lists; some services have thousands."""


class VoiceNotFoundError(InvalidRequestError):
    status_code = 404

    def __init__(self, voice: str, available: Iterable[str]) -> None:
        super().__init__(f"no voice {voice!r}; available: {_listed(available)}")
        self.voice = voice


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return ", ".join(names[:_MANY]) + more or "unknown"


class UnspeakableTextError(TTSError):
    """There is nothing in this text that could be spoken. Turn answers it with silence."""

    status_code = 422

    @property
    def permanent(self) -> bool:
        """The next text may be speakable."""
        return False


class OverloadedError(TTSError):
    """The engine serves as many streams as it can."""

    status_code = 429

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds after which a stream is expected to be free."""


class EngineError(TTSError):
    """The engine failed; ``__cause__`` is what it raised."""


class EngineTimeoutError(EngineError):
    """The engine gave no audio for longer than the listener can wait."""

    status_code = 504


class RemoteError(EngineError):
    """The server refused, failed, or answered with something that isn't speech."""

    def __init__(
        self, message: str, *, status_code: int = 502, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        """What the server answered, or 502 where the answer itself is at fault."""
        self.retry_after = retry_after
        """Seconds after which the server wants to be asked again, if it said so."""

    @property
    def permanent(self) -> bool:
        """A wrong key is; other refusals are about one text, or pass when the server restarts."""
        return self.status_code == 401


class UnreachableError(RemoteError):
    """The server can't be reached, or the connection broke before the audio was whole."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status_code=503)


class RemoteTimeoutError(RemoteError, EngineTimeoutError):
    """The server gave nothing for longer than the listener can wait."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status_code=504)


class UnreadableTextWarning(UserWarning):
    """Part of a text is in a script that the voice can't read, and was not spoken."""


def first_line(error: BaseException) -> str:
    """What an error says, as far as it fits into a line; what it is, if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
