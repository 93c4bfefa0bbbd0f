"""Background processes of this program; their supervisor is imported when there are some."""

import logging
from asyncio import Event, Task, TaskGroup, wait
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from talaria.contracts.background_processes import BackgroundProcess, EndedBy, ProcessRequest, list_processes
from talaria.contracts.store import Store, Transaction
from talaria.contracts.tool import Call
from talaria.core.errors import StoreError
from talaria.core.ids import SessionId, new_worker_id
from talaria.runtime.completions import hear, read_origin, report
from talaria.tools.output import FullOutputs

if TYPE_CHECKING:  # imported with the first process
    from talaria.tools.process.supervisor import Supervisor

SOURCE = "process"

log = logging.getLogger(__name__)


class _Reporter(Struct, frozen=True):
    """Implementation of `Reporter`."""

    mask: Callable[[str], str]

    def report(self, tx: Transaction, process: BackgroundProcess, name: str, text: str) -> None:
        """Store a report for the session of a process, with secrets masked."""
        report(tx, process.session_id, SOURCE, name, self.mask(text), origin=read_origin(process.context))

    def hear(self, tx: Transaction, process: BackgroundProcess, names: Sequence[str], call_id: str) -> None:
        """Record that a tool call is about to return these reports."""
        hear(tx, process.session_id, SOURCE, names, call_id)


class BackgroundProcesses:
    """Implementation of `BackgroundWork`; processes survive the end of this program."""

    def __init__(self, store: Store, outputs: Path, mask: Callable[[str], str]) -> None:
        self._store = store
        self._outputs = FullOutputs(outputs)
        self._reporter = _Reporter(mask)
        self._worker = new_worker_id()
        self._supervisor: Supervisor | None = None
        self._serving: Task[None] | None = None
        self._ending: Task[None] | None = None
        self._start_event = Event()
        self._user_count = 0

    def attend(self, jobs: TaskGroup, stack: AsyncExitStack, *, always: bool = False) -> None:
        """Supervise processes as a task of ``jobs``, until the last caller has closed its ``stack``.

        If there are no processes, supervision starts with the first one. With ``always`` it starts at once, because
        other processes may leave some to this one.
        """
        self._user_count += 1
        if always:
            self._start_event.set()
        stack.callback(self._release)
        if self._serving is None or self._serving.done():
            self._serving = jobs.create_task(self._serve(self._ending))

    async def start(self, request: ProcessRequest, call: Call) -> BackgroundProcess:
        """Start a process for the session of a call; raises `ToolFailed` if that is impossible."""
        self._start_event.set()
        return await self._get_supervisor().start(request, call)

    async def of_session(self, session_id: SessionId) -> list[BackgroundProcess]:
        """Return the processes of a session, oldest first."""
        return await self._store.read(lambda tx: list_processes(tx, session_id))

    async def wait(self, process: BackgroundProcess, seconds: float, call_id: str) -> BackgroundProcess:
        """Wait up to ``seconds`` for the end of a process, and return its state, which the call reports."""
        return await self._get_supervisor().wait(process, seconds, call_id)

    async def write(self, process: BackgroundProcess, text: str, call_id: str) -> None:
        """Write to the input of a process, once for each call."""
        await self._get_supervisor().write(process, text, call_id)

    async def close_input(self, process: BackgroundProcess) -> None:
        """Close the input of a process."""
        await self._get_supervisor().close_input(process)

    async def kill(self, process: BackgroundProcess, by: EndedBy) -> BackgroundProcess:
        """End a process and everything it started, and return its state."""
        return await self._get_supervisor().kill(process, by)

    def end_session(self, session_id: SessionId) -> None:
        """End all processes of an ended session, without waiting."""
        self._start_event.set()
        self._get_supervisor().end_session(session_id)

    async def _serve(self, before: Task[None] | None) -> None:
        if before is not None:
            await wait([before])
        try:
            if not await self._store.read(list_processes):
                await self._start_event.wait()
        except StoreError as error:
            log.warning("checking background processes despite an error: %s", error)
        await self._get_supervisor().serve()

    def _get_supervisor(self) -> "Supervisor":
        if self._supervisor is None:
            from talaria.tools.process.supervisor import Supervisor  # noqa: PLC0415 (loaded with the first process)

            self._supervisor = Supervisor(self._store, self._worker, self._outputs.place, self._reporter)
        return self._supervisor

    def _release(self) -> None:
        self._user_count -= 1
        if self._user_count == 0 and self._serving is not None:
            self._serving.cancel()
            self._serving, self._ending = None, self._serving
