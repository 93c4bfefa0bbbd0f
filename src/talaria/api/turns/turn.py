"""One turn for one HTTP client: start it, stream its events, and stop it when the client leaves."""

import asyncio
import enum
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from typing import Self

from msgspec import Struct

from talaria.api.front_door import ApiCaller
from talaria.api.turns.session_pool import (
    SOURCE,
    ApiOrigin,
    PooledSession,
    SessionPool,
    read_origin,
    require_session,
    write_origin,
)
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.turns import TurnResult
from talaria.core.errors import TalariaError
from talaria.core.events import (
    TextAdded,
    ToolProgressed,
    TurnBegan,
    TurnEnd,
    TurnEvent,
)
from talaria.core.ids import SessionId, TurnId, new_id, new_session_id
from talaria.core.messages import Message, api_sender
from talaria.runtime.runner import Admission, SessionRunner
from talaria.runtime.turns import make_arrival

_MAX_EVENTS = 512


class TurnEventQueue:
    """Queue of the events of one turn, for one reader.

    Consecutive text that is not read yet becomes one event, so the queue is never longer than the reply. Progress of
    tools is dropped where the reader is too slow.
    """

    def __init__(self) -> None:
        self._events: deque[TurnEvent] = deque()
        self._error: TalariaError | None = None
        self._closed = False
        self._waiting: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: TurnEvent) -> None:
        """Add an event."""
        if self._closed:
            return
        last = self._events[-1] if self._events else None
        if isinstance(event, TextAdded) and isinstance(last, TextAdded):
            self._events[-1] = TextAdded(last.text + event.text)
        elif len(self._events) < _MAX_EVENTS or not isinstance(event, ToolProgressed):
            self._events.append(event)
        self._wake()

    def close(self, error: TalariaError | None = None) -> None:
        """End the queue after the events in it, with this error if given."""
        if not self._closed:
            self._closed, self._error = True, error
            self._wake()

    async def wait_for_event(self) -> bool:
        """Wait for an event; return ``False`` at the end, or raise the error that ended the queue."""
        while not self._events and not self._closed:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        if not self._events and self._error is not None:
            raise self._error
        return bool(self._events)

    async def get_next_event(self) -> TurnEvent | None:
        """Return the next event; ``None`` at the end, or raise the error that ended the queue."""
        return self._events.popleft() if await self.wait_for_event() else None

    async def drain(self) -> None:
        """Discard events until the queue ends, with or without an error."""
        with suppress(TalariaError):
            while await self.get_next_event() is not None:
                pass

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


OnTurnStart = Callable[[Transaction, SessionId], None]
OnTurnEnd = Callable[[Transaction, TurnResult], None]


class TurnRequest(Struct, frozen=True, kw_only=True):
    """The turn that a route asks for.

    With a ``session_id`` that session continues. Otherwise a new one starts, with ``instructions`` in its prompt and
    ``history`` as its transcript, under ``new_id`` if that is given. Without a ``message`` the pending messages of the
    session are processed. ``begun`` runs in the transaction that stores the message, ``ended`` in the one that ends its
    turn; both may run again, so they must have no effects but on the store. ``on_event`` is called with each event as
    it happens, before the reader gets it.
    """

    message: Message | None
    session_id: str = ""
    new_id: SessionId | None = None
    instructions: str = ""
    history: tuple[Message, ...] = ()
    model: str = ""
    begun: OnTurnStart | None = None
    ended: OnTurnEnd | None = None
    on_event: Callable[[TurnEvent], object] | None = None


class ApiTurnState(enum.Enum):
    """The stage of an API turn.

    ``WAITING`` for its session or its turn; ``FOLLOWING`` the running turn; ``ABANDONED`` by a client that left before
    the end, so that it is being stopped; ``ENDED``, with no further events.
    """

    WAITING = "waiting"
    FOLLOWING = "following"
    ABANDONED = "abandoned"
    ENDED = "ended"


