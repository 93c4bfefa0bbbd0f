"""Setup probes: discovery of keys and local servers, and checks of provider keys and chat tokens."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from talaria.app.configured_providers import ConfiguredProvider as ModelAccount
from talaria.app.configured_providers import ConfiguredProviders, find_missing_variables
from talaria.app.models import DEFAULT_MODELS, Models
from talaria.contracts.imports import Importer
from talaria.contracts.setup import (
    Discovery,
    EmbeddedState,
    FoundKey,
    FoundServer,
    ProbeResult,
    ProviderOffer,
    SearchProbes,
    TrialAccount,
)
from talaria.core.errors import (
    BadKey,
    MalformedReply,
    ModelUnknown,
    NoCredit,
    ProviderBusy,
    ProviderError,
    ProviderOverloaded,
    ProviderUnreachable,
    TalariaError,
)
from talaria.http_client.client import HttpPool
from talaria.providers.catalogue.lookup import Catalogue
from talaria.providers.embedded.weights import is_installed
from talaria.providers.presets import PRESETS, open_provider
from talaria.settings.load import load_settings
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import Secrets, read_secrets
from talaria.settings.sections.providers import ProviderAccount

TRY_SECONDS = 8.0
ANSWER_SECONDS = 30.0
DISCOVERY_SECONDS = 2.0

_PRESETS = {preset.name for preset in PRESETS}

# OpenRouter lists its models without a key; only this path checks it.
_KEY_CHECK_PATHS = {"openrouter": "/key"}


class ProfileSetup:
    """Implementation of `SetupProbes` for one profile."""

    def __init__(self, profile: Profile, environment: Mapping[str, str]) -> None:
        self._profile = profile
        self._environment = environment

    def discover(self) -> Discovery:
        """Look for keys, local servers and the embedded model, for at most ``DISCOVERY_SECONDS``.

        It takes that long only if a server accepts connections without answering.
        """
        settings, secrets = self._load()
        with ThreadPoolExecutor(1) as thread:  # the caller may have a running event loop
            return thread.submit(asyncio.run, self._discover(settings, secrets)).result()

    def providers(self) -> tuple[ProviderOffer, ...]:
        """Return every known or manually added provider, except the embedded model."""
        return tuple(
            ProviderOffer(
                name=account.preset.name,
                title=account.preset.title,
                base_url=account.preset.base_url,
                key_name=next(iter(account.key_names), ""),
                local=account.local,
                own=account.preset.name not in _PRESETS,
                login=account.preset.login if account.preset.access == "login" else "",
            )
            for account in ConfiguredProviders(*self._load()).all()
            if not find_missing_variables(account.preset.base_url)
        )

    def try_account(self, account: TrialAccount) -> ProbeResult:
        """Request a provider's models with this key, without writing anything."""
        if not account.key.isascii() or not account.key.isprintable() or " " in account.key:
            return ProbeResult("refused", "A key has no spaces or line breaks. Copy it again.")
        settings, _ = self._load()
        current = settings.providers.get(account.provider, ProviderAccount())
        changed_account = msgspec.structs.replace(
            current, base_url=account.base_url or current.base_url, key=account.key_name or current.key, keys=()
        )
        changed = msgspec.structs.replace(settings, providers={**settings.providers, account.provider: changed_account})
        secrets = Secrets({}, {account.key_name: account.key}, [])
        try:
            usable = ConfiguredProviders(changed, secrets).get(account.provider)
        except TalariaError as error:
            return ProbeResult("odd", str(error))
        return asyncio.run(_probe(usable, account.key))

    def try_login(self, provider: str) -> ProbeResult:
        """Request a provider's models with the stored sign-in."""
        configured = ConfiguredProviders(*self._load(), self._profile.folder)
        try:
            account = configured.get(provider)
        except TalariaError as error:
            return ProbeResult("odd", str(error))
        return asyncio.run(_probe(account, "", configured))

    def try_model(self, provider: str, model: str) -> ProbeResult:
        """Request a reply of a few tokens from a model, with what is stored."""
        return asyncio.run(self._ask_model(provider, model))

    def search(self) -> SearchProbes:
        """Return the probes of the web search engines."""
        from talaria.app.search_engines import ProfileSearch  # noqa: PLC0415 (loaded when engines are checked)

        return ProfileSearch(self._profile, self._environment)

    def open_importer(self, agent: str, path: Path | None) -> AbstractContextManager[Importer]:
        """Return the import of another agent's home as a context manager that removes temporary copies."""
        from talaria.app.imports.importer import open_importer  # noqa: PLC0415 (loaded when something is imported)

        return open_importer(agent, path, self._profile, self._environment)

    async def _ask_model(self, provider: str, model: str) -> ProbeResult:
        models, name = Models(*self._load(), self._profile.folder), f"{provider}:{model}"
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await models.ask(await models.choose(provider, model, ""))
        except TimeoutError:
            return ProbeResult("late", f"{name} didn't answer within {ANSWER_SECONDS:g} s.")
        except TalariaError as error:
            return ProbeResult("odd", error.for_owner)
        finally:
            await models.close()
        return ProbeResult("right", f"{name} answers.")

    def _load(self) -> tuple[Settings, Secrets]:
        settings = load_settings(self._profile, self._environment)
        return settings, read_secrets(self._profile, self._environment)

    async def _discover(self, settings: Settings, secrets: Secrets) -> Discovery:
        accounts = {account.preset.name: account for account in ConfiguredProviders(settings, secrets).all()}
        models = Models(settings, secrets, self._profile.folder)
        servers: tuple[FoundServer, ...] = ()
        chosen, problem = None, ""
        try:
            async with asyncio.timeout(DISCOVERY_SECONDS):
                servers = await _find_servers(models, accounts)
                chosen = await models.resolve_default_model()
        except TimeoutError:
            problem = "The configured model didn't answer in time."
        except TalariaError as error:
            problem = error.for_owner
        finally:
            await models.close()
        return Discovery(self._find_keys(accounts, secrets), servers, _get_embedded_state(settings), chosen, problem)

    def _find_keys(self, accounts: Mapping[str, ModelAccount], secrets: Secrets) -> tuple[FoundKey, ...]:
        return tuple(
            FoundKey(key, name, "the environment" if self._environment.get(key) else str(secrets.locate(key)))
            for name, account in accounts.items()
            for key in account.key_names
            if secrets.get(key)
        )


