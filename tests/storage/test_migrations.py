"""Migrations: the same for both engines and append-only; older stores open with their data, newer ones are refused."""

import hashlib
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

import apsw
import psycopg
import pytest
from tests.contracts.sample_messages import text_message, texts
from tests.storage.concurrent_processes import first_answers, start_workers
from tests.storage.engines import StoreLocation

from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import HandoffState, HandoffThread, PendingHandoff, SearchQuery, SessionFilter
from talaria.contracts.stores.turns import DailyUsage
from talaria.core.addresses import Address
from talaria.core.errors import StoreCorrupt, StoreTooNew, StoreUnavailable
from talaria.core.ids import SessionId
from talaria.core.messages import Usage
from talaria.storage.migrations import LATEST_SCHEMA, list_migrations
from talaria.storage.postgres.connection import MIGRATIONS as POSTGRES
from talaria.storage.postgres.open import PostgresOptions, open_postgres
from talaria.storage.sqlite.connection import MIGRATIONS as SQLITE
from talaria.storage.sqlite.open import APPLICATION_ID, migrate

DIGESTS = Path(__file__).with_name("migrations.sha256")
FOLDERS = {"sqlite": SQLITE, "postgres": POSTGRES}
Columns = dict[str, set[str]]


@pytest.fixture
def store_location(new_store_location: StoreLocation) -> StoreLocation:
    """A store that no process has opened yet, on each engine in turn."""
    return new_store_location


@pytest.mark.parametrize("engine", FOLDERS)
def test_migrations_are_numbered_without_gaps(engine: str) -> None:
    assert [step.number for step in list_migrations(FOLDERS[engine])] == list(range(1, LATEST_SCHEMA + 1))


def test_both_engines_have_the_same_migrations() -> None:
    sqlite, postgres = ([step.name for step in list_migrations(folder)] for folder in FOLDERS.values())
    assert sqlite == postgres


def test_published_migrations_are_unchanged() -> None:
    recorded = [tuple(line.split()) for line in DIGESTS.read_text().splitlines()]
    actual = {
        (hashlib.sha256(file.read_bytes()).hexdigest(), f"{engine}/{file.name}")
        for engine, folder in FOLDERS.items()
        for file in folder.glob("*.sql")
    }
    assert set(recorded) == actual, "add a new migration and its digest; published ones must not change"


def test_migrating_step_by_step_gives_the_schema_of_a_new_store(store_location: StoreLocation, tmp_path: Path) -> None:
    if store_location.engine == "sqlite":
        step_by_step = tmp_path / "steps.db"
        for number in range(1, LATEST_SCHEMA + 1):
            with closing(apsw.Connection(str(step_by_step))) as raw:
                migrate(raw, upto=number)
                assert raw.pragma("user_version") == number
        store_location.open(SystemClock()).close()
        assert sqlite_schema(str(step_by_step)) == sqlite_schema(store_location.address)
    else:
        for number in range(1, LATEST_SCHEMA + 1):
            open_postgres(store_location.address, PostgresOptions(store_location.schema), upto=number).close()
            assert postgres_rows(store_location, "SELECT version FROM schema_version") == [(number,)]
        fresh = StoreLocation("postgres", store_location.address, f"{store_location.schema}_fresh")
        fresh.open(SystemClock()).close()
        assert postgres_schema(store_location) == postgres_schema(fresh)
        fresh.drop()


def test_both_engines_have_the_same_tables_and_columns(
    new_sqlite_location: StoreLocation, postgres_location: StoreLocation
) -> None:
    for store_location in (new_sqlite_location, postgres_location):
        store_location.open(SystemClock()).close()
    with closing(apsw.Connection(new_sqlite_location.address)) as raw:
        rows = raw.execute(
            "SELECT m.name, c.name FROM sqlite_schema AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'"
        ).fetchall()
    sqlite = columns([(str(table), str(column)) for table, column in rows])
    postgres = columns(
        postgres_rows(
            postgres_location,
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()",
        )
    )
    only_sqlite = {table for table in sqlite if table.partition("_")[0] in ("words", "sqlite")} | {
        "indexed",
        "notifications",
    }
    sqlite = {table: names for table, names in sqlite.items() if table not in only_sqlite}
    del postgres["schema_version"]
    postgres["arrivals"].remove("words")
    assert sqlite == postgres


