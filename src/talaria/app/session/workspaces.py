"""Workspaces, background processes and shells of sessions, which outlive the agent, and the people they act for."""

import asyncio
import logging
from asyncio import Event, Task, TaskGroup, wait
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from talaria.contracts.background_processes import BackgroundProcess, EndedBy, ProcessRequest, list_processes
from talaria.contracts.sandbox import ShellResult
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session, Viewer
from talaria.contracts.tool import Call, Workspace
from talaria.core.errors import Refused, StoreError
from talaria.core.ids import SessionId, new_worker_id
from talaria.core.messages import OWNER, UNKNOWN, is_in_chat, is_same_sender
from talaria.core.session_context import SessionContext, current_context
from talaria.runtime.completions import read_origin, record_pending_answers, report
from talaria.runtime.open_session import OpenRequest
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.output import FullOutputs, join_cut, make_readable
from talaria.tools.terminal.shell import Child, Processes, build_shell_argv
from talaria.tools.workspace import LocalWorkspace, find_person_folder

if TYPE_CHECKING:  # imported with the first process or MCP server
    from talaria.tools.mcp.session_servers import SessionServers
    from talaria.tools.process.supervisor import Supervisor

_MAX_SHELL_OUTPUT = 8_000
_SHELL_GRACE = timedelta(milliseconds=80)
SOURCE = "process"
_OWNER_ONLY = 0o700
log = logging.getLogger(__name__)
SERVERS_IDLE = timedelta(hours=24)
SERVERS_KEPT = 32


class LocalShell:
    """Implementation of `UserShell`; `close` kills what still runs."""

    def __init__(self) -> None:
        self._processes = Processes()
        self._running: dict[Child, Workspace] = {}

    async def run(self, line: str, arguments: Sequence[str], workspace: Workspace, *, seconds: float) -> ShellResult:
        """Run a line with ``arguments`` as its positional parameters; long output is cut in the middle.

        The exit code is ``None`` after ``seconds``. Raises `Refused` if the line could not be started.
        """
        output = _HeadAndTail(_MAX_SHELL_OUTPUT)
        try:
            child = await self._processes.start(
                [*build_shell_argv(line), *arguments],
                folder=workspace.folder,
                environment=workspace.environment,
                on_output=output.add,
            )
        except (OSError, ValueError) as error:
            raise Refused(f"`{line}` couldn't be started in {workspace.folder}: {error}.") from error
        self._running[child] = workspace
        try:
            code = await _wait_for_exit(child, seconds)
        except asyncio.CancelledError:
            await child.end(_SHELL_GRACE)
            raise
        finally:
            del self._running[child]
            self._processes.finish(child)
        return ShellResult(code, output.text())

    def stop(self, workspace: Workspace) -> bool:
        """Kill the commands running in a workspace; ``False`` if there are none."""
        found = [child for child, running_workspace in self._running.items() if running_workspace is workspace]
        for child in found:
            child.kill()
        return bool(found)

    def close(self) -> None:
        """Kill all running commands."""
        self._processes.close()


def resolve_viewer(request: OpenRequest, session: Session) -> Viewer:
    """Return the person and the audience that a session acts for.

    The audience is that of the chat, or else that of the session, so that earlier readers still count. In a shared
    chat, the session acts for the chat itself, regardless of who moved it there.
    """
    audience = request.audience or session.audience
    shared = bool(audience) and request.owner == audience
    return Viewer(audience if shared else session.owner, audience)


def make_working_folder(profile: Profile, request: OpenRequest, session: Session) -> Path:
    """Return the working folder of a session; guests get their own, outside the profile's folders."""
    if not session.owner:
        return request.surface.folder
    folder = find_person_folder(resolve_viewer(request, session), profile.guests_folder)
    folder.mkdir(_OWNER_ONLY, parents=True, exist_ok=True)
    return folder


def is_same_person(settings: Callable[[], Settings], one: str, other: str) -> bool:
    """Return whether two senders are one person: the owner, a person of `people`, or the same id."""
    known = settings()
    return is_same_sender(_resolve_person(known, one), _resolve_person(known, other))


