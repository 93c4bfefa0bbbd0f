"""Routes about the API itself: health, metrics, capabilities, OpenAPI, documentation."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property

from msgspec import Struct

from talaria.access.api_keys import SCOPES
from talaria.api.front_door import ApiRequest, describe_api
from talaria.api.turns.session_pool import SessionPool
from talaria.http.application import RequestMetrics
from talaria.http.openapi import RouteGroup, build_openapi, render_docs_page
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.observability.prometheus import CONTENT_TYPE

_HTML = "text/html; charset=utf-8"
# The page contains its style and script, and loads nothing else.
_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


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
            Route(method="GET", path="/health", handler=self._health, summary="Check that the server is alive",
                  scope=None, reply_type=Health, tag="about"),
            Route(method="GET", path="/metrics", handler=self._metrics, summary="Metrics for Prometheus",
                  scope="read", tag="about"),
            Route(method="GET", path="/v1/capabilities", handler=self._capabilities, summary="List capabilities",
                  scope="chat", reply_type=Capabilities, tag="about"),
            Route(method="GET", path="/openapi.json", handler=self._openapi, summary="This API description as OpenAPI",
                  scope=None, tag="about"),
            Route(method="GET", path="/docs", handler=self._docs, summary="This API description, as a web page",
                  scope=None, tag="about"),
        )  # fmt: skip
        self._routes = (*others, *own)
        return own

    async def _health(self, _request: ApiRequest) -> Reply:
        return make_json_reply(Health("ok", self._version, self._request_metrics.uptime))

    async def _metrics(self, _request: ApiRequest) -> Reply:
        turns = sum(one.running for one in self._session_pools)
        agents = sum(map(len, self._session_pools))
        text = self._request_metrics.text(self._version, running=self._running(), turns=turns, agents=agents)
        return Reply(body=text.encode(), content_type=CONTENT_TYPE)

    async def _capabilities(self, request: ApiRequest) -> Reply:
        notices = await asyncio.to_thread(self._notices) if request.caller.may("agent") else ()
        return make_json_reply(
            Capabilities(
                version=self._version,
                endpoints=tuple(f"{route.method} {route.path}" for route in self._routes),
                async_delivery=tuple(route.path for route in self._routes if route.lasting),
                notices=notices,
            )
        )

    async def _openapi(self, _request: ApiRequest) -> Reply:
        return self._description

    async def _docs(self, _request: ApiRequest) -> Reply:
        headers = {"content-security-policy": _PAGE_POLICY, "x-content-type-options": "nosniff"}
        return Reply(body=render_docs_page(self._groups(), self._version), content_type=_HTML, headers=headers)

    @cached_property
    def _description(self) -> Reply:
        return make_json_reply(build_openapi(self._groups(), self._version))

    def _groups(self) -> tuple[RouteGroup, ...]:
        return (describe_api(self._routes), *self._described)
