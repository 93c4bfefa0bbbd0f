"""Work after a reply: follow-up tasks of an open session, and its title."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.context_window import unwrap_messages
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import SessionChanges
from talaria.contracts.turns import TurnFollowUp
from talaria.core.errors import TalariaError
from talaria.core.ids import SessionId
from talaria.core.session_context import SessionContext, bound

_TITLE_MESSAGES = 4

log = logging.getLogger(__name__)


class FollowUpTasks:
    """Tasks of one session that run after a reply."""

    def __init__(
        self,
        follow_ups: Sequence[TurnFollowUp],
        context: SessionContext,
        jobs: asyncio.TaskGroup,
    ) -> None:
        self._follow_ups = follow_ups
        self._context = context
        self._jobs = jobs
        self._awaited: set[asyncio.Task[None]] = set()
        self._resumable: dict[TurnFollowUp, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        """Return whether any task is running."""
        return any(not task.done() for task in (*self._awaited, *self._resumable.values()))

    def start_follow_ups(self, wake: Callable[[], None]) -> None:
        """Start the follow-ups; resumable ones that are running are restarted.

        ``wake`` is called if one has queued a message. It is not stored, because the owner of this object has it:
        a cycle would keep a closed session in memory until the next garbage collection.
        """
        for follow_up in self._follow_ups:
            job = partial(self._follow, follow_up, wake)
            if follow_up.resumable:
                before = self._resumable.get(follow_up)
                if before is not None:
                    before.cancel()
                self._resumable[follow_up] = self._jobs.create_task(self._log_errors(job))
            else:
                self.start(job)

    def start(self, job: Callable[[], Awaitable[None]]) -> None:
        """Start a task that `close` waits for."""
        task = self._jobs.create_task(self._log_errors(job))
        self._awaited.add(task)
        task.add_done_callback(self._awaited.discard)

    async def close(self, patience: float) -> None:
        """Cancel resumable tasks, wait up to ``patience`` seconds for the others, then cancel those."""
        for task in self._resumable.values():
            task.cancel()
        if self._awaited:
            await asyncio.wait(self._awaited, timeout=patience)
        for task in self._awaited:
            task.cancel()

    async def _follow(self, follow_up: TurnFollowUp, wake: Callable[[], None]) -> None:
        with bound(self._context):
            if await follow_up.follow_up():
                wake()

    async def _log_errors(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except TalariaError as error:
            log.info("session %s: %s", self._context.session_id, error)


async def generate_title(store: Store, session_id: SessionId, auxiliary: Auxiliary) -> bool:
    """Give a session a title that a model made from its first messages; return whether it has one now."""
    session = await store.read(lambda tx: tx.sessions.get(session_id))
    if session is None or session.title:
        return True
    first = await store.read(lambda tx: tx.messages.load(session_id, limit=_TITLE_MESSAGES))
    title = await auxiliary.generate_title(unwrap_messages(first))
    return bool(title) and await store.write(lambda tx: _set_title(tx, session_id, title))


def _set_title(tx: Transaction, session_id: SessionId, title: str) -> bool:
    session = tx.sessions.get(session_id)
    if session is not None and not session.title:
        tx.sessions.update(session_id, SessionChanges(title=title))
    return True
