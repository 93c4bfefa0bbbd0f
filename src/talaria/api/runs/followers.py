"""Clients that follow runs: each gets every event once and in order, from any point, however slowly it reads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cached_property
from weakref import WeakValueDictionary

from talaria.api.runs.events import make_stream_name
from talaria.api.runs.run_store import is_over
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import StreamEvent
from talaria.core.errors import StoreError
from talaria.http.fan_out import Channel, Follower
from talaria.http.routing import format_sse

_PAGE = 200
_EVENT_OVERHEAD = 100  # bytes


class RunPage:
    """Consecutive events of a run, encoded once for all followers; ``is_over`` if there will be no more."""

    def __init__(self, events: Sequence[StreamEvent], *, is_over: bool) -> None:
        self.events = events
        self.is_over = is_over

    @cached_property
    def encoded(self) -> bytes:
        """The events with their numbers, as server-sent events."""
        return b"".join(format_sse(one.payload.encode(), event=one.kind, number=one.seq) for one in self.events)

    @cached_property
    def size(self) -> int:
        """Approximate size in bytes."""
        return sum(len(one.payload) + _EVENT_OVERHEAD for one in self.events)

    def after(self, seq: int) -> "RunPage":
        """Return the events after a number; usually all of them."""
        if not self.events or self.events[0].seq > seq:
            return self
        return RunPage([one for one in self.events if one.seq > seq], is_over=self.is_over)


class RunChannel(Channel["RunFollower"]):
    """One run: its new events are read once for all followers that have read the earlier ones."""

    def __init__(self, store: Store, run_id: str, jobs: asyncio.TaskGroup) -> None:
        super().__init__(jobs)
        self._store = store
        self.run_id = run_id
        self._seq = 0

    async def read(self, after: int) -> RunPage:
        """Return the next events after a number from the store."""
        return await self._store.read(lambda tx: _read_page(tx, self.run_id, after))

    def catch_up(self, follower: "RunFollower") -> bool:
        """Let a follower join if it has read as much as the others; return whether it has."""
        if not self.is_watched:
            self._seq = follower.position
        elif follower.position < self._seq:
            return False
        self.join(follower)
        return True

    async def watch(self) -> None:
        """Read new events until the run is over."""
        async with self._store.subscribe(make_stream_name(self.run_id)) as subscription:
            while self.followers:
                await subscription.wait()
                try:
                    await self._read_new_events()
                except StoreError as error:
                    for follower in tuple(self.followers):
                        follower.end(error)
                    return

    async def _read_new_events(self) -> None:
        page = await self.read(self._seq)
        while page.events or page.is_over:
            if page.events:
                self._seq = page.events[-1].seq
            for follower in tuple(self.followers):
                follower.receive(page)
            if not page.events:
                self.followers.clear()
                return
            page = await self.read(self._seq)


class RunFollower(Follower[RunPage]):
    """The events of a run after ``position``, as pages, until the run is over.

    It reads the store at its own pace until it has caught up with the others, and again after it was too slow.
    """

    __slots__ = ("_channel", "_on_close", "is_over", "position")

    def __init__(self, channel: RunChannel, position: int, on_close: Callable[["RunFollower"], None]) -> None:
        super().__init__()
        self._channel = channel
        self._on_close = on_close
        self.position = position
        self.is_over = False

    @property
    def is_joined(self) -> bool:
        """Return whether new events are queued here, so that the store needn't be read."""
        return self in self._channel.followers

    def receive(self, page: RunPage) -> None:
        """Queue new events; a slow follower leaves instead, and reads them from the store later."""
        if self.is_slow:
            self._channel.leave(self)
            return
        if page.events:
            page, self.position = page.after(self.position), max(self.position, page.events[-1].seq)
        if page.events or page.is_over:
            self.push(page, page.size)

    async def __aiter__(self) -> AsyncIterator[RunPage]:
        while not self.has_ended:
            async for page in self._read_stored():
                yield page
            if self.is_over:
                return
            while self.is_joined or self.is_pending:
                for page in await self.take():
                    if page.events:
                        yield page
                    self.is_over = page.is_over and not page.events
                if self.is_over or self.has_ended:
                    return

    async def _read_stored(self) -> AsyncIterator[RunPage]:
        """Yield events from the store until this follower has joined the others, or the run is over."""
        while not self.has_ended:
            page = await self._channel.read(self.position)
            if page.events:
                self.position = page.events[-1].seq
                yield page
            elif page.is_over:
                self.is_over = True
                return
            elif self._channel.catch_up(self):
                return

    async def close(self) -> None:
        """Stop following."""
        self._channel.leave(self)
        self._on_close(self)


class RunFollowers:
    """All followers of runs on one server; at shutdown they are disconnected and can resume elsewhere."""

    def __init__(self, store: Store, jobs: asyncio.TaskGroup) -> None:
        self.store = store
        self._jobs = jobs
        self._channels: WeakValueDictionary[str, RunChannel] = WeakValueDictionary()  # their followers hold them
        self._followers: set[RunFollower] = set()
        self._is_shut_down = False

    def follow(self, run_id: str, after: int = 0) -> RunFollower:
        """Return the events of a run after this number."""
        channel = self._channels.get(run_id)
        if channel is None:
            channel = self._channels[run_id] = RunChannel(self.store, run_id, self._jobs)
        follower = RunFollower(channel, after, self._followers.discard)
        self._followers.add(follower)
        if self._is_shut_down:
            follower.end()
        return follower

    def dismiss(self) -> None:
        """Disconnect all followers."""
        self._is_shut_down = True
        for follower in self._followers:
            follower.end()
        for channel in tuple(self._channels.values()):
            channel.close()


def _read_page(tx: Transaction, run_id: str, after: int) -> RunPage:
    events = tx.events.after(make_stream_name(run_id), after, _PAGE)
    return RunPage(events, is_over=is_over(tx.runs.get(run_id)))
