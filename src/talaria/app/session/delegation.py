"""Delegation of tasks: validation, child session requests and budgets, foreground and background execution."""

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from talaria.app.application import TalariaApplication
from talaria.app.session.delegation_proxy import LazyDelegator
from talaria.contracts.delegation import ChildTask, DelegatedTask, DelegationResult
from talaria.contracts.store import Transaction
from talaria.contracts.stores.turns import Cap
from talaria.contracts.tool import Call
from talaria.core.errors import Refused, TalariaError, ToolFailed
from talaria.core.events import StoreBlocked
from talaria.core.ids import SessionId, new_id
from talaria.core.session_context import SessionContext
from talaria.runtime.delegation.background import Background
from talaria.runtime.delegation.task_runner import TaskRunner, find_schema_problem
from talaria.runtime.delegation.task_store import (
    Delegation,
    call_key,
    list_background,
    queue_in_background,
    read_delegation,
    save_delegation,
    start_in_background,
)
from talaria.runtime.open_session import DelegatedScope, OpenRequest, ResumeSession, SurfaceInfo
from talaria.runtime.questions import DelegatedQuestions
from talaria.runtime.turns import TurnOptions
from talaria.sessions.branches import session_account
from talaria.settings.model import Settings
from talaria.tools.delegate.tool import format_results
from talaria.tools.send.tool import Clarify, SendFile, SendMessage

_MICRODOLLARS = 1_000_000
_FORBIDDEN_TOOLS = {Clarify.name}
_OPT_IN_TOOLS = {SendMessage.name, SendFile.name}
_SURFACE = (
    "You work on one task for another agent, which reads only your last message. Nobody can answer questions: decide"
    " open points yourself, and say what you decided."
)
_NO_BACKGROUND = "Background tasks can't report here. Ask in the conversation itself."
_FOREGROUND_NOTE = "(Background tasks can't report here, so this ran in the foreground.)"


async def delegate(
    parent: LazyDelegator, tasks: Sequence[DelegatedTask], call: Call, *, background: bool
) -> DelegationResult:
    """Run tasks for a session, once per call; in the background, return a handle instead of results."""
    application, key = parent.application, call_key(call, tasks)
    known = await application.store.read(lambda tx: read_delegation(tx, key))
    if known is None:
        known = await _begin(parent, tasks, call, key, background=background)
    if known.handle:
        return DelegationResult(handle=known.handle)
    runner = TaskRunner(
        application,
        parent.jobs,
        partial(_make_request, application, parent=parent),
        at_once=application.settings.delegation.at_once,
        end=partial(_end_child, application),
        progress=call.step,
        on_store_wait=partial(parent.publish, StoreBlocked()) if parent.request.turns.waits_for_store else None,
    )
    children = await runner.run_children(known)
    return DelegationResult(children, note=_FOREGROUND_NOTE if background else "")


async def run_in_background(parent: LazyDelegator, text: str) -> str:
    """Queue a person's request as a background task, and return its handle.

    Raises `Refused` if reports cannot be delivered later here, or if too many tasks run already.
    """
    store, most = parent.application.store, parent.application.settings.delegation.background
    if not parent.application.background_role.present or not parent.request.surface.context.async_delivery:
        raise Refused(_NO_BACKGROUND)
    child = ChildTask(DelegatedTask(goal=text, tools=_list_default_tools(parent)))
    delegation = structs.replace(
        _make_delegation(parent, (child,), parent.request.surface.context, new_id()), said=text
    )
    return await store.write(lambda tx: _queue_in_background(tx, delegation, most))


def _queue_in_background(tx: Transaction, delegation: Delegation, most: int) -> str:
    active = list_background(tx, delegation.session_id)
    if len(active) >= most:
        raise Refused(f"{len(active)} background tasks are already running here. `/background` lists them.")
    return queue_in_background(tx, delegation)


async def _begin(
    parent: LazyDelegator, tasks: Sequence[DelegatedTask], call: Call, key: str, *, background: bool
) -> Delegation:
    store, settings = parent.application.store, parent.application.settings
    children = tuple([ChildTask(await _check_task(parent, task)) for task in tasks])
    if len(tasks) > settings.delegation.tasks:
        raise ToolFailed(f"At most {settings.delegation.tasks} tasks can be delegated at once, not {len(tasks)}.")
    delegation = _make_delegation(parent, children, call.context, key)
    can_wake = parent.application.background_role.present and call.context.async_delivery
    if not background or not can_wake:
        return await store.write(lambda tx: save_delegation(tx, delegation))
    return await store.write(lambda tx: _begin_in_background(tx, delegation, settings.delegation.background))


def _begin_in_background(tx: Transaction, delegation: Delegation, most: int) -> Delegation:
    active = list_background(tx, delegation.session_id)
    if len(active) >= most and read_delegation(tx, delegation.key) is None:
        names = ", ".join(one.handle for one in active)
        raise ToolFailed(f"Too many background tasks are running: {names}. Wait until one reports.")
    return start_in_background(tx, delegation)


