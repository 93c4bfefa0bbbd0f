"""Follow-ups of an open session: their tasks, and other work after a reply."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from talaria.contracts.turn_listener import TurnFollowUp
from talaria.core.errors import TalariaError
from talaria.core.session_context import SessionContext, bound

log = logging.getLogger(__name__)


class FollowUpTasks:
    """Tasks of one session that run after a reply; ``wake`` is called if a follow-up has queued a message."""

    def __init__(
        self,
        follow_ups: Sequence[TurnFollowUp],
        context: SessionContext,
        jobs: asyncio.TaskGroup,
        wake: Callable[[], None],
    ) -> None:
        self._follow_ups = follow_ups
        self._context = context
        self._jobs = jobs
        self._wake = wake
        self._awaited: set[asyncio.Task[None]] = set()
        self._resumable: dict[TurnFollowUp, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        """Return whether any task is running."""
        return any(not task.done() for task in (*self._awaited, *self._resumable.values()))

    def start_follow_ups(self) -> None:
        """Start the follow-ups; resumable ones that are running are restarted."""
        for follow_up in self._follow_ups:
            job = partial(self._follow, follow_up)
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

    async def _follow(self, follow_up: TurnFollowUp) -> None:
        with bound(self._context):
            if await follow_up.follow_up():
                self._wake()

    async def _log_errors(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except TalariaError as error:
            log.info("session %s: %s", self._context.session_id, error)
