"""Routes about the API itself: health, metrics, capabilities, OpenAPI and documentation; and the models for clients."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from http import HTTPStatus

from msgspec import Struct

from talaria.access.api_keys import SCOPES
from talaria.api.front_door import ApiRequest, describe_api
from talaria.api.turns.session_pool import SessionPool
from talaria.commands.application import ModelCatalog
from talaria.contracts.clock import SystemClock
from talaria.core.errors import Ambiguous, NotFound, Refused
from talaria.http.application import RequestMetrics
from talaria.http.errors import Problem, make_not_found, make_server_problem
from talaria.http.openapi import RouteGroup, build_openapi, render_docs_page
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.observability.prometheus import CONTENT_TYPE

AGENT_MODEL = "talaria"
_LIST_TIMEOUT = 3.0
_CACHE_TIME = timedelta(minutes=5)
_MAX_CACHED = 256
_MAX_NAME = 200
_HTML = "text/html; charset=utf-8"
# The page contains its style and script, and loads nothing else.
_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"

log = logging.getLogger(__name__)


class ModelEntry(Struct, frozen=True, kw_only=True):
    """A model."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = AGENT_MODEL


class ModelList(Struct, frozen=True, kw_only=True):
    """All models."""

    object: str = "list"
    data: tuple[ModelEntry, ...]


class ModelNames:
    """Resolves the model names that clients send.

    ``talaria`` is the agent's own model, others are ``provider:model``. Many clients send a fixed name that means
    nothing here, for example ``gpt-4o``: it stands for the agent's own model, unless another model has that name or
    names are ``strict``.
    """

    def __init__(self, models: ModelCatalog, *, strict: bool) -> None:
        self._models = models
        self._strict = strict
        self._resolved: dict[str, tuple[datetime, str]] = {}

    async def resolve(self, name: str) -> str:
        """Return the model to use, empty for the agent's own; raises a `Problem` for a name that must exist."""
        if name in ("", AGENT_MODEL):
            return ""
        now = SystemClock().now()
        at, found = self._resolved.get(name, (now - _CACHE_TIME, ""))
        if now - at >= _CACHE_TIME:
            found = await self._resolve(name)
            if len(self._resolved) >= _MAX_CACHED:
                self._resolved.clear()
            self._resolved[name] = now, found
        return found

    async def _resolve(self, name: str) -> str:
        try:
            return await self.find(name)
        except Problem:
            if self._strict or self._models.is_provider(name.partition(":")[0]):
                raise
            log.info("unknown model %r requested, using the agent's own", name[:100])
            return ""

    async def find(self, name: str) -> str:
        """Return our name of a model, empty for the agent's own; raises a `Problem` if there is no such model."""
        if name in ("", AGENT_MODEL):
            return ""
        if len(name) > _MAX_NAME:
            raise make_not_found("There is no model with such a long name.", param="model", code="model_not_found")
        try:
            chosen = await self._models.find(name)
        except Ambiguous as error:
            raise make_not_found(str(error), param="model", code="model_not_found") from error
        except NotFound as error:
            message = f"There is no model `{name[:100]}`. `/v1/models` lists the available ones."
            raise make_not_found(message, param="model", code="model_not_found") from error
        except Refused as error:  # which may reveal more than a client should know
            log.warning("model %s can't be used: %s", name, error)
            message = f"The provider of `{name[:100]}` isn't available right now."
            raise make_server_problem(message, HTTPStatus.BAD_GATEWAY, code="model") from error
        return f"{chosen.provider}:{chosen.model}"

    async def list_names(self) -> list[ModelEntry]:
        """Return all names; models of providers that don't answer in time are left out."""
        entries = [ModelEntry(id=AGENT_MODEL)]
        try:
            async with asyncio.timeout(_LIST_TIMEOUT):
                listing = await self._models.get_cached_listing()
        except TimeoutError:
            return entries
        return entries + [ModelEntry(id=f"{one.provider}:{one.model}", owned_by=one.provider) for one in listing.models]


