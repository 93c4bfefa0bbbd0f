"""Invitations: accepted if the inviter may speak; others stay pending, since that may change."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec
from msgspec import Struct

from talaria.core.errors import Rejected
from talaria.platforms.matrix.sync_state import ValueStore

_MOST_PENDING = 100

log = logging.getLogger(__name__)


class Invitation(Struct, frozen=True):
    """An invitation to a room; ``direct`` for a private chat."""

    room_id: str
    inviter: str
    direct: bool = False


AcceptsInvitation = Callable[[Invitation], Awaitable[bool]]
_decode = msgspec.json.Decoder(list[Invitation]).decode


class Invitations:
    """Pending invitations. They are stored, because a homeserver reports each once."""

    def __init__(self, welcome: AcceptsInvitation, store: ValueStore, pause: timedelta) -> None:
        self._accepts = welcome
        self._store = store
        self._pause = pause.total_seconds()
        self._pending: dict[str, Invitation] = {}
        self._next_check = 0.0

    async def load(self) -> None:
        """Load the pending ones."""
        try:
            self._pending = {one.room_id: one for one in _decode(await self._store.load() or "[]")}
        except msgspec.MsgspecError:
            self._pending = {}

    async def process(self, received: list[Invitation], join: Callable[[str], Awaitable[None]]) -> None:
        """Join the rooms we may join; pending invitations are checked again from time to time."""
        now = asyncio.get_running_loop().time()
        before = dict(self._pending)
        candidates = list(received)
        if now >= self._next_check:
            self._next_check = now + self._pause
            candidates += [one for one in before.values() if one.room_id not in {new.room_id for new in received}]
        for invitation in candidates:
            if await self._accepts(invitation):
                self._pending.pop(invitation.room_id, None)
                await self._accept(invitation, join)
            elif invitation.room_id not in self._pending:
                log.info("ignored an invitation from %s to %s", invitation.inviter, invitation.room_id)
                self._pending[invitation.room_id] = invitation
        while len(self._pending) > _MOST_PENDING:
            del self._pending[next(iter(self._pending))]
        if self._pending != before:
            await self._store.save(msgspec.json.encode(list(self._pending.values())).decode())

    async def _accept(self, invitation: Invitation, join: Callable[[str], Awaitable[None]]) -> None:
        try:
            await join(invitation.room_id)
        except Rejected as error:
            log.warning("couldn't accept an invitation from %s: %s", invitation.inviter, error)
