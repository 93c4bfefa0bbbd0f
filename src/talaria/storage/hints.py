"""Events that are set when a look at the store is worth it: by hints from here, from elsewhere, and now and then."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from msgspec import Struct


class Courier(Protocol):
    """Takes hints from process to process; what goes wrong on the way is never raised, hints are then lost."""

    def attend(self, heard: Callable[[str | None], None]) -> None:
        """Begin to tell of hints from elsewhere, on any thread: once at the start, ``None`` is for every topic."""

    def leave(self) -> None:
        """Stop telling: nobody heeds any more."""

    def carry(self, topic: str) -> None:
        """Take a hint to whoever attends elsewhere, without making anybody wait here."""

    def close(self) -> None:
        """Take what is still to be taken, and end."""


class _Heed(Struct, frozen=True, eq=False):
    topic: str
    event: asyncio.Event
    loop: asyncio.AbstractEventLoop


class Hints:
    """Who heeds which topic in this process; an event is set every ``at_least_every`` seconds, whatever gets lost.

    All who heed in one loop are reminded together: they look at the store in one go.
    """

    def __init__(self, courier: Courier, *, at_least_every: float) -> None:
        self._courier = courier
        self._at_least_every = at_least_every
        self._heeds: set[_Heed] = set()
        self._reminders: dict[asyncio.AbstractEventLoop, asyncio.TimerHandle] = {}
        self._all_heard_at = 0.0
        self._lock = threading.Lock()
        self._closed = False

    def hint(self, topic: str) -> None:
        """Set the events of a topic: those of the running loop at once."""
        if not self._closed:
            self._heard(topic)
            self._courier.carry(topic)

    @asynccontextmanager
    async def heeding(self, topic: str) -> AsyncIterator[asyncio.Event]:
        """Give an event that is first set when hints from elsewhere are heard."""
        heed = _Heed(topic, asyncio.Event(), asyncio.get_running_loop())
        self._join(heed)
        try:
            yield heed.event
        finally:
            self._part(heed)

    def close(self) -> None:
        """Set every event a last time, so that whoever waits learns of the end, and let go of other processes."""
        with self._lock:
            self._closed = True
        self._heard(None)
        self._courier.close()

    def _join(self, heed: _Heed) -> None:
        with self._lock:
            self._heeds.add(heed)
            if heed.loop not in self._reminders:
                self._remind_later(heed.loop, self._at_least_every)
            if len(self._heeds) == 1 and not self._closed:
                self._courier.attend(self._heard)
            else:
                heed.event.set()  # others were told to begin already, or it is all over

    def _part(self, heed: _Heed) -> None:
        with self._lock:
            self._heeds.remove(heed)
            if all(other.loop is not heed.loop for other in self._heeds):
                self._reminders.pop(heed.loop).cancel()
            if not self._heeds and not self._closed:
                self._courier.leave()

    def _remind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set all events of a loop, unless they were set together a short while ago."""
        with self._lock:
            left = self._all_heard_at + self._at_least_every - time.monotonic()
            if left <= 0:
                _set([heed.event for heed in self._heeds if heed.loop is loop])
            if not self._closed:
                self._remind_later(loop, left if left > 0 else self._at_least_every)

    def _remind_later(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._reminders[loop] = loop.call_later(seconds, self._remind, loop)

    def _heard(self, topic: str | None) -> None:
        with self._lock:
            concerned = [heed for heed in self._heeds if topic is None or heed.topic == topic]
            if topic is None:
                self._all_heard_at = time.monotonic()
        by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Event]] = {}
        for heed in concerned:
            by_loop.setdefault(heed.loop, []).append(heed.event)
        for loop, events in by_loop.items():
            if loop is _running_loop():
                _set(events)
            else:
                with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                    loop.call_soon_threadsafe(_set, events)


def _set(events: list[asyncio.Event]) -> None:
    for event in events:
        event.set()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
