"""Session runner: run, stop and steer the turns of one open session, with follow-ups."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import TypeVar

from msgspec import Struct, structs

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.environment import TurnControl, TurnEnvironment
from talaria.agent.loop import AgentLoop, AgentRenewal
from talaria.contracts.provider import Effort
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import SessionClaim
from talaria.contracts.stores.turns import Lease
from talaria.core.aio import retry_write, run_with, running_with, shield_until_done
from talaria.core.errors import Busy, LeaseLost, Refused, StoreError, TalariaError
from talaria.core.events import StoreBlocked, TurnAnswered, TurnBegan, TurnEnd, TurnStopped
from talaria.core.ids import SessionId
from talaria.core.messages import OWNER, Message, is_same_sender
from talaria.core.session_context import SessionContext, bound
from talaria.runtime.follow_ups import FollowUpTasks, generate_title
from talaria.runtime.turn_log import STEERING, TurnRecorder
from talaria.runtime.turns import (
    LEASE,
    ClaimedSession,
    NextWork,
    PendingAttachments,
    TurnOptions,
    TurnStart,
    TurnWork,
    add_to_inbox,
    begin_next,
    build_turn_context,
    claim_and_begin,
    end_turn,
    make_arrival,
    replace_files,
)
from talaria.runtime.workers import release_lease, renew_lease

T = TypeVar("T")


class RunnerState(Enum):
    """State of a session runner.

    ``CLAIMING`` is the time before a turn: the session is claimed, or its next message begins a turn. In ``MOVED`` the
    session belongs to another chat, in ``CLOSED`` it is closed here; both are final.
    """

    IDLE = "idle"
    CLAIMING = "claiming"
    FETCHING = "fetching"
    RUNNING = "running"
    STOPPING = "stopping"
    MOVED = "moved"
    CLOSED = "closed"


_CLOSE_TIMEOUT = 5.0
log = logging.getLogger(__name__)


class Admission(Struct, frozen=True):
    """A message that is stored in the transaction that claims its session.

    ``admit`` stores it and returns its inbox item, if it has one; it may run again. ``admitted`` gets that item after
    the commit, before the turn begins.
    """

    admit: Callable[[Transaction], int | None]
    admitted: Callable[[int | None], None] = lambda item: None


class _FetchedMessage(Struct, frozen=True):
    """A message whose files were fetched, or whose fetching was stopped: its turn ends at once then."""

    message: Message
    stopped: bool = False


class _Stopped(Exception):
    """A person stopped what the runner was doing."""


class RunnerOptions(TurnOptions, frozen=True, kw_only=True):
    """Options for starting and ending the turns of a session.

    ``before_first_turn`` runs in the transaction that begins the first turn, or the first with another effort or
    prompt. ``renew_agent`` is called before each turn.
    ``context`` describes the surface. ``is_same_person`` compares two senders: text joins a running turn only if its
    sender is that of the turn. A session without a title gets one if ``titled``.
    """

    before_first_turn: Callable[[Transaction, Effort], None] | None = None
    renew_agent: AgentRenewal | None = None
    context: SessionContext = SessionContext()
    lease: timedelta = LEASE
    is_same_person: Callable[[str, str], bool] = is_same_sender
    titled: bool = True


_DEFAULT_OPTIONS = RunnerOptions()


class SessionRunner:
    """Runner of one session's turns and follow-ups, as tasks of ``jobs``, which the caller owns.

    One task runs the turns: it starts when the runner is woken, and ends when the inbox is empty. ``turn`` is the turn
    that this process runs now, if any. `hold` keeps turns from starting.
    """

    def __init__(
        self,
        store: Store,
        session_id: SessionId,
        agent: AgentLoop,
        environment: TurnEnvironment,
        jobs: asyncio.TaskGroup,
        *,
        auxiliary: Auxiliary,
        options: RunnerOptions = _DEFAULT_OPTIONS,
    ) -> None:
        self.session_id = session_id
        self.turn: TurnWork | None = None
        self.state = RunnerState.IDLE
        self._store = store
        self._agent = agent
        self._environment = environment
        self._options = options
        self._auxiliary = auxiliary
        self._jobs = jobs
        self._task: asyncio.Task[None] | None = None
        self._last: TurnEnd | TalariaError | None = None
        self._hold_reason = ""
        self._is_woken = False
        self._is_steered = False
        self._stopped_claims = 0
        self._admission: Admission | None = None
        self._interrupting_item: int | None = None
        self._fetched: dict[int, _FetchedMessage] = {}
        self._stored_effort: Effort | None = None
        self._needs_title = options.titled
        self._context = structs.replace(options.context, session_id=session_id)
        self._follow_up_tasks: FollowUpTasks | None = None

    @property
    def busy(self) -> bool:
        """Return whether a turn is running or about to start."""
        return self._task is not None

    @property
    def has_running_work(self) -> bool:
        """Return whether a turn or a follow-up is running."""
        return self.busy or (self._follow_up_tasks is not None and self._follow_up_tasks.busy)

    def set_effort(self, effort: Effort) -> None:
        """Set the reasoning effort from the next model call on."""
        if effort != self._agent.options.effort:
            self._agent.options = structs.replace(self._agent.options, effort=effort)

    async def close(self, patience: float = _CLOSE_TIMEOUT) -> None:
        """Interrupt the running turn, to be resumed later, and wait up to ``patience`` seconds for follow-ups."""
        while self._task is not None:  # it may be woken again while its task ends
            await self._interrupt_task()
        self.state = RunnerState.CLOSED
        if self._follow_up_tasks is not None:
            await self._follow_up_tasks.close(patience)

    async def say(self, message: Message, *, source: str, external_id: str, sender: str = OWNER) -> TurnEnd | None:
        """Queue a person's message, run pending turns and return how the last one ended.

        Returns ``None`` for a duplicate. Raises `Refused` while another process runs this session; the message stays in
        the inbox then.
        """
        if not await add_to_inbox(self._store, self.session_id, source, external_id, message, sender=sender):
            return None
        return await self.run_pending_turns()

    async def put(
        self, message: Message, *, source: str, external_id: str, sender: str = OWNER, steering: bool = False
    ) -> bool:
        """Queue a person's message after the pending ones; ``False`` for a duplicate.

        With ``steering``, it is added to the running turn before its next model call. It gets its own turn if it comes
        too late, or if another sender began the running turn.
        """
        kind = STEERING if steering else "message"
        arrival = make_arrival(self.session_id, source, external_id, message, kind=kind, sender=sender)
        is_new = await self._store.write(lambda tx: tx.inbox.add(arrival)) is not None
        if is_new:
            self.wake(steered=steering)
        return is_new

    async def run_pending_turns(self) -> TurnEnd | None:
        """Resume an interrupted turn, run turns for pending messages, and return how the last one ended."""
        self.wake()
        try:
            return await self.wait_until_idle()
        except asyncio.CancelledError:
            await self._interrupt_task()
            raise

    def wake(self, *, steered: bool = False) -> None:
        """Process the inbox, now or after the running turn; if ``steered``, new items may join that turn."""
        self._is_steered = self._is_steered or steered
        self._is_woken = True
        if self.state is RunnerState.CLOSED:
            self._last = Refused("This conversation is closed here. Its messages wait until it is opened again.")
        elif self._task is None:
            self._last, self._stopped_claims = None, 0
            self._task = self._jobs.create_task(self._run())

    def hold(self, reason: str) -> None:
        """Keep turns from starting until it is called with an empty reason; a running one continues.

        Callers that wait for a turn get `Busy`, and their messages stay in the inbox.
        """
        self._hold_reason = reason

    def submit(self, admission: Admission) -> None:
        """Run turns like `wake`, with a message that is stored in the transaction that claims the session."""
        self._admission = admission
        self.wake()

    async def wait_until_idle(self) -> TurnEnd | None:
        """Wait until the runner is idle and return how the last turn ended; raises its error."""
        if self._task is not None:
            await asyncio.wait([self._task])
        if isinstance(self._last, TalariaError):
            raise self._last
        return self._last

    def stop(self) -> bool:
        """Stop the running turn at once and continue with pending messages; ``False`` if none is running.

        A turn that is about to begin ends as soon as it has begun. While files are fetched, that is stopped, and the
        turn of their message ends in the same way.
        """
        if self._task is None:
            return False
        if self.state in {RunnerState.FETCHING, RunnerState.RUNNING}:
            self.state = RunnerState.STOPPING
            self._task.cancel()
        elif self.state is RunnerState.IDLE:  # the task has not started yet
            self._stopped_claims = 1
        elif self.state is RunnerState.CLAIMING:  # this claim may have missed what has woken the runner since
            self._stopped_claims = 2 if self._is_woken else 1
        return True

    def interrupt(self, item: int) -> bool:
        """Stop the running turn for an inbox item, unless the turn is about that item.

        Files that are being fetched are fetched first, so that they are in the transcript.
        """
        if self.state is RunnerState.FETCHING:
            self._interrupting_item = item
        return self.turn is not None and item not in self.turn.items and self.stop()

    def follow(self) -> None:
        """Start the follow-ups; resumable ones that are running are restarted.

        Called after opening a session and when something that follow-ups depend on has changed. After a turn, they
        start if one of them has work to do.
        """
        if self._options.follow_ups:
            self._make_follow_up_tasks().start_follow_ups(self.wake)

    async def compact(self) -> bool:
        """Summarise the older part of the session; ``False`` if there is nothing to gain."""
        window = self._agent.window
        await window.open()
        return await window.compact(self._environment.publish)

    async def _run(self) -> None:
        """Run turns until the inbox is empty and nobody has woken the runner since."""
        try:
            while self._is_woken:
                self._is_woken = False
                self._last = await self._run_claimed() or self._last
                self._stopped_claims = max(0, self._stopped_claims - 1)
        finally:
            self._task = None
            self._fetched = {}
            if self.state is not RunnerState.MOVED:
                self.state = RunnerState.IDLE

    async def _run_claimed(self) -> TurnEnd | TalariaError | None:
        """Claim the session, run its turns and release it; return how the last turn ended, or the error."""
        if self.state is RunnerState.MOVED:
            return Refused("This conversation has moved to another chat.")
        if self._hold_reason:
            return Busy(self._hold_reason)
        self.state = RunnerState.CLAIMING
        try:
            with bound(self._context):
                claimed = await self._claim()
                try:
                    return await self._run_turns(claimed.claim, claimed.work)
                except BaseException:
                    await asyncio.shield(release_lease(self._store, claimed.claim.lease))
                    raise
        except TalariaError as error:
            if isinstance(error, StoreError) and not isinstance(error, LeaseLost):
                log.warning("pending messages are waiting for the store: %s", error)
                if self._options.waits_for_store:
                    self._report_store_wait()
            return error

    async def _claim(self) -> ClaimedSession:
        """Claim the session and begin its first turn."""
        admission, self._admission = self._admission, None
        await self._renew_agent(may_wait=admission is None)
        effort, start = self._make_start()
        lease, admit = self._options.lease, admission.admit if admission is not None else None
        claiming = self._store.write(lambda tx: claim_and_begin(tx, self.session_id, lease, start, admit))
        claimed = await shield_until_done(
            claiming, undo=lambda claimed: release_lease(self._store, claimed.claim.lease)
        )
        if admission is not None:
            admission.admitted(claimed.admitted)
        self._remember_effort(claimed.work, effort)
        return claimed

    async def _run_turns(self, claim: SessionClaim, work: NextWork) -> TurnEnd | None:
        """Run the turns of a claimed session until one of its transactions has released it."""
        end: TurnEnd | None = None
        while work is not None:
            if isinstance(work, PendingAttachments):
                self._fetched[work.item] = await self._fetch(claim, work)
            else:
                turn = self._make_recorder(claim, work)
                end = await self._take_turn(turn, claim.lease)
                if turn.ended is not None and turn.ended.released:
                    break
            work = await self._begin_next(claim)
        return end

    async def _begin_next(self, claim: SessionClaim) -> NextWork:
        await self._renew_agent(may_wait=True)
        effort, start = self._make_start()
        work = await self._write(lambda tx: begin_next(tx, claim, start))
        self._remember_effort(work, effort)
        return work

    async def _renew_agent(self, *, may_wait: bool) -> None:
        renew = self._options.renew_agent
        if renew is not None and await renew(self._agent, may_wait=may_wait):
            self._stored_effort = None  # the new prompt is stored with the next turn

    def _make_start(self) -> tuple[Effort, TurnStart]:
        """Return the current effort, and what begins a turn with it; its prompt is stored once for each effort."""
        effort, store_prompt = self._agent.options.effort, self._options.before_first_turn
        fetched = {item: one.message for item, one in self._fetched.items()}
        known_seq, budget = self._agent.window.last_seq, self._environment.budget
        if store_prompt is None or effort == self._stored_effort:
            return effort, TurnStart(fetched, None, known_seq, budget)
        return effort, TurnStart(fetched, lambda tx: store_prompt(tx, effort), known_seq, budget)

    def _remember_effort(self, work: NextWork, effort: Effort) -> None:
        if isinstance(work, TurnWork):
            self._stored_effort = effort

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        if self._options.waits_for_store:
            return await retry_write(lambda: self._store.write(work), self._report_store_wait)
        return await self._store.write(work)

    def _make_recorder(self, claim: SessionClaim, work: TurnWork) -> TurnRecorder:
        end = partial(
            end_turn,
            claim=claim,
            work=work,
            listeners=(*self._options.listeners, *self._options.follow_ups),
            queues_replies=self._options.queues_replies,
        )
        on_store_wait = self._report_store_wait if self._options.waits_for_store else None
        return TurnRecorder(self._store, claim, work, end, on_store_wait=on_store_wait)

    async def _fetch(self, claim: SessionClaim, pending: PendingAttachments) -> "_FetchedMessage":
        """Fetch the files of a message; if that is stopped, there are notes in their place."""
        if not self._take_stop():
            renewal = renew_lease(self._store, claim.lease, self._options.lease)
            with suppress(_Stopped):
                async with self._stoppable(RunnerState.FETCHING):
                    return _FetchedMessage(await run_with(self._options.unpack(pending), renewal))
        reason = "was not downloaded, because the turn was stopped"
        return _FetchedMessage(replace_files(pending.message, reason), stopped=True)

    def _take_stop(self) -> bool:
        """Return whether the work that begins was stopped before; it counts once."""
        is_stopped, self._stopped_claims = self._stopped_claims > 0, 0
        return is_stopped

    async def _take_turn(self, turn: TurnRecorder, lease: Lease) -> TurnEnd:
        """Run a turn with its own session context, independent of the task that started it."""
        context = build_turn_context(self._context, self.session_id, turn.work, self._environment.workspace.folder)
        self.turn = turn.work
        try:
            with bound(context):
                async with self._stoppable(RunnerState.RUNNING), running_with(self._renew(turn, lease)):
                    return await self._run_turn(turn, context)
        except _Stopped:
            return turn.ended.end if turn.ended is not None else TurnStopped()
        finally:
            self.turn = None
            if turn.ended is not None and turn.ended.has_moved:
                self.state = RunnerState.MOVED

    async def _renew(self, turn: TurnRecorder, lease: Lease) -> None:
        try:
            await renew_lease(self._store, lease, self._options.lease)
        except LeaseLost:
            if not await turn.has_ended():
                raise

    @asynccontextmanager
    async def _stoppable(self, state: RunnerState) -> AsyncIterator[None]:
        """Enter a state in which `stop` cancels this task; raise `_Stopped` if it did."""
        self.state = state
        try:
            yield
            if self.state is RunnerState.STOPPING:
                await asyncio.sleep(0)  # stopped at its very end: the cancellation arrives here
        except BaseException as error:
            task = asyncio.current_task()
            is_stopped = self.state is RunnerState.STOPPING and task is not None and task.uncancel() == 0
            if is_stopped and isinstance(error, asyncio.CancelledError):
                raise _Stopped from error
            raise
        finally:
            self.state = RunnerState.CLAIMING

    async def _interrupt_task(self) -> None:
        """Cancel the running turn, to be resumed later."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if self._task is task:  # a task that is cancelled before it starts does not clear it
                self._task = None

    def _report_store_wait(self) -> None:
        self._environment.publish(StoreBlocked())

    async def _run_turn(self, turn: TurnRecorder, context: SessionContext) -> TurnEnd:
        work = turn.work
        self._environment.publish(TurnBegan(work.turn_id, work.route, work.text, work.items))
        is_stopped = self._take_stop()
        if any(self._fetched[item].stopped for item in work.items if item in self._fetched):
            return await self._end_stopped_turn(turn)
        interrupting, self._interrupting_item = self._interrupting_item, None
        if is_stopped or (interrupting is not None and interrupting not in work.items):
            self.stop()
        try:
            end = await self._agent.take_turn(turn, self._environment, self._make_control(turn, context))
        except asyncio.CancelledError:
            if self.state is RunnerState.STOPPING:
                self._follow_turn()
            raise
        self._follow_turn()
        if isinstance(end, TurnAnswered) and (self._needs_title or self._agent.window.full):
            self._make_follow_up_tasks().start(self._run_housekeeping)
        return end

    async def _end_stopped_turn(self, turn: TurnRecorder) -> TurnEnd:
        end = await turn.finish(TurnStopped(), None)
        self._environment.publish(end)
        self._follow_turn()
        return end

    def _follow_turn(self) -> None:
        if any(one.has_follow_up for one in self._options.follow_ups):
            self.follow()

    def _make_follow_up_tasks(self) -> FollowUpTasks:
        tasks = self._follow_up_tasks or FollowUpTasks(self._options.follow_ups, self._context, self._jobs)
        self._follow_up_tasks = tasks
        return tasks

    async def _run_housekeeping(self) -> None:
        """Generate a title and, if the context window is full, a summary, after the reply."""
        if self._needs_title:
            self._needs_title = not await generate_title(self._store, self.session_id, self._auxiliary)
        if self._agent.window.full:
            await self._agent.window.compact(self._environment.publish)

    def _make_control(self, turn: TurnRecorder, context: SessionContext) -> TurnControl:
        async def take_joined() -> list[Message]:
            steered, self._is_steered = self._is_steered, False
            return await turn.take_steering_messages(self._options.is_same_person) if steered else []

        return TurnControl(joined=take_joined, stopped=lambda: self.state is RunnerState.STOPPING, context=context)
