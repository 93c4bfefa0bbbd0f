"""Notifications between processes on each engine, also after a lost connection."""

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import apsw
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.storage.engines import StoreLocation
from tests.storage.subscription_probe import clear, notified, wait_for_wake_up, wait_until_connected

from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Database, Transaction
from talaria.core.ids import new_id
from talaria.storage.async_store import ThreadedStore
from talaria.storage.postgres.connection import make_channel_name
from talaria.storage.sqlite.inotify import InotifyWatch
from talaria.storage.sqlite.notifications import CommitListener, FileChanges, PollSchedule
from talaria.storage.sqlite.open import open_sqlite
from talaria.testing.postgres import MISSING, PostgresServer, find_postgres
from talaria.testing.wait import LIMIT

NEVER = 3600.0
LISTENERS = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND query LIKE %s"


@asynccontextmanager
async def opened(store_location: StoreLocation, *, poll_seconds: float = NEVER) -> AsyncIterator[ThreadedStore]:
    store = store_location.open_store(SystemClock(), poll_seconds=poll_seconds)
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as raw:
        yield raw


async def listeners(store_location: StoreLocation, count: int) -> list[int]:
    """Return the server's processes that listen for notifications of a store, once there are ``count``."""
    return await asyncio.to_thread(_listeners, store_location, count)


def _listeners(store_location: StoreLocation, count: int) -> list[int]:
    deadline = time.monotonic() + LIMIT
    with connected(store_location.address) as raw:
        while True:
            found = [pid for (pid,) in raw.execute(LISTENERS, (f"%{make_channel_name(store_location.schema)}%",))]
            if len(found) == count or time.monotonic() > deadline:
                return found
            time.sleep(0.01)


def test_file_changes_reports_each_commit_once(sqlite_location: StoreLocation) -> None:
    database = sqlite_location.open(SystemClock())
    with closing(FileChanges(Path(sqlite_location.address))) as changes:
        assert changes.look()
        assert not changes.look()
        for number in range(3):
            database.write(lambda tx, number=number: tx.named_values.put("test", "key", str(number)))  # type: ignore[misc]
            assert changes.look()
            assert not changes.look()
    database.close()


def test_transaction_without_writes_is_not_reported_as_a_change(sqlite_location: StoreLocation) -> None:
    database = sqlite_location.open(SystemClock())
    with closing(FileChanges(Path(sqlite_location.address))) as changes:
        changes.look()
        database.write(lambda tx: tx.outbox.claim("telegram", timedelta(minutes=1)))
        database.read(lambda tx: tx.named_values.get("test", "key"))
        assert not changes.look()
    database.close()


def put(database: Database, value: str) -> None:
    database.write(lambda tx: tx.named_values.put("test", "key", value))


def notify(database: Database, *topics: str) -> None:
    database.write(lambda tx: notify_all(tx, topics))


def notify_all(tx: Transaction, topics: Iterable[str]) -> None:
    for topic in topics:
        tx.notify(topic)


def test_each_notified_topic_is_read_once(sqlite_location: StoreLocation) -> None:
    database = sqlite_location.open(SystemClock())
    notify(database, "before")
    with closing(FileChanges(Path(sqlite_location.address))) as changes:
        assert changes.read_notified() is None
        assert changes.read_notified() == {}
        notify(database, "inbox", "outbox", "inbox")
        notify(database, "inbox")
        put(database, "unrelated")
        assert changes.read_notified() == {"inbox": 4, "outbox": 3}
        assert changes.read_notified() == {}
    database.close()


def test_reader_that_missed_deleted_notifications_wakes_every_topic(sqlite_location: StoreLocation) -> None:
    database = sqlite_location.open(SystemClock())
    with (
        closing(FileChanges(Path(sqlite_location.address))) as slow,
        closing(FileChanges(Path(sqlite_location.address))) as quick,
    ):
        assert slow.read_notified() is quick.read_notified() is None
        for number in range(30):
            notify(database, *(f"topic {number} {one}" for one in range(100)))
            assert len(quick.read_notified() or ()) == 100
        assert slow.read_notified() is None
        notify(database, "inbox")
        assert slow.read_notified() == {"inbox": 3001}
    with closing(apsw.Connection(sqlite_location.address)) as raw:
        assert raw.execute("SELECT count(*) < 1400 FROM notifications").get
    database.close()


