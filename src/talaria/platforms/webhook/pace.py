"""How often one sender may come."""

from datetime import datetime


class Turnstile:
    """Lets a number pass in a minute, all at once if they come so, and then one at a time."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._at: datetime | None = None

    def pass_at(self, now: datetime, per_minute: int) -> int:
        """Let one pass and return 0, or return in how many seconds the next one may."""
        if self._at is not None:
            passed = max((now - self._at).total_seconds(), 0.0)
            self._spent = max(self._spent - passed * per_minute / 60, 0.0)
        self._at = now
        if self._spent + 1 <= per_minute:
            self._spent += 1
            return 0
        return int((self._spent + 1 - per_minute) * 60 / per_minute) + 1
