"""Failures around a store are reported in a sentence, lose no data, and end when the cause is gone."""

import asyncio
import gc
import os
import subprocess
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.storage.concurrent_processes import first_answers, start_workers
from tests.storage.engines import StoreLocation

from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.core.errors import StoreBusy, StoreUnavailable
from talaria.core.ids import new_id
from talaria.storage.async_store import ThreadedStore
from talaria.storage.database import ConnectionDatabase
from talaria.storage.postgres.open import PostgresOptions, open_postgres, open_postgres_store
from talaria.testing.postgres import MISSING, PostgresServer, find_postgres
from talaria.testing.wait import until

SECRET = "hunter2"


@pytest.fixture
def store_location(new_store_location: StoreLocation) -> StoreLocation:
    """A store that no process has opened yet, on each engine in turn."""
    return new_store_location


@pytest.fixture(scope="module")
def guarded_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server that requires a password and can be stopped."""
    if find_postgres() is None:
        pytest.skip(MISSING)
    with PostgresServer(password=SECRET) as server:
        yield server


@pytest.fixture
def small_disk(tmp_path: Path) -> list[str]:
    """A command prefix that gives a program a disk of six megabytes at ``tmp_path``."""
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--"]
    mount = [*unshare, "sh", "-c", 'mount -t tmpfs -o size=6m none "$0" && exec "$@"', str(tmp_path)]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not let us mount a small disk")
    return mount


def test_a_full_disk_is_reported_and_loses_nothing(sqlite_location: StoreLocation, small_disk: list[str]) -> None:
    with start_workers(1, "fill", sqlite_location, "disk", within=small_disk) as workers:
        [report] = first_answers(workers)
    assert report["refusal"].startswith("StoreFull: ")
    assert "disk is full" in report["refusal"]
    assert report["acknowledged"] > 0
    assert report["stored"] == [report["acknowledged"], report["acknowledged"] / 8]
    assert report["last"] == report["acknowledged"] + 8


def test_file_size_limit_is_reported_and_loses_nothing(sqlite_location: StoreLocation) -> None:
    with start_workers(1, "fill", sqlite_location, "limit") as workers:
        [report] = first_answers(workers)
    assert report["refusal"].startswith(("StoreFull: ", "StoreUnavailable: "))
    assert "disk" in report["refusal"]
    assert report["stored"] == [report["acknowledged"], report["acknowledged"] / 8]
    assert report["last"] == report["acknowledged"] + 8


@pytest.mark.parametrize("there", [True, False], ids=["store is there", "store is not there"])
def test_folder_without_write_permission_is_reported(sqlite_location: StoreLocation, there: bool) -> None:
    if there:
        sqlite_location.open(SystemClock()).close()
    folder = Path(sqlite_location.address).parent
    folder.chmod(0o500)
    try:
        with start_workers(1, "intrude", sqlite_location) as workers:
            [sentence] = first_answers(workers)
    finally:
        folder.chmod(0o700)
    assert sentence.startswith(sqlite_location.address)
    assert sentence.endswith(".")


@pytest.mark.parametrize("name", ["file/talaria.db", "folder"])
def test_path_that_cannot_be_a_file_is_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreUnavailable, match=name):
        StoreLocation("sqlite", str(tmp_path / name)).open(SystemClock())


def test_store_locked_for_too_long_is_busy_and_usable_later(store_location: StoreLocation) -> None:
    holder, other = store_location.open(SystemClock(), "one"), store_location.open(SystemClock(), "two", patience=0.05)
    holder.write(lambda tx: tx.named_values.put("test", "key", ""))

    def hold(tx: Transaction) -> None:
        tx.named_values.put("test", "key", "")
        with pytest.raises(StoreBusy, match="Try again"):
            other.write(lambda tx: tx.named_values.put("test", "key", ""))

    holder.write(hold)
    assert other.write(lambda tx: tx.named_values.put("test", "key", "")) == 3
    holder.close()
    other.close()


async def test_store_reconnects_after_a_server_restart(guarded_server: PostgresServer) -> None:
    store = open_postgres_store(guarded_server.url, PostgresOptions(f"test_{new_id()}"))
    await store.write(lambda tx: tx.named_values.put("test", "before", ""))
    await store.read(lambda tx: tx.named_values.get("test", "before"))
    guarded_server.stop()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="can't be reached"):
            await store.write(lambda tx: tx.named_values.put("test", "meanwhile", ""))
        with pytest.raises(StoreUnavailable, match="can't be reached"):
            await store.read(lambda tx: tx.named_values.get("test", "before"))
    guarded_server.start()
    await write_when_available(store, lambda tx: tx.named_values.put("test", "after", ""))
    keys = await store.read(lambda tx: [key for key, _ in tx.named_values.find("test", "")])
    await store.close()
    assert keys == ["after", "before"]


async def test_transaction_interrupted_by_a_server_stop_is_rolled_back(guarded_server: PostgresServer) -> None:
    store = open_postgres_store(guarded_server.url, PostgresOptions(f"test_{new_id()}"))
    started, stopped = threading.Event(), threading.Event()

    def work(tx: Transaction) -> None:
        tx.named_values.put("test", "half", "")
        started.set()
        stopped.wait()
        tx.named_values.put("test", "whole", "")

    writing = asyncio.ensure_future(store.write(work))
    await asyncio.to_thread(started.wait)
    await asyncio.to_thread(guarded_server.stop)
    stopped.set()
    with pytest.raises(StoreUnavailable):
        await writing
    guarded_server.start()
    await write_when_available(store, lambda tx: tx.named_values.put("test", "after", ""))
    keys = await store.read(lambda tx: [key for key, _ in tx.named_values.find("test", "")])
    await store.close()
    assert keys == ["after"]


def put_much(tx: Transaction) -> None:
    for number in range(500):
        tx.named_values.put("test", f"key {number}", "")


USES: dict[str, Callable[[ConnectionDatabase], object]] = {
    "write": lambda database: database.write(put_much),
    "read": lambda database: database.read(lambda tx: tx.named_values.get("test", "key")),
    "group": lambda database: database.write_all([put_much, put_much])[0].unwrap(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_terminated_connection_logs_no_message_of_the_driver(
    guarded_server: PostgresServer, caplog: pytest.LogCaptureFixture, use: Callable[[ConnectionDatabase], object]
) -> None:
    database = open_postgres(guarded_server.url, PostgresOptions(f"test_{new_id()}"))
    with psycopg.connect(guarded_server.url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'talaria'"
        )
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            use(database)
    database.close()
    del database
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("psycopg")] == []


async def write_when_available(store: ThreadedStore, work: Callable[[Transaction], object]) -> None:
    """Write to a store whose connections may not have noticed yet that the server is back."""

    async def is_written() -> bool:
        try:
            await store.write(work)
        except StoreUnavailable:
            return False
        return True

    await until(is_written)


def refusal(url: str) -> str:
    """Return everything that is reported about an unusable server, including the traceback."""
    with pytest.raises(StoreUnavailable) as refused:
        open_postgres(url)
    assert str(refused.value).endswith((".", ")"))
    return "".join(traceback.format_exception(refused.value))


def test_a_wrong_password_is_reported_without_the_password(guarded_server: PostgresServer) -> None:
    message = refusal(guarded_server.url.replace(SECRET, f"{SECRET}-wrong"))
    assert "password authentication failed" in message
    assert f"127.0.0.1:{guarded_server.port}" in message
    assert SECRET not in message


def test_unreachable_server_is_reported_without_the_password(guarded_server: PostgresServer) -> None:
    message = refusal(f"postgresql://ana:{SECRET}@127.0.0.1:1/postgres")
    assert "can't be reached" in message
    assert SECRET not in message


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql//ana:{SECRET}@localhost/postgres",
        f"postgresql:/ana:{SECRET}@localhost/postgres",
        f"postgresql://ana:{SECRET}%zz@localhost/postgres",
        f"postgresql://ana:{SECRET}@localhost:port/postgres",
        f"postgresql://ana:{SECRET}@localhost/postgres?nonsense=1",
        f"postgresql://ana:{SECRET}@[::1/postgres",
        f"postgresql://ana:{SECRET}@local host/postgres",
        f"postgresql://ana:x@{SECRET}@localhost/postgres",
    ],
)
def test_an_invalid_url_is_reported_without_its_password(url: str) -> None:
    assert SECRET not in refusal(url)


def test_missing_permission_to_create_a_schema_is_reported(postgres_url: str) -> None:
    guest = f"guest_{new_id()}"
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        raw.execute(f"CREATE ROLE {guest} LOGIN".encode())
        try:
            message = refusal(postgres_url.replace("talaria@", f"{guest}@"))
        finally:
            raw.execute(f"DROP ROLE {guest}".encode())
    assert "Grant it the right to create a schema" in message


def test_role_that_may_not_create_schemas_can_use_an_existing_one(postgres_url: str) -> None:
    role = f"guest_{new_id()}"
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA {role} AUTHORIZATION {role}".encode())
        open_postgres(make_conninfo(postgres_url, user=role), PostgresOptions(role)).close()
        owner.execute(f"DROP SCHEMA {role} CASCADE; DROP ROLE {role}".encode())
