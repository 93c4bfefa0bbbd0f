"""The clock, passed in so that tests can control time."""

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> datetime:
        """Return the current time, with its zone."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)
