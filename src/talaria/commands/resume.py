"""`/resume`: go on with an earlier conversation."""

import difflib
from collections.abc import Sequence

from talaria.commands.command import Command, Errand
from talaria.commands.conversations import facts, find_conversations, handle_of, name_of, recall
from talaria.commands.markdown import plain
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session, SessionChanges
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId

_CHOICES = 10
_KNOWN = 200


async def run(errand: Errand) -> None:
    """Move to the conversation that is meant, and show what was said last in it."""
    seat = errand.seat
    chosen = await _chosen(errand)
    if chosen is None:
        errand.place.show("This conversation goes on.")
        return
    if chosen.id == seat.session_id:
        errand.place.show("This is the conversation that you are in.")
        return
    if chosen.archived_at:
        await seat.store.write(lambda tx: tx.sessions.update(chosen.id, SessionChanges(archived=False)))
    chat = await seat.move_to(chosen.id)
    name, last = await seat.store.read(lambda tx: (name_of(tx, chosen), recall(tx, chosen)))
    notes = "\n".join(chat.notes)
    errand.place.show("\n\n".join(filter(None, [f"Back in *{plain(name)}*.", last, notes])))


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return the latest conversations by what they are found by."""
    now, here = SystemClock().now(), errand.seat.session_id

    def look(tx: Transaction) -> list[tuple[str, str]]:
        found = [one for one in find_conversations(tx, errand, limit=2 * _CHOICES) if one.id != here]
        return [(handle := handle_of(tx, one), _about(tx, one, handle) + facts(one, now)) for one in found]

    return await errand.seat.store.read(look)


def _about(tx: Transaction, session: Session, handle: str) -> str:
    """Return what a conversation is called, where it is found by its id."""
    return f"{name_of(tx, session)}, " if handle == session.id else ""


async def _chosen(errand: Errand) -> Session | None:
    found = await errand.seat.store.read(lambda tx: _candidates(tx, errand))
    if errand.words and len(found) == 1:
        return found[0]
    now = SystemClock().now()
    names = await errand.seat.store.read(lambda tx: [f"{name_of(tx, one)} ({facts(one, now)})" for one in found])
    question = f"“{errand.words}” matches several conversations. Which one?" if errand.words else "Which conversation?"
    place = await errand.place.choose(question, names)
    return None if place is None else found[place]


def _candidates(tx: Transaction, errand: Errand) -> list[Session]:
    words = errand.words
    if named := _by_id(tx, errand):
        return [named]
    if words:
        found = find_conversations(tx, errand, matching=words, limit=_CHOICES, archived=None)
        if not found:
            raise NotFound(_unknown(tx, errand))
        return found
    others = find_conversations(tx, errand, limit=_CHOICES + 1)
    found = [one for one in others if one.id != errand.seat.session_id][:_CHOICES]
    if not found:
        raise NotFound("There is no other conversation yet.")
    return found


def _by_id(tx: Transaction, errand: Errand) -> Session | None:
    """Return the conversation that the owner calls by its whole id: at the terminal any, in a chat one of their own.

    It need not be one that is seen here: whoever types its id wants it brought to this place.
    """
    session = tx.sessions.get(SessionId(errand.words)) if errand.author.owner else None
    return None if session is None or (session.owner and errand.place.address is not None) else session


def _unknown(tx: Transaction, errand: Errand) -> str:
    known = find_conversations(tx, errand, limit=_KNOWN, archived=None)
    titles = {one.title.casefold(): one.title for one in known if one.title}
    near = difflib.get_close_matches(errand.words.casefold(), titles, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(f'*{plain(titles[one])}*' for one in near)}?" if near else ""
    return f"No conversation is called `{errand.words}`. {hint or '`/sessions` lists the latest.'}"


COMMAND = Command(
    name="resume",
    category="Session",
    help="Go on with an earlier conversation.",
    hint="[id, title or a part of it]",
    during_turn="refused",
    run=run,
    offers=offers,
)
