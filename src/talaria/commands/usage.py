"""`/usage`: tokens, calls and money."""

from collections.abc import Iterator

from talaria.commands.command import Command, Errand
from talaria.contracts.store import Transaction
from talaria.core.addresses import audience_of
from talaria.core.errors import NotFound
from talaria.core.messages import Usage
from talaria.core.wording import counted, money
from talaria.sessions.branching import lineage
from talaria.sessions.delegation import delegated_usage
from talaria.sessions.trace import total

_NAMES = {"all": "everything this month", "person": "you this month", "session": "this conversation"}


async def run(errand: Errand) -> None:
    """Show what this conversation has used, and what may still be spent."""
    errand.place.show("\n".join(await errand.seat.store.read(lambda tx: list(_lines(tx, errand)))))


def _lines(tx: Transaction, errand: Errand) -> Iterator[str]:
    session = tx.sessions.get(errand.seat.session_id)
    if session is None:
        raise NotFound("This conversation is not there any more.")
    delegated = delegated_usage(tx, session.id)
    here = [session.usage, *delegated]
    yield f"- This conversation: {in_words(total(here))}"
    if delegated:
        yield f"- Of that, tasks that were handed on: {in_words(total(delegated))}"
    ancestors = [found for one in lineage(tx, session) if (found := tx.sessions.get(one)) is not None]
    before = [usage for one in ancestors for usage in (one.usage, *delegated_usage(tx, one.id))]
    if before:
        yield f"- With what came before it branched off: {in_words(total([*here, *before]))}"
    alone = errand.author.owner and not audience_of(errand.place.address)
    for cap in errand.house.caps(session) if alone else ():
        spent = tx.ledger.spent(cap.account)
        name = _NAMES.get(cap.account.partition(":")[0], cap.account)
        yield f"- Spent on {name}: {money(spent) or '$0'} of {money(cap.limit)}"


def in_words(usage: Usage) -> str:
    """Return what was used, in a line."""
    if not usage.calls:
        return "nothing used yet."
    share = 100 * usage.cache_read_tokens // usage.input_tokens if usage.input_tokens else 0
    cost = money(usage.cost_microdollars) or "no cost known"
    return (
        f"{counted(usage.calls, 'model call')}, {usage.input_tokens:,} tokens in ({share}% from the cache),"
        f" {usage.output_tokens:,} out, {cost}."
    )


COMMAND = Command(
    name="usage",
    category="Session",
    help="Show tokens, model calls and money of this conversation.",
    run=run,
    reads=True,
)
