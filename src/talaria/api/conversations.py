"""The one place through which every route of the API opens a conversation."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Protocol

import msgspec
from msgspec import Struct, structs

from talaria.api.keys import Caller
from talaria.api.problems import ServerEnds, missing
from talaria.commands.house import House
from talaria.contracts.follower import Ending
from talaria.contracts.hooks import SESSION_START, session_facts
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.events import TurnEvent
from talaria.core.ids import SessionId, is_id
from talaria.core.session_context import SessionContext
from talaria.sessions.agent_cache import CAP, IDLE, AgentCache
from talaria.sessions.chat import Chat, ChatWish

SOURCE = "api"
SESSION_HEADER = "x-talaria-session-id"  # names a conversation, in requests and in replies
_OF_SESSION = "api-session:"
_SURFACE = "You are asked over HTTP, by a program or by somebody behind one: answer in full, and ask nothing back."
_OPENING_AT_ONCE = 8  # each holds up the others for about a millisecond


class Origin(Struct, frozen=True, omit_defaults=True):
    """What is kept of how a conversation began: the key that it belongs to, and what its client told the agent."""

    key: str = ""
    instructions: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Origin).decode


def keep_origin(tx: Transaction, session_id: SessionId, origin: Origin) -> None:
    """Keep how a conversation of the API began."""
    tx.state.put(_OF_SESSION + session_id, _encode(origin).decode())


def read_origin(tx: Transaction, session_id: SessionId) -> Origin | None:
    """Return how a conversation of the API began; ``None`` for any other."""
    entry = tx.state.get(_OF_SESSION + session_id)
    return _decode(entry.value) if entry else None


def entered(tx: Transaction, session_id: str, caller: Caller) -> Session:
    """Return a conversation that the caller may continue: one that its key started, or any for an ``admin``.

    Raises a `Problem` for any other, and for what is not an id of ours.
    """
    session = tx.sessions.get(SessionId(session_id)) if is_id(session_id) else None
    if session is None or not (caller.may("admin") or _is_own(tx, session, caller)):
        raise missing(f"There is no session `{session_id[:64]}`.", code="session_not_found")
    return session


def _is_own(tx: Transaction, session: Session, caller: Caller) -> bool:
    """Tell whether a key started a conversation, with the same rights as it has now."""
    origin = read_origin(tx, session.id)
    return origin is not None and origin.key == caller.name and session.owner == caller.owner


class Listener(Protocol):
    """Whoever asked for the turn that runs."""

    def hear(self, event: TurnEvent) -> None:
        """Take an event of the conversation."""

    def take_note(self, tx: Transaction, ending: Ending) -> None:
        """Take note of the end of a turn, in its transaction."""


class _Ear:
    """Hears a conversation for whoever asked for its turn; implements `Witness`.

    The conversation knows nothing else of those who keep it, so that it is gone as soon as they let go of it.
    """

    def __init__(self) -> None:
        self.listener: Listener | None = None
        self.active_at: datetime | None = None

    def emit(self, event: TurnEvent) -> None:
        """Hand an event on."""
        if self.listener is not None:
            self.listener.hear(event)

    def turn_ended(self, tx: Transaction, ending: Ending) -> None:
        """Let whoever asked for the turn take note of its end."""
        self.active_at = datetime.now(UTC)
        if self.listener is not None:
            self.listener.take_note(tx, ending)


class Kept:
    """The agent of one conversation, ready for its next turn; implements `CachedAgent`.

    Whoever holds ``lock`` may set what listens to its ``ear``, and take a turn.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.ear = _Ear()
        self.stack = AsyncExitStack()
        self._opened: tuple[ChatWish, Chat] | None = None

    async def open(self, house: House, wish: ChatWish, jobs: asyncio.TaskGroup) -> None:
        """Open the conversation."""
        wish = structs.replace(wish, witnesses=(self.ear,))
        self._opened = wish, await house.open_chat(wish, self.ear.emit, self.stack, jobs)
        self.ear.active_at = datetime.now(UTC)

    @property
    def active_at(self) -> datetime | None:
        """When something last went on."""
        return self.ear.active_at

    @property
    def wish(self) -> ChatWish:
        """How it was opened."""
        assert self._opened is not None
        return self._opened[0]

    @property
    def chat(self) -> Chat:
        """The conversation."""
        assert self._opened is not None
        return self._opened[1]

    @property
    def signature(self) -> str:
        """What its agent was made of."""
        return self.chat.signature

    @property
    def is_busy(self) -> bool:
        """Whether anything goes on, or is about to."""
        return self.lock.locked() or self.chat.conversation.engaged

    async def release_clients(self) -> None:
        """Let go of the agent; folder and processes of the conversation stay."""
        self.chat.keep_workplace()
        await self.stack.aclose()

    async def close(self) -> None:
        """Let go of all of it."""
        await self.stack.aclose()


