"""Checks of the profile: access rules, settings, secrets, files and disk space."""

import os
import shutil
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from talaria.access.api_keys import ENVIRONMENT_KEY, check_strength
from talaria.access.policy import list_open_access, list_unknown_names
from talaria.cli.commands.doctor.report import Finding, fault, ok, warning
from talaria.cli.services import Services
from talaria.core.errors import Refused
from talaria.settings.atomic_files import OWNER_ONLY_FILE, OWNER_ONLY_FOLDER
from talaria.settings.errors import SettingsInvalid
from talaria.settings.load import load
from talaria.settings.profiles import Profile
from talaria.settings.secrets import Secrets, mask, read_secrets


def check_access(services: Services) -> Iterator[Finding]:
    """Report access that is open to strangers, and unknown names in access rules."""
    try:
        settings = services.settings()
    except SettingsInvalid:
        yield warning("Not checked, because the settings have faults.", "Fix the settings first.")
        return
    unknown = list(list_unknown_names(settings))
    for sentence in unknown:
        yield fault(sentence, "Open the file with `talaria config edit`.")
    open_networks = list(list_open_access(settings))
    for sentence in open_networks:
        yield warning(sentence, "Turn it off and approve people one by one: `talaria pairing list`.")
    yield from _check_keyless(services)
    yield from _check_routes(services)
    if not unknown and not open_networks:
        yield ok("Only people you approve can talk to the agent in chats.")


def _check_keyless(services: Services) -> Iterator[Finding]:
    """Report that programs on this machine need no API key."""
    if services.settings().api.keyless:
        found = "Programs on this machine can chat with the agent over the API without a key: `api.keyless` is on."
        yield warning(found, "`talaria config unset api.keyless` requires a key for every request.")


def _check_routes(services: Services) -> Iterator[Finding]:
    """Report problems of webhook routes."""
    network = services.settings().platforms.get("webhook")
    if network is None or not network.enabled:
        return
    try:
        routes = services.networks().webhooks().routes()
    except Refused as error:
        yield fault(str(error), "Open the file with `talaria config edit`.")
        return
    for one in routes:
        if one.problem:
            yield fault(
                f"The webhook {one.name} doesn't work: {one.problem}", "`talaria webhook list` shows all of them."
            )


def check_settings(services: Services) -> Iterator[Finding]:
    """Report all faults of the settings."""
    faults = load(services.profile, services.environment).faults
    file = services.profile.config_file
    for one in faults:
        yield fault(str(one), "Open the file with `talaria config edit`." if one.file == str(file) else "")
    if not faults:
        yield ok(
            f"No problems in {file}." if file.exists() else f"All settings are at their defaults; {file} doesn't exist."
        )


def check_keys(services: Services) -> Iterator[Finding]:
    """Report the secrets that are set, and faults of their file."""
    secrets = read_secrets(services.profile, services.environment)
    for one in secrets.faults:
        if one.expected != f"mode {OWNER_ONLY_FILE:04o}":  # reported, and repaired, by the check of the files
            yield fault(str(one), f"Edit {services.profile.secrets_file}.")
    for name in secrets.names():
        yield _check_key(name, secrets)
    if not secrets.names():
        yield ok("No keys or tokens are set.")


def _check_key(name: str, secrets: Secrets) -> Finding:
    value = secrets.get(name) or ""
    try:
        if name == ENVIRONMENT_KEY:
            check_strength(value)
    except Refused as error:
        return fault(str(error), "The API doesn't accept it.")
    return ok(f"{name} {mask(value)}, from {secrets.locate(name)}.")


_MEGABYTE = 1_000_000
_GIGABYTE = 1000 * _MEGABYTE
_MAX_PATHS = 50_000
_FIX = "`talaria doctor --fix` does this for you."


def check_files(services: Services) -> Iterator[Finding]:
    """Report a missing folder, and files that are readable or owned by others."""
    profile = services.profile
    if not profile.exists:
        yield _report_missing(profile)
        return
    findings = [finding for path in _list_private_paths(profile) for finding in _check_path(path, profile)]
    findings += _check_writable(profile.folder)
    findings += _check_inner_paths(profile)
    yield from findings
    if not findings:
        yield ok(f"{profile.folder} is private.")


