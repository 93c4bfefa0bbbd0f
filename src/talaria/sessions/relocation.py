"""A conversation goes on at another place: bound there and nowhere else, and the place it left says where it went."""

import msgspec

from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.handoffs import HandoffState
from talaria.contracts.stores.inbox import Arrival
from talaria.contracts.stores.sessions import SessionChanges
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.core.ids import SessionId
from talaria.core.wording import platform_label
from talaria.sessions.lane import MIRROR
from talaria.sessions.outgoing import queue_notice

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Address).decode


def bring(tx: Transaction, session_id: SessionId, key: str, address: Address | None) -> None:
    """Let a conversation be at one place only; without an address that is a terminal, which nobody else reads.

    A handoff of it that is under way is withdrawn.
    """
    tx.handoffs.withdraw_handoff(session_id, "the conversation was resumed at another place")
    for binding in tx.bindings.of_session(session_id):
        if binding.key != key:
            tx.bindings.unbind(binding.key)
            where = platform_label(address.platform) if address else "the terminal"
            words = f"This conversation has moved to {where}. Your next message here starts a new one."
            queue_notice(tx, session_id, binding.address, Content(text=words))
    if address is not None:
        tx.bindings.bind(key, session_id, address)
    else:
        tx.sessions.update(session_id, SessionChanges(audience=""))


def carry_over(tx: Transaction, left: SessionId, session_id: SessionId) -> None:
    """Let what waits in a conversation that is left wait in the one that is begun: it was said behind the leaving."""
    for item in tx.inbox.unsettled(left):
        if item.state == "waiting" and item.kind != MIRROR:
            tx.inbox.settle([item.id])
            again = Arrival(
                session_id=session_id,
                source=item.source,
                external_id=f"{item.external_id}:{session_id}",
                payload=item.payload,
                kind=item.kind,
                priority=item.priority,
            )
            tx.inbox.add(again)


def own_thread(tx: Transaction, key: str) -> None:
    """Keep that a thread was made for a conversation: whatever is said there is meant for us."""
    tx.state.put(f"own-thread:{key}", "")


def is_own_thread(tx: Transaction, address: Address, key: str) -> bool:
    """Tell whether a place is a thread that was made for a conversation."""
    return bool(address.thread_id) and tx.state.get(f"own-thread:{key}") is not None


def request_move(tx: Transaction, session_id: SessionId, to: Address, *, at_once: bool = False) -> None:
    """Ask a gateway to take a conversation to a chat; raises `Refused` while that is under way already.

    ``at_once`` takes a running turn along, and lets nobody say anything to the agent about the move.
    """
    if not tx.handoffs.request_handoff(session_id, to.platform):
        raise Refused("This conversation is being handed over already. Wait for that to end, or cancel it.")
    tx.state.put(_key(session_id), _encode(to).decode())
    if at_once:
        tx.state.put(_at_once_key(session_id), "")
    else:
        tx.state.delete(_at_once_key(session_id))


def handoff_under_way(tx: Transaction, session_id: SessionId) -> HandoffState | None:
    """Return the handoff of a session that is pending or running, if there is one."""
    state = tx.handoffs.get_handoff_state(session_id)
    return state if state is not None and state["state"] in ("pending", "running") else None


def holds_turns(tx: Transaction, session_id: SessionId) -> str:
    """Return the network to which a session is being handed over, if no turn may begin in it until that is decided.

    So no turn is running when the session is bound to its new place, and each message is answered at one place.
    """
    under_way = handoff_under_way(tx, session_id)
    return "" if under_way is None or is_at_once(tx, session_id) else under_way["platform"] or ""


def being_handed_over(platform: str) -> str:
    """Return what people read who write to a session while it is being handed over."""
    label = platform_label(platform)
    return f"This conversation is being handed over to {label}. I'll answer there, or here if the handoff fails."


def is_at_once(tx: Transaction, session_id: SessionId) -> bool:
    """Tell whether a conversation is to be moved as it is, in the middle of a turn if one is running."""
    return tx.state.get(_at_once_key(session_id)) is not None


def wanted_place(tx: Transaction, session_id: SessionId) -> Address | None:
    """Return the chat to which a conversation is to go; ``None`` is the home channel."""
    entry = tx.state.get(_key(session_id))
    return _decode(entry.value) if entry else None


def forget_wanted_place(tx: Transaction, session_id: SessionId) -> None:
    """Forget it: the conversation is there, or stays where it is."""
    tx.state.delete(_key(session_id))
    tx.state.delete(_at_once_key(session_id))


def _at_once_key(session_id: SessionId) -> str:
    return f"handoff-at-once:{session_id}"


def _key(session_id: SessionId) -> str:
    return f"handoff-to:{session_id}"
