"""Running turns of this process that other processes may watch and control.

One task per process looks for watchers and control messages while any turn runs. The publisher (`LiveFeed`) is imported
when the first watcher appears.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from talaria.contracts.store import Store, Subscription
from talaria.core.errors import StoreError
from talaria.core.events import TurnBegan, TurnEnd, TurnEvent
from talaria.core.ids import SessionId, TurnId
from talaria.runtime.open_session import OpenSession

if TYPE_CHECKING:  # imported when a watcher appears
    from talaria.runtime.live.feed import LiveFeed

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
        from talaria.runtime.live import control  # noqa: PLC0415 (loaded when the first turn runs)

        checked = [(run, session, run.is_over) for run, session in self._runs.items()]
        watcher_ids, addressed = await self.store.read(
            lambda tx: (control.list_watchers(tx), control.list_addressed_sessions(tx))
        )
        if self._update_watchers(checked, watcher_ids):
            await self.store.write(control.remove_lapsed_watches)
        ours = addressed & {session.session_id for session in self._runs.values()}
        if ours:
            for session_id, message in await self.store.write(lambda tx: control.take_control_messages(tx, ours)):
                for session in [one for one in set(self._runs.values()) if one.session_id == session_id]:
                    if session.turn_id == message.turn_id:  # ignore messages for an earlier turn
                        control.apply_control_message(message.word, session.chat, session.on_moved)

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
        from talaria.runtime.live.control import LIVE  # noqa: PLC0415 (loaded when the first turn runs)

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
