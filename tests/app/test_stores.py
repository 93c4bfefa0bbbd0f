"""The program opens the store that its settings name, and mends it where it is damaged."""

from pathlib import Path

import pytest
from tests.app.program import Program
from tests.cli.conversations import converse, said

from talaria.app.stores import check_store, open_database, open_store, recover_store
from talaria.contracts.stores.messages import StoredMessage
from talaria.contracts.stores.sessions import NewSession, SessionFilter
from talaria.core.errors import Refused, StoreCorrupt
from talaria.settings.load import load_settings
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile, Profiles

PAGE = 4096


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    """A profile with one conversation."""
    program = Program(tmp_path)
    converse(program, NewSession(source="cli", title="Travel"), *(said(f"words {n} " * 40) for n in range(200)))
    return Profiles(tmp_path).active()


@pytest.fixture
def settings(profile: Profile) -> Settings:
    return load_settings(profile, {})


async def test_a_long_running_program_starts_on_a_mended_store_and_says_so(
    profile: Profile, settings: Settings
) -> None:
    _spoil(profile.database_file)
    store, sentences = open_store(settings, profile)
    found = await store.read(lambda tx: tx.sessions.find(SessionFilter()))
    await store.close()
    assert [session.title for session in found] == ["Travel"]
    assert "recovered" in " ".join(sentences)
    assert check_store(settings, profile) == []


async def test_a_sound_store_opens_without_a_word(profile: Profile, settings: Settings) -> None:
    store, sentences = open_store(settings, profile)
    await store.close()
    assert sentences == []


def test_a_short_command_that_meets_damage_mends_it_and_asks_to_be_run_again(
    profile: Profile, settings: Settings
) -> None:
    _spoil(profile.database_file)
    with pytest.raises(StoreCorrupt, match="Run the command again"):
        _load_all(settings, profile)
    assert _load_all(settings, profile)


def test_the_store_of_a_server_is_repaired_by_its_operators(profile: Profile, postgres_url: str) -> None:
    settings = load_settings(profile, {"TALARIA__STORE__URL": postgres_url, "TALARIA__STORE__SCHEMA": "checked"})
    assert check_store(settings, profile) == []
    with pytest.raises(Refused, match="operators"):
        recover_store(settings, profile)


def _load_all(settings: Settings, profile: Profile) -> list[StoredMessage]:
    with open_database(settings, profile) as database:
        session = database.read(lambda tx: tx.sessions.find(SessionFilter()))[0]
        return database.read(lambda tx: tx.messages.load(session.id))


def _spoil(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(file.stat().st_size - 3 * PAGE)
        stream.write(bytes([7]) * PAGE)