def resolve_turn_person(settings: Settings) -> str:
    """Return the person whose turn is running, as rules name them: ``owner``, a name of `people`, or an id."""
    context = current_context()
    sender = context.sender if context is not None else UNKNOWN
    person = _resolve_person(settings, sender)
    name = person.removeprefix("person:")
    return person if name == OWNER else name


def is_owners_turn(settings: Settings, *, shared: bool) -> bool:
    """Return whether the owner's turn is running; in a chat, only if the owner wrote the message."""
    context = current_context()
    sender = context.sender if context is not None else UNKNOWN
    return _resolve_person(settings, sender) == OWNER or not (shared or is_in_chat(sender))


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

    def supervise_within(self, jobs: TaskGroup, stack: AsyncExitStack, *, always: bool = False) -> None:
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

            self._supervisor = Supervisor(self._store, self._worker, self._outputs.find_folder, self._reporter)
        return self._supervisor

    def _release(self) -> None:
        self._user_count -= 1
        if self._user_count == 0 and self._serving is not None:
            self._serving.cancel()
            self._serving, self._ending = None, self._serving


def make_served_folder(settings: Settings, profile: Profile) -> Path:
    """Return the working folder for chats and the API, created if missing.

    It is outside the profile's own folder, which the agent may not touch without approval.
    """
    own = profile.folder.parent.parent / "workspaces" / profile.name
    folder = Path(settings.gateway.folder).expanduser() if settings.gateway.folder else own
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class OpenWorkspace:
    """Workspace of one session; `keep` lets it outlive its current users."""

    def __init__(self, workspace: LocalWorkspace) -> None:
        self.workspace = workspace
        self.users = 0
        self.kept = False
        self._processes: Processes | None = None
        self._servers: SessionServers | None = None

    def open_processes(self) -> Processes:
        """Return the processes of the session's commands."""
        self._processes = self._processes or Processes()
        return self._processes

    def keep(self) -> None:
        """Keep the workspace when its last user leaves, until it is entered again or ended."""
        self.kept = True

    @property
    def servers(self) -> "SessionServers":
        """The MCP servers of the session."""
        if self._servers is None:
            from talaria.tools.mcp.session_servers import SessionServers  # noqa: PLC0415 (loaded for MCP servers)

            self._servers = SessionServers()
        return self._servers

    @property
    def has_running_servers(self) -> bool:
        """Return whether MCP servers of the session are running."""
        return self._servers is not None and self._servers.is_running

    @property
    def _has_running_processes(self) -> bool:
        return self._processes is not None and bool(self._processes.running)

    def close_processes(self) -> None:
        """Kill the processes of the session."""
        if self._processes is not None:
            self._processes.close()

    def close_servers(self) -> None:
        """End the MCP servers of the session."""
        if self._servers is not None:
            self._servers.close()

    @property
    def has_state(self) -> bool:
        """Return whether there is state here that is not in the store."""
        return self.has_running_servers or self._has_running_processes or not self.workspace.is_untouched


