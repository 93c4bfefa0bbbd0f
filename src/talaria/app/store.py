"""Store of a profile: opening, integrity checks and repair."""

import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Database, Store
from talaria.core.errors import Refused, StoreCorrupt, StoreError, StoreFull, StoreGone, StoreMissing, StoreUnavailable
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile

if TYPE_CHECKING:  # short commands avoid importing asyncio
    from asyncio import Event

_START_CHECK_STEPS = 20_000_000  # SQLite instructions: all of a small file, a fraction of a second of a large one


@contextmanager
def open_database(settings: Settings, profile: Profile) -> Iterator[Database]:
    """Open the profile's store for a short command, and close it after the block.

    A store that cannot be written is opened read-only if possible. A damaged file is repaired at once, and
    `StoreCorrupt` is raised with the result.
    """
    try:
        database = _open_or_read_only(settings, profile)
        try:
            yield database
        finally:
            database.close()
    except StoreCorrupt as error:
        raise StoreCorrupt(f"{recover_store(settings, profile)} Run the command again.") from error


def open_writable(settings: Settings, profile: Profile) -> Database:
    """Open the profile's store; create or migrate it if needed."""
    if settings.store.url:
        with _explain_missing_postgres():
            from talaria.storage.postgres.open import PostgresOptions, open_postgres  # noqa: PLC0415 (loaded for PostgreSQL)

        server = PostgresOptions(settings.store.schema, settings.store.busy_timeout_seconds)
        return open_postgres(settings.store.url, server)
    from talaria.storage.sqlite.open import SqliteOptions, open_sqlite  # noqa: PLC0415 (loaded for SQLite)

    return open_sqlite(profile.database_file, SqliteOptions(settings.store.busy_timeout_seconds))


def open_store(settings: Settings, profile: Profile) -> tuple[Store, list[str]]:
    """Open the profile's store for a long-running process; return it with messages about repaired damage.

    A SQLite file is checked first if its last user was killed or damage was found before.
    """
    if settings.store.url:
        with _explain_missing_postgres():
            from talaria.storage.postgres.open import PostgresOptions, open_postgres_store  # noqa: PLC0415 (loaded for PostgreSQL)

        server = PostgresOptions(settings.store.schema, settings.store.busy_timeout_seconds)
        return open_postgres_store(settings.store.url, server, connections=settings.store.connections), []
    from talaria.storage.sqlite.open import SqliteOptions  # noqa: PLC0415 (loaded for SQLite)
    from talaria.storage.sqlite.store import open_sqlite_store  # noqa: PLC0415 (loaded for SQLite)

    path = profile.database_file
    options = SqliteOptions(settings.store.busy_timeout_seconds)
    sentences = _repair_after_unclean_end(path)
    try:
        store = open_sqlite_store(path, options, readers=settings.store.readers)
    except StoreCorrupt:
        from talaria.storage.sqlite.recovery import recover  # noqa: PLC0415 (loaded when a file is damaged)

        sentences = [str(recover(path))]
        store = open_sqlite_store(path, options, readers=settings.store.readers)
    return store, sentences


def check_store(settings: Settings, profile: Profile) -> list[str]:
    """Check the whole store and return one message per problem."""
    if settings.store.url:
        with open_database(settings, profile):
            return []
    from talaria.storage.sqlite.recovery import find_damage  # noqa: PLC0415 (loaded when a file is checked)

    return find_damage(profile.database_file)


def recover_store(settings: Settings, profile: Profile) -> str:
    """Repair a damaged file and return a message about the result; raises `Refused` for PostgreSQL."""
    if settings.store.url:
        raise Refused(
            "The store is on a PostgreSQL server, so Talaria can't repair it. Ask the server's administrator."
        )
    from talaria.storage.sqlite.recovery import recover  # noqa: PLC0415 (loaded when a file is damaged)

    return str(recover(profile.database_file))


