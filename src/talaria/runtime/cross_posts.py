"""Cross-posts: messages sent to another chat through the outbox and recorded in its sessions' transcripts."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, structs

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.platform import Content
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import OutboxItem
from talaria.contracts.stores.sessions import NewSession, Session, SessionChanges
from talaria.contracts.tool import ORIGIN, Call, ReachableChat, SentMessage
from talaria.core.addresses import Address, audience_of
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId
from talaria.core.messages import File, Image, Message, Text
from talaria.core.session_context import SessionContext
from talaria.runtime.outbox import queue_notice
from talaria.runtime.turns import MIRROR, make_arrival, record_mirrored
from talaria.runtime.workers import is_platform_served
from talaria.sessions.chat_directory import KnownChannel, find_target, list_channels, read_home
from talaria.sessions.keys import build_session_key, list_user_ids, resolve_ownership
from talaria.sessions.transcript_export import is_mirrored

_LOCK_DURATION = timedelta(seconds=5)
_MAX_SESSIONS = 50
_MAX_COPIED_MESSAGES = 10


class CrossPost(Struct, frozen=True, kw_only=True):
    """A message for a chat that comes from another session, a script or a job.

    ``key`` identifies it: a second one with the same key is a duplicate. ``source`` names the origin in a word or two.
    ``sender`` is the originating session, if any; the message is not recorded there again.
    """

    key: str
    address: Address
    content: Content
    source: str
    at: datetime
    sender: SessionId | None = None


def send_cross_post(tx: Transaction, cross_post: CrossPost) -> OutboxItem | None:
    """Queue a cross-post and record it in the chat's sessions; return ``None`` for a duplicate."""
    address = structs.replace(cross_post.address, user_id="")
    session_ids = _list_sessions_at(tx, address)
    item = queue_notice(tx, session_ids[0], address, cross_post.content, cross_post.key)
    for session_id in session_ids if item else ():
        if session_id != cross_post.sender:
            entry = make_arrival(
                session_id, MIRROR, f"{cross_post.key}:{session_id}", _build_mirror_message(cross_post), kind=MIRROR
            )
            tx.inbox.add(entry)
            record_mirrored(tx, session_id)
    return item


def claim_ownerless_session(tx: Transaction, session: Session, address: Address, owner: str) -> Session:
    """Give a session created for a cross-post to the first person who writes there, and return it."""
    if owner != session.owner and session.owner == _find_initial_owner(tx, address):
        return tx.sessions.update(session.id, SessionChanges(owner=owner))
    return session


def copy_mirrored_messages(tx: Transaction, session_id: SessionId, address: Address) -> None:
    """Copy recent cross-posts from the chat's shared session to a new session of the same chat."""
    shared_binding = tx.bindings.get(build_session_key(structs.replace(address, user_id="")))
    if shared_binding is None or shared_binding.session_id == session_id:
        return
    last = [stored.message for stored in tx.messages.last(shared_binding.session_id, _MAX_COPIED_MESSAGES)]
    mirrored = [message for message in last if is_mirrored(message)]
    if mirrored:
        tx.messages.append(session_id, mirrored)


def _list_sessions_at(tx: Transaction, address: Address) -> Sequence[SessionId]:
    """Return the sessions of a chat: the shared one, created if missing, then those of participants."""
    key = build_session_key(_resolve_address(tx, address))
    people = [] if address.chat_type == "private" else tx.bindings.under(f"{key}:")[:_MAX_SESSIONS]
    return list(dict.fromkeys([_find_or_create_session(tx, key, address), *(one.session_id for one in people)]))


def _resolve_address(tx: Transaction, address: Address) -> Address:
    """Return a private chat's address with the person's canonical user id."""
    if address.chat_type != "private":
        return address
    return structs.replace(address, chat_id=list_user_ids(tx, address.platform, address.chat_id)[0])


def _find_or_create_session(tx: Transaction, key: str, address: Address) -> SessionId:
    found = _find_bound_session(tx, key)
    if found is None:
        # A concurrent transaction that creates a session here waits at this row until the commit, then finds it.
        lock = tx.leases.acquire(f"place:{key}", _LOCK_DURATION)
        found = _find_bound_session(tx, key) or _create_session(tx, key, address)
        if lock is not None:
            tx.leases.release(lock)
    return found


