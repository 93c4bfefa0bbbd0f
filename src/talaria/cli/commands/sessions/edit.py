"""`talaria sessions` actions that rename, archive, move, delete and prune sessions."""

import argparse
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from talaria.cli.commands.sessions.show import as_data
from talaria.cli.services import Services
from talaria.cli.session_lookup import find_session, find_sessions, format_session_name
from talaria.contracts.clock import SystemClock
from talaria.contracts.jobs import CRON
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import Session, SessionChanges, SessionFilter
from talaria.core.errors import Refused
from talaria.core.formatting import format_age, format_size, pluralize
from talaria.sessions.chat_directory import address_label

_EMPTY_AFTER = timedelta(days=1)


def rename_session(arguments: argparse.Namespace, services: Services) -> None:
    """Set or remove the title of a session."""
    title = " ".join(" ".join(arguments.title).split())

    def rename(store: Transaction) -> tuple[Session, bool]:
        session = store.sessions.update(find_session(store, arguments.session).id, SessionChanges(title=title))
        matches = store.sessions.find(SessionFilter(matching=title, archived=None)) if title else []
        return session, any(one.id != session.id and one.title.casefold() == title.casefold() for one in matches)

    with services.open_database() as database:
        session, is_duplicate = database.write(rename)
    services.terminal.line(
        f"The title of {session.id} is now “{title}”." if title else f"{session.id} no longer has a title."
    )
    if is_duplicate:
        services.terminal.note("Another session has the same title. Use their ids to tell them apart.")


def archive_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Archive sessions."""
    for session in _set_archived(arguments, services, archived=True):
        services.terminal.line(f"Archived {format_session_name(session)}.")


def unarchive_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Restore archived sessions."""
    for session in _set_archived(arguments, services, archived=False):
        services.terminal.line(f"{format_session_name(session)} is no longer archived.")


def move_session(arguments: argparse.Namespace, services: Services) -> None:
    """Request the handoff and wait for its end; raises `Refused` if the session stays where it is."""
    from talaria.handoff.service import (  # noqa: PLC0415 (loaded for a move: needs asyncio)
        HandoffRequest,
        wait_for_handoff_blocking,
        write_request,
    )

    networks = dict.fromkeys(services.networks().targets(), True)

    def request(tx: Transaction) -> Session:
        session = find_session(tx, arguments.session)
        write_request(tx, HandoffRequest(session.id, arguments.target, immediate=arguments.now), networks)
        return session

    with services.open_database() as database:
        session = database.write(request)
        end = wait_for_handoff_blocking(database, session.id, arguments.timeout)
        if end["state"] != "completed":
            raise Refused(f"{format_session_name(session)} stays where it is: {end['error'] or 'the handoff failed'}.")
        moved, where = database.read(lambda tx: _read_new_address(tx, session))
    if arguments.json:
        services.terminal.json(moved)
    else:
        services.terminal.line(f"{format_session_name(session)} has moved to {where}.")


def delete_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Delete the named sessions; deletes none if a name matches none or several."""
    with services.open_database() as database:
        found = database.read(lambda store: find_sessions(store, arguments.sessions))
        if not arguments.yes:
            for session in found:
                services.terminal.line(_describe_session(session))
        if not confirm_deletion(f"Permanently delete {pluralize(len(found), 'session')}?", arguments, services):
            return
        deleted = database.write(lambda store: [session for session in found if store.sessions.delete(session.id)])
    for session in deleted:
        services.files().delete_outputs(session.id)
        services.terminal.line(
            f"Deleted {format_session_name(session)} with {pluralize(session.message_count, 'message')}."
        )


def prune_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Delete old sessions, or with ``--dry-run`` only list them."""
    with services.open_database() as database:
        found = _measure_candidates(database, _find_old_sessions(database, arguments, services), services)
        if arguments.dry_run or not found:
            _report_pruned(found, arguments, services)
        elif _confirm_pruning(found, arguments, services):
            deleted = _remove_candidates(database, found, services)
            _report_pruned(deleted, arguments, services, done=True)


def confirm_deletion(question: str, arguments: argparse.Namespace, services: Services) -> bool:
    """Return whether the user confirms; raises `Refused` without a terminal and ``--yes``."""
    if arguments.yes:
        return True
    if not services.terminal.interactive:
        raise Refused(f"There is no terminal to ask for confirmation. Add --yes to {arguments.action} without asking.")
    if services.terminal.confirm(question):
        return True
    services.terminal.note("Nothing was deleted.")
    return False


class PruneCandidate(Struct, frozen=True):
    """Session to prune, with the size of its text in bytes."""

    session: Session
    text_bytes: int

    def as_data(self) -> dict[str, Any]:
        """Return the session's fields and the size."""
        return {**as_data(self.session), "text_bytes": self.text_bytes}


