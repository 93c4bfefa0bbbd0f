"""Notifications for pages: browsers that show one load it again when the store reports a change."""

import asyncio
from collections.abc import Mapping
from time import monotonic

from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import SESSION_CHANGES
from talaria.goals.goal_store import GOALS
from talaria.schedule.job_store import SCHEDULES
from talaria.web.front_door import WebCaller
from talaria.web.hub import LiveHub
from talaria.web.wire import ChangedMessage

PAGES: Mapping[str, tuple[str, ...]] = {
    "goals": (GOALS,),
    "schedules": (SCHEDULES,),
    "usage": (SESSION_CHANGES,),
}
"""Pages by the name of their topic, each with the topics of the store that concern it."""

_OF_OWNERS = frozenset({"gateway", "logs"})
_PAUSE = 0.25  # seconds between two messages about a page
_CHECK_SECONDS = 20.0  # a notification of another process may be lost


def allowed_pages(topics: set[str], caller: WebCaller) -> set[str]:
    """Return the topics that are pages which a person may see."""
    return {topic for topic in topics if topic in PAGES and (caller.is_owner or topic not in _OF_OWNERS)}


class ChangeWatcher:
    """Watcher of all pages, for the streams of this process."""

    def __init__(self, store: Store, hub: LiveHub) -> None:
        self._store = store
        self._hub = hub

    async def follow(self) -> None:
        """Send notifications until cancelled."""
        async with asyncio.TaskGroup() as group:
            for page, topics in PAGES.items():
                group.create_task(self._follow_page(page, topics))

    async def _follow_page(self, page: str, topics: tuple[str, ...]) -> None:
        sent_at = monotonic()
        async with self._store.subscribe(*topics) as subscription:
            while True:
                is_notified = await subscription.wait()
                if is_notified or monotonic() - sent_at > _CHECK_SECONDS:
                    if self._hub.streams:
                        self.send(page)
                    sent_at = monotonic()
                    await asyncio.sleep(_PAUSE)

    def send(self, page: str) -> None:
        """Notify the browsers that show a page."""
        for stream in self._hub.streams:
            if page in stream.topics:
                stream.send(ChangedMessage(page))
