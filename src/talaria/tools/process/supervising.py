"""Start background processes, watch them, adopt those whose watcher is gone, and report what becomes of them."""

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from talaria.contracts.processes import (
    COOKIE,
    PROCESSES,
    BackgroundProcess,
    EndedBy,
    Wanted,
    add_process,
    change_process,
    forget_process,
    list_processes,
    read_process,
)
from talaria.contracts.store import Store, Transaction
from talaria.contracts.tool import Call
from talaria.core.errors import StoreError, ToolFailed
from talaria.core.ids import SessionId, WorkerId, is_gone, new_id
from talaria.core.system_processes import (
    carries,
    in_sessions,
    is_same,
    is_there,
    kill_tree,
    signal_all,
    this_machine,
    tree_of,
    when_started,
)
from talaria.tools.process.files import ProcessFiles
from talaria.tools.process.launching import CLOSE_INPUT, launch
from talaria.tools.process.matching import MOST_NOTICES
from talaria.tools.process.watching import Watched
from talaria.tools.process.wording import end_notice, match_notice

Report = Callable[[Transaction, BackgroundProcess, str, str], None]

_MOST_RUNNING = 64
_TICK = 1.0
_TICKS_BETWEEN_ROTATIONS = 10
_LOOK_AGAIN = 0.5
_GRACE = 2.0
_LAST_LINES, _LAST_BYTES = 20, 4096
_LONGEST_LINE = 200
_TO_BEGIN = timedelta(seconds=15)
_KEPT = timedelta(days=7)
_MOST_KEPT = 2_000

log = logging.getLogger(__name__)


