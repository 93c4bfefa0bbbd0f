"""Memory flush: before a session is reset, the agent saves what is worth remembering of it."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, tzinfo
from pathlib import Path

from talaria.contracts.store import Transaction
from talaria.contracts.stores.bindings import Binding
from talaria.core.errors import TalariaError
from talaria.core.ids import WorkerId
from talaria.core.messages import Message, Text
from talaria.gateway.chats.assignment import claim_chat
from talaria.gateway.session_reset import (
    ResetReason,
    build_reset_policy,
    find_last_activity,
    find_reset_reason,
    mark_flushed,
    read_flush_reason,
)
from talaria.runtime.active_session import SessionOpener
from talaria.runtime.open_session import OpenRequest
from talaria.sessions.keys import build_key_prefix
from talaria.sessions.transcript_export import PROGRAM
from talaria.settings.sections.chats import ChatNetworkSettings

_POLL_INTERVAL = 60.0
_BATCH_SIZE = 8
_TURN_SECONDS = 300.0
SOURCE = "farewell"
FLUSH_PROMPT = (
    "This message is automatic, not from a person. This conversation is over; the next message starts a new one that"
    " knows nothing about it. If anything here is worth remembering and not in your memory yet, save it now with the"
    " memory tool. Nobody reads your reply: answer with one word."
)

log = logging.getLogger(__name__)


class MemoryFlusher:
    """Worker that finds sessions due for a reset and runs their last turn.

    ``networks`` returns the current settings of the networks.
    """

    def __init__(
        self,
        opener: SessionOpener,
        worker: WorkerId,
        folder: Path,
        networks: Callable[[], dict[str, ChatNetworkSettings]],
        zone: Callable[[], tzinfo | None],
        jobs: asyncio.TaskGroup,
    ) -> None:
        self._opener = opener
        self._worker = worker
        self._folder = folder
        self._networks = networks
        self._zone = zone
        self._jobs = jobs

    async def serve(self) -> None:
        """Look for due sessions once a minute, until cancelled."""
        while True:
            try:
                await self.look(datetime.now(UTC))
            except TalariaError as error:
                log.warning("couldn't look for ended conversations: %s", error)
            await asyncio.sleep(_POLL_INTERVAL)

    async def look(self, now: datetime) -> int:
        """Flush the memory of a few sessions that are due, and return their number."""
        networks = {name: one for name, one in self._networks().items() if one.reset != "never"}
        if not networks:
            return 0
        ended = await self._opener.store.write(lambda tx: self._mark_ended(tx, networks, now))
        async with asyncio.TaskGroup() as group:
            for binding in ended:
                group.create_task(self._flush(binding))
        return len(ended)

    def _mark_ended(self, tx: Transaction, networks: dict[str, ChatNetworkSettings], now: datetime) -> list[Binding]:
        """Mark due sessions, a few at a time; the next message in their chats starts a new session."""
        found: list[Binding] = []
        bindings = (one for name in networks for one in tx.bindings.under(build_key_prefix(name)))
        for binding in bindings:
            reason = self._find_reason(tx, binding, networks[binding.address.platform], now)
            if reason and claim_chat(tx, binding.key, self._worker):
                mark_flushed(tx, binding, reason)
                found.append(binding)
            if len(found) == _BATCH_SIZE:
                break
        return found

    def _find_reason(
        self, tx: Transaction, binding: Binding, network: ChatNetworkSettings, now: datetime
    ) -> ResetReason | None:
        session = tx.sessions.get(binding.session_id)
        if session is None or not session.message_count or tx.inbox.unsettled(session.id):
            return None
        if read_flush_reason(tx, binding) is not None or tx.turns.find(session.id, running=True, limit=1):
            return None
        return find_reset_reason(build_reset_policy(network), find_last_activity(session, binding), now, self._zone())

    async def _flush(self, binding: Binding) -> None:
        """Run one more turn in a session without showing it in the chat."""
        request = OpenRequest(
            source=binding.address.platform,
            folder=self._folder,
            resume=binding.session_id,
            attended=False,
            titled=False,
        )
        message = Message(role="user", parts=(Text(FLUSH_PROMPT),), at=datetime.now(UTC), author=PROGRAM)
        try:
            async with asyncio.timeout(_TURN_SECONDS), AsyncExitStack() as stack:
                chat = await self._opener.open_session(request, stack, self._jobs)
                await chat.conversation.say(
                    message, source=SOURCE, external_id=f"{binding.session_id}:{binding.bound_at}"
                )
        except (TalariaError, TimeoutError) as error:
            log.warning("session %s: couldn't save memories: %s", binding.session_id, error)
