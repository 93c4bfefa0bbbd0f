"""The background processes of this program: what sees to them is loaded when there are some."""

import logging
from asyncio import Event, Task, TaskGroup, wait
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from talaria.app.subcommands import load
from talaria.contracts.processes import BackgroundProcess, EndedBy, Wanted, list_processes
from talaria.contracts.store import Store, Transaction
from talaria.contracts.tool import Call
from talaria.core.errors import StoreError
from talaria.core.ids import SessionId, new_worker_id
from talaria.sessions.waking import WAKE, hear, origin_of, report
from talaria.tools.output import FullOutputs

if TYPE_CHECKING:  # loaded with the first process
    from talaria.tools.process.supervising import Supervisor

SOURCE = "process"

log = logging.getLogger(__name__)


class _Reporter(Struct, frozen=True):
    """Implements `Reporter`."""

    mask: Callable[[str], str]
    topic: str = WAKE

    def report(self, tx: Transaction, process: BackgroundProcess, name: str, text: str) -> None:
        """Let something be told to the conversation of a process."""
        report(tx, process.session_id, SOURCE, name, self.mask(text), origin=origin_of(process.context))

    def hear(self, tx: Transaction, process: BackgroundProcess, names: Sequence[str], call_id: str) -> None:
        """Let what a tool call answers with not be told."""
        hear(tx, process.session_id, SOURCE, names, call_id)


class BackgroundProcesses:
    """Implements `BackgroundWork`. What has started goes on whatever becomes of this program."""

    def __init__(self, store: Store, outputs: Path, mask: Callable[[str], str]) -> None:
        self._store = store
        self._outputs = FullOutputs(outputs)
        self._reporter = _Reporter(mask)
        self._worker = new_worker_id()
        self._supervisor: Supervisor | None = None
        self._serving: Task[None] | None = None
        self._ending: Task[None] | None = None
        self._needed = Event()
        self._users = 0

    def attend(self, jobs: TaskGroup, stack: AsyncExitStack, *, always: bool = False) -> None:
        """Watch what there is, as a task of ``jobs``, until the last one who asked for this leaves its stack.

        Where there is nothing that is left to the first process, unless ``always`` says that others may leave some.
        """
        self._users += 1
        if always:
            self._needed.set()
        stack.callback(self._leave)
        if self._serving is None or self._serving.done():
            self._serving = jobs.create_task(self._serve(self._ending))

    async def start(self, wanted: Wanted, call: Call) -> BackgroundProcess:
        """Start one that belongs to the conversation of a call; raises `ToolFailed` where that cannot be."""
        self._needed.set()
        return await self._seen_to().start(wanted, call)

    async def of_session(self, session_id: SessionId) -> list[BackgroundProcess]:
        """Return those of a conversation, oldest first."""
        return await self._store.read(lambda tx: list_processes(tx, session_id))

    async def wait(self, process: BackgroundProcess, seconds: float, call_id: str) -> BackgroundProcess:
        """Wait for its end, not longer than this, and return it as it is then: a call is about to answer with that."""
        return await self._seen_to().wait(process, seconds, call_id)

    async def write(self, process: BackgroundProcess, text: str, call_id: str) -> None:
        """Write to its input, once for each call."""
        await self._seen_to().write(process, text, call_id)

    async def close_input(self, process: BackgroundProcess) -> None:
        """Let it read the end of its input."""
        await self._seen_to().close_input(process)

    async def kill(self, process: BackgroundProcess, by: EndedBy) -> BackgroundProcess:
        """End it and all that it started, and return it as it is then."""
        return await self._seen_to().kill(process, by)

    def end_session(self, session_id: SessionId) -> None:
        """End all of a conversation that is over, without making anybody wait."""
        self._needed.set()
        self._seen_to().end_session(session_id)

    async def _serve(self, before: Task[None] | None) -> None:
        if before is not None:
            await wait([before])
        try:
            if not await self._store.read(list_processes):
                await self._needed.wait()
        except StoreError as error:
            log.warning("background processes are looked for all the same: %s", error)
        await self._seen_to().serve()

    def _seen_to(self) -> "Supervisor":
        if self._supervisor is None:
            make: type[Supervisor] = load("talaria.tools.process.supervising").Supervisor
            self._supervisor = make(self._store, self._worker, self._outputs.place, self._reporter)
        return self._supervisor

    def _leave(self) -> None:
        self._users -= 1
        if self._users == 0 and self._serving is not None:
            self._serving.cancel()
            self._serving, self._ending = None, self._serving
