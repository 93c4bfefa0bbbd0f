"""One conversation open in this process: what is said in it is worked off, stopped, steered and answered."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from msgspec import Struct, structs

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.budget import Budget, Unlimited
from talaria.agent.conversation import said
from talaria.agent.loop import Agent
from talaria.agent.surroundings import Approver, Limits, Surroundings
from talaria.contracts.follower import Ending, Follower, Witness
from talaria.contracts.provider import Effort
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import SessionChanges
from talaria.contracts.tool import Person, Workspace
from talaria.core.errors import Busy, LeaseLost, Refused, StoreError
from talaria.core.events import TurnAnswered, TurnBegan, TurnEnd, TurnEvent, TurnStopped
from talaria.core.ids import SessionId
from talaria.core.messages import Message
from talaria.core.senders import OWNER, is_same_sender
from talaria.core.session_context import SessionContext, bound
from talaria.sessions.admitted import Unpack, leave_packed
from talaria.sessions.context import turn_context
from talaria.sessions.departure import TurnGate
from talaria.sessions.lane import LEASE, Terms, Within, admit, arrival, nothing_first, work_off
from talaria.sessions.relocation import being_handed_over, holds_turns
from talaria.sessions.side_jobs import SideJobs
from talaria.sessions.turn_log import STEERING, StoredTurn
from talaria.sessions.unpacking import Unpacking
from talaria.sessions.worker import Worker

_LAST_WORDS = 5.0

log = logging.getLogger(__name__)


class Desk(Struct, frozen=True, kw_only=True):
    """Where the turns of a conversation take place, and under which limits.

    ``limits`` returns those of the next turn. ``beforehand`` runs in the transaction that begins the first turn, or the
    first with another effort; ``witnesses`` and ``followers`` hear of each turn that ends. ``context`` is what is known
    of the place. With ``held_up`` turns wait for a store that refuses to be written to; it is called when they do.
    ``is_same_person`` compares two senders: text joins a running turn only if its sender is that of the turn.
    """

    emit: Callable[[TurnEvent], None]
    person: Person
    approver: Approver
    workspace: Workspace
    limits: Callable[[], Limits] = Limits
    budget: Budget = Unlimited()
    owner: str = ""
    audience: str = ""
    unpack: Unpack = leave_packed
    beforehand: Callable[[Transaction, Effort], None] | None = None
    witnesses: tuple[Witness, ...] = ()
    followers: tuple[Follower, ...] = ()
    mask: Callable[[str], str] = str
    context: SessionContext = SessionContext()
    lease: timedelta = LEASE
    held_up: Callable[[], None] | None = None
    is_same_person: Callable[[str, str], bool] = is_same_sender


class Conversation:
    """The turns of one conversation, and its side jobs, as tasks of ``jobs``: whoever made that group owns them.

    ``turn`` is the one that this process takes now, if it does. ``left`` says that the conversation was moved away in
    the middle of the last one: what is said then is for those at the new place. While the ``gate`` is closed no turn
    begins; whoever waits for one gets `Busy`, and their message stays in the inbox.
    """

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
        self._auxiliary = auxiliary
        self._titled = titled
        self._lane = Worker(jobs)
        self._unpacking = Unpacking(desk.unpack)
        self._beside = SideJobs(session_id, jobs)
        self._first: Within | None = None
        self._begun_with: Effort | None = None  # in a transaction that may not have been carried out
        self._asked_with: Effort | None = None
        self._steered = False
        self.turn: StoredTurn | None = None
        self.left = False
        self.gate = TurnGate()
        self._hasty: int | None = None
        self._context = structs.replace(desk.context, session_id=session_id)

    @property
    def busy(self) -> bool:
        """Whether a turn is running, or about to."""
        return self._lane.busy

    @property
    def engaged(self) -> bool:
        """Whether anything goes on: a turn, or what comes behind a reply."""
        return self.busy or self._beside.busy

    def ask_with(self, effort: Effort) -> None:
        """Let the model think this much from the next call on."""
        if effort != self._agent.manner.effort:
            self._agent.manner = structs.replace(self._agent.manner, effort=effort)

    async def close(self, patience: float = _LAST_WORDS) -> None:
        """End the running turn, to go on at the next start; wait a little for what goes on behind the last reply."""
        await self._lane.close()
        await self._beside.close(patience)

    async def say(self, message: Message, *, source: str, external_id: str, sender: str = OWNER) -> TurnEnd | None:
        """Take what a person says and return how the last turn for it ended.

        ``None`` is for a message that came before. Raises `Refused` while another process works on this
        conversation; the message waits in the inbox then.
        """
        if not await admit(self._store, self.session_id, source, external_id, message, sender=sender):
            return None
        return await self.work_off()

    async def put(self, message: Message, *, source: str, external_id: str, sender: str = OWNER) -> bool:
        """Take what a person says, to be worked off behind what waits already; ``False`` for what came before."""
        came = await admit(self._store, self.session_id, source, external_id, message, sender=sender)
        if came:
            self.wake()
        return came

    async def work_off(self) -> TurnEnd | None:
        """Take a turn for everything that waits, finish what was cut off, and return how the last turn ended."""
        self.wake()
        try:
            return await self._lane.finished()
        except asyncio.CancelledError:
            await self._lane.close()
            raise

    def wake(self, first: Within | None = None) -> None:
        """See to it that what waits in the inbox is worked off, now or behind the running turn.

        In a conversation that rests ``first`` runs in the transaction that begins the turn, and may put there what that
        is to be about.
        """
        self._first = first or self._first
        self._lane.wake(self._work_off)

    async def settled(self) -> TurnEnd | None:
        """Wait until nothing is being worked on, and return how the last turn ended; raises what ended the work."""
        return await self._lane.finished()

    def stop(self) -> bool:
        """Stop the running turn at once, and go on with what waits behind it; ``False`` when none is running."""
        return self._unpacking.stop() or self._lane.stop()

    def interrupt(self, item: int) -> bool:
        """Stop the running turn for something in the inbox, unless it is that very thing which it works off.

        Files that are being fetched are fetched first, so that they can be talked about.
        """
        if self._unpacking.busy:
            self._hasty = item
        return self.turn is not None and item not in self.turn.items and self.stop()

    async def steer(self, message: Message, *, source: str, external_id: str, sender: str = OWNER) -> None:
        """Let a message join the running turn before its next model call, or start its own turn.

        It starts its own if it comes too late, or if another sender began the running turn.
        """
        came = arrival(self.session_id, source, external_id, message, kind=STEERING, sender=sender)
        await self._store.write(lambda tx: tx.inbox.add(came))
        self.nudge(steered=True)

    def nudge(self, *, steered: bool) -> None:
        """Look at the inbox: something was put there, perhaps to steer the running turn."""
        self._steered = self._steered or steered
        self.wake()

    def follow(self) -> None:
        """Begin what followers do behind a reply anew: something they heed has changed, or the program has begun."""
        for follower in self._desk.followers:
            job = partial(self._follow, follower)
            if follower.resumable:
                self._beside.restart(follower, job)
            else:
                self._beside.start(job)

    async def shrink(self) -> bool:
        """Summarise the older part of the conversation; ``False`` where there is nothing to gain."""
        window = self._agent.window
        await window.open()
        return await window.shrink(self._desk.emit)

    async def _work_off(self) -> TurnEnd | None:
        if self.left:
            raise Refused("This conversation has moved to another place.")
        if self.gate.reason:
            raise Busy(self.gate.reason)
        first, self._first = self._first or nothing_first, None
        desk, unpack = self._desk, self._unpacking.unpack
        terms = Terms(desk.lease, self._finish, unpack, desk.held_up, self._begin)
        with bound(self._context):
            try:
                return await work_off(self._store, self.session_id, self._take_turn, terms, first)
            except LeaseLost:
                raise
            except StoreError as error:
                log.warning("what waits has to wait for the store: %s", error)
                if self._desk.held_up is not None:
                    self._desk.held_up()
                raise

    def _begin(self, tx: Transaction) -> None:
        if held := holds_turns(tx, self.session_id):
            raise Busy(being_handed_over(held))
        effort = self._begun_with = self._agent.manner.effort
        if self._desk.beforehand is not None and effort != self._asked_with:
            self._desk.beforehand(tx, effort)

    def _finish(self, tx: Transaction, ending: Ending) -> None:
        for witness in (*self._desk.witnesses, *self._desk.followers):
            witness.turn_ended(tx, ending)

    async def _take_turn(self, turn: StoredTurn) -> TurnEnd:
        """Take a turn that knows whose it is, and nothing of the one whose task it may have been started from."""
        context = turn_context(self._context, turn, self._desk.workspace.folder)
        self.turn = turn
        try:
            with bound(context):
                return await self._worked_on(turn, context)
        finally:
            self.turn, self.left = None, turn.fate.left

    async def _worked_on(self, turn: StoredTurn, context: SessionContext) -> TurnEnd:
        self._asked_with = self._begun_with
        self._desk.emit(TurnBegan(turn.turn_id, turn.route, turn.said, turn.items))
        if self._unpacking.was_stopped(turn.items):
            return await self._over_at_once(turn)
        hasty, self._hasty = self._hasty, None
        if hasty is not None and hasty not in turn.items:
            self._lane.stop()
        try:
            end = await self._agent.take_turn(turn, self._surroundings(turn, context), self._desk.limits())
        except asyncio.CancelledError:
            if self._lane.stopping:
                self.follow()
            raise
        self.follow()
        if isinstance(end, TurnAnswered) and (self._titled or self._agent.window.full):
            self._beside.start(self._tend)
        return end

    async def _over_at_once(self, turn: StoredTurn) -> TurnEnd:
        end = TurnStopped()
        await turn.finish(end, None)
        self._desk.emit(end)
        self.follow()
        return end

    async def _follow(self, follower: Follower) -> None:
        with bound(self._context):
            if await follower.follow_up():
                self.wake()

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

    def _surroundings(self, turn: StoredTurn, context: SessionContext) -> Surroundings:
        async def joined() -> list[Message]:
            steered, self._steered = self._steered, False
            return await turn.let_join(self._desk.is_same_person) if steered else []

        return Surroundings(
            emit=self._desk.emit,
            person=self._desk.person,
            approver=self._desk.approver,
            workspace=self._desk.workspace,
            owner=self._desk.owner,
            audience=self._desk.audience,
            mask=self._desk.mask,
            budget=self._desk.budget,
            joined=joined,
            stopped=lambda: self._lane.stopping,
            context=context,
        )
