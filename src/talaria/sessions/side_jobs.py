"""What goes on behind the back of a conversation: it holds nothing up and breaks nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from talaria.core.errors import TalariaError
from talaria.core.ids import SessionId

log = logging.getLogger(__name__)


class SideJobs:
    """The side jobs of one conversation."""

    def __init__(self, session_id: SessionId, jobs: asyncio.TaskGroup) -> None:
        self._session_id = session_id
        self._jobs = jobs
        self._lasting: set[asyncio.Task[None]] = set()
        self._resumable: dict[object, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        """Whether any of them goes on."""
        return any(not task.done() for task in (*self._lasting, *self._resumable.values()))

    def start(self, job: Callable[[], Awaitable[None]]) -> None:
        """Begin something that is waited for a little at the end."""
        task = self._jobs.create_task(self._guarded(job))
        self._lasting.add(task)
        task.add_done_callback(self._lasting.discard)

    def restart(self, key: object, job: Callable[[], Awaitable[None]]) -> None:
        """Begin something that can be cut off at any time, in the place of the one that goes by the same key."""
        before = self._resumable.get(key)
        if before is not None:
            before.cancel()
        self._resumable[key] = self._jobs.create_task(self._guarded(job))

    async def close(self, patience: float) -> None:
        """Cut off what can be, wait a little for the rest, then end that too."""
        for task in self._resumable.values():
            task.cancel()
        if self._lasting:
            await asyncio.wait(self._lasting, timeout=patience)
        for task in self._lasting:
            task.cancel()

    async def _guarded(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except TalariaError as error:
            log.info("session %s: %s", self._session_id, error)
