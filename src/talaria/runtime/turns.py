"""Inbox and turns of a session: add messages, claim it, begin, resume, redirect and end turns.

The transactions are pure functions, which may run again: what they decide, they return.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from talaria.agent.environment import Budget, UnlimitedBudget
from talaria.contracts.platform import Attachment
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import Arrival, InboxItem, SessionClaim
from talaria.contracts.turns import AfterCommit, TurnFollowUp, TurnListener, TurnOpening, TurnResult
from talaria.contracts.values import SessionValue
from talaria.core.addresses import ReplyRoute
from talaria.core.errors import Busy, LeaseLost
from talaria.core.events import TurnEnd
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId, TurnId, new_id, new_turn_id
from talaria.core.messages import (
    UNKNOWN,
    Message,
    Part,
    Text,
    is_in_chat,
    user_id_of,
)
from talaria.core.session_context import SessionContext
from talaria.runtime.outbox import queue_turn_result
from talaria.runtime.workers import SESSION_LEASE, is_leased, session_lease_name, take
from talaria.sessions.model_context import read_page


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


def replace_files(message: InboxMessage, reason: str) -> Message:
    """Return the message with a sentence in place of each file."""
    return to_transcript_message(
        message, *(Text(f"({attachment_label(one)} {reason}.)") for one in message.attachments)
    )


def attachment_label(attachment: Attachment) -> str:
    """Return the start of a sentence about a file."""
    return f"The file {attachment.name}" if attachment.name else f"A {attachment.kind}"


async def skip_attachments(pending: PendingAttachments) -> Message:
    """Return the message without its files: there is no network to fetch them from."""
    return replace_files(pending.message, "can't be downloaded here")


class TurnOptions(Struct, frozen=True, kw_only=True):
    """Options that a surface sets for its turns.

    ``unpack`` fetches the files of a message before its turn. ``listeners`` and ``follow_ups`` are called for each turn
    that ends. With ``waits_for_store``, turns wait while the store cannot be written, and `StoreBlocked` is published;
    without it they fail. With ``queues_replies``, a listener queues the replies.
    """

    unpack: FetchAttachments = skip_attachments
    listeners: tuple[TurnListener, ...] = ()
    follow_ups: tuple[TurnFollowUp, ...] = ()
    waits_for_store: bool = False
    queues_replies: bool = False


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
    mirrored = [item for item in tx.inbox.list_unsettled(session_id) if item.kind == MIRROR]
    if mirrored:
        tx.messages.append(session_id, [read_message(item.payload) for item in mirrored])
        tx.inbox.settle([item.id for item in mirrored])


def claim_session(tx: Transaction, session_id: SessionId, lease: timedelta) -> SessionClaim | None:
    """Take the lease of a session that is free or whose owner has died; ``None`` otherwise."""
    name = f"{SESSION_LEASE}{session_id}"
    acquired = tx.leases.acquire(name, lease) or take(tx, name, lease)
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
    unsettled = tx.inbox.list_unsettled(session_id)
    items = [item for item in unsettled if item.state == "waiting" and item.kind != MIRROR]
    return [replace_files(read_inbox_message(item.payload), "is attached") for item in items]


class TurnWork(Struct, frozen=True):
    """A turn to run: its inbox items, reply route and text.

    ``move`` is the last redirection of the session that the worker knew when it began the turn. ``sender`` is the
    person whose text began the turn, also after a crash. A turn that ``is_resumed`` was interrupted before.
    """

    turn_id: TurnId
    items: tuple[int, ...] = ()
    route: ReplyRoute | None = None
    text: str = ""
    move: str = ""
    sender: str = UNKNOWN
    is_resumed: bool = False
    opening: TurnOpening | None = None


def build_turn_context(base: SessionContext, session_id: SessionId, work: TurnWork, cwd: Path) -> SessionContext:
    """Return the session context of a turn; its reply route overrides the context of the surface."""
    own = structs.replace(base, session_id=session_id, turn_id=work.turn_id, cwd=str(cwd), sender=work.sender)
    route = work.route
    if route is None:
        return own
    address = route.address
    return structs.replace(
        own,
        platform=address.platform,
        chat_id=address.chat_id,
        chat_name=route.chat_name or (base.chat_name if address.chat_id == base.chat_id else ""),
        thread_id=address.thread_id,
        user_id=route.user_id or address.user_id or user_id_of(work.sender, address.platform) or base.user_id,
        user_name=route.user_name or base.user_name,
        message_id=route.reply_to,
    )


class EndedTurn(Struct, frozen=True):
    """The end of a turn as committed.

    ``has_moved`` says that its session was moved during the turn, ``released`` that its lease was released with it.
    ``after_commit`` is what listeners want to do next.
    """

    end: TurnEnd
    has_moved: bool = False
    released: bool = False
    after_commit: tuple[AfterCommit, ...] = ()


NextWork = TurnWork | PendingAttachments | None
FetchedMessages = Mapping[int, Message]


class ClaimedSession(Struct, frozen=True):
    """A session claimed for turns: its first work, and the inbox item that was admitted with the claim."""

    claim: SessionClaim
    work: NextWork
    admitted: int | None = None


class TurnStart(Struct, frozen=True):
    """Input of the transactions that begin turns.

    ``fetched`` are messages whose files were fetched, by inbox item. ``before_turn`` runs in the transaction that
    begins or resumes a turn. ``known_seq`` is the last message that the agent has in memory, ``budget`` that of the
    turn.
    """

    fetched: FetchedMessages = {}
    before_turn: Callable[[Transaction], None] | None = None
    known_seq: int = 0
    budget: Budget = UnlimitedBudget()


def claim_and_begin(
    tx: Transaction,
    session_id: SessionId,
    lease: timedelta,
    start: TurnStart,
    admit: Callable[[Transaction], int | None] | None = None,
) -> ClaimedSession:
    """Claim a session and begin its next turn; without one, release it again.

    ``admit`` runs first and may create the session or add a message. Raises `Busy` while another worker holds the
    session.
    """
    admitted = admit(tx) if admit is not None else None
    claim = claim_session(tx, session_id, lease)
    if claim is None:
        raise Busy("Another process is working on this conversation. Wait for it, or stop it there.")
    return ClaimedSession(claim, begin_next(tx, claim, start), admitted)


def begin_next(tx: Transaction, claim: SessionClaim, start: TurnStart) -> NextWork:
    """Begin the next turn or release the session, in one transaction so that no message is missed.

    Raises `Busy` if a turn would begin during a handoff.
    """
    work = _begin(tx, claim, start.fetched)
    if work is None:
        tx.leases.release(claim.lease)
    elif isinstance(work, TurnWork):
        if platform := find_blocking_handoff(tx, claim.session_id):
            raise Busy(format_handoff_notice(platform))
        if start.before_turn is not None:
            start.before_turn(tx)
        page = read_page(tx, claim.session_id, start.known_seq)
        return structs.replace(work, opening=TurnOpening(page, start.budget.has_caps(tx)))
    return work


def end_turn(
    tx: Transaction,
    result: TurnResult,
    *,
    claim: SessionClaim,
    work: TurnWork,
    listeners: Sequence[TurnListener],
    queues_replies: bool = False,
) -> EndedTurn:
    """Call the listeners of an ended turn, queue its reply, and release the session if nothing is pending.

    With ``queues_replies``, one of the listeners queues the reply.

    If the session was moved during the turn it is released too: what is pending belongs to the worker of the new chat.
    """
    tx.inbox.settle(work.items)
    redirect = find_redirect(tx, claim.session_id, work.turn_id)
    result = structs.replace(result, route=redirect.route if redirect else work.route)
    after_commit = [call for listener in listeners if (call := listener.turn_ended(tx, result)) is not None]
    if not queues_replies and (redirect is not None or _is_from_its_chat(tx, claim.session_id, work)):
        queue_turn_result(tx, result)
    has_moved = redirect is not None and redirect.move != work.move
    released = has_moved or not tx.inbox.list_unsettled(claim.session_id)
    if released:
        tx.leases.release(claim.lease)
    if has_moved:
        tx.notify(PENDING_SESSIONS)
    return EndedTurn(result.end, has_moved, released, tuple(after_commit))


def _begin(tx: Transaction, claim: SessionClaim, ready: FetchedMessages) -> NextWork:
    """Resume an interrupted turn, or begin one for the next pending message, and return it.

    Mirrored messages are appended to the transcript before a new turn begins, and begin none themselves. A message with
    files that is not in ``ready`` stays pending, and is returned so that its files are fetched.
    """
    for turn in tx.turns.find(claim.session_id, running=True):
        taken = [item for item in tx.inbox.list_unsettled(claim.session_id) if item.turn_id == turn.id]
        return _resume_turn(tx, claim.session_id, _build_work(tx, claim.session_id, turn.id, taken))
    append_mirrored(tx, claim.session_id)
    turn_id = new_turn_id()
    items = tx.inbox.take(claim, turn_id)
    if not items:
        return None
    for item in items:
        inbox_message = read_inbox_message(item.payload)
        if inbox_message.attachments and item.id not in ready:
            tx.inbox.put_back(turn_id)
            return PendingAttachments(claim.session_id, item.id, inbox_message)
    tx.turns.begin(claim.session_id, turn_id)
    tx.messages.append(claim.session_id, [ready.get(item.id) or read_message(item.payload) for item in items])
    return _build_work(tx, claim.session_id, turn_id, items)


def _resume_turn(tx: Transaction, session_id: SessionId, work: TurnWork) -> TurnWork:
    """Return an interrupted turn, with the route to which its reply was redirected, if any."""
    work = structs.replace(work, is_resumed=True)
    moved = find_redirect(tx, session_id, work.turn_id)
    return structs.replace(work, route=moved.route, move=moved.move) if moved else work


def _build_work(tx: Transaction, session_id: SessionId, turn_id: TurnId, items: Sequence[InboxItem]) -> TurnWork:
    messages = [read_inbox_message(item.payload) for item in items]
    reply_route = next((message.route for message in messages if message.route), None) or _find_home_route(
        tx, session_id
    )
    text = "\n".join(message.text for message in messages)
    senders = {message.sender for message in messages}
    sender = senders.pop() if len(senders) == 1 else UNKNOWN
    return TurnWork(turn_id, tuple(item.id for item in items), reply_route, text, sender=sender)


def find_running_sender(tx: Transaction, session_id: SessionId) -> str | None:
    """Return the sender of a session's running turn, in any process; ``None`` if none is running."""
    for turn in tx.turns.find(session_id, running=True, limit=1):
        taken = [item for item in tx.inbox.list_unsettled(session_id) if item.turn_id == turn.id]
        return _build_work(tx, session_id, turn.id, taken).sender
    return None


