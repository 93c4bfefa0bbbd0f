"""Process runs: any server claims unowned ones, resumes interrupted ones, and ends those processed elsewhere."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import ClassVar

from msgspec import Struct

from talaria.api.front_door import ApiCaller
from talaria.api.runs.events import MessageCompleted, RunCompleted, RunEnd, RunEvent, RunFailed, RunStopped
from talaria.api.runs.recorder import ClosedQuestion, RecordedEvent, RunRecorder
from talaria.api.runs.run_store import (
    RUNS_TOPIC,
    RunKind,
    end_run,
    is_over,
    make_control_topic,
    read_commands,
    read_options,
    read_result,
)
from talaria.api.runs.turn_links import (
    close_link,
    find_resume_point,
    has_background_work,
    is_message_stored,
    list_unreported,
    lock_reports,
    read_link,
)
from talaria.api.turns.session_pool import ApiOrigin, PooledSession, SessionPool, read_origin
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.responses import ApiRun
from talaria.contracts.stores.sessions import SessionChanges
from talaria.contracts.stores.turns import Turn
from talaria.contracts.turns import TurnResult
from talaria.core.aio import run_with
from talaria.core.errors import Refused, StoreError, TalariaError
from talaria.core.events import ApprovalAsked, QuestionAsked
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text
from talaria.http.errors import to_problem
from talaria.runtime.completions import WAKE, is_delivery_target, queue_reports_if_idle
from talaria.runtime.questions import Questions
from talaria.runtime.workers import is_leased, session_lease_name
from talaria.sessions.branches import list_exchanges

_MAX_PARALLEL = 64
_SURFACE = (
    "You were called over HTTP, as an independent run. The client may be away for a long time; it can answer "
    "your questions when it returns."
)
_POLL_INTERVAL = 1.0

log = logging.getLogger(__name__)

OnRunEnd = Callable[[Transaction, ApiRun], None]
_SESSION_DELETED = "The session was deleted."
_MESSAGE_LOST = "The input didn't reach the session."


class RunSessionPool(SessionPool):
    """Sessions of runs: their clients answer questions, and get later reports."""

    supports_async_delivery: ClassVar[bool] = True
    attended: ClassVar[bool] = True
    surface: ClassVar[str] = _SURFACE


class _DueSession(Struct, frozen=True):
    """A session with a pending run; ``new`` if it never had a turn."""

    session_id: SessionId
    kind: RunKind
    origin: ApiOrigin
    model: str
    new: bool


class RunWorker:
    """Processes the runs of a store as tasks of ``jobs``; several servers may do so at once.

    Each session is processed by the server that holds its lease. ``session_pools`` are those for each kind of run.
    ``ended`` runs in the transaction in which a run ends, or one of its turns.
    """

    def __init__(
        self,
        session_pools: Mapping[RunKind, SessionPool],
        store: Store,
        jobs: asyncio.TaskGroup,
        ended: OnRunEnd,
    ) -> None:
        self._session_pools = session_pools
        self._store = store
        self._jobs = jobs
        self._on_end = ended
        self._in_flight: dict[SessionId, PooledSession | None] = {}
        self._session_finished = asyncio.Event()
        self._draining = False
        self._slots = asyncio.Semaphore(_MAX_PARALLEL)
        self._poll_requested = asyncio.Event()

    def __len__(self) -> int:
        return len(self._in_flight)

    async def serve(self) -> None:
        """Claim pending runs without an owner, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._subscribe())
            while True:
                await self._poll_requested.wait()
                self._poll_requested.clear()
                try:
                    await self.take_up()
                except StoreError as error:
                    log.warning("runs: the store is unavailable, will retry: %s", error)
                    await asyncio.sleep(_POLL_INTERVAL)
                    self._poll_requested.set()

    async def take_up(self) -> int:
        """Start processing pending runs, end those that others have finished, and return the number of sessions."""
        if self._draining or not await self._store.read(lambda tx: bool(tx.runs.open())):
            return 0
        due = await self._store.write(self._find_due)
        for one in due:
            self._in_flight[one.session_id] = None
            self._jobs.create_task(self._run_guarded(one))
        return len(due)

    async def drain(self, patience: float) -> None:
        """Claim nothing more, and give turns so many seconds to end, except those waiting for an answer.

        The next server resumes the rest.
        """
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while any(pooled is None or not pooled.chat.questions.waiting for pooled in self._in_flight.values()):
                    self._session_finished.clear()
                    await self._session_finished.wait()

    async def _subscribe(self) -> None:
        async with self._store.subscribe(RUNS_TOPIC, WAKE) as subscription:
            while True:
                await subscription.wait()
                self._poll_requested.set()

    def _find_due(self, tx: Transaction) -> list[_DueSession]:
        found: dict[SessionId, _DueSession] = {}
        for run in tx.runs.open():
            if run.session_id in found or run.session_id in self._in_flight:
                continue
            if reconcile_run(tx, run) is not None:
                self._report_end(tx, run)
            elif not is_leased(tx, session_lease_name(run.session_id)) and _has_work(tx, run.session_id):
                origin = read_origin(tx, run.session_id) or ApiOrigin()
                new = not tx.turns.find(run.session_id, limit=1)
                found[run.session_id] = _DueSession(
                    run.session_id, read_options(run).kind, origin, read_options(run).model, new
                )
        return list(found.values())

    def _report_end(self, tx: Transaction, run: ApiRun) -> None:
        ended = tx.runs.get(run.id)
        if ended is not None:
            self._on_end(tx, ended)

    async def _run_guarded(self, due: _DueSession) -> None:
        try:
            async with self._slots:
                await self._run_session(due)
        except Refused:
            log.info("session %s: another process is handling its runs", due.session_id)
            await asyncio.sleep(_POLL_INTERVAL)
        except StoreError as error:
            log.warning("session %s: the store is unavailable, its runs will be retried: %s", due.session_id, error)
            await asyncio.sleep(_POLL_INTERVAL)
        except TalariaError as error:
            log.warning("session %s: its runs can't be processed: %s", due.session_id, error)
            with suppress(StoreError):
                await self._fail_runs(due.session_id, error)
        finally:
            self._in_flight.pop(due.session_id, None)
            self._session_finished.set()
            self._poll_requested.set()

    async def _run_session(self, due: _DueSession) -> None:
        caller = ApiCaller(due.origin.key)
        session_pool = self._session_pools[due.kind]
        using = session_pool.using(due.session_id, due.origin, due.model, caller)
        async with using as pooled, pooled.lock:
            if due.new:
                session_pool.announce(pooled)
            resume_point = await self._store.read(lambda tx: find_resume_point(tx, due.session_id))
            recorder = RunRecorder(self._store, due.session_id, has_background_work, self._on_end, resume_point)
            listener = _RunListener(self._store, due.session_id, pooled, recorder, new=due.new)
            self._in_flight[due.session_id] = pooled
            with session_pool.count_turn(), pooled.listening(listener):
                await run_with(pooled.chat.conversation.run_pending_turns(), listener.serve())
                await recorder.catch_up()

    async def _fail_runs(self, session_id: SessionId, error: TalariaError) -> None:
        """Fail the runs of a session that can't be opened; with other settings they may be requested again."""

        def work(tx: Transaction) -> None:
            runs = [run for run in tx.runs.open() if run.session_id == session_id]
            names = {run.id for run in runs}
            items = [item for item in tx.inbox.list_unsettled(session_id) if item.external_id in names]
            tx.inbox.settle([item.id for item in items if item.state == "waiting"])
            for run in runs:
                end_run(tx, run, RunFailed(str(to_problem(error)), "failed"))
                self._report_end(tx, run)

        await self._store.write(work)


