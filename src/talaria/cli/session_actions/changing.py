"""`talaria sessions rename`, `archive` and `unarchive`: what can be changed about a session and changed back."""

import argparse

from talaria.cli.services import Services
from talaria.cli.session_actions.names import called, find_session, find_sessions
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session, SessionChanges, SessionFilter


def rename_session(arguments: argparse.Namespace, services: Services) -> None:
    """Give a session another title, or none."""
    title = " ".join(" ".join(arguments.title).split())

    def rename(store: Transaction) -> tuple[Session, bool]:
        session = store.sessions.update(find_session(store, arguments.session).id, SessionChanges(title=title))
        fitting = store.sessions.find(SessionFilter(matching=title, archived=None)) if title else []
        return session, any(one.id != session.id and one.title.casefold() == title.casefold() for one in fitting)

    with services.open_database() as database:
        session, again = database.write(rename)
    services.terminal.line(f"{session.id} is now called “{title}”." if title else f"{session.id} has no title now.")
    if again:
        services.terminal.note("Another session has this title too: name them by their ids.")


def archive_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Put sessions away."""
    for session in _set_archived(arguments, services, archived=True):
        services.terminal.line(f"{called(session)} is archived.")


def unarchive_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Bring sessions back."""
    for session in _set_archived(arguments, services, archived=False):
        services.terminal.line(f"{called(session)} is not archived any more.")


def _set_archived(arguments: argparse.Namespace, services: Services, *, archived: bool) -> list[Session]:
    def change(store: Transaction) -> list[Session]:
        found = find_sessions(store, arguments.sessions)
        return [store.sessions.update(session.id, SessionChanges(archived=archived)) for session in found]

    with services.open_database() as database:
        return database.write(change)
