"""`/branch`: go on from here in a conversation of its own."""

from talaria.commands.command import Command, Errand
from talaria.commands.conversations import name_of, way_back
from talaria.commands.markdown import plain
from talaria.commands.parting import go_to, part
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import Refused
from talaria.core.ids import SessionId
from talaria.sessions.naming import free_title


async def run(errand: Errand) -> None:
    """Begin a branch that shares everything said so far, and move there."""
    seat, here = errand.seat, errand.seat.session_id
    made = await seat.store.write(lambda tx: _branch(tx, here, errand.words))
    await go_to(errand, made)
    name, back = await seat.store.read(lambda tx: (name_of(tx, made), _way_back(tx, here)))
    errand.place.show(f"This is a branch now: *{plain(name)}*. {back} goes back to where it parted.")


def _branch(tx: Transaction, session_id: SessionId, title: str) -> Session:
    session = tx.sessions.get(session_id)
    if session is None or not session.message_count:
        raise Refused("Nothing has been said here yet: there is nothing to branch from.")
    named = title or (free_title(tx, session.title, "branch", owner=session.owner) if session.title else "")
    return part(tx, session, session.message_count, named)


def _way_back(tx: Transaction, session_id: SessionId) -> str:
    session = tx.sessions.get(session_id)
    return way_back(tx, session) if session else f"`/resume {session_id}`"


COMMAND = Command(
    name="branch",
    category="Session",
    help="Go on from here in a branch; this conversation stays as it is.",
    hint="[title]",
    during_turn="refused",
    run=run,
)
