"""Threads in which we take part, and Slack's assistant view of them: suggestions, titles and status."""

import asyncio
import logging
from collections import OrderedDict
from typing import Protocol

from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import PlatformError, SlowDown
from talaria.platforms.slack.client import CHANNEL_ERRORS, ApiClient, CallRefused, to_platform_error
from talaria.platforms.slack.events import AssistantThread

JOINED_THREAD = NamedValue("slack_thread", bool)  # by account, thread and channel
_MOST_CACHED = 5000
_MOST_STORED = 20_000
_STATUS = "is thinking…"
_PROMPTS = (("What can you do?", "What can you do for me?"), ("How are things?", "/status"), ("Commands", "/help"))
_TITLE_LIMIT = 80
_MOST_UNTITLED = 500
_PAUSE_SECONDS = 900.0
_GLOBAL_REFUSALS = frozenset({"unknown_method", "missing_scope", "method_deprecated", "not_allowed_token_type"})
log = logging.getLogger(__name__)


class ThreadStore(Protocol):
    """A store for the threads in which we take part."""

    async def put(self, channel: str, thread: str) -> None:
        """Save one durably."""

    async def has(self, channel: str, thread: str) -> bool:
        """Return whether one is stored."""

    async def latest(self, number: int) -> list[tuple[str, str]]:
        """Return the latest ones, as channel and thread."""

    async def clear(self) -> None:
        """Delete the oldest if there are too many."""


class MemoryThreadStore:
    """A `ThreadStore` in memory."""

    def __init__(self) -> None:
        self._threads: set[tuple[str, str]] = set()

    async def put(self, channel: str, thread: str) -> None:
        """Save one in memory."""
        self._threads.add((channel, thread))

    async def has(self, channel: str, thread: str) -> bool:
        """Return whether one is stored."""
        return (channel, thread) in self._threads

    async def latest(self, number: int) -> list[tuple[str, str]]:
        """Return the latest ones, as channel and thread."""
        return sorted(self._threads, key=lambda one: one[1])[-number:]

    async def clear(self) -> None:
        """Do nothing."""


class DurableThreadStore:
    """`ThreadStore` in the database, shared by all workers."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._prefix = f"{name}:"

    async def put(self, channel: str, thread: str) -> None:
        """Save one durably."""
        await self._store.write(lambda tx: JOINED_THREAD.write(tx, self._make_key(channel, thread), value=True))

    async def has(self, channel: str, thread: str) -> bool:
        """Return whether one is stored."""
        return bool(await self._store.read(lambda tx: JOINED_THREAD.get(tx, self._make_key(channel, thread))))

    async def latest(self, number: int) -> list[tuple[str, str]]:
        """Return the latest ones, as channel and thread."""
        keys = await self._store.read(lambda tx: JOINED_THREAD.keys(tx, self._prefix))
        thread_keys = [key.removeprefix(self._prefix).partition(":") for key in keys[-number:]]
        return [(channel, thread) for thread, _, channel in thread_keys]

    async def clear(self) -> None:
        """Delete the oldest if there are too many."""
        keys = await self._store.read(lambda tx: JOINED_THREAD.keys(tx, self._prefix))
        old = keys[:-_MOST_STORED]
        if old:
            await self._store.write(lambda tx: [JOINED_THREAD.delete(tx, key) for key in old])

    def _make_key(self, channel: str, thread: str) -> str:
        # A thread's id is its start time: the keys are sorted by age.
        return f"{self._prefix}{thread}:{channel}"


class JoinedThreads:
    """Caches recent threads, and looks up others in the store."""

    def __init__(self, state_store: ThreadStore) -> None:
        self._state_store = state_store
        self._cached: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def prune(self) -> None:
        """Delete the oldest."""
        await self._state_store.clear()

    async def join(self, channel: str, thread: str) -> None:
        """Record that we take part in a thread."""
        if not thread or (channel, thread) in self._cached:
            return
        await self._state_store.put(channel, thread)
        self._remember(channel, thread)

    async def latest(self, number: int) -> list[tuple[str, str]]:
        """Return the latest ones, as channel and thread."""
        return await self._state_store.latest(number)

    async def has(self, channel: str, thread: str) -> bool:
        """Return whether we take part in a thread."""
        if not thread:
            return False
        if (channel, thread) not in self._cached and await self._state_store.has(channel, thread):
            self._remember(channel, thread)
        return (channel, thread) in self._cached

    def _remember(self, channel: str, thread: str) -> None:
        self._cached[channel, thread] = None
        if len(self._cached) > _MOST_CACHED:
            self._cached.popitem(last=False)


class Assistant:
    """The assistant features of threads."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._untitled: dict[tuple[str, str], None] = {}
        self._paused_until: dict[str, float] = {}

    async def greet(self, thread: AssistantThread) -> None:
        """Suggest prompts in a newly opened thread; its title comes with the first message."""
        if not thread.channel_id or not thread.thread_ts:
            return
        self._untitled[thread.channel_id, thread.thread_ts] = None
        if len(self._untitled) > _MOST_UNTITLED:
            del self._untitled[next(iter(self._untitled))]
        await self._client.attempt(
            self._client.web.assistant_threads_setSuggestedPrompts(
                channel_id=thread.channel_id,
                thread_ts=thread.thread_ts,
                prompts=[{"title": title, "message": message} for title, message in _PROMPTS],
            )
        )

    async def name(self, at: Address, text: str) -> None:
        """Give such a thread a title, from its first message."""
        if (at.chat_id, at.thread_id) not in self._untitled:
            return
        del self._untitled[at.chat_id, at.thread_id]
        title = " ".join(text.split())[:_TITLE_LIMIT]
        if title:
            await self._client.attempt(
                self._client.web.assistant_threads_setTitle(channel_id=at.chat_id, thread_ts=at.thread_id, title=title)
            )

    async def show_status(self, at: Address) -> None:
        """Show a status in a thread until the answer is there or two minutes have passed.

        If Slack refuses, it is not tried again for a while; a missing channel raises `Rejected`.
        """
        now = asyncio.get_running_loop().time()
        if not at.thread_id or any(self._paused_until.get(one, 0.0) > now for one in ("", at.chat_id)):
            return
        try:
            await self._client.ask_raw(
                self._client.web.assistant_threads_setStatus(
                    channel_id=at.chat_id, thread_ts=at.thread_id, status=_STATUS
                )
            )
        except CallRefused as call_refused:
            if call_refused.refusal.code in CHANNEL_ERRORS:
                raise to_platform_error(call_refused.refusal) from call_refused
            log.info("can't show a status in %s: %s", at.chat_id, call_refused)
            self._paused_until["" if call_refused.refusal.code in _GLOBAL_REFUSALS else at.chat_id] = (
                now + _PAUSE_SECONDS
            )
        except SlowDown as slow_down:
            self._paused_until[""] = now + slow_down.retry_after.total_seconds()
        except PlatformError as error:
            log.info("can't show a status in %s: %s", at.chat_id, error)
