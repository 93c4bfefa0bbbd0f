"""Start, watch and adopt background processes, and report their ends."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from talaria.contracts.background_processes import (
    COOKIE,
    PROCESS_STATES,
    PROCESSES,
    BackgroundProcess,
    EndedBy,
    ProcessRequest,
    ProcessSummary,
    add_process,
    change_process,
    forget_process,
    list_process_summaries,
    list_processes,
    read_process,
)
from talaria.contracts.store import Store, Subscription, Transaction
from talaria.contracts.tool import Call
from talaria.core.errors import StoreError, ToolFailed
from talaria.core.ids import SessionId, WorkerId, is_gone, new_id
from talaria.core.os_processes import (
    has_environment_entry,
    is_running,
    is_same_process,
    machine_id,
    read_start_time,
    signal_all,
)
from talaria.tools.process.lifecycle import CLOSE_INPUT, GRACE, ProcessFiles, end_tree, launch
from talaria.tools.process.poller import (
    Reporter,
    Rounds,
    Watched,
    format_end_notice,
    format_found_lines,
    make_end_name,
    make_match_name,
)
from talaria.tools.sandbox.client_program import end_inside

_MOST_RUNNING = 64
_AT_ONCE = 200
_BETWEEN_LOOKS = 5.0  # seconds between periodic checks, each of which reads all processes
_BETWEEN_IDLE_LOOKS = 60.0  # while no process runs: a start is notified
_BETWEEN_CLEANINGS = 3_600.0
_POLL_INTERVAL = 0.5
_LAST_LINES, _LAST_BYTES = 20, 4096
_LONGEST_LINE = 200
_TO_BEGIN = timedelta(seconds=15)
_KEPT = timedelta(days=7)
_MOST_KEPT = 2_000

log = logging.getLogger(__name__)


class Supervisor:
    """Implementation of `BackgroundWork` for one worker.

    ``folder`` returns the folder for the files of a session.
    """

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        folder: Callable[[SessionId], Path],
        reporter: Reporter,
    ) -> None:
        self.worker = worker
        self._store = store
        self._folder = folder
        self._reporter = reporter
        self._watched: dict[str, Watched] = {}
        self._starting: set[str] = set()
        self._over: set[SessionId] = set()
        self._rounds = Rounds(store, self._watched, self._handle_end, reporter)
        self._jobs: asyncio.TaskGroup | None = None

    async def serve(self) -> None:
        """Watch the processes of this machine that are ours or unowned, until cancelled; they keep running."""
        try:
            async with self._store.subscribe(PROCESSES, PROCESS_STATES) as subscription, asyncio.TaskGroup() as jobs:
                self._jobs = jobs
                try:
                    await self._keep_looking(subscription)
                finally:
                    self._jobs = None
        finally:
            for watched in self._watched.values():
                watched.close()
            self._watched.clear()

    async def _keep_looking(self, subscription: Subscription) -> None:
        self._begin(self._rounds.poll)
        self._begin(self._forget)
        self._begin(self._end_sessions)
        now = asyncio.get_running_loop().time
        next_look = 0.0
        while True:
            if not await subscription.wait() and now() < next_look:
                continue
            next_look = now() + _BETWEEN_LOOKS
            try:
                if not await self.look():
                    next_look = now() + _BETWEEN_IDLE_LOOKS
            except StoreError as error:
                log.warning("background processes will be checked later: %s", error)

    async def look(self) -> bool:
        """Adopt processes without a watcher, end those with a request to end, and return whether any process runs."""
        found = await self._store.read(list_process_summaries)
        await self._adopt([one for one in found if one.id not in self._watched and self._is_ours_to_take(one)])
        for glance in found:
            watched = self._watched.get(glance.id)
            if watched is not None and glance.ended_by and not watched.ending:
                watched.ending = True
                self._begin(partial(end_tree, watched.process))
        return bool(found)

    async def start(self, request: ProcessRequest, call: Call) -> BackgroundProcess:
        """Start a process for the session of a call; raises `ToolFailed` if that is impossible."""
        running = [one for one in await self.of_session(call.session_id) if one.is_alive]
        if len(running) >= _MOST_RUNNING:
            raise ToolFailed(f"{len(running)} background processes are already running. End some first.")
        process = self._make_process(request, call)
        files = ProcessFiles(Path(process.files_folder))
        self._starting.add(process.id)
        try:
            files.prepare()
            await self._store.write(lambda tx: add_process(tx, process))
            environment = {**request.environment, COOKIE: process.id, **({"TERM": "xterm"} if request.pty else {})}
            pid = await asyncio.to_thread(
                launch, files, request.argv, folder=request.folder, environment=environment, pty=request.pty
            )
            begun = await self._store.write(
                lambda tx: change_process(tx, process, state="running", pid=pid, started=read_start_time(pid))
            )
        except (OSError, NotImplementedError) as error:
            await self._store.write(lambda tx: forget_process(tx, process))
            raise ToolFailed(f"The command couldn't be started: {error}") from error
        finally:
            self._starting.discard(process.id)
        if begun is None:
            raise ToolFailed("The conversation has been deleted.")
        self._watch(begun)
        return begun

    async def of_session(self, session_id: SessionId) -> list[BackgroundProcess]:
        """Return the processes of a session, oldest first."""
        return await self._store.read(lambda tx: list_processes(tx, session_id))

    async def wait(self, process: BackgroundProcess, seconds: float, call_id: str) -> BackgroundProcess:
        """Wait for its end, at most this long, and return its state, which a tool call will report."""
        try:
            async with asyncio.timeout(seconds):
                await self._wait_until_ended(process)
        except TimeoutError:
            pass
        now = await self._read_current(process)
        if not now.is_alive:
            names = (make_end_name(now), make_match_name(now, now.matches + 1))
            await self._store.write(lambda tx: self._reporter.record_pending_answers(tx, now, names, call_id))
        return now

    async def write(self, process: BackgroundProcess, text: str, call_id: str) -> None:
        """Write to its input, once per call."""
        _check_here(process)
        if process.stdin_closed:
            raise ToolFailed("Its input is closed.")
        if process.written == call_id:
            raise ToolFailed("Interrupted: the text may or may not have been written. Check the log.")
        await self._store.write(lambda tx: change_process(tx, process, written=call_id))
        files = await _wait_for_input(process)
        try:
            await asyncio.to_thread(files.write, text.encode())
        except BlockingIOError as error:
            raise ToolFailed("It isn't reading its input. The text was written in part or not at all.") from error
        except OSError as error:
            raise ToolFailed(f"Can't write to its input: {error.strerror}.") from error

    async def close_input(self, process: BackgroundProcess) -> None:
        """Close its input."""
        _check_here(process)
        if not process.pty:
            await self._store.write(lambda tx: change_process(tx, process, stdin_closed=True))
        await _wait_for_input(process)
        signal_all([process.pid], CLOSE_INPUT)

    async def kill(self, process: BackgroundProcess, by: EndedBy) -> BackgroundProcess:
        """End it and all its children, and return its final state."""
        if not process.is_alive:
            return process
        watched = self._watched.get(process.id)
        if watched is not None:
            watched.ending = True
        await self._store.write(lambda tx: change_process(tx, process, ended_by=by))
        if process.machine == machine_id():
            await end_tree(process)
        try:
            async with asyncio.timeout(2 * GRACE):
                await self._wait_until_ended(process)
        except TimeoutError:
            pass
        return await self._read_current(process)

    def end_session(self, session_id: SessionId) -> None:
        """End all processes of a closed session without waiting; later, if nobody watches them now."""
        self._over.add(session_id)
        self._begin(self._end_sessions)

    async def _end_sessions(self) -> None:
        while self._over:
            for process in await self.of_session(self._over.pop()):
                self._begin(partial(self._end_with_session, process))

    async def _end_with_session(self, process: BackgroundProcess) -> None:
        await self.kill(process, "conversation")

    def _make_process(self, request: ProcessRequest, call: Call) -> BackgroundProcess:
        name = f"p{new_id()[-6:]}"
        return BackgroundProcess(
            id=name,
            session_id=call.session_id,
            command=request.command,
            folder=request.folder,
            files_folder=str(self._folder(call.session_id) / f"process-{name}"),
            machine=machine_id(),
            host=os.uname().nodename,
            watcher=self.worker,
            begun_at=datetime.now(UTC),
            context=call.context,
            notify=request.notify,
            patterns=request.patterns,
            pty=request.pty,
            end=request.end,
        )

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._jobs is not None:
            self._jobs.create_task(self._run_and_log_failure(work))

    async def _run_and_log_failure(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except StoreError as error:
            log.warning("background processes: the store is unavailable, will retry: %s", error)

    def _is_ours_to_take(self, process: ProcessSummary) -> bool:
        """Return whether a process of this machine has no watcher; one from before the last boot is certainly gone."""
        if process.id in self._starting or process.host != os.uname().nodename:
            return False
        if process.machine != machine_id():
            return True
        return process.watcher == self.worker or is_gone(process.watcher)

    async def _adopt(self, orphans: Sequence[ProcessSummary]) -> None:
        for some in (orphans[start : start + _AT_ONCE] for start in range(0, len(orphans), _AT_ONCE)):
            for process in await self._store.write(partial(self._claim_orphans, some)):
                if process.pid or datetime.now(UTC) - process.begun_at > _TO_BEGIN:
                    self._watch(process)

    def _claim_orphans(self, orphans: Sequence[ProcessSummary], tx: Transaction) -> list[BackgroundProcess]:
        """Return the processes that no other worker claimed first."""
        claimed = []
        for orphan in orphans:
            now = read_process(tx, orphan)
            if now is not None and now.watcher == orphan.watcher and now.is_alive:
                claimed.append(change_process(tx, now, watcher=self.worker, **_find_unrecorded_start(now)))
        return [process for process in claimed if process is not None]

    def _watch(self, process: BackgroundProcess) -> None:
        if self._jobs is None or process.id in self._watched:
            return
        watched = self._watched[process.id] = Watched(process)
        self._rounds.needed.set()
        watched.listen(lambda: self._handle_end(watched))

    def _handle_end(self, watched: Watched) -> None:
        if not watched.over:
            watched.over = True
            watched.close()
            self._begin(partial(self._settle, watched))

    async def _settle(self, watched: Watched) -> None:
        """Store and report how a process ended, then end its leftover children."""
        if not watched.lookout.muted:
            await asyncio.to_thread(watched.lookout.look, last=True)
        last = watched.files.read_last_lines(_LAST_LINES, _LAST_BYTES)
        while True:
            try:
                await self._store.write(lambda tx: self._record_end(tx, watched, last))
                break
            except StoreError as error:
                log.warning("end of process %s not stored yet, will retry: %s", watched.process.id, error)
                await asyncio.sleep(_POLL_INTERVAL)
        self._watched.pop(watched.process.id, None)
        watched.ended.set()
        if watched.files.code is None:  # its client was killed, which the sandbox didn't notice
            await end_inside(watched.process.end)
        self._rounds.left_behind.add(watched.process)

    def _record_end(self, tx: Transaction, watched: Watched, last: str) -> None:
        now, code = read_process(tx, watched.process), watched.files.code
        if now is None or not now.is_alive:
            return
        state = "killed" if now.ended_by else "ended" if code is not None else "lost"
        line = last.rpartition("\n")[2][:_LONGEST_LINE]
        noticed = datetime.now(UTC)
        at = min(max(watched.files.ended_at or noticed, now.begun_at), noticed)
        ended = change_process(tx, now, state=state, code=code, ended_at=at, noticed_at=noticed, last_line=line)
        if ended is None or ended.ended_by in ("agent", "conversation"):
            return
        if watched.lookout.lines:
            name = make_match_name(ended, ended.matches + 1)
            self._reporter.report(tx, ended, name, format_found_lines(watched, last=False))
        if ended.notify:
            self._reporter.report(tx, ended, make_end_name(ended), format_end_notice(ended, last))

    async def _wait_until_ended(self, process: BackgroundProcess) -> None:
        watched = self._watched.get(process.id)
        if watched is not None:
            await watched.ended.wait()
            return
        while (await self._read_current(process)).is_alive:  # noqa: ASYNC110 (another worker watches it)
            await asyncio.sleep(_POLL_INTERVAL)

    async def _read_current(self, process: BackgroundProcess) -> BackgroundProcess:
        return await self._store.read(lambda tx: read_process(tx, process)) or process

    async def _forget(self) -> None:
        """Delete records and files of processes that ended long ago, or of which there are too many."""
        while True:
            await self._forget_some(await self._store.read(list_processes))
            await asyncio.sleep(_BETWEEN_CLEANINGS)

    async def _forget_some(self, found: list[BackgroundProcess]) -> None:
        over = [process for process in found if not process.is_alive]
        old = [one for one in over if datetime.now(UTC) - (one.noticed_at or one.ended_at or one.begun_at) > _KEPT]
        for process in [*old, *(one for one in over[: max(0, len(over) - _MOST_KEPT)] if one not in old)]:
            await self._store.write(partial(_delete_record, process))
            if process.host == os.uname().nodename:
                await asyncio.to_thread(shutil.rmtree, process.files_folder, ignore_errors=True)


def _delete_record(process: BackgroundProcess, tx: Transaction) -> None:
    forget_process(tx, process)


def _find_unrecorded_start(process: BackgroundProcess) -> dict[str, object]:
    """Return the state of a process whose start was not recorded: it wrote its number itself."""
    if process.pid or process.machine != machine_id():
        return {}
    pid = ProcessFiles(Path(process.files_folder)).pid
    if not pid or (
        is_running(pid) and not has_environment_entry(pid, f"{COOKIE}={process.id}")
    ):  # the number belongs to another process by now
        return {"state": "running", "pid": pid}
    return {"state": "running", "pid": pid, "started": read_start_time(pid)}


def _check_here(process: BackgroundProcess) -> None:
    if not process.is_alive:
        raise ToolFailed("It has ended.")
    if process.machine != machine_id():
        raise ToolFailed(f"It is running on another machine, {process.host}.")


async def _wait_for_input(process: BackgroundProcess) -> ProcessFiles:
    """Return the files of a process as soon as its input is open."""
    files = ProcessFiles(Path(process.files_folder))
    while not files.pid and is_same_process(process.pid, process.started, process.machine):  # noqa: ASYNC110 (it has no bell)
        await asyncio.sleep(_POLL_INTERVAL / 50)
    return files
