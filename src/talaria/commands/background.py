"""`/background`: have something answered beside this conversation."""

from datetime import UTC, datetime

from msgspec import structs

from talaria.commands.command import Command, Errand
from talaria.commands.markdown import plain, shortened
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession, Session
from talaria.core.errors import Refused, TalariaError
from talaria.core.events import TurnAnswered, TurnEnd, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import Message, Text
from talaria.sessions.lane import arrival
from talaria.sessions.preferences import read_preferences, write_preferences
from talaria.sessions.unattended import work_off_alone

_LONGEST_QUOTE = 60


async def run(errand: Errand) -> None:
    """Begin a conversation of its own with these words; its answer is shown when it is there."""
    if not errand.words:
        raise Refused("What shall I see to meanwhile? `/background <text>`.")
    seat, here = errand.seat, errand.seat.session_id
    made = await seat.store.write(lambda tx: _begin(tx, here, seat.wish.source, errand.words))
    errand.place.show(f"I see to it beside this conversation, in `{made.id}`.")
    seat.start_beside(_answer(errand, made.id))


def _begin(tx: Transaction, here: SessionId, source: str, text: str) -> Session:
    """Make the conversation, with what was said waiting in it: from here on nothing is lost."""
    parent = tx.sessions.get(here)
    made = tx.sessions.create(
        NewSession(
            source=source,
            owner=parent.owner if parent else "",
            audience=parent.audience if parent else "",
            model=parent.model if parent else "",
            parent_id=here if parent else None,
        )
    )
    write_preferences(tx, made.id, read_preferences(tx, here))
    workspace = tx.state.get(f"workspace:{here}")
    if workspace is not None:
        tx.state.put(f"workspace:{made.id}", workspace.value)
    message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
    tx.inbox.add(arrival(made.id, source, new_id(), message))
    return made


async def _answer(errand: Errand, session_id: SessionId) -> None:
    """Take the turn, and show what came of it; nobody attends, so what needs a yes gets a no."""
    seat = errand.seat
    wish = structs.replace(seat.wish, resume=session_id, latest=False, attended=False, lasting=False)
    go_on = f"`/resume {session_id}` goes on with it."
    try:
        end = await work_off_alone(seat.opener, wish, seat.jobs)
    except TalariaError as error:
        said = str(error) if errand.author.owner else error.public
        errand.place.show(f"What I saw to beside this conversation failed: {said} {go_on}")
        return
    about = f"**Beside this conversation:** {plain(shortened(errand.words, _LONGEST_QUOTE))}"
    errand.place.show(f"{about}\n\n{_outcome(end)}\n\n{go_on}")


def _outcome(end: TurnEnd | None) -> str:
    match end:
        case TurnAnswered(text):
            return text
        case TurnFailed(text) | TurnOutOfBudget(text=text):
            return text
        case TurnStopped() | None:
            return "It was stopped before there was an answer."


COMMAND = Command(
    name="background",
    category="Session",
    help="Have something answered beside this conversation.",
    hint="<text>",
    run=run,
)
