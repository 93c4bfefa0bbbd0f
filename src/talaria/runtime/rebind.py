"""Session bindings: bind a session to another chat, redirect a running turn, hold turns during a handoff."""

from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.inbox import Arrival
from talaria.contracts.stores.sessions import SessionChanges
from talaria.contracts.values import NamedValue, SessionValue
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.errors import LeaseLost
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.runtime.inbox import MIRROR
from talaria.runtime.leases import session_lease_name
from talaria.runtime.outbox import queue_notice

OWN_THREAD = NamedValue("own_thread", bool)  # by the session key of the thread


def bind_session(
    tx: Transaction, session_id: SessionId, key: str, address: Address | None, *, surface: str = "the terminal"
) -> None:
    """Bind a session to one address only; without an address, to a ``surface`` with no other readers.

    Withdraws a handoff that is in progress, and leaves a notice in the chat that the session was bound to before.
    """
    tx.handoffs.withdraw_handoff(session_id, "the conversation was resumed in another chat")
    for binding in tx.bindings.of_session(session_id):
        if binding.key != key:
            tx.bindings.unbind(binding.key)
            where = platform_label(address.platform) if address else surface
            text = f"This conversation has moved to {where}. Your next message here starts a new one."
            queue_notice(tx, session_id, binding.address, Content(text=text))
    if address is not None:
        tx.bindings.bind(key, session_id, address)
    else:
        tx.sessions.update(session_id, SessionChanges(audience=""))


def move_pending_messages(tx: Transaction, source_id: SessionId, session_id: SessionId) -> None:
    """Move the pending messages of a session that was left to the one that replaces it."""
    for item in tx.inbox.unsettled(source_id):
        if item.state == "waiting" and item.kind != MIRROR:
            tx.inbox.settle([item.id])
            arrival = Arrival(
                session_id=session_id,
                source=item.source,
                external_id=f"{item.external_id}:{session_id}",
                payload=item.payload,
                kind=item.kind,
                priority=item.priority,
            )
            tx.inbox.add(arrival)


def mark_own_thread(tx: Transaction, key: str) -> None:
    """Record that a thread was created for a session: every message there is for the agent."""
    OWN_THREAD.write(tx, key, True)


def is_own_thread(tx: Transaction, address: Address, key: str) -> bool:
    """Return whether an address is a thread that was created for a session."""
    return bool(address.thread_id) and OWN_THREAD.get(tx, key) is not None


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


class TurnGate:
    """Gate of an open session: no turn starts while it is closed; ``reason`` is empty while open."""

    def __init__(self) -> None:
        self.reason = ""

    def close(self, reason: str) -> None:
        """Keep turns from starting; a running one continues."""
        self.reason = reason

    def open(self) -> None:
        """Allow turns to start again."""
        self.reason = ""


class _OpenConversation(Protocol):
    session_id: SessionId
    gate: TurnGate

    def wake(self) -> None: ...


class Departure:
    """The handoff that was requested in a chat or terminal; ``session_id`` is ``None`` while there is none."""

    def __init__(self) -> None:
        self.session_id: SessionId | None = None
        self._platform = ""

    def begin(self, conversation: _OpenConversation, platform: str) -> None:
        """Close the gate of a session that is about to be handed over."""
        self.session_id, self._platform = conversation.session_id, platform
        self.apply(conversation)

    def apply(self, conversation: _OpenConversation) -> None:
        """Close the gate of this session if it is the one being handed over and was reopened."""
        if self.session_id == conversation.session_id:
            conversation.gate.close(handoff_notice(self._platform))

    def end(self, conversation: _OpenConversation | None, *, stays: bool) -> None:
        """Forget the handoff; a session that stays resumes with the messages sent meanwhile."""
        session_id, self.session_id = self.session_id, None
        if stays and conversation is not None and conversation.session_id == session_id:
            conversation.gate.open()
            conversation.wake()


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
