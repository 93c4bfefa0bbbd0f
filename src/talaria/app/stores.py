"""Open the store that the settings name, and repair a file that is damaged."""

import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from talaria.app.subcommands import load
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Database, Store
from talaria.core.errors import Refused, StoreCorrupt, StoreError, StoreFull, StoreGone, StoreMissing, StoreUnavailable
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile

if TYPE_CHECKING:  # short commands do without asyncio
    from asyncio import Event

_STEPS_AT_START = 20_000_000  # of SQLite: all of a small file, a fraction of a second of a large one


@contextmanager
def open_database(settings: Settings, profile: Profile) -> Iterator[Database]:
    """Open the profile's store for a short command, and close it after the block.

    A file that proves damaged is repaired at once, and `StoreCorrupt` says what became of it.
    """
    try:
        database = _opened(settings, profile)
        try:
            yield database
        finally:
            database.close()
    except StoreCorrupt as error:
        raise StoreCorrupt(f"{recover_store(settings, profile)} Run the command again.") from error


def open_writable(settings: Settings, profile: Profile) -> Database:
    """Open the profile's store, created or brought up to date where needed."""
    database: Database
    if settings.store.url:
        postgres = _postgres()
        database = postgres.open_postgres(settings.store.url, _postgres_options(postgres, settings))
    else:
        sqlite = load("talaria.storage.sqlite.opening")
        database = sqlite.open_sqlite(profile.database_file, sqlite.SqliteOptions(settings.store.busy_timeout_seconds))
    return database


def open_store(settings: Settings, profile: Profile) -> tuple[Store, list[str]]:
    """Open the profile's store for a program that runs for long; the sentences report damage that was repaired.

    A SQLite file is looked at first if its last user was killed, or damage was met in it.
    """
    if settings.store.url:
        postgres = _postgres()
        store = postgres.open_postgres_store(
            settings.store.url, _postgres_options(postgres, settings), connections=settings.store.connections
        )
        return store, []
    path = profile.database_file
    sqlite = load("talaria.storage.sqlite.store")
    options = sqlite.SqliteOptions(settings.store.busy_timeout_seconds)
    sentences = _repair_after_unclean_end(path)
    try:
        store = sqlite.open_sqlite_store(path, options, readers=settings.store.readers)
    except StoreCorrupt:
        sentences = [str(_recovery().recover(path))]
        store = sqlite.open_sqlite_store(path, options, readers=settings.store.readers)
    return store, sentences


def check_store(settings: Settings, profile: Profile) -> list[str]:
    """Look at all of the store and return what is wrong with it, a sentence each."""
    if settings.store.url:
        with open_database(settings, profile):
            return []
    found: list[str] = _recovery().find_damage(profile.database_file)
    return found


def recover_store(settings: Settings, profile: Profile) -> str:
    """Repair a damaged file and return what became of it."""
    if settings.store.url:
        raise Refused("The store is on a PostgreSQL server: its operators must repair it.")
    return str(_recovery().recover(profile.database_file))


class ProfileStoreCare:
    """Finds and repairs damage of a profile's store, and waits for one that cannot be used yet."""

    def __init__(self, settings: Settings, profile: Profile, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._profile = profile
        self._environment = environment

    def check(self) -> list[str]:
        """Look through the whole store and return what is wrong with it, a sentence each."""
        return check_store(self._settings, self._profile)

    def recover(self) -> str:
        """Make a new store of what can be read, and say what was recovered and where the damaged one is kept."""
        return recover_store(self._settings, self._profile)

    def wait_until_usable(self, stop: "Event", report: Callable[[str], None]) -> Coroutine[Any, Any, None]:
        """Wait, when a server starts, until the store can be written, ``stop`` is set or the time is over."""
        secrets = load("talaria.settings.secrets").read_secrets(self._profile, self._environment)
        waiting: Coroutine[Any, Any, None] = load("talaria.app.store_wait").wait_for_store(
            self._settings, self._profile, secrets, stop, report
        )
        return waiting


def _repair_after_unclean_end(path: Path) -> list[str]:
    """Look for damage where there is a reason to, and repair it; a look that was cut short is left to a later check."""
    clock = SystemClock()
    record = load("talaria.storage.sqlite.check_record").CheckRecord(path)
    record.note_unclean_end(clock.now())
    state = record.state
    if state not in {"unclean", "damaged"}:
        return []
    recovery = _recovery()
    found = recovery.examine(path, thorough=state == "damaged", steps=0 if state == "damaged" else _STEPS_AT_START)
    if found.damage:
        return [str(recovery.recover(path))]
    record.write("sound" if found.complete else "unknown", clock.now())
    return []


def _recovery() -> ModuleType:
    return load("talaria.storage.sqlite.recovery")


def _opened(settings: Settings, profile: Profile) -> Database:
    try:
        return open_writable(settings, profile)
    except (StoreFull, StoreUnavailable) as error:
        if settings.store.url or not _may_be_read(profile.database_file, error):
            raise
        read_only: Database = load("talaria.storage.sqlite.read_only").open_read_only(profile.database_file, error)
        return read_only


def _may_be_read(path: Path, error: StoreError) -> bool:
    """Tell whether a store that cannot be opened for writing is there and may be opened for reading."""
    return not isinstance(error, StoreGone | StoreMissing) and os.access(path, os.R_OK)


def _postgres() -> ModuleType:
    try:
        return load("talaria.storage.postgres.opening")
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        command = load("talaria.core.extras").install_command("postgres")
        raise Refused(f"store.url names a PostgreSQL server, which needs a library: `{command}` adds it.") from error


def _postgres_options(postgres: ModuleType, settings: Settings) -> object:
    options: object = postgres.PostgresOptions(settings.store.schema, settings.store.busy_timeout_seconds)
    return options