@pytest.mark.parametrize("version", range(1, LATEST_SCHEMA))
def test_an_older_store_opens_with_its_data(store_location: StoreLocation, version: int) -> None:
    run = older_store(store_location, version)
    run("INSERT INTO sessions (id, source, title, title_folded, created_at, updated_at, last_seq)"
        " VALUES ('old', 'cli', 'Old', 'old', 5, 5, 1)")  # fmt: skip
    run("INSERT INTO arrivals (message_id) SELECT number * 16777216 + 1 FROM sessions")
    run("INSERT INTO messages (id, arrival, at, role, body) SELECT number * 16777216 + 1, 1, 5, 'user',"
        """ '{"parts":[{"type":"text","text":"an old otter"}]}' FROM sessions""")  # fmt: skip
    if version < 11:
        run("INSERT INTO state (key, value, version, updated_at) VALUES ('workspace:old', 'home', 3, 5)")
    else:
        run("INSERT INTO session_values (session_id, name, value, version) VALUES ('old', 'workspace', 'home', 3)")
    if version >= 2:
        run("INSERT INTO inbox (session_id, source, external_id, kind, priority, payload, received_at)"
            " VALUES ('old', 'cli', '1', 'message', 0, '', 5)")  # fmt: skip
    if version >= 3:
        run("INSERT INTO people (platform, user_id, name, since) VALUES ('telegram', '1', 'Ana', 5)")

    database = store_location.open(SystemClock())
    old = SessionId("old")
    assert [one.title for one in database.read(lambda tx: tx.sessions.find(SessionFilter()))] == ["Old"]
    assert texts(database.read(lambda tx: tx.messages.load(old))) == [(1, "an old otter")]
    assert database.write(lambda tx: tx.session_values.put(old, "workspace", "", "away")) == 4
    assert len(database.read(lambda tx: tx.inbox.list_unsettled(old))) == (version >= 2)
    assert len(database.read(lambda tx: tx.pairing.people())) == (version >= 3)
    assert database.write(lambda tx: tx.messages.append(old, [text_message("a new otter")])) == 2
    assert [hit.seq for hit in database.read(lambda tx: tx.search.find(SearchQuery(text="new otter")))] == [2]
    database.close()


def test_daily_usage_is_filled_from_the_turns_of_an_older_store(store_location: StoreLocation) -> None:
    run = older_store(store_location, 11)
    day = 86_400_000_000
    called = '{"model":"large","usage":{"calls":1}}'
    priced = '{"model":"large","usage":{"calls":1,"input_tokens":7,"output_tokens":3,"cost_microdollars":9}}'
    run("INSERT INTO sessions (id, source, owner, model, created_at, updated_at)"
        " VALUES ('old', 'cli', 'ana', 'm', 5, 5)")  # fmt: skip
    run("INSERT INTO turns (id, session_id, worker, state, started_at, ended_at) VALUES"
        f" ('one', 'old', 'w', 'answered', 5, {day + 9}), ('two', 'old', 'w', 'failed', 5, {day}),"
        " ('now', 'old', 'w', 'running', 5, NULL)")  # fmt: skip
    run("INSERT INTO steps (turn_id, number, kind, name, request, result, started_at, ended_at) VALUES"
        f" ('one', 1, 'model', 'large', '', '{priced}', 5, {day - 1}), ('one', 2, 'tool', 'x', '', '{priced}', 5, 5),"
        f" ('one', 3, 'model', 'large', '', '{called}', 5, {day + 1}),"
        f" ('now', 1, 'model', 'large', '', '{called}', 5, {day + 2}),"
        f" ('now', 2, 'model', 'large', '', '{{broken}}', 5, {day + 2}),"
        f" ('now', 3, 'model', 'large', '', '{{\"usage\":{{\"calls\":\"x\"}}}}', 5, {day + 2})")  # fmt: skip
    database = store_location.open(SystemClock())
    found = database.read(lambda tx: tx.usage.by_day("model", date(1970, 1, 1), date(1970, 1, 3)))
    owners = database.read(lambda tx: tx.usage.by_day("owner", date(1970, 1, 1), date(1970, 1, 3)))
    database.close()
    assert found == [
        DailyUsage(date(1970, 1, 1), "large", 0, 0, Usage(1, 7, 3, cost_microdollars=9)),
        DailyUsage(date(1970, 1, 2), "large", 1, 2, Usage(2)),
        DailyUsage(date(1970, 1, 2), "m", 1, 0, Usage()),
    ]
    assert {row.member for row in owners} == {"ana"}


