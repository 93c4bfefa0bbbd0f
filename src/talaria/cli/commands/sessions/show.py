"""`talaria sessions` actions that read: list, show, search and export."""

import argparse
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Any

from talaria.cli.services import Services
from talaria.cli.session_lookup import find_session, index_messages, resolve_time
from talaria.cli.terminal import Terminal
from talaria.cli.terminal_text import cut, format_cell
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import Hit, SearchQuery, Session, SessionFilter, StoredMessage
from talaria.core.errors import NotFound, Refused
from talaria.core.formatting import find_zone, format_age, format_money, format_time, pluralize
from talaria.core.messages import Message, Text, Usage
from talaria.sessions.titles import find_by_name, read_opening
from talaria.sessions.transcript_export import FORMATS, Transcript, export_file_name, load_transcript, summarize_part
from talaria.settings.atomic_files import OWNER_ONLY_FILE, make_folder, write_file
from talaria.settings.errors import ProfileUnusable


def list_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Print matching sessions, or a hint if there are none."""
    session_filter = SessionFilter(
        matching=arguments.matching.strip(),
        source=arguments.source,
        archived=None if arguments.all else arguments.archived,
        limit=arguments.limit + 1,
    )
    with services.open_database() as database:
        found = database.read(
            lambda store: [(one, read_opening(store, one)) for one in find_by_name(store, session_filter)]
        )
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
            session.title or services.terminal.style(opening, "dim"),
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
        title = format_cell(hit.session_title)
        details = [*([title] if title else []), f"message {hit.seq}", hit.role, format_age(hit.at, now)]
        terminal.line(f"{terminal.style(hit.session_id, 'cyan')} {terminal.style('· ' + ' · '.join(details), 'dim')}")
        terminal.line(_MATCH.sub(lambda found: _highlight(found, terminal), format_cell(hit.snippet)))
        terminal.line()
    if not hits:
        terminal.note("Nothing found.")


def _highlight(found: re.Match[str], terminal: Terminal) -> str:
    """Return a match in colour, or with its brackets if there are no colours."""
    styled = terminal.style(found[1], "bold", "yellow")
    return found[0] if styled == found[1] else styled


def as_data(session: Session) -> dict[str, Any]:
    """Return all fields, including zero counters."""
    fields: dict[str, Any] = {name: getattr(session, name) for name in Session.__struct_fields__}
    return {**fields, "usage": {name: getattr(session.usage, name) for name in Usage.__struct_fields__}}


_COLORS = {"user": "cyan", "assistant": "green", "tool": "yellow", "system": "yellow"}


def show_session(arguments: argparse.Namespace, services: Services) -> None:
    """Print the details of a session and the end of its transcript, or all of it."""

    def read(store: Transaction) -> tuple[Session, list[StoredMessage]]:
        session = find_session(store, arguments.session)
        if arguments.all:
            return session, store.messages.load(session.id)
        return session, store.messages.last(session.id, arguments.last)

    with services.open_database() as database:
        session, messages = database.read(read)
    if arguments.json:
        services.terminal.json({"session": as_data(session), "messages": messages})
        return
    zone = find_zone(services.settings().cli.time_zone)
    _print_details(session, services.terminal, zone)
    _print_transcript(session, messages, services.terminal, zone)


def _print_details(session: Session, terminal: Terminal, zone: tzinfo | None) -> None:
    terminal.line(terminal.style(format_cell(session.title) or "(no title)", "bold"))
    for name, value in _list_details(session, zone):
        if value:
            terminal.line(f"{terminal.style(f'{name:<10}', 'dim')} {format_cell(value)}")


def _list_details(session: Session, zone: tzinfo | None) -> Iterator[tuple[str, str]]:
    now, used = SystemClock().now(), session.usage
    tokens = f"{pluralize(used.input_tokens, 'token')} in, {used.output_tokens} out" if used.calls else ""
    yield "id", session.id
    yield "source", session.source
    yield "owner", session.owner
    yield "model", session.model
    yield "started", format_time(session.created_at, zone)
    yield "last used", f"{format_time(session.updated_at, zone)} ({format_age(session.updated_at, now)})"
    yield "archived", format_time(session.archived_at, zone) if session.archived_at else ""
    yield "branch of", f"{session.parent_id}, message {session.parent_seq}" if session.parent_id else ""
    yield "messages", str(session.message_count)
    yield "used", ", ".join(filter(None, [tokens, format_money(used.cost_microdollars)]))


def _print_transcript(session: Session, messages: list[StoredMessage], terminal: Terminal, zone: tzinfo | None) -> None:
    earlier = messages[0].seq - 1 if messages else 0
    if earlier:
        terminal.line()
        terminal.line(terminal.style(f"… {pluralize(earlier, 'earlier message')}; --all shows everything", "dim"))
    for stored in messages:
        terminal.line()
        terminal.line(_format_heading(session, stored.message, terminal, zone))
        for line in _format_lines(stored.message, terminal):
            terminal.line(line)


def _format_heading(session: Session, message: Message, terminal: Terminal, zone: tzinfo | None) -> str:
    model = message.model if message.model != session.model else ""
    details = " · ".join(filter(None, [format_cell(message.author), format_cell(model), format_time(message.at, zone)]))
    return f"{terminal.style(message.role, _COLORS[message.role], 'bold')} {terminal.style(f'· {details}', 'dim')}"


def _format_lines(message: Message, terminal: Terminal) -> Iterator[str]:
    for part in message.parts:
        if not isinstance(part, Text):
            yield terminal.style(cut(format_cell(summarize_part(part)), terminal.width), "dim")
        elif part.text.strip():
            yield part.text.rstrip()


def export_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Export one session, or all of them."""
    _check_export_arguments(arguments)
    with services.open_database() as database:
        if arguments.all:
            _export_all(database, arguments, services)
        else:
            _export_one(database, arguments, services)


