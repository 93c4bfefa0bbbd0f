"""Slash commands `/status`, `/usage`, `/version`, `/whoami` and `/debug`."""

import asyncio
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from talaria.commands.arguments import escape_markdown
from talaria.commands.command import Command, CommandContext
from talaria.commands.session_lookup import get_display_name
from talaria.commands.turn_control import estimate_context_tokens
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.addresses import audience_of
from talaria.core.errors import NotFound
from talaria.core.formatting import format_money, platform_label, pluralize
from talaria.core.ids import SessionId
from talaria.core.messages import Usage
from talaria.goals.goal import read_goal
from talaria.goals.transitions import format_goal_status
from talaria.observability.trace import read_turn, sum_usage
from talaria.runtime.delegation.task_store import read_delegated_usage
from talaria.runtime.turns import MIRROR
from talaria.runtime.workers import is_gateway_alive
from talaria.sessions.branches import list_ancestors
from talaria.sessions.model_context import read_summary
from talaria.sessions.transcript_export import format_code_block, format_inline_code

_ACCOUNT_NAMES = {"all": "everything this month", "person": "you this month", "session": "this conversation"}
_PROBLEM_LINE = re.compile(r"^\S+ \S+ (?:WARNING|ERROR|CRITICAL) ")
_LAST_BYTES = 200_000
_LAST_LINES = 10


async def run_status(context: CommandContext) -> None:
    """Show the session, its model, and running and pending work."""
    facts = await context.active_session.store.read(lambda tx: list(_collect_facts(tx, context)))
    context.surface.show("\n".join(f"- {name}{value}" for name, value in facts if value))


def _collect_facts(tx: Transaction, context: CommandContext) -> Iterator[tuple[str, str]]:
    active_session, chat = context.active_session, context.active_session.chat
    session = tx.sessions.get(active_session.session_id)
    if session is None:
        raise NotFound("This conversation no longer exists.")
    unsettled = tx.inbox.list_unsettled(session.id)
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


async def run_usage(context: CommandContext) -> None:
    """Show the usage of this session and the remaining budget."""
    context.surface.show(
        "\n".join(await context.active_session.store.read(lambda tx: list(_build_usage_lines(tx, context))))
    )


def _build_usage_lines(tx: Transaction, context: CommandContext) -> Iterator[str]:
    session = tx.sessions.get(context.active_session.session_id)
    if session is None:
        raise NotFound("This conversation no longer exists.")
    delegated = read_delegated_usage(tx, session.id)
    here, free = [session.usage, *delegated], context.active_session.chat.info.free
    yield f"- This conversation: {format_usage(sum_usage(here), free=free)}"
    if delegated:
        yield f"- Of that, delegated tasks: {format_usage(sum_usage(delegated), free=free)}"
    ancestors = [found for one in list_ancestors(tx, session) if (found := tx.sessions.get(one)) is not None]
    inherited = [usage for one in ancestors for usage in (one.usage, *read_delegated_usage(tx, one.id))]
    if inherited:
        total = format_usage(sum_usage([*here, *inherited]), free=free)
        yield f"- Including the conversation it was branched from: {total}"
    is_private = context.author.owner and not audience_of(context.surface.address)
    for cap in context.application.caps(session) if is_private else ():
        spent = tx.ledger.read_spent(cap.account)
        name = _ACCOUNT_NAMES.get(cap.account.partition(":")[0], cap.account)
        yield f"- Spent on {name}: {format_money(spent) or '$0'} of {format_money(cap.limit)}"


def format_usage(usage: Usage, *, free: bool = False) -> str:
    """Return a usage on one line; ``free`` if its model costs nothing."""
    if not usage.calls:
        return "nothing used yet."
    share = 100 * usage.cache_read_tokens // usage.input_tokens if usage.input_tokens else 0
    cost = format_money(usage.cost_microdollars) or ("no cost" if free else "unknown cost")
    return (
        f"{pluralize(usage.calls, 'model call')}, {usage.input_tokens:,} tokens in ({share}% cached), "
        f"{usage.output_tokens:,} out, {cost}."
    )


USAGE = Command(
    name="usage",
    category="Session",
    help="Show this conversation's tokens, model calls and cost.",
    run=run_usage,
    reads=True,
)


async def run_debug(context: CommandContext) -> None:
    """Show versions, store, model, changed settings and recent problems from the log.

    The log is left out where others can read the chat.
    """
    application, chat, active_session = context.application, context.active_session.chat, context.active_session
    identity = application.identity
    session_id = active_session.session_id
    session = await active_session.store.read(lambda tx: tx.sessions.get(session_id))
    tools = [tool for group in application.knowledge.toolsets() for tool in group.tools]
    settings = [f"  {one.key} = {one.value}" for one in application.settings_admin.list() if not one.is_default]
    lines = [
        f"talaria   {identity.version}",
        f"python    {platform.python_version()} on {platform.system()} {platform.release()} {platform.machine()}",
        f"profile   {identity.profile}, {identity.store}",
        f"surface   {context.surface.name}",
        f"session   {session_id}, {pluralize(session.message_count if session else 0, 'message')}",
        f"model     {chat.provider}:{chat.model}, {chat.info.context_limit:,} tokens",
        f"tools     {sum(tool.enabled for tool in tools)} of {len(tools)} on",
        f"turn      {'running' if active_session.busy else 'none'}",
        *(["settings", *settings] if settings else []),
    ]
    is_private = not audience_of(context.surface.address)  # the log may mention other people
    problems = await asyncio.to_thread(_read_problems, identity.log_file) if is_private else []
    if problems:
        lines += ["log", *(f"  {line}" for line in problems)]
    context.surface.show(format_code_block(_hide_home("\n".join(lines))))


def _read_problems(log_file: Path) -> list[str]:
    """Return the last warnings and errors, first lines only: further lines may quote messages."""
    try:
        with log_file.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _LAST_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if _PROBLEM_LINE.match(line)][-_LAST_LINES:]


def _hide_home(text: str) -> str:
    return text.replace(str(Path.home()), "~")


DEBUG = Command(
    name="debug",
    category="Program",
    help="Show details for a bug report: versions, model, settings, recent errors.",
    who="owner",
    run=run_debug,
    reads=True,
)
