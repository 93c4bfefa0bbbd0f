"""The engines that every contract is tested on, and how a test opens them."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import psycopg
from msgspec import Struct

from talaria.contracts.clock import Clock
from talaria.contracts.store import Database, Transaction
from talaria.core.ids import WorkerId
from talaria.storage.async_store import ThreadedStore
from talaria.storage.postgres.open import PostgresOptions, open_postgres, open_postgres_store
from talaria.storage.sqlite.open import SqliteOptions, open_sqlite
from talaria.storage.sqlite.store import open_sqlite_store


class StoreLocation(Struct, frozen=True):
    """Address of a store that a test can open any number of times: a file, or a schema of a server."""

    engine: str
    address: str
    schema: str = ""

    @property
    def arguments(self) -> list[str]:
        """The store as arguments of a command line; `parse_store_location` reads them."""
        return [self.engine, self.address, self.schema]

    def open(self, clock: Clock, worker: str = "worker-1", *, patience: float = 5) -> Database:
        """Return the blocking store, which waits at most ``patience`` seconds for others."""
        if self.engine == "sqlite":
            return open_sqlite(Path(self.address), SqliteOptions(patience, clock=clock, worker=WorkerId(worker)))
        options = PostgresOptions(self.schema, patience, clock=clock, worker=WorkerId(worker))
        return open_postgres(self.address, options)

    def open_store(self, clock: Clock, worker: str = "worker-1", *, poll_seconds: float = 1) -> ThreadedStore:
        """Return the store for asyncio."""
        name = WorkerId(worker)
        if self.engine == "sqlite":
            file = SqliteOptions(clock=clock, worker=name, poll_seconds=poll_seconds)
            return open_sqlite_store(Path(self.address), file)
        options = PostgresOptions(self.schema, clock=clock, worker=name, poll_seconds=poll_seconds)
        return open_postgres_store(self.address, options)

    def drop(self) -> None:
        """Drop the schema, if the store is not a file in a temporary folder."""
        if self.engine == "postgres":
            with psycopg.connect(self.address, autocommit=True) as raw:
                raw.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE".encode())


@cache
def empty_sqlite_file() -> bytes:
    """Return the bytes of a store without rows: copying takes a fifth of the time of creating its tables."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "talaria.db"
        open_sqlite(file).close()
        return file.read_bytes()


def create_empty_store(file: Path) -> None:
    """Create a store with all tables and no rows, unless there is one."""
    if not file.exists():
        file.touch(0o600)
        file.write_bytes(empty_sqlite_file())


def parse_store_location(arguments: list[str]) -> StoreLocation:
    """Return the store that `StoreLocation.arguments` describes."""
    engine, address, schema = arguments
    return StoreLocation(engine, address, schema)


def transaction_per_call(database: Database) -> Transaction:
    """Return an object like a transaction in which each call runs in its own transaction."""
    return cast("Transaction", _Subjects(database))


class _Subjects:
    def __init__(self, database: Database) -> None:
        self._database = database

    def __getattr__(self, subject: str) -> "_Calls":
        return _Calls(self._database, subject)

    def notify(self, topic: str) -> None:
        self._database.write(lambda tx: tx.notify(topic))


class _Calls:
    def __init__(self, database: Database, subject: str) -> None:
        self._database = database
        self._subject = subject

    def __getattr__(self, call: str) -> Any:
        def run(*values: Any, **named: Any) -> Any:
            return self._database.write(lambda tx: getattr(getattr(tx, self._subject), call)(*values, **named))

        return run
