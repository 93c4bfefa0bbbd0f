"""Handoff target: threads, session keys and chats of a gateway for sessions that are handed over to it."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from msgspec import structs

from talaria.access.people import find_owner_id
from talaria.contracts.platform import Platform
from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Address
from talaria.core.errors import PlatformError, Rejected, SlowDown, StoreError
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId, TurnId
from talaria.gateway.chats.assignment import claim_chat
from talaria.gateway.chats.registry import ChatRegistry
from talaria.gateway.chats.remote_turn import MovedTurn, RemoteTurnView, find_remote_turns
from talaria.gateway.outbound.rate_limit import call_with_timeout
from talaria.handoff.handoff import HandoffDestination
from talaria.handoff.prompts import NO_HOME_CHAT
from talaria.sessions.keys import build_session_key
from talaria.settings.model import Settings
from talaria.settings.sections.chats import ChatNetworkSettings

_CALL_SECONDS = 15.0
_THREAD_SECONDS = 25.0  # seconds for creating a thread, including the pauses that the network asks for
_SHORTEST_PAUSE = 0.1

log = logging.getLogger(__name__)


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
        self._typed_command = typed_command

    @property
    def platforms(self) -> Collection[str]:
        """The networks that this worker serves."""
        return self._platforms.keys()

    def run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the gateway at the latest."""
        self._chats.start(work)

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
        network = settings.platforms.get(platform, ChatNetworkSettings())
        # The key is that of the owner's next message there, even if others may talk in that chat.
        owner = structs.replace(chat, user_id=chat.user_id or find_owner_id(settings, platform))
        key = build_session_key(
            owner,
            group_sessions_per_user=network.group_sessions_per_user,
            thread_sessions_per_user=network.thread_sessions_per_user,
        )
        return HandoffDestination(chat, key, bool(thread_id), owner.user_id)

    def assign(self, tx: Transaction, destination: HandoffDestination) -> None:
        """Make this worker the one that serves the destination."""
        claim_chat(tx, destination.key, self._chats.worker)

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
        self._chats.start(RemoteTurnView(self._store, self._chats, turn).show())


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
