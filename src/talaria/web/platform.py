"""The web app as a platform: delivery of its outbox, and the destination of handoffs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from talaria.contracts.platform import Content, Incoming, MessageRef, PlatformCapabilities, PlatformDefaults
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import SessionChanges
from talaria.core.addresses import WEB, Address
from talaria.core.errors import Rejected
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.core.messages import Message
from talaria.handoff.service import HandoffDestination
from talaria.runtime.turns import MIRROR, make_arrival
from talaria.sessions.keys import build_session_key
from talaria.web.conversations import FILE_LIMIT, WebConversations
from talaria.web.front_door import WebCaller
from talaria.web.notifications import NotificationKind, Notifier, WebNotification
from talaria.web.session_views import (
    UNREAD,
    WEB_NOTICE,
    WebNotice,
    find_delivered_session,
    new_thread,
    person_of,
    web_address,
)

_TEXT_LIMIT = 1_000_000
_RECENT_TURNS = 20
_HOME_TITLE = "Deliveries"


class WebPlatform(PlatformDefaults):
    """Delivery to conversations of the web app; implements `Platform`.

    A message is delivered when it is stored: a reply and a cross-post are in the transcript already, everything else
    becomes a notice next to it. A conversation that nobody looks at gets an unread mark, and its person is notified.
    """

    name = WEB
    abilities = PlatformCapabilities(text_limit=_TEXT_LIMIT, idempotent=True, threads=True, file_limit=FILE_LIMIT)

    def __init__(self, store: Store, notifier: Notifier, on_delivered: Callable[[SessionId], None]) -> None:
        self._store = store
        self._notifier = notifier
        self._on_delivered = on_delivered

    def connect(self) -> AbstractAsyncContextManager[AsyncIterator[Incoming]]:
        """Raise `Rejected`: browsers send requests, there are no updates to receive."""
        raise Rejected("the web app has no updates to receive")

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Store a message and notify its person; one for a conversation that has left the web app is dropped."""
        person = person_of(to)

        def deliver(tx: Transaction) -> WebNotification | None:
            session_id = find_delivered_session(tx, to)
            if session_id is None:
                return None
            kind = _record(tx, session_id, content, key)
            if not self._notifier.is_seen(session_id, person):
                UNREAD.write(tx, session_id, (UNREAD.get(tx, session_id) or 0) + 1)
            session = tx.sessions.get(session_id)
            title = session.title if session is not None else ""
            if not title and not to.thread_id:
                title = tx.sessions.update(session_id, SessionChanges(title=_HOME_TITLE)).title
            return WebNotification(kind, session_id, title, content.text)

        delivered = await self._store.write(deliver)
        if delivered is not None:
            self._on_delivered(SessionId(delivered.session))
            await self._notifier.notify(person, delivered)
        return MessageRef(to, key)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Return the id of a new conversation."""
        return new_id()


class WebHandoffTarget:
    """Destination of handoffs to the web app; implements `HandoffTarget`."""

    def __init__(
        self, conversations: WebConversations, jobs: asyncio.TaskGroup, on_arrival: Callable[[], None]
    ) -> None:
        self._conversations = conversations
        self._jobs = jobs
        self._on_arrival = on_arrival

    @property
    def platforms(self) -> Collection[str]:
        """The web app only."""
        return (WEB,)

    def run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the server at the latest."""
        self._jobs.create_task(work)

    async def create_thread(self, chat: Address, name: str) -> str:
        """Return the id of a new conversation."""
        return new_id()

    async def resolve(self, platform: str, chat: Address | None, thread_id: str) -> HandoffDestination:
        """Return the address of the conversation in the chat of its person."""
        person = person_of(chat) if chat is not None else ""
        thread = (chat.thread_id if chat is not None else "") or thread_id
        address = web_address(person, thread) if thread else new_thread(person)
        return HandoffDestination(address, build_session_key(address), in_own_thread=False)

    def assign(self, tx: Transaction, destination: HandoffDestination) -> None:
        """Do nothing: every web server can open the conversation."""

    async def start(self, session_id: SessionId, destination: HandoffDestination, turn_id: TurnId | None) -> None:
        """Open the conversation, which answers the arrival; a moved turn is shown from the process that runs it."""
        if turn_id is None:
            await self._conversations.open(session_id, WebCaller(person=person_of(destination.address)))
        self._on_arrival()


def _record(tx: Transaction, session_id: SessionId, content: Content, key: str) -> NotificationKind:
    """Store a message that the transcript doesn't have, and return what kind of notification it is."""
    own_key = key.rpartition(":")[0]
    if any(turn.id == own_key for turn in tx.turns.find(session_id, limit=_RECENT_TURNS)):
        return "answered"
    for item, known in WEB_NOTICE.items(tx, session_id).items():
        if item.endswith(f" {own_key}"):  # another piece of it, or the same one again
            more = tuple(file for file in content.files if file not in known.files)
            WEB_NOTICE.write(tx, session_id, structs.replace(known, files=(*known.files, *more)), item)
            return "delivered"
    if not _is_mirrored(tx, session_id, own_key) or content.files:
        now = datetime.now(UTC)
        session = tx.sessions.get(session_id)
        after = session.message_count if session is not None else 0
        notice = WebNotice(at=now, after=after, text=content.text, files=content.files)
        WEB_NOTICE.write(tx, session_id, notice, f"{now:%Y%m%d%H%M%S%f} {own_key}")
    return "delivered"


def _is_mirrored(tx: Transaction, session_id: SessionId, own_key: str) -> bool:
    """Return whether a message is a cross-post, whose text is in the transcript."""
    # Its mirror has this id, so adding it once more tells whether there is one.
    mirror = Message(role="assistant", parts=(), at=datetime.now(UTC))
    added = tx.inbox.add(make_arrival(session_id, MIRROR, f"{own_key}:{session_id}", mirror, kind=MIRROR))
    if added is not None:
        tx.inbox.settle([added.id])
    return added is None