class _RunListener:
    """Listener to a session while its runs are processed, which also applies the commands of clients.

    Implements `PoolListener`.
    """

    def __init__(
        self, store: Store, session_id: SessionId, pooled: PooledSession, recorder: RunRecorder, *, new: bool
    ) -> None:
        self.recorder = recorder
        self._new = new
        self._store = store
        self._session_id = session_id
        self._pooled = pooled
        self._stopped: set[str] = set()
        self._asked_questions: asyncio.Queue[str] = asyncio.Queue()

    def handle_event(self, event: RecordedEvent) -> None:
        """Process an event of the session."""
        self.recorder.handle_event(event)
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._asked_questions.put_nowait(event.id)

    def take_note(self, tx: Transaction, result: TurnResult) -> None:
        """Record the end of a turn, in its transaction."""
        if self._new:
            tx.sessions.update(self._session_id, SessionChanges(model=self._pooled.chat.model))
        self.recorder.take_note(tx, result)

    async def serve(self) -> None:
        """Write events and carry out clients' commands, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.recorder.keep())
            group.create_task(self._apply_commands())
            while True:
                group.create_task(self._report_closed(await self._asked_questions.get()))

    async def _report_closed(self, question_id: str) -> None:
        await self._questions.wait_until_closed(question_id)
        self.recorder.handle_event(ClosedQuestion(question_id))

    @property
    def _questions(self) -> Questions:
        return self._pooled.chat.questions

    async def _apply_commands(self) -> None:
        async with self._store.subscribe(make_control_topic(self._session_id)) as subscription:
            self.recorder.on_run_known(subscription.wake)  # a command from before the turn is applied then
            while True:
                await subscription.wait()
                commands = await self._store.read(lambda tx: read_commands(tx, self._session_id))
                for question_id, answer in commands.answers.items():
                    self._questions.answer(question_id, answer)
                run_id = self.recorder.run_id
                if run_id in commands.stop - self._stopped and self._pooled.chat.conversation.stop():
                    self._stopped.add(run_id)


def _has_work(tx: Transaction, session_id: SessionId) -> bool:
    """Return whether there is work, and move pending reports to the inbox."""
    if session_id in tx.completions.waiting() and is_delivery_target(tx, session_id, ""):
        lock_reports(tx, session_id)
        queue_reports_if_idle(tx, session_id)
    return bool(tx.inbox.list_unsettled(session_id) or tx.turns.find(session_id, running=True, limit=1))


def reconcile_run(tx: Transaction, run: ApiRun) -> RunEnd | None:
    """Return and store the end of a run without remaining work; ``None`` while there is some."""
    if is_over(run):
        return None
    if tx.sessions.get(run.session_id) is None:
        return _end_run(tx, run, [], RunFailed(_SESSION_DELETED, "failed"))
    if _is_unfinished(tx, run):
        return None
    link = read_link(tx, run.session_id)
    if link is not None and link.run_id == run.id:
        if not link.record:  # its last turn is recorded; it waits for background work
            result = read_result(tx, run)
            run_end = RunCompleted(result.output if result else "")
            return _end_run(tx, run, [], run_end) if _has_no_work(tx, run) else None
        found = [turn for turn in tx.turns.find(run.session_id) if turn.id == link.turn_id]
        run_events = list_unreported(tx, link)
        close_link(tx, run.session_id)
        return _end_run(tx, run, run_events, _find_end(tx, run, found[-1] if found else None))
    if not is_message_stored(tx, run):
        return _end_run(tx, run, [], RunFailed(_MESSAGE_LOST, "failed"))
    run_events = [MessageCompleted(words) for words in _list_answers(tx, run)]
    return _end_run(tx, run, run_events, _find_end(tx, run, None))


def _is_unfinished(tx: Transaction, run: ApiRun) -> bool:
    is_queued = any(item.external_id == run.id for item in tx.inbox.list_unsettled(run.session_id))
    return is_queued or bool(tx.turns.find(run.session_id, running=True, limit=1))


def _end_run(tx: Transaction, run: ApiRun, run_events: list[RunEvent], end: RunEnd) -> RunEnd | None:
    return end if end_run(tx, run, end, run_events=run_events) else None


def _has_no_work(tx: Transaction, run: ApiRun) -> bool:
    """Return whether a run has no more work: checked twice, the second time under a lock."""
    if has_background_work(tx, run.session_id):
        return False
    lock_reports(tx, run.session_id)
    return not _is_unfinished(tx, run) and not has_background_work(tx, run.session_id)


def _find_end(tx: Transaction, run: ApiRun, turn: Turn | None) -> RunEnd:
    """Return the end according to the turn log, otherwise according to the transcript."""
    if turn is not None and turn.state == "stopped":
        return RunStopped()
    if turn is not None and turn.state in ("failed", "out_of_budget"):
        return RunFailed(turn.error, turn.state)
    answers = _list_answers(tx, run)
    return RunCompleted(answers[-1]) if answers else RunStopped()


def _list_answers(tx: Transaction, run: ApiRun) -> list[str]:
    """Return the agent's messages between the run's message and the next one of a person."""
    asked = tx.messages.with_platform_id(run.session_id, run.id)
    if asked is None:
        return []
    later = tx.messages.load(run.session_id, after=asked.seq)
    following = list_exchanges(later)
    until = following[0].seq if following else None
    messages_until = [one.message for one in later if until is None or one.seq < until]
    return [words for message in messages_until if message.role == "assistant" and (words := _get_text(message))]


def _get_text(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))