def test_inotify_watch_wakes_only_for_writes_to_the_log(sqlite_location: StoreLocation) -> None:
    database = open_sqlite(Path(sqlite_location.address))
    put(database, "")
    with closing(InotifyWatch(Path(f"{sqlite_location.address}-wal"))) as watch:
        database.write(lambda tx: tx.outbox.claim("telegram", timedelta(minutes=1)))
        database.read(lambda tx: tx.named_values.get("test", "key"))
        assert not watch.has_changed()
        put(database, "one")
        assert watch.wait(20)
        assert not watch.has_changed()
        watch.silence()
        assert not watch.wait(NEVER)
    database.close()


def test_inotify_watch_of_a_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        InotifyWatch(tmp_path / "nothing")


@pytest.mark.parametrize("log", ["talaria.db-wal", "deaf", "missing"])
def test_commits_are_noticed_with_and_without_file_notifications(tmp_path: Path, log: str) -> None:
    path, received = tmp_path / "talaria.db", queue.SimpleQueue[Mapping[str, int] | None]()
    (tmp_path / "deaf").touch()
    database = open_sqlite(path)
    listener = CommitListener(path, watch_after=0, log=tmp_path / log)
    listener.listen(received.put)
    assert received.get(timeout=20) is None
    for number in range(8):
        put(database, str(number))
        notify(database, "inbox")
        assert received.get(timeout=20) == {"inbox": number + 1}
    listener.stop_listening()
    listener.listen(received.put)
    assert received.get(timeout=20) is None
    listener.close()
    database.close()


def test_after_a_notification_the_store_is_polled_until_shortly_after_the_commit() -> None:
    schedule, now, looks = PollSchedule(0.04, 0.0), 10.0, 1
    assert schedule.is_asleep(now)
    schedule.record_poll(now, wakeup=True, found=False)
    while now < 10.03:
        assert not schedule.is_asleep(now)
        now, looks = now + schedule.pause, looks + 1
        schedule.record_poll(now, wakeup=False, found=False)
    assert looks < 10
    assert not schedule.is_asleep(now)
    schedule.record_poll(now, wakeup=True, found=True)
    assert schedule.pause == 0.04
    assert not schedule.is_asleep(now + 0.09)
    assert schedule.is_asleep(now + 0.2)


def test_a_notification_of_a_rolled_back_write_stops_the_polling() -> None:
    schedule = PollSchedule(0.04, 0.0)
    assert schedule.is_asleep(10.0)
    schedule.record_poll(10.0, wakeup=True, found=False)
    assert not schedule.is_asleep(14.9)
    assert schedule.is_asleep(15.1)


def test_watch_that_missed_several_commits_is_no_longer_trusted() -> None:
    schedule = PollSchedule(0.04, 0.0)
    for number, wakeup in enumerate((False, False, True, False, False, False)):
        assert schedule.trusts_watch
        assert schedule.is_asleep(10.0 + number)
        schedule.record_poll(10.0 + number, wakeup=wakeup, found=True)
        assert not schedule.is_asleep(10.05 + number)
        schedule.record_poll(10.05 + number, wakeup=False, found=True)
    assert not schedule.trusts_watch


async def test_all_subscriptions_of_a_process_wake_together_periodically(store_location: StoreLocation) -> None:
    async with (
        opened(store_location, poll_seconds=0.05) as store,
        store.subscribe("inbox") as first,
        store.subscribe("outbox") as second,
    ):
        await clear(first, second)
        for _ in range(5):
            await wait_for_wake_up(first)
            assert second.is_pending
            await clear(first, second)


def test_maintenance_is_due_after_a_write(sqlite_location: StoreLocation) -> None:
    database = open_sqlite(Path(sqlite_location.address))
    assert not database.is_maintained
    assert not database.run_maintenance()
    assert database.is_maintained
    database.write(lambda tx: tx.outbox.claim("telegram", timedelta(minutes=1)))
    assert database.is_maintained
    put(database, "one")
    assert not database.is_maintained
    database.close()


