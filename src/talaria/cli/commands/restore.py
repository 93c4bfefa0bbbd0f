"""`talaria restore`: restore a profile from a backup."""

import argparse
from pathlib import Path

from talaria.cli.commands.backup import count_messages, describe_rows, make_backup, new_backup_file
from talaria.cli.commands.backup_archive import Backup, open_backup
from talaria.cli.services import Services
from talaria.cli.session_lookup import index_messages
from talaria.contracts.store import Transaction
from talaria.core.errors import Refused
from talaria.settings.atomic_files import make_folder, read_file, write_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("file", metavar="FILE", type=Path, help="a file written by `talaria backup`")
    parser.add_argument(
        "--only", choices=("store", "settings"), help="restore only the conversations or only the settings"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the contents and change nothing")
    parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Restore the backup and print a summary."""
    with open_backup(arguments.file) as backup:
        if arguments.dry_run:
            _show(backup, arguments, services)
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


def _show(backup: Backup, arguments: argparse.Namespace, services: Services) -> None:
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
        _confirm(present, backup, arguments, services)
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


def _confirm(present: int, backup: Backup, arguments: argparse.Namespace, services: Services) -> None:
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
