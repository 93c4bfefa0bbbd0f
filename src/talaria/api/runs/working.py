"""Work on runs: whichever server is there takes up those that nobody has, and goes on with what was cut off."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import ClassVar

from msgspec import Struct

from talaria.api.conversations import Conversations, Kept, Origin, read_origin
from talaria.api.keys import Caller
from talaria.api.problems import problem_of
from talaria.api.runs.asked import orders_for, read_orders
from talaria.api.runs.behind import goes_on_behind, hold_reports
from talaria.api.runs.events import RunFailed, stream_of
from talaria.api.runs.keeping import RUNS, RunKind, end_run, order_of
from talaria.api.runs.marks import find_cut
from talaria.api.runs.reckoning import settle_up
from talaria.api.runs.recording import Closed, Happened, Recorder
from talaria.contracts.follower import Ending
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.responses import ApiRun
from talaria.contracts.stores.sessions import SessionChanges
from talaria.core.errors import Refused, StoreError, TalariaError
from talaria.core.events import ApprovalAsked, QuestionAsked
from talaria.core.ids import SessionId
from talaria.sessions.company import accompanied
from talaria.sessions.holding import is_held, lane_of
from talaria.sessions.questions import Questions
from talaria.sessions.waking import WAKE, fold_in_at_rest, is_told_at

_AT_ONCE = 64
_SURFACE = (
    "You are asked over HTTP, as a run that goes on by itself: its client may be gone for long, and can answer what you"
    " ask when it is back."
)
_LOOK_AGAIN = 1.0

log = logging.getLogger(__name__)

Ended = Callable[[Transaction, ApiRun], None]


class RunConversations(Conversations):
    """Conversations of runs: their clients answer what is asked, and hear of what ends later."""

    supports_async_delivery: ClassVar[bool] = True
    attended: ClassVar[bool] = True
    surface: ClassVar[str] = _SURFACE


class _Due(Struct, frozen=True):
    """A conversation in which a run waits to be worked on; ``new`` if nothing was ever worked on in it."""

    session_id: SessionId
    kind: RunKind
    origin: Origin
    model: str
    new: bool


class Runner:
    """Works on the runs of a store as tasks of ``jobs``; several servers may do so at once.

    Each conversation is worked on by one of them: the one that has its lane. ``conversations`` are those for each kind
    of run. ``ended`` runs in the transaction in which a run ends, or one of its turns.
    """

    def __init__(
        self,
        conversations: Mapping[RunKind, Conversations],
        store: Store,
        jobs: asyncio.TaskGroup,
        ended: Ended,
    ) -> None:
        self._conversations = conversations
        self._store = store
        self._jobs = jobs
        self._ended = ended
        self._at_work: dict[SessionId, Kept | None] = {}
        self._rested = asyncio.Event()
        self._draining = False
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._look = asyncio.Event()

    def __len__(self) -> int:
        return len(self._at_work)

    async def serve(self) -> None:
        """Take up what waits and has no owner, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for topic in (RUNS, WAKE):
                group.create_task(self._heed(topic))
            while True:
                await self._look.wait()
                self._look.clear()
                try:
                    await self.take_up()
                except StoreError as error:
                    log.warning("runs wait for the store: %s", error)
                    await asyncio.sleep(_LOOK_AGAIN)
                    self._look.set()

    async def take_up(self) -> int:
        """Begin to work on what waits, end what others have worked off, and return how many conversations those are."""
        if self._draining or not await self._store.read(lambda tx: bool(tx.runs.open())):
            return 0
        due, over = await self._store.write(self._due)
        for run_id in over:
            await self._store.hint(stream_of(run_id))
        for one in due:
            self._at_work[one.session_id] = None
            self._jobs.create_task(self._attend(one))
        return len(due)

    async def drain(self, patience: float) -> None:
        """Take up nothing more, and let turns come to their end for so many seconds; not those that wait for somebody.

        What is not done then goes on with the next server.
        """
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while any(kept is None or not kept.chat.questions.waiting for kept in self._at_work.values()):
                    self._rested.clear()
                    await self._rested.wait()

    async def _heed(self, topic: str) -> None:
        async with self._store.heeding(topic) as rung:
            while True:
                await rung.wait()
                rung.clear()
                self._look.set()

    def _due(self, tx: Transaction) -> tuple[list[_Due], list[str]]:
        found: dict[SessionId, _Due] = {}
        over = []
        for run in tx.runs.open():
            if run.session_id in found or run.session_id in self._at_work:
                continue
            if settle_up(tx, run) is not None:
                self._note_end(tx, run)
                over.append(run.id)
            elif not is_held(tx, lane_of(run.session_id)) and _waits(tx, run.session_id):
                origin = read_origin(tx, run.session_id) or Origin()
                new = not tx.turns.find(run.session_id, limit=1)
                found[run.session_id] = _Due(run.session_id, order_of(run).kind, origin, order_of(run).model, new)
        return list(found.values()), over

    def _note_end(self, tx: Transaction, run: ApiRun) -> None:
        ended = tx.runs.get(run.id)
        if ended is not None:
            self._ended(tx, ended)

    async def _attend(self, due: _Due) -> None:
        try:
            async with self._places:
                await self._work_off(due)
        except Refused:
            log.info("session %s: another process works on its runs", due.session_id)
            await asyncio.sleep(_LOOK_AGAIN)
        except StoreError as error:
            log.warning("session %s: its runs wait for the store: %s", due.session_id, error)
            await asyncio.sleep(_LOOK_AGAIN)
        except TalariaError as error:
            log.warning("session %s: its runs cannot be worked on: %s", due.session_id, error)
            with suppress(StoreError):
                await self._give_up(due.session_id, error)
        finally:
            self._at_work.pop(due.session_id, None)
            self._rested.set()
            self._look.set()

    async def _work_off(self, due: _Due) -> None:
        caller = Caller(due.origin.key)
        conversations = self._conversations[due.kind]
        using = conversations.using(due.session_id, due.origin, due.model, caller)
        async with using as kept, kept.lock:
            if due.new:
                conversations.announce(kept)
            cut = await self._store.read(lambda tx: find_cut(tx, due.session_id))
            recorder = Recorder(self._store, due.session_id, goes_on_behind, self._ended, cut)
            ear = _Ear(self._store, due.session_id, kept, recorder, new=due.new)
            kept.ear.listener, self._at_work[due.session_id] = ear, kept
            conversations.running += 1
            try:
                await accompanied(kept.chat.conversation.work_off(), ear.serve())
                await ear.recorder.catch_up()
            finally:
                conversations.running -= 1
                kept.ear.listener = None

    async def _give_up(self, session_id: SessionId, error: TalariaError) -> None:
        """Let the runs of a conversation fail that cannot be opened: with other settings they may be asked for anew."""

        def work(tx: Transaction) -> list[str]:
            runs = [run for run in tx.runs.open() if run.session_id == session_id]
            names = {run.id for run in runs}
            items = [item for item in tx.inbox.unsettled(session_id) if item.external_id in names]
            tx.inbox.settle([item.id for item in items if item.state == "waiting"])
            for run in runs:
                end_run(tx, run, RunFailed(str(problem_of(error)), "failed"))
                self._note_end(tx, run)
            return [run.id for run in runs]

        for run_id in await self._store.write(work):
            await self._store.hint(stream_of(run_id))


