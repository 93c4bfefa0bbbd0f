"""A store whose file is moved or deleted while open: writes are refused, and no data is lost."""

import logging
import shutil
from pathlib import Path

import pytest

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession, SessionFilter
from talaria.core.errors import StoreGone, StoreMissing
from talaria.storage.sqlite.open import open_sqlite
from talaria.storage.sqlite.store import open_sqlite_store


def create_session(tx: Transaction) -> str:
    return tx.sessions.create(NewSession(source="test")).id


def count(tx: Transaction) -> int:
    return len(tx.sessions.find(SessionFilter(limit=None)))


def rescued(folder: Path) -> list[Path]:
    return list(folder.glob("talaria.db.rescued-*"))


async def test_store_works_again_when_its_file_is_moved_back(tmp_path: Path) -> None:
    path, away = tmp_path / "talaria.db", tmp_path / "away.db"
    store = open_sqlite_store(path)
    await store.write(create_session)
    path.rename(away)
    with pytest.raises(StoreGone, match="moved away"):
        await store.write(create_session)
    assert not path.exists()
    away.rename(path)
    await store.write(create_session)
    await store.close()
    database = open_sqlite(path)
    assert database.read(count) == 2
    database.close()


async def test_store_works_again_when_its_folder_is_moved_back(tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    store = open_sqlite_store(folder / "talaria.db")
    await store.write(create_session)
    folder.rename(tmp_path / "away")
    with pytest.raises(StoreGone, match="moved away"):
        await store.write(create_session)
    assert not folder.exists()
    (tmp_path / "away").rename(folder)
    await store.write(create_session)
    assert await store.read(count) == 2
    await store.close()


async def test_deleted_file_is_rescued_as_a_copy_and_writes_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "talaria.db"
    store = open_sqlite_store(path)
    await store.write(create_session)
    path.unlink()
    for _ in range(2):
        with pytest.raises(StoreGone, match="deleted"):
            await store.write(create_session)
    with pytest.raises(StoreGone) as refused:
        await store.write(create_session)
    await store.close()
    (copy,) = rescued(tmp_path)
    assert str(copy) in str(refused.value)
    assert [str(copy) in record.message for record in caplog.records if record.levelno == logging.CRITICAL] == [True]
    assert copy.stat().st_mode & 0o077 == 0
    with pytest.raises(StoreMissing, match="Rename the copy"):
        open_sqlite(path)
    assert not path.exists()
    copy.rename(path)
    database = open_sqlite(path)
    assert database.read(count) == 1
    database.close()


async def test_replacement_of_the_file_is_not_written_to(tmp_path: Path) -> None:
    path, away = tmp_path / "talaria.db", tmp_path / "away.db"
    store = open_sqlite_store(path)
    await store.write(create_session)
    await store.close()
    store = open_sqlite_store(path)
    path.rename(away)
    shutil.copy(away, path)
    before = path.read_bytes()
    with pytest.raises(StoreGone, match="another file"):
        await store.write(create_session)
    assert path.read_bytes() == before
    await store.close()
    database = open_sqlite(path)
    database.write(create_session)
    assert database.read(count) == 2
    database.close()


async def test_no_new_file_is_created_while_the_removed_one_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "talaria.db"
    store = open_sqlite_store(path)
    await store.write(create_session)
    path.rename(tmp_path / "away.db")
    with pytest.raises(StoreGone, match="still uses it"):
        open_sqlite(path)
    assert not path.exists()
    await store.close()
    open_sqlite(path).close()
    assert path.exists()
