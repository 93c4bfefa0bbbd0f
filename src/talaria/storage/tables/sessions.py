"""Sessions and their messages: rows, visibility, and deletion with all dependent rows."""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Protocol

import msgspec
from msgspec import Struct, structs

from talaria.contracts.stores.sessions import (
    SESSION_CHANGES,
    NewSession,
    Session,
    SessionChanges,
    SessionFilter,
    StoredMessage,
    Viewer,
)
from talaria.contracts.stores.turns import DailyUsage, UsageGroup
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId, new_session_id
from talaria.core.messages import Message, Part, Usage, text_of
from talaria.storage.tables.sql import Row, Sql, Value, decode_stored, from_stamp, to_stamp

SEQ_BITS = 24
_MESSAGE = "id, at, role, body, platform_message_id"


class MessageBody(Struct, frozen=True, omit_defaults=True):
    """JSON-encoded part of a message that has no columns of its own."""

    parts: tuple[Part, ...]
    author: str = ""
    model: str = ""
    tokens: int | None = None


_encode_body = msgspec.json.Encoder().encode
_decode_body = msgspec.json.Decoder(MessageBody).decode


class ArrivalLog(Protocol):
    """Engine-specific log of messages in the order in which they were stored; the source of the search index."""

    def note(self, message_id: int, parts: tuple[Part, ...]) -> int:
        """Add a message and return its arrival number."""

    def add_copy(self, message_id: int, copy_id: int) -> int:
        """Add a copy of a stored message and return the arrival number of the copy."""

    def forget(self, first_id: int, last_id: int) -> None:
        """Remove the messages in a range of ids; call before they are deleted."""


class MessagesTable:
    """SQL implementation of `Messages`."""

    def __init__(self, sql: Sql, arrivals: ArrivalLog) -> None:
        self._sql = sql
        self._arrivals = arrivals

    def append(self, session_id: SessionId, messages: Sequence[Message]) -> int:
        """Append messages and return the ``seq`` of the last; raises `NotFound` for an unknown session."""
        found = self._sql.row(
            "UPDATE sessions SET last_seq = last_seq + ?, updated_at = ? WHERE id = ? RETURNING number, last_seq",
            (len(messages), self._sql.now, session_id),
        )
        if found is None:
            raise NotFound(f"There is no session {session_id}.")
        number, last = found
        first = (number << SEQ_BITS) + last - len(messages) + 1
        for message_id, message in enumerate(messages, first):
            body = MessageBody(message.parts, message.author, message.model, message.tokens)
            self._sql.run(
                "INSERT INTO messages (id, arrival, at, role, body, platform_message_id) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    message_id,
                    self._arrivals.note(message_id, message.parts),
                    to_stamp(message.at),
                    message.role,
                    _encode_body(body).decode(),
                    message.platform_message_id,
                ),
            )
        return int(last)

    def load(self, session_id: SessionId, *, after: int = 0, limit: int | None = None) -> list[StoredMessage]:
        """Return the messages after ``after``, oldest first, including those a branch shares with its parents."""
        found: list[StoredMessage] = []
        for number, first, last in self._list_segments(session_id):
            if last > after and (limit is None or len(found) < limit):
                rows = self._sql.rows(
                    f"SELECT {_MESSAGE} FROM messages WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
                    (
                        (number << SEQ_BITS) + max(first - 1, after),
                        (number << SEQ_BITS) + last,
                        (1 << SEQ_BITS) if limit is None else limit - len(found),
                    ),
                )
                found += [_to_stored_message(session_id, row) for row in rows]
        return found

    def last(self, session_id: SessionId, count: int) -> list[StoredMessage]:
        """Return the newest ``count`` messages, oldest first."""
        segments = self._list_segments(session_id)
        return self.load(session_id, after=max(0, segments[-1][2] - count)) if segments else []

    def with_platform_id(self, session_id: SessionId, platform_message_id: str) -> StoredMessage | None:
        """Return the newest message with this id of the network, or ``None``."""
        for number, first, last in reversed(self._list_segments(session_id)):
            row = self._sql.row(
                f"SELECT {_MESSAGE} FROM messages WHERE platform_message_id = ? AND id BETWEEN ? AND ?"
                " ORDER BY id DESC LIMIT 1",
                (platform_message_id, (number << SEQ_BITS) + first, (number << SEQ_BITS) + last),
            )
            if row:
                return _to_stored_message(session_id, row)
        return None

    def _list_segments(self, session_id: SessionId) -> list[tuple[int, int, int]]:
        """Return (session number, first seq, last seq) for each ancestor's part of the transcript, oldest first."""
        segments: list[tuple[int, int, int]] = []
        current_id: str | None = session_id
        last_shared: int | None = None
        while current_id is not None and last_shared != 0:
            row = self._sql.row(
                "SELECT number, parent_id, parent_seq, last_seq FROM sessions WHERE id = ?", (current_id,)
            )
            if row is None:
                break
            number, parent, shared, last = row
            segments.insert(0, (number, shared + 1, last if last_shared is None else last_shared))
            current_id, last_shared = parent, shared if last_shared is None else min(shared, last_shared)
        return segments


