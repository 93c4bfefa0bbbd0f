"""Background processes and delegated tasks."""

from talaria.contracts.stores.turns import DelegatedTaskRow, ProcessRow
from talaria.core.ids import SessionId
from talaria.storage.tables.sql import Row, Sql, Value, build_prefix_condition

_PROCESS = "SELECT id, session_id, alive, body, version FROM background_processes"
_TASK = "SELECT key, session_id, background, body FROM delegated_tasks"


class ProcessesTable:
    """SQL implementation of `Processes`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def add(self, row: ProcessRow) -> bool:
        """Add a process; ``False`` if its id is taken."""
        added = self._sql.count(
            "INSERT INTO background_processes (id, session_id, alive, body, version) VALUES (?, ?, ?, ?, 1)"
            " ON CONFLICT (id) DO NOTHING",
            (row.id, row.session_id, int(row.alive), row.body),
        )
        return added > 0

    def replace(self, row: ProcessRow) -> bool:
        """Replace the process that was read with this version; ``False`` if it was changed since."""
        changed = self._sql.count(
            "UPDATE background_processes SET alive = ?, body = ?, version = version + 1 WHERE id = ? AND version = ?",
            (int(row.alive), row.body, row.id, row.version),
        )
        return changed > 0

    def get(self, process_id: str) -> ProcessRow | None:
        """Return a process, or ``None``."""
        row = self._sql.row(f"{_PROCESS} WHERE id = ?", (process_id,))
        return _to_process(row) if row else None

    def delete(self, process_id: str) -> None:
        """Delete a process."""
        self._sql.run("DELETE FROM background_processes WHERE id = ?", (process_id,))

    def find(self, session_id: SessionId | None = None, *, alive: bool = False) -> list[ProcessRow]:
        """Return the processes of a session, or of all, ordered by id; with ``alive`` only those that run."""
        conditions, values = ["1 = 1"], list[Value]()
        if session_id is not None:
            conditions.append("session_id = ?")
            values.append(session_id)
        if alive:
            conditions.append("alive = 1")
        return self._select(" AND ".join(conditions), values)

    def with_prefix(self, prefix: str) -> list[ProcessRow]:
        """Return the processes whose ids start with ``prefix``, ordered by id."""
        condition, values = build_prefix_condition(self._sql, "id", prefix)
        return self._select(condition, list(values))

    def _select(self, condition: str, values: list[Value]) -> list[ProcessRow]:
        return [_to_process(row) for row in sorted(self._sql.rows(f"{_PROCESS} WHERE {condition}", values))]


class DelegatedTasksTable:
    """SQL implementation of `DelegatedTasks`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def get(self, key: str) -> DelegatedTaskRow | None:
        """Return the tasks stored under a key, or ``None``."""
        row = self._sql.row(f"{_TASK} WHERE key = ?", (key,))
        return _to_task(row) if row else None

    def put(self, row: DelegatedTaskRow) -> None:
        """Add or replace tasks."""
        self._sql.run(
            "INSERT INTO delegated_tasks (key, session_id, background, body) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (key) DO UPDATE SET body = excluded.body",
            (row.key, row.session_id, int(row.background), row.body),
        )

    def delete(self, key: str) -> None:
        """Delete tasks."""
        self._sql.run("DELETE FROM delegated_tasks WHERE key = ?", (key,))

    def of_session(self, session_id: SessionId, *, background: bool) -> list[DelegatedTaskRow]:
        """Return the tasks of a session that run in the background, or those a turn waits for, ordered by key."""
        return self._select("session_id = ? AND background = ?", [session_id, int(background)])

    def in_background(self) -> list[DelegatedTaskRow]:
        """Return all tasks in the background, ordered by key."""
        return self._select("background = 1", [])

    def _select(self, condition: str, values: list[Value]) -> list[DelegatedTaskRow]:
        return [_to_task(row) for row in sorted(self._sql.rows(f"{_TASK} WHERE {condition}", values))]


def _to_process(row: Row) -> ProcessRow:
    process_id, session_id, alive, body, version = row
    return ProcessRow(id=process_id, session_id=session_id, alive=bool(alive), body=body, version=version)


def _to_task(row: Row) -> DelegatedTaskRow:
    key, session_id, background, body = row
    return DelegatedTaskRow(key=key, session_id=session_id, background=bool(background), body=body)
