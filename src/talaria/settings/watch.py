"""Notice, in a process that runs for long, that the files of its profile have changed."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from talaria.settings.errors import SettingsInvalid
from talaria.settings.faults import Fault
from talaria.settings.fields import NO_SECTIONS, Sections
from talaria.settings.load import Loaded, load
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import Secrets, read_secrets

Stamp = tuple[int, int, int] | None


class ChangedKey(Struct, frozen=True):
    """A key or secret that now has another value, with a sentence for the person who changed it."""

    key: str
    sentence: str


class Change(Struct, frozen=True):
    """What a poll found. Settings or secrets with new faults are not taken over: the old ones stay in force.

    ``restart`` names everything that differs from what the process started with and waits for a restart.
    """

    settings: Settings
    secrets: Secrets
    live: tuple[ChangedKey, ...] = ()
    restart: tuple[ChangedKey, ...] = ()
    faults: tuple[Fault, ...] = ()


class SettingsWatch:
    """The settings and secrets in force; `poll` costs two calls of stat unless a file has changed.

    Raises `SettingsInvalid` if the settings have faults at the start.
    """

    def __init__(self, profile: Profile, environment: Mapping[str, str], sections: Sections = NO_SECTIONS) -> None:
        self._profile = profile
        self._environment = environment
        self._sections = sections
        self._stamps = self._look()
        self.loaded = load(profile, environment, sections)
        if self.loaded.faults:
            raise SettingsInvalid(self.loaded.faults)
        self.secrets = read_secrets(profile, environment)
        self._started = _State(self.loaded, self.secrets)
        self._now = self._started

    def poll(self) -> Change | None:
        """What has changed since the last call; None if nothing has, or if the whole profile is out of reach."""
        stamps = self._look()
        if stamps == self._stamps or not self._profile.folder.is_dir():
            return None
        self._stamps = stamps
        loaded = load(self._profile, self._environment, self._sections)
        secrets = read_secrets(self._profile, self._environment)
        doubtful = tuple(fault for fault in secrets.faults if fault not in self.secrets.faults)
        self.loaded = self.loaded if loaded.faults else loaded
        self.secrets = self.secrets if doubtful else secrets
        return self._compare(loaded.faults + doubtful)

    def _compare(self, faults: tuple[Fault, ...]) -> Change | None:
        before, self._now = self._now, _State(self.loaded, self.secrets)
        if not faults and self._now.values == before.values:
            return None
        return Change(
            self.loaded.settings,
            self.secrets,
            live=tuple(before.changes(self._now, live=True)),
            restart=tuple(self._started.changes(self._now, live=False)),
            faults=faults,
        )

    def _look(self) -> tuple[Stamp, Stamp]:
        return _stamp(self._profile.config_file), _stamp(self._profile.secrets_file)


class _State:
    """Every key and secret with its value and how it is shown."""

    def __init__(self, loaded: Loaded, secrets: Secrets) -> None:
        fields = {field.key: (field, value) for field, value in loaded.values()}
        self.values = {key: value for key, (_, value) in fields.items()}
        self.values |= {name: secrets.get(name) for name in secrets.names()}
        self.shown = {key: field.shown(value) or "empty" for key, (field, value) in fields.items()}
        self.live = {key for key, (field, _) in fields.items() if field.live}

    def changes(self, later: "_State", *, live: bool) -> Iterator[ChangedKey]:
        for key in dict.fromkeys([*self.values, *later.values]):
            if self.values.get(key) == later.values.get(key) or (key in self.live | later.live) is not live:
                continue
            when = "" if live else "; it takes effect after a restart"
            yield ChangedKey(key, f"`{key}` {self._difference(later, key)}{when}.")

    def _difference(self, later: "_State", key: str) -> str:
        if key in later.shown and key in self.shown:
            return f"is now {later.shown[key]}, it was {self.shown[key]}"
        if key not in later.values:
            return "was removed"
        return "has a new value" if key in self.values else "was added"


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
