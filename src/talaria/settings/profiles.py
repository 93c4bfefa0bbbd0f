"""Profiles: where the settings, secrets and data of a person live, and which project folders they trust."""

import hashlib
import os
import pwd
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.core.errors import NotFound, Refused
from talaria.settings.atomic_files import lock_folder, make_folder, read_file, remove_folder, write_file
from talaria.settings.errors import ProfileUnusable, build_unknown_fault


class Identity(Struct, frozen=True, kw_only=True):
    """Version, profile and files of the running program."""

    version: str
    profile: str
    folder: Path
    store: str
    log_file: Path


_PROJECT_FOLDER = ".talaria"
PROJECT_FILES = (f"{_PROJECT_FOLDER}/commands", f"{_PROJECT_FOLDER}/skills")
_MAX_FILES = 2_000
_MAX_BYTES = 20_000_000
_decode = msgspec.json.Decoder(dict[str, str]).decode


class UnreadableFolder(Refused):
    """Error for a folder whose commands and skills cannot be read or are too many."""


class FolderTrust:
    """Trusted folders of the profile in this folder."""

    def __init__(self, profile: Path) -> None:
        self._file = join_path(profile, "trusted-folders.json")

    def folders(self) -> Mapping[str, str]:
        """Return the digest of each trusted folder by its real path."""
        try:
            return _decode(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            raise Refused(f"Can't read {self._file}. Delete it and trust your folders again.") from error

    def is_trusted(self, folder: Path) -> bool:
        """Return whether the owner has trusted the current files of a folder; true if it has none."""
        try:
            files = find_project_files(folder)
            return not files or self.folders().get(os.path.realpath(folder)) == compute_digest(folder)
        except UnreadableFolder:
            return False

    def notice(self, folder: Path) -> str:
        """Return a notice for a folder whose files are ignored; empty if it is trusted."""
        if self.is_trusted(folder):
            return ""
        return f"Commands and skills in {folder} are ignored until you trust them: `talaria trust {folder}`."

    def trust(self, folder: Path, digest: str = "") -> str:
        """Trust a folder in its current state, or with this digest, and return its real path."""
        real_path = os.path.realpath(folder)
        self._write({**self.folders(), real_path: digest or compute_digest(folder)})
        return real_path

    def revoke(self, folder: Path) -> bool:
        """Revoke trust in a folder; ``False`` if it was not trusted."""
        known, real_path = dict(self.folders()), os.path.realpath(folder)
        if known.pop(real_path, None) is None:
            return False
        self._write(known)
        return True

    def _write(self, known: Mapping[str, str]) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._file.with_suffix(".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(known)))
        draft.replace(self._file)


def find_project_files(folder: Path) -> list[Path]:
    """Return the files of a project that would take effect, sorted."""
    found: list[Path] = []
    if not os.path.lexists(f"{folder}/{_PROJECT_FOLDER}"):
        return found
    for path in chain.from_iterable(_list_files(folder / root) for root in PROJECT_FILES):
        found += [path] if path.is_file() else []
        if len(found) > _MAX_FILES:
            raise UnreadableFolder(f"{folder} has more than {_MAX_FILES:,} files in {' and '.join(PROJECT_FILES)}.")
    return sorted(found)


def compute_digest(folder: Path) -> str:
    """Return a digest of the names and contents of those files."""
    digest, remaining = hashlib.sha256(), _MAX_BYTES
    for path in find_project_files(folder):
        try:
            content = path.read_bytes() if path.stat().st_size <= remaining else None
        except OSError as error:
            raise UnreadableFolder(f"Can't read {path}: {error.strerror}.") from error
        if content is None:
            raise UnreadableFolder(f"{folder} has more than {_MAX_BYTES:,} bytes in {' and '.join(PROJECT_FILES)}.")
        remaining -= len(content)
        digest.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def _list_files(root: Path) -> Iterator[Path]:
    """Yield the files below a folder; follows links, which may form cycles."""
    for count, (folder, _, names) in enumerate(os.walk(root, followlinks=True)):
        if count > _MAX_FILES:
            raise UnreadableFolder(f"{root} has more than {_MAX_FILES:,} folders, or circular links.")
        yield from (Path(folder, name) for name in names)


DEFAULT_NAME = "default"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


def find_home(environment: Mapping[str, str]) -> Path:
    """Return the folder of all profiles: ``TALARIA_HOME``, else ``~/.talaria``."""
    chosen = environment.get("TALARIA_HOME", "")
    user_home = environment.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    if not chosen:
        return Path(user_home).absolute() / ".talaria"
    if chosen == "~" or chosen.startswith("~/"):
        return Path(user_home + chosen[1:]).absolute()
    return Path(chosen).absolute()


@lru_cache(256)
def join_path(folder: Path, name: str) -> Path:
    """Return a path in a folder; cached, because every session uses the same paths."""
    return folder / name


@lru_cache(256)
def _get_guest_folder(folder: Path, name: str) -> Path:
    return folder.parent.parent / "guests" / name


class Profile(Struct, frozen=True):
    """Profile; its folder may not exist until something is written."""

    name: str
    folder: Path

    @property
    def config_file(self) -> Path:
        """Settings file."""
        return join_path(self.folder, "config.toml")

    @property
    def secrets_file(self) -> Path:
        """Keys and tokens, readable by the owner only."""
        return join_path(self.folder, ".env")

    @property
    def api_key_file(self) -> Path:
        """API key that the server created at its first start."""
        return join_path(self.folder, "api-key")

    @property
    def database_file(self) -> Path:
        """SQLite store, unless ``store.url`` names another."""
        return join_path(self.folder, "talaria.db")

    @property
    def backups_folder(self) -> Path:
        """Default folder of backups."""
        return join_path(self.folder, "backups")

    @property
    def logs_folder(self) -> Path:
        """Folder of logs."""
        return join_path(self.folder, "logs")

    @property
    def outputs_folder(self) -> Path:
        """Folder of tool outputs that were too long for the model."""
        return join_path(self.folder, "outputs")

    @property
    def guests_folder(self) -> Path:
        """Working folder for guests, outside the profile, which they cannot access."""
        return _get_guest_folder(self.folder, self.name)

    @property
    def browsers_folder(self) -> Path:
        """Folder of the browsers of sessions."""
        return join_path(self.folder, "browsers")

    @property
    def media_folder(self) -> Path:
        """Folder of received files, with a subfolder for each session."""
        return join_path(self.folder, "media")

    @property
    def memory_folder(self) -> Path:
        """Folder of the agent's memory."""
        return join_path(self.folder, "memory")

    @property
    def checkpoints_folder(self) -> Path:
        """Folder of checkpoints, with a repository for each workspace."""
        return join_path(self.folder, "checkpoints")

    @property
    def skills_folder(self) -> Path:
        """Folder of the profile's skills."""
        return join_path(self.folder, "skills")

    @property
    def exists(self) -> bool:
        """Return whether anything has been written to this profile."""
        return self.folder.is_dir()

    def prepare(self) -> None:
        """Create the folder, accessible by the owner only; call before the first write."""
        make_folder(self.folder)


class Profiles:
    """All profiles of one home; the file ``active`` names the active one."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._folder = home / "profiles"
        self._active_file = home / "active"

    def list(self) -> tuple[Profile, ...]:
        """Return all profiles by name; includes the active one even without a folder."""
        try:
            found = {path.name for path in self._folder.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()}
        except FileNotFoundError:
            found = set()
        except OSError as error:
            raise ProfileUnusable(self._folder, "can't be read", error) from error
        return tuple(self._build_profile(name) for name in sorted({*found, self.active_name()}))

    def get(self, name: str) -> Profile:
        """Return the profile ``name``; the default one need not exist."""
        profile = self._build_profile(_check_name(name))
        if name == DEFAULT_NAME or profile.exists:
            return profile
        fault = build_unknown_fault("profile", name, [other.name for other in self.list()])
        raise NotFound(fault.problem + f" `talaria profile create {name}` creates it.")

    def active_name(self) -> str:
        """Name of the active profile, whether it exists or not."""
        content = read_file(self._active_file)
        if content is None:
            return DEFAULT_NAME
        name = content.decode("utf-8", "replace").strip()
        if not _NAME.fullmatch(name):
            raise Refused(f"{self._active_file} doesn't name a profile. Fix it with `talaria profile use NAME`.")
        return name

    def active(self) -> Profile:
        """Return the active profile."""
        name = self.active_name()
        profile = self._build_profile(name)
        if name == DEFAULT_NAME or profile.exists:
            return profile
        raise NotFound(f"The active profile, `{name}`, doesn't exist. Choose another with `talaria profile use NAME`.")

    def create(self, name: str) -> Profile:
        """Create an empty profile, without making it active."""
        profile = self._build_profile(_check_name(name))
        if profile.exists:
            raise Refused(f"The profile `{name}` already exists in {profile.folder}.")
        profile.prepare()
        return profile

    def use(self, name: str) -> Profile:
        """Make ``name`` the active profile."""
        with lock_folder(self.home):
            profile = self.get(name)
            write_file(self._active_file, name + "\n")
        return profile

    def delete(self, name: str) -> Profile:
        """Delete a profile with all its content, unless it is active."""
        profile = self._build_profile(_check_name(name))
        with lock_folder(self.home):
            if name == self.active_name():
                raise Refused(f"`{name}` is the active profile. Choose another with `talaria profile use NAME` first.")
            if not profile.exists:
                raise NotFound(build_unknown_fault("profile", name, [other.name for other in self.list()]).problem)
            remove_folder(profile.folder)
        return profile

    def _build_profile(self, name: str) -> Profile:
        return Profile(name, self._folder / name)


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Refused(
            f"`{name}` isn't a valid profile name. Use 1 to 32 lower-case letters, digits, dashes and underscores, "
            "starting with a letter or digit."
        )
    return name
