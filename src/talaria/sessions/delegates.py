"""Have tasks worked on that were handed on: so many at once, each in a conversation of its own, answers in order."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from talaria.agent.conforming import misfit, read_answer
from talaria.contracts.delegation import Child, ChildState, Task
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import NotFound, Refused, StoreError, TalariaError
from talaria.core.events import ToolCalled, ToolProgressed, TurnEvent
from talaria.core.ids import SessionId
from talaria.sessions.chat import ChatWish
from talaria.sessions.company import first_error
from talaria.sessions.delegation import Delegation, begin_child, last_turn, read_delegation, say, settle_child
from talaria.sessions.holding import is_held, lane_of
from talaria.sessions.insisting import insist
from talaria.sessions.seat import ChatOpener, Emit
from talaria.sessions.unattended import work_off_alone

T = TypeVar("T")
_LOOK_AGAIN = 0.5
_MOST_REFUSALS = 3  # that nobody at work explains
_FITTING = "\n\nAnswer with nothing but JSON that fits this schema:\n{}"
_REPAIR = "That answer does not fit: {}. Answer again, with nothing but JSON that fits the schema."
_MISFIT = "The answer does not fit the schema, also when asked again: {}.\n{}"

WishFor = Callable[[Delegation, int, SessionId], ChatWish]
Progress = Callable[[str], None]


class Delegates:
    """Works on tasks. ``wish_for`` says how the conversation of a child is opened, ``end`` ends what it has started.

    Each child is settled in the store when it is done, so that whoever goes on later does not begin with it again. With
    ``held_up`` a store that refuses to be written to is waited for, and that is called when it takes a while.
    """

    def __init__(
        self,
        opener: ChatOpener,
        jobs: asyncio.TaskGroup,
        wish_for: WishFor,
        *,
        at_once: int,
        end: Callable[[SessionId], object],
        progress: Progress = lambda text: None,
        held_up: Callable[[], None] | None = None,
    ) -> None:
        self._opener = opener
        self._jobs = jobs
        self._wish_for = wish_for
        self._slots = asyncio.Semaphore(at_once)
        self._end = end
        self._progress = progress
        self._held_up = held_up

    @property
    def _store(self) -> Store:
        return self._opener.store

    async def carry_out(self, delegation: Delegation) -> tuple[Child, ...]:
        """Return all children in order when none is open any more; cancelling cuts them off, to be gone on with."""
        numbers = [number for number, child in enumerate(delegation.children) if child.state == "open"]
        try:
            async with asyncio.TaskGroup() as group:
                for number in numbers:
                    group.create_task(self._see_to(delegation, number))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors
        known = await self._store.read(lambda tx: read_delegation(tx, delegation.key))
        return known.children if known else delegation.children

    async def _see_to(self, delegation: Delegation, number: int) -> None:
        """Work on one child as soon as it is its turn, and settle it."""
        task, key = delegation.children[number].task, delegation.key
        async with self._slots:
            try:
                session_id = await self._write(lambda tx: begin_child(tx, key, number, _words(task)))
            except NotFound:
                session_id = None
            if session_id is None:
                return
            state, text = await self._answer(delegation, number, session_id)
            await self._write(lambda tx: settle_child(tx, key, number, state, text))
            self._end(session_id)
        self._progress(f"child {number + 1}: {state}")

    async def _answer(self, delegation: Delegation, number: int, session_id: SessionId) -> tuple[ChildState, str]:
        task = delegation.children[number].task
        wish = self._wish_for(delegation, number, session_id)
        emit = partial(_tell, self._progress, number + 1)
        try:
            state, text = await self._worked_off(session_id, wish, emit)
            if state != "done" or task.schema is None:
                return state, text
            state, text, fault = _fitted(text, task)
            if fault:
                repair = _REPAIR.format(fault)
                await self._write(lambda tx: say(tx, session_id, "repair", repair))
                state, text = await self._worked_off(session_id, wish, emit)
                if state == "done":
                    state, text, _ = _fitted(text, task)
        except StoreError:
            raise
        except TalariaError as error:
            return "failed", error.public if delegation.owner else str(error)
        return state, text

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        if self._held_up is None:
            return await self._store.write(work)
        return await insist(lambda: self._store.write(work), self._held_up)

    async def _worked_off(self, session_id: SessionId, wish: ChatWish, emit: Emit) -> tuple[ChildState, str]:
        """Return what the conversation came to; while another process works on it, that is waited for."""
        refused = 0
        while refused < _MOST_REFUSALS:
            try:
                await work_off_alone(self._opener, wish, self._jobs, emit)
            except Refused:
                pass
            else:
                state, text = await self._store.read(lambda tx: last_turn(tx, session_id))
                if state != "open":
                    return state, text
            if not await self._store.read(lambda tx: is_held(tx, lane_of(session_id))):
                refused += 1
            await asyncio.sleep(_LOOK_AGAIN)
        raise Refused("It could not be worked on.")


def _words(task: Task) -> str:
    """Return what a child is told."""
    if task.schema is None:
        return task.goal
    return task.goal + _FITTING.format(msgspec.json.encode(task.schema).decode())


def _fitted(text: str, task: Task) -> tuple[ChildState, str, str]:
    """Return the bare JSON of an answer, or what is wrong with it."""
    try:
        value = read_answer(text)
        fault = misfit(value, task.schema)
    except ValueError as error:
        fault = str(error)
    if fault:
        return "failed", _MISFIT.format(fault, text), fault
    return "done", msgspec.json.encode(value).decode(), ""


def _tell(progress: Progress, number: int, event: TurnEvent) -> None:
    """Let the steps of a child show as progress of the call that handed it on."""
    match event:
        case ToolCalled(summary=summary):
            progress(f"child {number}: {summary}")
        case ToolProgressed(text=text, step=True):
            progress(f"child {number}: {text}")
        case _:
            pass
