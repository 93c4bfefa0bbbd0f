"""Turn processing of a session: claim its lease, run a turn per pending message, release."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from msgspec import Struct, structs

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.inbox import InboxItem, SessionClaim
from talaria.contracts.turn_listener import TurnResult
from talaria.core.addresses import ReplyRoute
from talaria.core.aio import run_with, shield_until_done
from talaria.core.errors import Busy, LeaseLost
from talaria.core.events import TurnEnd
from talaria.core.ids import SessionId, TurnId, new_turn_id
from talaria.core.messages import Message
from talaria.core.senders import UNKNOWN, is_in_chat
from talaria.runtime.inbox import (
    LEASE,
    PENDING_SESSIONS,
    FetchAttachments,
    PendingAttachments,
    _append_mirrored,
    _claim_session,
    read_inbox_message,
    read_message,
    skip_attachments,
)
from talaria.runtime.leases import release_lease, renew_lease, retry_write
from talaria.runtime.outbox import queue_turn_result
from talaria.runtime.rebind import find_redirect
from talaria.runtime.turn_log import FinishHook, TurnOutcome, TurnRecorder, no_finish_hook

TakeTurn = Callable[[TurnRecorder], Coroutine[Any, Any, TurnEnd]]


TransactionHook = Callable[[Transaction], None]


def no_hook(tx: Transaction) -> None:
    """Do nothing."""


class TurnHooks(Struct, frozen=True):
    """Options and hooks for running the turns of a session.

    ``beginning`` runs in each transaction that begins or resumes a turn, ``finishing`` in the one that ends it. Both
    may run again, so they must have no effects outside the store. ``unpack`` fetches the files of a message before its
    turn. With ``on_store_wait``, refused writes are retried, and it is called when that takes a while.
    """

    lease: timedelta = LEASE
    finishing: FinishHook = no_finish_hook
    unpack: FetchAttachments = skip_attachments
    on_store_wait: Callable[[], None] | None = None
    beginning: TransactionHook = no_hook


_DEFAULT_HOOKS = TurnHooks()


class TurnWork(Struct, frozen=True):
    """A turn to run: its inbox items, reply route and text.

    ``move`` is the last redirection of the session that the worker knew when it began the turn. ``sender`` is the
    person whose text began the turn, also after a crash.
    """

    turn_id: TurnId
    items: tuple[int, ...]
    route: ReplyRoute | None = None
    said: str = ""
    move: str = ""
    sender: str = UNKNOWN


log = logging.getLogger(__name__)


NextWork = TurnWork | PendingAttachments | None


FetchedMessages = Mapping[int, Message]


async def run_pending_turns(
    store: Store,
    session_id: SessionId,
    take_turn: TakeTurn,
    hooks: TurnHooks = _DEFAULT_HOOKS,
    first: TransactionHook = no_hook,
) -> TurnEnd | None:
    """Hold the lease of a session until its inbox is empty, and return how the last turn ended.

    An interrupted turn of an earlier owner is resumed first; then there is a turn for each pending message, oldest
    first. ``first`` runs in the transaction that takes the lease. Raises `Busy` while another worker holds it and
    processes the messages. Raises `LeaseLost` as soon as another worker has taken it over.
    """
    ready: dict[int, Message] = {}
    begun = store.write(lambda tx: _claim_and_begin(tx, session_id, hooks, first))
    claim, work = await shield_until_done(begun, undo=lambda begun: release_lease(store, begun[0].lease))
    end = None
    try:
        while work is not None:
            if isinstance(work, PendingAttachments):
                ready[work.item] = await run_with(hooks.unpack(work), renew_lease(store, claim.lease, hooks.lease))
            else:
                turn = _build_recorder(store, claim, work, hooks.finishing)
                turn.on_store_wait = hooks.on_store_wait
                end = await run_with(take_turn(turn), _renew_while_running(store, claim, turn, hooks.lease))
                if turn.fate.is_last:
                    return end
            begin_next = partial(store.write, partial(_begin_next, claim=claim, work=work, ready=ready, hooks=hooks))
            work = await (retry_write(begin_next, hooks.on_store_wait) if hooks.on_store_wait else begin_next())
    except BaseException:
        await asyncio.shield(release_lease(store, claim.lease))
        raise
    return end


async def _renew_while_running(store: Store, claim: SessionClaim, turn: TurnRecorder, lease: timedelta) -> None:
    try:
        await renew_lease(store, claim.lease, lease)
    except LeaseLost:
        if not turn.fate.is_last:
            raise


def _claim_and_begin(
    tx: Transaction, session_id: SessionId, hooks: TurnHooks, first: TransactionHook
) -> tuple[SessionClaim, NextWork]:
    first(tx)
    claim = _claim_session(tx, session_id, hooks.lease)
    if claim is None:
        raise Busy("Another process is working on this conversation. Wait for it, or stop it there.")
    return claim, _begin_or_release(tx, claim, {}, hooks.beginning)


def _begin_next(
    tx: Transaction, claim: SessionClaim, work: TurnWork | PendingAttachments, ready: FetchedMessages, hooks: TurnHooks
) -> NextWork:
    """Begin the next turn, unless the last one was moved.

    In that case the lease is released, and the pending messages are left to the worker of the new chat.
    """
    moved = find_redirect(tx, claim.session_id, work.turn_id) if isinstance(work, TurnWork) else None
    if moved is not None and isinstance(work, TurnWork) and moved.move != work.move:
        tx.leases.release(claim.lease)
        tx.notify(PENDING_SESSIONS)
        return None
    return _begin_or_release(tx, claim, ready, hooks.beginning)


def _begin_or_release(
    tx: Transaction, claim: SessionClaim, ready: FetchedMessages, beginning: TransactionHook
) -> NextWork:
    """Begin the next turn or release the lease, in one transaction so that no message is missed."""
    work = _begin(tx, claim, ready)
    if work is None:
        tx.leases.release(claim.lease)
    elif isinstance(work, TurnWork):
        beginning(tx)
    return work


def _begin(tx: Transaction, claim: SessionClaim, ready: FetchedMessages) -> NextWork:
    """Resume an interrupted turn, or begin one for the next pending message, and return it.

    Mirrored messages are appended to the transcript before a new turn begins, and begin none themselves. A message with
    files that is not in ``ready`` stays pending, and is returned so that its files are fetched.
    """
    for turn in tx.turns.find(claim.session_id, running=True):
        taken = [item for item in tx.inbox.unsettled(claim.session_id) if item.turn_id == turn.id]
        return _resume_turn(tx, claim.session_id, _build_work(tx, claim.session_id, turn.id, taken))
    _append_mirrored(tx, claim.session_id)
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
    said = "\n".join(message.text for message in messages)
    senders = {message.sender for message in messages}
    sender = senders.pop() if len(senders) == 1 else UNKNOWN
    return TurnWork(turn_id, tuple(item.id for item in items), reply_route, said, sender=sender)


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


def _build_recorder(store: Store, claim: SessionClaim, work: TurnWork, finishing: FinishHook) -> TurnRecorder:
    fate = TurnOutcome()

    def finish(tx: Transaction, result: TurnResult) -> None:
        tx.inbox.settle(work.items)
        moved = find_redirect(tx, claim.session_id, work.turn_id)
        result = structs.replace(result, route=moved.route if moved else work.route)
        finishing(tx, result)
        if moved is not None or _is_from_its_chat(tx, claim.session_id, work):
            queue_turn_result(tx, result)  # unique by its outbox key, as a surface may queue it too
        if moved is not None:
            fate.left = moved.move != work.move
        fate.is_last = moved is None and not tx.inbox.unsettled(claim.session_id)
        if fate.is_last:
            tx.leases.release(claim.lease)

    turn = TurnRecorder(store, claim, work.turn_id, finish, route=work.route, items=work.items)
    turn.fate = fate
    turn.said = work.said
    turn.move = work.move
    turn.sender = work.sender
    return turn
