"""`talaria trust`: trust the commands and skills of a project folder, list trusted folders, revoke one."""

import argparse
from pathlib import Path

from talaria.cli.services import Services
from talaria.core.errors import NotFound, Refused
from talaria.settings.profiles import FolderTrust, project_files

_EPILOG = """\
A project can contain commands (.talaria/commands) and skills (.talaria/skills).
They are ignored until you trust the folder, and again after they change.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "action", nargs="?", default=".", metavar="FOLDER | list | revoke", help="the folder to trust, or an action"
    )
    parser.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="the folder to revoke")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    folder_trust = FolderTrust(services.profile.folder)
    if arguments.action == "list":
        _list(folder_trust, arguments, services)
    elif arguments.action == "revoke":
        if not folder_trust.revoke(Path(arguments.folder)):
            raise NotFound(f"{arguments.folder} isn't trusted. `talaria trust list` shows the folders that are.")
        services.terminal.note("Its commands and skills are ignored from now on.")
    else:
        _trust(folder_trust, Path(arguments.action), services)
    return 0


def _list(folder_trust: FolderTrust, arguments: argparse.Namespace, services: Services) -> None:
    folders = [(folder, folder_trust.is_trusted(Path(folder))) for folder in sorted(folder_trust.folders())]
    if arguments.json:
        services.terminal.json([{"folder": folder, "unchanged": unchanged} for folder, unchanged in folders])
    else:
        rows = [(folder, "trusted" if unchanged else "changed since then, ignored") for folder, unchanged in folders]
        services.terminal.table(("FOLDER", "STATE"), rows)


def _trust(folder_trust: FolderTrust, folder: Path, services: Services) -> None:
    if not folder.is_dir():
        raise NotFound(f"There is no folder {folder}.")
    files = project_files(folder)
    if not files:
        raise Refused(f"{folder} has no commands or skills of its own, so there is nothing to trust.")
    for file in files:
        services.terminal.note(f"  {file.relative_to(folder)}")
    services.terminal.note(f"Trusted {folder_trust.trust(folder)}. You'll be asked again when these files change.")
