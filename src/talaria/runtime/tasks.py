"""Follow-up tasks of an open session."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from talaria.core.errors import TalariaError
from talaria.core.ids import SessionId

log = logging.getLogger(__name__)


class FollowUpTasks:
    """Follow-up tasks of one session."""

    def __init__(self, session_id: SessionId, jobs: asyncio.TaskGroup) -> None:
        self._session_id = session_id
        self._jobs = jobs
        self._awaited: set[asyncio.Task[None]] = set()
        self._resumable: dict[object, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        """Whether any task is running."""
        return any(not task.done() for task in (*self._awaited, *self._resumable.values()))

    def start(self, job: Callable[[], Awaitable[None]]) -> None:
        """Start a task that `close` waits for."""
        task = self._jobs.create_task(self._log_errors(job))
        self._awaited.add(task)
        task.add_done_callback(self._awaited.discard)

    def restart(self, key: object, job: Callable[[], Awaitable[None]]) -> None:
        """Start a task that can be interrupted at any time, replacing the one with the same key."""
        before = self._resumable.get(key)
        if before is not None:
            before.cancel()
        self._resumable[key] = self._jobs.create_task(self._log_errors(job))

    async def close(self, patience: float) -> None:
        """Cancel resumable tasks, wait up to ``patience`` seconds for the others, then cancel those."""
        for task in self._resumable.values():
            task.cancel()
        if self._awaited:
            await asyncio.wait(self._awaited, timeout=patience)
        for task in self._awaited:
            task.cancel()

    async def _log_errors(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except TalariaError as error:
            log.info("session %s: %s", self._session_id, error)
