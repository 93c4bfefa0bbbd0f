"""`talaria sessions export`: sessions as files, or on standard output."""

import argparse
from contextlib import suppress
from functools import partial
from pathlib import Path

from talaria.cli.services import Services
from talaria.cli.session_actions.names import find_session
from talaria.contracts.store import Database
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.errors import NotFound, Refused
from talaria.core.wording import counted, find_zone
from talaria.sessions.transcripts import FORMATS, Transcript, file_name, load_transcript
from talaria.settings.errors import ProfileUnusable
from talaria.settings.files import OWNER_ONLY_FILE, make_folder, write_file


def export_sessions(arguments: argparse.Namespace, services: Services) -> None:
    """Write one session, or every one of them."""
    _check(arguments)
    with services.open_database() as database:
        if arguments.all:
            _export_all(database, arguments, services)
        else:
            _export_one(database, arguments, services)


def _check(arguments: argparse.Namespace) -> None:
    if arguments.all and arguments.session is not None:
        raise Refused("Name a session or add --all, but not both.")
    if not arguments.all and arguments.session is None:
        raise Refused("Which session? Name it by its id or title, or take every one with --all.")
    if arguments.all and arguments.output == "-":
        raise Refused(
            "Into which folder? `talaria sessions export --all --output FOLDER` makes a file of each session."
        )


def _export_one(database: Database, arguments: argparse.Namespace, services: Services) -> None:
    transcript = database.read(lambda store: load_transcript(store, find_session(store, arguments.session).id))
    if arguments.output == "-":
        services.terminal.document(_written(transcript, arguments, services))
        return
    path = Path(arguments.output)
    if path.is_dir():
        path /= file_name(transcript.session, FORMATS[arguments.format][0])
    _write(path, _written(transcript, arguments, services), force=arguments.force)
    services.terminal.note(f"{counted(len(transcript.messages), 'message')} went to {path}.")


def _export_all(database: Database, arguments: argparse.Namespace, services: Services) -> None:
    folder = Path(arguments.output)
    make_folder(folder)
    sessions = database.read(lambda store: store.sessions.find(SessionFilter(archived=None, limit=None)))
    files = {session.id: folder / file_name(session, FORMATS[arguments.format][0]) for session in sessions}
    if not arguments.force:
        _refuse_to_replace(list(files.values()))
    with services.terminal.progress("Exporting", len(files)) as progress:
        for session_id, path in files.items():
            with suppress(NotFound):  # somebody has deleted it meanwhile
                transcript = database.read(partial(load_transcript, session_id=session_id))
                _write(path, _written(transcript, arguments, services), force=arguments.force)
            progress.advance()
    services.terminal.note(f"{counted(len(files), 'session')} went to {folder}.")


def _written(transcript: Transcript, arguments: argparse.Namespace, services: Services) -> str:
    _, write = FORMATS[arguments.format]
    return write(transcript, find_zone(services.settings().cli.time_zone))


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write a file for the owner alone, whole or not at all."""
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
        raise ProfileUnusable(path, "cannot be written", error) from error


def _refuse_to_replace(paths: list[Path]) -> None:
    taken = [path for path in paths if path.exists() or path.is_symlink()]
    if taken:
        more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
        raise Refused(f"{taken[0]}{more} would be replaced; --force does that.")
