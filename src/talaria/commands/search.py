"""`/search`: find what was said, in every conversation that may be seen here."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from talaria.commands.command import Command, Errand
from talaria.commands.conversations import facts, name_of, reach_of, way_back
from talaria.commands.markdown import plain
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.contracts.stores.search import Hit, SearchQuery
from talaria.core.errors import Refused
from talaria.core.ids import SessionId

_HITS = 30
_CONVERSATIONS = 6
_SNIPPETS = 3
_FOUND = re.compile(r"\\\[((?:[^\[\]\\]|\\[^\[\]])+)\\\]")


async def run(errand: Errand) -> None:
    """Show what fits, by conversation, best first."""
    if not errand.words:
        raise Refused('What shall I look for? `/search night train` finds messages with both words, "quotes" a phrase.')
    blocks = await errand.seat.store.read(lambda tx: _found(tx, errand))
    errand.place.show("\n\n".join(blocks) or "Nothing was found.")


def _found(tx: Transaction, errand: Errand) -> list[str]:
    reach = reach_of(tx, errand)
    query = SearchQuery(text=errand.words, seen_by=reach.viewer, session_id=reach.only, limit=_HITS)
    return [_block(tx, errand, *group) for group in _by_conversation(tx.search.find(query))[:_CONVERSATIONS]]


def _by_conversation(hits: Sequence[Hit]) -> list[tuple[SessionId, list[Hit]]]:
    """Return the hits of each conversation; the one with the best hit is first."""
    order = {session_id: place for place, session_id in enumerate(dict.fromkeys(hit.session_id for hit in hits))}
    together = sorted(hits, key=lambda hit: order[hit.session_id])
    return [(session_id, list(group)) for session_id, group in groupby(together, key=lambda hit: hit.session_id)]


def _block(tx: Transaction, errand: Errand, session_id: SessionId, hits: Iterable[Hit]) -> str:
    session = tx.sessions.get(session_id)
    assert session is not None
    here = session_id == errand.seat.session_id
    go = "this conversation" if here else way_back(tx, session)
    heading = f"**{plain(name_of(tx, session))}** ({facts(session, SystemClock().now())}): {go}"
    return "\n".join([heading, "", *(f"- {hit.role}: {_marked(hit.snippet)}" for hit in list(hits)[:_SNIPPETS])])


def _marked(snippet: str) -> str:
    """Return a snippet with the words that fit in bold instead of between brackets."""
    return _FOUND.sub(r"**\1**", plain(snippet))


COMMAND = Command(
    name="search",
    category="Session",
    help="Find what was said in your conversations.",
    hint="<words>",
    run=run,
    reads=True,
)
