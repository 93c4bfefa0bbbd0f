"""Destination of handoffs on chat networks: threads, chats, and turns that another process still runs."""

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, structs

from talaria.access.policy import find_owner_id
from talaria.access.routes import BY_HANDOFF, ROUTED_PERSONA
from talaria.contracts.platform import Platform
from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.errors import PlatformError, Rejected, SlowDown, StoreError, TalariaError
from talaria.core.events import TurnBegan, TurnEnd, TurnEvent
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId, TurnId, WorkerId
from talaria.gateway.chats.chat import Chat
from talaria.gateway.chats.registry import ChatRegistry
from talaria.gateway.outbound.message_writer import call_with_timeout
from talaria.handoff.service import NO_HOME_CHAT, HandoffDestination
from talaria.runtime.live.control import InboxChanged, StopTurn, send_control_message
from talaria.runtime.live.feed import FeedEvent, QuestionClosed
from talaria.runtime.live.remote import RemoteAnswers, RemoteWatcher
from talaria.runtime.turns import find_redirect, list_redirected_turns
from talaria.runtime.workers import claim_chat, is_leased, session_lease_name
from talaria.sessions.keys import build_session_key
from talaria.settings.model import Settings
from talaria.settings.sections.chats import ChatNetworkSettings, find_room

_POLL_INTERVAL = 1.0
_CALL_SECONDS = 15.0
_THREAD_SECONDS = 25.0  # seconds for creating a thread, including the pauses that the network asks for
_SHORTEST_PAUSE = 0.1

log = logging.getLogger(__name__)


class MovedTurn(Struct, frozen=True):
    """Turn that another process runs for a chat of this worker."""

    session_id: SessionId
    turn_id: TurnId
    route: ReplyRoute
    key: str
    address: Address


class GatewayHandoffTarget:
    """Implementation of `HandoffTarget` for the networks of one gateway worker.

    ``settings`` returns the current ones; ``typed_command`` returns how a command is typed on a network.
    """

    def __init__(
        self,
        store: Store,
        chats: ChatRegistry,
        platforms: Mapping[str, Platform],
        settings: Callable[[], Settings],
        typed_command: Callable[[str, str], str],
    ) -> None:
        self._store = store
        self._chats = chats
        self._platforms = platforms
        self._settings = settings
        self._has_personas = False
        self._typed_command = typed_command

    @property
    def platforms(self) -> Collection[str]:
        """The networks that this worker serves."""
        return self._platforms.keys()

    def run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the gateway at the latest."""
        self._chats.jobs.create_task(work)

    async def create_thread(self, chat: Address, name: str) -> str:
        """Create a thread in a chat and return its id; empty if that fails or is not supported."""
        try:
            created = _create_thread(self._platforms[chat.platform], chat.chat_id, name)
            return await call_with_timeout(created, _THREAD_SECONDS) or ""
        except PlatformError as error:
            log.info("couldn't create a thread in chat %s on %s: %s", chat.chat_id, chat.platform, error)
            return ""

    async def resolve(self, platform: str, chat: Address | None, thread_id: str) -> HandoffDestination:
        """Return the destination; raises `TalariaError` if it cannot be reached or no home chat is set."""
        if chat is None:
            sethome = self._typed_command(platform, "sethome")
            raise Rejected(NO_HOME_CHAT.format(platform=platform_label(platform), sethome=sethome))
        if thread_id:
            kind = "private" if chat.chat_type == "private" else "thread"
            chat = structs.replace(chat, thread_id=thread_id, chat_type=kind)
        if self._platforms[platform].abilities.typing:  # shows that a reply is coming; fails if the chat is gone
            with suppress(SlowDown):
                await call_with_timeout(self._platforms[platform].show_typing(chat), _CALL_SECONDS)
        settings = self._settings()
        self._has_personas = bool(settings.personas)
        network = settings.platforms.get(platform, ChatNetworkSettings())
        room = find_room(network.rooms, chat) if network.rooms else None
        # The key is that of the owner's next message there, even if others may talk in that chat.
        owner = structs.replace(chat, user_id=chat.user_id or find_owner_id(settings, platform))
        key = build_session_key(
            owner,
            group_sessions_per_user=network.group_sessions_per_user and room is None,
            thread_sessions_per_user=network.thread_sessions_per_user and room is None,
        )
        return HandoffDestination(chat, key, bool(thread_id), owner.user_id)

    def assign(self, tx: Transaction, destination: HandoffDestination) -> None:
        """Make this worker the one that serves the destination."""
        claim_chat(tx, destination.key, self._chats.worker)
        if self._has_personas:
            ROUTED_PERSONA.write(tx, destination.key, BY_HANDOFF)

    async def start(self, session_id: SessionId, destination: HandoffDestination, turn_id: TurnId | None) -> None:
        """Continue the session there; a moved turn is shown there while another process runs it."""
        if turn_id is None:
            await self._chats.wake(session_id, destination.key, destination.address)
        else:
            self._show(MovedTurn(session_id, turn_id, destination.route, destination.key, destination.address))

    async def show_remote_turns(self) -> None:
        """Show the turns that were moved to chats of this worker before this gateway started."""
        try:
            turns = await self._store.write(lambda tx: find_remote_turns(tx, self._chats.worker, self._platforms))
        except StoreError as error:
            log.warning("can't show turns of other processes: %s", error)
            return
        for turn in turns:
            self._show(turn)

    def _show(self, turn: MovedTurn) -> None:
        self._chats.jobs.create_task(RemoteTurnView(self._store, self._chats, turn).show())


async def _create_thread(platform: Platform, chat_id: str, name: str) -> str | None:
    """Create a thread, waiting as long as the network asks for between attempts."""
    while True:
        try:
            return await call_with_timeout(platform.create_handoff_thread(chat_id, name), _CALL_SECONDS)
        except SlowDown as error:
            pause = error.retry_after.total_seconds()
            if pause > _THREAD_SECONDS:
                raise
            await asyncio.sleep(max(pause, _SHORTEST_PAUSE))


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
        self._answers = RemoteAnswers(store, moved.session_id, chats.jobs.create_task)

    async def show(self) -> None:
        """Show the turn, including its text so far, then process the pending messages of the session."""
        key, address = self._moved.key, self._moved.address
        watch = RemoteWatcher(self._store, self._session_id, self._events.put_nowait)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch.follow())
                async with self._chats.using(key, address, self._session_id) as chat:
                    chat.notify_remote_turn, chat.active_session.remote_questions = self.signal_turn, self._answers
                    try:
                        await self._follow(chat)
                    finally:
                        chat.notify_remote_turn = chat.active_session.remote_questions = None
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
            event = await self._wait_for_next(next_check - loop.time())
            if event is not None:
                is_over = self._show(chat, event)
            if loop.time() >= next_check:
                is_over = is_over or not await self._store.read(self._is_current)
                next_check = loop.time() + _POLL_INTERVAL
        if not chat.at_work:
            chat.view.leave()

    async def _wait_for_next(self, seconds: float) -> FeedEvent | None:
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
        chat.show_event(event, self._session_id, self._answers)

    def _is_current(self, tx: Transaction) -> bool:
        """Return whether the turn is still running and its reply is sent to this chat."""
        running = any(turn.id == self._moved.turn_id for turn in tx.turns.find(self._session_id, running=True))
        now = find_redirect(tx, self._session_id, self._moved.turn_id)
        return running and now is not None and now.route == self._moved.route
