"""Open a store on a PostgreSQL server: create its schema, bring it up to date, refuse what is newer."""

from pathlib import Path

import psycopg
from msgspec import Struct, structs
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from talaria.contracts.clock import Clock, SystemClock
from talaria.core.errors import StoreUnavailable
from talaria.core.ids import WorkerId, new_worker_id
from talaria.storage.database import ConnectionDatabase
from talaria.storage.hints import Hints
from talaria.storage.migrations import LATEST, check_not_newer, migrations_in
from talaria.storage.postgres.connection import PostgresConnection
from talaria.storage.postgres.errors import translated
from talaria.storage.postgres.hints import NotifyCourier, channel_of
from talaria.storage.sql import Row
from talaria.storage.threaded import ThreadedStore

MIGRATIONS = Path(__file__).with_name("migrations")
_MIGRATION_LOCK = 0x54414C41
_CONNECT_SECONDS = 10
_HINT_CONNECT_SECONDS = 3  # closing the store may have to wait for so long
_NOTICED_WHEN_LOST = {"keepalives": 1, "keepalives_idle": 20, "keepalives_interval": 5, "keepalives_count": 3}
_SILENCE_MILLISECONDS = 20_000


class PostgresOptions(Struct, frozen=True):
    """How to open a store on a server; who heeds hints is told to look every ``look_seconds`` at least.

    A transaction with which a worker does not go on for ``stall_seconds`` is undone by the server: the worker may be
    asleep, and others wait for what it holds.
    """

    schema: str = "talaria"
    busy_timeout_seconds: float = 5.0
    clock: Clock = SystemClock()
    worker: WorkerId | None = None
    look_seconds: float = 1.0
    stall_seconds: float = 15.0


DEFAULTS = PostgresOptions()


def open_postgres(url: str, options: PostgresOptions = DEFAULTS, *, upto: int = LATEST) -> ConnectionDatabase:
    """Return the store in a schema of a server, created or brought up to date where needed."""
    server = server_name(url)
    try:
        raw = _connect(url, options)
    except psycopg.Error as error:
        raise translated(error, server) from error
    try:
        migrate(raw, options.schema, server, upto)
        connection = PostgresConnection(server, raw, options.clock, options.worker or new_worker_id())
    except psycopg.Error as error:
        raw.close()
        raise translated(error, server) from error
    except BaseException:
        raw.close()
        raise
    return ConnectionDatabase(connection)


def open_postgres_store(url: str, options: PostgresOptions = DEFAULTS, *, connections: int = 4) -> ThreadedStore:
    """Return the store for asyncio; a server that cannot be used is told at once, not at the first write."""
    options = structs.replace(options, worker=options.worker or new_worker_id())
    open_postgres(url, options).close()
    return ThreadedStore(
        lambda: open_postgres(url, options),
        writers=max(1, connections // 2),
        readers=max(1, connections - connections // 2),
        open_hints=lambda: _open_hints(url, options),
    )


def server_name(url: str) -> str:
    """Return what to call a server in a sentence: without user and password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        raise _unreadable() from None  # libpq's reason quotes the password
    host = str(parts.get("host", "localhost"))
    if "@" in host:
        raise _unreadable()
    return f"PostgreSQL at {host}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def migrate(raw: psycopg.Connection[Row], schema: str, server: str, upto: int = LATEST) -> None:
    """Run the steps that a schema has not seen; workers that start together wait for each other."""
    version = _version(raw, schema)
    check_not_newer(version, server)
    if version >= upto:
        return
    with raw.transaction():
        raw.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        if not raw.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone():
            raw.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        raw.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
        version = _version(raw, schema)
        for step in migrations_in(MIGRATIONS):
            if version < step.number <= upto:
                raw.execute(step.statements.encode())
        raw.execute("DELETE FROM schema_version")
        raw.execute("INSERT INTO schema_version (version) VALUES (%s)", (max(version, upto),))


def _unreadable() -> StoreUnavailable:
    return StoreUnavailable(
        "store.url is not an address of a PostgreSQL server. It looks like postgresql://user:password@host:5432/database,"
        " with %40 for an @ in the password, and so on."
    )


def _open_hints(url: str, options: PostgresOptions) -> Hints:
    courier = NotifyCourier(
        lambda: _connect(make_conninfo(url, **_NOTICED_WHEN_LOST), options, connect_timeout=_HINT_CONNECT_SECONDS),
        channel_of(options.schema),
    )
    return Hints(courier, at_least_every=options.look_seconds)


def _connect(url: str, options: PostgresOptions, *, connect_timeout: int = _CONNECT_SECONDS) -> psycopg.Connection[Row]:
    connection: psycopg.Connection[Row] = psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=connect_timeout,
        tcp_user_timeout=_SILENCE_MILLISECONDS,
        application_name="talaria",
        options=" ".join(f"-c {name}={value}" for name, value in _of_the_session(options).items()),
    )
    return connection


def _of_the_session(options: PostgresOptions) -> dict[str, str | int]:
    """Return the settings of the server for a connection; with the last ones it notices that a machine is gone."""
    return {
        "search_path": options.schema,
        "client_min_messages": "warning",
        "lock_timeout": round(options.busy_timeout_seconds * 1000),
        "idle_in_transaction_session_timeout": round(options.stall_seconds * 1000),
        **{f"tcp_{name}": value for name, value in _NOTICED_WHEN_LOST.items() if name != "keepalives"},
    }


def _version(raw: psycopg.Connection[Row], schema: str) -> int:
    there = raw.execute("SELECT to_regclass(%s)", (f'"{schema}".schema_version',)).fetchone()
    if there is None or there[0] is None:
        return 0
    row = raw.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()
    return int(row[0]) if row else 0
