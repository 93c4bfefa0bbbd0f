"""Who hands tasks on for a conversation: next to nothing until the first of them, which loads the rest."""

import logging
from asyncio import TaskGroup
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from talaria.app.subcommands import load
from talaria.contracts.delegation import Delegated, Task
from talaria.contracts.follower import Ending
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.tool import Call
from talaria.core.errors import StoreError
from talaria.core.ids import SessionId, WorkerId, new_worker_id
from talaria.core.session_context import SessionContext
from talaria.sessions.chat import ChatWish
from talaria.sessions.mandate import AT_CALL, BESIDE
from talaria.sessions.questions import Questions

if TYPE_CHECKING:  # the house opens conversations; they only look at it
    from talaria.app.house import House

log = logging.getLogger(__name__)

Here = Callable[[], SessionId | None]
_TOPIC = "delegations"


class Attendance:
    """Whether this process sees to what goes on in the background; where it does not, nothing is begun there."""

    def __init__(self) -> None:
        self.worker: WorkerId = new_worker_id()
        self.present = False
        self.end: Callable[[SessionId], None] = _nothing_to_end


def _nothing_to_end(session_id: SessionId) -> None:
    """End nothing: nothing was begun."""


class Delegating:
    """Implements `Delegator` for one conversation.

    ``wish`` is how it was opened, with the folder in which it works; ``context`` is its place, ``viewer`` as whom and
    before whom it is. ``model`` is the one that answers in it, and ``tools`` are what it can use itself.
    """

    def __init__(
        self,
        house: "House",
        wish: ChatWish,
        context: SessionContext,
        viewer: Viewer,
        model: str,
        questions: Questions,
        jobs: TaskGroup,
    ) -> None:
        self.house = house
        self.wish = wish
        self.context = context
        self.viewer = viewer
        self.model = model
        self.questions = questions
        self.jobs = jobs
        self.tools: tuple[str, ...] = ()

    async def delegate(self, tasks: Sequence[Task], call: Call, *, background: bool) -> Delegated:
        """Have tasks worked on, those of the same call once, however often it is made."""
        delegated: Delegated = await load("talaria.app.delegating").delegate(self, tasks, call, background=background)
        return delegated

    async def see_to(self, words: str) -> str:
        """Have words of a person seen to in the background, and return the handle of that."""
        handle: str = await load("talaria.app.delegating").see_to(self, words)
        return handle


class CallsClosed:
    """Implements `Follower`: a turn that is over, however it ended, leaves no child at work.

    ``end`` ends what a child has started.
    """

    resumable: ClassVar = True

    def __init__(self, end: Callable[[SessionId], object]) -> None:
        self._end = end
        self._cut_off: list[SessionId] = []

    def turn_ended(self, tx: Transaction, ending: Ending) -> None:
        """End them with the turn."""
        if tx.state.with_prefix(f"{AT_CALL}{ending.session_id}:"):
            self._cut_off = load("talaria.sessions.delegation").close_calls(tx, ending.session_id)

    async def follow_up(self) -> bool:
        """End what they have started."""
        cut_off, self._cut_off = self._cut_off, []
        for session_id in cut_off:
            self._end(session_id)
        return False


def end_background(house: "House", session_id: SessionId) -> None:
    """End what a conversation that is over has running, and what its agent has handed on."""
    house.processes.end_session(session_id)
    house.attendance.end(session_id)


def tend_background(house: "House", jobs: TaskGroup, here: Here | None) -> Coroutine[Any, Any, None]:
    """Return what sees to the background until it is cancelled; from now on something may be begun there."""
    house.attendance.present = True
    return _tended(house, jobs, here)


async def _is_needed(house: "House") -> bool:
    try:
        return bool(await house.store.read(lambda tx: tx.state.with_prefix(BESIDE)))
    except StoreError as error:
        log.warning("what goes on in the background waits: %s", error)
        return False


async def _tended(house: "House", jobs: TaskGroup, here: Here | None) -> None:
    """Wait until there is something, then load what sees to it."""
    try:
        async with house.store.heeding(_TOPIC) as rung:
            while not await _is_needed(house):
                rung.clear()
                await rung.wait()
        await load("talaria.app.delegating").tend_background(house, jobs, here)
    finally:
        house.attendance.present, house.attendance.end = False, _nothing_to_end
