"""Slash commands `/status`, `/version` and `/whoami`."""

from collections.abc import Iterator

from talaria.commands.arguments import escape_markdown
from talaria.commands.command import Command, CommandContext
from talaria.commands.session_lookup import get_display_name
from talaria.commands.turn_control import estimate_context_tokens
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import NotFound
from talaria.core.formatting import format_money, platform_label, pluralize
from talaria.core.ids import SessionId
from talaria.goals.stored_goal import read_goal
from talaria.goals.transitions import format_goal_status
from talaria.observability.trace import read_turn
from talaria.runtime.turns import MIRROR
from talaria.runtime.workers import is_gateway_alive
from talaria.sessions.model_context import read_summary
from talaria.sessions.transcript_export import format_inline_code


async def run_status(context: CommandContext) -> None:
    """Show the session, its model, and running and pending work."""
    facts = await context.active_session.store.read(lambda tx: list(_collect_facts(tx, context)))
    context.surface.show("\n".join(f"- {name}{value}" for name, value in facts if value))


def _collect_facts(tx: Transaction, context: CommandContext) -> Iterator[tuple[str, str]]:
    active_session, chat = context.active_session, context.active_session.chat
    session = tx.sessions.get(active_session.session_id)
    if session is None:
        raise NotFound("This conversation no longer exists.")
    unsettled = tx.inbox.unsettled(session.id)
    waiting = [item for item in unsettled if item.state == "waiting" and item.kind != MIRROR]
    yield (
        "Conversation: ",
        f"**{escape_markdown(get_display_name(tx, session))}**, `{session.id}`, {_count_messages(session)}",
    )
    yield "Branch of: ", _describe_parent(tx, session)
    yield (
        "Model: ",
        f"{format_inline_code(chat.model)}, {_describe_context_use(tx, session.id, chat.info.context_limit)}",
    )
    yield "Cost: ", format_money(session.usage.cost_microdollars)
    yield "Turn: ", "running (`/stop` stops it)" if active_session.busy else "not running"
    yield "Waiting: ", pluralize(len(waiting), "message") if waiting else ""
    yield "Handoff: ", _describe_handoff(tx, session.id, chat=context.surface.address is not None)
    goal = read_goal(tx, session.id).state
    yield "", escape_markdown(format_goal_status(goal)) if goal else ""
    yield "Gateway: ", "running" if is_gateway_alive(tx) else "not running"
    if context.author.owner:
        yield "Folder: ", format_inline_code(str(chat.workspace.folder))


def _describe_handoff(tx: Transaction, session_id: SessionId, *, chat: bool) -> str:
    """Return the active handoff and how to cancel it, or an empty string."""
    state = tx.handoffs.get_handoff_state(session_id)
    if state is None or state["state"] not in ("pending", "running"):
        return ""
    progress = "waiting for the gateway" if state["state"] == "pending" else "being moved"
    cancel = "/move cancel" if chat else "/handoff cancel"
    return f"to {platform_label(state['platform'] or '')}, {progress} (`{cancel}` cancels it)"


def _count_messages(session: Session) -> str:
    return pluralize(session.message_count, "message")


def _describe_parent(tx: Transaction, session: Session) -> str:
    parent = tx.sessions.get(session.parent_id) if session.parent_id else None
    if parent is None:
        return ""
    point = f", from message {session.parent_seq}" if session.parent_seq else ""
    return f"*{escape_markdown(get_display_name(tx, parent))}*, `{parent.id}`{point}"


def _describe_context_use(tx: Transaction, session_id: SessionId, limit: int) -> str:
    """Return how much of the context window is used."""
    tokens, exact = get_context_tokens(tx, session_id)
    return f"{'' if exact else 'about '}{tokens:,} of {limit:,} tokens used ({round(100 * tokens / limit)}%)"


def get_context_tokens(tx: Transaction, session_id: SessionId) -> tuple[int, bool]:
    """Return the tokens in context, and whether the provider counted them or they are estimated."""
    exact = get_counted_tokens(tx, session_id)
    return exact or estimate_context_tokens(tx, session_id), bool(exact)


def get_counted_tokens(tx: Transaction, session_id: SessionId) -> int:
    """Return the tokens of the last model call; 0 if unknown or changed by a summary since."""
    stored = read_summary(tx, session_id)
    turns = tx.turns.find(session_id, limit=1) if stored is None or stored.shown else ()
    spans = [span for turn in turns for span in read_turn(turn, tx.turns.steps(turn.id), turn.started_at).models()]
    return spans[-1].context if spans else 0


STATUS = Command(
    name="status",
    category="Session",
    help="Show this conversation, its model and what is running.",
    run=run_status,
    reads=True,
)


async def run_version(context: CommandContext) -> None:
    """Show the version."""
    context.surface.show(f"Talaria {context.application.identity.version}")


VERSION = Command(name="version", category="Program", help="Show the version of Talaria.", run=run_version, reads=True)


async def run_whoami(context: CommandContext) -> None:
    """Show the user, the chat and the session."""
    author, surface, active_session = context.author, context.surface, context.active_session
    lines = [
        f"- You are {escape_markdown(author.name) or 'someone without a name'}, {_describe_role(owner=author.owner)}.",
        f"- You are in `{surface.name}`{_describe_address(context)}.",
        f"- The conversation is `{active_session.session_id}`"
        + (f", bound to `{active_session.key}`." if active_session.key else "."),
    ]
    context.surface.show("\n".join(lines))


def _describe_role(*, owner: bool) -> str:
    return "the owner of this agent" if owner else "not the owner of this agent"


def _describe_address(context: CommandContext) -> str:
    address = context.surface.address
    if address is None:
        return ""
    thread = f", thread `{address.thread_id}`" if address.thread_id else ""
    return f", {address.chat_type} chat `{address.chat_id}`{thread}"


WHOAMI = Command(
    name="whoami",
    category="Program",
    help="Show who you are to the agent, and where you are.",
    run=run_whoami,
    reads=True,
)
