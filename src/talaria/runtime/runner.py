"""Session runner: run, stop and steer the turns of one open session, with follow-ups."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.context_window import unwrap_messages
from talaria.agent.environment import TurnControl, TurnEnvironment
from talaria.agent.loop import AgentLoop
from talaria.contracts.provider import Effort
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import SessionChanges
from talaria.contracts.turn_listener import TurnFollowUp, TurnListener, TurnResult
from talaria.core.aio import first_error
from talaria.core.errors import Busy, LeaseLost, Refused, StoreError
from talaria.core.events import StoreBlocked, TurnAnswered, TurnBegan, TurnEnd, TurnStopped
from talaria.core.ids import SessionId
from talaria.core.messages import Message
from talaria.core.senders import OWNER, is_same_sender, user_id_of
from talaria.core.session_context import SessionContext, bound
from talaria.runtime.inbox import (
    LEASE,
    FetchAttachments,
    PendingAttachments,
    add_to_inbox,
    make_arrival,
    skip_attachments,
    without_files,
)
from talaria.runtime.rebind import TurnGate, find_blocking_handoff, handoff_notice
from talaria.runtime.tasks import FollowUpTasks, WakeableTask
from talaria.runtime.turn_log import STEERING, TurnRecorder
from talaria.runtime.turns import TransactionHook, TurnHooks, no_hook, run_pending_turns


def turn_context(base: SessionContext, turn: TurnRecorder, cwd: Path) -> SessionContext:
    """Return the session context of a turn; its reply route overrides the context of the surface."""
    own = structs.replace(base, session_id=turn.session_id, turn_id=turn.turn_id, cwd=str(cwd), sender=turn.sender)
    route = turn.route
    if route is None:
        return own
    address = route.address
    return structs.replace(
        own,
        platform=address.platform,
        chat_id=address.chat_id,
        chat_name=route.chat_name or (base.chat_name if address.chat_id == base.chat_id else ""),
        thread_id=address.thread_id,
        user_id=route.user_id or address.user_id or user_id_of(turn.sender, address.platform) or base.user_id,
        user_name=route.user_name or base.user_name,
        message_id=route.reply_to,
    )


class AttachmentGate:
    """Download of attachments before the turns of one session."""

    def __init__(self, unpack: FetchAttachments) -> None:
        self._fetch = unpack
        self._fetching: asyncio.Task[Message] | None = None
        self._stopped: set[int] = set()

    @property
    def busy(self) -> bool:
        """Whether attachments are being fetched."""
        return self._fetching is not None

    async def unpack(self, pending: PendingAttachments) -> Message:
        """Return the transcript version of a message; if stopped, with notes in place of its files."""
        try:
            async with asyncio.TaskGroup() as group:
                self._fetching = fetching = group.create_task(self._fetch(pending))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors
        finally:
            self._fetching = None
        if fetching.cancelled():
            self._stopped.add(pending.item)
            return without_files(pending.message, "was not downloaded, because the turn was stopped")
        return fetching.result()

    def stop(self) -> bool:
        """Cancel the current fetch, which also ends that message's turn; ``False`` if nothing is fetched."""
        return self._fetching is not None and self._fetching.cancel()

    def was_stopped(self, items: Sequence[int]) -> bool:
        """Return whether fetching was stopped for one of these items, so that their turn ends at once."""
        return not self._stopped.isdisjoint(items)


_CLOSE_TIMEOUT = 5.0


log = logging.getLogger(__name__)


class RunnerOptions(Struct, frozen=True, kw_only=True):
    """Options for starting and ending the turns of a session.

    ``unpack`` fetches the files of a message before its turn. ``before_first_turn`` runs in the transaction that begins
    the first turn, or the first with another effort. ``listeners`` and ``follow_ups`` are called for each turn that
    ends. ``context`` describes the surface. With ``waits_for_store``, turns wait while the store cannot be written, and
    `StoreBlocked` is published; without it they fail. ``is_same_person`` compares two senders: text joins a running
    turn only if its sender is that of the turn. A session without a title gets one if ``titled``.
    """

    unpack: FetchAttachments = skip_attachments
    before_first_turn: Callable[[Transaction, Effort], None] | None = None
    listeners: tuple[TurnListener, ...] = ()
    follow_ups: tuple[TurnFollowUp, ...] = ()
    context: SessionContext = SessionContext()
    lease: timedelta = LEASE
    waits_for_store: bool = False
    is_same_person: Callable[[str, str], bool] = is_same_sender
    titled: bool = True