class Supervisor:
    """Implements `BackgroundWork` for one worker.

    ``folder`` gives the folder for the files of a conversation. ``report`` lets something be told to the conversation
    of a process, in a transaction; ``topic`` is that of the hints that there is something to be told.
    """

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        folder: Callable[[SessionId], Path],
        report: Report,
        topic: str,
    ) -> None:
        self.worker = worker
        self._store = store
        self._folder = folder
        self._report = report
        self._topic = topic
        self._watched: dict[str, Watched] = {}
        self._starting: set[str] = set()
        self._over: set[SessionId] = set()
        self._left_behind: dict[int, signal.Signals] = {}
        self._busy = asyncio.Event()
        self._jobs: asyncio.TaskGroup | None = None

    async def serve(self) -> None:
        """Watch what runs here and belongs to us or to nobody, until cancelled; all of it goes on then."""
        try:
            async with self._store.heeding(PROCESSES) as rung, asyncio.TaskGroup() as jobs:
                self._jobs = jobs
                try:
                    await self._keep_looking(rung)
                finally:
                    self._jobs = None
        finally:
            for watched in self._watched.values():
                watched.close()
            self._watched.clear()

    async def _keep_looking(self, rung: asyncio.Event) -> None:
        self._begin(self._follow)
        self._begin(self._end_sessions)
        while True:
            rung.clear()
            try:
                await self.look()
            except StoreError as error:
                log.warning("background processes are looked for later: %s", error)
            await rung.wait()

    async def look(self) -> None:
        """Take over those whose watcher is gone, end those that are to end, and forget those that ended long ago."""
        found = await self._store.read(list_processes)
        for process in found:
            watched = self._watched.get(process.id)
            if watched is not None and process.ended_by and not watched.ending:
                watched.ending = True
                self._begin(partial(self._end_tree, process))
            elif watched is None and self._is_ours_to_take(process):
                await self._adopt(process)
        await self._forget(found)

    async def start(self, wanted: Wanted, call: Call) -> BackgroundProcess:
        """Start one that belongs to the conversation of a call; raises `ToolFailed` where that cannot be."""
        running = [one for one in await self.of_session(call.session_id) if one.is_alive]
        if len(running) >= _MOST_RUNNING:
            raise ToolFailed(f"{len(running)} background processes run already: end some first.")
        process = self._new(wanted, call)
        files = ProcessFiles(Path(process.place))
        self._starting.add(process.id)
        try:
            files.prepare()
            await self._store.write(lambda tx: add_process(tx, process))
            environment = {**call.environment, COOKIE: process.id, **({"TERM": "xterm"} if wanted.pty else {})}
            pid = await asyncio.to_thread(
                launch, files, wanted.argv, folder=wanted.folder, environment=environment, pty=wanted.pty
            )
            begun = await self._store.write(
                lambda tx: change_process(tx, process, state="running", pid=pid, started=when_started(pid))
            )
        except OSError as error:
            await self._store.write(lambda tx: forget_process(tx, process))
            raise ToolFailed(f"The command could not be started: {error}") from error
        finally:
            self._starting.discard(process.id)
        if begun is None:
            raise ToolFailed("The conversation was deleted meanwhile.")
        self._watch(begun)
        return begun

    async def of_session(self, session_id: SessionId) -> list[BackgroundProcess]:
        """Return those of a conversation, oldest first."""
        return await self._store.read(lambda tx: list_processes(tx, session_id))

    async def wait(self, process: BackgroundProcess, seconds: float) -> BackgroundProcess:
        """Wait for its end, not longer than this, and return it as it is then."""
        try:
            async with asyncio.timeout(seconds):
                await self._until_ended(process)
        except TimeoutError:
            pass
        return await self._as_it_is(process)

    async def write(self, process: BackgroundProcess, text: str, call_id: str) -> None:
        """Write to its input, once for each call."""
        _check_here(process)
        if process.stdin_closed:
            raise ToolFailed("Its input was closed.")
        if process.written == call_id:
            raise ToolFailed("This was interrupted: it may have been written, or not. Look at the log.")
        await self._store.write(lambda tx: change_process(tx, process, written=call_id))
        files = await _ready(process)
        try:
            await asyncio.to_thread(files.write, text.encode())
        except BlockingIOError as error:
            raise ToolFailed("It does not read its input: only a part was written, or nothing.") from error
        except OSError as error:
            raise ToolFailed(f"Its input cannot be written: {error.strerror}.") from error

    async def close_input(self, process: BackgroundProcess) -> None:
        """Let it read the end of its input."""
        _check_here(process)
        if not process.pty:
            await self._store.write(lambda tx: change_process(tx, process, stdin_closed=True))
        await _ready(process)
        signal_all([process.pid], CLOSE_INPUT)

    async def kill(self, process: BackgroundProcess, by: EndedBy) -> BackgroundProcess:
        """End it and all that it started, and return it as it is then."""
        if not process.is_alive:
            return process
        watched = self._watched.get(process.id)
        if watched is not None:
            watched.ending = True
        await self._store.write(lambda tx: change_process(tx, process, ended_by=by))
        await self._store.hint(PROCESSES)
        if process.machine == this_machine():
            await self._end_tree(process)
        return await self.wait(process, _GRACE + _GRACE)

    def end_session(self, session_id: SessionId) -> None:
        """End all of a conversation that is over, without making anybody wait; later, where nobody watches now."""
        self._over.add(session_id)
        self._begin(self._end_sessions)

    async def _end_sessions(self) -> None:
        while self._over:
            for process in await self.of_session(self._over.pop()):
                await self.kill(process, "conversation")

    def _new(self, wanted: Wanted, call: Call) -> BackgroundProcess:
        name = f"p{new_id()[-6:]}"
        return BackgroundProcess(
            id=name,
            session_id=call.session_id,
            command=wanted.command,
            folder=wanted.folder,
            place=str(self._folder(call.session_id) / f"process-{name}"),
            machine=this_machine(),
            host=os.uname().nodename,
            watcher=self.worker,
            begun_at=datetime.now(UTC),
            context=call.context,
            notify=wanted.notify,
            patterns=wanted.patterns,
            pty=wanted.pty,
        )

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._jobs is not None:
            self._jobs.create_task(self._guarded(work))

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except StoreError as error:
            log.warning("background processes wait for the store: %s", error)

    def _is_ours_to_take(self, process: BackgroundProcess) -> bool:
        """Tell whether nobody watches one that is of this machine; one of before its last start is gone for sure."""
        if not process.is_alive or process.id in self._starting or process.host != os.uname().nodename:
            return False
        if process.machine != this_machine():
            return True
        return process.watcher == self.worker or is_gone(process.watcher)

    async def _adopt(self, process: BackgroundProcess) -> None:
        def claim(tx: Transaction) -> BackgroundProcess | None:
            now = read_process(tx, process)
            if now is None or now.watcher != process.watcher or not now.is_alive:
                return None
            return change_process(tx, now, watcher=self.worker, **_as_found(now))

        claimed = await self._store.write(claim)
        if claimed is not None and (claimed.pid or datetime.now(UTC) - claimed.begun_at > _TO_BEGIN):
            self._watch(claimed)

    def _watch(self, process: BackgroundProcess) -> None:
        if self._jobs is None or process.id in self._watched:
            return
        watched = self._watched[process.id] = Watched(process)
        self._busy.set()
        watched.listen(lambda: self._ring(watched))

    def _ring(self, watched: Watched) -> None:
        if not watched.over:
            watched.over = True
            watched.close()
            self._begin(partial(self._settle, watched))

    async def _settle(self, watched: Watched) -> None:
        """Keep how a process ended and report it, before anything else; what it left behind is ended then."""
        if not watched.lookout.muted:
            await asyncio.to_thread(watched.lookout.look, last=True)
        last = watched.files.last_lines(_LAST_LINES, _LAST_BYTES)
        while True:
            try:
                await self._store.write(lambda tx: self._ended(tx, watched, last))
                break
            except StoreError as error:
                log.warning("the end of process %s waits for the store: %s", watched.process.id, error)
                await asyncio.sleep(_LOOK_AGAIN)
        await self._store.hint(self._topic)
        self._watched.pop(watched.process.id, None)
        watched.ended.set()
        if watched.process.pid > 1 and watched.process.machine == this_machine():
            self._left_behind[watched.process.pid] = signal.SIGTERM

    def _ended(self, tx: Transaction, watched: Watched, last: str) -> None:
        now, code = read_process(tx, watched.process), watched.files.code
        if now is None or not now.is_alive:
            return
        state = "ended" if code is not None else "killed" if now.ended_by else "lost"
        line = last.rpartition("\n")[2][:_LONGEST_LINE]
        ended = change_process(tx, now, state=state, code=code, ended_at=datetime.now(UTC), last_line=line)
        if ended is None or ended.ended_by in ("agent", "conversation") or watched.waiting:
            return
        if watched.lookout.lines:
            self._report(tx, ended, f"{ended.id}:match:{watched.lookout.matches + 1}", _matched(watched, last=False))
        if ended.notify:
            self._report(tx, ended, f"{ended.id}:end", end_notice(ended, last))

    async def _follow(self) -> None:
        """Look at outputs that are watched for something, begin long ones anew, and end what was left behind."""
        ticks = 0
        while True:
            await self._busy.wait()
            await asyncio.sleep(_TICK)
            ticks += 1
            try:
                await self._tick(rotate=ticks % _TICKS_BETWEEN_ROTATIONS == 0)
            except (StoreError, OSError) as error:
                log.warning("outputs of background processes are looked at later: %s", error)
            if not self._watched and not self._left_behind:
                self._busy.clear()

    async def _tick(self, *, rotate: bool) -> None:
        now = datetime.now(UTC)
        for watched in list(self._watched.values()):
            if not watched.has_bell and not watched.runs:
                self._ring(watched)
            if not watched.lookout.muted and watched.files.size != watched.lookout.position:
                await asyncio.to_thread(watched.lookout.look)
            if watched.lookout.is_due(now):
                await self._tell(watched, now)
            if rotate and await asyncio.to_thread(watched.files.rotate):
                watched.lookout.position = 0
        await self._end_left_behind()

    async def _tell(self, watched: Watched, now: datetime) -> None:
        """Report lines that were found; how far was looked is kept with that, so that each is found once."""
        lookout = watched.lookout
        number, position = lookout.matches + 1, lookout.position

        def work(tx: Transaction) -> None:
            changed = change_process(tx, watched.process, scanned=position, matches=number, matched_at=now)
            if changed is not None:
                text = _matched(watched, last=number >= MOST_NOTICES)
                self._report(tx, changed, f"{watched.process.id}:match:{number}", text)

        await self._store.write(work)
        lookout.tell(now)
        await self._store.hint(self._topic)

    async def _end_left_behind(self) -> None:
        """End what the processes that are over have left in their sessions: first asked to, then killed."""
        if not self._left_behind:
            return
        # A number that is in use again is that of another one, which nobody gets while its session is there.
        leaders = {leader: number for leader, number in self._left_behind.items() if not is_there(leader)}
        self._left_behind = {}
        asked = {leader for leader, number in leaders.items() if number is signal.SIGTERM}
        for number, some in ((signal.SIGTERM, asked), (signal.SIGKILL, leaders.keys() - asked)):
            rest = await asyncio.to_thread(in_sessions, some) if some else set()
            signal_all(rest, number)
            if rest and number is signal.SIGTERM:
                self._left_behind.update(dict.fromkeys(some, signal.SIGKILL))

    async def _end_tree(self, process: BackgroundProcess) -> None:
        """Ask a process and all it started to stop, and kill what is left of that after a moment."""
        if not is_same(process.pid, process.started, process.machine):
            return
        cookie = f"{COOKIE}={process.id}"
        tree = await asyncio.to_thread(tree_of, process.pid, cookie)
        signal_all(tree, signal.SIGTERM)
        try:
            async with asyncio.timeout(_GRACE):
                # The system tells us of those that we have a handle of; of a tree nobody has.
                while await asyncio.to_thread(tree_of, process.pid, cookie):  # noqa: ASYNC110 (see above)
                    await asyncio.sleep(_LOOK_AGAIN / 10)
        except TimeoutError:
            await asyncio.to_thread(kill_tree, process.pid, cookie)
        except asyncio.CancelledError:
            kill_tree(process.pid, cookie)
            raise

    async def _until_ended(self, process: BackgroundProcess) -> None:
        watched = self._watched.get(process.id)
        if watched is not None:
            watched.waiting += 1
            try:
                await watched.ended.wait()
            finally:
                watched.waiting -= 1
            return
        while (await self._as_it_is(process)).is_alive:  # noqa: ASYNC110 (another worker watches it)
            await asyncio.sleep(_LOOK_AGAIN)

    async def _as_it_is(self, process: BackgroundProcess) -> BackgroundProcess:
        return await self._store.read(lambda tx: read_process(tx, process)) or process

    async def _forget(self, found: list[BackgroundProcess]) -> None:
        """Forget those that ended long ago, or of which there are too many, with their files."""
        over = [process for process in found if not process.is_alive and process.ended_at is not None]
        old = [one for one in over if one.ended_at and datetime.now(UTC) - one.ended_at > _KEPT]
        for process in [*old, *(one for one in over[: max(0, len(over) - _MOST_KEPT)] if one not in old)]:
            await self._store.write(partial(_forgotten, process))
            if process.host == os.uname().nodename:
                await asyncio.to_thread(shutil.rmtree, process.place, ignore_errors=True)


