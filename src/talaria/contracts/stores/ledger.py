"""The ledger: budgets, with amounts reserved on all affected accounts before they are spent."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from msgspec import Struct


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
