"""The waiting lines of arrivals, one for each conversation."""

from collections.abc import Sequence

from msgspec import structs

from talaria.contracts.stores.inbox import Arrival, InboxItem, SessionClaim
from talaria.contracts.stores.leases import Leases
from talaria.core.ids import SessionId, TurnId
from talaria.storage.sql import Row, Sql, from_stamp

_COLUMNS = "id, session_id, source, external_id, payload, kind, priority, state, received_at, turn_id"


class InboxTable:
    """Implements `Inbox`."""

    def __init__(self, sql: Sql, leases: Leases) -> None:
        self._sql = sql
        self._leases = leases

    def add(self, arrival: Arrival) -> InboxItem | None:
        """Put something in, or return ``None`` for what came before."""
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
        return _item(row) if row else None

    def unowned(self, most: int) -> list[SessionId]:
        """Return conversations in which something waits and which have no owner, longest waiting first."""
        rows = self._sql.rows(
            "SELECT session_id FROM inbox WHERE state = 'waiting' AND NOT EXISTS (SELECT 1 FROM leases"
            " WHERE name = 'session:' || inbox.session_id AND expires_at > ?)"
            " GROUP BY session_id ORDER BY min(id) LIMIT ?",
            (self._sql.now, most),
        )
        return [row[0] for row in rows]

    def take(self, claim: SessionClaim, turn_id: TurnId, count: int = 1) -> list[InboxItem]:
        """Hand out what is next in the claimed conversation, as part of a turn; raises `LeaseLost`."""
        self._leases.check(claim.lease)
        rows = self._sql.rows(
            f"SELECT {_COLUMNS} FROM inbox WHERE state <> 'done' AND state = 'waiting' AND session_id = ?"
            f"{self._sql.locked}",
            (claim.session_id,),
        )
        taken = _in_order(rows)[:count]
        self._sql.run_many(
            "UPDATE inbox SET state = 'taken', turn_id = ? WHERE id = ?", [(turn_id, item.id) for item in taken]
        )
        return [structs.replace(item, state="taken", turn_id=turn_id) for item in taken]

    def settle(self, ids: Sequence[int]) -> None:
        """Mark as worked off."""
        self._sql.run_many(
            "UPDATE inbox SET state = 'done', settled_at = ? WHERE id = ?", [(self._sql.now, item) for item in ids]
        )

    def put_back(self, turn_id: TurnId) -> int:
        """Make what a dead turn had taken wait again, and return how much that was."""
        return self._sql.count(
            "UPDATE inbox SET state = 'waiting', turn_id = NULL WHERE turn_id = ? AND state = 'taken'", (turn_id,)
        )

    def unsettled(self, session_id: SessionId | None = None) -> list[InboxItem]:
        """Return what waits and what is being worked on in a conversation, or in all of them, in order."""
        where, values = (" AND session_id = ?", (session_id,)) if session_id else ("", ())
        return _in_order(self._sql.rows(f"SELECT {_COLUMNS} FROM inbox WHERE state <> 'done'{where}", values))


def _in_order(rows: list[Row]) -> list[InboxItem]:
    return sorted(map(_item, rows), key=lambda item: (-item.priority, item.id))


def _item(row: Row) -> InboxItem:
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
