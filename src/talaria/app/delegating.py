"""Tasks that are handed on: judged, opened with less than the conversation that asks has, waited for or not."""

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from talaria.agent.conforming import trouble_with
from talaria.app.delegates import Delegating
from talaria.app.house import House
from talaria.contracts.delegation import Child, Delegated, Task
from talaria.contracts.store import Transaction
from talaria.contracts.stores.ledger import Cap
from talaria.contracts.tool import Call
from talaria.core.errors import Refused, TalariaError, ToolFailed
from talaria.core.ids import SessionId, new_id
from talaria.core.session_context import SessionContext
from talaria.sessions.background import Background
from talaria.sessions.branching import session_account
from talaria.sessions.chat import ChatWish
from talaria.sessions.delegates import Delegates
from talaria.sessions.delegation import (
    DELEGATIONS,
    Delegation,
    begin,
    begin_beside,
    call_key,
    in_background,
    put_beside,
    read_delegation,
)
from talaria.sessions.mandate import Mandate
from talaria.sessions.questions import PassedOn
from talaria.settings.model import Settings
from talaria.tools.clarify import Clarify
from talaria.tools.delegate.tool import told
from talaria.tools.send.file import SendFile
from talaria.tools.send.message import SendMessage

_MICRODOLLARS = 1_000_000
_NEVER = {Clarify.name}
_IF_NAMED = {SendMessage.name, SendFile.name}
_SURFACE = (
    "You work on one task for another agent, who reads nothing but your last message. Nobody can answer questions:"
    " decide what is left open, and say what you decided."
)
_NOT_LATER = "Nothing can be told later here: say it in the conversation itself."
_AT_ONCE_NOTE = "(Nothing can be told later here: this was waited for instead of going on in the background.)"


async def delegate(parent: Delegating, tasks: Sequence[Task], call: Call, *, background: bool) -> Delegated:
    """Have tasks worked on for a conversation, those of the same call once."""
    house, key = parent.house, call_key(call, tasks)
    known = await house.store.read(lambda tx: read_delegation(tx, key))
    if known is None:
        known = await _begun(parent, tasks, call, key, background=background)
    if known.handle:
        await house.store.hint(DELEGATIONS)
        return Delegated(handle=known.handle)
    delegates = Delegates(
        house,
        parent.jobs,
        partial(_wish_for, house, parent=parent),
        at_once=house.settings.delegation.at_once,
        end=partial(_end, house),
        progress=call.step,
        held_up=parent.wish.held_up,
    )
    children = await delegates.carry_out(known)
    return Delegated(children, note=_AT_ONCE_NOTE if background else "")


async def see_to(parent: Delegating, words: str) -> str:
    """Have words of a person seen to in the background, and return the handle of that."""
    store, most = parent.house.store, parent.house.settings.delegation.background
    if not parent.house.attendance.present or not parent.context.async_delivery:
        raise Refused(_NOT_LATER)
    child = Child(Task(goal=words, tools=_usual(parent)))
    wanted = structs.replace(_ordered(parent, (child,), parent.context, new_id()), said=words)
    handle = await store.write(lambda tx: _put_beside(tx, wanted, most))
    await store.hint(DELEGATIONS)
    return handle


def _put_beside(tx: Transaction, wanted: Delegation, most: int) -> str:
    at_work = in_background(tx, wanted.session_id)
    if len(at_work) >= most:
        raise Refused(f"{len(at_work)} things go on in the background here already; `/background` lists them.")
    return put_beside(tx, wanted)


async def _begun(parent: Delegating, tasks: Sequence[Task], call: Call, key: str, *, background: bool) -> Delegation:
    store, settings = parent.house.store, parent.house.settings
    children = tuple([Child(await _judged(parent, task)) for task in tasks])
    if len(tasks) > settings.delegation.tasks:
        raise ToolFailed(f"At most {settings.delegation.tasks} tasks can be handed on at once; these are {len(tasks)}.")
    wanted = _ordered(parent, children, call.context, key)
    wakeable = parent.house.attendance.present and call.context.async_delivery
    if not background or not wakeable:
        return await store.write(lambda tx: begin(tx, wanted))
    return await store.write(lambda tx: _begin_beside(tx, wanted, settings.delegation.background))


def _begin_beside(tx: Transaction, wanted: Delegation, most: int) -> Delegation:
    at_work = in_background(tx, wanted.session_id)
    if len(at_work) >= most and read_delegation(tx, wanted.key) is None:
        names = ", ".join(one.handle for one in at_work)
        raise ToolFailed(f"Enough goes on in the background already: {names}. Wait until you are told of one of them.")
    return begin_beside(tx, wanted)


