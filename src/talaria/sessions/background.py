"""What goes on in the background of conversations: taken up by one process, gone on with by the next, told once."""

import asyncio
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec import Struct, structs

from talaria.contracts.delegation import Child
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.leases import Lease
from talaria.core.errors import LeaseLost, StoreError
from talaria.core.ids import SessionId, WorkerId, is_gone
from talaria.core.messages import Message, Text
from talaria.sessions.company import accompanied
from talaria.sessions.delegation import (
    DELEGATIONS,
    SOURCE,
    Delegation,
    ask_to_stop_all,
    forget,
    in_background,
    read_delegation,
)
from talaria.sessions.holding import hold, is_held, let_go, take
from talaria.sessions.lane import LEASE, MIRROR, arrival, record_mirrored
from talaria.sessions.transcripts import PROGRAM
from talaria.sessions.waking import WAKE, origin_of, report

_STOPPED = "This is not from the person: {} was stopped by them and will not be told of."
_PAUSE = timedelta(seconds=30)

log = logging.getLogger(__name__)


class Carrier(Protocol):
    """Does the work."""

    async def carry(self, one: Delegation) -> tuple[Child, ...]:
        """Return the children in order when none is at work any more; cancelling cuts them off."""

    def tell(self, one: Delegation, children: tuple[Child, ...]) -> str:
        """Return what the conversation is told of them."""

    def end(self, session_id: SessionId) -> object:
        """End what a child has started."""


class _UnderWay(Struct, frozen=True):
    """Something at work here; ``stopping`` says that it ends already, or was begun to."""

    task: asyncio.Task[bool]
    stopping: bool = False


class Background:
    """Sees to what goes on in the background, as tasks of ``jobs``.

    ``here`` is the conversation that is open where only its own is seen to; without it all are.
    """

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        jobs: asyncio.TaskGroup,
        carrier: Carrier,
        *,
        here: Callable[[], SessionId | None] | None = None,
        lease: timedelta = LEASE,
    ) -> None:
        self._store = store
        self._worker = worker
        self._jobs = jobs
        self._carrier = carrier
        self._here = here
        self._lease = lease
        self._under_way: dict[str, _UnderWay] = {}
        self._failed: dict[str, datetime] = {}
        self._over: set[SessionId] = set()
        self._rung = asyncio.Event()

    def end(self, session_id: SessionId) -> None:
        """Stop what the agent began in the background of a conversation that is over, without making anybody wait."""
        self._over.add(session_id)
        self._rung.set()

    async def serve(self) -> None:
        """Take up what is begun or was left behind, until cancelled; what is at work is cut off then."""
        try:
            async with self._store.heeding(DELEGATIONS) as rung:
                self._rung = rung
                while True:
                    rung.clear()
                    try:
                        await self.look()
                    except StoreError as error:
                        log.warning("what goes on in the background waits: %s", error)
                    await rung.wait()
        finally:
            await self._cut_off()

    async def look(self) -> int:
        """Begin with all that is ours to see to, stop what is to be stopped, and return how much was begun."""
        begun, over = 0, frozenset(self._over)
        if over:
            await self._store.write(lambda tx: [ask_to_stop_all(tx, session_id) for session_id in over])
            self._over -= over
        for one, free in await self._store.read(_all):
            under_way = self._under_way.get(one.key)
            if under_way is not None:
                if one.stopped and not under_way.stopping:
                    self._under_way[one.key] = structs.replace(under_way, stopping=True)
                    under_way.task.cancel()
            elif free and self._is_ours(one):
                begun += 1
                self._start(one)
        return begun

    def _start(self, one: Delegation) -> None:
        def over(task: asyncio.Task[bool]) -> None:
            self._under_way.pop(one.key, None)
            if task.cancelled() or task.result():
                self._rung.set()

        task = self._jobs.create_task(self._see_to(one.key))
        self._under_way[one.key] = _UnderWay(task, stopping=one.stopped)
        task.add_done_callback(over)

    def _is_ours(self, one: Delegation) -> bool:
        """Tell whether to take something up: what this process began, what is open here, what nobody else has."""
        now = datetime.now(UTC)
        if now - self._failed.get(one.key, now - _PAUSE) < _PAUSE:
            return False
        if one.worker == self._worker:
            return True
        if self._here is not None and self._here() != one.session_id:
            return False
        if one.host and one.host != os.uname().nodename:
            return False
        return is_gone(one.worker) or one.stopped or now - one.began > self._lease

    async def _see_to(self, key: str) -> bool:
        """Do what is to be done; ``True`` where there is more of it at once."""
        try:
            lease = await self._store.write(lambda tx: take(tx, key, self._lease))
            if lease is None:
                return False
            try:
                return await accompanied(self._finish(key, lease), hold(self._store, lease, self._lease))
            finally:
                await asyncio.shield(let_go(self._store, lease))
        except LeaseLost:
            log.info("%s is seen to by another process", key)
        except StoreError as error:
            self._failed[key] = datetime.now(UTC)
            log.warning("%s goes on later: %s", key, error)
        return False

    async def _finish(self, key: str, lease: Lease) -> bool:
        """Carry something out and have it told, or end it where it was stopped; ``True`` if it is to be stopped now."""
        one = await self._store.read(lambda tx: read_delegation(tx, key))
        if one is None:
            return False
        if one.stopped:
            for session_id in await self._store.write(lambda tx: _stop(tx, one, lease)):
                self._carrier.end(session_id)
            return False
        children = await self._carrier.carry(one)
        text = self._carrier.tell(one, children)
        told = await self._store.write(lambda tx: _told(tx, self._addressed(tx, one), lease, text))
        await self._store.hint(WAKE)
        return not told

    def _addressed(self, tx: Transaction, one: Delegation) -> Delegation:
        """Return what is to be told with whom: what a person asked for is told in the conversation they are in now."""
        if not one.said:
            return one
        bound = tx.bindings.get(one.context.session_key) if one.context.session_key else None
        here = bound.session_id if bound else self._here() if self._here else None
        return structs.replace(one, session_id=here or one.session_id)

    async def _cut_off(self) -> None:
        tasks = [one.task for one in self._under_way.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _all(tx: Transaction) -> list[tuple[Delegation, bool]]:
    """Return all that goes on, and whether each is seen to by nobody."""
    return [(one, not is_held(tx, one.key)) for one in in_background(tx)]


def _told(tx: Transaction, one: Delegation, lease: Lease, text: str) -> bool:
    """Let the conversation be told and forget what is done, together; ``False`` for what was stopped meanwhile."""
    tx.leases.check(lease)
    known = read_delegation(tx, one.key)
    if known is None or known.stopped:
        return known is None
    report(tx, one.session_id, SOURCE, one.key, text, origin=origin_of(one.context))
    forget(tx, known)
    return True


def _stop(tx: Transaction, one: Delegation, lease: Lease) -> list[SessionId]:
    """End something for good, and let the transcript say so; returns the conversations that were cut off."""
    tx.leases.check(lease)
    ended = forget(tx, read_delegation(tx, one.key) or one)
    if tx.sessions.get(one.session_id) is not None:
        message = Message(role="user", parts=(Text(_STOPPED.format(one.handle)),), at=datetime.now(UTC), author=PROGRAM)
        tx.inbox.add(arrival(one.session_id, SOURCE, f"{one.key}:stopped", message, kind=MIRROR))
        record_mirrored(tx, one.session_id)
    return ended
