"""API data: stored responses, idempotency keys and runs."""

from datetime import timedelta

from talaria.contracts.stores.responses import ApiRun, ApiRunState, IdempotentAnswer, StoredResponse
from talaria.core.ids import SessionId
from talaria.storage.tables.sql import Row, Sql, from_stamp, to_span

_RESPONSE = "id, session_id, body, conversation, previous_id"
_RUN = "id, session_id, request, state, error, created_at, updated_at"
_OPEN = "('queued', 'running', 'waiting')"
_DELETE_BATCH = 16  # more than one per new key, so that expired keys do not accumulate


class ResponsesTable:
    """SQL implementation of `Responses`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def put(self, response: StoredResponse) -> None:
        """Insert a response, or replace the body of an existing one."""
        self._sql.run(
            "INSERT INTO responses (id, session_id, body, conversation, previous_id, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET body = excluded.body",
            (
                response.id,
                response.session_id,
                response.body,
                response.conversation,
                response.previous_id,
                self._sql.now,
            ),
        )

    def get(self, response_id: str) -> StoredResponse | None:
        """Return a response, or ``None``."""
        return _to_response(self._sql.row(f"SELECT {_RESPONSE} FROM responses WHERE id = ?", (response_id,)))

    def latest_response(self, conversation: str) -> StoredResponse | None:
        """Return the newest response of a named conversation, or ``None``."""
        return _to_response(
            self._sql.row(
                f"SELECT {_RESPONSE} FROM responses WHERE conversation = ? AND conversation <> ''"
                " ORDER BY created_at DESC, id DESC LIMIT 1",
                (conversation,),
            )
        )

    def delete(self, response_id: str) -> bool:
        """Delete a response; ``False`` if it does not exist."""
        return self._sql.count("DELETE FROM responses WHERE id = ?", (response_id,)) > 0

    def reserve_request(
        self, key: str, fingerprint: str, life: timedelta, *, instead_of: str = ""
    ) -> IdempotentAnswer | None:
        """Reserve an idempotency key and return ``None``, or return the earlier request.

        Replaces an expired reservation, and an unanswered one with the fingerprint ``instead_of``. Deletes up to 16
        expired keys.
        """
        reserved = self._sql.count(
            "INSERT INTO requests (key, fingerprint, expires_at) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET fingerprint = excluded.fingerprint, answer = NULL, expires_at = excluded.expires_at"
            " WHERE requests.expires_at <= ? OR (requests.answer IS NULL AND requests.fingerprint = ?)",
            (key, fingerprint, self._sql.now + to_span(life), self._sql.now, instead_of),
        )
        if reserved:
            self._delete_expired()
            return None
        row = self._sql.row("SELECT fingerprint, answer FROM requests WHERE key = ?", (key,))
        return IdempotentAnswer(*row) if row else None

    def store_answer(self, key: str, fingerprint: str, answer: str, life: timedelta) -> None:
        """Store the answer for repeated requests, unless the key was reserved for another request since."""
        self._sql.run(
            "UPDATE requests SET answer = ?, expires_at = ? WHERE key = ? AND fingerprint = ?",
            (answer, self._sql.now + to_span(life), key, fingerprint),
        )

    def conversation_session(self, name: str) -> SessionId | None:
        """Return the session with a conversation name, or ``None``."""
        row = self._sql.row("SELECT session_id FROM conversation_names WHERE name = ?", (name,))
        return SessionId(row[0]) if row else None

    def name_conversation(self, name: str, session_id: SessionId, *, former: SessionId | None) -> bool:
        """Give a session a name; ``False`` if the name is not that of ``former``, or not free, any more."""
        if former is None:
            statement = "INSERT INTO conversation_names (session_id, name) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
            return self._sql.count(statement, (session_id, name)) > 0
        statement = "UPDATE conversation_names SET session_id = ? WHERE name = ? AND session_id = ?"
        return self._sql.count(statement, (session_id, name, former)) > 0

    def _delete_expired(self) -> None:
        over = self._sql.rows(
            f"SELECT key FROM requests WHERE expires_at <= ? ORDER BY expires_at LIMIT ?{self._sql.skip_locked}",
            (self._sql.now, _DELETE_BATCH),
        )
        if over:
            self._sql.run_many("DELETE FROM requests WHERE key = ?", [(key,) for (key,) in over])


class ApiRunsTable:
    """SQL implementation of `ApiRuns`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def create(self, run: ApiRun) -> ApiRun:
        """Insert a run and return it with its times."""
        row = self._sql.row(
            "INSERT INTO api_runs (id, session_id, request, state, error, created_at, updated_at)"
            f" VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING {_RUN}",
            (run.id, run.session_id, run.request, run.state, run.error, self._sql.now, self._sql.now),
        )
        assert row is not None
        return _to_run(row)

    def get(self, run_id: str) -> ApiRun | None:
        """Return a run, or ``None``."""
        row = self._sql.row(f"SELECT {_RUN} FROM api_runs WHERE id = ?", (run_id,))
        return _to_run(row) if row else None

    def move(self, run_id: str, to: ApiRunState, error: str = "") -> bool:
        """Set the state of a run; ``False`` if it has ended or does not exist."""
        moved = self._sql.count(
            f"UPDATE api_runs SET state = ?, error = ?, updated_at = ? WHERE id = ? AND state IN {_OPEN}",
            (to, error, self._sql.now, run_id),
        )
        return moved > 0

    def open(self) -> list[ApiRun]:
        """Return the runs that have not ended, oldest first."""
        return [
            _to_run(row)
            for row in self._sql.rows(f"SELECT {_RUN} FROM api_runs WHERE state IN {_OPEN} ORDER BY created_at, id")
        ]


def _to_response(row: Row | None) -> StoredResponse | None:
    if row is None:
        return None
    response_id, session_id, body, conversation, previous_id = row
    return StoredResponse(
        id=response_id, session_id=session_id, body=body, conversation=conversation, previous_id=previous_id
    )


def _to_run(row: Row) -> ApiRun:
    run_id, session_id, request, state, error, created_at, updated_at = row
    return ApiRun(
        id=run_id,
        session_id=session_id,
        request=request,
        state=state,
        error=error,
        created_at=from_stamp(created_at),
        updated_at=from_stamp(updated_at),
    )
