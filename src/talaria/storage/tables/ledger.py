"""Spending and reservations per account."""

from collections.abc import Sequence
from datetime import timedelta

from talaria.contracts.stores.turns import Cap, Hold
from talaria.core.errors import OverBudget
from talaria.core.ids import new_id
from talaria.storage.tables.sql import Sql, to_span


class LedgerTable:
    """SQL implementation of `Ledger`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def reserve(self, caps: Sequence[Cap], amount: int, life: timedelta) -> Hold:
        """Reserve an amount on all accounts, or raise `OverBudget`.

        The error names the first account, in alphabetical order, whose limit would be exceeded. The hold expires after
        ``life``.
        """
        hold = Hold(new_id(), tuple(sorted(cap.account for cap in caps)), amount)
        for cap in sorted(caps, key=lambda cap: cap.account):  # a fixed lock order prevents deadlocks
            spent, reserved = self._lock_account(cap.account)
            if spent + reserved + amount > cap.limit:
                raise OverBudget(
                    f"{cap.account} has a cap of {cap.limit}; {spent} is spent and {reserved} is reserved.",
                    account=cap.account,
                )
        self._sql.run_many(
            "INSERT INTO holds (id, account, amount, expires_at) VALUES (?, ?, ?, ?)",
            [(hold.id, account, amount, self._sql.now + to_span(life)) for account in hold.accounts],
        )
        return hold

    def settle(self, hold: Hold, spent: int) -> None:
        """Replace a hold by the amount actually spent; works for expired holds too."""
        for account in hold.accounts:
            self._sql.run("UPDATE accounts SET spent = spent + ? WHERE name = ?", (spent, account))
        self._sql.run("DELETE FROM holds WHERE id = ?", (hold.id,))

    def spent(self, account: str) -> int:
        """Return the total amount spent on an account."""
        row = self._sql.row("SELECT spent FROM accounts WHERE name = ?", (account,))
        return int(row[0]) if row else 0

    def _lock_account(self, account: str) -> tuple[int, int]:
        """Return the spent and reserved amounts of an account, and lock it until the transaction ends."""
        self._sql.run("INSERT INTO accounts (name, spent) VALUES (?, 0) ON CONFLICT (name) DO NOTHING", (account,))
        row = self._sql.row(f"SELECT spent FROM accounts WHERE name = ?{self._sql.locked}", (account,))
        held = self._sql.row(
            "SELECT coalesce(sum(amount), 0) FROM holds WHERE account = ? AND expires_at > ?", (account, self._sql.now)
        )
        assert row is not None
        assert held is not None
        return int(row[0]), int(held[0])
