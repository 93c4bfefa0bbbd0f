"""Fetch messages missed during a long absence: Slack retries only for some minutes."""

import asyncio
import logging
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Protocol

from msgspec import Struct

from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.errors import PlatformError
from talaria.platforms.slack.client import ApiClient
from talaria.platforms.slack.events import Callback, Event, read_payload
from talaria.platforms.slack.threads import JoinedThreads

READ_POSITION = NamedValue("slack_position", str)  # by account and channel
_MOST_CHANNELS = 20
_MOST_MESSAGES = 100
_MAX_AGE = timedelta(days=1)
_RECORD_INTERVAL = 30.0
_TIME_LIMIT = 20.0

log = logging.getLogger(__name__)


class PositionStore(Protocol):
    """A store for the time of the latest message taken in each channel."""

    async def put(self, channel: str, stamp: str) -> None:
        """Save one durably."""

    async def all(self) -> dict[str, str]:
        """Return them by channel."""


class MemoryPositionStore:
    """A `PositionStore` in memory."""

    def __init__(self) -> None:
        self._stamps: dict[str, str] = {}

    async def put(self, channel: str, stamp: str) -> None:
        """Save one in memory."""
        self._stamps[channel] = stamp

    async def all(self) -> dict[str, str]:
        """Return them by channel."""
        return dict(self._stamps)


class DurablePositionStore:
    """A `PositionStore` in the database."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._prefix = f"{name}:"

    async def put(self, channel: str, stamp: str) -> None:
        """Save one durably."""
        await self._store.write(lambda tx: READ_POSITION.write(tx, f"{self._prefix}{channel}", stamp))

    async def all(self) -> dict[str, str]:
        """Return them by channel."""
        found = await self._store.read(lambda tx: READ_POSITION.items(tx, self._prefix))
        return {key.removeprefix(self._prefix): stamp for key, stamp in found.items()}


class _Page(Struct, frozen=True):
    """A page of messages of a channel."""

    channel: str
    messages: list[dict[str, Any]]


class Backfill:
    """Records read positions from time to time, and finds the messages after them."""

    def __init__(self, client: ApiClient, positions: PositionStore, threads: JoinedThreads) -> None:
        self._client = client
        self._positions = positions
        self._threads = threads
        self._recorded_at: dict[str, float] = {}

    async def record_position(self, channel: str, stamp: str) -> None:
        """Record that a message was taken; a slightly old position is enough, since duplicates are recognised."""
        now = asyncio.get_running_loop().time()
        if now - self._recorded_at.get(channel, -_RECORD_INTERVAL) >= _RECORD_INTERVAL:
            await self._positions.put(channel, stamp)
            self._recorded_at[channel] = now

    async def find(self) -> list[Event]:
        """Return messages after the recorded positions, oldest first: in the latest channels, at most one day.

        If Slack doesn't answer in time, the result is incomplete.
        """
        earliest = f"{time.time() - _MAX_AGE.total_seconds():.6f}"
        stamps = {channel: max(stamp, earliest) for channel, stamp in (await self._positions.all()).items()}
        latest = sorted(stamps, key=lambda channel: stamps[channel], reverse=True)[:_MOST_CHANNELS]
        found: dict[tuple[str, str], Event] = {}
        try:
            async with asyncio.timeout(_TIME_LIMIT):
                for channel in latest:
                    _collect(await self._history(channel, stamps[channel]), stamps[channel], found)
                for channel, thread in await self._threads.latest(_MOST_CHANNELS):
                    since = stamps.get(channel, earliest)
                    _collect(await self._replies(channel, thread, since), since, found)
        except (TimeoutError, PlatformError) as error:
            log.warning("some missed messages couldn't be read: %s", str(error) or "it took too long")
        return [event for _, event in sorted(found.items(), key=lambda one: one[0][1])]

    async def _history(self, channel: str, since: str) -> _Page:
        request = self._client.web.conversations_history(channel=channel, oldest=since, limit=_MOST_MESSAGES)
        return _Page(channel, ((await self._client.attempt(request)) or {}).get("messages") or [])

    async def _replies(self, channel: str, thread: str, since: str) -> _Page:
        request = self._client.web.conversations_replies(channel=channel, ts=thread, oldest=since, limit=_MOST_MESSAGES)
        return _Page(channel, ((await self._client.attempt(request)) or {}).get("messages") or [])


def _collect(page: _Page, since: str, found: dict[tuple[str, str], Event]) -> None:
    for event in _events(page):
        if event.ts > since:
            found[page.channel, event.ts] = event


def _events(page: _Page) -> Iterable[Event]:
    for message in page.messages:
        callback = read_payload({"event": {**message, "type": "message", "channel": page.channel}}, Callback)
        if callback is not None:
            yield callback.event
