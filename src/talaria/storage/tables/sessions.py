"""Conversations: the rows that messages, bindings and work hang on."""

from msgspec import structs

from talaria.contracts.stores.sessions import NewSession, Session, SessionChanges, SessionFilter
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId, new_session_id
from talaria.core.messages import Usage
from talaria.storage.sql import Row, Sql, Value, from_stamp, maybe_moment, to_stamp
from talaria.storage.tables.messages import SEQ_BITS, Arrivals
from talaria.storage.tables.sight import visible_to

_USAGE = structs.fields(Usage)
_COLUMNS = (
    "id, parent_id, parent_seq, source, owner, audience, title, model, created_at, updated_at, archived_at, last_seq, "
    + ", ".join(field.name for field in _USAGE)
)


class SessionsTable:
    """Implements `Sessions`."""

    def __init__(self, sql: Sql, arrivals: Arrivals) -> None:
        self._sql = sql
        self._arrivals = arrivals

    def create(self, new: NewSession) -> Session:
        """Start a conversation, or raise `NotFound` for a parent that is not there."""
        if new.parent_id is not None:
            self._check_parent(new.parent_id, new.parent_seq)
        session_id = new.id or new_session_id()
        row = self._sql.row(
            "INSERT INTO sessions (id, parent_id, parent_seq, last_seq, source, owner, audience, title, title_folded,"
            f" model, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING {_COLUMNS}",
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
                self._sql.now,
                self._sql.now,
            ),
        )
        assert row is not None
        return _session(row)

    def get(self, session_id: SessionId) -> Session | None:
        """Return one conversation, or ``None``."""
        row = self._sql.row(f"SELECT {_COLUMNS} FROM sessions WHERE id = ?", (session_id,))
        return _session(row) if row else None

    def find(self, wanted: SessionFilter) -> list[Session]:
        """Return those that fit, last used first."""
        conditions, values = _conditions(wanted)
        if wanted.matching:
            exact = self._select(
                [*conditions, "(id = ? OR title_folded = ?)"],
                [*values, wanted.matching, wanted.matching.casefold()],
                wanted,
            )
            if exact:
                return exact
            conditions.append("(substr(id, 1, ?) = ? OR title_folded LIKE ? ESCAPE '\\')")
            values += [len(wanted.matching), wanted.matching, f"%{_escaped(wanted.matching.casefold())}%"]
        return self._select(conditions, values, wanted)

    def update(self, session_id: SessionId, changes: SessionChanges) -> Session:
        """Change what is given and return the result, or raise `NotFound`."""
        given = {name: value for name, value in structs.asdict(changes).items() if value is not None}
        archived = given.pop("archived", None)
        if archived is not None:
            given["archived_at"] = self._sql.now if archived else None
        if "title" in given:
            given["title_folded"] = given["title"].casefold()
        assignments = ", ".join(f"{name} = ?" for name in given) or "id = id"
        row = self._sql.row(
            f"UPDATE sessions SET {assignments} WHERE id = ? RETURNING {_COLUMNS}", (*given.values(), session_id)
        )
        if row is None:
            raise NotFound(f"There is no session {session_id}.")
        return _session(row)

    def add_usage(self, session_id: SessionId, usage: Usage) -> None:
        """Add to the counters."""
        sums = ", ".join(f"{field.name} = {field.name} + ?" for field in _USAGE)
        self._sql.run(f"UPDATE sessions SET {sums} WHERE id = ?", (*structs.astuple(usage), session_id))

    def delete(self, session_id: SessionId) -> bool:
        """Remove a conversation and all that hangs on it; branches keep the past they share."""
        self._hold_family(session_id)
        row = self._sql.row("SELECT number, parent_id, parent_seq FROM sessions WHERE id = ?", (session_id,))
        if row is None:
            return False
        number, parent_id, parent_seq = row
        for child, shared in self._sql.rows(
            "SELECT number, parent_seq FROM sessions WHERE parent_id = ?", (session_id,)
        ):
            self._copy(number, child, parent_seq + 1, shared)
            self._sql.run(
                "UPDATE sessions SET parent_id = ?, parent_seq = ? WHERE number = ?",
                (parent_id, min(parent_seq, shared), child),
            )
        self._delete_messages(number)
        for statement in _DEPENDENTS:
            self._sql.run(statement, (session_id,))
        suffix = f":{session_id}"
        self._sql.run("DELETE FROM state WHERE substr(key, length(key) - ?) = ?", (len(suffix) - 1, suffix))
        self._sql.run("DELETE FROM sessions WHERE number = ?", (number,))
        return True

    def _check_parent(self, parent_id: SessionId, parent_seq: int) -> None:
        row = self._sql.row(f"SELECT last_seq FROM sessions WHERE id = ?{self._sql.locked}", (parent_id,))
        if row is None or row[0] < parent_seq:
            raise NotFound(f"There is no message {parent_seq} in session {parent_id} to branch from.")

    def _hold_family(self, session_id: SessionId) -> None:
        """Keep a session, its parent and its branches as they are; the eldest first, so that nobody waits in a ring."""
        self._sql.rows(
            "SELECT number FROM sessions WHERE id = ? OR parent_id = ?"
            f" OR id = (SELECT parent_id FROM sessions WHERE id = ?) ORDER BY number{self._sql.locked}",
            (session_id, session_id, session_id),
        )

    def _select(self, conditions: list[str], values: list[Value], wanted: SessionFilter) -> list[Session]:
        statement = (
            f"SELECT {_COLUMNS} FROM sessions WHERE {' AND '.join(conditions)} ORDER BY updated_at DESC, number DESC"
        )
        if wanted.limit is not None:
            return [_session(row) for row in self._sql.rows(f"{statement} LIMIT ?", [*values, wanted.limit])]
        return [_session(row) for row in self._sql.rows(statement, values)]

    def _copy(self, source: int, target: int, first: int, last: int) -> None:
        rows = self._sql.rows(
            "SELECT id, at, role, body, platform_message_id FROM messages WHERE id BETWEEN ? AND ? ORDER BY id",
            ((source << SEQ_BITS) + first, (source << SEQ_BITS) + last),
        )
        for message_id, *columns in rows:
            copy_id = message_id + ((target - source) << SEQ_BITS)
            self._sql.run(
                "INSERT INTO messages (id, arrival, at, role, body, platform_message_id) VALUES (?, ?, ?, ?, ?, ?)",
                (copy_id, self._arrivals.note_copy(message_id, copy_id), *columns),
            )

    def _delete_messages(self, number: int) -> None:
        first, last = number << SEQ_BITS, ((number + 1) << SEQ_BITS) - 1
        self._arrivals.forget(first, last)
        self._sql.run("DELETE FROM messages WHERE id BETWEEN ? AND ?", (first, last))


