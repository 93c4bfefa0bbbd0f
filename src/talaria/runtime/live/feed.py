"""Live feed of a session: the events of its turns, written to the store for watchers in other processes."""

import asyncio
import logging
from collections.abc import Collection, Sequence

import msgspec
from msgspec import Struct, structs

from talaria.contracts.store import Store, Transaction
from talaria.core.errors import StoreError
from talaria.core.events import (
    ApprovalAsked,
    QuestionAsked,
    ReasoningAdded,
    TextAdded,
    ToolAnswered,
    ToolCalled,
    ToolProgressed,
    TurnEnd,
    TurnEvent,
)
from talaria.core.ids import SessionId, new_id
from talaria.runtime.live.control import RunningTurn, live_stream, start_task
from talaria.runtime.open_session import OpenSession

SNAPSHOT, UPDATE = "so far", "news"


_MAX_TEXT = 16_000


class QuestionClosed(Struct, frozen=True, tag="question_closed"):
    """Event of a question that was answered, timed out or ended with its turn."""

    id: str


FeedEvent = TurnEvent | QuestionClosed


class FeedChunk(Struct, frozen=True):
    """A batch of events; ``run`` stays the same while one process runs one turn."""

    run: str
    events: tuple[FeedEvent, ...]


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(FeedChunk)


def encode_chunk(chunk: FeedChunk) -> str:
    """Encode a chunk for the store."""
    return _encode(chunk).decode()


def decode_chunk(payload: str) -> FeedChunk:
    """Decode a chunk from the store."""
    return _decoder.decode(payload)


class FeedBuffer:
    """Buffer of events that joins consecutive text and truncates very long fields."""

    def __init__(self) -> None:
        self._events: list[FeedEvent] = []
        self._pieces: list[str] = []
        self._kind: type[TextAdded | ReasoningAdded] = TextAdded

    def add(self, event: FeedEvent) -> None:
        """Add an event."""
        if isinstance(event, TextAdded | ReasoningAdded):
            if type(event) is not self._kind:
                self._join()
                self._kind = type(event)
            self._pieces.append(event.text)
        else:
            self._join()
            self._events.append(_truncate(event))

    def collect(self) -> Sequence[FeedEvent]:
        """Return the events so far, with adjacent text joined."""
        self._join()
        return self._events

    def _join(self) -> None:
        if self._pieces:
            joined, last = "".join(self._pieces), self._events[-1] if self._events else None
            if type(last) is self._kind:
                self._events[-1] = self._kind(last.text + joined)
            else:
                self._events.append(self._kind(joined))
            self._pieces.clear()


def _truncate(event: FeedEvent) -> FeedEvent:
    if isinstance(event, ToolAnswered | ApprovalAsked) and len(event.diff) > _MAX_TEXT:
        event = structs.replace(event, diff=f"{event.diff[:_MAX_TEXT]} …")
    if isinstance(event, ToolAnswered) and len(event.result.text) > _MAX_TEXT:
        return structs.replace(event, result=structs.replace(event.result, text=f"{event.result.text[:_MAX_TEXT]} …"))
    if isinstance(event, ToolCalled) and len(event.call.arguments) > _MAX_TEXT:
        return structs.replace(
            event, call=structs.replace(event.call, arguments=f"{event.call.arguments[:_MAX_TEXT]} …")
        )
    return event


_BATCH_WINDOW = 0.08
_CLOSE_TIMEOUT = 1.0
log = logging.getLogger(__name__)


