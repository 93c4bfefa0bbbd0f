"""Slash command `/search`: search the messages that are visible here."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from talaria.commands.arguments import escape_markdown
from talaria.commands.command import Command, CommandContext
from talaria.commands.session_lookup import describe_session, format_resume_command, get_display_name, get_session_scope
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.contracts.stores.search import Hit, SearchQuery
from talaria.core.errors import Refused
from talaria.core.ids import SessionId

_HIT_LIMIT = 30
_SESSION_LIMIT = 6
_SNIPPET_LIMIT = 3
_MARKED_TEXT = re.compile(r"\\\[((?:[^\[\]\\]|\\[^\[\]])+)\\\]")


async def run_search(context: CommandContext) -> None:
    """Show matching messages by session, best first."""
    if not context.arguments:
        raise Refused(
            'What should I search for? `/search night train` finds messages with both words; use "quotes" for a phrase.'
        )
    blocks = await context.active_session.store.read(lambda tx: _search(tx, context))
    context.surface.show("\n\n".join(blocks) or "Nothing found.")


def _search(tx: Transaction, context: CommandContext) -> list[str]:
    scope = get_session_scope(tx, context)
    query = SearchQuery(
        text=context.arguments, seen_by=scope.viewer, session_id=scope.only_session_id, limit=_HIT_LIMIT
    )
    return [
        _format_session_hits(tx, context, *group) for group in _group_by_session(tx.search.find(query))[:_SESSION_LIMIT]
    ]


def _group_by_session(hits: Sequence[Hit]) -> list[tuple[SessionId, list[Hit]]]:
    """Return the hits of each session, the session with the best hit first."""
    order = {session_id: index for index, session_id in enumerate(dict.fromkeys(hit.session_id for hit in hits))}
    ordered = sorted(hits, key=lambda hit: order[hit.session_id])
    return [(session_id, list(group)) for session_id, group in groupby(ordered, key=lambda hit: hit.session_id)]


def _format_session_hits(tx: Transaction, context: CommandContext, session_id: SessionId, hits: Iterable[Hit]) -> str:
    session = tx.sessions.get(session_id)
    assert session is not None
    here = session_id == context.active_session.session_id
    link = "this conversation" if here else format_resume_command(tx, session)
    name = escape_markdown(get_display_name(tx, session))
    heading = f"**{name}** ({describe_session(session, SystemClock().now())}): {link}"
    return "\n".join(
        [heading, "", *(f"- {hit.role}: {_highlight(hit.snippet)}" for hit in list(hits)[:_SNIPPET_LIMIT])]
    )


def _highlight(snippet: str) -> str:
    """Return a snippet with matches in bold instead of brackets."""
    return _MARKED_TEXT.sub(r"**\1**", escape_markdown(snippet))


SEARCH = Command(
    name="search",
    category="Session",
    help="Search your conversations.",
    hint="<words>",
    run=run_search,
    reads=True,
)
