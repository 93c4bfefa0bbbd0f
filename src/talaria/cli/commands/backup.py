"""`talaria backup` and `talaria restore`: a profile as one zip of store rows and files, independent of the engine."""

import argparse
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from talaria import __version__
from talaria.cli.services import Services
from talaria.cli.session_lookup import index_messages
from talaria.contracts.store import Archive, Cell, Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.errors import Refused
from talaria.core.formatting import pluralize
from talaria.settings.atomic_files import make_folder, read_file, write_file

FORMAT = 2  # an older version knows only the first, and would leave out the values
_MANIFEST = "manifest.json"
_decode_columns = msgspec.json.Decoder(list[str]).decode
_decode_row = msgspec.json.Decoder(list[Cell]).decode
OnProgress = Callable[[int], None]
PROFILE_FILES = ("BOOT.md", "SOUL.md")
PROFILE_FOLDERS = ("commands", "hooks", "memory", "personalities", "platforms/webhook", "skills")


class BackupCommand:
    """`talaria backup`: write a profile to one file."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the options."""
        parser.add_argument(
            "file",
            metavar="FILE",
            nargs="?",
            type=Path,
            help="file to write (default: a new one in the profile's folder)",
        )
        parser.add_argument("--with-secrets", action="store_true", help="include the keys and tokens in .env")
        parser.add_argument("--force", action="store_true", help="overwrite an existing file")
        parser.add_argument("--json", action="store_true", help="print JSON")

    @staticmethod
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


class RestoreCommand:
    """`talaria restore`: restore a profile from a backup."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the options."""
        parser.add_argument("file", metavar="FILE", type=Path, help="a file written by `talaria backup`")
        parser.add_argument(
            "--only", choices=("store", "settings"), help="restore only the conversations or only the settings"
        )
        parser.add_argument("--dry-run", action="store_true", help="show the contents and change nothing")
        parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")
        parser.add_argument("--json", action="store_true", help="print JSON")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Restore the backup and print a summary."""
        with open_backup(arguments.file) as backup:
            if arguments.dry_run:
                _show_contents(backup, arguments, services)
                return 0
            done = []
            if arguments.only != "settings":
                done += _restore_store(backup, arguments, services)
            if arguments.only != "store":
                done += _restore_files(backup, services)
        if arguments.json:
            services.terminal.json({"manifest": backup.manifest, "done": done})
            return 0
        for sentence in done:
            services.terminal.line(sentence)
        services.terminal.note("Restart the gateway and open chats to use the restored data.")
        return 0


class BackupManifest(Struct, frozen=True, kw_only=True):
    """Manifest of a backup; ``rows`` counts rows by table, ``files`` lists the profile's files."""

    format: int
    talaria: str
    profile: str
    made_at: datetime
    rows: dict[str, int]
    files: list[str]


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


def write_backup(
    path: Path, manifest: BackupManifest, files: Mapping[str, bytes], tx: Transaction, on_progress: OnProgress
) -> BackupManifest:
    """Write a backup durably and return its manifest; ``path`` appears only when it is complete."""
    partial_file = path.with_name(f".{path.name}.partial")
    try:
        with (
            _open_private(partial_file) as stream,
            zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive,
        ):
            rows = {table: _write_table(archive, tx.archive, table, on_progress) for table in tx.archive.tables()}
            for name, content in files.items():
                archive.writestr(f"profile/{name}", content)
            final_manifest = msgspec.structs.replace(manifest, rows=rows, files=list(files))
            archive.writestr(_MANIFEST, msgspec.json.format(msgspec.json.encode(final_manifest)))
        partial_file.rename(path)
    finally:
        partial_file.unlink(missing_ok=True)
    return final_manifest