def _find_home_route(tx: Transaction, session_id: SessionId) -> ReplyRoute | None:
    """Return the route for replies to messages without one: the address bound to the session."""
    bindings = tx.bindings.of_session(session_id)
    return ReplyRoute(bindings[0].address) if bindings else None


def _is_from_its_chat(tx: Transaction, session_id: SessionId, work: TurnWork) -> bool:
    """Return whether the text of a turn was written in the chat bound to the session."""
    if work.route is None or not is_in_chat(work.sender):
        return False
    asked = work.route.address
    addresses = [one.address for one in tx.bindings.of_session(session_id)]
    return any(
        (one.platform, one.chat_id, one.thread_id) == (asked.platform, asked.chat_id, asked.thread_id)
        for one in addresses
    )


def find_blocking_handoff(tx: Transaction, session_id: SessionId) -> str:
    """Return the network of a handoff that keeps turns from starting, or an empty string.

    So no turn is running when the session is bound to its new chat, and each message is answered in one chat.
    """
    active = tx.handoffs.find_active_handoff(session_id)
    return "" if active is None or active.immediate else active.platform


def format_handoff_notice(platform: str) -> str:
    """Return the reply to messages that are sent to a session while it is being handed over."""
    label = platform_label(platform)
    return f"This conversation is being handed off to {label}. I'll answer there, or here if the handoff fails."


