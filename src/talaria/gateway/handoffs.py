"""Conversations that are to go on in a chat: claimed by one worker, given a thread, bound there, and told to go on."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from msgspec import Struct, structs

from talaria.contracts.platform import Content, Platform
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.handoffs import PendingHandoff
from talaria.core.addresses import Address, Route
from talaria.core.errors import PlatformError, Rejected, SlowDown, StoreError, TalariaError
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import Message, Text
from talaria.core.wording import platform_label
from talaria.gateway.elsewhere import Elsewhere, MovedTurn, turns_elsewhere
from talaria.gateway.identity import owner_on
from talaria.gateway.keepers import keep
from talaria.gateway.placing import bounded
from talaria.gateway.rooms import Rooms
from talaria.sessions.homes import HANDOFFS, read_home
from talaria.sessions.lane import arrival
from talaria.sessions.live_words import LIVE, move_along
from talaria.sessions.outgoing import OUTBOX, queue_notice
from talaria.sessions.relocation import bring, forget_wanted_place, is_at_once, own_thread, wanted_place
from talaria.sessions.session_keys import build_session_key
from talaria.sessions.transcripts import PROGRAM
from talaria.settings.chats import ChatNetwork
from talaria.settings.model import Settings

SOURCE = "handoff"
_CALL = 15.0
_THREAD = 25.0  # seconds for a thread, with the pauses that the network asks for
_SHORTEST_PAUSE = 0.1
_CLAIM = timedelta(seconds=3 * _CALL)
_NAMELESS = "A conversation"
_TOLD = (
    "This is not from the person: they have moved this conversation here, to {platform}, from where it was before. You"
    " have all of it. Say in one or two sentences where things stand, and go on when they write."
)
_HERE = "This conversation goes on here now."
_HERE_NOW = "This conversation goes on here now, in the middle of a turn."

log = logging.getLogger(__name__)


class HandoffLost(TalariaError):
    """Whoever asked for it gave up meanwhile, or another worker has taken it over."""


class Destination(Struct, frozen=True):
    """Where a conversation goes on: the address, and the key that the person's next message there will build.

    ``thread`` says that it is a thread that was made for it; ``whom`` is the person for whom it goes on.
    """

    address: Address
    key: str
    thread: bool
    whom: str = ""

    @property
    def route(self) -> Route:
        """Where the reply of a turn goes that is taken along."""
        return Route(self.address, user_id=self.whom)


class Handoffs:
    """Takes conversations to the networks of one worker; ``settings`` are those of now."""

    def __init__(
        self,
        store: Store,
        rooms: Rooms,
        platforms: Mapping[str, Platform],
        settings: Callable[[], Settings],
    ) -> None:
        self._store = store
        self._rooms = rooms
        self._platforms = platforms
        self._settings = settings
        self._under_way: set[SessionId] = set()

    async def serve(self) -> None:
        """Take up requests as they come, side by side, until cancelled; before that, what was moved before a crash."""
        await self._show_those_elsewhere()
        async with self._store.heeding(HANDOFFS) as rung:
            while True:
                rung.clear()
                try:
                    await self.look()
                except StoreError as error:
                    log.warning("handoffs wait: %s", error)
                await rung.wait()

    async def _show_those_elsewhere(self) -> None:
        try:
            moved = await self._store.write(lambda tx: turns_elsewhere(tx, self._rooms.worker, self._platforms))
        except StoreError as error:
            log.warning("turns of other processes are not shown: %s", error)
            return
        for one in moved:
            self._rooms.start(Elsewhere(self._store, self._rooms, one).show())

    async def look(self) -> int:
        """Begin with all that wait, those too whose worker died on the way; return how many those are."""
        waiting = await self._store.read(_waiting)
        ours = [one for one in waiting if one.platform in self._platforms and one.session_id not in self._under_way]
        for one in ours:
            self._under_way.add(one.session_id)
            self._rooms.start(self._take(one))
        return len(ours)

    async def _take(self, asked: PendingHandoff) -> None:
        try:
            if await self._store.write(lambda tx: tx.handoffs.claim_handoff(asked.session_id, _CLAIM)):
                await self._move(asked)
        except StoreError as error:
            log.warning("session %s: its handoff waits: %s", asked.session_id, error)
        finally:
            self._under_way.discard(asked.session_id)

    async def _move(self, asked: PendingHandoff) -> None:
        """Take a conversation that is ours to take; on any failure say why, and leave everything as it was."""
        try:
            destination = await self._destination(asked)
            turn_id = await self._store.write(lambda tx: self._bind(tx, asked, destination))
        except HandoffLost:
            log.info("session %s: its handoff was called off", asked.session_id)
        except StoreError:
            raise
        except TalariaError as error:
            await self._fail(asked, str(error), gone=isinstance(error, Rejected))
        except Exception as error:  # whoever waits for it is told of a bug too
            await self._fail(asked, f"{type(error).__name__}: {error}")
            raise
        else:
            await self._go_on(asked.session_id, destination, turn_id)

    async def _go_on(self, session_id: SessionId, destination: Destination, turn_id: TurnId | None) -> None:
        """Go on there; a turn that was taken along is shown there while another process works on it."""
        await self._store.hint(OUTBOX)
        if turn_id is not None:
            await self._store.hint(LIVE)
            moved = MovedTurn(session_id, turn_id, destination.route, destination.key, destination.address)
            self._rooms.start(Elsewhere(self._store, self._rooms, moved).show())
        else:
            await self._rooms.wake(session_id, destination.key, destination.address)

    async def _fail(self, asked: PendingHandoff, reason: str, *, gone: bool = False) -> None:
        """Say why it stays where it is; where the place is ``gone``, the next attempt looks for another."""
        log.warning("session %s: it was not handed over to %s: %s", asked.session_id, asked.platform, reason)
        await self._store.write(lambda tx: _failed(tx, asked.session_id, reason, gone=gone))

    async def _destination(self, asked: PendingHandoff) -> Destination:
        """Return where it goes: a thread of its own where there can be one, else the home channel itself."""
        address = await self._store.read(lambda tx: _parent(tx, asked))
        if address is None:
            raise Rejected(
                f"{platform_label(asked.platform)} has no home chat (`/sethome` in a chat there makes it one)"
            )
        platform = self._platforms[asked.platform]
        thread = "" if address.thread_id else await self._thread(platform, address.chat_id, asked)
        if thread:
            kind = "private" if address.chat_type == "private" else "thread"
            address = structs.replace(address, thread_id=thread, chat_type=kind)
        if platform.abilities.typing:  # whoever looks there sees that something comes; a chat that is gone says so
            with suppress(SlowDown):
                await bounded(platform.show_typing(address), _CALL)
        settings = self._settings()
        network = settings.platforms.get(asked.platform, ChatNetwork())
        # The key is that of the owner's next message there, whoever else may speak in that chat.
        place = structs.replace(address, user_id=address.user_id or owner_on(settings, asked.platform))
        key = build_session_key(
            place,
            group_sessions_per_user=network.group_sessions_per_user,
            thread_sessions_per_user=network.thread_sessions_per_user,
        )
        return Destination(address, key, bool(thread), place.user_id)

    async def _thread(self, platform: Platform, chat_id: str, asked: PendingHandoff) -> str:
        """Return the thread that an earlier worker made for this, or a new one; empty where there can be none."""
        key = _thread_key(asked.session_id, platform.name, chat_id)
        made = await self._store.read(lambda tx: tx.state.get(key))
        if made is not None:
            return made.value
        try:
            name = asked.title or _NAMELESS
            thread = await bounded(_made(platform, chat_id, name), _THREAD) or ""
        except PlatformError as error:
            log.info("session %s: no thread on %s: %s", asked.session_id, asked.platform, error)
            thread = ""
        await self._store.write(lambda tx: tx.state.put(key, thread))
        return thread

    def _bind(self, tx: Transaction, asked: PendingHandoff, destination: Destination) -> TurnId | None:
        """Move it: the claim, the place and what is to be said there change together, or nothing does.

        Returns the turn that was taken along.
        """
        session_id = asked.session_id
        if not tx.handoffs.complete_handoff(session_id):
            raise HandoffLost("The handoff was called off.")
        bring(tx, session_id, destination.key, destination.address)
        # A turn that runs although none should is taken along: its owner may know nothing of chats.
        at_once = is_at_once(tx, session_id) or bool(tx.turns.find(session_id, running=True, limit=1))
        forget_wanted_place(tx, session_id)
        if destination.thread:
            own_thread(tx, destination.key)
        keep(tx, destination.key, self._rooms.worker)
        tx.state.delete(_thread_key(session_id, asked.platform, destination.address.chat_id))
        if at_once:
            turn_id = move_along(tx, session_id, destination.route)
            queue_notice(tx, session_id, destination.address, Content(text=_HERE if turn_id is None else _HERE_NOW))
            return turn_id
        now = datetime.now(UTC)
        words = Text(_TOLD.format(platform=asked.platform))
        message = Message(role="user", parts=(words,), at=now, author=PROGRAM)
        moved = f"{session_id}:{now.isoformat()}"
        tx.inbox.add(arrival(session_id, SOURCE, moved, message, route=Route(destination.address)))
        return None


async def _made(platform: Platform, chat_id: str, name: str) -> str | None:
    """Return a new thread, if need be after the pauses that the network asks for."""
    while True:
        try:
            return await bounded(platform.create_handoff_thread(chat_id, name), _CALL)
        except SlowDown as error:
            pause = error.retry_after.total_seconds()
            if pause > _THREAD:
                raise
            await asyncio.sleep(max(pause, _SHORTEST_PAUSE))


def _failed(tx: Transaction, session_id: SessionId, reason: str, *, gone: bool) -> None:
    if tx.handoffs.fail_handoff(session_id, reason):
        forget_wanted_place(tx, session_id)
        for entry in tx.state.with_prefix(_threads_of(session_id)) if gone else ():
            tx.state.delete(entry.key)


def _threads_of(session_id: SessionId) -> str:
    return f"handoff:{session_id}:"


def _thread_key(session_id: SessionId, platform: str, chat_id: str) -> str:
    """Return where the thread of a move that is not done yet is kept: another move may go to another chat."""
    return f"{_threads_of(session_id)}{platform}:{chat_id}"


def _parent(tx: Transaction, asked: PendingHandoff) -> Address | None:
    """Return the chat in which it is to go on: the one that was named, else the home channel."""
    wanted = wanted_place(tx, asked.session_id)
    if wanted is not None and wanted.platform == asked.platform:
        return wanted
    home = read_home(tx, asked.platform)
    return home.address if home else None


def _waiting(tx: Transaction) -> list[PendingHandoff]:
    return [*tx.handoffs.list_pending_handoffs(), *tx.handoffs.list_lapsed_handoffs()]
