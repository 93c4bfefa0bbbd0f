"""What the API keeps for its clients."""

from datetime import timedelta

from talaria.contracts.stores.responses import ApiRun, ApiRunState, RepeatedAnswer, StoredResponse
from talaria.storage.sql import Row, Sql, from_stamp, to_span

_RESPONSE = "id, session_id, body, conversation, previous_id"
_RUN = "id, session_id, request, state, error, created_at, updated_at"
_OPEN = "('queued', 'running', 'waiting')"
_AT_ONCE = 16  # more than come anew, so that there is an end of them


class ResponsesTable:
    """Implements `Responses`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def put(self, response: StoredResponse) -> None:
        """Store a response."""
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
        """Return a response."""
        return _response(self._sql.row(f"SELECT {_RESPONSE} FROM responses WHERE id = ?", (response_id,)))

    def newest_in(self, conversation: str) -> StoredResponse | None:
        """Return the last response of a named conversation."""
        return _response(
            self._sql.row(
                f"SELECT {_RESPONSE} FROM responses WHERE conversation = ? AND conversation <> ''"
                " ORDER BY created_at DESC, id DESC LIMIT 1",
                (conversation,),
            )
        )

    def delete(self, response_id: str) -> bool:
        """Forget a response."""
        return self._sql.count("DELETE FROM responses WHERE id = ?", (response_id,)) > 0

    def begin_request(
        self, key: str, fingerprint: str, life: timedelta, *, instead_of: str = ""
    ) -> RepeatedAnswer | None:
        """Reserve a key for a first request, or return what is known of the earlier one."""
        reserved = self._sql.count(
            "INSERT INTO requests (key, fingerprint, expires_at) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET fingerprint = excluded.fingerprint, answer = NULL, expires_at = excluded.expires_at"
            " WHERE requests.expires_at <= ? OR (requests.answer IS NULL AND requests.fingerprint = ?)",
            (key, fingerprint, self._sql.now + to_span(life), self._sql.now, instead_of),
        )
        if reserved:
            self._forget_those_that_are_over()
            return None
        row = self._sql.row("SELECT fingerprint, answer FROM requests WHERE key = ?", (key,))
        return RepeatedAnswer(*row) if row else None

    def end_request(self, key: str, fingerprint: str, answer: str, life: timedelta) -> None:
        """Keep the answer for repetitions, unless the key was reserved for another request meanwhile."""
        self._sql.run(
            "UPDATE requests SET answer = ?, expires_at = ? WHERE key = ? AND fingerprint = ?",
            (answer, self._sql.now + to_span(life), key, fingerprint),
        )

    def _forget_those_that_are_over(self) -> None:
        over = self._sql.rows(
            f"SELECT key FROM requests WHERE expires_at <= ? ORDER BY expires_at LIMIT ?{self._sql.skip_locked}",
            (self._sql.now, _AT_ONCE),
        )
        if over:
            self._sql.run_many("DELETE FROM requests WHERE key = ?", [(key,) for (key,) in over])


class ApiRunsTable:
    """Implements `ApiRuns`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def create(self, run: ApiRun) -> ApiRun:
        """Record a run."""
        row = self._sql.row(
            "INSERT INTO api_runs (id, session_id, request, state, error, created_at, updated_at)"
            f" VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING {_RUN}",
            (run.id, run.session_id, run.request, run.state, run.error, self._sql.now, self._sql.now),
        )
        assert row is not None
        return _run(row)

    def get(self, run_id: str) -> ApiRun | None:
        """Return a run."""
        row = self._sql.row(f"SELECT {_RUN} FROM api_runs WHERE id = ?", (run_id,))
        return _run(row) if row else None

    def move(self, run_id: str, to: ApiRunState, error: str = "") -> bool:
        """Change the state of a run; ``False`` if it had ended already or is not there."""
        moved = self._sql.count(
            f"UPDATE api_runs SET state = ?, error = ?, updated_at = ? WHERE id = ? AND state IN {_OPEN}",
            (to, error, self._sql.now, run_id),
        )
        return moved > 0

    def open(self) -> list[ApiRun]:
        """Return the runs that have not ended, oldest first."""
        return [
            _run(row)
            for row in self._sql.rows(f"SELECT {_RUN} FROM api_runs WHERE state IN {_OPEN} ORDER BY created_at, id")
        ]


def _response(row: Row | None) -> StoredResponse | None:
    if row is None:
        return None
    response_id, session_id, body, conversation, previous_id = row
    return StoredResponse(
        id=response_id, session_id=session_id, body=body, conversation=conversation, previous_id=previous_id
    )


def _run(row: Row) -> ApiRun:
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