class Conversations:
    """Conversations over request and response: nobody can be asked back, and nobody be woken behind the reply.

    Whether that is so is said by the class, and cannot be said otherwise by a route. Where clients can be reached later
    a subclass says so, of which there is one instance for all of those routes.
    """

    supports_async_delivery: ClassVar[bool] = False
    attended: ClassVar[bool] = False
    surface: ClassVar[str] = _SURFACE

    def __init__(
        self, house: House, jobs: asyncio.TaskGroup, folder: Path, *, cap: int = CAP, idle: timedelta = IDLE
    ) -> None:
        self.house = house
        self.jobs = jobs
        self.running = 0
        self._closed = False
        self._folder = folder
        self._cache: AgentCache[Kept] = AgentCache(jobs, cap=cap, idle=idle)
        self._doorway = asyncio.Semaphore(_OPENING_AT_ONCE)

    def __len__(self) -> int:
        return len(self._cache)

    @asynccontextmanager
    async def using(
        self, session_id: SessionId, origin: Origin, model: str, caller: Caller, *, begins: bool = False
    ) -> AsyncIterator[Kept]:
        """Lend the agent of a conversation: within the block nobody closes it.

        One that ``begins`` is not stored yet: that is done with its first turn.
        """
        self.check_open()
        wish = self._wish(session_id, origin, model, caller)
        if begins:
            now = datetime.now(UTC)
            new = Session(id=session_id, source=SOURCE, owner=caller.owner, created_at=now, updated_at=now)
            wish = structs.replace(wish, begins=new)
        signature, found = None, self._cache.find(session_id)
        if found is not None and found.chat.conversation.left:  # but whoever asks here is answered here
            self._cache.evict(session_id)
        elif found is not None:
            prospect = await self.house.prospect(structs.replace(found.wish, model=model))
            # What is at work goes on with the agent that it has; another one is built when it rests.
            signature = found.signature if found.is_busy else prospect.signature
            if signature == prospect.signature:
                found.chat.conversation.ask_with(prospect.effort)
        async with self._cache.using(session_id, signature, lambda: self._opened(wish)) as kept:
            yield kept

    def announce(self, kept: Kept) -> None:
        """Tell hooks of a conversation that begins."""
        session_id = kept.chat.conversation.session_id
        self.house.hooks.fire(SESSION_START, session_facts(structs.replace(kept.wish.context, session_id=session_id)))

    def check_open(self) -> None:
        """Raise `ServerEnds` where no turn may begin any more."""
        if self._closed:
            raise ServerEnds

    async def close(self) -> None:
        """Let go of every conversation; turns that run are cut off, and go on when their conversation does."""
        self._closed = True
        async with asyncio.TaskGroup() as group:
            for kept in self._cache.drain():
                group.create_task(kept.close())

    def forget(self, session_id: SessionId) -> None:
        """Close a conversation that is over, with all it has started."""
        self._cache.end(session_id)

    def sweep(self) -> int:
        """Let go of conversations in which nothing has gone on for long, and return how many those were."""
        return self._cache.sweep()

    def _wish(self, session_id: SessionId, origin: Origin, model: str, caller: Caller) -> ChatWish:
        context = SessionContext(
            platform=SOURCE,
            source=SOURCE,
            user_name=caller.name,
            session_key=f"{SOURCE}:{session_id}",
            async_delivery=self.supports_async_delivery,
        )
        return ChatWish(
            source=SOURCE,
            folder=self._folder,
            resume=session_id,
            model=model,
            surface=f"{origin.instructions}\n\n{self.surface}".strip(),
            titled=False,
            attended=self.attended,
            lasting=self.supports_async_delivery,
            watchable=self.supports_async_delivery,
            context=context,
        )

    async def _opened(self, wish: ChatWish) -> Kept:
        kept = Kept()
        async with self._doorway:
            try:
                await kept.open(self.house, wish, self.jobs)
            except BaseException:
                await kept.stack.aclose()
                raise
        return kept
