"""Background delegations: run by one process at a time, resumed after a crash, reported once."""

import asyncio
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec import Struct, structs

from talaria.contracts.delegation import ChildTask
from talaria.contracts.store import Store, Subscription, Transaction
from talaria.contracts.stores.turns import Lease
from talaria.core.aio import run_with
from talaria.core.errors import LeaseLost, StoreError
from talaria.core.ids import SessionId, WorkerId, is_gone
from talaria.core.messages import PROGRAM, Message, Text
from talaria.runtime.completions import read_origin, report
from talaria.runtime.delegation.task_store import (
    DELEGATIONS,
    SOURCE,
    Delegation,
    ask_to_stop_all,
    list_background,
    read_delegation,
    remove_delegation,
)
from talaria.runtime.turns import LEASE, MIRROR, make_arrival, record_mirrored
from talaria.runtime.workers import is_leased, release_lease, renew_lease, take_lease

_STOPPED = "This message is automatic: the person stopped {}, so it won't be reported."
_RETRY_DELAY = timedelta(seconds=30)

log = logging.getLogger(__name__)


class BackgroundHost(Protocol):
    """Executor of background delegations."""

    async def carry(self, one: Delegation) -> tuple[ChildTask, ...]:
        """Run the child tasks and return them in order once none is open; cancelling interrupts them."""

    def format_report(self, one: Delegation, children: tuple[ChildTask, ...]) -> str:
        """Return the report on the children for the session."""

    def end(self, session_id: SessionId) -> object:
        """End the processes and background work that a child session started."""


class _RunningTask(Struct, frozen=True):
    """A delegation running in this process; ``stopping`` is set once it is being stopped."""

    task: asyncio.Task[bool]
    stopping: bool = False