async def _judged(parent: Delegating, task: Task) -> Task:
    """Return a task with the tools that it may use, or raise `ToolFailed` with what is wrong with it."""
    if task.schema is not None and (trouble := trouble_with(task.schema)):
        raise ToolFailed(f"The output_schema cannot be used: {trouble}.")
    if missing := [name for name in task.tools if name not in parent.tools]:
        raise ToolFailed(f"You have no tool {missing[0]} to give. There are: {', '.join(parent.tools)}.")
    if task.model:
        if parent.viewer.owner:
            raise ToolFailed("The model of a task cannot be chosen here: leave it out.")
        try:
            chosen = await parent.house.models.find(task.model)
        except TalariaError as error:
            raise ToolFailed(f"That model cannot be used: {error}") from error
        task = structs.replace(task, model=f"{chosen.provider}:{chosen.model}")
    return structs.replace(task, tools=tuple(name for name in task.tools if name not in _NEVER) or _usual(parent))


def _usual(parent: Delegating) -> tuple[str, ...]:
    return tuple(name for name in parent.tools if name not in _NEVER | _IF_NAMED)


def _ordered(parent: Delegating, children: tuple[Child, ...], context: SessionContext, key: str) -> Delegation:
    """Return all that has to be known to work on tasks, wherever that is."""
    wish, mandate, session_id = parent.wish, parent.wish.mandate, SessionId(context.session_id)
    place = parent.house.workplaces.find(session_id)
    return Delegation(
        key=key,
        session_id=session_id,
        children=children,
        surface=wish.source,
        folder=str(wish.folder),
        began=datetime.now(UTC),
        context=context,
        workspace=place.workspace.snapshot() if place else "",
        owner=parent.viewer.owner,
        audience=parent.viewer.audience,
        model=parent.house.settings.delegation.model or parent.model,
        tools=parent.tools,
        ancestors=(session_id, *(mandate.ancestors if mandate else ())),
        worker=parent.house.attendance.worker,
        # A conversation in a chat can be worked on wherever there is a gateway, one at a terminal where its folder is.
        host="" if context.platform else os.uname().nodename,
    )


def _wish_for(
    house: House, one: Delegation, number: int, session_id: SessionId, *, parent: Delegating | None = None
) -> ChatWish:
    """Return how the conversation of a child is opened: with nothing that the one who asked does not have."""
    settings, task = house.settings, one.children[number].task
    mandate = Mandate(
        tools=task.tools,
        ancestors=one.ancestors,
        account=one.account,
        questions=PassedOn(parent.questions, f"child {number + 1}") if parent else None,
        seconds=settings.delegation.max_seconds or None,
    )
    return ChatWish(
        source=one.surface,
        folder=Path(one.folder),
        resume=session_id,
        model=task.model or one.model,
        surface=_SURFACE,
        titled=False,
        attended=False,
        owner=one.owner,
        audience=one.audience,
        context=structs.replace(one.context, session_key="", message_id="", turn_id="", async_delivery=False),
        held_up=parent.wish.held_up if parent else None,
        caps=_caps(settings, one, session_id),
        mandate=mandate,
    )


def _caps(settings: Settings, one: Delegation, session_id: SessionId) -> tuple[Cap, ...]:
    """Return what a child may cost: by itself, with its siblings, and on the accounts of all it works for."""
    dollars = (
        (f"delegate:{session_id}", settings.delegation.max_dollars),
        (one.account, settings.budget.turn),
        *((session_account(ancestor), settings.budget.session) for ancestor in one.ancestors),
    )
    return tuple(Cap(account, round(most * _MICRODOLLARS)) for account, most in dollars if most)


async def tend_background(house: House, jobs: asyncio.TaskGroup, here: Callable[[], SessionId | None] | None) -> None:
    """See to what goes on in the background, until cancelled; with ``here`` only to that of this conversation."""
    lease = timedelta(seconds=house.settings.gateway.lease_seconds)
    worker, carrier = house.attendance.worker, _HouseCarrier(house, jobs)
    background = Background(house.store, worker, jobs, carrier, here=here, lease=lease)
    house.attendance.end = background.end
    await background.serve()


class _HouseCarrier(Struct, frozen=True):
    """Implements `Carrier`."""

    house: House
    jobs: asyncio.TaskGroup

    async def carry(self, one: Delegation) -> tuple[Child, ...]:
        house, at_once = self.house, self.house.settings.delegation.at_once
        delegates = Delegates(house, self.jobs, partial(_wish_for, house), at_once=at_once, end=self.end)
        return await delegates.carry_out(one)

    def tell(self, one: Delegation, children: tuple[Child, ...]) -> str:
        if one.said:
            return f"What the person wanted done in the background is done ({one.said}). Tell them:\n\n{told(children)}"
        return f"{one.handle} is done.\n\n{told(children)}"

    def end(self, session_id: SessionId) -> object:
        return _end(self.house, session_id)


def _end(house: House, session_id: SessionId) -> bool:
    """End what a child has started; in its background there is nothing else."""
    house.processes.end_session(session_id)
    return house.workplaces.end(session_id)
