"""Inbox messages of a session: encoding, attachments, mirrored messages and the list of pending work."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct, structs

from talaria.contracts.platform import Attachment
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.inbox import Arrival, SessionClaim
from talaria.core.addresses import ReplyRoute
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Part, Text
from talaria.core.senders import UNKNOWN
from talaria.runtime.leases import is_leased, session_lease_name, take


class InboxMessage(Message, frozen=True, kw_only=True):
    """An inbox message with its sender, reply route and files to fetch, which the transcript does not store."""

    route: ReplyRoute | None = None
    attachments: tuple[Attachment, ...] = ()
    sender: str = UNKNOWN


class PendingAttachments(Struct, frozen=True):
    """An inbox item whose files are fetched before its turn starts."""

    session_id: SessionId
    item: int
    message: InboxMessage


FetchAttachments = Callable[[PendingAttachments], Coroutine[Any, Any, Message]]


_inbox_decoder = msgspec.json.Decoder(InboxMessage)


_message_decoder = msgspec.json.Decoder(Message)


def read_inbox_message(payload: str) -> InboxMessage:
    """Decode the payload of an inbox item."""
    return _inbox_decoder.decode(payload)


def read_message(payload: str) -> Message:
    """Decode the part of an inbox item that the transcript stores."""
    return _message_decoder.decode(payload)


def to_transcript_message(message: InboxMessage, *parts: Part) -> Message:
    """Return the transcript version of a message, with these parts after its own."""
    fields = {name: getattr(message, name) for name in Message.__struct_fields__}
    return Message(**{**fields, "parts": (*message.parts, *parts)})


def without_files(message: InboxMessage, reason: str) -> Message:
    """Return the message with a sentence in place of each file."""
    return to_transcript_message(
        message, *(Text(f"({attachment_label(one)} {reason}.)") for one in message.attachments)
    )


def attachment_label(attachment: Attachment) -> str:
    """Return the start of a sentence about a file."""
    return f"The file {attachment.name}" if attachment.name else f"A {attachment.kind}"


async def skip_attachments(pending: PendingAttachments) -> Message:
    """Return the message without its files: there is no network to fetch them from."""
    return without_files(pending.message, "can't be downloaded here")


LEASE = timedelta(seconds=15)


MIRROR = "mirror"


PENDING_SESSIONS = "pending-sessions"  # topic notified when a session is left with messages in its inbox


_MAX_SESSIONS = 64


_encode = msgspec.json.Encoder().encode


def make_arrival(
    session_id: SessionId,
    source: str,
    external_id: str,
    message: Message,
    *,
    kind: str = "message",
    route: ReplyRoute | None = None,
    sender: str = UNKNOWN,
) -> Arrival:
    """Return a message as an inbox arrival of a session; replies follow its route."""
    inbox_message = InboxMessage(**structs.asdict(message), route=route, sender=sender)
    return make_inbox_arrival(session_id, source, external_id, inbox_message, kind=kind)


def make_inbox_arrival(
    session_id: SessionId, source: str, external_id: str, message: InboxMessage, *, kind: str
) -> Arrival:
    """Return an admitted message as an inbox arrival of a session."""
    return Arrival(
        session_id=session_id,
        source=source,
        external_id=external_id,
        payload=_encode(message).decode(),
        kind=kind,
    )


async def add_to_inbox(
    store: Store, session_id: SessionId, source: str, external_id: str, message: Message, *, sender: str = UNKNOWN
) -> bool:
    """Add a message to the inbox of a session; ``False`` for a duplicate."""
    entry = make_arrival(session_id, source, external_id, message, sender=sender)
    return await store.write(lambda tx: tx.inbox.add(entry)) is not None


def record_mirrored(tx: Transaction, session_id: SessionId) -> None:
    """Append mirrored messages to the transcript, unless a turn is running or unfinished.

    In that case they are appended after that turn.
    """
    if tx.turns.find(session_id, running=True, limit=1):
        return
    claim = claim_session(tx, session_id, LEASE)
    if claim is not None:
        append_mirrored(tx, session_id)
        tx.leases.release(claim.lease)


def append_mirrored(tx: Transaction, session_id: SessionId) -> None:
    """Move the pending mirrored messages of a session to its transcript."""
    mirrored = [item for item in tx.inbox.unsettled(session_id) if item.kind == MIRROR]
    if mirrored:
        tx.messages.append(session_id, [read_message(item.payload) for item in mirrored])
        tx.inbox.settle([item.id for item in mirrored])


def claim_session(tx: Transaction, session_id: SessionId, lease: timedelta) -> SessionClaim | None:
    """Take the lease of a session that is free or whose owner has died; ``None`` otherwise."""
    acquired = take(tx, session_lease_name(session_id), lease)
    return SessionClaim(session_id, acquired) if acquired else None


def list_pending_sessions(tx: Transaction, most: int = _MAX_SESSIONS) -> list[SessionId]:
    """Return the sessions with pending work and no owner: interrupted turns, then the longest waiting."""
    interrupted = [
        turn.session_id
        for turn in tx.turns.find(running=True)
        if not is_leased(tx, session_lease_name(turn.session_id))
    ]
    return list(dict.fromkeys([*interrupted, *tx.inbox.list_unowned(most)]))


def list_pending_messages(tx: Transaction, session_id: SessionId) -> list[Message]:
    """Return the pending messages of a session, in the order in which they will be answered."""
    unsettled = tx.inbox.unsettled(session_id)
    items = [item for item in unsettled if item.state == "waiting" and item.kind != MIRROR]
    return [without_files(read_inbox_message(item.payload), "is attached") for item in items]
