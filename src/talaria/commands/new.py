"""`/new`: begin another conversation."""

from talaria.commands.command import Command, Errand
from talaria.commands.conversations import way_back
from talaria.commands.facts import errand_facts
from talaria.commands.markdown import plain
from talaria.contracts.hooks import SESSION_END, SESSION_RESET
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import SessionChanges
from talaria.core.ids import SessionId
from talaria.sessions.leaving import end_background


async def run(errand: Errand) -> None:
    """Begin anew, and say how to get back; the conversation that was open keeps all that belongs to it."""
    seat, title = errand.seat, errand.words
    left, before = seat.session_id, errand_facts(errand, reason="command")
    await seat.begin_anew(leaving=end_background)
    errand.house.hooks.fire(SESSION_END, before)
    errand.house.hooks.fire(SESSION_RESET, errand_facts(errand, reason="command", previous_session_id=left))
    if title:
        here = seat.session_id
        await seat.store.write(lambda tx: tx.sessions.update(here, SessionChanges(title=title)))
    begun = f"A new conversation begins: *{plain(title)}*." if title else "A new conversation begins."
    back = await seat.store.read(lambda tx: _way_back(tx, left))
    errand.place.show(f"{begun} {back}".rstrip())


def _way_back(tx: Transaction, left: SessionId) -> str:
    session = tx.sessions.get(left)
    return f"{way_back(tx, session)} goes back to the one before." if session else ""


COMMAND = Command(
    name="new",
    aliases=("reset",),
    category="Session",
    help="Begin a new conversation; the one before is kept.",
    hint="[title]",
    during_turn="refused",
    run=run,
)