@contextmanager
def open_backup(path: Path) -> Iterator["Backup"]:
    """Open a backup; raises `Refused` with the problem if the file is not usable."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = msgspec.json.decode(archive.read(_MANIFEST), type=BackupManifest)
            if manifest.format > FORMAT:
                raise Refused(
                    f"{path} was made by a newer version of Talaria ({manifest.talaria}). Update "
                    "Talaria, then restore it."
                )
            yield Backup(archive, manifest)
    except FileNotFoundError as error:
        raise Refused(f"There is no file {path}.") from error
    except (zipfile.BadZipFile, KeyError, EOFError, msgspec.DecodeError, zlib.error) as error:
        raise Refused(f"{path} isn't a complete Talaria backup ({error}). Nothing was changed.") from error


class Backup:
    """Backup opened for reading."""

    def __init__(self, archive: zipfile.ZipFile, manifest: BackupManifest) -> None:
        self._archive = archive
        self.manifest = manifest

    def file(self, name: str) -> bytes | None:
        """Return the content of a profile file, or ``None`` if the backup does not have it."""
        return self._archive.read(f"profile/{name}") if name in self.manifest.files else None

    def load(self, tx: Transaction, on_progress: OnProgress) -> None:
        """Replace all rows of the store by those of the backup."""
        tx.archive.clear()
        for table in tx.archive.tables():
            if table in self.manifest.rows:
                self._load_table(tx.archive, table, on_progress)
        tx.archive.finish()

    def _load_table(self, target: Archive, table: str, on_progress: OnProgress) -> None:
        with self._archive.open(_get_member_name(table)) as stream:
            columns = _decode_columns(stream.readline())
            unknown = set(columns) - set(target.columns(table))
            if unknown:
                raise Refused(
                    "The backup was made by a newer version of Talaria "
                    f"({self.manifest.talaria}); this one doesn't know {table}.{min(unknown)}. "
                    "Update Talaria, then restore it."
                )
            count = target.load(table, columns, _read_rows(stream, on_progress))
        if count != self.manifest.rows[table]:
            raise Refused(
                f"The backup has only {count} of {self.manifest.rows[table]} rows of {table}. Nothing was changed."
            )


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


def _write_table(archive: zipfile.ZipFile, source: Archive, table: str, on_progress: OnProgress) -> int:
    count = 0
    with archive.open(_get_member_name(table), "w", force_zip64=True) as stream:
        stream.write(msgspec.json.encode(source.columns(table)) + b"\n")
        for row in source.rows(table):
            stream.write(msgspec.json.encode(row) + b"\n")
            on_progress(1)
            count += 1
    return count


def _read_rows(stream: Iterator[bytes], on_progress: OnProgress) -> Iterator[Sequence[Cell]]:
    for line in stream:
        on_progress(1)
        yield _decode_row(line)


def _get_member_name(table: str) -> str:
    return f"store/{table}.jsonl"


@contextmanager
def _open_private(path: Path) -> Iterator[BinaryIO]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w+b") as stream:
        yield stream
        stream.flush()
        os.fsync(descriptor)


def _list_profile_files(folder: Path) -> list[Path]:
    """Return the user's and agent's files: identity, commands, hooks, memories, routes, skills."""
    found = [file for name in PROFILE_FOLDERS for file in sorted((folder / name).rglob("*")) if file.is_file()]
    written = [file for file in found if file.parent.name != "__pycache__"]
    return [*(folder / name for name in PROFILE_FILES), *written]


def _show_contents(backup: Backup, arguments: argparse.Namespace, services: Services) -> None:
    manifest = backup.manifest
    if arguments.json:
        services.terminal.json(manifest)
        return
    services.terminal.line(
        f"{arguments.file} was made on {manifest.made_at:%Y-%m-%d at %H:%M} UTC by Talaria {manifest.talaria}"
        f" from the profile {manifest.profile}: {describe_rows(manifest)}."
    )
    rows = [(table, count) for table, count in manifest.rows.items() if count]
    services.terminal.table(("TABLE", "ROWS"), rows)


def _restore_store(backup: Backup, arguments: argparse.Namespace, services: Services) -> list[str]:
    with services.open_database() as database:
        present = database.read(count_messages)
    done = []
    if present:
        _confirm_replacement(present, backup, arguments, services)
        safety_backup = new_backup_file(services.profile.backups_folder, "before-restore")
        make_backup(services, safety_backup, with_secrets=False)
        done.append(f"The previous data is saved in {safety_backup}.")

    def load(tx: Transaction) -> None:
        with services.terminal.progress("Restoring", sum(backup.manifest.rows.values())) as progress:
            backup.load(tx, progress.advance)

    with services.open_database() as database:
        database.write(load)
        index_messages(database, services.terminal)
    return [f"Restored {describe_rows(backup.manifest)}.", *done]


def _confirm_replacement(present: int, backup: Backup, arguments: argparse.Namespace, services: Services) -> None:
    if arguments.yes:
        return
    question = (
        f"Replace the {present} messages in the profile {services.profile.name} with {describe_rows(backup.manifest)}?"
    )
    if not services.terminal.interactive:
        raise Refused(f"The profile {services.profile.name} isn't empty. Add --yes to replace its contents.")
    if not services.terminal.confirm(question):
        raise Refused("Nothing was changed.")


def _restore_files(backup: Backup, services: Services) -> list[str]:
    done = []
    services.profile.prepare()
    for name in backup.manifest.files:
        target = _resolve_inside(services.profile.folder, name)
        content, present = backup.file(name), read_file(target)
        if content is None or content == present:
            continue
        make_folder(target.parent)
        if present is not None:
            old_copy = target.with_name(f"{target.name}.before-restore")
            write_file(old_copy, present.decode(errors="surrogateescape"))
            done.append(f"The previous {name} is saved as {old_copy}.")
        write_file(target, content.decode(errors="surrogateescape"))
        done.append(f"Restored {name}.")
    return done


def _resolve_inside(folder: Path, name: str) -> Path:
    """Return the target path of a file in a backup; rejects names that lead out of the profile."""
    target = (folder / name).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise Refused(f"The backup contains a file that doesn't belong in a profile: {name}. Nothing more was changed.")
    return target
