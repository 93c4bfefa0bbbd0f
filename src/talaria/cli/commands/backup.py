"""`talaria backup`: write a profile to one file."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from talaria import __version__
from talaria.cli.commands.backup_archive import FORMAT, BackupManifest, write_backup
from talaria.cli.services import Services
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.errors import Refused
from talaria.core.formatting import pluralize
from talaria.settings.atomic_files import make_folder, read_file

PROFILE_FILES = ("BOOT.md", "SOUL.md")
PROFILE_FOLDERS = ("commands", "hooks", "memory", "personalities", "platforms/webhook", "skills")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", type=Path, help="file to write (default: a new one in the profile's folder)"
    )
    parser.add_argument("--with-secrets", action="store_true", help="include the keys and tokens in .env")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Write the backup and print its path."""
    path = arguments.file or new_backup_file(services.profile.backups_folder, "talaria")
    if path.exists() and not arguments.force:
        raise Refused(f"{path} already exists. Choose another name, or add --force to overwrite it.")
    manifest = make_backup(services, path, with_secrets=arguments.with_secrets)
    if arguments.json:
        services.terminal.json({"file": path, "manifest": manifest})
        return 0
    services.terminal.line(f"Backed up {describe_rows(manifest)} of the profile {manifest.profile} to {path}.")
    if not arguments.with_secrets and services.profile.secrets_file.exists():
        services.terminal.note("Keys and tokens are not included; --with-secrets includes them.")
    return 0


def make_backup(services: Services, path: Path, *, with_secrets: bool) -> BackupManifest:
    """Write a backup of the current profile as a consistent snapshot, even while others write."""
    profile = services.profile
    sources = [
        profile.config_file,
        *_list_profile_files(profile.folder),
        *([profile.secrets_file] if with_secrets else []),
    ]
    files = {
        source.relative_to(profile.folder).as_posix(): content
        for source in sources
        if (content := read_file(source)) is not None
    }
    manifest = BackupManifest(
        format=FORMAT, talaria=__version__, profile=profile.name, made_at=datetime.now(UTC), rows={}, files=[]
    )

    def write(tx: Transaction) -> BackupManifest:
        with services.terminal.progress("Backing up", count_messages(tx)) as progress:
            return write_backup(path, manifest, files, tx, progress.advance)

    with services.open_database() as database:
        return database.read(write)


def _list_profile_files(folder: Path) -> list[Path]:
    """Return the user's and agent's files: identity, commands, hooks, memories, routes, skills."""
    found = [file for name in PROFILE_FOLDERS for file in sorted((folder / name).rglob("*")) if file.is_file()]
    written = [file for file in found if file.parent.name != "__pycache__"]
    return [*(folder / name for name in PROFILE_FILES), *written]


def count_messages(tx: Transaction) -> int:
    """Return the approximate number of messages; branches count shared messages again."""
    return sum(session.message_count for session in tx.sessions.find(SessionFilter(archived=None, limit=None)))


def new_backup_file(folder: Path, name: str) -> Path:
    """Return an unused file name in a backup folder, which is created if needed."""
    make_folder(folder)
    return folder / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.zip"


def describe_rows(manifest: BackupManifest) -> str:
    """Return a summary of the content of a backup."""
    sessions = pluralize(manifest.rows.get("sessions", 0), "session")
    return f"{sessions} with {pluralize(manifest.rows.get('messages', 0), 'message')}"
