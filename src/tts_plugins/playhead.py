"""When a listener runs out of audio."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Playhead:
    """A listener who plays audio as it comes. Bookkeeping only: the caller brings the clock."""

    dry_at: float
    """When the listener runs out of audio, or since when there has been none."""

    def add(self, seconds: float, now: float) -> float:
        """Give the listener more audio; return how long it had been silent before that.

        One who ran dry goes on from now, not from the past.
        """
        silence = max(0.0, now - self.dry_at)
        self.dry_at = max(self.dry_at, now) + seconds
        return silence

    def keep(self, seconds: float, now: float) -> None:
        """Count on so much audio being left: what the listener hasn't taken isn't heard yet."""
        self.dry_at = max(self.dry_at, now + seconds)

    def ahead(self, now: float) -> float:
        """Seconds of audio not heard yet."""
        return max(0.0, self.dry_at - now)
