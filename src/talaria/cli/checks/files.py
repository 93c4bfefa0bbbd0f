"""Checks of the profile's folder: that it is there, private and ours, with room on its disk."""

import os
import shutil
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from talaria.cli.checks.findings import Finding, fault, ok, warning
from talaria.cli.services import Services
from talaria.settings.files import OWNER_ONLY_FILE, OWNER_ONLY_FOLDER
from talaria.settings.load import load
from talaria.settings.profiles import Profile

_MEGABYTE = 1_000_000
_GIGABYTE = 1000 * _MEGABYTE
_MOST_PATHS = 50_000
_FIX = "`talaria doctor --fix` does it."


def look_at_files(services: Services) -> Iterator[Finding]:
    """Report a folder that is missing, and files that others can read or that belong to them."""
    profile = services.profile
    if not profile.exists:
        yield _missing(profile)
        return
    findings = [finding for path in _private_paths(profile) for finding in _look_at_path(path, profile)]
    findings += _look_at_writing(profile.folder)
    findings += _look_inside(profile)
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


def _look_at_writing(folder: Path) -> list[Finding]:
    """Report a read-only file system: who may write is a matter of modes, reported for each file."""
    if not os.statvfs(folder).f_flag & os.ST_RDONLY:
        return []
    return [fault(f"{folder} is on a read-only file system.", "Mount it for writing; until then it can only be read.")]


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
    files = [profile.secrets_file, profile.api_key_file, profile.config_file, *stores]
    return [path for path in (profile.folder, profile.backups_folder, profile.logs_folder, *files) if path.exists()]


def _look_inside(profile: Profile) -> Iterator[Finding]:
    """Report in one sentence all other files of the profile that others could read if its folder were open."""
    named = set(_private_paths(profile))
    open_paths = [path for path in _inside(profile.folder) if path not in named and _is_open(path)]
    if open_paths:
        more = f", and {len(open_paths) - 1} more files and folders," if len(open_paths) > 1 else ""
        found = f"{open_paths[0]}{more} could be read by others if the profile's folder were open."
        yield warning(found, f"Private are 0600 and 0700. {_FIX}", lambda: _make_all_private(open_paths))


def _inside(folder: Path) -> Iterator[Path]:
    """Yield files and folders, the first of very many; links are not followed."""
    found = (Path(place, name) for place, folders, files in os.walk(folder) for name in (*folders, *files))
    return islice((path for path in found if not path.is_symlink()), _MOST_PATHS)


def _is_open(path: Path) -> bool:
    mode = path.lstat().st_mode
    return bool(mode & 0o077) and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _make_all_private(paths: list[Path]) -> str:
    for path in paths:
        path.chmod(path.stat().st_mode & 0o700)
    return f"{len(paths)} files and folders are private now."


def _look_at_path(path: Path, profile: Profile) -> Iterator[Finding]:
    status = path.stat()
    mode, allowed = stat.S_IMODE(status.st_mode), OWNER_ONLY_FOLDER if path.is_dir() else OWNER_ONLY_FILE
    if status.st_uid != os.geteuid():
        yield fault(f"{path} belongs to another user.", f"Give it back: `sudo chown -R $USER {path}`.")
    elif mode & 0o077:
        found = f"Other users can access {path} (mode {mode:04o})."
        repair = f"`chmod {allowed:o} {path}` makes it private. {_FIX}"
        made = fault if path in (profile.secrets_file, profile.api_key_file) else warning
        yield made(found, repair, lambda: _make_private(path, allowed))
    elif mode & allowed & 0o600 != 0o600:
        found = f"Talaria may not read and write {path} (mode {mode:04o})."
        yield fault(found, f"`chmod {allowed:o} {path}` allows it. {_FIX}", lambda: _make_private(path, allowed))


def _make_private(path: Path, mode: int) -> str:
    path.chmod(mode)
    return f"{path} has mode {mode:04o} now."
