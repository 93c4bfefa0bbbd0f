"""Slash commands `/history`, `/new`, `/sessions` and `/title`."""

from talaria.commands.arguments import escape_markdown, parse_count, render_message
from talaria.commands.command import Command, CommandContext
from talaria.commands.dispatch import build_command_facts
from talaria.commands.session_lookup import (
    describe_session,
    find_visible_sessions,
    format_resume_command,
    get_display_name,
)
from talaria.contracts.clock import SystemClock
from talaria.contracts.hooks import SESSION_END, SESSION_RESET
from talaria.contracts.store import Transaction
from talaria.contracts.stores.messages import StoredMessage
from talaria.contracts.stores.sessions import SessionChanges
from talaria.core.formatting import format_age
from talaria.core.ids import SessionId
from talaria.runtime.delegation.task_store import end_background

_DEFAULT_COUNT = 10


_MAX_MESSAGES = 100


_TEXT_LIMIT = 1_500


async def run_history(context: CommandContext) -> None:
    """Show the last messages, with one line per tool call."""
    count = parse_count(context, default=_DEFAULT_COUNT, maximum=_MAX_MESSAGES)
    session_id = context.active_session.session_id
    messages = await context.active_session.store.read(lambda tx: tx.messages.last(session_id, count))
    if not messages:
        context.surface.show("Nothing has been said here yet.")
        return
    earlier = messages[0].seq - 1
    opening = [f"*{earlier} earlier; `/save` writes them all to a file.*"] if earlier else []
    context.surface.show("\n\n".join([*opening, *map(_format_message, messages)]))


def _format_message(stored: StoredMessage) -> str:
    message = stored.message
    body = render_message(message, _TEXT_LIMIT) or "*(no text)*"
    if message.role == "tool":
        return body
    who = escape_markdown(message.author) or ("You" if message.role == "user" else "Agent")
    return f"**{who}** · {format_age(message.at, SystemClock().now())}\n\n{body}"


HISTORY = Command(
    name="history", category="Session", help="Show the latest messages.", hint="[count]", run=run_history, reads=True
)


async def run_new(context: CommandContext) -> None:
    """Start a new session, with an optional title, and show how to return to the previous one."""
    active_session, title = context.active_session, context.arguments
    previous_id, previous_facts = active_session.session_id, build_command_facts(context, reason="command")
    await active_session.reset_session(leaving=end_background)
    context.application.hooks.fire(SESSION_END, previous_facts)
    context.application.hooks.fire(
        SESSION_RESET, build_command_facts(context, reason="command", previous_session_id=previous_id)
    )
    if title:
        here = active_session.session_id
        await active_session.store.write(lambda tx: tx.sessions.update(here, SessionChanges(title=title)))
    announcement = (
        f"Started a new conversation: *{escape_markdown(title)}*." if title else "Started a new conversation."
    )
    back = await active_session.store.read(lambda tx: _explain_resume(tx, previous_id))
    context.surface.show(f"{announcement} {back}".rstrip())


def _explain_resume(tx: Transaction, previous_id: SessionId) -> str:
    session = tx.sessions.get(previous_id)
    return f"{format_resume_command(tx, session)} returns to the previous one." if session else ""


NEW = Command(
    name="new",
    aliases=("reset",),
    category="Session",
    help="Start a new conversation; the previous one is saved.",
    hint="[title]",
    during_turn="refused",
    run=run_new,
)


_MAX_SESSIONS = 50


async def run_sessions(context: CommandContext) -> None:
    """List the sessions, last used first."""
    limit = parse_count(context, default=_DEFAULT_COUNT, maximum=_MAX_SESSIONS)
    lines = await context.active_session.store.read(lambda tx: _format_sessions(tx, context, limit))
    context.surface.show("\n".join([*lines, "", "`/resume <id or title>` resumes one of them."]))


def _format_sessions(tx: Transaction, context: CommandContext, limit: int) -> list[str]:
    now, here = SystemClock().now(), context.active_session.session_id
    return [
        f"- **{escape_markdown(get_display_name(tx, one))}**{' (this one)' if one.id == here else ''}:"
        f" {describe_session(one, now)}, `{one.id}`"
        for one in find_visible_sessions(tx, context, limit=limit)
    ]


SESSIONS = Command(
    name="sessions",
    category="Session",
    help="List the latest conversations.",
    hint="[count]",
    run=run_sessions,
    reads=True,
)


async def run_title(context: CommandContext) -> None:
    """Set or show the title of the session."""
    store, session_id, title = context.active_session.store, context.active_session.session_id, context.arguments
    if title:
        await store.write(lambda tx: tx.sessions.update(session_id, SessionChanges(title=title)))
        context.surface.show(f"This conversation's title is now *{title}*.")
        return
    session = await store.read(lambda tx: tx.sessions.get(session_id))
    current_title = session.title if session else ""
    context.surface.show(
        f"This conversation's title is *{current_title}*." if current_title else "This conversation has no title yet."
    )


TITLE = Command(
    name="title", category="Session", help="Set or show this conversation's title.", hint="[title]", run=run_title
)