def replace_newer_store(settings: Settings, profile: Profile, fill: Callable[[Database], None]) -> str:
    """Replace a store that only a newer version can read by a new one that ``fill`` fills.

    Returns where the newer one is preserved. The replacement is complete before it takes the store's place.
    """
    now = SystemClock().now()
    if settings.store.url:
        from talaria.storage.postgres.open import PostgresOptions, drop_schema, open_postgres, swap_schemas  # noqa: PLC0415 (loaded for PostgreSQL)

        schema, url = settings.store.schema, settings.store.url
        draft, newer = f"{schema[:40]}_restored", f"{schema[:40]}_newer_{now:%Y%m%d%H%M%S}"
        drop_schema(url, draft)
        with closing(open_postgres(url, PostgresOptions(draft, settings.store.busy_timeout_seconds))) as database:
            fill(database)
        swap_schemas(url, PostgresOptions(schema, settings.store.busy_timeout_seconds), draft, newer)
        return f"the schema {newer}"
    from talaria.storage.sqlite.open import SqliteOptions, open_sqlite  # noqa: PLC0415 (loaded for SQLite)
    from talaria.storage.sqlite.recovery import swap_store  # noqa: PLC0415 (loaded for SQLite)
    from talaria.storage.sqlite.store_file import StoreLock  # noqa: PLC0415 (loaded for SQLite)

    store = profile.database_file
    draft_file = store.with_name(f"{store.name}.restored")
    try:
        _remove_draft(draft_file)
        with closing(open_sqlite(draft_file, SqliteOptions(settings.store.busy_timeout_seconds))) as database:
            fill(database)
        lock = StoreLock(store, alone=True)
        try:
            return str(swap_store(store, draft_file, now))
        finally:
            lock.end()
    finally:
        _remove_draft(draft_file)


def _remove_draft(draft: Path) -> None:
    for file in draft.parent.glob(f"{draft.name}*"):
        file.unlink(missing_ok=True)


class ProfileStoreMaintenance:
    """Maintenance of a profile's store: check, repair, and wait until it is usable."""

    def __init__(self, settings: Settings, profile: Profile, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._profile = profile
        self._environment = environment

    def check(self) -> list[str]:
        """Check the whole store and return one message per problem."""
        return check_store(self._settings, self._profile)

    def recover(self) -> str:
        """Create a new store from readable data; return what was recovered and where the damaged file is."""
        return recover_store(self._settings, self._profile)

    def replace_newer(self, fill: Callable[[Database], None]) -> str:
        """Replace a store that only a newer version can read; return where that is preserved."""
        return replace_newer_store(self._settings, self._profile, fill)

    def wait_until_usable(self, stop: "Event", report: Callable[[str], None]) -> Coroutine[Any, Any, None]:
        """Wait at server start until the store is writable, ``stop`` is set or the time is over."""
        from talaria.app.store_wait import wait_for_store  # noqa: PLC0415 (loaded when a server starts)
        from talaria.settings.secrets import read_secrets  # noqa: PLC0415 (loaded when a server starts)

        secrets = read_secrets(self._profile, self._environment)
        return wait_for_store(self._settings, self._profile, secrets, stop, report)


def _repair_after_unclean_end(path: Path) -> list[str]:
    """Check the file after an unclean end or earlier damage, and repair it.

    A check after an unclean end has a step limit; an incomplete one leaves the state unknown for a later check.
    """
    from talaria.storage.sqlite.store_file import CheckRecord  # noqa: PLC0415 (loaded for SQLite)

    clock = SystemClock()
    record = CheckRecord(path)
    record.note_unclean_end(clock.now())
    state = record.state
    if state not in {"unclean", "damaged"}:
        return []
    from talaria.storage.sqlite.recovery import examine, recover  # noqa: PLC0415 (loaded after an unclean end)

    found = examine(path, thorough=state == "damaged", steps=0 if state == "damaged" else _START_CHECK_STEPS)
    if found.damage:
        return [str(recover(path))]
    record.write("sound" if found.complete else "unknown", clock.now())
    return []


def _open_or_read_only(settings: Settings, profile: Profile) -> Database:
    try:
        return open_writable(settings, profile)
    except (StoreFull, StoreUnavailable) as error:
        if settings.store.url or not _is_readable(profile.database_file, error):
            raise
        from talaria.storage.sqlite.read_only import open_read_only  # noqa: PLC0415 (loaded when a file cannot be written)

        return open_read_only(profile.database_file, error)


def _is_readable(path: Path, error: StoreError) -> bool:
    """Return whether a store that cannot be opened for writing exists and is readable."""
    return not isinstance(error, StoreGone | StoreMissing) and os.access(path, os.R_OK)


@contextmanager
def _explain_missing_postgres() -> Iterator[None]:
    """Replace the import error for a missing PostgreSQL library with `Refused`, naming the install command."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        from talaria.core.installation import install_command  # noqa: PLC0415 (loaded when a library is missing)

        command = install_command("postgres")
        raise Refused(
            f"store.url names a PostgreSQL server, which needs a library that isn't installed. `{command}` installs it."
        ) from error
