"""The rooms of a gateway: opened when somebody speaks or something waits, let go of when nothing goes on there."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta

from msgspec import structs

from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Address
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId
from talaria.gateway.room import Room
from talaria.sessions.lane import waiting_sessions

_CAP = 128
_IDLE = timedelta(hours=1)
_LOOK_AGAIN = 1.0
_OPENING_AT_ONCE = 32

log = logging.getLogger(__name__)


class Rooms:
    """Every open room by its key, the most recently used last; ``make`` makes one for a place.

    At most ``cap`` stay open, but none is closed under a running turn.
    """

    def __init__(
        self, store: Store, make: Callable[[str, Address], Room], *, cap: int = _CAP, idle: timedelta = _IDLE
    ) -> None:
        self._store = store
        self._make = make
        self._cap = cap
        self._idle = idle.total_seconds()
        self._open: OrderedDict[str, Room] = OrderedDict()
        self._used: dict[str, float] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._made: dict[str, Room] = {}
        self._doorway = asyncio.Semaphore(_OPENING_AT_ONCE)
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def busy(self) -> list[Room]:
        """The rooms in which a turn runs."""
        return [room for room in self._open.values() if room.seat.busy]

    def find(self, key: str) -> Room | None:
        """Return a room that is open."""
        return self._open.get(key)

    def at(self, key: str, address: Address) -> Room:
        """Return the room of a place, which may not be open before somebody enters it."""
        room = self._open.get(key) or self._made.get(key)
        if room is None:
            room = self._made[key] = self._make(key, address)
        return room

    async def enter(self, key: str, address: Address, session_id: SessionId) -> Room:
        """Return the room of a place, with this conversation open in it."""
        async with self._opening.setdefault(key, asyncio.Lock()):
            room = self._open.get(key)
            if room is None:
                room = await self._opened(key, address, session_id)
            elif room.seat.session_id != session_id:
                await room.seat.move_to(session_id)
            self._open.move_to_end(key)
            self._used[key] = time.monotonic()
        await self._keep_to_cap()
        return room

    async def leave(self, key: str) -> None:
        """Close a room."""
        room = self._forget(key)
        if room is not None:
            await room.seat.close()

    async def let_go(self, key: str) -> None:
        """Close a room softly: whoever opens it again finds its folder and its processes."""
        room = self._forget(key)
        if room is not None:
            await room.seat.release()

    async def close(self) -> None:
        """Close every room, for good; turns that run are cut off, and go on at the next start."""
        self._closed = True
        for key in list(self._open):
            await self.leave(key)

    async def sweep(self) -> int:
        """Close the rooms in which nothing has gone on for long, and return how many those were."""
        now = time.monotonic()
        idle = [key for key, room in self._open.items() if now - self._used[key] > self._idle and not room.seat.busy]
        for key in idle:
            await self.let_go(key)
        return len(idle)

    async def serve(self) -> None:
        """Take up whatever waits and has no owner, until cancelled: left by a crash, or by another worker."""
        while True:
            try:
                await self.take_up()
                await self.sweep()
            except TalariaError as error:
                log.warning("what waits was not taken up: %s", error)
            await asyncio.sleep(_LOOK_AGAIN)

    async def take_up(self) -> int:
        """Go on with the conversations that wait for somebody, and return how many those are."""
        found = await self._store.write(_places_that_wait)
        for session_id, key, address in found:
            await self.wake(session_id, key, address)
        return len(found)

    async def wake(self, session_id: SessionId, key: str, address: Address) -> None:
        """See to it that what waits in a conversation is worked off."""
        room = await self.enter(key, address, session_id)
        room.seat.chat.conversation.wake()

    async def _opened(self, key: str, address: Address, session_id: SessionId) -> Room:
        room = self._made.pop(key, None) or self._make(key, address)
        room.seat.wish = structs.replace(room.seat.wish, resume=session_id)
        async with self._doorway:
            if self._closed:
                raise Refused("The gateway ends; what waits is answered at the next start.")
            await room.seat.open()
        self._open[key] = room
        return room

    def _forget(self, key: str) -> Room | None:
        self._used.pop(key, None)
        self._opening.pop(key, None)
        room = self._open.pop(key, None)
        if room is not None:
            room.end_preview()
        return room

    async def _keep_to_cap(self) -> None:
        surplus = list(self._open)[: max(len(self._open) - self._cap, 0)]
        idle = [key for key in surplus if not self._open[key].seat.busy]
        if surplus and not idle:
            log.warning("%d rooms are open, more than the cap of %d: all are mid-turn", len(self._open), self._cap)
        for key in idle:
            await self.let_go(key)


def _places_that_wait(tx: Transaction) -> list[tuple[SessionId, str, Address]]:
    """Return the conversations that wait for an owner and are bound to a place; others are not ours to answer."""
    found = []
    for session_id in waiting_sessions(tx):
        bindings = tx.bindings.of_session(session_id)
        if bindings:
            found.append((session_id, bindings[0].key, bindings[0].address))
    return found
