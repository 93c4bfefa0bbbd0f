"""Handoffs, kept on the row of the session that moves."""

from datetime import timedelta

from talaria.contracts.stores.handoffs import (
    CLAIM_LIFE,
    EXPIRED,
    HANDOFF_LIFE,
    REQUEST_LIFE,
    HandoffState,
    HandoffStatus,
    PendingHandoff,
)
from talaria.core.ids import SessionId, WorkerId, is_gone
from talaria.storage.sql import Row, Sql, Value, to_span

_REASON_LIMIT = 500
_UNDER_WAY = "handoff_state IN ('pending', 'running')"  # word for word that of the index, else SQLite reads all rows


_EXPIRED = (
    "(handoff_state = 'pending' AND handoff_requested_at <= ? OR handoff_state = 'running'"
    " AND handoff_requested_at <= ? AND handoff_claimed_until <= ?)"
)


class HandoffsTable:
    """Implements `Handoffs`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def request_handoff(self, session_id: SessionId, platform: str) -> bool:
        """Ask for a move; ``False`` while one is pending or running, and for an unknown session."""
        return self._move(
            session_id,
            "handoff_state = 'pending', handoff_platform = ?, handoff_error = NULL, handoff_requested_at = ?,"
            " handoff_claimed_by = NULL, handoff_claimed_until = NULL",
            (platform, self._sql.now),
            f"(handoff_state IS NULL OR handoff_state IN ('completed', 'failed') OR {_EXPIRED})",
            *self._expiry(),
        )

    def get_handoff_state(self, session_id: SessionId) -> HandoffState | None:
        """Return how far it has come, or ``None`` for an unknown session."""
        row = self._sql.row(
            "SELECT handoff_state, handoff_platform, handoff_error, handoff_requested_at, handoff_claimed_until"
            " FROM sessions WHERE id = ?",
            (session_id,),
        )
        if row is None:
            return None
        state, platform, error, requested, claimed_until = row
        if self._has_expired(state, requested, claimed_until):
            return HandoffState(state="failed", platform=platform, error=EXPIRED)
        return HandoffState(state=state, platform=platform, error=error)

    def withdraw_handoff(self, session_id: SessionId, reason: str) -> bool:
        """Fail what is pending or running on behalf of whoever asked; ``False`` if it has ended."""
        return self._fail(session_id, reason, f"{_UNDER_WAY} AND NOT {_EXPIRED}", *self._expiry())

    def list_pending_handoffs(self) -> list[PendingHandoff]:
        """Return the pending ones, oldest request first."""
        return [PendingHandoff(*row[:3]) for row in self._list("pending")]

    def list_lapsed_handoffs(self) -> list[PendingHandoff]:
        """Return those whose claimer is dead or let the claim lapse, oldest request first."""
        claimed = self._list("running")
        return [PendingHandoff(*row[:3]) for row in claimed if row[4] <= self._sql.now or is_gone(row[3])]

    def claim_handoff(self, session_id: SessionId, life: timedelta = CLAIM_LIFE) -> bool:
        """Take a pending or lapsed one: of any number of claimers exactly one gets ``True``."""
        gone = self._gone()
        theirs = f" OR handoff_claimed_by IN ({', '.join('?' * len(gone))})" if gone else ""
        return self._move(
            session_id,
            "handoff_state = 'running', handoff_claimed_by = ?, handoff_claimed_until = ?",
            (self._sql.worker, self._sql.now + to_span(life)),
            f"(handoff_state = 'pending' OR (handoff_state = 'running' AND (handoff_claimed_until <= ?{theirs})))"
            f" AND NOT {_EXPIRED}",
            self._sql.now,
            *gone,
            *self._expiry(),
        )

    def complete_handoff(self, session_id: SessionId) -> bool:
        """Mark this worker's running handoff as completed; ``False`` if it is no longer its own."""
        return self._move(
            session_id,
            "handoff_state = 'completed', handoff_error = NULL",
            (),
            f"handoff_state = 'running' AND handoff_claimed_by = ? AND NOT {_EXPIRED}",
            self._sql.worker,
            *self._expiry(),
        )

    def fail_handoff(self, session_id: SessionId, reason: str) -> bool:
        """Mark a pending one, or this worker's running one, as failed; the reason is cut at 500 characters."""
        return self._fail(
            session_id,
            reason,
            "(handoff_state = 'pending' OR (handoff_state = 'running' AND handoff_claimed_by = ?))",
            self._sql.worker,
        )

    def _gone(self) -> list[WorkerId]:
        """Return the claimers that are surely dead."""
        rows = self._sql.rows(
            f"SELECT DISTINCT handoff_claimed_by FROM sessions WHERE {_UNDER_WAY} AND handoff_state = 'running'"
        )
        return [worker for (worker,) in rows if is_gone(worker)]

    def _fail(self, session_id: SessionId, reason: str, condition: str, *values: Value) -> bool:
        failed = "handoff_state = 'failed', handoff_error = ?"
        return self._move(session_id, failed, (reason[:_REASON_LIMIT],), condition, *values)

    def _move(
        self, session_id: SessionId, assignments: str, assigned: tuple[Value, ...], condition: str, *values: Value
    ) -> bool:
        moved = self._sql.count(
            f"UPDATE sessions SET {assignments} WHERE id = ? AND {condition}", (*assigned, session_id, *values)
        )
        return moved > 0

    def _list(self, state: HandoffStatus) -> list[Row]:
        rows = self._sql.rows(
            "SELECT id, title, handoff_platform, handoff_claimed_by, handoff_claimed_until, handoff_requested_at,"
            f" number FROM sessions WHERE {_UNDER_WAY} AND handoff_state = '{state}'"
        )
        fresh = [row for row in rows if not self._has_expired(state, row[5], row[4])]
        return sorted(fresh, key=lambda row: row[5:])

    def _has_expired(self, state: HandoffStatus | None, requested: int, claimed_until: int | None) -> bool:
        """Return whether `_EXPIRED` holds for these values."""
        now = self._sql.now
        if state == "pending":
            return requested <= now - to_span(REQUEST_LIFE)
        return (
            state == "running"
            and requested <= now - to_span(HANDOFF_LIFE)
            and (claimed_until is None or claimed_until <= now)
        )

    def _expiry(self) -> tuple[Value, ...]:
        """Return the values for `_EXPIRED`."""
        now = self._sql.now
        return now - to_span(REQUEST_LIFE), now - to_span(HANDOFF_LIFE), now
