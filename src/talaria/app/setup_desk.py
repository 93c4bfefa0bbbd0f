"""What a set-up asks: what this machine has, whether a provider takes a key, whose a token is."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from talaria.app.models import DEFAULT_MODELS, Accounts, Models
from talaria.app.models import Account as ModelAccount
from talaria.app.subcommands import load
from talaria.cli.setting_up.desk import (
    Account,
    Discovered,
    EmbeddedState,
    FoundKey,
    FoundServer,
    NetworkName,
    ProviderOffer,
    Tried,
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
from talaria.providers.catalogue.lookup import Catalogue
from talaria.providers.embedded.weights import is_installed
from talaria.providers.http import HttpPool
from talaria.providers.opening import open_provider
from talaria.providers.presets import PRESETS
from talaria.settings.load import load_settings
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.providers import ProviderAccount
from talaria.settings.secrets import Secrets, read_secrets

TRY_SECONDS = 8.0
DISCOVERY_SECONDS = 0.28

_PRESETS = {preset.name for preset in PRESETS}

# OpenRouter tells its models to everybody; only this page asks who is there.
_ASKS_FOR_THE_KEY = {"openrouter": "/key"}


class ProfileSetup:
    """Implements `SetupDesk` for one profile."""

    def __init__(self, profile: Profile, environment: Mapping[str, str]) -> None:
        self._profile = profile
        self._environment = environment

    def discover(self) -> Discovered:
        """Look for keys, servers on this machine and the embedded model: a third of a second at most."""
        settings, secrets = self._read()
        with ThreadPoolExecutor(1) as thread:  # whoever asks may have a loop of their own running
            return thread.submit(asyncio.run, self._discover(settings, secrets)).result()

    def providers(self) -> tuple[ProviderOffer, ...]:
        """Every provider that is known or was added by hand, but the embedded model."""
        return tuple(
            ProviderOffer(
                name=account.preset.name,
                title=account.preset.title,
                base_url=account.preset.base_url,
                key_name=next(iter(account.key_names), ""),
                local=account.local,
                own=account.preset.name not in _PRESETS,
            )
            for account in Accounts(*self._read()).all()
        )

    def try_account(self, account: Account) -> Tried:
        """Ask a provider for its models with this key; nothing is written."""
        if not account.key.isascii() or not account.key.isprintable() or " " in account.key:
            return Tried("refused", "A key has no spaces or line breaks: copy it once more.")
        settings, _ = self._read()
        said = settings.providers.get(account.provider, ProviderAccount())
        wanted = msgspec.structs.replace(
            said, base_url=account.base_url or said.base_url, key=account.key_name or said.key, keys=()
        )
        changed = msgspec.structs.replace(settings, providers={**settings.providers, account.provider: wanted})
        secrets = Secrets({}, {account.key_name: account.key}, [])
        try:
            usable = Accounts(changed, secrets).get(account.provider)
        except TalariaError as error:
            return Tried("odd", str(error))
        return asyncio.run(_try(usable, account.key))

    def try_token(self, network: NetworkName, token: str, base_url: str = "") -> Tried:
        """Ask a chat network, or whoever answers at ``base_url``, whom a token belongs to."""
        tried: Tried = asyncio.run(load("talaria.app.token_checks").check_token(network, token, base_url=base_url))
        return tried

    def _read(self) -> tuple[Settings, Secrets]:
        settings = load_settings(self._profile, self._environment)
        return settings, read_secrets(self._profile, self._environment)

    async def _discover(self, settings: Settings, secrets: Secrets) -> Discovered:
        accounts = {account.preset.name: account for account in Accounts(settings, secrets).all()}
        models = Models(settings, secrets, self._profile.folder)
        servers: tuple[FoundServer, ...] = ()
        chosen, trouble = None, ""
        try:
            async with asyncio.timeout(DISCOVERY_SECONDS):
                servers = await _servers(models, accounts)
                chosen = await models.chosen()
        except TimeoutError:
            trouble = "The model that is set did not answer in time."
        except TalariaError as error:
            trouble = error.for_owner
        finally:
            await models.close()
        return Discovered(self._keys(accounts, secrets), servers, _embedded(settings), chosen, trouble)

    def _keys(self, accounts: Mapping[str, ModelAccount], secrets: Secrets) -> tuple[FoundKey, ...]:
        return tuple(
            FoundKey(key, name, "the environment" if self._environment.get(key) else str(secrets.place(key)))
            for name, account in accounts.items()
            for key in account.key_names
            if secrets.get(key)
        )


async def _servers(models: Models, accounts: Mapping[str, ModelAccount]) -> tuple[FoundServer, ...]:
    by_name: dict[str, list[str]] = {}
    for one in (await models.listing(local_only=True)).models:
        if one.provider in accounts:
            by_name.setdefault(one.provider, []).append(one.model)
    return tuple(
        FoundServer(name, accounts[name].preset.title, accounts[name].preset.base_url, tuple(found))
        for name, found in by_name.items()
    )


def _embedded(settings: Settings) -> EmbeddedState:
    if not settings.embedded.enabled:
        return "off"
    return "installed" if is_installed() else "missing"


async def _try(account: ModelAccount, key: str) -> Tried:
    """Ask for the list of models, which needs the key almost everywhere and costs nothing."""
    preset = account.preset
    seconds = min(TRY_SECONDS, account.timeouts.first_byte.total_seconds())
    http = HttpPool()
    try:
        async with asyncio.timeout(seconds):
            if key and preset.name in _ASKS_FOR_THE_KEY:
                await _ask_for_the_key(account, key, http)
            names = await open_provider(preset, http, key, account.timeouts).models()
    except TimeoutError:
        return Tried("late", f"{preset.title} did not answer within {seconds:g} s: try again in a moment.")
    except ProviderError as error:
        return _failed(account, error)
    finally:
        await http.close()
    return _answered(account, names)


async def _ask_for_the_key(account: ModelAccount, key: str, http: HttpPool) -> None:
    url = account.preset.base_url.rstrip("/") + _ASKS_FOR_THE_KEY[account.preset.name]
    async with http.get(url, {"Authorization": f"Bearer {key}"}, account.timeouts) as answer:
        await answer.body()
        if answer.status in {401, 403}:
            raise BadKey(f"{account.preset.name}: HTTP {answer.status}")


def _answered(account: ModelAccount, names: list[str]) -> Tried:
    preset, catalogue = account.preset, Catalogue()
    wanted = DEFAULT_MODELS.get(preset.name, "")
    ordered = sorted(names, key=lambda name: not catalogue.find(name).known)
    good = next((name for name in names if name == wanted or name.endswith(f"/{wanted}")), "") if wanted else ""
    has = f"{len(names):,} model{'s' if len(names) != 1 else ''}"
    return Tried("right", f"{preset.title} answers and has {has}.", tuple(ordered), good or next(iter(ordered), ""))


def _failed(account: ModelAccount, error: ProviderError) -> Tried:
    preset = account.preset
    where = f"{preset.title} at {preset.base_url}" if preset.title != preset.name else preset.base_url
    match error:
        case BadKey():
            new = "" if preset.name not in _PRESETS else f", or make a new one in your {preset.title} account"
            return Tried("refused", f"{preset.title} does not know this key: copy it once more{new}.")
        case NoCredit():
            return Tried("odd", f"{preset.title} knows the key, but its account has no credit left: add some there.")
        case ProviderUnreachable() if account.local:
            return Tried("unreachable", f"Nothing answers at {preset.base_url}: start {preset.title} first.")
        case ProviderUnreachable():
            return Tried("unreachable", f"{where} cannot be reached: check the network and the address.")
        case ModelUnknown():
            return Tried("odd", f"{where} has no list of models: the address usually ends in /v1.")
        case MalformedReply():
            return Tried("odd", f"What answers at {preset.base_url} is no model provider: check the address.")
        case ProviderBusy() | ProviderOverloaded():
            return Tried("odd", f"{preset.title} is too busy to answer: try again in a moment.")
        case _:
            return Tried("odd", f"{preset.title} declined: {error.public}")
