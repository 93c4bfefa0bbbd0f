"""`/status`: where one is, and what is going on."""

from collections.abc import Iterator

from talaria.commands.command import Command, Errand
from talaria.commands.compress import context_estimate
from talaria.commands.conversations import name_of
from talaria.commands.markdown import plain
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId
from talaria.core.wording import counted, money, platform_label
from talaria.goals.keeping import read_goal
from talaria.goals.prompts import standing
from talaria.sessions.homes import gateway_alive
from talaria.sessions.lane import MIRROR
from talaria.sessions.relocation import handoff_under_way
from talaria.sessions.summaries import kept_summary
from talaria.sessions.trace import read_turn
from talaria.sessions.transcripts import code


async def run(errand: Errand) -> None:
    """Show the conversation, its model, what runs and what waits."""
    facts = await errand.seat.store.read(lambda tx: list(_facts(tx, errand)))
    errand.place.show("\n".join(f"- {name}{value}" for name, value in facts if value))


def _facts(tx: Transaction, errand: Errand) -> Iterator[tuple[str, str]]:
    seat, chat = errand.seat, errand.seat.chat
    session = tx.sessions.get(seat.session_id)
    if session is None:
        raise NotFound("This conversation is not there any more.")
    unsettled = tx.inbox.unsettled(session.id)
    waiting = [item for item in unsettled if item.state == "waiting" and item.kind != MIRROR]
    yield "Conversation: ", f"**{plain(name_of(tx, session))}**, `{session.id}`, {_length(session)}"
    yield "Branch of: ", _parent(tx, session)
    yield "Model: ", f"{code(chat.model)}, {_context(tx, session.id, chat.info.context_limit)}"
    yield "Cost: ", money(session.usage.cost_microdollars)
    yield "Turn: ", "running (`/stop` ends it)" if seat.busy else "none is running"
    yield "Waiting: ", counted(len(waiting), "message") if waiting else ""
    yield "Handoff: ", _handoff(tx, session.id, chat=errand.place.address is not None)
    goal = read_goal(tx, session.id).state
    yield "", plain(standing(goal)) if goal else ""
    yield "Gateway: ", "alive" if gateway_alive(tx) else "not running"
    if errand.author.owner:
        yield "Folder: ", code(str(chat.workspace.folder))


def _handoff(tx: Transaction, session_id: SessionId, *, chat: bool) -> str:
    """Return the handoff that is under way, and how to cancel it."""
    state = handoff_under_way(tx, session_id)
    if state is None:
        return ""
    how = "waiting for a gateway" if state["state"] == "pending" else "a gateway is moving it"
    cancel = "/move cancel" if chat else "/handoff cancel"
    return f"to {platform_label(state['platform'] or '')}, {how} (`{cancel}` withdraws it)"


def _length(session: Session) -> str:
    return counted(session.message_count, "message")


def _parent(tx: Transaction, session: Session) -> str:
    parent = tx.sessions.get(session.parent_id) if session.parent_id else None
    if parent is None:
        return ""
    point = f", from message {session.parent_seq} on" if session.parent_seq else ""
    return f"*{plain(name_of(tx, parent))}*, `{parent.id}`{point}"


def _context(tx: Transaction, session_id: SessionId, limit: int) -> str:
    """Return how much of its window is used."""
    tokens, exact = context_used(tx, session_id)
    return f"{'' if exact else 'about '}{tokens:,} of {limit:,} tokens used ({round(100 * tokens / limit)}%)"


def context_used(tx: Transaction, session_id: SessionId) -> tuple[int, bool]:
    """Return how many tokens a conversation takes: as the provider counted (``True``), else as it is estimated."""
    exact = counted_context(tx, session_id)
    return exact or context_estimate(tx, session_id), bool(exact)


def counted_context(tx: Transaction, session_id: SessionId) -> int:
    """Return how much the last model call took; nothing where a summary has changed that since."""
    kept = kept_summary(tx, session_id)
    turns = tx.turns.find(session_id, limit=1) if kept is None or kept.shown else ()
    spans = [span for turn in turns for span in read_turn(turn, tx.turns.steps(turn.id), turn.started_at).models()]
    return spans[-1].context if spans else 0


COMMAND = Command(
    name="status",
    category="Session",
    help="Show the conversation, its model, and what is going on.",
    run=run,
    reads=True,
)