def test_handoffs_of_an_older_store_are_migrated(store_location: StoreLocation) -> None:
    run = older_store(store_location, 7)
    now = int(datetime.now(UTC).timestamp() * 1_000_000)
    run("INSERT INTO sessions (id, source, title, created_at, updated_at, handoff_state, handoff_platform,"
        " handoff_error, handoff_requested_at, handoff_claimed_by, handoff_claimed_until) VALUES"
        f" ('asked', 'cli', 'Asked', 5, 5, 'pending', 'telegram', NULL, {now}, NULL, NULL),"
        f" ('taken', 'cli', 'Taken', 5, 5, 'running', 'telegram', NULL, {now}, 'dead', {now}),"
        " ('ended', 'cli', 'Ended', 5, 5, 'failed', 'slack', 'no home chat', 5, NULL, NULL),"
        " ('never', 'cli', 'Never', 5, 5, NULL, NULL, NULL, NULL, NULL, NULL)")  # fmt: skip
    address = '{"platform":"telegram","chat_id":"77:8","chat_type":"group"}'
    for key, value in {
        "handoff-to:asked": address, "handoff-at-once:asked": "", "handoff:taken:telegram:77:8": "5", "handoffs": "",
    }.items():  # fmt: skip
        run(f"INSERT INTO state (key, value, version, updated_at) VALUES ('{key}', '{value}', 1, 5)")

    database = store_location.open(SystemClock())
    target = Address("telegram", "77:8", "group")
    asked = PendingHandoff(SessionId("asked"), "Asked", "telegram", target, immediate=True)
    taken = PendingHandoff(SessionId("taken"), "Taken", "telegram", thread=HandoffThread("77:8", "5"))
    assert database.read(lambda tx: tx.handoffs.list_pending_handoffs()) == [asked]
    assert database.read(lambda tx: tx.handoffs.list_lapsed_handoffs()) == [taken]
    states = [database.read(partial(handoff_state, SessionId(name))) for name in ("ended", "never")]
    assert states == [
        {"state": "failed", "platform": "slack", "error": "no home chat"},
        {"state": None, "platform": None, "error": None},
    ]
    assert database.read(lambda tx: [row[0] for row in tx.archive.rows("state")]) == ["handoffs"]
    assert database.write(lambda tx: tx.handoffs.claim_handoff(asked.session_id))
    database.close()


def test_newer_file_is_refused_and_not_changed(new_sqlite_location: StoreLocation) -> None:
    new_sqlite_location.open(SystemClock()).close()
    with closing(apsw.Connection(new_sqlite_location.address)) as raw:
        raw.pragma("user_version", LATEST_SCHEMA + 1)
    check_refused_and_unchanged(
        new_sqlite_location, StoreTooNew, f"newer Talaria (schema {LATEST_SCHEMA + 1}; this one knows {LATEST_SCHEMA})"
    )


def test_database_of_another_program_is_refused_and_not_changed(new_sqlite_location: StoreLocation) -> None:
    with closing(apsw.Connection(new_sqlite_location.address)) as raw:
        raw.execute("CREATE TABLE notes (text); PRAGMA user_version = 1")
    check_refused_and_unchanged(new_sqlite_location, StoreUnavailable, "belongs to another program")


def test_file_that_is_not_a_database_is_refused_and_not_changed(new_sqlite_location: StoreLocation) -> None:
    Path(new_sqlite_location.address).write_text("Dear diary, " * 1000)
    check_refused_and_unchanged(new_sqlite_location, StoreCorrupt, "talaria doctor --fix")