def searchable_text(body: str) -> str:
    """Return the text of an encoded message body; raises `StoreCorrupt`."""
    return text_of(_read_body(body).parts)


def _read_body(text: str) -> MessageBody:
    return decode_stored(_decode_body, text)


def _to_stored_message(session_id: SessionId, row: Row) -> StoredMessage:
    message_id, at, role, body_text, platform_message_id = row
    body = _read_body(body_text)
    message = Message(
        role=role,
        parts=body.parts,
        at=from_stamp(at),
        author=body.author,
        model=body.model,
        tokens=body.tokens,
        platform_message_id=platform_message_id,
    )
    return StoredMessage(session_id, message_id & ((1 << SEQ_BITS) - 1), message)


def build_visibility(viewer: Viewer | None) -> list[tuple[str, Value]]:
    """Return (condition, value) pairs on ``sessions`` for a viewer; empty if everything is visible."""
    if viewer is None:
        return []
    own: tuple[str, Value] = ("owner = ?", viewer.owner)
    return [own, ("audience = ?", viewer.audience)] if viewer.audience else [own]


_USAGE = structs.fields(Usage)
_SESSION = (
    "id, parent_id, parent_seq, source, owner, audience, title, model, created_at, updated_at, archived_at, last_seq, "
    + ", ".join(field.name for field in _USAGE)
)


