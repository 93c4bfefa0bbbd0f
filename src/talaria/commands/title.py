"""`/title`: show or change what the conversation is called."""

from talaria.commands.command import Command, Errand
from talaria.contracts.stores.sessions import SessionChanges


async def run(errand: Errand) -> None:
    """Name the conversation, or say its name."""
    store, session_id, title = errand.seat.store, errand.seat.session_id, errand.words
    if title:
        await store.write(lambda tx: tx.sessions.update(session_id, SessionChanges(title=title)))
        errand.place.show(f"This conversation is now called *{title}*.")
        return
    session = await store.read(lambda tx: tx.sessions.get(session_id))
    named = session.title if session else ""
    errand.place.show(f"This conversation is called *{named}*." if named else "This conversation has no title yet.")


COMMAND = Command(
    name="title", category="Session", help="Name this conversation, or show its name.", hint="[title]", run=run
)
