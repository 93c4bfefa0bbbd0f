"""Turns and their steps."""

from datetime import datetime

from talaria.contracts.stores.turns import Step, Turn, TurnState
from talaria.core.ids import SessionId, TurnId
from talaria.storage.sql import Row, Sql, from_stamp, maybe_moment, to_stamp

_TURN = "id, session_id, worker, state, started_at, ended_at, error"


class TurnsTable:
    """Implements `Turns`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def begin(self, session_id: SessionId, turn_id: TurnId) -> Turn:
        """Record that this worker has started on a turn."""
        row = self._sql.row(
            "INSERT INTO turns (id, session_id, worker, state, started_at) VALUES (?, ?, ?, 'running', ?)"
            f" RETURNING {_TURN}",
            (turn_id, session_id, self._sql.worker, self._sql.now),
        )
        assert row is not None
        return _turn(row)

    def end(self, turn_id: TurnId, state: TurnState, error: str = "") -> bool:
        """Record how a running turn ended; ``False`` if it had ended before."""
        ended = self._sql.count(
            "UPDATE turns SET state = ?, error = ?, ended_at = ? WHERE id = ? AND state = 'running'",
            (state, error, self._sql.now, turn_id),
        )
        return ended > 0

    def find(
        self, session_id: SessionId | None = None, *, running: bool = False, limit: int | None = None
    ) -> list[Turn]:
        """Return turns, oldest first; with a ``limit`` the last ones."""
        if running:
            found = self._running(session_id)
            return found[-limit:] if limit is not None else found
        where, whose = ("WHERE session_id = ? ", [session_id]) if session_id else ("", [])
        most, many = (" LIMIT ?", [limit]) if limit is not None else ("", [])
        rows = self._sql.rows(
            f"SELECT {_TURN} FROM turns {where}ORDER BY started_at DESC, id DESC{most}", (*whose, *many)
        )
        return [_turn(row) for row in reversed(rows)]

    def _running(self, session_id: SessionId | None) -> list[Turn]:
        """Return the turns that run, of which there are few: sorting them here is cheaper than setting up a sort."""
        where, whose = (" AND session_id = ?", (session_id,)) if session_id else ("", ())
        rows = self._sql.rows(f"SELECT {_TURN} FROM turns WHERE state = 'running'{where}", whose)
        return sorted(map(_turn, rows), key=lambda turn: (turn.started_at, turn.id))

    def begin_step(self, turn_id: TurnId, kind: str, name: str, request: str, at: datetime | None = None) -> int:
        """Record a step before it starts, or that it did at some time, and return its number."""
        row = self._sql.row(
            "INSERT INTO steps (turn_id, number, kind, name, request, started_at) VALUES"
            " (?, (SELECT coalesce(max(number), 0) + 1 FROM steps WHERE turn_id = ?), ?, ?, ?, ?) RETURNING number",
            (turn_id, turn_id, kind, name, request, self._sql.now if at is None else to_stamp(at)),
        )
        assert row is not None
        return int(row[0])

    def end_step(self, turn_id: TurnId, number: int, result: str, at: datetime | None = None) -> None:
        """Record what a step brought."""
        self._sql.run(
            "UPDATE steps SET result = ?, ended_at = ? WHERE turn_id = ? AND number = ?",
            (result, self._sql.now if at is None else to_stamp(at), turn_id, number),
        )

    def steps(self, turn_id: TurnId) -> list[Step]:
        """Return the steps of a turn in order."""
        rows = self._sql.rows(
            "SELECT turn_id, number, kind, name, request, started_at, ended_at, result FROM steps"
            " WHERE turn_id = ? ORDER BY number",
            (turn_id,),
        )
        return [_step(row) for row in rows]


def _turn(row: Row) -> Turn:
    turn_id, session_id, worker, state, started_at, ended_at, error = row
    return Turn(
        id=turn_id,
        session_id=session_id,
        worker=worker,
        state=state,
        started_at=from_stamp(started_at),
        ended_at=maybe_moment(ended_at),
        error=error,
    )


def _step(row: Row) -> Step:
    turn_id, number, kind, name, request, started_at, ended_at, result = row
    return Step(
        turn_id=turn_id,
        number=number,
        kind=kind,
        name=name,
        request=request,
        started_at=from_stamp(started_at),
        ended_at=maybe_moment(ended_at),
        result=result,
    )
