"""Detection of changes to a profile's settings and secrets in a running process."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from talaria.settings.atomic_files import FileStamp, read_stamp
from talaria.settings.errors import Fault, SettingsInvalid
from talaria.settings.load import LoadedSettings, load
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.schema import NO_SECTIONS, Sections
from talaria.settings.secrets import KNOWN_SECRETS, Secrets, read_secrets


class ChangedKey(Struct, frozen=True):
    """Key or secret with a new value, and a sentence for the user who changed it."""

    key: str
    sentence: str


class SettingsChange(Struct, frozen=True):
    """Result of a poll; settings or secrets with new faults are not applied.

    ``restart`` names everything that differs from the start of the process and needs a restart.
    """

    settings: Settings
    secrets: Secrets
    live: tuple[ChangedKey, ...] = ()
    restart: tuple[ChangedKey, ...] = ()
    faults: tuple[Fault, ...] = ()


class SettingsWatch:
    """Current settings and secrets; `poll` costs two stat calls unless a file has changed.

    Raises `SettingsInvalid` if the settings have faults at the start.
    """

    def __init__(self, profile: Profile, environment: Mapping[str, str], sections: Sections = NO_SECTIONS) -> None:
        self._profile = profile
        self._environment = environment
        self._sections = sections
        self._stamps = self._read_stamps()
        self.loaded = load(profile, environment, sections)
        if self.loaded.faults:
            raise SettingsInvalid(self.loaded.faults)
        self.secrets = read_secrets(profile, environment)
        self._started = _State(self.loaded, self.secrets)
        self._current = self._started

    def poll(self) -> SettingsChange | None:
        """Return the changes since the last call; ``None`` if there are none or the profile is unreachable."""
        stamps = self._read_stamps()
        if stamps == self._stamps or not self._profile.folder.is_dir():
            return None
        self._stamps = stamps
        loaded = load(self._profile, self._environment, self._sections)
        secrets = read_secrets(self._profile, self._environment)
        new_faults = tuple(fault for fault in secrets.faults if fault not in self.secrets.faults)
        self.loaded = self.loaded if loaded.faults else loaded
        self.secrets = self.secrets if new_faults else secrets
        return self._compare(loaded.faults + new_faults)

    def _compare(self, faults: tuple[Fault, ...]) -> SettingsChange | None:
        before, self._current = self._current, _State(self.loaded, self.secrets)
        if not faults and self._current.values == before.values:
            return None
        return SettingsChange(
            self.loaded.settings,
            self.secrets,
            live=tuple(before.changes(self._current, live=True)),
            restart=tuple(self._started.changes(self._current, live=False)),
            faults=faults,
        )

    def _read_stamps(self) -> tuple[FileStamp, FileStamp]:
        return read_stamp(self._profile.config_file), read_stamp(self._profile.secrets_file)


class _State:
    """All keys and secrets with their values and how they are shown."""

    def __init__(self, loaded: LoadedSettings, secrets: Secrets) -> None:
        fields = {field.key: (field, value) for field, value in loaded.values()}
        self.values = {key: value for key, (_, value) in fields.items()}
        self.values |= {name: secrets.get(name) for name in secrets.names()}
        self.shown = {key: field.format_value(value) or "empty" for key, (field, value) in fields.items()}
        self.live = {key for key, (field, _) in fields.items() if field.live} | _list_live_secrets(loaded.settings)

    def changes(self, later: "_State", *, live: bool) -> Iterator[ChangedKey]:
        for key in dict.fromkeys([*self.values, *later.values]):
            if self.values.get(key) == later.values.get(key) or (key in self.live | later.live) is not live:
                continue
            when = "" if live else "; it takes effect after a restart"
            yield ChangedKey(key, f"`{key}` {self._describe_difference(later, key)}{when}.")

    def _describe_difference(self, later: "_State", key: str) -> str:
        if key in later.shown and key in self.shown:
            return f"is now {later.shown[key]}, it was {self.shown[key]}"
        if key not in later.values:
            return "was removed"
        return "has a new value" if key in self.values else "was added"


def _list_live_secrets(settings: Settings) -> set[str]:
    """Return the names of the secrets that a running process applies at once: the keys of providers."""
    own = {name for account in settings.providers.values() for name in (account.key, *account.keys)}
    return own | {known.name for known in KNOWN_SECRETS if known.live}
