"""Set-up of a model provider: its key and address are written, and it becomes the one in use."""

import re

from msgspec import Struct

from talaria.settings.config_writer import ConfigWriter
from talaria.settings.schema import format_key

OWN = "own"
EMBEDDED = "embedded"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class ProviderChange(Struct, frozen=True, kw_only=True):
    """A provider to set up; without a ``key`` the stored one is kept. Only custom ones have a ``base_url``."""

    name: str
    key_name: str = ""
    key: str = ""
    base_url: str = ""


def write_provider(writer: ConfigWriter, change: ProviderChange) -> None:
    """Write the key and address of a provider."""
    if change.key:
        writer.keep_secret(change.key_name, change.key)
    if change.base_url:
        writer.put(build_provider_key(change.name, "base_url"), change.base_url)
        if change.key or (change.key_name and writer.secrets().get(change.key_name)):
            writer.put(build_provider_key(change.name, "key"), change.key_name)


def use_provider(writer: ConfigWriter, name: str) -> None:
    """Make a provider the one in use; the model of another provider is forgotten."""
    if writer.settings().model.provider != name:
        writer.reset_setting("model.name")
    writer.put("model.provider", name)


def use_model(writer: ConfigWriter, provider: str, model: str) -> None:
    """Make a model of a provider the default."""
    writer.put("model.provider", provider)
    writer.put("model.name", model)


def use_embedded(writer: ConfigWriter) -> None:
    """Make the built-in model the one in use."""
    writer.put("embedded.enabled", "true")
    writer.put("model.provider", EMBEDDED)
    writer.reset_setting("model.name")


def is_provider_name(name: str) -> bool:
    """Return whether a custom provider may have this name."""
    return _NAME.fullmatch(name) is not None and name not in {EMBEDDED, OWN}


def build_key_name(provider: str) -> str:
    """Return the name of the secret for a custom provider's key."""
    return f"{provider.upper().replace('-', '_')}_API_KEY"


def build_provider_key(provider: str, name: str) -> str:
    """Return the key of a provider's setting."""
    return format_key(("providers", provider, name))
