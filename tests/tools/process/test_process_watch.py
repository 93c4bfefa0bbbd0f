"""Supervision of background processes: adoption after a crash, identity of a pid, watched lines."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.storage.engines import StoreLocation
from tests.tools.process.process_fixture import dead_worker, open_supervised_session

from talaria.contracts.background_processes import BackgroundProcess, change_process
from talaria.contracts.store import Store
from talaria.core.ids import WorkerId, new_worker_id
from talaria.core.os_processes import is_running, kill_tree
from talaria.testing.clock import NOON, SettableClock
from talaria.testing.wait import LIMIT, until
from talaria.tools.process.lifecycle import ProcessFiles
from talaria.tools.process.poller import APART, MOST_NOTICES, Lookout


@pytest.fixture
async def sqlite_store(sqlite_location: StoreLocation, clock: SettableClock) -> AsyncIterator[Store]:
    store = sqlite_location.open_store(clock)
    yield store
    await store.close()


async def start_orphaned(store: Store, folder: Path, command: str, **changes: object) -> BackgroundProcess:
    """Return a process whose watcher is gone."""
    async with open_supervised_session(store, folder) as before:
        process = await before.start(command)
    gone = dead_worker()
    left = await store.write(lambda tx: change_process(tx, process, watcher=gone, **changes))
    assert left is not None
    return left


async def end_unwatched(process: BackgroundProcess, ago: timedelta) -> None:
    """End a process that reads a line while no worker watches it, and backdate its end."""
    left = ProcessFiles(Path(process.files_folder))
    async with asyncio.timeout(LIMIT):
        await until(lambda: left.pid)
        left.write(b"on\n")
        await until(lambda: left.code is not None and not is_running(process.pid))
    at = (datetime.now(UTC) - ago).timestamp()
    os.utime(left.folder / "status", (at, at))


async def test_running_process_of_a_dead_worker_is_adopted_and_its_end_reported(
    sqlite_store: Store, tmp_path: Path
) -> None:
    process = await start_orphaned(sqlite_store, tmp_path, "read line; echo got $line")
    async with open_supervised_session(sqlite_store, tmp_path) as after:
        assert after.worker != process.watcher
        await after.use("write", process, text="it\n")
        (text,) = await after.until_reported()
    assert "ended with exit code 0" in text
    assert "got it" in text


async def test_process_is_adopted_if_the_pid_of_its_dead_watcher_is_in_use(sqlite_store: Store, tmp_path: Path) -> None:
    gone = WorkerId(f"{new_worker_id().rpartition(':')[0]}:1-0000000")  # our pid, but a start time at boot
    process = await start_orphaned(sqlite_store, tmp_path, "read line")
    await sqlite_store.write(lambda tx: change_process(tx, process, watcher=gone))
    async with open_supervised_session(sqlite_store, tmp_path) as after:
        await after.supervisor.look()
        assert [one.watcher for one in await after.listed()] == [after.worker]
        await after.use("kill", process)


async def test_process_that_ended_unwatched_is_reported_with_its_output(sqlite_store: Store, tmp_path: Path) -> None:
    process = await start_orphaned(sqlite_store, tmp_path, "read line; echo last words; exit 7")
    await end_unwatched(process, ago=timedelta())
    async with open_supervised_session(sqlite_store, tmp_path) as after:
        (text,) = await after.until_reported()
    assert "exit code 7" in text
    assert "last words" in text


async def test_process_that_ended_unwatched_has_its_real_end_time(sqlite_store: Store, tmp_path: Path) -> None:
    begun = datetime.now(UTC) - timedelta(days=20)
    process = await start_orphaned(sqlite_store, tmp_path, "read line", begun_at=begun)
    await end_unwatched(process, ago=timedelta(days=20, hours=-3))
    async with open_supervised_session(sqlite_store, tmp_path) as after:
        (text,) = await after.until_reported()
        assert "ended with exit code 0 after 3 h 0 min" in text
        await after.until_ended(process)
    async with open_supervised_session(
        sqlite_store, tmp_path
    ) as again:  # this worker deletes processes that ended long ago
        await again.start("true")
        await again.until_reported()
        assert process.id in [one.id for one in await again.listed()]
        assert ProcessFiles(Path(process.files_folder)).code == 0


async def test_process_with_unrecorded_start_is_found_by_its_pid_file(sqlite_store: Store, tmp_path: Path) -> None:
    process = await start_orphaned(sqlite_store, tmp_path, "read line", state="starting", pid=0, started="")
    async with open_supervised_session(sqlite_store, tmp_path) as after:

        async def is_adopted() -> bool:
            return (await after.listed())[0].state == "running"

        await until(is_adopted)
        (found,) = await after.listed()
        assert found.pid == ProcessFiles(Path(process.files_folder)).pid
        assert "was killed" in await after.use("kill", found)


@pytest.mark.parametrize("changes", [{"started": "1"}, {"machine": "before its last start/1"}])
async def test_other_process_with_the_same_pid_is_not_adopted(
    sqlite_store: Store, tmp_path: Path, changes: dict[str, object]
) -> None:
    process = await start_orphaned(sqlite_store, tmp_path, "sleep 600", **changes)
    try:
        async with open_supervised_session(sqlite_store, tmp_path) as after:
            (text,) = await after.until_reported()
            assert "disappeared without an exit code" in text
            assert (await after.until_ended(process)).state == "lost"
            await after.start("true")
            await after.until_reported(2)
            assert is_running(process.pid)
    finally:
        kill_tree(process.pid)


async def test_process_of_another_running_worker_is_not_adopted(sqlite_store: Store, tmp_path: Path) -> None:
    async with (
        open_supervised_session(sqlite_store, tmp_path) as one,
        open_supervised_session(sqlite_store, tmp_path) as other,
    ):
        process = await one.start("read line")
        watcher = (await one.listed())[0].watcher
        await other.supervisor.look()
        assert (await one.listed())[0].watcher == watcher
        assert "was killed" in await other.use("kill", process)
        assert one.reports == other.reports == []


async def test_process_ended_by_a_person_through_the_store_is_reported(sqlite_store: Store, tmp_path: Path) -> None:
    async with open_supervised_session(sqlite_store, tmp_path) as supervised:
        process = await supervised.start("sleep 600")
        await sqlite_store.write(lambda tx: change_process(tx, process, ended_by="person"))
        (text,) = await supervised.until_reported()
        assert "was killed" in text
        assert "by the user" in text


async def test_process_killed_by_a_person_is_reported(sqlite_store: Store, tmp_path: Path) -> None:
    async with open_supervised_session(sqlite_store, tmp_path) as supervised:
        over = await supervised.supervisor.kill(await supervised.start("sleep 600"), "person")
        assert over.state == "killed"
        (text,) = await supervised.until_reported()
        assert "by the user" in text


async def test_watched_line_is_reported_while_the_process_runs(sqlite_store: Store, tmp_path: Path) -> None:
    async with open_supervised_session(sqlite_store, tmp_path) as supervised:
        process = await supervised.start("echo starting; echo ready on 80; read line", watch_patterns=["ready"])
        (text,) = await supervised.until_reported()
        assert "printed a line you watch for" in text
        assert "ready on 80" in text
        assert "starting\n" not in text
        await supervised.supervisor.kill(process, "agent")
        assert len(supervised.reports) == 1


async def test_watched_lines_are_reported_once_after_adoption(sqlite_store: Store, tmp_path: Path) -> None:
    async with open_supervised_session(sqlite_store, tmp_path) as before:
        process = await before.start("echo ready 1; read line; echo ready 2", watch_patterns=["ready"])
        await before.until_reported()
    gone = dead_worker()
    await sqlite_store.write(lambda tx: change_process(tx, process, watcher=gone))
    async with open_supervised_session(sqlite_store, tmp_path) as after:
        await after.use("write", process, text="on\n")
        match, _end = await after.until_reported(2)
    assert "\nready 2\n" in match
    assert "\nready 1\n" not in match


@pytest.fixture
def files(tmp_path: Path) -> ProcessFiles:
    files = ProcessFiles(tmp_path / "one")
    files.prepare()
    return files


def add(files: ProcessFiles, text: str) -> None:
    with files.out.open("a") as out:
        out.write(text)


def test_line_is_matched_when_it_is_complete(files: ProcessFiles) -> None:
    lookout = Lookout(files, ["ready"])
    add(files, "not yet\nrea")
    lookout.look()
    add(files, "dy\nready, almost")
    lookout.look()
    assert lookout.lines == ["ready"]
    lookout.look(last=True)
    assert lookout.lines == ["ready", "ready, almost"]


def test_frequent_matches_are_batched_and_muted_after_the_limit(files: ProcessFiles) -> None:
    lookout, now = Lookout(files, ["error"]), NOON
    for number in range(MOST_NOTICES):
        add(files, f"error {number}\n")
        lookout.look()
        assert not lookout.muted
        assert lookout.is_due(now) == (number == 0)
        now += APART
        assert lookout.is_due(now)
        assert not lookout.is_due(now - timedelta(seconds=1)) or number == 0
        lookout.record_report(now)
    assert lookout.muted
    add(files, "error again\n")
    lookout.look()
    assert lookout.lines == []


def test_many_matching_lines_are_counted_and_a_few_shown(files: ProcessFiles) -> None:
    lookout = Lookout(files, ["error"])
    add(files, "".join(f"error {number}\n" for number in range(100)))
    lookout.look()
    assert len(lookout.lines) == 20
    assert lookout.left_out == 80


def test_rotated_output_is_searched_from_its_beginning(files: ProcessFiles) -> None:
    lookout = Lookout(files, ["error"], position=1000)
    add(files, "error\n")
    lookout.look()
    assert lookout.lines == ["error"]


async def test_process_of_a_deleted_session_is_killed(sqlite_store: Store, tmp_path: Path) -> None:
    async with open_supervised_session(sqlite_store, tmp_path) as supervised:
        process = await supervised.start("sleep 600")
        await sqlite_store.write(lambda tx: tx.sessions.delete(process.session_id))
        await supervised.supervisor.look()
        await until(lambda: not is_running(process.pid))
        assert supervised.reports == []


async def test_process_of_a_session_deleted_while_unwatched_is_killed_at_start(
    sqlite_store: Store, tmp_path: Path
) -> None:
    process = await start_orphaned(sqlite_store, tmp_path, "sleep 600")
    await sqlite_store.write(lambda tx: tx.sessions.delete(process.session_id))
    async with open_supervised_session(sqlite_store, tmp_path), asyncio.timeout(LIMIT):
        await until(lambda: not is_running(process.pid))


async def test_last_notice_of_watched_lines_announces_that_it_is_the_last(sqlite_store: Store, tmp_path: Path) -> None:
    process = await start_orphaned(
        sqlite_store, tmp_path, "read _; echo error; read _", patterns=("error",), matches=MOST_NOTICES - 1
    )
    async with open_supervised_session(sqlite_store, tmp_path) as supervised:
        await supervised.use("write", process, text="on\n")
        (text,) = await supervised.until_reported()
        assert "further lines of this process won't be reported" in text
        await supervised.supervisor.kill(process, "agent")
