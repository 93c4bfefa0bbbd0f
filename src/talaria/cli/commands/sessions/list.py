"""`talaria sessions` actions that list sessions and search messages."""

import argparse
import re

from talaria.cli.commands.sessions.show import as_data
from talaria.cli.output.terminal import Terminal
from talaria.cli.output.text import cell
from talaria.cli.output.time_args import resolve_time
from talaria.cli.search_index import index_messages
from talaria.cli.services import Services
from talaria.cli.session_lookup import find_session
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Hit, SearchQuery, Session, SessionFilter
from talaria.core.formatting import find_zone, format_age, format_money
from talaria.sessions.titles import find_by_name, opening


def list_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Print matching sessions, or a hint if there are none."""
    session_filter = SessionFilter(
        matching=arguments.matching.strip(),
        source=arguments.source,
        archived=None if arguments.all else arguments.archived,
        limit=arguments.limit + 1,
    )
    with services.open_database() as database:
        found = database.read(lambda store: [(one, opening(store, one)) for one in find_by_name(store, session_filter)])
    shown = found[: arguments.limit]
    if arguments.json:
        services.terminal.json([as_data(session) for session, _ in shown])
    elif shown:
        _print(shown, services)
    if services.terminal.interactive and not arguments.json:
        _print_notes(arguments, services, empty=not found, more=len(found) > len(shown))


def _print(found: list[tuple[Session, str]], services: Services) -> None:
    now = SystemClock().now()
    rows = [
        (
            session.id,
            session.title or services.terminal.styled(opening, "dim"),
            session.source,
            session.message_count,
            format_money(session.usage.cost_microdollars),
            format_age(session.updated_at, now),
        )
        for session, opening in found
    ]
    services.terminal.table(("ID", "TITLE", "SOURCE", "MESSAGES", "COST", "LAST USED"), rows)


def _print_notes(arguments: argparse.Namespace, services: Services, *, empty: bool, more: bool) -> None:
    if more:
        services.terminal.note(f"There are more; `--limit {2 * arguments.limit}` shows more of them.")
    elif empty and (arguments.matching or arguments.source or arguments.archived):
        services.terminal.note("No session matches. `talaria sessions list --all` shows all of them.")
    elif empty:
        services.terminal.note(
            "There are no sessions yet. Write to Talaria to start one. `--all` includes archived "
            "sessions, `-p NAME` shows another profile."
        )


_MATCH = re.compile(r"\[([^\[\]]+)\]")


def search_messages(arguments: argparse.Namespace, services: Services) -> None:
    """Print each matching message with the text around the match."""
    now, zone = SystemClock().now(), find_zone(services.settings().cli.time_zone)
    since, until = resolve_time(arguments.since, now, zone), resolve_time(arguments.until, now, zone)

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
        _print_hits(hits, services.terminal)
    else:
        rows = [(hit.session_id, hit.seq, hit.role, hit.at.isoformat(), hit.session_title, hit.snippet) for hit in hits]
        services.terminal.table(("SESSION", "MESSAGE", "ROLE", "AT", "TITLE", "FOUND"), rows)


def _print_hits(hits: list[Hit], terminal: Terminal) -> None:
    now = SystemClock().now()
    for hit in hits:
        title = cell(hit.session_title)
        details = [*([title] if title else []), f"message {hit.seq}", hit.role, format_age(hit.at, now)]
        terminal.line(f"{terminal.styled(hit.session_id, 'cyan')} {terminal.styled('· ' + ' · '.join(details), 'dim')}")
        terminal.line(_MATCH.sub(lambda found: _highlight(found, terminal), cell(hit.snippet)))
        terminal.line()
    if not hits:
        terminal.note("Nothing found.")


def _highlight(found: re.Match[str], terminal: Terminal) -> str:
    """Return a match in colour, or with its brackets if there are no colours."""
    styled = terminal.styled(found[1], "bold", "yellow")
    return found[0] if styled == found[1] else styled
