"""Invitations: accepted where whoever invites may speak; the others wait, for that may change."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec
from msgspec import Struct

from talaria.core.errors import Rejected
from talaria.platforms.matrix.keeping import Position

_MOST = 100

log = logging.getLogger(__name__)


class Invitation(Struct, frozen=True):
    """Somebody wants us in a room; ``direct`` where they want to talk to us alone."""

    room_id: str
    inviter: str
    direct: bool = False


Welcome = Callable[[Invitation], Awaitable[bool]]
_decode = msgspec.json.Decoder(list[Invitation]).decode


class Invitations:
    """Those that are not answered yet. They are kept: a homeserver tells of each once."""

    def __init__(self, welcome: Welcome, kept: Position, pause: timedelta) -> None:
        self._welcome = welcome
        self._kept = kept
        self._pause = pause.total_seconds()
        self._waiting: dict[str, Invitation] = {}
        self._next = 0.0

    async def load(self) -> None:
        """Find those that were left alone until now."""
        try:
            self._waiting = {one.room_id: one for one in _decode(await self._kept.load() or "[]")}
        except msgspec.MsgspecError:
            self._waiting = {}

    async def consider(self, arrived: list[Invitation], join: Callable[[str], Awaitable[None]]) -> None:
        """Join the rooms that we may be invited to; those that wait are looked at again now and then."""
        now = asyncio.get_running_loop().time()
        before = dict(self._waiting)
        looked_at = list(arrived)
        if now >= self._next:
            self._next = now + self._pause
            looked_at += [one for one in before.values() if one.room_id not in {new.room_id for new in arrived}]
        for invitation in looked_at:
            if await self._welcome(invitation):
                self._waiting.pop(invitation.room_id, None)
                await self._accept(invitation, join)
            elif invitation.room_id not in self._waiting:
                log.info("an invitation of %s to %s is left alone", invitation.inviter, invitation.room_id)
                self._waiting[invitation.room_id] = invitation
        while len(self._waiting) > _MOST:
            del self._waiting[next(iter(self._waiting))]
        if self._waiting != before:
            await self._kept.save(msgspec.json.encode(list(self._waiting.values())).decode())

    async def _accept(self, invitation: Invitation, join: Callable[[str], Awaitable[None]]) -> None:
        try:
            await join(invitation.room_id)
        except Rejected as error:
            log.warning("the invitation of %s cannot be accepted: %s", invitation.inviter, error)
