"""Providers as configured: presets with changes of settings, keys, accounts with clouds, and cached lists of models."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from talaria.agent.key_pool import PooledProvider
from talaria.contracts.clock import SystemClock
from talaria.contracts.provider import ListedModel, ModelInfo, Provider
from talaria.core.errors import NotFound, Refused
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts
from talaria.providers.detection import DetectedProtocols, DetectingProvider
from talaria.providers.presets import PRESETS, AccessKind, Preset, ProtocolName, open_provider
from talaria.providers.settings import RequestAuthorizer
from talaria.settings.errors import build_unknown_fault
from talaria.settings.logins import LoginStore
from talaria.settings.model import Settings
from talaria.settings.secrets import Secrets
from talaria.settings.sections.providers import ProviderAccount

_NEEDED_FOR_ACCESS: dict[AccessKind, str] = {
    "aws": "AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "entra": "AZURE_OPENAI_API_KEY, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
    "google": "GOOGLE_APPLICATION_CREDENTIALS, the path of a credentials file",
}
_VARIABLE = re.compile(r"\{([A-Z0-9_|]+)\}")
_GOOGLE_DEFAULT = ".config/gcloud/application_default_credentials.json"
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_NO_OVERRIDES = ProviderAccount()
_PROTOCOLS_FILE = "provider-protocols.json"
_CLOUDS = frozenset({"aws", "entra", "google"})
_OPENAI_PROTOCOLS: tuple[ProtocolName, ...] = ("openai_chat", "openai_responses")
_MAX_LIST_AGE = timedelta(days=1)
_LISTS_FILE = "model-lists.json"


class ConfiguredProvider(Struct, frozen=True):
    """Provider with the names of the secrets that hold its keys.

    ``protocols`` are those that its server may speak, in the order in which they are tried; empty if it is known.
    ``has_own_url`` is true if settings or environment name another address than the preset.
    """

    preset: Preset
    key_names: tuple[str, ...] = ()
    timeouts: Timeouts = Timeouts()
    protocols: tuple[ProtocolName, ...] = ()
    has_own_url: bool = False

    @property
    def local(self) -> bool:
        """Return whether it is a server on this machine, found by its port."""
        return self.preset.port is not None

    def keys(self, secrets: Secrets) -> tuple[str, ...]:
        """Return the keys that are set."""
        return tuple(self.named_keys(secrets).values())

    def named_keys(self, secrets: Secrets) -> dict[str, str]:
        """Return the keys that are set, each under the name of its secret."""
        found: dict[str, str] = {}
        for name in self.key_names:
            if (key := secrets.get(name)) and key not in found.values():
                found[name] = key
        return found

    def lacks_key(self, secrets: Secrets) -> bool:
        """Return whether it needs a key and has none."""
        return bool(self.key_names) and not self.keys(secrets)


class ConfiguredProviders:
    """Registry of all providers, presets first, in the order in which they are tried.

    ``folder`` is that of the profile, with its sign-ins and detected protocols. ``on_secrets`` is called with tokens
    that must be masked.
    """

    def __init__(
        self,
        settings: Settings,
        secrets: Secrets,
        folder: Path | None = None,
        on_secrets: Callable[[Iterable[str]], None] = lambda _: None,
    ) -> None:
        self._secrets = secrets
        self._detected = DetectedProtocols(folder / _PROTOCOLS_FILE) if folder else None
        self._logins = LoginStore(folder) if folder else None
        self._on_secrets = on_secrets
        configured = settings.providers
        known = {
            preset.name: _configure_provider(preset, configured.get(preset.name, _NO_OVERRIDES), secrets)
            for preset in PRESETS
        }
        others = {
            name: _configure_provider(_build_preset(name, overrides), overrides, secrets)
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
            problem = build_unknown_fault("provider", name, self._all).problem
            raise NotFound(
                f"{problem} Add a server of your own with `talaria config set providers.{name}.base_url URL`."
            )
        if "{" in account.preset.base_url and (missing := find_missing_variables(account.preset.base_url)):
            raise Refused(f"{account.preset.title} needs the variable {missing[0]}. Set it in the environment.")
        if not account.preset.base_url:
            raise Refused(f"The provider `{name}` has no address. Set providers.{name}.base_url.")
        preset = account.preset
        if self.is_signed_in(account):
            return account
        if preset.access == "login":
            raise Refused(f"{preset.title} needs a sign-in: `talaria login {preset.login}`.")
        if preset.access != "key":
            if not (account.keys(self._secrets) or has_access(preset, self._secrets)):
                raise Refused(explain_missing_access(preset, self._secrets))
        elif account.lacks_key(self._secrets):
            where, key = f"{preset.title} at {preset.base_url}", account.key_names[0]
            login = f", or sign in with `talaria login {preset.login}`" if preset.login else ""
            raise Refused(
                f"{where} needs the key {key}. Store it with `talaria config set {key} -`{login};"
                " `talaria model` chooses another model."
            )
        return account

    def is_signed_in(self, account: ConfiguredProvider) -> bool:
        """Return whether a sign-in gives access to a provider, and no key does."""
        login = account.preset.login
        if not login or self._logins is None or account.keys(self._secrets):
            return False
        return self._logins.exists(login)

    def is_free(self, name: str) -> bool:
        """Return whether calls cost nothing: a model server on this machine, or one covered by a subscription."""
        account = self._all.get(name)
        return account is not None and account.preset.free

    def list_signed_in(self) -> tuple[ConfiguredProvider, ...]:
        """Return the providers that a sign-in gives access to."""
        return tuple(account for account in self._all.values() if self.is_signed_in(account))

    def is_local(self, name: str) -> bool:
        """Return whether this is a server on this machine."""
        account = self._all.get(name)
        return account is not None and account.local

    def list_with_keys(self) -> tuple[ConfiguredProvider, ...]:
        """Return the providers that have a key."""
        return tuple(account for account in self._all.values() if account.keys(self._secrets))

    def list_local_servers(self) -> tuple[ConfiguredProvider, ...]:
        """Return the local servers, running or not."""
        return tuple(account for account in self._all.values() if account.local)

    def list_keyless(self) -> tuple[ConfiguredProvider, ...]:
        """Return the providers with an address that need no key, except local servers."""
        others = (account for account in self._all.values() if not account.local and not account.key_names)
        return tuple(account for account in others if account.preset.base_url and account.preset.access == "key")

    def open(self, account: ConfiguredProvider, http: HttpPool, timeouts: Timeouts | None = None) -> Provider:
        """Return the provider, with all its keys pooled; ``timeouts`` override those of the account."""
        effective_timeouts = timeouts or account.timeouts
        keys = account.named_keys(self._secrets) or {"": ""}
        opened = [self._open_key(account, http, key, name, effective_timeouts) for name, key in keys.items()]
        return opened[0] if len(opened) == 1 else PooledProvider(opened, SystemClock())

    def _read_login_url(self, login: str) -> str:
        """Return the address that the server named for this account; an unreadable sign-in is reported by its use."""
        assert self._logins is not None
        try:
            found = self._logins.get(login)
        except Refused:
            return ""
        return found.base_url if found else ""

    def _open_key(
        self, account: ConfiguredProvider, http: HttpPool, key: str, secret: str, timeouts: Timeouts
    ) -> Provider:
        login = account.preset.login if not key and self.is_signed_in(account) else ""
        authorizer: RequestAuthorizer | None = None
        base_url = account.preset.base_url
        if login and self._logins is not None:
            from talaria.app.logins import LoginAuthorizer  # noqa: PLC0415 (loaded for a sign-in)

            authorizer = LoginAuthorizer(login, self._logins, http, self._on_secrets)
            if not account.has_own_url:
                base_url = self._read_login_url(login) or base_url

        def open_with(protocol: ProtocolName) -> Provider:
            preset = msgspec.structs.replace(account.preset, protocol=protocol, base_url=base_url)
            return open_provider(preset, http, key, timeouts, secret=secret, authorizer=authorizer, login=login)

        if not key and account.preset.access in _CLOUDS:
            authorizer = make_authorizer(account.preset, self._secrets, http)
            return open_provider(account.preset, http, timeouts=timeouts, authorizer=authorizer)
        if not account.protocols or self._detected is None:
            return open_with(account.preset.protocol)
        choices = {protocol: partial(open_with, protocol) for protocol in account.protocols}
        url = account.preset.base_url
        return DetectingProvider(choices, self._detected, url, per_model=account.preset.per_model)


class _ProviderList(Struct, frozen=True):
    at: datetime
    models: dict[str, ListedModel]


class ListedModels:
    """Lists of models by provider; a lost file costs a request."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _LISTS_FILE
        self._lists: dict[str, _ProviderList] | None = None

    def get(self, provider: str, model: str) -> ListedModel | None:
        """Return what a provider says about a model, if it says anything."""
        found = self._read().get(provider)
        return found.models.get(model) if found else None

    def find_first_model(self, provider: str, now: datetime) -> str:
        """Return the first model of a provider's list, empty if the list is missing or old."""
        return next(iter(self._read()[provider].models), "") if self.is_current(provider, now) else ""

    def is_current(self, provider: str, now: datetime) -> bool:
        """Return whether the list of a provider is less than a day old."""
        found = self._read().get(provider)
        return found is not None and now - found.at < _MAX_LIST_AGE

    def put(self, provider: str, models: Iterable[ListedModel], now: datetime) -> None:
        """Store the list of a provider, as far as it says more than names."""
        useful = {one.name: one for one in models if one.has_facts}
        before = self._read().get(provider)
        if before is not None and before.models == useful and now - before.at < _MAX_LIST_AGE:
            return
        if not useful and before is None:
            return
        self._lists = {**self._read(), provider: _ProviderList(now, useful)}
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = self._file.with_suffix(".part")
            draft.write_bytes(msgspec.json.encode(self._lists))
            draft.replace(self._file)

    def _read(self) -> Mapping[str, _ProviderList]:
        if self._lists is None:
            try:
                self._lists = msgspec.json.decode(self._file.read_bytes(), type=dict[str, _ProviderList])
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                self._lists = {}
        return self._lists