class ModelRoutes:
    """The routes about models."""

    def __init__(self, names: ModelNames) -> None:
        self._names = names

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/v1/models", handler=self._list, summary="List models", reply_type=ModelList,
                  scope="chat", tag="models"),
            Route(method="GET", path="/v1/models/{model*}", handler=self._show, summary="Retrieve a model",
                  reply_type=ModelEntry, scope="chat", tag="models"),
        )  # fmt: skip

    async def _list(self, _request: ApiRequest) -> Reply:
        return make_json_reply(ModelList(data=tuple(await self._names.list_names())))

    async def _show(self, request: ApiRequest) -> Reply:
        name = request.parts["model"]
        meant = await self._names.find(name)
        return make_json_reply(ModelEntry(id=name, owned_by=meant.partition(":")[0] or AGENT_MODEL))


class Health(Struct, frozen=True):
    """Health and uptime."""

    status: str
    version: str
    uptime_seconds: int


class Capabilities(Struct, frozen=True, kw_only=True):
    """The server's capabilities; ``async_delivery`` names the routes that can report later.

    ``notices`` are sentences for the owner, for example about skills that are ignored; guests see none.
    """

    object: str = "talaria.capabilities"
    version: str
    endpoints: tuple[str, ...]
    streaming: bool = True
    images: bool = True
    client_tools: bool = False
    session_header: str = "X-Talaria-Session-Id"
    events_header: str = "X-Talaria-Events"
    idempotency: bool = True
    scopes: tuple[str, ...] = SCOPES
    async_delivery: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


class MetaRoutes:
    """The routes that are about the API itself; the description includes the groups in ``described``."""

    def __init__(
        self,
        version: str,
        metrics: RequestMetrics,
        running: Callable[[], int],
        session_pools: Sequence[SessionPool],
        notices: Callable[[], tuple[str, ...]],
        described: Sequence[RouteGroup] = (),
    ) -> None:
        self._version = version
        self._request_metrics = metrics
        self._running = running
        self._session_pools = session_pools
        self._notices = notices
        self._described = described
        self._routes: Sequence[Route] = ()

    def routes(self, others: Sequence[Route]) -> tuple[Route, ...]:
        """Return these routes, which describe themselves and all ``others``."""
        own = (
            Route(method="GET", path="/health", handler=self._get_health, summary="Check that the server is alive",
                  scope=None, reply_type=Health, tag="about"),
            Route(method="GET", path="/metrics", handler=self._get_metrics, summary="Metrics for Prometheus",
                  scope="read", tag="about"),
            Route(method="GET", path="/v1/capabilities", handler=self._get_capabilities, summary="List capabilities",
                  scope="chat", reply_type=Capabilities, tag="about"),
            Route(method="GET", path="/openapi.json", handler=self._get_openapi,
                  summary="This API description as OpenAPI", scope=None, tag="about"),
            Route(method="GET", path="/docs", handler=self._get_docs, summary="This API description, as a web page",
                  scope=None, tag="about"),
        )  # fmt: skip
        self._routes = (*others, *own)
        return own

    async def _get_health(self, _request: ApiRequest) -> Reply:
        return make_json_reply(Health("ok", self._version, self._request_metrics.uptime))

    async def _get_metrics(self, _request: ApiRequest) -> Reply:
        turns = sum(one.running for one in self._session_pools)
        agents = sum(map(len, self._session_pools))
        text = self._request_metrics.text(self._version, running=self._running(), turns=turns, agents=agents)
        return Reply(body=text.encode(), content_type=CONTENT_TYPE)

    async def _get_capabilities(self, request: ApiRequest) -> Reply:
        notices = await asyncio.to_thread(self._notices) if request.caller.may("agent") else ()
        return make_json_reply(
            Capabilities(
                version=self._version,
                endpoints=tuple(f"{route.method} {route.path}" for route in self._routes),
                async_delivery=tuple(route.path for route in self._routes if route.lasting),
                notices=notices,
            )
        )

    async def _get_openapi(self, _request: ApiRequest) -> Reply:
        return self._description

    async def _get_docs(self, _request: ApiRequest) -> Reply:
        headers = {"content-security-policy": _PAGE_POLICY, "x-content-type-options": "nosniff"}
        return Reply(body=render_docs_page(self._list_groups(), self._version), content_type=_HTML, headers=headers)

    @cached_property
    def _description(self) -> Reply:
        return make_json_reply(build_openapi(self._list_groups(), self._version))

    def _list_groups(self) -> tuple[RouteGroup, ...]:
        return (describe_api(self._routes), *self._described)
