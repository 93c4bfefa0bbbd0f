"""Notifications for pages: browsers that show one load it again when the store reports a change."""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from time import monotonic

from talaria.access.browsers import BROWSERS_TOPIC
from talaria.access.pairing import PAIRING_TOPIC
from talaria.contracts.background_processes import PROCESS_STATES, PROCESSES
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import SESSION_CHANGES
from talaria.goals.goal_store import GOALS
from talaria.handoff.service import HANDOFFS
from talaria.http.fan_out import Channel
from talaria.runtime.delegation.task_store import DELEGATIONS
from talaria.runtime.questions import QUESTIONS
from talaria.runtime.workers import GATEWAY_RESTARTS
from talaria.schedule.job_store import SCHEDULES
from talaria.web.hub import BrowserStream, LiveHub
from talaria.web.wire import ChangedMessage

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
