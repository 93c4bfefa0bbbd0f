"""`talaria trust`: let the commands and skills of a project folder take effect, list such folders, revoke one."""

import argparse
from pathlib import Path

from talaria.cli.services import Services
from talaria.core.errors import NotFound, Refused
from talaria.settings.folder_trust import FolderTrust, project_files

_EPILOG = """\
A project can bring commands (.talaria/commands) and skills (.talaria/skills).
They are ignored until you trust the folder, and again after they change.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("action", nargs="?", default=".", metavar="FOLDER | list | revoke", help="what to trust, or do")
    parser.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="the folder to revoke")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    known = FolderTrust(services.profile.folder)
    if arguments.action == "list":
        _list(known, arguments, services)
    elif arguments.action == "revoke":
        if not known.revoke(Path(arguments.folder)):
            raise NotFound(f"{arguments.folder} isn't trusted. `talaria trust list` shows the folders that are.")
        services.terminal.note("Its commands and skills are ignored from now on.")
    else:
        _trust(known, Path(arguments.action), services)
    return 0


def _list(known: FolderTrust, arguments: argparse.Namespace, services: Services) -> None:
    folders = [(folder, known.is_trusted(Path(folder))) for folder in sorted(known.folders())]
    if arguments.json:
        services.terminal.json([{"folder": folder, "unchanged": unchanged} for folder, unchanged in folders])
    else:
        rows = [(folder, "trusted" if unchanged else "changed since, ignored") for folder, unchanged in folders]
        services.terminal.table(("FOLDER", "STATE"), rows)


def _trust(known: FolderTrust, folder: Path, services: Services) -> None:
    if not folder.is_dir():
        raise NotFound(f"There is no folder {folder}.")
    files = project_files(folder)
    if not files:
        raise Refused(f"{folder} has no commands or skills of its own, so there is nothing to trust.")
    for file in files:
        services.terminal.note(f"  {file.relative_to(folder)}")
    services.terminal.note(f"Trusted: {known.trust(folder)}. After a change of these files you'll be asked again.")
