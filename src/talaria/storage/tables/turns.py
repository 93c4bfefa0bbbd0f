"""Turns with their steps, the leases of their owners, and what they may spend."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from talaria.contracts.stores.sessions import SESSION_CHANGES
from talaria.contracts.stores.turns import Cap, Hold, Lease, Step, Turn, TurnState
from talaria.core.errors import LeaseLost, OverBudget
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.storage.tables.sql import Row, Sql, from_stamp, to_span, to_stamp


class LeasesTable:
    """SQL implementation of `Leases`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def acquire(self, name: str, duration: timedelta) -> Lease | None:
        """Acquire a free or expired lease; ``None`` if it is held, even by this worker."""
        expires_at = self._sql.now + to_span(duration)
        row = self._sql.row(
            "INSERT INTO leases (name, owner, token, expires_at) VALUES (?, ?, 1, ?) ON CONFLICT (name) DO UPDATE"
            " SET owner = excluded.owner, token = leases.token + 1, expires_at = excluded.expires_at"
            " WHERE leases.expires_at <= ? RETURNING token",
            (name, self._sql.worker, expires_at, self._sql.now),
        )
        return Lease(name, self._sql.worker, row[0], from_stamp(expires_at)) if row else None

    def renew(self, lease: Lease, duration: timedelta) -> Lease:
        """Extend a lease, even an expired one; raises `LeaseLost` if it was released or acquired again."""
        expires_at = self._sql.now + to_span(duration)
        renewed = self._sql.count(
            "UPDATE leases SET expires_at = ? WHERE name = ? AND token = ? AND owner = ?",
            (expires_at, lease.name, lease.token, lease.owner),
        )
        if not renewed:
            raise LeaseLost(f"{lease.name} belongs to another worker now.")
        return Lease(lease.name, lease.owner, lease.token, from_stamp(expires_at))

    def check(self, lease: Lease) -> None:
        """Lock the lease's row; raises `LeaseLost` if the lease was released or acquired again.

        The expiry time is not checked: an expired lease that no worker has acquired still passes.
        """
        held = self._sql.row(
            f"SELECT 1 FROM leases WHERE name = ? AND token = ? AND owner = ?{self._sql.locked}",
            (lease.name, lease.token, lease.owner),
        )
        if not held:
            raise LeaseLost(f"{lease.name} belongs to another worker now.")

    def release(self, lease: Lease) -> None:
        """Release a lease; no effect if it now belongs to another worker."""
        self._sql.run(
            "UPDATE leases SET owner = '', expires_at = 0 WHERE name = ? AND token = ? AND owner = ?",
            (lease.name, lease.token, lease.owner),
        )

    def take_over(self, lease: Lease, duration: timedelta) -> Lease | None:
        """Take the lease of a dead owner; ``None`` if its token has changed.

        The caller must know that the owner is dead: the expiry time is not checked.
        """
        expires_at = self._sql.now + to_span(duration)
        row = self._sql.row(
            "UPDATE leases SET owner = ?, token = token + 1, expires_at = ? WHERE name = ? AND token = ?"
            " RETURNING token",
            (self._sql.worker, expires_at, lease.name, lease.token),
        )
        return Lease(lease.name, self._sql.worker, row[0], from_stamp(expires_at)) if row else None

    def get(self, name: str) -> Lease | None:
        """Return the current lease on a name, or ``None`` if it is free or expired."""
        row = self._sql.row(
            "SELECT owner, token, expires_at FROM leases WHERE name = ? AND expires_at > ?", (name, self._sql.now)
        )
        return Lease(name, row[0], row[1], from_stamp(row[2])) if row else None


_TURN = "id, session_id, worker, state, started_at, ended_at, error"