_DEFAULT_OPTIONS = RunnerOptions()


class SessionRunner:
    """Runner of one session's turns and follow-ups, as tasks of ``jobs``, which the caller owns.

    ``turn`` is the turn that this process runs now, if any. ``left`` is set once the session was moved during its last
    turn: pending messages belong to the new chat then. While the ``gate`` is closed no turn starts: callers that wait
    for one get `Busy`, and their messages stay in the inbox.
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
        self._store = store
        self._agent = agent
        self._environment = environment
        self._options = options
        self._auxiliary = auxiliary
        self._task = WakeableTask(jobs)
        self._attachments = AttachmentGate(options.unpack)
        self._follow_up_tasks = FollowUpTasks(session_id, jobs)
        self._before_turn: TransactionHook | None = None
        self._begun_effort: Effort | None = None  # set in a transaction that may not have been committed
        self._recorded_effort: Effort | None = None
        self._steered = False
        self.turn: TurnRecorder | None = None
        self.left = False
        self.gate = TurnGate()
        self._interrupting_item: int | None = None
        self._context = structs.replace(options.context, session_id=session_id)

    @property
    def busy(self) -> bool:
        """Whether a turn is running or about to start."""
        return self._task.busy

    @property
    def has_running_work(self) -> bool:
        """Whether a turn or a follow-up is running."""
        return self.busy or self._follow_up_tasks.busy

    def set_effort(self, effort: Effort) -> None:
        """Set the reasoning effort from the next model call on."""
        if effort != self._agent.manner.effort:
            self._agent.manner = structs.replace(self._agent.manner, effort=effort)

    async def close(self, patience: float = _CLOSE_TIMEOUT) -> None:
        """Interrupt the running turn, to be resumed later, and wait up to ``patience`` seconds for follow-ups."""
        await self._task.close()
        await self._follow_up_tasks.close(patience)

    async def say(self, message: Message, *, source: str, external_id: str, sender: str = OWNER) -> TurnEnd | None:
        """Queue a person's message, run pending turns and return how the last one ended.

        Returns ``None`` for a duplicate. Raises `Refused` while another process runs this session; the message stays in
        the inbox then.
        """
        if not await add_to_inbox(self._store, self.session_id, source, external_id, message, sender=sender):
            return None
        return await self.run_pending_turns()

    async def put(self, message: Message, *, source: str, external_id: str, sender: str = OWNER) -> bool:
        """Queue a person's message after the pending ones; ``False`` for a duplicate."""
        is_new = await add_to_inbox(self._store, self.session_id, source, external_id, message, sender=sender)
        if is_new:
            self.wake()
        return is_new

    async def run_pending_turns(self) -> TurnEnd | None:
        """Resume an interrupted turn, run turns for pending messages, and return how the last one ended."""
        self.wake()
        try:
            return await self._task.finished()
        except asyncio.CancelledError:
            await self._task.close()
            raise

    def wake(self, first: TransactionHook | None = None) -> None:
        """Start processing the inbox, now or after the running turn.

        If no turn is running, ``first`` runs in the transaction that begins the turn, and may add its message.
        """
        self._before_turn = first or self._before_turn
        self._task.wake(self._run_pending_turns)

    async def settled(self) -> TurnEnd | None:
        """Wait until the runner is idle and return how the last turn ended; raises its error."""
        return await self._task.finished()

    def stop(self) -> bool:
        """Stop the running turn at once and continue with pending messages; ``False`` if none is running."""
        return self._attachments.stop() or self._task.stop()

    def interrupt(self, item: int) -> bool:
        """Stop the running turn for an inbox item, unless the turn is about that item.

        Files that are being fetched are fetched first, so that they are in the transcript.
        """
        if self._attachments.busy:
            self._interrupting_item = item
        return self.turn is not None and item not in self.turn.items and self.stop()

    async def steer(self, message: Message, *, source: str, external_id: str, sender: str = OWNER) -> None:
        """Add a message to the running turn before its next model call, or queue it for its own turn.

        It gets its own turn if it comes too late, or if another sender began the running turn.
        """
        is_new = make_arrival(self.session_id, source, external_id, message, kind=STEERING, sender=sender)
        await self._store.write(lambda tx: tx.inbox.add(is_new))
        self.check_inbox(steered=True)

    def check_inbox(self, *, steered: bool) -> None:
        """Check the inbox for new items, which may steer the running turn if ``steered``."""
        self._steered = self._steered or steered
        self.wake()

    def follow(self) -> None:
        """Start the follow-ups; resumable ones that are running are restarted.

        Called after a turn, after opening a session and when something that follow-ups depend on has changed.
        """
        for follower in self._options.follow_ups:
            job = partial(self._follow, follower)
            if follower.resumable:
                self._follow_up_tasks.restart(follower, job)
            else:
                self._follow_up_tasks.start(job)

    async def compact(self) -> bool:
        """Summarise the older part of the session; ``False`` if there is nothing to gain."""
        window = self._agent.window
        await window.open()
        return await window.compact(self._environment.publish)

    async def _run_pending_turns(self) -> TurnEnd | None:
        if self.left:
            raise Refused("This conversation has moved to another chat.")
        if self.gate.reason:
            raise Busy(self.gate.reason)
        first, self._before_turn = self._before_turn or no_hook, None
        report = self._report_store_wait if self._options.waits_for_store else None
        hooks = TurnHooks(self._options.lease, self._finish, self._attachments.unpack, report, self._begin)
        with bound(self._context):
            try:
                return await run_pending_turns(self._store, self.session_id, self._take_turn, hooks, first)
            except LeaseLost:
                raise
            except StoreError as error:
                log.warning("pending messages are waiting for the store: %s", error)
                if report is not None:
                    report()
                raise

    def _report_store_wait(self) -> None:
        self._environment.publish(StoreBlocked())

    def _begin(self, tx: Transaction) -> None:
        if platform_name := find_blocking_handoff(tx, self.session_id):
            raise Busy(handoff_notice(platform_name))
        effort = self._begun_effort = self._agent.manner.effort
        if self._options.before_first_turn is not None and effort != self._recorded_effort:
            self._options.before_first_turn(tx, effort)

    def _finish(self, tx: Transaction, ending: TurnResult) -> None:
        for listener in (*self._options.listeners, *self._options.follow_ups):
            listener.turn_ended(tx, ending)

    async def _take_turn(self, turn: TurnRecorder) -> TurnEnd:
        """Run a turn with its own session context, independent of the task that started it."""
        context = turn_context(self._context, turn, self._environment.workspace.folder)
        self.turn = turn
        try:
            with bound(context):
                return await self._run_turn(turn, context)
        finally:
            self.turn, self.left = None, turn.fate.left

    async def _run_turn(self, turn: TurnRecorder, context: SessionContext) -> TurnEnd:
        self._recorded_effort = self._begun_effort
        self._environment.publish(TurnBegan(turn.turn_id, turn.route, turn.said, turn.items))
        if self._attachments.was_stopped(turn.items):
            return await self._end_stopped_turn(turn)
        interrupting, self._interrupting_item = self._interrupting_item, None
        if interrupting is not None and interrupting not in turn.items:
            self._task.stop()
        try:
            end = await self._agent.take_turn(turn, self._environment, self._make_control(turn, context))
        except asyncio.CancelledError:
            if self._task.stopping:
                self.follow()
            raise
        self.follow()
        if isinstance(end, TurnAnswered) and (self._options.titled or self._agent.window.full):
            self._follow_up_tasks.start(self._run_housekeeping)
        return end

    async def _end_stopped_turn(self, turn: TurnRecorder) -> TurnEnd:
        end = TurnStopped()
        await turn.finish(end, None)
        self._environment.publish(end)
        self.follow()
        return end

    async def _follow(self, follower: TurnFollowUp) -> None:
        with bound(self._context):
            if await follower.follow_up():
                self.wake()

    async def _run_housekeeping(self) -> None:
        """Generate a title and, if the context window is full, a summary, after the reply."""
        if self._options.titled:
            await self._generate_title()
        if self._agent.window.full:
            await self._agent.window.compact(self._environment.publish)

    async def _generate_title(self) -> None:
        session = await self._store.read(lambda tx: tx.sessions.get(self.session_id))
        if session is None or session.title:
            return
        first = await self._store.read(lambda tx: tx.messages.load(self.session_id, limit=4))
        title = await self._auxiliary.title(unwrap_messages(first))

        def name(tx: Transaction) -> None:
            untitled = tx.sessions.get(self.session_id)
            if title and untitled is not None and not untitled.title:
                tx.sessions.update(self.session_id, SessionChanges(title=title))

        await self._store.write(name)

    def _make_control(self, turn: TurnRecorder, context: SessionContext) -> TurnControl:
        async def joined() -> list[Message]:
            steered, self._steered = self._steered, False
            return await turn.take_steering_messages(self._options.is_same_person) if steered else []

        return TurnControl(joined=joined, stopped=lambda: self._task.stopping, context=context)
