"""Record the turns of a session in the event streams of its runs, promptly and without duplicates."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from talaria.api.runs.events import (
    RunCompleted,
    RunEnd,
    RunEvent,
    RunEventMapper,
    RunWaiting,
    make_stream_name,
    to_run_end,
)
from talaria.api.runs.run_store import append_events, end_run
from talaria.api.runs.turn_links import ResumePoint, StreamPosition, close_link, link_turn, list_files, read_link
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.responses import ApiRun, ApiRunState
from talaria.contracts.turns import TurnResult
from talaria.core.errors import StoreError
from talaria.core.events import ReasoningAdded, TextAdded, ToolProgressed, TurnBegan, TurnEnd, TurnEvent
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.core.messages import Usage
from talaria.runtime.turn_log import read_model_steps

_RETRY_SECONDS = 1.0
_PAUSE_FACTOR, _MIN_PAUSE, _MAX_PAUSE = (
    4,
    0.04,
    0.5,
)  # pause between two writes of text, as a multiple of the last write's duration

log = logging.getLogger(__name__)


class ClosedQuestion(Struct, frozen=True):
    """A question was closed."""

    id: str


RecordedEvent = TurnEvent | ClosedQuestion


class _Pending(Struct, frozen=True):
    """Events not written yet, after ``written_count`` written ones; ``mapper`` is the state before them.

    It is replaced as a whole, so that another thread sees a consistent state.
    """

    turn_events: list[RecordedEvent]
    written_count: int = 0
    mapper: RunEventMapper | None = None


class _TurnRecord:
    """The events of one turn processed here; written ones are dropped."""

    def __init__(self, turn_id: TurnId) -> None:
        self.id = new_id()
        self.turn_id = turn_id
        self.position: StreamPosition | None = None
        self.known = False
        self.over = False
        self.pending = _Pending([])
        self._mapped_count = 0

    def add(self, event: RecordedEvent) -> None:
        """Add an event; text not being written yet is merged with the text before it."""
        turn_events = self.pending.turn_events
        match turn_events[-1] if len(turn_events) > self._mapped_count else None, event:
            case (TextAdded(before), TextAdded(text)):
                turn_events[-1] = TextAdded(before + text)
            case (ReasoningAdded(before), ReasoningAdded(text)):
                turn_events[-1] = ReasoningAdded(before + text)
            case _:
                turn_events.append(event)

    def map_pending(self, position: StreamPosition) -> tuple[list[RunEvent], RunEventMapper]:
        """Return the run events to write now; `mark_written` confirms them."""
        mapper = _make_mapper(self.pending, position)
        self._mapped_count = len(self.pending.turn_events)
        return _map_events(mapper, self.pending.turn_events, position), mapper

    def mark_written(self, written_count: int, mapper: RunEventMapper) -> None:
        """Drop the written events."""
        self.pending = _Pending(
            self.pending.turn_events[self._mapped_count :], self.pending.written_count + written_count, mapper
        )
        self._mapped_count = 0


class RunRecorder:
    """The listener for the turns of one session.

    Events are written as fast as the store allows, and at the latest in the transaction that ends the turn.
    ``has_background_work`` is called there; ``ended`` runs after the end of a run, or of one of its turns.
    ``resume_point`` is where a turn resumed here was interrupted.
    """

    def __init__(
        self,
        store: Store,
        session_id: SessionId,
        has_background_work: Callable[[Transaction, SessionId], bool],
        ended: Callable[[Transaction, ApiRun], None],
        resume_point: ResumePoint | None = None,
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._has_background_work = has_background_work
        self._on_end = ended
        self._resume_point = resume_point
        self._record: _TurnRecord | None = None
        self._has_events = asyncio.Event()
        self._urgent = asyncio.Event()
        self._on_run_known: Callable[[], None] | None = None

    @property
    def run_id(self) -> str:
        """The run whose turn is running, as soon as that is known; empty before."""
        record = self._record
        return record.position.run_id if record is not None and record.position is not None and not record.over else ""

    def on_run_known(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever `run_id` of a new turn becomes known."""
        self._on_run_known = callback

    def handle_event(self, event: RecordedEvent) -> None:
        """Process an event of a turn; its end comes with `take_note`."""
        if isinstance(event, TurnBegan):
            self._record = _TurnRecord(event.turn_id)
        if self._record is not None and isinstance(event, TurnEnd):
            self._record.over = True
        elif self._record is not None:
            self._record.add(event)
        self._has_events.set()
        if not isinstance(event, TextAdded | ReasoningAdded | ToolProgressed):
            self._urgent.set()

    def take_note(self, tx: Transaction, result: TurnResult) -> None:
        """Write all remaining events, and how the run continues or ends."""
        record = self._record
        if record is None or record.turn_id != result.turn_id:
            return
        position = self._link_turn(tx, record)
        if position is None:
            return
        pending = record.pending
        run_events = _map_events(_make_mapper(pending, position), [*pending.turn_events, result.end], position)
        self._append(tx, position, pending.written_count, run_events)
        close_link(tx, result.session_id)
        run = tx.runs.get(position.run_id)
        if run is not None:
            end: RunEnd | RunWaiting = to_run_end(result.end)
            if isinstance(end, RunCompleted) and self._has_background_work(tx, result.session_id):
                end = RunWaiting(end.text)
            end_run(tx, run, end, _sum_usage(tx, result.turn_id), files=list_files(tx, result.turn_id))
            self._on_end(tx, run)

    async def keep(self) -> None:
        """Write events as they happen, until cancelled; text is merged while the store is busy."""
        loop = asyncio.get_running_loop()
        while True:
            await self._has_events.wait()
            self._has_events.clear()
            self._urgent.clear()
            began = loop.time()
            try:
                await self._write_pending()
            except StoreError as error:
                log.warning("session %s: run events not stored yet, will retry: %s", self._session_id, error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._has_events.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(_PAUSE_FACTOR * (loop.time() - began), _MIN_PAUSE), _MAX_PAUSE)):
                    await self._urgent.wait()

    async def catch_up(self) -> None:
        """Write the remaining events."""
        await self._write_pending()

    async def _write_pending(self) -> None:
        record = self._record
        if record is None or record.over:
            return
        if not record.known:
            record.position = await self._store.write(lambda tx: self._link_turn(tx, record))
            record.known = True
            if self._on_run_known is not None:
                self._on_run_known()
        position = record.position
        if position is not None:  # otherwise the turn of another surface, in the same session
            before, (run_events, mapper) = record.pending.written_count, record.map_pending(position)
            await self._store.write(lambda tx: self._append_and_move(tx, record, before, run_events, mapper.state))
            record.mark_written(len(run_events), mapper)

    def _link_turn(self, tx: Transaction, record: _TurnRecord) -> StreamPosition | None:
        return link_turn(tx, self._session_id, record.turn_id, record.id, self._resume_point)

    def _append_and_move(
        self, tx: Transaction, record: _TurnRecord, before: int, run_events: Sequence[RunEvent], state: ApiRunState
    ) -> None:
        position = record.position
        if position is not None and self._append(tx, position, before, run_events, record=record.id):
            tx.runs.move(position.run_id, state)

    def _append(
        self,
        tx: Transaction,
        position: StreamPosition,
        before: int,
        run_events: Sequence[RunEvent],
        *,
        record: str = "",
    ) -> bool:
        """Append missing events after the first ones, unless another process records this turn now."""
        last = tx.events.append(make_stream_name(position.run_id), ())  # which also locks out other writers
        link = read_link(tx, self._session_id)
        if record and (link is None or link.record != record):
            return False
        missing = run_events[last - position.base - before :]
        if missing:
            append_events(tx, position.run_id, self._session_id, missing)
        return bool(missing)


def _sum_usage(tx: Transaction, turn_id: TurnId) -> Usage:
    """Return the usage of a turn's model calls."""
    used = [step.usage for step in read_model_steps(tx, turn_id)]
    return Usage(**{name: sum(getattr(one, name) for one in used) for name in Usage.__struct_fields__})


def _map_events(
    mapper: RunEventMapper, turn_events: Sequence[RecordedEvent], position: StreamPosition | None
) -> list[RunEvent]:
    run_events: list[RunEvent] = []
    for event in turn_events:
        if isinstance(event, ClosedQuestion):
            run_events += mapper.close_question(event.id)
        elif not (isinstance(event, TurnBegan) and position is not None and position.resumed):
            run_events += mapper.map_event(event)
    return run_events


def _make_mapper(pending: _Pending, position: StreamPosition) -> RunEventMapper:
    """Return a mapper with the state after the emitted events."""
    if pending.mapper is not None:
        return pending.mapper.copy()
    mapper = RunEventMapper()
    mapper.recall(position.reported)
    return mapper
