"""Notifications for browsers: pages that changed in the store, and changes in the list of conversations."""

import asyncio
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from time import monotonic

from talaria.access.browsers import BROWSERS_TOPIC
from talaria.access.pairing import PAIRING_TOPIC
from talaria.contracts.background_processes import PROCESS_STATES, PROCESSES
from talaria.contracts.store import Store, Subscription
from talaria.contracts.stores.sessions import SESSION_CHANGES
from talaria.core.errors import StoreError
from talaria.goals.goal_store import GOALS
from talaria.handoff.service import HANDOFFS
from talaria.http.fan_out import Channel
from talaria.runtime.delegation.task_store import DELEGATIONS
from talaria.runtime.questions import QUESTIONS
from talaria.runtime.workers import GATEWAY_RESTARTS
from talaria.schedule.job_store import SCHEDULES
from talaria.web.front_door import WebCaller
from talaria.web.hub import BrowserStream, LiveHub
from talaria.web.session_views import PAGE, read_rows
from talaria.web.wire import ChangedMessage, SessionRow, SessionsMessage

PAGES: Mapping[str, tuple[str, ...]] = {
    "home": (QUESTIONS, SESSION_CHANGES, GOALS, SCHEDULES),
    "goals": (GOALS,),
    "schedules": (SCHEDULES,),
    "background": (PROCESS_STATES, PROCESSES, DELEGATIONS),
    "usage": (SESSION_CHANGES,),
    "people": (PAIRING_TOPIC,),
    "browsers": (BROWSERS_TOPIC,),
    "gateway": (HANDOFFS, GATEWAY_RESTARTS),
    "logs": (),
}
SESSIONS = "sessions"


"""Pages by the name of their topic, each with the topics of the store that concern it."""


_CHECKS = {"gateway": 3.0, "background": 2.0}  # of what changes without a notification
_OF_OWNERS = frozenset({"gateway", "logs", "people"})
_LOG_SECONDS = 0.5  # between two looks at the size of the log, while it is shown
_PAUSE = 0.25  # seconds between two messages about a page
_CHECK_SECONDS = 20.0  # a notification of another process may be lost


class PageChannel(Channel[BrowserStream]):
    """Browsers that show one page; they are notified when it has changed."""

    def __init__(self, page: str, store: Store, jobs: asyncio.TaskGroup) -> None:
        super().__init__(jobs)
        self._page = page
        self._store = store

    async def watch(self) -> None:
        """Notify after changes in the store, and from time to time, until cancelled."""
        checked_at, check = monotonic(), _CHECKS.get(self._page, _CHECK_SECONDS)
        async with self._store.subscribe(*PAGES[self._page]) as subscription:
            while True:
                if await subscription.wait() or monotonic() - checked_at > check:
                    self.notify()
                    checked_at = monotonic()
                    await asyncio.sleep(_PAUSE)

    def notify(self) -> None:
        """Let the browsers load the page again."""
        for stream in self.followers:
            stream.send(ChangedMessage(self._page))


class LogChannel(PageChannel):
    """Browsers that show the log."""

    def __init__(self, store: Store, jobs: asyncio.TaskGroup, file: Path) -> None:
        super().__init__("logs", store, jobs)
        self._file = file

    async def watch(self) -> None:
        """Notify when the file has grown, until cancelled."""
        size = -1
        while True:
            before, size = size, _size_of(self._file)
            if size != before:
                self.notify()
            await asyncio.sleep(_LOG_SECONDS)


class PageChannels:
    """The channels of all pages; only those that a browser shows are watched."""

    def __init__(self, store: Store, hub: LiveHub, jobs: asyncio.TaskGroup, log_file: Path) -> None:
        self._channels = {page: PageChannel(page, store, jobs) for page in PAGES}
        self._channels["logs"] = LogChannel(store, jobs, log_file)
        hub.on_close(lambda stream: self.set_topics(stream, ()))

    def set_topics(self, stream: BrowserStream, topics: Collection[str]) -> None:
        """Set the pages of a stream; those that its person may not see are left out."""
        for page, channel in self._channels.items():
            if page in topics and (stream.caller.is_owner or page not in _OF_OWNERS):
                if stream not in channel.followers:
                    channel.join(stream)
                    stream.send(ChangedMessage(page))  # it may have changed between its load and now
            elif stream in channel.followers:
                channel.leave(stream)

    def close(self) -> None:
        """Stop watching."""
        for channel in self._channels.values():
            channel.close()


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


class SessionListWatcher:
    """Watcher of the newest conversations, for all streams of this process that show the list."""

    def __init__(self, store: Store, hub: LiveHub) -> None:
        self._store = store
        self._hub = hub
        self._known: dict[str, dict[str, SessionRow]] = {}
        self._subscription: Subscription | None = None
        self._is_asked = False

    async def add_stream(self, stream: BrowserStream) -> None:
        """Send every change from now on to a stream; its page loads the list after that."""
        stream.add_topic(SESSIONS)
        person = stream.caller.person
        if person not in self._known:
            rows = await self._read(person)
            self._known.setdefault(person, rows)
        self.check_soon()

    def check_soon(self) -> None:
        """Look for changes now."""
        self._is_asked = True
        if self._subscription is not None:
            self._subscription.wake()

    async def follow(self) -> None:
        """Send changes until cancelled."""
        looked_at = monotonic()
        async with self._store.subscribe(SESSION_CHANGES) as subscription:
            self._subscription = subscription
            while True:
                is_notified = await subscription.wait()
                if not is_notified and not self._is_asked and monotonic() - looked_at < _CHECK_SECONDS:
                    continue
                self._is_asked, looked_at = False, monotonic()
                if not self._hub.streams:
                    self._known.clear()
                    continue
                streams = [one for one in self._hub.streams if SESSIONS in one.topics]
                people = {one.caller.person for one in streams}
                for person in [one for one in self._known if one not in people]:
                    del self._known[person]
                for person in people:
                    try:
                        await self._check(person, [one for one in streams if one.caller.person == person])
                    except StoreError:
                        continue

    async def _read(self, person: str) -> dict[str, SessionRow]:
        caller = WebCaller(person=person)
        return {row.id: row for row in await self._store.read(lambda tx: read_rows(tx, caller))}

    async def _check(self, person: str, streams: list[BrowserStream]) -> None:
        rows = await self._read(person)
        before = self._known.get(person)
        self._known[person] = rows
        if before is None:
            return
        changed = [row for row in rows.values() if before.get(row.id) != row]
        gone = [one for one, row in before.items() if one not in rows and not _is_pushed_out(row.updated_at, rows)]
        if changed or gone:
            for stream in streams:
                stream.send(SessionsMessage(changed, gone))


def _is_pushed_out(updated_at: datetime, rows: dict[str, SessionRow]) -> bool:
    """Return whether a row is missing only because newer ones fill the page."""
    return len(rows) >= PAGE and updated_at <= min(row.updated_at for row in rows.values())