class SessionsTable:
    """SQL implementation of `Sessions`; ``notify`` notifies a topic."""

    def __init__(self, sql: Sql, arrivals: ArrivalLog, notify: Callable[[str], None]) -> None:
        self._sql = sql
        self._arrivals = arrivals
        self._notify = notify

    def create(self, new: NewSession) -> Session:
        """Insert a session; raises `NotFound` for an unknown parent or parent message."""
        if new.parent_id is not None:
            self._check_parent(new.parent_id, new.parent_seq)
        session_id = new.id or new_session_id()
        created_at = self._sql.now if new.created_at is None else to_stamp(new.created_at)
        row = self._sql.row(
            "INSERT INTO sessions (id, parent_id, parent_seq, last_seq, source, owner, audience, title, title_folded,"
            f" model, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING {_SESSION}",
            (
                session_id,
                new.parent_id,
                new.parent_seq,
                new.parent_seq,
                new.source,
                new.owner,
                new.audience,
                new.title,
                new.title.casefold(),
                new.model,
                created_at,
                created_at,
            ),
        )
        assert row is not None
        self._notify(SESSION_CHANGES)
        return _to_session(row)

    def get(self, session_id: SessionId) -> Session | None:
        """Return a session, or ``None``."""
        row = self._sql.row(f"SELECT {_SESSION} FROM sessions WHERE id = ?", (session_id,))
        return _to_session(row) if row else None

    def find(self, session_filter: SessionFilter) -> list[Session]:
        """Return matching sessions, last updated first, or those that cost most first.

        ``matching`` selects by exact id or title; if no session has it, by the start of the id or a part of the title.
        """
        conditions, values = _build_conditions(session_filter)
        if session_filter.matching:
            exact = self._select(
                [*conditions, "(id = ? OR title_folded = ?)"],
                [*values, session_filter.matching, session_filter.matching.casefold()],
                session_filter,
            )
            if exact:
                return exact
            conditions.append("(substr(id, 1, ?) = ? OR title_folded LIKE ? ESCAPE '\\')")
            values += [
                len(session_filter.matching),
                session_filter.matching,
                f"%{_escape_like(session_filter.matching.casefold())}%",
            ]
        return self._select(conditions, values, session_filter)

    def update(self, session_id: SessionId, changes: SessionChanges) -> Session:
        """Apply the given changes and return the session; raises `NotFound`."""
        changed = {name: value for name, value in structs.asdict(changes).items() if value is not None}
        archived = changed.pop("archived", None)
        if archived is not None:
            changed["archived_at"] = self._sql.now if archived else None
        if changes.updated_at is not None:
            changed["updated_at"] = to_stamp(changes.updated_at)
        if "title" in changed:
            changed["title_folded"] = changed["title"].casefold()
        assignments = ", ".join(f"{name} = ?" for name in changed) or "id = id"
        row = self._sql.row(
            f"UPDATE sessions SET {assignments} WHERE id = ? RETURNING {_SESSION}", (*changed.values(), session_id)
        )
        if row is None:
            raise NotFound(f"There is no session {session_id}.")
        self._notify(SESSION_CHANGES)
        return _to_session(row)

    def delete(self, session_id: SessionId) -> bool:
        """Delete a session and all dependent rows; ``False`` if it does not exist.

        Messages that branches share with it are copied to them first, and the branches move to its parent.
        """
        self._lock_family(session_id)
        row = self._sql.row("SELECT number, parent_id, parent_seq FROM sessions WHERE id = ?", (session_id,))
        if row is None:
            return False
        number, parent_id, parent_seq = row
        for child, shared in self._sql.rows(
            "SELECT number, parent_seq FROM sessions WHERE parent_id = ?", (session_id,)
        ):
            self._copy_messages(number, child, parent_seq + 1, shared)
            self._sql.run(
                "UPDATE sessions SET parent_id = ?, parent_seq = ? WHERE number = ?",
                (parent_id, min(parent_seq, shared), child),
            )
        self._delete_messages(number)
        for statement in DEPENDENTS:
            self._sql.run(statement, (session_id,))
        self._sql.run("DELETE FROM sessions WHERE number = ?", (number,))
        self._notify(SESSION_CHANGES)
        return True

    def _check_parent(self, parent_id: SessionId, parent_seq: int) -> None:
        row = self._sql.row(f"SELECT last_seq FROM sessions WHERE id = ?{self._sql.locked}", (parent_id,))
        if row is None or row[0] < parent_seq:
            raise NotFound(f"There is no message {parent_seq} in session {parent_id} to branch from.")

    def _lock_family(self, session_id: SessionId) -> None:
        """Lock a session, its parent and its branches, in the order of their numbers to avoid deadlocks."""
        self._sql.rows(
            "SELECT number FROM sessions WHERE id = ? OR parent_id = ?"
            f" OR id = (SELECT parent_id FROM sessions WHERE id = ?) ORDER BY number{self._sql.locked}",
            (session_id, session_id, session_id),
        )

    def _select(self, conditions: list[str], values: list[Value], session_filter: SessionFilter) -> list[Session]:
        order = "cost_microdollars DESC, updated_at DESC" if session_filter.dearest_first else "updated_at DESC"
        statement = f"SELECT {_SESSION} FROM sessions WHERE {' AND '.join(conditions)} ORDER BY {order}, number DESC"
        if session_filter.limit is not None:
            return [_to_session(row) for row in self._sql.rows(f"{statement} LIMIT ?", [*values, session_filter.limit])]
        return [_to_session(row) for row in self._sql.rows(statement, values)]

    def _copy_messages(self, source: int, target: int, first: int, last: int) -> None:
        rows = self._sql.rows(
            "SELECT id, at, role, body, platform_message_id FROM messages WHERE id BETWEEN ? AND ? ORDER BY id",
            ((source << SEQ_BITS) + first, (source << SEQ_BITS) + last),
        )
        for message_id, *columns in rows:
            copy_id = message_id + ((target - source) << SEQ_BITS)
            self._sql.run(
                "INSERT INTO messages (id, arrival, at, role, body, platform_message_id) VALUES (?, ?, ?, ?, ?, ?)",
                (copy_id, self._arrivals.add_copy(message_id, copy_id), *columns),
            )

    def _delete_messages(self, number: int) -> None:
        first, last = number << SEQ_BITS, ((number + 1) << SEQ_BITS) - 1
        self._arrivals.forget(first, last)
        self._sql.run("DELETE FROM messages WHERE id BETWEEN ? AND ?", (first, last))


DEPENDENTS = (
    "DELETE FROM session_values WHERE session_id = ?",
    "DELETE FROM bindings WHERE session_id = ?",
    "DELETE FROM handoffs WHERE session_id = ?",
    "DELETE FROM forwarded_updates WHERE session_id = ?",
    "DELETE FROM delegated_tasks WHERE session_id = ? AND background = 0",
    "DELETE FROM inbox WHERE session_id = ?",
    "DELETE FROM steps WHERE turn_id IN (SELECT id FROM turns WHERE session_id = ?)",
    "DELETE FROM turns WHERE session_id = ?",
    "DELETE FROM outbox WHERE session_id = ?",
    "DELETE FROM completions WHERE session_id = ?",
    "DELETE FROM responses WHERE session_id = ?",
    "DELETE FROM conversation_names WHERE session_id = ?",
    "DELETE FROM events WHERE stream IN (SELECT 'run:' || id FROM api_runs WHERE session_id = ?)",
    "DELETE FROM streams WHERE name IN (SELECT 'run:' || id FROM api_runs WHERE session_id = ?)",
    "DELETE FROM api_runs WHERE session_id = ?",
    "DELETE FROM events WHERE stream = 'session:' || ?",
    "DELETE FROM streams WHERE name = 'session:' || ?",
    "DELETE FROM events WHERE stream = 'live:' || ?",
    "DELETE FROM streams WHERE name = 'live:' || ?",
    "DELETE FROM events WHERE stream = 'goal:' || ?",
    "DELETE FROM streams WHERE name = 'goal:' || ?",
    "DELETE FROM leases WHERE name = 'session:' || ?",
    "DELETE FROM accounts WHERE name = 'session:' || ?",
    "DELETE FROM holds WHERE account = 'session:' || ?",
)


