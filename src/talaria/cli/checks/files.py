"""Checks of the profile's folder: that it is there, private and ours, with room on its disk."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from talaria.cli.checks.findings import Finding, fault, ok, warning
from talaria.cli.services import Services
from talaria.settings.files import OWNER_ONLY_FILE, OWNER_ONLY_FOLDER
from talaria.settings.load import load
from talaria.settings.profiles import Profile

_MEGABYTE = 1_000_000
_GIGABYTE = 1000 * _MEGABYTE
_FIX = "`talaria doctor --fix` does it."


def look_at_files(services: Services) -> Iterator[Finding]:
    """Report a folder that is missing, and files that others can read or that belong to them."""
    profile = services.profile
    if not profile.exists:
        yield _missing(profile)
        return
    findings = [finding for path in _private_paths(profile) for finding in _look_at_path(path, profile)]
    yield from findings
    if not findings:
        yield ok(f"{profile.folder} is private.")


def look_at_disk(services: Services) -> Iterator[Finding]:
    """Report how much room is left where the profile is."""
    enough = load(services.profile, services.environment).settings.doctor.min_free_megabytes
    place = services.profile.folder
    while not place.is_dir():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free // _MEGABYTE < enough:
        yield warning(
            f"Only {_size(free)} free at {place}.",
            f"Free some space: `doctor.min_free_megabytes` is {enough}. `talaria sessions prune` helps.",
        )
    else:
        yield ok(f"{_size(free)} free at {place}.")


def _size(size: int) -> str:
    return f"{size // _GIGABYTE} GB" if size >= 10 * _GIGABYTE else f"{size // _MEGABYTE:,} MB"


def _missing(profile: Profile) -> Finding:
    def create() -> str:
        profile.prepare()
        return f"{profile.folder} was created."

    if profile.folder.exists():
        return fault(f"{profile.folder} is not a folder.", "Move it away.")
    return warning(
        f"{profile.folder} does not exist yet.", f"Talaria creates it when it is first needed. {_FIX}", create
    )


def _private_paths(profile: Profile) -> list[Path]:
    stores = sorted(profile.folder.glob(f"{profile.database_file.name}*"))
    files = [profile.secrets_file, profile.config_file, *stores]
    return [path for path in (profile.folder, profile.backups_folder, profile.logs_folder, *files) if path.exists()]


def _look_at_path(path: Path, profile: Profile) -> Iterator[Finding]:
    status = path.stat()
    mode, allowed = stat.S_IMODE(status.st_mode), OWNER_ONLY_FOLDER if path.is_dir() else OWNER_ONLY_FILE
    if status.st_uid != os.geteuid():
        yield fault(f"{path} belongs to another user.", f"Give it back: `sudo chown -R $USER {path}`.")
    elif mode & 0o077:
        found = f"Other users can access {path} (mode {mode:04o})."
        repair = f"`chmod {allowed:o} {path}` makes it private. {_FIX}"
        made = fault if path == profile.secrets_file else warning
        yield made(found, repair, lambda: _make_private(path, allowed))
    elif mode & allowed & 0o600 != 0o600:
        found = f"Talaria may not read and write {path} (mode {mode:04o})."
        yield fault(found, f"`chmod {allowed:o} {path}` allows it. {_FIX}", lambda: _make_private(path, allowed))


def _make_private(path: Path, mode: int) -> str:
    path.chmod(mode)
    return f"{path} has mode {mode:04o} now."