async def _check_task(parent: LazyDelegator, task: DelegatedTask) -> DelegatedTask:
    """Return a task with the tools it may use, or raise `ToolFailed` if it is invalid."""
    if task.schema is not None and (trouble := find_schema_problem(task.schema)):
        raise ToolFailed(f"The output_schema can't be used: {trouble}.")
    if missing := [name for name in task.tools if name not in parent.tools]:
        raise ToolFailed(f"You have no tool {missing[0]} to pass on. Available: {', '.join(parent.tools)}.")
    if task.model:
        if parent.viewer.owner:
            raise ToolFailed("You can't choose a task's model here. Leave it out.")
        try:
            chosen = await parent.application.models.find(task.model)
        except TalariaError as error:
            raise ToolFailed(f"That model can't be used: {error}") from error
        task = structs.replace(task, model=f"{chosen.provider}:{chosen.model}")
    return structs.replace(
        task, tools=tuple(name for name in task.tools if name not in _FORBIDDEN_TOOLS) or _list_default_tools(parent)
    )


def _list_default_tools(parent: LazyDelegator) -> tuple[str, ...]:
    return tuple(name for name in parent.tools if name not in _FORBIDDEN_TOOLS | _OPT_IN_TOOLS)


def _make_delegation(
    parent: LazyDelegator, children: tuple[ChildTask, ...], context: SessionContext, key: str
) -> Delegation:
    """Return a delegation with everything needed to run its tasks in any process."""
    request, delegated_scope, session_id = parent.request, parent.request.delegated_scope, SessionId(context.session_id)
    workspace_entry = parent.application.workspaces.find(session_id)
    return Delegation(
        key=key,
        session_id=session_id,
        children=children,
        surface=request.surface.source,
        folder=str(request.surface.folder),
        began=datetime.now(UTC),
        context=context,
        workspace=workspace_entry.workspace.snapshot() if workspace_entry else "",
        owner=parent.viewer.owner,
        audience=parent.viewer.audience,
        model=parent.application.settings.delegation.model or parent.model,
        tools=parent.tools,
        ancestors=(session_id, *(delegated_scope.ancestors if delegated_scope else ())),
        worker=parent.application.background_role.worker,
        # Work of a chat session can run on any host with a gateway, work of a terminal only on the host of its folder.
        host="" if context.platform else os.uname().nodename,
    )


def _make_request(
    application: TalariaApplication,
    one: Delegation,
    number: int,
    session_id: SessionId,
    *,
    parent: LazyDelegator | None = None,
) -> OpenRequest:
    """Return the request to open a child session, which has no more rights than its parent."""
    settings, task = application.settings, one.children[number].task
    delegated_scope = DelegatedScope(
        tools=task.tools,
        ancestors=one.ancestors,
        account=one.account,
        questions=DelegatedQuestions(parent.questions, f"child {number + 1}") if parent else None,
        seconds=settings.delegation.max_seconds or None,
    )
    return OpenRequest(
        surface=SurfaceInfo(
            source=one.surface,
            folder=Path(one.folder),
            instructions=_SURFACE,
            context=structs.replace(one.context, session_key="", message_id="", turn_id="", async_delivery=False),
            attended=False,
        ),
        session=ResumeSession(session_id),
        model=task.model or one.model,
        titled=False,
        owner=one.owner,
        audience=one.audience,
        turns=TurnOptions(waits_for_store=parent is not None and parent.request.turns.waits_for_store),
        caps=_build_caps(settings, one, session_id),
        delegated_scope=delegated_scope,
    )


def _build_caps(settings: Settings, one: Delegation, session_id: SessionId) -> tuple[Cap, ...]:
    """Return the caps of a child: its own, that shared with its siblings, and those of its ancestors."""
    dollars = (
        (f"delegate:{session_id}", settings.delegation.max_dollars),
        (one.account, settings.budget.turn),
        *((session_account(ancestor), settings.budget.session) for ancestor in one.ancestors),
    )
    return tuple(Cap(account, round(most * _MICRODOLLARS)) for account, most in dollars if most)


async def supervise_background(
    application: TalariaApplication, jobs: asyncio.TaskGroup, here: Callable[[], SessionId | None] | None
) -> None:
    """End leftover browsers, then run delegations until cancelled; with ``here``, only those of that session."""
    await application.browsers.end_orphans(application.store)
    lease = timedelta(seconds=application.settings.gateway.lease_seconds)
    worker, carrier = application.background_role.worker, _ApplicationCarrier(application, jobs)
    background = Background(application.store, worker, jobs, carrier, here=here, lease=lease)
    application.background_role.end = background.end
    await background.serve()


class _ApplicationCarrier(Struct, frozen=True):
    """Implementation of `BackgroundHost`."""

    application: TalariaApplication
    jobs: asyncio.TaskGroup

    async def carry(self, one: Delegation) -> tuple[ChildTask, ...]:
        application, at_once = self.application, self.application.settings.delegation.at_once
        runner = TaskRunner(application, self.jobs, partial(_make_request, application), at_once=at_once, end=self.end)
        return await runner.run_children(one)

    def format_report(self, one: Delegation, children: tuple[ChildTask, ...]) -> str:
        results = format_results(children)
        if one.said:
            return f"The background work that the user asked for is done ({one.said}). Report it:\n\n{results}"
        return f"{one.handle} is done.\n\n{results}"

    def end(self, session_id: SessionId) -> object:
        return _end_child(self.application, session_id)


def _end_child(application: TalariaApplication, session_id: SessionId) -> bool:
    """End the processes and the workspace of a child session; it has no other background work."""
    application.processes.end_session(session_id)
    return application.workspaces.end(session_id)
