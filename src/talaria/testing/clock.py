"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


class SettableClock:
    """A `Clock` under the control of a test: leases and codes expire when the test says so."""

    def __init__(self, moment: datetime = NOON) -> None:
        self._moment = moment

    def now(self) -> datetime:
        """Return the moment at which the clock stands."""
        return self._moment

    def advance(self, duration: timedelta) -> None:
        """Move on by so much."""
        self._moment += duration
