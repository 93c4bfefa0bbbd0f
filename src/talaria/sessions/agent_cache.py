"""The agents that are kept ready, one for each session key: built once, found again, let go of when nobody asks."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from datetime import datetime, timedelta
from itertools import islice
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock

CAP = 128
IDLE = timedelta(hours=1)

log = logging.getLogger(__name__)


class CachedAgent(Protocol):
    """What is kept for a conversation."""

    @property
    def signature(self) -> str:
        """What it was made of."""

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running."""

    @property
    def active_at(self) -> datetime | None:
        """When something went on last; ``None`` where that is not known."""

    async def release_clients(self) -> None:
        """Close connections to models. Processes, folder, browser and MCP servers of the conversation stay."""

    async def close(self) -> None:
        """End its processes, environment, browser, MCP servers and children, then close connections."""


T = TypeVar("T", bound=CachedAgent)


class _Entry(Struct, Generic[T]):
    agent: T
    used: datetime
    users: int = 0
    ended: bool = False

    @property
    def busy(self) -> bool:
        return self.users > 0 or self.agent.is_busy


class _Site:
    """Where the agent of one session is being built; whoever wants it meanwhile waits here."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.visitors = 0
        self.removed = self.ended = False


class AgentCache(Generic[T]):
    """Agents by session key, the most recently used last; letting go of them is work of ``jobs``, so nobody waits.

    What is in a turn is never let go of: where it has been evicted meanwhile, that is done when the turn is over, at
    the next look.
    """

    def __init__(
        self, jobs: asyncio.TaskGroup, *, cap: int = CAP, idle: timedelta = IDLE, clock: Clock | None = None
    ) -> None:
        self._jobs = jobs
        self._cap = cap
        self._idle = idle
        self._clock = clock or SystemClock()
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()
        self._retired: list[_Entry[T]] = []
        self._sites: dict[str, _Site] = {}
        self._crowded = False

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @property
    def agents(self) -> list[T]:
        """All of them, those too that go when their turn is over."""
        return [entry.agent for entry in (*self._entries.values(), *self._retired)]

    def find(self, key: str) -> T | None:
        """Return the agent of a session as it is, without using it."""
        entry = self._entries.get(key)
        return entry.agent if entry else None

    async def get(self, key: str, signature: str | None, build: Callable[[], Awaitable[T]]) -> T:
        """Return the agent of a session, the same as before where it has this signature, else one that is built now.

        Without a signature any will do. Between this and the beginning of a turn it may be evicted; `using` prevents
        that.
        """
        async with self.using(key, signature, build) as agent:
            return agent

    @asynccontextmanager
    async def using(self, key: str, signature: str | None, build: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
        """Lend the agent of a session for a turn: within the block it counts as busy."""
        entry = await self._entry(key, signature, build)
        try:
            yield entry.agent
        finally:
            entry.users -= 1
            entry.used = self._clock.now()
            self.settle()

    def evict(self, key: str) -> bool:
        """Let go of an agent softly, so that the next turn builds a fresh one; ``False`` where there is none."""
        return self._remove(key, ended=False)

    def end(self, key: str) -> bool:
        """Close the agent of a session that is over, with all it has started; ``False`` where there is none."""
        return self._remove(key, ended=True)

    def sweep(self) -> int:
        """Let go of those that were idle for long, and of what is too many, and return how many that were."""
        before = len(self._entries)
        for key in [key for key, entry in self._entries.items() if self._is_stale(entry)]:
            self.evict(key)
        self.settle()
        return before - len(self._entries)

    def settle(self) -> None:
        """Keep to the cap as far as running turns allow it, and let go of what was evicted during its turn."""
        waiting = [entry for entry in self._retired if entry.busy]
        done = [entry for entry in self._retired if not entry.busy]
        self._retired = waiting
        for entry in done:
            self._let_go(entry)
        surplus = list(islice(self._entries, max(len(self._entries) - self._cap, 0)))
        for key in [key for key in surplus if not self._entries[key].busy]:
            self.evict(key)
        self._crowded = self._crowded and len(self._entries) > self._cap

    def drain(self) -> list[T]:
        """Take out all of them, busy or not, and return them: whoever asked for that closes them."""
        agents = self.agents
        self._entries.clear()
        self._retired.clear()
        return agents

    async def _entry(self, key: str, signature: str | None, build: Callable[[], Awaitable[T]]) -> _Entry[T]:
        """Return the entry with one more user; one session's building holds up nobody else."""
        with self._site(key) as site:
            async with site.lock:
                entry = self._entries.get(key)
                if entry is not None and signature in (None, entry.agent.signature):
                    self._entries.move_to_end(key)
                    entry.users += 1
                    return entry
                self.evict(key)
                return await self._built(key, build, site)

    async def _built(self, key: str, build: Callable[[], Awaitable[T]], site: _Site) -> _Entry[T]:
        """Return a new entry with its first user; one that was evicted before it was there serves this user alone."""
        site.removed = site.ended = False
        entry = _Entry(await build(), self._clock.now(), users=1)
        if site.removed:
            entry.ended = site.ended
            self._retired.append(entry)
            return entry
        self._entries[key] = entry
        self.settle()
        if len(self) > self._cap and not self._crowded:
            self._crowded = True
            log.warning("more agents are kept than the cap of %d: those to go are mid-turn", self._cap)
        return entry

    @contextmanager
    def _site(self, key: str) -> Iterator[_Site]:
        site = self._sites.setdefault(key, _Site())
        site.visitors += 1
        try:
            yield site
        finally:
            site.visitors -= 1
            if not site.visitors:
                del self._sites[key]

    def _is_stale(self, entry: _Entry[T]) -> bool:
        active = entry.agent.active_at
        return active is not None and not entry.busy and self._clock.now() - max(active, entry.used) > self._idle

    def _remove(self, key: str, *, ended: bool) -> bool:
        entry = self._entries.pop(key, None)
        if entry is None:
            return self._remove_unbuilt(key, ended=ended)
        entry.ended = ended
        if entry.busy:
            self._retired.append(entry)
        else:
            self._let_go(entry)
        return True

    def _remove_unbuilt(self, key: str, *, ended: bool) -> bool:
        site = self._sites.get(key)
        if site is None:
            return False
        site.removed, site.ended = True, site.ended or ended
        return True

    def _let_go(self, entry: _Entry[T]) -> None:
        going = _gone(entry)
        try:
            self._jobs.create_task(going, context=Context())
        except RuntimeError:  # the group is ending, and whatever belongs to it ends as well
            going.close()


async def _gone(entry: _Entry[T]) -> None:
    try:
        await (entry.agent.close() if entry.ended else entry.agent.release_clients())
    except Exception:  # what cannot be let go of is no reason to end the conversations of others
        log.exception("an agent was not let go of as it should be")
