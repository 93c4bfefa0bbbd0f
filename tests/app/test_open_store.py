"""Opening the store of the settings, and repair of a damaged store."""

from pathlib import Path

import pytest
from tests.app.program import Program
from tests.cli.stored_sessions import converse, text_message

from talaria.app.store import check_store, open_database, open_store, recover_store
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession, SessionFilter, StoredMessage
from talaria.core.errors import Refused, StoreCorrupt
from talaria.settings.load import load_settings
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile, Profiles
from talaria.storage.sqlite.open import open_sqlite
from talaria.storage.sqlite.store_file import CheckRecord

PAGE = 4096


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    """A profile with one session."""
    program = Program(tmp_path)
    converse(program, NewSession(source="cli", title="Travel"), *(text_message(f"words {n} " * 40) for n in range(200)))
    return Profiles(tmp_path).active()


@pytest.fixture
def settings(profile: Profile) -> Settings:
    return load_settings(profile, {})


async def test_damaged_store_is_repaired_at_start_after_an_unclean_end(profile: Profile, settings: Settings) -> None:
    _corrupt(profile.database_file)
    _end_uncleanly(profile.database_file)
    store, sentences = open_store(settings, profile)
    found = await store.read(lambda tx: tx.sessions.find(SessionFilter()))
    await store.close()
    assert [session.title for session in found] == ["Travel"]
    assert "recovered" in " ".join(sentences)
    assert check_store(settings, profile) == []


async def test_short_command_records_an_unclean_end_for_the_next_start(profile: Profile, settings: Settings) -> None:
    _corrupt(profile.database_file)
    _end_uncleanly(profile.database_file)
    with open_database(settings, profile):
        pass
    assert not _log(profile).exists()
    store, sentences = open_store(settings, profile)
    await store.close()
    assert "recovered" in " ".join(sentences)


async def test_cleanly_closed_store_is_not_checked_at_start(profile: Profile, settings: Settings) -> None:
    _corrupt(profile.database_file)
    store, sentences = open_store(settings, profile)
    await store.close()
    assert sentences == []


async def test_store_in_use_by_another_process_does_not_count_as_unclean_end(
    profile: Profile, settings: Settings
) -> None:
    first, _ = open_store(settings, profile)
    await first.write(lambda tx: tx.named_values.put("test", "key", "value"))
    assert _log(profile).stat().st_size > 0
    second, _ = open_store(settings, profile)
    await second.close()
    await first.close()
    assert CheckRecord(profile.database_file).state == "sound"


async def test_damage_found_by_a_read_is_repaired_at_the_next_start(profile: Profile, settings: Settings) -> None:
    _corrupt(profile.database_file)
    store, _ = open_store(settings, profile)
    with pytest.raises(StoreCorrupt):
        await store.read(_all_messages)
    await store.close()
    store, sentences = open_store(settings, profile)
    assert await store.read(_all_messages)
    await store.close()
    assert "recovered" in " ".join(sentences)


async def test_intact_store_opens_without_a_message_after_an_unclean_end(profile: Profile, settings: Settings) -> None:
    _end_uncleanly(profile.database_file)
    store, sentences = open_store(settings, profile)
    await store.close()
    assert sentences == []
    assert CheckRecord(profile.database_file).state == "sound"


def test_short_command_repairs_damage_and_asks_to_run_it_again(profile: Profile, settings: Settings) -> None:
    _corrupt(profile.database_file)
    with pytest.raises(StoreCorrupt, match="Run the command again"):
        _load_all(settings, profile)
    assert _load_all(settings, profile)


def test_repair_of_a_postgresql_store_is_refused(profile: Profile, postgres_url: str) -> None:
    settings = load_settings(profile, {"TALARIA__STORE__URL": postgres_url, "TALARIA__STORE__SCHEMA": "checked"})
    assert check_store(settings, profile) == []
    with pytest.raises(Refused, match="administrator"):
        recover_store(settings, profile)


def _load_all(settings: Settings, profile: Profile) -> list[StoredMessage]:
    with open_database(settings, profile) as database:
        return database.read(_all_messages)


def _log(profile: Profile) -> Path:
    return Path(f"{profile.database_file}-wal")


def _all_messages(tx: Transaction) -> list[StoredMessage]:
    return tx.messages.load(tx.sessions.find(SessionFilter())[0].id)


def _end_uncleanly(file: Path) -> None:
    """Leave a store like a killed process does, with a write-ahead log."""
    database = open_sqlite(file)
    database.write(lambda tx: tx.named_values.put("test", "last", "words"))
    names = [file, Path(f"{file}-wal")]
    left = [name.read_bytes() for name in names]
    database.close()
    for name, content in zip(names, left, strict=True):
        name.write_bytes(content)


def _corrupt(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(file.stat().st_size - 3 * PAGE)
        stream.write(bytes([7]) * PAGE)
