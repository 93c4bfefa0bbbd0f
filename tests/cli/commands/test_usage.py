"""`talaria usage`: usage and cost by day, model, surface and person, with unknown prices shown as unknown."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.app.program import Outcome, Program
from tests.cli.stored_sessions import write

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.messages import Usage


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def spend(tx: Transaction) -> None:
    mine = tx.sessions.create(NewSession(source="cli")).id
    theirs = tx.sessions.create(NewSession(source="telegram", owner="alice")).id
    tx.usage.add(mine, Usage(2, 1_000, 200, 500, cost_microdollars=1_230_000), model="large", turns=1)
    tx.usage.add(theirs, Usage(1, 100, 20), model="new", turns=1, has_price=False)


def test_usage_is_summed_by_day_model_surface_and_person(program: Program) -> None:
    write(program, spend)
    today = datetime.now(UTC).date()
    assert program.run("usage").out == f"{today}\t2\t3\t1100\t45%\t220\t$1.23 + unknown\n"
    assert program.run("usage", "--by", "model").out == (
        "large\t1\t2\t1000\t50%\t200\t$1.23\nnew\t1\t1\t100\t0%\t20\tunknown\n"
    )
    assert [line.split("\t")[0] for line in program.run("usage", "--by", "surface").out.splitlines()] == [
        "cli",
        "telegram",
    ]
    people = program.run("usage", "--by", "person", "--days", "7").out.splitlines()
    assert [line.split("\t")[0] for line in people] == ["you", "alice"]
    first = json.loads(program.run("usage", "--by", "model", "--json").out)[0]
    assert (first["name"], first["usage"]["cost_microdollars"], first["unpriced_calls"]) == ("large", 1_230_000, 0)


def test_free_model_is_not_shown_as_unknown_cost(program: Program) -> None:
    def spend_nothing(tx: Transaction) -> None:
        tx.usage.add(tx.sessions.create(NewSession(source="cli")).id, Usage(1, 100, 20), model="local", turns=1)

    write(program, spend_nothing)
    assert program.run("usage", "--by", "model").out == "local\t1\t1\t100\t0%\t20\t$0\n"


def test_an_empty_store_has_no_usage(program: Program) -> None:
    assert program.run("usage") == Outcome(0, "")
    assert "Nothing was used" in program.run_on_terminal("usage").out


@pytest.mark.parametrize("days", ["0", "-1", "many", "99999"])
def test_invalid_number_of_days_is_a_usage_error(program: Program, days: str) -> None:
    assert program.run("usage", f"--days={days}").code == 2
