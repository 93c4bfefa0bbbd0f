"""Bring one message of the outbox to its network: piece by piece, into the messages that show it already."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import TypeVar

from msgspec import structs

from talaria.contracts.platform import Content, MessageRef, Platform
from talaria.contracts.store import Store
from talaria.contracts.stores.outbox import OutboxItem
from talaria.core.errors import PlatformError, Rejected, Unreachable
from talaria.core.ids import WorkerId, is_gone
from talaria.gateway.pacing import Pace
from talaria.gateway.shown import Shown, keep_shown, read_shown
from talaria.gateway.splitting import split_content
from talaria.sessions.outgoing import read_content

T = TypeVar("T")
REMAINDER = "⋯"  # what is left of a message that showed more than was said in the end
_LOOK_AGAIN = 0.03

log = logging.getLogger(__name__)


class Placing:
    """One item on its way. Raises what a `Platform` raises; what was placed stays placed and is not placed again.

    ``halted`` makes it end behind the piece that is under way. ``repeated`` says that a piece may be there twice, as
    somebody died while posting it and the network cannot tell. ``calling_since`` is when a call to the network began
    that is under way.
    """

    def __init__(self, store: Store, platform: Platform, pace: Pace, item: OutboxItem, shown: Shown | None) -> None:
        self._store = store
        self._platform = platform
        self._pace = pace
        self._item = item
        self._shown = (shown or Shown(item.address)).at_address(item.address)
        self._doubtful = item.doubtful
        self._deadline = asyncio.get_running_loop().time() + (pace.claim - 2 * pace.call).total_seconds()
        self.halted = False
        self.calling_since: float | None = None
        self.repeated = False

    async def place(self) -> str:
        """Place what is not yet placed, and return the network's id of the first message."""
        await self._wait_for_quiet()
        pieces = split_content(read_content(self._item.payload), self._platform.abilities)
        for place in range(self._shown.done, len(pieces)):
            message_id = await self._place(place, pieces[place])
            self._shown = _placed(self._shown, place, message_id)
            if place + 1 < len(pieces):
                await self._record()
                self._check_time()
        await self._tidy(len(pieces))
        return self._shown.messages[0] if self._shown.messages else ""

    async def _place(self, place: int, piece: Content) -> str:
        """Make a message say this piece, and return its id."""
        key = self._shown.key(self._item.key, place)
        known = self._shown.at(place)
        if known and not piece.files:
            return await self._become(known, key, piece)
        message_id = await self._send(piece, key)
        abilities = self._platform.abilities
        if known == "" and abilities.idempotent and abilities.edits:
            # The network may have answered with a message that a preview posted under this key, and its text.
            await self._edit(message_id, piece)
        self.repeated |= not abilities.idempotent and (known == "" or self._doubtful)
        self._doubtful = False
        return message_id

    async def _become(self, message_id: str, key: str, piece: Content) -> str:
        """Edit a message; where that is refused, send the text as a message of its own."""
        try:
            await self._edit(message_id, piece)
        except Rejected as error:
            log.warning("%s: message %s was not edited, so it is sent anew: %s", self._platform.name, message_id, error)
            return await self._send(piece, f"{key}:anew")
        return message_id

    def _check_time(self) -> None:
        """Leave the rest for later, in good order, before the item counts as left by a dead sender."""
        if self.halted or asyncio.get_running_loop().time() > self._deadline:
            raise Unreachable("the rest of it waits for the next attempt")

    async def _tidy(self, kept: int) -> None:
        """Blank the messages that showed more than was said in the end."""
        for message_id in filter(None, self._shown.messages[kept:]):
            try:
                await self._edit(message_id, Content(text=REMAINDER))
            except PlatformError as error:
                log.warning("%s: message %s was not blanked: %s", self._platform.name, message_id, error)

    async def _send(self, piece: Content, key: str) -> str:
        return (await self._bounded(self._platform.send(self._item.address, piece, key))).message_id

    async def _edit(self, message_id: str, piece: Content) -> None:
        await self._bounded(self._platform.edit(MessageRef(self._item.address, message_id), piece))

    async def _bounded(self, call: Awaitable[T]) -> T:
        self.calling_since = asyncio.get_running_loop().time()
        try:
            return await bounded(call, self._pace.call.total_seconds())
        finally:
            self.calling_since = None

    async def _record(self) -> None:
        shown = self._shown
        await self._store.write(lambda tx: keep_shown(tx, self._item.key, shown))

    async def _wait_for_quiet(self) -> None:
        """Wait until the preview has ended, so that none of its edits comes behind the final text."""
        try:
            async with asyncio.timeout(self._pace.quiet.total_seconds()):
                while self._shown.live and not is_gone(self._shown.live):
                    await asyncio.sleep(_LOOK_AGAIN)
                    found = await self._store.read(lambda tx: read_shown(tx, self._item.key))
                    self._shown = (found or self._shown).at_address(self._item.address)
        except TimeoutError:
            log.warning("%s: a preview of %s has not ended", self._platform.name, self._item.key)
        self._shown = structs.replace(self._shown, live=WorkerId(""))


async def bounded(call: Awaitable[T], seconds: float) -> T:
    """Return what a call to a network returns, or raise `Unreachable` when it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError as error:
        raise Unreachable(f"there was no answer within {seconds:g} s") from error


def _placed(shown: Shown, place: int, message_id: str) -> Shown:
    messages = (*shown.messages[:place], message_id, *shown.messages[place + 1 :])
    return structs.replace(shown, messages=messages, done=place + 1)
