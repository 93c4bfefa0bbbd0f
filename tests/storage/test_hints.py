"""How hints travel on each engine, and what becomes of them when the way is cut off."""

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.storage.engines import Place

from talaria.contracts.clock import SystemClock
from talaria.core.ids import new_id
from talaria.storage.database import ConnectionDatabase
from talaria.storage.postgres.hints import channel_of
from talaria.storage.sqlite.file_bell import FileBell
from talaria.storage.sqlite.hints import CommitCourier, FileChanges
from talaria.storage.sqlite.opening import open_sqlite
from talaria.storage.sqlite.vigil import Vigil
from talaria.storage.threaded import ThreadedStore
from talaria.testing.postgres import MISSING, PostgresServer, find_postgres

NEVER = 3600.0
LISTENERS = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND query LIKE %s"


@asynccontextmanager
async def opened(place: Place, *, look_seconds: float = NEVER) -> AsyncIterator[ThreadedStore]:
    store = place.open_store(SystemClock(), look_seconds=look_seconds)
    try:
        yield store
    finally:
        await store.close()


async def once(event: asyncio.Event) -> None:
    """Wait until an event is set, and clear it."""
    async with asyncio.timeout(20):
        await event.wait()
    event.clear()


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as raw:
        yield raw


async def listeners(place: Place, count: int) -> list[int]:
    """Return the server's processes that listen for hints of a store, once there are so many."""
    return await asyncio.to_thread(_listeners, place, count)


def _listeners(place: Place, count: int) -> list[int]:
    deadline = time.monotonic() + 20
    with connected(place.address) as raw:
        while True:
            found = [pid for (pid,) in raw.execute(LISTENERS, (f"%{channel_of(place.schema)}%",))]
            if len(found) == count or time.monotonic() > deadline:
                return found
            time.sleep(0.01)


def test_a_look_at_a_file_sees_each_commit_once(sqlite_place: Place) -> None:
    database = sqlite_place.open(SystemClock())
    with closing(FileChanges(Path(sqlite_place.address))) as changes:
        assert changes.look()
        assert not changes.look()
        for number in range(3):
            database.write(lambda tx, number=number: tx.state.put("key", str(number)))  # type: ignore[misc]
            assert changes.look()
            assert not changes.look()
    database.close()


def test_work_that_writes_nothing_is_no_reason_to_look_again(sqlite_place: Place) -> None:
    database = sqlite_place.open(SystemClock())
    with closing(FileChanges(Path(sqlite_place.address))) as changes:
        changes.look()
        database.write(lambda tx: tx.outbox.claim("telegram", timedelta(minutes=1)))
        database.read(lambda tx: tx.state.get("key"))
        assert not changes.look()
    database.close()


def put(database: ConnectionDatabase, value: str) -> None:
    database.write(lambda tx: tx.state.put("key", value))


def test_a_bell_rings_when_the_log_is_written_to_and_for_nothing_else(sqlite_place: Place) -> None:
    database = open_sqlite(Path(sqlite_place.address))
    put(database, "")
    with closing(FileBell(Path(f"{sqlite_place.address}-wal"))) as bell:
        database.write(lambda tx: tx.outbox.claim("telegram", timedelta(minutes=1)))
        database.read(lambda tx: tx.state.get("key"))
        assert not bell.has_rung()
        put(database, "one")
        assert bell.wait(20)
        assert not bell.has_rung()
        bell.silence()
        assert not bell.wait(NEVER)
    database.close()


def test_there_is_no_bell_for_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileBell(tmp_path / "nothing")


@pytest.mark.parametrize("log", ["talaria.db-wal", "deaf", "missing"])
def test_commits_are_noticed_whether_the_system_tells_of_them_or_not(tmp_path: Path, log: str) -> None:
    path, heard = tmp_path / "talaria.db", queue.SimpleQueue[str | None]()
    (tmp_path / "deaf").touch()
    database = open_sqlite(path)
    courier = CommitCourier(path, listens_after=0, log=tmp_path / log)
    courier.attend(heard.put)
    assert heard.get(timeout=20) is None
    for number in range(8):
        put(database, str(number))
        assert heard.get(timeout=20) is None
    courier.leave()
    courier.attend(heard.put)
    assert heard.get(timeout=20) is None
    courier.close()
    database.close()


def test_behind_the_bell_there_are_looks_until_the_commit_is_there_and_a_moment_longer() -> None:
    vigil, now, looks = Vigil(0.04, 0.0), 10.0, 1
    assert vigil.is_asleep(now)
    vigil.looked(now, rung=True, found=False)
    while now < 10.03:
        assert not vigil.is_asleep(now)
        now, looks = now + vigil.pause, looks + 1
        vigil.looked(now, rung=False, found=False)
    assert looks < 10
    assert not vigil.is_asleep(now)
    vigil.looked(now, rung=True, found=True)
    assert vigil.pause == 0.04
    assert not vigil.is_asleep(now + 0.09)
    assert vigil.is_asleep(now + 0.2)


