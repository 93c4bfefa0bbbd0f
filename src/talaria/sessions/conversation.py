"""One conversation open in this process: what is said in it is worked off, stopped, steered and answered."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec import Struct

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.budget import Budget, Unlimited
from talaria.agent.conversation import said
from talaria.agent.loop import Agent
from talaria.agent.surroundings import Approver, Limits, Surroundings
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import SessionChanges
from talaria.contracts.tool import Person, Workspace
from talaria.contracts.turn_log import TurnLog
from talaria.core.errors import TalariaError
from talaria.core.events import TurnAnswered, TurnEnd, TurnEvent, TurnStopped
from talaria.core.ids import SessionId
from talaria.core.messages import Message
from talaria.sessions.lane import admit, work_off
from talaria.sessions.turn_log import Finishing, nothing_more

_LAST_WORDS = 5.0

log = logging.getLogger(__name__)


class Desk(Struct, frozen=True, kw_only=True):
    """Where the turns of a conversation take place, and under which limits.

    ``beforehand`` runs before the first turn, ``finishing`` in the transaction that ends a turn; ``afterwards``
    hear of it when the reply is out.
    """

    emit: Callable[[TurnEvent], None]
    person: Person
    approver: Approver
    workspace: Workspace
    limits: Limits = Limits()
    budget: Budget = Unlimited()
    owner: str = ""
    beforehand: Callable[[], Awaitable[None]] | None = None
    finishing: Finishing = nothing_more
    afterwards: tuple[Callable[[], Awaitable[None]], ...] = ()
    mask: Callable[[str], str] = str


class Conversation:
    """The turns of one conversation, and its side jobs, as tasks of ``jobs``: whoever made that group owns them."""

    def __init__(
        self,
        store: Store,
        session_id: SessionId,
        agent: Agent,
        desk: Desk,
        jobs: asyncio.TaskGroup,
        *,
        auxiliary: Auxiliary,
        titled: bool = True,
    ) -> None:
        self.session_id = session_id
        self._store = store
        self._agent = agent
        self._desk = desk
        self._jobs = jobs
        self._auxiliary = auxiliary
        self._titled = titled
        self._turn: asyncio.Task[TurnEnd | TalariaError | None] | None = None
        self._side_jobs: set[asyncio.Task[None]] = set()
        self._begun = False
        self._stopping = False
        self._joining: list[Message] = []

    async def close(self, patience: float = _LAST_WORDS) -> None:
        """Wait a little for what goes on beside the conversation, then end it."""
        if self._side_jobs:
            await asyncio.wait(self._side_jobs, timeout=patience)
        for job in self._side_jobs:
            job.cancel()

    async def say(self, message: Message, *, source: str, external_id: str) -> TurnEnd | None:
        """Take what a person says and return how the last turn for it ended.

        ``None`` is for a message that came before. Raises `Refused` while another process works on this
        conversation; the message waits in the inbox then.
        """
        if not await admit(self._store, self.session_id, source, external_id, message):
            return None
        return await self.work_off()

    async def work_off(self) -> TurnEnd | None:
        """Take a turn for everything that waits, and finish what was cut off."""
        self._stopping = False
        turn = self._turn = self._jobs.create_task(self._attempt())
        try:
            outcome = await asyncio.shield(turn)
        except asyncio.CancelledError:
            if not self._stopping:
                turn.cancel()
                raise
            return TurnStopped()
        finally:
            self._turn = None
        if isinstance(outcome, TalariaError):
            raise outcome
        return outcome

    def stop(self) -> bool:
        """Stop the running turn at once; ``False`` when none is running."""
        if self._turn is None:
            return False
        self._stopping = True
        self._turn.cancel()
        return True

    def join(self, message: Message) -> bool:
        """Let a message join the running turn before its next model call; ``False`` when none is running."""
        if self._turn is None:
            return False
        self._joining.append(message)
        return True

    async def _attempt(self) -> TurnEnd | TalariaError | None:
        """Return what became of the turns: an error that was raised here would end the side jobs as well."""
        try:
            return await work_off(self._store, self.session_id, self._take_turn, finishing=self._desk.finishing)
        except TalariaError as error:
            return error

    async def _take_turn(self, turn: TurnLog) -> TurnEnd:
        if self._desk.beforehand is not None and not self._begun:
            await self._desk.beforehand()
        self._begun = True
        end = await self._agent.take_turn(turn, self._surroundings(), self._desk.limits)
        for job in self._desk.afterwards:
            self._beside(job)
        if isinstance(end, TurnAnswered):
            self._beside(self._tend)
        return end

    def _beside(self, job: Callable[[], Awaitable[None]]) -> None:
        """Do something behind the back of the conversation: it holds nothing up and breaks nothing."""
        task = self._jobs.create_task(self._guarded(job))
        self._side_jobs.add(task)
        task.add_done_callback(self._side_jobs.discard)

    async def _guarded(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except TalariaError as error:
            log.info("session %s: %s", self.session_id, error)

    async def _tend(self) -> None:
        """Do what can wait until the reply is out: a title, and a summary of what grows too long."""
        if self._titled:
            await self._give_title()
        if self._agent.window.full:
            await self._agent.window.shrink(self._desk.emit)

    async def _give_title(self) -> None:
        session = await self._store.read(lambda tx: tx.sessions.get(self.session_id))
        if session is None or session.title:
            return
        first = await self._store.read(lambda tx: tx.messages.load(self.session_id, limit=4))
        title = await self._auxiliary.title(said(first))

        def name(tx: Transaction) -> None:
            unnamed = tx.sessions.get(self.session_id)
            if title and unnamed is not None and not unnamed.title:
                tx.sessions.update(self.session_id, SessionChanges(title=title))

        await self._store.write(name)

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            emit=self._desk.emit,
            person=self._desk.person,
            approver=self._desk.approver,
            workspace=self._desk.workspace,
            owner=self._desk.owner,
            mask=self._desk.mask,
            budget=self._desk.budget,
            joined=self._hand_over,
            stopped=lambda: self._stopping,
        )

    def _hand_over(self) -> list[Message]:
        joining, self._joining = self._joining, []
        return joining