async def test_subscriptions_still_wake_after_the_file_was_deleted(tmp_path: Path) -> None:
    store_location = StoreLocation("sqlite", str(tmp_path / "profile" / "talaria.db"))
    async with opened(store_location, poll_seconds=0.01) as store:
        async with store.subscribe("inbox") as subscription:
            async with opened(store_location) as other:
                await wait_until_connected(store, other)
            rmtree(tmp_path / "profile")
            for _ in range(3):
                await wait_for_wake_up(subscription)
        async with store.subscribe("inbox") as subscription:
            for _ in range(3):
                await wait_for_wake_up(subscription)
    assert not (tmp_path / "profile").exists()


async def test_a_commit_notifies_each_topic_once(postgres_location: StoreLocation) -> None:
    channel = make_channel_name(postgres_location.schema)
    with connected(postgres_location.address) as raw:
        raw.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        async with opened(postgres_location) as store:
            await store.write(lambda tx: notify_all(tx, (f"topic {number % 2}" for number in range(100))))
        raw.execute("SELECT pg_notify(%s, 'end')", (channel,))
        received = []
        for notice in raw.notifies(timeout=20):
            if notice.payload == "end":
                break
            received.append(notice.payload.partition(":")[2])
    assert sorted(received) == ["topic 0", "topic 1"]


@pytest.fixture
def other_database(postgres_location: StoreLocation) -> Iterator[StoreLocation]:
    """A schema of the same name in another database of the same server."""
    name = f"test_{new_id()}"
    with connected(postgres_location.address) as raw:
        raw.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield StoreLocation("postgres", make_conninfo(postgres_location.address, dbname=name), postgres_location.schema)
        raw.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


async def test_stores_of_one_server_do_not_receive_notifications_of_each_other(
    postgres_location: StoreLocation, other_database: StoreLocation
) -> None:
    other_schema = StoreLocation("postgres", postgres_location.address, f"{postgres_location.schema}_{'x' * 20}")
    async with opened(postgres_location) as store, store.subscribe("inbox") as ours, store.subscribe("end") as end:
        async with opened(postgres_location) as other:
            await wait_until_connected(store, other)
        await clear(ours, end)
        for store_location, topic in ((other_schema, "inbox"), (other_database, "inbox"), (postgres_location, "end")):
            async with opened(store_location) as other:
                await other.write(lambda tx, topic=topic: tx.notify(topic))  # type: ignore[misc]
        await notified(end)
        assert not ours.is_pending
    other_schema.drop()


async def test_a_broken_connection_is_replaced_and_all_subscriptions_wake(postgres_location: StoreLocation) -> None:
    async with (
        opened(postgres_location) as store,
        opened(postgres_location) as other,
        store.subscribe("inbox") as inbox,
    ):
        await wait_until_connected(store, other)
        await clear(inbox)
        for _ in range(2):
            [listener] = await listeners(postgres_location, 1)
            with connected(postgres_location.address) as raw:
                raw.execute("SELECT pg_terminate_backend(%s)", (listener,))
            await wait_for_wake_up(inbox)
            await other.write(lambda tx: tx.notify("inbox"))
            await notified(inbox)


async def test_a_store_without_subscriptions_does_not_listen(postgres_location: StoreLocation) -> None:
    async with opened(postgres_location) as store:
        async with store.subscribe("inbox"), store.subscribe("outbox"):
            assert len(await listeners(postgres_location, 1)) == 1
        assert await listeners(postgres_location, 0) == []


@pytest.mark.skipif(find_postgres() is None, reason=MISSING)
async def test_listener_reconnects_after_a_server_restart() -> None:
    with PostgresServer() as server:
        store_location = StoreLocation("postgres", server.url, f"test_{new_id()}")
        async with (
            opened(store_location) as store,
            opened(store_location, poll_seconds=0.01) as impatient,
            store.subscribe("inbox") as inbox,
            impatient.subscribe("inbox") as periodic,
        ):
            await wait_until_connected(store, impatient)
            await clear(inbox)
            await asyncio.to_thread(server.stop)
            for _ in range(3):
                await wait_for_wake_up(periodic)
            await asyncio.to_thread(server.start)
            await wait_for_wake_up(inbox)
            async with opened(store_location) as other:
                await other.write(lambda tx: tx.notify("inbox"))
            await notified(inbox)
