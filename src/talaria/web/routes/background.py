"""Routes of what runs in the background: processes with their output, delegated tasks, and the agent's browsers."""

from collections.abc import AsyncIterator
from datetime import datetime
from functools import cache
from typing import Annotated

import msgspec
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
from talaria.contracts.browser import BrowserInput, LiveView, SessionBrowsers, ViewFrame
from talaria.contracts.delegation import ChildState
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId
from talaria.http.errors import make_conflict, make_not_found
from talaria.http.routing import Reply, Route, format_sse, make_event_reply, make_json_reply
from talaria.runtime.delegation.task_store import Delegation, ask_to_stop, list_delegations
from talaria.web.front_door import AGENT_OWNER, USER, WebCaller, WebRequest
from talaria.web.session_views import require_session
from talaria.web.wire import Done

_TAG = "web"
_MOST_INPUTS = 100
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
    """The position after which output is read; -1 for its current end."""

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
            Route(method="GET", path="/web/processes/{process_id}/output", handler=self._show_output,
                  summary="Read the output of a background process", scope=USER, asks=OutputQuery,
                  reply_type=OutputPage, tag=_TAG),
            Route(method="POST", path="/web/processes/{process_id}/stop", handler=self._stop_process,
                  summary="Stop a background process", scope=USER, reply_type=Done, tag=_TAG),
            Route(method="POST", path="/web/sessions/{session_id}/tasks/{handle}/stop", handler=self._stop_task,
                  summary="Stop a delegated task", scope=USER, reply_type=Done, tag=_TAG),
        )  # fmt: skip

    async def _list(self, request: WebRequest) -> Reply:
        return make_json_reply(await self._store.read(lambda tx: _read_background(tx, request.caller)))

    async def _show_output(self, request: WebRequest) -> Reply:
        name, caller, after = request.parts["process_id"], request.caller, request.parse_query(OutputQuery).after
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


class AgentBrowserView(Struct, frozen=True, kw_only=True):
    """The browser of a conversation; ``used_at`` is in seconds since the epoch."""

    session_id: str
    title: str
    url: str
    running: bool
    with_person: bool
    used_at: float


class ControlRequest(Struct, frozen=True):
    """Control over a browser: the person's, or else the agent's."""

    person: bool


class InputRequest(Struct, frozen=True):
    """Inputs of the person, in order."""

    inputs: Annotated[list[BrowserInput], Meta(max_length=_MOST_INPUTS)]


class _FrameStream:
    """Frames of a view as server-sent events; implements `ReplyStream`."""

    def __init__(self, view: LiveView, views: dict[SessionId, LiveView], session_id: SessionId) -> None:
        self._view = view
        self._views = views
        self._session_id = session_id

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for frame in self._view.frames():
            yield format_sse(msgspec.json.encode(frame))

    @property
    def is_whole(self) -> bool:
        """Return whether it ended by itself; the page opens another one."""
        return True

    async def close(self) -> None:
        """End the view."""
        if self._views.get(self._session_id) is self._view:
            del self._views[self._session_id]
        await self._view.close()


class AgentBrowserRoutes:
    """Browsers of all conversations, for the owner of the agent."""

    def __init__(self, store: Store, browsers: SessionBrowsers) -> None:
        self._store = store
        self._browsers = browsers
        self._views: dict[SessionId, LiveView] = {}

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/agent-browsers", handler=self._list, summary="List the agent's browsers",
                  scope=AGENT_OWNER, reply_type=list[AgentBrowserView], tag=_TAG),
            Route(method="GET", path="/web/agent-browsers/{session_id}/view", handler=self._view,
                  summary="Follow the page in a browser", scope=AGENT_OWNER, events=ViewFrame, tag=_TAG),
            Route(method="POST", path="/web/agent-browsers/{session_id}/control", handler=self._control,
                  summary="Take a browser over, or hand it back", scope=AGENT_OWNER, takes=ControlRequest,
                  reply_type=Done, tag=_TAG),
            Route(method="POST", path="/web/agent-browsers/{session_id}/input", handler=self._send_input,
                  summary="Send mouse and keyboard input", scope=AGENT_OWNER, takes=InputRequest, reply_type=Done,
                  tag=_TAG),
        )  # fmt: skip

    async def _list(self, request: WebRequest) -> Reply:
        found = self._browsers.list()
        sessions = await self._store.read(lambda tx: {one.session_id: tx.sessions.get(one.session_id) for one in found})
        return make_json_reply(
            [
                AgentBrowserView(
                    session_id=one.session_id,
                    title=session.title,
                    url=one.url,
                    running=one.running or one.attached,
                    with_person=one.with_person,
                    used_at=one.used_at,
                )
                for one in found
                if (session := sessions[one.session_id]) is not None
            ]
        )

    async def _view(self, request: WebRequest) -> Reply:
        session_id = SessionId(request.parts["session_id"])
        view = await self._browsers.open_view(session_id)
        self._views[session_id] = view
        return make_event_reply(_FrameStream(view, self._views, session_id))

    async def _control(self, request: WebRequest) -> Reply:
        session_id = SessionId(request.parts["session_id"])
        if request.read(ControlRequest).person:
            self._browsers.take_over(session_id)
        else:
            self._browsers.hand_back(session_id)
        return make_json_reply(Done())

    async def _send_input(self, request: WebRequest) -> Reply:
        browser_input = request.read(InputRequest)
        view = self._views.get(SessionId(request.parts["session_id"]))
        if view is None:
            raise NotFound("Open the view of this browser first.")
        await view.send(browser_input.inputs)
        return make_json_reply(Done())
