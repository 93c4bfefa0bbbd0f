"""`/sessions`: the latest conversations."""

from talaria.commands.command import Command, Errand
from talaria.commands.conversations import facts, find_conversations, name_of
from talaria.commands.counting import counted_words
from talaria.commands.markdown import plain
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction

_USUAL = 10
_MOST = 50


async def run(errand: Errand) -> None:
    """List them, last used first."""
    limit = counted_words(errand, usual=_USUAL, most=_MOST)
    lines = await errand.seat.store.read(lambda tx: _lines(tx, errand, limit))
    errand.place.show("\n".join([*lines, "", "`/resume <id or title>` goes on with one of them."]))


def _lines(tx: Transaction, errand: Errand, limit: int) -> list[str]:
    now, here = SystemClock().now(), errand.seat.session_id
    return [
        f"- **{plain(name_of(tx, one))}**{' (this one)' if one.id == here else ''}: {facts(one, now)}, `{one.id}`"
        for one in find_conversations(tx, errand, limit=limit)
    ]


COMMAND = Command(
    name="sessions", category="Session", help="List the latest conversations.", hint="[how many]", run=run, reads=True
)