def _forgotten(process: BackgroundProcess, tx: Transaction) -> None:
    forget_process(tx, process)


def _as_found(process: BackgroundProcess) -> dict[str, object]:
    """Return what is known of one whose start was not recorded: it wrote its number itself."""
    if process.pid or process.machine != this_machine():
        return {}
    pid = ProcessFiles(Path(process.place)).pid
    if not pid or (is_there(pid) and not carries(pid, f"{COOKIE}={process.id}")):  # it is another one by now
        return {"state": "running", "pid": pid}
    return {"state": "running", "pid": pid, "started": when_started(pid)}


def _check_here(process: BackgroundProcess) -> None:
    if not process.is_alive:
        raise ToolFailed("It has ended.")
    if process.machine != this_machine():
        raise ToolFailed(f"It runs on another machine, {process.host}.")


async def _ready(process: BackgroundProcess) -> ProcessFiles:
    """Return the files of a process as soon as its input is open."""
    files = ProcessFiles(Path(process.place))
    while not files.pid and is_same(process.pid, process.started, process.machine):  # noqa: ASYNC110 (it has no bell)
        await asyncio.sleep(_LOOK_AGAIN / 50)
    return files


def _matched(watched: Watched, *, last: bool) -> str:
    return match_notice(watched.process, watched.lookout.lines, watched.lookout.left_out, last=last)
