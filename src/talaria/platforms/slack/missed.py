"""What was said while nobody listened for long: Slack hands it over for some minutes only, so it is looked for."""

import asyncio
import logging
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Protocol

from msgspec import Struct

from talaria.contracts.store import Store
from talaria.core.errors import PlatformError
from talaria.platforms.slack.calls import Calls
from talaria.platforms.slack.events import Callback, Event, read_payload
from talaria.platforms.slack.threads import OurThreads

_PLACES = 20
_MESSAGES = 100
_LONGEST = timedelta(days=1)
_NOTED_EVERY = 30.0
_IN_ALL = 20.0

log = logging.getLogger(__name__)


class Notes(Protocol):
    """Keeps the time of the latest message that was taken in each channel."""

    async def put(self, channel: str, stamp: str) -> None:
        """Keep one durably."""

    async def all(self) -> dict[str, str]:
        """Return them by channel."""


class MemoryNotes:
    """Implements `Notes` for an app that has no store."""

    def __init__(self) -> None:
        self._stamps: dict[str, str] = {}

    async def put(self, channel: str, stamp: str) -> None:
        """Keep one as long as the process lives."""
        self._stamps[channel] = stamp

    async def all(self) -> dict[str, str]:
        """Return them by channel."""
        return dict(self._stamps)


class StoreNotes:
    """Implements `Notes` in the store."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._prefix = f"heard:{name}:"

    async def put(self, channel: str, stamp: str) -> None:
        """Keep one durably."""
        await self._store.write(lambda tx: tx.state.put(f"{self._prefix}{channel}", stamp))

    async def all(self) -> dict[str, str]:
        """Return them by channel."""
        entries = await self._store.read(lambda tx: tx.state.with_prefix(self._prefix))
        return {entry.key.removeprefix(self._prefix): entry.value for entry in entries}


class _Page(Struct, frozen=True):
    """Some messages of a channel."""

    channel: str
    messages: list[dict[str, Any]]


class Missed:
    """Notes what was taken, now and then, and finds what came behind it."""

    def __init__(self, calls: Calls, notes: Notes, threads: OurThreads) -> None:
        self._calls = calls
        self._notes = notes
        self._threads = threads
        self._noted: dict[str, float] = {}

    async def note(self, channel: str, stamp: str) -> None:
        """Note that a message was taken; what was noted a moment ago will do, since all of it is recognised again."""
        now = asyncio.get_running_loop().time()
        if now - self._noted.get(channel, -_NOTED_EVERY) >= _NOTED_EVERY:
            await self._notes.put(channel, stamp)
            self._noted[channel] = now

    async def find(self) -> list[Event]:
        """Return what was said behind what is noted, oldest first: in the latest places, of one day at most.

        Where Slack does not tell in time, or not at all, that is all there is.
        """
        earliest = f"{time.time() - _LONGEST.total_seconds():.6f}"
        stamps = {channel: max(stamp, earliest) for channel, stamp in (await self._notes.all()).items()}
        latest = sorted(stamps, key=lambda channel: stamps[channel], reverse=True)[:_PLACES]
        found: dict[tuple[str, str], Event] = {}
        try:
            async with asyncio.timeout(_IN_ALL):
                for channel in latest:
                    _collect(await self._history(channel, stamps[channel]), stamps[channel], found)
                for channel, thread in await self._threads.latest(_PLACES):
                    since = stamps.get(channel, earliest)
                    _collect(await self._replies(channel, thread, since), since, found)
        except (TimeoutError, PlatformError) as error:
            log.warning("what was said meanwhile is not known completely: %s", str(error) or "it takes too long")
        return [event for _, event in sorted(found.items(), key=lambda one: one[0][1])]

    async def _history(self, channel: str, since: str) -> _Page:
        asked = self._calls.web.conversations_history(channel=channel, oldest=since, limit=_MESSAGES)
        return _Page(channel, ((await self._calls.attempt(asked)) or {}).get("messages") or [])

    async def _replies(self, channel: str, thread: str, since: str) -> _Page:
        asked = self._calls.web.conversations_replies(channel=channel, ts=thread, oldest=since, limit=_MESSAGES)
        return _Page(channel, ((await self._calls.attempt(asked)) or {}).get("messages") or [])


def _collect(page: _Page, since: str, found: dict[tuple[str, str], Event]) -> None:
    for event in _events(page):
        if event.ts > since:
            found[page.channel, event.ts] = event


def _events(page: _Page) -> Iterable[Event]:
    for message in page.messages:
        callback = read_payload({"event": {**message, "type": "message", "channel": page.channel}}, Callback)
        if callback is not None:
            yield callback.event
