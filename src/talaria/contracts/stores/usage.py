"""Usage of models: the counters of sessions, and a daily roll-up for charts and reports."""

from datetime import date, datetime
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.ids import SessionId
from talaria.core.messages import Usage

UsageGroup = Literal["model", "surface", "owner"]


class DailyUsage(Struct, frozen=True):
    """Usage of one day (UTC) and one member of a group, for example a model.

    ``unpriced_calls`` are the calls without a known price: they are missing in the cost.
    """

    day: date
    member: str
    turns: int
    unpriced_calls: int
    usage: Usage


class UsageLog(Protocol):
    """Usage of all sessions; days stay when their sessions are deleted."""

    def add(
        self,
        session_id: SessionId,
        usage: Usage,
        *,
        model: str = "",
        turns: int = 0,
        has_price: bool = True,
        at: datetime | None = None,
    ) -> None:
        """Add to the counters of a session, and to those of the day under its source and owner.

        Without a ``model`` it is that of the session; without a time the day is today. Unpriced calls count as such.
        """

    def by_day(self, group: UsageGroup, first: date, last: date, *, owner: str | None = None) -> list[DailyUsage]:
        """Return the usage of each day and member of a group, oldest first; with ``owner`` only of that person."""
