"""Bindings of sessions to chats, and handoffs to others."""

from datetime import timedelta

import msgspec
from msgspec import Struct

from talaria.contracts.stores.sessions import (
    CLAIM_LIFE,
    EXPIRED,
    HANDOFF_LIFE,
    REQUEST_LIFE,
    Binding,
    HandoffState,
    HandoffStatus,
    HandoffThread,
    PendingHandoff,
)
from talaria.core.addresses import Address, audience_of
from talaria.core.ids import SessionId, WorkerId, is_gone
from talaria.storage.tables.sql import Row, Sql, Value, build_prefix_condition, decode_stored, from_stamp, to_span

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Address).decode


class BindingsTable:
    """SQL implementation of `Bindings`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def bind(self, key: str, session_id: SessionId, address: Address) -> Binding | None:
        """Bind a key to a session and return the replaced binding, if any.

        Also updates the audience of the session.
        """
        row = self._sql.row(
            f"SELECT key, session_id, address, bound_at FROM bindings WHERE key = ?{self._sql.locked}", (key,)
        )
        self._sql.run(
            "INSERT INTO bindings (key, session_id, address, bound_at) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET session_id = excluded.session_id, address = excluded.address, bound_at = excluded.bound_at",
            (key, session_id, _encode(address).decode(), self._sql.now),
        )
        self._update_audience(session_id, address)
        return _to_binding(row) if row else None

    def get(self, key: str) -> Binding | None:
        """Return the binding of a key, or ``None``."""
        row = self._sql.row("SELECT key, session_id, address, bound_at FROM bindings WHERE key = ?", (key,))
        return _to_binding(row) if row else None

    def of_session(self, session_id: SessionId) -> list[Binding]:
        """Return all bindings of a session, most recently bound first."""
        rows = self._sql.rows(
            "SELECT key, session_id, address, bound_at FROM bindings WHERE session_id = ?", (session_id,)
        )
        return _sort_newest_first(rows)

    def under(self, prefix: str) -> list[Binding]:
        """Return all bindings whose key starts with ``prefix``, most recently bound first."""
        condition, values = build_prefix_condition(self._sql, "key", prefix)
        rows = self._sql.rows(f"SELECT key, session_id, address, bound_at FROM bindings WHERE {condition}", values)
        return _sort_newest_first(rows)

    def unbind(self, key: str) -> bool:
        """Remove a binding; ``False`` if there was none."""
        return self._sql.count("DELETE FROM bindings WHERE key = ?", (key,)) > 0

    def _update_audience(self, session_id: SessionId, address: Address) -> None:
        """Set the session's audience from its addresses.

        The new address decides; if it has no audience, the most recently bound address that has one decides.
        """
        audience = audience_of(address) or next(
            filter(None, (audience_of(binding.address) for binding in self.of_session(session_id))), ""
        )
        self._sql.run(
            "UPDATE sessions SET audience = ? WHERE id = ? AND audience <> ?", (audience, session_id, audience)
        )


def _sort_newest_first(rows: list[Row]) -> list[Binding]:
    """Return the bindings, most recently bound first.

    Sorted here because the engine would set up a sort even for an empty result.
    """
    return [_to_binding(row) for row in sorted(rows, key=lambda row: (-row[3], row[0]))]


def _to_binding(row: Row) -> Binding:
    key, session_id, address, bound_at = row
    return Binding(key, session_id, decode_stored(_decode, address), from_stamp(bound_at))


_REASON_LIMIT = 500
_UNFINISHED = "handoffs.state IN ('pending', 'running')"  # exactly as in the index, or SQLite scans all rows
_SELECT = (
    "SELECT handoffs.session_id, sessions.title, handoffs.platform, target, immediate, thread_chat_id, thread_id,"
    " state, requested_at, claimed_by, claimed_until"
    " FROM handoffs JOIN sessions ON sessions.id = handoffs.session_id"
)


class _Progress(Struct, frozen=True):
    """State of a handoff, with the times and the worker that decide who may change it."""

    state: HandoffStatus | None
    requested_at: int | None
    claimed_by: WorkerId | None = None
    claimed_until: int | None = None

    def has_expired(self, now: int) -> bool:
        """Return whether it is unfinished and too old for any worker to act on."""
        requested_at = self.requested_at or 0  # unknown in a backup of an older version
        if self.state == "pending":
            return requested_at <= now - to_span(REQUEST_LIFE)
        return self.state == "running" and requested_at <= now - to_span(HANDOFF_LIFE) and self._claim_is_over(now)

    def is_active(self, now: int) -> bool:
        """Return whether it is pending or running."""
        return self.state in ("pending", "running") and not self.has_expired(now)

    def has_lapsed(self, now: int) -> bool:
        """Return whether it is running but its worker is dead or its claim has lapsed."""
        is_abandoned = self._claim_is_over(now) or (self.claimed_by is not None and is_gone(self.claimed_by))
        return self.state == "running" and is_abandoned and not self.has_expired(now)

    def _claim_is_over(self, now: int) -> bool:
        return self.claimed_until is None or self.claimed_until <= now


class HandoffsTable:
    """SQL implementation of `Handoffs`.

    Each change locks the session's row first, so changes to one handoff are serial.
    """

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def request_handoff(
        self, session_id: SessionId, platform: str, *, target: Address | None = None, immediate: bool = False
    ) -> bool:
        """Request a handoff; ``False`` while one is pending or running, and for an unknown session."""
        if not self._lock(session_id) or self._get_progress(session_id).is_active(self._sql.now):
            return False
        address = _encode(target).decode() if target else None
        self._sql.run(
            "INSERT INTO handoffs (session_id, state, platform, target, immediate, requested_at)"
            " VALUES (?, 'pending', ?, ?, ?, ?) ON CONFLICT (session_id) DO UPDATE SET platform = excluded.platform,"
            " target = excluded.target, immediate = excluded.immediate, requested_at = excluded.requested_at,"
            " claimed_by = NULL, claimed_until = NULL,"
            " thread_id = CASE WHEN handoffs.platform = excluded.platform THEN handoffs.thread_id END",
            (session_id, platform, address, int(immediate), self._sql.now),
        )
        self._set_state(session_id, "pending")
        return True

    def get_handoff_state(self, session_id: SessionId) -> HandoffState | None:
        """Return the state of the last handoff, or ``None`` for an unknown session."""
        row = self._sql.row(
            "SELECT handoff_platform, handoff_error, handoff_state, requested_at, claimed_by, claimed_until"
            " FROM sessions LEFT JOIN handoffs ON handoffs.session_id = sessions.id WHERE sessions.id = ?",
            (session_id,),
        )
        if row is None:
            return None
        platform, error, *rest = row
        progress = _Progress(*rest)
        if progress.has_expired(self._sql.now):
            return HandoffState(state="failed", platform=platform, error=EXPIRED)
        return HandoffState(state=progress.state, platform=platform, error=error)

    def find_active_handoff(self, session_id: SessionId) -> PendingHandoff | None:
        """Return the handoff of a session that is pending or running, if there is one."""
        row = self._sql.row(f"{_SELECT} WHERE handoffs.session_id = ?", (session_id,))
        return _to_handoff(row) if row and _to_progress(row).is_active(self._sql.now) else None

    def withdraw_handoff(self, session_id: SessionId, reason: str) -> bool:
        """Fail a pending or running handoff on behalf of the requester; ``False`` if it has ended."""
        may_withdraw = self._lock_progress(session_id).is_active(self._sql.now)
        return may_withdraw and self._set_state(session_id, "failed", reason)

    def list_pending_handoffs(self) -> list[PendingHandoff]:
        """Return the pending handoffs, oldest request first."""
        rows = [row for row in self._list_by_state("pending") if _to_progress(row).is_active(self._sql.now)]
        return [_to_handoff(row) for row in rows]

    def list_lapsed_handoffs(self) -> list[PendingHandoff]:
        """Return running handoffs whose worker is dead or whose claim has lapsed, oldest request first."""
        rows = [row for row in self._list_by_state("running") if _to_progress(row).has_lapsed(self._sql.now)]
        return [_to_handoff(row) for row in rows]

    def claim_handoff(self, session_id: SessionId, life: timedelta = CLAIM_LIFE) -> bool:
        """Claim a pending or lapsed handoff; ``True`` for exactly one of all claimers."""
        now, progress = self._sql.now, self._lock_progress(session_id)
        is_pending = progress.state == "pending" and not progress.has_expired(now)
        if not is_pending and not progress.has_lapsed(now):
            return False
        self._update(session_id, "claimed_by = ?, claimed_until = ?", self._sql.worker, now + to_span(life))
        return self._set_state(session_id, "running")

    def store_thread(self, session_id: SessionId, thread: HandoffThread | None) -> None:
        """Store the thread created for a handoff, for reuse by later attempts; ``None`` removes it."""
        chat_id, thread_id = (thread.chat_id, thread.thread_id) if thread else (None, None)
        self._update(session_id, "thread_chat_id = ?, thread_id = ?", chat_id, thread_id)

    def complete_handoff(self, session_id: SessionId) -> bool:
        """Mark this worker's running handoff as completed; ``False`` if it has lost the claim or expired."""
        progress = self._lock_progress(session_id)
        if not self._is_ours(progress) or progress.has_expired(self._sql.now):
            return False
        self.store_thread(session_id, None)
        return self._set_state(session_id, "completed")

    def fail_handoff(self, session_id: SessionId, reason: str) -> bool:
        """Mark a pending handoff, or this worker's running one, as failed.

        The reason is cut at 500 characters. ``False`` if the handoff has ended or another worker runs it.
        """
        progress = self._lock_progress(session_id)
        may_fail = progress.state == "pending" or self._is_ours(progress)
        return may_fail and self._set_state(session_id, "failed", reason)

    def _is_ours(self, progress: _Progress) -> bool:
        return progress.state == "running" and progress.claimed_by == self._sql.worker

    def _lock(self, session_id: SessionId) -> bool:
        """Lock the session's row until the transaction ends; ``False`` if there is no such session."""
        return self._sql.row(f"SELECT id FROM sessions WHERE id = ?{self._sql.locked}", (session_id,)) is not None

    def _lock_progress(self, session_id: SessionId) -> _Progress:
        self._lock(session_id)
        return self._get_progress(session_id)

    def _get_progress(self, session_id: SessionId) -> _Progress:
        row = self._sql.row(
            "SELECT state, requested_at, claimed_by, claimed_until FROM handoffs WHERE session_id = ?", (session_id,)
        )
        return _Progress(*row) if row else _Progress(None, None)

    def _set_state(self, session_id: SessionId, state: HandoffStatus, error: str | None = None) -> bool:
        """Set the state of the handoff and copy it to the session's row."""
        self._update(session_id, "state = ?, error = ?", state, error and error[:_REASON_LIMIT])
        self._sql.run(
            "UPDATE sessions SET (handoff_state, handoff_platform, handoff_error) ="
            " (SELECT state, platform, error FROM handoffs WHERE session_id = ?) WHERE id = ?",
            (session_id, session_id),
        )
        return True

    def _update(self, session_id: SessionId, assignments: str, *values: Value) -> None:
        self._sql.run(f"UPDATE handoffs SET {assignments} WHERE session_id = ?", (*values, session_id))

    def _list_by_state(self, state: HandoffStatus) -> list[Row]:
        return self._sql.rows(
            f"{_SELECT} WHERE {_UNFINISHED} AND state = ? ORDER BY requested_at, sessions.number", (state,)
        )


def _to_progress(row: Row) -> _Progress:
    return _Progress(*row[-4:])


def _to_handoff(row: Row) -> PendingHandoff:
    session_id, title, platform, target, immediate, thread_chat_id, thread_id, *_ = row
    return PendingHandoff(
        session_id=session_id,
        title=title,
        platform=platform,
        target=_decode(target) if target else None,
        immediate=bool(immediate),
        thread=HandoffThread(thread_chat_id, thread_id) if thread_id is not None else None,
    )
