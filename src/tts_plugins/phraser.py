"""Decide when streamed text is spoken: by the sentence, or sooner where the listener waits.

Speech made of whole sentences sounds best, but a sentence may take longer to come than the
listener has audio left. Then a piece of it goes ahead, and the rest has time to arrive while
that is heard.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tts_plugins.text.sentences import SentenceSplitter

MARGIN = 0.5
"""Seconds of audio below which the listener is about to wait: an engine's start, with reserve."""

PATIENCE = 0.3
"""Seconds a silent listener waits for a sentence to end; a turn seems slow at about 0.7 s."""

LIMIT = 1.0
"""Seconds after which even one word is better than more silence."""

PAUSE = 0.1
"""Seconds without text after which "Sure." is over: models send every 10 to 50 ms."""

SETTLED = 0.3
"""Seconds without text after which the last word is whole, and "3 p.m." over."""

MIN_WORDS = 4
"""Fewer in a piece sound chopped, and are heard before the next piece is ready."""

_TICK = 0.001
"""Seconds; a shorter wait isn't worth it, and would turn on rounding errors."""


class Phraser:
    """Push text as it comes; get back what to speak now, in pieces that joined are the text.

    A whole sentence goes out at once. A piece of one goes out, one per call so that ``ahead``
    can change, when the listener is about to run dry and has waited long enough. After any
    piece, the next is cut only when its audio has arrived, or when that takes too long.

    Args:
        ahead: Seconds of audio that the listener hasn't heard yet.
        language: BCP 47 tag of the text.
        early: Whether to speak pieces of a sentence at all.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        *,
        ahead: Callable[[], float],
        language: str | None = None,
        early: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ahead = ahead
        self._early = early
        self._clock = clock
        self._splitter = SentenceSplitter(language)
        self._since: float | None = None  # when the pending text began, if there is any
        self._last_text = 0.0  # when text came last
        self._decided = 0.0  # when it was last considered what to speak
        self._dry: float | None = None  # when the listener runs dry if the last piece never sounds

    def push(self, text: str) -> list[str]:
        """Take more text; return the pieces to speak now."""
        if text:
            self._last_text = self._clock()
        sentences = self._splitter.push(text)
        if sentences:
            return self._spoken(sentences)
        if self._since is None and self._splitter.pending.strip():
            self._since = self._clock()
        return self.poll()

    def poll(self) -> list[str]:
        """Return the pieces to speak now that time has passed without text."""
        now = self._decided = self._clock()
        if self._since is None:
            return []
        quiet = now - self._last_text + _TICK
        over = self._splitter.release(settled=quiet >= SETTLED) if quiet >= PAUSE else []
        if over:
            return self._spoken(over)
        ahead = self._ahead()
        if self._dry is not None and ahead > 0 and now + ahead > self._dry + _TICK:
            self._dry = None
        waited = now - self._since + _TICK
        enough = PATIENCE if self._dry is None else LIMIT
        if not self._early or ahead > MARGIN + _TICK or waited < enough:
            return []
        settled = quiet >= SETTLED
        piece = self._splitter.cut(min_words=MIN_WORDS, settled=settled)
        if piece is None and waited >= LIMIT:
            piece = self._splitter.cut(min_words=1, settled=settled, numbers=True)
        return self._spoken([piece]) if piece else []

    def wait(self) -> float | None:
        """Seconds until ``poll`` may have something; None if only text can change anything."""
        if self._since is None:
            return None
        now = self._clock()
        moments = [self._last_text + PAUSE, self._last_text + SETTLED]
        if self._early:
            margin_at = now + self._ahead() - MARGIN
            moments += [max(margin_at, self._since + waited) for waited in (PATIENCE, LIMIT)]
        later = [moment for moment in moments if moment > self._decided + _TICK]
        return max(0.0, min(later) - now) if later else None

    def flush(self) -> list[str]:
        """End the text; return what was held back."""
        return self._spoken(self._splitter.flush())

    def _spoken(self, pieces: list[str]) -> list[str]:
        now = self._decided = self._clock()
        self._since = now if self._splitter.pending.strip() else None
        self._dry = now + self._ahead()
        return pieces
