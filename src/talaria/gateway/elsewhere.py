"""A turn that another process works on, shown in the room of the place to which its conversation has moved."""

import asyncio
import logging
from collections.abc import Container

from msgspec import Struct, structs

from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Address, Route
from talaria.core.errors import TalariaError
from talaria.core.events import TurnBegan, TurnEnd, TurnEvent
from talaria.core.ids import SessionId, TurnId, WorkerId
from talaria.gateway.keepers import keep
from talaria.gateway.room import Room
from talaria.gateway.rooms import Rooms
from talaria.sessions.holding import is_held, lane_of
from talaria.sessions.live_events import QuestionClosed, Seen
from talaria.sessions.live_speaking import DistantAnswers
from talaria.sessions.live_watch import Watch
from talaria.sessions.live_words import Nudge, Stop, speak_to
from talaria.sessions.rerouting import moved_turns, rerouted

_LOOK_AGAIN = 1.0

log = logging.getLogger(__name__)


class MovedTurn(Struct, frozen=True):
    """A turn that another process runs for a room of ours."""

    session_id: SessionId
    turn_id: TurnId
    route: Route
    key: str
    address: Address


def turns_elsewhere(tx: Transaction, worker: WorkerId, platforms: Container[str]) -> list[MovedTurn]:
    """Return the turns that were moved to rooms that are ours, or nobody's, and that somebody else is at work on."""
    found = []
    for session_id, moved in moved_turns(tx):
        at_work = is_held(tx, lane_of(session_id))
        for binding in tx.bindings.of_session(session_id)[:1] if at_work else ():
            ours = binding.address.platform in platforms and keep(tx, binding.key, worker)
            if ours and moved.route is not None:
                found.append(MovedTurn(session_id, moved.turn_id, moved.route, binding.key, binding.address))
    return found


class Elsewhere:
    """Shows one turn, until it is over or the room goes on with it itself."""

    def __init__(self, store: Store, rooms: Rooms, moved: MovedTurn) -> None:
        self._store = store
        self._rooms = rooms
        self._moved = moved
        self._session_id = moved.session_id
        self._seen: asyncio.Queue[Seen] = asyncio.Queue()
        self._answers = DistantAnswers(store, moved.session_id, rooms.start)

    async def show(self) -> None:
        """Show it, beginning with what was said so far; what waits behind it is worked off then."""
        key, address = self._moved.key, self._moved.address
        watch = Watch(self._store, self._session_id, self._seen.put_nowait)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch.follow())
                async with self._rooms.using(key, address, self._session_id) as room:
                    room.elsewhere, room.seat.distant = self.heed, self._answers
                    try:
                        await self._follow(room)
                    finally:
                        room.elsewhere = room.seat.distant = None
                watching.cancel()
        except* TalariaError as errors:
            log.warning("session %s: its turn is not shown: %s", self._session_id, errors.exceptions[0])
        finally:
            self._answers.close_all()
        if not self._rooms.closed:
            await self._rooms.wake(self._session_id, key, address)

    async def heed(self, busy: str) -> None:
        """Let the turn heed what was said here: it joins it, stops it, or waits behind it."""
        await speak_to(self._store, self._session_id, Stop() if busy == "interrupt" else Nudge(steered=busy == "steer"))

    async def _follow(self, room: Room) -> None:
        loop = asyncio.get_running_loop()
        over, look_at = False, loop.time() + _LOOK_AGAIN
        while not (over or room.at_work or self._rooms.closed):
            event = await self._next(look_at - loop.time())
            if event is not None:
                over = self._show(room, event)
            if loop.time() >= look_at:
                over = over or not await self._store.read(self._is_here)
                look_at = loop.time() + _LOOK_AGAIN
        if not room.at_work:
            room.view.leave()

    async def _next(self, seconds: float) -> Seen | None:
        """Return what happens next, if it does so in time."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                return await self._seen.get()
        except TimeoutError:
            return None

    def _show(self, room: Room, event: Seen) -> bool:
        """Show an event; tell whether the turn is over with it."""
        self._answers.note(event)
        match event:
            case _ if room.at_work:
                return True
            case QuestionClosed():
                pass
            case TurnBegan() if event.turn_id != self._moved.turn_id:
                return True
            case TurnBegan():
                self._happens(room, structs.replace(event, route=self._moved.route))
            case _:
                self._happens(room, event)
        return isinstance(event, TurnEnd)

    def _happens(self, room: Room, event: TurnEvent) -> None:
        room.view.happens(event, self._session_id, self._answers)

    def _is_here(self, tx: Transaction) -> bool:
        """Tell whether the turn is running still, and its reply goes here."""
        running = any(turn.id == self._moved.turn_id for turn in tx.turns.find(self._session_id, running=True))
        now = rerouted(tx, self._session_id, self._moved.turn_id)
        return running and now is not None and now.route == self._moved.route
