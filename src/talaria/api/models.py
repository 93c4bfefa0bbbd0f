"""`/v1/models`: by which names the agent can be asked, and what is meant by them."""

import asyncio
import logging
from datetime import datetime, timedelta
from http import HTTPStatus

from msgspec import Struct

from talaria.api.http import Reply, Request, json_reply
from talaria.api.problems import Problem, missing, server_problem
from talaria.api.router import Route
from talaria.commands.house import ModelRack
from talaria.contracts.clock import SystemClock
from talaria.core.errors import Ambiguous, NotFound, Refused

OWN = "talaria"
_PATIENCE = 3.0
_GOOD_FOR = timedelta(minutes=5)
_MOST = 256
_LONGEST_NAME = 200

log = logging.getLogger(__name__)


class ModelEntry(Struct, frozen=True, kw_only=True):
    """One model, as clients list it."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = OWN


class ModelList(Struct, frozen=True, kw_only=True):
    """All of them."""

    object: str = "list"
    data: tuple[ModelEntry, ...]


class ModelNames:
    """Resolves the names of models that clients send.

    ``talaria`` is the agent's own model, others are ``provider:model``. Many clients send a fixed name that means
    nothing here, for example ``gpt-4o``: it stands for the agent's own model, unless it is that of another one.
    """

    def __init__(self, models: ModelRack) -> None:
        self._models = models
        self._found: dict[str, tuple[datetime, str]] = {}

    async def resolve(self, name: str) -> str:
        """Return the model to ask, empty for the agent's own; raises a `Problem` only if its provider was named."""
        if name in ("", OWN):
            return ""
        now = SystemClock().now()
        at, found = self._found.get(name, (now - _GOOD_FOR, ""))
        if now - at >= _GOOD_FOR:
            found = await self._resolve(name)
            if len(self._found) >= _MOST:
                self._found.clear()
            self._found[name] = now, found
        return found

    async def _resolve(self, name: str) -> str:
        try:
            return await self.find(name)
        except Problem:
            if self._models.is_provider(name.partition(":")[0]):
                raise
            log.info("the model %r of a request is not known, so the agent's own is used", name[:100])
            return ""

    async def find(self, name: str) -> str:
        """Return how we call a model, empty for the agent's own; raises a `Problem` where there is no such model."""
        if name in ("", OWN):
            return ""
        if len(name) > _LONGEST_NAME:
            raise missing("There is no model of such a long name here.", param="model", code="model_not_found")
        try:
            chosen = await self._models.find(name)
        except Ambiguous as error:
            raise missing(str(error), param="model", code="model_not_found") from error
        except NotFound as error:
            words = f"There is no model `{name[:100]}` here: `/v1/models` lists those there are."
            raise missing(words, param="model", code="model_not_found") from error
        except Refused as error:  # which may tell more than a client should know
            log.warning("the model %s cannot be used: %s", name, error)
            words = f"The provider of `{name[:100]}` cannot be asked at the moment."
            raise server_problem(words, HTTPStatus.BAD_GATEWAY, code="model") from error
        return f"{chosen.provider}:{chosen.model}"

    async def names(self) -> list[ModelEntry]:
        """Return all that can be named; those whose providers do not tell in time are left out."""
        own = [ModelEntry(id=OWN)]
        try:
            async with asyncio.timeout(_PATIENCE):
                listing = await self._models.recent_listing()
        except TimeoutError:
            return own
        return own + [ModelEntry(id=f"{one.provider}:{one.model}", owned_by=one.provider) for one in listing.models]


class ModelRoutes:
    """The routes."""

    def __init__(self, names: ModelNames) -> None:
        self._names = names

    def routes(self) -> tuple[Route, ...]:
        """Return them."""
        return (
            Route(method="GET", path="/v1/models", handler=self._list, summary="List the models", gives=ModelList,
                  tag="models"),
            Route(method="GET", path="/v1/models/{model*}", handler=self._show, summary="Show one of them",
                  gives=ModelEntry, tag="models"),
        )  # fmt: skip

    async def _list(self, _request: Request) -> Reply:
        return json_reply(ModelList(data=tuple(await self._names.names())))

    async def _show(self, request: Request) -> Reply:
        name = request.parts["model"]
        meant = await self._names.find(name)
        return json_reply(ModelEntry(id=name, owned_by=meant.partition(":")[0] or OWN))
