"""The ledger: what may still be spent, reserved before it is spent, on every account it concerns at once."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from msgspec import Struct


class Cap(Struct, frozen=True):
    """An account and what may be spent on it, in millionths of a dollar (or whatever else the account counts)."""

    account: str
    limit: int


class Hold(Struct, frozen=True):
    """An amount that is set aside until it is settled, or until its life is over."""

    id: str
    accounts: tuple[str, ...]
    amount: int


class Ledger(Protocol):
    """Accounts in a tree, as far as the caller names them together: all, a person, a session, a goal, a child."""

    def reserve(self, caps: Sequence[Cap], amount: int, life: timedelta) -> Hold:
        """Set an amount aside on all accounts, or raise `OverBudget` with the first that has too little left."""

    def settle(self, hold: Hold, spent: int) -> None:
        """Put what was really spent in the place of a hold; a hold that lapsed is settled all the same."""

    def spent(self, account: str) -> int:
        """Return what was spent on an account so far."""
