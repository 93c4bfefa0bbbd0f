"""What a gateway asks of SQLite every second is answered from an index, however many conversations there are."""

from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from talaria.core.ids import SessionId, WorkerId
from talaria.storage.sqlite.open import open_sqlite
from talaria.storage.tables.bindings import HandoffsTable
from talaria.storage.tables.sql import Row, Value


class Planner:
    """Implements `Sql`: nothing is done, but how it would be done is kept in ``plans``."""

    now = 0
    worker = WorkerId("worker-1")
    locked = skip_locked = bytewise = ""

    def __init__(self, file: Path) -> None:
        self._raw = apsw.Connection(str(file))
        self.plans: list[str] = []

    def run(self, statement: str, values: Sequence[Value] = ()) -> None:
        self.plans += [row[3] for row in self._raw.execute(f"EXPLAIN QUERY PLAN {statement}", tuple(values))]

    def run_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        for row in rows:
            self.run(statement, row)

    def count(self, statement: str, values: Sequence[Value] = ()) -> int:
        self.run(statement, values)
        return 0

    def row(self, statement: str, values: Sequence[Value] = ()) -> Row | None:
        self.run(statement, values)
        return None

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        self.run(statement, values)
        return []

    def close(self) -> None:
        self._raw.close()


@pytest.mark.parametrize("call", ["list_pending_handoffs", "list_lapsed_handoffs", "claim_handoff"])
def test_looking_for_handoffs_reads_no_conversation_that_stays(tmp_path: Path, call: str) -> None:
    open_sqlite(tmp_path / "talaria.db").close()
    planner = Planner(tmp_path / "talaria.db")
    table = HandoffsTable(planner)
    words = [SessionId("s")] if call == "claim_handoff" else []
    getattr(table, call)(*words)
    planner.close()
    assert planner.plans
    assert [plan for plan in planner.plans if plan in ("SCAN sessions", "SCAN handoffs")] == []
