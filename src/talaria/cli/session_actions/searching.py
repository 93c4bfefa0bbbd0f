"""`talaria sessions search`: messages by their words, best first."""

import argparse
import re

from talaria.cli.cells import cell
from talaria.cli.indexing import index_messages
from talaria.cli.services import Services
from talaria.cli.session_actions.names import find_session
from talaria.cli.terminal import Terminal
from talaria.cli.timing import moment
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.contracts.stores.search import Hit, SearchQuery
from talaria.core.wording import ago, find_zone

_MARKED = re.compile(r"\[([^\[\]]+)\]")


def search_messages(arguments: argparse.Namespace, services: Services) -> None:
    """Print each message that fits, with the words around the match."""
    now, zone = SystemClock().now(), find_zone(services.settings().cli.time_zone)
    since, until = moment(arguments.since, now, zone), moment(arguments.until, now, zone)

    def find(store: Transaction) -> list[Hit]:
        return store.search.find(
            SearchQuery(
                text=" ".join(arguments.words),
                source=arguments.source,
                role=arguments.role,
                session_id=find_session(store, arguments.session).id if arguments.session else None,
                since=since,
                until=until,
                limit=arguments.limit,
            )
        )

    with services.open_database() as database:
        index_messages(database, services.terminal)
        hits = database.read(find)
    if arguments.json:
        services.terminal.json(hits)
    elif services.terminal.interactive:
        _print_for_reading(hits, services.terminal)
    else:
        rows = [(hit.session_id, hit.seq, hit.role, hit.at.isoformat(), hit.session_title, hit.snippet) for hit in hits]
        services.terminal.table(("SESSION", "MESSAGE", "ROLE", "AT", "TITLE", "FOUND"), rows)


def _print_for_reading(hits: list[Hit], terminal: Terminal) -> None:
    now = SystemClock().now()
    for hit in hits:
        title = cell(hit.session_title)
        remarks = [*([title] if title else []), f"message {hit.seq}", hit.role, ago(hit.at, now)]
        terminal.line(f"{terminal.styled(hit.session_id, 'cyan')} {terminal.styled('· ' + ' · '.join(remarks), 'dim')}")
        terminal.line(_MARKED.sub(lambda found: _highlighted(found, terminal), cell(hit.snippet)))
        terminal.line()
    if not hits:
        terminal.note("Nothing was found.")


def _highlighted(found: re.Match[str], terminal: Terminal) -> str:
    """Return the word in colour instead of its brackets; with them where there are no colours."""
    styled = terminal.styled(found[1], "bold", "yellow")
    return found[0] if styled == found[1] else styled
