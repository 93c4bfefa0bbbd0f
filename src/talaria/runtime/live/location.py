"""Location of a session: its chat and the process that runs it; moving it from there to another surface."""

from msgspec import Struct

from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.addresses import WEB, Address
from talaria.core.ids import SessionId, TurnId, WorkerId, is_gone
from talaria.runtime.active_session import bind_session
from talaria.runtime.live.control import redirect_running_turn
from talaria.runtime.outbox import queue_notice
from talaria.runtime.workers import is_platform_served, session_lease_name


class SessionLocation(Struct, frozen=True, kw_only=True):
    """Chat of a session, its running turn, and the process (``owner``) that runs it."""

    chat: str = ""
    platform: str = ""
    turn_id: TurnId | None = None
    owner: WorkerId | None = None
    is_served: bool = False

    @property
    def is_running(self) -> bool:
        """Return whether a live process runs a turn of the session."""
        return self.turn_id is not None and self.owner is not None

    @property
    def description(self) -> str:
        """Return the location as sentences."""
        prefix = f"It is {self.chat}." if self.chat else "It is in the terminal."
        if self.turn_id is None:
            return f"{prefix} Nothing is running."
        if self.owner is None:
            return f"{prefix} A turn was interrupted there."
        machine, _, process = self.owner.rpartition(":")[0].rpartition(":")
        return f"{prefix} A turn is running, in process {process} on {machine.partition('/')[0]}."


def locate_session(tx: Transaction, session: Session) -> SessionLocation:
    """Return the current location of a session."""
    addresses = [binding.address for binding in tx.bindings.of_session(session.id)]
    running = tx.turns.find(session.id, running=True, limit=1)
    lease = tx.leases.get(session_lease_name(session.id))
    owner = lease.owner if lease is not None and not is_gone(lease.owner) else None
    address = addresses[0] if addresses else None
    return SessionLocation(
        chat=_describe_chat(address) if address else "",
        platform=address.platform if address else "",
        turn_id=running[0].id if running else None,
        owner=owner,
        is_served=bool((running and owner) or (address and is_platform_served(tx, address.platform))),
    )


def _describe_chat(address: Address) -> str:
    if address.platform == WEB:
        return "in the web app"
    thread = f", thread {address.thread_id}" if address.thread_id else ""
    return f"on {address.platform}, chat {address.chat_id}{thread}"


def take_over(tx: Transaction, session_id: SessionId, surface: str) -> TurnId | None:
    """Move a session with its running turn to a surface without an address; return the id of that turn.

    The chat where it was gets a notice that names the surface.
    """
    bind_session(tx, session_id, "", None, surface=surface)
    return redirect_running_turn(tx, session_id, None)


def quote_in_chat(tx: Transaction, session_id: SessionId, text: str, surface: str) -> None:
    """Show in the chat of a session what is said to it from another surface."""
    quoted = text.replace("\n", "\n> ")
    for binding in tx.bindings.of_session(session_id)[:1]:
        queue_notice(tx, session_id, binding.address, Content(text=f"From {surface}:\n> {quoted}"))
