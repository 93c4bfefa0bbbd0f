"""Calls of Discord's HTTP API, with time-outs and our error types."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, TypeVar

import aiohttp
import msgspec
from discord import ConnectionClosed, DiscordException, HTTPException, RateLimited
from discord.http import HTTPClient, Ratelimit, Route

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.discord.settings import DiscordSettings
from talaria.platforms.discord.wire import User, parse

UNKNOWN_EMOJI = 10014
INVALID_FORM = 50035
CANNOT_REPLY = 160002
_DEFAULT_PAUSE = 5.0
_FATAL = {
    4004: "Discord rejected the bot token; it may have been reset",
    4014: "Discord doesn't let this bot read messages. Turn on Message Content Intent on the Bot page of its "
    "application, or set message_content to false",
}
# A pause this short is waited for here; delivery plans any longer one.
MAX_SHORT_PAUSE = 1.0
_MOST_BUCKETS = 500
_T = TypeVar("_T")

log = logging.getLogger(__name__)


class Refusal(Rejected):
    """A refusal by Discord; ``code`` says why."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


def pause(seconds: float, *, everywhere: bool) -> SlowDown:
    """Return the error for a rate limit."""
    return SlowDown(
        f"Discord asks us to wait {seconds:g} s", retry_after=timedelta(seconds=seconds), everywhere=everywhere
    )


def to_platform_error(error: HTTPException) -> PlatformError:
    """Return our error for an error response."""
    match error.status:
        case 401:
            return BadCredentials("Discord rejected the bot token; it may have been reset")
        case 429:
            return pause(_read_retry_after(error), everywhere=True)
        case 403 if not error.code:
            return Unreachable("a proxy in front of Discord refused the request (403)")
        case status if 400 <= status < 500:
            return Refusal(f"Discord refused: {error.text or status} ({error.code})", error.code)
        case status:
            return Unreachable(f"Discord is having problems ({status})")


def to_close_error(error: ConnectionClosed) -> PlatformError:
    """Return our error for a connection that Discord closed permanently."""
    if error.code in _FATAL:
        return BadCredentials(_FATAL[error.code])
    return Unreachable(f"Discord closed the connection ({error.code})")


def _read_retry_after(error: HTTPException) -> float:
    try:
        return float(error.response.headers["Retry-After"])
    except (KeyError, ValueError):
        return _DEFAULT_PAUSE


class RateLimitBucket(Ratelimit):
    """The rate limit of one kind of request in one channel.

    The library's own would delay an answer until the next request may be sent, and refuse requests that may.
    """

    __slots__ = ()

    async def acquire(self) -> None:
        """Wait briefly if no request is left. Raises `RateLimited` if it would take longer."""
        self._last_request = self._loop.time()
        while self.expires is not None and self.remaining <= 0:
            pause = self.expires - self._loop.time()
            if pause > MAX_SHORT_PAUSE:
                raise RateLimited(pause)
            if pause > 0:
                await asyncio.sleep(pause)
            if self.is_expired():
                self.reset()  # type: ignore[no-untyped-call]
        self.remaining -= 1
        self.outgoing += 1

    async def __aexit__(self, *failure: object) -> None:
        self.outgoing -= 1


class Api(HTTPClient):
    """The library's client, with a configurable URL and our error types."""

    def __init__(self, settings: DiscordSettings) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(_record_scope)
        super().__init__(asyncio.get_running_loop(), http_trace=trace)
        self.max_ratelimit_timeout = MAX_SHORT_PAUSE
        self._url = settings.api_url.rstrip("/")

    async def request(self, route: Route, **kwargs: Any) -> Any:
        """Send a request and return the answer. Raises `PlatformError`."""
        route.url = self._url + route.url.removeprefix(route.BASE)
        scope = SimpleNamespace(everywhere=False)
        try:
            return await super().request(route, trace_request_ctx=scope, **kwargs)
        except RateLimited as error:
            raise pause(error.retry_after, everywhere=scope.everywhere) from error
        except HTTPException as error:
            raise to_platform_error(error) from error

    def get_ratelimit(self, key: str) -> RateLimitBucket:
        """Return the rate limit of a kind of request."""
        bucket = self._buckets.get(key)
        if not isinstance(bucket, RateLimitBucket):
            bucket = self._buckets[key] = RateLimitBucket(MAX_SHORT_PAUSE)
            if len(self._buckets) > _MOST_BUCKETS:
                self._try_clear_expired_ratelimits()
        return bucket

    async def respond(self, interaction: str, token: str, answer: dict[str, object]) -> None:
        """Answer an interaction."""
        route = Route(
            "POST", "/interactions/{webhook_id}/{webhook_token}/callback", webhook_id=interaction, webhook_token=token
        )
        await self.request(route, json=answer)

    async def delete_original_response(self, application: str, token: str) -> None:
        """Delete the original answer to an interaction."""
        path = "/webhooks/{webhook_id}/{webhook_token}/messages/@original"
        await self.request(Route("DELETE", path, webhook_id=application, webhook_token=token))


class ApiClient:
    """The client of one bot, logged in at the first call."""

    def __init__(self, settings: DiscordSettings) -> None:
        self._settings = settings
        self._login_lock = asyncio.Lock()
        self._api: Api | None = None
        self._me: User | None = None

    async def me(self) -> User:
        """Return our own user."""
        await self.ask(_do_nothing)
        assert self._me is not None
        return self._me

    async def ask(self, call: Callable[[Api], Awaitable[_T]], patience: timedelta | None = None) -> _T:
        """Return the answer within a time limit, or raise one of our errors."""
        seconds = (patience or self._settings.patience).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await call(await self._ensure_logged_in())
        except TimeoutError as error:
            raise Unreachable(f"Discord didn't answer within {seconds:g} s") from error
        except HTTPException as error:
            raise to_platform_error(error) from error
        except (aiohttp.ClientError, OSError, DiscordException, msgspec.ValidationError) as error:
            raise Unreachable(f"can't reach Discord: {type(error).__name__}") from error

    async def close(self) -> None:
        """Close all connections."""
        api, self._api = self._api, None
        if api is not None:
            await api.close()

    async def _ensure_logged_in(self) -> Api:
        async with self._login_lock:
            if self._api is None:
                api = Api(self._settings)
                try:
                    self._me = parse(await api.static_login(self._settings.token), User)
                except BaseException:
                    await api.close()
                    raise
                self._api = api
            return self._api


async def _do_nothing(api: Api) -> None:
    """Do nothing more than log in."""


async def _record_scope(
    session: aiohttp.ClientSession, context: SimpleNamespace, end_params: aiohttp.TraceRequestEndParams
) -> None:
    if end_params.response.status == 429 and context.trace_request_ctx is not None:
        context.trace_request_ctx.everywhere = end_params.response.headers.get("X-RateLimit-Scope") == "global"
