"""`talaria backup`: write everything of a profile into one file."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from talaria import __version__
from talaria.cli.backup_file import FORMAT, Manifest, write_backup
from talaria.cli.services import Services
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.errors import Refused
from talaria.settings.files import make_folder, read_file

KEPT_FILES = ("BOOT.md", "SOUL.md")
KEPT_FOLDERS = ("commands", "hooks", "memory", "personalities", "platforms/webhook", "skills")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="default: a new one in the profile's folder")
    parser.add_argument("--with-secrets", action="store_true", help="put the keys and tokens of .env in as well")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Write the backup and say where it is."""
    path = arguments.file or new_backup_file(services, "talaria")
    if path.exists() and not arguments.force:
        raise Refused(f"{path} is there already. Choose another name, or add --force to overwrite it.")
    manifest = make_backup(services, path, with_secrets=arguments.with_secrets)
    if arguments.json:
        services.terminal.json({"file": path, "manifest": manifest})
        return 0
    services.terminal.line(f"{describe_rows(manifest)} of the profile {manifest.profile} are in {path}.")
    if not arguments.with_secrets and services.profile.secrets_file.exists():
        services.terminal.note("Keys and tokens are not in it; --with-secrets puts them in.")
    return 0


def make_backup(services: Services, path: Path, *, with_secrets: bool) -> Manifest:
    """Write a backup of this run's profile as it is at this moment, whoever else is writing."""
    profile = services.profile
    sources = [profile.config_file, *_own_files(profile.folder), *([profile.secrets_file] if with_secrets else [])]
    files = {
        source.relative_to(profile.folder).as_posix(): content
        for source in sources
        if (content := read_file(source)) is not None
    }
    manifest = Manifest(
        format=FORMAT, talaria=__version__, profile=profile.name, made_at=datetime.now(UTC), rows={}, files=[]
    )

    def write(tx: Transaction) -> Manifest:
        with services.terminal.progress("Backing up", message_count(tx)) as progress:
            return write_backup(path, manifest, files, tx, progress.advance)

    with services.open_database() as database:
        return database.read(write)


def _own_files(folder: Path) -> list[Path]:
    """Return what a person and their agent have written down: identity, commands, hooks, memories, routes, skills."""
    found = [file for name in KEPT_FOLDERS for file in sorted((folder / name).rglob("*")) if file.is_file()]
    written = [file for file in found if file.parent.name != "__pycache__"]
    return [*(folder / name for name in KEPT_FILES), *written]


def message_count(tx: Transaction) -> int:
    """Return about how many messages there are: branches count what they share again."""
    return sum(session.message_count for session in tx.sessions.find(SessionFilter(archived=None, limit=None)))


def new_backup_file(services: Services, name: str) -> Path:
    """Return a file name in the profile's folder of backups that nobody has yet."""
    make_folder(services.profile.backups_folder)
    return services.profile.backups_folder / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.zip"


def describe_rows(manifest: Manifest) -> str:
    """Return what is in a backup, in words."""
    return f"{manifest.rows.get('sessions', 0)} sessions with {manifest.rows.get('messages', 0)} messages"
