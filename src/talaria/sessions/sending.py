"""What is said in a chat from elsewhere: to its people through the outbox, and to the agent there in its transcript."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct, structs

from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.outbox import OutboxItem
from talaria.contracts.stores.sessions import NewSession, Session, SessionChanges
from talaria.core.addresses import Address, audience_of
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text
from talaria.sessions.aliases import known_ids
from talaria.sessions.lane import MIRROR, arrival, record_mirrored
from talaria.sessions.outgoing import queue_notice
from talaria.sessions.session_keys import belonging, build_session_key
from talaria.sessions.transcripts import is_mirrored

_MOMENT = timedelta(seconds=5)
_MOST_TOLD = 50
_NEWS = 10


class Parcel(Struct, frozen=True, kw_only=True):
    """Something to be said at a place by somebody who is not there.

    ``key`` is its identity: the same one again is the same parcel. ``source`` says in a word or two where it comes
    from, ``sender`` is the conversation that it comes from, if it is one: that knows of it already.
    """

    key: str
    address: Address
    content: Content
    source: str
    at: datetime
    sender: SessionId | None = None


def send_parcel(tx: Transaction, parcel: Parcel) -> OutboxItem | None:
    """Queue it, and record it in the conversations at that place; ``None`` for one that was sent before."""
    place = structs.replace(parcel.address, user_id="")
    told = _conversations(tx, place)
    item = queue_notice(tx, told[0], place, parcel.content, parcel.key)
    for session_id in told if item else ():
        if session_id != parcel.sender:
            came = arrival(session_id, MIRROR, f"{parcel.key}:{session_id}", _as_said(parcel), kind=MIRROR)
            tx.inbox.add(came)
            record_mirrored(tx, session_id)
    return item


def welcome(tx: Transaction, session: Session, place: Address, owner: str) -> Session:
    """Make a conversation that was begun for a parcel the one of whoever speaks there first, and return it."""
    if owner != session.owner and session.owner == _nobody(tx, place):
        return tx.sessions.update(session.id, SessionChanges(owner=owner))
    return session


def tell_news(tx: Transaction, session_id: SessionId, place: Address) -> None:
    """Let a conversation that begins know what was sent to its place before, when it was not there to be told."""
    board = tx.bindings.get(build_session_key(structs.replace(place, user_id="")))
    if board is None or board.session_id == session_id:
        return
    last = [stored.message for stored in tx.messages.last(board.session_id, _NEWS)]
    news = [message for message in last if is_mirrored(message)]
    if news:
        tx.messages.append(session_id, news)


def _conversations(tx: Transaction, place: Address) -> Sequence[SessionId]:
    """Return the conversations of a place: that of all, begun where there is none, then those of its people."""
    key = build_session_key(_as_known(tx, place))
    people = [] if place.chat_type == "private" else tx.bindings.under(f"{key}:")[:_MOST_TOLD]
    return list(dict.fromkeys([_conversation(tx, key, place), *(one.session_id for one in people)]))


def _as_known(tx: Transaction, place: Address) -> Address:
    """Return the private chat of somebody under the one id that stands for all of theirs."""
    if place.chat_type != "private":
        return place
    return structs.replace(place, chat_id=known_ids(tx, place.platform, place.chat_id)[0])


def _conversation(tx: Transaction, key: str, place: Address) -> SessionId:
    found = _bound(tx, key)
    if found is None:
        # Whoever else begins one here waits at this row until this is committed, and then finds it.
        lock = tx.leases.acquire(f"place:{key}", _MOMENT)
        found = _bound(tx, key) or _begin(tx, key, place)
        if lock is not None:
            tx.leases.release(lock)
    return found


def _bound(tx: Transaction, key: str) -> SessionId | None:
    binding = tx.bindings.get(key)
    return binding.session_id if binding and tx.sessions.get(binding.session_id) else None


def _begin(tx: Transaction, key: str, place: Address) -> SessionId:
    new = NewSession(source=place.platform, owner=_nobody(tx, place), audience=audience_of(place))
    made = tx.sessions.create(new)
    tx.bindings.bind(key, made.id, place)
    return made.id


def _nobody(tx: Transaction, place: Address) -> str:
    """Return whose a conversation is in which nobody has spoken yet: nobody's memory is open to it."""
    return belonging(_as_known(tx, place), "", shared=True).owner


def _as_said(parcel: Parcel) -> Message:
    files = [Text(f"[sent {getattr(file, 'name', '') or 'a picture'}]") for file in parcel.content.files]
    words = [Text(parcel.content.text)] if parcel.content.text else []
    return Message(role="assistant", parts=(*words, *files), at=parcel.at, author=f"Agent, from {parcel.source}")
