"""A place at which one conversation is open at a time, and another can be opened in its stead."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from msgspec import structs

from talaria.contracts.processes import end_processes
from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.core.events import TurnEvent
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import Message, Part
from talaria.core.senders import UNKNOWN
from talaria.sessions.chat import Chat, ChatWish
from talaria.sessions.context import place_context, set_current_session_id
from talaria.sessions.conversation import Conversation
from talaria.sessions.departure import Departure, cancel_handoff
from talaria.sessions.outgoing import OUTBOX
from talaria.sessions.prospect import Prospect
from talaria.sessions.questions import OpenQuestions
from talaria.sessions.relocation import bring, carry_over, handoff_under_way
from talaria.sessions.waking import tell

Emit = Callable[[TurnEvent], None]
Leaving = Callable[[Transaction, SessionId], None]


class ChatOpener(Protocol):
    """Opens conversations on one store."""

    @property
    def store(self) -> Store:
        """Where they are kept."""

    async def open_chat(self, wish: ChatWish, emit: Emit, stack: AsyncExitStack, jobs: asyncio.TaskGroup) -> Chat:
        """Open a conversation whose tasks belong to ``jobs``; leaving ``stack`` closes it and all it opened."""

    async def prospect(self, wish: ChatWish) -> Prospect:
        """Return what the agent of this conversation would be, if it were opened now."""


class Seat:
    """One place; ``wish`` says how conversations are opened there.

    ``key`` and ``address`` are those of a place that is bound to its conversation, so that it is found again. A place
    without an address is the only one of its process, a terminal: the environment tells which conversation is open.
    ``go_on`` begins with what was left unfinished in a conversation, or was brought along.
    ``departure`` is the handoff that somebody here has asked for; ``distant`` is what a turn has asked that another
    process runs for this place.
    """

    def __init__(
        self,
        opener: ChatOpener,
        wish: ChatWish,
        emit: Emit,
        jobs: asyncio.TaskGroup,
        *,
        key: str = "",
        address: Address | None = None,
    ) -> None:
        self.opener = opener
        self.go_on: Callable[[Conversation], None] = Conversation.wake
        self.wish = wish
        self.jobs = jobs
        self.key = key
        self._emit = emit
        self._address = address
        self._stack = AsyncExitStack()
        self._chat: Chat | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self._closed = False
        self.departure = Departure()
        self.distant: OpenQuestions | None = None

    @property
    def store(self) -> Store:
        """Where conversations are kept."""
        return self.opener.store

    @property
    def chat(self) -> Chat:
        """The conversation that is open."""
        if self._chat is None:
            raise Refused("No conversation is open here yet.")
        return self._chat

    @property
    def is_open(self) -> bool:
        """Whether a conversation is open; not while one is exchanged for another."""
        return self._chat is not None

    @property
    def questions(self) -> OpenQuestions:
        """What the running turn has asked, whichever process runs it."""
        return self.distant or self.chat.questions

    @property
    def session_id(self) -> SessionId:
        """Which conversation is open."""
        return self.chat.conversation.session_id

    @property
    def busy(self) -> bool:
        """Whether a turn is running in it."""
        return self._chat is not None and self._chat.conversation.busy

    async def open(self) -> Chat:
        """Open the conversation that the wish means, and go on with what was left unfinished in it."""
        return await self._open(self.wish)

    async def begin_anew(self, *, leaving: Leaving = end_processes, behind: SessionId | None = None) -> Chat:
        """Leave the conversation for good and begin another: what goes on in its background ends.

        ``leaving`` lets that end in the transaction that leaves it, so that it does whatever happens then. One that
        went elsewhere, which is ``behind`` us then, is left as it is, and only if no other has begun here meanwhile.
        """
        wish = structs.replace(self.wish, resume="", latest=False)
        if behind is not None:
            return await self._part_from(behind, wish)
        left = self._chat
        chat = await self._change_to(wish, leaving)
        if left is not None:
            left.end_work()
        return chat

    async def move_to(self, session_id: SessionId) -> Chat:
        """Leave the conversation and go on with another, which from now on is here and nowhere else."""
        return await self._change_to(structs.replace(self.wish, resume=session_id, latest=False))

    async def renew(self) -> Chat:
        """Open the same conversation anew, if that can be done and is needed: its model or its tools are others now."""
        wish = structs.replace(self.wish, resume=self.session_id, latest=False)
        prospect = await self.opener.prospect(wish)
        if prospect.signature == self.chat.signature:
            self.chat.conversation.ask_with(prospect.effort)
            return await self._begin(self.chat)
        async with self._changing, AsyncExitStack() as stack:
            self._chat = chat = await self._opened(wish, stack)
            before, self._stack = self._stack, stack.pop_all()
            await before.aclose()
            return await self._begin(chat)

    async def settled(self) -> None:
        """Wait until no conversation is being exchanged for another."""
        async with self._changing:
            return

    async def put(self, *parts: Part, sender: str = UNKNOWN, steering: bool = False) -> None:
        """Take what a person says here: for the next turn, or for the one that is running if they began that."""
        message = Message(role="user", parts=parts, at=datetime.now(UTC))
        conversation = self.chat.conversation
        add = conversation.steer if steering and conversation.busy else conversation.put
        await add(message, source=self.wish.source, external_id=new_id(), sender=sender)

    def start_beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin something that outlives the conversation, and ends with the place at the latest."""
        task = self.jobs.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def close(self) -> None:
        """Leave the conversation for good, and cut off what goes on beside it."""
        for task in (beside := tuple(self._beside)):
            task.cancel()
        if beside:
            await asyncio.wait(beside)
        async with self._changing:  # one that is being opened is left as well
            self._closed = True
            await self._leave()
        if self._address is None:
            set_current_session_id("")

    async def release(self) -> None:
        """Let go of the conversation, but not of its folder and processes: `open` finds them again."""
        if self._chat is None:
            return
        self.wish = structs.replace(self.wish, resume=self.session_id, latest=False)
        self._chat.keep_workplace()
        await self._close()

    async def _opened(self, wish: ChatWish, stack: AsyncExitStack) -> Chat:
        if self._closed:
            raise Refused("This place is closed.")
        wish = structs.replace(wish, context=place_context(wish.context, self.key, self._address))
        return await self.opener.open_chat(wish, self._emit, stack, self.jobs)

    async def _open(self, wish: ChatWish) -> Chat:
        async with self._changing, AsyncExitStack() as stack:
            chat = await self._opened(wish, stack)
            self._stack = stack.pop_all()
            return await self._begin(chat)

    async def _change_to(self, wish: ChatWish, leaving: Leaving | None = None) -> Chat:
        """Open another conversation and leave this one then: one that cannot be opened changes nothing."""
        async with self._changing, AsyncExitStack() as stack:
            chat = await self._opened(wish, stack)
            left = self.session_id if self._chat is not None else None
            changed = partial(self._changed, left=left, session_id=chat.conversation.session_id, leaving=leaving)
            unfinished = await self.store.write(changed)
            await self.store.hint(OUTBOX)
            await self._close()
            self._stack = stack.pop_all()
            return await self._begin(chat, unfinished=unfinished)

    async def _part_from(self, session_id: SessionId, wish: ChatWish) -> Chat:
        async with self._changing, AsyncExitStack() as stack:
            if self._chat is None or self.session_id != session_id:
                return self.chat
            chat = await self._opened(wish, stack)
            if not await self.store.write(lambda tx: self._parted(tx, chat.conversation.session_id)):
                return self.chat
            await self._close()
            self._stack = stack.pop_all()
            return await self._begin(chat, unfinished=False)

    async def _begin(self, chat: Chat, *, unfinished: bool | None = None) -> Chat:
        """Go on with what was left unfinished; what is said while this one comes is seen to by whoever takes it in."""
        self._chat = chat
        session_id = chat.conversation.session_id
        if self._address is None:
            set_current_session_id(session_id)
        self.departure.apply(chat.conversation)
        reported = self.wish.lasting and await tell(self.store, session_id, self.key)
        if unfinished is None:
            unfinished, abandoned = await self.store.read(
                lambda tx: (_is_unfinished(tx, session_id), self._is_abandoned(tx, session_id))
            )
            if abandoned:
                await cancel_handoff(self.store, session_id, "the conversation was opened in a terminal again")
        if reported or unfinished:
            self.go_on(chat.conversation)
        chat.conversation.follow()
        return chat

    def _is_abandoned(self, tx: Transaction, session_id: SessionId) -> bool:
        """Return whether a terminal asked for a handoff of this session and is gone: another one opens it now."""
        if self._address is not None or self.departure.session_id == session_id:
            return False
        return handoff_under_way(tx, session_id) is not None

    def _changed(self, tx: Transaction, left: SessionId | None, session_id: SessionId, leaving: Leaving | None) -> bool:
        """Bind the place to another conversation, and tell whether something is to be gone on with in that."""
        bound = tx.bindings.get(self.key)
        bring(tx, session_id, self.key, self._address)
        if left is not None and left != session_id:
            if leaving is not None:
                leaving(tx, left)
            if bound is not None and bound.session_id == left:  # else it goes on elsewhere, with all that waits in it
                carry_over(tx, left, session_id)
            _forget_if_empty(tx, left)
        return _is_unfinished(tx, session_id)

    def _parted(self, tx: Transaction, session_id: SessionId) -> bool:
        if tx.bindings.get(self.key) is not None:  # what was said here behind the move has begun one
            _forget_if_empty(tx, session_id)
            return False
        bring(tx, session_id, self.key, self._address)
        return True

    async def _leave(self) -> None:
        """Close the conversation, if one is open, and forget it if nothing was ever said in it."""
        if self._chat is None:
            return
        session_id = self.session_id
        await self._close()
        await self.store.write(lambda tx: _forget_if_empty(tx, session_id))

    async def _close(self) -> None:
        self._chat = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()


def _is_unfinished(tx: Transaction, session_id: SessionId) -> bool:
    return bool(tx.inbox.unsettled(session_id) or tx.turns.find(session_id, running=True, limit=1))


def _forget_if_empty(tx: Transaction, session_id: SessionId) -> None:
    session = tx.sessions.get(session_id)
    if session is None or session.message_count or session.title or session.parent_id:
        return
    if not tx.inbox.unsettled(session_id):
        tx.sessions.delete(session_id)
