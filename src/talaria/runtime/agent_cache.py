"""Cache of agents by session key, and the signatures that decide whether one can be reused."""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from datetime import datetime, timedelta
from itertools import islice
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import Effort
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.ids import SessionId
from talaria.sessions.preferences import PREFERENCES

CAP = 128
IDLE_LIMIT = timedelta(hours=1)
log = logging.getLogger(__name__)


class CachedAgent(Protocol):
    """An agent that the cache holds for a session."""

    @property
    def signature(self) -> str:
        """Signature of what the agent was built from."""

    @property
    def is_busy(self) -> bool:
        """Return whether a turn is running."""

    @property
    def active_at(self) -> datetime | None:
        """Time of the last activity; ``None`` if unknown."""

    async def release_clients(self) -> None:
        """Close connections to models; keep the session's processes, folder, browser and MCP servers."""

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


class _PendingBuild:
    """An agent that is being built for one session; other callers wait for its lock."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiters = 0
        self.removed = self.ended = False


class AgentCache(Generic[T]):
    """Agents by session key, the most recently used last.

    Agents are released by tasks of ``jobs``, so that callers do not wait. An agent is never released during a turn: if
    it is evicted meanwhile, the first `settle` after the turn releases it.
    """

    def __init__(
        self, jobs: asyncio.TaskGroup, *, cap: int = CAP, idle: timedelta = IDLE_LIMIT, clock: Clock | None = None
    ) -> None:
        self._jobs = jobs
        self._cap = cap
        self._idle = idle
        self._clock = clock or SystemClock()
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()
        self._retired: list[_Entry[T]] = []
        self._pending_builds: dict[str, _PendingBuild] = {}
        self._is_over_cap = False

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @property
    def agents(self) -> list[T]:
        """All agents, including evicted ones whose turn is still running."""
        return [entry.agent for entry in (*self._entries.values(), *self._retired)]

    def find(self, key: str) -> T | None:
        """Return the agent of a session without marking it as used."""
        entry = self._entries.get(key)
        return entry.agent if entry else None

    async def get(self, key: str, signature: str | None, build: Callable[[], Awaitable[T]]) -> T:
        """Return the cached agent of a session if its signature matches, otherwise build a new one.

        Without a signature any agent matches. The agent may be evicted before its turn starts; `using` prevents that.
        """
        async with self.using(key, signature, build) as agent:
            return agent

    @asynccontextmanager
    async def using(self, key: str, signature: str | None, build: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
        """Lend the agent of a session for a turn; it counts as busy within the block."""
        entry = await self._acquire_entry(key, signature, build)
        try:
            yield entry.agent
        finally:
            entry.users -= 1
            entry.used = self._clock.now()
            self.settle()

    def evict(self, key: str) -> bool:
        """Evict an agent and close its clients, so that the next turn builds one; ``False`` if absent."""
        return self._remove(key, ended=False)

    def end(self, key: str) -> bool:
        """Close the agent of an ended session with everything it started; ``False`` if absent."""
        return self._remove(key, ended=True)

    def sweep(self) -> int:
        """Evict agents that are idle for too long or over the cap, and return how many."""
        before = len(self._entries)
        for key in [key for key, entry in self._entries.items() if self._is_stale(entry)]:
            self.evict(key)
        self.settle()
        return before - len(self._entries)

    def settle(self) -> None:
        """Release agents evicted during a turn that is over, and enforce the cap on idle ones."""
        waiting = [entry for entry in self._retired if entry.busy]
        done = [entry for entry in self._retired if not entry.busy]
        self._retired = waiting
        for entry in done:
            self._release(entry)
        excess = list(islice(self._entries, max(len(self._entries) - self._cap, 0)))
        for key in [key for key in excess if not self._entries[key].busy]:
            self.evict(key)
        self._is_over_cap = self._is_over_cap and len(self._entries) > self._cap

    def drain(self) -> list[T]:
        """Remove and return all agents, busy or not; the caller closes them."""
        agents = self.agents
        self._entries.clear()
        self._retired.clear()
        return agents

    async def _acquire_entry(self, key: str, signature: str | None, build: Callable[[], Awaitable[T]]) -> _Entry[T]:
        """Return the entry with one more user; builds of other sessions are not blocked."""
        with self._track_build(key) as pending:
            async with pending.lock:
                entry = self._entries.get(key)
                if entry is not None and (signature is None or signature == entry.agent.signature):
                    self._entries.move_to_end(key)
                    entry.users += 1
                    return entry
                self.evict(key)
                return await self._build_entry(key, build, pending)

    async def _build_entry(self, key: str, build: Callable[[], Awaitable[T]], pending: _PendingBuild) -> _Entry[T]:
        """Build an entry with its first user; if evicted during the build, it serves only this user."""
        pending.removed = pending.ended = False
        entry = _Entry(await build(), self._clock.now(), users=1)
        if pending.removed:
            entry.ended = pending.ended
            self._retired.append(entry)
            return entry
        self._entries[key] = entry
        self.settle()
        if len(self) > self._cap and not self._is_over_cap:
            self._is_over_cap = True
            log.warning("over the cap of %d cached agents: the ones to evict are mid-turn", self._cap)
        return entry

    @contextmanager
    def _track_build(self, key: str) -> Iterator[_PendingBuild]:
        pending = self._pending_builds.setdefault(key, _PendingBuild())
        pending.waiters += 1
        try:
            yield pending
        finally:
            pending.waiters -= 1
            if not pending.waiters:
                del self._pending_builds[key]

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
            self._release(entry)
        return True

    def _remove_unbuilt(self, key: str, *, ended: bool) -> bool:
        pending = self._pending_builds.get(key)
        if pending is None:
            return False
        pending.removed, pending.ended = True, pending.ended or ended
        return True

    def _release(self, entry: _Entry[T]) -> None:
        releasing = _release_agent(entry)
        try:
            self._jobs.create_task(releasing, context=Context())
        except RuntimeError:  # the task group is ending, with everything that belongs to it
            releasing.close()


async def _release_agent(entry: _Entry[T]) -> None:
    try:
        await (entry.agent.close() if entry.ended else entry.agent.release_clients())
    except Exception:  # a failed release must not end other sessions
        log.exception("couldn't release an agent cleanly")


class AgentSignature(Struct, frozen=True, kw_only=True):
    """The parts of an agent that cannot be changed once it is built.

    Effort and callbacks can be changed, and are not included.
    """

    model: str
    provider: str
    base_url: str = ""
    api_mode: str = ""
    api_key: str = ""
    toolsets: tuple[str, ...] = ()
    extras: str = ""

    def signature(self) -> str:
        """Return a digest of all fields, stable across processes; the API key enters as a hash."""
        key = hashlib.sha256(self.api_key.encode()).hexdigest()
        parts = (self.model, self.provider, self.base_url, self.api_mode, key, sorted(self.toolsets), self.extras)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class AgentSpec(Struct, frozen=True):
    """The agent that a session would get now; ``effort`` can be changed on an existing agent."""

    signature: str
    effort: Effort = ""


class SessionVersion(Struct, frozen=True):
    """The stored values that decide which agent a session gets.

    Under the same settings, equal versions mean the same agent. ``preferences`` counts how often the preferences were
    written.
    """

    session_id: SessionId
    owner: str
    preferences: int


def make_session_version(tx: Transaction, session: Session) -> SessionVersion:
    """Return the version of a session that was read in this transaction."""
    return SessionVersion(session.id, session.owner, PREFERENCES.version(tx, session.id))


def read_session_version(tx: Transaction, session_id: SessionId) -> SessionVersion | None:
    """Return the version of a session; ``None`` if it was deleted."""
    session = tx.sessions.get(session_id)
    return make_session_version(tx, session) if session else None
