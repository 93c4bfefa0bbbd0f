"""Who watches a background process: adopted after a crash, told from others of its number, looked at for lines."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.storage.engines import Place
from tests.tools.process.process_fixture import dead_worker, supervised

from talaria.contracts.background_processes import BackgroundProcess, change_process
from talaria.contracts.store import Store
from talaria.core.ids import WorkerId, new_worker_id
from talaria.core.os_processes import is_running, kill_tree
from talaria.testing.clock import NOON, SettableClock
from talaria.testing.wait import LIMIT, until
from talaria.tools.process.lifecycle import ProcessFiles
from talaria.tools.process.poller import APART, MOST_NOTICES, Lookout


@pytest.fixture
async def sqlite_store(sqlite_place: Place, clock: SettableClock) -> AsyncIterator[Store]:
    store = sqlite_place.open_store(clock)
    yield store
    await store.close()


async def left_by_a_crash(store: Store, folder: Path, command: str, **changes: object) -> BackgroundProcess:
    """Return a process whose watcher is gone."""
    async with supervised(store, folder) as before:
        process = await before.start(command)
    gone = dead_worker()
    left = await store.write(lambda tx: change_process(tx, process, watcher=gone, **changes))
    assert left is not None
    return left


async def ended_unseen(process: BackgroundProcess, ago: timedelta) -> None:
    """Let a process that reads a line end while nobody watches, so long ago."""
    left = ProcessFiles(Path(process.place))
    async with asyncio.timeout(LIMIT):
        await until(lambda: left.pid)
        left.write(b"on\n")
        await until(lambda: left.code is not None and not is_running(process.pid))
    at = (datetime.now(UTC) - ago).timestamp()
    os.utime(left.place / "status", (at, at))


async def test_a_running_process_is_adopted_and_its_end_reported(sqlite_store: Store, tmp_path: Path) -> None:
    process = await left_by_a_crash(sqlite_store, tmp_path, "read line; echo got $line")
    async with supervised(sqlite_store, tmp_path) as after:
        assert after.worker != process.watcher
        await after.use("write", process, text="it\n")
        (text,) = await after.until_told()
    assert "ended with exit code 0" in text
    assert "got it" in text


async def test_process_is_adopted_if_the_pid_of_its_dead_watcher_is_in_use(sqlite_store: Store, tmp_path: Path) -> None:
    gone = WorkerId(f"{new_worker_id().rpartition(':')[0]}:1-0000000")  # ours, but begun with the machine
    process = await left_by_a_crash(sqlite_store, tmp_path, "read line")
    await sqlite_store.write(lambda tx: change_process(tx, process, watcher=gone))
    async with supervised(sqlite_store, tmp_path) as after:
        await after.supervisor.look()
        assert [one.watcher for one in await after.listed()] == [after.worker]
        await after.use("kill", process)


async def test_what_ended_while_nobody_watched_is_reported_with_what_it_left(
    sqlite_store: Store, tmp_path: Path
) -> None:
    process = await left_by_a_crash(sqlite_store, tmp_path, "read line; echo last words; exit 7")
    await ended_unseen(process, ago=timedelta())
    async with supervised(sqlite_store, tmp_path) as after:
        (text,) = await after.until_told()
    assert "exit code 7" in text
    assert "last words" in text


async def test_what_ended_while_nobody_watched_ended_when_it_did_and_not_when_it_was_noticed(
    sqlite_store: Store, tmp_path: Path
) -> None:
    begun = datetime.now(UTC) - timedelta(days=20)
    process = await left_by_a_crash(sqlite_store, tmp_path, "read line", begun_at=begun)
    await ended_unseen(process, ago=timedelta(days=20, hours=-3))
    async with supervised(sqlite_store, tmp_path) as after:
        (text,) = await after.until_told()
        assert "ended with exit code 0 after 3 h 0 min" in text
        await after.until_over(process)
    async with supervised(sqlite_store, tmp_path) as again:  # which forgets those that have been over for long
        await again.start("true")
        await again.until_told()
        assert process.id in [one.id for one in await again.listed()]
        assert ProcessFiles(Path(process.place)).code == 0


async def test_a_process_whose_start_was_not_recorded_is_found_by_its_own_note(
    sqlite_store: Store, tmp_path: Path
) -> None:
    process = await left_by_a_crash(sqlite_store, tmp_path, "read line", state="starting", pid=0, started="")
    async with supervised(sqlite_store, tmp_path) as after:

        async def is_adopted() -> bool:
            return (await after.listed())[0].state == "running"

        await until(is_adopted)
        (found,) = await after.listed()
        assert found.pid == ProcessFiles(Path(process.place)).pid
        assert "was killed" in await after.use("kill", found)


@pytest.mark.parametrize("changes", [{"started": "1"}, {"machine": "before its last start/1"}])
async def test_another_process_of_the_same_number_is_not_taken_for_it(
    sqlite_store: Store, tmp_path: Path, changes: dict[str, object]
) -> None:
    process = await left_by_a_crash(sqlite_store, tmp_path, "sleep 600", **changes)
    try:
        async with supervised(sqlite_store, tmp_path) as after:
            (text,) = await after.until_told()
            assert "disappeared without an exit code" in text
            assert (await after.until_over(process)).state == "lost"
            await after.start("true")
            await after.until_told(2)
            assert is_running(process.pid)
    finally:
        kill_tree(process.pid)


async def test_what_another_living_worker_watches_is_left_to_it(sqlite_store: Store, tmp_path: Path) -> None:
    async with supervised(sqlite_store, tmp_path) as one, supervised(sqlite_store, tmp_path) as other:
        process = await one.start("read line")
        watcher = (await one.listed())[0].watcher
        await other.supervisor.look()
        assert (await one.listed())[0].watcher == watcher
        assert "was killed" in await other.use("kill", process)
        assert one.told == other.told == []


async def test_a_process_ended_from_elsewhere_is_reported(sqlite_store: Store, tmp_path: Path) -> None:
    async with supervised(sqlite_store, tmp_path) as bench:
        process = await bench.start("sleep 600")
        await sqlite_store.write(lambda tx: change_process(tx, process, ended_by="person"))
        (text,) = await bench.until_told()
        assert "was killed" in text
        assert "by the user" in text


async def test_what_a_person_ends_here_is_reported(sqlite_store: Store, tmp_path: Path) -> None:
    async with supervised(sqlite_store, tmp_path) as bench:
        over = await bench.supervisor.kill(await bench.start("sleep 600"), "person")
        assert over.state == "killed"
        (text,) = await bench.until_told()
        assert "by the user" in text


async def test_a_line_that_is_watched_for_is_reported_while_the_process_runs(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with supervised(sqlite_store, tmp_path) as bench:
        process = await bench.start("echo starting; echo ready on 80; read line", watch_patterns=["ready"])
        (text,) = await bench.until_told()
        assert "printed a line you watch for" in text
        assert "ready on 80" in text
        assert "starting\n" not in text
        await bench.supervisor.kill(process, "agent")
        assert len(bench.told) == 1


async def test_lines_are_reported_once_though_the_watcher_is_another(sqlite_store: Store, tmp_path: Path) -> None:
    async with supervised(sqlite_store, tmp_path) as before:
        process = await before.start("echo ready 1; read line; echo ready 2", watch_patterns=["ready"])
        await before.until_told()
    gone = dead_worker()
    await sqlite_store.write(lambda tx: change_process(tx, process, watcher=gone))
    async with supervised(sqlite_store, tmp_path) as after:
        await after.use("write", process, text="on\n")
        match, _end = await after.until_told(2)
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


def test_a_line_counts_when_it_is_whole(files: ProcessFiles) -> None:
    lookout = Lookout(files, ["ready"])
    add(files, "not yet\nrea")
    lookout.look()
    add(files, "dy\nready, almost")
    lookout.look()
    assert lookout.lines == ["ready"]
    lookout.look(last=True)
    assert lookout.lines == ["ready", "ready, almost"]


def test_what_comes_in_quick_succession_is_reported_together_and_too_much_of_it_no_more(files: ProcessFiles) -> None:
    lookout, now = Lookout(files, ["error"]), NOON
    for number in range(MOST_NOTICES):
        add(files, f"error {number}\n")
        lookout.look()
        assert not lookout.muted
        assert lookout.is_due(now) == (number == 0)
        now += APART
        assert lookout.is_due(now)
        assert not lookout.is_due(now - timedelta(seconds=1)) or number == 0
        lookout.tell(now)
    assert lookout.muted
    add(files, "error again\n")
    lookout.look()
    assert lookout.lines == []


def test_many_lines_at_once_are_counted_and_few_of_them_shown(files: ProcessFiles) -> None:
    lookout = Lookout(files, ["error"])
    add(files, "".join(f"error {number}\n" for number in range(100)))
    lookout.look()
    assert len(lookout.lines) == 20
    assert lookout.left_out == 80


def test_an_output_that_was_started_again_is_looked_through_from_its_beginning(files: ProcessFiles) -> None:
    lookout = Lookout(files, ["error"], position=1000)
    add(files, "error\n")
    lookout.look()
    assert lookout.lines == ["error"]


async def test_a_process_whose_conversation_is_deleted_is_ended(sqlite_store: Store, tmp_path: Path) -> None:
    async with supervised(sqlite_store, tmp_path) as bench:
        process = await bench.start("sleep 600")
        await sqlite_store.write(lambda tx: tx.sessions.delete(process.session_id))
        await bench.supervisor.look()
        await until(lambda: not is_running(process.pid))
        assert bench.told == []


async def test_a_process_whose_conversation_was_deleted_while_nobody_watched_is_ended_at_the_next_start(
    sqlite_store: Store, tmp_path: Path
) -> None:
    process = await left_by_a_crash(sqlite_store, tmp_path, "sleep 600")
    await sqlite_store.write(lambda tx: tx.sessions.delete(process.session_id))
    async with supervised(sqlite_store, tmp_path), asyncio.timeout(LIMIT):
        await until(lambda: not is_running(process.pid))


async def test_the_last_notice_of_lines_says_that_it_is_the_last(sqlite_store: Store, tmp_path: Path) -> None:
    process = await left_by_a_crash(
        sqlite_store, tmp_path, "read _; echo error; read _", patterns=("error",), matches=MOST_NOTICES - 1
    )
    async with supervised(sqlite_store, tmp_path) as bench:
        await bench.use("write", process, text="on\n")
        (text,) = await bench.until_told()
        assert "further lines of this process won't be reported" in text
        await bench.supervisor.kill(process, "agent")