class TurnsTable:
    """SQL implementation of `Turns`; ``notify`` notifies a topic."""

    def __init__(self, sql: Sql, notify: Callable[[str], None]) -> None:
        self._sql = sql
        self._notify = notify

    def begin(self, session_id: SessionId, turn_id: TurnId) -> Turn:
        """Insert a running turn of this worker."""
        row = self._sql.row(
            "INSERT INTO turns (id, session_id, worker, state, started_at) VALUES (?, ?, ?, 'running', ?)"
            f" RETURNING {_TURN}",
            (turn_id, session_id, self._sql.worker, self._sql.now),
        )
        assert row is not None
        self._notify(SESSION_CHANGES)
        return _to_turn(row)

    def end(self, turn_id: TurnId, state: TurnState, error: str = "") -> bool:
        """Store the final state of a running turn; ``False`` if it has already ended."""
        ended = self._sql.count(
            "UPDATE turns SET state = ?, error = ?, ended_at = ? WHERE id = ? AND state = 'running'",
            (state, error, self._sql.now, turn_id),
        )
        if ended:
            self._notify(SESSION_CHANGES)
        return ended > 0

    def find(
        self, session_id: SessionId | None = None, *, running: bool = False, limit: int | None = None
    ) -> list[Turn]:
        """Return turns, oldest first; with a ``limit`` only the newest."""
        if running:
            found = self._list_running(session_id)
            return found[-limit:] if limit is not None else found
        where, session_values = ("WHERE session_id = ? ", [session_id]) if session_id else ("", [])
        limit_clause, limit_values = (" LIMIT ?", [limit]) if limit is not None else ("", [])
        rows = self._sql.rows(
            f"SELECT {_TURN} FROM turns {where}ORDER BY started_at DESC, id DESC{limit_clause}",
            (*session_values, *limit_values),
        )
        return [_to_turn(row) for row in reversed(rows)]

    def _list_running(self, session_id: SessionId | None) -> list[Turn]:
        """Return the running turns, oldest first.

        There are few, so sorting them here is cheaper than a sort in the engine.
        """
        where, session_values = (" AND session_id = ?", (session_id,)) if session_id else ("", ())
        rows = self._sql.rows(f"SELECT {_TURN} FROM turns WHERE state = 'running'{where}", session_values)
        return sorted(map(_to_turn, rows), key=lambda turn: (turn.started_at, turn.id))

    def begin_step(
        self, turn_id: TurnId, kind: str, name: str, request: str, at: datetime | None = None, result: str | None = None
    ) -> int:
        """Insert a step, started now or at ``at``, and return its number within the turn.

        With a ``result`` it has ended already.
        """
        started = self._sql.now if at is None else to_stamp(at)
        row = self._sql.row(
            "INSERT INTO steps (turn_id, number, kind, name, request, started_at, ended_at, result) VALUES"
            " (?, (SELECT coalesce(max(number), 0) + 1 FROM steps WHERE turn_id = ?), ?, ?, ?, ?, ?, ?)"
            " RETURNING number",
            (turn_id, turn_id, kind, name, request, started, None if result is None else started, result),
        )
        assert row is not None
        return int(row[0])

    def end_step(self, turn_id: TurnId, number: int, result: str, at: datetime | None = None) -> None:
        """Store the result of a step, ended now or at ``at``."""
        self._sql.run(
            "UPDATE steps SET result = ?, ended_at = ? WHERE turn_id = ? AND number = ?",
            (result, self._sql.now if at is None else to_stamp(at), turn_id, number),
        )

    def steps(self, turn_id: TurnId) -> list[Step]:
        """Return the steps of a turn in order."""
        rows = self._sql.rows(
            "SELECT turn_id, number, kind, name, request, started_at, ended_at, result FROM steps"
            " WHERE turn_id = ? ORDER BY number",
            (turn_id,),
        )
        return [_to_step(row) for row in rows]


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

    def read_spent(self, account: str) -> int:
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


def _to_turn(row: Row) -> Turn:
    turn_id, session_id, worker, state, started_at, ended_at, error = row
    return Turn(
        id=turn_id,
        session_id=session_id,
        worker=worker,
        state=state,
        started_at=from_stamp(started_at),
        ended_at=None if ended_at is None else from_stamp(ended_at),
        error=error,
    )


def _to_step(row: Row) -> Step:
    turn_id, number, kind, name, request, started_at, ended_at, result = row
    return Step(
        turn_id=turn_id,
        number=number,
        kind=kind,
        name=name,
        request=request,
        started_at=from_stamp(started_at),
        ended_at=None if ended_at is None else from_stamp(ended_at),
        result=result,
    )