class Background:
    """Background delegations of this process, run as tasks of ``jobs``.

    ``here`` returns the open session if only its delegations are handled; without it all are.
    """

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        jobs: asyncio.TaskGroup,
        host_runner: BackgroundHost,
        *,
        here: Callable[[], SessionId | None] | None = None,
        lease: timedelta = LEASE,
    ) -> None:
        self._store = store
        self._worker = worker
        self._jobs = jobs
        self._host_runner = host_runner
        self._current_session = here
        self._lease = lease
        self._running: dict[str, _RunningTask] = {}
        self._failed: dict[str, datetime] = {}
        self._ended_sessions: set[SessionId] = set()
        self._subscription: Subscription | None = None

    def end(self, session_id: SessionId) -> None:
        """Stop the delegations that the agent started in an ended session, without waiting for them."""
        self._ended_sessions.add(session_id)
        self._wake()

    async def serve(self) -> None:
        """Start new and orphaned delegations until cancelled, which interrupts those that are running."""
        try:
            async with self._store.subscribe(DELEGATIONS) as subscription:
                self._subscription = subscription
                while True:
                    await subscription.wait()
                    try:
                        await self.look()
                    except StoreError as error:
                        log.warning("background work is paused until the store is back: %s", error)
        finally:
            await self._cancel_all()

    async def look(self) -> int:
        """Start the delegations this process may run, stop those marked, and return how many started."""
        begun, over = 0, frozenset(self._ended_sessions)
        if over:
            await self._store.write(lambda tx: [ask_to_stop_all(tx, session_id) for session_id in over])
            self._ended_sessions -= over
        for one, is_free in await self._store.read(_list_all):
            running = self._running.get(one.key)
            if running is not None:
                if one.stopped and not running.stopping:
                    self._running[one.key] = structs.replace(running, stopping=True)
                    running.task.cancel()
            elif is_free and self._is_ours(one):
                begun += 1
                self._start(one)
        return begun

    def _start(self, one: Delegation) -> None:
        def end_task(task: asyncio.Task[bool]) -> None:
            self._running.pop(one.key, None)
            if task.cancelled() or task.result():
                self._wake()

        task = self._jobs.create_task(self._run_with_lease(one.key))
        self._running[one.key] = _RunningTask(task, stopping=one.stopped)
        task.add_done_callback(end_task)

    def _is_ours(self, one: Delegation) -> bool:
        """Return whether to start a delegation here: an own one, or an orphaned or stopped one.

        Not within ``_RETRY_DELAY`` after a failure. Of other workers' delegations, those bound to another host are not
        taken, and with ``here`` only those of the open session.
        """
        now = datetime.now(UTC)
        if now - self._failed.get(one.key, now - _RETRY_DELAY) < _RETRY_DELAY:
            return False
        if one.worker == self._worker:
            return True
        if self._current_session is not None and self._current_session() != one.session_id:
            return False
        if one.host and one.host != os.uname().nodename:
            return False
        return is_gone(one.worker) or one.stopped or now - one.began > self._lease

    async def _run_with_lease(self, key: str) -> bool:
        """Run a delegation under its lease; return ``True`` if it has to be looked at again at once."""
        try:
            lease = await take_lease(self._store, key, self._lease)
            if lease is None:
                return False
            try:
                return await run_with(self._finish(key, lease), renew_lease(self._store, lease, self._lease))
            finally:
                await asyncio.shield(release_lease(self._store, lease))
        except LeaseLost:
            log.info("%s is handled by another process", key)
        except StoreError as error:
            self._failed[key] = datetime.now(UTC)
            log.warning("%s resumes later: %s", key, error)
        return False

    async def _finish(self, key: str, lease: Lease) -> bool:
        """Run and report a delegation, or end a stopped one; ``True`` if it was stopped meanwhile."""
        one = await self._store.read(lambda tx: read_delegation(tx, key))
        if one is None:
            return False
        if one.stopped:
            for session_id in await self._store.write(lambda tx: _stop(tx, one, lease)):
                self._host_runner.end(session_id)
            return False
        children = await self._host_runner.carry(one)
        text = self._host_runner.format_report(one, children)
        return not await self._store.write(lambda tx: _report_result(tx, self._update_session(tx, one), lease, text))

    def _update_session(self, tx: Transaction, one: Delegation) -> Delegation:
        """Return the delegation with the session to report to.

        What a person requested is reported in the session that is now open in their chat or terminal.
        """
        if not one.said:
            return one
        bound = tx.bindings.get(one.context.session_key) if one.context.session_key else None
        here = bound.session_id if bound else self._current_session() if self._current_session else None
        return structs.replace(one, session_id=here or one.session_id)

    def _wake(self) -> None:
        if self._subscription is not None:
            self._subscription.wake()

    async def _cancel_all(self) -> None:
        tasks = [one.task for one in self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _list_all(tx: Transaction) -> list[tuple[Delegation, bool]]:
    """Return all background delegations, and whether each has no lease."""
    return [(one, not is_leased(tx, one.key)) for one in list_background(tx)]


def _report_result(tx: Transaction, one: Delegation, lease: Lease, text: str) -> bool:
    """Report and remove a finished delegation in one transaction; ``False`` if it was stopped meanwhile."""
    tx.leases.check(lease)
    known = read_delegation(tx, one.key)
    if known is None or known.stopped:
        return known is None
    report(tx, one.session_id, SOURCE, one.key, text, origin=read_origin(one.context))
    remove_delegation(tx, known)
    return True


def _stop(tx: Transaction, one: Delegation, lease: Lease) -> list[SessionId]:
    """Remove a delegation and record that in the transcript; return the interrupted sessions."""
    tx.leases.check(lease)
    ended = remove_delegation(tx, read_delegation(tx, one.key) or one)
    if tx.sessions.get(one.session_id) is not None:
        message = Message(role="user", parts=(Text(_STOPPED.format(one.handle)),), at=datetime.now(UTC), author=PROGRAM)
        tx.inbox.add(make_arrival(one.session_id, SOURCE, f"{one.key}:stopped", message, kind=MIRROR))
        record_mirrored(tx, one.session_id)
    return ended
