"""Registry of the live chats of a worker: opened for a message or pending work, evicted when idle."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from weakref import WeakValueDictionary

from msgspec import structs

from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Address
from talaria.core.errors import Refused, StoreError, TalariaError
from talaria.core.ids import SessionId, WorkerId
from talaria.core.session_context import SessionContext, bound
from talaria.gateway.chats.chat import AgentVersion, Chat
from talaria.goals.goal_store import list_resumable_goals
from talaria.runtime.agent_cache import AgentCache, AgentSpec, SessionVersion, read_session_version
from talaria.runtime.completions import BATCH_WINDOW, WAKE, queue_reports_if_idle
from talaria.runtime.open_session import ResumeSession
from talaria.runtime.runner import RunnerState
from talaria.runtime.turns import PENDING_SESSIONS, list_pending_sessions
from talaria.runtime.workers import can_claim_chat, claim_chat, is_assigned
from talaria.settings.model import LiveSettings

_LONGEST_PAUSE = 60.0
_MAX_OPENING = 12  # opening one blocks the others for about a millisecond
PendingChat = tuple[SessionId, str, Address]

log = logging.getLogger(__name__)


class UpdateLock:
    """Lock that the updates of a chat hold while they are dispatched, in the order of their arrival."""

    def __init__(self) -> None:
        self._users = 0
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        self._users += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._users -= 1
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        self._lock.release()

    async def wait_for_updates(self) -> bool:
        """Wait until no update holds the lock or waits for it; return whether one did, without a pause if not."""
        had_updates = self._users > 0
        while self._users:
            async with self._lock:
                pass
        return had_updates


class ChatRegistry:
    """Open chats of this worker by session key, each with an agent ready for the next message.

    ``make`` creates a chat; ``agent_spec`` returns the specification of an agent built now for a session. ``closed`` is
    true once the gateway shuts down. Tasks of ``jobs`` end with the gateway at the latest.
    """

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        make: Callable[[str, Address], Chat],
        agent_spec: Callable[[Address, SessionId], Awaitable[AgentSpec]],
        jobs: asyncio.TaskGroup,
        settings: LiveSettings,
    ) -> None:
        self.worker = worker
        self._store = store
        self._make = make
        self._build_spec = agent_spec
        self._settings = settings
        self.jobs = jobs
        self._platforms: Container[str] | None = None
        self._cache: AgentCache[Chat] = AgentCache(
            jobs,
            cap=settings.current.gateway.open_sessions,
            idle=timedelta(seconds=settings.current.gateway.idle_seconds),
        )
        self._opening_gate = asyncio.Semaphore(_MAX_OPENING)
        self._retries: dict[SessionId, tuple[int, float]] = {}
        self._updates: WeakValueDictionary[str, UpdateLock] = WeakValueDictionary()
        self.closed = False

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def busy(self) -> list[Chat]:
        """The chats in which a turn is running."""
        return [chat for chat in self._cache.agents if chat.active_session.busy]

    def find(self, key: str) -> Chat | None:
        """Return an open chat."""
        return self._cache.find(key)

    def limit_to_platforms(self, platforms: Container[str]) -> None:
        """Resume only sessions on these networks, because another worker may serve the rest."""
        self._platforms = platforms

    @asynccontextmanager
    async def in_turn(
        self, key: str, address: Address, session_id: SessionId, version: SessionVersion | None = None
    ) -> AsyncIterator[Chat]:
        """Use a chat like `using`, one caller at a time in the order of their calls."""
        async with self._get_update_lock(key), self.using(key, address, session_id, version) as chat:
            yield chat

    def _get_update_lock(self, key: str) -> UpdateLock:
        """Return the lock that each update of a chat holds while it is dispatched."""
        lock = self._updates.get(key)
        if lock is None:
            lock = self._updates[key] = UpdateLock()
        return lock

    @asynccontextmanager
    async def using(
        self, key: str, address: Address, session_id: SessionId, version: SessionVersion | None = None
    ) -> AsyncIterator[Chat]:
        """Use a chat with this session open in it; it is not closed within the block.

        ``version`` is that of the session if the caller has just read it. An agent that was built or checked for the
        same version of settings and session is used as it is; another one is compared by signature and rebuilt if
        needed, or once it is idle.
        """
        agent_version, chat = await self._read_agent_version(key, address, session_id, version), self._cache.find(key)
        if chat is not None and _has_moved(chat):  # the session has come back
            self._cache.evict(key)
            chat = None
        is_current = chat is None or (agent_version is not None and chat.agent_version == agent_version)
        agent_spec = None if is_current else await self._build_spec(address, session_id)
        signature = None if agent_spec is None else self._get_required_signature(key, agent_spec)
        build = partial(self._open_chat, key, address, session_id, agent_version)
        async with self._cache.using(key, signature, build) as chat:
            await chat.switch_session(session_id)
            if agent_spec is not None and chat.signature == agent_spec.signature:
                chat.confirm_agent(agent_version, agent_spec.effort)
            yield chat

    async def _read_agent_version(
        self, key: str, address: Address, session_id: SessionId, version: SessionVersion | None
    ) -> AgentVersion | None:
        """Return the version of an agent built now; ``None`` if it is not needed or not known."""
        generation = self._settings.generation
        if version is None and key in self._cache:
            version = await self._store.read(lambda tx: read_session_version(tx, session_id))
        return AgentVersion(generation, address.chat_id, address.thread_id, version) if version is not None else None

    def _get_required_signature(self, key: str, agent_spec: AgentSpec) -> str:
        """Return the signature that the agent must have."""
        found = self._cache.find(key)
        if found is not None and found.is_busy:  # a running turn keeps its agent; another is built afterwards
            return found.signature
        return agent_spec.signature

    def end(self, key: str) -> bool:
        """Close a chat and end the background work of its session; ``False`` if it is not open."""
        return self._cache.end(key)

    def release(self, key: str) -> bool:
        """Evict a chat; its session keeps its folder and processes."""
        return self._cache.evict(key)

    async def close(self) -> None:
        """Close every chat permanently; running turns are interrupted and resume at the next start."""
        self.closed = True
        async with asyncio.TaskGroup() as group:
            for chat in self._cache.drain():
                group.create_task(_close_chat(chat))

    def sweep(self) -> int:
        """Evict the chats that have been idle for too long, and return their number."""
        return self._cache.sweep()

    async def serve(self) -> None:
        """Resume pending work without an owner, left by a crash or another worker, until cancelled."""
        reported = ""
        async with self._store.subscribe(PENDING_SESSIONS) as subscription:
            while True:
                await subscription.wait()
                try:
                    await self.take_up()
                    self.sweep()
                    reported = ""
                except TalariaError as error:
                    if reported != str(error):
                        log.warning("couldn't process pending messages: %s", error)
                    reported = str(error)

    async def take_up(self) -> int:
        """Resume the sessions that have pending work and no owner, and return their number.

        Pending work is an interrupted turn, a message in the inbox, or a goal that no process follows.
        """
        resumable, may_wait = await self._store.read(lambda tx: (self._list_resumable_goals(tx), _has_pending_work(tx)))
        goals = [session_id for session_id, key, _ in resumable if not self._is_followed(key, session_id)]
        if not goals and not may_wait:
            return 0
        now = asyncio.get_running_loop().time()
        waiting = await self._store.write(lambda tx: self._list_pending(tx, goals))
        found = [pending for pending in waiting if self._retries.get(pending[0], (0, 0.0))[1] <= now]
        for session_id, key, address in found:
            self.jobs.create_task(self.wake(session_id, key, address))
        return len(found)

    async def wake(self, session_id: SessionId, key: str, address: Address) -> None:
        """Process the pending work of a session: its inbox, and its goal if no process follows it."""
        try:
            async with AsyncExitStack() as stack:
                async with self._get_update_lock(key):
                    chat = await stack.enter_async_context(self.using(key, address, session_id))
                await chat.finish_commands()
                if self.find(key) is chat:  # if another chat has replaced it, that one resumes the session
                    conversation = chat.active_session.chat.conversation
                    if not conversation.has_running_work:
                        conversation.follow()
                    conversation.wake()
            self._retries.pop(session_id, None)
        except StoreError as error:
            with bound(SessionContext(session_id=session_id, platform=address.platform)):
                log.warning("session %s: pending messages are waiting for the store: %s", session_id, error)
        except TalariaError as error:
            count = self._retries.get(session_id, (0, 0.0))[0] + 1
            pause = min(2.0**count, _LONGEST_PAUSE)
            self._retries[session_id] = count, asyncio.get_running_loop().time() + pause
            with bound(SessionContext(session_id=session_id, platform=address.platform)):
                log.warning("session %s: retrying pending messages in %.0f s: %s", session_id, pause, error)

    async def release_lost(self) -> int:
        """Release the chats that are assigned to other workers now, and return their number."""
        chats = self._cache.agents
        lost = await self._store.read(
            lambda tx: [chat.key for chat in chats if not is_assigned(tx, chat.key, self.worker)]
        )
        for key in lost:
            self.release(key)
        return len(lost)

    async def _open_chat(
        self, key: str, address: Address, session_id: SessionId, agent_version: AgentVersion | None
    ) -> Chat:
        chat = self._make(key, address)
        chat.active_session.request = structs.replace(chat.active_session.request, session=ResumeSession(session_id))
        async with self._opening_gate:
            if not self.closed:
                await chat.open(
                    agent_version,
                    wait_for_updates=self._get_update_lock(key).wait_for_updates,
                    release=lambda: self.release(key),
                )
        if self.closed:  # possibly set while the chat was being opened
            await _close_chat(chat)
            raise Refused("The gateway is stopping. Pending messages are answered at the next start.")
        return chat

    def _list_resumable_goals(self, tx: Transaction) -> list[PendingChat]:
        """Return the sessions with a goal to resume, among those that this worker may serve."""
        return [
            pending
            for session_id in list_resumable_goals(tx, datetime.now(UTC))
            for pending in self._find_chat(tx, session_id)
            if can_claim_chat(tx, pending[1], self.worker)
        ]

    def _is_followed(self, key: str, session_id: SessionId) -> bool:
        """Return whether a chat of this worker has the session open with work running."""
        chat = self._cache.find(key)
        if chat is None or not chat.active_session.is_open or chat.active_session.session_id != session_id:
            return False
        return chat.active_session.chat.conversation.has_running_work

    def _list_pending(self, tx: Transaction, goals: Sequence[SessionId]) -> list[PendingChat]:
        """Return the chats with pending work that this worker may claim; sessions without a chat are left out."""
        return [
            pending
            for session_id in dict.fromkeys((*list_pending_sessions(tx), *goals))
            for pending in self._find_chat(tx, session_id)
            if claim_chat(tx, pending[1], self.worker)
        ]

    def _find_chat(self, tx: Transaction, session_id: SessionId) -> list[PendingChat]:
        """Return the chat of a session, if it is on a network of this worker."""
        return [
            (session_id, binding.key, binding.address)
            for binding in tx.bindings.of_session(session_id)[:1]
            if self._platforms is None or binding.address.platform in self._platforms
        ]


def _has_pending_work(tx: Transaction) -> bool:
    """Return whether any turn is running or any message pending, in any process."""
    return bool(tx.turns.find(running=True, limit=1) or tx.inbox.list_unsettled())


def _has_moved(chat: Chat) -> bool:
    """Return whether the last turn of a chat was moved to another one: its open session runs no more turns."""
    return chat.active_session.is_open and chat.active_session.chat.conversation.state is RunnerState.MOVED


async def _close_chat(chat: Chat) -> None:
    """Close a chat, but leave its background processes running.

    What cannot be written during a store outage is found unfinished at the next start.
    """
    try:
        chat.view.end()
        await chat.active_session.close()
    except StoreError as error:
        log.warning("%s: couldn't close a chat properly: %s", chat.name, error)


class CompletionDispatcher:
    """Dispatcher of completions for one worker; ``platforms`` are the networks that it serves."""

    def __init__(self, store: Store, chats: ChatRegistry, platforms: Container[str]) -> None:
        self._store = store
        self._chats = chats
        self._platforms = platforms

    async def serve(self) -> None:
        """Dispatch completions as they arrive, until cancelled."""
        async with self._store.subscribe(WAKE) as subscription:
            while True:
                await subscription.wait()
                try:
                    await self.look(BATCH_WINDOW)
                except StoreError as error:
                    log.warning("completions will be delivered later: %s", error)

    async def look(self, delay: float = 0.0) -> int:
        """Wake all idle sessions of this worker with completions, and return their number.

        Completions that arrive within ``delay`` seconds are included.
        """
        if not await self._store.read(lambda tx: tx.completions.waiting()):
            return 0
        await asyncio.sleep(delay)
        woken = await self._store.write(self._fold_in_completions)
        for session_id, key, address in woken:
            self._chats.jobs.create_task(self._chats.wake(session_id, key, address))
        return len(woken)

    def _fold_in_completions(self, tx: Transaction) -> list[tuple[SessionId, str, Address]]:
        """Queue completions for sessions whose chats are assigned to this worker or to none."""
        found = []
        for session_id in tx.completions.waiting():
            for binding in tx.bindings.of_session(session_id)[:1]:
                ours = binding.address.platform in self._platforms and claim_chat(tx, binding.key, self._chats.worker)
                if ours and queue_reports_if_idle(tx, session_id):
                    found.append((session_id, binding.key, binding.address))
        return found
