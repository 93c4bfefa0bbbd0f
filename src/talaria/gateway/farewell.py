"""Before a conversation begins anew by itself, the agent keeps what is worth remembering of it."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, tzinfo
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.bindings import Binding
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import TalariaError
from talaria.core.events import TurnEvent
from talaria.core.ids import WorkerId
from talaria.core.messages import Message, Text
from talaria.gateway.keepers import keep
from talaria.gateway.reset import Reason, policy_of, reset_due
from talaria.sessions.chat import ChatWish
from talaria.sessions.seat import ChatOpener
from talaria.sessions.session_keys import keys_of
from talaria.sessions.transcripts import PROGRAM
from talaria.settings.chats import ChatNetwork

_LOOK_AGAIN = 60.0
_AT_ONCE = 8
_SECONDS = 300.0
SOURCE = "farewell"
ASKED = (
    "This is not from a person: this conversation is over, and the next message begins another one, which knows nothing"
    " of it. If something of it is worth remembering and is not in your memory yet, save it there now with the memory"
    " tool. Nobody reads your reply: answer with one word."
)

log = logging.getLogger(__name__)


class _Over(Struct, frozen=True):
    """Why a conversation is over at a place to which it was bound at that time: brought back, it is not any more."""

    reason: Reason
    bound_at: datetime


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Over).decode


def farewell_said(tx: Transaction, binding: Binding) -> Reason | None:
    """Return why a conversation is over of which the agent has kept what it wanted; ``None`` where it is not."""
    entry = tx.state.get(_key(binding))
    over = _decode(entry.value) if entry else None
    return over.reason if over is not None and over.bound_at == binding.bound_at else None


def quiet_since(session: Session, binding: Binding) -> datetime:
    """Return since when nothing has happened in a conversation at a place: that it was brought there is something."""
    return max(session.updated_at, binding.bound_at)


class Farewells:
    """Looks for conversations that are over; ``networks`` are the settings as they are now, by name."""

    def __init__(
        self,
        opener: ChatOpener,
        worker: WorkerId,
        folder: Path,
        networks: Callable[[], dict[str, ChatNetwork]],
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
        """Look again and again, until cancelled."""
        while True:
            try:
                await self.look(datetime.now(UTC))
            except TalariaError as error:
                log.warning("conversations that are over were not looked for: %s", error)
            await asyncio.sleep(_LOOK_AGAIN)

    async def look(self, now: datetime) -> int:
        """Let the agent take its leave where it is time, and return in how many conversations that was."""
        networks = {name: one for name, one in self._networks().items() if one.reset != "never"}
        if not networks:
            return 0
        over = await self._opener.store.write(lambda tx: self._over(tx, networks, now))
        async with asyncio.TaskGroup() as group:
            for binding in over:
                group.create_task(self._say_farewell(binding))
        return len(over)

    def _over(self, tx: Transaction, networks: dict[str, ChatNetwork], now: datetime) -> list[Binding]:
        """Mark conversations as over, a few at a time: what is marked begins anew with the next message there."""
        found: list[Binding] = []
        bindings = (one for name in networks for one in tx.bindings.under(keys_of(name)))
        for binding in bindings:
            reason = self._reason(tx, binding, networks[binding.address.platform], now)
            if reason and keep(tx, binding.key, self._worker):
                tx.state.put(_key(binding), _encode(_Over(reason, binding.bound_at)).decode())
                found.append(binding)
            if len(found) == _AT_ONCE:
                break
        return found

    def _reason(self, tx: Transaction, binding: Binding, network: ChatNetwork, now: datetime) -> Reason | None:
        session = tx.sessions.get(binding.session_id)
        if session is None or not session.message_count or tx.inbox.unsettled(session.id):
            return None
        if farewell_said(tx, binding) is not None or tx.turns.find(session.id, running=True, limit=1):
            return None
        return reset_due(policy_of(network), quiet_since(session, binding), now, self._zone())

    async def _say_farewell(self, binding: Binding) -> None:
        """Take one more turn there, of which nobody hears."""
        wish = ChatWish(
            source=binding.address.platform,
            folder=self._folder,
            resume=binding.session_id,
            attended=False,
            titled=False,
        )
        message = Message(role="user", parts=(Text(ASKED),), at=datetime.now(UTC), author=PROGRAM)
        try:
            async with asyncio.timeout(_SECONDS), AsyncExitStack() as stack:
                chat = await self._opener.open_chat(wish, _unheard, stack, self._jobs)
                await chat.conversation.say(
                    message, source=SOURCE, external_id=f"{binding.session_id}:{binding.bound_at}"
                )
        except (TalariaError, TimeoutError) as error:
            log.warning("session %s: nothing was kept of it in memory: %s", binding.session_id, error)


def _key(binding: Binding) -> str:
    return f"farewell:{binding.session_id}"


def _unheard(event: TurnEvent) -> None:
    """Show nothing of it to anybody."""
