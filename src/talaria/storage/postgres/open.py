"""Opening of a PostgreSQL store: connect, create or migrate the schema, refuse newer versions."""

import psycopg
from msgspec import Struct, structs
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from talaria.contracts.clock import Clock, SystemClock
from talaria.core.errors import StoreUnavailable
from talaria.core.ids import WorkerId, new_id, new_worker_id
from talaria.storage.async_store import Notifications, ThreadedStore
from talaria.storage.database import ConnectionDatabase
from talaria.storage.migrations import LATEST_SCHEMA, check_not_newer, list_migrations
from talaria.storage.postgres.connection import (
    MIGRATIONS,
    NotificationChannel,
    PostgresConnection,
    make_channel_name,
    translate_error,
)
from talaria.storage.postgres.notifications import PostgresListener
from talaria.storage.tables.sql import Row

_MIGRATION_LOCK = 0x54414C41
_CONNECT_SECONDS = 10
_NOTIFY_CONNECT_SECONDS = 3  # closing the store may block this long
_KEEPALIVES = {"keepalives": 1, "keepalives_idle": 20, "keepalives_interval": 5, "keepalives_count": 3}
_TCP_TIMEOUT_MILLISECONDS = 20_000


class PostgresOptions(Struct, frozen=True):
    """Options for opening a PostgreSQL store.

    Subscriptions wake at least every ``poll_seconds``. ``origin`` identifies the process in its notifications, so that
    it ignores its own. The server rolls back a transaction that has been idle for ``stall_seconds``: its worker may be
    suspended while others wait for its locks.
    """

    schema: str = "talaria"
    busy_timeout_seconds: float = 5.0
    clock: Clock = SystemClock()
    worker: WorkerId | None = None
    poll_seconds: float = 1.0
    stall_seconds: float = 15.0
    origin: str = ""

    @property
    def channel(self) -> NotificationChannel:
        """Notification channel of the schema, as this process uses it."""
        return NotificationChannel(make_channel_name(self.schema), self.origin)


DEFAULTS = PostgresOptions()


def open_postgres(url: str, options: PostgresOptions = DEFAULTS, *, upto: int = LATEST_SCHEMA) -> ConnectionDatabase:
    """Open the store in a schema, which is created or migrated up to ``upto`` if needed."""
    server = format_server(url)
    try:
        raw = _connect(url, options)
    except psycopg.Error as error:
        raise translate_error(error, server) from error
    try:
        _require_utf8(raw, server)
        migrate(raw, options.schema, server, upto)
        worker = options.worker or new_worker_id()
        connection = PostgresConnection(server, raw, options.clock, worker, options.channel)
    except psycopg.Error as error:
        raw.close()
        raise translate_error(error, server) from error
    except BaseException:
        raw.close()
        raise
    return ConnectionDatabase(connection)


def open_postgres_store(url: str, options: PostgresOptions = DEFAULTS, *, connections: int = 4) -> ThreadedStore:
    """Return the store for asyncio; raises at once if the server cannot be used."""
    options = structs.replace(options, worker=options.worker or new_worker_id(), origin=new_id())
    open_postgres(url, options).close()
    return ThreadedStore(
        lambda: open_postgres(url, options),
        writers=max(1, connections // 2),
        readers=max(1, connections - connections // 2),
        open_notifications=lambda: _open_notifications(url, options),
    )


def swap_schemas(url: str, options: PostgresOptions, replacement: str, newer: str) -> None:
    """Rename a newer version's schema to ``newer``, and ``replacement`` to its name, in one transaction."""
    try:
        with _connect(url, options) as raw, raw.transaction():
            for old, new in ((options.schema, newer), (replacement, options.schema)):
                raw.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(sql.Identifier(old), sql.Identifier(new)))
    except psycopg.Error as error:
        raise translate_error(error, format_server(url)) from error


def drop_schema(url: str, schema: str) -> None:
    """Drop a schema with all its tables, if it exists."""
    try:
        with _connect(url, PostgresOptions(schema)) as raw:
            raw.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
    except psycopg.Error as error:
        raise translate_error(error, format_server(url)) from error


def format_server(url: str) -> str:
    """Return a display name of the server, without user and password.

    Raises `StoreUnavailable` for an invalid URL, without quoting it.
    """
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        raise _make_url_error() from None  # libpq's reason quotes the password
    host = str(parts.get("host", "localhost"))
    if "@" in host:
        raise _make_url_error()
    return f"PostgreSQL at {host}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def migrate(raw: psycopg.Connection[Row], schema: str, server: str, upto: int = LATEST_SCHEMA) -> None:
    """Run pending migrations in one transaction; an advisory lock serializes workers that start together."""
    version = _read_version(raw, schema)
    check_not_newer(version, server)
    if version >= upto:
        return
    with raw.transaction():
        raw.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        if not raw.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone():
            raw.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        raw.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
        version = _read_version(raw, schema)
        for step in list_migrations(MIGRATIONS):
            if version < step.number <= upto:
                raw.execute(step.statements.encode())
        raw.execute("DELETE FROM schema_version")
        raw.execute("INSERT INTO schema_version (version) VALUES (%s)", (max(version, upto),))


def _require_utf8(raw: psycopg.Connection[Row], server: str) -> None:
    """Raise `StoreUnavailable` for a database in another encoding, which can't store every text."""
    encoding = raw.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"{server} has the encoding {encoding}, but Talaria needs UTF8. Create another database with"
            " `createdb --encoding=UTF8 --template=template0 NAME`, and name it in `store.url`."
        )


def _make_url_error() -> StoreUnavailable:
    return StoreUnavailable(
        "`store.url` isn't the address of a PostgreSQL server. It should look like"
        " postgresql://user:password@host:5432/database, with %40 for an @ in the password."
    )


def _open_notifications(url: str, options: PostgresOptions) -> Notifications:
    listener = PostgresListener(
        lambda: _connect(make_conninfo(url, **_KEEPALIVES), options, connect_timeout=_NOTIFY_CONNECT_SECONDS),
        options.channel,
    )
    return Notifications(listener, max_interval=options.poll_seconds)


def _connect(url: str, options: PostgresOptions, *, connect_timeout: int = _CONNECT_SECONDS) -> psycopg.Connection[Row]:
    connection: psycopg.Connection[Row] = psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=connect_timeout,
        tcp_user_timeout=_TCP_TIMEOUT_MILLISECONDS,
        application_name="talaria",
        client_encoding="utf8",
        options=" ".join(f"-c {name}={value}" for name, value in _build_session_settings(options).items()),
    )
    return connection


def _build_session_settings(options: PostgresOptions) -> dict[str, str | int]:
    """Return the server settings of a connection; the keepalives let the server detect dead clients."""
    return {
        "search_path": options.schema,
        "client_min_messages": "warning",
        "lock_timeout": round(options.busy_timeout_seconds * 1000),
        "idle_in_transaction_session_timeout": round(options.stall_seconds * 1000),
        **{f"tcp_{name}": value for name, value in _KEEPALIVES.items() if name != "keepalives"},
    }


def _read_version(raw: psycopg.Connection[Row], schema: str) -> int:
    version_table = raw.execute("SELECT to_regclass(%s)", (f'"{schema}".schema_version',)).fetchone()
    if version_table is None or version_table[0] is None:
        return 0
    row = raw.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()
    return int(row[0]) if row else 0
