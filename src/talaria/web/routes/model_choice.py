"""Routes for models and providers: which model answers, tests, keys, and the set-up of a first model."""

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.commands.application import ModelCatalog
from talaria.contracts.provider import ChosenModel, UsableModel
from talaria.contracts.setup import EmbeddedState, Outcome, ProviderOffer, SetupProbes, TrialAccount
from talaria.core.errors import NotFound, Refused, TalariaError
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.settings.config_writer import (
    EMBEDDED,
    ConfigWriter,
    ProviderChange,
    build_key_name,
    is_provider_name,
    use_embedded,
    use_model,
    use_provider,
    write_provider,
)
from talaria.settings.edit import compute_file_version
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import KNOWN_SECRETS, Secrets, mask, remove_secret
from talaria.settings.sections.checks import is_web_address
from talaria.web.front_door import AGENT_OWNER, WebRequest

_TAG = "web"
_MILLION = 1_000_000
_TEST_SECONDS = 20.0
_Short = Annotated[str, Meta(max_length=200)]


class ModelView(Struct, frozen=True, kw_only=True):
    """A model; prices are in dollars per million tokens, and unknown if both are 0 and it isn't ``free``."""

    provider: str
    model: str
    context: int
    input_price: float
    output_price: float
    tools: bool
    images: bool
    reasoning: bool
    known: bool
    free: bool
    local: bool = False


class ChosenModelView(Struct, frozen=True, kw_only=True):
    """The model that answers: ``why`` it was chosen, and the ``limits`` of a weak one."""

    model: ModelView
    why: str
    limits: str


class ProviderView(Struct, frozen=True, kw_only=True):
    """A provider, with what may be shown of its key.

    ``key`` is empty if it has none. ``models`` counts those of a local server that is running.
    """

    name: str
    title: str
    base_url: str
    key_name: str
    key: str
    key_source: Literal["", "file", "environment"]
    hint: str
    local: bool
    own: bool
    running: bool
    models: int


class ModelsView(Struct, frozen=True, kw_only=True):
    """The model that answers, or the ``problem`` if there is none; ``version`` is that of the settings file."""

    chosen: ChosenModelView | None
    problem: str
    provider_setting: str
    fallbacks: tuple[str, ...]
    auxiliary: str
    embedded: EmbeddedState
    providers: list[ProviderView]
    version: str


class UsableModels(Struct, frozen=True):
    """All models that can be used now, and why some providers have none."""

    models: list[ModelView]
    problems: tuple[str, ...]


class ModelQuery(Struct, frozen=True):
    """A model: NAME, PROVIDER:NAME or PROVIDER."""

    model: Annotated[str, Meta(min_length=1, max_length=300)]


class ModelTest(Struct, frozen=True, kw_only=True):
    """The result of a small request to a model."""

    model: str
    answers: bool
    sentence: str
    milliseconds: int


class ModelSaved(Struct, frozen=True):
    """A model was chosen as the default; ``notes`` are what the person should know."""

    chosen: ChosenModelView
    notes: list[str]


class ProviderRequest(Struct, frozen=True, kw_only=True):
    """A provider to set up: a known one, or a server with an address.

    An empty key keeps the stored one. With ``use`` it becomes the provider in use, with ``model`` or its best one.
    Without ``check`` it is saved untested.
    """

    provider: Annotated[str, Meta(min_length=1, max_length=64)]
    base_url: _Short = ""
    key: Annotated[str, Meta(max_length=4000)] = ""
    model: _Short = ""
    use: bool = False
    check: bool = True


class ProviderResult(Struct, frozen=True, kw_only=True):
    """The result of testing a provider, whether it was saved, and its models, best known first."""

    saved: bool
    outcome: Outcome | Literal["unchecked"]
    sentence: str
    models: tuple[str, ...] = ()
    good: str = ""
    notes: tuple[str, ...] = ()


class EmbeddedResult(Struct, frozen=True):
    """The built-in model answers from now on."""

    sentence: str


