"""Open the store that the settings name."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from talaria.app.subcommands import load
from talaria.contracts.store import Database, Store
from talaria.core.errors import Refused
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile


@contextmanager
def open_database(settings: Settings, profile: Profile) -> Iterator[Database]:
    """Open the profile's store for a short command, and close it behind the block."""
    database = _opened(settings, profile)
    try:
        yield database
    finally:
        database.close()


def open_store(settings: Settings, profile: Profile) -> Store:
    """Open the profile's store for a program that runs for long."""
    store: Store
    if settings.store.url:
        postgres = _postgres()
        options = postgres.PostgresOptions(settings.store.schema, settings.store.busy_timeout_seconds)
        store = postgres.open_postgres_store(settings.store.url, options, connections=settings.store.connections)
    else:
        sqlite = load("talaria.storage.sqlite.store")
        options = sqlite.SqliteOptions(settings.store.busy_timeout_seconds)
        store = sqlite.open_sqlite_store(profile.database_file, options, readers=settings.store.readers)
    return store


def _opened(settings: Settings, profile: Profile) -> Database:
    database: Database
    if settings.store.url:
        postgres = _postgres()
        options = postgres.PostgresOptions(settings.store.schema, settings.store.busy_timeout_seconds)
        database = postgres.open_postgres(settings.store.url, options)
    else:
        sqlite = load("talaria.storage.sqlite.opening")
        database = sqlite.open_sqlite(profile.database_file, sqlite.SqliteOptions(settings.store.busy_timeout_seconds))
    return database


def _postgres() -> ModuleType:
    try:
        return load("talaria.storage.postgres.opening")
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise Refused("store.url names a PostgreSQL server: install 'talaria-agent[postgres]' to use one.") from error