class MovedSession(Struct, frozen=True, kw_only=True):
    """Address of a session after its handoff."""

    session_id: str
    platform: str
    chat_id: str
    thread_id: str


def _set_archived(arguments: argparse.Namespace, services: Services, *, archived: bool) -> list[Session]:
    def change(store: Transaction) -> list[Session]:
        found = find_sessions(store, arguments.sessions)
        return [store.sessions.update(session.id, SessionChanges(archived=archived)) for session in found]

    with services.open_database() as database:
        return database.write(change)


def _describe_session(session: Session) -> str:
    return f"{format_session_name(session)}: {pluralize(session.message_count, 'message')}, from {session.source}"


def _find_old_sessions(database: Database, arguments: argparse.Namespace, services: Services) -> list[Session]:
    age = arguments.older_than
    if age is None:
        age = _EMPTY_AFTER if arguments.empty else timedelta(days=services.settings().sessions.prune_after_days)
    session_filter = SessionFilter(
        source=arguments.source,
        updated_before=SystemClock().now() - age,
        archived=None if arguments.include_archived else False,
        limit=None,
    )
    return [
        session
        for session in database.read(lambda store: store.sessions.find(session_filter))
        if (arguments.include_titled or not _is_named(session)) and not (arguments.empty and session.message_count)
    ]


def _is_named(session: Session) -> bool:
    """Return whether a person gave the session its title; scheduled jobs set their own."""
    return bool(session.title) and session.source != CRON


def _measure_candidates(database: Database, sessions: list[Session], services: Services) -> list[PruneCandidate]:
    found = []
    with services.terminal.progress("Checking old sessions", len(sessions)) as progress:
        for session in sessions:
            found.append(PruneCandidate(session, _count_text_bytes(database, session)))
            progress.advance()
    return found


def _count_text_bytes(database: Database, session: Session) -> int:
    """Return the size of a session's own text in bytes, without messages shared with its parent."""
    messages = database.read(lambda store: store.messages.load(session.id, after=session.parent_seq))
    return sum(len(stored.message.text.encode(errors="replace")) for stored in messages)


def _confirm_pruning(found: list[PruneCandidate], arguments: argparse.Namespace, services: Services) -> bool:
    if not arguments.yes and services.terminal.interactive:
        _print_candidates(found, services)
    return confirm_deletion(f"Permanently delete {_summarize(found)}?", arguments, services)


def _remove_candidates(database: Database, found: list[PruneCandidate], services: Services) -> list[PruneCandidate]:
    deleted = []
    with services.terminal.progress("Deleting old sessions", len(found)) as progress:
        for candidate in found:
            if _remove_session(database, candidate.session):
                services.files().delete_outputs(candidate.session.id)
                deleted.append(candidate)
            progress.advance()
    return deleted


def _remove_session(database: Database, listed_session: Session) -> bool:
    """Delete a session, unless it was used, renamed or archived since it was listed."""

    def remove(store: Transaction) -> bool:
        now = store.sessions.get(listed_session.id)
        return (
            now is not None
            and _get_fingerprint(now) == _get_fingerprint(listed_session)
            and store.sessions.delete(listed_session.id)
        )

    return database.write(remove)


def _get_fingerprint(session: Session) -> tuple[datetime, str, datetime | None]:
    return session.updated_at, session.title, session.archived_at


def _report_pruned(
    found: list[PruneCandidate], arguments: argparse.Namespace, services: Services, *, done: bool = False
) -> None:
    if arguments.json:
        services.terminal.json([candidate.as_data() for candidate in found])
    elif done:
        services.terminal.line(f"Deleted {_summarize(found)}.")
    elif found:
        _print_candidates(found, services)
        services.terminal.note(f"Would delete {_summarize(found)}.")
    else:
        services.terminal.note("Nothing to prune.")


def _print_candidates(found: list[PruneCandidate], services: Services) -> None:
    now = SystemClock().now()
    rows = [
        (one.session.id, one.session.title, one.session.source, one.session.message_count, format_size(one.text_bytes),
         format_age(one.session.updated_at, now))
        for one in found
    ]  # fmt: skip
    services.terminal.table(("ID", "TITLE", "SOURCE", "MESSAGES", "TEXT", "LAST USED"), rows)


def _summarize(found: list[PruneCandidate]) -> str:
    messages = sum(candidate.session.message_count - candidate.session.parent_seq for candidate in found)
    text = format_size(sum(candidate.text_bytes for candidate in found))
    return f"{pluralize(len(found), 'session')} with {pluralize(messages, 'message')} ({text} of text)"


def _read_new_address(tx: Transaction, session: Session) -> tuple[MovedSession, str]:
    """Return the address of a session, for programs and for people."""
    (binding, *_) = tx.bindings.of_session(session.id)
    address = binding.address
    moved = MovedSession(
        session_id=session.id, platform=address.platform, chat_id=address.chat_id, thread_id=address.thread_id
    )
    return moved, address_label(tx, address)