class ApiTurn:
    """One turn as an asynchronous context manager: it starts on entry and is stopped on an exit before its end.

    Iterate over it for its events. Turns of one session run one after the other. Entry raises `Problem` for an unknown
    session and `Busy` while another process runs its turns.
    """

    def __init__(self, session_pool: SessionPool, request: TurnRequest, caller: ApiCaller) -> None:
        self._session_pool = session_pool
        self._store = session_pool.application.store
        self._request = request
        self._caller = caller
        self._state = ApiTurnState.WAITING
        self._queue = TurnEventQueue()
        self._stack = AsyncExitStack()
        self._conversation: SessionRunner | None = None
        self._item: int | None = None
        self._message_id = new_id()
        self._turn_id: TurnId | None = None
        self._model = ""
        self.session_id = SessionId(request.session_id) or request.new_id or new_session_id()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.enter_context(self._session_pool.count_turn())
            stack.callback(self._forget_unstored)
            pooled = await self._hold_session(stack)
            stack.enter_context(pooled.listening(self))
            self._start(pooled)
            self._stack = stack.pop_all()
        try:
            await self._queue.wait_for_event()  # the message is stored then, and its turn runs
        except BaseException:
            await self._release_session()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._release_session()

    async def _release_session(self) -> None:
        """Release the session; a turn that has not ended is stopped first.

        That happens in a task of its own, so that it is completed even if the caller is cancelled.
        """
        if self._state is ApiTurnState.ENDED:
            await self._stack.aclose()
        else:
            self._state = ApiTurnState.ABANDONED
            await asyncio.shield(self._session_pool.jobs.create_task(self._stop_and_release()))

    async def __aiter__(self) -> AsyncIterator[TurnEvent]:
        while (event := await self._queue.get_next_event()) is not None:
            yield event

    def handle_event(self, event: TurnEvent) -> None:
        """Queue the events of this turn; skip those of turns before it."""
        if self._state is ApiTurnState.ENDED:
            return
        if self._turn_id is not None:
            self._forward(event)
            if not isinstance(event, TextAdded) and isinstance(event, TurnEnd):
                self._end()
        elif isinstance(event, TurnBegan) and (self._item is None or self._item in event.items):
            self._follow(event)

    def take_note(self, tx: Transaction, result: TurnResult) -> None:
        """Record the end of this turn, in its transaction."""
        if result.turn_id != self._turn_id:
            return
        if self._request.ended is not None:
            self._request.ended(tx, result)

    async def _hold_session(self, stack: AsyncExitStack) -> PooledSession:
        """Open the session and lock it, with all its earlier turns finished."""
        new = not self._request.session_id
        origin = self._origin if new else await self._store.read(self._read_origin)
        using = self._session_pool.using(self.session_id, origin, self._request.model, self._caller, begins=new)
        pooled = await stack.enter_async_context(using)
        await stack.enter_async_context(pooled.lock)
        if not new:
            await self._finish_earlier(pooled.chat.conversation)
        self._session_pool.check_open()
        if new:
            self._session_pool.announce(pooled)
        return pooled

    async def _finish_earlier(self, conversation: SessionRunner) -> None:
        """Finish interrupted and pending turns: the message of this one comes after them."""
        unfinished = conversation.busy or await self._store.read(self._is_unfinished)
        self._session_pool.check_open()
        if unfinished:
            await conversation.run_pending_turns()

    def _is_unfinished(self, tx: Transaction) -> bool:
        return bool(tx.inbox.list_unsettled(self.session_id) or tx.turns.find(self.session_id, running=True, limit=1))

    def _start(self, pooled: PooledSession) -> None:
        """Have the message stored in the transaction that begins its turn."""
        conversation = self._conversation = pooled.chat.conversation
        self._model = pooled.chat.model
        admit = self._admit if self._request.session_id else self._create_session
        conversation.submit(Admission(admit, self._remember_item))
        self._session_pool.jobs.create_task(self._watch(conversation))

    def _create_session(self, tx: Transaction) -> int | None:
        session = tx.sessions.create(
            NewSession(source=SOURCE, id=self.session_id, model=self._model, owner=self._caller.owner)
        )
        write_origin(tx, session.id, self._origin)
        if self._request.history:
            tx.messages.append(session.id, self._request.history)
        self._add_message(tx, session.id)
        return None  # any turn of a new session is this one

    def _admit(self, tx: Transaction) -> int | None:
        return self._add_message(tx, self.session_id)

    def _remember_item(self, item: int | None) -> None:
        self._item = item

    def _add_message(self, tx: Transaction, session_id: SessionId) -> int | None:
        if self._request.begun is not None:
            self._request.begun(tx, session_id)
        if self._request.message is None:
            return None
        item = tx.inbox.add(
            make_arrival(
                session_id, SOURCE, self._message_id, self._request.message, sender=api_sender(self._caller.name)
            )
        )
        return item.id if item else None

    @property
    def _origin(self) -> ApiOrigin:
        return ApiOrigin(self._caller.name, self._request.instructions)

    def _read_origin(self, tx: Transaction) -> ApiOrigin:
        session = require_session(tx, self._request.session_id, self._caller)
        return read_origin(tx, session.id) or ApiOrigin()

    async def _watch(self, conversation: SessionRunner) -> None:
        """End this turn when the session becomes idle, whether or not its events arrived."""
        try:
            await conversation.wait_until_idle()
        except TalariaError as error:
            self._end(error)
            await self._withdraw()
        else:
            self._end()

    def _follow(self, event: TurnBegan) -> None:
        self._turn_id = event.turn_id
        self._forward(event)
        if self._state is ApiTurnState.ABANDONED:
            asyncio.get_running_loop().call_soon(self._stop)
        else:
            self._state = ApiTurnState.FOLLOWING

    def _forward(self, event: TurnEvent) -> None:
        self._queue.put(event)
        if self._request.on_event is not None:
            self._request.on_event(event)

    def _end(self, error: TalariaError | None = None) -> None:
        self._state = ApiTurnState.ENDED
        self._queue.close(error)

    async def _stop_and_release(self) -> None:
        """Stop the turn, or withdraw its message, and release the session after its end."""
        async with self._stack:
            if self._turn_id is None or not self._stop():
                await self._withdraw()
            await self._queue.drain()

    def _stop(self) -> bool:
        """Stop this turn if it is running; the next turn of the session may belong to someone else."""
        conversation = self._conversation
        if conversation is None or conversation.turn is None or conversation.turn.turn_id != self._turn_id:
            return False
        return conversation.stop()

    async def _withdraw(self) -> None:
        """Settle the message unless its turn has begun."""
        if self._item is not None:
            await self._store.write(self._settle_pending)

    def _settle_pending(self, tx: Transaction) -> None:
        unsettled = tx.inbox.list_unsettled(self.session_id)
        tx.inbox.settle([one.id for one in unsettled if one.state == "waiting" and one.external_id == self._message_id])

    def _forget_unstored(self) -> None:
        """Close a new session that was never stored."""
        if not self._request.session_id and self._turn_id is None:
            self._session_pool.forget(self.session_id)
