"""Part from what was said last: a branch that ends before it, in which the conversation goes on."""

from msgspec import Struct, structs

from talaria.commands.command import Errand
from talaria.contracts.store import Transaction
from talaria.contracts.stores.messages import StoredMessage
from talaria.contracts.stores.sessions import Session, SessionChanges
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import Usage
from talaria.core.wording import counted
from talaria.goals.keeping import Kept, read_goal, withdraw, write_goal
from talaria.sessions.branching import branch, copy_spending, exchanges, is_bare
from talaria.sessions.naming import free_title

_MARK = "before undo"


class Parted(Struct, frozen=True):
    """What became of it: the conversation that goes on, what was taken back, and where that can still be read."""

    here: Session
    removed: tuple[StoredMessage, ...]
    kept_in: SessionId


def part(tx: Transaction, origin: Session, upto: int, title: str) -> Session:
    """Begin a branch, with the goal that was set in what it shares: it goes on behind the next turn there."""
    made = branch(tx, origin.id, upto, title)
    goal = read_goal(tx, origin.id).state
    unshared = tx.messages.load(origin.id, after=upto, limit=1)
    if goal is not None and not (unshared and unshared[0].message.at <= goal.set_at):
        carried = structs.replace(
            goal, id=new_id(), usage=_difference(goal.usage, origin.usage), pending=None, parked=None
        )
        write_goal(tx, made.id, Kept(None, 0), carried)
        copy_spending(tx, goal.account, carried.account)
    return made


async def take_back(errand: Errand, count: int) -> Parted:
    """Go on in a branch that ends before the last ``count`` exchanges; raises `Refused` where there are not as many."""
    seat, before = errand.seat, errand.seat.session_id
    parted = await seat.store.write(lambda tx: _take_back(tx, before, count))
    try:
        await go_to(errand, parted.here)
    except TalariaError:
        await seat.store.write(lambda tx: tx.sessions.update(before, SessionChanges(title=parted.here.title)))
        raise
    await seat.store.write(lambda tx: _leave_behind(tx, before, parted.here))
    return parted


async def go_to(errand: Errand, made: Session) -> None:
    """Move to a branch that was made just now; one that cannot be opened is dropped again."""
    try:
        await errand.seat.move_to(made.id)
    except TalariaError:
        await errand.seat.store.write(lambda tx: tx.sessions.delete(made.id))
        raise


def _take_back(tx: Transaction, session_id: SessionId, count: int) -> Parted:
    session = tx.sessions.get(session_id)
    messages = tx.messages.load(session_id)
    begun = exchanges(messages)
    if session is None or not begun:
        raise Refused("Nothing has been said here yet: there is nothing to take back.")
    if count > len(begun):
        raise Refused(f"There are only {counted(len(begun), 'exchange')} here to take back.")
    upto = begun[-count].seq - 1
    made = part(tx, session, upto, session.title)
    kept_in = session
    if is_bare(session) and session.parent_id is not None and (parent := tx.sessions.get(session.parent_id)):
        kept_in = parent
    elif session.title:
        title = free_title(tx, session.title, _MARK, owner=session.owner)
        tx.sessions.update(session_id, SessionChanges(title=title))
    return Parted(made, tuple(one for one in messages if one.seq > upto), kept_in.id)


def _leave_behind(tx: Transaction, session_id: SessionId, made: Session) -> None:
    """Let the goal rest in what was taken back, so that it does not go on in two places; drop a bare branch."""
    session = tx.sessions.get(session_id)
    if session is not None and is_bare(session) and not tx.inbox.unsettled(session_id):
        tx.sessions.delete(session_id)
        return
    kept = read_goal(tx, session_id)
    if kept.state is not None and kept.state.status == "active":
        withdraw(tx, session_id)
        write_goal(tx, session_id, kept, kept.state.paused(f"what it led to was taken back; see {made.id}"))


def _difference(usage: Usage, less: Usage) -> Usage:
    """Return by how much one is more than the other; a branch counts from zero what its past had used."""
    pairs = zip(structs.astuple(usage), structs.astuple(less), strict=True)
    return Usage(*(one - other for one, other in pairs))
