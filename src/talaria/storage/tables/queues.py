"""Queues of the store: inbox, outbox, completions, updates forwarded to other workers; and event streams."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import structs
from msgspec.structs import replace

from talaria.contracts.stores.queues import (
    UNDELIVERED,
    Arrival,
    InboxItem,
    OutboxFilter,
    OutboxItem,
    Outgoing,
    SessionClaim,
    StreamEvent,
)
from talaria.contracts.stores.turns import Completion, Leases
from talaria.core.addresses import Address
from talaria.core.ids import SessionId, TurnId, WorkerId, is_gone, new_id
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


_INBOX = "id, session_id, source, external_id, payload, kind, priority, state, received_at, turn_id"


class InboxTable:
    """SQL implementation of `Inbox`."""

    def __init__(self, sql: Sql, leases: Leases) -> None:
        self._sql = sql
        self._leases = leases

    def add(self, arrival: Arrival) -> InboxItem | None:
        """Store a message; ``None`` if its source and external id are already stored."""
        row = self._sql.row(
            "INSERT INTO inbox (session_id, source, external_id, kind, priority, payload, received_at)"
            f" VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (source, external_id) DO NOTHING RETURNING {_INBOX}",
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
        return _to_inbox_item(row) if row else None

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
            f"SELECT {_INBOX} FROM inbox WHERE state <> 'done' AND state = 'waiting' AND session_id = ?"
            f"{self._sql.locked}",
            (claim.session_id,),
        )
        taken = _sort_inbox_items(rows)[:count]
        for item in taken:
            self._sql.run("UPDATE inbox SET state = 'taken', turn_id = ? WHERE id = ?", (turn_id, item.id))
        return [structs.replace(item, state="taken", turn_id=turn_id) for item in taken]

    def settle(self, ids: Sequence[int]) -> None:
        """Mark messages as done."""
        for item in ids:
            self._sql.run("UPDATE inbox SET state = 'done', settled_at = ? WHERE id = ?", (self._sql.now, item))

    def put_back(self, turn_id: TurnId) -> int:
        """Set the messages taken by a dead turn back to waiting and return their number."""
        return self._sql.count(
            "UPDATE inbox SET state = 'waiting', turn_id = NULL WHERE turn_id = ? AND state = 'taken'", (turn_id,)
        )

    def list_unsettled(self, session_id: SessionId | None = None) -> list[InboxItem]:
        """Return the waiting and taken messages of one session, or of all.

        Highest priority first, then oldest first.
        """
        where, values = (" AND session_id = ?", (session_id,)) if session_id else ("", ())
        return _sort_inbox_items(self._sql.rows(f"SELECT {_INBOX} FROM inbox WHERE state <> 'done'{where}", values))


def _sort_inbox_items(rows: list[Row]) -> list[InboxItem]:
    return sorted(map(_to_inbox_item, rows), key=lambda item: (-item.priority, item.id))


def _to_inbox_item(row: Row) -> InboxItem:
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

    def mark_sent(self, item_id: int, reference: str) -> bool:
        """Mark an item as sent, with the network's reference; ``False`` if another worker has claimed it."""
        return self._settle(item_id, "state = 'sent', reference = ?, settled_at = ?", (reference, self._sql.now))

    def retry(self, item_id: int, not_before: datetime, error: str) -> bool:
        """Queue an item again for ``not_before``; ``False`` if another worker has claimed it."""
        return self._settle(item_id, "state = 'waiting', not_before = ?, error = ?", (to_stamp(not_before), error))

    def fail(self, item_id: int, error: str) -> bool:
        """Mark an item as failed and store the error; ``False`` if another worker has claimed it."""
        return self._settle(item_id, "state = 'failed', error = ?, settled_at = ?", (error, self._sql.now))

    def requeue(self, item_id: int) -> OutboxItem | None:
        """Make an unsent item due now; ``None`` if it is being sent or was sent."""
        row = self._sql.row(
            "UPDATE outbox SET state = 'waiting', not_before = 0, attempts = 0, settled_at = NULL"
            f" WHERE id = ? AND state IN ('waiting', 'failed') RETURNING {_OUTBOX}",
            (item_id,),
        )
        return _to_outbox_item(row) if row else None

    def drop(self, item_id: int) -> bool:
        """Delete an unsent item; ``False`` if it is being sent or was sent."""
        return self._sql.count("DELETE FROM outbox WHERE id = ? AND state IN ('waiting', 'failed')", (item_id,)) > 0

    def find(self, outbox_filter: OutboxFilter = UNDELIVERED) -> list[OutboxItem]:
        """Return matching items, oldest first."""
        values: dict[str, Value] = {}
        if outbox_filter.session_id:
            values["session_id = ?"] = outbox_filter.session_id
        if outbox_filter.key:
            values["key = ?"] = outbox_filter.key
        if outbox_filter.platform:
            values["state IN ('waiting', 'sending') AND platform = ?"] = outbox_filter.platform
        conditions = " AND ".join([*values, "TRUE" if outbox_filter.sent else "state <> 'sent'"])
        limit = "" if outbox_filter.limit is None else f" LIMIT {outbox_filter.limit:d}"
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
