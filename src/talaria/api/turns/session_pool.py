"""The pool of open sessions that all routes of the API share."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Protocol, Self

from msgspec import Struct, structs

from talaria.api.front_door import ApiCaller
from talaria.commands.application import Application
from talaria.contracts.hooks import SESSION_START, NoHooks, session_facts
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.contracts.turns import AfterCommit, TurnResult
from talaria.contracts.values import SessionValue
from talaria.core.events import TurnEvent
from talaria.core.ids import SessionId, is_id
from talaria.core.session_context import SessionContext
from talaria.http.errors import ServerStopping, make_not_found
from talaria.runtime.agent_cache import CAP, IDLE_LIMIT, AgentCache
from talaria.runtime.open_session import OpenRequest, OpenSession, ResumeSession, SurfaceInfo, UnsavedSession
from talaria.runtime.runner import RunnerState
from talaria.runtime.turns import TurnOptions

SOURCE = "api"
SESSION_HEADER = "x-talaria-session-id"  # names a session, in requests and in replies
_SURFACE = "You are called over HTTP, by a program or a person using one. Answer in full, and don't ask questions back."
_FILE_LIMIT = 50_000_000  # bytes of one file; it is read whole for each download
_MAX_OPENING = 8  # each blocks the event loop for about a millisecond


class ApiOrigin(Struct, frozen=True, omit_defaults=True):
    """Origin of a session of the API: the API key that owns it, and the instructions of its client."""

    key: str = ""
    instructions: str = ""


API_ORIGIN = SessionValue("api_origin", ApiOrigin)


def write_origin(tx: Transaction, session_id: SessionId, origin: ApiOrigin) -> None:
    """Store how a session of the API began."""
    API_ORIGIN.write(tx, session_id, origin)


def read_origin(tx: Transaction, session_id: SessionId) -> ApiOrigin | None:
    """Return how a session of the API began; ``None`` for any other session."""
    return API_ORIGIN.get(tx, session_id)


def require_session(tx: Transaction, session_id: str, caller: ApiCaller) -> Session:
    """Return a session that the caller may continue: one that its key started, or any for an ``admin``.

    Raises a `Problem` for any other session, and for text that is not a session id.
    """
    session = tx.sessions.get(SessionId(session_id)) if is_id(session_id) else None
    if session is None or not (caller.may("admin") or _is_own_session(tx, session, caller)):
        raise make_not_found(f"There is no session `{session_id[:64]}`.", code="session_not_found")
    return session


def _is_own_session(tx: Transaction, session: Session, caller: ApiCaller) -> bool:
    """Return whether a key started a session, with the same rights as it has now."""
    origin = read_origin(tx, session.id)
    return origin is not None and origin.key == caller.name and session.owner == caller.owner


class PoolListener(Protocol):
    """The consumer of the turns of a pooled session."""

    def handle_event(self, event: TurnEvent) -> None:
        """Take an event of the session."""

    def take_note(self, tx: Transaction, result: TurnResult) -> None:
        """Record the end of a turn, in its transaction."""


class _TurnRelay:
    """Relay of turn ends from an open session to the listener of the moment; implements `TurnListener`.

    The session refers to nothing else of the pool, so that it is freed as soon as the pool drops it.
    """

    def __init__(self) -> None:
        self.active_at = datetime.now(UTC)
        self._listener: PoolListener | None = None

    @contextmanager
    def attach_listener(self, listener: PoolListener) -> Iterator[None]:
        """Relay turn ends to ``listener`` within the block."""
        self._listener = listener
        try:
            yield
        finally:
            self._listener = None

    def turn_ended(self, tx: Transaction, result: TurnResult) -> AfterCommit:
        """Relay the end of a turn, in its transaction."""
        if self._listener is not None:
            self._listener.take_note(tx, result)
        return self._touch

    def _touch(self) -> None:
        self.active_at = datetime.now(UTC)


class PooledSession:
    """An open session of the pool, ready for its next turn; implements `CachedAgent`.

    Hold ``lock`` while running a turn, and listen to it within `listening`.
    """

    def __init__(self, request: OpenRequest, chat: OpenSession, relay: _TurnRelay, stack: AsyncExitStack) -> None:
        self.lock = asyncio.Lock()
        self.request = request
        self.chat = chat
        self._relay = relay
        self._stack = stack

    @classmethod
    async def open(cls, application: Application, request: OpenRequest, jobs: asyncio.TaskGroup) -> Self:
        """Open a session; nothing of it is left open where that fails."""
        relay, stack = _TurnRelay(), AsyncExitStack()
        request = structs.replace(request, turns=TurnOptions(listeners=(relay,)))
        try:
            chat = await application.open_session(request, stack, jobs)
        except BaseException:
            await stack.aclose()
            raise
        return cls(request, chat, relay, stack)

    @contextmanager
    def listening(self, listener: PoolListener) -> Iterator[None]:
        """Deliver events and turn ends to ``listener`` within the block; the caller holds ``lock``."""
        unsubscribe = self.chat.events.subscribe(listener.handle_event)
        try:
            with self._relay.attach_listener(listener):
                yield
        finally:
            unsubscribe()

    @property
    def active_at(self) -> datetime | None:
        """The time at which it was opened, or its last turn ended."""
        return self._relay.active_at

    @property
    def signature(self) -> str:
        """The signature of its agent."""
        return self.chat.signature

    @property
    def is_busy(self) -> bool:
        """Return whether a turn or its follow-up work runs, or is about to."""
        return self.lock.locked() or self.chat.conversation.has_running_work

    async def release_clients(self) -> None:
        """Close the agent; folder and processes of the session stay."""
        self.chat.keep_workspace()
        await self._stack.aclose()

    async def close(self) -> None:
        """Close the agent, folder and processes of the session."""
        await self._stack.aclose()


class SessionPool:
    """Open sessions for request and response: clients cannot be asked back, nor reached after the reply.

    The class decides that, and no route can change it. A subclass serves the routes whose clients can be reached later;
    there is one instance of it.
    """

    supports_async_delivery: ClassVar[bool] = False
    attended: ClassVar[bool] = False
    surface: ClassVar[str] = _SURFACE

    def __init__(
        self,
        application: Application,
        jobs: asyncio.TaskGroup,
        folder: Path,
        *,
        cap: int = CAP,
        idle: timedelta = IDLE_LIMIT,
    ) -> None:
        self.application = application
        self.jobs = jobs
        self._running = 0
        self._closed = False
        self._folder = folder
        self._cache: AgentCache[PooledSession] = AgentCache(jobs, cap=cap, idle=idle)
        self._opening = asyncio.Semaphore(_MAX_OPENING)

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def running(self) -> int:
        """The number of turns that run, or wait for their session."""
        return self._running

    @contextmanager
    def count_turn(self) -> Iterator[None]:
        """Count a turn as running within the block."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    @asynccontextmanager
    async def using(
        self, session_id: SessionId, origin: ApiOrigin, model: str, caller: ApiCaller, *, begins: bool = False
    ) -> AsyncIterator[PooledSession]:
        """Yield the open session, which is not closed within the block.

        With ``begins`` the session is not stored yet: its first turn does that.
        """
        self.check_open()
        request = self._build_request(session_id, origin, model, caller)
        if begins:
            now = datetime.now(UTC)
            new = Session(id=session_id, source=SOURCE, owner=caller.owner, created_at=now, updated_at=now)
            request = structs.replace(request, session=UnsavedSession(new))
        signature, found = None, self._cache.find(session_id)
        if found is not None and found.chat.conversation.state is RunnerState.MOVED:
            # It has moved to a chat; a request here is still answered here.
            self._cache.evict(session_id)
        elif found is not None:
            stored = structs.replace(found.request, session=ResumeSession(session_id), model=model)
            agent_spec = await self.application.agent_spec(stored)
            # A running turn keeps its agent; another one is built when the session is idle.
            signature = found.signature if found.is_busy else agent_spec.signature
            if signature == agent_spec.signature:
                found.chat.conversation.set_effort(agent_spec.effort)
        async with self._cache.using(session_id, signature, lambda: self._open(request)) as pooled:
            yield pooled

    def announce(self, pooled: PooledSession) -> None:
        """Notify hooks of a new session."""
        hooks, session_id = self.application.hooks, pooled.chat.conversation.session_id
        if not isinstance(hooks, NoHooks):
            hooks.fire(
                SESSION_START, session_facts(structs.replace(pooled.request.surface.context, session_id=session_id))
            )

    def check_open(self) -> None:
        """Raise `ServerStopping` after `close`."""
        if self._closed:
            raise ServerStopping

    async def close(self) -> None:
        """Close every session; running turns are interrupted, and resume when their session is opened again."""
        self._closed = True
        async with asyncio.TaskGroup() as group:
            for pooled in self._cache.drain():
                group.create_task(pooled.close())

    def forget(self, session_id: SessionId) -> None:
        """Close a session that has ended, with all it has started."""
        self._cache.end(session_id)

    def sweep(self) -> int:
        """Evict sessions that have been idle for long; return their number."""
        return self._cache.sweep()

    def _build_request(self, session_id: SessionId, origin: ApiOrigin, model: str, caller: ApiCaller) -> OpenRequest:
        context = SessionContext(
            platform=SOURCE,
            source=SOURCE,
            user_name=caller.name,
            session_key=f"{SOURCE}:{session_id}",
            async_delivery=self.supports_async_delivery,
        )
        return OpenRequest(
            surface=SurfaceInfo(
                source=SOURCE,
                folder=self._folder,
                instructions=f"{origin.instructions}\n\n{self.surface}".strip(),
                context=context,
                attended=self.attended,
                lasting=self.supports_async_delivery,
                watchable=self.supports_async_delivery,
                file_limit=_FILE_LIMIT,
                attaches_files=True,
            ),
            session=ResumeSession(session_id),
            model=model,
            titled=False,
        )

    async def _open(self, request: OpenRequest) -> PooledSession:
        async with self._opening:
            return await PooledSession.open(self.application, request, self.jobs)
