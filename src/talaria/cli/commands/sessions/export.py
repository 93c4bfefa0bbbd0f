"""`talaria sessions export`: write sessions to files or standard output."""

import argparse
from contextlib import suppress
from functools import partial
from pathlib import Path

from talaria.cli.services import Services
from talaria.cli.session_lookup import find_session
from talaria.contracts.store import Database
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.errors import NotFound, Refused
from talaria.core.formatting import find_zone, pluralize
from talaria.sessions.transcript_export import FORMATS, Transcript, export_file_name, load_transcript
from talaria.settings.atomic_files import OWNER_ONLY_FILE, make_folder, write_file
from talaria.settings.errors import ProfileUnusable


def export_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Export one session, or all of them."""
    _check_arguments(arguments)
    with services.open_database() as database:
        if arguments.all:
            _export_all(database, arguments, services)
        else:
            _export_one(database, arguments, services)


def _check_arguments(arguments: argparse.Namespace) -> None:
    if arguments.all and arguments.session is not None:
        raise Refused("Name a session or add --all, but not both.")
    if not arguments.all and arguments.session is None:
        raise Refused("Which session? Give its id or title, or export all of them with --all.")
    if arguments.all and arguments.output == "-":
        raise Refused("To which folder? `talaria sessions export --all --output FOLDER` writes one file per session.")


def _export_one(database: Database, arguments: argparse.Namespace, services: Services) -> None:
    transcript = database.read(lambda store: load_transcript(store, find_session(store, arguments.session).id))
    if arguments.output == "-":
        services.terminal.document(_render(transcript, arguments, services))
        return
    path = Path(arguments.output)
    if path.is_dir():
        path /= export_file_name(transcript.session, FORMATS[arguments.format][0])
    _write(path, _render(transcript, arguments, services), force=arguments.force)
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
                _write(path, _render(transcript, arguments, services), force=arguments.force)
            progress.advance()
    services.terminal.note(f"Wrote {pluralize(len(files), 'session')} to {folder}.")


def _render(transcript: Transcript, arguments: argparse.Namespace, services: Services) -> str:
    _, write = FORMATS[arguments.format]
    return write(transcript, find_zone(services.settings().cli.time_zone))


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write a file atomically, readable by the owner only."""
    if force:
        write_file(path, text)
        return
    _reserve(path)
    try:
        write_file(path, text)
    except ProfileUnusable:
        path.unlink(missing_ok=True)
        raise


def _reserve(path: Path) -> None:
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
