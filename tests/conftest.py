"""Options and fixtures of all tests: stores on SQLite and on a real PostgreSQL, empty for every test."""

import asyncio
import gc
import os
import signal
import socket
import sys
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.leftover_processes import LeftoverProcesses
from tests.order import spread
from tests.shared_servers import SharedServers, server_address
from tests.storage.engines import StoreLocation, create_empty_store, transaction_per_call
from tests.storage.schema_pool import SchemaPool
from tests.tiers import ProcessBan, is_slow, is_slow_test

from talaria.contracts.store import Database, Transaction
from talaria.core.ids import new_id
from talaria.storage.async_store import ThreadedStore
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import ModelServer
from talaria.testing.postgres import MISSING, find_postgres

LEFTOVERS = pytest.StashKey[LeftoverProcesses]()
SERVERS = pytest.StashKey[SharedServers]()
BAN = pytest.StashKey[ProcessBan]()
MEMORY = Path("/dev/shm")
NEEDED_MEMORY = 2 << 30
GARBAGE = 10_000  # objects between two searches for cycles; Python's 700 suits processes with less memory
OpenDatabase = Callable[[str], Database]

# The time of an example depends on how busy the machine is; bench/ has the measurements.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=400)
settings.register_profile("same", settings.get_profile("untimed"), max_examples=60, derandomize=True)
settings.register_profile("quick", settings.get_profile("same"), max_examples=20)
settings.load_profile("same")  # the same examples in each run; --long finds others


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run endurance tests for their full time")
    parser.addoption("--quick", action="store_true", help="leave out tests that start programs or servers")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out slow files in a quick run, before they are imported."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if is_test and config.getoption("quick") and is_slow(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collection: imported modules live until the end of the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that belong to a longer run: see the markers in ``pyproject.toml``."""
    if config.getoption("quick"):
        items[:] = [item for item in items if not _is_on_postgres(item) and not is_slow_test(item)]
    if not config.getoption("long"):
        items[:] = [item for item in items if not (_is_on_postgres(item) and item.get_closest_marker("one_engine"))]
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        items[:] = spread(items, workers)


def _is_on_postgres(item: pytest.Item) -> bool:
    return "postgres" in item.name or "postgres_url" in getattr(item, "fixturenames", ())


def pytest_configure(config: pytest.Config) -> None:
    _restore_signals()
    _remove_python_variables()
    _close_late_connections()
    if config.getoption("quick"):
        config.stash[BAN] = ProcessBan()
        settings.load_profile("quick")
    elif config.getoption("long"):
        settings.load_profile("untimed")
    memory = _find_memory()
    if memory is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))  # noqa: TID251 (pytest reads it, also in workers)
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type] # grammars that jsonschema would compile
    if _begins_run(config):
        kind = [option for option in ("--quick", "--long") if config.getoption(option[2:])]
        config.stash[SERVERS] = SharedServers(["tests", *kind], memory)
        if config.args_source is pytest.Config.ArgsSource.TESTPATHS:  # importing a few tests is fast
            config.option.tx = [f"popen//python={sys.executable} -m tests.worker" for _ in config.option.tx]


def _close_late_connections() -> None:
    """Close connections that a server accepts just before its end: Python leaves them open, with a warning later.

    See https://github.com/python/cpython/issues/109564.
    """
    accept = BaseSelectorEventLoop._accept_connection2  # type: ignore[attr-defined] # noqa: SLF001 (theirs)

    async def accept_if_open(
        loop: BaseSelectorEventLoop, factory: object, connection: socket.socket, *arguments: Any
    ) -> None:
        server: asyncio.Server | None = arguments[2]
        if server is not None and not server.sockets:
            connection.close()
        else:
            await accept(loop, factory, connection, *arguments)

    BaseSelectorEventLoop._accept_connection2 = accept_if_open  # type: ignore[attr-defined] # noqa: SLF001 (theirs)


def _begins_run(config: pytest.Config) -> bool:
    """Return whether this is the main process of a run; not a worker, nor one that only collects tests."""
    return not hasattr(config, "workerinput") and not config.option.collectonly


def pytest_sessionstart(session: pytest.Session) -> None:
    if _begins_run(session.config):
        folder: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # noqa: SLF001 (theirs)
        session.config.stash[LEFTOVERS] = LeftoverProcesses(folder)


