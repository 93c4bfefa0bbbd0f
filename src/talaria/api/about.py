"""What the API tells of itself: whether it lives, its figures, what it can do, and how to ask for it."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from talaria.api.conversations import Conversations
from talaria.api.figures import Figures
from talaria.api.http import Reply, Request, json_reply
from talaria.api.openapi import describe
from talaria.api.page import page
from talaria.api.router import Route
from talaria.sessions.figures import CONTENT_TYPE

_HTML = "text/html; charset=utf-8"
# The page brings its own style and script, and loads nothing from anywhere.
_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


class Health(Struct, frozen=True):
    """That it lives, and for how long."""

    status: str
    version: str
    uptime_seconds: int


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a client may count on; ``async_delivery`` names the routes that can report later."""

    object: str = "talaria.capabilities"
    version: str
    endpoints: tuple[str, ...]
    streaming: bool = True
    images: bool = True
    client_tools: bool = False
    session_header: str = "X-Talaria-Session-Id"
    events_header: str = "X-Talaria-Events"
    idempotency: bool = True
    scopes: tuple[str, ...] = ("chat", "read", "admin")
    async_delivery: tuple[str, ...] = ()


class About:
    """The routes that are about the API itself."""

    def __init__(
        self,
        version: str,
        figures: Figures,
        running: Callable[[], int],
        conversations: Sequence[Conversations],
    ) -> None:
        self._version = version
        self._figures = figures
        self._running = running
        self._conversations = conversations
        self._routes: Sequence[Route] = ()

    def routes(self, others: Sequence[Route]) -> tuple[Route, ...]:
        """Return these routes; what is told is about them and all ``others``."""
        own = (
            Route(method="GET", path="/health", handler=self._health, summary="Whether it lives", scope=None,
                  gives=Health, tag="about"),
            Route(method="GET", path="/metrics", handler=self._metrics, summary="Figures for Prometheus",
                  scope="read", tag="about"),
            Route(method="GET", path="/v1/capabilities", handler=self._capabilities, summary="What there is",
                  scope="chat", gives=Capabilities, tag="about"),
            Route(method="GET", path="/openapi.json", handler=self._openapi, summary="This description",
                  scope=None, tag="about"),
            Route(method="GET", path="/docs", handler=self._docs, summary="The same as a page", scope=None,
                  tag="about"),
        )  # fmt: skip
        self._routes = (*others, *own)
        return own

    async def _health(self, _request: Request) -> Reply:
        return json_reply(Health("ok", self._version, self._figures.uptime))

    async def _metrics(self, _request: Request) -> Reply:
        turns = sum(one.running for one in self._conversations)
        agents = sum(map(len, self._conversations))
        text = self._figures.text(self._version, running=self._running(), turns=turns, agents=agents)
        return Reply(body=text.encode(), content_type=CONTENT_TYPE)

    async def _capabilities(self, _request: Request) -> Reply:
        return json_reply(
            Capabilities(
                version=self._version,
                endpoints=tuple(f"{route.method} {route.path}" for route in self._routes),
                async_delivery=tuple(route.path for route in self._routes if route.lasting),
            )
        )

    async def _openapi(self, _request: Request) -> Reply:
        return json_reply(describe(self._routes, self._version))

    async def _docs(self, _request: Request) -> Reply:
        headers = {"content-security-policy": _PAGE_POLICY, "x-content-type-options": "nosniff"}
        return Reply(body=page(self._routes, self._version), content_type=_HTML, headers=headers)
