"""`/v1/models`: the model names that clients may use."""

import asyncio
import logging
from datetime import datetime, timedelta
from http import HTTPStatus

from msgspec import Struct

from talaria.api.front_door import ApiRequest
from talaria.commands.application import ModelCatalog
from talaria.contracts.clock import SystemClock
from talaria.core.errors import Ambiguous, NotFound, Refused
from talaria.http.errors import Problem, make_not_found, make_server_problem
from talaria.http.routing import Reply, Route, make_json_reply

AGENT_MODEL = "talaria"
_LIST_TIMEOUT = 3.0
_CACHE_TIME = timedelta(minutes=5)
_MAX_CACHED = 256
_MAX_NAME = 200

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

    async def names(self) -> list[ModelEntry]:
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
        return make_json_reply(ModelList(data=tuple(await self._names.names())))

    async def _show(self, request: ApiRequest) -> Reply:
        name = request.parts["model"]
        meant = await self._names.find(name)
        return make_json_reply(ModelEntry(id=name, owned_by=meant.partition(":")[0] or AGENT_MODEL))
