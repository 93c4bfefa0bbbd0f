"""Calls of Discord's HTTP interface: each within its time, each failure one of ours."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, TypeVar

import aiohttp
import msgspec
from discord import DiscordException, HTTPException, RateLimited
from discord.http import HTTPClient, Route

from talaria.core.errors import Unreachable
from talaria.platforms.discord.failures import our_error, pause
from talaria.platforms.discord.pace import SHORT_PAUSE, Pace
from talaria.platforms.discord.settings import DiscordSettings
from talaria.platforms.discord.wire import User, read

_PACES_KEPT = 500
_T = TypeVar("_T")

log = logging.getLogger(__name__)


class Api(HTTPClient):
    """The library's client, at an address of our choice, with errors of ours."""

    def __init__(self, settings: DiscordSettings) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(_note_scope)
        super().__init__(asyncio.get_running_loop(), http_trace=trace)
        self.max_ratelimit_timeout = SHORT_PAUSE
        self._url = settings.api_url.rstrip("/")

    async def request(self, route: Route, **named: Any) -> Any:
        """Send a request and return the answer. Raises `PlatformError`."""
        route.url = self._url + route.url.removeprefix(route.BASE)
        scope = SimpleNamespace(everywhere=False)
        try:
            return await super().request(route, trace_request_ctx=scope, **named)
        except RateLimited as error:
            raise pause(error.retry_after, everywhere=scope.everywhere) from error
        except HTTPException as error:
            raise our_error(error) from error

    def get_ratelimit(self, key: str) -> Pace:
        """Return how fast requests of a kind may be sent."""
        pace = self._buckets.get(key)
        if not isinstance(pace, Pace):
            pace = self._buckets[key] = Pace(SHORT_PAUSE)
            if len(self._buckets) > _PACES_KEPT:
                self._try_clear_expired_ratelimits()
        return pace

    async def respond(self, interaction: str, token: str, answer: dict[str, object]) -> None:
        """Answer an interaction."""
        route = Route(
            "POST", "/interactions/{webhook_id}/{webhook_token}/callback", webhook_id=interaction, webhook_token=token
        )
        await self.request(route, json=answer)

    async def take_back(self, application: str, token: str) -> None:
        """Remove what stands there as the answer to an interaction."""
        path = "/webhooks/{webhook_id}/{webhook_token}/messages/@original"
        await self.request(Route("DELETE", path, webhook_id=application, webhook_token=token))


class Calls:
    """The client of one bot, logged in when the first question is asked."""

    def __init__(self, settings: DiscordSettings) -> None:
        self._settings = settings
        self._entering = asyncio.Lock()
        self._api: Api | None = None
        self._me: User | None = None

    async def me(self) -> User:
        """Return who we are."""
        await self.ask(_nothing)
        assert self._me is not None
        return self._me

    async def ask(self, call: Callable[[Api], Awaitable[_T]], patience: timedelta | None = None) -> _T:
        """Wait for an answer, within some time, and raise one of our errors if there is none."""
        seconds = (patience or self._settings.patience).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await call(await self._logged_in())
        except TimeoutError as error:
            raise Unreachable(f"Discord did not answer within {seconds:g} s") from error
        except HTTPException as error:
            raise our_error(error) from error
        except (aiohttp.ClientError, OSError, DiscordException, msgspec.ValidationError) as error:
            raise Unreachable(f"Discord cannot be reached: {type(error).__name__}") from error

    async def close(self) -> None:
        """Let go of all connections."""
        api, self._api = self._api, None
        if api is not None:
            await api.close()

    async def _logged_in(self) -> Api:
        async with self._entering:
            if self._api is None:
                api = Api(self._settings)
                try:
                    self._me = read(await api.static_login(self._settings.token), User)
                except BaseException:
                    await api.close()
                    raise
                self._api = api
            return self._api


async def _nothing(api: Api) -> None:
    """Ask for no more than the login."""


async def _note_scope(
    session: aiohttp.ClientSession, context: SimpleNamespace, ended: aiohttp.TraceRequestEndParams
) -> None:
    if ended.response.status == 429 and context.trace_request_ctx is not None:
        context.trace_request_ctx.everywhere = ended.response.headers.get("X-RateLimit-Scope") == "global"
