"""Watchers of running turns, and the control messages that they send, as rows of the store.

One task per process looks for both while any turn runs. The publisher (`LiveFeed`) is imported when the first watcher
appears.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import Struct

from talaria.contracts.store import Store, Subscription, Transaction
from talaria.contracts.values import SessionValue
from talaria.core.addresses import ReplyRoute
from talaria.core.errors import StoreError
from talaria.core.events import TurnBegan, TurnEnd, TurnEvent
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.runtime.open_session import OpenSession
from talaria.runtime.turns import redirect_reply

if TYPE_CHECKING:  # imported when a watcher appears
    from talaria.runtime.live.feed import LiveFeed


LIVE = "live"  # topic notified when a running turn gets or loses a watcher, or gets a control message
WATCH_LEASE = timedelta(seconds=20)


class StopTurn(Struct, frozen=True, tag="stop"):
    """Command to stop the turn; completed steps are kept."""


class AnswerQuestion(Struct, frozen=True, tag="answer"):
    """Answer to a question of the turn."""

    question_id: str
    text: str


class InboxChanged(Struct, frozen=True, tag="nudge"):
    """Notice of a new inbox item, possibly steering for the turn."""

    steered: bool = False


class SessionMoved(Struct, frozen=True, tag="moved"):
    """Notice that the session was moved and its reply redirected; ``move`` identifies the redirection."""

    move: str


ControlCommand = StopTurn | AnswerQuestion | InboxChanged | SessionMoved


class ControlMessage(Struct, frozen=True):
    """A command and the turn that it is for."""

    turn_id: TurnId
    word: ControlCommand


LIVE_WATCH = SessionValue("live_watch", datetime)  # until when, by watcher
CONTROL_MESSAGE = SessionValue("control_message", ControlMessage)  # by id


def live_stream(session_id: SessionId) -> str:
    """Return the event stream of a session, which is also the topic of its watchers."""
    return f"live:{session_id}"


def renew_watch(tx: Transaction, session_id: SessionId, watcher: str) -> bool:
    """Register or renew a watcher for ``WATCH_LEASE``; return whether it was registered before."""
    return LIVE_WATCH.write(tx, session_id, datetime.now(UTC) + WATCH_LEASE, watcher) > 1


def end_watch(tx: Transaction, session_id: SessionId, watcher: str) -> None:
    """Remove a watcher; with the last one, drop the session's stream."""
    LIVE_WATCH.delete(tx, session_id, watcher)
    if not list_watchers(tx).get(session_id):
        tx.events.drop(live_stream(session_id))


def list_watchers(tx: Transaction, *, lapsed: bool = False) -> Mapping[SessionId, Collection[str]]:
    """Return the watchers by session; with ``lapsed``, those whose registration has expired."""
    now = datetime.now(UTC)
    found: dict[SessionId, set[str]] = {}
    for session_id, watcher, until in LIVE_WATCH.of_all(tx):
        if (until <= now) is lapsed:
            found.setdefault(session_id, set()).add(watcher)
    return found


def remove_lapsed_watches(tx: Transaction) -> None:
    """Remove watchers whose registration has expired, and the streams left without watchers."""
    for session_id, lapsed_watchers in list_watchers(tx, lapsed=True).items():
        for watcher in lapsed_watchers:
            end_watch(tx, session_id, watcher)


def post_control_message(tx: Transaction, session_id: SessionId, word: ControlCommand) -> bool:
    """Send a control message to the running turn of a session, in any process; ``False`` if none."""
    for turn in tx.turns.find(session_id, running=True, limit=1):
        CONTROL_MESSAGE.write(tx, session_id, ControlMessage(turn.id, word), new_id())
        tx.notify(LIVE)
        return True
    return False


