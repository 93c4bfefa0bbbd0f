"""Write what was answered, and know what is written now."""

from importlib import import_module

from talaria.cli.services import Services
from talaria.core.errors import NotFound
from talaria.settings.errors import SettingsInvalid
from talaria.settings.faults import unknown, wrong_value
from talaria.settings.fields import Field, Model
from talaria.settings.keys import dotted, split_key, variable
from talaria.settings.load import load_settings
from talaria.settings.model import Settings
from talaria.settings.secrets import Secrets, mask, read_secrets, store_secret
from talaria.settings.text import value_from_text

# Brings tomlkit along, which only a change needs.
_EDITING = "talaria.settings.edit"


class Writer:
    """Writes settings and secrets of one profile at once; ``written`` has each with what may be shown of it."""

    def __init__(self, services: Services) -> None:
        self._profile = services.profile
        self._environment = services.environment
        self.written: dict[str, str] = {}
        self.notes: list[str] = []

    def settings(self) -> Settings:
        """The settings as they are now."""
        return load_settings(self._profile, self._environment)

    def secrets(self) -> Secrets:
        """The keys and tokens as they are now."""
        return read_secrets(self._profile, self._environment)

    def put(self, key: str, text: str) -> None:
        """Write a setting, or take it out of the file where its default says the same."""
        field = known_field(key)
        if value_from_text(text, field.annotation) == _plain(field.default):
            self.take_out(key)
        else:
            edit = import_module(_EDITING).set_value(self._profile, key, text)
            self.written[key] = edit.shown
        name = variable(split_key(key))
        if name in self._environment:
            self.notes.append(f"The environment variable {name} is set, and it wins over the file.")

    def take_out(self, key: str) -> None:
        """Go back to the default of a setting."""
        try:
            import_module(_EDITING).unset_value(self._profile, key)
        except NotFound:  # it was not set
            return
        self.written[key] = "default"

    def keep_secret(self, name: str, value: str) -> None:
        """Write a secret."""
        store_secret(self._profile, name, value)
        self.written[name] = mask(value)
        if self._environment.get(name, value) != value:
            self.notes.append(f"The environment variable {name} has another value, and it wins over the file.")


def check_setting(key: str, text: str) -> None:
    """Raise `SettingsInvalid` or `NotFound` unless this could be written."""
    field = known_field(key)
    value = value_from_text(text, field.annotation)
    if not field.accepts(value):
        raise SettingsInvalid([wrong_value(field.key, field.expected, field.found(value))])


def known_field(key: str) -> Field:
    """Return what is known of a setting."""
    model = Model()
    found = model.find(split_key(key))
    if not isinstance(found, Field):
        raise NotFound(unknown("key", key, [field.key for field in model.fields()]).problem)
    return found


def key_of(provider: str, name: str) -> str:
    """Return the key of a setting of a provider."""
    return dotted(("providers", provider, name))


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
