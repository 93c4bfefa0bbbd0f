"""Configured providers of a profile: known ones with changes, custom ones, and their keys."""

from datetime import timedelta

import msgspec
from msgspec import Struct

from talaria.agent.key_pool import PooledProvider
from talaria.contracts.clock import SystemClock
from talaria.contracts.provider import Provider
from talaria.core.errors import NotFound, Refused
from talaria.providers.factory import open_provider
from talaria.providers.http.client import HttpPool
from talaria.providers.presets import PRESETS, Preset
from talaria.providers.settings import Timeouts
from talaria.settings.errors import build_unknown_fault
from talaria.settings.model import Settings
from talaria.settings.secrets import Secrets
from talaria.settings.sections.providers import ProviderAccount

_NO_OVERRIDES = ProviderAccount()


class ConfiguredProvider(Struct, frozen=True):
    """Provider with the names of the secrets that hold its keys."""

    preset: Preset
    key_names: tuple[str, ...] = ()
    timeouts: Timeouts = Timeouts()

    @property
    def local(self) -> bool:
        """Return whether it is a server on this machine, found by its port."""
        return self.preset.port is not None

    def keys(self, secrets: Secrets) -> tuple[str, ...]:
        """Return the keys that are set."""
        return tuple(self.named_keys(secrets).values())

    def named_keys(self, secrets: Secrets) -> dict[str, str]:
        """Return the keys that are set, each under the name of its secret."""
        return {name: key for name in self.key_names if (key := secrets.get(name))}

    def lacks_key(self, secrets: Secrets) -> bool:
        """Return whether it needs a key and has none."""
        return bool(self.key_names) and not self.keys(secrets)


class ConfiguredProviders:
    """Registry of all providers, presets first, in the order in which they are tried."""

    def __init__(self, settings: Settings, secrets: Secrets) -> None:
        self._secrets = secrets
        configured = settings.providers
        known = {
            preset.name: _configure_provider(preset, configured.get(preset.name, _NO_OVERRIDES)) for preset in PRESETS
        }
        others = {
            name: _configure_provider(_build_preset(name, overrides), overrides)
            for name, overrides in configured.items()
            if name not in known
        }
        self._all = known | others

    def names(self) -> tuple[str, ...]:
        """Return the names of all providers."""
        return tuple(self._all)

    def all(self) -> tuple[ConfiguredProvider, ...]:
        """Return all providers, usable or not."""
        return tuple(self._all.values())

    def get(self, name: str) -> ConfiguredProvider:
        """Return a provider; raises `NotFound` with the nearest name, `Refused` without an address or key."""
        account = self._all.get(name)
        if account is None:
            raise NotFound(build_unknown_fault("provider", name, self._all).problem)
        if not account.preset.base_url:
            raise Refused(f"The provider `{name}` has no address. Set providers.{name}.base_url.")
        if account.lacks_key(self._secrets):
            raise Refused(f"{account.preset.title} needs a key: {_explain_key(account.key_names[0])}")
        return account

    def is_local(self, name: str) -> bool:
        """Return whether this is a server on this machine."""
        account = self._all.get(name)
        return account is not None and account.local

    def with_keys(self) -> tuple[ConfiguredProvider, ...]:
        """Return the providers that have a key."""
        return tuple(account for account in self._all.values() if account.keys(self._secrets))

    def local_servers(self) -> tuple[ConfiguredProvider, ...]:
        """Return the local servers, running or not."""
        return tuple(account for account in self._all.values() if account.local)

    def keyless(self) -> tuple[ConfiguredProvider, ...]:
        """Return the providers with an address that need no key, except local servers."""
        others = (account for account in self._all.values() if not account.local and not account.key_names)
        return tuple(account for account in others if account.preset.base_url)

    def open(self, account: ConfiguredProvider, http: HttpPool, timeouts: Timeouts | None = None) -> Provider:
        """Return the provider, with all its keys pooled; ``timeouts`` override those of the account."""
        effective_timeouts = timeouts or account.timeouts
        keys = account.named_keys(self._secrets) or {"": ""}
        opened = [
            open_provider(account.preset, http, key, effective_timeouts, secret=name) for name, key in keys.items()
        ]
        return opened[0] if len(opened) == 1 else PooledProvider(opened, SystemClock())


def _configure_provider(preset: Preset, overrides: ProviderAccount) -> ConfiguredProvider:
    changed = msgspec.structs.replace(
        preset,
        base_url=overrides.base_url or preset.base_url,
        protocol=overrides.protocol or preset.protocol,
        headers={**preset.headers, **overrides.headers},
    )
    first = overrides.key or preset.key_name
    return ConfiguredProvider(
        preset=changed,
        key_names=tuple(dict.fromkeys(name for name in (first, *overrides.keys) if name)),
        timeouts=Timeouts(
            connect=timedelta(seconds=overrides.connect_timeout_seconds),
            first_byte=timedelta(seconds=overrides.first_timeout_seconds),
            silence=timedelta(seconds=overrides.silence_timeout_seconds),
        ),
    )


def _build_preset(name: str, overrides: ProviderAccount) -> Preset:
    return Preset(name=name, title=name, base_url=overrides.base_url)


def _explain_key(secret: str) -> str:
    return f"`talaria config set {secret} -` stores it; `talaria model` chooses another model."
