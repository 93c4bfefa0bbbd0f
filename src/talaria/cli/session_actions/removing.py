"""`talaria sessions delete`: sessions that go for good, once somebody has said yes to it."""

import argparse

from talaria.cli.services import Services
from talaria.cli.session_actions.names import called, find_sessions
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import Refused
from talaria.core.wording import counted


def delete_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Remove the sessions that were named, or none of them if one of the names fits none or several."""
    with services.open_database() as database:
        found = database.read(lambda store: find_sessions(store, arguments.sessions))
        if not arguments.yes:
            for session in found:
                services.terminal.line(_described(session))
        if not agreed(f"Delete {counted(len(found), 'session')} for good?", arguments, services):
            return
        gone = database.write(lambda store: [session for session in found if store.sessions.delete(session.id)])
    for session in gone:
        services.forget_outputs(session.id)
        services.terminal.line(f"{called(session)} was deleted, with {counted(session.message_count, 'message')}.")


def agreed(question: str, arguments: argparse.Namespace, services: Services) -> bool:
    """Return whether it may be done; raises `Refused` where nobody is there to be asked and ``--yes`` is missing."""
    if arguments.yes:
        return True
    if not services.terminal.interactive:
        raise Refused(f"Nobody is there to confirm: add --yes to {arguments.action} without being asked.")
    if services.terminal.confirm(question):
        return True
    services.terminal.note("Nothing was deleted.")
    return False


def _described(session: Session) -> str:
    return f"{called(session)}: {counted(session.message_count, 'message')}, from {session.source}"
