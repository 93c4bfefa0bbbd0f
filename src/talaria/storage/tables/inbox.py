"""Pending messages, one queue per session."""

from collections.abc import Sequence

from msgspec import structs

from talaria.contracts.stores.inbox import Arrival, InboxItem, SessionClaim
from talaria.contracts.stores.leases import Leases
from talaria.core.ids import SessionId, TurnId
from talaria.storage.tables.sql import Row, Sql, from_stamp

_COLUMNS = "id, session_id, source, external_id, payload, kind, priority, state, received_at, turn_id"


class InboxTable:
    """SQL implementation of `Inbox`."""

    def __init__(self, sql: Sql, leases: Leases) -> None:
        self._sql = sql
        self._leases = leases

    def add(self, arrival: Arrival) -> InboxItem | None:
        """Store a message; ``None`` if its source and external id are already stored."""
        row = self._sql.row(
            "INSERT INTO inbox (session_id, source, external_id, kind, priority, payload, received_at)"
            f" VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (source, external_id) DO NOTHING RETURNING {_COLUMNS}",
            (
                arrival.session_id,
                arrival.source,
                arrival.external_id,
                arrival.kind,
                arrival.priority,
                arrival.payload,
                self._sql.now,
            ),
        )
        return _to_item(row) if row else None

    def list_unowned(self, most: int) -> list[SessionId]:
        """Return up to ``most`` sessions with waiting messages and no lease, longest waiting first."""
        rows = self._sql.rows(
            "SELECT session_id FROM inbox WHERE state = 'waiting' AND NOT EXISTS (SELECT 1 FROM leases"
            " WHERE name = 'session:' || inbox.session_id AND expires_at > ?)"
            " GROUP BY session_id ORDER BY min(id) LIMIT ?",
            (self._sql.now, most),
        )
        return [row[0] for row in rows]

    def take(self, claim: SessionClaim, turn_id: TurnId, count: int = 1) -> list[InboxItem]:
        """Take the next waiting messages of the claimed session for a turn; raises `LeaseLost`.

        Highest priority first, then oldest first.
        """
        self._leases.check(claim.lease)
        rows = self._sql.rows(
            f"SELECT {_COLUMNS} FROM inbox WHERE state <> 'done' AND state = 'waiting' AND session_id = ?"
            f"{self._sql.locked}",
            (claim.session_id,),
        )
        taken = _sort_items(rows)[:count]
        self._sql.run_many(
            "UPDATE inbox SET state = 'taken', turn_id = ? WHERE id = ?", [(turn_id, item.id) for item in taken]
        )
        return [structs.replace(item, state="taken", turn_id=turn_id) for item in taken]

    def settle(self, ids: Sequence[int]) -> None:
        """Mark messages as done."""
        self._sql.run_many(
            "UPDATE inbox SET state = 'done', settled_at = ? WHERE id = ?", [(self._sql.now, item) for item in ids]
        )

    def put_back(self, turn_id: TurnId) -> int:
        """Set the messages taken by a dead turn back to waiting and return their number."""
        return self._sql.count(
            "UPDATE inbox SET state = 'waiting', turn_id = NULL WHERE turn_id = ? AND state = 'taken'", (turn_id,)
        )

    def unsettled(self, session_id: SessionId | None = None) -> list[InboxItem]:
        """Return the waiting and taken messages of one session, or of all.

        Highest priority first, then oldest first.
        """
        where, values = (" AND session_id = ?", (session_id,)) if session_id else ("", ())
        return _sort_items(self._sql.rows(f"SELECT {_COLUMNS} FROM inbox WHERE state <> 'done'{where}", values))


def _sort_items(rows: list[Row]) -> list[InboxItem]:
    return sorted(map(_to_item, rows), key=lambda item: (-item.priority, item.id))


def _to_item(row: Row) -> InboxItem:
    item_id, session_id, source, external_id, payload, kind, priority, state, received_at, turn_id = row
    return InboxItem(
        id=item_id,
        session_id=session_id,
        source=source,
        external_id=external_id,
        payload=payload,
        kind=kind,
        priority=priority,
        state=state,
        received_at=from_stamp(received_at),
        turn_id=turn_id,
    )
