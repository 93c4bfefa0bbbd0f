"""The rooms of a gateway: opened when somebody speaks or something waits, let go of when nothing goes on there."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakValueDictionary

from msgspec import structs

from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Address
from talaria.core.errors import Refused, StoreError, TalariaError
from talaria.core.ids import SessionId, WorkerId
from talaria.core.session_context import SessionContext, bound
from talaria.gateway.keepers import is_kept, keep, may_keep
from talaria.gateway.room import Room
from talaria.goals.keeping import index_existing_goals
from talaria.goals.resumable import resumable_goals
from talaria.sessions.agent_cache import CAP, IDLE, AgentCache
from talaria.sessions.lane import waiting_sessions
from talaria.sessions.prospect import Prospect

_TOPIC = "rooms"  # of which nobody gives hints: who heeds it looks now and then, together with all others
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_OPENING_AT_ONCE = 12  # each holds up the others for about a millisecond
Waiting = tuple[SessionId, str, Address]

log = logging.getLogger(__name__)


class Rooms:
    """The rooms that this worker keeps, by key: each with its agent, ready for what is said next.

    ``make`` makes a room for a place; ``prospect`` says what the agent of a conversation there would be now.
    ``closed`` says that the gateway ends.
    """

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        make: Callable[[str, Address], Room],
        prospect: Callable[[Address, SessionId], Awaitable[Prospect]],
        jobs: asyncio.TaskGroup,
        *,
        cap: int = CAP,
        idle: timedelta = IDLE,
    ) -> None:
        self.worker = worker
        self._store = store
        self._make = make
        self._prospect = prospect
        self._jobs = jobs
        self._platforms: Container[str] | None = None
        self._cache: AgentCache[Room] = AgentCache(jobs, cap=cap, idle=idle)
        self._doorway = asyncio.Semaphore(_OPENING_AT_ONCE)
        self._failed: dict[SessionId, tuple[int, float]] = {}
        self._order: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._goals_indexed = False
        self.closed = False

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def busy(self) -> list[Room]:
        """The rooms in which a turn runs."""
        return [room for room in self._cache.agents if room.seat.busy]

    def find(self, key: str) -> Room | None:
        """Return a room that is open."""
        return self._cache.find(key)

    def restrict_to(self, platforms: Container[str]) -> None:
        """Resume only sessions on these networks: another worker may serve the rest."""
        self._platforms = platforms

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin something that ends with the gateway at the latest."""
        self._jobs.create_task(work)

    @asynccontextmanager
    async def in_turn(self, key: str, address: Address, session_id: SessionId) -> AsyncIterator[Room]:
        """Lend the room of a place to one after the other, in the order in which they come."""
        async with self._order.setdefault(key, asyncio.Lock()), self.using(key, address, session_id) as room:
            yield room

    @asynccontextmanager
    async def using(self, key: str, address: Address, session_id: SessionId) -> AsyncIterator[Room]:
        """Lend the room of a place, with this conversation open in it: within the block nobody closes it."""
        prospect = await self._prospect(address, session_id) if key in self._cache else None
        signature = self._wanted(key, prospect)
        async with self._cache.using(key, signature, lambda: self._opened(key, address, session_id)) as room:
            await room.be_at(session_id)
            if prospect is not None and room.signature == prospect.signature:
                room.seat.chat.conversation.ask_with(prospect.effort)
            yield room

    def _wanted(self, key: str, prospect: Prospect | None) -> str | None:
        """Return what the agent has to be made of; ``None`` where it is built now, by whomever."""
        found = self._cache.find(key)
        # What is at work goes on with the agent that it has; another one is built when it rests.
        if found is not None and found.is_busy:
            return found.signature
        return prospect.signature if prospect is not None else None

    def end(self, key: str) -> bool:
        """Close a room and end what its conversation has started; ``False`` where none is open."""
        return self._cache.end(key)

    def let_go(self, key: str) -> bool:
        """Close a room softly: whoever opens it again finds its folder and its processes."""
        return self._cache.evict(key)

    async def close(self) -> None:
        """Close every room, for good; turns that run are cut off, and go on at the next start."""
        self.closed = True
        async with asyncio.TaskGroup() as group:
            for room in self._cache.drain():
                group.create_task(_closed(room))

    def sweep(self) -> int:
        """Let go of the rooms in which nothing has gone on for long, and return how many those were."""
        return self._cache.sweep()

    async def serve(self) -> None:
        """Take up whatever waits and has no owner, until cancelled: left by a crash, or by another worker."""
        told, now = "", asyncio.get_running_loop().time
        async with self._store.heeding(_TOPIC) as rung:
            while True:
                try:
                    await self.take_up()
                    self.sweep()
                    told = ""
                except TalariaError as error:
                    if told != str(error):
                        log.warning("what waits is not taken up: %s", error)
                    told = str(error)
                looked = now()
                while now() < looked + _SHORTEST_PAUSE:  # on SQLite whatever is written anywhere is a hint
                    rung.clear()
                    await rung.wait()

    async def take_up(self) -> int:
        """Resume the sessions that have pending work and no owner, and return how many those are.

        That is a turn that was cut off, a message in the inbox, or a goal that nobody follows.
        """
        if not self._goals_indexed:
            await self._store.write(index_existing_goals)
            self._goals_indexed = True
        resumable, may_wait = await self._store.read(lambda tx: (self._resumable_goals(tx), _may_wait(tx)))
        goals = [session_id for session_id, key, _ in resumable if not self._is_followed(key, session_id)]
        if not goals and not may_wait:
            return 0
        now = asyncio.get_running_loop().time()
        waiting = await self._store.write(lambda tx: self._places_that_wait(tx, goals))
        found = [place for place in waiting if self._failed.get(place[0], (0, 0.0))[1] <= now]
        for session_id, key, address in found:
            self.start(self.wake(session_id, key, address))
        return len(found)

    async def wake(self, session_id: SessionId, key: str, address: Address) -> None:
        """Process what is pending in a session: its inbox, and its goal where nobody follows that."""
        try:
            async with self.in_turn(key, address, session_id) as room:
                await room.used()
                conversation = room.seat.chat.conversation
                if not conversation.engaged:
                    conversation.follow()
                conversation.wake()
            self._failed.pop(session_id, None)
        except StoreError as error:
            with bound(SessionContext(session_id=session_id, platform=address.platform)):
                log.warning("session %s: what waits has to wait for the store: %s", session_id, error)
        except TalariaError as error:
            count = self._failed.get(session_id, (0, 0.0))[0] + 1
            pause = min(2.0**count, _LONGEST_PAUSE)
            self._failed[session_id] = count, asyncio.get_running_loop().time() + pause
            with bound(SessionContext(session_id=session_id, platform=address.platform)):
                log.warning("session %s: what waits is taken up in %.0f s: %s", session_id, pause, error)

    async def give_up_lost(self) -> int:
        """Let go of the rooms that others have taken over meanwhile, and return how many those were."""
        rooms = self._cache.agents
        lost = await self._store.read(lambda tx: [room.key for room in rooms if not is_kept(tx, room.key, self.worker)])
        for key in lost:
            self.let_go(key)
        return len(lost)

    async def _opened(self, key: str, address: Address, session_id: SessionId) -> Room:
        room = self._make(key, address)
        room.let_go = lambda: self.let_go(key)
        room.seat.wish = structs.replace(room.seat.wish, resume=session_id)
        async with self._doorway:
            if not self.closed:
                await room.open()
        if self.closed:  # perhaps meanwhile, when nobody knew of it yet
            await _closed(room)
            raise Refused("The gateway ends; what waits is answered at the next start.")
        return room

    def _resumable_goals(self, tx: Transaction) -> list[Waiting]:
        """Return the sessions with a goal that needs a follower, of those that this worker may serve."""
        return [
            place
            for session_id in resumable_goals(tx, datetime.now(UTC))
            for place in self._place_of(tx, session_id)
            if may_keep(tx, place[1], self.worker)
        ]

    def _is_followed(self, key: str, session_id: SessionId) -> bool:
        """Return whether a room of this worker has the session open and something goes on there."""
        room = self._cache.find(key)
        if room is None or not room.seat.is_open or room.seat.session_id != session_id:
            return False
        return room.seat.chat.conversation.engaged

    def _places_that_wait(self, tx: Transaction, goals: Sequence[SessionId]) -> list[Waiting]:
        """Return what waits in rooms that are ours, or nobody's; what is bound to no place is not ours to answer."""
        return [
            place
            for session_id in dict.fromkeys((*waiting_sessions(tx), *goals))
            for place in self._place_of(tx, session_id)
            if keep(tx, place[1], self.worker)
        ]

    def _place_of(self, tx: Transaction, session_id: SessionId) -> list[Waiting]:
        """Return where a session is served, if that is a network of this worker."""
        return [
            (session_id, binding.key, binding.address)
            for binding in tx.bindings.of_session(session_id)[:1]
            if self._platforms is None or binding.address.platform in self._platforms
        ]


def _may_wait(tx: Transaction) -> bool:
    """Tell whether it is worth the while to look for what has no owner."""
    return bool(tx.turns.find(running=True, limit=1) or tx.inbox.unsettled())


async def _closed(room: Room) -> None:
    """Close a room, but end nothing that goes on in the background there.

    Where the store cannot be used, what could not be written is found unfinished at the next start.
    """
    try:
        room.view.end()
        await room.seat.close()
    except StoreError as error:
        log.warning("%s: a room was not closed in good order: %s", room.name, error)