class RedirectedReply(Struct, frozen=True, omit_defaults=True):
    """New route for the reply of a running turn; without a route only watchers see it.

    ``move`` identifies the redirection, as a turn may be redirected more than once.
    """

    turn_id: TurnId
    move: str
    route: ReplyRoute | None = None


REDIRECTED_REPLY = SessionValue("redirected_reply", RedirectedReply)


def redirect_reply(tx: Transaction, session_id: SessionId, route: ReplyRoute | None) -> RedirectedReply | None:
    """Redirect the reply of the running turn, in any process; ``None`` if no turn is running.

    The process that runs it leaves the messages pending after it to the worker of the new chat.
    """
    lease = tx.leases.get(session_lease_name(session_id))
    if lease is not None:
        with suppress(LeaseLost):
            tx.leases.check(lease)  # its owner cannot end the turn before this is committed
    for turn in tx.turns.find(session_id, running=True, limit=1):
        redirect = RedirectedReply(turn.id, new_id(), route)
        REDIRECTED_REPLY.write(tx, session_id, redirect)
        return redirect
    return None


def find_redirect(tx: Transaction, session_id: SessionId, turn_id: TurnId) -> RedirectedReply | None:
    """Return the new route of a turn's reply, if it was redirected since the turn began."""
    found = REDIRECTED_REPLY.get(tx, session_id)
    return found if found is not None and found.turn_id == turn_id else None


def list_redirected_turns(tx: Transaction) -> list[tuple[SessionId, RedirectedReply]]:
    """Return the running turns whose reply was redirected, each with its session."""
    found = [(session_id, redirect) for session_id, _, redirect in REDIRECTED_REPLY.of_all(tx)]
    running = {turn.id for turn in tx.turns.find(running=True)} if found else set()
    return [(session_id, redirect) for session_id, redirect in found if redirect.turn_id in running]
