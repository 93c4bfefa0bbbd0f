"""`/usage`: tokens, calls and money."""

from collections.abc import Iterator

from talaria.commands.command import Command, Errand
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import NotFound
from talaria.core.messages import Usage
from talaria.core.wording import counted, money
from talaria.sessions.trace import total

_NAMES = {"all": "everything this month", "person": "you this month", "session": "this conversation"}


async def run(errand: Errand) -> None:
    """Show what this conversation has used, and what may still be spent."""
    errand.place.show("\n".join(await errand.seat.store.read(lambda tx: list(_lines(tx, errand)))))


def _lines(tx: Transaction, errand: Errand) -> Iterator[str]:
    session = tx.sessions.get(errand.seat.session_id)
    if session is None:
        raise NotFound("This conversation is not there any more.")
    yield f"- This conversation: {in_words(session.usage)}"
    before = list(_ancestors(tx, session))
    if before:
        yield f"- With what came before it branched off: {in_words(total([session.usage, *before]))}"
    for cap in errand.house.caps(session) if errand.author.owner else ():
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


def _ancestors(tx: Transaction, session: Session) -> Iterator[Usage]:
    """Yield what the conversations have used from which this one branched off."""
    here: Session | None = session
    while here is not None and here.parent_id is not None and here.parent_seq:
        here = tx.sessions.get(here.parent_id)
        if here is not None:
            yield here.usage


COMMAND = Command(
    name="usage", category="Session", help="Show tokens, model calls and money of this conversation.", run=run
)
