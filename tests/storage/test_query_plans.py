"""Queries that a gateway runs every second use an index in SQLite."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import get_args

import apsw
import pytest

from talaria.contracts.stores.turns import UsageGroup
from talaria.core.ids import SessionId, WorkerId
from talaria.storage.sqlite.open import open_sqlite
from talaria.storage.tables.background_work import DelegatedTasksTable, ProcessesTable
from talaria.storage.tables.bindings import HandoffsTable
from talaria.storage.tables.queues import ForwardedUpdatesTable
from talaria.storage.tables.sessions import DEPENDENTS, UsageTable
from talaria.storage.tables.sql import Row, Value
from talaria.storage.tables.values import NamedValuesTable, SessionValuesTable


class Planner:
    """Implements `Sql`: runs no statement, but records its query plan in ``plans``."""

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
def test_handoff_queries_do_not_scan_the_sessions(tmp_path: Path, call: str) -> None:
    open_sqlite(tmp_path / "talaria.db").close()
    planner = Planner(tmp_path / "talaria.db")
    table = HandoffsTable(planner)
    arguments = [SessionId("s")] if call == "claim_handoff" else []
    getattr(table, call)(*arguments)
    planner.close()
    assert planner.plans
    assert [plan for plan in planner.plans if plan in ("SCAN sessions", "SCAN handoffs")] == []


def test_values_and_background_work_are_found_by_an_index(tmp_path: Path) -> None:
    open_sqlite(tmp_path / "talaria.db").close()
    planner = Planner(tmp_path / "talaria.db")
    session_id = SessionId("s")
    values, named = SessionValuesTable(planner), NamedValuesTable(planner)
    values.get(session_id, "goal", "")
    values.of_session(session_id, "goal")
    values.with_item("history_digest", "d")
    values.of_all("active_goal")
    values.copy(session_id, SessionId("t"), ["goal", "todo"])
    named.get("home_chat", "telegram")
    named.find("known_chat", "telegram:")
    ProcessesTable(planner).find(session_id)
    ProcessesTable(planner).find(alive=True)
    DelegatedTasksTable(planner).of_session(session_id, background=False)
    DelegatedTasksTable(planner).in_background()
    ForwardedUpdatesTable(planner).take(WorkerId("w"))
    for statement in DEPENDENTS:
        planner.run(statement, (session_id,))
    planner.close()
    own = ("session_values", "named_values", "background_processes", "delegated_tasks", "forwarded_updates",
           "conversation_names", "accounts", "holds")  # fmt: skip
    scans = [plan for plan in planner.plans if plan.startswith("SCAN") and plan.split()[1] in own]
    assert [plan for plan in scans if "USING INDEX" not in plan] == []
    assert scans == ["SCAN background_processes USING INDEX background_processes_alive",
                     "SCAN delegated_tasks USING INDEX delegated_tasks_in_background"]  # fmt: skip


def test_usage_charts_read_only_the_daily_roll_up(tmp_path: Path) -> None:
    open_sqlite(tmp_path / "talaria.db").close()
    planner = Planner(tmp_path / "talaria.db")
    for group in get_args(UsageGroup):
        UsageTable(planner).by_day(group, date(2026, 1, 1), date(2026, 12, 31), owner="alice")
    planner.close()
    reads = [plan for plan in planner.plans if plan.startswith(("SCAN", "SEARCH"))]
    assert len(reads) == len(get_args(UsageGroup))
    assert {plan.partition(" (")[0] for plan in reads} == {"SEARCH daily_usage USING PRIMARY KEY"}
