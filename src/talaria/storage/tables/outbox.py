"""Replies waiting to be sent, in order for each address."""

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from talaria.contracts.stores.outbox import UNDELIVERED, OutboxFilter, OutboxItem, Outgoing
from talaria.core.addresses import Address
from talaria.core.ids import WorkerId, is_gone
from talaria.storage.tables.sql import Row, Sql, Value, decode_stored, from_stamp, to_span, to_stamp

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Address).decode
_COLUMNS = "id, key, session_id, address, payload, turn_id, state, attempts, created_at, error, reference"


class OutboxTable:
    """SQL implementation of `Outbox`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def add(self, outgoing: Outgoing) -> OutboxItem | None:
        """Queue a delivery; ``None`` if its key is already stored."""
        row = self._sql.row(
            "INSERT INTO outbox (key, session_id, turn_id, platform, address, payload, created_at)"
            f" VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING RETURNING {_COLUMNS}",
            (
                outgoing.key,
                outgoing.session_id,
                outgoing.turn_id,
                outgoing.address.platform,
                _encode(outgoing.address).decode(),
                outgoing.payload,
                self._sql.now,
            ),
        )
        return _to_item(row) if row else None

    def claim(self, platform: str, duration: timedelta, count: int = 16) -> list[OutboxItem]:
        """Mark due items as being sent by this worker and return them, at most one per address.

        Also claims items of dead workers and of expired claims, with ``doubtful`` set: they may have been sent already.
        """
        gone = self._list_gone_senders(platform)
        abandoned = f" OR (state = 'sending' AND claimed_by IN ({', '.join('?' * len(gone))}))" if gone else ""
        due = self._sql.rows(
            f"SELECT {_COLUMNS} FROM outbox WHERE platform = ? AND ((state = 'waiting' AND not_before <= ?)"
            f" OR (state = 'sending' AND claimed_until <= ?){abandoned}) AND NOT EXISTS"
            " (SELECT 1 FROM outbox AS earlier WHERE earlier.address = outbox.address AND earlier.id < outbox.id"
            f" AND earlier.state IN ('waiting', 'sending')) ORDER BY id LIMIT ?{self._sql.skip_locked}",
            (platform, self._sql.now, self._sql.now, *gone, count),
        )
        self._sql.run_many(
            "UPDATE outbox SET state = 'sending', attempts = attempts + 1, claimed_by = ?, claimed_until = ?"
            " WHERE id = ?",
            [(self._sql.worker, self._sql.now + to_span(duration), row[0]) for row in due],
        )
        return [
            replace(item, state="sending", attempts=item.attempts + 1, doubtful=item.state == "sending")
            for item in map(_to_item, due)
        ]

    def sent(self, item_id: int, reference: str) -> bool:
        """Mark an item as sent, with the network's reference; ``False`` if another worker has claimed it."""
        return self._settle(item_id, "state = 'sent', reference = ?, settled_at = ?", (reference, self._sql.now))

    def retry(self, item_id: int, not_before: datetime, error: str) -> bool:
        """Queue an item again for ``not_before``; ``False`` if another worker has claimed it."""
        return self._settle(item_id, "state = 'waiting', not_before = ?, error = ?", (to_stamp(not_before), error))

    def fail(self, item_id: int, error: str) -> bool:
        """Mark an item as failed and store the error; ``False`` if another worker has claimed it."""
        return self._settle(item_id, "state = 'failed', error = ?, settled_at = ?", (error, self._sql.now))

    def find(self, wanted: OutboxFilter = UNDELIVERED) -> list[OutboxItem]:
        """Return matching items, oldest first."""
        values: dict[str, Value] = {}
        if wanted.session_id:
            values["session_id = ?"] = wanted.session_id
        if wanted.key:
            values["key = ?"] = wanted.key
        if wanted.platform:
            values["state IN ('waiting', 'sending') AND platform = ?"] = wanted.platform
        conditions = " AND ".join([*values, "TRUE" if wanted.sent else "state <> 'sent'"])
        limit = "" if wanted.limit is None else f" LIMIT {wanted.limit:d}"
        rows = self._sql.rows(
            f"SELECT {_COLUMNS} FROM outbox WHERE {conditions} ORDER BY id{limit}", tuple(values.values())
        )
        return [_to_item(row) for row in rows]

    def _list_gone_senders(self, platform: str) -> list[WorkerId]:
        """Return the workers that are certainly dead and have items in state ``sending``."""
        rows = self._sql.rows(
            "SELECT DISTINCT claimed_by FROM outbox WHERE platform = ? AND state = 'sending' AND claimed_by <> ?",
            (platform, self._sql.worker),
        )
        return [worker for (worker,) in rows if is_gone(worker)]

    def _settle(self, item_id: int, assignments: str, values: tuple[Value, ...]) -> bool:
        settled = self._sql.count(
            f"UPDATE outbox SET {assignments} WHERE id = ? AND state = 'sending' AND claimed_by = ?",
            (*values, item_id, self._sql.worker),
        )
        return settled > 0


def _to_item(row: Row) -> OutboxItem:
    item_id, key, session_id, address, payload, turn_id, state, attempts, created_at, error, reference = row
    return OutboxItem(
        id=item_id,
        key=key,
        session_id=session_id,
        address=decode_stored(_decode, address),
        payload=payload,
        turn_id=turn_id,
        state=state,
        attempts=attempts,
        created_at=from_stamp(created_at),
        error=error,
        reference=reference,
    )