def apply_listed(info: ModelInfo, listed: ListedModel) -> ModelInfo:
    """Return a model that the catalogue doesn't know, with what its provider lists."""
    changes: dict[str, int | bool] = {}
    if not info.known and listed.context_limit:
        changes["context_limit"] = listed.context_limit
    if not info.free and listed.input_price is not None and listed.output_price is not None:
        for name in ("input_price", "output_price", "cache_read_price", "cache_write_price"):
            if (price := getattr(listed, name)) is not None:
                changes[name] = price
        changes["free"] = not (listed.input_price or listed.output_price)
    return msgspec.structs.replace(info, **changes) if changes else info


def fill_url(url: str, secrets: Secrets) -> str:
    """Return an address with the values of the variables that it names; unset ones stay."""
    return _VARIABLE.sub(lambda found: _find_first_value(found[1].split("|"), secrets) or found[0], url)


def find_missing_variables(url: str) -> list[str]:
    """Return the variables that an address still needs."""
    return [found.split("|")[0] for found in _VARIABLE.findall(url)]


def has_access(preset: Preset, secrets: Secrets) -> bool:
    """Return whether something other than a key gives access to a provider."""
    match preset.access:
        case "aws":
            return bool(secrets.get("AWS_ACCESS_KEY_ID") and secrets.get("AWS_SECRET_ACCESS_KEY"))
        case "entra":
            return all(map(secrets.get, ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")))
        case "google":
            return _find_google_file(secrets).is_file()
    return False


def explain_missing_access(preset: Preset, secrets: Secrets) -> str:
    """Return what a provider needs for access, or which file of credentials is missing."""
    if preset.access == "google" and secrets.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return f"GOOGLE_APPLICATION_CREDENTIALS names {_find_google_file(secrets)}, which isn't a file."
    return f"{preset.title} needs {_NEEDED_FOR_ACCESS[preset.access]}."


def make_authorizer(preset: Preset, secrets: Secrets, http: HttpPool) -> RequestAuthorizer | None:
    """Return what stands in for a key, if the provider has such a thing and it is configured."""
    if preset.access == "key" or not has_access(preset, secrets):
        return None
    from talaria.http_client import bearer_tokens  # noqa: PLC0415 (loaded for a provider in a cloud)
    from talaria.providers import aws_signer  # noqa: PLC0415 (loaded for a provider in a cloud)

    def get_value(name: str) -> str:
        return secrets.get(name) or ""

    if preset.access == "aws":
        credentials = aws_signer.AwsCredentials(
            get_value("AWS_ACCESS_KEY_ID"), get_value("AWS_SECRET_ACCESS_KEY"), get_value("AWS_SESSION_TOKEN")
        )
        return aws_signer.AwsSigner(credentials, _find_first_value(_REGION_VARIABLES, secrets))
    if preset.access == "google":
        return bearer_tokens.BearerToken(bearer_tokens.GoogleTokenRequest(_find_google_file(secrets)), http)
    request = bearer_tokens.EntraTokenRequest(
        get_value("AZURE_TENANT_ID"),
        get_value("AZURE_CLIENT_ID"),
        get_value("AZURE_CLIENT_SECRET"),
        get_value("AZURE_AUTHORITY_HOST") or bearer_tokens.ENTRA_AUTHORITY,
    )
    return bearer_tokens.BearerToken(request, http)


def _find_google_file(secrets: Secrets) -> Path:
    named = secrets.get("GOOGLE_APPLICATION_CREDENTIALS")
    return Path(named).expanduser() if named else Path.home() / _GOOGLE_DEFAULT


def _find_first_value(names: list[str] | tuple[str, ...], secrets: Secrets) -> str:
    return next((found for name in names if (found := secrets.get(name))), "").rstrip("/")


def _configure_provider(preset: Preset, overrides: ProviderAccount, secrets: Secrets) -> ConfiguredProvider:
    variable = "" if overrides.base_url else next((name for name in preset.url_variables if secrets.get(name)), "")
    other_url = overrides.base_url or _complete_url(preset, secrets.get(variable) or "")
    changed = msgspec.structs.replace(
        preset,
        url_variable=variable,
        base_url=other_url or fill_url(preset.base_url, secrets),
        models_url="" if other_url else preset.models_url,
        protocol=overrides.protocol or preset.protocol,
        headers={**preset.headers, **overrides.headers},
    )
    names = (overrides.key,) if overrides.key else (preset.key_name, *preset.other_key_names)
    is_unknown_server = (
        bool(other_url) and preset.protocol == "openai_responses" and preset.access == "key" and not overrides.protocol
    )
    return ConfiguredProvider(
        preset=changed,
        key_names=tuple(dict.fromkeys(name for name in (*names, *overrides.keys) if name)),
        timeouts=Timeouts(
            connect=timedelta(seconds=overrides.connect_timeout_seconds),
            first_byte=timedelta(seconds=overrides.first_timeout_seconds),
            silence=timedelta(seconds=overrides.silence_timeout_seconds),
        ),
        protocols=_OPENAI_PROTOCOLS if is_unknown_server or (preset.per_model and not overrides.protocol) else (),
        has_own_url=bool(other_url),
    )


def _complete_url(preset: Preset, url: str) -> str:
    """Return the URL of a conventional environment variable, with what programs usually leave out."""
    found = url.strip().rstrip("/")
    if not found:
        return ""
    if preset.port is not None:
        return _complete_local_url(found, preset.port)
    if preset.protocol == "anthropic" and not found.endswith("/v1"):
        return f"{found}/v1"
    return found


def _complete_local_url(address: str, port: int) -> str:
    """Return the URL of a server from ``OLLAMA_HOST``: a host, a port, both or a URL."""
    parts = urlsplit(address if "://" in address else f"http://{address}")
    host = parts.hostname or "127.0.0.1"
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - where the server listens, which is not where it is reached
        host = "127.0.0.1"
    shown = f"[{host}]" if ":" in host else host
    try:
        number = parts.port or (443 if parts.scheme == "https" else port)
    except ValueError:  # not a number; the error of the first request shows the URL
        return f"{parts.scheme}://{parts.netloc}/v1"
    return f"{parts.scheme}://{shown}:{number}{parts.path.rstrip('/').removesuffix('/v1')}/v1"


def _build_preset(name: str, overrides: ProviderAccount) -> Preset:
    return Preset(name=name, title=name, base_url=overrides.base_url)
