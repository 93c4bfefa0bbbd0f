"""Queues of the store: outbox, completions, updates forwarded to other workers; and event streams."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from talaria.contracts.stores.completions import Completion
from talaria.contracts.stores.events import StreamEvent
from talaria.contracts.stores.outbox import UNDELIVERED, OutboxFilter, OutboxItem, Outgoing
from talaria.core.addresses import Address
from talaria.core.ids import SessionId, WorkerId, is_gone, new_id
from talaria.storage.tables.sql import Row, Sql, Value, decode_stored, from_stamp, to_span, to_stamp


class EventsTable:
    """SQL implementation of `Events`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def append(self, stream: str, events: Sequence[tuple[str, str]]) -> int:
        """Append (kind, payload) pairs to a stream and return the last sequence number."""
        row = self._sql.row(
            "INSERT INTO streams (name, last_seq) VALUES (?, ?) ON CONFLICT (name) DO UPDATE"
            " SET last_seq = streams.last_seq + excluded.last_seq RETURNING last_seq",
            (stream, len(events)),
        )
        assert row is not None
        last = int(row[0])
        self._sql.run_many(
            "INSERT INTO events (stream, seq, at, kind, payload) VALUES (?, ?, ?, ?, ?)",
            [
                (stream, seq, self._sql.now, kind, payload)
                for seq, (kind, payload) in enumerate(events, last - len(events) + 1)
            ],
        )
        return last

    def after(self, stream: str, seq: int, limit: int = 1000) -> list[StreamEvent]:
        """Return up to ``limit`` events with a sequence number above ``seq``, in order."""
        rows = self._sql.rows(
            "SELECT stream, seq, at, kind, payload FROM events WHERE stream = ? AND seq > ? ORDER BY seq LIMIT ?",
            (stream, seq, limit),
        )
        return [StreamEvent(name, number, from_stamp(at), kind, payload) for name, number, at, kind, payload in rows]

    def drop(self, stream: str, through: int | None = None) -> None:
        """Delete a stream, or with ``through`` only its events up to that number.

        The remaining events keep their numbers.
        """
        if through is not None:
            self._sql.run("DELETE FROM events WHERE stream = ? AND seq <= ?", (stream, through))
            return
        self._sql.run("DELETE FROM events WHERE stream = ?", (stream,))
        self._sql.run("DELETE FROM streams WHERE name = ?", (stream,))


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Address).decode
_OUTBOX = "id, key, session_id, address, payload, turn_id, state, attempts, created_at, error, reference"


class OutboxTable:
    """SQL implementation of `Outbox`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def add(self, outgoing: Outgoing) -> OutboxItem | None:
        """Queue a delivery; ``None`` if its key is already stored."""
        row = self._sql.row(
            "INSERT INTO outbox (key, session_id, turn_id, platform, address, payload, created_at)"
            f" VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING RETURNING {_OUTBOX}",
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
        return _to_outbox_item(row) if row else None

    def claim(self, platform: str, duration: timedelta, count: int = 16) -> list[OutboxItem]:
        """Mark due items as being sent by this worker and return them, at most one per address.

        Also claims items of dead workers and of expired claims, with ``doubtful`` set: they may have been sent already.
        """
        gone = self._list_gone_senders(platform)
        abandoned = f" OR (state = 'sending' AND claimed_by IN ({', '.join('?' * len(gone))}))" if gone else ""
        due = self._sql.rows(
            f"SELECT {_OUTBOX} FROM outbox WHERE platform = ? AND ((state = 'waiting' AND not_before <= ?)"
            f" OR (state = 'sending' AND claimed_until <= ?){abandoned}) AND NOT EXISTS"
            " (SELECT 1 FROM outbox AS earlier WHERE earlier.address = outbox.address AND earlier.id < outbox.id"
            f" AND earlier.state IN ('waiting', 'sending')) ORDER BY id LIMIT ?{self._sql.skip_locked}",
            (platform, self._sql.now, self._sql.now, *gone, count),
        )
        for row in due:
            self._sql.run(
                "UPDATE outbox SET state = 'sending', attempts = attempts + 1, claimed_by = ?, claimed_until = ?"
                " WHERE id = ?",
                (self._sql.worker, self._sql.now + to_span(duration), row[0]),
            )
        return [
            replace(item, state="sending", attempts=item.attempts + 1, doubtful=item.state == "sending")
            for item in map(_to_outbox_item, due)
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
            f"SELECT {_OUTBOX} FROM outbox WHERE {conditions} ORDER BY id{limit}", tuple(values.values())
        )
        return [_to_outbox_item(row) for row in rows]

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


def _to_outbox_item(row: Row) -> OutboxItem:
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


class CompletionsTable:
    """SQL implementation of `Completions`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def add(self, session_id: SessionId, source: str, external_id: str, payload: str) -> bool:
        """Store a completion; ``False`` if its source and external id are already stored."""
        added = self._sql.count(
            "INSERT INTO completions (session_id, source, external_id, payload, created_at) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (source, external_id) DO NOTHING",
            (session_id, source, external_id, payload, self._sql.now),
        )
        return added > 0

    def take(self, session_id: SessionId) -> list[Completion]:
        """Take all pending completions of a session, oldest first, each exactly once.

        The caller must store their report in the same transaction.
        """
        rows = self._sql.rows(
            "UPDATE completions SET taken_at = ? WHERE session_id = ? AND taken_at IS NULL"
            " RETURNING id, session_id, source, external_id, payload, created_at",
            (self._sql.now, session_id),
        )
        return sorted(map(_to_completion, rows), key=lambda completion: completion.id)

    def waiting(self) -> list[SessionId]:
        """Return the sessions with pending completions, longest waiting first."""
        rows = self._sql.rows(
            "SELECT session_id FROM completions WHERE taken_at IS NULL GROUP BY session_id ORDER BY min(id)"
        )
        return [row[0] for row in rows]


def _to_completion(row: Row) -> Completion:
    number, session_id, source, external_id, payload, created_at = row
    return Completion(
        id=number,
        session_id=session_id,
        source=source,
        external_id=external_id,
        payload=payload,
        created_at=from_stamp(created_at),
    )


class ForwardedUpdatesTable:
    """SQL implementation of `ForwardedUpdates`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def add(self, worker: WorkerId, session_id: SessionId, body: str) -> None:
        """Store an encoded update for a worker."""
        self._sql.run(
            "INSERT INTO forwarded_updates (id, worker, session_id, body) VALUES (?, ?, ?, ?)",
            (new_id(), worker, session_id, body),
        )

    def take(self, worker: WorkerId) -> list[str]:
        """Remove the updates for a worker and return them, oldest first."""
        rows = self._sql.rows("DELETE FROM forwarded_updates WHERE worker = ? RETURNING id, body", (worker,))
        return [body for _, body in sorted(rows)]

    def workers(self) -> list[WorkerId]:
        """Return the workers that updates are stored for, in order."""
        return sorted(WorkerId(row[0]) for row in self._sql.rows("SELECT DISTINCT worker FROM forwarded_updates"))
