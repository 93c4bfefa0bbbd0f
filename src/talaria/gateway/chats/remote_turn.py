"""View of a turn that another process runs, shown in the chat to which its session has moved."""

import asyncio
import logging
from collections.abc import Container

from msgspec import Struct, structs

from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.errors import TalariaError
from talaria.core.events import TurnBegan, TurnEnd, TurnEvent
from talaria.core.ids import SessionId, TurnId, WorkerId
from talaria.gateway.chats.assignment import claim_chat
from talaria.gateway.chats.chat import Chat
from talaria.gateway.chats.registry import ChatRegistry
from talaria.runtime.leases import is_leased, session_lease_name
from talaria.runtime.live.control import InboxChanged, StopTurn, send_control_message
from talaria.runtime.live.feed import FeedEvent, QuestionClosed
from talaria.runtime.live.remote import RemoteAnswers, RemoteWatcher
from talaria.runtime.rebind import find_redirect, list_redirected_turns

_POLL_INTERVAL = 1.0

log = logging.getLogger(__name__)


class MovedTurn(Struct, frozen=True):
    """Turn that another process runs for a chat of this worker."""

    session_id: SessionId
    turn_id: TurnId
    route: ReplyRoute
    key: str
    address: Address


def find_remote_turns(tx: Transaction, worker: WorkerId, platforms: Container[str]) -> list[MovedTurn]:
    """Return the turns redirected to chats of this worker that another process is running.

    Claims chats that no live worker owns.
    """
    found = []
    for session_id, moved in list_redirected_turns(tx):
        at_work = is_leased(tx, session_lease_name(session_id))
        for binding in tx.bindings.of_session(session_id)[:1] if at_work else ():
            ours = binding.address.platform in platforms and claim_chat(tx, binding.key, worker)
            if ours and moved.route is not None:
                found.append(MovedTurn(session_id, moved.turn_id, moved.route, binding.key, binding.address))
    return found


class RemoteTurnView:
    """View of one remote turn, until it ends or this worker resumes it itself."""

    def __init__(self, store: Store, chats: ChatRegistry, moved: MovedTurn) -> None:
        self._store = store
        self._chats = chats
        self._moved = moved
        self._session_id = moved.session_id
        self._events: asyncio.Queue[FeedEvent] = asyncio.Queue()
        self._answers = RemoteAnswers(store, moved.session_id, chats.start)

    async def show(self) -> None:
        """Show the turn, including its text so far, then process the pending messages of the session."""
        key, address = self._moved.key, self._moved.address
        watch = RemoteWatcher(self._store, self._session_id, self._events.put_nowait)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch.follow())
                async with self._chats.using(key, address, self._session_id) as chat:
                    chat.elsewhere, chat.active_session.remote_questions = self.signal_turn, self._answers
                    try:
                        await self._follow(chat)
                    finally:
                        chat.elsewhere = chat.active_session.remote_questions = None
                watching.cancel()
        except* TalariaError as errors:
            log.warning("session %s: can't show its turn: %s", self._session_id, errors.exceptions[0])
        finally:
            self._answers.close_all()
        if not self._chats.closed:
            await self._chats.wake(self._session_id, key, address)

    async def signal_turn(self, busy: str) -> None:
        """Signal a new message to the turn: by ``busy`` it joins, interrupts or waits for the next turn."""
        await send_control_message(
            self._store, self._session_id, StopTurn() if busy == "interrupt" else InboxChanged(steered=busy == "steer")
        )

    async def _follow(self, chat: Chat) -> None:
        loop = asyncio.get_running_loop()
        is_over, next_check = False, loop.time() + _POLL_INTERVAL
        while not (is_over or chat.at_work or self._chats.closed):
            event = await self._next(next_check - loop.time())
            if event is not None:
                is_over = self._show(chat, event)
            if loop.time() >= next_check:
                is_over = is_over or not await self._store.read(self._is_current)
                next_check = loop.time() + _POLL_INTERVAL
        if not chat.at_work:
            chat.view.leave()

    async def _next(self, seconds: float) -> FeedEvent | None:
        """Return the next event, or ``None`` after this many seconds."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                return await self._events.get()
        except TimeoutError:
            return None

    def _show(self, chat: Chat, event: FeedEvent) -> bool:
        """Show an event and return whether the turn is over."""
        self._answers.note(event)
        match event:
            case _ if chat.at_work:
                return True
            case QuestionClosed():
                pass
            case TurnBegan() if event.turn_id != self._moved.turn_id:
                return True
            case TurnBegan():
                self._publish(chat, structs.replace(event, route=self._moved.route))
            case _:
                self._publish(chat, event)
        return isinstance(event, TurnEnd)

    def _publish(self, chat: Chat, event: TurnEvent) -> None:
        chat.view.on_event(event, self._session_id, self._answers)

    def _is_current(self, tx: Transaction) -> bool:
        """Return whether the turn is still running and its reply is sent to this chat."""
        running = any(turn.id == self._moved.turn_id for turn in tx.turns.find(self._session_id, running=True))
        now = find_redirect(tx, self._session_id, self._moved.turn_id)
        return running and now is not None and now.route == self._moved.route
