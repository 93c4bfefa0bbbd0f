"""One turn of a conversation, for a client that waits for it: begun, followed, and stopped when nobody listens."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Self

from msgspec import Struct

from talaria.api.channel import Channel
from talaria.api.conversations import SOURCE, Conversations, Kept, Origin, entered, keep_origin, read_origin
from talaria.api.keys import Caller
from talaria.contracts.follower import Ending
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession, SessionChanges
from talaria.core.errors import Refused, TalariaError
from talaria.core.events import TextAdded, TurnAnswered, TurnBegan, TurnEvent, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.core.ids import SessionId, TurnId, new_id, new_session_id
from talaria.core.messages import Message
from talaria.core.senders import api_sender
from talaria.sessions.lane import arrival
from talaria.sessions.questions import Questions

Begun = Callable[[Transaction, SessionId], None]
Ended = Callable[[Transaction, Ending], None]


class Wanted(Struct, frozen=True, kw_only=True):
    """The turn that a route asks for.

    With a ``session_id`` that conversation goes on; else a new one begins, with ``instructions`` beside its own and
    with ``history`` as what was said before, under ``new_id`` if that is given. Without a ``message`` what waits in it
    already is worked off. ``begun`` runs in the transaction that takes the message, ``ended`` in the one that ends its
    turn; both may be run again, so they have no effects but on the store. ``heard`` is called with each event as it
    happens, ahead of whoever reads them.
    """

    message: Message | None
    session_id: str = ""
    new_id: SessionId | None = None
    instructions: str = ""
    history: tuple[Message, ...] = ()
    model: str = ""
    begun: Begun | None = None
    ended: Ended | None = None
    heard: Callable[[TurnEvent], object] | None = None


class Turn:
    """Begins when it is entered, yields its events when iterated over, and is stopped when it is left before its end.

    A reply that is streamed enters it with `begin` and leaves it with `leave`. Turns of one conversation come one after
    the other. Raises `Problem` for a conversation that is not there, `Busy` while another process works on it.
    """

    def __init__(self, conversations: Conversations, wanted: Wanted, caller: Caller) -> None:
        self._conversations = conversations
        self._wanted = wanted
        self._caller = caller
        self._channel = Channel()
        self._stack = AsyncExitStack()
        self._over = asyncio.Event()
        self._kept: Kept | None = None
        self._item: int | None = None
        self._message_id = new_id()
        self._following = self._unwanted = self._left = False
        self.session_id = SessionId(wanted.session_id) or wanted.new_id or new_session_id()
        self.turn_id: TurnId | None = None

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.leave()

    async def __aiter__(self) -> AsyncIterator[TurnEvent]:
        while (event := await self._channel.next()) is not None:
            yield event

    @property
    def model(self) -> str:
        """The model that answers."""
        return self._opened.chat.model

    @property
    def questions(self) -> Questions:
        """What the turn asks, where somebody attends."""
        return self._opened.chat.questions

    def stop(self) -> bool:
        """Stop it, as a person would; ``False`` when it does not run."""
        return self.turn_id is not None and not self._over.is_set() and self._opened.chat.conversation.stop()

    async def begin(self) -> None:
        """Take the message, and begin to work on it."""
        self._conversations.running += 1
        try:
            await self._begin()
        except BaseException:
            if not self._left:
                await self._let_go()
            if not self._wanted.session_id and self.turn_id is None:
                self._conversations.forget(self.session_id)
            raise

    async def leave(self) -> None:
        """Let go of the conversation; a turn that is not over is stopped first."""
        if self._left:
            return
        self._left = True
        if self._over.is_set():
            await self._let_go()
        else:
            await asyncio.shield(self._conversations.jobs.create_task(self._stopped()))

    def hear(self, event: TurnEvent) -> None:
        """Pass on the events of this turn, and of no other that may come before it."""
        if self._following and isinstance(event, TextAdded):  # most of them, by far
            self._pass_on(event)
        elif isinstance(event, TurnBegan) and self.turn_id is None and self._is_own(event):
            self.turn_id, self._following = event.turn_id, True
            self._pass_on(event)
            if self._unwanted:
                asyncio.get_running_loop().call_soon(self._opened.chat.conversation.stop)
        elif self._following:
            self._pass_on(event)
            if isinstance(event, TurnAnswered | TurnStopped | TurnOutOfBudget | TurnFailed):
                self._end()

    def _pass_on(self, event: TurnEvent) -> None:
        self._channel.put(event)
        if self._wanted.heard is not None:
            self._wanted.heard(event)

    def take_note(self, tx: Transaction, ending: Ending) -> None:
        """Do what the route wants to be done with the end."""
        if ending.turn_id != self.turn_id:
            return
        if not self._wanted.session_id:
            tx.sessions.update(self.session_id, SessionChanges(model=self.model))
        if self._wanted.ended is not None:
            self._wanted.ended(tx, ending)

    @property
    def _opened(self) -> Kept:
        if self._kept is None:
            raise Refused("The turn has not begun.")
        return self._kept

    def _is_own(self, event: TurnBegan) -> bool:
        return self._item is None or self._item in event.items

    async def _begin(self) -> None:
        new = not self._wanted.session_id
        origin = self._origin if new else await self._conversations.house.store.read(self._found)
        using = self._conversations.using(self.session_id, origin, self._wanted.model, self._caller, begins=new)
        kept = self._kept = await self._stack.enter_async_context(using)
        await kept.lock.acquire()
        self._stack.callback(kept.lock.release)
        if not new:
            await self._finish_before()
        self._conversations.check_open()
        if new:
            self._conversations.announce(kept)
        kept.ear.listener = self
        kept.chat.conversation.wake(self._make if new else self._admit)
        self._conversations.jobs.create_task(self._watch(kept))
        await self._made()

    @property
    def _origin(self) -> Origin:
        return Origin(self._caller.name, self._wanted.instructions)

    async def _made(self) -> None:
        """Wait until the message is stored and its turn has begun; whoever is gone by then wants neither."""
        try:
            await self._channel.ready()
        except asyncio.CancelledError:
            await self.leave()
            raise

    def _make(self, tx: Transaction) -> None:
        """Begin a conversation with all that was said in it, and with what is said now."""
        session = tx.sessions.create(NewSession(source=SOURCE, id=self.session_id, owner=self._caller.owner))
        keep_origin(tx, session.id, self._origin)
        if self._wanted.history:
            tx.messages.append(session.id, self._wanted.history)
        self._added(tx, session.id)

    def _found(self, tx: Transaction) -> Origin:
        session = entered(tx, self._wanted.session_id, self._caller)
        return read_origin(tx, session.id) or Origin()

    def _added(self, tx: Transaction, session_id: SessionId) -> int | None:
        if self._wanted.begun is not None:
            self._wanted.begun(tx, session_id)
        if self._wanted.message is None:
            return None
        item = tx.inbox.add(
            arrival(session_id, SOURCE, self._message_id, self._wanted.message, sender=api_sender(self._caller.name))
        )
        return item.id if item else None

    async def _finish_before(self) -> None:
        """Finish what an earlier turn left unfinished: what is said now comes behind it."""
        conversation = self._opened.chat.conversation
        unfinished = conversation.busy or await self._conversations.house.store.read(self._is_unfinished)
        self._conversations.check_open()
        if unfinished:
            await conversation.work_off()

    def _is_unfinished(self, tx: Transaction) -> bool:
        return bool(tx.inbox.unsettled(self.session_id) or tx.turns.find(self.session_id, running=True, limit=1))

    def _admit(self, tx: Transaction) -> None:
        """Take the message, and the lane with it: nobody else can come between."""
        self._item = self._added(tx, self.session_id)

    async def _watch(self, kept: Kept) -> None:
        """See to it that nobody waits for events of a lane that came to rest without them."""
        try:
            await kept.chat.conversation.settled()
        except TalariaError as error:
            self._end(error)
            await self._withdraw()
        else:
            self._end()

    def _end(self, error: TalariaError | None = None) -> None:
        self._following = False
        self._channel.close(error)
        self._over.set()

    async def _stopped(self) -> None:
        """Stop the turn, wherever it is, and let go then."""
        self._unwanted = True
        try:
            if not self.stop():
                await self._withdraw()
            await self._over.wait()
        finally:
            await self._let_go()

    async def _withdraw(self) -> None:
        """Take the message back, unless its turn has begun."""
        if self._item is not None:
            await self._conversations.house.store.write(self._settle_waiting)

    def _settle_waiting(self, tx: Transaction) -> None:
        unsettled = tx.inbox.unsettled(self.session_id)
        tx.inbox.settle([one.id for one in unsettled if one.state == "waiting" and one.external_id == self._message_id])

    async def _let_go(self) -> None:
        self._left = True
        self._conversations.running -= 1
        if self._kept is not None and self._kept.ear.listener is self:
            self._kept.ear.listener = None
        await self._stack.aclose()
