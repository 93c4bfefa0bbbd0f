"""The transactions of a turn: claim a session, begin or resume a turn, redirect its reply, end it, release.

They are pure functions of a transaction, which may run again: what they decide, they return.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from msgspec import Struct, structs

from talaria.contracts.store import Transaction
from talaria.contracts.stores.inbox import InboxItem, SessionClaim
from talaria.contracts.turn_listener import TurnListener, TurnResult
from talaria.contracts.values import SessionValue
from talaria.core.addresses import ReplyRoute
from talaria.core.errors import Busy, LeaseLost
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId, TurnId, new_id, new_turn_id
from talaria.core.messages import Message
from talaria.core.senders import UNKNOWN, is_in_chat
from talaria.runtime.inbox import (
    PENDING_SESSIONS,
    PendingAttachments,
    append_mirrored,
    claim_session,
    read_inbox_message,
    read_message,
)
from talaria.runtime.leases import session_lease_name
from talaria.runtime.outbox import queue_turn_result
from talaria.runtime.turn_log import EndedTurn, TurnWork

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
    begins or resumes a turn.
    """

    fetched: FetchedMessages = {}
    before_turn: Callable[[Transaction], None] | None = None


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
            raise Busy(handoff_notice(platform))
        if start.before_turn is not None:
            start.before_turn(tx)
    return work


def end_turn(
    tx: Transaction, claim: SessionClaim, work: TurnWork, result: TurnResult, listeners: Sequence[TurnListener]
) -> EndedTurn:
    """Call the listeners of an ended turn, queue its reply, and release the session if nothing is pending.

    If the session was moved during the turn it is released too: what is pending belongs to the worker of the new chat.
    """
    tx.inbox.settle(work.items)
    redirect = find_redirect(tx, claim.session_id, work.turn_id)
    result = structs.replace(result, route=redirect.route if redirect else work.route)
    after_commit = [call for listener in listeners if (call := listener.turn_ended(tx, result)) is not None]
    if redirect is not None or _is_from_its_chat(tx, claim.session_id, work):
        queue_turn_result(tx, result)  # unique by its outbox key, as a surface may queue it too
    has_moved = redirect is not None and redirect.move != work.move
    released = has_moved or not tx.inbox.unsettled(claim.session_id)
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
        taken = [item for item in tx.inbox.unsettled(claim.session_id) if item.turn_id == turn.id]
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


def running_sender(tx: Transaction, session_id: SessionId) -> str | None:
    """Return the sender of a session's running turn, in any process; ``None`` if none is running."""
    for turn in tx.turns.find(session_id, running=True, limit=1):
        taken = [item for item in tx.inbox.unsettled(session_id) if item.turn_id == turn.id]
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
    places = [one.address for one in tx.bindings.of_session(session_id)]
    return any(
        (one.platform, one.chat_id, one.thread_id) == (asked.platform, asked.chat_id, asked.thread_id) for one in places
    )


def find_blocking_handoff(tx: Transaction, session_id: SessionId) -> str:
    """Return the network of a handoff that keeps turns from starting, or an empty string.

    So no turn is running when the session is bound to its new chat, and each message is answered in one chat.
    """
    active = tx.handoffs.find_active_handoff(session_id)
    return "" if active is None or active.immediate else active.platform


def handoff_notice(platform: str) -> str:
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
