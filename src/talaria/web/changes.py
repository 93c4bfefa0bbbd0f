"""Notifications for pages: browsers that show one load it again when the store reports a change."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

from talaria.access.browsers import BROWSERS_TOPIC
from talaria.access.pairing import PAIRING_TOPIC
from talaria.contracts.background_processes import PROCESS_STATES, PROCESSES
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import SESSION_CHANGES
from talaria.goals.goal_store import GOALS
from talaria.handoff.service import HANDOFFS
from talaria.runtime.delegation.task_store import DELEGATIONS
from talaria.runtime.questions import QUESTIONS
from talaria.runtime.workers import GATEWAY_RESTARTS
from talaria.schedule.job_store import SCHEDULES
from talaria.web.front_door import WebCaller
from talaria.web.hub import LiveHub
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


def allowed_pages(topics: set[str], caller: WebCaller) -> set[str]:
    """Return the topics that are pages which a person may see."""
    return {topic for topic in topics if topic in PAGES and (caller.is_owner or topic not in _OF_OWNERS)}


class ChangeWatcher:
    """Watcher of all pages, for the streams of this process."""

    def __init__(self, store: Store, hub: LiveHub, log_file: Path) -> None:
        self._store = store
        self._hub = hub
        self._log_file = log_file

    async def follow(self) -> None:
        """Send notifications until cancelled."""
        async with asyncio.TaskGroup() as group:
            for page, topics in PAGES.items():
                if topics:
                    group.create_task(self._follow_page(page, topics))
            group.create_task(self._follow_log())

    async def _follow_page(self, page: str, topics: tuple[str, ...]) -> None:
        sent_at, check = monotonic(), _CHECKS.get(page, _CHECK_SECONDS)
        async with self._store.subscribe(*topics) as subscription:
            while True:
                is_notified = await subscription.wait()
                if is_notified or monotonic() - sent_at > check:
                    if self._hub.streams:
                        self.send(page)
                    sent_at = monotonic()
                    await asyncio.sleep(_PAUSE)

    async def _follow_log(self) -> None:
        size = -1
        while True:
            await asyncio.sleep(_LOG_SECONDS)
            if any("logs" in stream.topics for stream in self._hub.streams):
                before, size = size, _size_of(self._log_file)
                if size != before:
                    self.send("logs")

    def send(self, page: str) -> None:
        """Notify the browsers that show a page."""
        for stream in self._hub.streams:
            if page in stream.topics:
                stream.send(ChangedMessage(page))


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