class ModelChoiceRoutes:
    """Models and providers of a profile; ``reload`` applies what was written, ``install`` the built-in model."""

    def __init__(
        self,
        models: ModelCatalog,
        setup: SetupProbes,
        profile: Profile,
        environment: Mapping[str, str],
        *,
        reload: Callable[[], None],
        install: Callable[[], str],
    ) -> None:
        self._models = models
        self._setup = setup
        self._profile = profile
        self._environment = environment
        self._reload = reload
        self._install = install

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/models", handler=self._show,
                  summary="Show which model answers, and the providers", scope=AGENT_OWNER, reply_type=ModelsView,
                  tag=_TAG),
            Route(method="GET", path="/web/models/usable", handler=self._list, summary="List usable models",
                  scope=AGENT_OWNER, reply_type=UsableModels, tag=_TAG),
            Route(method="POST", path="/web/models/default", handler=self._choose, summary="Choose the default model",
                  scope=AGENT_OWNER, takes=ModelQuery, reply_type=ModelSaved, tag=_TAG),
            Route(method="POST", path="/web/models/test", handler=self._test,
                  summary="Send a small request to a model", scope=AGENT_OWNER, takes=ModelQuery,
                  reply_type=ModelTest, tag=_TAG),
            Route(method="POST", path="/web/models/providers", handler=self._set_up,
                  summary="Test and save a provider and its key", scope=AGENT_OWNER, takes=ProviderRequest,
                  reply_type=ProviderResult, tag=_TAG),
            Route(method="DELETE", path="/web/models/keys/{name}", handler=self._remove_key,
                  summary="Remove the key of a provider", scope=AGENT_OWNER, reply_type=ModelsView, tag=_TAG),
            Route(method="POST", path="/web/models/embedded", handler=self._use_embedded,
                  summary="Use the built-in model, installing it if needed", scope=AGENT_OWNER, lasting=True,
                  reply_type=EmbeddedResult, tag=_TAG),
        )  # fmt: skip

    async def _show(self, request: WebRequest) -> Reply:
        return make_json_reply(await self._read())

    async def _list(self, request: WebRequest) -> Reply:
        listing = await self._models.list_models()
        return make_json_reply(UsableModels([_build_model_view(one) for one in listing.models], listing.problems))

    async def _choose(self, request: WebRequest) -> Reply:
        chosen = await self._models.find(request.read(ModelQuery).model)
        writer = self._make_writer()
        await asyncio.to_thread(use_model, writer, chosen.provider, chosen.model)
        self._reload()
        return make_json_reply(ModelSaved(_build_chosen_view(chosen), writer.notes))

    async def _test(self, request: WebRequest) -> Reply:
        name, started = request.read(ModelQuery).model, monotonic()
        try:
            async with asyncio.timeout(_TEST_SECONDS):
                await self._request_reply(name)
        except TimeoutError:
            sentence, answers = f"{name} didn't answer within {_TEST_SECONDS:g} s.", False
        except TalariaError as error:
            sentence, answers = error.for_owner, False
        else:
            sentence, answers = f"{name} answers.", True
        milliseconds = round(1000 * (monotonic() - started))
        return make_json_reply(ModelTest(model=name, answers=answers, sentence=sentence, milliseconds=milliseconds))

    async def _request_reply(self, name: str) -> None:
        """Request a few tokens from a model; one that is named with its provider need not be in its list."""
        provider, _, model = name.partition(":")
        known = self._models.is_provider(provider)
        chosen = await (self._models.choose(provider, model, "") if known else self._models.find(name))
        await self._models.ask(chosen)

    async def _set_up(self, request: WebRequest) -> Reply:
        provider = request.read(ProviderRequest)
        result = await asyncio.to_thread(self._test_and_save, provider)
        if result.saved:
            self._reload()
        return make_json_reply(result)

    async def _remove_key(self, request: WebRequest) -> Reply:
        name = request.parts["name"]
        if name not in {offer.key_name for offer in await asyncio.to_thread(self._setup.providers)}:
            raise NotFound(f"No provider uses a key `{name[:64]}`.")
        if self._environment.get(name):
            raise Refused(f"{name} comes from the environment of the server. Remove it there.")
        await asyncio.to_thread(remove_secret, self._profile, name)
        self._reload()
        return make_json_reply(await self._read())

    async def _use_embedded(self, request: WebRequest) -> Reply:
        state = (await asyncio.to_thread(self._setup.discover)).embedded
        sentence = "The built-in model answers from now on. It is for simple chat only and can't use tools."
        if state == "missing":
            sentence = f"{await asyncio.to_thread(self._install)} {sentence}"
        await asyncio.to_thread(use_embedded, self._make_writer())
        self._reload()
        return make_json_reply(EmbeddedResult(sentence))

    async def _read(self) -> ModelsView:
        chosen, problem = None, ""
        try:
            chosen = _build_chosen_view(await self._models.resolve_default_model())
        except TalariaError as error:
            problem = error.for_owner
        return await asyncio.to_thread(self._read_providers, chosen, problem)

    def _read_providers(self, chosen: ChosenModelView | None, problem: str) -> ModelsView:
        found, writer = self._setup.discover(), self._make_writer()
        settings, secrets = writer.load_settings(), writer.read_secrets()
        running = {server.provider: len(server.models) for server in found.servers}
        return ModelsView(
            chosen=chosen,
            problem=problem,
            provider_setting=settings.model.provider,
            fallbacks=settings.model.fallbacks,
            auxiliary=settings.model.auxiliary,
            embedded=found.embedded,
            providers=[self._build_provider_view(offer, secrets, running) for offer in self._setup.providers()],
            version=_read_version(self._profile),
        )

    def _build_provider_view(self, offer: ProviderOffer, secrets: Secrets, running: Mapping[str, int]) -> ProviderView:
        key = (secrets.get(offer.key_name) if offer.key_name else None) or ""
        return ProviderView(
            name=offer.name,
            title=offer.title,
            base_url=offer.base_url,
            key_name=offer.key_name,
            key=mask(key) if key else "",
            key_source="" if not key else "environment" if self._environment.get(offer.key_name) else "file",
            hint=next((known.hint for known in KNOWN_SECRETS if known.name == offer.key_name), ""),
            local=offer.local,
            own=offer.own,
            running=offer.name in running,
            models=running.get(offer.name, 0),
        )

    def _test_and_save(self, provider: ProviderRequest) -> ProviderResult:
        writer = self._make_writer()
        offer = self._find_offer(provider, writer.load_settings())
        known = provider.key or (writer.read_secrets().get(offer.key_name) if offer.key_name else "") or ""
        result = ProviderResult(saved=False, outcome="unchecked", sentence=f"{offer.title} was saved without a test.")
        if provider.check:
            account = TrialAccount(offer.name, provider.base_url, offer.key_name if known else "", known)
            tested = self._setup.try_account(account)
            result = ProviderResult(saved=False, outcome=tested.outcome, sentence=tested.sentence,
                                    models=tested.models, good=tested.good)  # fmt: skip
            if not tested.right:
                return result
        change = ProviderChange(name=offer.name, key_name=offer.key_name, key=provider.key, base_url=provider.base_url)
        write_provider(writer, change)
        if provider.use and provider.model:
            use_model(writer, offer.name, provider.model)
        elif provider.use:
            use_provider(writer, offer.name)
        return ProviderResult(saved=True, outcome=result.outcome, sentence=result.sentence, models=result.models,
                              good=result.good, notes=tuple(writer.notes))  # fmt: skip

    def _find_offer(self, provider: ProviderRequest, settings: Settings) -> ProviderOffer:
        """Return the provider to set up; a server with an address may be new."""
        offers = {offer.name: offer for offer in self._setup.providers()}
        if provider.base_url and not is_web_address(provider.base_url):
            raise Refused("The address must start with http:// or https://.")
        if provider.provider in offers:
            offer = offers[provider.provider]
            return offer if offer.key_name or not offer.own else _add_key_name(offer, settings)
        if not is_provider_name(provider.provider):
            raise Refused(f"`{provider.provider}` can't be the name of a provider: use lower-case letters and digits.")
        if not provider.base_url:
            raise Refused("A server of your own needs an address, for example http://127.0.0.1:9000/v1.")
        return _add_key_name(ProviderOffer(provider.provider, provider.provider, provider.base_url), settings)

    def _make_writer(self) -> ConfigWriter:
        return ConfigWriter(self._profile, self._environment)


def _add_key_name(offer: ProviderOffer, settings: Settings) -> ProviderOffer:
    configured = settings.providers.get(offer.name)
    key_name = (configured.key if configured else "") or build_key_name(offer.name)
    return ProviderOffer(offer.name, offer.title, offer.base_url, key_name, offer.local, own=True)


def _read_version(profile: Profile) -> str:
    try:
        return compute_file_version(profile.config_file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        return compute_file_version("")


def _build_model_view(one: UsableModel | ChosenModel) -> ModelView:
    info = one.info
    return ModelView(
        provider=one.provider,
        model=one.model,
        context=info.context_limit,
        input_price=info.input_price / _MILLION,
        output_price=info.output_price / _MILLION,
        tools=info.tools,
        images=info.images,
        reasoning=info.reasoning,
        known=info.known,
        free=info.free,
        local=one.local if isinstance(one, UsableModel) else one.provider == EMBEDDED,
    )


def _build_chosen_view(one: ChosenModel) -> ChosenModelView:
    return ChosenModelView(model=_build_model_view(one), why=one.why, limits=one.limits)
