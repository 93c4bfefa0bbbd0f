"""Slash command `/usage`: tokens, calls and cost."""

from collections.abc import Iterator

from talaria.commands.command import Command, CommandContext
from talaria.contracts.store import Transaction
from talaria.core.addresses import audience_of
from talaria.core.errors import NotFound
from talaria.core.formatting import format_money, pluralize
from talaria.core.messages import Usage
from talaria.observability.trace import sum_usage
from talaria.runtime.delegation.task_store import delegated_usage
from talaria.sessions.branches import list_ancestors

_ACCOUNT_NAMES = {"all": "everything this month", "person": "you this month", "session": "this conversation"}


async def run_usage(context: CommandContext) -> None:
    """Show the usage of this session and the remaining budget."""
    context.surface.show("\n".join(await context.active_session.store.read(lambda tx: list(_build_lines(tx, context)))))


def _build_lines(tx: Transaction, context: CommandContext) -> Iterator[str]:
    session = tx.sessions.get(context.active_session.session_id)
    if session is None:
        raise NotFound("This conversation no longer exists.")
    delegated = delegated_usage(tx, session.id)
    here, free = [session.usage, *delegated], context.active_session.chat.info.free
    yield f"- This conversation: {format_usage(sum_usage(here), free=free)}"
    if delegated:
        yield f"- Of that, delegated tasks: {format_usage(sum_usage(delegated), free=free)}"
    ancestors = [found for one in list_ancestors(tx, session) if (found := tx.sessions.get(one)) is not None]
    inherited = [usage for one in ancestors for usage in (one.usage, *delegated_usage(tx, one.id))]
    if inherited:
        total = format_usage(sum_usage([*here, *inherited]), free=free)
        yield f"- Including the conversation it was branched from: {total}"
    is_private = context.author.owner and not audience_of(context.surface.address)
    for cap in context.application.caps(session) if is_private else ():
        spent = tx.ledger.spent(cap.account)
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