class LiveFeed:
    """Publisher of one open session's turns to watchers, through the store; `add` never waits."""

    def __init__(self, store: Store, chat: OpenSession, jobs: asyncio.TaskGroup) -> None:
        self._store = store
        self._session_id: SessionId = chat.conversation.session_id
        self._questions = chat.questions
        self._jobs = jobs
        self._runs: dict[RunningTurn, _FeedRun] = {}
        self._publish_task: asyncio.Task[None] | None = None
        self._first_seq = 0

    def set_watchers(self, turn: RunningTurn, watcher_ids: Collection[str]) -> bool:
        """Set the watchers of a turn; return whether one has left. A new one gets all events so far."""
        run = self._runs.get(turn)
        if run is None:
            if not watcher_ids:
                return False
            run = self._begin(turn)
        return run.set_watchers(watcher_ids)

    def add(self, turn: RunningTurn, event: TurnEvent) -> None:
        """Add an event to a turn that has watchers."""
        if run := self._runs.get(turn):
            run.add(event)

    def end(self, turn: RunningTurn) -> None:
        """Finish publishing a turn, including the events so far."""
        if run := self._runs.pop(turn, None):
            run.end()

    async def close(self) -> None:
        """Publish the remaining events, waiting at most ``_CLOSE_TIMEOUT`` seconds."""
        for turn in tuple(self._runs):
            self.end(turn)
        if self._publish_task is not None and not self._publish_task.done():
            await asyncio.wait([self._publish_task], timeout=_CLOSE_TIMEOUT)
            self._publish_task.cancel()

    def _begin(self, turn: RunningTurn) -> "_FeedRun":
        run = self._runs[turn] = _FeedRun()
        for event in turn.events:
            run.add(event)
        self._publish_task = start_task(self._jobs, self._publish_run(run, self._publish_task))
        return run

    async def _publish_run(self, run: "_FeedRun", before: asyncio.Task[None] | None) -> None:
        """Publish one turn, several times a second while it has new events, after the turn before it."""
        if before is not None:
            await asyncio.wait([before])
        first = True
        while not run.is_over or run.has_updates or run.has_new_watchers:
            await run.changed.wait()
            run.changed.clear()
            if not run.is_complete and not run.has_new_watchers:
                await asyncio.sleep(_BATCH_WINDOW)
            rows = run.take(self._questions.waiting)
            if rows and await self._write(rows, begins=first):
                first = False

    async def _write(self, rows: list[tuple[str, str]], *, begins: bool) -> bool:
        """Append rows to the stream; ``False`` if the store refuses.

        The first rows of a turn drop everything older than the previous turn.
        """
        stream, before = live_stream(self._session_id), self._first_seq - 1

        def work(tx: Transaction) -> int:
            if begins and before > 0:
                tx.events.drop(stream, through=before)
            tx.notify(stream)
            return tx.events.append(stream, rows)

        try:
            last = await self._store.write(work)
        except StoreError as error:
            log.info("session %s: can't publish to watchers: %s", self._session_id, error)
            return False
        if begins:
            self._first_seq = last - len(rows) + 1
        return True


class _FeedRun:
    """A turn with watchers, while one process runs it.

    It ``is_complete`` with its last event, and ``is_over`` when no more watchers are added.
    """

    def __init__(self) -> None:
        self.id = new_id()
        self.changed = asyncio.Event()
        self.has_updates = self.has_new_watchers = self.is_complete = self.is_over = False
        self._watcher_ids: Collection[str] = ()
        self._snapshot = FeedBuffer()
        self._updates = FeedBuffer()
        self._open_questions: set[str] = set()

    def set_watchers(self, watcher_ids: Collection[str]) -> bool:
        """Replace the watchers, and return whether one has left."""
        before, self._watcher_ids = self._watcher_ids, watcher_ids
        if set(watcher_ids) - set(before):
            self.has_new_watchers = True
            self.changed.set()
        return bool(set(before) - set(watcher_ids))

    def add(self, event: FeedEvent) -> None:
        """Add an event to the snapshot for new watchers and to the next update for present ones."""
        if not isinstance(event, ToolProgressed):
            self._snapshot.add(event)
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._open_questions.add(event.id)
        self.is_complete |= isinstance(event, TurnEnd)
        if self._watcher_ids:
            self._updates.add(event)
            self.has_updates = True
            self.changed.set()

    def end(self) -> None:
        """Let the publishing task finish."""
        self.is_complete = self.is_over = True
        self.changed.set()

    def take(self, waiting: Collection[str]) -> list[tuple[str, str]]:
        """Return the rows to write now; ``waiting`` are the ids of open questions."""
        for closed in self._open_questions.difference(waiting):
            self._open_questions.discard(closed)
            self.add(QuestionClosed(closed))
        rows = []
        if self.has_updates:
            rows.append((UPDATE, self._encode(self._updates)))
            self._updates, self.has_updates = FeedBuffer(), False
        if self.has_new_watchers:
            rows.append((SNAPSHOT, self._encode(self._snapshot)))
            self.has_new_watchers = False
        return rows

    def _encode(self, buffer: FeedBuffer) -> str:
        return encode_chunk(FeedChunk(self.id, tuple(buffer.collect())))
