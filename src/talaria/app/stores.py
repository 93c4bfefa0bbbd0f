"""Open the store that the settings name, and mend a file that is damaged."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from talaria.app.subcommands import load
from talaria.contracts.store import Database, Store
from talaria.core.errors import Refused, StoreCorrupt
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile

_LOOK_AT_START = 20_000_000  # steps of SQLite: all of a small file, a tenth of a second in a large one


@contextmanager
def open_database(settings: Settings, profile: Profile) -> Iterator[Database]:
    """Open the profile's store for a short command, and close it behind the block.

    A file that proves damaged is mended at once, and `StoreCorrupt` says what became of it.
    """
    try:
        database = _opened(settings, profile)
        try:
            yield database
        finally:
            database.close()
    except StoreCorrupt as error:
        raise StoreCorrupt(f"{recover_store(settings, profile)} Run the command again.") from error


def open_store(settings: Settings, profile: Profile) -> tuple[Store, list[str]]:
    """Open the profile's store for a program that runs for long; the sentences tell of damage that was mended."""
    if settings.store.url:
        postgres = _postgres()
        store = postgres.open_postgres_store(
            settings.store.url, _postgres_options(postgres, settings), connections=settings.store.connections
        )
        return store, []
    sentences = []
    recovery = load("talaria.storage.sqlite.recovery")
    if profile.database_file.exists() and recovery.find_damage(
        profile.database_file, thorough=False, steps=_LOOK_AT_START
    ):
        sentences = [str(recovery.recover(profile.database_file))]
    sqlite = load("talaria.storage.sqlite.store")
    options = sqlite.SqliteOptions(settings.store.busy_timeout_seconds)
    return sqlite.open_sqlite_store(profile.database_file, options, readers=settings.store.readers), sentences


def check_store(settings: Settings, profile: Profile) -> list[str]:
    """Look at all of the store and return what is wrong with it, a sentence each."""
    if settings.store.url:
        with open_database(settings, profile):
            return []
    if not profile.database_file.exists():
        return []
    found: list[str] = load("talaria.storage.sqlite.recovery").find_damage(profile.database_file)
    return found


def recover_store(settings: Settings, profile: Profile) -> str:
    """Mend a damaged file and return what became of it."""
    if settings.store.url:
        raise Refused("The store is on a PostgreSQL server: its operators must repair it.")
    return str(load("talaria.storage.sqlite.recovery").recover(profile.database_file))


class ProfileStoreCare:
    """Finds and repairs damage of a profile's store."""

    def __init__(self, settings: Settings, profile: Profile) -> None:
        self._settings = settings
        self._profile = profile

    def check(self) -> list[str]:
        """Look through the whole store and return what is wrong with it, a sentence each."""
        return check_store(self._settings, self._profile)

    def recover(self) -> str:
        """Make a new store of what can be read, and say what was recovered and where the damaged one is kept."""
        return recover_store(self._settings, self._profile)


def _opened(settings: Settings, profile: Profile) -> Database:
    database: Database
    if settings.store.url:
        postgres = _postgres()
        database = postgres.open_postgres(settings.store.url, _postgres_options(postgres, settings))
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
        command = load("talaria.core.extras").install_command("postgres")
        raise Refused(f"store.url names a PostgreSQL server, which needs a library: `{command}` adds it.") from error


def _postgres_options(postgres: ModuleType, settings: Settings) -> object:
    options: object = postgres.PostgresOptions(settings.store.schema, settings.store.busy_timeout_seconds)
    return options
