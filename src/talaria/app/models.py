"""Model selection: settings, API keys, local servers and the built-in model of a profile."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from talaria.agent.model_calls import ModelChoice, ModelHealth
from talaria.app.configured_providers import ConfiguredProvider, ConfiguredProviders, ListedModels, apply_listed
from talaria.contracts.clock import SystemClock
from talaria.contracts.provider import (
    ChosenModel,
    ListedModel,
    ModelInfo,
    ModelListing,
    ModelReply,
    ModelRequest,
    ModelText,
    Provider,
    UsableModel,
)
from talaria.core.errors import Ambiguous, NotFound, ProviderError, Refused, TalariaError
from talaria.core.messages import Message, Text
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts
from talaria.providers.catalogue.lookup import Catalogue
from talaria.providers.detection import PROBE_LIMIT, LocalServer, fetch_ollama_context, probe_local
from talaria.providers.embedded import weights as embedded
from talaria.providers.embedded.weights import INSTALL, is_installed
from talaria.providers.presets import Preset, is_preset
from talaria.settings.environment import process_environment
from talaria.settings.errors import build_unknown_fault, find_nearest
from talaria.settings.model import Settings
from talaria.settings.secrets import Secrets
from talaria.settings.sections.providers import ModelFacts, ModelSettings

if TYPE_CHECKING:  # loaded for a sign-in
    from talaria.app.logins import ProfileLogins

log = logging.getLogger(__name__)

DEFAULT_MODELS = {
    "openai": "gpt-6.1-terra",
    "anthropic": "claude-sonnet-5-5",
    "openrouter": "anthropic/claude-sonnet-5.5",
    "google": "gemini-3.8-flash",
    "groq": "openai/gpt-oss-120b",
    "mistral": "mistral-medium-latest",
    "deepseek": "deepseek-v4-pro",
    "xai": "grok-4.7",
    "together": "openai/gpt-oss-120b",
    "fireworks": "accounts/fireworks/models/gpt-oss-120b",
    "cerebras": "gpt-oss-120b",
    "perplexity": "sonar-pro",
    "cohere": "command-a-03-2025",
    "nvidia": "openai/gpt-oss-120b",
    "moonshot": "kimi-k2.6",
    "zhipu": "glm-4.6",
    "minimax": "MiniMax-M3",
    "qwen": "qwen3-max",
    "sambanova": "gpt-oss-120b",
    "huggingface": "openai/gpt-oss-120b",
}  # of other providers, the first model that they list

T = TypeVar("T")

_OLLAMA = "ollama"
_CHECK_FILE = "embedded-model.checked"
_LIST_SECONDS = 8.0
_LISTING_MAX_AGE = timedelta(minutes=1)
_MILLION = 1_000_000
_PRICES = ("input_price", "output_price", "cache_read_price", "cache_write_price")
_NOTHING_USABLE = (
    "No model can be used: no API key is set, you aren't signed in, no local server is running, and the built-in model"
    " is {state}. `talaria setup` connects a provider, `talaria config set OPENAI_API_KEY -` stores a key, {remedy}."
)


_CHECK_TIMEOUTS = Timeouts(connect=timedelta(seconds=5), first_byte=timedelta(seconds=8), silence=timedelta(seconds=8))
_QUESTION = "Answer with the word hello."
_MAX_TOKENS = 64  # OpenAI accepts no less than 16, and some models think before they answer
_SHOWN_CHARACTERS = 60


class Models:
    """Models of one profile. Providers are opened on first use and belong to this object.

    ``health`` is the state of the providers used so far. ``current`` returns the settings in force, which decide the
    models in use; providers and keys are read at the start and by `reload`. ``probe_limit`` is the time within which a
    local server must answer to count as running. ``on_secrets`` is called with tokens that must be masked.
    """

    def __init__(
        self,
        settings: Settings,
        secrets: Secrets,
        cache: Path,
        current: Callable[[], Settings] | None = None,
        *,
        probe_limit: timedelta = PROBE_LIMIT,
        on_secrets: Callable[[Iterable[str]], None] = lambda _: None,
    ) -> None:
        self._on_secrets = on_secrets
        self._current = current or (lambda: settings)
        self._secrets = secrets
        self._configured = ConfiguredProviders(settings, secrets, cache, on_secrets)
        self._cache = cache
        self._probe_limit = probe_limit
        self._catalogue = Catalogue()
        self._http = HttpPool()
        self._providers: dict[str, Provider] = {}
        self._retired: list[Provider] = []
        self._infos: dict[tuple[str, str, ModelFacts | None, int | None], ModelInfo] = {}
        self._context_lengths: dict[str, tuple[datetime, int | None]] = {}
        self._listed = ListedModels(cache)
        self._prices_asked_at: dict[str, datetime] = {}
        self._local: list[LocalServer] | None = None
        self._recent: tuple[datetime, ModelListing] | None = None
        self.health = ModelHealth()

    @property
    def _settings(self) -> Settings:
        return self._current()

    def reload(self, settings: Settings) -> None:
        """Use the providers of these settings, with the current secrets, and look for local servers again.

        Sessions that are open keep the providers that they have.
        """
        self._configured = ConfiguredProviders(settings, self._secrets, self._cache, self._on_secrets)
        self._retired += self._providers.values()
        self._providers = {}
        self._infos.clear()
        self._local = self._recent = None

    def accounts(self) -> tuple[ConfiguredProvider, ...]:
        """Return all providers, usable or not."""
        return self._configured.all()

    async def resolve_default_model(self, model_setting: ModelSettings | None = None) -> ChosenModel:
        """Return the model to use: by the settings, the first key, a local server, or the built-in one.

        Raises `Refused` or `NotFound`, with the next step, if none can be used.
        """
        model_setting = model_setting or self._settings.model
        if model_setting.provider:
            return await self.choose(
                model_setting.provider, model_setting.name, "Chosen by the setting `model.provider`."
            )
        if signed_in := self._configured.list_signed_in():
            preset = signed_in[0].preset
            why = f"Chosen because you signed in with `talaria login {preset.login}`."
            return await self.choose(preset.name, model_setting.name, why)
        for account in self._configured.list_with_keys():
            name, key = account.preset.name, next(iter(account.named_keys(self._secrets)))
            if account.preset.automatic and (model_setting.name or is_preset(name)):
                why = f"Chosen because {key} is set and `model.provider` is not."
                return await self.choose(name, model_setting.name, why)
        for server in await self._find_local_servers():
            model = model_setting.name or server.models[0]
            if model in server.models:
                where = f"{server.preset.title} is running at {server.preset.base_url}"
                why = f"Chosen because no API key is set and {where}."
                await self._fetch_context_length(server.preset, model)
                return self._make_chosen(server.preset.name, model, why)
        if self._settings.embedded.enabled and is_installed():
            why = "Chosen because no API key or local server was found."
            return self._make_chosen(embedded.PROVIDER, embedded.MODEL, why)
        raise Refused(self._explain_nothing_usable())

    async def choose(self, provider: str, model: str, why: str) -> ChosenModel:
        """Return a model of a usable provider; without a name, its default model or the first one it lists."""
        if provider == embedded.PROVIDER:
            if not is_installed():
                raise Refused(f"The built-in model isn't installed. {INSTALL} installs it.")
            return self._make_chosen(provider, embedded.MODEL, why)
        account = self._configured.get(provider)
        name = model or DEFAULT_MODELS.get(provider) or await self._fetch_first_model(account)
        await self._fetch_context_length(account.preset, name)
        await self._fetch_price(account, name)
        return self._make_chosen(provider, name, why)

    def get_access(self, provider: str) -> tuple[str, str, str]:
        """Return the base URL, protocol and keys of a provider; the keys are joined with spaces."""
        if provider == embedded.PROVIDER:
            return "", provider, ""
        account = self._configured.get(provider)
        return account.preset.base_url, account.preset.protocol, " ".join(account.keys(self._secrets))

    async def ask(self, chosen: ChosenModel) -> str:
        """Ask a model for a few tokens and return what it answered; raises `ProviderError` if it doesn't answer."""
        return await _request_short_reply(self.provider(chosen.provider), chosen.model)

    async def find(self, query: str) -> ChosenModel:
        """Return the model for an alias, ``NAME``, ``PROVIDER:NAME`` or ``PROVIDER``.

        Asks the providers whether they have it. Raises `NotFound`, `Ambiguous` or `Refused`.
        """
        query = self._settings.model.aliases.get(query, query)
        provider, _, model = query.partition(":")
        if not self.is_provider(provider):
            return await self._find_by_name(query)
        chosen = await self.choose(provider, model, "You just chose it.")
        if provider != embedded.PROVIDER and model and self._configured.get(provider).preset.lists_models:
            self._require_offered(chosen, *await self._list_models(self._configured.get(provider)))
        return chosen

    def is_provider(self, name: str) -> bool:
        """Return whether models of a provider can be named as ``name:MODEL``."""
        return name == embedded.PROVIDER or name in self._configured.names()

    def build_chain(self, first: ChosenModel) -> tuple[ModelChoice, ...]:
        """Return the model that answers, followed by its fallbacks."""
        return self._build_choices([(first.provider, first.model)])

    def build_auxiliary_chain(self, first: ChosenModel) -> tuple[ModelChoice, ...]:
        """Return the models for titles, summaries and judgements; those that answer, if the chosen one is unusable."""
        chosen = self._settings.model.auxiliary
        usable = self._list_usable([chosen]) if chosen else []
        return self._build_choices(usable or [(first.provider, first.model)])

    async def list_models(self, *, local_only: bool = False) -> ModelListing:
        """Ask every usable provider for its models, in parallel."""
        servers = await self._find_local_servers()
        found = [
            self._make_usable(server.preset.name, name, local=True) for server in servers for name in server.models
        ]
        if self._settings.embedded.enabled and is_installed():
            found.append(self._make_usable(embedded.PROVIDER, embedded.MODEL, local=True))
        if local_only:
            return ModelListing(tuple(found))
        remote = [
            account
            for account in (
                *self._configured.list_signed_in(),
                *self._configured.list_with_keys(),
                *self._configured.list_keyless(),
            )
            if account.preset.lists_models
        ]
        answers = await asyncio.gather(*(self._list_models(account) for account in remote))
        names = [
            self._make_usable(account.preset.name, name)
            for account, (some, _) in zip(remote, answers, strict=True)
            for name in some
        ]
        return ModelListing((*names, *found), tuple(trouble for _, trouble in answers if trouble))

    async def get_cached_listing(self) -> ModelListing:
        """Return the last result of `list_models`, refreshed after a minute; completion asks on every keystroke."""
        now = SystemClock().now()
        if self._recent is None or now - self._recent[0] > _LISTING_MAX_AGE:
            self._recent = now, await self.list_models()
        return self._recent[1]

    def info(self, model: str, provider: str = "") -> ModelInfo:
        """Return the facts about a model: local models cost nothing, and the settings override the rest."""
        facts = self._settings.models.get(model)
        key = model, provider, facts, self._get_context_length(model) if provider == _OLLAMA else None
        if key not in self._infos:
            self._infos[key] = self._build_info(model, provider, facts)
        return self._infos[key]

    def _build_info(self, model: str, provider: str, facts: ModelFacts | None) -> ModelInfo:
        info = self._catalogue.find(model)
        if provider == embedded.PROVIDER or self._configured.is_free(provider):
            info = msgspec.structs.replace(info, **dict.fromkeys(_PRICES, 0), free=True)
        if provider == _OLLAMA and (length := self._get_context_length(model)):
            info = msgspec.structs.replace(info, context_limit=length)
        listed = self._listed.get(provider, model) if provider else None
        if listed is not None and not (info.known and info.has_price):
            info = apply_listed(info, listed)
        return _apply_facts(info, facts) if facts else info

    async def _fetch_context_length(self, preset: Preset, model: str) -> None:
        """Ask Ollama for the context length of a model, unless it was asked less than a minute ago."""
        if preset.name != _OLLAMA:
            return
        now = SystemClock().now()
        if model not in self._context_lengths or now - self._context_lengths[model][0] > _LISTING_MAX_AGE:
            self._context_lengths[model] = (
                now,
                await fetch_ollama_context(self._http, preset.base_url, model, self._probe_limit),
            )

    async def _fetch_price(self, account: ConfiguredProvider, model: str) -> None:
        """Ask a provider that lists prices for them, once a day, if the price of a model isn't known."""
        name, now = account.preset.name, SystemClock().now()
        if not account.preset.lists_prices or self.info(model, name).has_price or self._listed.is_current(name, now):
            return
        if name not in self._prices_asked_at or now - self._prices_asked_at[name] > _LISTING_MAX_AGE:
            self._prices_asked_at[name] = now
            await self._list_models(account)

    def _get_context_length(self, model: str) -> int | None:
        return self._context_lengths[model][1] if model in self._context_lengths else None

    def provider(self, name: str) -> Provider:
        """Return the provider of this name, opened once; raises `NotFound` or `Refused` if it cannot be used."""
        if name not in self._providers:
            self._providers[name] = self._open(name)
        return self._providers[name]

    async def close(self) -> None:
        """Close all providers and connections."""
        for provider in (*self._providers.values(), *self._retired):
            await provider.close()
        self._providers.clear()
        self._retired.clear()
        await self._http.close()

    async def _find_by_name(self, name: str) -> ChosenModel:
        listing = await self.list_models()
        found = [one for one in listing.models if _matches_model(one.model, name)]
        if len(found) > 1:
            names = ", ".join(f"`{one.provider}:{one.model}`" for one in found)
            raise Ambiguous(f"Several providers have `{name}`: {names}. Choose one of these.")
        if not found:
            fault = build_unknown_fault("model", name, sorted({one.model for one in listing.models}))
            problem = fault.problem if fault.nearest else f"No configured provider has a model `{name}`."
            raise NotFound(" ".join([problem, *listing.problems, "`talaria models` lists the available models."]))
        return self._make_chosen(found[0].provider, found[0].model, "You just chose it.")

    def _require_offered(self, chosen: ChosenModel, offered: list[str], trouble: str) -> None:
        if trouble:
            raise Refused(f"{trouble} Nothing was changed.")
        if not any(_matches_model(one, chosen.model) for one in offered):
            close = find_nearest(chosen.model, offered)
            hint = f"the nearest is `{close}`" if close else f"`talaria models` lists the models of {chosen.provider}"
            raise NotFound(f"{chosen.provider} has no model `{chosen.model}`; {hint}.")

    def _open(self, name: str) -> Provider:
        if name == embedded.PROVIDER:
            from talaria.providers.embedded.adapter import EmbeddedProvider  # noqa: PLC0415 (loaded when the built-in model is used)

            return EmbeddedProvider(self._cache / _CHECK_FILE)
        return self._configured.open(self._configured.get(name), self._http)

    def _build_choices(self, names: Iterable[tuple[str, str]]) -> tuple[ModelChoice, ...]:
        unique = dict.fromkeys([*names, *self._list_usable(self._settings.model.fallbacks)])
        return tuple(
            ModelChoice(self.provider(provider), model, self.info(model, provider)) for provider, model in unique
        )

    def _list_usable(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return the models that can be used; the others must not prevent the first model from answering."""
        usable = []
        for name in names:
            provider, _, model = name.partition(":")
            try:
                self.provider(provider)
            except TalariaError as error:
                log.info("the model %s can't be used: %s", name, error)
                continue
            usable.append((provider, model))
        return usable

    async def _find_local_servers(self) -> list[LocalServer]:
        if self._local is None:
            presets = tuple(account.preset for account in self._configured.list_local_servers())
            self._local = await probe_local(self._http, presets, self._probe_limit)
        return self._local

    async def _fetch_first_model(self, account: ConfiguredProvider) -> str:
        """Return the first model that a provider lists.

        Raises `ProviderError` if it does not answer, and `NotFound` if it lists none.
        """
        if account.preset.access == "login" and (
            name := self._listed.find_first_model(account.preset.name, SystemClock().now())
        ):
            return name  # asked once a day, not for each message
        lists = account.preset.lists_models
        models = await self._configured.open(account, self._http, _CHECK_TIMEOUTS).models() if lists else []
        self._store_list(account, models)
        names = [one.name for one in models]
        if not names:
            where = f"{account.preset.title} lists no models at {account.preset.base_url}"
            raise NotFound(f"{where}. Choose one with `talaria model {account.preset.name}:NAME`.")
        return names[0]

    async def _list_models(self, account: ConfiguredProvider) -> tuple[list[str], str]:
        """Return the models of a provider, or an empty list and the reason."""
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                models = await self.provider(account.preset.name).models()
        except TimeoutError:
            return [], f"{account.preset.title} didn't answer within {_LIST_SECONDS:.0f} s."
        except (ProviderError, Refused) as error:
            return [], error.for_owner
        self._store_list(account, models)
        return [one.name for one in models], ""

    def _store_list(self, account: ConfiguredProvider, models: Iterable[ListedModel]) -> None:
        self._listed.put(account.preset.name, models, SystemClock().now())
        self._infos.clear()

    def _make_chosen(self, provider: str, model: str, why: str) -> ChosenModel:
        limits = embedded.LIMITS if provider == embedded.PROVIDER else ""
        return ChosenModel(provider, model, self.info(model, provider), why, limits)

    def _make_usable(self, provider: str, model: str, *, local: bool = False) -> UsableModel:
        return UsableModel(provider, model, self.info(model, provider), local)

    def _explain_nothing_usable(self) -> str:
        if self._settings.embedded.enabled:
            return _NOTHING_USABLE.format(state="not installed", remedy=f"{INSTALL} installs it")
        return _NOTHING_USABLE.format(state="turned off", remedy="set embedded.enabled to turn it on")


class ProfileModels:
    """Synchronous access to the models for commands; each call opens what it needs and closes it again."""

    def __init__(self, settings: Settings, secrets: Secrets, cache: Path) -> None:
        self._settings = settings
        self._secrets = secrets
        self._cache = cache

    def resolve_default_model(self) -> ChosenModel:
        """Return the model that answers; raises `Refused` or `NotFound`, with the next step, if there is none."""
        return self._run(Models.resolve_default_model)

    def find(self, query: str) -> ChosenModel:
        """Return the model for ``NAME``, ``PROVIDER:NAME`` or ``PROVIDER``, if it can be used."""
        return self._run(lambda models: models.find(query))

    def ask(self, chosen: ChosenModel, seconds: float) -> str:
        """Ask a model for a few tokens and return what it answered; raises `ProviderError` or `TimeoutError`."""
        return self._run(lambda models: asyncio.wait_for(models.ask(chosen), seconds))

    def list_models(self, *, local_only: bool = False) -> ModelListing:
        """Ask the providers for every usable model."""
        return self._run(lambda models: models.list_models(local_only=local_only))

    def catalogue(self) -> tuple[ModelInfo, ...]:
        """Return every model in the catalogue, usable or not."""
        return Catalogue().all()

    def install_embedded(self, report: Callable[[str], None] = lambda _: None) -> str:
        """Install the embedded model; ``report`` shows the progress, the result is a message."""
        from talaria.providers.embedded.installation import install  # noqa: PLC0415 (loaded when the built-in model is installed)

        return install(self._cache / _CHECK_FILE, process_environment(), report)

    def logins(self) -> "ProfileLogins":
        """Return the sign-ins with a subscription."""
        from talaria.app.logins import ProfileLogins  # noqa: PLC0415 (loaded for a sign-in)

        return ProfileLogins(self._settings, self._cache)

    def _run(self, question: Callable[[Models], Awaitable[T]]) -> T:
        async def answer() -> T:
            models = Models(self._settings, self._secrets, self._cache)
            try:
                return await question(models)
            finally:
                await models.close()

        return asyncio.run(answer())


def _apply_facts(info: ModelInfo, facts: ModelFacts) -> ModelInfo:
    """Return a model with what the settings say; half a price of a model without one is no price."""
    overrides = {name: value for name in ModelFacts.__struct_fields__ if (value := getattr(facts, name)) is not None}
    if not info.has_price and not {"input_price", "output_price"} <= overrides.keys():
        overrides = {name: value for name, value in overrides.items() if name not in _PRICES}
    prices = {name: round(value * _MILLION) for name, value in overrides.items() if name in _PRICES}
    changed = msgspec.structs.replace(info, **(overrides | prices), known=True)
    if prices.keys().isdisjoint(("input_price", "output_price")):
        return changed
    return msgspec.structs.replace(changed, free=not (changed.input_price or changed.output_price))


def _matches_model(offered: str, name: str) -> bool:
    """Return whether a provider's model has this name, with or without a prefix before ``/``."""
    return offered == name or offered.endswith(f"/{name}")


async def _request_short_reply(provider: Provider, model: str) -> str:
    """Request a reply of a few tokens and return the beginning of its text, empty if the model only thinks."""
    message = Message(role="user", parts=(Text(_QUESTION),), at=SystemClock().now())
    request = ModelRequest(model=model, messages=(message,), max_output_tokens=_MAX_TOKENS)
    reply = ""
    async with aclosing(provider.reply(request)) as events:
        async for event in events:
            match event:
                case ModelText(text):
                    reply += text
                case ModelReply(message=whole):
                    reply = whole.text
            if len(reply.strip()) > _SHOWN_CHARACTERS:
                break
    line = " ".join(reply.split())
    return f"{line[:_SHOWN_CHARACTERS].rstrip()} …" if len(line) > _SHOWN_CHARACTERS else line