_DEPENDENTS = (
    "DELETE FROM bindings WHERE session_id = ?",
    "DELETE FROM inbox WHERE session_id = ?",
    "DELETE FROM steps WHERE turn_id IN (SELECT id FROM turns WHERE session_id = ?)",
    "DELETE FROM turns WHERE session_id = ?",
    "DELETE FROM outbox WHERE session_id = ?",
    "DELETE FROM completions WHERE session_id = ?",
    "DELETE FROM responses WHERE session_id = ?",
    "DELETE FROM events WHERE stream IN (SELECT 'run:' || id FROM api_runs WHERE session_id = ?)",
    "DELETE FROM streams WHERE name IN (SELECT 'run:' || id FROM api_runs WHERE session_id = ?)",
    "DELETE FROM api_runs WHERE session_id = ?",
    "DELETE FROM events WHERE stream = 'session:' || ?",
    "DELETE FROM streams WHERE name = 'session:' || ?",
    "DELETE FROM events WHERE stream = 'goal:' || ?",
    "DELETE FROM streams WHERE name = 'goal:' || ?",
    "DELETE FROM leases WHERE name = 'session:' || ?",
)


def _conditions(wanted: SessionFilter) -> tuple[list[str], list[Value]]:
    conditions, values = ["1 = 1"], list[Value]()
    if wanted.archived is not None:
        conditions.append("archived_at IS NOT NULL" if wanted.archived else "archived_at IS NULL")
    if wanted.titled is not None:
        conditions.append("title <> ''" if wanted.titled else "title = ''")
    columns = {
        "id": wanted.id,
        "source": wanted.source or None,
        "owner": wanted.owner,
        "parent_id": wanted.parent_id,
    }
    for column, value in columns.items():
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    for condition, limit in visible_to(wanted.seen_by):
        conditions.append(condition)
        values.append(limit)
    if wanted.updated_before is not None:
        conditions.append("updated_at < ?")
        values.append(to_stamp(wanted.updated_before))
    return conditions, values


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _session(row: Row) -> Session:
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
        archived_at=maybe_moment(archived),
        usage=Usage(*usage),
    )