class WorkspaceRegistry:
    """Open workspaces of all sessions in this process; `close` ends all of them.

    MCP servers of a session that is not open end after ``servers_idle``. If more than ``servers_kept`` such sessions
    have servers, those left longest ago lose theirs first.
    """

    def __init__(self, *, servers_idle: timedelta = SERVERS_IDLE, servers_kept: int = SERVERS_KEPT) -> None:
        self._entries: dict[SessionId, OpenWorkspace] = {}
        self._idle_timers: dict[
            SessionId, asyncio.TimerHandle
        ] = {}  # sessions with servers that are not open, oldest first
        self._servers_idle = servers_idle.total_seconds()
        self._servers_kept = servers_kept

    def enter(self, session_id: SessionId, workspace: LocalWorkspace, context: SessionContext) -> OpenWorkspace:
        """Return the open workspace of a session, or a new one with this ``workspace``.

        Its commands get the ``context``, which describes the current chat, in their environment. Each call needs a
        `leave`.
        """
        entry = self._entries.get(session_id)
        if entry is None:
            entry = self._entries[session_id] = OpenWorkspace(workspace)
        entry.workspace.set_context(context)
        entry.users += 1
        entry.kept = False
        self._cancel_timer(session_id)
        return entry

    def leave(self, session_id: SessionId) -> None:
        """Leave a workspace; the last user ends it, unless it is kept and has state."""
        entry = self._entries.get(session_id)
        if entry is None:
            return
        entry.users -= 1
        if entry.users > 0:
            return
        if not (entry.kept and entry.has_state):
            self.end(session_id)
        elif entry.has_running_servers:
            self._retain_servers(session_id)

    def find(self, session_id: SessionId) -> OpenWorkspace | None:
        """Return the open workspace of a session, if there is one."""
        return self._entries.get(session_id)

    def end(self, session_id: SessionId) -> bool:
        """Kill the processes and servers of a workspace and remove it; ``False`` if there is none."""
        self._cancel_timer(session_id)
        entry = self._entries.pop(session_id, None)
        if entry is None:
            return False
        entry.close_servers()
        entry.close_processes()
        return True

    def close(self) -> None:
        """End all workspaces."""
        for session_id in list(self._entries):
            self.end(session_id)

    def _retain_servers(self, session_id: SessionId) -> None:
        """Keep the servers of a session that is not open, for ``servers_idle`` at most."""
        timer = asyncio.get_running_loop().call_later(self._servers_idle, self._end_servers, session_id)
        self._idle_timers[session_id] = timer
        for oldest in list(self._idle_timers)[: max(len(self._idle_timers) - self._servers_kept, 0)]:
            self._end_servers(oldest)

    def _end_servers(self, session_id: SessionId) -> None:
        """End the servers of a session, and its workspace too if it has no other state."""
        self._cancel_timer(session_id)
        entry = self._entries.get(session_id)
        if entry is None:
            return
        entry.close_servers()
        if not entry.has_state:
            self.end(session_id)

    def _cancel_timer(self, session_id: SessionId) -> None:
        timer = self._idle_timers.pop(session_id, None)
        if timer is not None:
            timer.cancel()


async def _wait_for_exit(child: Child, seconds: float) -> int | None:
    try:
        async with asyncio.timeout(seconds):
            code = await child.wait()
    except TimeoutError:
        await child.end(_SHELL_GRACE)
        code = None
    await child.wait_for_output_end()
    return code


class _HeadAndTail:
    """The beginning and the end of an output of any length."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        space = self._half - len(self._head)
        self._head += piece[:space]
        self._tail = (self._tail + piece[space:])[-self._half :]

    def text(self) -> str:
        missing = self._size - len(self._head) - len(self._tail)
        if not missing:
            return make_readable(bytes(self._head + self._tail))
        return join_cut(make_readable(bytes(self._head)), make_readable(bytes(self._tail)), missing=missing)


def _resolve_person(settings: Settings, sender: str) -> str:
    if sender in (OWNER, UNKNOWN):
        return sender
    from talaria.access.policy import People  # noqa: PLC0415 (loaded for a sender of a chat network)

    platform, _, user_id = sender.partition(":")
    if not user_id:
        return UNKNOWN
    people = People(settings.people)
    if people.names(platform, {user_id}) & set(settings.access.owners):
        return OWNER
    return f"person:{people.person(platform, (user_id,))}"


class _Reporter(Struct, frozen=True):
    """Implementation of `Reporter`."""

    mask: Callable[[str], str]

    def report(self, tx: Transaction, process: BackgroundProcess, name: str, text: str) -> None:
        """Store a report for the session of a process, with secrets masked."""
        report(tx, process.session_id, SOURCE, name, self.mask(text), origin=read_origin(process.context))

    def record_pending_answers(
        self, tx: Transaction, process: BackgroundProcess, names: Sequence[str], call_id: str
    ) -> None:
        """Record that a tool call is about to return these reports."""
        record_pending_answers(tx, process.session_id, SOURCE, names, call_id)
