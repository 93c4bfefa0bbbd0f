"""All rows of a store are exported and loaded again, on the same engine or on the other."""

from datetime import timedelta
from pathlib import Path

import apsw
import psycopg
import pytest
from tests.contracts.sample_messages import text_message
from tests.contracts.session_leases import claim_session_lease
from tests.storage.engines import StoreLocation, transaction_per_call

from talaria.contracts.store import Cell, Database, Transaction
from talaria.contracts.stores.queues import Arrival
from talaria.contracts.stores.sessions import NewSession, SearchQuery
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.storage.tables.archive import TABLE_KEYS
from talaria.testing.clock import SettableClock

Rows = dict[str, tuple[list[str], list[tuple[Cell, ...]]]]
NOT_ARCHIVED = {"notifications", "arrivals", "holds", "leases", "indexed", "schema_version"}


def test_loaded_rows_equal_the_exported_rows(
    store_location: StoreLocation, database: Database, clock: SettableClock, tmp_path: Path
) -> None:
    session = _fill(transaction_per_call(database))
    rows = database.read(_dump)
    fresh = StoreLocation("sqlite", str(tmp_path / "other.db")).open(clock)
    fresh.write(lambda tx: _load(tx, rows))
    assert fresh.read(_dump) == rows
    assert [stored.message.text for stored in fresh.read(lambda tx: tx.messages.load(session))] == ["one 東京", "two"]
    assert fresh.read(lambda tx: tx.search.find(SearchQuery(text="京")))
    fresh.close()


def test_loading_replaces_existing_rows(database: Database, mine: Transaction) -> None:
    exported = _fill(mine)
    rows = database.read(_dump)
    gone = mine.sessions.create(NewSession(source="cli"))
    mine.messages.append(gone.id, [text_message("forget this")])
    database.write(lambda tx: _load(tx, rows))
    assert mine.sessions.get(gone.id) is None
    assert mine.sessions.get(exported) is not None
    assert mine.search.find(SearchQuery(text="forget")) == []


def test_rows_can_be_added_after_loading(database: Database, mine: Transaction) -> None:
    session = _fill(mine)
    rows = database.read(_dump)
    database.write(lambda tx: _load(tx, rows))
    mine.sessions.create(NewSession(source="cli"))
    mine.messages.append(session, [text_message("three")])
    assert mine.inbox.add(Arrival(session_id=session, source="telegram", external_id="2", payload="{}")) is not None
    assert claim_session_lease(mine, timedelta(seconds=5)) is not None


def test_failed_load_changes_nothing(database: Database, mine: Transaction) -> None:
    _fill(mine)
    before = database.read(_dump)

    def fail(tx: Transaction) -> None:
        _load(tx, before)
        raise RuntimeError("the power went")

    with pytest.raises(RuntimeError):
        database.write(fail)
    assert database.read(_dump) == before


def test_every_table_with_data_is_archived(store_location: StoreLocation, database: Database) -> None:
    del database
    assert _tables(store_location) - NOT_ARCHIVED == set(TABLE_KEYS)


def _fill(mine: Transaction) -> SessionId:
    session = mine.sessions.create(NewSession(source="cli", title="Travel"))
    mine.messages.append(session.id, [text_message("one 東京"), text_message("two")])
    mine.sessions.create(NewSession(source="cli", parent_id=session.id, parent_seq=1))
    mine.bindings.bind("agent:main:telegram:private:7", session.id, Address("telegram", "7"))
    mine.named_values.put("test", "goal:x", "{}")
    mine.inbox.add(Arrival(session_id=session.id, source="telegram", external_id="1", payload="{}"))
    mine.events.append("run:1", [("text", "a"), ("text", "b")])
    return session.id


def _tables(store_location: StoreLocation) -> set[str]:
    if store_location.engine == "postgres":
        with psycopg.connect(store_location.address) as server:
            names = server.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s", (store_location.schema,)
            ).fetchall()
        return {name for (name,) in names}
    found = (
        apsw.Connection(store_location.address)
        .execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        .fetchall()
    )
    return {str(name) for (name,) in found if not str(name).startswith(("sqlite_", "words"))}


def _dump(tx: Transaction) -> Rows:
    return {
        table: (tx.archive.columns(table), [tuple(row) for row in tx.archive.rows(table)])
        for table in tx.archive.tables()
    }


def _load(tx: Transaction, rows: Rows) -> None:
    tx.archive.clear()
    for table, (columns, values) in rows.items():
        assert tx.archive.load(table, columns, values) == len(values)
    tx.archive.finish()
