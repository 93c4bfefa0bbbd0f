"""Routes of the background page: processes with their output, and delegated tasks; both can be stopped."""

from datetime import datetime
from functools import cache
from typing import Annotated

from msgspec import Meta, Struct

from talaria.contracts.background_processes import (
    BackgroundProcess,
    change_process,
    describe_state,
    find_process,
    last_line,
    list_processes,
    output_file,
)
from talaria.contracts.delegation import ChildState
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.ids import SessionId
from talaria.http.errors import make_conflict, make_not_found
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.runtime.delegation.task_store import Delegation, ask_to_stop, list_delegations
from talaria.web.front_door import USER, WebCaller, WebRequest
from talaria.web.session_views import require_session
from talaria.web.wire import Done

_TAG = "web"
_MOST_BYTES = 65_536
_MOST_ENDED = 30


class ProcessView(Struct, frozen=True, kw_only=True):
    """A background process; ``label`` describes its state, ``stopping`` that its end was requested."""

    id: str
    session_id: str
    title: str
    command: str
    folder: str
    state: str
    label: str
    stopping: bool
    pid: int
    host: str
    begun_at: datetime
    ended_at: datetime | None
    last_line: str


class ChildTaskView(Struct, frozen=True, kw_only=True):
    """A delegated task; ``delegations`` are those of its own session."""

    goal: str
    state: ChildState
    text: str
    session_id: str
    delegations: list["DelegationView"]


class DelegationView(Struct, frozen=True, kw_only=True):
    """The tasks of one call; those without a ``handle`` end with the turn that waits for them."""

    session_id: str
    title: str
    handle: str
    began: datetime
    stopped: bool
    children: list[ChildTaskView]


class BackgroundView(Struct, frozen=True):
    """Processes and delegated tasks, running ones first."""

    processes: list[ProcessView]
    delegations: list[DelegationView]


class OutputQuery(Struct, frozen=True):
    """The position after which output is wanted; -1 for the end of what there is."""

    after: Annotated[int, Meta(ge=-1, le=2**53)] = -1


class OutputPage(Struct, frozen=True):
    """A part of the output of a process, and the position at its end."""

    text: str
    start: int
    end: int


class BackgroundRoutes:
    """Background work of the conversations that a person may see."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/background", handler=self._list, summary="List background processes and "
                  "delegated tasks", scope=USER, reply_type=BackgroundView, tag=_TAG),
            Route(method="GET", path="/web/processes/{process_id}/output", handler=self._output,
                  summary="Read the output of a background process", scope=USER, asks=OutputQuery,
                  reply_type=OutputPage, tag=_TAG),
            Route(method="POST", path="/web/processes/{process_id}/stop", handler=self._stop_process,
                  summary="Stop a background process", scope=USER, reply_type=Done, tag=_TAG),
            Route(method="POST", path="/web/sessions/{session_id}/tasks/{handle}/stop", handler=self._stop_task,
                  summary="Stop a delegated task", scope=USER, reply_type=Done, tag=_TAG),
        )  # fmt: skip

    async def _list(self, request: WebRequest) -> Reply:
        return make_json_reply(await self._store.read(lambda tx: _read_background(tx, request.caller)))

    async def _output(self, request: WebRequest) -> Reply:
        name, caller, after = request.parts["process_id"], request.caller, request.asked(OutputQuery).after
        process = await self._store.read(lambda tx: _require_process(tx, name, caller))
        return make_json_reply(_read_output(process, after))

    async def _stop_process(self, request: WebRequest) -> Reply:
        name, caller = request.parts["process_id"], request.caller

        def stop(tx: Transaction) -> None:
            process = _require_process(tx, name, caller)
            if not process.is_alive:
                raise make_conflict("This process has already ended.", code="ended")
            change_process(tx, process, ended_by="person")

        await self._store.write(stop)
        return make_json_reply(Done())

    async def _stop_task(self, request: WebRequest) -> Reply:
        name, handle, caller = request.parts["session_id"], request.parts["handle"], request.caller
        await self._store.write(lambda tx: ask_to_stop(tx, require_session(tx, name, caller).id, handle))
        return make_json_reply(Done())


def _read_background(tx: Transaction, caller: WebCaller) -> BackgroundView:
    @cache
    def find_session(session_id: SessionId) -> Session | None:
        session = tx.sessions.get(session_id)
        return session if session is not None and caller.may_see(session) else None

    processes = [
        _to_process_view(process, session)
        for process in reversed(list_processes(tx))
        if (session := find_session(process.session_id)) is not None
    ]
    running = [one for one in processes if one.ended_at is None]
    ended = [one for one in processes if one.ended_at is not None][:_MOST_ENDED]
    by_session: dict[SessionId, list[Delegation]] = {}
    for one in list_delegations(tx):
        by_session.setdefault(one.session_id, []).append(one)
    children = {child.session_id for found in by_session.values() for one in found for child in one.children}
    roots = [one for found in by_session.values() for one in found if one.session_id not in children]
    delegations = [
        _to_delegation_view(one, session, by_session)
        for one in sorted(roots, key=lambda one: one.began, reverse=True)
        if (session := find_session(one.session_id)) is not None
    ]
    return BackgroundView([*running, *ended], delegations)


def _to_process_view(process: BackgroundProcess, session: Session) -> ProcessView:
    return ProcessView(
        id=process.id,
        session_id=session.id,
        title=session.title,
        command=process.command,
        folder=process.folder,
        state=process.state,
        label=describe_state(process),
        stopping=process.is_alive and bool(process.ended_by),
        pid=process.pid,
        host=process.host,
        begun_at=process.begun_at,
        ended_at=process.ended_at,
        last_line=last_line(process),
    )


def _to_delegation_view(
    delegation: Delegation, session: Session, by_session: dict[SessionId, list[Delegation]]
) -> DelegationView:
    return DelegationView(
        session_id=session.id,
        title=session.title,
        handle=delegation.handle,
        began=delegation.began,
        stopped=delegation.stopped,
        children=[
            ChildTaskView(
                goal=child.task.goal,
                state=child.state,
                text=child.text[:2000],
                session_id=child.session_id or "",
                delegations=[
                    _to_delegation_view(one, session, by_session)
                    for one in by_session.get(child.session_id or SessionId(""), [])
                ],
            )
            for child in delegation.children
        ],
    )


def _require_process(tx: Transaction, name: str, caller: WebCaller) -> BackgroundProcess:
    process = find_process(tx, name)
    session = tx.sessions.get(process.session_id)
    if session is None or not caller.may_see(session):
        raise make_not_found(f"There is no background process `{name[:32]}`.", code="process_not_found")
    return process


def _read_output(process: BackgroundProcess, after: int) -> OutputPage:
    try:
        with output_file(process).open("rb") as file:
            size = file.seek(0, 2)
            start = max(0, size - _MOST_BYTES)
            if 0 <= after <= size:
                start = max(start, after)
            file.seek(start)
            data = file.read(_MOST_BYTES)
    except OSError:
        return OutputPage("", 0, 0)
    return OutputPage(data.decode(errors="replace").replace("\r\n", "\n"), start, start + len(data))