def test_newer_schema_is_refused_and_not_changed(postgres_location: StoreLocation) -> None:
    postgres_location.open(SystemClock()).close()
    postgres_rows(postgres_location, f"UPDATE schema_version SET version = {LATEST_SCHEMA + 1} RETURNING version")
    before = postgres_schema(postgres_location)
    with pytest.raises(StoreTooNew, match="newer Talaria"):
        postgres_location.open(SystemClock())
    assert postgres_rows(postgres_location, "SELECT version FROM schema_version") == [(LATEST_SCHEMA + 1,)]
    assert postgres_schema(postgres_location) == before


def test_new_file_has_the_application_id_and_is_private(new_sqlite_location: StoreLocation) -> None:
    new_sqlite_location.open(SystemClock()).close()
    assert Path(new_sqlite_location.address).stat().st_mode & 0o777 == 0o600
    with closing(apsw.Connection(new_sqlite_location.address)) as raw:
        assert raw.pragma("application_id") == APPLICATION_ID


def test_eight_processes_can_open_a_new_store_at_once(store_location: StoreLocation) -> None:
    if store_location.engine == "sqlite":
        locations = [StoreLocation("sqlite", f"{store_location.address}.{number}") for number in range(20)]
    else:
        locations = [
            StoreLocation("postgres", store_location.address, f"{store_location.schema}_{number}")
            for number in range(5)
        ]
    with start_workers(8, "open", store_location, *(f"{one.address}\n{one.schema}" for one in locations)) as workers:
        reports: list[list[int | str]] = first_answers(workers)
    for one in locations:
        one.drop()
    assert [sorted(report, key=str) for report in zip(*reports, strict=True)] == [list(range(8))] * len(locations)


def handoff_state(session_id: SessionId, tx: Transaction) -> HandoffState | None:
    return tx.handoffs.get_handoff_state(session_id)


def older_store(store_location: StoreLocation, version: int) -> Callable[[str], None]:
    """Create a store with the schema of a version and return a function that runs statements in it."""
    if store_location.engine == "sqlite":
        with closing(apsw.Connection(store_location.address)) as raw:
            migrate(raw, upto=version)
        return lambda statement: run_in_sqlite(store_location, statement)
    open_postgres(store_location.address, PostgresOptions(store_location.schema), upto=version).close()
    return lambda statement: run_in_postgres(store_location, statement)


def run_in_sqlite(store_location: StoreLocation, statement: str) -> None:
    with closing(apsw.Connection(store_location.address)) as raw:
        raw.execute(statement)


def run_in_postgres(store_location: StoreLocation, statement: str) -> None:
    with psycopg.connect(store_location.address, options=f"-c search_path={store_location.schema}") as raw:
        raw.execute(statement.encode())


def check_refused_and_unchanged(store_location: StoreLocation, error: type[Exception], sentence: str) -> None:
    """Check that a file can't be opened, is not changed by the attempt, and that the reason is reported."""
    file = Path(store_location.address)
    before = file.read_bytes()
    with pytest.raises(error) as refused:
        store_location.open(SystemClock())
    assert sentence in str(refused.value)
    assert file.read_bytes() == before


def sqlite_schema(path: str) -> set[tuple[str, ...]]:
    with closing(apsw.Connection(path)) as raw:
        rows = raw.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema").fetchall()
        return {tuple(map(str, row)) for row in rows}


def postgres_schema(store_location: StoreLocation) -> set[tuple[str, ...]]:
    """Return tables with their columns, and indexes, without the name of the schema."""
    rows = postgres_rows(
        store_location,
        "SELECT table_name, column_name, data_type, is_nullable, coalesce(column_default, ''), is_identity"
        " FROM information_schema.columns WHERE table_schema = current_schema()"
        " UNION ALL SELECT tablename, indexname, indexdef, '', '', '' FROM pg_indexes"
        " WHERE schemaname = current_schema()"
        " UNION ALL SELECT cfgname, '', '', '', '', '' FROM pg_ts_config"
        " WHERE cfgnamespace = current_schema()::regnamespace",
    )
    return {tuple(str(value).replace(f"{store_location.schema}.", "") for value in row) for row in rows}


def postgres_rows(store_location: StoreLocation, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(store_location.address, options=f"-c search_path={store_location.schema}") as raw:
        return raw.execute(statement.encode()).fetchall()


def columns(rows: list[tuple[object, ...]]) -> Columns:
    found: Columns = {}
    for table, column in rows:
        found.setdefault(str(table), set()).add(str(column))
    return found