def redirect_running_turn(tx: Transaction, session_id: SessionId, route: ReplyRoute | None) -> TurnId | None:
    """Redirect the reply of a session's running turn and notify its process.

    Returns the id of that turn, or ``None`` if none is running.
    """
    redirect = redirect_reply(tx, session_id, route)
    if redirect is None:
        return None
    post_control_message(tx, session_id, SessionMoved(redirect.move))
    return redirect.turn_id


async def send_control_message(store: Store, session_id: SessionId, word: ControlCommand) -> bool:
    """Send a control message in its own transaction; ``False`` if no turn is running."""
    return await store.write(lambda tx: post_control_message(tx, session_id, word))


def list_addressed_sessions(tx: Transaction) -> set[SessionId]:
    """Return the sessions that have undelivered control messages."""
    return set(CONTROL_MESSAGE.sessions(tx))


def take_control_messages(tx: Transaction, sessions: Collection[SessionId]) -> list[tuple[SessionId, ControlMessage]]:
    """Remove and return the control messages for these sessions, oldest first."""
    taken = []
    for session_id, item, message in CONTROL_MESSAGE.of_all(tx):
        if session_id in sessions:
            CONTROL_MESSAGE.delete(tx, session_id, item)
            taken.append((session_id, message))
    return taken


def apply_control_message(command: ControlCommand, chat: OpenSession, on_moved: Callable[[], None] | None) -> None:
    """Apply a control message to the running turn; ``on_moved`` is called if its session has moved."""
    match command:
        case StopTurn():
            if chat.conversation.turn is not None:  # otherwise the next turn would be stopped
                chat.conversation.stop()
        case AnswerQuestion(question_id=question_id, text=text):
            chat.questions.answer(question_id, text)
        case InboxChanged(steered=steered):
            chat.conversation.wake(steered=steered)
        case SessionMoved(move=move):
            turn = chat.conversation.turn
            if on_moved is not None and turn is not None and turn.move != move:
                on_moved()
        case _:
            assert_never(command)


log = logging.getLogger(__name__)