def test_a_bell_for_what_was_undone_keeps_nobody_awake_for_ever() -> None:
    vigil = Vigil(0.04, 0.0)
    assert vigil.is_asleep(10.0)
    vigil.looked(10.0, rung=True, found=False)
    assert not vigil.is_asleep(14.9)
    assert vigil.is_asleep(15.1)


def test_a_bell_that_has_missed_several_commits_is_not_trusted_any_more() -> None:
    vigil = Vigil(0.04, 0.0)
    for number, rung in enumerate((False, False, True, False, False, False)):
        assert vigil.trusts_bell
        assert vigil.is_asleep(10.0 + number)
        vigil.looked(10.0 + number, rung=rung, found=True)
        assert not vigil.is_asleep(10.05 + number)
        vigil.looked(10.05 + number, rung=False, found=True)
    assert not vigil.trusts_bell


async def test_all_who_heed_are_reminded_together(place: Place) -> None:
    async with (
        opened(place, look_seconds=0.05) as store,
        store.heeding("inbox") as first,
        store.heeding("outbox") as second,
    ):
        for _ in range(5):
            await once(first)
            assert second.is_set()
            second.clear()


def test_upkeep_is_needed_where_something_was_written(sqlite_place: Place) -> None:
    database = open_sqlite(Path(sqlite_place.address))
    assert not database.is_tended
    assert not database.tend()
    assert database.is_tended
    database.write(lambda tx: tx.outbox.claim("telegram", timedelta(minutes=1)))
    assert database.is_tended
    put(database, "one")
    assert not database.is_tended
    database.close()


async def test_a_vanished_file_is_not_the_trouble_of_who_heeds(tmp_path: Path) -> None:
    place = Place("sqlite", str(tmp_path / "profile" / "talaria.db"))
    async with opened(place, look_seconds=0.01) as store:
        async with store.heeding("inbox") as event:
            await once(event)
            rmtree(tmp_path / "profile")
            await store.hint("inbox")
            assert event.is_set()
        async with store.heeding("inbox") as event:
            for _ in range(3):
                await once(event)
    assert not (tmp_path / "profile").exists()


async def test_many_hints_of_a_topic_at_once_travel_as_one(postgres_place: Place) -> None:
    channel = channel_of(postgres_place.schema)
    with connected(postgres_place.address) as raw:
        raw.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        async with opened(postgres_place) as store:
            for number in range(100):
                await store.hint(f"topic {number % 2}")
        raw.execute("SELECT pg_notify(%s, 'end')", (channel,))
        heard = []
        for notice in raw.notifies(timeout=20):
            if notice.payload == "end":
                break
            heard.append(notice.payload)
    assert sorted(heard) == ["topic 0", "topic 1"]


@pytest.fixture
def other_database(postgres_place: Place) -> Iterator[Place]:
    """A schema of the same name in another database of the same server."""
    name = f"test_{new_id()}"
    with connected(postgres_place.address) as raw:
        raw.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield Place("postgres", make_conninfo(postgres_place.address, dbname=name), postgres_place.schema)
        raw.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


async def test_stores_of_one_server_do_not_hear_each_others_hints(postgres_place: Place, other_database: Place) -> None:
    other_schema = Place("postgres", postgres_place.address, f"{postgres_place.schema}_{'x' * 20}")
    async with opened(postgres_place) as store, store.heeding("inbox") as ours, store.heeding("end") as end:
        await once(ours)
        end.clear()
        for place, topic in ((other_schema, "inbox"), (other_database, "inbox"), (postgres_place, "end")):
            async with opened(place) as other:
                await other.hint(topic)
        await once(end)
        assert not ours.is_set()
    other_schema.drop()


async def test_a_broken_connection_is_made_anew_and_all_who_heed_look(postgres_place: Place) -> None:
    async with opened(postgres_place) as store, opened(postgres_place) as other, store.heeding("inbox") as event:
        await once(event)
        for _ in range(2):
            [listener] = await listeners(postgres_place, 1)
            with connected(postgres_place.address) as raw:
                raw.execute("SELECT pg_terminate_backend(%s)", (listener,))
            await once(event)
            await other.hint("inbox")
            await once(event)


async def test_nobody_listens_where_nobody_heeds(postgres_place: Place) -> None:
    async with opened(postgres_place) as store:
        async with store.heeding("inbox") as event:
            await once(event)
            async with store.heeding("outbox"):
                assert len(await listeners(postgres_place, 1)) == 1
        assert await listeners(postgres_place, 0) == []


@pytest.mark.skipif(find_postgres() is None, reason=MISSING)
async def test_a_server_that_went_away_and_came_back_is_listened_to_again() -> None:
    with PostgresServer() as server:
        place = Place("postgres", server.url, f"test_{new_id()}")
        async with (
            opened(place) as store,
            opened(place, look_seconds=0.01) as impatient,
            store.heeding("inbox") as event,
            impatient.heeding("inbox") as reminded,
        ):
            await once(event)
            await asyncio.to_thread(server.stop)
            for _ in range(3):
                await impatient.hint("inbox")
                await once(reminded)
            await asyncio.to_thread(server.start)
            await once(event)
            async with opened(place) as other:
                await other.hint("inbox")
            await once(event)
