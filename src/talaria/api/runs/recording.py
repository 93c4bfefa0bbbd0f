"""Keep what happens in the turns of a conversation in the streams of its runs, at once and without repeats."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from talaria.api.runs.asked import tell
from talaria.api.runs.events import RunCompleted, RunEvent, RunWaiting, stream_of
from talaria.api.runs.keeping import end_run
from talaria.api.runs.marks import Cut, Place, placed, read_mark, seal
from talaria.api.runs.telling import Telling, ending_of
from talaria.contracts.follower import Ending
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.responses import ApiRun, ApiRunState
from talaria.core.errors import StoreError
from talaria.core.events import ReasoningAdded, TextAdded, ToolProgressed, TurnBegan, TurnEnd, TurnEvent
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.core.messages import Usage
from talaria.sessions.turn_log import model_steps

_AGAIN = 1.0
_PAUSES, _SHORTEST, _LONGEST = 4, 0.04, 0.5  # between two looks at words: so many times as long as a look took

log = logging.getLogger(__name__)


class Closed(Struct, frozen=True):
    """A question is open no more."""

    id: str


Happened = TurnEvent | Closed


class _Rest(Struct, frozen=True):
    """What has happened and is not told yet, behind ``told`` events of this record that are; ``telling`` goes before.

    It is exchanged as a whole, so that another thread finds what belongs together.
    """

    happened: list[Happened]
    told: int = 0
    telling: Telling | None = None


class _Record:
    """What happens in one turn while it is worked on here; what is told is forgotten."""

    def __init__(self, turn_id: TurnId) -> None:
        self.id = new_id()
        self.turn_id = turn_id
        self.place: Place | None = None
        self.known = False
        self.over = False
        self.rest = _Rest([])
        self._read = 0

    def add(self, event: Happened) -> None:
        """Take an event; words that nobody has begun to tell become one event with those before."""
        happened = self.rest.happened
        match happened[-1] if len(happened) > self._read else None, event:
            case (TextAdded(before), TextAdded(text)):
                happened[-1] = TextAdded(before + text)
            case (ReasoningAdded(before), ReasoningAdded(text)):
                happened[-1] = ReasoningAdded(before + text)
            case _:
                happened.append(event)

    def fresh(self, place: Place) -> tuple[list[RunEvent], Telling]:
        """Return what there is to tell now; `kept` says that it is."""
        telling = _telling(self.rest, place)
        self._read = len(self.rest.happened)
        return _translated(telling, self.rest.happened, place), telling

    def kept(self, told: int, telling: Telling) -> None:
        """Forget what was told."""
        self.rest = _Rest(self.rest.happened[self._read :], self.rest.told + told, telling)
        self._read = 0


class Recorder:
    """Hears the turns of one conversation; implements `Listener`.

    What happens is kept as fast as the store takes it, and at the latest with the end of the turn, in the same
    transaction. ``goes_on`` is asked there whether anything goes on in the background of the conversation; ``ended``
    runs behind the end of a run, or of one of its turns. ``cut`` is where a turn was cut off that goes on here.
    """

    def __init__(
        self,
        store: Store,
        session_id: SessionId,
        goes_on: Callable[[Transaction, SessionId], bool],
        ended: Callable[[Transaction, ApiRun], None],
        cut: Cut | None = None,
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._goes_on = goes_on
        self._ended = ended
        self._cut = cut
        self._record: _Record | None = None
        self._fresh = asyncio.Event()
        self._urgent = asyncio.Event()
        self.begun: Callable[[], None] | None = None

    @property
    def run_id(self) -> str:
        """The run whose turn goes on, as soon as that is known; ``begun`` is called then."""
        record = self._record
        return record.place.run_id if record is not None and record.place is not None and not record.over else ""

    def hear(self, event: Happened) -> None:
        """Take what happens in a turn; its end is taken with `take_note`."""
        if isinstance(event, TurnBegan):
            self._record = _Record(event.turn_id)
        if self._record is not None and isinstance(event, TurnEnd):
            self._record.over = True
        elif self._record is not None:
            self._record.add(event)
        self._fresh.set()
        if not isinstance(event, TextAdded | ReasoningAdded | ToolProgressed):
            self._urgent.set()

    def take_note(self, tx: Transaction, ending: Ending) -> None:
        """Tell all that was not told yet, and how the run goes on or ends."""
        record = self._record
        if record is None or record.turn_id != ending.turn_id:
            return
        place = self._placed(tx, record)
        if place is None:
            return
        rest = record.rest
        told = _translated(_telling(rest, place), [*rest.happened, ending.end], place)
        self._append(tx, place, rest.told, told)
        seal(tx, ending.session_id)
        run = tx.runs.get(place.run_id)
        if run is not None:
            end = ending_of(ending.end)
            if isinstance(end, RunCompleted) and self._goes_on(tx, ending.session_id):
                end_run(tx, run, RunWaiting(end.text), _used(tx, ending.turn_id))
            else:
                end_run(tx, run, end, _used(tx, ending.turn_id))
            self._ended(tx, run)

    async def keep(self) -> None:
        """Tell of what happens while it does, until cancelled; words come together where the store is busy."""
        loop = asyncio.get_running_loop()
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            self._urgent.clear()
            began = loop.time()
            try:
                await self._tell()
            except StoreError as error:
                log.warning("session %s: events of a run wait for the store: %s", self._session_id, error)
                await asyncio.sleep(_AGAIN)
                self._fresh.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(_PAUSES * (loop.time() - began), _SHORTEST), _LONGEST)):
                    await self._urgent.wait()

    async def catch_up(self) -> None:
        """Tell what was not told yet."""
        await self._tell()

    async def _tell(self) -> None:
        record = self._record
        if record is None:
            return
        if record.over:
            mark = await self._store.read(lambda tx: read_mark(tx, self._session_id))
            await self._store.hint(stream_of(mark.run_id if mark else ""))
            return
        if not record.known:
            record.place = await self._store.write(lambda tx: self._placed(tx, record))
            record.known = True
            if self.begun is not None:
                self.begun()
        place = record.place
        if place is not None:  # else it is somebody else's turn, in the same conversation
            before, (told, telling) = record.rest.told, record.fresh(place)
            await self._store.write(lambda tx: self._told_so_far(tx, record, before, told, telling.state))
            record.kept(len(told), telling)
            await self._store.hint(stream_of(place.run_id))

    def _placed(self, tx: Transaction, record: _Record) -> Place | None:
        return placed(tx, self._session_id, record.turn_id, record.id, self._cut)

    def _told_so_far(
        self, tx: Transaction, record: _Record, before: int, told: Sequence[RunEvent], state: ApiRunState
    ) -> None:
        place = record.place
        if place is not None and self._append(tx, place, before, told, record=record.id):
            tx.runs.move(place.run_id, state)

    def _append(
        self, tx: Transaction, place: Place, before: int, told: Sequence[RunEvent], *, record: str = ""
    ) -> bool:
        """Add what is not there yet of events behind the first ones, unless somebody else tells of this turn now."""
        last = tx.events.append(stream_of(place.run_id), ())  # which also makes others wait who would add to it
        mark = read_mark(tx, self._session_id)
        if record and (mark is None or mark.record != record):
            return False
        missing = told[last - place.base - before :]
        if missing:
            tell(tx, place.run_id, self._session_id, missing)
        return bool(missing)


def _used(tx: Transaction, turn_id: TurnId) -> Usage:
    """Return what the model calls of a turn took."""
    used = [step.usage for step in model_steps(tx, turn_id)]
    return Usage(**{name: sum(getattr(one, name) for one in used) for name in Usage.__struct_fields__})


def _translated(telling: Telling, happened: Sequence[Happened], place: Place | None) -> list[RunEvent]:
    told: list[RunEvent] = []
    for event in happened:
        if isinstance(event, Closed):
            told += telling.closed(event.id)
        elif not (isinstance(event, TurnBegan) and place is not None and place.resumed):
            told += telling.tell(event)
    return told


def _telling(rest: _Rest, place: Place) -> Telling:
    """Return what was told before the rest, to go on from."""
    if rest.telling is not None:
        return rest.telling.copied()
    telling = Telling()
    telling.recall(place.told)
    return telling
