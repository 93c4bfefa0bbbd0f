"""Background processes of a session, with a real store and supervisor, and their reports."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from tests.tools.tool_calls import call_from

from talaria.contracts.background_processes import BackgroundProcess, BackgroundWork, ProcessRequest, list_processes
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession, SessionFilter
from talaria.contracts.tool import Call
from talaria.core.ids import SessionId, WorkerId, new_worker_id
from talaria.core.messages import Message, ToolResult
from talaria.core.session_context import SessionContext
from talaria.runtime.completions import queue_reports_if_idle, record_pending_answers, report
from talaria.runtime.turns import read_message
from talaria.testing.clock import NOON
from talaria.testing.wait import until
from talaria.tools.output import FullOutputs
from talaria.tools.process.supervisor import Supervisor
from talaria.tools.process.tool import Process, ProcessArguments
from talaria.tools.terminal.shell import Processes
from talaria.tools.terminal.tool import Terminal, TerminalArguments

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@dataclass
class SupervisedSession:
    """A worker with its supervisor, and the two tools of one session; it is its own `Reporter`."""

    store: Store
    folder: Path
    session_id: str
    reports: list[tuple[str, str]] = field(default_factory=list)
    worker: WorkerId = field(default_factory=new_worker_id)

    def __post_init__(self) -> None:
        self.outputs = FullOutputs(self.folder / "outputs")
        self.supervisor = Supervisor(self.store, self.worker, self.outputs.find_folder, self)
        self.terminal = Terminal(Processes(), self.outputs, background=self.supervisor)
        self.process = Process(self.supervisor)

    def report(self, tx: Transaction, process: BackgroundProcess, name: str, text: str) -> None:
        if report(tx, process.session_id, "process", name, text):
            self.reports.append((name.partition(":")[2], text))

    def record_pending_answers(
        self, tx: Transaction, process: BackgroundProcess, names: Sequence[str], call_id: str
    ) -> None:
        record_pending_answers(tx, process.session_id, "process", names, call_id)

    async def append_answer(self, call_id: str, *, failed: bool = False) -> None:
        """Append the answer of a call to the transcript, as after a turn; ``failed`` for a stopped call."""
        message = Message(role="tool", parts=(ToolResult(call_id, "", failed=failed),), at=NOON)
        await self.store.write(lambda tx: tx.messages.append(SessionId(self.session_id), [message]))

    async def queue_reports(self) -> str:
        """Queue and return the reports to the idle session; empty if there are none."""
        items = await self.store.write(lambda tx: queue_reports_if_idle(tx, SessionId(self.session_id)))
        return "\n".join(read_message(item.payload).text for item in items)

    def call(self, call_id: str = "call-1", *, wakes: bool = True) -> Call:
        plain = call_from(self.folder, session_id=self.session_id, environment=PATH)
        context = SessionContext(session_id=self.session_id, async_delivery=wakes)
        return msgspec.structs.replace(plain, id=call_id, context=context)

    async def start(self, command: str, **more: object) -> BackgroundProcess:
        """Start a command as a model does, and return its process."""
        arguments = msgspec.convert({"command": command, "background": True, **more}, TerminalArguments)
        answer = await self.terminal.run(arguments, self.call())
        (found,) = [one for one in await self.listed() if one.id in answer.text]
        return found

    async def use(self, action: str, process: BackgroundProcess | None = None, **more: object) -> str:
        values = {"action": action, "id": process.id if process else "", **more}
        call_id = str(more.pop("call", "call-1"))
        values.pop("call", None)
        return (await self.process.run(msgspec.convert(values, ProcessArguments), self.call(call_id))).text

    async def listed(self) -> list[BackgroundProcess]:
        return await self.store.read(lambda tx: list_processes(tx, SessionId(self.session_id)))

    async def until_reported(self, count: int = 1) -> list[str]:
        await until(lambda: len(self.reports) >= count)
        return [text for _, text in self.reports]

    async def until_ended(self, process: BackgroundProcess) -> BackgroundProcess:
        async def ended() -> BackgroundProcess | None:
            (found,) = [one for one in await self.listed() if one.id == process.id]
            return None if found.is_alive else found

        return await until(ended)


def dead_worker() -> WorkerId:
    """Return a worker of this machine whose process is gone."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    machine, _, name = new_worker_id().rpartition(":")
    return WorkerId(f"{machine.rpartition(':')[0]}:{gone.pid}:{name}")


async def start_sleeping_process(background: BackgroundWork, session_id: SessionId) -> BackgroundProcess:
    """Start a process of a session that sleeps for ten minutes."""
    request = ProcessRequest(command="sleep 600", argv=("sleep", "600"), folder="/", environment=PATH)
    call = msgspec.structs.replace(call_from(Path("/"), environment=PATH), session_id=session_id)
    return await background.start(request, call)


def process_on_another_machine(session_id: SessionId) -> BackgroundProcess:
    """Return a process of another machine, which no supervisor here handles."""
    return BackgroundProcess(
        id="pelsewhere",
        session_id=session_id,
        command="make",
        folder="/",
        files_folder="/",
        machine="another",
        host="another",
        watcher=WorkerId("another"),
        begun_at=NOON,
        context=SessionContext(),
        state="running",
        pid=42,
    )


@asynccontextmanager
async def open_supervised_session(store: Store, folder: Path) -> AsyncIterator[SupervisedSession]:
    """Watch the processes of a store's only session while the block runs; they keep running after it."""
    opened = SupervisedSession(store, folder, await store.write(_session))
    async with asyncio.TaskGroup() as jobs:
        serving = jobs.create_task(opened.supervisor.serve())
        try:
            yield opened
        finally:
            serving.cancel()


def _session(tx: Transaction) -> SessionId:
    found = tx.sessions.find(SessionFilter(source="test", limit=1))
    return (found[0] if found else tx.sessions.create(NewSession(source="test"))).id
