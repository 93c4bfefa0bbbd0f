"""Background processes: start, output, input, notification and killing of the process tree."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

import pytest
from tests.storage.engines import StoreLocation
from tests.tools.process.process_fixture import SupervisedSession, open_supervised_session

from talaria.contracts.background_processes import BackgroundProcess
from talaria.contracts.sandbox import SandboxPolicy
from talaria.contracts.store import Store, Subscription, Transaction
from talaria.contracts.tool import ProposedAction
from talaria.core.errors import ToolFailed
from talaria.core.os_processes import is_running, list_process_tree, signal_all
from talaria.testing.clock import SettableClock
from talaria.testing.wait import until
from talaria.tools.process.lifecycle import CLOSE_INPUT, ROTATE_AT, ProcessFiles, launch
from talaria.tools.process.tool import ProcessArguments
from talaria.tools.sandbox.bubblewrap import BubblewrapSandbox, find_sandbox_problem
from talaria.tools.terminal.shell import Processes
from talaria.tools.terminal.tool import Terminal, TerminalArguments

T = TypeVar("T")


@pytest.fixture
async def sqlite_store(sqlite_location: StoreLocation, clock: SettableClock) -> AsyncIterator[Store]:
    store = sqlite_location.open_store(clock)
    yield store
    await store.close()


@pytest.fixture
async def supervised(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[SupervisedSession]:
    async with open_supervised_session(sqlite_store, tmp_path) as supervised:
        yield supervised
        for process in await supervised.listed():
            await supervised.supervisor.kill(process, "conversation")


class StoppingStore:
    """Implements `Store`: a real one that calls ``stop`` after ``remaining_writes`` writes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.remaining_writes = 0
        self.stop: Callable[[], object] = lambda: None

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        done = await self._store.write(work)
        self.remaining_writes -= 1
        if self.remaining_writes == 0:
            self.stop()
        return done

    async def close(self) -> None:
        await self._store.close()

    def subscribe(self, *topics: str) -> AbstractAsyncContextManager[Subscription]:
        return self._store.subscribe(*topics)


async def until_gone(pid: int) -> None:
    await until(lambda: not is_running(pid))


async def until_polled(supervised: SupervisedSession, process: BackgroundProcess, text: str) -> None:
    async def is_shown() -> bool:
        return text in await supervised.use("poll", process)

    await until(is_shown)


async def read_printed_number(path: Path) -> int:
    """Wait for a number that a process writes to a file, and return it."""
    await until(lambda: _read(path).endswith("\n"))
    return int(_read(path))


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def test_end_of_a_process_is_reported_once_with_code_and_last_lines(supervised: SupervisedSession) -> None:
    process = await supervised.start("echo one; echo two >&2; exit 3")
    (text,) = await supervised.until_reported()
    assert f"Background process {process.id} (echo one; echo two >&2; exit 3) ended with exit code 3" in text
    assert text.endswith("Its last lines:\n```\none\ntwo\n```")
    over = await supervised.until_ended(process)
    assert (over.state, over.code, over.last_line) == ("ended", 3, "two")
    assert len(supervised.reports) == 1


async def test_a_process_without_notification_reports_nothing(supervised: SupervisedSession) -> None:
    quiet = await supervised.start("true", notify_on_complete=False)
    await supervised.until_ended(quiet)
    await supervised.start("true")
    assert len(await supervised.until_reported()) == 1
    assert quiet.id not in supervised.reports[0][1]


async def test_session_that_cannot_be_woken_gets_a_note_and_no_notification(supervised: SupervisedSession) -> None:
    arguments = TerminalArguments("true", background=True, watch_patterns=["x"])
    answer = await supervised.terminal.run(arguments, supervised.call(wakes=False))
    assert "can't be woken here" in answer.text
    assert "You will be notified" not in answer.text
    (process,) = await supervised.listed()
    assert not process.notify
    assert not process.patterns
    await supervised.until_ended(process)
    assert supervised.reports == []


