"""`talaria sessions list`: the conversations there are, last used first."""

import argparse

from talaria.cli.services import Services
from talaria.cli.session_actions.figures import as_data
from talaria.contracts.clock import SystemClock
from talaria.contracts.stores.sessions import Session, SessionFilter
from talaria.core.wording import ago, money
from talaria.sessions.naming import find_by_name, opening


def list_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Print those that fit, or what to do where there are none."""
    wanted = SessionFilter(
        matching=arguments.matching.strip(),
        source=arguments.source,
        archived=None if arguments.all else arguments.archived,
        limit=arguments.limit + 1,
    )
    with services.open_database() as database:
        found = database.read(lambda store: [(one, opening(store, one)) for one in find_by_name(store, wanted)])
    shown = found[: arguments.limit]
    if arguments.json:
        services.terminal.json([as_data(session) for session, _ in shown])
    elif shown:
        _print(shown, services)
    if services.terminal.interactive and not arguments.json:
        _remark(arguments, services, empty=not found, more=len(found) > len(shown))


def _print(found: list[tuple[Session, str]], services: Services) -> None:
    now = SystemClock().now()
    rows = [
        (
            session.id,
            session.title or services.terminal.styled(opening, "dim"),
            session.source,
            session.message_count,
            money(session.usage.cost_microdollars),
            ago(session.updated_at, now),
        )
        for session, opening in found
    ]
    services.terminal.table(("ID", "TITLE", "SOURCE", "MESSAGES", "COST", "LAST USED"), rows)


def _remark(arguments: argparse.Namespace, services: Services, *, empty: bool, more: bool) -> None:
    if more:
        services.terminal.note(f"There are more; `--limit {2 * arguments.limit}` shows more of them.")
    elif empty and (arguments.matching or arguments.source or arguments.archived):
        services.terminal.note("No session fits; `talaria sessions list --all` shows every one.")
    elif empty:
        services.terminal.note(
            "There are no sessions here yet: one begins with the first message that you write to Talaria."
            " Archived ones are shown with --all, those of another profile with -p NAME."
        )