def _build_conditions(session_filter: SessionFilter) -> tuple[list[str], list[Value]]:
    conditions, values = ["1 = 1"], list[Value]()
    if session_filter.archived is not None:
        conditions.append("archived_at IS NOT NULL" if session_filter.archived else "archived_at IS NULL")
    if session_filter.titled is not None:
        conditions.append("title <> ''" if session_filter.titled else "title = ''")
    columns = {
        "id": session_filter.id,
        "source": session_filter.source or None,
        "owner": session_filter.owner,
        "parent_id": session_filter.parent_id,
    }
    for column, value in columns.items():
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    for condition, limit in build_visibility(session_filter.seen_by):
        conditions.append(condition)
        values.append(limit)
    if session_filter.updated_before is not None:
        conditions.append("updated_at < ?")
        values.append(to_stamp(session_filter.updated_before))
    if session_filter.updated_after is not None:
        conditions.append("updated_at > ?")
        values.append(to_stamp(session_filter.updated_after))
    return conditions, values


def _escape_like(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _to_session(row: Row) -> Session:
    (
        session_id,
        parent_id,
        parent_seq,
        source,
        owner,
        audience,
        title,
        model,
        created,
        updated,
        archived,
        last_seq,
        *usage,
    ) = row
    return Session(
        id=session_id,
        source=source,
        created_at=from_stamp(created),
        updated_at=from_stamp(updated),
        title=title,
        owner=owner,
        audience=audience,
        model=model,
        parent_id=parent_id,
        parent_seq=parent_seq,
        message_count=last_seq,
        archived_at=None if archived is None else from_stamp(archived),
        usage=Usage(*usage),
    )


_COUNTERS = tuple(field.name for field in _USAGE)
_FIRST_DAY = date(1970, 1, 1)
_DAY = 86_400_000_000  # microseconds
_SUMS = ("turns", "unpriced_calls", *_COUNTERS)
_ADD = (
    f"INSERT INTO daily_usage (day, model, surface, owner, {', '.join(_SUMS)})"
    f" SELECT ?, CASE WHEN ? = '' THEN model ELSE ? END, source, owner, {', '.join('?' * len(_SUMS))}"
    " FROM sessions WHERE id = ? ON CONFLICT (day, model, surface, owner) DO UPDATE"
    f" SET {', '.join(f'{name} = daily_usage.{name} + excluded.{name}' for name in _SUMS)}"
)


class UsageTable:
    """SQL implementation of `UsageLog`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def add(
        self,
        session_id: SessionId,
        usage: Usage,
        *,
        model: str = "",
        turns: int = 0,
        has_price: bool = True,
        at: datetime | None = None,
    ) -> None:
        """Add to the counters of a session and of the day, today's without a time."""
        counts = structs.astuple(usage)
        sums = ", ".join(f"{name} = {name} + ?" for name in _COUNTERS)
        self._sql.run(f"UPDATE sessions SET {sums} WHERE id = ?", (*counts, session_id))
        unpriced = 0 if has_price else usage.calls
        day = (self._sql.now if at is None else to_stamp(at)) // _DAY
        self._sql.run(_ADD, (day, model, model, turns, unpriced, *counts, session_id))

    def by_day(self, group: UsageGroup, first: date, last: date, *, owner: str | None = None) -> list[DailyUsage]:
        """Return the usage of each day and member of a group, oldest first."""
        condition, values = ("", ()) if owner is None else (" AND owner = ?", (owner,))
        rows = self._sql.rows(
            f"SELECT day, {group}, {', '.join(f'sum({name})' for name in _SUMS)} FROM daily_usage"
            f" WHERE day BETWEEN ? AND ?{condition} GROUP BY day, {group} ORDER BY day, {group}{self._sql.bytewise}",
            ((first - _FIRST_DAY).days, (last - _FIRST_DAY).days, *values),
        )
        return [_to_daily_usage(row) for row in rows]


def _to_daily_usage(row: Row) -> DailyUsage:
    day, member, turns, unpriced, *counts = row
    return DailyUsage(
        _FIRST_DAY + timedelta(days=int(day)), member, int(turns), int(unpriced), Usage(*map(int, counts))
    )
