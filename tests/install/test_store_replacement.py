"""Store changed by a newer version: the older version restores its backup and preserves the newer store."""

from pathlib import Path

import apsw
import psycopg
import pytest
from tests.app.program import Program
from tests.storage.engines import StoreLocation

from talaria.app.store import open_database
from talaria.contracts.stores.sessions import NewSession, SessionFilter
from talaria.core.errors import StoreTooNew
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles

pytestmark = pytest.mark.slow


@pytest.fixture
def program(tmp_path: Path, new_store_location: StoreLocation) -> Program:
    """A program with one session and a backup of it."""
    program = Program(tmp_path)
    if new_store_location.engine == "postgres":
        folder = tmp_path / "profiles" / "default"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(
            f'[store]\nurl = "{new_store_location.address}"\nschema = "{new_store_location.schema}"\n'
        )
    create_session(program, "Before the update")
    assert program.run("backup", str(tmp_path / "before.zip")).code == 0
    return program


def create_session(program: Program, title: str) -> None:
    profile = Profiles(program.home).active()
    with open_database(load_settings(profile, {}), profile) as database:
        database.write(lambda tx: tx.sessions.create(NewSession(source="cli", title=title)))


def list_titles(program: Program) -> list[str]:
    profile = Profiles(program.home).active()
    with open_database(load_settings(profile, {}), profile) as database:
        return [one.title for one in database.read(lambda tx: tx.sessions.find(SessionFilter()))]


def change_like_a_newer_version(program: Program, store_location: StoreLocation) -> None:
    """Raise the schema's number, as the migrations of a newer version do."""
    if store_location.engine == "sqlite":
        connection = apsw.Connection(str(Profiles(program.home).active().database_file))
        connection.execute("PRAGMA user_version = 999")
        connection.close()
        return
    with psycopg.connect(store_location.address, autocommit=True) as raw:
        raw.execute(f'UPDATE "{store_location.schema}".schema_version SET version = 999'.encode())


def test_newer_store_is_replaced_by_the_backup_and_preserved(
    program: Program, new_store_location: StoreLocation, tmp_path: Path
) -> None:
    create_session(program, "After the update")
    change_like_a_newer_version(program, new_store_location)
    with pytest.raises(StoreTooNew):
        list_titles(program)
    done = program.run("update", "--restore-store", str(tmp_path / "before.zip"))
    assert done.code == 0, done.err
    assert "was restored from" in done.out
    assert list_titles(program) == ["Before the update"]
    again = program.run("update", "--restore-store", str(tmp_path / "before.zip"))
    assert (again.code, again.out) == (0, "")
    if new_store_location.engine == "sqlite":
        (newer,) = tmp_path.glob("profiles/default/talaria.db.newer-*")
        connection = apsw.Connection(str(newer))
        assert connection.execute("SELECT count(*) FROM sessions").fetchall() == [(2,)]
        connection.close()
        return
    with psycopg.connect(new_store_location.address, autocommit=True) as raw:
        row = raw.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE %s", (f"{new_store_location.schema}_newer_%",)
        ).fetchone()
        assert row is not None
        raw.execute(f'DROP SCHEMA "{row[0]}" CASCADE'.encode())


def test_damaged_backup_leaves_the_newer_store_unchanged(
    program: Program, new_store_location: StoreLocation, tmp_path: Path
) -> None:
    change_like_a_newer_version(program, new_store_location)
    (tmp_path / "before.zip").write_bytes(b"no zip")
    refused = program.run("update", "--restore-store", str(tmp_path / "before.zip"))
    assert refused.code == 1
    assert "isn't a complete Talaria backup" in refused.err
    with pytest.raises(StoreTooNew):
        list_titles(program)