async def _find_servers(models: Models, accounts: Mapping[str, ModelAccount]) -> tuple[FoundServer, ...]:
    by_name: dict[str, list[str]] = {}
    for one in (await models.list_models(local_only=True)).models:
        if one.provider in accounts:
            by_name.setdefault(one.provider, []).append(one.model)
    return tuple(
        FoundServer(name, accounts[name].preset.title, accounts[name].preset.base_url, tuple(found))
        for name, found in by_name.items()
    )


def _get_embedded_state(settings: Settings) -> EmbeddedState:
    if not settings.embedded.enabled:
        return "off"
    return "installed" if is_installed() else "missing"


async def _probe(account: ModelAccount, key: str, signed_in: ConfiguredProviders | None = None) -> ProbeResult:
    """Request the list of models, which almost always needs the key or sign-in and is free."""
    preset = account.preset
    seconds = min(TRY_SECONDS, account.timeouts.first_byte.total_seconds())
    http = HttpPool()
    try:
        async with asyncio.timeout(seconds):
            if key and preset.name in _KEY_CHECK_PATHS:
                await _check_key(account, key, http)
            provider = (
                signed_in.open(account, http) if signed_in else open_provider(preset, http, key, account.timeouts)
            )
            names = [one.name for one in await provider.models()]
    except TimeoutError:
        return ProbeResult("late", f"{preset.title} didn't answer within {seconds:g} s. Try again in a moment.")
    except ProviderError as error:
        return _explain_failure(account, error)
    finally:
        await http.close()
    return _report_models(account, names)


async def _check_key(account: ModelAccount, key: str, http: HttpPool) -> None:
    url = account.preset.base_url.rstrip("/") + _KEY_CHECK_PATHS[account.preset.name]
    async with http.get(url, {"Authorization": f"Bearer {key}"}, account.timeouts) as answer:
        await answer.body()
        if answer.status in {401, 403}:
            raise BadKey(f"{account.preset.name}: HTTP {answer.status}")


def _report_models(account: ModelAccount, names: list[str]) -> ProbeResult:
    preset, catalogue = account.preset, Catalogue()
    changed_account = DEFAULT_MODELS.get(preset.name, "")
    ordered = sorted(names, key=lambda name: not catalogue.find(name).known)
    suggested = (
        next((name for name in names if name == changed_account or name.endswith(f"/{changed_account}")), "")
        if changed_account
        else ""
    )
    count_text = f"{len(names):,} model{'s' if len(names) != 1 else ''}"
    return ProbeResult(
        "right",
        f"{preset.title} is reachable and offers {count_text}.",
        tuple(ordered),
        suggested or next(iter(ordered), ""),
    )


def _explain_failure(account: ModelAccount, error: ProviderError) -> ProbeResult:
    preset = account.preset
    where = f"{preset.title} at {preset.base_url}" if preset.title != preset.name else preset.base_url
    match error:
        case BadKey():
            new = "" if preset.name not in _PRESETS else f", or create a new one in your {preset.title} account"
            return ProbeResult("refused", f"{preset.title} rejected this key. Copy it again{new}.")
        case NoCredit():
            return ProbeResult(
                "odd", f"{preset.title} accepted the key, but the account has no credit left. Add some there."
            )
        case ProviderUnreachable() if account.local:
            return ProbeResult("unreachable", f"Nothing is listening at {preset.base_url}. Start {preset.title} first.")
        case ProviderUnreachable():
            return ProbeResult("unreachable", f"Can't reach {where}. Check the network and the address.")
        case ModelUnknown():
            return ProbeResult("odd", f"{where} has no list of models. The address usually ends in /v1.")
        case MalformedReply():
            return ProbeResult("odd", f"The server at {preset.base_url} isn't a model provider. Check the address.")
        case ProviderBusy() | ProviderOverloaded():
            return ProbeResult("odd", f"{preset.title} is too busy right now. Try again in a moment.")
        case _:
            return ProbeResult("odd", f"{preset.title} refused the request: {error.public}")
