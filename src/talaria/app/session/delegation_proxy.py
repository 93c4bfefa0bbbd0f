"""Lazy access to delegation: the implementation is imported with the first delegated task."""

import logging
from asyncio import TaskGroup
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from talaria.contracts.delegation import DelegatedTask, DelegationResult
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.tool import Call
from talaria.core.errors import StoreError
from talaria.core.ids import SessionId, WorkerId, new_worker_id
from talaria.runtime.open_session import OpenRequest
from talaria.runtime.questions import Questions
from talaria.runtime.turn_environment import TurnSubscriber

if TYPE_CHECKING:  # the application opens sessions
    from talaria.app.application import TalariaApplication

log = logging.getLogger(__name__)

CurrentSession = Callable[[], SessionId | None]
_TOPIC = "delegations"


class BackgroundRole:
    """The role of this process for background delegations; without it, none can be started."""

    def __init__(self) -> None:
        self.worker: WorkerId = new_worker_id()
        self.present = False
        self.end: Callable[[SessionId], None] = _end_nothing


def _end_nothing(session_id: SessionId) -> None:
    """Do nothing: no delegation was started."""


class LazyDelegator(Struct):
    """Implementation of `Delegator` for one open session.

    ``request`` is how it was opened, with its folder and context; ``viewer`` is the person and audience it works for.
    ``model`` is the model of the session, ``tools`` are those it can use itself. ``publish`` takes events of the
    session.
    """

    application: "TalariaApplication"
    request: OpenRequest
    viewer: Viewer
    model: str
    questions: Questions
    publish: TurnSubscriber
    jobs: TaskGroup
    tools: tuple[str, ...] = ()

    async def delegate(self, tasks: Sequence[DelegatedTask], call: Call, *, background: bool) -> DelegationResult:
        """Run tasks, once per call even if the call is repeated."""
        from talaria.app.session import delegation as delegation_module  # noqa: PLC0415 (loaded with the first task)

        return await delegation_module.delegate(self, tasks, call, background=background)

    async def run_in_background(self, text: str) -> str:
        """Queue a person's request as a background task, and return its handle."""
        from talaria.app.session import delegation as delegation_module  # noqa: PLC0415 (loaded with the first task)

        return await delegation_module.run_in_background(self, text)


def end_open_calls(tx: Transaction, session_id: SessionId) -> Sequence[SessionId]:
    """End the delegated calls of a turn, however it ended, and return the delegated sessions that were interrupted."""
    if not tx.delegated_tasks.of_session(session_id, background=False):
        return ()
    from talaria.runtime.delegation.task_store import end_delegated_calls  # noqa: PLC0415 (loaded when a task was delegated)

    return end_delegated_calls(tx, session_id)


def end_background(application: "TalariaApplication", session_id: SessionId) -> None:
    """End the processes and the browser of an ended session, and the background work of its agent."""
    application.processes.end_session(session_id)
    application.background_role.end(session_id)
    application.browsers.end_session(session_id)


def supervise_background(
    application: "TalariaApplication", jobs: TaskGroup, here: CurrentSession | None
) -> Coroutine[Any, Any, None]:
    """Return the coroutine that runs background work until cancelled, and allow such work to start."""
    application.background_role.present = True
    return _supervise(application, jobs, here)


async def _is_needed(application: "TalariaApplication") -> bool:
    try:
        return bool(await application.store.read(lambda tx: tx.delegated_tasks.in_background()))
    except StoreError as error:
        log.warning("background work is paused until the store is back: %s", error)
        return False


async def _supervise(application: "TalariaApplication", jobs: TaskGroup, here: CurrentSession | None) -> None:
    """Wait until there is background work, then import and run its supervisor."""
    try:
        async with application.store.subscribe(_TOPIC) as subscription:
            await subscription.wait()
            while not await _is_needed(application):
                await subscription.wait()
        from talaria.app.session import delegation as delegation_module  # noqa: PLC0415 (loaded with the first task)

        await delegation_module.supervise_background(application, jobs, here)
    finally:
        application.background_role.present, application.background_role.end = False, _end_nothing