async def test_exit_code_is_that_of_a_process_that_ends_while_its_input_is_closed(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    files = ProcessFiles(tmp_path / "process")
    files.prepare()
    # The shell around the process sees its end a second after it stopped waiting for it.
    slow_wait = '() { builtin wait "$@"; local status=$?; sleep 1; return $status; }'
    environment = {"PATH": os.defpath, "BASH_FUNC_wait%%": slow_wait}
    pid = launch(files, ["cat"], folder=str(tmp_path), environment=environment)
    await until(lambda: files.pid)  # the input is open then
    files.write(b"hello\n")
    await until(lambda: files.size)
    signal_all([files.pid], CLOSE_INPUT)
    await asyncio.to_thread(os.waitpid, pid, 0)
    assert (files.code, files.read(0, 100)) == (0, b"hello\n")


async def test_process_receives_input_until_stdin_is_closed(supervised: SupervisedSession) -> None:
    process = await supervised.start("cat; echo over", notify_on_complete=False)
    assert await supervised.use("write", process, text="hello\n") == f"Written to {process.id}."
    await supervised.use("close_stdin", process)
    assert "ended with exit code 0" in await supervised.use("wait", process)
    assert (await supervised.use("log", process)).splitlines()[1:] == ["hello", "over"]
    with pytest.raises(ToolFailed, match="It has ended"):
        await supervised.use("write", process, text="more\n", call="call-2")


async def test_repeated_write_call_is_refused(supervised: SupervisedSession) -> None:
    process = await supervised.start("cat", notify_on_complete=False)
    await supervised.use("write", process, text="once\n")
    with pytest.raises(ToolFailed, match="may or may not have been written"):
        await supervised.use("write", process, text="once\n")
    await supervised.use("close_stdin", process)
    await supervised.use("wait", process)
    assert ProcessFiles(Path(process.files_folder)).out.read_text() == "once\n"


async def test_process_can_run_in_a_pty(supervised: SupervisedSession) -> None:
    process = await supervised.start("read -p 'Name? ' name; test -t 0 && echo hello $name; exit 4", pty=True)
    await until_polled(supervised, process, "\nName?")
    await supervised.use("write", process, text="Ann\n")
    (text,) = await supervised.until_reported()
    assert "hello Ann" in text
    assert "exit code 4" in text


async def test_pty_in_the_foreground_is_refused(supervised: SupervisedSession) -> None:
    with pytest.raises(ToolFailed, match="background"):
        await supervised.terminal.run(TerminalArguments("true", pty=True), supervised.call())


async def test_end_returned_by_wait_is_not_reported_again(supervised: SupervisedSession) -> None:
    process = await supervised.start("read line; echo $line")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(supervised.use("wait", process))
        await asyncio.sleep(0)
        await supervised.use("write", process, text="go\n")
    assert "ended with exit code 0" in waiting.result()
    await supervised.append_answer("call-1")
    assert await supervised.queue_reports() == ""


async def test_end_awaited_by_code_is_not_reported_if_the_code_finishes(supervised: SupervisedSession) -> None:
    process = await supervised.start("echo ready", watch_patterns=["ready"])
    await supervised.use("wait", process, call="call-1.inner")
    await supervised.append_answer("call-1")
    assert await supervised.queue_reports() == ""


async def test_end_after_a_timed_out_wait_is_reported(supervised: SupervisedSession) -> None:
    process = await supervised.start("read line")
    assert "has been running for" in await supervised.use("wait", process, seconds=1)
    await supervised.append_answer("call-1")
    await supervised.use("write", process, text="go\n")
    await supervised.until_ended(process)
    assert "ended with exit code 0" in await supervised.queue_reports()


@pytest.mark.parametrize("writes", [1, 2])
async def test_end_is_reported_if_the_wait_was_cancelled_at_that_moment(
    sqlite_store: Store, tmp_path: Path, writes: int
) -> None:
    """The first write after the input stores the end, the second marks it as read."""
    stopping = StoppingStore(sqlite_store)
    async with open_supervised_session(stopping, tmp_path) as supervised:
        process = await supervised.start("read line; echo $line")
        waiting = asyncio.ensure_future(supervised.use("wait", process))
        stopping.remaining_writes, stopping.stop = writes + 1, waiting.cancel
        await supervised.use("write", process, text="go\n", call="call-2")
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        await supervised.append_answer("call-1", failed=True)
        assert "ended with exit code 0" in await supervised.queue_reports()
        assert await supervised.queue_reports() == ""


async def test_wait_ends_after_its_timeout(supervised: SupervisedSession) -> None:
    process = await supervised.start("sleep 600")
    assert "has been running for" in await supervised.use("wait", process, seconds=1)


async def test_kill_ends_children_in_other_process_sessions_and_daemons(
    supervised: SupervisedSession, tmp_path: Path
) -> None:
    command = (
        "setsid sh -c 'echo $$ >inner; exec sleep 600' & (setsid sh -c 'echo $$ >daemon; exec sleep 600' &) ;"
        " sleep 600 & echo $! >child; wait"
    )
    process = await supervised.start(command)
    pids = [await read_printed_number(tmp_path / name) for name in ("inner", "daemon", "child")]
    assert "was killed" in await supervised.use("kill", process)
    for pid in (*pids, process.pid):
        await until_gone(pid)
    assert supervised.reports == []


async def test_process_that_ignores_sigterm_is_killed(supervised: SupervisedSession) -> None:
    process = await supervised.start("trap '' TERM; echo ready; while :; do sleep 1; done")
    await until_polled(supervised, process, "\nready")
    assert "was killed" in await supervised.use("kill", process)
    await until_gone(process.pid)


async def test_children_left_by_a_process_are_killed(supervised: SupervisedSession, tmp_path: Path) -> None:
    await supervised.start("sleep 600 & echo $! >left")
    await supervised.until_reported()
    await until_gone(await read_printed_number(tmp_path / "left"))


async def test_end_of_a_session_kills_its_processes_without_reports(supervised: SupervisedSession) -> None:
    process = await supervised.start("sleep 600")
    supervised.supervisor.end_session(process.session_id)
    assert (await supervised.until_ended(process)).state == "killed"
    await until_gone(process.pid)
    assert supervised.reports == []


async def test_processes_are_visible_only_in_their_session(supervised: SupervisedSession, tmp_path: Path) -> None:
    process = await supervised.start("sleep 600")
    other = SupervisedSession(supervised.store, tmp_path, "session-2")
    assert process.id in await supervised.use("list")
    assert await other.use("list") == "No background processes."
    with pytest.raises(ToolFailed, match="has no background process"):
        await other.use("kill", process)


async def test_background_commands_and_their_input_are_proposed_as_commands(supervised: SupervisedSession) -> None:
    assert supervised.terminal.proposed_action(TerminalArguments("rm -rf x", background=True)) == ProposedAction(
        "command", "rm -rf x"
    )
    assert supervised.process.proposed_action(ProcessArguments("write", "p1", "rm -rf x\n")) == ProposedAction(
        "command", "rm -rf x\n"
    )


async def test_start_in_a_missing_folder_is_refused(supervised: SupervisedSession, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="doesn't exist"):
        await supervised.start("true", workdir="nowhere")
    assert await supervised.listed() == []


async def test_number_of_background_processes_is_limited(supervised: SupervisedSession) -> None:
    for _ in range(64):
        await supervised.start("sleep 600")
    with pytest.raises(ToolFailed, match="64 background processes are already running"):
        await supervised.start("sleep 600")


async def test_long_output_is_rotated_and_its_last_lines_remain(tmp_path: Path) -> None:
    files = ProcessFiles(tmp_path / "one")
    files.prepare()
    with files.out.open("ab") as out:
        out.write(b"x" * ROTATE_AT + b"\nlast\n")
        out.flush()
        assert files.rotate()
        out.write(b"next\n")
    assert not files.rotate()
    assert files.out.read_bytes() == b"next\n"
    assert files.read_last_lines(2) == "last\nnext"
    assert files.before.stat().st_size <= ROTATE_AT
    assert files.out.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(find_sandbox_problem() is not None, reason="bubblewrap doesn't work here")
async def test_sandboxed_process_is_confined_and_killed_with_its_children(
    supervised: SupervisedSession, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    sandbox = BubblewrapSandbox(SandboxPolicy(writable=(folder,)))
    supervised.terminal = Terminal(Processes(), supervised.outputs, sandbox=sandbox, background=supervised.supervisor)
    command = "echo inside >here; echo no >../there; (setsid sleep 600 &); read line; echo got $line; sleep 600"
    process = await supervised.start(command, workdir="work")
    await supervised.use("write", process, text="it\n")
    await until_polled(supervised, process, "\ngot it")
    assert _read(folder / "here") == "inside\n"
    assert not (tmp_path / "there").exists()
    inside = list_process_tree(process.pid)
    assert len(inside) >= 3
    assert "was killed" in await supervised.use("kill", process)
    for pid in inside:
        await until_gone(pid)
