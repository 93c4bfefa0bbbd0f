"""Bring one message of the outbox to its network: piece by piece, into the messages that show it already."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, structs

from talaria.contracts.platform import Content, MessageRef, Platform
from talaria.contracts.store import Store
from talaria.contracts.stores.outbox import OutboxItem
from talaria.core.errors import PlatformError, Rejected, Unreachable
from talaria.core.ids import WorkerId, is_gone
from talaria.gateway.long_reply import REPLY_LIMIT, shorten
from talaria.gateway.pacing import Pace
from talaria.gateway.shown import Shown, keep_shown, read_shown
from talaria.gateway.splitting import split_content
from talaria.gateway.throttle import Throttle
from talaria.sessions.outgoing import read_content

T = TypeVar("T")
REMAINDER = "⋯"  # what is left of a message that showed more than was said in the end
_LOOK_AGAIN, _LONGEST_LOOK = 0.03, 0.5
_LARGE = 8_000  # characters; what has more is split in a thread

log = logging.getLogger(__name__)


class TooSoon(Exception):
    """The rate of a chat does not allow another call for ``delay``; what is left of the item goes out later."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__(f"the chat may be called in {delay}")
        self.delay = delay


class Outlet(Struct, frozen=True, kw_only=True):
    """What the deliveries of one network share.

    ``reply_limit`` is how many characters a message may have before it is cut, ``files`` where what was cut is kept
    whole. ``waits`` is called when an item begins to wait for its chat, so that others can go out.
    """

    store: Store
    platform: Platform
    throttle: Throttle
    pace: Pace
    reply_limit: Callable[[], int] = lambda: REPLY_LIMIT
    files: Path | None = None
    waits: Callable[[], None] = lambda: None


class Placing:
    """One item on its way. Raises what a `Platform` raises; what was placed stays placed and is not placed again.

    ``halted`` makes it end behind the piece that is under way. ``repeated`` says that a piece may be there twice, as
    somebody died while posting it and the network cannot tell. ``is_waiting`` says that it makes no call now: it waits
    for the preview to end, or for the rate of its chat. ``is_placed`` says that all of it is there.
    """

    def __init__(self, outlet: Outlet, item: OutboxItem, shown: Shown | None) -> None:
        self._outlet = outlet
        self._store = outlet.store
        self._platform = outlet.platform
        self._pace = pace = outlet.pace
        self._item = item
        self._shown = (shown or Shown(item.address)).at_address(item.address)
        self._doubtful = item.doubtful
        self._deadline = asyncio.get_running_loop().time() + (pace.claim - 2 * pace.call).total_seconds()
        self.halted = False
        self.is_waiting = False
        self.is_placed = False
        self.repeated = False

    async def place(self) -> str:
        """Place what is not yet placed, and return the network's id of the message with buttons, else of the first."""
        await self._wait_for_quiet()
        pieces = await self._split()
        for place in range(self._shown.done, len(pieces)):
            message_id = await self._place(place, pieces[place])
            self._shown = _placed(self._shown, place, message_id)
            if place + 1 < len(pieces):
                await self._record()
                self._check_time()
        await self._tidy(len(pieces))
        self.is_placed = True
        first = next((place for place, piece in enumerate(pieces) if piece.buttons), 0)
        return self._shown.messages[first] if self._shown.messages else ""

    async def _split(self) -> list[Content]:
        """Return the pieces, computed in a thread where that takes long."""
        payload, abilities, limit = self._item.payload, self._platform.abilities, self._outlet.reply_limit()
        folder = self._outlet.files if abilities.file_limit else None
        file = folder / self._item.session_id / "replies" / f"{_safe(self._item.key)}.md" if folder else None

        def split() -> list[Content]:
            return split_content(shorten(read_content(payload), limit, file), abilities)

        return split() if len(payload) < _LARGE else await asyncio.to_thread(split)

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
        surplus = [message_id for message_id in self._shown.messages[kept:] if message_id]
        if surplus:
            await self._record()
        for message_id in surplus:
            try:
                await self._edit(message_id, Content(text=REMAINDER))
            except PlatformError as error:
                log.warning("%s: message %s was not blanked: %s", self._platform.name, message_id, error)

    async def _send(self, piece: Content, key: str) -> str:
        return (await self._bounded(lambda: self._platform.send(self._item.address, piece, key))).message_id

    async def _edit(self, message_id: str, piece: Content) -> None:
        await self._bounded(lambda: self._platform.edit(MessageRef(self._item.address, message_id), piece))

    async def _bounded(self, call: Callable[[], Awaitable[T]]) -> T:
        await self._wait_for_rate()
        return await bounded(call(), self._pace.call.total_seconds())

    async def _wait_for_rate(self) -> None:
        """Wait until the network's rates allow a call, or raise `TooSoon` where that would take long."""
        throttle, to = self._outlet.throttle, self._item.address
        while not throttle.take(to):
            delay = throttle.delay(to)
            if self.halted or delay > self._pace.hold.total_seconds():
                raise TooSoon(timedelta(seconds=delay))
            self._begin_to_wait()
            await asyncio.sleep(min(delay, _LONGEST_LOOK))
        self.is_waiting = False

    def _begin_to_wait(self) -> None:
        if not self.is_waiting:
            self.is_waiting = True
            self._outlet.waits()

    async def _record(self) -> None:
        shown = self._shown
        await self._store.write(lambda tx: keep_shown(tx, self._item.key, shown))

    async def _wait_for_quiet(self) -> None:
        """Wait until the preview has ended, so that none of its edits comes behind the final text."""
        pause = _LOOK_AGAIN
        try:
            async with asyncio.timeout(self._pace.quiet.total_seconds()):
                while self._shown.live and not is_gone(self._shown.live):
                    self._begin_to_wait()
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_LOOK)
                    found = await self._store.read(lambda tx: read_shown(tx, self._item.key))
                    self._shown = (found or self._shown).at_address(self._item.address)
        except TimeoutError:
            log.warning("%s: a preview of %s has not ended", self._platform.name, self._item.key)
        self.is_waiting = False
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


def _safe(key: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in key)
