"""Profiles: each a folder with its own settings, secrets and store."""

import os
import pwd
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from talaria.core.errors import NotFound, Refused
from talaria.settings.errors import ProfileUnusable
from talaria.settings.faults import unknown
from talaria.settings.files import make_folder, only_writer, read_file, remove_folder, write_file

DEFAULT_NAME = "default"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


def find_home(environment: Mapping[str, str]) -> Path:
    """The folder of everything Talaria keeps: ``TALARIA_HOME``, else ``~/.talaria``."""
    chosen = environment.get("TALARIA_HOME", "")
    person = environment.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    if not chosen:
        return Path(person).absolute() / ".talaria"
    if chosen == "~" or chosen.startswith("~/"):
        return Path(person + chosen[1:]).absolute()
    return Path(chosen).absolute()


@lru_cache(256)
def below(folder: Path, name: str) -> Path:
    """Return a path in a folder; every conversation begins with the same ones."""
    return folder / name


@lru_cache(256)
def _guests(folder: Path, name: str) -> Path:
    return folder.parent.parent / "guests" / name


class Profile(Struct, frozen=True):
    """One profile; its folder may not exist before something is first written."""

    name: str
    folder: Path

    @property
    def config_file(self) -> Path:
        """The settings."""
        return below(self.folder, "config.toml")

    @property
    def secrets_file(self) -> Path:
        """Keys and tokens, for the owner's eyes only."""
        return below(self.folder, ".env")

    @property
    def api_key_file(self) -> Path:
        """The API key that the server created at its first start."""
        return below(self.folder, "api-key")

    @property
    def database_file(self) -> Path:
        """The SQLite store, unless ``store.url`` names another."""
        return below(self.folder, "talaria.db")

    @property
    def backups_folder(self) -> Path:
        """Where backups go unless told otherwise."""
        return below(self.folder, "backups")

    @property
    def logs_folder(self) -> Path:
        """Where logs go."""
        return below(self.folder, "logs")

    @property
    def outputs_folder(self) -> Path:
        """Where outputs of tools are kept that were too long for the model."""
        return below(self.folder, "outputs")

    @property
    def guests_folder(self) -> Path:
        """Where the agent works for others than its owner: outside of the profile, which is closed to them."""
        return _guests(self.folder, self.name)

    @property
    def media_folder(self) -> Path:
        """Where files are kept that people sent, in a folder for each conversation."""
        return below(self.folder, "media")

    @property
    def memory_folder(self) -> Path:
        """Where the agent keeps what it remembers."""
        return below(self.folder, "memory")

    @property
    def skills_folder(self) -> Path:
        """Where the skills of the profile are."""
        return below(self.folder, "skills")

    @property
    def exists(self) -> bool:
        """Whether anything was written to this profile yet."""
        return self.folder.is_dir()

    def prepare(self) -> None:
        """Create the folder, for the owner alone; call it before the first write."""
        make_folder(self.folder)


class Profiles:
    """All profiles of one home; the file ``active`` names the one in use."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._folder = home / "profiles"
        self._active_file = home / "active"

    def list(self) -> tuple[Profile, ...]:
        """Every profile, by name; the one in use is among them even before it has a folder."""
        try:
            found = {path.name for path in self._folder.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()}
        except FileNotFoundError:
            found = set()
        except OSError as error:
            raise ProfileUnusable(self._folder, "cannot be read", error) from error
        return tuple(self._profile(name) for name in sorted({*found, self.active_name()}))

    def get(self, name: str) -> Profile:
        """The profile called ``name``; the default one need not exist yet."""
        profile = self._profile(_valid(name))
        if name == DEFAULT_NAME or profile.exists:
            return profile
        fault = unknown("profile", name, [other.name for other in self.list()])
        raise NotFound(fault.problem + f" `talaria profile create {name}` makes it.")

    def active_name(self) -> str:
        """The name of the profile in use, whether it exists or not."""
        content = read_file(self._active_file)
        if content is None:
            return DEFAULT_NAME
        name = content.decode("utf-8", "replace").strip()
        if not _NAME.fullmatch(name):
            raise Refused(f"{self._active_file} does not name a profile; `talaria profile use NAME` repairs it.")
        return name

    def active(self) -> Profile:
        """The profile in use."""
        name = self.active_name()
        profile = self._profile(name)
        if name == DEFAULT_NAME or profile.exists:
            return profile
        raise NotFound(f"The profile in use, `{name}`, does not exist; choose one with `talaria profile use NAME`.")

    def create(self, name: str) -> Profile:
        """Make an empty profile; it is not put to use by that."""
        profile = self._profile(_valid(name))
        if profile.exists:
            raise Refused(f"The profile `{name}` exists already, in {profile.folder}.")
        profile.prepare()
        return profile

    def use(self, name: str) -> Profile:
        """Make ``name`` the profile in use."""
        with only_writer(self.home):
            profile = self.get(name)
            write_file(self._active_file, name + "\n")
        return profile

    def delete(self, name: str) -> Profile:
        """Remove a profile with everything in it, unless it is the one in use."""
        profile = self._profile(_valid(name))
        with only_writer(self.home):
            if name == self.active_name():
                raise Refused(f"`{name}` is the profile in use; choose another with `talaria profile use NAME` first.")
            if not profile.exists:
                raise NotFound(unknown("profile", name, [other.name for other in self.list()]).problem)
            remove_folder(profile.folder)
        return profile

    def _profile(self, name: str) -> Profile:
        return Profile(name, self._folder / name)


def _valid(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Refused(
            f"`{name}` cannot be the name of a profile: take 1 to 32 lower-case letters, digits, dashes and "
            "underscores, with a letter or digit first."
        )
    return name