def _check_export_arguments(arguments: argparse.Namespace) -> None:
    if arguments.all and arguments.session is not None:
        raise Refused("Name a session or add --all, but not both.")
    if not arguments.all and arguments.session is None:
        raise Refused("Which session? Give its id or title, or export all of them with --all.")
    if arguments.all and arguments.output == "-":
        raise Refused("To which folder? `talaria sessions export --all --output FOLDER` writes one file per session.")


def _export_one(database: Database, arguments: argparse.Namespace, services: Services) -> None:
    transcript = database.read(lambda store: load_transcript(store, find_session(store, arguments.session).id))
    if arguments.output == "-":
        services.terminal.document(_render_transcript(transcript, arguments, services))
        return
    path = Path(arguments.output)
    if path.is_dir():
        path /= export_file_name(transcript.session, FORMATS[arguments.format][0])
    _write_export(path, _render_transcript(transcript, arguments, services), force=arguments.force)
    services.terminal.note(f"Wrote {pluralize(len(transcript.messages), 'message')} to {path}.")


def _export_all(database: Database, arguments: argparse.Namespace, services: Services) -> None:
    folder = Path(arguments.output)
    make_folder(folder)
    sessions = database.read(lambda store: store.sessions.find(SessionFilter(archived=None, limit=None)))
    files = {session.id: folder / export_file_name(session, FORMATS[arguments.format][0]) for session in sessions}
    if not arguments.force:
        _refuse_to_replace(list(files.values()))
    with services.terminal.progress("Exporting", len(files)) as progress:
        for session_id, path in files.items():
            with suppress(NotFound):  # deleted in the meantime
                transcript = database.read(partial(load_transcript, session_id=session_id))
                _write_export(path, _render_transcript(transcript, arguments, services), force=arguments.force)
            progress.advance()
    services.terminal.note(f"Wrote {pluralize(len(files), 'session')} to {folder}.")


def _render_transcript(transcript: Transcript, arguments: argparse.Namespace, services: Services) -> str:
    _, write = FORMATS[arguments.format]
    return write(transcript, find_zone(services.settings().cli.time_zone))


def _write_export(path: Path, text: str, *, force: bool) -> None:
    """Write a file atomically, readable by the owner only."""
    if force:
        write_file(path, text)
        return
    _reserve_file(path)
    try:
        write_file(path, text)
    except ProfileUnusable:
        path.unlink(missing_ok=True)
        raise


def _reserve_file(path: Path) -> None:
    try:
        path.touch(OWNER_ONLY_FILE, exist_ok=False)
    except FileExistsError:
        _refuse_to_replace([path])
    except OSError as error:
        raise ProfileUnusable(path, "can't be written", error) from error


def _refuse_to_replace(paths: list[Path]) -> None:
    existing = [path for path in paths if path.exists() or path.is_symlink()]
    if existing:
        more = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
        raise Refused(f"{existing[0]}{more} already exists; --force overwrites it.")