def check_disk(services: Services) -> Iterator[Finding]:
    """Report the free space on the profile's disk."""
    minimum = load(services.profile, services.environment).settings.doctor.min_free_megabytes
    folder = services.profile.folder
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < _MEGABYTE:
        yield fault(f"The disk of {folder} is full, so nothing can be saved.", "Free some space.")
    elif free // _MEGABYTE < minimum:
        yield warning(
            f"Only {_format_size(free)} free at {folder}.",
            f"Free some space; `doctor.min_free_megabytes` is {minimum}. `talaria sessions prune` helps.",
        )
    else:
        yield ok(f"{_format_size(free)} free at {folder}.")


def _format_size(size: int) -> str:
    return f"{size // _GIGABYTE} GB" if size >= 10 * _GIGABYTE else f"{size // _MEGABYTE:,} MB"


def _check_writable(folder: Path) -> list[Finding]:
    """Report a read-only file system; file permissions are reported for each file."""
    if not os.statvfs(folder).f_flag & os.ST_RDONLY:
        return []
    return [fault(f"{folder} is on a read-only file system.", "Mount it writable; until then nothing can be saved.")]


def _report_missing(profile: Profile) -> Finding:
    def create() -> str:
        profile.prepare()
        return f"Created {profile.folder}."

    if profile.folder.exists():
        return fault(f"{profile.folder} isn't a folder.", "Move it out of the way.")
    return warning(f"{profile.folder} doesn't exist yet.", f"It is created when it is first needed. {_FIX}", create)


def _list_private_paths(profile: Profile) -> list[Path]:
    stores = sorted(profile.folder.glob(f"{profile.database_file.name}*"))
    files = [profile.secrets_file, profile.api_key_file, profile.config_file, *stores]
    return [path for path in (profile.folder, profile.backups_folder, profile.logs_folder, *files) if path.exists()]


def _check_inner_paths(profile: Profile) -> Iterator[Finding]:
    """Report, in one sentence, all other files that others could read if the folder were open."""
    named = set(_list_private_paths(profile))
    open_paths = [path for path in _walk_paths(profile.folder) if path not in named and _is_open(path)]
    if open_paths:
        more = f" and {len(open_paths) - 1} more files and folders" if len(open_paths) > 1 else ""
        found = f"Other users could read {open_paths[0]}{more} if the profile's folder were open."
        yield warning(found, f"Private modes are 0600 and 0700. {_FIX}", lambda: _make_all_private(open_paths))


def _walk_paths(folder: Path) -> Iterator[Path]:
    """Yield files and folders, up to a limit; links are not followed."""
    found = (Path(parent, name) for parent, folders, files in os.walk(folder) for name in (*folders, *files))
    return islice((path for path in found if not path.is_symlink()), _MAX_PATHS)


def _is_open(path: Path) -> bool:
    mode = path.lstat().st_mode
    return bool(mode & 0o077) and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _make_all_private(paths: list[Path]) -> str:
    for path in paths:
        path.chmod(path.stat().st_mode & 0o700)
    return f"Made {len(paths)} files and folders private."


def _check_path(path: Path, profile: Profile) -> Iterator[Finding]:
    status = path.stat()
    mode, allowed = stat.S_IMODE(status.st_mode), OWNER_ONLY_FOLDER if path.is_dir() else OWNER_ONLY_FILE
    if status.st_uid != os.geteuid():
        yield fault(f"{path} belongs to another user.", f"Take ownership: `sudo chown -R $USER {path}`.")
    elif mode & 0o077:
        found = f"Other users can access {path} (mode {mode:04o})."
        repair = f"`chmod {allowed:o} {path}` makes it private. {_FIX}"
        report = fault if path in (profile.secrets_file, profile.api_key_file) else warning
        yield report(found, repair, lambda: _make_private(path, allowed))
    elif mode & allowed & 0o600 != 0o600:
        found = f"Talaria can't read and write {path} (mode {mode:04o})."
        yield fault(found, f"`chmod {allowed:o} {path}` fixes it. {_FIX}", lambda: _make_private(path, allowed))


def _make_private(path: Path, mode: int) -> str:
    path.chmod(mode)
    return f"Set {path} to mode {mode:04o}."