class _Ear:
    """Hears a conversation while its runs are worked on, and lets it hear what clients want; implements `Listener`."""

    def __init__(self, store: Store, session_id: SessionId, kept: Kept, recorder: Recorder, *, new: bool) -> None:
        self.recorder = recorder
        self._new = new
        self._store = store
        self._session_id = session_id
        self._kept = kept
        self._stopped: set[str] = set()
        self._asked: asyncio.Queue[str] = asyncio.Queue()

    def hear(self, event: Happened) -> None:
        """Take an event of the conversation."""
        self.recorder.hear(event)
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._asked.put_nowait(event.id)

    def take_note(self, tx: Transaction, ending: Ending) -> None:
        """Take note of the end of a turn, in its transaction."""
        if self._new:
            tx.sessions.update(self._session_id, SessionChanges(model=self._kept.chat.model))
        self.recorder.take_note(tx, ending)

    async def serve(self) -> None:
        """Tell what happens, and do what clients want, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.recorder.keep())
            group.create_task(self._obey())
            while True:
                group.create_task(self._closing(await self._asked.get()))

    async def _closing(self, question_id: str) -> None:
        await self._questions.closed(question_id)
        self.recorder.hear(Closed(question_id))

    @property
    def _questions(self) -> Questions:
        return self._kept.chat.questions

    async def _obey(self) -> None:
        async with self._store.heeding(orders_for(self._session_id)) as rung:
            self.recorder.begun = rung.set  # what was wanted before a turn had begun counts then
            while True:
                await rung.wait()
                rung.clear()
                orders = await self._store.read(lambda tx: read_orders(tx, self._session_id))
                for question_id, answer in orders.answers.items():
                    self._questions.answer(question_id, answer)
                run_id = self.recorder.run_id
                if run_id in orders.stop - self._stopped and self._kept.chat.conversation.stop():
                    self._stopped.add(run_id)


def _waits(tx: Transaction, session_id: SessionId) -> bool:
    """Tell whether there is something to work on, and put what was reported meanwhile into the inbox."""
    if session_id in tx.completions.waiting() and is_told_at(tx, session_id, ""):
        hold_reports(tx, session_id)
        fold_in_at_rest(tx, session_id)
    return bool(tx.inbox.unsettled(session_id) or tx.turns.find(session_id, running=True, limit=1))