def pytest_runtest_setup() -> None:
    """Start every test with the usual mode mask, even if a test before it has changed it in this process."""
    os.umask(0o022)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Let no test of a quick run start a program."""
    ban = item.config.stash.get(BAN, None)
    if ban is None:
        return (yield)
    ban.is_on = True
    try:
        return (yield)
    finally:
        ban.is_on = False


def _restore_signals() -> None:
    """Restore signals that a shell or ``nohup`` ignores, because programs started by tests inherit this."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_DFL)


def _remove_python_variables() -> None:
    """Run this process's children as on any machine: variables for the interpreter change what they do and cost."""
    sys.dont_write_bytecode = False  # the cache of rewritten assertions halves the time of collection
    for name in [one for one in os.environ if one.startswith("PYTHON") and one != "PYTHONPATH"]:  # noqa: TID251 (own)
        del os.environ[name]  # noqa: TID251 (this process is the environment of its children)


def _find_memory() -> Path | None:
    """Return a folder in memory for temporary files, if there is room: a store waits for the disk at each commit."""
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK | os.X_OK):
        return None
    room = os.statvfs(MEMORY)
    return MEMORY if room.f_bavail * room.f_frsize >= NEEDED_MEMORY and not room.f_flag & os.ST_NOEXEC else None


def pytest_unconfigure(config: pytest.Config) -> None:
    if SERVERS in config.stash:
        config.stash[SERVERS].close()
    if LEFTOVERS in config.stash:
        for command in config.stash[LEFTOVERS].close():
            sys.stderr.write(f"left running by a test, and ended: {command[:300]}\n")


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """The PostgreSQL server that this run has started."""
    if find_postgres() is None:
        pytest.skip(MISSING)
    return server_address("postgres")


@pytest.fixture
def sqlite_location(tmp_path: Path) -> StoreLocation:
    """An empty store in a file; its tables exist already."""
    file = tmp_path / "talaria.db"
    create_empty_store(file)
    return StoreLocation("sqlite", str(file))


@pytest.fixture
def new_sqlite_location(tmp_path: Path) -> StoreLocation:
    return StoreLocation("sqlite", str(tmp_path / "talaria.db"))


@pytest.fixture
def postgres_location(postgres_url: str) -> Iterator[StoreLocation]:
    store_location = StoreLocation("postgres", postgres_url, f"test_{new_id()}")
    yield store_location
    store_location.drop()


@pytest.fixture(scope="session")
def schema_pool(postgres_url: str) -> Iterator[SchemaPool]:
    pool = SchemaPool(postgres_url)
    yield pool
    pool.close()


@pytest.fixture
def pooled_postgres_location(schema_pool: SchemaPool) -> Iterator[StoreLocation]:
    store_location = schema_pool.take()
    yield store_location
    schema_pool.give_back(store_location)


@pytest.fixture(params=["sqlite", "postgres"])
def new_store_location(request: pytest.FixtureRequest) -> StoreLocation:
    """A store that no process has opened yet, on each engine in turn."""
    store_location: StoreLocation = request.getfixturevalue(
        "new_sqlite_location" if request.param == "sqlite" else "postgres_location"
    )
    return store_location


@pytest.fixture(params=["sqlite", "postgres"])
def store_location(request: pytest.FixtureRequest) -> StoreLocation:
    """An empty store, on each engine in turn; its tables exist already."""
    name = "sqlite_location" if request.param == "sqlite" else "pooled_postgres_location"
    store_location: StoreLocation = request.getfixturevalue(name)
    return store_location


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def open_database(store_location: StoreLocation, clock: SettableClock) -> Iterator[OpenDatabase]:
    """A function that opens the same store once more, as the named worker."""
    opened: list[Database] = []

    def open_as(worker: str) -> Database:
        opened.append(store_location.open(clock, worker))
        return opened[-1]

    yield open_as
    for database in opened:
        database.close()


@pytest.fixture
def database(open_database: OpenDatabase) -> Database:
    """The store as worker 1 has it open."""
    return open_database("worker-1")


@pytest.fixture
def other(open_database: OpenDatabase, database: Database) -> Database:
    """The same store as worker 2 has it open."""
    return open_database("worker-2")


@pytest.fixture
def mine(database: Database) -> Transaction:
    """The store of worker 1, with each call in its own transaction."""
    return transaction_per_call(database)


@pytest.fixture
def theirs(other: Database) -> Transaction:
    """The store of worker 2, with each call in its own transaction."""
    return transaction_per_call(other)


@pytest.fixture
async def store(store_location: StoreLocation, clock: SettableClock) -> AsyncIterator[ThreadedStore]:
    """The store for asyncio."""
    store = store_location.open_store(clock)
    yield store
    await store.close()


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """A scripted model server."""
    async with ModelServer() as server:
        yield server
