"""Session bindings: bind a session to another chat, hold its turns during a handoff."""

from typing import Protocol

from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.inbox import Arrival
from talaria.contracts.stores.sessions import SESSION_CHANGES, SessionChanges
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId
from talaria.runtime.outbox import queue_notice
from talaria.runtime.turns import MIRROR, handoff_notice

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
        tx.notify(SESSION_CHANGES)
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
    OWN_THREAD.write(tx, key, value=True)


def is_own_thread(tx: Transaction, address: Address, key: str) -> bool:
    """Return whether an address is a thread that was created for a session."""
    return bool(address.thread_id) and OWN_THREAD.get(tx, key) is not None


class _OpenConversation(Protocol):
    session_id: SessionId

    def hold(self, reason: str) -> None: ...

    def wake(self) -> None: ...


class Departure:
    """The handoff that was requested in a chat or terminal; ``session_id`` is ``None`` while there is none."""

    def __init__(self) -> None:
        self.session_id: SessionId | None = None
        self._platform = ""

    def begin(self, conversation: _OpenConversation, platform: str) -> None:
        """Hold the turns of a session that is about to be handed over."""
        self.session_id, self._platform = conversation.session_id, platform
        self.apply(conversation)

    def apply(self, conversation: _OpenConversation) -> None:
        """Hold the turns of this session if it is the one being handed over and was reopened."""
        if self.session_id == conversation.session_id:
            conversation.hold(handoff_notice(self._platform))

    def end(self, conversation: _OpenConversation | None, *, stays: bool) -> None:
        """Forget the handoff; a session that stays resumes with the messages sent meanwhile."""
        session_id, self.session_id = self.session_id, None
        if stays and conversation is not None and conversation.session_id == session_id:
            conversation.hold("")
            conversation.wake()