class WatchedTurns:
    """The running turns of one process."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._runs: dict[RunningTurn, WatchableSession] = {}
        self._leader: RunningTurn | None = None
        self._subscription: Subscription | None = None

    def add_session(
        self, chat: OpenSession, stack: AsyncExitStack, jobs: asyncio.TaskGroup, on_moved: Callable[[], None] | None
    ) -> None:
        """Make the turns of a session watchable until ``stack`` is closed.

        ``on_moved`` is called when the session has moved to another chat.
        """
        session = WatchableSession(self, chat, jobs, on_moved)
        stack.push_async_callback(session.close)

    def check(self, run: "RunningTurn", session: "WatchableSession") -> None:
        """Read the watchers of a turn that has started or ended, so that none is missed."""
        self._runs[run] = session
        if self._leader is None:
            self._choose_leader()
        elif self._subscription is not None:
            self._subscription.wake()

    def end(self, run: "RunningTurn") -> None:
        """Remove a turn; if its session ran the polling task, another session takes that over."""
        self._runs.pop(run, None)
        if self._leader is run:
            self._leader = None
            if self._subscription is not None:
                self._subscription.wake()
            self._choose_leader()

    def end_all(self, session: "WatchableSession") -> None:
        """Remove the turns of a closed session."""
        for run in [run for run, of in self._runs.items() if of is session]:
            self.end(run)

    async def look(self) -> None:
        """Update the watchers of the turns in this process, and apply control messages sent to them."""
        checked = [(run, session, run.is_over) for run, session in self._runs.items()]
        watcher_ids, addressed = await self.store.read(lambda tx: (list_watchers(tx), list_addressed_sessions(tx)))
        if self._update_watchers(checked, watcher_ids):
            await self.store.write(remove_lapsed_watches)
        ours = addressed & {session.session_id for session in self._runs.values()}
        if ours:
            for session_id, message in await self.store.write(lambda tx: take_control_messages(tx, ours)):
                for session in [one for one in set(self._runs.values()) if one.session_id == session_id]:
                    if session.turn_id == message.turn_id:  # ignore messages for an earlier turn
                        apply_control_message(message.word, session.chat, session.on_moved)

    def _update_watchers(
        self,
        checked: Sequence[tuple["RunningTurn", "WatchableSession", bool]],
        watcher_ids: Mapping[SessionId, Collection[str]],
    ) -> bool:
        """Set the watchers of these turns, each with whether it was over when the watchers were read.

        Removes those that were, and returns whether a watcher has left.
        """
        has_left = False
        for run, session, was_over in checked:
            has_left |= session.set_watchers(run, watcher_ids.get(session.session_id, ()))
            if was_over:
                session.finish(run)
                self.end(run)
            elif not run.is_over and not session.chat.conversation.turn:  # interrupted, or run by another process now
                self.end(run)
        return has_left

    def _choose_leader(self) -> None:
        for run, session in self._runs.items():
            self._leader = run
            if start_task(session.jobs, self._poll(run)) is not None:
                return
        self._leader = None

    async def _poll(self, leader: "RunningTurn") -> None:
        async with self.store.subscribe(LIVE) as subscription:
            self._subscription = subscription
            while self._leader is leader:
                await subscription.wait()
                if self._leader is not leader:
                    return
                try:
                    await self.look()
                except StoreError as error:
                    log.debug("can't look for watchers: %s", error)


class RunningTurn:
    """A turn that this process runs; ``events`` are those published so far.

    A turn that ``is_over`` is kept until its watchers have been read from the store once more.
    """

    def __init__(self, turn_id: TurnId, events: Sequence[TurnEvent]) -> None:
        self.turn_id = turn_id
        self.events = events
        self.is_over = False


class WatchableSession:
    """The turns of one open session, which other processes may watch and control."""

    def __init__(
        self,
        watched_turns: WatchedTurns,
        chat: OpenSession,
        jobs: asyncio.TaskGroup,
        on_moved: Callable[[], None] | None,
    ) -> None:
        self.chat = chat
        self.session_id: SessionId = chat.conversation.session_id
        self.jobs = jobs
        self.on_moved = on_moved
        self._watched_turns = watched_turns
        self._run: RunningTurn | None = None
        self._feed: LiveFeed | None = None
        self._unsubscribe = chat.events.subscribe(self._on_event)

    @property
    def turn_id(self) -> TurnId | None:
        """Id of the running turn."""
        return self._run.turn_id if self._run is not None else None

    def set_watchers(self, run: RunningTurn, watcher_ids: Collection[str]) -> bool:
        """Publish a turn to its watchers, and return whether one of them has left."""
        if self._feed is None:
            if not watcher_ids:
                return False
            from talaria.runtime.live.feed import LiveFeed  # noqa: PLC0415 (loaded when a watcher appears)

            self._feed = LiveFeed(self._watched_turns.store, self.chat, self.jobs)
        return self._feed.set_watchers(run, watcher_ids)

    def finish(self, run: RunningTurn) -> None:
        """Finish publishing a turn that is over."""
        if self._feed is not None:
            self._feed.end(run)

    async def close(self) -> None:
        """End the current turn for its watchers, and publish the rest within a second."""
        self._unsubscribe()
        self._end_run()
        self._watched_turns.end_all(self)
        if self._feed is not None:
            await self._feed.close()

    def _on_event(self, event: TurnEvent) -> None:
        if isinstance(event, TurnBegan):
            self._end_run()
            self._run = RunningTurn(event.turn_id, self.chat.events.turn)
            self._watched_turns.check(self._run, self)
        elif self._run is not None:
            if self._feed is not None:
                self._feed.add(self._run, event)
            if isinstance(event, TurnEnd):
                self._end_run()

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.is_over = True
            self._watched_turns.check(run, self)


def start_task(jobs: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Start a task of an open session; return ``None`` if the session is being closed."""
    try:
        return jobs.create_task(work)
    except RuntimeError:
        work.close()
        return None
