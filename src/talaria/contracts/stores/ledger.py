"""Spending: the ledger, with amounts reserved on all affected accounts, and the usage of models per day."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.ids import SessionId
from talaria.core.messages import Usage

UsageGroup = Literal["model", "surface", "owner"]


class Cap(Struct, frozen=True):
    """An account and its limit, in millionths of a dollar (or another unit of the account)."""

    account: str
    limit: int


class Hold(Struct, frozen=True):
    """An amount reserved until it is settled or expires."""

    id: str
    accounts: tuple[str, ...]
    amount: int


class Ledger(Protocol):
    """Accounts that the caller reserves on together: all, a person, a session, a goal, a child."""

    def reserve(self, caps: Sequence[Cap], amount: int, life: timedelta) -> Hold:
        """Reserve an amount on all accounts, or raise `OverBudget` with the first that has too little left."""

    def settle(self, hold: Hold, spent: int) -> None:
        """Replace a hold by the amount actually spent, even if the hold has expired."""

    def spent(self, account: str) -> int:
        """Return the amount spent on an account so far."""


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
