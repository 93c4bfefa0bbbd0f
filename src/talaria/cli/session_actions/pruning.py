"""`talaria sessions prune`: find the sessions that nobody has used for long, and remove them."""

import argparse
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from talaria.cli.services import Services
from talaria.cli.session_actions.figures import as_data
from talaria.cli.session_actions.removing import agreed
from talaria.contracts.clock import SystemClock
from talaria.contracts.schedules import CRON
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import Session, SessionFilter
from talaria.core.wording import ago, counted, size

_EMPTY_AFTER = timedelta(days=1)


class Candidate(Struct, frozen=True):
    """A session that may go, and how much text goes with it, in bytes."""

    session: Session
    text_bytes: int

    def as_data(self) -> dict[str, Any]:
        """Return the session's fields and the size."""
        return {**as_data(self.session), "text_bytes": self.text_bytes}


def prune_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Remove what is old enough, or with ``--dry-run`` only list it."""
    with services.open_database() as database:
        found = _measured(database, _old_sessions(database, arguments, services), services)
        if arguments.dry_run or not found:
            _report(found, arguments, services)
        elif _confirmed(found, arguments, services):
            gone = _removed(database, found, services)
            _report(gone, arguments, services, done=True)


def _old_sessions(database: Database, arguments: argparse.Namespace, services: Services) -> list[Session]:
    age = arguments.older_than
    if age is None:
        age = _EMPTY_AFTER if arguments.empty else timedelta(days=services.settings().sessions.prune_after_days)
    wanted = SessionFilter(
        source=arguments.source,
        updated_before=SystemClock().now() - age,
        archived=None if arguments.include_archived else False,
        limit=None,
    )
    return [
        session
        for session in database.read(lambda store: store.sessions.find(wanted))
        if (arguments.include_titled or not _is_named(session)) and not (arguments.empty and session.message_count)
    ]


def _is_named(session: Session) -> bool:
    """Return whether somebody gave it its title: those of scheduled jobs come by themselves."""
    return bool(session.title) and session.source != CRON


def _measured(database: Database, sessions: list[Session], services: Services) -> list[Candidate]:
    found = []
    with services.terminal.progress("Looking at old sessions", len(sessions)) as progress:
        for session in sessions:
            found.append(Candidate(session, _text_bytes(database, session)))
            progress.advance()
    return found


def _text_bytes(database: Database, session: Session) -> int:
    """Return the size of what goes with a session: not of the past that a branch shares with its parent."""
    messages = database.read(lambda store: store.messages.load(session.id, after=session.parent_seq))
    return sum(len(stored.message.text.encode(errors="replace")) for stored in messages)


def _confirmed(found: list[Candidate], arguments: argparse.Namespace, services: Services) -> bool:
    if not arguments.yes and services.terminal.interactive:
        _print(found, services)
    return agreed(f"Delete {_sum(found)} for good?", arguments, services)


def _removed(database: Database, found: list[Candidate], services: Services) -> list[Candidate]:
    gone = []
    with services.terminal.progress("Removing old sessions", len(found)) as progress:
        for candidate in found:
            if _remove(database, candidate.session):
                services.forget_outputs(candidate.session.id)
                gone.append(candidate)
            progress.advance()
    return gone


def _remove(database: Database, listed: Session) -> bool:
    """Delete a session unless somebody has used, named or archived it since it was listed."""

    def remove(store: Transaction) -> bool:
        now = store.sessions.get(listed.id)
        return now is not None and _state(now) == _state(listed) and store.sessions.delete(listed.id)

    return database.write(remove)


def _state(session: Session) -> tuple[datetime, str, datetime | None]:
    return session.updated_at, session.title, session.archived_at


def _report(found: list[Candidate], arguments: argparse.Namespace, services: Services, *, done: bool = False) -> None:
    if arguments.json:
        services.terminal.json([candidate.as_data() for candidate in found])
    elif done:
        services.terminal.line(f"Deleted {_sum(found)}.")
    elif found:
        _print(found, services)
        services.terminal.note(f"{_sum(found)} would be deleted.")
    else:
        services.terminal.note("There is nothing to prune.")


def _print(found: list[Candidate], services: Services) -> None:
    now = SystemClock().now()
    rows = [
        (one.session.id, one.session.title, one.session.source, one.session.message_count, size(one.text_bytes),
         ago(one.session.updated_at, now))
        for one in found
    ]  # fmt: skip
    services.terminal.table(("ID", "TITLE", "SOURCE", "MESSAGES", "TEXT", "LAST USED"), rows)


def _sum(found: list[Candidate]) -> str:
    messages = sum(candidate.session.message_count - candidate.session.parent_seq for candidate in found)
    text = size(sum(candidate.text_bytes for candidate in found))
    return f"{counted(len(found), 'session')} with {counted(messages, 'message')} ({text} of text)"