def _find_bound_session(tx: Transaction, key: str) -> SessionId | None:
    binding = tx.bindings.get(key)
    return binding.session_id if binding and tx.sessions.get(binding.session_id) else None


def _create_session(tx: Transaction, key: str, address: Address) -> SessionId:
    new = NewSession(source=address.platform, owner=_find_initial_owner(tx, address), audience=audience_of(address))
    created = tx.sessions.create(new)
    tx.bindings.bind(key, created.id, address)
    return created.id


def _find_initial_owner(tx: Transaction, address: Address) -> str:
    """Return the owner of a session before anyone has written in it; it has access to no memory."""
    return resolve_ownership(_resolve_address(tx, address), "", shared=True).owner


def _build_mirror_message(cross_post: CrossPost) -> Message:
    files = [Text(f"[sent {getattr(file, 'name', '') or 'a picture'}]") for file in cross_post.content.files]
    body = [Text(cross_post.content.text)] if cross_post.content.text else []
    return Message(role="assistant", parts=(*body, *files), at=cross_post.at, author=f"Agent, from {cross_post.source}")


_SOURCES: Mapping[str, str] = {"cli": "the terminal"}


class ChatMessageSender:
    """Implementation of `MessageSender` for the configured networks."""

    def __init__(self, store: Store, platforms: Collection[str], clock: Clock | None = None) -> None:
        self._store = store
        self._platforms = platforms
        self._clock = clock or SystemClock()

    async def send(self, target: str, text: str, call: Call, files: tuple[File | Image, ...] = ()) -> SentMessage:
        """Queue a message once per call and content, and record it in the sessions of that chat."""
        content, now = Content(text=text, files=files), self._clock.now()
        return await self._store.write(lambda tx: self._send(tx, target, content, call, now))

    async def list_reachable(self) -> list[ReachableChat]:
        """Return the known chats, the most recently active first."""
        return await self._store.read(lambda tx: list_reachable(tx, self._platforms))

    def _send(self, tx: Transaction, target: str, content: Content, call: Call, now: datetime) -> SentMessage:
        if target == ORIGIN:
            address = _find_origin(tx, call)
            queue_notice(tx, call.session_id, address, content, _build_key(call, address, content))
            return SentMessage("this chat", is_platform_served(tx, address.platform))
        address = find_target(tx, target, self._platforms)
        cross_post = CrossPost(
            key=_build_key(call, address, content),
            address=address,
            content=content,
            source=_format_source(call.context),
            at=now,
            sender=call.session_id,
        )
        send_cross_post(tx, cross_post)
        return SentMessage(target, is_platform_served(tx, address.platform))


def list_reachable(tx: Transaction, platforms: Collection[str]) -> list[ReachableChat]:
    """Return the known chats of these networks, the most recently active first."""
    homes = {home.address.platform: home.address.chat_id for name in platforms if (home := read_home(tx, name))}
    known = [one for one in list_channels(tx) if one.address.platform in platforms]
    return [ReachableChat(one.target, one.name, one.address.chat_type, _is_home(one, homes)) for one in known]


def _is_home(channel: KnownChannel, homes: Mapping[str, str]) -> bool:
    return homes.get(channel.address.platform) == channel.address.chat_id


def _find_origin(tx: Transaction, call: Call) -> Address:
    addresses = [binding.address for binding in tx.bindings.of_session(call.session_id)]
    here = [one for one in addresses if (one.platform, one.chat_id) == (call.context.platform, call.context.chat_id)]
    if not addresses:
        raise NotFound("This conversation isn't in a chat. Your reply is read right here.")
    return (here or addresses)[0]


def _format_source(context: SessionContext) -> str:
    return context.platform or _SOURCES.get(context.source, context.source) or "elsewhere"


def _build_key(call: Call, address: Address, content: Content) -> str:
    """Return the identity of a message.

    It includes the content, because some servers give two calls of one turn the same id.
    """
    body = repr((call.id, address, content)).encode("utf-8", "surrogatepass")
    return f"send:{call.context.turn_id or call.session_id}:{hashlib.sha256(body).hexdigest()[:24]}"
